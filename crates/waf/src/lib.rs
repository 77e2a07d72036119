//! Web application firewall engine for SecLang rule sets such as the OWASP Core Rule Set, for AppSec rules of
//! CrowdSec, and for rules of naxsi.
//!
//! The crate is pure: it takes the bytes of a request and a response and returns a verdict. It
//! opens no socket, reads no clock and starts no thread. Files are read while rules are loaded.
//!
//! - [`RuleSet::builder`] reads rules: files, or texts in memory.
//! - A [`Transaction`] is one request with its response: the caller gives it lines, headers and bodies, and runs the phases.
//! - A [`Session`] is a transaction whose bodies arrive in pieces. It says what a server may forward and when rules run, and
//!   decodes content codings.
//! - [`Collections`] keep values of rules from one transaction to the next.
//! - A [`Worker`] has the memory that one thread needs to run rules. [`Worker::warm_up`] fills it.
//!
//! ```
//! use std::sync::Arc;
//! use tollgate_waf::{RuleSet, Transaction, Worker};
//!
//! let rules = r#"
//!     SecRuleEngine On
//!     SecRule ARGS "@contains attack" "id:1,phase:1,deny,status:403,t:lowercase,msg:'Attack'"
//! "#;
//! let rules = Arc::new(RuleSet::builder().text("example.conf", rules).build()?);
//! let mut worker = Worker::new();
//! let mut transaction = Transaction::new(rules);
//! transaction.request_line(b"GET", b"/?q=ATTACK", b"HTTP/1.1");
//! transaction.request_header(b"Host", b"example.com");
//! let intervention = transaction.process_request_headers(&mut worker);
//! assert_eq!(intervention.map(|i| i.status), Some(403));
//! # Ok::<(), tollgate_waf::LoadError>(())
//! ```

#![warn(missing_docs)]

mod body;
mod caches;
mod collections;
mod condition;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod head;
mod libinjection;
mod limits;
mod load;
mod operator;
mod pcre;
mod plan;
mod regex;
mod review;
mod rule;
mod ruleset;
mod session;
mod settings;
mod template;
mod transaction;
mod transformation;
mod variable;

pub use collections::{CollectionLimits, CollectionUsage, Collections};
pub use error::{LoadError, RulePlace, Skipped};
pub use limits::LimitsReached;
pub use load::{Builder, source};
#[cfg(any(test, fuzzing))]
pub use plan::Lemma;
pub use review::BodyKind;
pub use rule::{AuditEngine, EngineMode, Phase, Severity};
pub use ruleset::{RuleInfo, RuleSet};
pub use session::{BodyLength, Compression, Direction, Extent, Next, Session, SessionOptions};
pub use settings::{LimitAction, Settings};
pub use transaction::{Connection, Intervention, Match, MatchDetails, Transaction, Worker};

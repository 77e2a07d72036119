//! The engine inside a server: the `waf` block of its configuration, rules that are ready to run, what a thread keeps for them, and
//! what becomes of a blocked message. The gateway, libmodsecurity's interface and Envoy's module stand on it.

pub mod config;
mod engines;
mod fault;
mod memo;
mod rules;
mod verdict;

pub use config::{Block, Waf};
pub use engines::{Engine, Engines, Sampler, serve};
pub use fault::{OnFault, guard};
pub use memo::{Kept, Memo};
pub use rules::Rules;
pub use verdict::{BlockResponse, blocked_phrase, inbound_score};

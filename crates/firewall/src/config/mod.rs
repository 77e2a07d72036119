//! The `waf` block: its validation, which loads the rules ([`RuleCache`]), and the validated values.

mod load;
mod rule_files;
mod scalars;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_config::waf::WafFile;
use tollgate_config::{ConfigError, InvalidValue};
use tollgate_waf::{Compression, EngineMode};

use crate::rules::Rules;
pub use load::RuleCache;
pub use scalars::{check_header_name, number};

/// Inspection of requests and their responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waf {
    pub rules: Arc<Rules>,
    /// On or detection only.
    pub mode: EngineMode,
    /// Percentage of inspected requests.
    pub sample: u8,
    pub request_compression: Compression,
    pub response_compression: Compression,
    pub block: Block,
    /// Response header with the identifier of the transaction.
    pub transaction_header: Option<String>,
}

/// The body of a response, from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub body: Arc<[u8]>,
    /// `None`: text.
    pub media_type: Option<&'static str>,
}

/// Response to a blocked request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// `None`: that of the rule.
    pub status: Option<u16>,
    pub page: Option<Arc<[u8]>>,
    /// Media type of the page; `None`: text.
    pub media_type: Option<&'static str>,
    /// Answers with status and page also where a rule redirects, for a proxy that forwards no redirects.
    pub is_fixed: bool,
}

/// A `waf` block that was read.
#[derive(Debug)]
pub struct Parsed {
    /// `None`: nothing is to be inspected.
    pub waf: Option<Arc<Waf>>,
    pub warnings: Vec<String>,
    /// Files and folders on which it depends.
    pub files: Vec<PathBuf>,
}

impl Waf {
    /// Parses the keys of a `waf` block, in YAML or JSON, and loads their rules. Errors name `place`; relative paths are resolved
    /// against `folder`.
    pub fn parse(text: &str, place: &str, folder: &Path) -> Result<Parsed, ConfigError> {
        let invalid = |invalid: InvalidValue| invalid.in_file(place);
        let file = WafFile::parse(text).map_err(invalid)?;
        let mut cache = RuleCache::default();
        let waf = cache.waf(&[Some(&file)], "", folder).map_err(invalid)?;
        let warnings = cache.warnings.into_iter().map(|warning| invalid(warning).to_string());
        Ok(Parsed { waf, warnings: warnings.collect(), files: cache.files })
    }
}

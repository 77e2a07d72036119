//! The firewall of a route and its log.

use std::sync::Arc;

use tollgate_accesslog::LogTarget;
use tollgate_waf::{Compression, EngineMode};

use crate::firewall::Rules;

/// Inspection of the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waf {
    pub(crate) rules: Arc<Rules>,
    /// On or detection only.
    pub(crate) mode: EngineMode,
    /// Percentage of inspected requests.
    pub(crate) sample: u8,
    pub(crate) request_compression: Compression,
    pub(crate) response_compression: Compression,
    pub(crate) block: Block,
    /// Response header with the identifier of the transaction.
    pub(crate) transaction_header: Option<String>,
}

/// Response to a blocked request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// `None`: that of the rule.
    pub(crate) status: Option<u16>,
    pub(crate) page: Option<Arc<[u8]>>,
    /// Media type of the page; `None`: text.
    pub(crate) media_type: Option<&'static str>,
    /// Answers with status and page also where a rule redirects, for a proxy that forwards no redirects.
    pub(crate) is_fixed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    pub to: LogTarget,
    /// Logs transactions without a match, too.
    pub all: bool,
    /// In lower case.
    pub masked: Vec<String>,
}

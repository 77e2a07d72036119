//! The response in place of a blocked message, and the score of a transaction.

use std::sync::Arc;

use tollgate_http1::reason_phrase;
use tollgate_waf::Transaction;

use crate::config::Block;

/// Response in place of a blocked message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockResponse {
    pub status: u16,
    pub content_type: String,
    pub body: Arc<[u8]>,
}

impl Block {
    /// `status` is that of the rule.
    pub fn response(&self, status: u16) -> BlockResponse {
        let status = self.status.unwrap_or(status);
        let content_type = match self.media_type.unwrap_or("text/plain") {
            text if text.starts_with("text/") => format!("{text}; charset=utf-8"),
            other => other.to_owned(),
        };
        let body = match &self.page {
            Some(page) => Arc::clone(page),
            None if status < 400 => b"Blocked\n"[..].into(),
            None => format!("{}\n", blocked_phrase(status)).into_bytes().into(),
        };
        BlockResponse { status, content_type, body }
    }
}

/// The phrase of a status that a rule names, which can be any.
pub fn blocked_phrase(status: u16) -> &'static str {
    match reason_phrase(status) {
        "" => "Blocked",
        phrase => phrase,
    }
}

/// Score of the rules that can block a request, of CRS 4 or 3.
pub fn inbound_score(transaction: &Transaction) -> Option<i64> {
    let text = transaction
        .tx("blocking_inbound_anomaly_score")
        .or_else(|| transaction.tx("anomaly_score"))?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

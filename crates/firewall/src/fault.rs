//! Bugs of the firewall inside a server that is not ours: a panic never reaches it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Reaction to a bug of the firewall: a transaction in which it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFault {
    /// Ends the transaction with status 500.
    Deny,
    /// Lets it pass without inspection.
    Pass,
}

impl OnFault {
    /// Environment variable with the reaction.
    pub const VARIABLE: &str = "TOLLGATE_WAF_ON_FAULT";

    /// `Pass` if the environment says so.
    pub fn from_environment() -> Self {
        match std::env::var(Self::VARIABLE) {
            Ok(value) if value == "pass" => Self::Pass,
            _ => Self::Deny,
        }
    }

    /// Text for the log of the server.
    pub fn advice() -> String {
        format!(
            "bug in the firewall, transaction not inspected; set {}=pass to let such requests pass",
            Self::VARIABLE
        )
    }
}

/// Runs a call from the server; `None` if it panics, which is logged once on standard error.
pub fn guard<R>(call: impl FnOnce() -> R) -> Option<R> {
    static REPORT: Once = Once::new();
    let result = catch_unwind(AssertUnwindSafe(call));
    if result.is_err() {
        REPORT.call_once(|| {
            eprintln!("tollgate: bug in the firewall, see above; the transaction ends; further bugs are not logged");
        });
    }
    result.ok()
}

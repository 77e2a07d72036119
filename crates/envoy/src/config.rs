//! Configurations: of a filter, and of a route.

use std::path::Path;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use tollgate_firewall::config::Parsed;
use tollgate_firewall::{Memo, OnFault, Waf};
use tollgate_waf::Collections;

use crate::abi::Level;
use crate::host::{Counter, concurrency, log};

/// Values that rules keep across requests: one store for all configurations, so that updates keep them.
pub(crate) static COLLECTIONS: LazyLock<Arc<Collections>> = LazyLock::new(Arc::default);

/// Configuration of a filter.
#[derive(Debug)]
pub(crate) struct FilterConfig {
    /// `None`: nothing is inspected, unless the route has its own.
    pub(crate) waf: Option<Arc<Waf>>,
    pub(crate) counters: Counters,
    pub(crate) on_fault: OnFault,
}

/// Configuration of a route, in place of that of the filter.
#[derive(Debug)]
pub(crate) struct RouteConfig {
    pub(crate) waf: Option<Arc<Waf>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    /// Requests that were inspected.
    pub(crate) inspected: Counter,
    pub(crate) blocked: Counter,
    /// Requests that were not blocked, in which a rule matched that is to be logged.
    pub(crate) detected: Counter,
    /// Streams of which a part passed without inspection.
    pub(crate) partial: Counter,
    /// Requests in which a limit was reached.
    pub(crate) over_limit: Counter,
    /// Time of the engine in microseconds.
    pub(crate) engine_us: Counter,
    /// Inspections on the helper thread.
    pub(crate) lent: Counter,
    /// Inspections that ended with a panic.
    pub(crate) faults: Counter,
}

impl Counters {
    /// `define` makes a counter.
    pub(crate) fn define(define: impl Fn(&str) -> Option<Counter>) -> Result<Self, String> {
        let counter =
            |name| define(name).ok_or_else(|| format!("cannot define the counter {name}"));
        Ok(Self {
            inspected: counter("waf_inspected")?,
            blocked: counter("waf_blocked")?,
            detected: counter("waf_detected")?,
            partial: counter("waf_partial")?,
            over_limit: counter("waf_over_limit")?,
            engine_us: counter("waf_engine_us")?,
            lent: counter("waf_helper")?,
            faults: counter("waf_faults")?,
        })
    }
}

/// Parses the keys of a `waf` block, and prepares its rules for each worker of Envoy. `place` is named in errors.
///
/// Envoy makes several configurations of one filter, which share the result as long as no file of it has changed.
pub(crate) fn parse(text: &[u8], place: &str) -> Result<Option<Arc<Waf>>, String> {
    static IN_USE: LazyLock<Memo<Vec<u8>, Option<Weak<Waf>>>> =
        LazyLock::new(|| Memo::new(Duration::ZERO));
    IN_USE.get(&text.to_vec(), |text| {
        let text =
            std::str::from_utf8(text).map_err(|_utf8| format!("{place}: text is not UTF-8"))?;
        let Parsed { waf, warnings, files } =
            Waf::parse(text, place, Path::new("")).map_err(|error| with_causes(&error))?;
        for warning in warnings {
            log(Level::Warn, &format!("tollgate: {warning}"));
        }
        if let Some(waf) = &waf {
            waf.rules.warm_up(concurrency());
        }
        Ok((waf, files))
    })
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

//! Counters of the local API, across reloads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate_admin::Page;

use crate::checks::CheckCounters;

#[derive(Debug, Default)]
pub(crate) struct LocalApiCounters {
    /// There is a local API, or was.
    pub(super) is_configured: AtomicBool,
    pub(super) keys: Arc<CheckCounters>,
    pub(super) alerts_sent: AtomicU64,
    pub(super) alerts_failed: AtomicU64,
    pub(super) alerts_dropped: AtomicU64,
}

impl LocalApiCounters {
    /// Writes nothing without a local API.
    pub(crate) fn render(&self, page: &mut Page) {
        if !self.is_configured.load(Ordering::Relaxed) {
            return;
        }
        let keys = self.keys.all();
        let alerts = [
            ("sent", &self.alerts_sent),
            ("failed", &self.alerts_failed),
            ("dropped", &self.alerts_dropped),
        ]
        .map(|(result, counter)| (result, counter.load(Ordering::Relaxed)));
        for (name, help, counters) in [
            (
                "local_api_keys_total",
                "Checks of bouncers' keys with CrowdSec's local API, by result.",
                &keys[..],
            ),
            ("local_api_alerts_total", "Alerts for CrowdSec's local API, by result.", &alerts),
        ] {
            page.family(name, help);
            for (result, count) in counters {
                page.sample(name, &[("result", result)], *count);
            }
        }
    }
}

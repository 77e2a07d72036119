//! The firewalls of the routes of a configuration in use.

use std::sync::Arc;

use tollgate_waf::Collections;

use super::counters::{FirewallCounters, RouteCounters};
use crate::config::{AuditLog, Config, HostPattern, Route, Waf};

/// The firewall of a route in a configuration in use.
#[derive(Debug)]
pub(crate) struct Firewall {
    pub(super) waf: Arc<Waf>,
    pub(super) counters: Arc<RouteCounters>,
    pub(super) audit: Option<Arc<AuditLog>>,
    pub(super) held_bytes_max: usize,
    pub(super) collections: Arc<Collections>,
}

impl Firewall {
    /// One per route, `None` without inspection. Prepares workers for all threads.
    pub(crate) fn of_routes(
        config: &Config,
        counters: &FirewallCounters,
    ) -> Vec<Option<Arc<Self>>> {
        let audit = config.audit_log.clone().map(Arc::new);
        counters.collections.set_limits(config.limits.collections);
        let routes = config.routes.iter().map(|route| {
            let waf = Arc::clone(route.waf.as_ref()?);
            waf.rules.warm_up(config.threads.get());
            Some(Arc::new(Self {
                counters: counters.route(&label(route), config.threads.get()),
                audit: audit.clone(),
                held_bytes_max: config.limits.held_body_bytes,
                collections: Arc::clone(&counters.collections),
                waf,
            }))
        });
        routes.collect()
    }
}

/// The route as named in metrics and the audit log.
fn label(route: &Route) -> String {
    let path = &route.path_prefix;
    match &route.host {
        HostPattern::Any => format!("*{path}"),
        HostPattern::Exact(host) => format!("{host}{path}"),
        HostPattern::Below(host) => format!("*.{host}{path}"),
    }
}

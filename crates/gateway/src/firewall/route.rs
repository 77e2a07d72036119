//! The firewalls of the routes of a configuration in use.

use std::sync::Arc;

use tollgate_waf::Collections;

use super::counters::{FirewallCounters, RouteCounters};
use crate::config::{AuditLog, Config, HostPattern, Listener, RouteId, Service, Waf};
use crate::local_api::LocalApi;

/// The firewall of a route in a configuration in use.
#[derive(Debug)]
pub(crate) struct Firewall {
    pub(super) waf: Arc<Waf>,
    pub(super) counters: Arc<RouteCounters>,
    pub(super) audit: Option<Arc<AuditLog>>,
    pub(super) held_bytes_max: usize,
    pub(super) collections: Arc<Collections>,
    /// Inspects each request again, after its answer.
    pub(super) out_of_band: Option<Arc<Self>>,
    /// Gets an alert for each request that a rule blocks.
    pub(super) alerts: Option<AlertTarget>,
}

#[derive(Clone, Debug)]
pub(super) struct AlertTarget {
    pub(super) api: Arc<LocalApi>,
    pub(super) is_out_of_band: bool,
}

impl Firewall {
    /// One per route, `None` without inspection. Prepares workers for all threads.
    pub(crate) fn of_routes(
        config: &Config,
        counters: &FirewallCounters,
        local_api: Option<&Arc<LocalApi>>,
    ) -> Vec<Option<Arc<Self>>> {
        let local_api = local_api.filter(|api| api.takes_alerts());
        let audit = config.audit_log.clone().map(Arc::new);
        counters.collections.set_limits(config.limits.collections);
        let threads = config.threads.get();
        let firewall = |waf: &Arc<Waf>, label: &str, out_of_band, is_out_of_band| {
            waf.rules.warm_up(threads);
            Arc::new(Self {
                waf: Arc::clone(waf),
                counters: counters.route(label, threads),
                audit: audit.clone(),
                held_bytes_max: config.limits.held_body_bytes,
                collections: Arc::clone(&counters.collections),
                out_of_band,
                alerts: local_api.map(|api| AlertTarget { api: Arc::clone(api), is_out_of_band }),
            })
        };
        let routes = config.routes.iter().enumerate().map(|(at, route)| {
            let waf = route.waf.as_ref()?;
            let label = label(config, RouteId(at));
            let out_of_band = route.verdicts.as_ref().and_then(|rules| rules.out_of_band.as_ref());
            let out_of_band =
                out_of_band.map(|waf| firewall(waf, &format!("{label} out-of-band"), None, true));
            Some(firewall(waf, &label, out_of_band, false))
        });
        routes.collect()
    }
}

impl Firewall {
    /// Counts a request whose inspection took longer than its budget.
    pub(crate) fn count_late(&self, thread: usize, passes: bool) {
        self.counters.count_late(thread, passes);
    }
}

/// The route as named in metrics and the audit log: host and path, or the address on which proxies ask for its verdicts,
/// with the application.
fn label(config: &Config, at: RouteId) -> String {
    for Listener { address, service, .. } in &config.listeners {
        if let Service::Spoe(spoe) = service
            && let Some((name, _)) = spoe.applications.iter().find(|(_, route)| *route == at)
        {
            return format!("{address} {name}");
        }
        if service.route() == Some(at) {
            return address.to_string();
        }
    }
    let route = &config.routes[at.0];
    let path = &route.path_prefix;
    match &route.host {
        HostPattern::Any => format!("*{path}"),
        HostPattern::Exact(host) => format!("{host}{path}"),
        HostPattern::Below(host) => format!("*.{host}{path}"),
    }
}

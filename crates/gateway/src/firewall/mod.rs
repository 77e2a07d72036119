//! The web application firewall, which runs rule sets.
//!
//! It sees, in this order: the request head, before a backend is chosen; the request body, piece by piece without its
//! transfer coding; the response head; the response body; and the outcome. Nothing is forwarded before its verdict. Not
//! shown are interim responses, tunnels, and requests without a route.
//!
//! An [`Inspection`](inspection::Inspection) is the state of one request and its response. Short messages are inspected at
//! once, on the thread of their client; long ones on a helper thread, while the transaction is suspended, so that other
//! clients are served. Rules [out of band](out_of_band) inspect copies of requests after their answers.

mod alert;
mod audit;
mod counters;
mod engines;
mod inspection;
mod inspector;
mod out_of_band;
mod route;
mod verdict;
mod waiting;
mod whole;

pub(crate) use audit::AuditFile;
pub(crate) use counters::FirewallCounters;
pub(crate) use inspector::Inspector;
pub(crate) use route::Firewall;
pub(crate) use tollgate_waf::Direction;
pub(crate) use verdict::{
    FirewallVerdict, InspectedHead, InspectedResponse, Outcome, RequestContext, TransactionId,
    WholeBody,
};
pub(crate) use waiting::Waiting;

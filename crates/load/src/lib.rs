//! Load generator for HTTP/1.1 and HTTP/2.
//!
//! A closed loop sends the next request of a connection when the last response is complete. An open
//! loop sends on a schedule, independent of responses.
//!
//! No async runtime: each thread has its own epoll instance, connections and histograms, and shares
//! nothing per request. A request costs one send, one receive, its share of a wait and one reading of
//! the clock, which ends one request and starts the next. Memory does not grow with the run,
//! except that a replay stores its requests that are due and not sent.
//!
//! A [`Replay`] sends recorded requests on the schedule of an open loop, with a session for each client: its connections,
//! its cookies, and variables from responses to it.
//!
//! A [`Plan`] defines requests, target and timing. [`Generator::start`] sends at once. Requests that
//! finish between [`Generator::open_window`] and [`Generator::close_window`] are measured.
//! [`Generator::finish`] returns the [`Summary`], which a [`Report`] prints. The caller checks that the
//! target may be loaded, by [`ServerUrl::resolve`].

mod connection;
mod distribution;
mod failures;
mod format;
mod generator;
mod http2;
mod http2_head;
mod in_flight;
mod metrics;
mod pacing;
mod plan;
mod rate;
mod replay;
mod series;
mod session;
mod shard;
mod steady_state;
mod summary;
mod url;
mod verdict;
mod waiting;
mod worker;
mod workload;

#[cfg(test)]
#[path = "../../../tests/schemas.rs"]
mod schemas;
#[cfg(test)]
mod tests;

pub use failures::Error;
pub use format::{
    AbTotals, Report, SeriesFormat, SeriesWriter, TemplateLabel, WarmUpResult, ab_of_totals,
};
pub use generator::Generator;
pub use http2_head::Http2Head;
pub use plan::{
    Arrivals, MAX_CLOSING, MAX_SHARDS, MIN_INTERVAL, Phases, Plan, ReplayPlan, Shard, Target,
    open_files,
};
pub use rate::{MAX_STAGES, Rate, RateStage};
pub use replay::{MAX_VARIABLES, Pace, Replay, ReplayEvent, ReplayVariable, ValueSource};
pub use series::{Interval, Series};
pub use shard::{GeneratorResult, ShardSummary, clock_skew, window_skew};
pub use steady_state::{STEADY_AFTER, Slice, becomes_steady};
pub use summary::{Progress, ReplaySummary, Summary, TemplateSummary, ThreadUsage};
pub use tollgate_stats::{Failures, LATENESS_MAX, UNSENT_SHARE_MAX};
pub use url::{ServerUrl, UrlError};
pub use verdict::{LoadVerdict, Measured, SATURATED_SHARE};
pub use workload::{Expectation, MAX_PATTERN_BYTES, MAX_TEMPLATES, Request, Workload};

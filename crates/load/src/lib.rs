//! The load generator: closed loop, where each connection sends its next request when the answer to
//! the one before is complete, and open loop, where requests leave on a schedule.
//!
//! No async runtime: each thread has its own epoll instance, connections and histogram, and shares
//! nothing on the way. An exchange costs one write, one read, its share of a wait and one look at
//! the clock, which is the end of one request and the start of the next. Memory does not grow with
//! the run.
//!
//! A [`Plan`] says what to send where. [`Generator::start`] begins at once; what finishes between
//! [`Generator::open_window`] and [`Generator::close_window`] is measured, and
//! [`Generator::finish`] gives the [`Outcome`]. Sending to this machine only is the caller's
//! business.

mod clocks;
mod course;
mod error;
mod exchange;
mod failure;
mod generator;
mod link;
mod live;
mod nap;
mod outcome;
mod pacer;
mod pause;
mod plan;
mod recorder;
mod schedule;
mod slices;
mod slot;
mod usage;
mod window;
mod worker;
mod workload;

pub use error::Error;
pub use failure::Failures;
pub use generator::Generator;
pub use outcome::{Outcome, Progress, TemplateTally, ThreadUsage};
pub use plan::{
    Arrivals, MAX_CONNECTIONS, MAX_PIPELINE, MAX_RATE, MAX_THREADS, MAX_TIMEOUT, MAX_TIMER_SLACK,
    Plan, Spacing, Target,
};
pub use slices::{SLICE, STEADY_AFTER, Slice, Slices};
pub use workload::{Expectation, MAX_NEEDLE_BYTES, MAX_TEMPLATES, Request, Workload};

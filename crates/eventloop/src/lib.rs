//! The epoll loop that the data-path programs share: readiness, sockets, wake-ups and CPU pinning.
//!
//! A thread owns one [`Poller`], the [`Events`] that it fills, and the connections that their tokens
//! name. Everything is level-triggered, so a connection that is left half read is reported again.
//! Linux 5.11 or newer, for waits with nanosecond precision.

mod affinity;
mod poller;
mod tcp;
mod waker;

pub use affinity::pin_current_thread;
pub use poller::{Event, Events, Interest, Poller};
pub use tcp::{accept, connect, connect_error, listen};
pub use waker::Waker;

//! The event loop that load generator, origin and gateway share: epoll, sockets, listeners, wake-ups, CPU affinity.
//!
//! Each thread owns one [`Poller`] and the connections that its tokens name. Requires Linux 5.11 for waits with
//! nanosecond timeouts.

mod listener;
mod poller;
mod send_buffer;
mod socket;
mod thread;

pub use listener::{
    Address, AddressParseError, UnixSocket, accept, close_backlog, defer_accept, listen,
    listen_per_thread, set_backlog,
};
pub use poller::{Event, Events, Interest, Poller, Waker};
pub use send_buffer::{SendBuffer, try_io};
pub use socket::Socket;
pub use thread::{
    CpuSet, IdlePolling, available_cpus, minimize_timer_slack, pin_current_thread, yield_cpu,
};

//! Sockets and what every event loop over them needs, for the load generator, the origin and the gateway. Requires Linux
//! 5.11 for waits with nanosecond timeouts.
//!
//! Each thread owns one [`Poller`], and connections in a slab. There is no loop here, since each program has turns of its
//! own, but the parts of one:
//!
//! - A [`EventSource`] names a waker, listener or connection to the poller, by its [token](EventSource::token). Each connection gets
//!   the next [`Serial`], so that an event of its predecessor with the same key is recognised.
//! - An [`Acceptor`] holds the listeners of the thread: it pauses when a limit is reached or no descriptors are left, and
//!   closes listeners after the last queued connection.
//! - A [`SendBuffer`] holds bytes that the socket had no room for, or the frames of a turn.
//! - A [`Sweep`] says when deadlines are to be checked, [`Timers`] whose time has come, and [`time_until_first`] how long
//!   the poller may wait.
//! - [`PeakMemory`] gives memory back to the system after a peak.
//! - [`ArrivalCoalescing`] and [`ResponseCoalescing`] decide on a pause before the wait, so that one wake-up serves several
//!   messages.
//!
//! Connections in the clear or over TLS are `Transport`s of the crate `tollgate-tls`, which stands above.

mod acceptor;
mod coalescing;
mod listener;
mod memory;
mod poller;
mod send_buffer;
mod socket;
mod source;
mod thread;
mod timers;

pub use acceptor::{Accepted, Acceptor};
pub use coalescing::{ArrivalCoalescing, ResponseCoalescing};
pub use listener::{
    Address, AddressParseError, UnixSocket, accept, close_backlog, defer_accept, listen,
    listen_per_thread, set_backlog,
};
pub use memory::PeakMemory;
pub use poller::{Events, Interest, PollEvent, Poller, Waker};
pub use send_buffer::{SendBuffer, try_io};
pub use socket::Socket;
pub use source::{ConnectionId, EventSource, Serial};
pub use thread::{
    CpuSet, IdlePolling, available_cpus, minimize_timer_slack, pin_current_thread, yield_cpu,
};
pub use timers::{Sweep, Timers, time_until_first};

//! The epoll loop that the data-path programs share: readiness, sockets, wake-ups and CPU pinning.
//!
//! A thread owns one [`Poller`], the [`Events`] that it fills, and the connections that their tokens
//! name. Sources are level-triggered unless asked otherwise, so a connection that is left half read is
//! reported again.
//! Linux 5.11 or newer, for waits with nanosecond precision.

mod affinity;
mod listener;
mod poller;
mod slack;
mod socket;
mod socket_file;
mod stamp;
mod waker;

pub use affinity::pin_current_thread;
pub use listener::{accept, close_backlog, defer_accept, listen, listen_unix, set_backlog};
pub use poller::{Event, Events, Interest, Poller};
pub use slack::wake_exactly;
pub use socket::Socket;
pub use socket_file::SocketFile;
pub use waker::Waker;

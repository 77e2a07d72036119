//! The admin listener: `/metrics` and `/healthz`, for machines that look after this one.
//!
//! A bounded number of clients at a time, each for a bounded time in all, on a thread of its own: nothing
//! here can hold up the data path, no client holds up another, and there is no queue but the kernel's.

mod client;
mod desk;
mod pages;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate_eventloop::{Waker, listen};
use tollgate_ledger::messages;

use crate::view::View;
use desk::Desk;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;

/// How long a client may take in all, from the moment that it is accepted to the last byte of its answer.
const CLIENT_TIME: Duration = Duration::from_secs(5);

/// A thread that answers on the admin address, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens there, and answers from what can be seen in `view`.
    ///
    /// # Errors
    ///
    /// The address is taken or not of this machine, or there are no descriptors or threads left.
    pub(crate) fn start(address: SocketAddr, view: Arc<View>) -> io::Result<Self> {
        Self::start_with(address, view, CLIENT_TIME)
    }

    fn start_with(address: SocketAddr, view: Arc<View>, client_time: Duration) -> io::Result<Self> {
        let listener = listen(address, false, BACKLOG)?;
        let address = listener.local_addr()?;
        let waker = Waker::new()?;
        let desk = Desk::new(listener, &waker, view, client_time)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let is_stopping = Arc::clone(&stopping);
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            if let Err(error) = desk.serve(&is_stopping) {
                messages::tell(&format!("tollgate gateway: the admin listener ends here: {error}"));
            }
        })?;
        Ok(Self { address, stopping, waker, thread: Some(thread) })
    }

    /// Where it listens; the port is the real one.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            messages::tell(&format!("tollgate gateway: the admin listener goes on: {error}"));
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            messages::tell("tollgate gateway: the admin listener had panicked");
        }
    }
}

#[cfg(test)]
mod tests;

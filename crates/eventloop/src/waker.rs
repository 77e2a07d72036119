//! Ending another thread's wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Wakes the [`Poller`](crate::Poller) that it was added to, from any thread. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Arc<OwnedFd>,
}

impl Waker {
    /// Opens a waker, to be added to a poller with [`Interest::Readable`](crate::Interest).
    ///
    /// # Errors
    ///
    /// The process or the machine has no file descriptors left.
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { eventfd: Arc::new(eventfd) })
    }

    /// Makes the waker ready until it is drained; many wakes before a drain are one.
    ///
    /// # Errors
    ///
    /// None that is known: a full counter is already a wake.
    pub fn wake(&self) -> io::Result<()> {
        match rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the waker quiet again. Look at what it announced after this, not before, or a wake
    /// between the two is lost.
    ///
    /// # Errors
    ///
    /// None that is known: nothing to drain is not an error.
    pub fn drain(&self) -> io::Result<()> {
        match rustix::io::read(&self.eventfd, &mut [0; size_of::<u64>()]) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Event, Events, Interest, Poller};

    #[test]
    fn wakes_a_wait_without_limit_from_another_thread() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(&waker, 9, Interest::Readable).unwrap();
        let other = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.wake().unwrap();
            other.wake().unwrap();
        });
        let mut events = Events::with_capacity(2);
        let start = Instant::now();
        poller.wait(&mut events, None).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(19));
        assert!(events.iter().any(|event| event.token == 9));
        thread.join().unwrap();

        waker.drain().unwrap();
        waker.drain().unwrap();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(!events.iter().any(Event::is_readable));
    }
}

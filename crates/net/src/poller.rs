//! Waiting for readiness of many sources with one epoll instance, and waking that wait from other threads.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// An epoll instance. Sources are level-triggered unless their [`Interest`] says otherwise.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// Creates an epoll instance, closed on exec.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches `source` and reports it under `token`.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, data(token), interest.flags())?)
    }

    /// Replaces token and interest of a watched source.
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, data(token), interest.flags())?)
    }

    /// Stops watching `source`. Closing its last descriptor has the same effect.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Waits until a source is ready or `timeout` has passed, and replaces the contents of `events`.
    ///
    /// `None` waits without limit. A timeout never ends early; it may end late by the thread's timer slack (50
    /// microseconds by default). A signal ends the wait without events.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.ready.clear();
        // A timeout beyond the kernel's range (292 billion years) means no limit.
        let timeout = timeout.and_then(|duration| Timespec::try_from(duration).ok());
        match epoll::wait(&self.epoll, spare_capacity(&mut events.ready), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Events of one wait. Allocated once and reused.
pub struct Events {
    ready: Vec<epoll::Event>,
}

impl Events {
    /// Allocates room for `capacity` events per wait. Events beyond that are reported by the next wait.
    ///
    /// # Panics
    ///
    /// `capacity` is zero.
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(capacity > 0, "a wait needs room for at least one event");
        Self { ready: Vec::with_capacity(capacity) }
    }

    pub fn iter(&self) -> impl Iterator<Item = PollEvent> + '_ {
        self.ready.iter().map(|event| PollEvent { token: event.data.u64(), flags: event.flags })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Events to report for a source. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read, the end of the stream, or a connection to accept.
    Readable,
    /// Room to write, or the end of a connect.
    Writable,
    Both,
    /// Edge-triggered: each arrival of bytes, and the peer's end of the stream
    /// ([`PollEvent::is_read_closed`]), are reported once. A read that leaves room in its buffer has emptied the socket,
    /// unless the stream has ended. Saves the kernel a second look at the source in the next wait.
    ReadableEdge,
    /// As `ReadableEdge`, and when there is room to write again.
    BothEdge,
    /// As `Readable`, for a source watched by several pollers: wakes one of them instead of all
    /// (`EPOLLEXCLUSIVE`). Cannot be modified, only removed.
    ReadableExclusive,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        use epoll::EventFlags;
        match self {
            Self::Readable => EventFlags::IN,
            Self::Writable => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::OUT,
            Self::ReadableEdge => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
            Self::BothEdge => Self::ReadableEdge.flags() | EventFlags::OUT,
            Self::ReadableExclusive => EventFlags::IN | EventFlags::EXCLUSIVE,
        }
    }
}

/// One ready source.
#[derive(Clone, Copy, Debug)]
pub struct PollEvent {
    pub token: u64,
    flags: epoll::EventFlags,
}

impl PollEvent {
    /// Returns true if a read will not block: it returns bytes, the end of the stream, or an error.
    pub fn is_readable(self) -> bool {
        self.flags.contains(epoll::EventFlags::IN)
    }

    pub fn is_writable(self) -> bool {
        self.flags.contains(epoll::EventFlags::OUT)
    }

    /// Returns true if the peer has ended its stream. Reported to edge-triggered interests only.
    pub fn is_read_closed(self) -> bool {
        self.flags.contains(epoll::EventFlags::RDHUP)
    }

    /// Returns true if both directions are closed or the socket has failed. Reported for any interest; unless
    /// edge-triggered, by every wait until the source is closed or removed.
    pub fn is_closed(self) -> bool {
        self.flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR)
    }

    /// Returns true if the socket has failed, such as by a reset. Reported as [`is_closed`](Self::is_closed).
    pub fn has_failed(self) -> bool {
        self.flags.contains(epoll::EventFlags::ERR)
    }
}

fn data(token: u64) -> epoll::EventData {
    epoll::EventData::new_u64(token)
}

/// Wakes the [`Poller`] it was added to, from any thread. Clones wake the same poller.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Arc<OwnedFd>,
}

impl Waker {
    /// Creates a waker, to be added to a poller with [`Interest::Readable`].
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { eventfd: Arc::new(eventfd) })
    }

    /// Makes the waker ready until it is drained. Several wakes before a drain count as one.
    pub fn wake(&self) -> io::Result<()> {
        match rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Clears the readiness. Read the shared state after this call, or a wake in between is lost.
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
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    const SOON: Option<Duration> = Some(Duration::from_secs(5));
    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn tokens(events: &Events) -> Vec<u64> {
        events.iter().map(|event| event.token).collect()
    }

    #[test]
    fn level_triggered_until_read() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(4);
        poller.add(&near, u64::MAX, Interest::Readable).unwrap();

        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), []);

        far.write_all(b"x").unwrap();
        for _ in 0..2 {
            poller.wait(&mut events, SOON).unwrap();
            assert_eq!(tokens(&events), [u64::MAX]);
            let event = events.iter().next().unwrap();
            assert!(event.is_readable() && !event.is_writable() && !event.is_closed());
        }

        near.read_exact(&mut [0]).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), []);
    }

    #[test]
    fn edge_triggered_reports_each_arrival_once() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(4);
        poller.add(&near, 5, Interest::ReadableEdge).unwrap();
        for _ in 0..2 {
            far.write_all(b"x").unwrap();
            poller.wait(&mut events, SOON).unwrap();
            assert_eq!(tokens(&events), [5]);
            poller.wait(&mut events, NOW).unwrap();
            assert_eq!(tokens(&events), []);
        }
        drop(far);
        poller.wait(&mut events, SOON).unwrap();
        assert!(events.iter().next().unwrap().is_read_closed());
    }

    #[test]
    fn modify_replaces_token_and_interest() {
        let (near, _far) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(4);
        poller.add(&near, 1, Interest::Both).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), [1]);
        assert!(events.iter().all(PollEvent::is_writable));

        poller.modify(&near, 2, Interest::Readable).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), []);

        poller.modify(&near, 3, Interest::Writable).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), [3]);

        poller.remove(&near).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), []);
    }

    #[test]
    fn reports_closed_peer_for_any_interest() {
        let (near, far) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        poller.add(&near, 7, Interest::Readable).unwrap();
        drop(far);
        poller.wait(&mut events, SOON).unwrap();
        let event = events.iter().next().unwrap();
        assert!(event.is_closed() && event.is_readable());
    }

    #[test]
    fn events_beyond_the_capacity_come_with_the_next_wait() {
        let (left, right) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        poller.add(&left, 1, Interest::Writable).unwrap();
        poller.add(&right, 2, Interest::Writable).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            poller.wait(&mut events, SOON).unwrap();
            seen.extend(tokens(&events));
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    }

    #[test]
    fn waits_keep_submillisecond_timeouts() {
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        let wait = Duration::from_micros(200);
        // The shortest of many, because a busy machine only lengthens a wait.
        let shortest = (0..50)
            .map(|_| {
                let start = Instant::now();
                poller.wait(&mut events, Some(wait)).unwrap();
                start.elapsed()
            })
            .min()
            .unwrap();
        assert!(shortest >= wait, "{shortest:?}");
        assert!(shortest < Duration::from_micros(900), "{shortest:?}");
    }
    #[test]
    fn waker_ends_a_wait_without_limit_from_another_thread() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(&waker, 9, Interest::Readable).unwrap();
        let mut events = Events::with_capacity(2);
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), []);

        let other = waker.clone();
        let thread = std::thread::spawn(move || {
            other.wake().unwrap();
            other.wake().unwrap();
        });
        poller.wait(&mut events, None).unwrap();
        assert_eq!(tokens(&events), [9]);
        thread.join().unwrap();

        waker.drain().unwrap();
        waker.drain().unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), []);
    }
}

//! Readiness of many sockets, from one epoll instance.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

/// One epoll instance. Unless their interest says otherwise, sources are level-triggered: what is
/// ready and left undone is reported again by the next wait.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// Opens an epoll instance, closed on exec.
    ///
    /// # Errors
    ///
    /// The process or the machine has no file descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Watches `source` and reports it under `token`.
    ///
    /// # Errors
    ///
    /// `source` is watched already, or the kernel's limit on watches is reached.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::add(&self.epoll, source, data(token), interest.flags())?;
        Ok(())
    }

    /// Replaces the token and the interest that `source` was added with.
    ///
    /// # Errors
    ///
    /// `source` is not watched.
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::modify(&self.epoll, source, data(token), interest.flags())?;
        Ok(())
    }

    /// Stops watching `source`. Closing the last descriptor of a socket does the same.
    ///
    /// # Errors
    ///
    /// `source` is not watched.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.epoll, source)?;
        Ok(())
    }

    /// Waits until a source is ready or `timeout` has passed, and replaces the contents of `events`.
    ///
    /// `None` waits without limit. The timeout is kept to the nanosecond that was asked for, give or
    /// take the thread's timer slack (50 microseconds unless changed), and never ends early. A signal
    /// ends the wait with no events, so that its flag can be looked at.
    ///
    /// # Errors
    ///
    /// The kernel is older than Linux 5.11, which has no `epoll_pwait2`.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.ready.clear();
        // A timeout beyond the kernel's clock (292 billion years) is the same as no limit.
        let timeout = timeout.and_then(|duration| Timespec::try_from(duration).ok());
        match epoll::wait(&self.epoll, spare_capacity(&mut events.ready), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What one wait reported. Allocated once and reused, apart from the state that the caller changes
/// while it goes through the events.
pub struct Events {
    ready: Vec<epoll::Event>,
}

impl Events {
    /// Room for `capacity` events a wait; what is ready beyond that comes with the next wait.
    ///
    /// # Panics
    ///
    /// `capacity` is zero.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(capacity > 0, "a wait needs room for at least one event");
        Self { ready: Vec::with_capacity(capacity) }
    }

    /// The events of the last wait, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.ready.iter().map(|event| Event { token: event.data.u64(), flags: event.flags })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// What to be told about a source. Errors and hang-ups are always told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is something to read, the peer has sent its last byte, or a connection to accept.
    Readable,
    /// There is room to write, or a connect has ended.
    Writable,
    /// Either.
    Both,
    /// What was there is told once: more to read, or the peer has sent its last byte
    /// ([`Event::is_shut`]). A read that leaves room in its buffer has emptied the socket, unless the
    /// peer had shut its side; anything that comes later is told anew. Saves the kernel a second
    /// look at the source in the next wait.
    ReadableOnce,
    /// The same, and when there is room to write again.
    BothOnce,
    /// As `Readable`, for a source that several pollers watch: one of them is told, rather than all.
    /// Such a source cannot be modified, only removed.
    ReadableByOne,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Readable => epoll::EventFlags::IN,
            Self::Writable => epoll::EventFlags::OUT,
            Self::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Self::ReadableOnce => {
                epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
            }
            Self::BothOnce => Self::ReadableOnce.flags() | epoll::EventFlags::OUT,
            Self::ReadableByOne => epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE,
        }
    }
}

/// One ready source.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The token that the source was added with.
    pub token: u64,
    flags: epoll::EventFlags,
}

impl Event {
    /// A read will not block: it gives bytes, end of file, or the error.
    #[must_use]
    pub fn is_readable(self) -> bool {
        self.flags.contains(epoll::EventFlags::IN)
    }

    /// A write will not block.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.flags.contains(epoll::EventFlags::OUT)
    }

    /// The peer has sent its last byte; told to those who asked to be told once.
    #[must_use]
    pub fn is_shut(self) -> bool {
        self.flags.contains(epoll::EventFlags::RDHUP)
    }

    /// Both directions are shut or the socket has failed. Told whatever the interest and, to those who
    /// did not ask to be told once, again by every wait until the source is closed or removed.
    #[must_use]
    pub fn is_closed(self) -> bool {
        self.flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR)
    }
}

fn data(token: u64) -> epoll::EventData {
    epoll::EventData::new_u64(token)
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
    fn told_once_until_there_is_more() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(4);
        poller.add(&near, 5, Interest::ReadableOnce).unwrap();
        for _ in 0..2 {
            far.write_all(b"x").unwrap();
            poller.wait(&mut events, SOON).unwrap();
            assert_eq!(tokens(&events), [5]);
            poller.wait(&mut events, NOW).unwrap();
            assert_eq!(tokens(&events), []);
        }
        drop(far);
        poller.wait(&mut events, SOON).unwrap();
        assert!(events.iter().next().unwrap().is_shut());
    }

    #[test]
    fn modify_replaces_token_and_interest() {
        let (near, _far) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(4);
        poller.add(&near, 1, Interest::Both).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(tokens(&events), [1]);
        assert!(events.iter().all(Event::is_writable));

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
    fn a_gone_peer_is_closed_whatever_the_interest() {
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
    fn what_does_not_fit_comes_with_the_next_wait() {
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
    fn waits_are_not_rounded_up_to_milliseconds() {
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        let wait = Duration::from_micros(200);
        // The quickest of many, because a busy machine only ever lengthens a wait.
        let quickest = (0..50)
            .map(|_| {
                let start = Instant::now();
                poller.wait(&mut events, Some(wait)).unwrap();
                start.elapsed()
            })
            .min()
            .unwrap();
        assert!(quickest >= wait, "{quickest:?}");
        assert!(quickest < Duration::from_micros(900), "{quickest:?}");
    }
}

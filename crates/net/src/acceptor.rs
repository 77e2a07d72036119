//! The listeners of one thread, and pauses of accepting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::listener::{accept, close_backlog};
use crate::poller::{Interest, Poller};
use crate::socket::Socket;
use crate::source::EventSource;

/// Length of a pause.
const PAUSE: Duration = Duration::from_millis(50);

/// A pause is reported if the last one was at least this long ago.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Listeners that a thread accepts connections from.
///
/// At a limit of connections, or without descriptors, a listener would be reported as ready by every wait, so accepting
/// pauses: the listeners are not watched for 50 milliseconds. Connections wait in their queues meanwhile.
#[derive(Debug, Default)]
pub struct Acceptor {
    /// By index. `None`: closed.
    listeners: Vec<Option<Listener>>,
    /// Set during a pause.
    resumes_at: Option<Instant>,
    paused_at: Option<Instant>,
}

#[derive(Debug)]
struct Listener {
    socket: Arc<OwnedFd>,
    is_watched: bool,
    is_closing: bool,
}

/// Result of an attempt to accept a connection.
#[derive(Debug)]
pub enum Accepted {
    /// With the address of the client, `None` over a unix-domain socket.
    Connection(Socket, Option<SocketAddr>),
    /// None is queued, or the listener is closed.
    Nothing,
    /// The last connection of a closing listener was accepted before. The listener is closed when its socket is dropped.
    Closed(Arc<OwnedFd>),
    /// No descriptors or memory are left, most likely. The connection stays queued, and accepting must pause.
    Exhausted(io::Error),
}

impl Acceptor {
    /// Listens on one more socket at `index`, which must not be in use: at once, or after a pause.
    pub fn listen(
        &mut self,
        index: usize,
        socket: Arc<OwnedFd>,
        poller: &Poller,
    ) -> io::Result<()> {
        if index >= self.listeners.len() {
            self.listeners.resize_with(index + 1, || None);
        }
        let listener = Listener { socket, is_watched: false, is_closing: false };
        let before = self.listeners[index].replace(listener);
        assert!(before.is_none(), "listener {index} is in use");
        if self.is_paused() { Ok(()) } else { self.watch(poller) }
    }

    /// Returns the socket of a listener, unless it is closed or closing.
    pub fn socket(&self, index: usize) -> Option<&Arc<OwnedFd>> {
        let listener = self.listeners.get(index)?.as_ref()?;
        (!listener.is_closing).then_some(&listener.socket)
    }

    /// Index of the listener with this socket.
    pub fn find(&self, socket: &Arc<OwnedFd>) -> Option<usize> {
        let is_same = |listener: &Listener| Arc::ptr_eq(&listener.socket, socket);
        self.listeners.iter().position(|listener| listener.as_ref().is_some_and(is_same))
    }

    /// Continues with a listener that was closing.
    pub fn reopen(&mut self, index: usize) {
        if let Some(Some(listener)) = self.listeners.get_mut(index) {
            listener.is_closing = false;
        }
    }

    /// True if a listener is not closed yet.
    pub fn is_open(&self, index: usize) -> bool {
        self.listeners.get(index).is_some_and(Option::is_some)
    }

    /// Indices of the listeners that are not closed yet.
    pub fn open(&self) -> impl Iterator<Item = usize> {
        let open =
            |(index, listener): (usize, &Option<Listener>)| listener.is_some().then_some(index);
        self.listeners.iter().enumerate().filter_map(open)
    }

    /// Accepts the next queued connection of a listener, unless accepting is paused.
    pub fn accept(&mut self, index: usize, poller: &Poller) -> io::Result<Accepted> {
        let Some(slot) = self.listeners.get_mut(index) else { return Ok(Accepted::Nothing) };
        let Some(listener) = slot.as_ref().filter(|_| self.resumes_at.is_none()) else {
            return Ok(Accepted::Nothing);
        };
        match accept(&listener.socket) {
            Ok(Some((socket, peer))) => return Ok(Accepted::Connection(socket, peer)),
            Err(error) => return Ok(Accepted::Exhausted(error)),
            Ok(None) => {}
        }
        let Some(Listener { socket, is_watched, .. }) =
            slot.take_if(|listener| listener.is_closing)
        else {
            return Ok(Accepted::Nothing);
        };
        // Threads may share the socket, so that closing alone does not remove it from the poller.
        if is_watched {
            poller.remove(&socket)?;
        }
        Ok(Accepted::Closed(socket))
    }

    /// Stops the kernel from queueing more connections on a listener. The queued ones are still to be accepted, until
    /// [`accept`](Self::accept) returns the socket.
    pub fn close(&mut self, index: usize) -> io::Result<()> {
        if let Some(Some(listener)) = self.listeners.get_mut(index)
            && !listener.is_closing
        {
            close_backlog(&listener.socket)?;
            listener.is_closing = true;
        }
        Ok(())
    }

    /// Pauses accepting on all listeners. Returns true if the caller should report that: once, and again after
    /// a minute without a pause.
    pub fn pause(&mut self, now: Instant, poller: &Poller) -> io::Result<bool> {
        for listener in self.listeners.iter_mut().flatten().filter(|listener| listener.is_watched) {
            poller.remove(&listener.socket)?;
            listener.is_watched = false;
        }
        self.resumes_at = Some(now + PAUSE);
        let before = self.paused_at.replace(now);
        Ok(before.is_none_or(|at| now.saturating_duration_since(at) >= REPORT_INTERVAL))
    }

    pub fn is_paused(&self) -> bool {
        self.resumes_at.is_some()
    }

    /// End of the pause, if there is one.
    pub fn resumes_at(&self) -> Option<Instant> {
        self.resumes_at
    }

    /// Ends a pause with the next [`resume`](Self::resume), because there is room for a connection.
    pub fn end_pause(&mut self, now: Instant) {
        self.resumes_at = self.resumes_at.map(|at| at.min(now));
    }

    /// Ends a pause that is over. Returns true if it was: then connections may be queued on closing listeners, whose
    /// arrival the poller does not report again.
    pub fn resume(&mut self, now: Instant, poller: &Poller) -> io::Result<bool> {
        let is_over = self.resumes_at.is_some_and(|at| now >= at);
        if is_over {
            self.resumes_at = None;
            self.watch(poller)?;
        }
        Ok(is_over)
    }

    fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if let Some(listener) = listener.as_mut().filter(|listener| !listener.is_watched) {
                let token = EventSource::Listener(index).token();
                poller.add(&listener.socket, token, Interest::ReadableExclusive)?;
                listener.is_watched = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::{Events, listen};

    const SOON: Option<Duration> = Some(Duration::from_secs(20));
    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn listener() -> (Arc<OwnedFd>, SocketAddr) {
        let listener = listen("127.0.0.1:0".parse().unwrap(), false, 16).unwrap();
        let address = listener.local_addr().unwrap();
        (Arc::new(listener.into()), address)
    }

    fn sources(poller: &Poller, timeout: Option<Duration>) -> Vec<EventSource> {
        let mut events = Events::with_capacity(4);
        poller.wait(&mut events, timeout).unwrap();
        events.iter().map(|event| EventSource::of_token(event.token)).collect()
    }

    #[test]
    fn queued_connections_wait_during_a_pause() {
        let poller = Poller::new().unwrap();
        let mut acceptor = Acceptor::default();
        let (socket, address) = listener();
        acceptor.listen(1, socket, &poller).unwrap();
        let _queued = TcpStream::connect(address).unwrap();
        assert_eq!(sources(&poller, SOON), [EventSource::Listener(1)]);

        let now = Instant::now();
        assert!(acceptor.pause(now, &poller).unwrap());
        assert_eq!(sources(&poller, NOW), []);
        assert!(matches!(acceptor.accept(1, &poller).unwrap(), Accepted::Nothing));
        // A listener that comes in the meantime waits, too.
        let (other, address) = listener();
        acceptor.listen(0, other, &poller).unwrap();
        let _other = TcpStream::connect(address).unwrap();
        assert_eq!(sources(&poller, NOW), []);

        assert!(!acceptor.resume(now + PAUSE / 2, &poller).unwrap());
        acceptor.pause(now + PAUSE, &poller).unwrap();
        acceptor.end_pause(now + PAUSE);
        acceptor.end_pause(now + 2 * PAUSE);
        assert_eq!(acceptor.resumes_at(), Some(now + PAUSE));
        assert!(acceptor.resume(now + PAUSE, &poller).unwrap());
        assert_eq!(acceptor.resumes_at(), None);
        for index in [0, 1] {
            assert!(sources(&poller, SOON).contains(&EventSource::Listener(index)));
            let accepted = acceptor.accept(index, &poller).unwrap();
            assert!(matches!(accepted, Accepted::Connection(_, Some(_))), "{accepted:?}");
            assert!(matches!(acceptor.accept(index, &poller).unwrap(), Accepted::Nothing));
        }
    }

    #[test]
    fn pauses_are_reported_once_unless_they_return_after_a_minute() {
        let poller = Poller::new().unwrap();
        let mut acceptor = Acceptor::default();
        let start = Instant::now();
        let mut pause =
            |seconds| acceptor.pause(start + Duration::from_secs(seconds), &poller).unwrap();
        assert_eq!([0, 59, 118, 178].map(&mut pause), [true, false, false, true]);
    }

    #[test]
    fn closing_listener_is_closed_after_its_queued_connections() {
        let poller = Poller::new().unwrap();
        let mut acceptor = Acceptor::default();
        let (socket, address) = listener();
        let shared = Arc::clone(&socket);
        acceptor.listen(0, socket, &poller).unwrap();
        let _queued = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        acceptor.close(0).unwrap();
        assert!(acceptor.is_open(0) && acceptor.socket(0).is_none());
        assert_eq!(acceptor.find(&shared), Some(0));
        acceptor.reopen(0);
        assert!(acceptor.socket(0).is_some());
        acceptor.close(0).unwrap();
        for _ in 0..2 {
            let accepted = acceptor.accept(0, &poller).unwrap();
            assert!(matches!(accepted, Accepted::Connection(..)), "{accepted:?}");
        }
        let Accepted::Closed(socket) = acceptor.accept(0, &poller).unwrap() else {
            panic!("the listener is not closed");
        };
        assert!(Arc::ptr_eq(&socket, &shared));
        assert_eq!((acceptor.is_open(0), acceptor.open().next()), (false, None));
        assert!(matches!(acceptor.accept(0, &poller).unwrap(), Accepted::Nothing));
        // Its index is free again, and the poller watches it no more.
        acceptor.listen(0, socket, &poller).unwrap();
        assert_eq!(acceptor.open().collect::<Vec<_>>(), [0]);
    }
}

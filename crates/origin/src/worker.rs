//! One thread of an origin: its event loop, connections, timers and end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slab::Slab;
use tollgate_accesslog::stderr_log;
use tollgate_net::{
    Accepted, Acceptor, ConnectionId, EventSource, Events, IdlePolling, Interest, PollEvent,
    Poller, Serial, Sweep, Timers, Waker, time_until_first, yield_cpu,
};
use tollgate_tls::{TlsServer, Transport};

use crate::config::Error;
use crate::connection::{Connection, Next, Scratch};
use crate::state::Metric;

/// Limit for open connections; more stay in the backlog.
const MAX_CONNECTIONS: usize = 16_384;

/// Limit for connections accepted before other connections run.
const ACCEPTS_MAX: usize = 64;

const EVENTS_MAX: usize = 256;

/// Limit for connections of a listener that are not accepted yet.
pub(crate) const BACKLOG: i32 = 4096;

/// Time for queued connections before events are handled again.
const QUEUE_TIME: Duration = Duration::from_millis(2);

/// Time for requests in flight after a stop.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time without work after which a worker that polls sleeps: it takes no CPU while servers start and stop.
const POLLING_TIME: Duration = Duration::from_millis(100);

/// Index of the only listener.
const LISTENER: usize = 0;

/// One thread of an origin.
pub(crate) struct Worker {
    poller: Poller,
    acceptor: Acceptor,
    /// Expected on every connection.
    tls: Option<TlsServer>,
    waker: Waker,
    stopper: Stopper,
    clients: Slab<Client>,
    last_serial: Serial,
    scratch: Scratch,
    /// Clients that wait for a time, by their keys.
    timers: Timers<usize>,
    /// Clients that can run without an event, in order. A key may belong to another client by then.
    run_queue: VecDeque<usize>,
    sweep: Sweep,
    /// Set if the worker polls instead of sleeping.
    busy_poll: Option<IdlePolling>,
    /// Time of the last turn with work.
    worked_at: Instant,
    /// Set once the worker is stopping.
    stop_by: Option<Instant>,
}

struct Client {
    connection: Connection,
    serial: Serial,
    /// Its time in [`Worker::timers`].
    timer: Option<Instant>,
}

impl Worker {
    /// `waker` is one of those of `stopper`.
    pub(crate) fn new(
        listener: OwnedFd,
        tls: Option<TlsServer>,
        waker: Waker,
        stopper: Stopper,
        scratch: Scratch,
        busy_poll: bool,
    ) -> Result<Self, Error> {
        let poller = Poller::new().map_err(Error::Start)?;
        let mut acceptor = Acceptor::default();
        acceptor
            .listen(LISTENER, Arc::new(listener), &poller)
            .and_then(|()| poller.add(&waker, EventSource::Waker.token(), Interest::Readable))
            .map_err(Error::Start)?;
        let now = Instant::now();
        Ok(Self {
            poller,
            acceptor,
            tls,
            waker,
            stopper,
            clients: Slab::new(),
            last_serial: Serial::default(),
            timers: Timers::default(),
            run_queue: VecDeque::new(),
            sweep: Sweep::new(scratch.timeouts.of_connections(), now),
            scratch,
            busy_poll: busy_poll.then(IdlePolling::default),
            worked_at: now,
            stop_by: None,
        })
    }

    /// Serves until stopped, then finishes the requests in flight.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut now = Instant::now();
        loop {
            self.poller.wait(&mut events, self.timeout(now))?;
            now = Instant::now();
            for event in events.iter() {
                match EventSource::of_token(event.token) {
                    EventSource::Listener(_) => self.accept(now, ACCEPTS_MAX)?,
                    EventSource::Waker => self.waker.drain()?,
                    EventSource::Downstream(client) => self.on_event(client, event, now)?,
                    EventSource::Upstream(_) => unreachable!("the origin connects to nobody"),
                }
            }
            let has_worked = events.iter().next().is_some() || !self.run_queue.is_empty();
            self.run_queued(now)?;
            self.run_timers(now)?;
            if self.stop_by.is_none() && self.stopper.is_stopping() {
                self.begin_stop(now)?;
            }
            if let Some(log) = &mut self.scratch.shared.log {
                log.flush();
            }
            if let Some(stop_by) = self.stop_by
                && (self.clients.is_empty() || now >= stop_by)
            {
                self.keys().into_iter().for_each(|key| self.remove(key));
                return Ok(());
            }
            let polls = self.polls(now);
            if has_worked {
                self.worked_at = now;
            }
            match &mut self.busy_poll {
                Some(idle_polling) if has_worked || !polls => idle_polling.busy_turn(),
                Some(idle_polling) => {
                    let polled_ns = idle_polling.idle_turn().as_nanos();
                    self.scratch.shared.counters.add(Metric::PolledNs, polled_ns as u64);
                    yield_cpu();
                }
                None => {}
            }
        }
    }

    fn polls(&self, now: Instant) -> bool {
        self.busy_poll.is_some() && now < self.worked_at + POLLING_TIME
    }

    /// Returns the time until something is to be done without an event.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        if self.polls(now) || !self.run_queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let next_sweep = (!self.clients.is_empty()).then_some(self.sweep.at());
        let resumes_at = self.acceptor.resumes_at();
        time_until_first([next_sweep, self.timers.first(), resumes_at, self.stop_by], now)
    }

    fn accept(&mut self, now: Instant, count_max: usize) -> io::Result<()> {
        for _ in 0..count_max {
            if self.clients.len() == MAX_CONNECTIONS {
                return self.pause_accepting(now, &format!("limit of {MAX_CONNECTIONS} reached"));
            }
            let (socket, peer) = match self.acceptor.accept(LISTENER, &self.poller)? {
                Accepted::Connection(socket, peer) => (socket, peer),
                Accepted::Nothing | Accepted::Closed(_) => return Ok(()),
                Accepted::Exhausted(error) => return self.pause_accepting(now, &error.to_string()),
            };
            let peer = match &self.scratch.shared.log {
                Some(_) => peer.map_or_else(|| "unix:".into(), |peer| peer.ip().to_string().into()),
                None => Box::default(),
            };
            self.scratch.shared.counters.add(Metric::Accepted, 1);
            let transport = Transport::client(socket, self.tls.as_ref())?;
            self.add(Connection::new(transport, peer, now, &self.scratch.timeouts), now)?;
        }
        Ok(())
    }

    /// Runs a new connection and watches it afterwards. Most clients have sent their request by
    /// now, and a connection for a single request is closed without ever being watched.
    fn add(&mut self, mut connection: Connection, now: Instant) -> io::Result<()> {
        connection.assume_readable();
        let next = match connection.run(&mut self.scratch, now, self.stop_by) {
            Ok(Next::Close) | Err(_) => {
                connection.close(&mut self.scratch);
                self.scratch.shared.counters.add(Metric::Closed, 1);
                return Ok(());
            }
            Ok(next) => next,
        };
        let serial = self.last_serial.advance();
        let key = self.clients.insert(Client { connection, serial, timer: None });
        self.schedule(key, &next)
    }

    /// Watches a connection that has run, and makes it run again in time.
    fn schedule(&mut self, key: usize, next: &Next) -> io::Result<()> {
        let Client { connection, serial, timer } = &mut self.clients[key];
        let source = EventSource::Downstream(ConnectionId { key, serial: *serial });
        connection.watch(&self.poller, source.token())?;
        let wake_at = connection.wake_at();
        if *timer != wake_at {
            if let Some(at) = std::mem::replace(timer, wake_at) {
                self.timers.remove(at, key);
            }
            if let Some(at) = wake_at {
                self.timers.insert(at, key);
            }
        }
        if *next == Next::Queue {
            self.run_queue.push_back(key);
        }
        Ok(())
    }

    fn pause_accepting(&mut self, now: Instant, reason: &str) -> io::Result<()> {
        if self.acceptor.pause(now, &self.poller)? {
            stderr_log::write(&format!("tollgate origin: cannot accept connections: {reason}"));
        }
        Ok(())
    }

    fn on_event(&mut self, client: ConnectionId, event: PollEvent, now: Instant) -> io::Result<()> {
        let ConnectionId { key, serial } = client;
        let Some(client) = self.clients.get_mut(key).filter(|client| client.serial == serial)
        else {
            return Ok(());
        };
        let connection = &mut client.connection;
        if event.is_closed() && connection.is_preparing_response() {
            self.remove(key);
        } else if connection.on_event(event) {
            self.run_connection(key, now)?;
        }
        Ok(())
    }

    fn run_connection(&mut self, key: usize, now: Instant) -> io::Result<()> {
        let Some(Client { connection, .. }) = self.clients.get_mut(key) else {
            return Ok(());
        };
        match connection.run(&mut self.scratch, now, self.stop_by) {
            Ok(Next::Event) if self.stop_by.is_some() && connection.is_idle() => self.remove(key),
            // Errors mean that the client is gone.
            Ok(Next::Close) | Err(_) => self.remove(key),
            Ok(next) => self.schedule(key, &next)?,
        }
        Ok(())
    }

    fn remove(&mut self, key: usize) {
        let Client { mut connection, timer, .. } = self.clients.remove(key);
        connection.close(&mut self.scratch);
        if let Some(at) = timer {
            self.timers.remove(at, key);
        }
        self.scratch.shared.counters.add(Metric::Closed, 1);
    }

    fn keys(&self) -> Vec<usize> {
        self.clients.iter().map(|(key, _)| key).collect()
    }

    /// Runs each queued client once, within [`QUEUE_TIME`].
    fn run_queued(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..self.run_queue.len() {
            let Some(key) = self.run_queue.pop_front() else { break };
            let client = self.clients.get_mut(key);
            if client.is_some_and(|client| client.connection.take_queued()) {
                self.run_connection(key, now)?;
                if now.elapsed() > QUEUE_TIME {
                    break;
                }
            }
        }
        Ok(())
    }

    fn run_timers(&mut self, now: Instant) -> io::Result<()> {
        while let Some(key) = self.timers.pop_due(now) {
            self.clients[key].timer = None;
            self.run_connection(key, now)?;
        }
        if self.sweep.is_due(now) {
            self.close_expired(now);
        }
        self.acceptor.resume(now, &self.poller)?;
        Ok(())
    }

    /// Closes connections whose deadline has passed.
    fn close_expired(&mut self, now: Instant) {
        let is_expired = |client: &Client| client.connection.deadline() <= now;
        let keys = self.clients.iter().filter(|(_, client)| is_expired(client));
        for key in keys.map(|(key, _)| key).collect::<Vec<_>>() {
            // An error means that the client is gone, and needs no response.
            self.clients[key].connection.time_out(&mut self.scratch, now).ok();
            self.remove(key);
        }
    }

    /// Accepts and reads what has arrived, then closes the listener and idle connections.
    fn begin_stop(&mut self, now: Instant) -> io::Result<()> {
        self.stop_by = Some(now + STOP_TIMEOUT);
        self.acceptor.close(LISTENER)?;
        self.accept(now, BACKLOG as usize)?;
        self.acceptor = Acceptor::default();
        for (_, client) in &mut self.clients {
            client.connection.assume_readable();
        }
        self.keys().into_iter().try_for_each(|key| self.run_connection(key, now))
    }
}

/// Stops an origin from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    is_stopping: Arc<AtomicBool>,
    wakers: Arc<[Waker]>,
}

impl Stopper {
    /// Creates the stopper of the workers that `wakers` wake up.
    pub(crate) fn new(wakers: &[Waker]) -> Self {
        Self { is_stopping: Arc::default(), wakers: wakers.into() }
    }

    /// Makes every thread finish its requests in flight and end. Returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::Stop`] if a thread cannot be woken up; no known kernel fails there.
    pub fn stop(&self) -> Result<(), Error> {
        self.is_stopping.store(true, Ordering::Release);
        self.wakers.iter().try_for_each(Waker::wake).map_err(Error::Stop)
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use tollgate_net::listen;

    use super::*;
    use crate::config::Timeouts;
    use crate::endpoints::ByteSource;
    use crate::fuzzing::{counters, test_state};

    const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

    fn worker() -> (Worker, std::net::SocketAddr) {
        let listener = listen("127.0.0.1:0".parse().unwrap(), false, 16).unwrap();
        let addr = listener.local_addr().unwrap();
        let source = ByteSource::new(ByteSource::open_zero().unwrap());
        let scratch = Scratch::new(test_state(), source, Timeouts::default());
        let waker = Waker::new().unwrap();
        let stopper = Stopper::new(std::slice::from_ref(&waker));
        (Worker::new(listener.into(), None, waker, stopper, scratch, false).unwrap(), addr)
    }

    /// Waits for an event of the first connection and runs it.
    fn run_when_ready(worker: &mut Worker, now: Instant) {
        let mut events = Events::with_capacity(4);
        loop {
            worker.poller.wait(&mut events, Some(Duration::from_secs(20))).unwrap();
            assert!(events.iter().next().is_some(), "no event");
            for event in events.iter() {
                if let EventSource::Downstream(client) = EventSource::of_token(event.token) {
                    return worker.on_event(client, event, now).unwrap();
                }
            }
        }
    }

    #[test]
    fn idle_connection_and_incomplete_head_time_out() {
        let (mut worker, addr) = worker();
        let mut client = TcpStream::connect(addr).unwrap();
        let start = Instant::now();
        let seconds = |count| start + Duration::from_secs(count);
        worker.accept(start, ACCEPTS_MAX).unwrap();
        worker.run_timers(seconds(59)).unwrap();
        assert_eq!(worker.clients.len(), 1);

        client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        run_when_ready(&mut worker, seconds(50));
        worker.run_timers(seconds(109)).unwrap();
        assert_eq!(worker.clients.len(), 1);

        client.write_all(b"GET").unwrap();
        run_when_ready(&mut worker, seconds(109));
        worker.run_timers(seconds(118)).unwrap();
        assert_eq!(worker.clients.len(), 1);
        worker.run_timers(seconds(120)).unwrap();
        assert_eq!(worker.clients.len(), 0);
        let json = counters(&worker.scratch.shared);
        assert!(json.contains("\"timed_out\":1,"), "{json}");
        assert!(json.contains("\"open\":0,\"accepted\":1}"), "{json}");
    }

    #[test]
    fn lingering_connection_is_closed_after_timeout() {
        let (mut worker, addr) = worker();
        let mut client = TcpStream::connect(addr).unwrap();
        let start = Instant::now();
        worker.accept(start, ACCEPTS_MAX).unwrap();
        client.write_all(b"\0").unwrap();
        run_when_ready(&mut worker, start);
        client.write_all(b"more").unwrap();
        run_when_ready(&mut worker, start + Duration::from_millis(900));
        assert_eq!(worker.clients.len(), 1);
        worker.run_timers(start + Duration::from_millis(1_001)).unwrap();
        assert_eq!(worker.clients.len(), 0);
    }

    #[test]
    fn lingering_connection_reads_to_end_of_stream() {
        let (mut worker, addr) = worker();
        let mut client = TcpStream::connect(addr).unwrap();
        let start = Instant::now();
        worker.accept(start, ACCEPTS_MAX).unwrap();
        client.write_all(b"\0").unwrap();
        run_when_ready(&mut worker, start);
        client.write_all(&[b'r'; 5_000]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        run_when_ready(&mut worker, start);
        assert_eq!(worker.clients.len(), 0);
        // Closing with unread bytes would be a reset, which can overtake the response.
        let json = counters(&worker.scratch.shared);
        assert!(json.contains("\"bytes_in\":5001,"), "{json}");
    }

    #[test]
    fn worker_without_connections_waits_without_timeout() {
        let (mut worker, addr) = worker();
        let now = Instant::now();
        assert_eq!(worker.timeout(now), None);

        let _client = TcpStream::connect(addr).unwrap();
        worker.accept(now, ACCEPTS_MAX).unwrap();
        assert!(worker.timeout(now).unwrap() <= SWEEP_INTERVAL);

        worker.pause_accepting(now, "test").unwrap();
        let resumes_at = worker.acceptor.resumes_at().unwrap();
        assert_eq!(worker.timeout(now), Some(resumes_at - now));
        worker.run_timers(resumes_at).unwrap();
        assert!(worker.timeout(now).unwrap() > resumes_at - now);

        let later = now + 2 * SWEEP_INTERVAL;
        worker.run_timers(later).unwrap();
        assert_eq!(worker.timeout(later), Some(SWEEP_INTERVAL));
    }

    #[test]
    fn queued_connections_run_in_turn() {
        let (mut worker, addr) = worker();
        let start = Instant::now();
        let mut clients: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"GET /zero?size=1000000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        }
        worker.accept(start, ACCEPTS_MAX).unwrap();
        assert_eq!(worker.run_queue, [0, 1, 2]);
        assert_eq!(worker.timeout(start), Some(Duration::ZERO));
        // The time is over after one run.
        worker.run_queued(start - QUEUE_TIME).unwrap();
        assert_eq!(worker.run_queue, [1, 2, 0]);
        // A megabyte takes four runs, of which one followed the request.
        for _ in 0..8 {
            worker.run_queued(start - QUEUE_TIME).unwrap();
        }
        assert!(worker.run_queue.is_empty());
        assert!(worker.clients.iter().all(|(_, client)| client.connection.is_idle()));
    }

    #[test]
    fn closed_connection_leaves_no_timer() {
        let (mut worker, addr) = worker();
        let mut client = TcpStream::connect(addr).unwrap();
        client.write_all(b"GET /sleep?time=60 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let now = Instant::now();
        worker.accept(now, ACCEPTS_MAX).unwrap();
        assert_eq!(worker.timers.len(), 1);
        worker.remove(0);
        assert!(worker.timers.is_empty());
    }
}

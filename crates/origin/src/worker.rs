//! One thread of an origin: its listener, its connections and its timers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use slab::Slab;
use tollgate_eventloop::{Event, Events, Interest, Poller, Waker, accept};

use crate::config::Timeouts;
use crate::connection::{Connection, Tools, Turn};
use crate::error::Error;
use crate::stopper::Stopper;
use crate::timers::Timers;

/// The most connections of a thread; more wait to be accepted.
const MAX_CONNECTIONS: usize = 16_384;

/// The most connections that are accepted before the others have their turn.
const ACCEPTS_A_WAKE: usize = 64;

/// The most events that one wait reports.
const EVENTS_A_WAIT: usize = 256;

/// How many connections of a thread may wait to be accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// How long those who have more to do are served before the others are looked at: several of their
/// turns, for few of them.
const QUEUE_TIME: Duration = Duration::from_millis(2);

/// How long a thread that can accept no more leaves it be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long what is in flight may take to finish, once told to stop.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(1);

const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// One thread of an origin.
pub(crate) struct Worker {
    poller: Poller,
    listener: Option<OwnedFd>,
    waker: Waker,
    stopper: Stopper,
    timeouts: Timeouts,
    /// The key of a connection is its token. A key that is used again within one batch of events can
    /// give its new owner a turn too many, which does no harm.
    connections: Slab<Connection>,
    tools: Tools,
    /// Those who wait for a moment.
    timers: Timers,
    /// Those who have more to do, each once, who has waited longest first.
    queue: VecDeque<usize>,
    sweep_at: Instant,
    /// Set while nothing is accepted.
    accept_again_at: Option<Instant>,
    has_told_of_pause: bool,
    /// Set once told to stop.
    stop_by: Option<Instant>,
}

impl Worker {
    /// Watches `listener`, and `waker` for the word of `stopper`.
    ///
    /// # Errors
    ///
    /// [`Error::Start`].
    pub(crate) fn new(
        listener: OwnedFd,
        waker: Waker,
        stopper: Stopper,
        tools: Tools,
        timeouts: Timeouts,
    ) -> Result<Self, Error> {
        let poller = Poller::new().map_err(Error::Start)?;
        poller
            .add(&listener, LISTENER, Interest::ReadableByOne)
            .and_then(|()| poller.add(&waker, WAKER, Interest::Readable))
            .map_err(Error::Start)?;
        Ok(Self {
            poller,
            listener: Some(listener),
            waker,
            stopper,
            timeouts,
            connections: Slab::new(),
            tools,
            timers: Timers::default(),
            queue: VecDeque::new(),
            sweep_at: Instant::now() + timeouts.sweep_period(),
            accept_again_at: None,
            has_told_of_pause: false,
            stop_by: None,
        })
    }

    /// Serves until told to stop, and finishes what is in flight.
    ///
    /// # Errors
    ///
    /// The poller's own.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_A_WAIT);
        let mut now = Instant::now();
        loop {
            self.poller.wait(&mut events, self.timeout(now))?;
            now = Instant::now();
            for event in events.iter() {
                match event.token {
                    LISTENER => self.accept(now, ACCEPTS_A_WAKE)?,
                    WAKER => self.waker.drain()?,
                    _ => self.turn_on_event(event, now)?,
                }
            }
            self.serve_queue(now)?;
            self.look_at_the_clock(now)?;
            if self.stopper.is_stopping() && self.stop_by.is_none() {
                self.stop(now)?;
            }
            if let Some(log) = &mut self.tools.site.log {
                log.flush();
            }
            if let Some(stop_by) = self.stop_by
                && (self.connections.is_empty() || now >= stop_by)
            {
                self.keys().into_iter().for_each(|key| self.remove(key));
                return Ok(());
            }
        }
    }

    /// How long nothing is to be done unless an event comes.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let sweep_at = (!self.connections.is_empty()).then_some(self.sweep_at);
        [sweep_at, self.timers.next(), self.accept_again_at, self.stop_by]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(now))
    }

    fn accept(&mut self, now: Instant, most: usize) -> io::Result<()> {
        for _ in 0..most {
            let Some(listener) = &self.listener else {
                return Ok(());
            };
            if self.connections.len() == MAX_CONNECTIONS {
                return self
                    .pause_accepting(now, &format!("{MAX_CONNECTIONS} connections are open"));
            }
            let (socket, peer) = match accept(listener) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return Ok(()),
                // Most likely out of file descriptors, which closing connections gives back. The
                // listener would be reported ready all the while.
                Err(error) => return self.pause_accepting(now, &error.to_string()),
            };
            let peer = match &self.tools.site.log {
                Some(_) => peer.map_or_else(|| "unix:".into(), |peer| peer.ip().to_string().into()),
                None => Box::default(),
            };
            self.tools.site.counters.tally().accepted.add(1);
            self.welcome(Connection::new(socket, peer, now, &self.timeouts), now)?;
        }
        Ok(())
    }

    /// Gives a new connection its first turn, and watches it if it goes on after that. Most clients
    /// have sent their request by now, and one that asks for one answer is done with already.
    fn welcome(&mut self, mut connection: Connection, now: Instant) -> io::Result<()> {
        connection.look_again();
        let turn = match connection.turn(&mut self.tools, now, self.stop_by) {
            Ok(Turn::Over) | Err(_) => {
                connection.leave(&mut self.tools);
                self.tools.site.counters.tally().closed.add(1);
                return Ok(());
            }
            Ok(turn) => turn,
        };
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        self.poller.add(&connection, key as u64, connection.interest())?;
        entry.insert(connection);
        self.follow_up(key, &turn);
        Ok(())
    }

    /// Sees to it that a connection has its next turn.
    fn follow_up(&mut self, key: usize, turn: &Turn) {
        match turn {
            Turn::Waits(until) => self.timers.add(*until, key),
            Turn::Works => self.queue.push_back(key),
            Turn::Goes | Turn::Over => {}
        }
    }

    fn pause_accepting(&mut self, now: Instant, reason: &str) -> io::Result<()> {
        // Said once, for it may go on for long.
        if !self.has_told_of_pause {
            self.has_told_of_pause = true;
            eprintln!("tollgate origin: connections are made to wait: {reason}");
        }
        if let Some(listener) = &self.listener {
            self.poller.remove(listener)?;
        }
        self.accept_again_at = Some(now + ACCEPT_PAUSE);
        Ok(())
    }

    fn turn_on_event(&mut self, event: Event, now: Instant) -> io::Result<()> {
        let key = event.token as usize;
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(());
        };
        if event.is_closed() && connection.is_occupied() {
            // There is nobody left to answer.
            self.remove(key);
        } else if connection.notice(event) {
            self.turn(key, now)?;
        }
        Ok(())
    }

    fn turn(&mut self, key: usize, now: Instant) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(());
        };
        let interest = connection.interest();
        match connection.turn(&mut self.tools, now, self.stop_by) {
            Ok(Turn::Goes) if self.stop_by.is_some() && connection.is_idle() => {
                self.remove(key);
            }
            // An error is a client that went away, as it may.
            Ok(Turn::Over) | Err(_) => self.remove(key),
            Ok(turn) => {
                if connection.interest() != interest {
                    self.poller.modify(&*connection, key as u64, connection.interest())?;
                }
                self.follow_up(key, &turn);
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: usize) {
        self.connections.remove(key).leave(&mut self.tools);
        self.tools.site.counters.tally().closed.add(1);
    }

    fn keys(&self) -> Vec<usize> {
        self.connections.iter().map(|(key, _)| key).collect()
    }

    /// Gives those who have more to do a turn each, as long as that does not take too long.
    fn serve_queue(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            // Its key may be another's by now.
            if self.connections.get_mut(key).is_some_and(Connection::is_next_in_queue) {
                self.turn(key, now)?;
                if now.elapsed() > QUEUE_TIME {
                    break;
                }
            }
        }
        Ok(())
    }

    fn look_at_the_clock(&mut self, now: Instant) -> io::Result<()> {
        while let Some((at, key)) = self.timers.pop_due(now) {
            if self.connections.get(key).is_some_and(|connection| connection.waits_for(at)) {
                self.turn(key, now)?;
            }
        }
        if now >= self.sweep_at {
            self.sweep(now);
        }
        if self.accept_again_at.is_some_and(|at| now >= at) {
            self.accept_again_at = None;
            if let Some(listener) = &self.listener {
                self.poller.add(listener, LISTENER, Interest::ReadableByOne)?;
            }
        }
        Ok(())
    }

    /// Cuts off those whose time is over.
    fn sweep(&mut self, now: Instant) {
        let late =
            |(key, connection): (usize, &Connection)| (connection.deadline() <= now).then_some(key);
        for key in self.connections.iter().filter_map(late).collect::<Vec<_>>() {
            // One that has gone by itself need not be told.
            self.connections[key].give_up(&mut self.tools).ok();
            self.remove(key);
        }
        let connections = &self.connections;
        self.timers.prune(connections.len(), |at, key| {
            connections.get(key).is_some_and(|connection| connection.waits_for(at))
        });
        self.sweep_at = now + self.timeouts.sweep_period();
    }

    /// Takes in all that has arrived, closes the listener and what is idle.
    fn stop(&mut self, now: Instant) -> io::Result<()> {
        self.stop_by = Some(now + STOP_TIMEOUT);
        if self.accept_again_at.is_none() {
            // Those that go on arriving do not keep it from its end.
            self.accept(now, BACKLOG as usize)?;
        }
        self.listener = None;
        self.accept_again_at = None;
        for (_, connection) in &mut self.connections {
            connection.look_again();
        }
        self.keys().into_iter().try_for_each(|key| self.turn(key, now))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use tollgate_eventloop::listen;

    use super::*;
    use crate::site::made_up::site;
    use crate::sources::Sources;

    const SWEEP_PERIOD: Duration = Duration::from_millis(250);

    fn worker() -> (Worker, std::net::SocketAddr) {
        let listener = listen("127.0.0.1:0".parse().unwrap(), false, 16).unwrap();
        let addr = listener.local_addr().unwrap();
        let waker = Waker::new().unwrap();
        let stopper = Stopper::new(std::slice::from_ref(&waker));
        let timeouts = Timeouts::default();
        let sources = Sources::new(Sources::open_zero().unwrap());
        let tools = Tools::new(site(), sources, timeouts);
        (Worker::new(listener.into(), waker, stopper, tools, timeouts).unwrap(), addr)
    }

    /// Waits until the first connection has something to read, and gives it its turn.
    fn turn_when_ready(worker: &mut Worker, now: Instant) {
        let mut events = Events::with_capacity(4);
        loop {
            worker.poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
            assert!(events.iter().next().is_some(), "nothing came");
            if let Some(event) = events.iter().find(|event| event.token == 0) {
                return worker.turn_on_event(event, now).unwrap();
            }
        }
    }

    #[test]
    fn who_asks_nothing_for_a_minute_and_who_does_not_end_a_head_is_cut_off() {
        let (mut worker, addr) = worker();
        let mut client = TcpStream::connect(addr).unwrap();
        let start = Instant::now();
        let seconds = |count| start + Duration::from_secs(count);
        worker.accept(start, ACCEPTS_A_WAKE).unwrap();
        worker.look_at_the_clock(seconds(59)).unwrap();
        assert_eq!(worker.connections.len(), 1);

        client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        turn_when_ready(&mut worker, seconds(50));
        worker.look_at_the_clock(seconds(109)).unwrap();
        assert_eq!(worker.connections.len(), 1);

        client.write_all(b"GET").unwrap();
        turn_when_ready(&mut worker, seconds(109));
        worker.look_at_the_clock(seconds(118)).unwrap();
        assert_eq!(worker.connections.len(), 1);
        worker.look_at_the_clock(seconds(120)).unwrap();
        assert_eq!(worker.connections.len(), 0);
        let told = worker.tools.site.counters.to_json(&[], start, false);
        assert!(told.contains("\"timed_out\":1,"), "{told}");
        assert!(told.contains("\"open\":0,\"accepted\":1}"), "{told}");
    }

    #[test]
    fn a_client_that_goes_on_after_the_last_answer_is_closed_after_a_second() {
        let (mut worker, addr) = worker();
        let mut client = TcpStream::connect(addr).unwrap();
        let start = Instant::now();
        worker.accept(start, ACCEPTS_A_WAKE).unwrap();
        client.write_all(b"\0").unwrap();
        turn_when_ready(&mut worker, start);
        client.write_all(b"more").unwrap();
        turn_when_ready(&mut worker, start + Duration::from_millis(900));
        assert_eq!(worker.connections.len(), 1);
        worker.look_at_the_clock(start + Duration::from_millis(1_001)).unwrap();
        assert_eq!(worker.connections.len(), 0);
    }

    #[test]
    fn what_a_client_sends_with_its_end_is_read_before_its_connection_is_closed() {
        let (mut worker, addr) = worker();
        let mut client = TcpStream::connect(addr).unwrap();
        let start = Instant::now();
        worker.accept(start, ACCEPTS_A_WAKE).unwrap();
        client.write_all(b"\0").unwrap();
        turn_when_ready(&mut worker, start);
        client.write_all(&[b'r'; 5_000]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        turn_when_ready(&mut worker, start);
        assert_eq!(worker.connections.len(), 0);
        // To close with some of it unread would be a reset, which can overtake the answer.
        let told = worker.tools.site.counters.to_json(&[], start, false);
        assert!(told.contains("\"bytes_in\":5001,"), "{told}");
    }

    #[test]
    fn a_thread_without_connections_waits_without_limit() {
        let (mut worker, addr) = worker();
        let now = Instant::now();
        assert_eq!(worker.timeout(now), None);

        let _client = TcpStream::connect(addr).unwrap();
        worker.accept(now, ACCEPTS_A_WAKE).unwrap();
        assert!(worker.timeout(now).unwrap() <= SWEEP_PERIOD);

        worker.pause_accepting(now, "the test says so").unwrap();
        assert_eq!(worker.timeout(now), Some(ACCEPT_PAUSE));
        worker.look_at_the_clock(now + ACCEPT_PAUSE).unwrap();
        assert!(worker.timeout(now).unwrap() > ACCEPT_PAUSE);

        let later = now + 2 * SWEEP_PERIOD;
        worker.look_at_the_clock(later).unwrap();
        assert_eq!(worker.timeout(later), Some(SWEEP_PERIOD));
    }

    #[test]
    fn those_who_have_more_to_do_take_turns() {
        let (mut worker, addr) = worker();
        let start = Instant::now();
        let mut clients: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"GET /zero?size=1000000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        }
        worker.accept(start, ACCEPTS_A_WAKE).unwrap();
        assert_eq!(worker.queue, [0, 1, 2]);
        assert_eq!(worker.timeout(start), Some(Duration::ZERO));
        // One turn takes all the time there is when the time is over already.
        worker.serve_queue(start - QUEUE_TIME).unwrap();
        assert_eq!(worker.queue, [1, 2, 0]);
        // A mebibyte takes four turns, of which one came with the request.
        for _ in 0..8 {
            worker.serve_queue(start - QUEUE_TIME).unwrap();
        }
        assert!(worker.queue.is_empty());
        assert!(worker.connections.iter().all(|(_, connection)| connection.is_idle()));
    }
}

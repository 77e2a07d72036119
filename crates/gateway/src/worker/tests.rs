use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use tollgate_eventloop::Socket;

use super::*;
use crate::config::Config;
use crate::exchange::Exchange;
use crate::link::Link;
use crate::orders::Reload;

/// A test fails rather than hangs after so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that is given its turns by hand, before a backend that says what the test has it say.
struct Stage {
    worker: Worker,
    events: Events,
    backend: TcpListener,
    place: std::net::SocketAddr,
}

impl Stage {
    fn set(change: impl FnOnce(&mut Config)) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let (listening, place) = listening();
        let behind = Address::Tcp(backend.local_addr().unwrap());
        let mut config = Config::new(listening.address.clone(), behind);
        change(&mut config);
        let plan = Arc::new(Plan::new(config, None, Instant::now()).unwrap());
        let counters = Arc::new(Counters::new(1));
        counters.begin(Arc::clone(&plan.tallies));
        let orders = Arc::new(Orders::default());
        let waker = Waker::new().unwrap();
        let worker = Worker::new(vec![listening], plan, counters, orders, waker, 0, None).unwrap();
        Self { worker, events: Events::with_capacity(64), backend, place }
    }

    /// A reload after which clients are listened for elsewhere, and nowhere else.
    fn move_elsewhere(&mut self) -> Address {
        let (listening, place) = listening();
        let mut config = self.worker.sites[self.worker.site].plan.config.clone();
        config.listeners = vec![Listener::new(Address::Tcp(place))];
        let plan = Arc::new(Plan::new(config, None, Instant::now()).unwrap());
        self.worker.orders.reload(Reload { plan, added: vec![listening] });
        self.worker.obey().unwrap();
        Address::Tcp(place)
    }

    /// A reload with one thing changed, after which clients are listened for where they were.
    fn reload(&mut self, change: impl FnOnce(&mut Config)) {
        let mut config = self.worker.sites[self.worker.site].plan.config.clone();
        change(&mut config);
        let plan = Arc::new(Plan::new(config, None, Instant::now()).unwrap());
        self.worker.orders.reload(Reload { plan, added: Vec::new() });
        self.worker.obey().unwrap();
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.place).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    #[track_caller]
    fn turn_until(&mut self, is_so: impl Fn(&Worker) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.worker) {
            assert!(Instant::now() < until, "it did not come to that");
            let wait = Some(Duration::from_millis(5));
            self.worker.turn_once(&mut self.events, wait).unwrap();
        }
    }

    /// A client whose answer has come to its end, and which has taken nothing of it: what the kernel holds
    /// for it was full before. The answer ends where its connection does.
    fn client_that_takes_nothing(&mut self) -> (usize, TcpStream) {
        let mut client = self.client();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let is_asked = |client: &Client| client.exchange.as_ref().is_some_and(Exchange::is_sent);
        self.turn_until(|worker| worker.clients.iter().any(|(_, client)| is_asked(client)));
        let (key, _) = self.worker.clients.iter().next().unwrap();
        let mut is_full = 0;
        while is_full < 2 {
            let sent = self.worker.clients[key].link.send(&[b'f'; 1 << 16]).unwrap();
            is_full = if sent == 0 { is_full + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(u64::from(sent == 0)));
        }
        let (mut peer, _) = self.backend.accept().unwrap();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        peer.write_all(&[&head[..], b"2\r\nhi\r\n0\r\n\r\n"].concat()).unwrap();
        self.turn_until(|worker| worker.clients[key].exchange.is_none());
        assert!(matches!(self.worker.clients[key].stage, super::Stage::Ending { .. }));
        assert!(!self.worker.clients[key].unsent.is_empty());
        (key, client)
    }
}

/// A listener on any free port, and where that is.
fn listening() -> (Listening, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let place = listener.local_addr().unwrap();
    let socket = Arc::new(OwnedFd::from(listener));
    let of = Listener::new(Address::Tcp(place));
    let listening = Listening::new(socket, &of, place.to_string());
    (listening, place)
}

#[track_caller]
fn expect_reset(mut client: TcpStream) {
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn an_answer_that_is_cut_off_behind_its_end_does_not_look_whole() {
    let mut stage = Stage::set(|_| {});
    let (key, client) = stage.client_that_takes_nothing();
    stage.worker.clients[key].deadline = stage.worker.now;
    stage.worker.sweep().unwrap();
    assert!(stage.worker.clients.is_empty());
    expect_reset(client);
}

#[test]
fn nor_does_one_that_is_not_taken_until_a_drain_is_over() {
    let mut stage = Stage::set(|_| {});
    let (_, client) = stage.client_that_takes_nothing();
    stage.worker.stop_by = Some(stage.worker.now);
    stage.worker.run().unwrap();
    expect_reset(client);
}

#[test]
fn who_does_not_take_the_end_of_an_answer_is_waited_for_as_within_it() {
    let mut stage = Stage::set(|config| {
        config.timeouts.body = Duration::from_secs(20);
        config.timeouts.idle = Duration::from_secs(600);
    });
    let (key, _client) = stage.client_that_takes_nothing();
    let worker = &stage.worker;
    assert!(worker.clients[key].deadline <= worker.now + worker.timeouts.body);
}

#[test]
fn a_connection_that_cannot_be_watched_ends_and_the_thread_goes_on() {
    let mut stage = Stage::set(|_| {});
    // The kernel watches no plain file.
    let socket = Socket::from(OwnedFd::from(tempfile::tempfile().unwrap()));
    let worker = &mut stage.worker;
    let client = Client::new(Link::connecting(socket), 1, None, 0, worker.now);
    let key = worker.clients.insert(client);
    worker.turn(key).unwrap();
    assert!(worker.clients.is_empty());
    let _client = stage.client();
    stage.turn_until(|worker| worker.clients.len() == 1);
}

#[test]
fn those_who_wait_in_a_queue_are_looked_for_in_time() {
    let stage = Stage::set(|config| config.pools[0].queue_timeout = Duration::from_millis(100));
    assert_eq!(sweep_period(&stage.worker.sites), Duration::from_millis(25));
    assert_eq!(sweep_period(&Stage::set(|_| {}).worker.sites), SWEEP_MAX);
}

#[test]
fn a_client_that_leaves_makes_room_at_once() {
    let mut stage = Stage::set(|config| config.limits.connections = 1);
    let first = stage.client();
    stage.turn_until(|worker| worker.accept_again_at.is_some());
    let second = stage.client();
    stage.worker.accept_again_at = Some(stage.worker.now + 10 * PATIENCE);
    let serial = stage.worker.clients.iter().next().unwrap().1.serial;
    drop(first);
    stage.turn_until(|worker| worker.clients.iter().any(|(_, client)| client.serial != serial));
    drop(second);
}

#[test]
fn the_place_of_a_listener_that_was_closed_is_taken_again_once_its_clients_are_gone() {
    let mut stage = Stage::set(|_| {});
    let client = stage.client();
    stage.turn_until(|worker| worker.clients.len() == 1);
    let first = stage.worker.listeners[0].address.clone();
    for _ in 0..5 {
        stage.move_elsewhere();
    }
    // The client's, the one in force, and the one of which that took over.
    assert_eq!(stage.worker.listeners.len(), 3);
    assert_eq!(stage.worker.listeners[0].address, first);
    drop(client);
    stage.turn_until(|worker| worker.clients.is_empty());
    let last = stage.move_elsewhere();
    assert_eq!(stage.worker.listeners[0].address, last);
    assert_eq!(stage.worker.listeners.len(), 3);
}

#[test]
fn who_goes_on_sending_behind_the_last_answer_is_heard_for_a_time_and_no_longer() {
    let mut stage = Stage::set(|_| {});
    let mut client = stage.client();
    client.write_all(b"nonsense\r\n\r\n").unwrap();
    let lingers = |client: &Client| matches!(client.stage, super::Stage::Lingering { .. });
    stage.turn_until(|worker| worker.clients.iter().any(|(_, client)| lingers(client)));
    let (key, _) = stage.worker.clients.iter().next().unwrap();
    // Each piece is a sign of life.
    stage.worker.clients[key].deadline = stage.worker.now;
    client.write_all(b"more").unwrap();
    stage.turn_until(|worker| worker.clients[key].deadline > worker.now);
    assert!(stage.worker.clients[key].deadline <= stage.worker.now + Duration::from_secs(5));
    // All of them together have a limit.
    let until = stage.worker.now + Duration::from_secs(1);
    stage.worker.clients[key].stage = super::Stage::Lingering { until };
    client.write_all(b"too much").unwrap();
    stage.turn_until(|worker| worker.clients[key].deadline == until);
}

#[test]
fn a_reload_changes_whether_a_listener_defers_that_stays() {
    let mut stage = Stage::set(|_| {});
    stage.reload(|config| config.listeners[0].defer_accept = true);
    let _silent = stage.client();
    stage.worker.turn_once(&mut stage.events, Some(Duration::from_millis(50))).unwrap();
    assert!(stage.worker.clients.is_empty());
    stage.reload(|config| config.listeners[0].defer_accept = false);
    let _accepted = stage.client();
    stage.turn_until(|worker| !worker.clients.is_empty());
}

#[test]
fn and_how_many_may_wait_there() {
    let mut stage = Stage::set(|_| {});
    // The kernel takes one more than it is asked to.
    stage.reload(|config| config.listeners[0].backlog = 1);
    let _waiting = [stage.client(), stage.client()];
    let connect = |place, ms| TcpStream::connect_timeout(&place, Duration::from_millis(ms));
    assert_eq!(connect(stage.place, 100).unwrap_err().kind(), ErrorKind::TimedOut);
    stage.reload(|config| config.listeners[0].backlog = 128);
    connect(stage.place, 10_000).unwrap();
}

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tollgate_gateway::Config;
use tollgate_gateway::config::{Address, Listener, Timeouts};

use crate::support::{Backend, GET, OK, PATIENCE, Peer, Served};

#[test]
fn a_drain_answers_what_is_under_way_and_closes_the_rest() {
    let backend = Backend::start();
    let mut served = backend.gateway();
    let mut busy = served.client();
    let mut idle = served.client();
    busy.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    idle.send(GET);
    let mut other = backend.accept();
    other.expect(GET);
    other.send(OK);
    idle.expect(OK);
    served.gateway().drain().unwrap();
    idle.expect_last("");
    peer.send(OK);
    busy.expect_last(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
    );
    let addr = served.addr;
    served.join();
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn a_reload_sends_what_comes_after_it_elsewhere_and_lets_the_rest_end() {
    let (old, new) = (Backend::start(), Backend::start());
    let mut served = old.gateway();
    let listen = served.addr;
    let (mut busy, mut idle) = (served.client(), served.client());
    busy.send(GET);
    let mut peer = old.accept();
    peer.expect(GET);
    idle.send(GET);
    let mut waiting = old.accept();
    waiting.expect(GET);
    waiting.send(OK);
    idle.expect(OK);

    let config = Config { listeners: old.config().listeners, ..new.config() };
    served.gateway().reload(config).unwrap();
    // Its connections to the old backend that nobody uses are closed, which tells that it has happened.
    waiting.expect_last("");
    idle.send(GET);
    let mut fresh = new.accept();
    fresh.expect(GET);
    fresh.send(OK);
    idle.expect(OK);
    peer.send(OK);
    busy.expect(OK);
    peer.expect_last("");
    busy.send(GET);
    fresh.expect(GET);
    fresh.send(OK);
    busy.expect(OK);
    assert_eq!(served.addr, listen);
}

#[test]
fn a_listener_that_is_added_while_nothing_is_accepted_has_its_turn_later() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.limits.connections = 1;
    let mut served = Served::start(config.clone());
    let mut first = served.client();
    first.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    // It has to wait, so that nothing is accepted.
    let second = served.client();
    let another = Address::Tcp("127.0.0.2:0".parse().unwrap());
    config.listeners.push(Listener::new(another));
    served.gateway().reload(config).unwrap();
    let Some(Address::Tcp(added)) = served.gateway().addresses().nth(1).cloned() else {
        panic!("there is no second listener");
    };
    let mut third = Peer::new(TcpStream::connect(added).unwrap());
    third.send(GET);
    // Time for the thread to begin and to end a pause with both listeners.
    std::thread::sleep(Duration::from_millis(120));
    peer.send(OK);
    first.expect(OK);
    drop((first, second));
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    third.expect(OK);
}

/// One who is served, in a gateway that accepts nobody else meanwhile, and those who wait for that.
fn full(served: &Served, backend: &Backend) -> (Peer, Peer, [Peer; 2]) {
    let mut first = served.client();
    first.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    let waiting = [1, 2].map(|_| {
        let mut client = served.client();
        client.send(GET);
        client
    });
    // Time for the thread to find that it has no room.
    std::thread::sleep(Duration::from_millis(120));
    (first, peer, waiting)
}

const LAST: &str = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

#[test]
fn a_drain_answers_those_who_have_arrived_though_nothing_was_accepted_just_then() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.limits.connections = 1;
    let mut served = Served::start(config);
    let (mut first, mut peer, waiting) = full(&served, &backend);
    served.gateway().drain().unwrap();
    std::thread::sleep(Duration::from_millis(120));
    // Nobody joins them.
    let late = TcpStream::connect_timeout(&served.addr, Duration::from_millis(50));
    assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    peer.send(OK);
    first.expect_last(LAST);
    drop(first);
    for mut client in waiting {
        let mut peer = backend.accept();
        peer.expect(GET);
        peer.send(OK);
        client.expect_last(LAST);
    }
    let addr = served.addr;
    served.join();
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn so_does_a_reload_that_leaves_their_listener_out() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.limits.connections = 1;
    let mut served = Served::start(config.clone());
    let (mut first, mut peer, waiting) = full(&served, &backend);
    config.listeners = vec![Listener::new(Address::Tcp("127.0.0.2:0".parse().unwrap()))];
    served.gateway().reload(config).unwrap();
    peer.send(OK);
    first.expect(OK);
    drop(first);
    for mut client in waiting {
        let mut peer = backend.accept();
        peer.expect(GET);
        peer.send(OK);
        client.expect(OK);
    }
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect_timeout(&served.addr, Duration::from_millis(50)).is_ok() {
        assert!(Instant::now() < until, "it listens still");
    }
}

/// A configuration that listens on one port of its own, and one without that.
fn with_and_without(backend: &Backend) -> (std::net::SocketAddr, Config, Config) {
    // Nobody listens there any more.
    let own = Backend::start().addr();
    let mut with = backend.config();
    with.listeners = ["127.0.0.2:0".parse().unwrap(), own]
        .map(|address| Listener::new(Address::Tcp(address)))
        .to_vec();
    let mut without = with.clone();
    without.listeners.truncate(1);
    (own, with, without)
}

#[test]
fn a_listener_that_was_left_out_may_be_asked_for_again_at_once() {
    let backend = Backend::start();
    for threads in [1, 3] {
        let (own, mut with, mut without) = with_and_without(&backend);
        with.threads = std::num::NonZeroUsize::new(threads).unwrap();
        without.threads = with.threads;
        let mut served = Served::start(with.clone());
        for round in 0..200_u64 {
            served.gateway().reload(without.clone()).unwrap();
            if round.is_multiple_of(2) {
                // Some threads have closed theirs by then, and some have not.
                std::thread::sleep(Duration::from_micros(50 * (round % 8)));
            }
            let again = served.gateway().reload(with.clone());
            again
                .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)));
        }
        for _ in 0..20 {
            let mut client = Peer::new(TcpStream::connect(own).unwrap());
            client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let mut peer = backend.accept();
            peer.expect(GET);
            peer.send("HTTP/1.1 204 No\r\nDate: d\r\nConnection: close\r\n\r\n");
            client.expect_last("HTTP/1.1 204 No\r\nDate: d\r\nConnection: close\r\n\r\n");
        }
        served.gateway().reload(without).unwrap();
        // Its port comes to be free, for others as for this gateway.
        let until = Instant::now() + PATIENCE;
        while let Err(error) = std::net::TcpListener::bind(own) {
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        served.gateway().reload(with).unwrap();
        drop(TcpStream::connect(own).unwrap());
    }
}

#[test]
fn who_waits_at_a_listener_that_is_to_be_closed_is_served_when_it_is_not() {
    let backend = Backend::start();
    let (own, mut with, mut without) = with_and_without(&backend);
    (with.limits.connections, without.limits.connections) = (1, 1);
    let mut served = Served::start(with.clone());
    served.addr = own;
    let (mut first, mut peer, waiting) = full(&served, &backend);
    served.gateway().reload(without).unwrap();
    // Time to close it as far as that goes.
    std::thread::sleep(Duration::from_millis(120));
    let late = TcpStream::connect_timeout(&own, Duration::from_millis(50));
    assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    served.gateway().reload(with).unwrap();
    std::thread::sleep(Duration::from_millis(120));
    let mut more = served.client();
    more.send(GET);
    peer.send(OK);
    first.expect(OK);
    drop(first);
    for mut client in waiting.into_iter().chain([more]) {
        let mut peer = backend.accept();
        peer.expect(GET);
        peer.send(OK);
        client.expect(OK);
    }
}

#[test]
fn a_client_that_has_sent_its_last_byte_gets_its_answer() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send(GET);
    client.finish();
    let mut peer = backend.accept();
    peer.expect(GET);
    std::thread::sleep(Duration::from_millis(20));
    peer.send(OK);
    client.expect_last(OK);
}

#[test]
fn when_a_client_is_gone_its_request_is_given_up() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    // Closing over what was not read is a reset.
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 9\r\n\r\nhalf");
    client.read(10);
    drop(client);
    peer.expect_end();
}

#[test]
fn who_asks_once_and_goes_while_the_backend_is_silent_is_noticed() {
    let backend = Backend::start();
    let mut config = backend.config();
    // Its request is there when it is accepted, so that the poller is told nothing of it before it is waited for.
    config.listeners[0].defer_accept = true;
    let served = Served::start(config);
    let mut client = served.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut peer = backend.accept();
    peer.expect(GET);
    std::thread::sleep(Duration::from_millis(50));
    // Closing with nothing to be read is an end, which a client may have sent that reads on; a reset is not.
    tollgate_eventloop::Socket::from(OwnedFd::from(client.stream)).reset().unwrap();
    peer.expect_end();
}

#[test]
fn another_protocol_goes_both_ways_and_each_way_ends_by_itself() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    let ask = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.send(format!("{ask}early"));
    let mut peer = backend.accept();
    peer.expect(ask);
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
        Upgrade: websocket\r\n\r\n";
    peer.send(format!("{switch}\0first"));
    client.expect(format!("{switch}\0first"));
    peer.expect("early");
    client.send("GET / HTTP/1.1\r\n\r\n");
    peer.expect("GET / HTTP/1.1\r\n\r\n");
    client.finish();
    peer.expect_last("");
    peer.stream.write_all(b"last").unwrap();
    drop(peer);
    client.expect_last("last");
}

/// A client and a backend that have switched to another protocol.
fn tunnel(backend: &Backend, served: &Served) -> (Peer, Peer) {
    let mut client = served.client();
    let ask = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.send(ask);
    let mut peer = backend.accept();
    peer.expect(ask);
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
        Upgrade: websocket\r\n\r\n";
    peer.send(switch);
    client.expect(switch);
    (client, peer)
}

#[test]
fn another_protocol_is_waited_for_by_a_time_of_its_own() {
    let backend = Backend::start();
    let mut config = backend.config();
    let short = Duration::from_millis(150);
    config.timeouts = Timeouts {
        tunnel: Duration::from_secs(60),
        idle: short,
        body: short,
        answer: short,
        ..config.timeouts
    };
    let mut served = Served::start(config.clone());
    let (mut client, mut peer) = tunnel(&backend, &served);
    std::thread::sleep(4 * short);
    client.send("still");
    peer.expect("still");
    // In each direction, a byte is a sign of life for both.
    config.timeouts.tunnel = Duration::from_millis(600);
    config.timeouts.idle = Duration::from_secs(60);
    served.gateway().reload(config).unwrap();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(250));
        peer.send("there");
        client.expect("there");
    }
    client.expect_end();
    peer.expect_end();
}

#[test]
fn a_drain_waits_for_a_tunnel_as_long_as_it_may_and_no_longer() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.timeouts.drain = Duration::from_millis(400);
    let mut served = Served::start(config);
    let (mut client, mut peer) = tunnel(&backend, &served);
    let start = Instant::now();
    served.gateway().drain().unwrap();
    client.send("still");
    peer.expect("still");
    served.join();
    let taken = start.elapsed();
    assert!(taken >= Duration::from_millis(400) && taken < PATIENCE, "{taken:?}");
    client.expect_end();
    peer.expect_end();
}

#[test]
fn a_backend_that_does_not_switch_answers_as_ever() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    let ask = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.send(ask);
    let mut peer = backend.accept();
    peer.expect(ask);
    peer.send(OK);
    client.expect(OK);
    client.send(GET);
    peer.expect(GET);
}

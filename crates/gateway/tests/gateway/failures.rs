use std::time::Duration;

use tollgate_gateway::Config;
use tollgate_gateway::config::{self, Pool, Timeouts};

use crate::support::{Backend, GET, OK, Served};

const POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";

fn quick(config: Config) -> Config {
    let timeouts = Timeouts {
        header: Duration::from_millis(200),
        body: Duration::from_millis(200),
        answer: Duration::from_millis(200),
        ..config.timeouts
    };
    Config { timeouts, ..config }
}

fn over(backends: &[&Backend], change: impl FnOnce(&mut Pool)) -> Config {
    let all = backends.iter().map(|backend| config::Backend::new(backend.address())).collect();
    let mut pool = Pool::new("p", all);
    change(&mut pool);
    Config { pools: vec![pool], ..backends[0].config() }
}

/// A backend that nobody listens for any more.
fn gone() -> Backend {
    Backend::start()
}

#[test]
fn a_connection_that_waited_may_end_at_any_time_and_nobody_notices() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    client.expect(OK);
    for request in [GET, POST, GET] {
        // Seen to end before the next request, or while that is on its way.
        drop(peer);
        client.send(request);
        peer = backend.accept();
        peer.expect(request);
        peer.send(OK);
        client.expect(OK);
    }
    client.send(GET);
    peer.expect(GET);
    drop(peer);
    peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    client.expect(OK);
}

#[test]
fn what_cannot_be_sent_twice_is_not() {
    let (backend, other) = (Backend::start(), Backend::start());
    let served = Served::start(over(&[&backend, &other], |_| {}));
    let mut client = served.client();
    client.send(POST);
    let mut peer = backend.accept();
    peer.expect(POST);
    drop(peer);
    assert!(client.head().starts_with("HTTP/1.1 502 "));
    client.expect("No backend gave an answer that could be passed on.\n");
    backend.expect_nobody();
    other.expect_nobody();
    // Nor over a connection that has waited, once the backend may have seen it.
    let mut peers = [&other, &backend].map(|of| {
        client.send(GET);
        let mut peer = of.accept();
        peer.expect(GET);
        peer.send(OK);
        client.expect(OK);
        peer
    });
    client.send(POST);
    peers[0].expect(POST);
    drop(peers);
    assert!(client.head().starts_with("HTTP/1.1 502 "));
    client.expect("No backend gave an answer that could be passed on.\n");
    backend.expect_nobody();
    other.expect_nobody();
}

#[test]
fn a_backend_that_is_down_is_passed_over() {
    let up = Backend::start();
    let down = gone();
    let config = over(&[&down, &up], |_| {});
    drop(down);
    let served = Served::start(config);
    let mut client = served.client();
    client.send(POST);
    let mut peer = up.accept();
    peer.expect(POST);
    peer.send(OK);
    client.expect(OK);
    for _ in 0..4 {
        client.send(GET);
        peer.expect(GET);
        peer.send(OK);
        client.expect(OK);
    }
}

#[test]
fn when_all_are_down_the_client_is_told() {
    let (one, other) = (gone(), gone());
    let config = over(&[&one, &other], |_| {});
    drop((one, other));
    let served = Served::start(config);
    let mut client = served.client();
    for _ in 0..2 {
        client.send(GET);
        assert!(client.head().starts_with("HTTP/1.1 502 "));
        client.expect("No backend gave an answer that could be passed on.\n");
    }
}

#[test]
fn a_backend_that_answers_nonsense_is_not_passed_on() {
    let backend = Backend::start();
    let served = backend.gateway();
    for answer in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: a\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let mut client = served.client();
        client.send(GET);
        let mut peer = backend.accept();
        peer.expect(GET);
        peer.send(answer);
        assert!(client.head().starts_with("HTTP/1.1 502 "), "{answer}");
        peer.expect_end();
    }
}

#[test]
fn a_switch_that_was_not_asked_for_or_does_not_say_to_what_is_none() {
    let backend = Backend::start();
    let served = backend.gateway();
    let ask = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n";
    let named = format!("{switch}Upgrade: websocket\r\n\r\n");
    let old = ask.replace("HTTP/1.1", "HTTP/1.0");
    let with_body = ask.replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n");
    for (ask, switch) in [
        (GET, &named[..]),
        (&*old, &*named),
        (&*with_body, &*named),
        (&*ask.replace("GET", "POST"), &*named),
        (&*ask.replace("websocket", "h2c"), &*named),
        (ask, &*format!("{switch}\r\n")),
        (ask, &*format!("{switch}Upgrade:\r\n\r\n")),
    ] {
        let mut client = served.client();
        client.send(ask);
        let mut peer = backend.accept();
        peer.head();
        peer.send(format!("{switch}{OK}"));
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 502 "), "{ask} {switch} {head}");
        peer.expect_end();
        client.expect("No backend gave an answer that could be passed on.\n");
    }
}

#[test]
fn interim_answers_have_a_limit_and_go_to_none_who_does_not_know_them() {
    const MOST: usize = 64;
    let backend = Backend::start();
    let served = backend.gateway();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: b\r\n\r\n";
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(interim.repeat(MOST) + OK);
    client.expect(interim.repeat(MOST) + OK);
    let mut old = served.client();
    old.send("GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
    peer.expect(GET);
    peer.send(interim.repeat(MOST) + OK);
    old.expect(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi",
    );
    // One after the other, they count as well.
    client.send(GET);
    peer.expect(GET);
    for _ in 0..MOST {
        peer.send(interim);
        client.expect(interim);
    }
    peer.send(interim);
    assert!(client.head().starts_with("HTTP/1.1 502 "));
    peer.expect_end();
}

#[test]
fn what_comes_behind_an_answer_is_nobody_s() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(format!("{OK}{OK}"));
    client.expect(OK);
    peer.expect_end();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    client.expect(OK);
    // And it may come later, as long as nobody has asked.
    peer.send(OK);
    peer.expect_end();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
}

#[test]
fn who_takes_too_long_is_told() {
    let backend = Backend::start();
    let served = Served::start(quick(backend.config()));
    let mut silent = served.client();
    silent.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    assert!(silent.head().starts_with("HTTP/1.1 504 "));
    peer.expect_end();

    let mut half = served.client();
    half.send("GET / HT");
    assert!(half.head().starts_with("HTTP/1.1 408 "));

    let mut slow = served.client();
    slow.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
    let mut peer = backend.accept();
    peer.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
    assert!(slow.head().starts_with("HTTP/1.1 408 "));
    peer.expect_end();

    let mut stalled = served.client();
    stalled.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nab");
    stalled.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nab");
    stalled.expect_end();
}

#[test]
fn requests_beyond_the_limit_wait_and_those_beyond_the_queue_are_refused() {
    let backend = Backend::start();
    let served = Served::start(over(&[&backend], |pool| {
        pool.connections_max = std::num::NonZeroU32::new(1);
        pool.queue_max = 1;
    }));
    let (mut first, mut second, mut third) = (served.client(), served.client(), served.client());
    first.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    second.send(GET.replace("/a", "/2"));
    std::thread::sleep(Duration::from_millis(50));
    third.send(GET);
    let refused = third.head();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nRetry-After: 5\r\n"), "{refused}");
    peer.send(OK);
    first.expect(OK);
    peer.expect(GET.replace("/a", "/2"));
    peer.send(OK);
    second.expect(OK);
    backend.expect_nobody();
}

#[test]
fn who_waits_goes_to_whichever_backend_is_free_first() {
    let backends = [Backend::start(), Backend::start()];
    let served = Served::start(over(&backends.each_ref(), |pool| {
        pool.connections_max = std::num::NonZeroU32::new(1);
    }));
    let mut clients = [0; 4].map(|_| served.client());
    let mut peers = Vec::new();
    for (client, backend) in clients.iter_mut().zip(&backends) {
        client.send(GET);
        let mut peer = backend.accept();
        peer.expect(GET);
        peers.push(peer);
    }
    for (at, client) in clients.iter_mut().enumerate().skip(2) {
        client.send(GET.replace("/a", &format!("/{at}")));
        std::thread::sleep(Duration::from_millis(50));
    }
    // The second backend takes both, one after the other; the first is busy all the while.
    peers[1].send(OK);
    clients[1].expect(OK);
    for (at, client) in clients.iter_mut().enumerate().skip(2) {
        peers[1].expect(GET.replace("/a", &format!("/{at}")));
        peers[1].send(OK);
        client.expect(OK);
    }
    peers[0].send(OK);
    clients[0].expect(OK);
}

#[test]
fn who_waits_in_the_queue_too_long_is_refused_and_who_leaves_it_is_forgotten() {
    let backend = Backend::start();
    let served = Served::start(quick(over(&[&backend], |pool| {
        pool.connections_max = std::num::NonZeroU32::new(1);
        pool.queue_timeout = Duration::from_millis(100);
    })));
    let (mut first, mut second, mut third) = (served.client(), served.client(), served.client());
    first.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 9\r\n\r\n");
    second.send(GET);
    third.send(GET);
    drop(third);
    let refused = second.head();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    peer.send("123456789");
    let mut fourth = served.client();
    fourth.send(GET);
    peer.expect(GET);
    peer.send(OK);
    fourth.expect(OK);
}

//! Clients that leave, send without reading, never finish, or come in large numbers.

use std::io::Read;
use std::num::NonZeroU32;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate_gateway::Config;
use tollgate_gateway::config::Address;

use crate::support::{
    Backend, ChildProcess, DEADLINE, GET, OK, OK_LAST, Peer, TestGateway, ThreadedBackend,
    child_arguments, config, echo_body, echo_response, is_echo, test_path,
};

#[test]
fn half_closed_client_receives_its_response() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    client.finish();
    let mut upstream = backend.accept();
    upstream.expect(GET);
    gateway.turn();
    upstream.send(OK);
    client.expect_to_end(OK);
}

/// A gateway with one connection to its backend, which serves the first of three clients.
fn busy_gateway(edit: impl FnOnce(&mut Config)) -> (Backend, TestGateway, Peer, Peer, [Peer; 2]) {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.pools[0].connections_max = NonZeroU32::new(1);
    config.pools[0].queue_timeout = 10 * DEADLINE;
    edit(&mut config);
    let gateway = TestGateway::start(&config);
    let mut first = gateway.client();
    first.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let queued = ["/second", "/third"].map(|path| {
        let mut client = gateway.client();
        client.send(GET.replace("/a", path));
        client
    });
    (backend, gateway, first, upstream, queued)
}

#[test]
fn queued_request_of_a_departed_client_is_dropped() {
    let (_backend, gateway, mut first, mut upstream, [second, mut third]) = busy_gateway(|_| {});
    gateway.expect_metric("client_connections", 3);
    drop(second);
    gateway.expect_metric("client_connections", 2);
    upstream.send(OK);
    first.expect(OK);
    upstream.expect(GET.replace("/a", "/third"));
    upstream.send(OK);
    third.expect(OK);
}

#[test]
fn queued_request_of_a_half_closed_client_is_served_if_allowed() {
    let (_backend, gateway, mut first, mut upstream, [mut second, third]) =
        busy_gateway(|config| {
            config.requests.half_close = true;
            config.timeouts.abandoned = Duration::from_millis(1);
            config.timeouts.idle = Duration::from_millis(100);
        });
    second.finish();
    // An idle client is closed by a later look at the deadlines.
    gateway.client().expect_closed();
    upstream.send(OK);
    first.expect(OK);
    upstream.expect(GET.replace("/a", "/second"));
    gateway.client().expect_closed();
    upstream.send(OK);
    second.expect_to_end(OK);
    drop(third);
}

#[test]
fn sent_request_of_a_departed_client_is_given_up_after_a_while() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.timeouts.abandoned = Duration::from_millis(200);
    config.timeouts.response = 10 * DEADLINE;
    let gateway = TestGateway::start(&config);
    for request in [GET, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"] {
        let mut client = gateway.client();
        client.send(request);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        client.finish();
        upstream.expect_closed();
        client.expect_closed();
    }
    // A response that has begun is sent to its end.
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(&OK[..OK.len() - 1]);
    client.expect(&OK[..OK.len() - 1]);
    client.finish();
    let mut given_up = gateway.client();
    given_up.send(GET);
    given_up.finish();
    given_up.expect_closed();
    upstream.send(&OK[OK.len() - 1..]);
    client.expect_to_end(&OK[OK.len() - 1..]);
}

#[test]
fn longest_idle_client_makes_room_at_the_limit() {
    let backend = ThreadedBackend::echo();
    let mut config = config(&[backend.addr()]);
    config.limits.connections = 3;
    config.timeouts.idle = 10 * DEADLINE;
    let gateway = TestGateway::start(&config);
    let mut clients = [(); 3].map(|()| gateway.client());
    for client in &mut clients {
        assert!(is_echo(&client.get("/once").unwrap(), "/once"));
    }
    // The first one is idle for less time than the second, and the third is not idle.
    assert!(is_echo(&clients[0].get("/again").unwrap(), "/again"));
    clients[2].send("GET /third HTTP/1.1\r\n");
    let mut new = gateway.client();
    assert!(is_echo(&new.get("/new").unwrap(), "/new"));
    clients[1].expect_closed();
    assert!(is_echo(&clients[0].get("/still").unwrap(), "/still"));
    assert!(is_echo(&clients[2].request("Host: a\r\n\r\n").unwrap(), "/third"));
    gateway.expect_metric("client_connections_reclaimed_total", 1);
}

#[test]
fn bytes_right_behind_the_last_request_cause_no_reset() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.listeners[0].defer_accept = true;
    let gateway = TestGateway::start(&config);
    for _ in 0..20 {
        let mut client = gateway.client();
        client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut upstream = backend.accept();
        upstream.expect(GET);
        // The gateway does not watch the client for the next milliseconds.
        client.send(GET);
        upstream.send(OK_LAST);
        client.expect_to_end(OK_LAST);
    }
}

#[test]
fn client_that_leaves_during_a_response_closes_its_upstream_connection() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut other = gateway.client();
    for _ in 0..10 {
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 9\r\n\r\nhalf");
        client.head().unwrap();
        client.reset();
        upstream.expect_closed();
        other.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(OK);
        other.expect(OK);
        drop(upstream);
    }
}

#[test]
fn client_that_leaves_during_its_body_leaves_an_incomplete_request() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut other = gateway.client();
    other.send(GET);
    let mut other_upstream = backend.accept();
    other_upstream.expect(GET);
    other_upstream.send(OK);
    other.expect(OK);
    for framing in
        ["Content-Length: 100\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n64\r\nsome"]
    {
        let start = format!("POST /a HTTP/1.1\r\nHost: a\r\n{framing}");
        other.send(GET);
        other_upstream.expect(GET);
        let mut client = gateway.client();
        client.send(&start);
        let mut upstream = backend.accept();
        upstream.expect(&start);
        other_upstream.send(OK);
        other.expect(OK);
        drop(client);
        upstream.expect_closed();
        other.send(GET);
        other_upstream.expect(GET);
        other_upstream.send(OK);
        other.expect(OK);
    }
}

#[test]
fn reset_of_a_client_whose_backend_is_silent_is_noticed() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    // The request is complete when the connection is accepted, hence the gateway forwards it before it watches the
    // connection.
    config.listeners[0].defer_accept = true;
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut upstream = backend.accept();
    upstream.expect(GET);
    // A mere close would be the end of the requests, after which a client may still read.
    client.reset();
    upstream.expect_closed();
}

#[test]
fn late_response_for_a_departed_client_reaches_no_other_client() {
    let (received, is_received) = channel();
    let (respond, may_respond) = channel();
    let may_respond = Mutex::new(may_respond);
    let backend = ThreadedBackend::responding(move |path| {
        if path == "/late" {
            received.send(()).unwrap();
            may_respond.lock().unwrap().recv_timeout(DEADLINE).unwrap();
        }
        echo_response(path)
    });
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let mut other = gateway.client();
    for number in 0..10 {
        let mut client = gateway.client();
        client.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
        is_received.recv_timeout(DEADLINE).unwrap();
        drop(client);
        for piece in 0..10 {
            if piece == 5 {
                respond.send(()).unwrap();
            }
            let path = format!("/other/{number}/{piece}");
            assert!(is_echo(&other.get(&path).unwrap(), &path));
        }
    }
}

#[test]
fn pipelining_client_that_reads_nothing_is_not_read_from() {
    const PATH: &str = "/a-path-that-is-so-long-that-its-echo-takes-a-few-kilobytes-of-text";
    assert!(echo_body(PATH).len() > 1_000);
    let backend = ThreadedBackend::echo();
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let mut client = gateway.client();
    let padding = "p".repeat(4_000);
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: a\r\nX-Padding: {padding}\r\n\r\n");
    let requests = request.repeat(8_000);
    let sent = client.send_until_blocked(requests.as_bytes());
    assert!(sent < requests.len(), "all requests were taken, and no response was read");
    assert!(is_echo(&gateway.client().get("/other").unwrap(), "/other"));

    // Once the client reads, it receives all responses.
    let started = sent.div_ceil(request.len());
    let mut sender = Peer::new(client.stream().try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(&requests[sent..started * request.len()]));
        for _ in 0..started {
            assert!(is_echo(&client.response().unwrap(), PATH));
        }
    });
    assert!(is_echo(&client.get("/next").unwrap(), "/next"));
}

#[test]
fn connections_of_one_client_are_limited() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.limits.connections_per_client = Some(1);
    let gateway = TestGateway::start(&config);
    let mut first = gateway.client();
    first.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    gateway.client().expect_closed();
    upstream.send(OK);
    first.expect(OK);
    first.finish();
    first.expect_closed();
    // It counts no longer.
    let mut next = gateway.client();
    next.send(GET);
    upstream.expect(GET);
    upstream.send(OK);
    next.expect(OK);
}

#[test]
fn ten_thousand_unfinished_requests_delay_no_other_request() {
    const CLIENTS: usize = 10_000;
    let allow_descriptors = || {
        let limit = getrlimit(Resource::Nofile);
        let needed = CLIENTS as u64 + 500;
        assert!(
            limit.maximum.is_none_or(|maximum| maximum >= needed),
            "{needed} open files are needed and {limit:?} allowed: raise ulimit -Hn"
        );
        if limit.current.is_some_and(|current| current < needed) {
            setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit }).unwrap();
        }
    };
    allow_descriptors();
    // One process may not have enough descriptors for both ends.
    if let Some(arguments) = child_arguments() {
        let address = Address::Unix((&arguments[0]).into());
        let clients: Vec<Peer> = (0..CLIENTS)
            .map(|_| {
                let mut client = Peer::connect(&address);
                client.send("GET /never HTTP/1.1\r\nHost: ");
                client
            })
            .collect();
        println!("\n{} are connected", clients.len());
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let backend = ThreadedBackend::echo();
    let mut config = config(&[backend.addr()]);
    config.timeouts.header = Duration::from_secs(300);
    config.limits.connections = CLIENTS + 100;
    let gateway = TestGateway::on_unix_socket(config);
    let Address::Unix(socket) = gateway.address() else { panic!("not a Unix socket") };
    let name = test_path!("ten_thousand_unfinished_requests_delay_no_other_request");
    let mut child = ChildProcess::start(name, &[socket.display().to_string()], Stdio::inherit());
    child.wait_for(&format!("{CLIENTS} are connected"));
    let mut client = gateway.client();
    for number in 0..100 {
        let path = format!("/{number}");
        assert!(is_echo(&client.get(&path).unwrap(), &path));
    }
    assert_eq!(gateway.metric("client_connections"), CLIENTS as u64 + 1);
    child.finish();
    gateway.expect_metric("client_connections", 1);
    assert!(is_echo(&client.get("/after").unwrap(), "/after"));
}

//! Clients and backends that stop sending.

use std::net::TcpStream;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tollgate_gateway::config::{PoolId, Route, Timeouts};

use crate::support::{
    Backend, DEADLINE, GET, OK, TestGateway, ThreadedBackend, config, is_echo, serve_echo,
};

/// The timeout under test. A request that is served meanwhile has to finish within it.
const SHORT: Duration = Duration::from_millis(500);

/// A gateway whose timeouts are edited.
fn gateway(backend: &Backend, edit: impl FnOnce(&mut Timeouts)) -> TestGateway {
    let mut config = config(&[backend.addr()]);
    edit(&mut config.timeouts);
    TestGateway::start(&config)
}

#[test]
fn silent_backend_times_out_and_delays_no_other_request() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| timeouts.response = SHORT);
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        waiting.push((client, upstream));
    }
    let mut other = gateway.client();
    other.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    other.expect(OK);
    for (mut client, mut upstream) in waiting {
        client.expect_local_response(504);
        upstream.expect_closed();
    }
}

#[test]
fn stalled_response_body_ends_both_connections() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| timeouts.body = SHORT);
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let start = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nab";
    upstream.send(start);
    client.expect(start);
    client.expect_closed();
    upstream.expect_closed();
}

#[test]
fn connection_attempt_times_out() {
    // Nothing is accepted, and the queue of the listener is full.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let attempt = || TcpStream::connect_timeout(&addr, Duration::from_millis(100)).ok();
    let queued: Vec<_> = std::iter::from_fn(attempt).take(10_000).collect();
    let mut config = config(&[addr]);
    config.timeouts.connect = SHORT;
    let gateway = TestGateway::start(&config);
    let status = gateway.client().get("/").unwrap().status;
    assert!(matches!(status, 502 | 504), "{status} with {} queued", queued.len());
}

#[test]
fn incomplete_header_section_times_out() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| timeouts.header = SHORT);
    for start in ["GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        let mut client = gateway.client();
        let started_at = Instant::now();
        client.send(start);
        client.expect_local_response(408);
        client.expect_closed();
        assert!(started_at.elapsed() >= SHORT);
    }
    backend.expect_no_connection(&gateway);
}

#[test]
fn incomplete_request_body_times_out_and_is_not_completed() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| timeouts.body = SHORT);
    let mut client = gateway.client();
    let start = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel";
    client.send(start);
    let mut upstream = backend.accept();
    upstream.expect(start);
    client.expect_local_response(408);
    upstream.expect_closed();
}

#[test]
fn request_body_slower_than_the_lowest_rate_times_out() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| {
        timeouts.body = SHORT;
        timeouts.body_rate = NonZeroU32::new(1_000_000);
    });
    let mut client = gateway.client();
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    client.send(head);
    let mut upstream = backend.accept();
    upstream.expect(head);
    let started_at = Instant::now();
    while gateway.metric("local_responses_total{status=\"408\"}") == 0 {
        assert!(started_at.elapsed() < DEADLINE, "a byte now and then is enough");
        client.try_send("x").ok();
    }
    client.expect_local_response(408);
}

#[test]
fn trickle_that_is_above_the_lowest_rate_times_out_in_the_end() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| {
        timeouts.body = SHORT;
        timeouts.body_rate = NonZeroU32::new(100);
        timeouts.body_slow = SHORT;
    });
    let mut client = gateway.client();
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    client.send(head);
    let mut upstream = backend.accept();
    upstream.expect(head);
    let started_at = Instant::now();
    while gateway.metric("local_responses_total{status=\"408\"}") == 0 {
        assert!(started_at.elapsed() < DEADLINE, "a trickle goes on");
        // Ten times the lowest rate.
        client.try_send("0123456789").ok();
        std::thread::sleep(Duration::from_millis(10));
    }
    client.expect_local_response(408);
}

#[test]
fn idle_connection_is_closed_without_a_response() {
    let backend = ThreadedBackend::start(serve_echo);
    let mut config = config(&[backend.addr()]);
    config.timeouts.idle = SHORT;
    let gateway = TestGateway::start(&config);
    gateway.client().expect_closed();
    let mut client = gateway.client();
    assert!(is_echo(&client.get("/once").unwrap(), "/once"));
    client.expect_closed();
}

#[test]
fn silent_streams_of_events_and_grpc_are_not_cut() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| {
        timeouts.body = SHORT;
        timeouts.response = SHORT;
    });
    let events = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/event-stream\r\n\
                  Transfer-Encoding: chunked\r\n\r\n";
    let mut reader = gateway.client();
    reader.send(GET);
    let mut source = backend.accept();
    source.expect(GET);
    source.send(events);
    reader.expect(events);
    let call = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc+proto\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let mut caller = gateway.client();
    caller.send(call);
    let mut server = backend.accept();
    let head = server.head().unwrap();
    assert!(head.contains("application/grpc"), "{head}");
    // An ordinary request is cut meanwhile.
    let mut other = gateway.client();
    other.send(GET);
    let mut silent = backend.accept();
    silent.expect(GET);
    other.expect_local_response(504);
    silent.expect_closed();
    source.send("1\r\na\r\n");
    reader.expect("1\r\na\r\n");
    caller.send("1\r\nb\r\n0\r\n\r\n");
    server.expect("1\r\nb\r\n0\r\n\r\n");
    server.send(OK);
    caller.expect(OK);
}

#[test]
fn streams_have_an_idle_timeout_of_their_own() {
    let backend = Backend::start();
    let gateway = gateway(&backend, |timeouts| timeouts.stream = SHORT);
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let head = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/event-stream\r\n\
                Content-Length: 5\r\n\r\n";
    upstream.send(head);
    client.expect(head);
    client.expect_closed();
}

#[test]
fn timeouts_of_a_route_replace_those_of_the_gateway() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.timeouts.response = SHORT;
    let patient = Timeouts { response: DEADLINE * 2, ..config.timeouts };
    let route = Route { path_prefix: "/patient".to_owned(), ..Route::all_to(PoolId(0)) };
    config.routes.push(Route { timeouts: Some(patient), ..route });
    let gateway = TestGateway::start(&config);
    let request = "GET /patient HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = gateway.client();
    client.send(request);
    let mut upstream = backend.accept();
    upstream.expect(request);
    let mut other = gateway.client();
    other.send(GET);
    let mut silent = backend.accept();
    silent.expect(GET);
    other.expect_local_response(504);
    upstream.send(OK);
    client.expect(OK);
}

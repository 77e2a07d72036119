//! Shutdown: requests in flight and queued connections are finished.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{
    Backend, DEADLINE, GET, OK, OK_LAST, Peer, TestGateway, ThreadedBackend, config,
    expect_closed_to_new, fill, is_echo,
};

#[test]
fn drain_finishes_requests_in_flight_and_closes_idle_connections() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.threads = NonZeroUsize::new(2).unwrap();
    let gateway = TestGateway::start(&config);
    let mut busy: Vec<(Peer, Peer)> = (0..4)
        .map(|_| {
            let mut client = gateway.client();
            client.send(GET);
            let mut upstream = backend.accept();
            upstream.expect(GET);
            (client, upstream)
        })
        .collect();
    let (mut idle, mut unused) = (gateway.client(), gateway.client());
    idle.send(GET);
    let mut idle_upstream = backend.accept();
    idle_upstream.expect(GET);
    idle_upstream.send(OK);
    idle.expect(OK);
    gateway.drain();
    idle.expect_to_end("");
    unused.expect_closed();
    for (client, upstream) in &mut busy {
        upstream.send(OK);
        client.expect_to_end(OK_LAST);
    }
    gateway.join();
    TcpStream::connect(gateway.addr()).unwrap_err();
}

#[test]
fn drain_serves_connections_queued_while_the_gateway_was_full() {
    for is_unix in [false, true] {
        let backend = Backend::start();
        let mut config = config(&[backend.addr()]);
        config.limits.connections = 1;
        let gateway =
            if is_unix { TestGateway::on_unix_socket(config) } else { TestGateway::start(&config) };
        let (mut first, mut upstream, queued) = fill(&gateway, &backend, GET);
        gateway.drain();
        let kind = expect_closed_to_new(gateway.address());
        assert_eq!(kind, if is_unix { ErrorKind::ConnectionRefused } else { ErrorKind::TimedOut });
        upstream.send(OK);
        first.expect_to_end(OK_LAST);
        drop(first);
        for mut client in queued {
            let mut upstream = backend.accept();
            upstream.expect(GET);
            upstream.send(OK);
            client.expect_to_end(OK_LAST);
        }
        gateway.join();
        expect_closed_to_new(gateway.address());
    }
}

#[test]
fn drain_resets_silent_connections_of_a_listener_with_deferred_accept() {
    let backend = ThreadedBackend::echo();
    let mut config = config(&[backend.addr()]);
    config.listeners[0].defer_accept = true;
    let gateway = TestGateway::start(&config);
    let mut idle = gateway.client();
    assert!(is_echo(&idle.get("/idle").unwrap(), "/idle"));
    // Nothing of it has arrived, so that the kernel has not passed it to the gateway.
    let mut silent = gateway.client();
    gateway.drain();
    gateway.join();
    idle.expect_closed();
    // It may have been reset already.
    let _already_reset = silent.try_send(GET);
    silent.expect_closed();
}

#[test]
fn drain_serves_new_connections_until_its_delay_is_over() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.timeouts.drain_delay = 10 * DEADLINE;
    let gateway = TestGateway::start(&config);
    let mut old = gateway.client();
    old.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    gateway.drain();
    assert_eq!(gateway.admin("/healthz").status, 503);
    upstream.send(OK);
    old.expect(OK);
    for client in [&mut old, &mut gateway.client()] {
        client.send(GET);
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
    }
    config.timeouts.drain_delay = Duration::from_millis(100);
    let gateway = TestGateway::start(&config);
    let mut idle = gateway.client();
    idle.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    idle.expect(OK);
    gateway.drain();
    idle.expect_to_end("");
    gateway.join();
    expect_closed_to_new(gateway.address());
}

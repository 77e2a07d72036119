//! Another configuration in a running gateway: idle, under load, and ten thousand times.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{Address, Backend as ConfigBackend, Listener};

use crate::support::{
    Backend, ChildProcess, GET, OK, Peer, TestGateway, ThreadedBackend, child_arguments,
    closed_port, config, config_backends, expect_closed_to_new, fill, is_echo, poll,
    resident_bytes, tcp, test_path,
};

/// A listener on any port of an address that no other test uses.
fn another_listener() -> Listener {
    Listener::new(Address::Tcp(([127, 0, 0, 2], 0).into()))
}

#[test]
fn reload_redirects_new_requests_and_finishes_those_in_flight() {
    let (old, new) = (Backend::start(), Backend::start());
    let mut config = config(&[old.addr()]);
    let gateway = TestGateway::start(&config);
    let (mut busy, mut idle) = (gateway.client(), gateway.client());
    busy.send(GET);
    let mut upstream = old.accept();
    upstream.expect(GET);
    idle.send(GET);
    let mut idle_upstream = old.accept();
    idle_upstream.expect(GET);
    idle_upstream.send(OK);
    idle.expect(OK);

    config.pools[0].backends = config_backends(&[new.addr()]);
    gateway.reload(config);
    // Idle connections to the old backend are closed.
    idle_upstream.expect_to_end("");
    idle.send(GET);
    let mut new_upstream = new.accept();
    new_upstream.expect(GET);
    new_upstream.send(OK);
    idle.expect(OK);
    upstream.send(OK);
    busy.expect(OK);
    upstream.expect_to_end("");
    busy.send(GET);
    new_upstream.expect(GET);
    new_upstream.send(OK);
    busy.expect(OK);
}

#[test]
fn listener_added_while_the_gateway_is_full_is_served_later() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.limits.connections = 1;
    let gateway = TestGateway::start(&config);
    let (mut first, mut upstream, queued) = fill(&gateway, &backend, "");
    config.listeners.push(another_listener());
    gateway.reload(config);
    let mut added = Peer::connect(&gateway.addresses()[1]);
    let request = GET.replace("/a", "/added");
    added.send(&request);
    // The first client is never idle, so it makes no room for others.
    first.send(GET);
    upstream.send(OK);
    first.expect(OK);
    // It belongs to the old configuration.
    upstream.expect_closed();
    let mut upstream = backend.accept();
    upstream.expect(GET);
    // A full gateway tries again every 50 ms. Meanwhile it serves only the first client.
    let started_at = Instant::now();
    while started_at.elapsed() < Duration::from_millis(150) {
        first.send(GET);
        upstream.send(OK);
        first.expect(OK);
        upstream.expect(GET);
    }
    upstream.send(OK);
    first.expect(OK);
    drop((first, queued));
    upstream.expect(&request);
    upstream.send(OK);
    added.expect(OK);
}

#[test]
fn reload_without_a_listener_serves_its_queued_connections() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.limits.connections = 1;
    let gateway = TestGateway::start(&config);
    let (mut first, mut upstream, queued) = fill(&gateway, &backend, GET);
    config.listeners = vec![another_listener()];
    gateway.reload(config);
    upstream.send(OK);
    first.expect(OK);
    drop(first);
    for mut client in queued {
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
    }
    expect_closed_to_new(gateway.address());
}

/// A configuration with a listener on a port of its own, and the same one without that listener.
fn with_and_without_listener(backend: &Backend) -> (Address, Config, Config) {
    let own = Address::Tcp(closed_port());
    let mut with = config(&[backend.addr()]);
    with.listeners = vec![Listener::new(own.clone()), another_listener()];
    let mut without = with.clone();
    without.listeners.remove(0);
    (own, with, without)
}

#[test]
fn removed_listener_can_be_added_again_at_once() {
    // A process that another test forks would keep closed listeners open until it executes its program.
    if child_arguments().is_none() {
        return ChildProcess::run(test_path!("removed_listener_can_be_added_again_at_once"), &[]);
    }
    let backend = Backend::start();
    for threads in [1, 3] {
        let (own, mut with, mut without) = with_and_without_listener(&backend);
        with.threads = NonZeroUsize::new(threads).unwrap();
        without.threads = with.threads;
        let gateway = TestGateway::start(&with);
        for round in 0..200_u64 {
            gateway.reload(without.clone());
            if round.is_multiple_of(2) {
                // By then some threads have closed their listener and others have not.
                std::thread::sleep(Duration::from_micros(50 * (round % 8)));
            }
            gateway.reload(with.clone());
        }
        for _ in 0..20 {
            let mut client = Peer::connect(&own);
            client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let mut upstream = backend.accept();
            upstream.expect(GET);
            let response = "HTTP/1.1 204 No\r\nDate: d\r\nConnection: close\r\n\r\n";
            upstream.send(response);
            client.expect_to_end(response);
        }
        gateway.reload(without);
        // Its port becomes free for other programs, and for this gateway.
        poll(|| TcpListener::bind(tcp(&own)).map_err(|error| error.to_string()));
        gateway.reload(with);
        drop(TcpStream::connect(tcp(&own)).unwrap());
    }
}

#[test]
fn connections_queued_at_a_removed_listener_are_served_when_it_is_added_again() {
    let backend = Backend::start();
    let (own, mut with, mut without) = with_and_without_listener(&backend);
    (with.limits.connections, without.limits.connections) = (1, 1);
    let gateway = TestGateway::start(&with);
    let (mut first, mut upstream, queued) = fill(&gateway, &backend, GET);
    gateway.reload(without);
    expect_closed_to_new(&own);
    gateway.reload(with);
    // A connection that arrives before the listener is open again is retried by the kernel.
    let mut late = gateway.client();
    late.send(GET);
    upstream.send(OK);
    first.expect(OK);
    drop(first);
    for mut client in queued.into_iter().chain([late]) {
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
    }
}

#[test]
fn reload_under_load_loses_no_request() {
    reload_under_load(20_000);
}

#[test]
#[ignore = "takes ten seconds; `make bench` runs it"]
fn reload_under_load_loses_no_request_of_100_000() {
    reload_under_load(100_000);
}

/// Half of the clients keep their connections, the other half opens one for each request.
fn reload_under_load(requests: usize) {
    const CLIENTS: usize = 8;
    let backends = [ThreadedBackend::echo(), ThreadedBackend::echo()];
    let addrs = backends.each_ref().map(ThreadedBackend::addr);
    let mut config = config(&addrs[..1]);
    config.threads = NonZeroUsize::new(2).unwrap();
    let gateway = TestGateway::start(&config);
    let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let request = |client: usize| {
        let mut peer = gateway.client();
        for number in 0..requests / CLIENTS {
            let path = format!("/{client}/{number}");
            let response = peer.get(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(is_echo(&response, &path), "{path}: {response:?}");
            if response.is_last() || client.is_multiple_of(2) {
                peer = gateway.client();
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reload = || {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            // The pool grows and shrinks.
            config.pools[0].backends = config_backends(&addrs[..1 + count % 2]);
            gateway.reload(config.clone());
            count += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        count
    };
    let reloads = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || request(client))).collect();
        let reloading = scope.spawn(reload);
        let outcomes: Vec<_> =
            clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        let reloads = reloading.join().unwrap();
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        reloads
    });
    assert_eq!(done.into_inner(), requests / CLIENTS * CLIENTS);
    assert!(reloads >= 10, "only {reloads} reloads");
    println!("{requests} requests, {reloads} reloads, none lost");
}

#[test]
fn ten_thousand_reloads_need_no_more_memory_than_the_first_of_them() {
    const RELOADS: usize = 10_000;
    /// By then, the allocator holds what it needs.
    const WARM_UP: usize = 1_500;
    /// Fragmentation of the allocator.
    const GROWTH_BYTES_MAX: u64 = 3 << 20;

    // The memory of the backend must not count.
    let Some(arguments) = child_arguments() else {
        let backend = ThreadedBackend::echo();
        let name = test_path!("ten_thousand_reloads_need_no_more_memory_than_the_first_of_them");
        return ChildProcess::run(name, &[backend.addr().to_string()]);
    };
    let first = config(&[arguments[0].parse().unwrap()]);
    let folder = TempDir::new().unwrap();
    let gateway = TestGateway::start(&first);
    let responses = "responses_total{pool=\"default\",class=\"2xx\"}";
    let mut warm_bytes = 0;
    for number in 1..=RELOADS {
        // Each configuration has a pool, a backend and a listener that no other one has.
        let mut config = first.clone();
        let socket = folder.path().join(number.to_string());
        config.listeners.push(Listener::new(Address::Unix(socket)));
        let unused = SocketAddr::from(([127, 1, (number >> 8) as u8, number as u8], 9));
        let unused = ConfigBackend { weight: 0, ..ConfigBackend::new(Address::Tcp(unused)) };
        config.pools[0].backends.push(unused);
        let mut other = config.pools[0].clone();
        other.name = format!("pool {number}");
        config.pools.push(other);
        gateway.reload(config);
        if number.is_multiple_of(100) {
            let path = format!("/{number}");
            assert!(is_echo(&gateway.client().get(&path).unwrap(), &path));
        }
        if number == WARM_UP {
            assert_eq!(gateway.metric(responses), number as u64 / 100);
            warm_bytes = resident_bytes();
        }
    }
    let growth = resident_bytes().saturating_sub(warm_bytes);
    assert!(growth <= GROWTH_BYTES_MAX, "{growth} bytes more than the {warm_bytes} at first");
    assert_eq!(gateway.metric(responses), RELOADS as u64 / 100);
}

//! Clients that a route lets pass: addresses, rates, and requests at once.

use std::path::Path;

use tollgate_gateway::Config;

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{Backend, GET, OK, Peer, TestGateway};

/// One route with these keys, behind a proxy that names clients.
fn parse(route: &str, backend: &Backend, more: &str) -> Config {
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0', proxy_protocol: [127.0.0.1], http2: true }}]\nadmin: 127.0.0.1:0\n\
         routes: [{{ path: /a, pool: p, {route} }}, {{ pool: p }}]\n\
         forwarded: {{ via: null, x_forwarded: false }}\n\
         pools: [{{ name: p, backends: [{{ address: '{}' }}] }}]\n{more}",
        backend.addr()
    );
    Config::parse(&text, Path::new("g.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

/// A connection of the client with this address.
fn client(gateway: &TestGateway, ip: &str) -> Peer {
    let mut peer = gateway.client();
    let family = if ip.contains(':') { "TCP6" } else { "TCP4" };
    let to = if ip.contains(':') { "::1" } else { "127.0.0.1" };
    peer.send(format!("PROXY {family} {ip} {to} 1 2\r\n"));
    peer
}

/// Serves the next request of a client.
#[track_caller]
fn expect_served(client: &mut Peer, upstream: &mut Option<Peer>, backend: &Backend) {
    let upstream = upstream.get_or_insert_with(|| backend.accept());
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn addresses_are_allowed_and_denied() {
    let backend = Backend::start();
    let lists = "allow: [10.0.0.0/8, '2001:db8::/32'], deny: [10.9.0.0/16]";
    let gateway = TestGateway::start(&parse(lists, &backend, ""));
    let mut upstream = None;
    for (ip, is_allowed) in [
        ("10.1.2.3", true),
        ("10.9.2.3", false),
        ("192.0.2.7", false),
        ("2001:db8::1", true),
        ("2001:db9::1", false),
        ("::ffff:10.1.2.3", true),
        ("::ffff:10.9.2.3", false),
    ] {
        let mut client = client(&gateway, ip);
        // The second one is in the cache of heads if it is allowed.
        for _ in 0..2 {
            client.send(GET);
            if is_allowed {
                expect_served(&mut client, &mut upstream, &backend);
            } else {
                assert_eq!(
                    client.expect_local_response(403).text(),
                    "This address is not allowed.\n"
                );
            }
        }
        // Another route has no lists.
        client.send(GET.replace("/a", "/b"));
        upstream.get_or_insert_with(|| backend.accept()).expect(GET.replace("/a", "/b"));
        upstream.as_mut().unwrap().send(OK);
        client.expect(OK);
    }
    gateway.expect_metric("local_responses_total{status=\"403\"}", 8);
}

#[test]
fn unix_socket_has_no_address_that_is_allowed() {
    let backend = Backend::start();
    for (lists, status) in [("allow: [0.0.0.0/0, '::/0']", 403), ("deny: [0.0.0.0/0, '::/0']", 200)]
    {
        let mut config = parse(lists, &backend, "");
        config.listeners[0].proxy_protocol = None;
        let gateway = TestGateway::on_unix_socket(config);
        let mut client = gateway.client();
        client.send(GET);
        if status == 200 {
            backend.accept().send(OK);
        }
        assert_eq!(client.response().unwrap().status, status);
    }
}

#[test]
fn rate_of_each_client_is_limited() {
    let backend = Backend::start();
    let route = "per_client: { requests: 2, per: 1h, burst: 3 }";
    let gateway = TestGateway::start(&parse(route, &backend, "limits: { clients: 2 }\n"));
    let mut upstream = None;
    for _ in 0..2 {
        let mut client = client(&gateway, "192.0.2.1");
        client.send(GET);
        expect_served(&mut client, &mut upstream, &backend);
    }
    let mut first = client(&gateway, "192.0.2.1");
    first.send(GET);
    expect_served(&mut first, &mut upstream, &backend);
    first.send(GET);
    let refused = first.expect_local_response(429);
    assert_eq!(refused.text(), "Too many requests; try again later.\n");
    let wait: u32 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1_700..=1_800).contains(&wait), "{wait}");
    // The connection is kept, and another route is not limited.
    first.send(GET.replace("/a", "/b"));
    upstream.as_mut().unwrap().expect(GET.replace("/a", "/b"));
    upstream.as_mut().unwrap().send(OK);
    first.expect(OK);
    // A reload forgets nothing.
    gateway.reload(parse(route, &backend, "limits: { clients: 2 }\n"));
    upstream = None;
    first.send(GET);
    first.expect_local_response(429);
    // Neither does HTTP/2.
    let stream = client(&gateway, "192.0.2.1").into_stream();
    let mut http2 = Http2Peer::over(stream, &[]);
    http2.request(1, true, GET_FIELDS);
    let head = http2.head(1);
    assert!(head.iter().any(|(name, _)| name == "retry-after"), "{head:?}");
    gateway.expect_metric("local_responses_total{status=\"429\"}", 3);
    gateway.expect_metric("limited_clients", 1);
    // Two others take its place.
    for ip in ["192.0.2.2", "2001:db8::1", "2001:db8::2"] {
        let mut client = client(&gateway, ip);
        client.send(GET);
        expect_served(&mut client, &mut upstream, &backend);
    }
    gateway.expect_metric("limited_clients", 2);
    gateway.expect_metric("limited_clients_evicted_total", 1);
    first.send(GET);
    expect_served(&mut first, &mut upstream, &backend);
}

#[test]
fn requests_at_once_of_each_client_are_limited() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&parse("per_client: { concurrent: 2 }", &backend, ""));
    let [mut one, mut two, mut three] = [(); 3].map(|()| client(&gateway, "192.0.2.1"));
    one.send(GET);
    let mut first = backend.accept();
    first.expect(GET);
    two.send(GET);
    let mut second = backend.accept();
    second.expect(GET);
    three.send(GET);
    assert_eq!(three.expect_local_response(429).header("Retry-After"), Some("1"));
    let mut other = client(&gateway, "192.0.2.2");
    other.send(GET);
    let mut third = backend.accept();
    third.expect(GET);
    // A response ends one request, and a client that leaves its own.
    first.send(OK);
    one.expect(OK);
    three.send(GET);
    first.expect(GET);
    one.send(GET);
    one.expect_local_response(429);
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
    two.head().unwrap();
    two.reset();
    three.reset();
    second.expect_closed();
    first.expect_closed();
    let mut again = client(&gateway, "192.0.2.1");
    for _ in 0..2 {
        again.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        again.expect(OK);
    }
    gateway.expect_metric("bugs_total", 0);
}

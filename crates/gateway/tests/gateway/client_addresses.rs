//! Addresses of clients behind other proxies: the PROXY protocol, and headers.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;

use tempfile::TempDir;
use tollgate_gateway::Config;

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{Backend, GET, OK, Peer, TestGateway};
use crate::tls::{certificate_file, secure};

const V1: &str = "PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\r\n";
/// The same client as in [`V1`], with a TLV.
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x11\xc0\x00\x02\x07\x0a\x00\x00\x01\x30\x39\x01\xbb\x04\x00\x02xx";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

/// A listener with these keys, whose backend sees the addresses of clients.
fn parse(listener: &str, backend: &Backend, more: &str) -> Config {
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0', {listener} }}]\nadmin: 127.0.0.1:0\n\
         pools: [{{ name: p, backends: [{{ address: '{}' }}] }}]\n{more}",
        backend.addr()
    );
    let config = Config::parse(&text, &certificate_file("gateway.yaml"));
    let mut config = config.unwrap_or_else(|error| panic!("{error}"));
    config.forwarded.via = None;
    config
}

/// [`GET`] as forwarded for a client.
fn forwarded_for(ip: &str) -> String {
    GET.replace(
        "\r\n\r\n",
        &format!(
            "\r\nX-Forwarded-For: {ip}\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: x\r\n\r\n"
        ),
    )
}

#[test]
fn header_of_either_version_has_the_address_of_the_client() {
    let backend = Backend::start();
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let more = format!("access_log: {{ to: {} }}\n", log.display());
    let config = parse("proxy_protocol: [127.0.0.0/8], http2: true", &backend, &more);
    let gateway = TestGateway::start(&config);
    let of_proxy = "127.0.0.1";
    let mut upstream = None;
    for (header, ip) in [
        (V1.as_bytes(), "192.0.2.7"),
        (V2, "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "2001:db8::1"),
        (b"PROXY TCP6 ::ffff:192.0.2.9 ::1 1 2\r\n", "192.0.2.9"),
        // Health checks of the proxy.
        (b"PROXY UNKNOWN\r\n", of_proxy),
        (V2_LOCAL, of_proxy),
    ] {
        let mut client = gateway.client();
        client.send([header, GET.as_bytes(), GET.as_bytes()].concat());
        let upstream = upstream.get_or_insert_with(|| backend.accept());
        for _ in 0..2 {
            upstream.expect(forwarded_for(ip));
            upstream.send(OK);
            client.expect(OK);
        }
    }
    gateway.expect_metric("client_proxy_connections_refused_total", 0);
    gateway.drain();
    gateway.join();
    let logged = fs::read_to_string(&log).unwrap();
    let peers: Vec<&str> = logged.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let expected = ["192.0.2.7", "192.0.2.7", "2001:db8::1", "192.0.2.9", of_proxy, of_proxy];
    assert_eq!(peers, expected.map(|ip| [ip; 2]).concat());
}

#[test]
fn header_may_arrive_in_pieces_and_before_a_later_request() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&parse("proxy_protocol: [127.0.0.1]", &backend, ""));
    let mut client = gateway.client();
    for piece in V2.chunks(5) {
        client.send(piece);
        gateway.expect_metric("client_connections", 1);
        client.expect_nothing_yet();
    }
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(forwarded_for("192.0.2.7"));
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn bytes_that_are_not_a_header_close_the_connection() {
    let backend = Backend::start();
    let more = "timeouts: { header: 300ms }\n";
    let gateway = TestGateway::start(&parse("proxy_protocol: [127.0.0.1]", &backend, more));
    let closed = |bytes: &[u8], is_finished: bool| {
        let mut client = gateway.client();
        client.send(bytes);
        if is_finished {
            client.finish();
        }
        client.expect_closed();
    };
    closed(GET.as_bytes(), false);
    closed(b"\x16\x03\x01\x02\0\x01", false);
    closed(&V1.as_bytes()[..9], true);
    // These come too late.
    closed(&V1.as_bytes()[..9], false);
    closed(b"", false);
    gateway.expect_metric("client_proxy_connections_refused_total", 5);
    // Checks of the port are no error.
    closed(b"", true);
    gateway.expect_metric("client_connections", 0);
    gateway.expect_metric("client_proxy_connections_refused_total", 5);
    backend.expect_no_connection(&gateway);

    let gateway = TestGateway::start(&parse("proxy_protocol: [10.0.0.0/8]", &backend, ""));
    let mut client = gateway.client();
    let _closed_already = client.try_send(V1);
    client.expect_closed();
    gateway.expect_metric("client_proxy_connections_refused_total", 1);
}

#[test]
fn header_precedes_tls() {
    let backend = Backend::start();
    let listener = "proxy_protocol: [127.0.0.1], tls: { certificates: [{ certificate: site.pem, key: site.key }] }";
    let gateway = TestGateway::start(&parse(listener, &backend, ""));
    for header in [V1.as_bytes(), V2] {
        let mut stream = gateway.client().into_stream();
        stream.write_all(header).unwrap();
        let mut client = secure(stream);
        client.write_all(GET.as_bytes()).unwrap();
        let mut upstream = backend.accept();
        upstream.expect(forwarded_for("192.0.2.7").replace("Proto: http", "Proto: https"));
        upstream.send(OK);
        let mut received = vec![0; OK.len()];
        client.read_exact(&mut received).unwrap();
        assert_eq!(received, OK.as_bytes());
        client.sock.shutdown(Shutdown::Both).unwrap();
        drop(upstream);
    }
}

#[test]
fn connections_are_limited_by_client_and_not_by_proxy() {
    let backend = Backend::start();
    let more = "limits: { connections_per_client: 1 }\n";
    let gateway = TestGateway::start(&parse("proxy_protocol: [127.0.0.1]", &backend, more));
    let first = request(&gateway, &backend, V1);
    let other = request(&gateway, &backend, &V1.replace("192.0.2.7", "192.0.2.8"));
    let mut refused = gateway.client();
    refused.send(V1);
    refused.expect_closed();
    gateway.expect_metric("client_connections_refused_total", 1);
    drop(first);
    gateway.expect_metric("client_connections", 1);
    drop(request(&gateway, &backend, V1));
    drop(other);
}

/// A client with this header that has had a response.
fn request(gateway: &TestGateway, backend: &Backend, header: &str) -> Peer {
    let mut client = gateway.client();
    client.send(format!("{header}{GET}"));
    let mut upstream = backend.accept();
    upstream.head().unwrap();
    upstream.send(OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    client.expect(OK);
    client
}

#[test]
fn firewall_sees_the_address_of_the_client() {
    let folder = TempDir::new().unwrap();
    let rules = folder.path().join("rules.conf");
    let rule = "SecRule REMOTE_ADDR \"@ipMatch 192.0.2.7\" \"id:1,phase:1,deny,status:403\"\n";
    fs::write(&rules, rule).unwrap();
    let backend = Backend::start();
    let more = format!("waf: {{ rules: ['{}'] }}\n", Path::new(&rules).display());
    let gateway = TestGateway::start(&parse("proxy_protocol: [127.0.0.1]", &backend, &more));
    let mut client = gateway.client();
    client.send([V2, GET.as_bytes()].concat());
    assert_eq!(client.response().unwrap().status, 403);
    request(&gateway, &backend, &V1.replace("192.0.2.7", "192.0.2.8"));
}

#[test]
fn reload_changes_who_must_send_a_header() {
    let backend = Backend::start();
    let proxied = parse("proxy_protocol: [127.0.0.1]", &backend, "");
    let gateway = TestGateway::start(&proxied);
    drop(request(&gateway, &backend, V1));
    let mut plain = proxied;
    plain.listeners[0].proxy_protocol = None;
    gateway.reload(plain);
    drop(request(&gateway, &backend, ""));
    let mut client = gateway.client();
    client.send(V1);
    assert_eq!(client.response().unwrap().status, 400);
}

/// The clients in the access log after requests with these headers, which are forwarded with those beside them.
fn logged_peers(config: &str, requests: &[(&str, &str)]) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let more = format!("access_log: {{ to: {} }}\n{config}", log.display());
    let gateway = TestGateway::start(&parse("http2: true", &backend, &more));
    let mut client = gateway.client();
    let mut upstream = None;
    for (sent, forwarded) in requests {
        client.send(GET.replace("\r\n\r\n", &format!("\r\n{sent}\r\n")));
        let upstream = upstream.get_or_insert_with(|| backend.accept());
        upstream.expect(
            GET.replace("\r\n\r\n", &format!("\r\n{forwarded}X-Forwarded-Host: x\r\n\r\n")),
        );
        upstream.send(OK);
        client.expect(OK);
    }
    gateway.drain();
    gateway.join();
    let logged = fs::read_to_string(&log).unwrap();
    logged.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

const FROM_CLIENT: &str = "X-Forwarded-For: 198.51.100.1, 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 192.0.2.7\r\n";

#[test]
fn headers_of_trusted_proxies_have_the_address_of_the_client() {
    let kept = "X-Real-IP: 192.0.2.7\r\nX-Forwarded-For: 198.51.100.1, 192.0.2.7, 127.0.0.1\r\nX-Forwarded-Proto: https\r\n";
    let other = FROM_CLIENT.replace("192.0.2.7", "192.0.2.8");
    let peers = logged_peers(
        "forwarded: { trusted: [127.0.0.0/8] }\n",
        &[
            (FROM_CLIENT, kept),
            (FROM_CLIENT, kept),
            (&other, &kept.replace("192.0.2.7", "192.0.2.8")),
            ("", "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n"),
            // From the cache of heads.
            (FROM_CLIENT, kept),
        ],
    );
    assert_eq!(peers, ["192.0.2.7", "192.0.2.7", "192.0.2.8", "127.0.0.1", "192.0.2.7"]);
}

#[test]
fn headers_of_other_peers_are_dropped() {
    let own = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n";
    let peers = logged_peers("forwarded: { trusted: [10.0.0.0/8] }\n", &[(FROM_CLIENT, own)]);
    assert_eq!(peers, ["127.0.0.1"]);
}

#[test]
fn scheme_of_a_trusted_proxy_decides_on_redirects() {
    let backend = Backend::start();
    let more = "routes: [{ host: x, pool: p, redirect: { scheme: https } }]\n\
                forwarded: { trusted: [127.0.0.1] }\n";
    let gateway = TestGateway::start(&parse("http2: false", &backend, more));
    let mut client = gateway.client();
    client.send(GET.replace("\r\n\r\n", "\r\nX-Forwarded-Proto: http\r\n\r\n"));
    assert_eq!(client.response().unwrap().header("Location"), Some("https://x/a"));
    client.send(GET.replace("\r\n\r\n", "\r\nX-Forwarded-Proto: https\r\n\r\n"));
    let mut upstream = backend.accept();
    assert!(upstream.head().unwrap().contains("X-Forwarded-Proto: https\r\n"));
    upstream.send(OK);
    client.expect(OK);
}

/// A pool with these keys.
fn parse_pool(pool: &str, backend: &Backend) -> Config {
    let mut config = parse("http2: true", backend, "");
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:1' }}]\n\
         pools: [{{ name: p, {pool}, backends: [{{ address: '{}' }}] }}]\n",
        backend.addr()
    );
    let parsed = Config::parse(&text, &certificate_file("gateway.yaml"));
    config.pools = parsed.unwrap_or_else(|error| panic!("{error}")).pools;
    config.forwarded.x_forwarded = false;
    config
}

/// The header of version 1 of a connection to the gateway.
fn v1_of(client: SocketAddr, gateway: &TestGateway) -> String {
    let (from, to) = (client.port(), gateway.addr().port());
    format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from} {to}\r\n")
}

#[test]
fn backends_get_the_address_of_the_client_on_each_connection() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&parse_pool("proxy_protocol: v1", &backend));
    for _ in 0..2 {
        let mut client = gateway.client();
        let header = v1_of(client.stream().local_addr().unwrap(), &gateway);
        for _ in 0..2 {
            client.send(GET);
            let mut upstream = backend.accept();
            upstream.expect(&header);
            upstream.expect(GET);
            upstream.send(OK);
            client.expect(OK);
            upstream.expect_closed();
        }
    }
    let mut client = Http2Peer::connect(gateway.address());
    let header = v1_of(client.tcp().local_addr().unwrap(), &gateway);
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(&header);
    upstream.head().unwrap();
    upstream.send(OK);

    let gateway = TestGateway::start(&parse_pool("proxy_protocol: v2", &backend));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    let from = client.stream().local_addr().unwrap().port().to_be_bytes();
    let to = gateway.addr().port().to_be_bytes();
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\x7f\0\0\x01\x7f\0\0\x01";
    assert_eq!(upstream.read(28), [&start[..], &from, &to].concat());
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn backends_get_the_client_that_other_proxies_name() {
    let backend = Backend::start();
    let mut config = parse_pool("proxy_protocol: v1", &backend);
    config.listeners = parse("proxy_protocol: [127.0.0.1]", &backend, "").listeners;
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(format!("{V1}{GET}"));
    let mut upstream = backend.accept();
    let to = gateway.addr().port();
    upstream.expect(format!("PROXY TCP4 192.0.2.7 127.0.0.1 12345 {to}\r\n{GET}"));
    upstream.send(OK);
    client.expect(OK);

    config.listeners[0].proxy_protocol = None;
    config.forwarded.trust =
        parse("http2: true", &backend, "forwarded: { trusted: [127.0.0.1] }\n").forwarded.trust;
    gateway.reload(config.clone());
    let mut client = gateway.client();
    client.send(GET.replace("\r\n\r\n", "\r\nX-Forwarded-For: 2001:db8::1\r\n\r\n"));
    let mut upstream = backend.accept();
    upstream.expect(format!("PROXY TCP6 2001:db8::1 ::ffff:127.0.0.1 0 {to}\r\n"));

    let gateway = TestGateway::on_unix_socket(config);
    let mut client = gateway.client();
    client.send(GET);
    backend.accept().expect("PROXY UNKNOWN\r\n");
    client.finish();
}

#[test]
fn header_precedes_tls_with_a_backend_and_begins_health_checks() {
    let backend = Backend::start();
    let tls = "proxy_protocol: v1, tls: { verify: false }";
    let gateway = TestGateway::start(&parse_pool(tls, &backend));
    let mut client = gateway.client();
    let header = v1_of(client.stream().local_addr().unwrap(), &gateway);
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(header);
    // A ClientHello.
    assert_eq!(upstream.read(2), b"\x16\x03");
    drop(gateway);

    for (version, header) in [("v1", &b"PROXY UNKNOWN\r\n"[..]), ("v2", V2_LOCAL)] {
        let check = "health: { path: /up, interval: 1h }";
        let gateway = TestGateway::start(&parse_pool(
            &format!("proxy_protocol: {version}, {check}"),
            &backend,
        ));
        let mut upstream = backend.accept();
        assert_eq!(upstream.read(header.len()), header);
        assert!(upstream.head().unwrap().starts_with("GET /up HTTP/1.1\r\n"));
        upstream.send(OK);
        upstream.expect_closed();
        drop(gateway);
    }
}

#[test]
fn headers_for_backends_have_variables() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let more = format!(
        "access_log: {{ to: {}, format: json }}\n\
         routes:\n  - pool: p\n    request_headers: {{ set: {{ X-Real-IP: '${{client}}', X-Url: 'a ${{scheme}}://${{host}}' }} }}\n\
         \x20 - path: /id\n    pool: p\n    request_headers: {{ set: {{ X-Request-ID: '${{request_id}}' }} }}\n",
        log.display()
    );
    let mut config = parse("proxy_protocol: [127.0.0.1], http2: true", &backend, &more);
    config.forwarded.x_forwarded = false;
    let gateway = TestGateway::start(&config);
    let mut upstream = None;
    // Each second request has the head of the first one.
    for ip in ["192.0.2.7", "192.0.2.7", "192.0.2.8"] {
        let mut client = gateway.client();
        client.send(format!(
            "{}X-Real-IP: 198.51.100.1\r\n\r\n",
            V1.replace("192.0.2.7", ip) + &GET[..GET.len() - 2]
        ));
        let upstream = upstream.get_or_insert_with(|| backend.accept());
        upstream.expect(
            GET.replace("\r\n\r\n", &format!("\r\nX-Real-IP: {ip}\r\nX-Url: a http://x\r\n\r\n")),
        );
        upstream.send(OK);
        client.expect(OK);
    }
    let upstream = upstream.as_mut().unwrap();
    let mut client = gateway.client();
    client.send(V1);
    let ids = [(); 2].map(|()| {
        client.send(GET.replace("/a", "/id"));
        let head = upstream.head().unwrap();
        upstream.send(OK);
        client.expect(OK);
        head.split_once("X-Request-ID: ").unwrap().1.trim_end().to_owned()
    });
    assert_ne!(ids[0], ids[1]);
    let is_id = |id: &String| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(ids.iter().all(is_id), "{ids:?}");
    gateway.drain();
    gateway.join();
    let logged = fs::read_to_string(&log).unwrap();
    let id_of = |line: &str| -> Option<String> {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        Some(entry.get("request_id")?.as_str()?.to_owned())
    };
    let logged: Vec<_> = logged.lines().map(id_of).collect();
    assert_eq!(logged, [None, None, None, Some(ids[0].clone()), Some(ids[1].clone())]);
}

//! Routes that respond without a backend: fixed responses and redirects.

use std::io::{Read, Write};
use std::path::Path;

use tollgate_gateway::Config;

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{Backend, GET, OK, Peer, TestGateway, closed_port};
use crate::tls::{connect_offering, default_listener};

const FIXED: &str = "
  - path: /a
    respond: { status: 410, headers: { X-A: b }, body: \"gone\\n\" }
    response_headers: { set: { X-A: c, X-Set: d } }
  - path: /empty
    respond: { status: 204 }
";
const GONE: &str = "HTTP/1.1 410 Gone\r\nX-A: b\r\nContent-Type: text/plain; charset=utf-8\r\nX-Set: d\r\n\
                    Content-Length: 5\r\n\r\ngone\n";

/// A configuration with these routes, and the pool `p` with a backend at this address.
fn config(routes: &str, backend: std::net::SocketAddr, more: &str) -> Config {
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0', http2: true }}]\nadmin: 127.0.0.1:0\n\
         routes:{routes}\nforwarded: {{ via: null, x_forwarded: false }}\n\
         pools: [{{ name: p, backends: [{{ address: '{backend}' }}] }}]\n{more}"
    );
    Config::parse(&text, Path::new("gateway.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn fixed_responses_keep_the_connection_and_reach_no_backend() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(FIXED, backend.addr(), ""));
    let mut client = gateway.client();
    client.send(GET);
    client.expect_dated(GONE);
    // The body has arrived with the head.
    client.send("POST /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    client.expect_dated(GONE);
    client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\nGET /empty HTTP/1.1\r\nHost: x\r\n\r\n");
    client.expect_dated(GONE.trim_end_matches("gone\n"));
    client.expect_dated("HTTP/1.1 204 No Content\r\n\r\n");
    backend.expect_no_connection(&gateway);
    gateway.expect_metric("local_responses_total{status=\"410\"}", 3);
    gateway.expect_metric("local_responses_total{status=\"204\"}", 1);
    gateway.expect_metric("bugs_total", 0);
}

#[test]
fn conditions_choose_among_the_routes_of_a_host_and_path() {
    let routes = "
  - { path: /a, respond: { status: 200, body: rest } }
  - { path: /a, when: { methods: [GET, LIST], headers: { X-Canary: '1' } }, respond: { status: 200, body: canary } }
  - { path: /a, when: { headers: { Cookie: '~(^|; )beta=1(;|$)' } }, pool: p }
  - { path: /a, when: { headers: { X-Debug: '*' } }, respond: { status: 200, body: debug } }
  - { when: { methods: [GET] }, respond: { status: 200, body: read } }
  - { respond: { status: 200, body: other } }";
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(routes, backend.addr(), ""));
    let mut client = gateway.client();
    let mut upstream = None;
    for (method, path, header, expected) in [
        ("GET", "/a", "", "rest"),
        ("GET", "/a", "X-Canary: 1\r\n", "canary"),
        ("LIST", "//%61/b", "x-canary: 0\r\nx-canary: 1\r\n", "canary"),
        ("POST", "/a", "X-Canary: 1\r\n", "rest"),
        ("GET", "/a", "X-Canary: 11\r\n", "rest"),
        ("GET", "/a", "Cookie: a=b; beta=1\r\n", "backend"),
        ("GET", "/a", "Cookie: a=b; beta=12\r\n", "rest"),
        // The first one in the file.
        ("GET", "/a", "X-Debug: \r\nX-Canary: 1\r\n", "canary"),
        ("POST", "/a", "X-Debug: \r\nCookie: beta=1\r\n", "backend"),
        ("GET", "/a", "X-Debug: \r\n", "debug"),
        ("GET", "/b", "X-Canary: 1\r\n", "read"),
        ("get", "/b", "", "other"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n");
        // The second one is in the cache of heads if a backend serves it.
        for _ in 0..2 {
            client.send(&request);
            if expected == "backend" {
                let upstream: &mut Peer = upstream.get_or_insert_with(|| backend.accept());
                upstream.expect(&request);
                upstream.send(OK);
                client.expect(OK);
            } else {
                assert_eq!(client.response().unwrap().text(), expected, "{request}");
            }
        }
    }
    let mut http2 = Http2Peer::connect(gateway.address());
    http2.request(1, true, &[GET_FIELDS, &[("x-canary", "1")]].concat());
    assert_eq!(http2.response(1).text(), ("200", "canary"));
}

#[test]
fn body_that_still_arrives_is_discarded_and_the_connection_closed() {
    let gateway = TestGateway::start(&config(FIXED, closed_port(), ""));
    for framing in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let mut client = gateway.client();
        client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n"));
        client.expect_dated(&GONE.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        // These bytes belong to the body and are not read as requests.
        client.send(GET.repeat(1_000));
        client.finish();
        client.expect_closed();
    }
    gateway.expect_metric("local_responses_total{status=\"410\"}", 2);
}

#[test]
fn body_above_the_limit_is_rejected_first() {
    let limits = "limits: { body_bytes: 10 }\n";
    let gateway = TestGateway::start(&config(FIXED, closed_port(), limits));
    let mut client = gateway.client();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n");
    client.expect_local_response(413);
}

#[test]
fn streams_get_fixed_responses_and_redirects() {
    let routes =
        format!("{FIXED}  - {{ host: x, path: /b, redirect: {{ scheme: https, port: 8443 }} }}\n");
    let gateway = TestGateway::start(&config(&routes, closed_port(), ""));
    let mut client = Http2Peer::connect(gateway.address());
    client.request(1, true, GET_FIELDS);
    let response = client.response(1);
    assert_eq!(response.text(), ("410", "gone\n"));
    assert_eq!(response.header("x-set"), Some("d"));
    let fields = [&GET_FIELDS[..3], &[(":path", "/b/c?d=e")]].concat();
    client.request(3, false, &fields);
    let response = client.response(3);
    assert_eq!(response.text(), ("308", ""));
    assert_eq!(response.header("location"), Some("https://x:8443/b/c?d=e"));
    // The connection goes on after the response to a request that was not complete.
    client.request(5, true, GET_FIELDS);
    assert_eq!(client.response(5).text(), ("410", "gone\n"));
}

#[test]
fn plain_http_is_redirected_and_https_is_served() {
    let backend = Backend::start();
    let routes = "\n  - { host: x, pool: p, redirect: { scheme: https } }\n";
    let mut config = config(routes, backend.addr(), "");
    let plain = config.listeners[0].address.clone();
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send("GET //evil.example/../b HTTP/1.1\r\nHost: X:8080\r\n\r\n");
    client.expect_dated(
        "HTTP/1.1 308 Permanent Redirect\r\nLocation: https://X/b\r\nContent-Length: 0\r\n\r\n",
    );
    // No host but that of the route.
    client.send("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    client.expect_local_response(404);
    backend.expect_no_connection(&gateway);

    config.listeners = vec![default_listener(plain)];
    let gateway = TestGateway::start(&config);
    let mut client = connect_offering(&gateway, &[b"http/1.1"]);
    client.write_all(GET.as_bytes()).unwrap();
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    let mut received = vec![0; OK.len()];
    client.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), OK);
}

#[test]
fn redirect_without_a_pool_does_not_lead_to_itself() {
    let routes = "\n  - { path: /a, redirect: { path: /a/new, status: 302 } }\n";
    let gateway = TestGateway::start(&config(routes, closed_port(), ""));
    let mut client = gateway.client();
    client.send(GET);
    client.expect_dated("HTTP/1.1 302 Found\r\nLocation: /a/new\r\nContent-Length: 0\r\n\r\n");
    client.send("GET /a/new HTTP/1.1\r\nHost: x\r\n\r\n");
    client.expect_local_response(404);
}

#[test]
fn firewall_inspects_head_and_body_before_the_response() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "SecRuleEngine On\nSecRequestBodyAccess On\n\
                 SecRule ARGS \"@contains attack\" \"id:1,phase:2,deny,status:403,log\"\n";
    std::fs::write(folder.path().join("rules.conf"), rules).unwrap();
    let waf = format!("waf: {{ rules: ['{}'] }}\n", folder.path().join("rules.conf").display());
    let gateway = TestGateway::start(&config(FIXED, closed_port(), &waf));
    let mut client = gateway.client();
    let post = |body: &str| {
        let length = body.len();
        let kind = "application/x-www-form-urlencoded";
        format!(
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    // The response waits for the body, and the connection is kept, as it has arrived.
    client.send(post("a=fine"));
    gateway.turn();
    client.expect_nothing_yet();
    client.send("a=fine");
    client.expect_dated(GONE);
    client.send(post("a=attack"));
    client.send("a=attack");
    assert_eq!(client.response().unwrap().status, 403);
    gateway.expect_metric("waf_blocked_total{route=\"*/a\"}", 1);
}

#[test]
fn gateway_without_pools_redirects() {
    let text = "listeners: [{ address: '127.0.0.1:0' }]\n\
                routes: [{ redirect: { scheme: https, host: x } }]\n";
    let config = Config::parse(text, Path::new("gateway.yaml")).unwrap();
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.0\r\n\r\n");
    client.expect_dated(
        "HTTP/1.1 308 Permanent Redirect\r\nLocation: https://x/a\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n",
    );
    client.expect_closed();
}

#[test]
fn own_errors_have_the_pages_of_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("down.html"), "<p>down</p>").unwrap();
    std::fs::write(file("bad.txt"), "bad\n").unwrap();
    let routes =
        "\n  - { path: /a, pool: p }\n  - { path: /own, respond: { status: 502, body: own } }\n";
    let pages =
        format!("error_pages: {{ 502: {}, 400: {} }}\n", file("down.html"), file("bad.txt"));
    let gateway = TestGateway::start(&config(routes, closed_port(), &pages));
    let down = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 11\r\n\r\n";
    let mut client = gateway.client();
    client.send(GET);
    client.expect_dated(&format!("{down}<p>down</p>"));
    client.send(GET.replace("GET", "HEAD"));
    client.expect_dated(down);
    // Responses of routes, and errors without a page.
    client.send(GET.replace("/a", "/own"));
    assert_eq!(client.response().unwrap().text(), "own");
    client.send(GET.replace("/a", "/b"));
    assert_eq!(client.expect_local_response(404).text(), "No route matches this host and path.\n");
    client.send("GET /a\r\n\r\n");
    assert_eq!(client.expect_local_response(400).text(), "bad\n");
}

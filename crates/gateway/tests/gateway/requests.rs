//! Forwarding, routing and rejection of requests.

use tollgate_gateway::config::{
    Backend as ConfigBackend, Forwarded, HeaderEdits, Limits, Pool, PoolId, Route,
};

use crate::support::{Backend, GET, OK, OK_LAST, TestGateway, config};

#[test]
fn connections_share_an_upstream_connection() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let (mut first, mut second) = (gateway.client(), gateway.client());
    first.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    first.expect(OK);
    for client in [&mut second, &mut first] {
        client.send(GET);
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
    }
    backend.expect_no_connection(&gateway);
}

#[test]
fn pipelined_requests_are_served_in_order_one_at_a_time() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    let other = GET.replace("/a", "/b");
    client.send(format!("{GET}{other}{GET}"));
    let mut upstream = backend.accept();
    for (request, body) in [(GET, "1"), (&other, "2"), (GET, "3")] {
        upstream.expect(request);
        gateway.turn();
        upstream.expect_nothing_yet();
        let response = OK.replace("Length: 2\r\n\r\nhi", &format!("Length: 1\r\n\r\n{body}"));
        upstream.send(&response);
        client.expect(&response);
    }
}

#[test]
fn header_sections_may_arrive_byte_by_byte() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    for byte in GET.as_bytes() {
        client.send([*byte]);
        gateway.turn();
    }
    let mut upstream = backend.accept();
    upstream.expect(GET);
    for byte in OK.as_bytes() {
        upstream.send([*byte]);
        gateway.turn();
    }
    client.expect(OK);
}

#[test]
fn connection_close_of_a_client_keeps_the_upstream_connection() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n");
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect_to_end(OK_LAST);
    let mut client = gateway.client();
    client.send(GET);
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn http_1_0_connection_persists_only_with_keep_alive() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.0\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n");
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK_LAST.replace("close", "keep-alive"));
    client.send("GET /a HTTP/1.0\r\nHost: x\r\n\r\n");
    upstream.expect(GET);
    upstream.send(OK);
    client.expect_to_end(OK_LAST);
}

#[test]
fn forwarding_headers_name_the_client_and_the_gateway() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.forwarded = Forwarded::default();
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(
        "GET /a HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: x\r\nVia: 1.1 tollgate\r\n\r\n",
    );
    upstream.send(OK);
    client.expect(OK.replace("\r\n\r\n", "\r\nVia: 1.1 tollgate\r\n\r\n"));
}

#[test]
fn response_headers_may_outgrow_the_space_before_a_received_body() {
    let backend = Backend::start();
    let value = "v".repeat(9_000);
    let mut config = config(&[backend.addr()]);
    config.routes[0].response_headers = HeaderEdits {
        templates: Vec::new(),
        set: vec![("X-Long".to_owned(), value.clone())],
        remove: Vec::new(),
    };
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK.replace("\r\n\r\n", &format!("\r\nX-Long: {value}\r\n\r\n")));
}

#[test]
fn invalid_and_oversized_requests_are_rejected_and_end_the_connection() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.limits =
        Limits { header_bytes: 200, headers: 3, body_bytes: Some(5), ..Limits::default() };
    let gateway = TestGateway::start(&config);
    let long = "x".repeat(100_000);
    let medium = &long[..300];
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n".to_owned(), 400),
        ("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        (format!("{chunked}xyz"), 400),
        (format!("{chunked}1;{long}\r\nx\r\n0\r\n\r\n"), 400),
        (format!("{chunked}{}1\r\nx\r\n0\r\n\r\n", "0".repeat(10_000)), 400),
        (format!("{chunked}0\r\nX: {long}\r\n\r\n"), 400),
        (format!("{head}Content-Length: 6\r\n\r\n"), 413),
        (format!("{chunked}6\r\nabcdef\r\n0\r\n\r\n"), 413),
        // By the announced size alone.
        (format!("{chunked}2\r\nab\r\n4\r\nc"), 413),
        (format!("{chunked}8000000000000005\r\n"), 400),
        (format!("GET /{medium} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("GET /{medium}"), 414),
        (format!("\r\nGET /{medium}"), 414),
        (format!("{head}X: {medium}"), 431),
        (format!("{head}X: {medium}\r\n\r\n"), 431),
        (format!("{head}X: {long}\r\n\r\n"), 431),
        (format!("{head}A: 1\r\nB: 2\r\nC: 3\r\n\r\n"), 431),
        (format!("{head}{}\r\n", "X: y\r\n".repeat(200)), 431),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 501),
        (format!("{head}Transfer-Encoding: gzip, chunked\r\n\r\n"), 501),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505),
    ] {
        let mut client = gateway.client();
        // An incomplete request would absorb another one behind it.
        let behind = if request.ends_with('\n') { GET } else { "" };
        client.send(format!("{request}{behind}"));
        let response = client.response().unwrap();
        let start = &request[..request.len().min(80)];
        assert_eq!(response.status, status, "{start}: {response:?}");
        assert!(response.is_last(), "{start}: {response:?}");
        client.finish();
        client.expect_closed();
    }
    // Of the chunked requests, the valid start was forwarded; no request was completed.
    backend.expect_no_connection(&gateway);
}

#[test]
fn max_forwards_is_decremented_and_answered_at_zero() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.requests.trace = true;
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    let trace = "TRACE /a?b HTTP/1.1\r\nHost: x\r\nMax-Forwards: 1\r\n\r\n";
    client.send(trace);
    let mut upstream = backend.accept();
    upstream.expect(trace.replace(": 1", ": 0"));
    upstream.send(OK);
    client.expect(OK);
    // A TRACE response leaves out credentials, and the connection persists.
    let secrets = "Cookie: a=b\r\nauthorization: c\r\nProxy-Authorization: d\r\n";
    let last = format!("TRACE /a?b HTTP/1.1\r\nHost:  x\r\n{secrets}MAX-Forwards: 0\r\n\r\n");
    let options = "OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n";
    client.send(format!("{last}{options}{GET}"));
    client.expect_dated(
        "HTTP/1.1 200 OK\r\nContent-Type: message/http\r\nContent-Length: 49\r\n\r\n\
         TRACE /a?b HTTP/1.1\r\nHost: x\r\nMAX-Forwards: 0\r\n\r\n",
    );
    client.expect_dated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
    // Its body is not read, so that no request can follow.
    client.send(options.replace("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\nhi"));
    client.expect_dated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    for header in ["Max-Forwards: x\r\n", "Max-Forwards: 1\r\nMax-Forwards: 0\r\n"] {
        let mut client = gateway.client();
        client.send(format!("TRACE / HTTP/1.1\r\nHost: x\r\n{header}\r\n"));
        client.expect_local_response(400);
    }
    backend.expect_no_connection(&gateway);
}

#[test]
fn route_of_a_path_does_not_depend_on_its_spelling() {
    let (open, strict) = (Backend::start(), Backend::start());
    let mut config = config(&[open.addr()]);
    let strict_backend = ConfigBackend::new(tollgate_gateway::config::Address::Tcp(strict.addr()));
    config.pools.push(Pool::new("strict", vec![strict_backend]));
    config.routes.push(Route { path_prefix: "/admin".to_owned(), ..Route::all_to(PoolId(1)) });
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    let mut upstream = None;
    // Dot segments are resolved, other spellings are kept.
    for (path, received) in [
        ("/admin", "/admin"),
        ("//admin/x", "//admin/x"),
        ("/%61dmin", "/%61dmin"),
        ("/a/../admin?b", "/admin?b"),
        ("/a/%2e%2E/%61dmin/.?../", "/%61dmin/?../"),
    ] {
        client.send(GET.replace("/a", path));
        let upstream = upstream.get_or_insert_with(|| strict.accept());
        upstream.expect(GET.replace("/a", received));
        upstream.send(OK);
        client.expect(OK);
    }
    for path in [
        "/a/..%2fadmin",
        "/%2Fadmin",
        "/admin;a",
        "/a\\..\\admin",
        "/a/..;/admin",
        // As a backend reads it that resolves no `..`.
        "/admin%2f..%2fx",
        "/admin\\..\\x",
        "/admin%5c..%5cx",
        "/admin;/..;/x",
        "/%2561dmin",
    ] {
        let mut client = gateway.client();
        client.send(GET.replace("/a", path));
        assert_eq!(client.expect_local_response(400).status, 400, "{path}");
    }
    open.expect_no_connection(&gateway);
}

#[test]
fn request_without_a_route_is_not_found_and_the_connection_persists() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.routes[0].path_prefix = "/in".to_owned();
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(GET);
    client.expect_dated(
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 37\r\n\r\n\
         No route matches this host and path.\n",
    );
    let inner = GET.replace("/a", "/in");
    client.send(&inner);
    let mut upstream = backend.accept();
    upstream.expect(&inner);
    upstream.send(OK);
    client.expect(OK);
}

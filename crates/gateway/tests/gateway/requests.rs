use crate::support::{Backend, GET, OK, SILENT};
use tollgate_gateway::Config;
use tollgate_gateway::config::{
    Backend as Listed, Forwarded, HeaderEdits, Limits, Pool, PoolId, Route,
};

#[test]
fn requests_of_many_connections_share_one_to_the_backend() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut first = served.client();
    first.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    first.expect(OK);
    let mut second = served.client();
    for client in [&mut second, &mut first] {
        client.send(GET);
        peer.expect(GET);
        peer.send(OK);
        client.expect(OK);
    }
    backend.expect_nobody();
}

#[test]
fn pipelined_requests_are_answered_in_order_and_one_after_the_other() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    let other = GET.replace("/a", "/b");
    client.send(format!("{GET}{other}{GET}"));
    let mut peer = backend.accept();
    for (request, answer) in [(GET, "1"), (&other, "2"), (GET, "3")] {
        peer.expect(request);
        peer.send(format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 1\r\n\r\n{answer}"));
        client.expect(format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 1\r\n\r\n{answer}"));
    }
}

#[test]
fn a_head_that_comes_byte_by_byte_is_one() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    for byte in GET.as_bytes() {
        client.send([*byte]);
    }
    let mut peer = backend.accept();
    peer.expect(GET);
    for byte in OK.as_bytes() {
        peer.send([*byte]);
    }
    client.expect(OK);
}

#[test]
fn a_client_that_closes_is_told_so_and_the_backend_s_connection_goes_on() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send("GET /a HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n");
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    client.expect_last(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
    );
    let mut client = served.client();
    client.send(GET);
    peer.expect(GET);
    peer.send(OK);
    client.expect(OK);
}

#[test]
fn an_old_client_is_kept_only_if_it_asks_for_that() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send("GET /a HTTP/1.0\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n");
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    client.expect(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi",
    );
    client.send("GET /a HTTP/1.0\r\nHost: x\r\n\r\n");
    peer.expect(GET);
    peer.send(OK);
    client.expect_last(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
    );
}

#[test]
fn the_backend_is_told_who_asked_and_the_client_who_answered() {
    let backend = Backend::start();
    let served = crate::support::Served::start(Config {
        forwarded: Forwarded::default(),
        ..backend.config()
    });
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(
        "GET /a HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: x\r\nVia: 1.1 tollgate\r\n\r\n",
    );
    peer.send(OK);
    client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nVia: 1.1 tollgate\r\n\r\nhi");
}

#[test]
fn headers_longer_than_the_room_before_the_body_go_on_too() {
    let backend = Backend::start();
    let value = "v".repeat(9_000);
    let config = backend.config();
    let routes = vec![Route {
        answer_headers: HeaderEdits {
            set: vec![("X-Long".to_owned(), value.clone())],
            remove: Vec::new(),
        },
        ..config.routes[0].clone()
    }];
    let served = crate::support::Served::start(Config { routes, forwarded: SILENT, ..config });
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(OK);
    client.expect(format!(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nX-Long: {value}\r\n\r\nhi"
    ));
}

#[test]
fn what_is_no_request_is_refused_and_nothing_behind_it_is_read() {
    let backend = Backend::start();
    let limits = Limits { header_bytes: 200, headers: 3, body_bytes: Some(5), ..Limits::default() };
    let served = crate::support::Served::start(Config { limits, ..backend.config() });
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n".to_owned(), 400),
        ("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz".to_owned(), 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n".to_owned(), 413),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"
                .to_owned(),
            413,
        ),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "p".repeat(300)), 414),
        (format!("GET /{}", "p".repeat(300)), 414),
        (format!("\r\nGET /{}", "p".repeat(300)), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "p".repeat(300)), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "p".repeat(300)), 431),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n".to_owned(), 431),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(), 501),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505),
    ] {
        let mut client = served.client();
        // What has not ended goes on with whatever follows.
        let behind = if request.ends_with('\n') { GET } else { "" };
        client.send(format!("{request}{behind}"));
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request} {head}");
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
        let length = head.split("Content-Length: ").nth(1).unwrap();
        let length: usize = length.split('\r').next().unwrap().parse().unwrap();
        client.read(length);
        client.finish();
        client.expect_end();
    }
    backend.expect_nobody();
}

#[test]
fn who_asks_how_far_a_request_goes_is_told_by_the_last_one() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    let trace = "TRACE /a?b HTTP/1.1\r\nHost: x\r\nMax-Forwards: 1\r\n\r\n";
    client.send(trace);
    let mut peer = backend.accept();
    peer.expect(trace.replace(": 1", ": 0"));
    peer.send(OK);
    client.expect(OK);
    // The connection goes on, in order.
    let secrets = "Cookie: a=b\r\nauthorization: c\r\nProxy-Authorization: d\r\n";
    let last = format!("TRACE /a?b HTTP/1.1\r\nHost:  x\r\n{secrets}MAX-Forwards: 0\r\n\r\n");
    let options = "OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n";
    client.send(format!("{last}{options}{GET}"));
    client.expect_dated(
        "HTTP/1.1 200 OK\r\nContent-Type: message/http\r\nContent-Length: 49\r\n\r\n\
         TRACE /a?b HTTP/1.1\r\nHost: x\r\nMAX-Forwards: 0\r\n\r\n",
    );
    client.expect_dated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    peer.expect(GET);
    peer.send(OK);
    client.expect(OK);
    // What it brings along is not read, so that nothing can follow.
    client.send(options.replace("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\nhi"));
    client.expect_dated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    for more in ["Max-Forwards: x\r\n", "Max-Forwards: 1\r\nMax-Forwards: 0\r\n"] {
        let mut client = served.client();
        client.send(format!("TRACE / HTTP/1.1\r\nHost: x\r\n{more}\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 400 "), "{more}");
    }
    backend.expect_nobody();
}

#[test]
fn no_spelling_of_a_path_leads_past_its_route() {
    let (open, strict) = (Backend::start(), Backend::start());
    let mut config = open.config();
    config.pools.push(Pool::new("strict", vec![Listed::new(strict.address())]));
    config.routes.push(Route { path_prefix: "/admin".to_owned(), ..Route::all_to(PoolId(1)) });
    let served = crate::support::Served::start(config);
    let mut client = served.client();
    let mut peer = None;
    for path in ["/admin", "//admin/x", "/%61dmin", "/a/../admin?b", "/a/%2e%2E/admin/."] {
        let request = GET.replace("/a", path);
        client.send(&request);
        let peer = peer.get_or_insert_with(|| strict.accept());
        // It goes on as it came.
        peer.expect(&request);
        peer.send(OK);
        client.expect(OK);
    }
    for path in ["/a/..%2fadmin", "/%2Fadmin", "/admin;a", "/a\\..\\admin", "/a/..;/admin"] {
        let mut client = served.client();
        client.send(GET.replace("/a", path));
        assert!(client.head().starts_with("HTTP/1.1 400 "), "{path}");
    }
    open.expect_nobody();
}

#[test]
fn a_host_without_a_route_is_not_found_and_the_connection_goes_on() {
    let backend = Backend::start();
    let config = backend.config();
    let routes = vec![Route { path_prefix: "/in".to_owned(), ..config.routes[0].clone() }];
    let served = crate::support::Served::start(Config { routes, ..config });
    let mut client = served.client();
    client.send(GET);
    client.expect_dated(
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 42\r\n\r\n\
         Nothing is served for this host and path.\n",
    );
    let inner = GET.replace("/a", "/in");
    client.send(&inner);
    let mut peer = backend.accept();
    peer.expect(&inner);
    peer.send(OK);
    client.expect(OK);
}

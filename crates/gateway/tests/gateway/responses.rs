//! Forwarding, dating and rejection of responses.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use tollgate_gateway::Config;

use crate::support::{Backend, GET, OK, OK_LAST, Peer, TestGateway, ThreadedBackend, config};

const UNDATED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\nLink: b\r\n\r\n";
const UPGRADE: &str =
    "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

fn seconds_now() -> i64 {
    Timestamp::try_from(SystemTime::now()).unwrap().as_second()
}

#[test]
fn response_without_a_date_gets_the_time_of_its_arrival() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    // The second header section is found in the cache. The third arrives in a later second.
    for pause in [Duration::ZERO, Duration::ZERO, Duration::from_millis(1_100)] {
        std::thread::sleep(pause);
        upstream.expect(GET);
        let before = seconds_now();
        upstream.send(UNDATED);
        let date = client.expect_dated(UNDATED);
        let date = DateTimeParser::new().parse_timestamp(&date).unwrap().as_second();
        assert!((before..=seconds_now()).contains(&date), "{date} is before {before}");
        client.send(GET);
    }
}

#[test]
fn every_final_response_has_a_date_and_no_interim_response() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(format!("{INTERIM}{UNDATED}"));
    client.expect(INTERIM);
    client.expect_dated(UNDATED);
    for (request, response) in [
        (GET, "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        (GET, "HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
        ("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),
    ] {
        client.send(request);
        upstream.expect(request);
        upstream.send(response);
        client.expect_dated(response);
    }
    client.send(UPGRADE);
    upstream.expect(UPGRADE);
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    upstream.send(switch);
    client.expect(switch);
}

#[test]
fn date_of_a_backend_is_forwarded_unchanged() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    let mut upstream = None;
    for line in [
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "date: Sunday, 06-Nov-94 08:49:37 GMT\r\n",
        "DATE: Sun Nov  6 08:49:37 1994\r\n",
        "Date: never\r\n",
        "Date: \r\n",
    ] {
        let response = OK.replace("Date: d\r\n", line);
        // Parsed, and then found in the cache.
        for _ in 0..2 {
            client.send(GET);
            let upstream = upstream.get_or_insert_with(|| backend.accept());
            upstream.expect(GET);
            upstream.send(&response);
            client.expect(&response);
        }
    }
}

#[test]
fn responses_to_head_and_of_status_204_and_304_have_no_body() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    let head = GET.replace("GET", "HEAD");
    client.send(&head);
    let mut upstream = backend.accept();
    upstream.expect(&head);
    let response = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 500\r\n\r\n";
    upstream.send(response);
    client.expect(response);
    for status in ["204 No Content", "304 Not Modified"] {
        client.send(GET);
        upstream.expect(GET);
        let response = format!("HTTP/1.1 {status}\r\nDate: d\r\nETag: \"a\"\r\n\r\n");
        upstream.send(&response);
        client.expect(&response);
    }
    client.send(GET);
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn invalid_responses_are_replaced_by_502() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    for response in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: a\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(response);
        client.expect_local_response(502);
        upstream.expect_closed();
    }
}

#[test]
fn switch_of_protocols_must_match_the_request() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n";
    let named = format!("{switch}Upgrade: websocket\r\n\r\n");
    for (request, switch) in [
        (GET.to_owned(), &named),
        (UPGRADE.replace("HTTP/1.1", "HTTP/1.0"), &named),
        (UPGRADE.replace("GET", "POST"), &named),
        (UPGRADE.replace("websocket", "h2c"), &named),
        (UPGRADE.to_owned(), &format!("{switch}\r\n")),
        (UPGRADE.to_owned(), &format!("{switch}Upgrade:\r\n\r\n")),
    ] {
        let mut client = gateway.client();
        client.send(&request);
        let mut upstream = backend.accept();
        upstream.head().unwrap();
        upstream.send(format!("{switch}{OK}"));
        assert_eq!(client.response().unwrap().status, 502, "{request} {switch}");
        upstream.expect_closed();
    }
}

#[test]
fn interim_responses_are_limited_and_not_sent_to_http_1_0() {
    const LIMIT: usize = 64;
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(INTERIM.repeat(LIMIT) + OK);
    client.expect(INTERIM.repeat(LIMIT) + OK);
    let mut old = gateway.client();
    old.send("GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
    upstream.expect(GET);
    upstream.send(INTERIM.repeat(LIMIT) + OK);
    old.expect(OK_LAST.replace("close", "keep-alive"));
    // They count one by one as well.
    client.send(GET);
    upstream.expect(GET);
    for _ in 0..LIMIT {
        upstream.send(INTERIM);
        client.expect(INTERIM);
    }
    upstream.send(INTERIM);
    client.expect_local_response(502);
    upstream.expect_closed();
}

#[test]
fn expect_100_continue_is_left_to_the_backend() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    let head = "PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    client.send(head);
    let mut upstream = backend.accept();
    upstream.expect(head);
    upstream.send("HTTP/1.1 100 Continue\r\n\r\n");
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    upstream.expect("abc");
    upstream.send(format!("{INTERIM}{OK}"));
    client.expect(format!("{INTERIM}{OK}"));
}

#[test]
fn response_before_the_end_of_a_request_body_ends_both_connections() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    client.send(head);
    let mut upstream = backend.accept();
    upstream.expect(head);
    client.send([b'b'; 1000]);
    upstream.expect([b'b'; 1000]);
    upstream.send("HTTP/1.1 413 No\r\nDate: d\r\nContent-Length: 2\r\n\r\nno");
    client.expect("HTTP/1.1 413 No\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    upstream.expect_closed();
    // The gateway reads on for a while, because a reset could overtake the response.
    client.send([b'b'; 1000]);
    client.finish();
    client.expect_to_end("");
}

#[test]
fn rejected_upload_receives_its_response_without_a_reset() {
    const PIECES: usize = 64;
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.limits.body_bytes = Some(1_000);
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    let piece = vec![b'b'; 1 << 20];
    client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", PIECES << 20));
    for number in 0..PIECES {
        client.send(&piece);
        if number == PIECES / 2 {
            // A client may pause to read from its disk. A gateway that reads on only for a moment resets here.
            std::thread::sleep(Duration::from_millis(1_500));
        }
    }
    client.expect_local_response(413);
    client.expect_to_end("");
    backend.expect_no_connection(&gateway);
}

#[test]
fn bytes_behind_the_last_request_cause_no_reset() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut upstream = backend.accept();
    upstream.expect(GET);
    client.send(GET);
    // The gateway watches a connection whose last response is due only after 5 ms.
    std::thread::sleep(Duration::from_millis(10));
    gateway.turn();
    upstream.send(OK);
    client.expect_to_end(OK_LAST);
    gateway.turn();
    assert!(client.stream().take_error().unwrap().is_none());
    client.send(GET);
}

#[test]
fn bytes_behind_a_response_close_the_upstream_connection() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    let respond_with = |client: &mut Peer, response: &str| {
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(response);
        client.expect(OK);
        upstream
    };
    respond_with(&mut client, &format!("{OK}{OK}")).expect_closed();
    let mut upstream = respond_with(&mut client, OK);
    // They may arrive later, while no request is in flight.
    upstream.send(OK);
    upstream.expect_closed();
    respond_with(&mut client, OK);
}

#[test]
fn oversized_responses_are_rejected_or_cut_short() {
    let backend = ThreadedBackend::responding(|path| {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        match path {
            "/line" => format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000)),
            "/lines" => format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(1_000)),
            "/interim" => "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000),
            "/size" => format!("{chunked}{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(100_000)),
            "/trailer" => format!("{chunked}0\r\nX: {}\r\n\r\n", "x".repeat(100_000)),
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
        }
        .into()
    });
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    for path in ["/line", "/lines", "/interim", "/size", "/trailer"] {
        let mut client = gateway.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let received = String::from_utf8(client.read_to_close()).unwrap();
        assert!(!received.ends_with("0\r\n\r\n"), "{path}: {received}");
        let response = received.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        let is_rejected = response.starts_with("HTTP/1.1 502 ");
        // The header section may have been forwarded before the body exceeds a limit.
        let is_cut_short =
            matches!(path, "/size" | "/trailer") && response.starts_with("HTTP/1.1 200 OK\r\n");
        assert!(is_rejected || is_cut_short, "{path}: {response}");
        assert_eq!(gateway.client().get("/next").unwrap().text(), "ok", "after {path}");
    }
}

#[test]
fn header_lines_of_a_response_are_limited() {
    let backend = Backend::start();
    for (limit, lines, is_forwarded) in
        [(None, 101, false), (None, 100, true), (Some(256), 256, true)]
    {
        let mut config = config(&[backend.addr()]);
        config.limits.response_headers = limit.unwrap_or(config.limits.response_headers);
        let gateway = TestGateway::start(&config);
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        let more = "X: y\r\n".repeat(lines - 2);
        let response = format!("HTTP/1.1 200 OK\r\nDate: d\r\n{more}Content-Length: 2\r\n\r\nhi");
        upstream.send(&response);
        if is_forwarded {
            client.expect(response);
        } else {
            client.expect_local_response(502);
        }
    }
}

#[test]
fn connection_is_closed_behind_a_response_to_head_if_configured() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.pools[0].close_after_head = true;
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    let head = GET.replace("GET", "HEAD");
    let response = &OK[..OK.len() - 2];
    client.send(&head);
    let mut upstream = backend.accept();
    upstream.expect(&head);
    upstream.send(response);
    client.expect(response);
    // The body that must not be there reaches nobody.
    upstream.expect_closed();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn redirect_of_a_backend_to_itself_leads_through_the_gateway() {
    let backend = Backend::start();
    let address = backend.addr();
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nforwarded: {{ via: null, x_forwarded: false }}\n\
         routes: [{{ pool: p, path: /a, rewrite: /v1, rewrite_location: true }}, {{ pool: p }}]\n\
         pools: [{{ name: p, backends: [{{ address: '{address}' }}] }}]\n"
    );
    let gateway = TestGateway::start(&Config::parse(&text, Path::new("g.yaml")).unwrap());
    let mut client = gateway.client();
    let mut upstream = None;
    let redirect = |location: &str| {
        format!(
            "HTTP/1.1 302 Found\r\nDate: d\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let own = format!("http://{address}/v1/login?x");
    for (path, received, expected) in [
        ("/a", &*own, "/a/login?x"),
        ("/a", "/v1/login", "/a/login"),
        ("/a", "https://example.org/v1/login", "https://example.org/v1/login"),
        ("/other", &*own, &*own),
    ] {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        // The second one is in the cache of heads.
        for _ in 0..2 {
            client.send(get(path));
            let upstream = upstream.get_or_insert_with(|| backend.accept());
            upstream.expect(get(if path == "/a" { "/v1" } else { path }));
            upstream.send(redirect(received));
            client.expect(redirect(expected));
        }
    }
}

#[test]
fn variables_in_responses_are_those_of_their_request() {
    let backend = ThreadedBackend::start(|mut peer| {
        while let Ok(head) = peer.head() {
            let id = head.lines().find(|line| line.starts_with("X-Id: ")).unwrap();
            peer.send(format!(
                "{INTERIM}HTTP/1.1 200 OK\r\nX-Client: kept?\r\nContent-Length: {}\r\n\r\n{id}",
                id.len()
            ));
        }
    });
    let edits = "response_headers: { set: { X-Id: '${request_id}', X-Client: '${client} ${scheme}://${host}' } }";
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nforwarded: {{ via: null }}\n\
         pools: [{{ name: p, backends: [{{ address: '{}' }}] }}]\n\
         routes:\n  - {{ path: /, pool: p, request_headers: {{ set: {{ X-Id: '${{request_id}}' }} }}, {edits} }}\n\
         \x20 - {{ path: /own, respond: {{ status: 204 }}, {edits} }}\n",
        backend.addr()
    );
    let gateway = TestGateway::start(&Config::parse(&text, Path::new("g.yaml")).unwrap());
    let mut client = gateway.client();
    let mut ids = Vec::new();
    for (path, host) in [("/", "a"), ("/", "a"), ("/", "b:80"), ("/own", "a"), ("/own", "c")] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        if path == "/" {
            // An interim response has none of them.
            client.expect(INTERIM);
        }
        let response = client.response().unwrap();
        assert_eq!(response.header("X-Client"), Some(&*format!("127.0.0.1 http://{host}")));
        let id = response.header("X-Id").unwrap().to_owned();
        assert_eq!(id.len(), 32, "{id}");
        if path == "/" {
            assert_eq!(response.text(), format!("X-Id: {id}"));
        }
        assert!(!ids.contains(&id), "{id}");
        ids.push(id);
    }
}

use tollgate_http1::{BodyFraming, Version, parse_request_head, parse_response_head};

use super::*;
use crate::compression::ResponseCoding;
use crate::config::{
    Forwarded, ForwardedHeader, HeaderEdits, Networks, PathForm, PoolId, Requests, Route, Trust,
    TrustedProxies, Variables,
};

const CLIENT: ClientInfo<'static> = ClientInfo {
    ip: Some(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7))),
    is_tls: false,
    default_host: "127.0.0.1:8080",
    variables: Variables {
        client: Some(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7))),
        host: "h",
        scheme: "https",
        request_id: None,
        user: None,
        certificate: None,
    },
};

const NO_FORWARDED: Forwarded =
    Forwarded { via: None, x_forwarded: false, forwarded: false, trust: Trust::Nobody };

fn route() -> Route {
    Route::all_to(PoolId(0))
}

fn text(out: &mut Vec<u8>) -> HeadWriter<'_> {
    HeadWriter::new(MessageForm::Text, out)
}

/// The head for the backend.
fn forward(head: &str, route: &Route, forwarded: &Forwarded) -> (String, RequestSummary) {
    forward_with(head, route, &Requests::default(), forwarded)
}

fn forward_with(
    head: &str,
    route: &Route,
    requests: &Requests,
    forwarded: &Forwarded,
) -> (String, RequestSummary) {
    let head = parse_request_head(head.as_bytes()).unwrap().unwrap();
    let mut out = Vec::new();
    let summary = render_request(&head, route, requests, forwarded, &CLIENT, text(&mut out));
    (String::from_utf8(out).unwrap(), summary)
}

fn plain(head: &str) -> String {
    forward(head, &route(), &NO_FORWARDED).0
}

#[test]
fn hop_by_hop_headers_are_dropped() {
    assert_eq!(
        plain(
            "GET /a?b HTTP/1.1\r\nhost:  x \r\nConnection: close, X-Hop,te\r\nX-Hop: 1\r\n\
             Keep-Alive: 5\r\nProxy-Connection: a\r\nTE: trailers\r\nUpgrade: websocket\r\n\
             Accept: */*\r\nx-end: 2\r\nAccept: b\r\n\r\n"
        ),
        "GET /a?b HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nx-end: 2\r\nAccept: b\r\n\r\n"
    );
}

#[test]
fn max_forwards_is_decremented_for_trace_and_options() {
    let max = |method: &str, value: &str, more: &str| {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{more}max-forwards: {value}\r\n\r\n");
        let lines = plain(&head);
        let line = lines.lines().find(|line| line.to_ascii_lowercase().starts_with("max-forwards"));
        line.unwrap_or("none").to_owned()
    };
    assert_eq!(max("TRACE", "5", ""), "Max-Forwards: 4");
    assert_eq!(max("OPTIONS", "010", ""), "Max-Forwards: 9");
    assert_eq!(max("OPTIONS", "99999999999", ""), "Max-Forwards: 4294967294");
    assert_eq!(max("TRACE", "5", "Connection: Max-Forwards\r\n"), "Max-Forwards: 4");
    assert_eq!(max("GET", "5", ""), "max-forwards: 5");
}

#[test]
fn framing_is_written_once() {
    assert_eq!(
        plain("POST / HTTP/1.1\r\nCONTENT-LENGTH: 007\r\nHost: a\r\n\r\n"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n"
    );
    assert_eq!(
        plain("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding:chunked\r\n\r\n"),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    // A length remains even if `Connection` lists it.
    assert_eq!(
        plain(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: content-length, host\r\nContent-Length: 1\r\n\r\n"
        ),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"
    );
}

#[test]
fn target_is_in_origin_form_and_determines_host() {
    assert_eq!(
        plain("GET HTTP://b:8/c?d HTTP/1.1\r\nHost: a\r\n\r\n"),
        "GET /c?d HTTP/1.1\r\nHost: b:8\r\n\r\n"
    );
    assert_eq!(
        plain("GET http://b?d HTTP/1.1\r\nHost: a\r\n\r\n"),
        "GET /?d HTTP/1.1\r\nHost: b\r\n\r\n"
    );
    assert_eq!(
        plain("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: b\r\n\r\n"
    );
    assert_eq!(
        plain("OPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\n"),
        "OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n"
    );
    assert_eq!(
        plain("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"
    );
}

#[test]
fn http_1_0_request_is_forwarded_as_1_1() {
    let (head, summary) =
        forward("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", &route(), &NO_FORWARDED);
    assert_eq!(head, "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n");
    assert_eq!((summary.version, summary.keep_alive), (Version::Http10, false));
    assert_eq!(summary.head_bytes, 16 + 22 + 2);
}

#[test]
fn path_prefix_is_rewritten() {
    let rewritten = |prefix: &str, rewrite: &str, path: &str| {
        let route =
            Route { path_prefix: prefix.to_owned(), rewrite: Some(rewrite.to_owned()), ..route() };
        let (head, _) =
            forward(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), &route, &NO_FORWARDED);
        head.split(' ').nth(1).unwrap().to_owned()
    };
    for (prefix, rewrite, path, expected) in [
        ("/api", "/v1", "/api/x?y", "/v1/x?y"),
        ("/api/", "/v1/", "/api/x", "/v1/x"),
        ("/api", "/", "/api/x", "/x"),
        ("/api", "/", "/api", "/"),
        ("/api", "/", "/api?y", "/?y"),
        ("/api", "/v1", "/api", "/v1"),
        ("/api", "/v1", "/api?x", "/v1?x"),
        ("/", "/v1", "/x", "/v1/x"),
        ("/", "/", "/x", "/x"),
        ("/api", "/v1", "//%61pi/./x%2fy/../z?y=/../", "/v1/z?y=/../"),
        ("/api/", "/v1/", "/x/../api/%7Ea", "/v1/%7Ea"),
        ("/api", "/", "/%61pi?y", "/?y"),
        ("/", "/v1", "/../x", "/v1/x"),
        ("/", "/v1", "http://a", "/v1"),
        ("/", "/v1", "http://a?x", "/v1?x"),
    ] {
        assert_eq!(rewritten(prefix, rewrite, path), expected, "{prefix} {rewrite} {path}");
    }
}

#[test]
fn request_headers_are_edited() {
    let route = Route {
        request_headers: HeaderEdits {
            templates: Vec::new(),
            set: vec![("X-Set".into(), "new".into()), ("Host".into(), "inner".into())],
            remove: vec!["cookie".into()],
        },
        ..route()
    };
    let head = "GET / HTTP/1.1\r\nHost: a\r\nx-set: old\r\nCookie: c\r\nX-Kept: k\r\n\r\n";
    assert_eq!(
        forward(head, &route, &NO_FORWARDED).0,
        "GET / HTTP/1.1\r\nX-Kept: k\r\nX-Set: new\r\nHost: inner\r\n\r\n"
    );
}

#[test]
fn forwarded_headers_follow_trust() {
    let all = Forwarded {
        via: Some("gate".to_owned()),
        x_forwarded: true,
        forwarded: true,
        trust: Trust::Everybody,
    };
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\nx-forwarded-for: 10.0.0.2\r\n\
        X-Forwarded-Proto: https\r\nForwarded: for=b\r\nVia: 1.0 c\r\n\r\n";
    assert_eq!(
        forward(head, &route(), &all).0,
        "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 c\r\n\
         X-Forwarded-For: 10.0.0.1, 10.0.0.2, 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: a\r\n\
         Forwarded: for=b, for=192.0.2.7;host=\"a\";proto=http\r\nVia: 1.1 gate\r\n\r\n"
    );
    let distrusting = Forwarded { trust: Trust::Nobody, ..all };
    assert_eq!(
        forward(head, &route(), &distrusting).0,
        "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 c\r\n\
         X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n\
         Forwarded: for=192.0.2.7;host=\"a\";proto=http\r\nVia: 1.1 gate\r\n\r\n"
    );
    assert_eq!(
        forward(head, &route(), &NO_FORWARDED).0,
        "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 c\r\n\r\n"
    );
    // From a trusted client, similar names are forwarded.
    let alike = "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 10.0.0.1\r\n\r\n";
    let trusting = Forwarded { trust: Trust::Everybody, ..NO_FORWARDED };
    let requests = Requests { underscores: true, ..Requests::default() };
    assert_eq!(forward_with(alike, &route(), &requests, &trusting).0, alike);
    let neither = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(forward_with(alike, &route(), &requests, &NO_FORWARDED).0, neither);
    assert_eq!(forward(alike, &route(), &trusting).0, neither);
}

#[test]
fn forwarded_headers_of_trusted_client_are_sent_once_and_cannot_be_removed() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Proto: https\r\n\
        X-Forwarded-Host: b\r\nX-Forwarded-For: 10.0.0.1\r\n\
        Connection: X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-For\r\n\r\n";
    let trusting = Forwarded { trust: Trust::Everybody, ..NO_FORWARDED };
    let once = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n\r\n";
    for (x_forwarded, peer) in [(false, ""), (true, ", 192.0.2.7")] {
        let forwarded = Forwarded { x_forwarded, ..trusting.clone() };
        assert_eq!(
            forward(head, &route(), &forwarded).0,
            format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1{peer}\r\n{once}")
        );
    }
}

#[test]
fn proxies_are_trusted_with_the_header_that_they_write() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\n\
        Forwarded: for=10.0.0.1\r\n\r\n";
    let sent = |header| {
        let networks = Networks::parse(&["192.0.2.7"]);
        let trust = Trust::Proxies(TrustedProxies { networks, header });
        forward(head, &route(), &Forwarded { trust, ..NO_FORWARDED }).0
    };
    let own = "GET / HTTP/1.1\r\nHost: a\r\n";
    assert_eq!(
        sent(ForwardedHeader::XForwardedFor),
        format!("{own}X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\n\r\n")
    );
    assert_eq!(sent(ForwardedHeader::Forwarded), format!("{own}Forwarded: for=10.0.0.1\r\n\r\n"));
}

#[test]
fn headers_that_backends_may_trust_are_removed() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Real-IP: 1\r\nx_real_ip: 2\r\nX-Original-URL: /b\r\n\
        Proxy: c\r\nX-Kept: d\r\nX_Kept: e\r\n\r\n";
    let sent = |requests: &Requests| forward_with(head, &route(), requests, &NO_FORWARDED).0;
    let with = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let default = Requests::default();
    assert_eq!(sent(&default), with("X-Kept: d\r\n"));
    let underscores = Requests { underscores: true, ..default };
    assert_eq!(sent(&underscores), with("X-Kept: d\r\nX_Kept: e\r\n"));
    let one = Requests { remove_headers: vec!["x-kept".to_owned()], ..underscores };
    let rest = "X-Real-IP: 1\r\nx_real_ip: 2\r\nX-Original-URL: /b\r\nProxy: c\r\n";
    assert_eq!(sent(&one), with(rest));
    // A route may set what a client may not.
    let mut edited = route();
    edited.request_headers.set.push(("X-Real-IP".into(), "3".into()));
    let set = forward(head, &edited, &NO_FORWARDED).0;
    assert_eq!(set, with("X-Kept: d\r\nX-Real-IP: 3\r\n"));
}

#[test]
fn raw_path_is_forwarded_as_received() {
    let raw = Requests { path: PathForm::Raw, ..Requests::default() };
    let sent = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (sent, _) = forward_with(&head, &route(), &raw, &NO_FORWARDED);
        sent.split(' ').nth(1).unwrap().to_owned()
    };
    for path in ["/a/../b", "//a/./%2e%2E/?/../", "/"] {
        assert_eq!(sent(path), path);
    }
}

#[test]
fn upgrade_is_forwarded_only_if_safe() {
    let head = |method: &str, protocol: &str, more: &str| {
        format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{more}\r\n"
        )
    };
    let (sent, summary) = forward(&head("GET", "websocket", ""), &route(), &NO_FORWARDED);
    assert!(summary.wants_upgrade);
    assert_eq!(
        sent,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    for head in [
        head("GET", "h2c", ""),
        head("GET", "mqtt", ""),
        head("GET", "websocket, mqtt", ""),
        head("GET", "", ""),
        head("GET", "websocket, H2C", ""),
        head("POST", "websocket", ""),
        head("HEAD", "websocket", ""),
        head("GET", "websocket", "Content-Length: 1\r\n"),
        head("GET", "websocket", "Transfer-Encoding: chunked\r\n"),
        head("GET", "websocket", "Upgrade: b\r\n"),
        head("GET", "websocket", "").replace("HTTP/1.1", "HTTP/1.0"),
        head("GET", "websocket", "").replace("Connection: Upgrade\r\n", ""),
    ] {
        let (sent, summary) = forward(&head, &route(), &NO_FORWARDED);
        assert!(!summary.wants_upgrade && !sent.contains("pgrade"), "{head}");
    }
}

#[test]
fn idempotent_methods() {
    for (method, is_idempotent, is_head) in [
        ("GET", true, false),
        ("HEAD", true, true),
        ("PUT", true, false),
        ("DELETE", true, false),
        ("POST", false, false),
        ("PATCH", false, false),
        ("get", false, false),
    ] {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (_, summary) = forward(&head, &route(), &NO_FORWARDED);
        assert_eq!((summary.is_idempotent, summary.is_head), (is_idempotent, is_head), "{method}");
    }
}

fn form(persistence: Persistence, framing: BodyFraming) -> ResponseForm<'static> {
    ResponseForm {
        persistence,
        framing,
        coding: ResponseCoding::Received,
        location: None,
        fields: &[],
    }
}

/// The head for the client.
fn respond(head: &str, to_head: bool, persistence: Persistence, framing: BodyFraming) -> String {
    let head = parse_response_head(head.as_bytes(), to_head).unwrap().unwrap();
    let mut out = Vec::new();
    let edits = HeaderEdits::default();
    render_response(&head, &edits, Some("gate"), None, form(persistence, framing), text(&mut out));
    String::from_utf8(out).unwrap()
}

#[test]
fn response_head_is_normalized() {
    let head = "HTTP/1.0 200 Fine\nServer: b\nConnection: X-Hop\nX-Hop: 1\nKeep-Alive: 2\n\
        Content-Length: 5, 5\nDate: d\n\n";
    assert_eq!(
        respond(head, false, Persistence::Implied, BodyFraming::Length(5)),
        "HTTP/1.1 200 Fine\r\nServer: b\r\nDate: d\r\nContent-Length: 5\r\nVia: 1.0 gate\r\n\r\n"
    );
    assert_eq!(
        respond(
            "HTTP/1.1 099 \r\n\r\n".replace("099", "200").as_str(),
            false,
            Persistence::Close,
            BodyFraming::UntilClose
        ),
        "HTTP/1.1 200 \r\nVia: 1.1 gate\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(
        respond(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n",
            false,
            Persistence::KeepAlive,
            BodyFraming::Chunked
        ),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nVia: 1.1 gate\r\nConnection: keep-alive\r\n\r\n"
    );
}

#[test]
fn bodyless_response_keeps_content_length() {
    for (status, to_head, length) in [
        ("200 OK", true, "Content-Length: 9\r\n"),
        ("304 Not Modified", false, "Content-Length: 9\r\n"),
        ("204 No Content", false, ""),
        ("103 Early Hints", false, ""),
    ] {
        assert_eq!(
            respond(
                &format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n"),
                to_head,
                Persistence::Interim,
                BodyFraming::Empty
            ),
            format!("HTTP/1.1 {status}\r\n{length}Via: 1.1 gate\r\n\r\n")
        );
    }
}

#[test]
fn upgrades_and_header_edits_in_responses() {
    assert_eq!(
        respond(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            false,
            Persistence::Upgrade,
            BodyFraming::Empty
        ),
        "HTTP/1.1 101 Switching Protocols\r\nVia: 1.1 gate\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\n\r\n"
    );
    // A 426 names the protocol; other responses lose the header.
    let refusal = |status| {
        format!(
            "HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let length = BodyFraming::Length(0);
    assert_eq!(
        respond(&refusal("426 Upgrade Required"), false, Persistence::Close, length),
        "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\nVia: 1.1 gate\r\nConnection: close\r\n\
         Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert_eq!(
        respond(&refusal("403 Forbidden"), false, Persistence::Implied, length),
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nVia: 1.1 gate\r\n\r\n"
    );
    let edits = HeaderEdits {
        templates: Vec::new(),
        set: vec![("Server".into(), "hidden".into())],
        remove: vec!["x-powered-by".into()],
    };
    let head = b"HTTP/1.1 200 OK\r\nserver: a\r\nX-Powered-By: b\r\nContent-Length: 0\r\n\r\n";
    let head = parse_response_head(head, false).unwrap().unwrap();
    let mut out = Vec::new();
    let (persistence, framing) = (Persistence::Implied, BodyFraming::Length(0));
    render_response(&head, &edits, None, None, form(persistence, framing), text(&mut out));
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: hidden\r\n\r\n");
}

#[test]
fn date_is_added_only_if_missing() {
    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let none = HeaderEdits::default();
    let removed =
        HeaderEdits { templates: Vec::new(), set: Vec::new(), remove: vec!["date".into()] };
    let set = HeaderEdits {
        templates: Vec::new(),
        set: vec![("DATE".into(), "s".into())],
        remove: Vec::new(),
    };
    for (received, edits, sent) in [
        ("", &none, format!("Date: {NOW}\r\nVia: 1.1 gate\r\n")),
        ("Dated: d\r\n", &none, format!("Dated: d\r\nDate: {NOW}\r\nVia: 1.1 gate\r\n")),
        ("Connection: Date\r\nDate: d\r\n", &none, format!("Date: {NOW}\r\nVia: 1.1 gate\r\n")),
        ("dATE: d\r\n", &none, "dATE: d\r\nVia: 1.1 gate\r\n".to_owned()),
        ("Date: \r\n", &none, "Date: \r\nVia: 1.1 gate\r\n".to_owned()),
        ("Date: d\r\n", &removed, "Via: 1.1 gate\r\n".to_owned()),
        ("Date: d\r\n", &set, "Via: 1.1 gate\r\nDATE: s\r\n".to_owned()),
    ] {
        let head = format!("HTTP/1.1 204 No Content\r\n{received}\r\n");
        let head = parse_response_head(head.as_bytes(), false).unwrap().unwrap();
        let (persistence, framing) = (Persistence::Implied, BodyFraming::Empty);
        let mut out = Vec::new();
        let (via, date) = (Some("gate"), Some(NOW));
        let at =
            render_response(&head, edits, via, date, form(persistence, framing), text(&mut out));
        let text = std::str::from_utf8(&out).unwrap();
        assert_eq!(text, format!("HTTP/1.1 204 No Content\r\n{sent}\r\n"), "{received}");
        assert_eq!(at, text.find(NOW), "{received}");
    }
}

#[test]
fn head_of_a_compressed_body_says_so() {
    use crate::config::ContentCoding::Gzip;
    let edited = |lines: &str, coding, set: &[(&str, &str)], remove: &[&str]| {
        let head = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 5\r\n\r\n");
        let head = parse_response_head(head.as_bytes(), false).unwrap().unwrap();
        let set = set.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let remove = remove.iter().map(|&name| name.to_owned()).collect();
        let edits = HeaderEdits { set: set.collect(), remove, templates: Vec::new() };
        let form = ResponseForm { coding, ..form(Persistence::Implied, BodyFraming::Chunked) };
        let mut out = Vec::new();
        render_response(&head, &edits, None, None, form, text(&mut out));
        let text = String::from_utf8(out).unwrap();
        text.strip_prefix("HTTP/1.1 200 OK\r\n").unwrap().replace("\r\n", "|")
    };
    let rendered = |lines: &str, coding, set: &[(&str, &str)]| edited(lines, coding, set, &[]);
    let gzip = ResponseCoding::Compressed(Gzip);
    assert_eq!(
        rendered("ETag: \"a\"\r\nAccept-Ranges: bytes\r\n", gzip, &[]),
        "ETag: W/\"a\"|Transfer-Encoding: chunked|Content-Encoding: gzip|Vary: Accept-Encoding||"
    );
    assert_eq!(
        rendered("etag: W/\"a\"\r\nVary: Origin\r\n", gzip, &[]),
        "etag: W/\"a\"|Vary: Origin|Transfer-Encoding: chunked|Content-Encoding: gzip|Vary: Accept-Encoding||"
    );
    let tail = "Transfer-Encoding: chunked|Content-Encoding: gzip|";
    for vary in ["Vary: *", "Vary: a, ACCEPT-encoding"] {
        assert_eq!(rendered(&format!("{vary}\r\n"), gzip, &[]), format!("{vary}|{tail}|"));
    }
    // The backend's does not reach the client.
    let added = format!("{tail}Vary: Accept-Encoding|");
    let covering = "Vary: Accept-Encoding\r\n";
    for lines in [covering, "Vary: b\r\n"] {
        assert_eq!(rendered(lines, gzip, &[("Vary", "a")]), format!("{added}Vary: a||"));
        assert_eq!(edited(lines, gzip, &[], &["vary"]), format!("{added}|"));
    }
    assert_eq!(
        rendered(&format!("Connection: vary\r\n{covering}"), gzip, &[]),
        format!("{added}|")
    );
    for set in ["*", "a, accept-encoding"] {
        assert_eq!(rendered("", gzip, &[("vary", set)]), format!("{tail}vary: {set}||"));
    }
    assert_eq!(
        rendered("ETag: \"a\"\r\nAccept-Ranges: bytes\r\n", ResponseCoding::Identity, &[]),
        "ETag: \"a\"|Accept-Ranges: bytes|Transfer-Encoding: chunked|Vary: Accept-Encoding||"
    );
}

#[test]
fn max_forwards_is_parsed_strictly() {
    let parse = |head: &str| max_forwards(&parse_request_head(head.as_bytes()).unwrap().unwrap());
    for (method, lines, expected) in [
        ("TRACE", "Max-Forwards: 3\r\n", Ok(Some(3))),
        ("OPTIONS", "max-forwards: 007\r\n", Ok(Some(7))),
        ("OPTIONS", "Max-Forwards: 0\r\n", Ok(Some(0))),
        ("TRACE", "Max-Forwards: 4294967296\r\n", Ok(Some(u32::MAX))),
        ("TRACE", "Max-Forwards: 99999999999999999999999999\r\n", Ok(Some(u32::MAX))),
        ("TRACE", "", Ok(None)),
        ("GET", "Max-Forwards: 0\r\n", Ok(None)),
        ("GET", "Max-Forwards: x\r\n", Ok(None)),
        ("TRACE", "Max-Forwards: \r\n", Err(InvalidMaxForwards)),
        ("TRACE", "Max-Forwards: -1\r\n", Err(InvalidMaxForwards)),
        ("TRACE", "Max-Forwards: 1, 2\r\n", Err(InvalidMaxForwards)),
        ("TRACE", "Max-Forwards: 1\r\nMax-Forwards: 1\r\n", Err(InvalidMaxForwards)),
    ] {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        assert_eq!(parse(&head), expected, "{head}");
    }
}

/// The date in the example of RFC 9110, a millisecond before the next second.
const THEN: Duration = Duration::from_millis(784_111_777_999);

#[test]
fn http_date_matches_example_of_rfc_9110() {
    assert_eq!(http_date(UNIX_EPOCH + THEN).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
}

#[test]
fn date_cache_formats_once_a_second() {
    let (start, mut cache) = (Instant::now(), DateCache::default());
    let (mut clock_reads, mut dates) = (0, Vec::new());
    for millis in [0, 0, 1, 1_000, 1_001, 86_400_001] {
        let since = Duration::from_millis(millis);
        let date = cache.at(start + since, || {
            clock_reads += 1;
            UNIX_EPOCH + THEN + since
        });
        dates.push(date.unwrap().to_owned());
    }
    assert_eq!(
        dates,
        [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
            "Sun, 06 Nov 1994 08:49:39 GMT",
            "Mon, 07 Nov 1994 08:49:38 GMT"
        ]
    );
    assert_eq!(clock_reads, 4);
}

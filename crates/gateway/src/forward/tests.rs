use tollgate_wire::{BodyFraming, Version, parse_answer_head, parse_request_head};

use super::*;
use crate::config::{Forwarded, HeaderEdits, PoolId, Route};

const SENDER: Sender<'static> = Sender {
    ip: Some(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7))),
    is_tls: false,
    own_host: "127.0.0.1:8080",
};

const SILENT: Forwarded =
    Forwarded { via: None, x_forwarded: false, forwarded: false, trust_client: false };

fn route() -> Route {
    Route::all_to(PoolId(0))
}

/// What the backend gets.
fn asked(head: &str, route: &Route, forwarded: &Forwarded) -> (String, Asked) {
    let head = parse_request_head(head.as_bytes()).unwrap().unwrap();
    let mut out = Vec::new();
    let asked = render_request(&head, route, forwarded, &SENDER, &mut out);
    (String::from_utf8(out).unwrap(), asked)
}

fn plain(head: &str) -> String {
    asked(head, &route(), &SILENT).0
}

#[test]
fn what_is_for_the_next_hop_ends_here() {
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
fn hops_are_counted_down_and_only_where_they_count() {
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
fn framing_is_said_once_and_in_one_way() {
    assert_eq!(
        plain("POST / HTTP/1.1\r\nCONTENT-LENGTH: 007\r\nHost: a\r\n\r\n"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n"
    );
    assert_eq!(
        plain("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding:chunked\r\n\r\n"),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    // That `Connection` names it does not make a length go away.
    assert_eq!(
        plain(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: content-length, host\r\nContent-Length: 1\r\n\r\n"
        ),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"
    );
}

#[test]
fn the_target_has_one_form_and_its_host_counts() {
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
fn an_old_client_s_request_goes_on_in_the_version_of_ours() {
    let (head, asked) = asked("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", &route(), &SILENT);
    assert_eq!(head, "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n");
    assert_eq!((asked.version, asked.keep_alive), (Version::Http10, false));
    assert_eq!(asked.head_bytes, 16 + 22 + 2);
}

#[test]
fn a_path_is_rewritten_by_its_prefix() {
    let rewritten = |prefix: &str, rewrite: &str, path: &str| {
        let route =
            Route { path_prefix: prefix.to_owned(), rewrite: Some(rewrite.to_owned()), ..route() };
        let (head, _) = asked(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), &route, &SILENT);
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
fn headers_are_set_and_removed() {
    let route = Route {
        request_headers: HeaderEdits {
            set: vec![("X-Set".into(), "new".into()), ("Host".into(), "inner".into())],
            remove: vec!["cookie".into()],
        },
        ..route()
    };
    let head = "GET / HTTP/1.1\r\nHost: a\r\nx-set: old\r\nCookie: c\r\nX-Kept: k\r\n\r\n";
    assert_eq!(
        asked(head, &route, &SILENT).0,
        "GET / HTTP/1.1\r\nX-Kept: k\r\nX-Set: new\r\nHost: inner\r\n\r\n"
    );
}

#[test]
fn the_backend_is_told_who_asked() {
    let all = Forwarded {
        via: Some("gate".to_owned()),
        x_forwarded: true,
        forwarded: true,
        trust_client: true,
    };
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\nx-forwarded-for: 10.0.0.2\r\n\
        X-Forwarded-Proto: https\r\nForwarded: for=b\r\nVia: 1.0 c\r\n\r\n";
    assert_eq!(
        asked(head, &route(), &all).0,
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nVia: 1.0 c\r\n\
         X-Forwarded-For: 10.0.0.1, 10.0.0.2, 192.0.2.7\r\nX-Forwarded-Host: a\r\n\
         Forwarded: for=b, for=192.0.2.7;host=\"a\";proto=http\r\nVia: 1.1 gate\r\n\r\n"
    );
    let wary = Forwarded { trust_client: false, ..all };
    assert_eq!(
        asked(head, &route(), &wary).0,
        "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 c\r\n\
         X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n\
         Forwarded: for=192.0.2.7;host=\"a\";proto=http\r\nVia: 1.1 gate\r\n\r\n"
    );
    assert_eq!(asked(head, &route(), &SILENT).0, "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 c\r\n\r\n");
    // Of a client that is trusted, what is another name goes on.
    let alike = "GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 10.0.0.1\r\n\r\n";
    let trusting = Forwarded { trust_client: true, ..SILENT };
    assert_eq!(asked(alike, &route(), &trusting).0, alike);
    assert_eq!(asked(alike, &route(), &SILENT).0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn another_protocol_is_asked_for_only_where_it_is_safe() {
    let head = |method: &str, protocol: &str, more: &str| {
        format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{more}\r\n"
        )
    };
    let (sent, is_asked) = asked(&head("GET", "websocket", ""), &route(), &SILENT);
    assert!(is_asked.wants_upgrade);
    assert_eq!(
        sent,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    for head in [
        head("GET", "h2c", ""),
        head("GET", "websocket, H2C", ""),
        head("POST", "websocket", ""),
        head("GET", "websocket", "Content-Length: 0\r\n"),
        head("GET", "websocket", "Upgrade: b\r\n"),
        head("GET", "websocket", "").replace("HTTP/1.1", "HTTP/1.0"),
        head("GET", "websocket", "").replace("Connection: Upgrade\r\n", ""),
    ] {
        let (sent, is_asked) = asked(&head, &route(), &SILENT);
        assert!(!is_asked.wants_upgrade && !sent.contains("pgrade"), "{head}");
    }
}

#[test]
fn what_may_be_asked_twice_is_known() {
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
        let (_, asked) = asked(&head, &route(), &SILENT);
        assert_eq!((asked.is_idempotent, asked.is_head), (is_idempotent, is_head), "{method}");
    }
}

/// What the client gets.
fn answered(head: &str, to_head: bool, persistence: Persistence, framing: BodyFraming) -> String {
    let head = parse_answer_head(head.as_bytes(), to_head).unwrap().unwrap();
    let mut out = Vec::new();
    let edits = HeaderEdits::default();
    render_answer(&head, &edits, Some("gate"), None, persistence, framing, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn an_answer_goes_on_in_plain_lines() {
    let head = "HTTP/1.0 200 Fine\nServer: b\nConnection: X-Hop\nX-Hop: 1\nKeep-Alive: 2\n\
        Content-Length: 5, 5\nDate: d\n\n";
    assert_eq!(
        answered(head, false, Persistence::Implied, BodyFraming::Length(5)),
        "HTTP/1.1 200 Fine\r\nServer: b\r\nDate: d\r\nContent-Length: 5\r\nVia: 1.0 gate\r\n\r\n"
    );
    assert_eq!(
        answered(
            "HTTP/1.1 099 \r\n\r\n".replace("099", "200").as_str(),
            false,
            Persistence::Close,
            BodyFraming::UntilClose
        ),
        "HTTP/1.1 200 \r\nVia: 1.1 gate\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(
        answered(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n",
            false,
            Persistence::Stated,
            BodyFraming::Chunked
        ),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nVia: 1.1 gate\r\nConnection: keep-alive\r\n\r\n"
    );
}

#[test]
fn answers_without_a_body_say_how_long_it_would_have_been() {
    for (status, to_head, said) in [
        ("200 OK", true, "Content-Length: 9\r\n"),
        ("304 Not Modified", false, "Content-Length: 9\r\n"),
        ("204 No Content", false, ""),
        ("103 Early Hints", false, ""),
    ] {
        assert_eq!(
            answered(
                &format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n"),
                to_head,
                Persistence::Interim,
                BodyFraming::Empty
            ),
            format!("HTTP/1.1 {status}\r\n{said}Via: 1.1 gate\r\n\r\n")
        );
    }
}

#[test]
fn an_upgrade_names_the_protocol_and_edits_hold_for_answers_too() {
    assert_eq!(
        answered(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            false,
            Persistence::Upgrade,
            BodyFraming::Empty
        ),
        "HTTP/1.1 101 Switching Protocols\r\nVia: 1.1 gate\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\n\r\n"
    );
    // A refusal says which protocol would be answered; other answers are not about that.
    let refusal = |status| {
        format!(
            "HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let length = BodyFraming::Length(0);
    assert_eq!(
        answered(&refusal("426 Upgrade Required"), false, Persistence::Close, length),
        "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\nVia: 1.1 gate\r\nConnection: close\r\n\
         Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert_eq!(
        answered(&refusal("403 Forbidden"), false, Persistence::Implied, length),
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nVia: 1.1 gate\r\n\r\n"
    );
    let edits = HeaderEdits {
        set: vec![("Server".into(), "hidden".into())],
        remove: vec!["x-powered-by".into()],
    };
    let head = b"HTTP/1.1 200 OK\r\nserver: a\r\nX-Powered-By: b\r\nContent-Length: 0\r\n\r\n";
    let head = parse_answer_head(head, false).unwrap().unwrap();
    let mut out = Vec::new();
    let (persistence, framing) = (Persistence::Implied, BodyFraming::Length(0));
    render_answer(&head, &edits, None, None, persistence, framing, &mut out);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: hidden\r\n\r\n");
}

#[test]
fn a_final_answer_that_has_no_date_is_given_the_one_of_now_and_no_other_is() {
    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let none = HeaderEdits::default();
    let removed = HeaderEdits { set: Vec::new(), remove: vec!["date".into()] };
    let set = HeaderEdits { set: vec![("DATE".into(), "s".into())], remove: Vec::new() };
    for (came, edits, said) in [
        ("", &none, format!("Date: {NOW}\r\nVia: 1.1 gate\r\n")),
        ("Dated: d\r\n", &none, format!("Dated: d\r\nDate: {NOW}\r\nVia: 1.1 gate\r\n")),
        ("Connection: Date\r\nDate: d\r\n", &none, format!("Date: {NOW}\r\nVia: 1.1 gate\r\n")),
        ("dATE: d\r\n", &none, "dATE: d\r\nVia: 1.1 gate\r\n".to_owned()),
        ("Date: \r\n", &none, "Date: \r\nVia: 1.1 gate\r\n".to_owned()),
        ("Date: d\r\n", &removed, "Via: 1.1 gate\r\n".to_owned()),
        ("Date: d\r\n", &set, "Via: 1.1 gate\r\nDATE: s\r\n".to_owned()),
    ] {
        let head = format!("HTTP/1.1 204 No Content\r\n{came}\r\n");
        let head = parse_answer_head(head.as_bytes(), false).unwrap().unwrap();
        let (persistence, framing) = (Persistence::Implied, BodyFraming::Empty);
        let mut out = Vec::new();
        let (via, date) = (Some("gate"), Some(NOW));
        let at = render_answer(&head, edits, via, date, persistence, framing, &mut out);
        let text = std::str::from_utf8(&out).unwrap();
        assert_eq!(text, format!("HTTP/1.1 204 No Content\r\n{said}\r\n"), "{came}");
        assert_eq!(at, text.find(NOW), "{came}");
    }
}

//! Peers over HTTP/2.

use super::Scene;
use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::websocket::CONNECT;

#[test]
fn streams_between_http2_peers_are_held_and_blocked() {
    let scene = Scene::over_http2(
        "waf:\n  rules: [rules.conf]\n  response_body: { mime_types: [text/html] }\n",
    );
    let mut client = Http2Peer::connect(scene.gateway.address());
    let form = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", "/a"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    // A client that waits for `100 Continue` gets it from the gateway.
    client.request(1, false, &[&form[..], &[("expect", "100-continue")]].concat());
    assert_eq!(client.wait(1, |received| !received.interim.is_empty()).interim, ["100"]);
    client.data(1, false, b"q=harm");
    client.request(3, false, &form);
    client.data(3, false, b"q=att");
    client.data(3, true, b"ack");
    let blocked = client.response(3);
    assert_eq!(blocked.text(), ("403", "Forbidden\n"));
    // Of the first request only a part has arrived.
    scene.expect_untouched_backend();
    client.data(1, true, b"less");
    let mut upstream = Http2Peer::serve(scene.backend.accept().into_stream());
    upstream.settings(&[]);
    assert_eq!(upstream.wait(1, |received| received.has_ended).body, b"q=harmless");
    let html = [(":status", "200"), ("content-type", "text/html")];
    upstream.respond(1, &html, Some("open"));
    assert_eq!(client.response(1).text(), ("200", "open"));
    client.request(5, true, GET_FIELDS);
    upstream.head(3);
    upstream.request(3, false, &html);
    upstream.data(3, false, b"a sec");
    upstream.round_trip();
    client.round_trip();
    assert!(!client.has_received(5));
    upstream.data(3, true, b"ret");
    assert_eq!(client.response(5).text(), ("403", "Forbidden\n"));
    // Both connections continue.
    client.request(7, true, GET_FIELDS);
    upstream.head(5);
    upstream.respond(5, &html, Some("fine"));
    assert_eq!(client.response(7).text(), ("200", "fine"));
}

#[test]
fn web_sockets_over_http2_are_inspected_as_requests() {
    let scene = Scene::over_http2("waf:\n  rules: [rules.conf]\n");
    let mut client = Http2Peer::connect(scene.gateway.address());
    client.request(1, false, &[CONNECT, &[("x-bad", "1")]].concat());
    assert_eq!(client.response(1).text(), ("406", "Not Acceptable\n"));
    let path = [(":path", "/a?q=attack")];
    let others = CONNECT.iter().filter(|(name, _)| *name != ":path").copied();
    client.request(3, false, &path.into_iter().chain(others).collect::<Vec<_>>());
    assert_eq!(client.response(3).text(), ("403", "Forbidden\n"));
    scene.expect_untouched_backend();
}

#[test]
fn status_of_a_rule_opens_no_tunnel() {
    let scene = Scene::over_http2("waf:\n  rules: [rules.conf]\n");
    let mut client = Http2Peer::connect(scene.gateway.address());
    client.request(1, false, &[CONNECT, &[("x-status", "200")]].concat());
    let blocked = client.response(1);
    assert_eq!((&*blocked.status, blocked.has_ended), ("403", true));
    client.request(3, false, &[CONNECT, &[("x-status", "101")]].concat());
    assert_eq!(client.response(3).text(), ("403", "Forbidden\n"));
    client.request(5, true, &[GET_FIELDS, &[("x-status", "101")]].concat());
    assert_eq!(client.response(5).text(), ("403", "Forbidden\n"));
    client.request(7, true, &[GET_FIELDS, &[("x-status", "102")]].concat());
    let redirect = client.response(7);
    assert_eq!((&*redirect.status, redirect.header("location")), ("302", Some("/login")));
    // Other requests get the status of the rule.
    client.request(9, true, &[GET_FIELDS, &[("x-status", "200")]].concat());
    assert_eq!(client.response(9).text(), ("200", "Blocked\n"));
    scene.expect_untouched_backend();
}

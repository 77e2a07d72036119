//! Forward authentication, in the forms of nginx, Traefik, Caddy and Envoy.

use super::{Scene, read};
use crate::support::http2::Http2Peer;
use crate::support::poll;

const PASSED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n\
                         Content-Length: 10\r\n\r\nForbidden\n";
const INVALID: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain; charset=utf-8\r\n\
                       Content-Length: 72\r\n\r\nThe headers that describe the request are missing, repeated or invalid.\n";

const NGINX: &str = "forward-auth: '127.0.0.1:0', proxy: nginx";
const TRAEFIK: &str = "forward-auth: '127.0.0.1:0', proxy: traefik";

/// A request of nginx's `auth_request`.
fn nginx(method: &str, uri: &str, more: &str) -> String {
    format!(
        "GET /waf HTTP/1.1\r\nX-Original-Method: {method}\r\nX-Original-URI: {uri}\r\nX-Real-IP: 198.51.100.7\r\n\
         Host: shop.example\r\nConnection: keep-alive\r\n{more}\r\n"
    )
}

fn traefik(uri: &str, address: &str, host: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:7423\r\nX-Forwarded-For: {address}\r\nX-Forwarded-Host: {host}\r\n\
         X-Forwarded-Method: POST\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Uri: {uri}\r\n"
    )
}

#[test]
fn nginx_gets_403_for_every_block_and_200_otherwise() {
    let scene = Scene::start(NGINX, "");
    let moved = "HTTP/1.1 403 Forbidden\r\nLocation: https://x.example/new\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 10\r\n\r\nForbidden\n";
    scene.expect(&[
        (&nginx("GET", "/a%2e/b?q=fine", ""), PASSED),
        (&nginx("GET", "/a?q=attack", ""), FORBIDDEN),
        (&nginx("DELETE", "/a", ""), FORBIDDEN),
        (&nginx("GET", "/a", "").replace("198.51.100.7", "192.0.2.1"), FORBIDDEN),
        (&nginx("GET", "/a", "").replace("shop.example", "evil.example"), FORBIDDEN),
        (&nginx("GET", "/old", ""), moved),
        // The body is missing, so the request has none.
        (&nginx("POST", "/a", "Content-Type: application/x-www-form-urlencoded\r\n"), PASSED),
    ]);
}

#[test]
fn nginx_of_version_1_0_gets_a_response_and_the_end() {
    let scene = Scene::start(NGINX, "");
    let request = nginx("GET", "/a?q=attack", "").replace("HTTP/1.1", "HTTP/1.0");
    let mut client = scene.gateway.client();
    client.send(request.replace("keep-alive", "close"));
    let response = client.response().unwrap();
    assert!(
        response.head.starts_with("HTTP/1.1 403 ") && response.head.contains("Connection: close")
    );
    client.expect_closed();
}

#[test]
fn status_of_nginx_can_be_401() {
    let scene = Scene::start(&format!("{NGINX}, waf: {{ block: {{ status: 401 }} }}"), "");
    let expected = "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain; charset=utf-8\r\n\
                    Content-Length: 13\r\n\r\nUnauthorized\n";
    scene.expect(&[(&nginx("GET", "/a?q=attack", ""), expected)]);
}

#[test]
fn incomplete_and_doubled_descriptions_are_refused() {
    let scene = Scene::start(NGINX, "");
    let fine = nginx("GET", "/a", "");
    for (from, to) in [
        ("X-Original-URI: /a\r\n", ""),
        ("X-Original-URI: /a\r\n", "X-Original-URI: \r\n"),
        ("X-Original-Method: GET\r\n", ""),
        ("X-Real-IP: 198.51.100.7\r\n", ""),
        ("X-Real-IP: 198.51.100.7\r\n", "X-Real-IP: somewhere\r\n"),
        // Of two, one is the client's.
        ("X-Original-URI: /a\r\n", "X-Original-URI: /a\r\nx-original-uri: /b\r\n"),
    ] {
        let request = fine.replace(from, to);
        assert_ne!(request, fine);
        scene.expect(&[(&request, INVALID), (&fine, PASSED)]);
    }
}

#[test]
fn traefik_sends_bodies_and_forwards_responses() {
    let scene = Scene::start(TRAEFIK, "");
    let form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 8\r\n\r\n";
    let moved =
        "HTTP/1.1 302 Found\r\nLocation: https://x.example/new\r\nContent-Length: 0\r\n\r\n";
    let not_acceptable = "HTTP/1.1 406 Not Acceptable\r\nContent-Type: text/plain; charset=utf-8\r\n\
                          Content-Length: 15\r\n\r\nNot Acceptable\n";
    let request = |uri: &str, body: &str| traefik(uri, "198.51.100.7", "a") + form + body;
    scene.expect(&[
        (&request("/a", "q=attack"), not_acceptable),
        (&request("/a", "q=benign"), PASSED),
        (&request("/old", "q=benign"), moved),
        (&(traefik("/a", "198.51.100.7", "evil.example") + "\r\n"), FORBIDDEN),
        // The last address is the one that Traefik has seen.
        (&(traefik("/a", "192.0.2.1, 198.51.100.7", "a") + "\r\n"), PASSED),
        (&(traefik("/a", "198.51.100.7, 192.0.2.1", "a") + "\r\n"), FORBIDDEN),
        (&(traefik("/a", "198.51.100.7, [2001:db8::1]:443", "a") + "\r\n"), PASSED),
    ]);
}

#[test]
fn envoy_sends_the_request_itself() {
    let scene = Scene::start("forward-auth: '127.0.0.1:0', proxy: envoy", "");
    let request = |target: &str, body: &str| {
        format!(
            "POST {target} HTTP/1.1\r\nhost: shop.example\r\nx-forwarded-for: 198.51.100.7\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut client = scene.gateway.client();
    for (target, body, status) in [
        ("/a?q=fine", "", "200"),
        ("/a?q=attack", "", "406"),
        ("/a", "q=attack", "406"),
        ("/a", "q=benign", "200"),
        ("http://shop.example/a?q=attack", "", "406"),
    ] {
        client.send(request(target, body));
        assert_eq!(&client.response().unwrap().head[9..12], status, "{target} {body}");
    }
}

#[test]
fn headers_are_configurable_and_requests_may_come_over_http2() {
    let scene =
        Scene::start("forward-auth: '127.0.0.1:0', headers: { uri: X-Uri, method: X-Method }", "");
    let mut client = Http2Peer::connect(scene.gateway.address());
    let head = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/ask")];
    for (stream, uri, body, status) in [
        (1, "/a?q=fine", "q=benign", "200"),
        (3, "/a?q=attack", "", "406"),
        (5, "/a", "q=attack", "406"),
    ] {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let described = [("x-uri", uri), ("x-method", "POST"), form];
        client.request(stream, false, &[&head[..], &described].concat());
        client.data(stream, true, body.as_bytes());
        assert_eq!(client.response(stream).text().0, status, "{uri} {body}");
    }
}

#[test]
fn audit_log_and_metrics_have_the_described_request() {
    let scene = Scene::start(NGINX, "audit_log: { to: audit.json }\n");
    scene.expect(&[(&nginx("GET", "/a?q=attack&password=x", "User-Agent: u\r\n"), FORBIDDEN)]);
    let entry = poll(|| {
        let text = std::fs::read_to_string(scene.folder.path().join("audit.json"));
        let text = text.unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(&text).map_err(|error| error.to_string())
    });
    assert_eq!(entry["client"], "198.51.100.7");
    assert_eq!(
        (&entry["method"], &entry["target"]),
        (&"GET".into(), &"/a?q=attack&password=***".into())
    );
    assert_eq!(entry["version"], "1.1");
    assert_eq!(
        entry["headers"],
        serde_json::json!([["Host", "shop.example"], ["User-Agent", "u"]])
    );
    let route = entry["route"].as_str().unwrap().to_owned();
    assert_eq!(route, "127.0.0.1:0");
    scene.gateway.expect_metric(&format!("waf_blocked_total{{route=\"{route}\"}}"), 1);
}

#[test]
fn connection_of_a_removed_listener_gets_no_verdict() {
    let scene = Scene::start(&format!("{NGINX}, waf: {{ mode: detection-only }}"), "");
    let mut client = scene.gateway.client();
    client.send(nginx("GET", "/a?q=attack", ""));
    client.expect_dated(PASSED);
    // Other rules, on the same listener.
    scene.gateway.reload(read(&scene.folder, NGINX, ""));
    client.send(nginx("GET", "/a?q=attack", ""));
    client.expect_dated(FORBIDDEN);
    let socket = format!("forward-auth: 'unix:{}/s', proxy: nginx", scene.folder.path().display());
    scene.gateway.reload(read(&scene.folder, &socket, ""));
    poll(|| {
        client.send(nginx("GET", "/a?q=fine", ""));
        let response = client.response().unwrap();
        if response.head.starts_with("HTTP/1.1 503 ") { Ok(()) } else { Err(response.head) }
    });
}

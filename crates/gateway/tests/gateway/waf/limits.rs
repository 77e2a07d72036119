//! Bodies beyond the limits, compressed ones, and memory.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{FORBIDDEN, FORM, Scene, post};
use crate::support::{OK, poll};

#[test]
fn body_beyond_its_limit_is_rejected_or_passed_in_part() {
    let limit =
        |action| format!("  request_body: {{ limit_without_files: 8, over_limit: {action} }}\n");
    let scene = Scene::with(&limit("reject"));
    let mut client = scene.client();
    client.send(post(FORM, b"q=1234567"));
    assert_eq!(client.expect_local_response_of(413), 413);
    scene.expect_untouched_backend();
    let mut client = scene.client();
    let chunked = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{chunked}9\r\n123456789\r\n"));
    assert_eq!(client.expect_local_response_of(413), 413);
    scene.expect_untouched_backend();

    let scene = Scene::with(&limit("partial"));
    let mut client = scene.client();
    let request = post(FORM, b"q=1234567&r=attack");
    client.send(&request[..request.len() - 6]);
    let mut upstream = scene.backend.accept();
    upstream.expect(&request[..request.len() - 6]);
    client.send("attack");
    upstream.expect("attack");
    upstream.send(OK);
    client.expect(OK);
    client.send(post(FORM, b"q=attack&r=1"));
    client.expect_dated(FORBIDDEN);
    scene.gateway.expect_metric("waf_partial_total{route=\"*/\"}", 2);
}

#[test]
fn requests_with_more_arguments_than_the_limit_are_rejected_or_inspected_in_part() {
    let form = |count: usize| post(FORM, "a=1&".repeat(count).trim_end_matches('&').as_bytes());
    let json = |count: usize| {
        let body = format!("[{}]", vec!["1"; count].join(","));
        post("Content-Type: application/json\r\n", body.as_bytes())
    };
    let multipart = |count: usize| {
        let part = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n";
        let body = part.repeat(count) + "--b--\r\n";
        post("Content-Type: multipart/form-data; boundary=b\r\n", body.as_bytes())
    };
    // Attributes do not count as arguments.
    let attributes = |count: usize| {
        let body = format!("<a>{}</a>", "<b c='1'/>".repeat(count));
        post("Content-Type: text/xml\r\n", body.as_bytes())
    };
    let query = |count: usize| {
        let query = "a=1&".repeat(count);
        format!("GET /a?{} HTTP/1.1\r\nHost: x\r\n\r\n", query.trim_end_matches('&')).into_bytes()
    };
    for (keys, limit) in [("", 1000), ("  request_body: { arguments_max: 3 }\n", 3)] {
        let scene = Scene::with(keys);
        for request in [form, json, query, multipart].map(|request| request(limit + 1)) {
            let mut client = scene.client();
            client.send(&request);
            assert_eq!(client.expect_local_response_of(413), 413);
        }
        scene.expect_untouched_backend();
        scene.gateway.expect_metric("waf_over_limit_total{route=\"*/\"}", 4);
        let mut client = scene.client();
        let first = form(limit);
        client.send(&first);
        let mut upstream = scene.serve(&first);
        client.expect(OK);
        for request in [json(limit), query(limit), multipart(limit), attributes(limit + 1)] {
            client.send(&request);
            upstream.expect(&request);
            upstream.send(OK);
            client.expect(OK);
        }
    }
    let scene = Scene::with("  request_body: { arguments_max: 2, over_limit: partial }\n");
    let mut client = scene.client();
    client.send(post(FORM, b"q=1&q=attack&q=3"));
    client.expect_dated(FORBIDDEN);
    // A rule that reads the body as it is would see `attack`.
    let passed = post(FORM, b"q=1&q=2&redirect=1");
    client.send(&passed);
    scene.serve(&passed);
    client.expect(OK);
    scene.gateway.expect_metric("waf_partial_total{route=\"*/\"}", 1);
}

#[test]
fn limits_block_nothing_if_the_mode_is_detection_only() {
    let waf = "waf:
  rules: [rules.conf]
  mode: detection-only
  request_body: { limit_without_files: 8, compressed: reject }
limits: { held_body_bytes: 24 }
";
    let scene = Scene::start(waf);
    let mut client = scene.client();
    let long = post(FORM, b"q=1234567");
    client.send(&long);
    let mut upstream = scene.serve(&long);
    client.expect(OK);
    let compressed = post("Content-Encoding: br\r\n", b"q=1234567");
    // Two bodies within the limit exceed the memory.
    let mut other = scene.client();
    other.send(&post(FORM, b"q=12345")[..post(FORM, b"q=12345").len() - 1]);
    scene.gateway.turn();
    for request in [compressed, post(FORM, b"q=12345")] {
        client.send(&request);
        upstream.expect(&request);
        upstream.send(OK);
        client.expect(OK);
    }
}

#[test]
fn memory_for_held_bodies_is_limited() {
    let scene = Scene::start("waf: { rules: [rules.conf] }\nlimits: { held_body_bytes: 200 }\n");
    let mut client = scene.client();
    client.send(&post("", &[b'a'; 99])[..140]);
    scene.gateway.turn();
    let mut other = scene.client();
    other.send(post("", &[b'b'; 99]));
    assert_eq!(other.expect_local_response_of(503), 503);
    scene.expect_untouched_backend();
    scene.gateway.expect_metric("waf_over_limit_total{route=\"*/\"}", 1);
}

#[test]
fn compressed_body_is_inflated_rejected_or_passed() {
    let gzip = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let headers = format!("{FORM}Content-Encoding: gzip\r\n");
    let attack = post(&headers, &gzip(b"q=attack"));
    let harmless = post(&headers, &gzip(b"q=1"));
    let scene = Scene::with("  request_body: { compressed: inflate }\n");
    let mut client = scene.client();
    client.send(&attack);
    client.expect_dated(FORBIDDEN);
    // A bomb, a broken body, and a coding that is not supported.
    for (request, status) in [
        (post(&headers, &gzip(&vec![b'a'; 1 << 20])), 413),
        (post(&headers, b"q=1"), 400),
        (post(&format!("{FORM}Content-Encoding: br\r\n"), b"q=1"), 415),
    ] {
        let mut client = scene.client();
        client.send(request);
        assert_eq!(client.expect_local_response_of(status), status);
    }
    scene.expect_untouched_backend();
    client.send(&harmless);
    let _upstream = scene.serve(&harmless);
    client.expect(OK);

    for settings in ["", "  request_body: { compressed: reject }\n"] {
        let scene = Scene::with(settings);
        let mut client = scene.client();
        client.send(&harmless);
        assert_eq!(client.expect_local_response_of(415), 415);
        scene.expect_untouched_backend();
    }

    let scene = Scene::with("  request_body: { compressed: pass }\n");
    let mut client = scene.client();
    client.send(&attack);
    let _upstream = scene.serve(&attack);
    client.expect(OK);
}

#[test]
fn held_memory_is_free_once_a_client_stops_in_its_body() {
    let request = post("", &[b"attack".as_slice(), &[b'a'; 84]].concat());
    let waf = "waf: { rules: [rules.conf] }\nlimits: { held_body_bytes: 200 }\n";
    // One leaves, one resets, one is silent.
    for end in 0..3 {
        let timeouts = if end == 2 { "timeouts: { body: 300ms }\n" } else { "" };
        let scene = Scene::start(&format!("{waf}{timeouts}"));
        let status = || {
            let mut client = scene.client();
            client.send(&request);
            client.response().unwrap().status
        };
        let mut stopped = scene.client();
        stopped.send(&request[..request.len() - 1]);
        scene.gateway.turn();
        if end < 2 {
            assert_eq!(status(), 503);
        }
        match end {
            0 => stopped.finish(),
            1 => stopped.reset(),
            _ => drop(stopped.expect_local_response(408)),
        }
        // Blocked, as the next body can be held again.
        poll(|| match status() {
            403 => Ok(()),
            other => Err(format!("status {other}")),
        });
    }
}

//! Requests and responses: what is inspected, held, blocked and forwarded.

use super::{FORBIDDEN, FORM, RULES, Scene, post, read};
use crate::smuggling::{Origin, all_requests};
use crate::support::{Backend, DEADLINE, GET, OK, TestGateway, poll};

#[test]
fn blocked_request_reaches_no_backend_and_its_connection_persists() {
    let scene = Scene::with("");
    let mut client = scene.client();
    client.send(GET.replace("/a", "/a?q=ATTACK"));
    client.expect_dated(FORBIDDEN);
    client.send(GET.replace("\r\n\r\n", "\r\nX-Bad: 1\r\n\r\n"));
    client.expect_dated(
        &FORBIDDEN
            .replace("403 Forbidden", "406 Not Acceptable")
            .replace("10\r\n\r\nForbidden", "15\r\n\r\nNot Acceptable"),
    );
    client.send(post(FORM, b"q=attack"));
    client.expect_dated(FORBIDDEN);
    client.send(GET.replace("/a", "/a?redirect=1"));
    client.expect_dated("HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n");
    scene.expect_untouched_backend();
    client.send(GET);
    let _upstream = scene.serve(GET);
    client.expect(OK);
}

#[test]
fn body_is_held_until_its_end_and_forwarded_unchanged() {
    let scene = Scene::with("");
    let mut client = scene.client();
    let request = post(FORM, b"q=harmless");
    let (start, rest) = request.split_at(request.len() - 4);
    client.send(start);
    scene.expect_untouched_backend();
    client.send(rest);
    let mut upstream = scene.serve(&request);
    client.expect(OK);
    let head = format!("POST /a HTTP/1.1\r\nHost: x\r\n{FORM}Transfer-Encoding: chunked\r\n\r\n");
    client.send(format!("{head}3\r\nq=h\r\n"));
    scene.gateway.turn();
    upstream.expect_nothing_yet();
    client.send("3\r\nell\r\n0\r\nX-Trailer: 1\r\n\r\n");
    upstream.expect(format!("{head}3\r\nq=h\r\n3\r\nell\r\n0\r\n\r\n"));
    upstream.send(OK);
    client.expect(OK);
    // The attack is in two chunks.
    client.send(format!("{head}5\r\nq=att\r\n3\r\nack\r\n0\r\n\r\n"));
    client.expect_dated(FORBIDDEN);
    scene.gateway.turn();
    upstream.expect_nothing_yet();
}

#[test]
fn client_that_waits_for_100_continue_gets_it() {
    let scene = Scene::with("");
    let mut client = scene.client();
    let request = post(&format!("{FORM}Expect: 100-continue\r\n"), b"q=1");
    let (head, body) = request.split_at(request.len() - 3);
    client.send(head);
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    scene.expect_untouched_backend();
    client.send(body);
    let _upstream = scene.serve(&request);
    client.expect(OK);
}

#[test]
fn pipelined_requests_are_inspected_one_by_one() {
    let scene = Scene::with("");
    let mut client = scene.client();
    let harmless = post(FORM, b"q=1");
    let attack = GET.replace("/a", "/a?q=attack");
    client.send([&harmless, attack.as_bytes(), GET.as_bytes()].concat());
    let mut upstream = scene.serve(&harmless);
    client.expect(OK);
    client.expect_dated(FORBIDDEN);
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn long_body_is_inspected_on_another_thread() {
    let scene = Scene::with("");
    let mut client = scene.client();
    let words = "word+".repeat(20_000);
    let request = post(FORM, format!("q={words}").as_bytes());
    client.send(&request);
    let mut other = scene.client();
    other.send(GET);
    let mut upstreams = [scene.backend.accept(), scene.backend.accept()];
    // Either may be first.
    for upstream in &mut upstreams {
        let head = upstream.head().unwrap();
        if head.starts_with("POST") {
            upstream.expect(&request[head.len()..]);
        } else {
            assert_eq!(head, GET);
        }
        upstream.send(OK);
    }
    client.expect(OK);
    other.expect(OK);
    client.send(post(FORM, format!("q={words}attack").as_bytes()));
    client.expect_dated(FORBIDDEN);
    // The client leaves while its body is inspected.
    let mut leaving = scene.client();
    leaving.send(post(FORM, format!("q={words}").as_bytes()));
    leaving.reset();
    client.send(GET);
    poll(|| {
        let inspected = scene.gateway.metric("waf_inspected_total{route=\"*/\"}");
        if inspected >= 3 { Ok(()) } else { Err(format!("{inspected} are inspected")) }
    });
}

#[test]
fn response_is_held_and_blocked() {
    let scene = Scene::with("  response_body: { mime_types: [text/plain] }\n");
    let mut client = scene.client();
    let response = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    client.send(GET);
    let mut upstream = scene.backend.accept();
    upstream.expect(GET);
    let harmless = response("a harmless text");
    upstream.send(&harmless[..harmless.len() - 4]);
    scene.gateway.turn();
    client.expect_nothing_yet();
    upstream.send(&harmless[harmless.len() - 4..]);
    client.expect(harmless);
    let long = response(&format!("{}secret", "word ".repeat(4_000)));
    let header = "HTTP/1.1 200 OK\r\nDate: d\r\nX-Leak: 1\r\nContent-Length: 2\r\n\r\nhi";
    // Rules of phase 4 run although the body is not inspected.
    let error =
        "HTTP/1.1 501 No\r\nDate: d\r\nContent-Type: image/png\r\nContent-Length: 2\r\n\r\nhi";
    // While the long one is inspected, its connection serves others already.
    for (blocked, keeps) in
        [(response("a secret"), false), (long, true), (header.into(), false), (error.into(), false)]
    {
        client.send(GET);
        upstream.expect(GET);
        upstream.send(blocked);
        client.expect_dated(FORBIDDEN);
        client.send(GET);
        if keeps {
            upstream.expect(GET);
            upstream.send(OK);
        } else {
            upstream = scene.serve(GET);
        }
        client.expect(OK);
    }
    // A type that is not inspected is not held.
    client.send(GET);
    upstream.expect(GET);
    let start =
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: image/png\r\nContent-Length: 7\r\n\r\nsec";
    upstream.send(start);
    client.expect(start);
    upstream.send("ret.");
    client.expect("ret.");
    // A response that breaks off while it is held.
    client.send(GET);
    upstream.expect(GET);
    upstream.send(&response("harmless")[..75]);
    upstream.finish();
    client.expect_local_response(502);
}

#[test]
fn response_before_the_request_body_is_read_reaches_the_client() {
    let early = "HTTP/1.1 413 No\r\nDate: d\r\nContent-Length: 2\r\n\r\nno";
    // The whole body is inspected, and the backend reads only its head.
    let scene = Scene::with("  request_body: { limit_without_files: 4000000 }\n");
    let mut client = scene.client();
    let request = post(FORM, format!("q={}", "word+".repeat(600_000)).as_bytes());
    client.send(&request);
    let mut upstream = scene.backend.accept();
    let head = upstream.head().unwrap();
    assert!(head.starts_with("POST"));
    upstream.send(early);
    let response = client.response().unwrap();
    assert!(response.head.starts_with("HTTP/1.1 413 No\r\n"), "{}", response.head);
    drop((client, upstream));
    let mut client = scene.client();
    client.send(GET);
    let _next = scene.serve(GET);
    client.expect(OK);
    // The rest of a body beyond the limit is streamed, when the response comes.
    let scene = Scene::with("  request_body: { limit_without_files: 8, over_limit: partial }\n");
    let mut client = scene.client();
    let request = post(FORM, b"q=123456789");
    client.send(&request[..request.len() - 1]);
    let mut upstream = scene.backend.accept();
    upstream.expect(&request[..request.len() - 1]);
    upstream.send(early);
    client.expect("HTTP/1.1 413 No\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    upstream.expect_closed();
}

/// Requests of the smuggling table whose verdict the firewall changes, with the reason.
const INSPECTED_DIFFERENTLY: [&str; 3] = [
    // 415: what it contains cannot be inspected.
    "Content-Encoding: chunked",
    // Not forwarded, since it is not inspected.
    "a trailer",
    // 400 before the backend has received anything of it.
    "a size of 2^32 + 5 with five bytes of data",
];

#[test]
fn every_ambiguous_request_is_rejected_or_forwarded_as_without_a_firewall() {
    let mut origin = Origin::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.conf"), RULES).unwrap();
    let backend = Backend::start();
    let mut config = read(folder.path(), &backend, "waf: { rules: [rules.conf] }\n");
    config.pools[0].backends = crate::support::config_backends(&[origin.addr()]);
    let gateway = TestGateway::on_unix_socket(config);
    let failures: Vec<_> = all_requests()
        .filter(|case| !INSPECTED_DIFFERENTLY.contains(&case.name))
        .filter_map(|case| {
            let exchange = origin.exchange(case, gateway.address(), DEADLINE);
            (!exchange.is_as_expected(case))
                .then(|| format!("{} ({}): {exchange:#?}", case.name, case.rule))
        })
        .collect();
    assert!(failures.is_empty(), "{} requests failed:\n{}", failures.len(), failures.join("\n"));
}

//! The order of phases, and transactions that wait for the helper thread.

use super::{FORM, Scene, post, read};
use crate::support::http2::{CANCEL, GET_FIELDS, Http2Peer};
use crate::support::{GET, OK, TestGateway, poll};

/// One rule of each phase, which matches every message, on a response of any type.
const PHASES: &str = r#"
SecResponseBodyMimeType text/plain
SecResponseBodyAccess On
SecRule REQUEST_METHOD "@rx ." "id:11,phase:1,pass,log"
SecRule REQUEST_BODY|REQUEST_METHOD "@rx ." "id:12,phase:2,pass,log"
SecRule RESPONSE_STATUS "@rx ." "id:13,phase:3,pass,log"
SecRule RESPONSE_BODY|RESPONSE_STATUS "@rx ." "id:14,phase:4,pass,log"
SecRule RESPONSE_STATUS "@rx ." "id:15,phase:5,pass,log"
"#;

#[test]
fn transaction_passes_all_phases_in_order_and_unchanged() {
    let scene = Scene::start("");
    std::fs::write(scene.folder.path().join("phases.conf"), PHASES).unwrap();
    let scene = Scene::in_folder(
        scene.folder,
        "waf: { rules: [phases.conf] }\naudit_log: { to: audit.json, include: all }\n",
    );
    let mut client = scene.client();
    let request = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    client.send(request);
    let mut upstream = scene.backend.accept();
    upstream.expect(request);
    let response =
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi";
    upstream.send(response);
    client.expect(response);
    // Messages without a body, too.
    for _ in 0..2 {
        client.send(GET);
        upstream.expect(GET);
        upstream.send("HTTP/1.1 204 No\r\nDate: d\r\n\r\n");
        client.expect("HTTP/1.1 204 No\r\nDate: d\r\n\r\n");
    }
    scene.gateway.drain();
    drop(client);
    scene.gateway.join();
    let audit = scene.audit();
    let [post, get, last] = &audit[..] else { panic!("{audit:?}") };
    let rules = |entry: &serde_json::Value| {
        let mut rules: Vec<u64> = Vec::new();
        for found in entry["matches"].as_array().unwrap() {
            rules.push(found["rule"].as_u64().unwrap());
        }
        rules.dedup();
        rules
    };
    for (entry, status, sizes) in [(post, 200, [3, 2]), (get, 204, [0, 0]), (last, 204, [0, 0])] {
        assert_eq!(rules(entry), [11, 12, 13, 14, 15], "{entry}");
        assert_eq!(entry["status"], status);
        assert_eq!([&entry["request_body_bytes"], &entry["response_body_bytes"]], sizes);
    }
    assert_ne!(get["id"], last["id"]);
}

#[test]
fn streams_wait_for_the_helper_one_by_one() {
    let Scene { folder, backend, .. } = Scene::with("");
    let mut config = read(folder.path(), &backend, "waf: { rules: [rules.conf] }\n");
    config.listeners[0].http2 = true;
    let gateway = TestGateway::start(&config);
    let scene = Scene { gateway, backend, folder };
    let mut client = Http2Peer::connect(scene.gateway.address());
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", "/a"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let body = |word: &str| format!("q={}{word}", "word+".repeat(4_000));
    // A stream that waits delays no other one.
    client.request(1, false, &fields);
    client.data(1, false, &body("").as_bytes()[..10_000]);
    client.data(1, false, &body("").as_bytes()[10_000..]);
    client.data(1, true, b"attack");
    client.request(3, true, GET_FIELDS);
    let mut upstream = scene.serve(GET);
    assert_eq!(client.response(3).text(), ("200", "hi"));
    assert_eq!(client.response(1).text(), ("403", "Forbidden\n"));
    // Its client resets it while it waits, or before.
    client.request(5, false, &fields);
    client.data(5, false, &body("").as_bytes()[..10_000]);
    client.data(5, true, b"");
    client.reset(5, CANCEL);
    poll(|| {
        let inspected = scene.gateway.metric("waf_inspected_total{route=\"*/\"}");
        if inspected == 3 { Ok(()) } else { Err(format!("{inspected} are inspected")) }
    });
    client.request(7, true, GET_FIELDS);
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(7).text(), ("200", "hi"));
}

#[test]
fn rest_of_a_response_beyond_the_limit_is_not_inspected() {
    let scene = Scene::with(
        "  response_body: { mime_types: [text/plain], limit: 8, over_limit: partial }\n",
    );
    let mut client = scene.client();
    let request = post(FORM, b"q=1");
    client.send(&request);
    let mut upstream = scene.backend.accept();
    upstream.expect(&request);
    let start =
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/plain\r\nContent-Length: 15\r\n\r\n";
    upstream.send(format!("{start}1234567"));
    scene.gateway.turn();
    client.expect_nothing_yet();
    upstream.send("89");
    client.expect(format!("{start}123456789"));
    upstream.send("secret");
    client.expect("secret");
}

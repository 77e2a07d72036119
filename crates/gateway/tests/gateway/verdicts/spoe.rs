//! HAProxy's SPOE, with frames that share no code with the gateway.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tollgate_gateway::Config;

use super::{Scene, read};
use crate::support::{Peer, TestGateway, poll};

const RULES: &str = r#"
SecRequestBodyAccess On
SecResponseBodyAccess On
SecResponseBodyMimeType text/plain
SecRule ARGS:noted "@unconditionalMatch" "id:2,phase:2,pass,log"
SecRule ARGS "@contains attack" "id:1,phase:2,deny,status:406,log,setvar:tx.blocking_inbound_anomaly_score=5"
SecRule REQUEST_URI "@beginsWith /old" "id:3,phase:1,redirect:https://x.example/new,log"
SecRule REQUEST_URI "@beginsWith /drop" "id:4,phase:1,drop,log"
SecRule REMOTE_ADDR "@ipMatch 192.0.2.0/24" "id:5,phase:1,deny,log,chain"
    SecRule REMOTE_PORT "@eq 1000" "chain"
        SecRule SERVER_ADDR "@streq 203.0.113.1" "chain"
            SecRule SERVER_PORT "@eq 8080" "chain"
                SecRule REQUEST_PROTOCOL "@streq HTTP/2.0"
SecRule RESPONSE_BODY "@contains leak" "id:6,phase:4,deny,status:502,log"
SecRule RESPONSE_STATUS "@streq 500" "id:7,phase:3,deny,status:503,log"
"#;

const SPOE: &str = "spoe: '127.0.0.1:0'";

/// HELLO of HAProxy 2.6, whose buffers have 16 KiB.
const HELLO: &[u8] =
    b"\x00\x00\x00\x81\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x032.0\
    \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x10pipelining,async\
    \x09engine-id\x08$077d4668-de67-4002-9783-42cfce2b0e4b";

const AGENT_HELLO: &[u8] = b"\x00\x00\x00\x40\x65\x00\x00\x00\x01\x00\x00\x07version\x08\x032.0\
    \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x0apipelining";

const HEALTH_CHECK: &[u8] =
    b"\x00\x00\x00N\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x032.0\
    \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x00\x0bhealthcheck\x11";

/// An integer below 264,432 (SPOE.txt, section 3.1).
fn varint(value: usize) -> Vec<u8> {
    match value {
        0..240 => vec![value as u8],
        240..2288 => vec![0xf0 | value as u8, ((value - 240) >> 4) as u8],
        _ => {
            let rest = (value - 240) >> 4;
            vec![0xf0 | value as u8, 0x80 | rest as u8, ((rest - 128) >> 7) as u8]
        }
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len())[..], bytes].concat()
}

/// An argument with the bytes of its value.
type Argument<'a> = (&'a str, &'a [u8]);

fn argument_text(value: &[u8]) -> Vec<u8> {
    [b"\x08", &text(value)[..]].concat()
}

/// A NOTIFY with one message.
fn notify(stream: u8, name: &str, arguments: &[Argument<'_>]) -> Vec<u8> {
    let mut frame = b"\x03\x00\x00\x00\x01".to_vec();
    frame.extend([stream, 1]);
    frame.extend(text(name.as_bytes()));
    frame.push(arguments.len() as u8);
    for (name, value) in arguments {
        frame.extend(text(name.as_bytes()));
        frame.extend_from_slice(value);
    }
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

/// A request as coraza.cfg describes it, with more arguments.
fn request(stream: u8, query: &str, body: &str, more: &[Argument<'_>]) -> Vec<u8> {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let headers = if body.is_empty() {
        "host: a\r\n\r\n".to_owned()
    } else {
        let form = "application/x-www-form-urlencoded";
        format!("host: a\r\ncontent-type: {form}\r\ncontent-length: {}\r\n\r\n", body.len())
    };
    let (method, query) = (argument_text(method.as_bytes()), argument_text(query.as_bytes()));
    let (path, version) = (argument_text(b"/a"), argument_text(b"1.1"));
    let (headers, body) = (argument_text(headers.as_bytes()), argument_text(body.as_bytes()));
    let mut arguments: Vec<Argument<'_>> = vec![
        ("app", b"\x08\x01a"),
        ("method", &method),
        ("path", &path),
        ("query", &query),
        ("version", &version),
        ("headers", &headers),
        ("body", &body),
    ];
    for (name, value) in more {
        arguments.retain(|(other, _)| other != name);
        arguments.push((name, value));
    }
    notify(stream, "coraza-req", &arguments)
}

/// A response with the value of its identifier.
fn response(stream: u8, id: &str, status: u8, body: &str, more: &[Argument<'_>]) -> Vec<u8> {
    let (id, body) = (argument_text(id.as_bytes()), argument_text(body.as_bytes()));
    let status = [b"\x04", &varint(200 + usize::from(status))[..]].concat();
    let headers = argument_text(b"content-type: text/plain\r\n\r\n");
    let mut arguments: Vec<Argument<'_>> = vec![
        ("app", b"\x08\x01a"),
        ("id", &id),
        ("version", b"\x08\x031.1"),
        ("status", &status),
        ("headers", &headers),
        ("body", &body),
        ("body-complete", b"\x11"),
    ];
    arguments.extend_from_slice(more);
    notify(stream, "coraza-res", &arguments)
}

/// HAProxy's side of a connection.
struct HaProxy(Peer);

/// Variables of an ACK, as text.
type Variables = BTreeMap<String, String>;

impl HaProxy {
    fn connect(scene: &Scene) -> Self {
        Self::connect_to(&scene.gateway)
    }

    fn connect_to(gateway: &TestGateway) -> Self {
        let mut peer = gateway.client();
        peer.send(HELLO);
        peer.expect(AGENT_HELLO);
        Self(peer)
    }

    fn frame(&mut self) -> Vec<u8> {
        let length = self.0.read(4);
        let length = u32::from_be_bytes(length.try_into().unwrap());
        self.0.read(length as usize)
    }

    /// Reads an ACK: its stream and variables.
    fn acknowledgement(&mut self) -> (u8, Variables) {
        let frame = self.frame();
        let (head, mut rest) = frame.split_at(7);
        assert_eq!((&head[..5], head[6]), (&b"\x67\x00\x00\x00\x01"[..], 1), "{frame:?}");
        let mut variables = Variables::new();
        while !rest.is_empty() {
            assert_eq!(&rest[..3], b"\x01\x03\x02", "sets a variable of the transaction");
            let (name, after) = rest[4..].split_at(rest[3].into());
            let (kind, after) = after.split_first().unwrap();
            let (number, after) = number(after);
            let (value, after) = match kind {
                8 => {
                    let (value, after) = after.split_at(number as usize);
                    (String::from_utf8(value.to_vec()).unwrap(), after)
                }
                4 => (number.to_string(), after),
                kind => panic!("value of type {kind}"),
            };
            variables.insert(String::from_utf8(name.to_vec()).unwrap(), value);
            rest = after;
        }
        (head[5], variables)
    }

    /// Sends a message and returns the variables in its answer.
    fn ask(&mut self, message: &[u8]) -> Variables {
        self.0.send(message);
        self.acknowledgement().1
    }
}

/// An integer at the start of `bytes`, and the rest.
fn number(bytes: &[u8]) -> (u64, &[u8]) {
    let mut value = u64::from(bytes[0]);
    let mut used = 1;
    if bytes[0] >= 240 {
        loop {
            let byte = u64::from(bytes[used]);
            value += byte << (4 + 7 * (used - 1));
            used += 1;
            if byte < 128 {
                break;
            }
        }
    }
    (value, &bytes[used..])
}

/// The variables but for the identifier, as `name=value` by name.
fn decided(variables: &Variables) -> String {
    let mut text = String::new();
    for (name, value) in variables.iter().filter(|(name, _)| *name != "id") {
        write!(text, "{name}={value} ").unwrap();
    }
    text.trim_end().to_owned()
}

const DENIED: &str = "action=deny ruleid=1 status=406";
const FAILED: &str = "action=deny ruleid=0 status=503";

#[test]
fn requests_pass_or_are_denied_dropped_or_redirected() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let mut haproxy = HaProxy::connect(&scene);
    let drop: Argument<'_> = ("path", b"\x08\x05/drop");
    let old: Argument<'_> = ("path", b"\x08\x04/old");
    let moved = "action=redirect data=https://x.example/new ruleid=3 status=302";
    for (message, expected) in [
        (request(1, "q=fine", "", &[]), ""),
        (request(2, "q=attack", "", &[]), DENIED),
        (request(3, "", "q=attack", &[]), DENIED),
        (request(4, "", "q=fine", &[]), ""),
        (request(5, "", "", &[drop]), "action=drop ruleid=4 status=403"),
        (request(6, "", "", &[old]), moved),
    ] {
        let stream = message[9];
        haproxy.0.send(&message);
        let (answered, variables) = haproxy.acknowledgement();
        assert_eq!((answered, &*decided(&variables)), (stream, expected));
        assert_eq!(variables["id"].len(), 24);
    }
    for (answer, count) in [("passed", 2), ("denied", 2), ("dropped", 1), ("redirected", 1)] {
        scene.gateway.expect_metric(&format!("spoe_messages_total{{answer=\"{answer}\"}}"), count);
    }
    scene.gateway.expect_metric("waf_blocked_total{route=\"127.0.0.1:0\"}", 4);
}

#[test]
fn rules_see_addresses_ports_version_and_the_identifier_of_haproxy() {
    let scene = Scene::with_rules(RULES, SPOE, "audit_log: { to: audit.json }\n");
    let mut haproxy = HaProxy::connect(&scene);
    let described: [Argument<'_>; 6] = [
        ("src-ip", b"\x06\xc0\x00\x02\x07"),
        // 1000 = 0xf8 + (0x2f << 4), and 8080 = 0xf0 + (0xea << 4) + (0x02 << 11).
        ("src-port", b"\x04\xf8\x2f"),
        ("dst-ip", b"\x06\xcb\x00\x71\x01"),
        ("dst-port", b"\x04\xf0\xea\x02"),
        ("version", b"\x08\x032.0"),
        ("id", b"\x08\x04id-1"),
    ];
    let variables = haproxy.ask(&request(1, "a=b", "", &described));
    assert_eq!(decided(&variables), "action=deny ruleid=5 status=403");
    assert_eq!(variables["id"], "id-1");
    let entry = audit_entry(&scene);
    assert_eq!((&entry["id"], &entry["client"]), (&"id-1".into(), &"192.0.2.7".into()));
    assert_eq!((&entry["target"], &entry["version"]), (&"/a?a=b".into(), &"2.0".into()));
    assert_eq!(entry["headers"], serde_json::json!([["host", "a"]]));
}

#[test]
fn rules_that_matched_are_named_where_that_is_asked_for() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let mut haproxy = HaProxy::connect(&scene);
    let exports: Argument<'_> = ("exportRuleIDs", b"\x11");
    let variables = haproxy.ask(&request(1, "noted=1&q=attack", "", &[exports]));
    let expected = "action=deny anomaly_score=5 rule_ids=2,1 ruleid=1 rules_hit=2 status=406";
    assert_eq!(decided(&variables), expected);
    let variables = haproxy.ask(&request(2, "noted=1", "", &[exports]));
    assert_eq!(decided(&variables), "anomaly_score=0 rule_ids=2 rules_hit=1");
}

#[test]
fn health_check_is_answered_and_the_connection_closed() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let mut peer = scene.gateway.client();
    peer.send(HEALTH_CHECK);
    let expected = b"\x00\x00\x00\x36\x65\x00\x00\x00\x01\x00\x00\x07version\x08\x032.0\
        \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x00";
    peer.expect_to_end(expected);
}

#[test]
fn frames_in_single_bytes_are_answered() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let mut peer = scene.gateway.client();
    for byte in [HELLO, &request(1, "q=attack", "", &[])].concat() {
        peer.send([byte]);
        scene.gateway.turn();
    }
    peer.expect(AGENT_HELLO);
    let mut haproxy = HaProxy(peer);
    assert_eq!(decided(&haproxy.acknowledgement().1), DENIED);
}

/// Rules that take some milliseconds for a long argument.
fn slow_rules() -> String {
    let mut rules = RULES.to_owned();
    // Backtracks from each `x`, up to the limit of the engine.
    for id in 101..110 {
        let count = id - 100;
        writeln!(rules, r#"SecRule ARGS "@rx (x+)\1[^x]{{{count}}}" "id:{id},phase:2,deny""#)
            .unwrap();
    }
    rules
}

/// A message whose inspection is long.
fn long_request(stream: u8, more: &str) -> Vec<u8> {
    request(stream, "", &format!("q={}{more}", "x".repeat(14_000)), &[])
}

#[test]
fn short_message_is_answered_before_long_ones() {
    let scene = Scene::with_rules(&slow_rules(), &format!("{SPOE}, budget: 30s"), "");
    let mut haproxy = HaProxy::connect(&scene);
    let mut messages: Vec<u8> = (0..50).flat_map(|stream| long_request(stream, "")).collect();
    messages.extend(long_request(50, "&q=attack"));
    messages.extend(request(51, "q=attack", "", &[]));
    haproxy.0.send(messages);
    let answers: Vec<_> = (0..52).map(|_| haproxy.acknowledgement()).collect();
    let place = |stream| answers.iter().position(|answer| answer.0 == stream).unwrap();
    assert!(place(51) < place(50), "it does not wait for the helper thread");
    for (stream, variables) in &answers {
        assert_eq!(decided(variables), if *stream < 50 { "" } else { DENIED });
    }
}

#[test]
fn truncated_body_is_denied_unless_the_configuration_says_otherwise() {
    let chunked = argument_text(
        b"content-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    let chunked: Argument<'_> = ("headers", &chunked);
    let larger: Argument<'_> = ("body-size", b"\x04\x64");
    let complete: Argument<'_> = ("body-complete", b"\x11");
    let incomplete: Argument<'_> = ("body-complete", b"\x01");
    let over = "action=deny ruleid=0 status=413";
    let partial = "waf: { request_body: { over_limit: partial } }";
    for (more, expected) in [("", over), (partial, "")] {
        let scene = Scene::with_rules(RULES, &format!("{SPOE}, {more}"), "");
        let mut haproxy = HaProxy::connect(&scene);
        for (stream, (arguments, expected)) in [
            (&[larger][..], expected),
            (&[incomplete], expected),
            (&[chunked, incomplete], expected),
            (&[chunked], expected),
            (&[chunked, complete], ""),
            (&[], ""),
        ]
        .into_iter()
        .enumerate()
        {
            let variables = haproxy.ask(&request(stream as u8, "", "q=fine", arguments));
            assert_eq!(decided(&variables), expected, "{arguments:?} {more}");
        }
        let incomplete = "spoe_incomplete_bodies_total";
        scene.gateway.expect_metric(&format!("{incomplete}{{extent=\"truncated\"}}"), 3);
        scene.gateway.expect_metric(&format!("{incomplete}{{extent=\"unknown\"}}"), 1);
        scene.gateway.expect_metric("waf_partial_total{route=\"127.0.0.1:0\"}", 4);
    }
}

#[test]
fn message_that_cannot_be_inspected_is_answered_as_configured() {
    for (late, expected) in [("", FAILED), (", late: pass", "")] {
        let scene = Scene::with_rules(RULES, &format!("{SPOE}{late}"), "");
        let mut haproxy = HaProxy::connect(&scene);
        let unknown = notify(1, "coraza-request", &[]);
        let no_method: Argument<'_> = ("method", b"\x00");
        let bad_version: Argument<'_> = ("version", b"\x08\x03abc");
        let bad_header: Argument<'_> = ("headers", b"\x08\x04: b\n");
        for message in [
            unknown,
            request(2, "", "", &[no_method]),
            request(3, "", "", &[bad_version]),
            request(4, "", "", &[bad_header]),
        ] {
            assert_eq!(decided(&haproxy.ask(&message)), expected);
        }
        assert_eq!(decided(&haproxy.ask(&response(5, "id", 0, "", &[]))), expected);
        scene.gateway.expect_metric("spoe_messages_total{answer=\"invalid\"}", 4);
        scene.gateway.expect_metric("spoe_messages_total{answer=\"unknown-id\"}", 1);
        // Rules inspect requests of nonexistent versions, too.
        for version in [&b"\x08\x031.1"[..], b"\x08\x034.0", b"\x08\x030.9"] {
            let attack = request(6, "q=attack", "", &[("version", version)]);
            assert_eq!(decided(&haproxy.ask(&attack)), DENIED);
        }
    }
}

#[test]
fn late_verdict_is_answered_as_configured() {
    for (late, expected) in [("", FAILED), (", late: pass", "")] {
        let listener = format!("{SPOE}, budget: 1ms{late}");
        let scene = Scene::with_rules(&slow_rules(), &listener, "");
        let mut haproxy = HaProxy::connect(&scene);
        // Later messages wait for the earlier ones.
        let messages: Vec<u8> = (0..100).flat_map(|stream| long_request(stream, "")).collect();
        haproxy.0.send(messages);
        let answers: Vec<_> = (0..100).map(|_| decided(&haproxy.acknowledgement().1)).collect();
        assert_eq!(answers.last().map(String::as_str), Some(expected));
        let passed = answers.iter().filter(|answer| answer.is_empty()).count() as u64;
        let late = scene.gateway.metric("spoe_messages_total{answer=\"late\"}");
        assert!(late > 0 && (passed + late == 100 || expected.is_empty()), "{passed} {late}");
        scene.gateway.expect_metric("waf_inspected_total{route=\"127.0.0.1:0\"}", 100);
    }
}

#[test]
fn response_is_inspected_with_its_request_on_another_connection() {
    let listener = format!("{SPOE}, responses: {{}}");
    let scene = Scene::with_rules(RULES, &listener, "threads: 2\n");
    let mut haproxies: Vec<_> = (0..8).map(|_| HaProxy::connect(&scene)).collect();
    let leak = "action=deny ruleid=6 status=502";
    for at in 0..haproxies.len() {
        let variables = haproxies[at].ask(&request(1, "", "", &[]));
        let id = &variables["id"];
        let other = &mut haproxies[(at + 3) % 8];
        let detects: Argument<'_> = ("detect-only", b"\x11");
        let (message, expected) = match at % 4 {
            0 => (response(2, id, 0, "a leak", &[]), leak),
            1 => (response(2, id, 0, "fine", &[]), ""),
            2 => (response(2, id, 44, "", &[]), ""),
            _ => (response(2, id, 0, "a leak", &[detects]), ""),
        };
        assert_eq!(decided(&other.ask(&message)), expected, "{at}");
        assert_eq!(decided(&other.ask(&message)), FAILED, "the request waits no more");
    }
    let variables = haproxies[0].ask(&request(1, "q=attack", "", &[]));
    assert_eq!(decided(&haproxies[0].ask(&response(2, &variables["id"], 0, "", &[]))), FAILED);
    scene.gateway.expect_metric("spoe_messages_total{answer=\"detected\"}", 2);
    scene.gateway.expect_metric("spoe_messages_total{answer=\"unknown-id\"}", 9);
    scene.gateway.expect_metric("spoe_waiting_requests", 0);
    scene.gateway.expect_metric("waf_inspected_total{route=\"127.0.0.1:0\"}", 9);
}

#[test]
fn requests_wait_for_their_responses_in_limited_number_and_time() {
    let listener = format!("{SPOE}, responses: {{ max: 2, timeout: 50ms }}");
    let scene = Scene::with_rules(RULES, &listener, "");
    let mut haproxy = HaProxy::connect(&scene);
    let ids = ["a", "b", "b", "c"].map(|id| {
        let value = argument_text(id.as_bytes());
        haproxy.ask(&request(1, "", "", &[("id", &value)]))["id"].clone()
    });
    assert_eq!(ids, ["a", "b", "b", "c"]);
    scene.gateway.expect_metric("spoe_evicted_requests_total", 2);
    scene.gateway.expect_metric("spoe_expired_requests_total", 2);
    scene.gateway.expect_metric("spoe_waiting_requests", 0);
    scene.gateway.expect_metric("waf_inspected_total{route=\"127.0.0.1:0\"}", 4);
    assert_eq!(decided(&haproxy.ask(&response(2, "c", 0, "", &[]))), FAILED);
}

#[test]
fn log_has_the_bytes_of_both_messages() {
    let listener = format!("{SPOE}, responses: {{}}");
    let scene = Scene::with_rules(RULES, &listener, "audit_log: { to: audit.json }\n");
    let mut haproxy = HaProxy::connect(&scene);
    let id = haproxy.ask(&request(1, "", "q=fine", &[]))["id"].clone();
    haproxy.ask(&response(2, &id, 0, "a leak", &[]));
    let entry = audit_entry(&scene);
    let bytes = ["request_body_bytes", "response_body_bytes"].map(|name| entry[name].as_u64());
    assert_eq!((bytes, &entry["status"]), ([Some(6), Some(6)], &502.into()));
}

/// The only entry of the audit log, once it is written.
fn audit_entry(scene: &Scene) -> serde_json::Value {
    poll(|| {
        let text = std::fs::read_to_string(scene.folder.path().join("audit.json"));
        serde_json::from_str(&text.unwrap_or_default()).map_err(|error| error.to_string())
    })
}

#[test]
fn error_of_the_peer_ends_its_connection_with_a_code() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let mut haproxy = HaProxy::connect(&scene);
    haproxy.0.send(b"\x7f\xff\xff\xff");
    let expected = b"\x66\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03\x03\x07message\x08\x1fframe is longer than negotiated";
    assert_eq!(haproxy.frame(), expected);
    haproxy.0.expect_closed();
    let mut peer = scene.gateway.client();
    peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // "GET " is a length.
    assert_eq!(HaProxy(peer).frame(), expected);
    scene.gateway.expect_metric("spoe_connection_errors_total", 2);
}

#[test]
fn disconnect_is_answered_and_what_was_inspected_is_logged() {
    let scene = Scene::with_rules(&slow_rules(), SPOE, "");
    let mut haproxy = HaProxy::connect(&scene);
    let long = format!("q={}", "x".repeat(14_000));
    haproxy.0.send(request(1, "", &long, &[]));
    haproxy.0.send(
        b"\x00\x00\x00\x1f\x02\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03\x00\x07message\x08\x00",
    );
    let frames = haproxy.0.read_to_close();
    let normal =
        b"\x00\x00\x00\x1f\x66\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03\x00\x07message\x08\x00";
    assert!(frames.ends_with(normal), "{}", frames.escape_ascii());
    scene.gateway.expect_metric("waf_inspected_total{route=\"127.0.0.1:0\"}", 1);
}

#[test]
fn peer_that_does_not_read_gets_all_answers_later() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let mut haproxy = HaProxy::connect(&scene);
    // Answers are as long as the identifier.
    let id = argument_text(&[b'a'; 8000]);
    let message = request(1, "q=fine", "", &[("id", &id)]);
    let messages = message.repeat(4_000);
    let sent = haproxy.0.send_until_blocked(&messages);
    assert!(sent < messages.len(), "the gateway stops reading");
    let whole = sent / message.len();
    for _ in 0..whole {
        haproxy.acknowledgement();
    }
    haproxy.0.send(&message[sent % message.len()..]);
    haproxy.acknowledgement();
    assert_eq!(decided(&haproxy.ask(&request(2, "q=attack", "", &[]))), DENIED);
}

#[test]
fn incomplete_handshake_and_frame_time_out() {
    let scene = Scene::with_rules(RULES, SPOE, "timeouts: { header: 50ms }\n");
    let timeout =
        b"\x66\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03\x02\x07message\x08\x12a timeout occurred";
    let mut silent = HaProxy(scene.gateway.client());
    assert_eq!(silent.frame(), timeout);
    silent.0.expect_closed();
    let mut haproxy = HaProxy::connect(&scene);
    haproxy.0.send(&request(1, "q=fine", "", &[])[..20]);
    assert_eq!(haproxy.frame(), timeout);
    haproxy.0.expect_closed();
}

#[test]
fn connections_end_when_the_gateway_drains_or_removes_the_listener() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let stops =
        b"\x66\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03\x00\x07message\x08\x0fthe agent stops";
    let mut haproxy = HaProxy::connect(&scene);
    assert_eq!(decided(&haproxy.ask(&request(1, "q=attack", "", &[]))), DENIED);
    // Other rules, on the same listener.
    let detects = format!("{SPOE}, waf: {{ mode: detection-only }}");
    scene.gateway.reload(read(&scene.folder, &detects, ""));
    assert_eq!(decided(&haproxy.ask(&request(2, "q=attack", "", &[]))), "");
    let socket = format!("spoe: 'unix:{}/s'", scene.folder.path().display());
    scene.gateway.reload(read(&scene.folder, &socket, ""));
    haproxy.0.send(request(3, "q=fine", "", &[]));
    let mut frame = haproxy.frame();
    if frame[0] == 103 {
        frame = haproxy.frame();
    }
    assert_eq!(frame, stops);
    let address = scene.gateway.addresses()[0].clone();
    let mut peer = Peer::connect(&address);
    peer.send(HELLO);
    peer.expect(AGENT_HELLO);
    let mut haproxy = HaProxy(peer);
    assert_eq!(decided(&haproxy.ask(&request(1, "q=attack", "", &[]))), DENIED);
    scene.gateway.drain();
    assert_eq!(haproxy.frame(), stops);
    haproxy.0.expect_closed();
    scene.gateway.join();
}

#[test]
fn a_thousand_connections_are_answered() {
    let scene = Scene::with_rules(RULES, SPOE, "");
    let mut haproxies: Vec<_> = (0..1000).map(|_| HaProxy::connect(&scene)).collect();
    for haproxy in &mut haproxies {
        haproxy.0.send([request(1, "q=attack", "", &[]), request(2, "", "", &[])].concat());
    }
    for haproxy in &mut haproxies {
        assert_eq!(decided(&haproxy.acknowledgement().1), DENIED);
        assert_eq!(decided(&haproxy.acknowledgement().1), "");
    }
}

#[test]
fn messages_have_the_rules_of_their_application() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, word: &str, id: u32| {
        let rule =
            format!("SecRule ARGS \"@contains {word}\" \"id:{id},phase:2,deny,status:406,log\"");
        std::fs::write(folder.path().join(name), rule).unwrap();
    };
    write("shop.conf", "attack", 1);
    write("api.conf", "noise", 2);
    let app: Argument<'_> = ("app", b"\x08\x03api");
    let unknown: Argument<'_> = ("app", b"\x08\x05other");
    let none: Argument<'_> = ("app", b"\x00");
    for (more, attack, noise) in [
        ("", FAILED, FAILED),
        (", late: pass", "", ""),
        (", default-application: shop", DENIED, ""),
        (", default-application: api", "", "action=deny ruleid=2 status=406"),
    ] {
        let listener = format!(
            "spoe: '127.0.0.1:0', applications: {{ a: {{ rules: [shop.conf] }}, shop: {{ rules: [shop.conf] }}, \
             api: {{ rules: [api.conf] }} }}{more}"
        );
        let text = format!("listeners: [{{ {listener} }}]\nadmin: 127.0.0.1:0\n");
        let config = Config::parse_serve(&text, &folder.path().join("waf.yaml")).unwrap();
        let gateway = TestGateway::start(&config);
        let mut haproxy = HaProxy::connect_to(&gateway);
        for (query, argument, expected) in [
            ("q=attack", None, DENIED),
            ("q=noise", None, ""),
            ("q=attack", Some(app), ""),
            ("q=noise", Some(app), "action=deny ruleid=2 status=406"),
            ("q=attack", Some(unknown), attack),
            ("q=noise", Some(unknown), noise),
            ("q=attack", Some(none), attack),
        ] {
            let found = haproxy.ask(&request(1, query, "", argument.as_slice()));
            assert_eq!(decided(&found), expected, "{more} {query} {argument:?}");
        }
        let is_error = !more.contains("default");
        let unknown = gateway.metric("spoe_messages_total{answer=\"unknown-application\"}");
        assert_eq!(unknown, if is_error { 3 } else { 0 });
        let blocked = gateway.metric("waf_blocked_total{route=\"127.0.0.1:0 api\"}");
        assert_eq!(blocked, if more.contains("default-application: api") { 2 } else { 1 });
    }
}

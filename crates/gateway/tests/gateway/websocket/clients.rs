//! Clients over HTTP/2, in front of backends over HTTP/1.1.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_gateway::Config;
use tollgate_gateway::config::{AccessLog, LogFormat, LogTarget};

use super::{CONNECT, ENABLE_CONNECT_PROTOCOL, key, switch};
use crate::support::http2::{
    CANCEL, Frame, GET_FIELDS, Http2Peer, NO_ERROR, PROTOCOL_ERROR, SETTINGS, WINDOW_UPDATE,
};
use crate::support::{Backend, DEADLINE, GET, OK, Peer, TestGateway, config, poll};

/// Window of a stream in both directions, before credit.
const WINDOW: usize = 65_535;

struct Scene {
    gateway: TestGateway,
    client: Http2Peer,
    backend: Backend,
}

impl Scene {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let backend = Backend::start();
        let mut config = config(&[backend.addr()]);
        config.listeners[0].http2 = true;
        change(&mut config);
        let gateway = TestGateway::start(&config);
        let client = Http2Peer::connect(gateway.address());
        Self { gateway, client, backend }
    }

    /// Opens a WebSocket on stream 1. Returns the backend's end.
    #[track_caller]
    fn open(&mut self) -> Peer {
        self.client.request(1, false, CONNECT);
        let mut upstream = self.backend.accept();
        let head = upstream.head().unwrap();
        upstream.send(switch(&head));
        let opened = self.client.wait(1, |received| !received.status.is_empty());
        assert_eq!((&*opened.status, opened.has_ended), ("200", false));
        upstream
    }

    /// Waits for the reset of stream 1.
    #[track_caller]
    fn expect_reset(&mut self, code: u32) {
        let response = self.client.response(1);
        assert_eq!((response.reset, response.has_ended), (Some(code), false));
    }
}

/// The value of a parameter in the first settings of a gateway.
fn announced(client: &mut Http2Peer, parameter: u16) -> Option<u32> {
    let Some(Frame { kind: SETTINGS, payload, .. }) = client.read_frame() else {
        panic!("the first frame is not SETTINGS")
    };
    let (parameters, []) = payload.as_chunks::<6>() else { panic!("{payload:?}") };
    let mut found = parameters.iter().filter(|entry| entry[..2] == parameter.to_be_bytes());
    found.next().map(|entry| u32::from_be_bytes(entry[2..].try_into().unwrap()))
}

#[test]
fn extended_connect_is_announced_if_web_sockets_are_allowed() {
    let mut scene = Scene::new();
    assert_eq!(announced(&mut scene.client, ENABLE_CONNECT_PROTOCOL), Some(1));
    let mut scene = Scene::with(|config| config.requests.upgrades = vec!["mqtt".to_owned()]);
    assert_eq!(announced(&mut scene.client, ENABLE_CONNECT_PROTOCOL), None);
    // Without the setting, the pseudo-field is unknown.
    scene.client.request(1, false, CONNECT);
    scene.expect_reset(PROTOCOL_ERROR);
}

#[test]
fn extended_connect_becomes_an_upgrade_and_101_becomes_200() {
    let Scene { client, backend, .. } = &mut Scene::new();
    let headers = [
        ("origin", "http://x"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
        // The gateway's key takes its place.
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("content-length", "7"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
    ];
    client.request(1, false, &[CONNECT, &headers].concat());
    let mut upstream = backend.accept();
    let head = upstream.head().unwrap();
    let key = key(&head);
    assert_ne!(key, "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(
        head,
        format!(
            "GET /a HTTP/1.1\r\nHost: x\r\norigin: http://x\r\nsec-websocket-version: 13\r\n\
             sec-websocket-protocol: chat\r\ncookie: a=1; b=2\r\nsec-websocket-key: {key}\r\n\
             Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
    );
    let switch = switch(&head);
    // Bytes behind the head belong to the tunnel.
    upstream.send(switch.replace("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\nfirst"));
    let opened = client.wait(1, |received| received.body.len() == 5);
    assert_eq!((opened.text(), opened.has_ended), (("200", "first"), false));
    let headers: Vec<_> =
        opened.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("sec-websocket-protocol", "chat")]);
    client.data(1, false, b"GET / HTTP/1.1\r\n\r\n");
    upstream.expect("GET / HTTP/1.1\r\n\r\n");
    upstream.send("more");
    assert_eq!(client.wait(1, |received| received.body.len() == 9).body, b"firstmore");
    // The connection serves other requests meanwhile.
    client.request(3, true, GET_FIELDS);
    let mut other = backend.accept();
    other.expect(GET);
    other.send(OK);
    assert_eq!(client.response(3).text(), ("200", "hi"));
}

#[test]
fn each_web_socket_has_another_key() {
    let Scene { client, backend, .. } = &mut Scene::new();
    let keys = [1, 3].map(|stream| {
        client.request(stream, false, CONNECT);
        key(&backend.accept().head().unwrap()).to_owned()
    });
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn tunnel_ends_each_direction_on_its_own() {
    let mut scene = Scene::new();
    let mut upstream = scene.open();
    scene.client.data(1, true, b"bye");
    upstream.expect_to_end("bye");
    upstream.send("last");
    drop(upstream);
    let response = scene.client.response(1);
    assert_eq!((response.text(), response.reset), (("200", "last"), None));

    let mut scene = Scene::new();
    let mut upstream = scene.open();
    upstream.finish();
    assert_eq!(scene.client.response(1).reset, None);
    scene.client.data(1, false, b"still ");
    upstream.expect("still ");
    scene.client.data(1, true, b"here");
    upstream.expect_to_end("here");
    // Neither side has reset the stream.
    scene.client.round_trip();
    assert_eq!(scene.client.response(1).reset, None);
}

#[test]
fn client_that_ends_its_stream_with_the_head_still_receives() {
    let Scene { client, backend, .. } = &mut Scene::new();
    client.request(1, true, CONNECT);
    let mut upstream = backend.accept();
    let head = upstream.head().unwrap();
    upstream.send(switch(&head));
    upstream.expect_to_end("");
    upstream.send("last");
    drop(upstream);
    let response = client.response(1);
    assert_eq!((response.text(), response.reset), (("200", "last"), None));
}

#[test]
fn reset_of_either_side_ends_the_other() {
    let mut scene = Scene::new();
    let mut upstream = scene.open();
    scene.client.reset(1, CANCEL);
    upstream.expect_closed();
    scene.gateway.expect_metric("client_http2_streams_reset_total", 1);

    let mut scene = Scene::new();
    let upstream = scene.open();
    upstream.reset();
    scene.expect_reset(CANCEL);
    scene.client.round_trip();
}

#[test]
fn windows_bound_both_directions() {
    let mut scene = Scene::new();
    let mut upstream = scene.open();
    let bytes: Vec<u8> = (0..=255).cycle().take(3 * WINDOW).collect();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            upstream.send(&bytes);
            upstream
        });
        let client = &mut scene.client;
        // The client gives no credit.
        assert!(client.wait(1, |received| received.body.len() == WINDOW).body == bytes[..WINDOW]);
        client.round_trip();
        assert_eq!(client.wait(1, |_| true).body.len(), WINDOW);
        client.window_update(0, 2 * WINDOW as u32);
        client.window_update(1, 2 * WINDOW as u32);
        assert!(client.wait(1, |received| received.body.len() == bytes.len()).body == bytes);
        let mut upstream = sending.join().unwrap();
        // The gateway gives credit for what the backend has taken.
        let mut sent = 0;
        let mut room = 64 << 10;
        while sent < bytes.len() {
            while room == 0 {
                let frame = client.turn().unwrap();
                if (frame.kind, frame.stream) == (WINDOW_UPDATE, 1) {
                    room += u32::from_be_bytes(frame.payload.try_into().unwrap()) as usize;
                }
            }
            let count = room.min(16 << 10).min(bytes.len() - sent);
            client.data(1, false, &bytes[sent..sent + count]);
            assert!(upstream.read(count) == bytes[sent..sent + count]);
            (sent, room) = (sent + count, room - count);
        }
    });
}

#[test]
fn tunnel_is_not_idle() {
    let mut scene = Scene::with(|config| config.timeouts.idle = Duration::from_millis(300));
    let mut upstream = scene.open();
    // A younger connection ends by the timeout for idle ones.
    scene.gateway.client().expect_closed();
    scene.client.data(1, false, b"still");
    upstream.expect("still");
    upstream.send("here");
    scene.client.wait(1, |received| received.body == b"here");
}

#[test]
fn silent_tunnel_ends_by_its_timeout() {
    let mut scene = Scene::with(|config| config.timeouts.tunnel = Duration::from_millis(300));
    let mut upstream = scene.open();
    scene.expect_reset(CANCEL);
    upstream.expect_closed();
}

#[test]
fn drain_waits_for_a_tunnel() {
    let mut scene = Scene::with(|config| config.timeouts.drain = DEADLINE);
    let mut upstream = scene.open();
    scene.gateway.drain();
    scene.client.data(1, false, b"still");
    upstream.expect("still");
    upstream.send("here");
    scene.client.wait(1, |received| received.body == b"here");
    drop(upstream);
    scene.client.data(1, true, b"");
    assert!(scene.client.response(1).has_ended);
    scene.gateway.join();
    assert_eq!(scene.client.expect_end(), NO_ERROR);
}

#[test]
fn drain_ends_a_tunnel_by_its_timeout() {
    let mut scene = Scene::with(|config| config.timeouts.drain = Duration::from_millis(300));
    let mut upstream = scene.open();
    scene.gateway.drain();
    scene.gateway.join();
    upstream.expect_closed();
    assert_eq!(scene.client.expect_end(), NO_ERROR);
}

#[test]
fn malformed_extended_connects_are_reset() {
    const fn without(name: &'static str) -> (&'static str, &'static str) {
        (name, "-")
    }
    let cases: &[&[(&str, &str)]] = &[
        &[without(":scheme")],
        &[without(":path")],
        &[without(":authority")],
        &[(":path", "*")],
        &[(":path", "")],
        &[(":method", "GET")],
        &[(":protocol", "")],
        &[(":protocol", "web socket")],
        &[(":protocol", "websocket"), (":protocol", "websocket")],
        &[("upgrade", "websocket")],
        &[("connection", "upgrade")],
        &[("host", "y")],
    ];
    let mut scene = Scene::new();
    for (at, case) in cases.iter().enumerate() {
        let replaced = |name: &str| case.iter().any(|(other, _)| *other == name);
        let kept = CONNECT.iter().filter(|(name, _)| !replaced(name));
        let added = case.iter().filter(|(_, value)| *value != "-");
        let mut fields: Vec<_> = kept.chain(added).copied().collect();
        fields.sort_by_key(|(name, _)| !name.starts_with(':'));
        let stream = 2 * at as u32 + 1;
        scene.client.request(stream, false, &fields);
        let response = scene.client.response(stream);
        assert_eq!((response.reset, &*response.status), (Some(PROTOCOL_ERROR), ""), "{case:?}");
    }
    let count = cases.len() as u64;
    assert_eq!(scene.gateway.metric("client_http2_streams_refused_total"), count);
    scene.backend.expect_no_connection(&scene.gateway);
}

#[test]
fn other_connects_get_501() {
    let mut scene = Scene::new();
    let of =
        |protocol| [&[(":method", "CONNECT"), (":protocol", protocol)], &CONNECT[2..]].concat();
    let plain = vec![(":method", "CONNECT"), (":authority", "x:443")];
    for (at, fields) in [plain, of("connect-udp"), of("h2c")].iter().enumerate() {
        let stream = 2 * at as u32 + 1;
        scene.client.request(stream, false, fields);
        let response = scene.client.response(stream);
        assert_eq!((&*response.status, response.has_ended), ("501", true), "{fields:?}");
    }
    scene.backend.expect_no_connection(&scene.gateway);
}

#[test]
fn upgrades_that_a_reload_forbids_get_501() {
    let mut scene = Scene::new();
    scene.client.round_trip();
    let mut config = config(&[scene.backend.addr()]);
    config.listeners[0].http2 = true;
    config.requests.upgrades.clear();
    scene.gateway.reload(config);
    scene.gateway.turn();
    scene.client.request(1, false, CONNECT);
    assert_eq!(scene.client.response(1).status, "501");
    scene.backend.expect_no_connection(&scene.gateway);
}

#[test]
fn headers_within_a_tunnel_reset_it() {
    let mut scene = Scene::new();
    let mut upstream = scene.open();
    scene.client.request(1, true, &[("x-sum", "1")]);
    scene.expect_reset(PROTOCOL_ERROR);
    upstream.expect_closed();
}

#[test]
fn refusal_of_the_backend_is_forwarded() {
    let Scene { client, backend, .. } = &mut Scene::new();
    client.request(1, false, CONNECT);
    let mut upstream = backend.accept();
    upstream.head().unwrap();
    upstream.send("HTTP/1.1 403 No\r\nDate: d\r\nContent-Length: 4\r\n\r\nnope");
    assert_eq!(client.response(1).text(), ("403", "nope"));
    // The connection to the backend is kept, as for other responses.
    client.request(3, true, GET_FIELDS);
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(3).text(), ("200", "hi"));
}

#[test]
fn success_in_place_of_101_gets_502_and_is_no_failure() {
    let mut scene = Scene::new();
    let Scene { client, backend, gateway } = &mut scene;
    // The head of an ordinary response is known from before.
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(1).text(), ("200", "hi"));
    client.request(3, false, CONNECT);
    upstream.head().unwrap();
    upstream.send(OK);
    let response = client.response(3);
    assert_eq!((&*response.status, response.has_ended), ("502", true));
    let failures =
        format!("backend_failures_total{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    assert_eq!(gateway.metric(&failures), 0);
}

#[test]
fn switch_without_proof_gets_502() {
    for change in [
        ("Sec-WebSocket-Accept: ", "Sec-WebSocket-Accept: x"),
        ("Sec-WebSocket-Accept: ", "X: "),
        ("Connection: Upgrade\r\n", ""),
        ("Upgrade: websocket\r\n", ""),
        ("Upgrade: websocket", "Upgrade: h2c"),
    ] {
        let Scene { client, backend, .. } = &mut Scene::new();
        client.request(1, false, CONNECT);
        let mut upstream = backend.accept();
        let head = upstream.head().unwrap();
        upstream.send(switch(&head).replacen(change.0, change.1, 1));
        let response = client.response(1);
        assert_eq!((&*response.status, response.has_ended), ("502", true), "{change:?}");
        upstream.expect_closed();
    }
}

#[test]
fn access_log_and_metrics_see_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut scene = Scene::with(|config| {
        let to = LogTarget::File(path.clone());
        config.access_log = Some(AccessLog { to, format: LogFormat::Json });
    });
    let mut upstream = scene.open();
    upstream.send("hello");
    scene.client.wait(1, |received| received.body == b"hello");
    scene.client.data(1, true, b"");
    upstream.expect_to_end("");
    drop(upstream);
    scene.client.response(1);
    let entry: Value = poll(|| {
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().next().ok_or("no line in the access log")?;
        Ok(serde_json::from_str(line).unwrap())
    });
    let found = ["method", "target", "version", "status", "body_bytes"].map(|key| &entry[key]);
    assert_eq!(json!(found), json!(["GET", "/a", "2.0", 101, 5]));
    assert_eq!(scene.gateway.metric("client_http2_streams_total"), 1);
    assert_eq!(scene.gateway.metric("client_http2_streams_reset_total"), 0);
}

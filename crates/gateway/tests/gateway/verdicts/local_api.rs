//! CrowdSec's local API, with a server of the test in its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde_json::Value;
use tempfile::TempDir;
use tollgate_gateway::Config;

use super::appsec::{ALLOW, BAN, UNKNOWN_KEY, ask};
use super::{RULES, Scene, read};
use crate::support::http2::Http2Peer;
use crate::support::{Backend, Peer, TestGateway, closed_port};

const LISTENER: &str = "appsec: '127.0.0.1:0', keys: [secret]";
const VALID: &str = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n";
const INVALID: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 30\r\n\r\n";
const LOGGED_IN: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                         1c\r\n{\"code\":200,\"token\":\"t0ken\"}\r\n0\r\n\r\n";
const CREATED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n[\"1\"]";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

/// A request with a key that is not in the configuration.
fn with_key(key: &str, uri: &str) -> String {
    let request = ask("GET", uri, "");
    request.replace("Api-Key: secret", &format!("Api-Key: {key}"))
}

/// `timeout` is that for keys.
fn settings(api: &Backend, timeout: &str) -> String {
    format!("local_api: {{ url: 'http://{}/base/', timeout: {timeout} }}\n", api.addr())
}

/// Expects the check of a key.
#[track_caller]
fn check_of(api: &Backend, key: &str) -> Peer {
    let mut check = api.accept();
    let head = check.head().unwrap();
    assert!(head.starts_with("HEAD /base/v1/decisions/stream HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nX-Api-Key: {key}\r\n")), "{head}");
    assert!(head.contains(&format!("\r\nHost: {}\r\n", api.addr())), "{head}");
    check
}

#[test]
fn unknown_key_is_checked_once_while_others_are_served() {
    let api = Backend::start();
    let scene = Scene::start(LISTENER, &settings(&api, "1h"));
    let mut waiting = scene.gateway.client();
    // Its second request follows the first one.
    waiting.send(with_key("new", "/a?q=attack") + &with_key("new", "/a"));
    let mut check = check_of(&api, "new");
    let mut second = scene.gateway.client();
    second.send(with_key("new", "/a"));
    scene.expect(&[(&ask("GET", "/a?q=attack", ""), BAN), (&ask("GET", "/a", ""), ALLOW)]);
    check.send(VALID);
    waiting.expect_dated(BAN);
    waiting.expect_dated(ALLOW);
    second.expect_dated(ALLOW);
    scene.expect(&[(&with_key("new", "/a"), ALLOW), (&with_key("new", "/a?q=attack"), BAN)]);
    api.expect_no_connection(&scene.gateway);
    assert_eq!(scene.gateway.metric("local_api_keys_total{result=\"valid\"}"), 1);
}

#[test]
fn requests_over_http2_wait_for_keys_with_their_bodies() {
    let api = Backend::start();
    let scene = Scene::start(LISTENER, &settings(&api, "1h"));
    let mut client = Http2Peer::connect(scene.gateway.address());
    let keys = [(1, "known", "ban"), (3, "guess", "")];
    for (stream, key, _) in keys {
        let head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "x"),
            (":path", "/"),
            ("x-crowdsec-appsec-api-key", key),
            ("x-crowdsec-appsec-ip", "198.51.100.7"),
            ("x-crowdsec-appsec-uri", "/a"),
            ("x-crowdsec-appsec-verb", "POST"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        client.request(stream, false, &head);
        client.data(stream, true, b"q=attack");
    }
    // They are checked at the same time.
    for mut check in [api.accept(), api.accept()] {
        let head = check.head().unwrap();
        let is_known = head.contains("\r\nX-Api-Key: known\r\n");
        assert!(is_known || head.contains("\r\nX-Api-Key: guess\r\n"), "{head}");
        check.send(if is_known { VALID } else { INVALID });
    }
    for (stream, _, body) in keys {
        let response = client.response(stream);
        let (head, found) = response.text();
        assert!(found.contains(body), "{head} {found}");
    }
    assert_eq!(scene.gateway.metric("bugs_total"), 0);
}

#[test]
fn key_without_a_check_is_refused() {
    let api = Backend::start();
    let scene = Scene::start(LISTENER, &settings(&api, "1h"));
    for (key, answer) in [
        ("invalid", INVALID),
        ("failed", FAILED),
        ("malformed", "HTTP/1.1 abc\r\n\r\n"),
        ("early-end", "HTTP/1.1 200"),
    ] {
        let mut client = scene.gateway.client();
        client.send(with_key(key, "/a"));
        let mut check = check_of(&api, key);
        check.send(answer);
        drop(check);
        client.expect_dated(UNKNOWN_KEY);
        client.send(ask("GET", "/a", ""));
        client.expect_dated(ALLOW);
    }
    let failed = "local_api_keys_total{result=\"failed\"}";
    assert_eq!(scene.gateway.metric(failed), 3);
    assert_eq!(scene.gateway.metric("local_api_keys_total{result=\"invalid\"}"), 1);
    // It accepts, and never responds.
    let scene = Scene::start(LISTENER, &settings(&api, "50ms"));
    let mut client = scene.gateway.client();
    client.send(with_key("silent", "/a"));
    let _silent = api.accept();
    client.expect_dated(UNKNOWN_KEY);
    assert_eq!(scene.gateway.metric(failed), 1);
    let down = format!("local_api: {{ url: 'http://{}' }}\n", closed_port());
    let scene = Scene::start(LISTENER, &down);
    scene.expect(&[(&with_key("any", "/a"), UNKNOWN_KEY), (&ask("GET", "/a", ""), ALLOW)]);
}

#[test]
fn valid_key_survives_a_reload_without_the_local_api() {
    let api = Backend::start();
    let settings = settings(&api, "1h");
    let listener = "appsec: '127.0.0.1:0'";
    let scene = Scene::start(listener, &settings);
    let mut client = scene.gateway.client();
    client.send(with_key("new", "/a"));
    check_of(&api, "new").send(VALID);
    client.expect_dated(ALLOW);
    drop(api);
    scene.gateway.reload(read(&scene.folder, listener, &settings));
    scene.expect(&[(&with_key("new", "/a?q=attack"), BAN)]);
}

#[test]
fn several_keys_are_checked_at_the_same_time() {
    let api = Backend::start();
    let scene = Scene::start(LISTENER, &settings(&api, "1h"));
    let mut first = scene.gateway.client();
    first.send(with_key("first", "/a"));
    let _unanswered = check_of(&api, "first");
    let mut second = scene.gateway.client();
    second.send(with_key("second", "/a"));
    check_of(&api, "second").send(VALID);
    second.expect_dated(ALLOW);
}

#[test]
fn reload_has_waiting_keys_checked_with_the_new_local_api() {
    let (old, new) = (Backend::start(), Backend::start());
    let scene = Scene::start(LISTENER, &settings(&old, "1h"));
    let mut client = scene.gateway.client();
    client.send(with_key("new", "/a"));
    let _unanswered = check_of(&old, "new");
    scene.gateway.reload(read(&scene.folder, LISTENER, &settings(&new, "1h")));
    check_of(&new, "new").send(VALID);
    client.expect_dated(ALLOW);
}

#[test]
fn client_that_leaves_while_its_key_is_checked_is_forgotten() {
    let api = Backend::start();
    let scene = Scene::start(LISTENER, &settings(&api, "1h"));
    let mut client = scene.gateway.client();
    client.send(with_key("new", "/a"));
    let mut check = check_of(&api, "new");
    client.reset();
    scene.gateway.expect_metric("client_connections", 0);
    check.send(VALID);
    scene.expect(&[(&with_key("new", "/a"), ALLOW)]);
    assert_eq!(scene.gateway.metric("bugs_total"), 0);
}

/// A scene whose alerts go to a server of the test.
fn with_alerts() -> (Backend, Scene) {
    let (api, folder, config) = alert_config();
    (api, Scene { gateway: TestGateway::start(&config), folder })
}

fn alert_config() -> (Backend, TempDir, Config) {
    let api = Backend::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.conf"), RULES).unwrap();
    let credentials = format!("url: http://{}\nlogin: me\npassword: 'pa\"ss'\n", api.addr());
    std::fs::write(folder.path().join("credentials.yaml"), credentials).unwrap();
    let config = read(&folder, LISTENER, "local_api: { credentials: credentials.yaml }\n");
    (api, folder, config)
}

/// Expects a request to the local API. Returns its head and its body.
#[track_caller]
fn request_of(api: &Backend) -> (Peer, String, Value) {
    let mut peer = api.accept();
    let head = peer.head().unwrap();
    let length = head.split("Content-Length: ").nth(1).unwrap().split('\r').next().unwrap();
    let body = peer.read(length.parse().unwrap());
    (peer, head, serde_json::from_slice(&body).unwrap())
}

#[track_caller]
fn log_in(api: &Backend) {
    let (mut peer, head, body) = request_of(api);
    assert!(head.starts_with("POST /v1/watchers/login HTTP/1.1\r\n"), "{head}");
    assert_eq!((&body["machine_id"], &body["password"]), (&"me".into(), &"pa\"ss".into()));
    peer.send(LOGGED_IN);
}

/// Expects alerts, and answers them.
#[track_caller]
fn take_alerts(api: &Backend, answer: &str) -> Vec<Value> {
    let (mut peer, head, body) = request_of(api);
    assert!(head.starts_with("POST /v1/alerts HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nAuthorization: Bearer t0ken\r\n"), "{head}");
    peer.send(answer);
    body.as_array().unwrap().clone()
}

#[test]
fn blocked_requests_raise_alerts_without_their_values() {
    let (api, scene) = with_alerts();
    scene.expect(&[
        (&ask("GET", "/a?q=fine", ""), ALLOW),
        (&ask("GET", "/a?q=attack&password=x", ""), BAN),
    ]);
    log_in(&api);
    let alerts = take_alerts(&api, CREATED);
    assert_eq!(alerts.len(), 1);
    let alert = &alerts[0];
    assert_eq!(alert["scenario"], "Attack");
    assert_eq!(alert["source"]["ip"], "198.51.100.7");
    assert_eq!(alert["source"]["scope"], "Ip");
    assert_eq!(alert["events_count"], 1);
    let metas = alert["events"][0]["meta"].as_array().unwrap();
    let metas: Vec<_> =
        metas.iter().map(|meta| (meta["key"].as_str(), meta["value"].as_str())).collect();
    let expected = [
        ("rule_name", "native_rule:1"),
        ("message", "Attack"),
        ("method", "GET"),
        ("uri", "/a"),
        ("matched_zones", "ARGS:q"),
    ];
    assert_eq!(metas, expected.map(|(key, value)| (Some(key), Some(value))));
    scene.gateway.expect_metric("local_api_alerts_total{result=\"sent\"}", 1);
    // The token is used again, and replaced once it is refused.
    scene.expect(&[(&ask("DELETE", "/a", ""), BAN)]);
    let refused = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(take_alerts(&api, refused)[0]["scenario"], "Method");
    log_in(&api);
    assert_eq!(take_alerts(&api, CREATED)[0]["scenario"], "Method");
    scene.gateway.expect_metric("local_api_alerts_total{result=\"sent\"}", 2);
}

#[test]
fn texts_of_alerts_are_cut_and_names_that_match_are_left_out() {
    let (api, folder, config) = alert_config();
    let rules = r#"
SecRule ARGS "@contains attack" "id:1,phase:1,pass,log,msg:'Long'"
SecRule ARGS_NAMES "@contains token" "id:2,phase:1,deny,log,msg:'Name'"
"#;
    std::fs::write(folder.path().join("rules.conf"), rules).unwrap();
    drop(config);
    let config = read(&folder, LISTENER, "local_api: { credentials: credentials.yaml }\n");
    let scene = Scene { gateway: TestGateway::start(&config), folder };
    let name = "%C3%A4".repeat(600);
    let uri = format!("/{}?token-secret=1&{name}=attack", "a".repeat(600));
    scene.expect(&[(&ask("GET", &uri, ""), BAN)]);
    log_in(&api);
    let alerts = take_alerts(&api, CREATED);
    let meta = |event: usize, at: usize| alerts[0]["events"][event]["meta"][at]["value"].clone();
    assert_eq!(meta(0, 3), format!("/{}", "a".repeat(511)));
    // A character is whole.
    assert_eq!(meta(0, 4), format!("ARGS:{}", "\u{e4}".repeat(253)));
    assert_eq!(meta(1, 4), "ARGS_NAMES");
    assert!(!alerts[0].to_string().contains("token-secret"));
}

#[test]
fn alerts_are_sent_again_after_an_error_and_dropped_if_they_are_refused() {
    let (api, scene) = with_alerts();
    scene.expect(&[(&ask("DELETE", "/a", ""), BAN)]);
    log_in(&api);
    take_alerts(&api, FAILED);
    take_alerts(&api, CREATED);
    scene.gateway.expect_metric("local_api_alerts_total{result=\"sent\"}", 1);
    scene.expect(&[(&ask("DELETE", "/a", ""), BAN)]);
    take_alerts(&api, "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno");
    scene.gateway.expect_metric("local_api_alerts_total{result=\"failed\"}", 1);
}

#[test]
fn alert_that_is_refused_loses_no_others() {
    let (api, scene) = with_alerts();
    scene.expect(&[(&ask("DELETE", "/first", ""), BAN)]);
    log_in(&api);
    // It is sent again.
    take_alerts(&api, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n");
    let uris = ["/a", "/b", "/c"];
    for uri in uris {
        scene.expect(&[(&ask("DELETE", uri, ""), BAN)]);
    }
    assert_eq!(take_alerts(&api, CREATED).len(), 1);
    let uri_of = |alert: &Value| alert["events"][0]["meta"][3]["value"].clone();
    let refused = "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno";
    for (expected, answer) in [
        (&uris[..], refused),
        (&uris[..1], CREATED),
        (&uris[1..], refused),
        (&uris[1..2], refused),
        (&uris[2..], CREATED),
    ] {
        let alerts = take_alerts(&api, answer);
        assert_eq!(alerts.iter().map(uri_of).collect::<Vec<_>>(), expected);
    }
    scene.gateway.expect_metric("local_api_alerts_total{result=\"sent\"}", 3);
    assert_eq!(scene.gateway.metric("local_api_alerts_total{result=\"failed\"}"), 1);
}

#[test]
fn alerts_beyond_the_queue_are_dropped_and_delay_no_request() {
    let (api, scene) = with_alerts();
    let blocked = ask("DELETE", "/a", "");
    let mut client = scene.gateway.client();
    client.send(&blocked);
    client.expect_dated(BAN);
    // The local API answers nothing.
    let _login = request_of(&api);
    for _ in 0..1100 {
        client.send(&blocked);
        client.expect_dated(BAN);
    }
    assert!(scene.gateway.metric("local_api_alerts_total{result=\"dropped\"}") >= 1100 - 1024);
}

#[test]
fn alerts_that_are_left_are_sent_at_the_end() {
    let (api, folder, config) = alert_config();
    // The end of the admin listener takes longer.
    let config = Config { admin: None, ..config };
    let scene = Scene { gateway: TestGateway::start(&config), folder };
    scene.expect(&[(&ask("DELETE", "/a", ""), BAN), (&ask("DELETE", "/b", ""), BAN)]);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let (first, attempted) = mpsc::channel();
    std::thread::spawn(move || {
        log_in(&api);
        first.send(request_of(&api).0).unwrap();
        loop {
            let (mut peer, _, body) = request_of(&api);
            counted.fetch_add(body.as_array().unwrap().len(), Ordering::Release);
            peer.send(CREATED);
        }
    });
    // An attempt that fails before or after the end. The next one would follow after a pause.
    let mut attempt = attempted.recv().unwrap();
    scene.gateway.drain();
    attempt.send(FAILED);
    scene.gateway.join();
    assert_eq!(taken.load(Ordering::Acquire), 2);
}

#[test]
fn rules_out_of_band_raise_alerts_if_they_would_block() {
    let api = Backend::start();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("later.yaml", "name: org/later\nseclang_files_rules: [later.conf]\n");
    write(
        "later.conf",
        "SecRule ARGS \"@contains noise\" \"id:2,phase:1,pass,log,msg:'Noise'\"\n\
         SecRule ARGS \"@contains attack\" \"id:3,phase:1,deny,log,msg:'Later'\"\n",
    );
    write("mine.yaml", "outofband_rules: [org/later]\n");
    let credentials = format!("url: http://{}\nlogin: me\npassword: 'pa\"ss'\n", api.addr());
    write("credentials.yaml", &credentials);
    let listener = format!("{LISTENER}, appsec-configs: [mine.yaml], appsec-rules: .");
    let config = format!(
        "listeners: [{{ {listener} }}]\nadmin: 127.0.0.1:0\nlocal_api: {{ credentials: credentials.yaml }}\n"
    );
    let config = Config::parse_serve(&config, &folder.path().join("waf.yaml"));
    let scene = Scene { gateway: TestGateway::start(&config.unwrap()), folder };
    scene.expect(&[
        (&ask("GET", "/a?q=noise", ""), ALLOW),
        (&ask("GET", "/a?q=noise,attack", ""), ALLOW),
    ]);
    log_in(&api);
    let alerts = take_alerts(&api, CREATED);
    assert_eq!(alerts.len(), 1);
    assert_eq!(alerts[0]["scenario"], "Later");
    assert_eq!(alerts[0]["events_count"], 2);
    let message = alerts[0]["message"].as_str().unwrap();
    assert!(message.starts_with("WAF out-of-band match: Later from 198.51.100.7"), "{message}");
}

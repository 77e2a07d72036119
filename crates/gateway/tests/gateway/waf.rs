//! The firewall: verdicts, bodies that are held, limits, reloads, the audit log, and metrics.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::Protocol;

use crate::smuggling::{Origin, all_requests};
use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{Backend, DEADLINE, GET, OK, Peer, TestGateway, poll};

const RULES: &str = r#"
SecRule ARGS "@contains attack" "id:1,phase:2,deny,status:403,t:lowercase,log,msg:'Attack'"
SecRule REQUEST_HEADERS:X-Bad "@streq 1" "id:2,phase:1,deny,status:406,log,msg:'Header'"
SecRule REQUEST_BODY "@contains attack" "id:3,phase:2,deny,status:403,log,msg:'Body'"
SecRule RESPONSE_BODY "@contains secret" "id:4,phase:4,deny,status:403,log,msg:'Leak'"
SecRule RESPONSE_HEADERS:X-Leak "@streq 1" "id:5,phase:3,deny,status:403,log,msg:'Header'"
SecRule ARGS:redirect "@streq 1" "id:6,phase:2,redirect:/login,log"
"#;

const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n\
                         Content-Length: 10\r\n\r\nForbidden\n";

/// A gateway with [`RULES`] in front of a scripted backend.
struct Scene {
    gateway: TestGateway,
    backend: Backend,
    folder: TempDir,
}

fn read(folder: &Path, backend: &Backend, waf: &str) -> Config {
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]
pools: [{{ name: site, backends: [{{ address: '{}' }}] }}]
forwarded: {{ via: null, x_forwarded: false }}
admin: 127.0.0.1:0
{waf}",
        backend.addr()
    );
    let config = Config::parse(&text, &folder.join("gateway.yaml"));
    config.unwrap_or_else(|error| panic!("{error}"))
}

impl Scene {
    fn start(waf: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules.conf"), RULES).unwrap();
        std::fs::write(folder.path().join("page.html"), "<p>no").unwrap();
        let backend = Backend::start();
        let gateway = TestGateway::start(&read(folder.path(), &backend, waf));
        Self { gateway, backend, folder }
    }

    /// With clients and a backend over HTTP/2.
    fn over_http2(waf: &str) -> Self {
        let Self { folder, backend, .. } = Self::start(waf);
        let mut config = read(folder.path(), &backend, waf);
        config.listeners[0].http2 = true;
        config.pools[0].protocol = Protocol::Http2 { streams_max: 100 };
        let gateway = TestGateway::start(&config);
        Self { gateway, backend, folder }
    }

    /// With the default settings and these.
    fn with(more: &str) -> Self {
        Self::start(&format!("waf:\n  rules: [rules.conf]\n{more}"))
    }

    fn client(&self) -> Peer {
        self.gateway.client()
    }

    /// Expects that the backend receives exactly this, and responds.
    #[track_caller]
    fn serve(&self, expected: impl AsRef<[u8]>) -> Peer {
        let mut upstream = self.backend.accept();
        upstream.expect(expected);
        upstream.send(OK);
        upstream
    }

    #[track_caller]
    fn expect_untouched_backend(&self) {
        self.backend.expect_no_connection(&self.gateway);
    }

    fn audit(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.json")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("POST /a HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

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
    client.expect_dated("HTTP/1.1 302 Redirect\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n");
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
fn limits_block_nothing_if_the_mode_is_detection_only() {
    let waf = "waf:
  rules: [rules.conf]
  mode: detection-only
  request_body: { limit_without_files: 8, compressed: reject }
limits: { held_body_bytes: 12 }
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
    let scene = Scene::start("waf: { rules: [rules.conf] }\nlimits: { held_body_bytes: 100 }\n");
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
    let scene = Scene::with("");
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

    let scene = Scene::with("  request_body: { compressed: reject }\n");
    let mut client = scene.client();
    client.send(&harmless);
    assert_eq!(client.expect_local_response_of(415), 415);
    scene.expect_untouched_backend();

    let scene = Scene::with("  request_body: { compressed: pass }\n");
    let mut client = scene.client();
    client.send(&attack);
    let _upstream = scene.serve(&attack);
    client.expect(OK);
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
    // While the long one is inspected, its connection serves others already.
    for (blocked, keeps) in [(response("a secret"), false), (long, true), (header.into(), false)] {
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

impl Peer {
    /// Expects a response of the firewall, and returns its status.
    #[track_caller]
    fn expect_local_response_of(&mut self, status: u16) -> u16 {
        let response = self.response().unwrap();
        assert!(response.head.contains("charset=utf-8"), "not {status}: {}", response.head);
        response.head[9..12].parse().unwrap()
    }
}

#[test]
fn detection_only_and_samples_of_zero_and_hundred_percent() {
    let attack = GET.replace("/a", "/a?q=attack");
    for waf in ["  mode: detection-only\n", "  sample: 0\n", "  mode: off\n"] {
        let scene = Scene::with(waf);
        let mut client = scene.client();
        client.send(&attack);
        let _upstream = scene.serve(&attack);
        client.expect(OK);
        if waf.contains("detection") {
            scene.gateway.expect_metric("waf_detected_total{route=\"*/\"}", 1);
            let sample = "waf_rule_matches_total{route=\"*/\",rule=\"1\",action=\"detected\"}";
            scene.gateway.expect_metric(sample, 1);
        }
    }
    let scene = Scene::with("  sample: 100\n");
    for _ in 0..10 {
        let mut client = scene.client();
        client.send(&attack);
        client.expect_dated(FORBIDDEN);
    }
    scene.gateway.expect_metric("waf_blocked_total{route=\"*/\"}", 10);
}

#[test]
fn routes_have_their_own_firewalls() {
    let scene = Scene::start(
        "waf: { rules: [rules.conf] }
routes:
  - { path: /, pool: site }
  - { path: /off, pool: site, waf: { mode: off } }
  - { path: /page, pool: site, waf: { block: { status: 429, page: page.html } } }
",
    );
    let mut client = scene.client();
    let request = GET.replace("/a", "/off?q=attack");
    client.send(&request);
    let mut upstream = scene.serve(&request);
    client.expect(OK);
    client.send(GET.replace("/a", "/page?q=attack"));
    client.expect_dated(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: 5\r\n\r\n<p>no",
    );
    client.send(GET.replace("/a", "/?q=attack"));
    client.expect_dated(FORBIDDEN);
    // The head of a route without a firewall is in the cache.
    client.send(&request);
    upstream.expect(&request);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn reload_replaces_rules_and_a_broken_file_keeps_the_old_ones() {
    let scene = Scene::with("");
    let rules = scene.folder.path().join("rules.conf");
    let waf = "waf: { rules: [rules.conf] }\n";
    let mut client = scene.client();
    client.send(GET.replace("/a", "/a?q=attack"));
    client.expect_dated(FORBIDDEN);
    std::fs::write(&rules, "SecRule ARGS \"@contain x\" \"id:1,deny\"").unwrap();
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\npools: [{{ name: a, backends: [{{ address: '127.0.0.1:1' }}] }}]\n{waf}"
    );
    let error = Config::parse(&text, &scene.folder.path().join("g.yaml")).unwrap_err().to_string();
    assert!(error.contains("rules.conf:1:16: unknown operator"), "{error}");
    client.send(GET.replace("/a", "/a?q=attack"));
    client.expect_dated(FORBIDDEN);
    // A request that has begun is inspected by the rules with which it began.
    let request = post(FORM, b"q=attack");
    client.send(&request[..request.len() - 1]);
    scene.gateway.turn();
    std::fs::write(&rules, "SecRule ARGS \"@contains other\" \"id:1,deny,status:403\"").unwrap();
    scene.gateway.reload(read(scene.folder.path(), &scene.backend, waf));
    scene.gateway.turn();
    client.send("k");
    client.expect_dated(FORBIDDEN);
    client.send(GET.replace("/a", "/a?q=other"));
    client.expect_dated(FORBIDDEN);
    client.send(&request);
    let _upstream = scene.serve(&request);
    client.expect(OK);
}

#[test]
fn audit_log_has_matches_with_masked_values_and_the_transaction_of_the_response() {
    let scene = Scene::start(
        "waf: { rules: [rules.conf], transaction_header: X-Id }\n\
         audit_log: { to: audit.json, masked: [password, Authorization] }\n",
    );
    let mut client = scene.client();
    client.send(
        "GET /a?q=attack&password=hush HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YTpi\r\n\r\n",
    );
    let response = client.response().unwrap();
    let id = response.header("X-Id").unwrap().to_owned();
    client.send(GET.replace("/a", "/a?password=attack"));
    assert_ne!(client.response().unwrap().header("X-Id").unwrap(), id);
    client.send(GET);
    let _upstream = scene.serve(GET);
    let passed = client.response().unwrap();
    assert!(passed.header("X-Id").is_some(), "{}", passed.head);
    scene.gateway.drain();
    drop(client);
    scene.gateway.join();
    let [first, second] = &scene.audit()[..] else { panic!("{:?}", scene.audit()) };
    assert_eq!(first["id"], id);
    assert_eq!(first["action"], "blocked");
    assert_eq!(first["status"], 403);
    assert_eq!(first["client"], "127.0.0.1");
    assert_eq!(first["target"], "/a?q=attack&password=***");
    assert_eq!(first["headers"][1], serde_json::json!(["Authorization", "***"]));
    let found = &first["matches"][0];
    assert_eq!(found["rule"], 1);
    assert_eq!(found["message"], "Attack");
    assert_eq!(found["variable"], "ARGS:q");
    assert_eq!(found["value"], "attack");
    assert_eq!(found["exclusion"], "SecRuleUpdateTargetById 1 \"!ARGS:q\"");
    assert_eq!(second["matches"][0]["variable"], "ARGS:password");
    assert_eq!(second["matches"][0]["value"], "***");
    let text = std::fs::read_to_string(scene.folder.path().join("audit.json")).unwrap();
    assert!(!text.contains("hush") && !text.contains("YTpi"), "{text}");
}

/// Sends a request that is logged, until this metric has at least that value. Returns the number of requests.
fn attack_until(scene: &Scene, client: &mut Peer, metric: &str, value: u64) -> u64 {
    let mut sent = 0;
    poll(|| {
        client.send(GET.replace("/a", "/a?q=attack"));
        client.expect_dated(FORBIDDEN);
        sent += 1;
        let found = scene.gateway.metric(metric);
        if found >= value { Ok(()) } else { Err(format!("{metric} is {found}")) }
    });
    sent
}

#[test]
fn full_disk_of_the_audit_log_costs_lines_and_no_requests() {
    let scene = Scene::start("waf: { rules: [rules.conf] }\naudit_log: { to: /dev/full }\n");
    let mut client = scene.client();
    // Writing fails on another thread, at some time after the first line.
    let sent = attack_until(&scene, &mut client, "audit_log_dropped_lines_total", 3);
    // Only the last line may not be counted yet.
    poll(|| {
        let dropped = scene.gateway.metric("audit_log_dropped_lines_total");
        if dropped == sent { Ok(()) } else { Err(format!("{dropped} of {sent} lines are counted")) }
    });
    client.send(GET);
    let _upstream = scene.serve(GET);
    client.expect(OK);
}

#[test]
fn rule_files_that_vanish_or_cannot_be_read_are_errors_of_the_configuration() {
    let scene = Scene::with("");
    let rules = scene.folder.path().join("rules.conf");
    let text = "listeners: [{ address: '127.0.0.1:0' }]\n\
                pools: [{ name: a, backends: [{ address: '127.0.0.1:1' }] }]\n\
                waf: { rules: [rules.conf] }\n";
    let rejects = |reason: &str| {
        let path = scene.folder.path().join("g.yaml");
        let error = Config::parse(text, &path).unwrap_err().to_string();
        assert!(error.contains("g.yaml:3:") && error.contains(reason), "{error}");
        let mut client = scene.client();
        client.send(GET.replace("/a", "/a?q=attack"));
        client.expect_dated(FORBIDDEN);
    };
    std::fs::remove_file(&rules).unwrap();
    rejects("no file matches");
    std::fs::create_dir(&rules).unwrap();
    rejects("cannot read rule file");
    std::fs::remove_dir(&rules).unwrap();
    std::fs::write(&rules, "Include rules.conf\n").unwrap();
    rejects("nested more than 16 times");
}

#[test]
fn held_memory_is_free_once_a_client_stops_in_its_body() {
    let request = post("", &[b"attack".as_slice(), &[b'a'; 84]].concat());
    let waf = "waf: { rules: [rules.conf] }\nlimits: { held_body_bytes: 100 }\n";
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
    assert_eq!(client.wait(1, |it| !it.interim.is_empty()).interim, ["100"]);
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
    assert_eq!(upstream.wait(1, |it| it.has_ended).body, b"q=harmless");
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

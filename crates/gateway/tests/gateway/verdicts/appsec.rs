//! The protocol of CrowdSec's AppSec component.

use serde_json::{Value, json};
use tollgate_gateway::Config;

use super::Scene;
use crate::support::http2::Http2Peer;
use crate::support::{TestGateway, poll};

const LISTENER: &str = "appsec: '127.0.0.1:0', keys: [other, secret]";
pub(super) const ALLOW: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n\
                     {\"action\":\"allow\",\"http_status\":200}";
pub(super) const BAN: &str = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n\
                   {\"action\":\"ban\",\"http_status\":403}";
/// Where the rule redirects.
const BAN_MOVED: &str = "HTTP/1.1 403 Forbidden\r\nLocation: https://x.example/new\r\nContent-Type: application/json\r\n\
                         Content-Length: 34\r\n\r\n{\"action\":\"ban\",\"http_status\":403}";
pub(super) const UNKNOWN_KEY: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
const MALFORMED: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// A request of a bouncer about a client's.
pub(super) fn ask(verb: &str, uri: &str, more: &str) -> String {
    let has_body = more.contains("Content-Length") || more.contains("chunked");
    let outer = if has_body { "POST" } else { "GET" };
    format!(
        "{outer} / HTTP/1.1\r\nHost: 127.0.0.1:7422\r\nUser-Agent: lua-resty-http/0.17\r\nX-Crowdsec-Appsec-Api-Key: secret\r\n\
         X-Crowdsec-Appsec-Ip: 198.51.100.7\r\nX-Crowdsec-Appsec-Uri: {uri}\r\nX-Crowdsec-Appsec-Verb: {verb}\r\n\
         X-Crowdsec-Appsec-Host: shop.example\r\nX-Crowdsec-Appsec-User-Agent: curl/8\r\n{more}\r\n"
    )
}

/// With a form that announces this length.
fn ask_with_form(length: usize) -> String {
    ask("POST", "/a", &format!("{FORM}Content-Length: {length}\r\n"))
}

#[test]
fn described_request_is_inspected() {
    let scene = Scene::start(LISTENER, "");
    let form = |body: &str| ask_with_form(body.len()) + body;
    let chunked = ask("POST", "/a", &format!("{FORM}Transfer-Encoding: chunked\r\n"));
    let lower = ask("GET", "/a?q=attack", "").to_ascii_lowercase();
    scene.expect(&[
        (&ask("GET", "/a?q=fine", ""), ALLOW),
        (&ask("GET", "/a?q=attack", ""), BAN),
        (&ask("GET", "http://shop.example/a?q=attack", ""), BAN),
        (&ask("DELETE", "/a", ""), BAN),
        (&ask("GET", "/old", ""), BAN_MOVED),
        (&ask("GET", "/a", "").replace("198.51.100.7", "192.0.2.1"), BAN),
        (&ask("GET", "/a", "").replace("shop.example", "evil.example"), BAN),
        (&form("q=attack"), BAN),
        (&form("q=benign"), ALLOW),
        (&format!("{chunked}8\r\nq=attack\r\n0\r\n\r\n"), BAN),
        (&format!("{chunked}8\r\nq=benign\r\n0\r\n\r\n"), ALLOW),
        (&lower.replacen("get / http/1.1", "GET / HTTP/1.1", 1), BAN),
        // CrowdSec does not parse these, and answers 500, upon which bouncers let them pass by default.
        (&ask("GET", "/%zz?q=attack", ""), BAN),
        (&ask("GET", "//a:b/?q=fine", ""), ALLOW),
    ]);
}

#[test]
fn rules_see_the_headers_of_the_client_alone() {
    let rules = r#"
SecRule REQUEST_HEADERS_NAMES "@rx (?i)crowdsec" "id:1,phase:1,deny"
SecRule REQUEST_HEADERS:User-Agent "!@streq curl/8" "id:2,phase:1,deny"
SecRule REQUEST_HEADERS:Host "!@streq shop.example" "id:3,phase:1,deny"
SecRule REQUEST_PROTOCOL "@within HTTP/2 HTTP/3.0 HTTP/1.0" "id:4,phase:1,deny"
SecRule REQUEST_HEADERS:X-Own "@streq 1" "id:5,phase:1,deny"
SecRule &REQUEST_HEADERS:User-Agent "@eq 0" "id:6,phase:1,deny"
"#;
    let scene = Scene::with_rules(rules, LISTENER, "");
    let version =
        |digits: &str| ask("GET", "/", &format!("X-Crowdsec-Appsec-Http-Version: {digits}\r\n"));
    let agent = "X-Crowdsec-Appsec-User-Agent: curl/8\r\n";
    scene.expect(&[
        (&ask("GET", "/", "X-Crowdsec-Appsec-Transaction-Id: 5\r\n"), ALLOW),
        (&ask("GET", "/", "X-Own: 1\r\n"), BAN),
        (&ask("GET", "/", "").replace(agent, ""), BAN),
        (&ask("GET", "/", "").replace(agent, "X-Crowdsec-Appsec-User-Agent: \r\n"), BAN),
        (&version("20"), BAN),
        (&version("30"), BAN),
        (&version("10"), BAN),
        (&version("11"), ALLOW),
        (&version("zz"), ALLOW),
        (&version("200"), ALLOW),
    ]);
}

#[test]
fn rules_out_of_band_inspect_all_requests_after_their_answers_and_block_none() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let seclang = |file: &str| format!("name: org/{file}\nseclang_files_rules: [{file}.conf]\n");
    write("in.yaml", &seclang("in"));
    write("later.yaml", &seclang("later"));
    write("in.conf", "SecRule REQUEST_URI \"@beginsWith /old\" \"id:1,phase:1,deny\"");
    let later = "SecRequestBodyAccess On\n\
                 SecRule ARGS \"@contains attack\" \"id:2,phase:2,deny,log,msg:'Attack'\"\n\
                 SecRule REMOTE_ADDR \"@ipMatch 198.51.100.7\" \"id:3,phase:1,pass,log,chain\"\n\
                 SecRule REQUEST_HEADERS:Host \"@streq shop.example\"\n";
    write("later.conf", later);
    write("mine.yaml", "inband_rules: [org/in]\noutofband_rules: [org/later]\n");
    let listener = format!("{LISTENER}, appsec-configs: [mine.yaml], appsec-rules: .");
    let config = format!(
        "listeners: [{{ {listener} }}]\nadmin: 127.0.0.1:0\naudit_log: {{ to: audit.json }}\n"
    );
    let config = Config::parse_serve(&config, &folder.path().join("waf.yaml")).unwrap();
    let scene = Scene { gateway: TestGateway::start(&config), folder };
    let long = format!("q=attack&{}", "x".repeat(20_000));
    scene.expect(&[
        (&ask("GET", "/a?q=attack", ""), ALLOW),
        (&(ask_with_form(long.len()) + &long), ALLOW),
        // Also of a request that is blocked in-band.
        (&ask("GET", "/old?q=attack", ""), BAN),
        (&ask("GET", "/a?q=fine", ""), ALLOW),
    ]);
    for (name, labels, expected) in [
        ("waf_inspected_total", "", 4),
        ("waf_blocked_total", "", 0),
        ("waf_detected_total", "", 4),
        ("waf_partial_total", "", 0),
        ("waf_rule_matches_total", ",rule=\"2\",action=\"detected\"", 3),
        ("waf_rule_matches_total", ",rule=\"3\",action=\"detected\"", 4),
    ] {
        let sample = format!("{name}{{route=\"127.0.0.1:0 out-of-band\"{labels}}} {expected}\n");
        poll(|| {
            let page = scene.gateway.admin("/metrics");
            let page = page.text();
            if page.contains(&sample) { Ok(()) } else { Err(format!("{sample} {page}")) }
        });
    }
    assert_eq!(scene.gateway.metric("waf_blocked_total{route=\"127.0.0.1:0\"}"), 1);
    let Scene { gateway, folder } = scene;
    gateway.drain();
    gateway.join();
    let log = std::fs::read_to_string(folder.path().join("audit.json")).unwrap();
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |label: &str| entries.iter().filter(|entry| entry["route"] == label).collect::<Vec<_>>();
    let (in_band, later) = (of("127.0.0.1:0"), of("127.0.0.1:0 out-of-band"));
    assert_eq!(in_band.len(), 1, "{log}");
    let of_blocked = later.iter().find(|entry| entry["target"] == "/old?q=attack").unwrap();
    assert_eq!(of_blocked["id"], in_band[0]["id"]);
    assert_eq!((&of_blocked["status"], &of_blocked["action"]), (&json!(403), &json!("detected")));
    assert_eq!(of_blocked["matches"][1]["message"], "Attack");
}

#[test]
fn unknown_keys_get_401_and_incomplete_descriptions_500() {
    let scene = Scene::start(LISTENER, "");
    let fine = ask("GET", "/a?q=fine", "");
    let [key, uri, verb, ip] =
        ["Api-Key: secret", "Uri: /a?q=fine", "Verb: GET", "Ip: 198.51.100.7"]
            .map(|header| format!("X-Crowdsec-Appsec-{header}\r\n"));
    for (from, to, expected) in [
        (&key, "", UNKNOWN_KEY),
        (&key, "X-Crowdsec-Appsec-Api-Key: \r\n", UNKNOWN_KEY),
        (&key, "X-Crowdsec-Appsec-Api-Key: secre\r\n", UNKNOWN_KEY),
        (&key, "X-Crowdsec-Appsec-Api-Key: Secret\r\n", UNKNOWN_KEY),
        (&key, "X-Crowdsec-Appsec-Api-Key: other\r\n", ALLOW),
        (&uri, "", MALFORMED),
        (&uri, "X-Crowdsec-Appsec-Uri: \r\n", MALFORMED),
        (&verb, "", MALFORMED),
        (&ip, "", MALFORMED),
        (&ip, "X-Crowdsec-Appsec-Ip: somewhere\r\n", ALLOW),
    ] {
        let request = fine.replace(from.as_str(), to);
        assert_ne!(request, fine);
        scene.expect(&[(&request, expected), (&fine, ALLOW)]);
    }
}

#[test]
fn received_part_is_the_body_once_its_time_or_its_connection_ends() {
    let announced = ask_with_form(100);
    let scene = Scene::start(&format!("{LISTENER}, body-time: 50ms"), "");
    // Nothing is sent, a part without an attack, and one with it.
    for (body, action) in [("", "allow"), ("q=benign", "allow"), ("q=attack", "ban")] {
        let mut client = scene.gateway.client();
        client.send(format!("{announced}{body}"));
        let response = client.response().unwrap();
        assert!(response.text().contains(action), "{body}: {}", response.text());
        client.expect_closed();
    }
    let scene = Scene::start(&format!("{LISTENER}, body-time: 1h"), "");
    for (body, action) in [("q=attack", "ban"), ("q=benign", "allow")] {
        let mut client = scene.gateway.client();
        client.send(format!("{announced}{body}"));
        client.finish();
        assert!(client.response().unwrap().text().contains(action), "{body}");
    }
    assert_eq!(scene.gateway.metric("bugs_total"), 0);
}

#[test]
fn body_beyond_ten_mebibytes_is_banned_or_inspected_in_part() {
    const BODY_BYTES: usize = 11 << 20;
    let waits = format!("{LISTENER}, budget: 1h");
    for (more, action) in
        [("", "ban"), (", waf: { request_body: { over_limit: partial } }", "allow")]
    {
        let scene = Scene::start(&format!("{waits}{more}"), "");
        let mut client = scene.gateway.client();
        client.send(ask_with_form(BODY_BYTES));
        // The verdict may come before the end, and the gateway may not read on.
        let _sent = client.try_send(vec![b'x'; BODY_BYTES]);
        assert!(client.response().unwrap().text().contains(action), "{more}");
    }
    // One within the limit is inspected to its end.
    let scene = Scene::start(&waits, "");
    let body = [&[b'x'; 300_000][..], b"&q=attack"].concat();
    let mut client = scene.gateway.client();
    client.send(ask_with_form(body.len()));
    client.send(&body);
    client.expect_dated(BAN);
}

#[test]
fn inspection_beyond_its_budget_is_answered_as_configured_and_counted() {
    // Each argument is decoded and compared in many forms.
    let transformations =
        ["t:urlDecodeUni", "t:htmlEntityDecode", "t:jsDecode", "t:cssDecode", "t:sha1", "t:md5"];
    let rules: String = (1..=60)
        .map(|id| {
            let order: Vec<_> = (0..6).map(|at| transformations[(at + id) % 6]).collect();
            format!(
                "SecRule ARGS \"@rx ({id}x+x+)+y$\" \"id:{id},phase:2,deny,multiMatch,{}\"\n",
                order.join(",")
            )
        })
        .collect();
    let rules = format!("SecRequestBodyAccess On\nSecArgumentsLimit 100000\n{rules}");
    let body: String = (0..100_000).map(|at| format!("a{at}=xxxxxxxxxxxxxxxxxxxx&")).collect();
    let request = ask_with_form(body.len()) + &body;
    for (late, action, counted) in [("block", "ban", "blocked"), ("pass", "allow", "passed")] {
        let listener = format!("{LISTENER}, budget: 1ms, late: {late}, body-time: 1h");
        let scene = Scene::with_rules(&rules, &listener, "");
        let mut client = scene.gateway.client();
        client.send(&request);
        assert!(client.response().unwrap().text().contains(action), "{late}");
        let sample = format!("waf_late_total{{route=\"127.0.0.1:0\",action=\"{counted}\"}}");
        assert_eq!(scene.gateway.metric(&sample), 1);
        // The inspection ends soon.
        let sample = "waf_dropped_total{route=\"127.0.0.1:0\",limit=\"cancelled\"} 1\n";
        poll(|| {
            let page = scene.gateway.admin("/metrics");
            if page.text().contains(sample) { Ok(()) } else { Err(page.text().to_owned()) }
        });
    }
}

#[test]
fn bouncers_may_use_http2_in_the_clear() {
    let scene = Scene::start(LISTENER, "");
    let mut client = Http2Peer::connect(scene.gateway.address());
    for (stream, uri, body, action) in
        [(1, "/a", "q=fine", "allow"), (3, "/a?q=attack", "", "ban"), (5, "/a", "q=attack", "ban")]
    {
        let head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "x"),
            (":path", "/"),
            ("x-crowdsec-appsec-api-key", "secret"),
            ("x-crowdsec-appsec-ip", "198.51.100.7"),
            ("x-crowdsec-appsec-uri", uri),
            ("x-crowdsec-appsec-verb", "GET"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        client.request(stream, false, &head);
        client.data(stream, true, body.as_bytes());
        assert!(client.response(stream).text().1.contains(action), "{uri} {body}");
    }
}

#[test]
fn a_thousand_bouncers_are_served_at_once() {
    let scene = Scene::start(LISTENER, "");
    let request = ask("GET", "/a?q=attack", "");
    let (start, end) = request.split_at(request.len() - 3);
    let mut clients: Vec<_> = (0..1000).map(|_| scene.gateway.client()).collect();
    clients.iter_mut().for_each(|client| client.send(start));
    clients.iter_mut().for_each(|client| client.send(end));
    for client in &mut clients {
        client.expect_dated(BAN);
    }
    poll(|| match scene.gateway.metric("waf_blocked_total{route=\"127.0.0.1:0\"}") {
        1000 => Ok(()),
        other => Err(other.to_string()),
    });
}

#[test]
fn client_that_has_ended_its_side_gets_its_verdict() {
    let scene = Scene::start(LISTENER, "");
    let mut client = scene.gateway.client();
    client.send(ask("GET", "/a?q=attack", "Connection: keep-alive\r\n"));
    client.finish();
    client.expect_dated(BAN);
}

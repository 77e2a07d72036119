//! Modes, samples, routes, reloads, and the audit log.

use tollgate_gateway::Config;

use super::{FORBIDDEN, FORM, Scene, post, read};
use crate::support::{GET, OK, Peer, poll};

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
fn bodies_are_parsed_and_malformed_ones_rejected_without_rules_for_that() {
    const RULES: &str = "SecRule ARGS \"@streq attack\" \"id:1,phase:2,deny,status:403\"\n\
                         SecRule XML:/* \"@contains attack\" \"id:2,phase:2,deny,status:403\"\n";
    let json = "Content-Type: application/json\r\n";
    let form = "Content-Type: multipart/form-data; boundary=b\r\n";
    let cases: [(&str, &str, u16); 7] = [
        (json, r#"{"a":"attack"}"#, 403),
        (json, r#"{"a":"#, 400),
        ("Content-Type: application/vnd.api+json\r\n", r#"{"a":["attack"]}"#, 403),
        (form, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n", 400),
        (form, "--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\nx\r\n--b--\r\n", 400),
        ("Content-Type: application/soap+xml\r\n", "<a>attack</a>", 403),
        ("Content-Type: text/xml\r\n", "<a>", 400),
    ];
    let scene = |more: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.conf"), RULES).unwrap();
        Scene::in_folder(folder, &format!("waf:\n  rules: [own.conf]\n{more}"))
    };
    let default = scene("");
    let off = scene("  request_body: { recommended: false }\n");
    for (headers, body, status) in cases {
        let request = post(headers, body.as_bytes());
        let mut client = default.client();
        client.send(&request);
        assert_eq!(client.expect_local_response_of(status), status, "{body}");
        let mut client = off.client();
        client.send(&request);
        let _upstream = off.serve(&request);
        client.expect(OK);
    }
    default.expect_untouched_backend();
}

#[test]
fn rules_for_bodies_are_those_that_each_route_lacks() {
    const JSON_RULE: &str = "SecAction \"id:3,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n";
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let attack = "SecRule ARGS \"@streq attack\" \"id:1,phase:2,deny,status:403\"\n";
    write("own.conf", attack);
    write("with-json.conf", &[JSON_RULE, attack].concat());
    write("cookies.conf", &attack.replace("ARGS", "REQUEST_COOKIES"));
    write("off.conf", &["SecRequestBodyAccess Off\n", attack].concat());
    // Routes with equal `rules` follow each other: a cached set must not serve the next one.
    let routes = [
        ("without", "{ rules: [own.conf], request_body: { recommended: false } }", false),
        ("own", "{ rules: [own.conf] }", true),
        ("own-tuned", "{ rules: [own.conf], exclusions: [SecRuleRemoveById 7] }", true),
        ("json", "{ rules: [with-json.conf] }", true),
        ("json-removed", "{ rules: [with-json.conf], exclusions: [SecRuleRemoveById 3] }", true),
        ("off", "{ rules: [off.conf] }", false),
        ("off-inspected", "{ rules: [off.conf], request_body: { inspect: true } }", true),
        ("removed", "{ rules: [own.conf], exclusions: [SecRuleRemoveById 4000000001] }", false),
        ("target", "{ rules: [cookies.conf], exclusions: [SecRuleUpdateTargetById 1 ARGS] }", true),
        (
            "renamed",
            "{ rules: [with-json.conf], exclusions: [\"SecRuleUpdateActionById 3 tag:'x'\", SecRuleRemoveByTag x] }",
            true,
        ),
    ];
    let routes_text: String = routes
        .iter()
        .map(|(name, waf, _)| format!("  - {{ path: /{name}, pool: site, waf: {waf} }}\n"))
        .collect();
    let scene = Scene::in_folder(folder, &format!("routes:\n{routes_text}"));
    for (name, _, is_parsed) in routes {
        let body = r#"{"a":"attack"}"#;
        let length = body.len();
        let request = format!(
            "POST /{name} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let mut client = scene.client();
        client.send(&request);
        if is_parsed {
            assert_eq!(client.expect_local_response_of(403), 403, "{name}");
        } else {
            let _upstream = scene.serve(&request);
            client.expect(OK);
        }
    }
}

#[test]
fn routes_that_exclude_a_rule_for_bodies_share_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let rules =
        "SecRule ARGS \"@streq attack\" \"id:1,phase:2,deny\"\nSecAction \"id:2,phase:1,pass\"\n";
    std::fs::write(folder.path().join("own.conf"), rules).unwrap();
    let route = |path: &str, more: &str| {
        format!(
            "{{ path: {path}, pool: p, waf: {{ exclusions: [SecRuleRemoveById 4000000003{more}] }} }}"
        )
    };
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\npools: [{{ name: p, backends: [{{ address: '127.0.0.1:1' }}] }}]\n\
         waf: {{ rules: [own.conf] }}\nroutes: [{}, {}]\n",
        route("/a", ""),
        route("/b", ", SecRuleRemoveById 2")
    );
    let config = Config::parse(&text, &folder.path().join("g.yaml")).unwrap();
    let sets: Vec<_> =
        config.routes.iter().map(|route| &route.waf.as_ref().unwrap().rules.set).collect();
    assert!(sets[0].shares_rules_with(sets[1]));
    assert_eq!(sets[0].rules().count(), sets[1].rules().count() + 1);
}

#[test]
fn exclusions_without_an_effect_are_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "rules.conf",
        "SecRule ARGS \"@contains attack\" \"id:1,phase:1,deny\"\nSecAction \"id:2,phase:1,pass\"\n",
    );
    write("exclusions.conf", "SecRuleRemoveById 1\n\nSecRuleRemoveById 12\n");
    // A file of the rule set with exclusions for an application.
    write("REQUEST-903.9002-WORDPRESS-EXCLUSION-RULES.conf", "SecRuleRemoveById 200002\n");
    let text = "listeners: [{ address: '127.0.0.1:0' }]\npools: [{ name: p, backends: [{ address: '127.0.0.1:1' }] }]\n\
                waf: { rules: [rules.conf, exclusions.conf, 'REQUEST-*.conf'], exclusions: [SecRuleRemoveById 13] }\n\
                routes: [{ pool: p }, { path: /a, pool: p, waf: { exclusions: [SecRuleRemoveById 13, SecRuleRemoveById 2] } }]\n";
    let config = Config::parse(text, &folder.path().join("g.yaml")).unwrap();
    let found: Vec<&str> = config
        .warnings
        .iter()
        .filter_map(|warning| {
            warning.split_once("an exclusion has no effect: ").map(|parts| parts.1)
        })
        .collect();
    let place = folder.path().join("exclusions.conf");
    assert_eq!(
        found,
        [
            &format!("{}:3:19: selects no rule: none has id 12", place.display()),
            "waf.exclusions:1:19: selects no rule: none has id 13",
        ]
    );
}

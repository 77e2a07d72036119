//! Rules that count across requests, over connections of several threads and across reloads.

use std::thread;

use tempfile::TempDir;

use super::{Scene, read};
use crate::support::{Backend, Peer, TestGateway, ThreadedBackend, poll};

const COUNT: &str = r#"
SecAction "id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR},initcol:global=all"
SecRule REQUEST_FILENAME "@streq /count" "id:2,phase:1,pass,nolog,setvar:global.count=+1"
SecRule REQUEST_FILENAME "@rx ^/is/(.*)" "id:3,phase:1,capture,deny,status:418,log,chain"
    SecRule GLOBAL:count "@streq %{tx.1}" "t:none"
SecRule IP:missing "@ge 3" "id:4,phase:1,deny,status:429,log"
SecRule RESPONSE_STATUS "@streq 404" "id:5,phase:5,pass,nolog,setvar:ip.missing=+1,expirevar:ip.missing=3600"
"#;

/// A folder with rules in `rules.conf`.
fn folder(rules: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.conf"), rules).unwrap();
    folder
}

fn status(client: &mut Peer, path: &str) -> u16 {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    client.response().unwrap().head[9..12].parse().unwrap()
}

#[test]
fn threads_count_together_and_reloads_keep_the_counts() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 25;
    let folder = folder(COUNT);
    let backend = ThreadedBackend::echo();
    let config = |waf: &str| {
        // The address of the scripted backend is replaced.
        let scripted = Backend::start();
        let mut config = read(folder.path(), &scripted, waf);
        config.pools[0].backends = crate::support::config_backends(&[backend.addr()]);
        config
    };
    let waf = "threads: 2\nwaf: { rules: [rules.conf] }\n";
    let gateway = TestGateway::start(&config(waf));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                // A connection each, which the threads share among them.
                let mut client = gateway.client();
                for _ in 0..REQUESTS {
                    assert_eq!(status(&mut client, "/count"), 200);
                }
            });
        }
    });
    let is_counted = |count: usize| status(&mut gateway.client(), &format!("/is/{count}")) == 418;
    assert!(is_counted(CLIENTS * REQUESTS));
    assert!(!is_counted(CLIENTS * REQUESTS + 1));
    assert_eq!(gateway.metric("waf_collections"), 1);

    let changed = COUNT.replace("status:418", "status:410");
    std::fs::write(folder.path().join("rules.conf"), changed).unwrap();
    gateway.reload(config(waf));
    let target = format!("/is/{}", CLIENTS * REQUESTS);
    assert_eq!(status(&mut gateway.client(), &target), 410);
}

#[test]
fn responses_are_counted_without_an_audit_log() {
    let scene = Scene::in_folder(folder(COUNT), "waf: { rules: [rules.conf] }\n");
    let mut client = scene.client();
    let request = "GET /missing HTTP/1.1\r\nHost: x\r\n\r\n";
    let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    client.send(request);
    let mut upstream = scene.backend.accept();
    for sent in 1..=3 {
        upstream.expect(request);
        upstream.send(not_found);
        assert_eq!(&client.response().unwrap().head[9..12], "404");
        if sent < 3 {
            client.send(request);
        }
    }
    assert_eq!(status(&mut client, "/missing"), 429);
    scene
        .gateway
        .expect_metric("waf_rule_matches_total{route=\"*/\",rule=\"4\",action=\"blocked\"}", 1);
}

#[test]
fn collections_are_bounded_and_evictions_counted() {
    const KEYS: u64 = 500;
    let rules = "SecAction \"id:1,phase:1,deny,status:403,nolog,initcol:session=%{ARGS.key},setvar:session.hits=+1\"";
    let waf =
        "waf: { rules: [rules.conf] }\nlimits: { collections: 32, collection_bytes: 1048576 }\n";
    let scene = Scene::in_folder(folder(rules), waf);
    let mut client = scene.client();
    for key in 0..KEYS {
        assert_eq!(status(&mut client, &format!("/?key={key}")), 403);
    }
    let kept = scene.gateway.metric("waf_collections");
    assert!((1..=32).contains(&kept), "{kept}");
    assert_eq!(scene.gateway.metric("waf_collections_evicted_total"), KEYS - kept);
    assert!(scene.gateway.metric("waf_collection_bytes") <= 1 << 20);
    // A value that does not fit is counted as dropped.
    let long = "v".repeat(8000);
    let rules = "SecAction \"id:1,phase:1,deny,status:403,nolog,initcol:session=%{ARGS.key}\"";
    std::fs::write(scene.folder.path().join("rules.conf"), rules).unwrap();
    scene.gateway.reload(read(scene.folder.path(), &scene.backend, waf));
    assert_eq!(status(&mut scene.client(), &format!("/?key={long}")), 403);
    poll(|| match scene.gateway.metric("waf_dropped_total{route=\"*/\",limit=\"collections\"}") {
        1 => Ok(()),
        other => Err(other.to_string()),
    });
}

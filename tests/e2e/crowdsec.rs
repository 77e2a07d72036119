//! `tollgate waf serve` beside CrowdSec 1.7 with the same virtual patches: the same requests of bouncers get the same status and the
//! same body.

use crate::foreign_server::{ForeignServer, built_program, free_port};
use crate::gateway::GatewayProcess;
use crate::support::{Workspace, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "
common: { daemonize: false, log_media: stdout, log_level: error }
config_paths:
  { config_dir: DIR, data_dir: DIR/data, simulation_path: DIR/simulation.yaml, hub_dir: DIR/hub, index_path: DIR/hub/.index.json, notification_dir: DIR/notifications, plugin_dir: DIR/plugins }
crowdsec_service: { acquisition_path: DIR/acquis.yaml, parser_routines: 1 }
db_config: { log_level: error, type: sqlite, db_path: DIR/data/crowdsec.db, use_wal: false }
api:
  client: { credentials_path: DIR/credentials.yaml }
  server: { log_level: error, listen_uri: '127.0.0.1:LAPI', profiles_path: DIR/profiles.yaml }
prometheus: { enabled: false }
";
const ACQUIS: &str = "source: appsec\nlisten_addr: 127.0.0.1:APPSEC\nroutines: 1\nappsec_configs: [setup/tollgate]\nlabels: { type: appsec }\n";
const PROFILES: &str = "name: nothing\nfilters: ['FILTER']\ndecisions: [{ type: ban, duration: 1m }]\non_success: break\n";

fn patches() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mixes/vpatch")
}

/// CrowdSec with the virtual patches and the key `tollgate`. `passed` is its status for a request that may pass. It bans the sources
/// of alerts for which the expression `bans` is true.
fn start_crowdsec(
    workspace: &Workspace,
    appsec_config: &str,
    passed: u16,
    bans: &str,
) -> ForeignServer {
    let (folder, appsec, lapi) = (workspace.path("crowdsec"), free_port(), free_port());
    for (name, text) in [
        ("config.yaml", CONFIG),
        ("acquis.yaml", ACQUIS),
        ("profiles.yaml", PROFILES),
        ("credentials.yaml", "url: http://127.0.0.1:LAPI\nlogin: tollgate\npassword: tollgate\n"),
        ("simulation.yaml", "simulation: false\n"),
        ("hub/.index.json", "{}\n"),
        ("appsec-configs/tollgate.yaml", appsec_config),
        ("data/.keep", ""),
    ] {
        let text = text.replace("DIR", folder.to_str().expect("text"));
        let text = text
            .replace("FILTER", bans)
            .replace("LAPI", &lapi.to_string())
            .replace("APPSEC", &appsec.to_string());
        workspace.write(&format!("crowdsec/{name}"), &text);
    }
    for name in ["parsers", "patterns", "scenarios", "notifications", "plugins", "appsec-rules"] {
        fs::create_dir_all(folder.join(name)).expect("a folder");
    }
    for from in [patches(), patches().join("rules")] {
        for file in fs::read_dir(from).expect("the patches").flatten() {
            if file.path().extension().is_some_and(|extension| extension == "yaml") {
                let to = folder.join("appsec-rules").join(file.file_name());
                fs::copy(file.path(), to).expect("a copy");
            }
        }
    }
    let register = Command::new(built_program("crowdsec", "register"))
        .args([folder.join("data/crowdsec.db").to_str().expect("text"), "tollgate"])
        .output()
        .expect("register");
    assert!(register.status.success(), "{register:?}");
    let mut command = Command::new(built_program("crowdsec", "crowdsec"));
    command.arg("-c").arg(folder.join("config.yaml")).arg("-no-capi").env("HOME", &folder);
    let log = fs::File::create(folder.join("log")).expect("a log");
    command.stdout(Stdio::from(log));
    let server = ForeignServer::start(&mut command, appsec, || {
        fs::read_to_string(folder.join("log")).unwrap_or_default()
    });
    // The check of a key needs the local API.
    assert!(wait_until(PATIENCE, || exchange(&server.address(), &ask("/", "")).0 == passed));
    server
}

fn start_ours(workspace: &Workspace) -> GatewayProcess {
    let folder = patches();
    let folder = folder.display();
    workspace.write(
        "waf.yaml",
        &format!(
            "listeners: [{{ appsec: '127.0.0.1:0', keys: [tollgate] }}]\nwaf: {{ rules: ['{folder}/*.yaml', '{folder}/rules/*.yaml'] }}\n"
        ),
    );
    GatewayProcess::start_with(workspace, &["waf", "serve", "waf.yaml"])
}

/// A request of a bouncer about a GET.
fn ask(uri: &str, more: &str) -> Vec<u8> {
    head(
        "GET",
        &[("Api-Key", "tollgate"), ("Ip", "192.0.2.1"), ("Uri", uri), ("Verb", "GET")],
        more,
    )
}

fn head(outer: &str, parts: &[(&str, &str)], more: &str) -> Vec<u8> {
    let lines = parts.iter().map(|(name, value)| format!("X-Crowdsec-Appsec-{name}: {value}\r\n"));
    let lines: String = lines.collect();
    format!("{outer} / HTTP/1.1\r\nHost: l\r\n{lines}{more}\r\n").into_bytes()
}

/// The status and the body of the response on a new connection.
fn exchange(address: &str, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request).expect("it reads");
    let mut reader = BufReader::new(stream);
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a response");
        match line.trim_end().split_once(' ') {
            None => break,
            Some((version, rest)) if version.starts_with("HTTP/") => {
                status = rest[..3].parse().expect("a status");
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length:") => {
                length = value.parse().expect("a length");
            }
            Some(_) => {}
        }
    }
    let mut body = vec![0; if request.starts_with(b"HEAD") { 0 } else { length }];
    reader.read_exact(&mut body).expect("the body");
    (status, String::from_utf8(body).expect("text"))
}

const ATTACK: &str = "/index.php?-d+allow_url_include%3d1";

/// Requests by name.
fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let all = [("Api-Key", "tollgate"), ("Ip", "192.0.2.1"), ("Uri", ATTACK), ("Verb", "GET")];
    let without = |name: &str| {
        let kept: Vec<_> = all.into_iter().filter(|(other, _)| *other != name).collect();
        head("GET", &kept, "")
    };
    let with = |name: &'static str, value: &'static str| {
        head("GET", &all.map(|(other, old)| (other, if other == name { value } else { old })), "")
    };
    let post = |body: &str, more: &str| {
        let uri = ("Uri", "/wp-content/plugins/wp-automatic/inc/csv.php");
        let parts = [("Api-Key", "tollgate"), ("Ip", "192.0.2.1"), uri, ("Verb", "POST")];
        let more = format!("{more}Content-Length: {}\r\n", body.len());
        [head("POST", &parts, &more), body.as_bytes().to_vec()].concat()
    };
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let lower = String::from_utf8(head("GET", &all, "")).expect("text");
    let lower = lower.replace("X-Crowdsec-Appsec-", "x-crowdsec-appsec-").into_bytes();
    vec![
        ("pass", ask("/", "")),
        ("block", ask(ATTACK, "")),
        ("absolute URI", ask(&format!("http://h.example{ATTACK}"), "")),
        ("names in lower case", lower),
        ("no key", without("Api-Key")),
        ("empty key", with("Api-Key", "")),
        ("unknown key", with("Api-Key", "wrong")),
        ("no address", without("Ip")),
        ("empty address", with("Ip", "")),
        ("no URI", without("Uri")),
        ("empty URI", with("Uri", "")),
        ("no method", without("Verb")),
        ("empty method", with("Verb", "")),
        ("no key and no URI", head("GET", &[("Ip", "192.0.2.1"), ("Verb", "GET")], "")),
        ("URI *", ask("*", "")),
        ("URI without a slash", ask("x", "")),
        ("invalid method", with("Verb", "G T")),
        ("method in lower case", with("Verb", "get")),
        ("version 1.1", ask("/", "X-Crowdsec-Appsec-Http-Version: 11\r\n")),
        ("version 2", ask(ATTACK, "X-Crowdsec-Appsec-Http-Version: 20\r\n")),
        ("invalid version", ask("/", "X-Crowdsec-Appsec-Http-Version: zz\r\n")),
        ("empty user agent", ask("/", "X-Crowdsec-Appsec-User-Agent: \r\n")),
        ("attack in the user agent", ask("/", "X-Crowdsec-Appsec-User-Agent: () { :;}; x\r\n")),
        ("attack in the bouncer's own user agent", ask("/", "User-Agent: () { :;}; x\r\n")),
        ("attack in a header", ask("/", "X-Any: () { :;}; x\r\n")),
        ("transaction id", ask(ATTACK, "X-Crowdsec-Appsec-Transaction-Id: 1-2-3\r\n")),
        ("first URI is the attack", ask(ATTACK, "X-Crowdsec-Appsec-Uri: /\r\n")),
        ("second URI is the attack", ask("/", &format!("X-Crowdsec-Appsec-Uri: {ATTACK}\r\n"))),
        ("HEAD", head("HEAD", &all, "")),
        ("PUT without a body", head("PUT", &all, "Content-Length: 0\r\n")),
        ("body that passes", post("q=benign", form)),
        ("body that is blocked", post("q=select+1", form)),
        ("body without a type", post("q=select+1", "")),
        ("long body", post(&format!("a={}&q=select+1", "x".repeat(100_000)), form)),
    ]
}

#[test]
fn bouncers_get_the_same_answers_as_from_crowdsec() {
    let workspace = Workspace::concurrent();
    let config = "name: setup/tollgate\ndefault_remediation: ban\ninband_rules: ['tollgate/*']\n";
    let theirs = start_crowdsec(&workspace, config, 200, "false");
    let ours = start_ours(&workspace);
    let mut different = Vec::new();
    let mut blocked = 0;
    for (name, request) in requests() {
        let (ours, theirs) =
            (exchange(&ours.address, &request), exchange(&theirs.address(), &request));
        blocked += usize::from(theirs.0 == 403);
        if ours != theirs {
            different.push((name, ours, theirs));
        }
    }
    assert_eq!(different, []);
    assert!(blocked >= 8, "{blocked}");
    // Targets that CrowdSec cannot parse are inspected; bouncers let its answer to them pass by default.
    for uri in ["/%zz/index.php?-d+x", "//a:b/index.php?-d+x", ":/index.php?-d+x"] {
        assert_eq!(exchange(&theirs.address(), &ask(uri, "")), (500, String::new()), "{uri}");
        assert_eq!(exchange(&ours.address, &ask(uri, "")).0, 403, "{uri}");
    }
    // It does not read a body in chunks, so attacks in one pass.
    let uri = ("Uri", "/wp-content/plugins/wp-automatic/inc/csv.php");
    let parts = [("Api-Key", "tollgate"), ("Ip", "192.0.2.1"), uri, ("Verb", "POST")];
    let more = "Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n";
    let chunked = [head("POST", &parts, more), b"a\r\nq=select+1\r\n0\r\n\r\n".to_vec()].concat();
    assert_eq!(exchange(&theirs.address(), &chunked).0, 200);
    assert_eq!(exchange(&ours.address, &chunked).0, 403);
}

#[test]
fn configuration_of_crowdsec_gives_the_same_answers() {
    let workspace = Workspace::concurrent();
    let config = "name: setup/tollgate\ndefault_remediation: captcha\ninband_rules: ['tollgate/CVE-2012-*', 'tollgate/CVE-2014-????']\n\
                  blocked_http_code: 418\nuser_blocked_http_code: 451\npassed_http_code: 202\nuser_passed_http_code: 201\n";
    let theirs = start_crowdsec(&workspace, config, 202, "false");
    workspace.write(
        "waf.yaml",
        "listeners: [{ appsec: '127.0.0.1:0', keys: [tollgate], appsec-configs: [crowdsec/appsec-configs/tollgate.yaml] }]\n",
    );
    let ours = GatewayProcess::start_with(&workspace, &["waf", "serve", "waf.yaml"]);
    let mut statuses = BTreeSet::new();
    for (name, request) in requests() {
        let (ours, theirs) =
            (exchange(&ours.address, &request), exchange(&theirs.address(), &request));
        assert_eq!(ours, theirs, "{name}");
        statuses.insert(theirs.0);
    }
    assert_eq!(statuses, BTreeSet::from([202, 401, 418, 500]));
}

#[test]
fn local_api_knows_keys_and_bans_for_alerts() {
    let workspace = Workspace::concurrent();
    let config = "name: setup/tollgate\ndefault_remediation: ban\ninband_rules: ['tollgate/*']\n";
    let theirs = start_crowdsec(&workspace, config, 200, r#"Alert.GetScope() == "Ip""#);
    let patches = patches();
    workspace.write(
        "waf.yaml",
        &format!(
            "listeners: [{{ appsec: '127.0.0.1:0' }}]\nlocal_api: {{ credentials: crowdsec/credentials.yaml, timeout: 1m }}\n\
             waf: {{ rules: ['{0}/*.yaml', '{0}/rules/*.yaml'] }}\n",
            patches.display()
        ),
    );
    let ours = GatewayProcess::start_with(&workspace, &["waf", "serve", "waf.yaml"]);
    let unknown = String::from_utf8(ask("/", "")).expect("text").replace("Key: tollgate", "Key: x");
    let check = || {
        assert_eq!(exchange(&ours.address, &ask("/", "")).0, 200);
        assert_eq!(exchange(&ours.address, unknown.as_bytes()).0, 401);
    };
    check();
    let credentials = fs::read_to_string(workspace.path("crowdsec/credentials.yaml"));
    let credentials = credentials.expect("the credentials");
    let api = credentials.lines().next().and_then(|line| line.strip_prefix("url: http://"));
    let api = api.expect("a URL").to_owned();
    let decisions = || {
        let head =
            "GET /v1/decisions?ip=192.0.2.1 HTTP/1.1\r\nHost: l\r\nX-Api-Key: tollgate\r\n\r\n";
        exchange(&api, head.as_bytes()).1
    };
    assert_eq!(decisions(), "null");
    assert_eq!(exchange(&ours.address, &ask(ATTACK, "")).0, 403);
    assert!(wait_until(PATIENCE, || decisions() != "null"));
    let decisions = decisions();
    assert!(decisions.contains(r#""type":"ban""#), "{decisions}");
    assert!(decisions.contains(r#""value":"192.0.2.1""#), "{decisions}");
    assert!(decisions.contains(r#""scenario":"tollgate/CVE-2012-1823""#), "{decisions}");
    // Without the local API, known keys stay valid, and others are refused.
    drop(theirs);
    check();
}

//! `tollgate mix import`: logs written by real servers, HAR from Chromium, the Core Rule Set's tests.

use crate::foreign_server::{ForeignServer, built_program, free_port};
use crate::gateway::GatewayProcess;
use crate::go_ftw::core_rule_set;
use crate::origin::OriginProcess;
use crate::site::browser::Browser;
use crate::support::{NO_LIMITS, Workspace, flat, show, stderr, stdout, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Requests with a quoted agent, an encoded quote and a token; 30, 20 and 10 of 60.
const SENT: &str = r#"
title   = "requests for a log"
headers = ['Host: shop.example', 'User-Agent: it"s \me', 'Accept: */*', 'Referer: http://shop.example/?q=1']

[[template]]
name   = "hello"
class  = "benign"
weight = 3
path   = "/hello?q=%22a%22&b=1"

[[template]]
name   = "token"
class  = "benign"
weight = 2
path   = "/hello?access_token=s3cret"

[[template]]
name   = "missing"
class  = "benign"
weight = 1
path   = "/missing"
expect = { status = 404 }
"#;

/// Sends 60 requests, none of which may be unexpected.
fn send(workspace: &Workspace, address: &str) {
    workspace.write("sent.toml", SENT);
    let url = format!("http://{address}");
    let (code, result) = workspace.load(&[&url, "--mix", "./sent.toml", "-n", "60", "-c", "2"]);
    assert_eq!((code, &result["unexpected"]), (Some(0), &json!(0)), "{result}");
}

/// Imports a file. Returns the lines of the list without those of its order, the first of which is its description, and
/// standard error.
fn import(workspace: &Workspace, arguments: &[&str]) -> (Vec<Value>, String) {
    fs::remove_file(workspace.path("out.mix")).ok();
    let output = workspace.run(&[&["mix", "import", "-o", "out.mix"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", show(&output));
    let list = workspace.read("out.mix");
    let lines = list.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    (lines.filter(|line: &Value| line["order"].is_null()).collect(), stderr(&output))
}

/// Checks that a log has the 60 requests, and that the mix made of it gets the expected responses from the same server.
fn check_log(workspace: &Workspace, log: &str, has_headers: bool, size: Option<u64>, server: &str) {
    let (lines, messages) = import(workspace, &[log, "--expect", "size"]);
    assert_eq!(messages, "secrets masked in 20 requests; --keep keeps them\n", "{log}");
    let mut found = BTreeMap::new();
    for line in &lines[1..] {
        let headers: Vec<&str> =
            line["headers"].as_array().expect("headers").iter().filter_map(Value::as_str).collect();
        if has_headers {
            assert!(headers.contains(&r#"User-Agent: it"s \me"#), "{log}: {line}");
            assert!(headers.contains(&"Referer: http://shop.example/?q=1"), "{log}: {line}");
        }
        if line["path"] != "/missing" {
            assert_eq!(line["body_bytes"].as_u64(), size, "{log}: {line}");
        }
        let key = (line["template"].as_str(), line["path"].as_str());
        found.insert(key, line["weight"].as_u64().unwrap_or(1));
    }
    let expected = BTreeMap::from([
        ((Some("GET 200"), Some("/hello?q=%22a%22&b=1")), 30),
        ((Some("GET 200"), Some("/hello?access_token=xxxxxx")), 20),
        ((Some("GET 404"), Some("/missing")), 10),
    ]);
    assert_eq!(found, expected, "{log}");
    let url = format!("http://{server}");
    let mix = [&*url, "--mix", "out.mix", "--host", "shop.example"];
    let (code, result) = workspace.load(&[&mix[..], &["-n", "60"]].concat());
    assert_eq!((code, &result["unexpected"]), (Some(0), &json!(0)), "{log}: {result}");
    // In the order of the log, which has a time and the client of each request.
    assert_eq!(lines[0]["events"], 60, "{log}");
    let (code, result) = workspace.load(&[&mix[..], &["--pace", "x10"]].concat());
    assert_eq!((code, &result["unexpected"]), (Some(0), &json!(0)), "{log}: {result}");
    let replay = &result["replay"];
    let counts = (&result["sent"], &replay["planned"], &replay["sessions"]);
    assert_eq!(counts, (&json!(60), &json!(60), &json!(1)), "{log}: {result}");
}

fn document_root(workspace: &Workspace) -> String {
    workspace.write("www/hello", "hello\n");
    // Workers of Apache and nginx do not run as root.
    use std::os::unix::fs::PermissionsExt as _;
    for path in [workspace.path(""), workspace.path("www")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    workspace.path("www").display().to_string()
}

fn start_nginx(workspace: &Workspace) -> ForeignServer {
    let (root, port) = (document_root(workspace), free_port());
    let path = workspace.path("").display().to_string();
    workspace.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {path}/nginx.pid; error_log stderr;
            events {{ }}
            http {{ log_format members escape=json '{{\"request_method\":\"$request_method\",\"request_uri\":\"$request_uri\",\"http_host\":\"$http_host\",\"http_referer\":\"$http_referer\",\"http_user_agent\":\"$http_user_agent\",\"status\":\"$status\",\"body_bytes_sent\":\"$body_bytes_sent\",\"msec\":\"$msec\",\"request_time\":\"$request_time\",\"remote_addr\":\"$remote_addr\"}}';
              access_log {path}/nginx.log combined; access_log {path}/nginx.json members;
              client_body_temp_path {path}/b; proxy_temp_path {path}/p;
              fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
              server {{ listen 127.0.0.1:{port}; root {root}; }} }}"
        ),
    );
    let mut command = Command::new("/usr/sbin/nginx");
    command.args(["-e", "stderr", "-p", &path, "-c"]).arg(workspace.path("nginx.conf"));
    command.stdout(Stdio::null());
    ForeignServer::start(&mut command, port, String::new)
}

#[test]
fn logs_of_nginx() {
    let workspace = Workspace::concurrent();
    let nginx = start_nginx(&workspace);
    send(&workspace, &nginx.address());
    for name in ["nginx.log", "nginx.json"] {
        fs::copy(workspace.path(name), workspace.path(&format!("{name}.kept"))).expect("a log");
    }
    for name in ["nginx.log", "nginx.json"] {
        check_log(&workspace, &format!("{name}.kept"), true, Some(6), &nginx.address());
    }
}

#[test]
fn logs_of_apache() {
    let workspace = Workspace::concurrent();
    let (root, port) = (document_root(&workspace), free_port());
    let path = workspace.path("").display().to_string();
    let modules = "/usr/lib/apache2/modules";
    let user = if nix::unistd::geteuid().is_root() { "User #65534\nGroup #65534" } else { "" };
    workspace.write(
        "apache.conf",
        &format!(
            "ServerRoot {path}\nServerName shop.example\nDefaultRuntimeDir {path}\nPidFile {path}/apache.pid
            ErrorLog {path}/apache.errors\nMutex pthread default\nListen 127.0.0.1:{port}\n{user}
            LoadModule mpm_event_module {modules}/mod_mpm_event.so
            LoadModule authz_core_module {modules}/mod_authz_core.so
            DocumentRoot {root}
            LogFormat \"%v:%p %h %l %u %t \\\"%r\\\" %>s %b \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" hosts
            LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b\" common
            CustomLog {path}/hosts.log hosts\nCustomLog {path}/common.log common\n"
        ),
    );
    let mut command = Command::new("/usr/sbin/apache2");
    command.args(["-D", "FOREGROUND", "-f"]).arg(workspace.path("apache.conf"));
    command.stdout(Stdio::null());
    let apache = ForeignServer::start(&mut command, port, String::new);
    send(&workspace, &apache.address());
    for name in ["hosts.log", "common.log"] {
        // A log is written after the response.
        let lines = || workspace.read(name).lines().count();
        assert!(wait_until(PATIENCE, || lines() == 60), "{name}: {}", lines());
        fs::copy(workspace.path(name), workspace.path(&format!("{name}.kept"))).expect("a log");
    }
    for (name, has_headers) in [("hosts.log", true), ("common.log", false)] {
        check_log(&workspace, &format!("{name}.kept"), has_headers, Some(6), &apache.address());
    }
    let (lines, _) = import(&workspace, &["hosts.log.kept"]);
    // The port of the server name, as of `UseCanonicalName`: 80.
    let host = "Host: shop.example";
    assert!(lines[1..].iter().all(|line| line["headers"][0] == json!(host)), "{lines:?}");
}

#[test]
fn log_of_haproxy() {
    let workspace = Workspace::concurrent();
    let nginx = start_nginx(&workspace);
    let port = free_port();
    workspace.write(
        "haproxy.cfg",
        &format!(
            "global\n  log stdout format raw local0\ndefaults\n  mode http\n  log global\n  option httplog
  timeout connect 5s\n  timeout client 20s\n  timeout server 20s
frontend site\n  bind 127.0.0.1:{port}\n  capture request header Host len 64\n  default_backend nginx
backend nginx\n  server one {}\n",
            nginx.address()
        ),
    );
    let log = fs::File::create(workspace.path("haproxy.log")).expect("a log");
    let mut command = Command::new("/usr/sbin/haproxy");
    command.arg("-f").arg(workspace.path("haproxy.cfg")).stdout(log);
    let haproxy = ForeignServer::start(&mut command, port, String::new);
    send(&workspace, &haproxy.address());
    let requests = || {
        let log = workspace.read("haproxy.log");
        let requests: Vec<&str> = log.lines().filter(|line| line.contains("HTTP/1.1")).collect();
        requests.join("\n")
    };
    assert!(wait_until(PATIENCE, || requests().lines().count() == 60), "{}", requests());
    workspace.write("kept.log", &requests());
    // HAProxy counts the head of a response, too, so that it does not give the size of the body.
    check_log(&workspace, "kept.log", false, None, &haproxy.address());
}

#[test]
fn log_of_caddy() {
    let caddy = built_program("caddy", "caddy");
    let workspace = Workspace::concurrent();
    let (root, port) = (document_root(&workspace), free_port());
    workspace.write(
        "Caddyfile",
        &format!(
            "{{\n admin off\n auto_https off\n persist_config off\n}}\nhttp://:{port} {{\n bind 127.0.0.1\n root * {root}\n file_server\n log {{\n  output file {}\n }}\n}}\n",
            workspace.path("caddy.log").display()
        ),
    );
    let mut command = Command::new(caddy);
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(workspace.path("Caddyfile"));
    command.env("HOME", workspace.path("")).stdout(Stdio::null());
    let caddy = ForeignServer::start(&mut command, port, String::new);
    send(&workspace, &caddy.address());
    let lines = || workspace.read("caddy.log").lines().count();
    assert!(wait_until(PATIENCE, || lines() == 60), "{}", lines());
    fs::copy(workspace.path("caddy.log"), workspace.path("kept.log")).expect("a log");
    check_log(&workspace, "kept.log", true, Some(6), &caddy.address());
}

#[test]
fn logs_of_the_gateway() {
    let workspace = Workspace::concurrent();
    let nginx = start_nginx(&workspace);
    for (format, log) in [("json", "json.log"), ("combined", "combined.log")] {
        workspace.write(
            "gateway.yaml",
            &format!(
                "listeners: [{{ address: '127.0.0.1:0' }}]\npools: [{{ name: site, backends: [{{ address: '{}' }}] }}]\nroutes: [{{ path: /, pool: site }}]\naccess_log: {{ to: '{}', format: {format} }}\n",
                nginx.address(),
                workspace.path(log).display()
            ),
        );
        let gateway = GatewayProcess::start(&workspace);
        send(&workspace, &gateway.address);
        let lines =
            || fs::read_to_string(workspace.path(log)).map_or(0, |text| text.lines().count());
        assert!(wait_until(PATIENCE, || lines() == 60), "{log}: {}", lines());
        fs::copy(workspace.path(log), workspace.path("kept.log")).expect("a log");
        check_log(&workspace, "kept.log", true, Some(6), &gateway.address);
    }
}

/// Chromium records what it sends in the events of its network domain, from which the export as HAR of its tools is made.
#[test]
fn har_of_chromium() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    let mut browser = Browser::start(&workspace, &workspace.path("downloads"));
    browser.open(&format!("{}/hello", origin.listens_on));
    browser.evaluate("document.cookie = 'id=s3cret'");
    let har = browser.har(&[
        "fetch('/a?token=s3cret&q=1').then(r => r.text())",
        "fetch('/form', {method: 'POST', body: new URLSearchParams({user: 'u', password: 's3cret'})}).then(r => r.text())",
        "fetch('/json', {method: 'PUT', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({q: 'é', secret: 's3cret'})}).then(r => r.text())",
    ]);
    workspace.write("shop.har", &har.to_string());
    let (lines, messages) = import(&workspace, &["shop.har"]);
    assert_eq!(messages, "secrets masked in 3 requests; --keep keeps them\n");
    let text = |line: &Value| {
        let body = line["body"].as_str().unwrap_or("-");
        let method = line["method"].as_str().unwrap_or("GET");
        format!("{method} {} {body}", line["path"].as_str().expect("a path"))
    };
    let requests: Vec<String> = lines[1..].iter().map(text).collect();
    assert_eq!(
        requests,
        [
            "GET /a?token=xxxxxx&q=1 -",
            "POST /form user=u&password=xxxxxx",
            r#"PUT /json {"q":"é","secret":"xxxxxx"}"#
        ]
    );
    for line in &lines[1..] {
        let headers: Vec<&str> =
            line["headers"].as_array().expect("headers").iter().filter_map(Value::as_str).collect();
        let has = |start: &str| headers.iter().any(|header| header.starts_with(start));
        assert!(has("Cookie: id=xxxxxx") && has("User-Agent: Mozilla/5.0"), "{line}");
    }
    assert!(!workspace.read("out.mix").contains("s3cret"));
    let (kept, _) = import(&workspace, &["shop.har", "--keep", "all"]);
    assert_eq!(text(&kept[2]), "POST /form user=u&password=s3cret");
    let mix = [&*origin.listens_on, "--mix", "out.mix"];
    let (code, result) = workspace.load(&[&mix[..], &["-n", "30", "-c", "1"]].concat());
    assert_eq!((code, &result["unexpected"]), (Some(0), &json!(0)), "{result}");
    let (code, result) = workspace.load(&[&mix[..], &["--pace", "original"]].concat());
    assert_eq!((code, &result["unexpected"]), (Some(0), &json!(0)), "{result}");
    assert_eq!((&result["responses"], &result["replay"]["sessions"]), (&json!(3), &json!(1)));
    origin.stop();
}

#[test]
fn tests_of_the_core_rule_set() {
    let workspace = Workspace::concurrent();
    let tests = core_rule_set().join("tests");
    let (lines, messages) = import(&workspace, &[&tests.display().to_string()]);
    let requests = lines.len() - 1;
    assert!(requests > 2_000, "{requests}: {messages}");
    let templates = lines[0]["templates"].as_array().expect("templates");
    let of_class = |class: &str| templates.iter().filter(|one| one["class"] == class).count();
    assert!(of_class("malicious") > 200 && of_class("benign") > 100, "{}", lines[0]);
    let sql = |line: &&Value| line["template"] == "942100 match";
    assert!(lines[1..].iter().filter(sql).count() > 5);
    // Nothing is masked, such as an attack in a cookie.
    assert!(!messages.contains("masked"), "{messages}");
    assert!(messages.contains("the test is for another version than HTTP/1.1"), "{messages}");
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    let (code, result) = workspace.load(&[&origin.listens_on, "--mix", "out.mix", "-n", "5000"]);
    assert_eq!(code, Some(0), "{result}");
    origin.stop();
}

#[test]
fn list_of_many_requests_takes_less_memory_than_twice_its_file() {
    let workspace = Workspace::concurrent();
    let line = |number: usize| {
        let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
        format!(
            "a - - [t] \"GET /?payload=100&product={number} HTTP/1.1\" 200 100 \"http://shop.example/\" \"{agent}\"\n"
        )
    };
    workspace.write("a.log", &(0..100_000).map(line).collect::<String>());
    let (lines, _) = import(&workspace, &["a.log", "--expect", "size"]);
    assert_eq!(lines.len(), 100_001);
    let file_bytes = fs::metadata(workspace.path("out.mix")).expect("a file").len();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    workspace.write("one.log", &line(1));
    let many = peak_kib(&workspace, &origin.listens_on, 120_000);
    import(&workspace, &["one.log", "--expect", "size"]);
    let one = peak_kib(&workspace, &origin.listens_on, 1_000);
    // Less the program itself, of which a debug build maps more.
    let list_bytes = (many - one) * 1024;
    assert!(list_bytes < 2 * file_bytes, "{one} KiB, {many} KiB, {file_bytes} bytes");
    origin.stop();
}

/// Sends the list and returns the peak memory of the load.
fn peak_kib(workspace: &Workspace, url: &str, requests: u64) -> u64 {
    let number = requests.to_string();
    let mut load = workspace
        .start(&["load", url, "--mix", "out.mix", "-n", &number, "-c", "8", "--format", "json"]);
    let process = procfs::process::Process::new(load.id().cast_signed()).expect("it runs");
    let mut peak_kib = 0;
    let ended = wait_until(Duration::from_secs(120), || {
        // Gone after the end. The peak never falls, so the last reading counts.
        let peak = process.status().ok().and_then(|status| status.vmhwm);
        peak_kib = peak.unwrap_or(peak_kib);
        load.try_wait().expect("its end").is_some()
    });
    assert!(ended && peak_kib > 0);
    let output = load.wait_with_output().expect("its output");
    let result: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let counts = (&result["responses"], &result["unexpected"]);
    assert_eq!(counts, (&json!(requests), &json!(0)), "{result}");
    peak_kib
}

#[test]
fn bad_input_is_reported_with_its_place() {
    let workspace = Workspace::concurrent();
    let fails = |arguments: &[&str], code: i32, message: &str| {
        let output = workspace.run(&[&["mix", "import", "-o", "bad.mix"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{}", show(&output));
        assert!(stderr(&output).contains(message), "{}", show(&output));
        assert!(!workspace.path("bad.mix").exists());
    };
    workspace.write("odd.txt", "GET / HTTP/1.1\r\n");
    workspace.write("bad.har", "{\"log\":\n {\"entries\": 5}}");
    workspace.write("empty.log", "x \"\" 400 5\n");
    fails(&["odd.txt"], 2, "the format is not known; name it with --as");
    fails(&["none.log"], 2, "cannot import \"none.log\": No such file");
    fails(&["bad.har"], 2, "bad.har:2:14: invalid type: integer");
    fails(
        &["odd.txt", "--as", "access-log"],
        4,
        "skipped 1: no request in quotes (first: odd.txt:1:1: GET / HTTP/1.1)",
    );
    fails(&["empty.log", "--field", "verb=x"], 2, "unknown field `verb`");
    let log = "a - - [t] \"GET /a HTTP/1.1\" 200 5\n\na - - [t] \"\\x16\\x03\" 400 5\n";
    let mut zipped = flate(log);
    fs::write(workspace.path("a.log.gz"), &mut zipped).expect("a file");
    workspace.write("rotated.log", "");
    fails(&["rotated.log"], 4, "no request to import");
    let (lines, messages) = import(&workspace, &["rotated.log", "a.log.gz"]);
    assert_eq!(lines.len(), 2);
    assert!(
        messages.contains("skipped 1: no request line of three words (first: a.log.gz:3:11: "),
        "{messages}"
    );
    let exists = workspace.run(&["mix", "import", "-o", "out.mix", "a.log.gz"]);
    assert!(stderr(&exists).contains("it exists; remove it"), "{}", show(&exists));
    assert_eq!(stdout(&exists), "");
    let nowhere = workspace.run(&["mix", "import", "-o", "nowhere/out.mix", "a.log.gz"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", show(&nowhere));
    assert!(stderr(&nowhere).contains("cannot write \"nowhere/out.mix\""), "{}", show(&nowhere));
}

#[test]
fn long_first_line_is_recognized() {
    let workspace = Workspace::concurrent();
    let line = |target: &str| format!("a - - [t] \"GET {target} HTTP/1.1\" 200 5\n");
    let long = format!("/?q={}", "a".repeat(60_000));
    workspace.write("long.log", &format!("{}{}", line(&long), line("/b")));
    workspace.write("longer.log", &format!("{}{}", line(&long.repeat(9)), line("/b")));
    for log in ["long.log", "longer.log"] {
        let (lines, _) = import(&workspace, &[log]);
        assert_eq!(lines.len(), 3, "{log}");
        assert_eq!(lines[2]["path"], "/b", "{log}");
    }
}

fn flate(text: &str) -> Vec<u8> {
    let mut zipped = Vec::new();
    flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::fast())
        .read_to_end(&mut zipped)
        .expect("gzip");
    zipped
}

/// A log with paths that are endpoints of the benchmark site.
const OWN_TRAFFIC: &str = "\
10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /sleep?time=30 HTTP/1.1\" 200 100 \"-\" \"x\"
10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /download?size=90000000 HTTP/1.1\" 200 7 \"-\" \"x\"
10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET / HTTP/1.1\" 200 40000 \"-\" \"x\"
10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /a/style.css HTTP/1.1\" 200 31 \"-\" \"x\"
10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /old HTTP/1.1\" 301 162 \"-\" \"x\"
10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /none HTTP/1.1\" 404 9 \"-\" \"x\"
10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"POST /status/503 HTTP/1.1\" 204 0 \"-\" \"x\"
";

const OWN_TRAFFIC_EXPERIMENT: &str = r#"
title    = "What does a proxy cost on this traffic?"
baseline = "direct"

[[case]]
name = "own"
mix  = "own.toml"
load = { connections = 2, duration = "500ms", warmup = "0s" }

[[subject]]
name   = "direct"
system = "direct"

[[subject]]
name   = "gateway"
system = "tollgate-gateway"

[design]
blocks = 1
"#;

const OWN_MIX: &str = r#"
title = "a shop's own traffic"

[[include]]
mix = "own.mix"

[[include]]
mix    = "parts/attacks-get"
weight = 0
only   = ["sql-tautology"]
"#;

#[test]
fn origin_of_a_run_responds_as_recorded() {
    let workspace = Workspace::quiet();
    workspace.write("access.log", OWN_TRAFFIC);
    workspace.write("own.toml", OWN_MIX);
    workspace.write("experiment.toml", &format!("{OWN_TRAFFIC_EXPERIMENT}{NO_LIMITS}"));
    let import = ["mix", "import", "access.log", "--expect", "size", "-o", "own.mix"];
    assert_eq!(workspace.run(&import).status.code(), Some(0));
    let output = workspace.run(&["run", "experiment.toml", "--seed", "5", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let mut seen = 0;
    for record in workspace.records() {
        let measured = &record["outcome"]["measured"];
        // Status and length of each; none takes 30 seconds.
        assert_eq!(measured["unexpected"], 0, "{record}");
        assert!(measured["responses"].as_u64() > Some(10), "{record}");
        seen += 1;
    }
    assert!(seen >= 2, "{seen}");
    let report = workspace.run(&["report", "out"]);
    let text = flat(&stdout(&report));
    assert!(text.contains("own: the origin responds to the 7 targets of the recording"), "{text}");
    workspace.assert_nothing_runs();
}

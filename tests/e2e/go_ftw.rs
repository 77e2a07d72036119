//! The Core Rule Set's regression tests, sent by go-ftw to a backend: through the gateway, through Envoy with its module, or through a
//! proxy that asks `tollgate waf serve`.

use crate::envoy::Envoy;
use crate::foreign_server::{ForeignServer, NGINX_FOLDERS, free_port};
use crate::gateway::GatewayProcess;
use crate::support::{Workspace, show, stdout};
use crate::waf_serve;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use tollgate_waf_tools::regression::reflect;
use tollgate_waf_tools::replay;

/// Tests that fail over HTTP, each with its reason.
const DIFFERENCES: &str = include_str!("../go-ftw/differences.txt");
/// Tests that fail through HAProxy, each with its reason.
const DIFFERENCES_OF_HAPROXY: &str = include_str!("../go-ftw/differences-haproxy.txt");
/// Tests that fail through nginx and its bouncer, each with its reason.
const DIFFERENCES_OF_NGINX: &str = include_str!("../go-ftw/differences-nginx.txt");
/// Tests that fail through Envoy, each with its reason.
const DIFFERENCES_OF_ENVOY: &str = include_str!("../go-ftw/differences-envoy.txt");
/// Tests that the engine alone fails.
const OF_THE_ENGINE: &str = include_str!("../../crates/waf/tests/known-differences.txt");

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs Go in a folder of the repository. Returns what it prints.
pub(crate) fn go(folder: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("go");
    let output = command.args(arguments).current_dir(repository().join(folder)).output();
    let output =
        output.unwrap_or_else(|error| panic!("cannot run go: {error}; run `scripts/setup go`"));
    assert!(output.status.success(), "go {arguments:?}: {}", show(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Folder of the Core Rule Set in Go's module cache.
pub(crate) fn core_rule_set() -> PathBuf {
    go("builds/crs", &["mod", "download"]);
    let module = "github.com/corazawaf/coraza-coreruleset/v4";
    PathBuf::from(go("builds/crs", &["list", "-m", "-f", "{{.Dir}}", module]))
}

/// Starts the backend that the tests expect: `/reflect` sends what the body of the request describes.
pub(crate) fn start_backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(client));
        }
    });
    address
}

/// Responds to requests until the gateway closes the connection or sends an invalid request.
fn serve(client: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut client = client;
    loop {
        let mut raw = Vec::new();
        let mut line_start = 0;
        loop {
            reader.read_until(b'\n', &mut raw).ok().filter(|&count| count > 0)?;
            if raw.len() > 2 && raw[line_start..] == *b"\r\n" {
                break;
            }
            line_start = raw.len();
        }
        let head = replay::parse_raw(&raw);
        let value = |name: &str| {
            let mut headers = head.headers.iter();
            let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        if let Some(length) = value("content-length").and_then(|text| text.parse::<u64>().ok()) {
            (&mut reader).take(length).read_to_end(&mut raw).ok()?;
        } else if value("transfer-encoding").is_some() {
            while !raw.ends_with(b"\r\n0\r\n\r\n") {
                reader.read_until(b'\n', &mut raw).ok().filter(|&count| count > 0)?;
            }
        }
        let response = reflect(&replay::parse_raw(&raw));
        let mut text = format!("HTTP/1.1 {} Reflected\r\n", response.status).into_bytes();
        for (name, value) in &response.headers {
            text.extend([name, b": ".as_slice(), value, b"\r\n"].concat());
        }
        let is_empty = matches!(response.status, 100..=199 | 204 | 304);
        if is_empty {
            text.extend(b"\r\n");
        } else {
            text.extend(format!("Content-Length: {}\r\n\r\n", response.body.len()).bytes());
            if head.method != b"HEAD" {
                text.extend(&response.body);
            }
        }
        client.write_all(&text).ok()?;
    }
}

/// Lines of ModSecurity's log for an entry of the audit log, or the marker that go-ftw looks for.
fn log_lines(entry: &str) -> String {
    let entry: Value =
        serde_json::from_str(entry).unwrap_or_else(|error| panic!("{error}: {entry}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = String::new();
    let headers = entry["headers"].as_array();
    let is_mark = |header: &&Value| {
        header[0].as_str().is_some_and(|name| name.eq_ignore_ascii_case("X-CRS-Test"))
    };
    if let Some(mark) = headers.into_iter().flatten().find(is_mark) {
        // The findings of a mark are those of no test.
        return format!("X-CRS-Test: {}\n", text(&mark[1]));
    }
    for found in entry["matches"].as_array().into_iter().flatten() {
        let (message, data) =
            (text(&found["message"]), text(&found["data"]).escape_debug().to_string());
        let variable = text(&found["variable"]);
        writeln!(
            lines,
            "[id \"{}\"] [msg \"{message}\"] [data \"{data}\"] [variable \"{variable}\"]",
            found["rule"]
        )
        .expect("a string");
    }
    lines
}

fn listed(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.filter_map(|line| line.split_once(": ")).collect()
}

/// Builds the runner of tests. Returns its path.
pub(crate) fn build_go_ftw(workspace: &Workspace) -> PathBuf {
    let program = workspace.path("go-ftw");
    go("tests/go-ftw", &["build", "-o", program.to_str().expect("UTF-8"), "."]);
    program
}

#[test]
pub(crate) fn core_rule_set_passes_its_tests_through_the_gateway() {
    let workspace = Workspace::long();
    let rules = core_rule_set();
    let backend = start_backend();
    let config = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]
threads: 1
pools: [{{ name: backend, backends: [{{ address: '{backend}' }}] }}]
routes:
  - {{ path: /, pool: backend }}
  # The requests that mark a place in the log.
  - {{ path: /status/200, pool: backend, waf: {{ rules: [none.conf] }} }}
{}",
        firewall(&rules)
    );
    workspace.write("gateway.yaml", &config);
    workspace.write("none.conf", "SecRuleEngine DetectionOnly\n");
    let gateway = GatewayProcess::start(&workspace);
    let port = gateway.address.rsplit(':').next().expect("a port").to_owned();
    let log = follow(&workspace, gateway);
    let printed = run_tests(&workspace, &rules, &log.path, &port);
    compare(&printed, 4_660, &[DIFFERENCES, OF_THE_ENGINE]);
}

/// The firewall and the log of a configuration with the rules of the tests.
fn firewall(rules: &Path) -> String {
    let [settings, setup, crs] = rule_files(rules).map(|path| path.display().to_string());
    format!(
        "waf:
  mode: detection-only
  rules:
    - {settings}
    - {setup}
    - {crs}
audit_log: {{ to: stdout, include: all, masked: [] }}
"
    )
}

fn rule_files(rules: &Path) -> [PathBuf; 3] {
    let crs = rules.join("rules");
    [
        repository().join("tests/go-ftw/rules.conf"),
        crs.join("@crs-setup.conf.example"),
        crs.join("@owasp_crs/*.conf"),
    ]
}

/// Writes the entries of a process, whose audit log is on its standard output, as lines of ModSecurity's log. The process runs until
/// the result is dropped.
fn follow(workspace: &Workspace, mut logs: GatewayProcess) -> Log {
    workspace.write("waf.log", "");
    let path = workspace.path("waf.log");
    let mut log = File::options().append(true).open(&path).expect("the log");
    let entries = std::mem::replace(&mut logs.printed, mpsc::channel().1);
    thread::spawn(move || {
        for entry in entries {
            log.write_all(log_lines(&entry).as_bytes()).expect("the log is written");
        }
    });
    Log { path, _process: logs }
}

/// A log in the form of ModSecurity's, with the process that writes it.
struct Log {
    path: PathBuf,
    _process: GatewayProcess,
}

/// Sends the tests to a port.
fn run_tests(workspace: &Workspace, rules: &Path, log: &Path, port: &str) -> String {
    let program = build_go_ftw(workspace);
    let output = Command::new(&program).arg(rules.join("tests")).arg(port).arg(log).output();
    let output = output.expect("go-ftw runs");
    assert!(output.status.success(), "{}", show(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compares what the runner printed with the number of tests that pass, and with lists of those that fail.
fn compare(printed: &str, passes: usize, differences: &[&str]) {
    let passed = printed.lines().filter(|line| line.starts_with("passed ")).count();
    let failed = printed.lines().filter_map(|line| line.strip_prefix("failed "));
    let mut known: BTreeMap<_, _> = differences.iter().copied().flat_map(listed).collect();
    let new: Vec<&str> = failed
        .filter(|line| line.split_once(": ").is_none_or(|(name, _)| known.remove(name).is_none()))
        .collect();
    assert!(new.is_empty(), "{} tests failed:\n{}", new.len(), new.join("\n"));
    assert!(known.is_empty(), "no longer different: {known:?}");
    assert_eq!(passed, passes, "{printed}");
}

/// Starts the daemon with the rules of the tests on a listener.
fn start_daemon(workspace: &Workspace, rules: &Path, listener: &str) -> GatewayProcess {
    let config = format!(
        "listeners: [{{ {listener}, budget: 1m }}]
{}",
        firewall(rules)
    );
    workspace.write("waf.yaml", &config);
    waf_serve::start_daemon(workspace)
}

#[test]
fn core_rule_set_passes_its_tests_through_haproxy() {
    let (workspace, rules, backend) = (Workspace::long(), core_rule_set(), start_backend());
    let waf = free_port();
    let daemon =
        start_daemon(&workspace, &rules, &format!("spoe: '127.0.0.1:{waf}', responses: {{}}"));
    for (which, file) in [("proxy", "haproxy.cfg"), ("messages", "coraza.cfg")] {
        let printed = workspace.run(&["waf", "serve", "--print-haproxy", which, "waf.yaml"]);
        workspace.write(file, &stdout(&printed).replace("127.0.0.1:8000", &backend.to_string()));
    }
    let proxy = free_port();
    let text = std::fs::read_to_string(workspace.path("haproxy.cfg")).expect("a file");
    workspace.write("haproxy.cfg", &text.replace("8080", &proxy.to_string()));
    let mut command = Command::new("haproxy");
    command.current_dir(workspace.path("")).args(["-f", "haproxy.cfg"]).stdout(Stdio::null());
    let _haproxy = ForeignServer::start(&mut command, proxy, String::new);
    let log = follow(&workspace, daemon);
    let printed = run_tests(&workspace, &rules, &log.path, &proxy.to_string());
    compare(&printed, 4_653, &[DIFFERENCES_OF_HAPROXY, OF_THE_ENGINE]);
}

/// The text of a block of the system's template for nginx, which has the bouncer.
fn nginx_block(name: &str) -> &'static str {
    let template = include_str!("../../systems/crowdsec-appsec/nginx.conf");
    let begin = format!("{{% block {name} %}}");
    let (_, block) = template.split_once(&begin).expect("a block");
    block.split_once("{% endblock %}").expect("its end").0
}

#[test]
fn core_rule_set_passes_its_tests_through_nginx_with_a_bouncer() {
    let (workspace, rules, backend) = (Workspace::long(), core_rule_set(), start_backend());
    let waf = free_port();
    let listener = format!("appsec: '127.0.0.1:{waf}', keys: [tollgate]");
    let daemon = start_daemon(&workspace, &rules, &listener);
    let (proxy, folder) = (free_port(), workspace.path("nginx"));
    std::fs::create_dir(&folder).expect("a folder");
    let mut text = format!(
        "{}daemon off; pid nginx.pid; error_log error.log; events {{}}
http {{
access_log off; ignore_invalid_headers off; client_body_buffer_size 1m; client_max_body_size 16m;
proxy_http_version 1.1; proxy_set_header Host $host;
{NGINX_FOLDERS} {} server {{ listen 127.0.0.1:{proxy}; {} }}
}}",
        nginx_block("modules"),
        nginx_block("http"),
        nginx_block("locations"),
    );
    for (name, value) in [
        ("FOLDER", folder.to_str().expect("text")),
        ("{{ dir }}", folder.to_str().expect("text")),
        ("{{ ports.appsec.address }}", &format!("127.0.0.1:{waf}")),
        ("{{ requests }}", "8"),
        ("{% include \"nginx/answer.conf\" %}", &format!("proxy_pass http://{backend};")),
    ] {
        text = text.replace(name, value);
    }
    workspace.write("nginx/nginx.conf", &text);
    workspace.write("nginx/appsec.lua", include_str!("../../systems/crowdsec-appsec/appsec.lua"));
    let mut command = Command::new("/usr/sbin/nginx");
    command.args(["-e", "stderr", "-c", "nginx.conf", "-p"]).arg(&folder).stdout(Stdio::null());
    let log = || std::fs::read_to_string(folder.join("error.log")).unwrap_or_default();
    let _nginx = ForeignServer::start(&mut command, proxy, log);
    let log = follow(&workspace, daemon);
    let printed = run_tests(&workspace, &rules, &log.path, &proxy.to_string());
    // Two Content-Type headers are one, as in Apache.
    compare(&printed, 4_578, &[DIFFERENCES_OF_NGINX]);
}

#[test]
fn core_rule_set_passes_its_tests_through_envoy() {
    let (workspace, rules) = (Workspace::long(), core_rule_set());
    // The requests that mark a place in the log have a line there, and no other match.
    workspace.write(
        "marks.conf",
        "SecRule REQUEST_HEADERS:X-CRS-Test \"@rx ^(.*)$\" \"id:999999,phase:1,pass,log,capture,msg:'X-CRS-Test %{tx.1}',ctl:ruleEngine=Off\"\n",
    );
    let [settings, setup, crs] = rule_files(&rules).map(|path| path.display().to_string());
    let files = [settings, "marks.conf".to_owned(), setup, crs].join(", ");
    let waf = format!("{{mode: detection-only, rules: [{files}]}}");
    let envoy = Envoy::start_workers(1, &workspace, &waf, "", start_backend().port());
    let log = workspace.path("envoy.log");
    let printed = run_tests(&workspace, &rules, &log, &envoy.server.port.to_string());
    // Envoy joins two headers Content-Type, as Apache does.
    let of_the_engine = OF_THE_ENGINE.replace("920620-1: ", "# ");
    compare(&printed, 4_622, &[DIFFERENCES_OF_ENVOY, &of_the_engine]);
}

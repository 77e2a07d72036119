//! The module for Envoy, in Envoy: every part of requests and responses, limits, trailers, slow and reset streams, routes, updates of
//! listeners under load, and configurations that it refuses.
//!
//! `TOLLGATE_TEST_ENVOY` names another Envoy than the one of `tollgate systems build envoy`; `make envoy-releases` runs the suite in each
//! release that the module is for.

use crate::foreign_server::{ForeignServer, built_program, free_port};
use crate::go_ftw::start_backend;
use crate::support::{Workspace, wait_until};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks arguments and headers with `attack`, and pages with `secret`.
const RULES: &str = r#"
SecRequestBodyAccess On
SecResponseBodyAccess On
SecResponseBodyMimeType text/html
SecRule ARGS|REQUEST_HEADERS:X-Test|FILES "@contains attack" "id:1,phase:2,deny,status:403,log,msg:'an attack in %{MATCHED_VAR_NAME}',setvar:tx.blocking_inbound_anomaly_score=5"
SecRule RESPONSE_BODY "@contains secret" "id:2,phase:4,deny,status:403,log,msg:'page'"
SecRule RESPONSE_HEADERS:X-Leak "@streq yes" "id:3,phase:3,deny,status:502,log,msg:'header'"
SecRule ARGS:show "@streq connection" "id:4,phase:1,deny,status:406,log,msg:'%{REMOTE_ADDR} %{SERVER_ADDR} %{REQUEST_PROTOCOL} %{REQUEST_HEADERS.host}'"
SecRule ARGS:move "@streq yes" "id:5,phase:1,redirect:https://www.example.com/new,status:302,log"
SecRule ARGS:note "@streq yes" "id:6,phase:1,pass,log,msg:'noted'"
SecRule REQUEST_HEADERS:X-Late "@rx ." "id:7,phase:2,deny,status:400,log"
SecRule ARGS:hide "@streq yes" "id:8,phase:1,deny,status:404,nolog"
"#;

const STRING: &str = "type.googleapis.com/google.protobuf.StringValue";

/// The folder of the module.
pub(crate) fn module_folder() -> PathBuf {
    let folder = assert_cmd::cargo::cargo_bin!("tollgate").with_file_name("deps");
    let module = folder.join("libtollgate_envoy.so");
    assert!(module.exists(), "no {}; run `cargo build -p tollgate-envoy`", module.display());
    folder
}

pub(crate) fn envoy_program() -> PathBuf {
    let other = std::env::var_os("TOLLGATE_TEST_ENVOY").map(PathBuf::from);
    other.unwrap_or_else(|| built_program("envoy", "envoy/_bin/envoy"))
}

/// A running Envoy with the module, whose listener is in a file.
pub(crate) struct Envoy {
    pub(crate) server: ForeignServer,
    admin: u16,
    folder: PathBuf,
}

impl Envoy {
    pub(crate) fn start(workspace: &Workspace, waf: &str) -> Self {
        Self::start_with(workspace, waf, "", start_backend().port())
    }

    /// `routes` precede the one to the backend.
    fn start_with(workspace: &Workspace, waf: &str, routes: &str, backend_port: u16) -> Self {
        Self::start_workers(2, workspace, waf, routes, backend_port)
    }

    /// With one worker, the lines of a request in the log precede those of the next.
    pub(crate) fn start_workers(
        workers: u8,
        workspace: &Workspace,
        waf: &str,
        routes: &str,
        backend_port: u16,
    ) -> Self {
        let (port, admin, folder) = (free_port(), free_port(), workspace.path(""));
        workspace.write("rules.conf", RULES);
        let listener = listener(port, waf, routes, &folder);
        workspace.write("listeners.yaml", &listener);
        let here = folder.display();
        let bootstrap = format!(
            r#"
node: {{ id: test, cluster: test }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {admin} }} }} }}
dynamic_resources: {{ lds_config: {{ path_config_source: {{ path: {here}/listeners.yaml }} }} }}
static_resources:
  clusters:
    - name: backend
      type: STATIC
      load_assignment:
        cluster_name: backend
        endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {backend_port} }} }} }} }}] }}]
"#
        );
        workspace.write("envoy.yaml", &bootstrap);
        // Envoy writes a log at once only to standard error.
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$0" "$@" 2> envoy.log"#])
            .arg(envoy_program())
            .args(["--disable-hot-restart", "--concurrency", &workers.to_string()])
            .args(["--drain-time-s", "5", "--file-flush-interval-msec", "10"])
            .args(["--log-level", "warning", "--component-log-level", "dynamic_modules:debug"])
            .arg("--config-path")
            .arg(folder.join("envoy.yaml"))
            .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", module_folder())
            .current_dir(&folder)
            .stdout(Stdio::null());
        let log = || fs::read_to_string(folder.join("envoy.log")).unwrap_or_default();
        let server = ForeignServer::start(&mut command, port, log);
        Self { server, admin, folder }
    }

    /// Replaces the listener, at once.
    fn update(&self, waf: &str) {
        let text = listener(self.server.port, waf, "", &self.folder);
        let new = self.folder.join("new.yaml");
        fs::write(&new, text).expect("a file");
        fs::rename(new, self.folder.join("listeners.yaml")).expect("a file");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("envoy.log")).expect("the log")
    }

    /// Waits for a line of the access log that begins with a target. Returns its other words.
    fn accessed(&self, target: &str) -> String {
        let mut found = None;
        wait_until(PATIENCE, || {
            let log = fs::read_to_string(self.folder.join("access.log")).unwrap_or_default();
            let mut lines = log.lines();
            found = lines
                .find_map(|line| line.strip_prefix(target)?.strip_prefix(' ').map(str::to_owned));
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("{target} is not in the access log"))
    }

    /// A counter of Envoy.
    fn counter(&self, name: &str) -> u64 {
        let request =
            format!("GET /stats?filter={name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (_, text) = exchange(self.admin, request.as_bytes());
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no counter {name} in {text}"))
            .trim()
            .parse()
            .expect("a number")
    }

    fn status(&self, request: &[u8]) -> String {
        exchange(self.server.port, request).0
    }

    fn curl(&self, arguments: &[&str], target: &str) -> String {
        let output = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60"])
            .args(arguments)
            .arg(format!("http://{}{target}", self.server.address()))
            .output()
            .expect("curl");
        String::from_utf8(output.stdout).expect("a status")
    }
}

/// A file of listeners.
fn listener(port: u16, waf: &str, routes: &str, folder: &Path) -> String {
    let waf = serde_json::to_string(waf).expect("text");
    let here = folder.display();
    format!(
        r#"
resources:
  - "@type": type.googleapis.com/envoy.config.listener.v3.Listener
    name: site
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
      - filters:
          - name: manager
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              stat_prefix: site
              codec_type: AUTO
              upgrade_configs: [{{ upgrade_type: other }}]
              http_protocol_options: {{ enable_trailers: true, accept_http_10: true }}
              access_log:
                - name: file
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
                    path: {here}/access.log
                    log_format: {{ text_format_source: {{ inline_string: "%REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(tollgate:action)% %DYNAMIC_METADATA(tollgate:rule)% %DYNAMIC_METADATA(tollgate:rules)% %DYNAMIC_METADATA(tollgate:score)% %DYNAMIC_METADATA(tollgate:id)% %DYNAMIC_METADATA(tollgate:message)%\n" }} }}
              http_filters:
                - name: waf
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
                    dynamic_module_config: {{ name: tollgate_envoy }}
                    filter_name: waf
                    filter_config: {{ "@type": {STRING}, value: {waf} }}
                - name: router
                  typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
              route_config:
                virtual_hosts:
                  - name: site
                    domains: ["*"]
                    routes:
                      {routes}
                      - match: {{ prefix: / }}
                        route: {{ cluster: backend }}
"#
    )
}

/// Sends a request on a connection of its own. Returns the status and the whole response; both are empty if there is none.
fn exchange(port: u16, request: &[u8]) -> (String, String) {
    let mut stream = connect(port);
    match stream.write_all(request).map_err(|error| error.kind()) {
        // Envoy may answer before it has read the whole request, and reset the connection then. The response stays readable.
        Ok(()) | Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => response(&mut stream),
        Err(error) => panic!("cannot send a request: {error}"),
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Reads a response to its announced end, as Envoy closes a connection late. Both are empty if there is none.
fn response(stream: &mut TcpStream) -> (String, String) {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let text = loop {
        // A reset ends a response, too.
        let count = stream.read(&mut piece).unwrap_or(0);
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        if count == 0 || is_complete(&text) {
            break text.into_owned();
        }
    };
    (text.split(' ').nth(1).unwrap_or("").to_owned(), text)
}

/// True if a response has its whole body. Without a length it ends with the connection.
fn is_complete(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    header(head, "content-length").is_some_and(|length| Ok(body.len()) == length.parse())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn get(target: &str, headers: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n{headers}\r\n")
        .into()
}

fn post_head(target: &str, headers: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n{headers}\r\n")
}

fn post(target: &str, content_type: &str, body: &str) -> Vec<u8> {
    let headers = format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
    (post_head(target, &headers) + body).into()
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// A page that the backend sends.
fn reflect(kind: &str, extra: &str, body: &str) -> Vec<u8> {
    let described =
        format!(r#"{{"headers": {{"Content-Type": "{kind}"{extra}}}, "body": "{body}"}}"#);
    post("/reflect", "text/plain", &described)
}

const RECEIVED: &str = "http.site.downstream_cx_rx_bytes_total";
const WAF: &str = "{rules: [rules.conf], transaction_header: X-Transaction}";

#[test]
fn attacks_in_every_part_are_blocked_and_described() {
    let workspace = Workspace::concurrent();
    let envoy = Envoy::start(&workspace, WAF);
    let multipart = "--b\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\nVALUE\r\n--b--\r\n";
    type Request<'a> = &'a dyn Fn(&str) -> Vec<u8>;
    let parts: [(&str, Request<'_>); 6] = [
        ("query", &|value| get(&format!("/query?q={value}"), "")),
        ("header", &|value| get("/header", &format!("X-Test: {value}\r\n"))),
        ("form", &|value| post("/form", FORM, &format!("q={value}"))),
        ("json", &|value| post("/json", JSON, &format!("{{\"q\": \"{value}\"}}"))),
        ("multipart", &|value| {
            post(
                "/multipart",
                "multipart/form-data; boundary=b",
                &multipart.replace("VALUE", value),
            )
        }),
        ("file", &|value| {
            let part = format!("q\"; filename=\"{value}");
            let body = multipart.replacen('q', &part, 1);
            post("/file", "multipart/form-data; boundary=b", &body)
        }),
    ];
    for (part, request) in parts {
        assert_eq!(envoy.status(&request("ordinary")), "200", "{part}");
        let (status, text) = exchange(envoy.server.port, &request("attack"));
        assert_eq!(status, "403", "{part}: {text}");
        assert!(text.contains("x-transaction: ") && text.ends_with("Forbidden\n"), "{text}");
    }
    // The same with the pseudo-headers of HTTP/2.
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        assert_eq!(envoy.curl(&[version, "-d", "q=ordinary"], "/"), "200");
        assert_eq!(envoy.curl(&[version, "-d", "q=attack"], "/"), "403");
        assert_eq!(envoy.curl(&[version], &format!("/{version}?show=connection")), "406");
    }
    for (version, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2-prior-knowledge", "HTTP/2.0")]
    {
        let line = envoy.accessed(&format!("/{version}?show=connection"));
        let expected = format!("127.0.0.1 127.0.0.1 {protocol} {}", envoy.server.address());
        assert!(line.ends_with(&expected), "{line}");
    }
    // Metadata: action, the rule that blocks, all rules, score, identifier.
    let line = envoy.accessed("/query?q=attack");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[..6], ["403", "waf_rule_1", "blocked", "1", "1", "5"], "{line}");
    assert!(line.ends_with("an attack in ARGS:q"), "{line}");
    assert!(envoy.accessed("/query?q=ordinary").starts_with("200 via_upstream passed - - - "));
    assert_eq!(envoy.status(&get("/noted?note=yes", "")), "200");
    assert!(envoy.accessed("/noted?note=yes").starts_with("200 via_upstream detected - 6 "));
    // A rule with `nolog` blocks, and is in the metadata.
    assert_eq!(envoy.status(&get("/hidden?hide=yes", "")), "404");
    assert!(envoy.accessed("/hidden?hide=yes").starts_with("404 waf_rule_8 blocked 8 - - "));
    let (status, text) = exchange(envoy.server.port, &get("/?move=yes", ""));
    assert_eq!(status, "302");
    assert!(text.contains("location: https://www.example.com/new\r\n"), "{text}");

    assert!(envoy.log().contains("[id \"6\"]"), "matches are in Envoy's log");
    let counters = ["waf_inspected", "waf_blocked", "waf_detected", "waf_faults"];
    let counts = counters.map(|name| envoy.counter(&format!("dynamicmodulescustom.{name}")));
    assert_eq!(counts, [21, 12, 1, 0]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", envoy.server.id())).expect("maps");
    assert!(maps.contains("libtollgate_envoy.so"));
}

#[test]
fn responses_are_inspected_within_their_limit() {
    let workspace = Workspace::concurrent();
    let envoy = Envoy::start(&workspace, WAF);
    assert_eq!(envoy.status(&reflect("text/html", "", "ordinary")), "200");
    assert_eq!(envoy.status(&reflect("text/html", "", "a secret")), "403");
    assert_eq!(envoy.status(&reflect("text/css", "", "a secret")), "200", "not inspected");
    assert_eq!(envoy.status(&reflect("text/css", r#", "X-Leak": "yes""#, "")), "502");
    // Longer than what Envoy's own threads inspect.
    let long = "a".repeat(100_000);
    assert_eq!(envoy.status(&reflect("text/html", "", &(long.clone() + " secret"))), "403");
    let (status, text) = exchange(envoy.server.port, &reflect("text/html", "", &long));
    assert_eq!(status, "200");
    assert!(text.ends_with(&long) && text.contains("x-transaction: "));
    assert_eq!(envoy.counter("dynamicmodulescustom.waf_helper"), 4, "two requests and two pages");
    // Beyond Envoy's buffer of 1 MiB and the limit of the rules: the first part is inspected.
    let waf = "{rules: [rules.conf], request_body: {inspect: false}, response_body: {limit: 2000000, over_limit: OVER}}";
    for (over, expected) in [("partial", "200"), ("reject", "403")] {
        envoy.update(&waf.replace("OVER", over));
        let body = "a".repeat(2_500_000);
        let arrives = || envoy.status(&reflect("text/html", "", &(body.clone() + " secret")));
        assert!(wait_until(PATIENCE, || arrives() == expected), "{over}");
        let body = "a".repeat(1_900_000) + " secret";
        assert_eq!(envoy.status(&reflect("text/html", "", &body)), "403");
    }
}

#[test]
fn requests_are_inspected_to_their_end_or_their_limit() {
    let workspace = Workspace::concurrent();
    let waf = "{rules: [rules.conf], request_body: {limit_without_files: 2000000, limit: 2000000, over_limit: OVER}}";
    let envoy = Envoy::start(&workspace, &waf.replace("OVER", "reject"));
    // In pieces, with the attack in each.
    let mut sent = 0;
    for pieces in
        [["q=attack&", "a=b&", "c=d"], ["a=b&", "q=attack&", "c=d"], ["a=b&", "c=d&", "q=attack"]]
    {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let head = post_head("/", &format!("Content-Type: {FORM}\r\nContent-Length: {length}\r\n"));
        let mut stream = connect(envoy.server.port);
        stream.set_nodelay(true).expect("a socket");
        stream.write_all(head.as_bytes()).expect("it is sent");
        sent += head.len() as u64;
        for piece in pieces {
            // It is on its way alone once Envoy has read what precedes it.
            assert!(wait_until(PATIENCE, || envoy.counter(RECEIVED) == sent), "{sent}");
            stream.write_all(piece.as_bytes()).expect("it is sent");
            sent += piece.len() as u64;
        }
        assert_eq!(response(&mut stream).0, "403", "{pieces:?}");
    }
    // Trailers end a body in place of a last piece, and do not reach the backend.
    let chunked = |body: &str, trailers: &str| {
        let head =
            post_head("/", &format!("Content-Type: {FORM}\r\nTransfer-Encoding: chunked\r\n"));
        format!("{head}{:x}\r\n{body}\r\n0\r\n{trailers}\r\n", body.len()).into_bytes()
    };
    for trailers in ["", "X-Late: yes\r\n"] {
        assert_eq!(envoy.status(&chunked("q=attack", trailers)), "403", "{trailers}");
        assert_eq!(envoy.status(&chunked("q=ordinary", trailers)), "200", "{trailers}");
        let long = format!("a={}&q=attack", "b".repeat(100_000));
        assert_eq!(envoy.status(&chunked(&long, trailers)), "403", "{trailers}");
        assert_eq!(envoy.status(&chunked(&long.replace("attack", "b"), trailers)), "200");
    }
    for (body, expected) in [("q=attack", "403"), ("q=ordinary", "200")] {
        workspace.write("body", body);
        let output = Command::new("nghttp")
            .args(["--no-dep", "-nv", "-H", &format!("content-type: {FORM}"), "-d"])
            .arg(workspace.path("body"))
            .args(["--trailer", "x-late: yes"])
            .arg(format!("http://{}/", envoy.server.address()))
            .output()
            .expect("nghttp; to install it: apt-get install -y nghttp2-client");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!(":status: {expected}")), "{text}");
    }
    // Longer than Envoy's own buffer of 1 MiB.
    let body = |bytes: usize, tail: &str| format!("a={}&{tail}", "b".repeat(bytes));
    let form = |bytes: usize, tail: &str| post("/", FORM, &body(bytes, tail));
    assert_eq!(envoy.status(&form(1_900_000, "q=ordinary")), "200");
    assert_eq!(envoy.status(&form(1_900_000, "q=attack")), "403");
    assert_eq!(envoy.status(&form(2_100_000, "q=ordinary")), "413");
    let unknown = chunked(&body(2_100_000, "q=ordinary"), "");
    assert_eq!(envoy.status(&unknown), "413");
    envoy.update(&waf.replace("OVER", "partial"));
    assert!(wait_until(PATIENCE, || envoy.status(&form(5_000_000, "q=ordinary")) == "200"));
    assert_eq!(envoy.status(&unknown), "200");
    let early = format!("q=attack&{}", body(5_000_000, "c=d"));
    assert_eq!(envoy.status(&post("/", FORM, &early)), "403");
    assert!(envoy.counter("dynamicmodulescustom.waf_over_limit") >= 4);
    assert_eq!(envoy.counter("dynamicmodulescustom.waf_faults"), 0);
}

#[test]
fn streams_that_are_reset_during_an_inspection_disturb_no_other() {
    let workspace = Workspace::concurrent();
    let envoy = Envoy::start(&workspace, WAF);
    let body = format!("a={}", "b".repeat(60_000));
    let request = post("/long", FORM, &body);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut stream = connect(envoy.server.port);
                    stream.write_all(&request).expect("it is sent");
                    // Closed with the response unread, or not there yet: the inspection takes milliseconds.
                    drop(stream);
                    assert_eq!(envoy.status(&get("/?q=attack", "")), "403");
                    assert_eq!(envoy.status(&get("/?q=ordinary", "")), "200");
                }
            });
        }
    });
    let name = |name: &str| format!("dynamicmodulescustom.waf_{name}");
    assert!(wait_until(PATIENCE, || envoy.counter(&name("helper")) == 40));
    assert_eq!(envoy.counter(&name("faults")), 0);
    assert!(envoy.counter("http.site.downstream_rq_rx_reset") > 0, "some were reset");
    assert_eq!(envoy.status(&request), "200");
    assert_eq!(envoy.status(&post("/", FORM, &(body + "&q=attack"))), "403");
}

/// A backend that answers each head at once: with 101 and an echo if it has `X-Switch`, otherwise with 200. Sends what it received on each
/// connection, at its end.
fn start_plain_backend() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    let (ended, connections) = mpsc::channel();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let ended = ended.clone();
            thread::spawn(move || {
                let (mut received, mut piece) = (Vec::new(), [0; 4096]);
                let mut switched = None;
                while let Ok(count @ 1..) = client.read(&mut piece) {
                    received.extend_from_slice(&piece[..count]);
                    let text = String::from_utf8_lossy(&received);
                    let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
                    let answer = match switched {
                        Some(true) => piece[..count].to_vec(),
                        Some(false) => continue,
                        None if header(head, "x-switch").is_some() => {
                            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
                            format!("{switch}{rest}").into_bytes()
                        }
                        None => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
                    };
                    switched.get_or_insert(header(head, "x-switch").is_some());
                    if client.write_all(&answer).is_err() {
                        break;
                    }
                }
                // An error means that the test has ended.
                ended.send(String::from_utf8_lossy(&received).into_owned()).ok();
            });
        }
    });
    (port, connections)
}

const UPGRADE: &str =
    "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: other\r\n";

#[test]
fn bytes_behind_an_upgrade_pass_only_once_it_is_accepted() {
    let workspace = Workspace::concurrent();
    let (backend, connections) = start_plain_backend();
    let envoy = Envoy::start_with(&workspace, WAF, "", backend);
    // The backend ignores the upgrade, and would read a second request.
    let (status, _) = exchange(
        envoy.server.port,
        format!("{UPGRADE}\r\nGET /?q=attack HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(),
    );
    assert_eq!(status, "200");
    let received = connections.recv_timeout(PATIENCE).expect("a connection");
    assert!(received.contains("GET /upgrade") && !received.contains("attack"), "{received}");
    // Envoy has its body as bytes of the tunnel.
    let body = "Transfer-Encoding: chunked\r\n\r\n8\r\nq=attack\r\n0\r\n\r\n";
    let request = format!("{UPGRADE}Content-Type: {FORM}\r\n{body}");
    assert_eq!(envoy.status(request.as_bytes()), "200");
    let received = connections.recv_timeout(PATIENCE).expect("a connection");
    assert!(received.contains("GET /upgrade") && !received.contains("attack"), "{received}");
    // A tunnel, with bytes before it is open and after.
    let mut stream = connect(envoy.server.port);
    stream
        .write_all(format!("{UPGRADE}X-Switch: yes\r\n\r\nearly").as_bytes())
        .expect("it is sent");
    let until = |last: &str, stream: &mut TcpStream| {
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        while !text.ends_with(last) {
            let count = stream.read(&mut piece).expect("an echo");
            assert!(count > 0, "{text}");
            text += &String::from_utf8_lossy(&piece[..count]);
        }
        text
    };
    assert!(until("early", &mut stream).starts_with("HTTP/1.1 101 "));
    stream.write_all(b"late").expect("it is sent");
    assert_eq!(until("late", &mut stream), "late");
    drop(stream);
    let partial = "dynamicmodulescustom.waf_partial";
    assert!(wait_until(PATIENCE, || envoy.counter(partial) == 1), "the tunnel");
    assert_eq!(envoy.counter("dynamicmodulescustom.waf_faults"), 0);
}

#[test]
fn grpc_passes_uninspected_only_where_the_configuration_says_so() {
    let workspace = Workspace::concurrent();
    let (backend, _connections) = start_plain_backend();
    let envoy = Envoy::start_with(&workspace, WAF, "", backend);
    let headers = "Content-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n";
    let whole = |extra: &str| post_head("/", &format!("{headers}{extra}")) + "1\r\na\r\n0\r\n\r\n";
    let coded = whole("Content-Encoding: gzip\r\n");
    let count =
        |envoy: &Envoy, name: &str| envoy.counter(&format!("dynamicmodulescustom.waf_{name}"));
    // Envoy sends blocks of gRPC with status 200, and that of gRPC.
    let (status, text) = exchange(envoy.server.port, coded.as_bytes());
    assert_eq!((&*status, header(&text, "grpc-status")), ("200", Some("3")), "{text}");
    assert!(wait_until(PATIENCE, || count(&envoy, "over_limit") == 1));
    assert_eq!(envoy.status(whole("").as_bytes()), "200");
    assert_eq!(count(&envoy, "partial"), 0);
    let workspace = Workspace::concurrent();
    let waf = "{rules: [rules.conf], request_body: {inspect: false}}";
    let envoy = Envoy::start_with(&workspace, waf, "", backend);
    // A stream, whose response precedes the end of the request.
    let open = post_head("/", headers) + "1\r\na\r\n";
    assert_eq!(envoy.status(open.as_bytes()), "200");
    assert!(wait_until(PATIENCE, || count(&envoy, "partial") == 1));
    for kind in ["application/grpc", "application/grpc+proto"] {
        let headers = format!("Content-Type: {kind}\r\n");
        let (status, text) = exchange(envoy.server.port, &get("/?q=attack", &headers));
        assert_eq!((&*status, header(&text, "grpc-status")), ("200", Some("7")), "{text}");
        assert_eq!(header(&text, "content-type"), Some("application/grpc"), "{text}");
        assert_eq!(header(&text, "grpc-message"), None, "{text}");
    }
    let (status, text) =
        exchange(envoy.server.port, &get("/?q=attack", "Content-Type: application/json\r\n"));
    assert_eq!((&*status, header(&text, "grpc-status")), ("403", None), "{text}");
    assert!(wait_until(PATIENCE, || count(&envoy, "blocked") == 3));
}

#[test]
fn routes_have_configurations_of_their_own() {
    let workspace = Workspace::concurrent();
    let of_route = |path: &str, waf: &str| {
        let waf = serde_json::to_string(waf).expect("text");
        format!(
            r#"- match: {{ prefix: {path} }}
                        route: {{ cluster: backend }}
                        typed_per_filter_config:
                          waf:
                            "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute
                            dynamic_module_config: {{ name: tollgate_envoy }}
                            per_route_config_name: waf
                            filter_config: {{ "@type": {STRING}, value: {waf} }}
                      "#
        )
    };
    let json = r#"{"mode": "detection-only", "rules": ["rules.conf"]}"#;
    let routes = of_route("/off", "mode: off") + &of_route("/detects", json);
    let envoy = Envoy::start_with(&workspace, WAF, &routes, start_backend().port());
    assert_eq!(envoy.status(&get("/?q=attack", "")), "403");
    assert_eq!(envoy.status(&get("/off?q=attack", "")), "200");
    assert!(envoy.accessed("/off?q=attack").starts_with("200 via_upstream - - - - -"));
    assert_eq!(envoy.status(&get("/detects?q=attack", "")), "200");
    assert!(envoy.accessed("/detects?q=attack").starts_with("200 via_upstream detected - 1 5 "));
}

#[test]
fn twenty_updates_of_a_listener_under_load_lose_no_request() {
    let workspace = Workspace::concurrent();
    let waf = |version: usize| {
        let rule =
            format!("SecRule ARGS:version \"@streq {version}\" \"id:100,phase:1,deny,status:410\"");
        serde_json::json!({ "rules": ["rules.conf"], "exclusions": [rule] }).to_string()
    };
    let envoy = Envoy::start(&workspace, &waf(0));
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (envoy, stop, served) = (&envoy, &stop, &served);
                scope.spawn(move || {
                    let mut clients = Connection::new(envoy.server.port);
                    while !stop.load(Ordering::Relaxed) {
                        let (request, expected) = match client % 2 {
                            0 => ("GET /?q=attack HTTP/1.1\r\nHost: a\r\n\r\n", 403),
                            _ => ("GET /?q=ordinary HTTP/1.1\r\nHost: a\r\n\r\n", 200),
                        };
                        assert_eq!(clients.status(request), expected);
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for version in 1..=20 {
            let before = served.load(Ordering::Relaxed);
            envoy.update(&waf(version));
            let target = format!("/?version={version}");
            assert!(wait_until(PATIENCE, || envoy.status(&get(&target, "")) == "410"), "{version}");
            assert!(wait_until(PATIENCE, || {
                served.load(Ordering::Relaxed) > before
                    || clients.iter().any(thread::ScopedJoinHandle::is_finished)
            }));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(envoy.counter("listener_manager.lds.update_success"), 21);
    assert_eq!(envoy.counter("listener_manager.lds.update_rejected"), 0);
}

/// A client's connection, opened again where the server has announced its end.
struct Connection {
    port: u16,
    stream: Option<TcpStream>,
}

impl Connection {
    fn new(port: u16) -> Self {
        Self { port, stream: None }
    }

    /// Sends a request and reads its response, by its length.
    fn status(&mut self, request: &str) -> u16 {
        let mut stream = self.stream.take().unwrap_or_else(|| connect(self.port));
        stream.write_all(request.as_bytes()).expect("it is sent");
        let (status, text) = response(&mut stream);
        assert!(is_complete(&text), "no response: {text}");
        if header(&text, "connection") != Some("close") {
            self.stream = Some(stream);
        }
        status.parse().expect("a status")
    }
}

#[test]
fn wrong_configurations_are_refused_with_their_reason() {
    let workspace = Workspace::concurrent();
    let envoy = Envoy::start(&workspace, WAF);
    workspace.write("wrong.conf", "SecRule ARGS \"@unknown x\" \"id:1\"\n");
    for (number, (waf, reason)) in (1..).zip([
        ("mode: on", "`waf` names no rules"),
        ("rules: [rules.conf]\nmod: off", "unknown key `mod`; did you mean `mode`?"),
        ("rules: [missing.conf]", "missing.conf"),
        ("rules: [wrong.conf]", "wrong.conf:1"),
    ]) {
        envoy.update(waf);
        let rejected = "listener_manager.lds.update_rejected";
        assert!(wait_until(PATIENCE, || envoy.counter(rejected) == number), "{waf}");
        let is_logged = || {
            let log = envoy.log();
            let mut lines =
                log.lines().filter(|line| line.contains("cannot use the configuration"));
            lines.nth(number as usize - 1).is_some_and(|line| line.contains(reason))
        };
        assert!(wait_until(PATIENCE, is_logged), "{reason}: {}", envoy.log());
        assert_eq!(envoy.status(&get("/?q=attack", "")), "403", "the listener stays as it was");
    }
    // Valid, with a warning.
    envoy.update("{rules: [rules.conf], exclusions: [SecRuleRemoveById 12]}");
    let is_warned = || {
        let log = envoy.log();
        let mut lines = log.lines().filter(|line| line.contains("tollgate: "));
        lines.any(|line| line.contains("[warning]") && line.contains("an exclusion has no effect"))
    };
    assert!(wait_until(PATIENCE, is_warned), "{}", envoy.log());
}

#[test]
fn document_leads_from_nothing_to_a_blocked_attack() {
    let workspace = Workspace::concurrent();
    let document = include_str!("../../docs/envoy.md");
    let (_, rest) = document.split_once("```yaml\n").expect("a configuration");
    let (config, rest) = rest.split_once("```\n").expect("its end");
    let [port, backend] = [free_port(), start_backend().port()].map(|port| port.to_string());
    workspace.write("envoy.yaml", &config.replace("8080", &port).replace("8000", &backend));
    let attack = rest.split_once("curl -i 'http://127.0.0.1:8080").expect("a request").1;
    let attack = attack.split_once('\'').expect("its end").0;
    let log = fs::File::create(workspace.path("access.log")).expect("a file");
    let mut command = Command::new(envoy_program());
    command
        .args(["--disable-hot-restart", "--file-flush-interval-msec", "10", "--log-path"])
        .arg(workspace.path("envoy.log"))
        .arg("-c")
        .arg(workspace.path("envoy.yaml"))
        .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", module_folder())
        .stdout(log);
    let log = || workspace.read("envoy.log");
    let server = ForeignServer::start(&mut command, port.parse().expect("a port"), log);
    assert_eq!(
        exchange(server.port, &get("/?q=ordinary", "User-Agent: a\r\nAccept: */*\r\n")).0,
        "200"
    );
    assert_eq!(exchange(server.port, &get(attack, "User-Agent: a\r\nAccept: */*\r\n")).0, "403");
    let expected = format!("GET {attack} 403 blocked score ");
    let is_logged = || workspace.read("access.log").contains(&expected);
    assert!(wait_until(PATIENCE, is_logged), "{}", workspace.read("access.log"));
    assert!(workspace.read("access.log").contains("930100"), "{}", workspace.read("access.log"));
    // Wrong keys, metadata and counters are as the document describes them.
    for name in ["action", "id", "score", "rule", "rules", "message", "refused"] {
        assert!(document.contains(&format!("| `{name}` |")), "{name}");
    }
}

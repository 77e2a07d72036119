//! Foreign programs: clients through the gateway, and other proxies beside it.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{Address, Backend as ConfigBackend, Listener, Pool, PoolId, Route};

use crate::smuggling::responses::{self, ResponseOutcome};
use crate::smuggling::{self, Origin, RequestOutcome};
use crate::support::{
    Backend, Peer, Response, TestGateway, ThreadedBackend, any_port, closed_port, config, path,
    poll, tcp,
};
use crate::tls::{certificate_file, default_listener, echo_body_once, long_body, tls_config};

/// The standard output of a program that has to succeed.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot start {program}: {error}; run make packages"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    output.stdout
}

/// The output of curl for `http://a/path` through the gateway.
fn curl(gateway: &TestGateway, arguments: &[&str]) -> String {
    let route = match gateway.address() {
        Address::Unix(socket) => ["--unix-socket".to_owned(), socket.display().to_string()],
        Address::Tcp(addr) => ["--connect-to".to_owned(), format!("::{addr}")],
    };
    let mut all = vec!["-sS", "--max-time", "60", &route[0], &route[1]];
    all.extend(arguments);
    all.push("http://a/path");
    String::from_utf8(output("curl", &all)).unwrap()
}

/// A backend that responds with the method, the path and the body of a request. It asks for a body that a client
/// announces with `Expect: 100-continue`.
fn mirror() -> ThreadedBackend {
    ThreadedBackend::start(|mut peer: Peer| {
        while let Ok(head) = peer.head() {
            let lower = head.to_ascii_lowercase();
            if lower.contains("\r\nexpect: 100-continue\r\n") {
                peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            }
            let mut body = Vec::new();
            if let Some((_, rest)) = lower.split_once("\r\ncontent-length: ") {
                body = peer.read(rest.lines().next().unwrap().parse().unwrap());
            } else if lower.contains("\r\ntransfer-encoding: chunked\r\n") {
                body = peer.chunked_body().unwrap();
            }
            let method = head.split(' ').next().unwrap();
            let seen = [format!("{method} {} ", path(&head)).as_bytes(), &body].concat();
            let mut response =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", seen.len()).into_bytes();
            if method != "HEAD" {
                response.extend_from_slice(&seen);
            }
            if peer.try_send(response).is_err() {
                return;
            }
        }
    })
}

#[test]
fn curl_get_and_head_in_both_versions() {
    let backend = mirror();
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    assert_eq!(curl(&gateway, &[]), "GET /path ");
    let head = curl(&gateway, &["--head"]);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Length: 11\r\n"), "{head}");
    let response = curl(&gateway, &["--http1.0", "--include"]);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("GET /path "), "{response}");
    let response = curl(&gateway, &["--http1.0", "-H", "Connection: keep-alive", "--include"]);
    assert!(response.to_lowercase().contains("\r\nconnection: keep-alive\r\n"), "{response}");
}

#[test]
fn curl_reuses_its_connection() {
    let backend = mirror();
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let twice = ["-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", "http://a/first"];
    assert_eq!(curl(&gateway, &twice), "1 0 ");
    assert_eq!(backend.connections(), 1);
}

#[test]
fn curl_uploads_with_a_length_in_chunks_and_after_100_continue() {
    let backend = mirror();
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("upload");
    let body: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    fs::write(&file, &body).unwrap();
    let file = file.to_str().unwrap();
    let expected = |method: &str| format!("{method} /path {body}");

    let data = format!("@{file}");
    assert!(curl(&gateway, &["--data-binary", &data, "-H", "Expect:"]) == expected("POST"));
    let chunked = "Transfer-Encoding: chunked";
    let put = ["--upload-file", file, "-H", "Expect:", "-H", chunked];
    assert!(curl(&gateway, &put) == expected("PUT"));
    // curl waits for the interim response for longer than the whole transfer may take.
    for framing in ["X-Nothing: 1", chunked] {
        let wait = ["--expect100-timeout", "70", "-H", "Expect: 100-continue"];
        let arguments = [&wait[..], &["--upload-file", file, "-H", framing]].concat();
        assert!(curl(&gateway, &arguments) == expected("PUT"), "{framing}");
    }
}

#[test]
fn rsyslog_takes_the_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display();
    let udp = closed_port();
    let file = folder.path().join("config");
    let template = "%syslogfacility-text%.%syslogseverity-text% %programname%[%procid%]%msg:::sp-if-no-1st-sp%%msg%\\n";
    let text = format!(
        "module(load=\"imuxsock\" SysSock.Use=\"off\")\nmodule(load=\"imudp\")\n\
         input(type=\"imuxsock\" Socket=\"{dir}/log\")\n\
         input(type=\"imudp\" address=\"{}\" port=\"{}\")\n\
         template(name=\"line\" type=\"string\" string=\"{template}\")\n\
         action(type=\"omfile\" file=\"{dir}/out\" template=\"line\")\n",
        udp.ip(),
        udp.port(),
    );
    fs::write(&file, text).unwrap();
    // The kernel kills it if the test is killed.
    let mut daemon = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "rsyslogd", "-n", "-f"])
        .arg(&file)
        .arg("-i")
        .arg(folder.path().join("pid"))
        .stdin(Stdio::null())
        .spawn()
        .expect("setpriv of util-linux; run make packages");
    let socket = folder.path().join("log");
    poll(|| if socket.exists() { Ok(()) } else { Err("rsyslogd has no socket".to_owned()) });
    let backend = mirror();
    for (to, path) in
        [(format!("syslog:{}", socket.display()), "/unix"), (format!("syslog:{udp}"), "/udp")]
    {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\naccess_log: {{ to: '{to}', format: '${{status}} ${{target}}' }}\n\
             pools: [{{ name: p, backends: [{{ address: {} }}] }}]\n",
            backend.addr()
        );
        let gateway = TestGateway::start(&Config::parse(&text, Path::new("g.yaml")).unwrap());
        let expected = format!("local7.info tollgate-gateway[{}] 200 {path}\n", std::process::id());
        // It may not listen for UDP yet.
        poll(|| {
            gateway.client().get(path).unwrap();
            let out = fs::read_to_string(folder.path().join("out")).unwrap_or_default();
            if out.contains(&expected) {
                Ok(())
            } else {
                Err(format!("no {expected:?} in {out:?}"))
            }
        });
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

/// Uploads 64 MiB without waiting for an interim response. Returns the body and status of the response.
fn upload_large(gateway: &TestGateway, framing: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("upload");
    // A sparse file.
    fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let file = file.to_str().unwrap();
    curl(gateway, &["--upload-file", file, "-H", "Expect:", "-H", framing, "-w", "%{http_code}"])
}

const FRAMINGS: [&str; 2] = ["X-Nothing: 1", "Transfer-Encoding: chunked"];

#[test]
fn curl_receives_the_rejection_of_a_large_upload() {
    let backend = mirror();
    let mut config = config(&[backend.addr()]);
    config.limits.body_bytes = Some(1 << 20);
    let gateway = TestGateway::start(&config);
    for framing in FRAMINGS {
        let response = upload_large(&gateway, framing);
        assert!(response.ends_with("\n413"), "{framing}: {response}");
    }
}

#[test]
fn curl_receives_a_response_before_the_end_of_its_upload() {
    let backend = ThreadedBackend::start(|mut peer| {
        // It closes with an unread body, which is a reset.
        if peer.head().is_ok() {
            peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n");
        }
    });
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    for framing in FRAMINGS {
        assert_eq!(upload_large(&gateway, framing), "no\n403", "{framing}");
    }
}

#[test]
fn curl_transfers_a_long_body_over_tls() {
    let folder = TempDir::new().unwrap();
    let body = long_body();
    fs::write(folder.path().join("body"), &body).unwrap();
    let data = format!("@{}", folder.path().join("body").display());
    let certificate = certificate_file("site.pem").display().to_string();
    // The end of the connection must not cut off buffered bytes.
    for (version, connection) in [("1.2", "keep-alive"), ("1.3", "close")] {
        let backend = Backend::start();
        let gateway = TestGateway::start(&tls_config(&backend, any_port()));
        let received = thread::scope(|scope| {
            let head = scope.spawn(|| echo_body_once(&backend, body.len()));
            let connection = format!("Connection: {connection}");
            let port = gateway.addr().port();
            let resolve = format!("localhost:{port}:127.0.0.1");
            let (min, url) = (format!("--tlsv{version}"), format!("https://localhost:{port}/a"));
            let tls = ["--cacert", &certificate, "--resolve", &resolve, &min, "--tls-max", version];
            let upload = ["--data-binary", &data, "-H", "Expect:", "-H", &connection];
            let received =
                output("curl", &[&["-sS", "--max-time", "60", &url], &tls[..], &upload].concat());
            let head = head.join().unwrap();
            assert!(head.contains("\r\nX-Forwarded-Proto: https\r\n"), "{head}");
            received
        });
        assert!(received == body, "{} of {} bytes were received", received.len(), body.len());
    }
}

#[test]
fn curl_over_http2() {
    const HTTP2: &str = "--http2-prior-knowledge";
    let backend = mirror();
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    let gateway = TestGateway::start(&config);
    let version = ["-w", " %{http_version} %{response_code}"];
    assert_eq!(curl(&gateway, &[&[HTTP2], &version[..]].concat()), "GET /path  2 200");
    assert!(curl(&gateway, &[HTTP2, "--head"]).starts_with("HTTP/2 200"));
    // Without prior knowledge, an upgrade is offered and not accepted.
    assert_eq!(curl(&gateway, &[&["--http2"], &version[..]].concat()), "GET /path  1.1 200");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("upload");
    let body: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    fs::write(&file, &body).unwrap();
    let file = file.to_str().unwrap();
    let expected = format!("PUT /path {body}");
    // curl sends no length of an upload from a pipe.
    let piped = format!(
        "cat {file} | curl -sS --max-time 60 {HTTP2} -T - -H Expect: http://{}/path",
        gateway.addr()
    );
    assert!(String::from_utf8(output("sh", &["-c", &piped])).unwrap() == expected);
    for expect in ["Expect:", "Expect: 100-continue"] {
        let wait = [HTTP2, "--expect100-timeout", "70", "-H", expect, "--upload-file", file];
        assert!(curl(&gateway, &wait) == expected, "{expect}");
    }
}

#[test]
fn nghttp_and_h2load_over_http2_and_tls() {
    let backend = mirror();
    let mut config = config(&[backend.addr()]);
    let plain = Listener { http2: true, ..Listener::new(any_port()) };
    config.listeners = vec![plain, default_listener(any_port())];
    let gateway = TestGateway::start(&config);
    for (address, scheme) in gateway.addresses().iter().zip(["http", "https"]) {
        let url = format!("{scheme}://{}/path", tcp(address));
        assert_eq!(output("nghttp", &[&url]), b"GET /path ");
        // A window of 1 KiB for streams, and four requests at once.
        let small = ["-w10", "-m4", &url];
        assert_eq!(output("nghttp", &small), b"GET /path ".repeat(4));
        let load = ["-n2000", "-c4", "-m20", "-w12", "-W12", &url];
        let report = String::from_utf8(output("h2load", &load)).unwrap();
        assert!(report.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
        assert!(report.contains("status codes: 2000 2xx"), "{report}");
    }
}

#[test]
fn openssl_negotiates_http_1_1_over_tls() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&tls_config(&backend, any_port()));
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost"])
        .args(["-alpn", "http/1.1", "-connect", &gateway.addr().to_string(), "-CAfile"])
        .arg(certificate_file("site.pem"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl; run make packages");
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut upstream = backend.accept();
    assert!(upstream.head().unwrap().starts_with("GET /a HTTP/1.1\r\n"));
    upstream.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi");
    let output = client.wait_with_output().unwrap();
    drop(stdin);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nhi"), "{text}");
}

#[test]
fn ab_with_and_without_keep_alive() {
    let backend = mirror();
    let mut config = config(&[backend.addr()]);
    config.threads = 2.try_into().unwrap();
    let gateway = TestGateway::start(&config);
    let url = format!("http://{}/path", gateway.addr());
    for (keep_alive, reused) in [(&["-k"][..], 400), (&[], 0)] {
        let arguments = [keep_alive, &["-q", "-n", "400", "-c", "10", "-s", "60", &url]].concat();
        let report = String::from_utf8(output("ab", &arguments)).unwrap();
        let count = |name: &str| -> u32 {
            let line = report.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |rest| rest.trim().parse().unwrap())
        };
        assert_eq!(count("Complete requests:"), 400, "{report}");
        assert_eq!(count("Failed requests:"), 0, "{report}");
        assert_eq!(count("Non-2xx responses:"), 0, "{report}");
        assert_eq!(count("Keep-Alive requests:"), reused, "{report}");
    }
    // Upstream connections are reused in both cases: at most one for each connection of ab.
    assert!(backend.connections() <= 20, "{} upstream connections", backend.connections());
}

/// Another proxy or server, which runs until dropped.
pub(crate) struct ForeignServer {
    name: &'static str,
    address: Address,
    process: Child,
    /// Holds its configuration and its socket.
    _folder: TempDir,
}

impl ForeignServer {
    /// nginx as a transparent proxy: HTTP/1.1 to the backend, without buffers for requests, with keep-alive, and with a
    /// response to a client that has ended its side of the connection.
    fn nginx(backend: SocketAddr) -> Self {
        let upstream = format!("upstream backend {{ server {backend}; keepalive 16; }}");
        let location = "location / {\n\
              proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Host $http_host;\n\
              proxy_set_header Connection \"\"; proxy_request_buffering off;\n\
              proxy_ignore_client_abort on; proxy_next_upstream off;\n\
            }\n";
        Self::nginx_with(&upstream, location)
    }

    pub(crate) fn nginx_with(upstream: &str, locations: &str) -> Self {
        Self::start("nginx", &["-e", "stderr", "-c", "{config}"], |dir| {
            format!(
                "daemon off; master_process off; pid {dir}/pid; error_log /dev/null;\n\
                events {{ worker_connections 512; }}\n\
                http {{\n\
                  access_log off;\n\
                  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
                  fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;\n\
                  {upstream}\n\
                  server {{ listen unix:{dir}/socket; {locations} }}\n\
                }}\n"
            )
        })
    }

    /// HAProxy with its defaults and keep-alive.
    fn haproxy(backend: SocketAddr) -> Self {
        Self::start("haproxy", &["-db", "-q", "-f", "{config}"], |dir| {
            format!(
                "global\n  nbthread 1\n  maxconn 512\n\
                defaults\n  mode http\n  http-reuse always\n  retries 0\n\
                \x20 timeout connect 5s\n  timeout client 10s\n  timeout server 10s\n\
                frontend front\n  bind unix@{dir}/socket\n  default_backend back\n\
                backend back\n  server backend {backend} pool-max-conn 16\n"
            )
        })
    }

    fn start(name: &'static str, arguments: &[&str], config: impl Fn(&str) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_str().unwrap();
        let file = format!("{dir}/config");
        fs::write(&file, config(dir)).unwrap();
        // The kernel kills it if the test is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", name]);
        command.args(arguments.iter().map(|argument| argument.replace("{config}", &file)));
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}; run make packages"));
        let socket = folder.path().join("socket");
        let address = Address::Unix(socket.clone());
        let mut server = Self { name, address, process, _folder: folder };
        server.wait_for(&socket);
        server
    }

    fn wait_for(&mut self, socket: &Path) {
        poll(|| {
            let status = self.process.try_wait().unwrap();
            assert!(status.is_none(), "{} ended with {status:?}; run make packages", self.name);
            std::os::unix::net::UnixStream::connect(socket)
                .map_err(|error| format!("{} does not listen: {error}", self.name))
        });
    }
}

impl Drop for ForeignServer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The locations of nginx that correspond to the routes of the gateway.
const LOCATIONS: &str = "location / { return 200 open; }\n\
    location = /admin { return 200 admin; }\n\
    location /admin/ { return 200 admin; }\n";

/// Spellings of paths with one meaning.
const PATHS: [&str; 21] = [
    "/",
    "/admin",
    "/admin/x",
    "/admin?x",
    "/administrator",
    "/Admin",
    "/%61dmin",
    "/%61%64%6D%69%6e/x",
    "/%41dmin",
    "//admin",
    "/admin//x//",
    "/./admin",
    "/x/../admin",
    "/x//../admin",
    "/x/%2e%2e/admin",
    "/x/.%2E/./admin/y",
    "/admin/..",
    "/admin/../x",
    "/admin%20",
    "/x?/../admin",
    "/x/.../admin",
];

/// Spellings that some servers map to `/admin`.
const AMBIGUOUS_PATHS: [&str; 11] = [
    "/x/..%2fadmin",
    "/%2Fadmin",
    "/admin%2fx",
    "/admin;x",
    "/x/..;/admin",
    "/x%5cy/..%2fadmin/secret",
    "/x\\y/..%2fadmin/secret",
    "/x%2fy/..\\admin/secret",
    "/%2F;%5Cx/admin/secret",
    "/%2561dmin",
    "/admin%3Fx",
];

#[test]
fn routes_match_the_locations_of_nginx() {
    let backend = |name: &'static str| {
        ThreadedBackend::responding(move |_| {
            let length = name.len();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}").into()
        })
    };
    let (open, admin) = (backend("open"), backend("admin"));
    let mut config: Config = config(&[open.addr()]);
    let admin_backend = ConfigBackend::new(Address::Tcp(admin.addr()));
    config.pools.push(Pool::new("admin", vec![admin_backend]));
    config.routes.push(Route { path_prefix: "/admin".to_owned(), ..Route::all_to(PoolId(1)) });
    let gateway = TestGateway::on_unix_socket(config);
    let nginx = ForeignServer::nginx_with("", LOCATIONS);
    let get =
        |address: &Address, path: &str| -> Response { Peer::connect(address).get(path).unwrap() };
    for path in PATHS {
        let (ours, theirs) = (get(gateway.address(), path), get(&nginx.address, path));
        assert_eq!((ours.status, ours.text()), (theirs.status, theirs.text()), "{path}");
    }
    for path in AMBIGUOUS_PATHS {
        assert_eq!(get(gateway.address(), path).status, 400, "{path}");
    }
}

/// A foreign proxy that is silent for this long waits for more.
const PROXY_SILENCE: Duration = Duration::from_secs(2);

/// The rows of a table that a foreign proxy rejects, by name.
fn rejections<'a>(rows: impl Iterator<Item = (&'a str, bool)>) -> Vec<&'a str> {
    rows.filter_map(|(name, is_rejected)| is_rejected.then_some(name)).collect()
}

/// Asserts that `forwarded`, the rows that the gateway forwards, are forwarded by nginx or HAProxy, too; and that the
/// foreign proxies took part.
fn assert_forwarded_elsewhere(forwarded: &[&str], nginx: &[&str], haproxy: &[&str]) {
    for (name, rejected) in [("nginx", nginx), ("HAProxy", haproxy)] {
        let both = forwarded.iter().filter(|row| !rejected.contains(row)).count();
        println!(
            "{name} rejects {} rows, and forwards {both} of our {}: {rejected:?}",
            rejected.len(),
            forwarded.len()
        );
        assert!(rejected.len() > 10 && both > forwarded.len() / 2, "{name} does not work");
    }
    let lenient: Vec<_> =
        forwarded.iter().filter(|row| nginx.contains(row) && haproxy.contains(row)).collect();
    assert!(lenient.is_empty(), "only the gateway forwards {lenient:?}");
}

#[test]
fn requests_rejected_by_nginx_and_haproxy_are_rejected() {
    let mut origin = Origin::start();
    let proxies = [ForeignServer::nginx(origin.addr()), ForeignServer::haproxy(origin.addr())];
    let [nginx, haproxy] = proxies.each_ref().map(|proxy| {
        rejections(smuggling::all_requests().map(|case| {
            let status = origin.exchange(case, &proxy.address, PROXY_SILENCE).status;
            (case.name, status != Some(200))
        }))
    });
    let forwarded = rejections(smuggling::all_requests().map(|case| {
        let is_forwarded =
            matches!(case.expected, RequestOutcome::Forwarded(_) | RequestOutcome::Unchanged);
        (case.name, is_forwarded)
    }));
    assert_forwarded_elsewhere(&forwarded, &nginx, &haproxy);
}

#[test]
fn responses_rejected_by_nginx_and_haproxy_are_rejected() {
    let backend = smuggling::response_backend();
    let proxies = [ForeignServer::nginx(backend.addr()), ForeignServer::haproxy(backend.addr())];
    let [nginx, haproxy] = proxies.each_ref().map(|proxy| {
        rejections(responses::CASES.iter().enumerate().map(|(row, case)| {
            let received = smuggling::request_row(row, &proxy.address, PROXY_SILENCE);
            (case.name, !received.starts_with(b"HTTP/1.") || received[9..].starts_with(b"50"))
        }))
    });
    let forwarded = rejections(responses::CASES.iter().map(|case| {
        let is_rejected =
            matches!(case.expected, ResponseOutcome::Rejected | ResponseOutcome::Interrupted);
        (case.name, !is_rejected)
    }));
    assert_forwarded_elsewhere(&forwarded, &nginx, &haproxy);
}

#[test]
fn proxy_protocol_passes_between_haproxy_and_nginx() {
    for (version, sends) in [("v1", "send-proxy"), ("v2", "send-proxy-v2")] {
        let server = closed_port();
        let nginx = format!(
            "server {{ listen {server} proxy_protocol; \
             location / {{ return 200 \"$proxy_protocol_addr $http_x_forwarded_for\\n\"; }} }}"
        );
        let _nginx = ForeignServer::nginx_with(&nginx, "return 200;");
        let text = format!(
            "listeners: [{{ address: '127.0.0.1:0', proxy_protocol: [127.0.0.1] }}]\nadmin: 127.0.0.1:0\n\
             pools: [{{ name: p, proxy_protocol: {version}, health: {{ path: /, interval: 100ms }},\n\
             backends: [{{ address: '{server}' }}] }}]\n"
        );
        let gateway = TestGateway::start(&Config::parse(&text, Path::new("g.yaml")).unwrap());
        // The second hop writes the client that the first one gets from a header.
        let haproxy = ForeignServer::start("haproxy", &["-db", "-q", "-f", "{config}"], |dir| {
            format!(
                "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 10s\n  timeout server 10s\n\
                 frontend front\n  bind unix@{dir}/socket accept-proxy\n  default_backend back\n\
                 backend back\n  server gateway {} {sends}\n",
                gateway.addr()
            )
        });
        for client in ["192.0.2.7", "198.51.100.9"] {
            let mut peer = Peer::connect(&haproxy.address);
            peer.send(format!("PROXY TCP4 {client} 10.0.0.1 1234 443\r\n"));
            let response = peer.get("/").unwrap();
            assert_eq!(response.text(), format!("{client} {client}\n"), "{version}");
        }
        gateway.expect_metric(&format!("backend_up{{pool=\"p\",backend=\"{server}\"}}"), 1);
        drop(haproxy);
    }
}

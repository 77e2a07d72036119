//! `tollgate origin` as a process: with curl, with an unread access log, with many connections.

use crate::support::{Started, Workspace, show, stderr, stdout, wait_until};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

/// A running origin.
pub(crate) struct OriginProcess {
    child: Started,
    printed: BufReader<std::process::ChildStdout>,
    /// URL or `unix:PATH`, as printed.
    pub(crate) listens_on: String,
}

impl OriginProcess {
    pub(crate) fn start(workspace: &Workspace, arguments: &[&str]) -> Self {
        let mut child = workspace.start(&[&["origin", "--listen"], arguments].concat());
        let mut printed = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        printed.read_line(&mut line).expect("a line");
        let listens_on = line.trim().strip_prefix("listening on ").expect("where").to_owned();
        Self { child, printed, listens_on }
    }

    /// Stops it with TERM and checks that it exits with 0. Returns its output after the first line.
    pub(crate) fn stop(mut self) -> String {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGTERM).expect("it runs");
        let mut printed = String::new();
        self.printed.read_to_string(&mut printed).expect("its output");
        let child = RefCell::new(&mut self.child);
        let gone = wait_until(Duration::from_secs(30), || {
            child.borrow_mut().try_wait().expect("its end").is_some_and(|status| status.success())
        });
        assert!(gone, "the origin did not exit with 0");
        printed
    }
}

fn curl(arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "20"]).args(arguments);
    command.output().expect("curl; to install it: apt-get install -y curl")
}

#[test]
#[cfg_attr(not(feature = "e2e"), ignore = "needs curl; add `--features e2e`")]
fn curl_uses_every_endpoint() {
    let workspace = Workspace::concurrent();
    let origin =
        OriginProcess::start(&workspace, &["127.0.0.1:0", "--threads", "2", "--access-log"]);
    let url = |path: &str| format!("{}{path}", origin.listens_on);
    workspace.write("a.txt", &"a".repeat(300_000));
    let form = format!("file=@{}", workspace.path("a.txt").display());

    let page = stdout(&curl(&[&url("/")]));
    assert!(page.contains(&url("/urandom")), "{page}");
    assert_eq!(curl(&[&url("/?payload=100")]).stdout, [b'x'; 100]);
    let whole = curl(&["--dump-header", "-", &url("/download?size=3000000")]);
    assert!(stdout(&whole).contains("\r\nETag: \"3000000\"\r\n"), "{}", show(&whole));
    let resumed = curl(&[
        "--range",
        "2999990-",
        "--write-out",
        " %{http_code}",
        &url("/download?size=3000000"),
    ]);
    assert_eq!(stdout(&resumed), "xxxxxxxxxx 206");
    let uploaded = stdout(&curl(&["--form", &form, "--form", "note=b", &url("/upload")]));
    let parts = "\"parts\":[\n{\"name\":\"file\",\"filename\":\"a.txt\",\"size\":300000},\n\
        {\"name\":\"note\",\"filename\":null,\"size\":1}\n]}";
    assert!(uploaded.ends_with(parts), "{uploaded}");
    // A body after `100 Continue`, and a chunked one.
    let data = format!("@{}", workspace.path("a.txt").display());
    let expects = ["--header", "Expect: 100-continue", "--data-binary", &data, &url("/echo")];
    assert_eq!(curl(&expects).stdout.len(), 300_000);
    let chunked =
        ["--header", "Transfer-Encoding: chunked", "--data-binary", &data, &url("/upload")];
    assert!(stdout(&curl(&chunked)).starts_with("{\"size\":300000,\"time\":"));
    let head = stdout(&curl(&["--head", "--http1.0", &url("/sleep?time=0.01")]));
    assert!(head.contains("\r\nContent-Length: 17\r\n"), "{head}");
    let refused = curl(&["--write-out", " %{http_code}", &url("/zero?size=-1")]);
    assert_eq!(
        stdout(&refused),
        "{\"error\":\"invalid size `-1`: must be a whole number of bytes from 0 to 67108864\"} 400"
    );

    let log = origin.stop();
    assert_eq!(log.lines().count(), 9, "{log}");
    assert!(log.contains("\"GET /zero?size=-1 HTTP/1.1\" 400 81 \"-\" \"curl/"), "{log}");

    // Over a unix-domain socket.
    let path = workspace.path("origin.sock");
    let listen = format!("unix:{}", path.display());
    let origin = OriginProcess::start(&workspace, &[&listen]);
    assert_eq!(origin.listens_on, listen);
    let socket = path.to_str().expect("a path");
    let method = curl(&["--unix-socket", socket, "--request", "PATCH", "http://a.test/method"]);
    assert_eq!(stdout(&method), "{\"method\":\"PATCH\"}");
    let second = workspace.run(&["origin", "--listen", &listen]);
    assert_eq!(second.status.code(), Some(1), "{}", show(&second));
    origin.stop();
    assert!(!path.exists());
}

/// Runs a foreign client. Returns what it prints.
fn foreign(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    // openssl s_client sends its standard input.
    command.args(arguments).stdin(std::process::Stdio::null());
    let output = command.output();
    let output = output
        .expect("a foreign client; to install them: apt-get install -y nghttp2-client openssl");
    format!("{}{}", stdout(&output), stderr(&output))
}

#[test]
#[cfg_attr(
    not(feature = "e2e"),
    ignore = "needs curl, nghttp, h2load and openssl; add `--features e2e`"
)]
fn foreign_clients_speak_http2_and_tls() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0", "--tls", "--access-log"]);
    assert!(origin.listens_on.starts_with("https://127.0.0.1:"), "{}", origin.listens_on);
    let url = |path: &str| format!("{}{path}", origin.listens_on);
    workspace.write("a.txt", &"a".repeat(300_000));
    let data = format!("@{}", workspace.path("a.txt").display());

    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let curl = |arguments: &[&str]| {
            let version = ["--insecure", option, "--write-out", " %{http_version} %{http_code}"];
            stdout(&curl(&[&version, arguments].concat()))
        };
        let seen = |text: &str, code: u16| format!("{text} {version} {code}");
        assert_eq!(curl(&[&url("/?payload=3")]), seen("xxx", 200));
        assert_eq!(curl(&[&url("/download?size=3000000")]), seen(&"x".repeat(3_000_000), 200));
        assert_eq!(curl(&["--data-binary", &data, &url("/echo")]), seen(&"a".repeat(300_000), 200));
        let head = curl(&["--head", &url("/sleep?time=0.01")]);
        assert!(head.to_ascii_lowercase().contains("\r\ncontent-length: 17\r\n"), "{head}");
        assert!(curl(&[&url("/status/404")]).ends_with(&seen("{\"status\":404}", 404)));
    }
    // Several requests on one connection, one of them an upload.
    let nghttp = foreign(
        "nghttp",
        &[
            "--no-verify-peer",
            "--stat",
            "--null-out",
            &url("/?payload=100000"),
            &url("/sleep?time=0.1"),
        ],
    );
    assert!(!nghttp.contains("Some requests were not processed"), "{nghttp}");
    assert!(nghttp.contains(" 200  97K /?payload=100000"), "{nghttp}");
    let h2load = foreign("h2load", &["-n", "2000", "-c", "4", "-m", "20", &url("/?payload=100")]);
    assert!(h2load.contains("Application protocol: h2"), "{h2load}");
    assert!(h2load.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{h2load}");
    let address = origin.listens_on.trim_start_matches("https://").to_owned();
    for (version, protocol) in [("-tls1_2", "h2"), ("-tls1_3", "http/1.1")] {
        let shown =
            foreign("openssl", &["s_client", version, "-alpn", protocol, "-connect", &address]);
        assert!(shown.contains(&format!("ALPN protocol: {protocol}\n")), "{shown}");
        assert!(shown.contains("\nCompression: NONE\n"), "{shown}");
    }
    let old = foreign("openssl", &["s_client", "-tls1_1", "-connect", &address]);
    assert!(old.contains("no protocols available") || old.contains("alert"), "{old}");

    let log = origin.stop();
    assert!(log.contains("\"POST /echo HTTP/2.0\" 200 300000 \"-\" \"curl/"), "{log}");
    assert!(log.contains("\"POST /echo HTTP/1.1\" 200 300000 \"-\" \"curl/"), "{log}");
    assert_eq!(
        log.lines().filter(|line| line.contains(" h2load ") || line.contains("\"h2load")).count(),
        2000
    );

    // In the clear, with prior knowledge.
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    let plain = format!("{}/method", origin.listens_on);
    let method = curl(&["--http2-prior-knowledge", "--request", "PUT", &plain]);
    assert_eq!(stdout(&method), "{\"method\":\"PUT\"}");
    let h2load = foreign("h2load", &["-n", "2000", "-c", "4", "-m", "20", &plain]);
    assert!(h2load.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{h2load}");
    origin.stop();
}

#[test]
fn load_reaches_the_origin_over_every_protocol() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0", "--tls"]);
    let plain = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    for (server, options, protocol) in [
        (&origin, &["--insecure", "--http", "2", "--streams", "10"][..], "2"),
        (&origin, &["--insecure", "--http", "auto", "--rate", "5000"], "2"),
        (&origin, &["--insecure"], "1.1"),
        (&origin, &["--insecure", "--no-keepalive", "--tls-resume"], "1.1"),
        (&plain, &["--http", "2", "--streams", "10"], "2"),
    ] {
        let url = format!("{}/?payload=1000", server.listens_on);
        let common = [url.as_str(), "-c", "4", "-n", "2000", "--expect", "200"];
        let (code, result) = workspace.load(&[&common, options].concat());
        assert_eq!(code, Some(0), "{options:?}: {result}");
        assert_eq!(result["load"]["protocol"], protocol);
        assert_eq!((&result["responses"], &result["unexpected"]), (&2000.into(), &0.into()));
        assert_eq!(result["body_bytes"], 2_000_000);
        let is_resumed = result["resumed_handshakes"].as_u64() > Some(1000);
        assert_eq!(is_resumed, options.contains(&"--tls-resume"), "{result}");
    }
    origin.stop();
    plain.stop();
}

#[test]
fn certificate_of_the_origin_is_checked_at_start() {
    let workspace = Workspace::concurrent();
    workspace.write("a.pem", "not a certificate");
    let file = workspace.path("a.pem").display().to_string();
    let output =
        workspace.run(&["origin", "--listen", "127.0.0.1:0", "--cert", &file, "--key", &file]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(stderr(&output).contains("expected a PEM file"), "{}", show(&output));
    let output = workspace.run(&["origin", "--cert", &file]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(stderr(&output).contains("--key"), "{}", show(&output));
}

#[test]
fn polling_origin_sleeps_without_requests() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0", "--busy-poll"]);
    let address = origin.listens_on.strip_prefix("http://").expect("a URL").to_owned();
    let process = Process::new(origin.child.id().cast_signed()).expect("it runs");
    let sleeps = || {
        let state = |task: procfs::process::Task| task.stat().expect("a thread").state;
        process.tasks().expect("threads").flatten().all(|task| state(task) == 'S')
    };
    // The connection stays open.
    let mut client = TcpStream::connect(&address).expect("it listens");
    for _ in 0..2 {
        client.write_all(b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nx") {
            let mut piece = [0; 256];
            let bytes = client.read(&mut piece).expect("a response");
            assert!(bytes > 0, "{}", String::from_utf8_lossy(&response));
            response.extend(&piece[..bytes]);
        }
        assert!(wait_until(Duration::from_secs(20), sleeps), "it polls on");
    }
    drop(client);
    origin.stop();
}

#[test]
fn port_in_use_is_reported_and_free_after_stop() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    let address = origin.listens_on.trim_start_matches("http://").to_owned();
    let second = workspace.run(&["origin", "--listen", &address]);
    assert_eq!(second.status.code(), Some(1), "{}", show(&second));
    let message = stderr(&second);
    assert!(message.contains(&address) && message.contains("in use"), "{message}");
    origin.stop();
    TcpListener::bind(&address).expect("a free port");
}

#[test]
fn unread_access_log_does_not_keep_origin_from_stopping() {
    const REQUESTS: usize = 20;
    let workspace = Workspace::concurrent();
    // Standard output is a pipe that holds 64 KiB, and is not read after the first line.
    let mut origin = OriginProcess::start(&workspace, &["127.0.0.1:0", "--access-log"]);
    let mut client =
        TcpStream::connect(origin.listens_on.trim_start_matches("http://")).expect("a connection");
    client.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let agent = "a".repeat(10_000);
    let mut responses = 0;
    for _ in 0..REQUESTS {
        write!(client, "GET /?payload=1 HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n")
            .expect("a request");
        let mut response = vec![0; ONE.len()];
        client.read_exact(&mut response).expect("a response");
        responses += usize::from(response == ONE.as_bytes());
    }
    assert_eq!(responses, REQUESTS);
    let pid = Pid::from_raw(origin.child.id().cast_signed());
    kill(pid, Signal::SIGTERM).expect("it runs");
    let child = RefCell::new(&mut origin.child);
    let exit_code =
        || child.borrow_mut().try_wait().expect("its state").map(|status| status.code());
    let gone = wait_until(Duration::from_secs(30), || exit_code().is_some());
    if !gone {
        child.borrow_mut().kill().expect("it runs");
    }
    assert!(gone, "the origin did not stop");
    assert_eq!(exit_code(), Some(Some(0)));
    let mut messages = String::new();
    let stderr = child.borrow_mut().stderr.take().expect("its errors");
    BufReader::new(stderr).read_to_string(&mut messages).expect("text");
    assert!(messages.contains("cannot finish the access log: the last "), "{messages}");
}

const ONE: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Content-Length: 1\r\n\r\nx";

#[test]
fn ten_thousand_idle_connections_use_less_than_64_mib() {
    const CONNECTIONS: usize = 10_000;
    let workspace = Workspace::concurrent();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    assert!(most >= 10_200, "this test needs 10200 open files: raise the hard limit (ulimit -Hn)");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("the hard limit");
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    let address = origin.listens_on.trim_start_matches("http://").to_owned();

    // Each connection has used memory for a request.
    let body = "b".repeat(50_000);
    let upload = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n{body}");
    let mut response = vec![0; ECHO_HEAD.len() + body.len()];
    let clients: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = TcpStream::connect(&address).expect("a connection");
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            client.write_all(upload.as_bytes()).expect("an upload");
            client.read_exact(&mut response).expect("its echo");
            client
        })
        .collect();
    assert!(response.starts_with(ECHO_HEAD.as_bytes()) && response.ends_with(body.as_bytes()));
    let process = Process::new(origin.child.id().cast_signed()).expect("the origin");
    let rss_kib = process.status().expect("its status").vmrss.expect("its memory");
    eprintln!("{CONNECTIONS} idle connections: {rss_kib} KiB");
    assert!(rss_kib < 64 << 10, "{rss_kib} KiB for {CONNECTIONS} idle connections");
    drop(clients);
    origin.stop();
}

const ECHO_HEAD: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\n\
    Content-Type: application/octet-stream\r\nX-Content-Type-Options: nosniff\r\n\
    Content-Length: 50000\r\n\r\n";

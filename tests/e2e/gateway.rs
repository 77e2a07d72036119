//! `tollgate gateway` as a process: configuration file, signals, exit codes.

use crate::origin::OriginProcess;
use crate::support::{Workspace, show, stderr, stdout, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// A running gateway.
struct GatewayProcess {
    child: Child,
    /// Lines of standard output.
    printed: Receiver<String>,
    /// Lines of standard error.
    messages: Receiver<String>,
    address: String,
}

impl GatewayProcess {
    fn start(workspace: &Workspace) -> Self {
        let mut child = workspace.start(&["gateway", "--config", "gateway.yaml"]);
        let stderr = child.stderr.take().expect("its errors");
        Self::with_stderr(child, stderr)
    }

    /// `stderr` is the standard error of `child`.
    fn with_stderr(mut child: Child, stderr: impl Read + Send + 'static) -> Self {
        let printed = lines(child.stdout.take().expect("its output"));
        let messages = lines(stderr);
        let line = printed.recv_timeout(PATIENCE).expect("a line");
        let address = line.strip_prefix("listening on http://").expect("an address").to_owned();
        Self { child, printed, messages, address }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Returns the response to a request for `path` on a new connection.
    fn get(&self, path: &str) -> String {
        let mut client = TcpStream::connect(&self.address).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("a response");
        response
    }

    /// Waits for the end. Returns the exit code.
    fn wait(self) -> Option<i32> {
        let child = RefCell::new(self.child);
        let ended = || child.borrow_mut().try_wait().expect("its end");
        assert!(wait_until(PATIENCE, || ended().is_some()), "the gateway did not end");
        ended().and_then(|status| status.code())
    }
}

/// Reads lines on a thread, so that receiving can time out.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn config(listen: &str, backend: &str, more: &str) -> String {
    format!(
        "listeners:\n  - address: {listen}\npools:\n  - name: site\n    backends:\n      - address: \
         {backend}\n{more}"
    )
}

#[test]
fn configuration_is_checked_before_listening() {
    let workspace = Workspace::concurrent();
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", ""));
    let fine = workspace.run(&["gateway", "--config", "gateway.yaml", "--check"]);
    assert_eq!(
        (fine.status.code(), stdout(&fine).as_str()),
        (Some(0), "gateway.yaml: the configuration is valid\n")
    );
    workspace
        .write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", "timeouts: { idel: 5s }\n"));
    for arguments in [&["--check"][..], &[]] {
        let bad = workspace.run(&[&["gateway", "--config", "gateway.yaml"], arguments].concat());
        assert_eq!(bad.status.code(), Some(2), "{}", show(&bad));
        assert_eq!(
            stderr(&bad),
            "tollgate: gateway.yaml:7:13: unknown key `idel`; did you mean `idle`?\n"
        );
    }
    let missing = workspace.run(&["gateway", "--config", "none.yaml"]);
    assert_eq!(missing.status.code(), Some(2), "{}", show(&missing));
    assert!(stderr(&missing).starts_with("tollgate: cannot read the configuration `none.yaml`: "));
}

#[test]
fn reloads_on_hup_and_drains_on_term() {
    let workspace = Workspace::concurrent();
    let (one, other) = (
        OriginProcess::start(&workspace, &["127.0.0.1:0"]),
        OriginProcess::start(&workspace, &["unix:other.sock", "--access-log"]),
    );
    let backend = one.listens_on.strip_prefix("http://").expect("a port").to_owned();
    workspace
        .write("gateway.yaml", &config("127.0.0.1:0", &backend, "access_log: { to: stdout }\n"));
    let gateway = GatewayProcess::start(&workspace);
    let response = gateway.get("/?payload=5");
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nxxxxx"),
        "{response}"
    );
    let line = gateway.printed.recv_timeout(PATIENCE).expect("a line");
    assert!(line.contains("] \"GET /?payload=5 HTTP/1.1\" 200 5 "), "{line}");

    // An invalid file is reported and changes nothing.
    workspace.write("gateway.yaml", &config("127.0.0.1:0", &backend, "admin: here\n"));
    gateway.signal(Signal::SIGHUP);
    let message = gateway.messages.recv_timeout(PATIENCE).expect("a line");
    assert_eq!(
        message,
        "tollgate gateway: reload failed, the old configuration stays: gateway.yaml:7:8: `here` is not an address and \
         port such as 127.0.0.1:9900"
    );
    assert!(gateway.get("/?payload=5").ends_with("xxxxx"));

    // A valid file takes effect; relative paths start at its directory.
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "unix:other.sock", ""));
    gateway.signal(Signal::SIGHUP);
    let message = gateway.messages.recv_timeout(PATIENCE).expect("a line");
    assert_eq!(message, "tollgate gateway: reloaded gateway.yaml");
    assert!(gateway.get("/?payload=7").ends_with("xxxxxxx"));

    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.wait(), Some(0));
    one.stop();
    assert!(other.stop().contains("\"GET /?payload=7 HTTP/1.1\" 200 7 "));
}

#[test]
fn drain_reports_requests_in_flight() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    let backend = origin.listens_on.strip_prefix("http://").expect("a port").to_owned();
    workspace
        .write("gateway.yaml", &config("127.0.0.1:0", &backend, "timeouts: { drain: 300ms }\n"));
    let gateway = GatewayProcess::start(&workspace);
    let mut client = TcpStream::connect(&gateway.address).expect("it listens");
    // A request that arrives before the signal is processed.
    client.write_all(b"GET /delay?ms=10000 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    gateway.signal(Signal::SIGTERM);
    let message = || gateway.messages.recv_timeout(PATIENCE).expect("a line");
    assert_eq!(message(), "tollgate gateway: thread 0 waits up to 300ms for active connections: 1");
    assert_eq!(message(), "tollgate gateway: thread 0 aborts active connections: 1");
    assert_eq!(gateway.wait(), Some(0));
    origin.stop();
}

/// Returns both ends of a full pipe.
fn full_pipe() -> (UnixStream, UnixStream) {
    let (reader, mut writer) = UnixStream::pair().expect("a pair of sockets");
    writer.set_nonblocking(true).expect("a nonblocking socket");
    // Single bytes may fit when many do not.
    for count in [4096, 1] {
        while let Ok(1..) = writer.write(&vec![b'\n'; count]) {}
    }
    writer.set_nonblocking(false).expect("a blocking socket");
    (reader, writer)
}

#[test]
fn signals_work_with_full_standard_error() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    let backend = origin.listens_on.strip_prefix("http://").expect("a port").to_owned();
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", ""));
    let (_unread, full) = full_pipe();
    let mut command = workspace.command(&["gateway", "--config", "gateway.yaml"]);
    command.stdout(Stdio::piped()).stderr(OwnedFd::from(full));
    let gateway =
        GatewayProcess::with_stderr(command.spawn().expect("the binary runs"), std::io::empty());
    drop(command);
    assert!(gateway.get("/").starts_with("HTTP/1.1 502 "));
    // The error on this file is written to the full pipe.
    workspace.write("gateway.yaml", "here\n");
    gateway.signal(Signal::SIGHUP);
    // Usually long enough for this reload; the result does not depend on it.
    std::thread::sleep(Duration::from_millis(200));
    workspace.write("gateway.yaml", &config("127.0.0.1:0", &backend, ""));
    gateway.signal(Signal::SIGHUP);
    let is_reloaded = || gateway.get("/?payload=5").ends_with("xxxxx");
    assert!(wait_until(PATIENCE, is_reloaded), "the gateway does not reload");
    let mut client = TcpStream::connect(&gateway.address).expect("it listens");
    client.write_all(b"GET /delay?ms=10000 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    gateway.signal(Signal::SIGTERM);
    let drains = || TcpStream::connect(&gateway.address).is_err();
    assert!(wait_until(PATIENCE, drains), "the gateway does not drain");
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.wait(), Some(130));
    origin.stop();
}

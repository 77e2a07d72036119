//! `tollgate gateway` as a process: configuration file, signals, exit codes.

use crate::origin::OriginProcess;
use crate::support::{Started, Workspace, show, stderr, stdout, wait_until};
use assert_cmd::cargo::cargo_bin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// A running gateway.
pub(crate) struct GatewayProcess {
    child: Started,
    /// Lines of standard output.
    pub(crate) printed: Receiver<String>,
    /// Lines of standard error.
    messages: Receiver<String>,
    pub(crate) address: String,
}

impl GatewayProcess {
    pub(crate) fn start(workspace: &Workspace) -> Self {
        Self::start_with(workspace, &["gateway", "gateway.yaml"])
    }

    /// Starts it, or another server of its kind.
    pub(crate) fn start_with(workspace: &Workspace, arguments: &[&str]) -> Self {
        Self::of(workspace.start(arguments))
    }

    fn of(mut child: Started) -> Self {
        let stderr = child.stderr.take().expect("its errors");
        Self::with_stderr(child, stderr)
    }

    /// `stderr` is the standard error of `child`.
    fn with_stderr(mut child: Started, stderr: impl Read + Send + 'static) -> Self {
        let printed = lines(child.stdout.take().expect("its output"));
        let messages = lines(stderr);
        let line = printed.recv_timeout(PATIENCE).expect("a line");
        let url = line.strip_prefix("listening on ").and_then(|url| url.split_once("://"));
        let address = url.expect("an address").1.to_owned();
        Self { child, printed, messages, address }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Returns the response to a request for `path` on a new connection.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut client = TcpStream::connect(&self.address).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("a response");
        response
    }

    /// Waits for a message.
    pub(crate) fn message(&self) -> String {
        self.message_within(PATIENCE)
    }

    pub(crate) fn message_within(&self, limit: Duration) -> String {
        self.messages.recv_timeout(limit).expect("a line")
    }

    /// Waits for the end. Returns the exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        let child = RefCell::new(&mut self.child);
        let ended = || child.borrow_mut().try_wait().expect("its end");
        assert!(wait_until(PATIENCE, || ended().is_some()), "the gateway did not end");
        ended().and_then(|status| status.code())
    }
}

/// Reads lines on a thread, so that receiving can time out.
pub(crate) fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
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
         {backend}\n{more}limits: {{ connections: 100 }}\n"
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
fn two_addresses_are_a_configuration() {
    let workspace = Workspace::concurrent();
    workspace.write(
        "gateway.yaml",
        "listeners: [{ address: '127.0.0.1:0' }]\nroutes: [{ path: /, respond: { status: 299 } }]\n",
    );
    let backend = GatewayProcess::start(&workspace);
    let arguments = ["gateway", "--from", "127.0.0.1:0", "--to", &backend.address];
    let gateway = GatewayProcess::start_with(&workspace, &arguments);
    assert!(gateway.get("/").starts_with("HTTP/1.1 299"), "{}", gateway.get("/"));
    for (from, expected) in [
        (":8080", "--from, --to: the configuration is valid\n"),
        ("x", "tollgate: --from, --to:1:24: `x` is not an address: expected ADDRESS:PORT"),
    ] {
        let output =
            workspace.run(&["gateway", "--from", from, "--to", &backend.address, "--check"]);
        let shown = stdout(&output) + &stderr(&output);
        assert!(shown.starts_with(expected), "{shown}");
    }
}

#[test]
fn configuration_is_an_argument_or_an_option_and_the_example_is_valid() {
    let workspace = Workspace::concurrent();
    let example = workspace.run(&["gateway", "--example"]);
    assert_eq!(example.status.code(), Some(0), "{}", show(&example));
    workspace.write("example.yaml", &stdout(&example));
    for arguments in [&["example.yaml"][..], &["-c", "example.yaml"], &["--config=example.yaml"]] {
        let checked = workspace.run(&[&["gateway", "--check"], arguments].concat());
        assert_eq!(stdout(&checked), "example.yaml: the configuration is valid\n");
    }
    let shortest = workspace.run(&["gateway", "--example", "waf"]);
    workspace.write("waf.yaml", &stdout(&shortest));
    let checked = workspace.run(&["gateway", "--check", "waf.yaml"]);
    assert_eq!(stdout(&checked), "waf.yaml: the configuration is valid\n", "{}", show(&checked));
    assert!(stderr(&checked).contains("`crs` is version "), "{}", show(&checked));
    for arguments in [&[][..], &["--check"], &["a.yaml", "-c", "a.yaml"], &["--example", "a.yaml"]]
    {
        let bad = workspace.run(&[&["gateway"], arguments].concat());
        assert_eq!(bad.status.code(), Some(2), "{}", show(&bad));
    }
}

#[test]
fn check_reports_each_file_and_name_that_cannot_be_used() {
    let workspace = Workspace::concurrent();
    let logs = "access_log: { to: none/access.log }\naudit_log: { to: none/audit.log }\n";
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", logs));
    let bad = workspace.run(&["gateway", "gateway.yaml", "--check"]);
    assert_eq!(
        (bad.status.code(), stderr(&bad).as_str()),
        (
            Some(2),
            "tollgate: gateway.yaml: cannot open the access log `none/access.log`; choose a file in a writable \
             folder: No such file or directory (os error 2)\ngateway.yaml: cannot open the audit log \
             `none/audit.log`; choose a file in a writable folder: No such file or directory (os error 2)\n"
        )
    );
    let backends = "{ address: backend.invalid:80 }, { address: other.invalid:80 }";
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\npools: [{{ name: a, backends: [{backends}] }}]\n"
    );
    workspace.write("gateway.yaml", &text);
    for arguments in [&["--check"][..], &[]] {
        let bad = workspace.run(&[&["gateway", "gateway.yaml"], arguments].concat());
        assert_eq!(bad.status.code(), Some(2), "{}", show(&bad));
        let message = stderr(&bad);
        let lines: Vec<&str> = message.lines().collect();
        let is_reported = |line: &str, place, name| {
            let start =
                format!("gateway.yaml:{place}: cannot resolve `{name}:80`, the `address` of");
            line.contains(&start)
        };
        assert_eq!(lines.len(), 2, "{message}");
        assert!(is_reported(lines[0], "2:42", "backend.invalid"), "{message}");
        assert!(is_reported(lines[1], "2:75", "other.invalid"), "{message}");
    }
}

#[test]
fn reopens_logs_on_usr1_ignores_usr2_and_drains_on_quit() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    // By name, too.
    let backend = origin.listens_on.replace("http://127.0.0.1", "localhost");
    workspace
        .write("gateway.yaml", &config("127.0.0.1:0", &backend, "access_log: { to: a.log }\n"));
    let gateway = GatewayProcess::start(&workspace);
    gateway.get("/?payload=1");
    std::fs::rename(workspace.path("a.log"), workspace.path("a.log.1")).expect("a log");
    gateway.get("/?payload=2");
    // Lines are written after their responses.
    let is_written = || workspace.read("a.log.1").contains("payload=2");
    assert!(wait_until(PATIENCE, is_written), "{}", workspace.read("a.log.1"));
    gateway.signal(Signal::SIGUSR1);
    assert_eq!(gateway.message(), "tollgate gateway: reopened the logs");
    gateway.get("/?payload=3");
    gateway.signal(Signal::SIGUSR2);
    assert_eq!(gateway.message(), "tollgate gateway: SIGUSR2 ignored");
    // A log that cannot be opened stays as it is.
    std::fs::rename(workspace.path("a.log"), workspace.path("a.log.2")).expect("a log");
    std::fs::create_dir(workspace.path("a.log")).expect("a folder");
    gateway.signal(Signal::SIGUSR1);
    assert_eq!(
        gateway.message(),
        "tollgate gateway: cannot open the access log `a.log`; choose a file in a writable folder: Is a directory (os \
         error 21); its old file stays open"
    );
    gateway.get("/?payload=4");
    gateway.signal(Signal::SIGQUIT);
    assert_eq!(gateway.wait(), Some(0));
    let payloads = |name: &str| {
        let text = workspace.read(name);
        let payload = |line: &str| line.split("payload=").nth(1)?.chars().next();
        text.lines().map(|line| payload(line).expect("a payload")).collect::<String>()
    };
    assert_eq!([payloads("a.log.1"), payloads("a.log.2")], ["12", "34"]);
    origin.stop();
}

#[test]
fn states_are_reported_to_systemd() {
    let workspace = Workspace::concurrent();
    let socket = UnixDatagram::bind(workspace.path("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let state = || {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).expect("a state");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", ""));
    let mut command = workspace.command(&["gateway", "gateway.yaml"]);
    command.env("NOTIFY_SOCKET", workspace.path("notify"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let gateway = GatewayProcess::of(Started::new(command.spawn().expect("the binary runs")));
    assert_eq!(state(), "READY=1\n");
    // A reload that fails ends, too.
    workspace.write("gateway.yaml", "here\n");
    gateway.signal(Signal::SIGHUP);
    let reloading = state();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(state(), "READY=1\n");
    gateway.signal(Signal::SIGTERM);
    assert_eq!(state(), "STOPPING=1\n");
    assert_eq!(gateway.wait(), Some(0));
}

/// The unit, with another program and configuration.
fn unit(program: &Path, config: &Path) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/tollgate-gateway.service");
    let text = std::fs::read_to_string(file).expect("the unit");
    let parts = [("/usr/bin/tollgate", program), ("/etc/tollgate/gateway.yaml", config)];
    parts.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{text}");
        text.replace(from, to.to_str().expect("a path"))
    })
}

#[test]
fn command_of_the_unit_starts_the_gateway() {
    let workspace = Workspace::concurrent();
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", ""));
    let unit = unit(cargo_bin!("tollgate"), &workspace.path("gateway.yaml"));
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let gateway = GatewayProcess::of(Started::new(command.spawn().expect("the binary runs")));
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.wait(), Some(0));
}

#[cfg(feature = "e2e")]
#[test]
fn unit_is_valid() {
    let workspace = Workspace::concurrent();
    let unit = unit(cargo_bin!("tollgate"), &workspace.path("gateway.yaml"));
    workspace.write("tollgate-gateway.service", &unit);
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).arg(workspace.path("tollgate-gateway.service"));
    let output = command.output().expect("systemd-analyze; install the package systemd");
    // Unknown directives are messages only.
    assert!(output.status.success() && output.stderr.is_empty(), "{}", show(&output));
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
fn cause_of_an_invalid_response_is_logged() {
    let headers = "X: y\r\n".repeat(101);
    for (response, cause) in [
        (
            format!("HTTP/1.1 200 OK\r\n{headers}\r\n"),
            "it has 101 header lines, more than 100 (`limits.response_headers`)",
        ),
        ("SMTP ready\r\n\r\n".to_owned(), "malformed HTTP/1 head: "),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(),
            "two values",
        ),
    ] {
        let workspace = Workspace::concurrent();
        let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = backend.local_addr().expect("an address").to_string();
        workspace.write("gateway.yaml", &config("127.0.0.1:0", &address, ""));
        let gateway = GatewayProcess::start(&workspace);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = backend.accept().expect("a connection");
            let _ = stream.read(&mut [0; 4096]).expect("a request");
            stream.write_all(response.as_bytes()).expect("a response");
            stream
        });
        assert!(gateway.get("/").starts_with("HTTP/1.1 502 "), "{cause}");
        server.join().expect("the server");
        let message = gateway.message();
        assert!(message.contains(&format!("a response is invalid: {cause}")), "{message}");
    }
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
    let gateway = GatewayProcess::with_stderr(
        Started::new(command.spawn().expect("the binary runs")),
        std::io::empty(),
    );
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

/// Two hundred uploads of 5 MB each, of which the firewall may hold 32 MB.
#[test]
fn memory_of_held_uploads_is_limited() {
    const CLIENTS: usize = 200;
    const UPLOAD: usize = 5_000_000;
    const HELD: usize = 32_000_000;
    let workspace = Workspace::concurrent();
    workspace.write(
        "gateway.yaml",
        &format!(
            "listeners: [{{ address: '127.0.0.1:0' }}]
threads: 1
pools: [{{ name: none, backends: [{{ address: '127.0.0.1:1' }}] }}]
waf: {{ rules: [rules.conf] }}
limits: {{ held_body_bytes: {HELD} }}
"
        ),
    );
    workspace.write("rules.conf", "SecRule FILES x \"id:1,phase:2,deny\"\n");
    let gateway = GatewayProcess::start(&workspace);
    let process = procfs::process::Process::new(gateway.child.id().cast_signed()).expect("it runs");
    let peak = || process.status().expect("its status").vmhwm.expect("its peak") * 1024;
    let before = peak();
    let part = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n";
    let end = "\r\n--b--\r\n";
    let length = part.len() + UPLOAD + end.len();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: {length}\r\n\r\n{part}"
    );
    let body = vec![b'x'; UPLOAD];
    let statuses: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = TcpStream::connect(&gateway.address).expect("it listens");
                    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                    // A rejected client may not send all of it.
                    let sent = client
                        .write_all(head.as_bytes())
                        .and_then(|()| client.write_all(&body))
                        .and_then(|()| client.write_all(end.as_bytes()));
                    let mut status = [0; 12];
                    let read = client.read_exact(&mut status);
                    match read {
                        Ok(()) => String::from_utf8_lossy(&status[9..]).into_owned(),
                        Err(error) => format!("sent {sent:?}, received {error}"),
                    }
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a status")).collect()
    });
    // 403 for those that were inspected, as a rule matches all; 503 beyond the limit.
    let count = |status: &str| statuses.iter().filter(|found| *found == status).count();
    assert_eq!(count("403") + count("503"), CLIENTS, "{statuses:?}");
    assert!(count("403") > 0 && count("503") > 0, "{statuses:?}");
    // Each held byte needs three and what the allocator keeps, each client its buffers. All uploads would need 3 GB.
    let allowed = 8 * HELD + CLIENTS * (64 << 10);
    let grown = usize::try_from(peak() - before).expect("a size");
    assert!(grown < allowed, "{grown} bytes more than before, {allowed} are allowed");
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.wait(), Some(0));
}

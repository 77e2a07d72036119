//! `tollgate gateway` as a server of its own: its file, its signals, its exit codes.

use crate::origin::Started as Origin;
use crate::support::{Workspace, stderr, stdout, told, wait_until};
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

/// A gateway, and what it prints, line by line.
struct Started {
    child: Child,
    printed: Receiver<String>,
    told: Receiver<String>,
    address: String,
}

impl Started {
    fn new(workspace: &Workspace) -> Self {
        let mut child = workspace.start(&["gateway", "--config", "gateway.yaml"]);
        let told = child.stderr.take().expect("its errors");
        Self::of(child, told)
    }

    /// One that was started, and that tells things there.
    fn of(mut child: Child, told: impl Read + Send + 'static) -> Self {
        let printed = lines(child.stdout.take().expect("its output"));
        let told = lines(told);
        let line = printed.recv_timeout(PATIENCE).expect("a line");
        let address = line.strip_prefix("listening on http://").expect("where").to_owned();
        Self { child, printed, told, address }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// The head and body of the answer to a request for `path`, on a connection of its own.
    fn get(&self, path: &str) -> String {
        let mut client = TcpStream::connect(&self.address).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Its exit code, which comes soon.
    fn end(self) -> Option<i32> {
        let child = RefCell::new(self.child);
        let ended = || child.borrow_mut().try_wait().expect("its end");
        assert!(wait_until(PATIENCE, || ended().is_some()), "it did not end");
        ended().and_then(|status| status.code())
    }
}

/// The lines of a pipe as they come.
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
fn a_file_is_checked_before_anything_listens() {
    let workspace = Workspace::new();
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", ""));
    let fine = workspace.run(&["gateway", "--config", "gateway.yaml", "--check"]);
    assert_eq!((fine.status.code(), stdout(&fine).as_str()), (Some(0), "gateway.yaml is fine\n"));
    workspace
        .write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", "timeouts: { idel: 5s }\n"));
    for arguments in [&["--check"][..], &[]] {
        let bad = workspace.run(&[&["gateway", "--config", "gateway.yaml"], arguments].concat());
        assert_eq!(bad.status.code(), Some(2), "{}", told(&bad));
        assert_eq!(
            stderr(&bad),
            "tollgate: gateway.yaml:7:13: unknown key `idel`; did you mean `idle`?\n"
        );
    }
    let missing = workspace.run(&["gateway", "--config", "none.yaml"]);
    assert_eq!(missing.status.code(), Some(2), "{}", told(&missing));
    assert!(stderr(&missing).starts_with("tollgate: the configuration none.yaml cannot be read; "));
}

#[test]
fn a_gateway_reloads_on_hup_and_drains_on_term() {
    let workspace = Workspace::new();
    let (one, other) = (
        Origin::new(&workspace, &["127.0.0.1:0"]),
        Origin::new(&workspace, &["unix:other.sock", "--access-log"]),
    );
    let backend = one.listens_on.strip_prefix("http://").expect("a port").to_owned();
    workspace
        .write("gateway.yaml", &config("127.0.0.1:0", &backend, "access_log: { to: stdout }\n"));
    let gateway = Started::new(&workspace);
    let answer = gateway.get("/?payload=5");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nxxxxx"),
        "{answer}"
    );
    let line = gateway.printed.recv_timeout(PATIENCE).expect("a line");
    assert!(line.contains("] \"GET /?payload=5 HTTP/1.1\" 200 5 "), "{line}");

    // A file that cannot be is told, and changes nothing.
    workspace.write("gateway.yaml", &config("127.0.0.1:0", &backend, "admin: here\n"));
    gateway.signal(Signal::SIGHUP);
    let told = gateway.told.recv_timeout(PATIENCE).expect("a line");
    assert_eq!(
        told,
        "tollgate gateway: the old configuration stays: gateway.yaml:7:8: `here` is no address and port, \
         such as 127.0.0.1:9900; the admin listener has no other kind"
    );
    assert!(gateway.get("/?payload=5").ends_with("xxxxx"));

    // One that is fine is in force; the relative path is seen from the file's folder.
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "unix:other.sock", ""));
    gateway.signal(Signal::SIGHUP);
    let told = gateway.told.recv_timeout(PATIENCE).expect("a line");
    assert_eq!(told, "tollgate gateway: gateway.yaml is in force");
    assert!(gateway.get("/?payload=7").ends_with("xxxxxxx"));

    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.end(), Some(0));
    one.stop();
    assert!(other.stop().contains("\"GET /?payload=7 HTTP/1.1\" 200 7 "));
}

#[test]
fn a_drain_tells_what_it_waits_for_and_what_it_cuts_off() {
    let workspace = Workspace::new();
    let origin = Origin::new(&workspace, &["127.0.0.1:0"]);
    let backend = origin.listens_on.strip_prefix("http://").expect("a port").to_owned();
    workspace
        .write("gateway.yaml", &config("127.0.0.1:0", &backend, "timeouts: { drain: 300ms }\n"));
    let gateway = Started::new(&workspace);
    let mut client = TcpStream::connect(&gateway.address).expect("it listens");
    // What has arrived before the signal is taken in.
    client.write_all(b"GET /delay?ms=10000 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    gateway.signal(Signal::SIGTERM);
    let told = || gateway.told.recv_timeout(PATIENCE).expect("a line");
    assert_eq!(told(), "tollgate gateway: thread 0 waits for 1 request to end, at most 300ms");
    assert_eq!(told(), "tollgate gateway: thread 0 has cut off 1 request");
    assert_eq!(gateway.end(), Some(0));
    origin.stop();
}

/// A pipe that has room for nothing more: its two ends.
fn full_pipe() -> (UnixStream, UnixStream) {
    let (reader, mut writer) = UnixStream::pair().expect("a pair of sockets");
    writer.set_nonblocking(true).expect("a socket that need not block");
    // There may be room for a few when there is none for many.
    for count in [4096, 1] {
        while let Ok(1..) = writer.write(&vec![b'\n'; count]) {}
    }
    writer.set_nonblocking(false).expect("a socket that blocks");
    (reader, writer)
}

#[test]
fn a_gateway_heeds_its_signals_though_nobody_reads_what_it_tells() {
    let workspace = Workspace::new();
    let origin = Origin::new(&workspace, &["127.0.0.1:0"]);
    let backend = origin.listens_on.strip_prefix("http://").expect("a port").to_owned();
    workspace.write("gateway.yaml", &config("127.0.0.1:0", "127.0.0.1:1", ""));
    let (_unread, full) = full_pipe();
    let mut command = workspace.command(&["gateway", "--config", "gateway.yaml"]);
    command.stdout(Stdio::piped()).stderr(OwnedFd::from(full));
    let gateway = Started::of(command.spawn().expect("the binary runs"), std::io::empty());
    drop(command);
    assert!(gateway.get("/").starts_with("HTTP/1.1 502 "));
    // It is told that this one cannot be, and that the next one is in force.
    workspace.write("gateway.yaml", "here\n");
    gateway.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(200));
    workspace.write("gateway.yaml", &config("127.0.0.1:0", &backend, ""));
    gateway.signal(Signal::SIGHUP);
    let is_in_force = || gateway.get("/?payload=5").ends_with("xxxxx");
    assert!(wait_until(PATIENCE, is_in_force), "it does not reload");
    let mut client = TcpStream::connect(&gateway.address).expect("it listens");
    client.write_all(b"GET /delay?ms=10000 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    gateway.signal(Signal::SIGTERM);
    let drains = || TcpStream::connect(&gateway.address).is_err();
    assert!(wait_until(PATIENCE, drains), "it does not drain");
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.end(), Some(130));
    origin.stop();
}

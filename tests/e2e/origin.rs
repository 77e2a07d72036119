//! `tollgate origin` as a server of its own, asked by curl, which is not ours, and by many at once.

use crate::support::{Workspace, stdout, told, wait_until};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output};
use std::time::Duration;

/// An origin that is stopped by TERM, and has to end well.
pub(crate) struct Started {
    child: Child,
    printed: BufReader<std::process::ChildStdout>,
    /// What it said it listens on.
    pub(crate) listens_on: String,
}

impl Started {
    pub(crate) fn new(workspace: &Workspace, arguments: &[&str]) -> Self {
        let mut child = workspace.start(&[&["origin", "--listen"], arguments].concat());
        let mut printed = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        printed.read_line(&mut line).expect("a line");
        let listens_on = line.trim().strip_prefix("listening on ").expect("where").to_owned();
        Self { child, printed, listens_on }
    }

    /// Ends it, and returns what it printed since its first line.
    pub(crate) fn stop(mut self) -> String {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGTERM).expect("it runs");
        let mut printed = String::new();
        self.printed.read_to_string(&mut printed).expect("its output");
        let child = RefCell::new(self.child);
        let gone = wait_until(Duration::from_secs(3), || {
            child.borrow_mut().try_wait().expect("its end").is_some_and(|status| status.success())
        });
        assert!(gone, "it did not stop with 0");
        printed
    }
}

fn curl(arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "20"]).args(arguments);
    command.output().expect("curl; to install it: apt-get install -y curl")
}

#[test]
fn curl_gets_from_every_endpoint_what_it_asks_for() {
    let workspace = Workspace::beside_others();
    let origin = Started::new(&workspace, &["127.0.0.1:0", "--threads", "2", "--access-log"]);
    let url = |path: &str| format!("{}{path}", origin.listens_on);
    workspace.write("a.txt", &"a".repeat(300_000));
    let form = format!("file=@{}", workspace.path("a.txt").display());

    let page = stdout(&curl(&[&url("/")]));
    assert!(page.contains(&url("/urandom")), "{page}");
    assert_eq!(curl(&[&url("/?payload=100")]).stdout, [b'x'; 100]);
    let whole = curl(&["--dump-header", "-", &url("/download?size=3000000")]);
    assert!(stdout(&whole).contains("\r\nETag: \"3000000\"\r\n"), "{}", told(&whole));
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
    // A body that curl asks leave for, and one that it sends in chunks.
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
        "{\"error\":\"size is \\\"-1\\\"; it may be a whole number of bytes from 0 to 67108864\"} 400"
    );

    let log = origin.stop();
    assert_eq!(log.lines().count(), 9, "{log}");
    assert!(log.contains("\"GET /zero?size=-1 HTTP/1.1\" 400 80 \"-\" \"curl/"), "{log}");

    // The same over a unix socket.
    let path = workspace.path("origin.sock");
    let listen = format!("unix:{}", path.display());
    let origin = Started::new(&workspace, &[&listen]);
    assert_eq!(origin.listens_on, listen);
    let socket = path.to_str().expect("a path");
    let method = curl(&["--unix-socket", socket, "--request", "PATCH", "http://a.test/method"]);
    assert_eq!(stdout(&method), "{\"method\":\"PATCH\"}");
    let second = workspace.run(&["origin", "--listen", &listen]);
    assert_eq!(second.status.code(), Some(1), "{}", told(&second));
    origin.stop();
    assert!(!path.exists());
}

#[test]
fn a_log_that_nobody_reads_does_not_keep_it_from_its_end() {
    let workspace = Workspace::beside_others();
    // Its standard output is a pipe, which holds 64 KiB, and is not read after the first line.
    let origin = Started::new(&workspace, &["127.0.0.1:0", "--access-log"]);
    let mut client =
        TcpStream::connect(origin.listens_on.trim_start_matches("http://")).expect("a connection");
    let agent = "a".repeat(10_000);
    for _ in 0..20 {
        write!(client, "GET /a HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n").expect("asked");
    }
    std::thread::sleep(Duration::from_millis(500));
    let pid = Pid::from_raw(origin.child.id().cast_signed());
    kill(pid, Signal::SIGTERM).expect("it runs");
    let child = RefCell::new(origin.child);
    let ended =
        || child.borrow_mut().try_wait().expect("its end").map(|status| status.code() == Some(0));
    let gone = wait_until(Duration::from_secs(6), || ended().is_some());
    if !gone {
        child.borrow_mut().kill().expect("it runs");
    }
    assert!(gone, "it did not stop");
    assert_eq!(ended(), Some(true), "it stopped with another code than 0");
    let mut said = String::new();
    let stderr = child.borrow_mut().stderr.take().expect("its errors");
    BufReader::new(stderr).read_to_string(&mut said).expect("text");
    assert!(said.contains("of the access log were not read in time, and are lost"), "{said}");
}

#[test]
fn ten_thousand_idle_connections_take_less_than_64_mib() {
    const CONNECTIONS: usize = 10_000;
    let workspace = Workspace::beside_others();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    assert!(most >= 10_200, "this test needs 10200 open files; raise the hard limit (ulimit -Hn)");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("the hard limit");
    let origin = Started::new(&workspace, &["127.0.0.1:0"]);
    let address = origin.listens_on.trim_start_matches("http://").to_owned();

    // Each has had work that needs memory, and has ended it.
    let body = "b".repeat(50_000);
    let upload = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n{body}");
    let mut answer = vec![0; ECHO_HEAD.len() + body.len()];
    let clients: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = TcpStream::connect(&address).expect("a connection");
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            client.write_all(upload.as_bytes()).expect("an upload");
            client.read_exact(&mut answer).expect("its echo");
            client
        })
        .collect();
    assert!(answer.starts_with(ECHO_HEAD.as_bytes()) && answer.ends_with(body.as_bytes()));
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

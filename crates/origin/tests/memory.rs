//! What idle connections cost. A suite of its own, for the memory is the whole process's.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate_origin::{Config, Listen, Origin};

const CONNECTIONS: usize = 10_000;

/// Both ends of each connection are in this process, and a few files besides.
const DESCRIPTORS: u64 = 2 * CONNECTIONS as u64 + 200;

const LIMIT_KIB: u64 = 64 << 10;

#[test]
fn ten_thousand_idle_connections_take_less_than_64_mib() {
    let limit = getrlimit(Resource::Nofile);
    assert!(
        limit.maximum.is_none_or(|most| most >= DESCRIPTORS),
        "this test needs {DESCRIPTORS} open files; raise the hard limit (ulimit -Hn)"
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).unwrap();
    let origin = Origin::bind(&Config::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let Listen::Tcp(addr) = origin.listens_on().clone() else { panic!("it was given a port") };
    let stopper = origin.stopper();
    let serving = std::thread::spawn(move || origin.serve());

    // Each has had work that needs memory, and has ended it.
    let body = "b".repeat(50_000);
    let upload = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n{body}");
    let clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| client(addr, &upload)).collect();
    let rss_kib = rss_kib();
    eprintln!("{CONNECTIONS} idle connections: {rss_kib} KiB");
    assert!(rss_kib < LIMIT_KIB, "{rss_kib} KiB for {CONNECTIONS} idle connections");

    // They are idle, not forgotten.
    let mut last = clients.last().unwrap();
    last.write_all(b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    last.read_exact(&mut [0; 80]).unwrap();
    stopper.stop().unwrap();
    serving.join().unwrap().unwrap();
}

/// A client whose upload came back.
fn client(addr: SocketAddr, upload: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(upload.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    while !answer.ends_with(b"\r\n\r\n") {
        // Bodies have no empty lines.
        let count = stream.read(&mut piece[..1]).unwrap();
        answer.extend_from_slice(&piece[..count]);
    }
    let mut left = 50_000;
    while left > 0 {
        let most = piece.len().min(left);
        left -= stream.read(&mut piece[..most]).unwrap();
    }
    stream
}

/// The memory of this process that is in use.
fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

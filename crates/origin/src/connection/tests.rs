use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::net::sockopt::set_socket_linger;
use tollgate_net::{accept, listen};

use super::*;
use crate::fuzzing::{advance_test_clock, test_clock, test_state};
use crate::output::Filler;
use crate::output::Sink;

struct Peers {
    listener: std::net::TcpListener,
    scratch: Scratch,
}

impl Peers {
    fn new() -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let source = ByteSource::new(ByteSource::open_zero().unwrap());
        Self {
            listener: listen(any, false, 16).unwrap(),
            scratch: Scratch::new(test_state(), source, Timeouts::default()),
        }
    }

    fn connect(&self, now: Instant) -> (TcpStream, Connection) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (socket, _) = accept(&self.listener).unwrap().unwrap();
        let transport = Transport::new(socket);
        (client, Connection::new(transport, "".into(), now, &self.scratch.timeouts))
    }

    /// Runs the connection until it has read something.
    fn run(&mut self, connection: &mut Connection, now: Instant) -> Next {
        let started = Instant::now();
        connection.deadline = now;
        loop {
            connection.assume_readable();
            let next = connection.run(&mut self.scratch, now, None).unwrap();
            if connection.deadline != now || next != Next::Event {
                return next;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "nothing to read");
        }
    }
}

#[test]
fn failed_send_leaves_nothing_for_next_connection() {
    let mut peers = Peers::new();
    let now = Instant::now();
    let (mut gone, mut connection) = peers.connect(now);
    gone.write_all(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // Makes the close a reset.
    set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
    drop(gone);
    connection.assume_readable();
    connection.run(&mut peers.scratch, now, None).unwrap_err();

    let (mut client, mut connection) = peers.connect(now);
    client.write_all(b"GET /?payload=1 HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(peers.run(&mut connection, now), Next::Close);
    drop(connection);
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert_eq!(
        response,
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
         Connection: close\r\nContent-Length: 1\r\n\r\nx"
    );
}

#[test]
fn head_timeout_starts_at_first_byte() {
    let mut peers = Peers::new();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let (mut client, mut connection) = peers.connect(start);
    assert_eq!(connection.deadline(), at(60));
    client.write_all(b"GET /?payload=1").unwrap();
    peers.run(&mut connection, at(5));
    assert_eq!(connection.deadline(), at(15));
    client.write_all(b" HTTP/1.1\r\n").unwrap();
    peers.run(&mut connection, at(12));
    assert_eq!(connection.deadline(), at(15));
    client.write_all(b"Host: a\r\n\r\n").unwrap();
    peers.run(&mut connection, at(14));
    assert_eq!(connection.deadline(), at(74));
    // The end of one head and the start of the next.
    client.write_all(b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\nG").unwrap();
    peers.run(&mut connection, at(20));
    assert_eq!(connection.deadline(), at(30));
}

#[test]
fn body_timeout_depends_on_rate() {
    let mut peers = Peers::new();
    let start = Instant::now();
    // The test clock stands still.
    let since = test_clock();
    let (mut client, mut connection) = peers.connect(start);
    client.write_all(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n").unwrap();
    peers.run(&mut connection, start);
    assert!(connection.deadline() <= start + Duration::from_secs(10));
    assert!(connection.deadline() >= since + Duration::from_secs(10));
    // 30 KiB allow half a minute more, but not ten seconds without a byte.
    client.write_all(&[b'b'; 30 << 10]).unwrap();
    let mut read = 0;
    while read < 30 << 10 {
        peers.run(&mut connection, since + Duration::from_secs(5));
        match &connection.http {
            Http::Http1(http) => match http.receiving() {
                Receiving::Body { bytes, .. } => read = bytes,
                other => panic!("{other:?}"),
            },
            Http::Undecided | Http::Http2(_) => panic!("not HTTP/1"),
        }
    }
    assert_eq!(connection.deadline(), since + Duration::from_secs(15));
    client.write_all(b"b").unwrap();
    peers.run(&mut connection, since + Duration::from_secs(39));
    assert_eq!(connection.deadline(), since + Duration::from_secs(40));
}

#[test]
fn waiting_connection_is_not_read() {
    let mut peers = Peers::new();
    let (mut client, mut connection) = peers.connect(Instant::now());
    client.write_all(b"GET /sleep?time=2 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let due = test_clock() + Duration::from_secs(2);
    let now = Instant::now();
    assert_eq!(peers.run(&mut connection, now), Next::Event);
    assert_eq!(connection.wake_at(), Some(due));
    client.write_all(b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    connection.assume_readable();
    assert_eq!(connection.run(&mut peers.scratch, now, None).unwrap(), Next::Event);
    assert_eq!(connection.wake_at(), Some(due));
    advance_test_clock(Duration::from_secs(2));
    // The second request is read now, without another event.
    peers.run(&mut connection, due);
    assert!(connection.is_idle() && !connection.transport.is_readable());
    drop(connection);
    let mut responses = String::new();
    client.read_to_string(&mut responses).unwrap();
    let first = "\r\n\r\n{\"time\":2.000000}HTTP/1.1 200 OK";
    assert!(responses.contains(first) && responses.ends_with("\r\n\r\nxxx"), "{responses}");
}

#[test]
fn large_fetch_yields_to_other_connections() {
    let mut peers = Peers::new();
    let now = Instant::now();
    let (mut client, mut connection) = peers.connect(now);
    client.write_all(b"GET /zero?size=1048577 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(peers.run(&mut connection, now), Next::Queue);
    let mut runs = 1;
    while connection.run(&mut peers.scratch, now, None).unwrap() == Next::Queue {
        runs += 1;
    }
    // Four quarters of a mebibyte; the last byte follows in the fifth run.
    assert_eq!(runs, 4);
    assert!(connection.is_idle());
}

#[test]
fn response_of_one_mebibyte_leaves_with_its_head_in_one_call() {
    /// Lengths of the calls.
    struct Calls(Vec<usize>);

    impl Sink for Calls {
        fn send(&mut self, bytes: &[u8], _last: bool) -> io::Result<usize> {
            self.0.push(bytes.len());
            Ok(bytes.len())
        }

        fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let count = slices.iter().map(|slice| slice.len()).sum();
            self.0.push(count);
            Ok(count)
        }
    }

    let mut output = OutputBuffer::default();
    output.push(&[b'h'; 148]);
    output.push_filler(Filler::Letters, 1 << 20);
    let mut calls = Calls(Vec::new());
    let mut budget_bytes = IO_BUDGET_BYTES;
    assert_eq!(output.send(&mut calls, &mut budget_bytes, false).unwrap(), Sent::All);
    assert_eq!(calls.0, [(1 << 20) + 148]);
}

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::net::sockopt::set_socket_linger;
use tollgate_eventloop::{accept, listen};

use super::*;
use crate::site::made_up::site;
use crate::sources::Sources;

struct Peers {
    listener: std::net::TcpListener,
    tools: Tools,
}

impl Peers {
    fn new() -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let sources = Sources::new(Sources::open_zero().unwrap());
        Self {
            listener: listen(any, false, 16).unwrap(),
            tools: Tools::new(site(), sources, Timeouts::default()),
        }
    }

    fn connect(&self, now: Instant) -> (TcpStream, Connection) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (socket, _) = accept(&self.listener).unwrap().unwrap();
        (client, Connection::new(socket, "".into(), now, &self.tools.timeouts))
    }

    /// Gives the connection turns until one has read something.
    fn turn(&mut self, connection: &mut Connection, now: Instant) -> Turn {
        let before = connection.deadline;
        connection.deadline = now;
        loop {
            connection.look_again();
            let turn = connection.turn(&mut self.tools, now, None).unwrap();
            if connection.deadline != now || turn != Turn::Goes {
                return turn;
            }
            assert!(now.elapsed() < Duration::from_secs(5), "nothing came since {before:?}");
        }
    }
}

#[test]
fn an_answer_that_could_not_be_sent_is_not_given_to_the_next_client() {
    let mut peers = Peers::new();
    let now = Instant::now();
    let (mut gone, mut connection) = peers.connect(now);
    gone.write_all(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // The close is a reset then.
    set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
    drop(gone);
    connection.look_again();
    connection.turn(&mut peers.tools, now, None).unwrap_err();

    let (mut client, mut connection) = peers.connect(now);
    client.write_all(b"GET /?payload=1 HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(peers.turn(&mut connection, now), Turn::Over);
    drop(connection);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
         Connection: close\r\nContent-Length: 1\r\n\r\nx"
    );
}

#[test]
fn a_head_has_its_time_from_its_first_byte_on() {
    let mut peers = Peers::new();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let (mut client, mut connection) = peers.connect(start);
    assert_eq!(connection.deadline(), at(60));
    client.write_all(b"GET /?payload=1").unwrap();
    peers.turn(&mut connection, at(5));
    assert_eq!(connection.deadline(), at(15));
    client.write_all(b" HTTP/1.1\r\n").unwrap();
    peers.turn(&mut connection, at(12));
    assert_eq!(connection.deadline(), at(15));
    client.write_all(b"Host: a\r\n\r\n").unwrap();
    peers.turn(&mut connection, at(14));
    assert_eq!(connection.deadline(), at(74));
    // The end of one head and the beginning of the next.
    client.write_all(b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\nG").unwrap();
    peers.turn(&mut connection, at(20));
    assert_eq!(connection.deadline(), at(30));
}

#[test]
fn a_body_must_go_on_and_keep_its_rate() {
    let mut peers = Peers::new();
    let start = Instant::now();
    // The site's clock stands still at its own start.
    let since = peers.tools.site.now();
    let (mut client, mut connection) = peers.connect(start);
    client.write_all(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n").unwrap();
    peers.turn(&mut connection, start);
    assert!(connection.deadline() <= start + Duration::from_secs(10));
    assert!(connection.deadline() >= since + Duration::from_secs(10));
    // 30 KiB have half a minute more, of which no ten seconds may pass without a byte.
    client.write_all(&[b'b'; 30 << 10]).unwrap();
    let mut read = 0;
    while read < 30 << 10 {
        peers.turn(&mut connection, since + Duration::from_secs(5));
        match connection.conversation.arriving() {
            Arriving::Body { bytes, .. } => read = bytes,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(connection.deadline(), since + Duration::from_secs(15));
    client.write_all(b"b").unwrap();
    peers.turn(&mut connection, since + Duration::from_secs(39));
    assert_eq!(connection.deadline(), since + Duration::from_secs(40));
}

#[test]
fn who_waits_is_not_read_from_until_then() {
    let mut peers = Peers::new();
    let (mut client, mut connection) = peers.connect(Instant::now());
    client.write_all(b"GET /sleep?time=2 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let due = peers.tools.site.now() + Duration::from_secs(2);
    let now = Instant::now();
    assert_eq!(peers.turn(&mut connection, now), Turn::Waits(due));
    assert!(connection.waits_for(due));
    client.write_all(b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    connection.look_again();
    assert_eq!(connection.turn(&mut peers.tools, now, None).unwrap(), Turn::Goes);
    assert!(connection.waits_for(due));
    crate::site::made_up::pass(Duration::from_secs(2));
    // What was sent meanwhile is read now, though nothing tells of it again.
    peers.turn(&mut connection, due);
    assert!(connection.is_idle() && !connection.is_readable);
    drop(connection);
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    let first = "\r\n\r\n{\"time\":2.000000}HTTP/1.1 200 OK";
    assert!(answers.contains(first) && answers.ends_with("\r\n\r\nxxx"), "{answers}");
}

#[test]
fn many_bytes_are_taken_in_turns() {
    let mut peers = Peers::new();
    let now = Instant::now();
    let (mut client, mut connection) = peers.connect(now);
    client.write_all(b"GET /zero?size=1048577 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(peers.turn(&mut connection, now), Turn::Works);
    let mut turns = 1;
    while connection.turn(&mut peers.tools, now, None).unwrap() == Turn::Works {
        turns += 1;
    }
    // Four quarters of a mebibyte, and then the last byte.
    assert_eq!(turns, 4);
    assert!(connection.is_idle());
}

//! Backends and clients that stop in the middle and say nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{echo, echo_of, is_echo};
use crate::backend::{Backend, path, read_head};
use crate::caller::{Caller, is_broken_off};
use crate::client::{Client, PATIENCE};
use crate::served::Served;

/// How long the gateway waits in these tests.
const SHORT: Duration = Duration::from_millis(200);

/// A backend that stays silent when it is asked for `/silent`, stops in the middle of `/half`, and answers
/// all else.
fn moody() -> Backend {
    Backend::start(|mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            let answer = echo_of(path(&head));
            let sent = match path(&head) {
                "/silent" => &[],
                "/half" => &answer[..answer.len() - 1],
                _ => &answer[..],
            };
            stream.write_all(sent).unwrap();
            if sent.len() < answer.len() {
                // Until the gateway has had enough.
                let _end_or_reset = stream.read(&mut [0]);
                return;
            }
        }
    })
}

#[test]
fn a_backend_that_accepts_and_stays_silent_is_given_up() {
    let backend = moody();
    let gateway = Served::with(backend.address, |config| config.timeouts.answer = SHORT);
    let mut waiting: Vec<_> = (0..5).map(|_| Caller::connect(gateway.address()).unwrap()).collect();
    for client in &mut waiting {
        client.client().send(b"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    // In the meantime others are served.
    let mut other = Caller::connect(gateway.address()).unwrap();
    for _ in 0..50 {
        assert!(is_echo(&other.get("/other").unwrap(), "/other"));
    }
    for client in &mut waiting {
        assert_eq!(client.answer().unwrap().status, 504);
    }
    // What the silent connection might still say is nobody's answer.
    assert!(is_echo(&other.get("/after").unwrap(), "/after"));
}

#[test]
fn a_backend_that_stops_in_the_middle_of_a_body_is_broken_off() {
    let backend = moody();
    let gateway = Served::with(backend.address, |config| config.timeouts.body = SHORT);
    let mut client = Caller::connect(gateway.address()).unwrap();
    let error = client.get("/half").unwrap_err();
    assert!(is_broken_off(&error), "{error}");
    let mut other = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&other.get("/other").unwrap(), "/other"));
}

#[test]
fn a_backend_that_takes_no_connection_is_given_up() {
    // Nobody accepts, and the queue of those who wait is full.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let patience = Duration::from_millis(100);
    let queued: Vec<_> = std::iter::from_fn(|| TcpStream::connect_timeout(&address, patience).ok())
        .take(10_000)
        .collect();
    let gateway = Served::with(address, |config| config.timeouts.connect = SHORT);
    let mut client = Caller::connect(gateway.address()).unwrap();
    let answer = client.get("/").unwrap();
    assert!(matches!(answer.status, 502 | 504), "{answer:?} with {} queued", queued.len());
}

#[test]
fn a_client_that_does_not_finish_its_head_is_sent_away() {
    let backend = echo();
    let gateway = Served::with(backend.address, |config| config.timeouts.header = SHORT);
    let mut client = Client::connect(gateway.address()).unwrap();
    let start = Instant::now();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n");
    let received = client.read_to_close();
    assert!(received.starts_with(b"HTTP/1.1 408 "), "{}", received.escape_ascii());
    assert!(start.elapsed() >= SHORT && start.elapsed() < PATIENCE);
    assert_eq!(backend.connections(), 0);
}

#[test]
fn a_client_that_does_not_finish_its_body_is_sent_away_and_its_request_is_not_taken_for_whole() {
    let backend = Backend::start(|mut stream: TcpStream| {
        read_head(&mut stream).unwrap();
        let mut body = Vec::new();
        // A reset is the end as well.
        let _end = stream.read_to_end(&mut body);
        assert_eq!(body, b"hel");
    });
    let gateway = Served::with(backend.address, |config| config.timeouts.body = SHORT);
    let mut client = Client::connect(gateway.address()).unwrap();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    let received = client.read_to_close();
    assert!(
        received.is_empty() || received.starts_with(b"HTTP/1.1 408 "),
        "{}",
        received.escape_ascii()
    );
}

#[test]
fn a_client_that_says_nothing_at_all_is_sent_away_without_a_word() {
    let backend = echo();
    let gateway = Served::with(backend.address, |config| config.timeouts.idle = SHORT);
    let mut client = Client::connect(gateway.address()).unwrap();
    let received = client.read_to_close();
    assert!(received.is_empty(), "{}", received.escape_ascii());
    let mut client = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&client.get("/once").unwrap(), "/once"));
    let mut rest = Vec::new();
    client.client().read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{}", rest.escape_ascii());
}

//! Clients that go away, or send on and read nothing: what they have begun reaches nobody else.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::{echo, echo_body, echo_of, is_echo};
use crate::backend::{Backend, path, read_head};
use crate::caller::Caller;
use crate::client::{Client, PATIENCE};
use crate::served::Served;

/// Far more than the kernel's buffers hold.
const LARGE_BYTES: usize = 64 << 20;

/// Long enough for everything between two sides to be filled.
const FILL_TIME: Duration = Duration::from_millis(300);

#[test]
fn in_the_middle_of_an_answer() {
    let backend = Backend::start(|mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            let mut answer = echo_of(path(&head));
            if path(&head) == "/large" {
                answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n")
                    .into_bytes();
                answer.resize(answer.len() + LARGE_BYTES, b'x');
            }
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    });
    let gateway = Served::before(backend.address);
    let mut other = Caller::connect(gateway.address()).unwrap();
    for number in 0..10 {
        let mut client = Client::connect(gateway.address()).unwrap();
        client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head();
        drop(client);
        let path = format!("/other/{number}");
        assert!(is_echo(&other.get(&path).unwrap(), &path));
    }
}

#[test]
fn in_the_middle_of_a_body_whose_connection_is_used_for_nothing_else() {
    let (seen, is_seen) = channel();
    let backend = Backend::start(move |mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            if path(&head) == "/upload" {
                let mut body = Vec::new();
                // A reset is the end as well.
                let _end = stream.read_to_end(&mut body);
                seen.send(body).unwrap();
                return;
            }
            stream.write_all(&echo_of(path(&head))).unwrap();
        }
    });
    let gateway = Served::before(backend.address);
    let mut other = Caller::connect(gateway.address()).unwrap();
    let heads = ["Content-Length: 100\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n64\r\nsome"];
    for number in 0..10 {
        let mut client = Client::connect(gateway.address()).unwrap();
        let head = heads[number % 2];
        client.send(format!("POST /upload HTTP/1.1\r\nHost: a\r\n{head}").as_bytes());
        let path = format!("/other/{number}");
        assert!(is_echo(&other.get(&path).unwrap(), &path));
        drop(client);
        assert!(is_echo(&other.get(&path).unwrap(), &path));
        let body = is_seen.recv_timeout(PATIENCE).unwrap();
        assert!(
            head.ends_with(std::str::from_utf8(&body).unwrap()) && body.ends_with(b"some"),
            "{body:?}"
        );
    }
}

#[test]
fn before_the_answer_to_what_they_asked() {
    let (asked, is_asked) = channel();
    let backend = Backend::start(move |mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            if path(&head) == "/late" {
                asked.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            // The gateway may have hung up, as nobody waits for it.
            if stream.write_all(&echo_of(path(&head))).is_err() {
                return;
            }
        }
    });
    let gateway = Served::before(backend.address);
    let mut other = Caller::connect(gateway.address()).unwrap();
    for number in 0..10 {
        let mut client = Client::connect(gateway.address()).unwrap();
        client.send(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
        is_asked.recv_timeout(PATIENCE).unwrap();
        drop(client);
        // The late answer comes in the meantime, and is nobody's.
        for piece in 0..5 {
            let path = format!("/other/{number}/{piece}");
            assert!(is_echo(&other.get(&path).unwrap(), &path));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    const PATH: &str = "/a-path-that-is-so-long-that-its-echo-takes-a-few-kilobytes-of-text";
    let backend = echo();
    let gateway = Served::before(backend.address);
    let mut client = Caller::connect(gateway.address()).unwrap();
    let request =
        format!("GET {PATH} HTTP/1.1\r\nHost: a\r\nX-Padding: {}\r\n\r\n", "p".repeat(4_000));
    let (begun, unsent) = send_until_full(client.client(), request.as_bytes());
    let mut other = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&other.get("/other").unwrap(), "/other"));

    // All that was sent is answered, once there is room.
    assert!(echo_body(PATH).len() > 1_000);
    let Client::Unix(stream) = client.client() else { panic!("it is a Unix socket") };
    let mut sender = stream.try_clone().unwrap();
    sender.set_write_timeout(Some(PATIENCE)).unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&unsent).unwrap());
    for _ in 0..begun {
        assert!(is_echo(&client.answer().unwrap(), PATH));
    }
    sending.join().unwrap();
    assert!(is_echo(&client.get("/next").unwrap(), "/next"));
}

/// Sends a request again and again until no more is taken. Returns how many were begun, and what is missing of
/// the last.
fn send_until_full(client: &mut Client, request: &[u8]) -> (usize, Vec<u8>) {
    // Far more than the buffers of the kernel hold; a gateway that reads on would take all of it.
    const TOO_MANY: usize = 8_000;
    let Client::Unix(stream) = &*client else { panic!("it is a Unix socket") };
    stream.set_write_timeout(Some(FILL_TIME)).unwrap();
    for begun in 1..TOO_MANY {
        let mut unsent = request;
        while !unsent.is_empty() {
            match client.write(unsent) {
                Ok(count) => unsent = &unsent[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return (begun, unsent.to_vec());
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    panic!("{TOO_MANY} requests were taken, none of whose answers was read");
}

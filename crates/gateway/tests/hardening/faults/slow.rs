//! Those who read or write slowly hold up nobody, and nothing piles up for them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{echo, echo_of, is_echo};
use crate::backend::{Backend, path, read_head};
use crate::caller::Caller;
use crate::client::Client;
use crate::served::Served;

/// Far more than the kernel's buffers hold.
const LARGE_BYTES: usize = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// Long enough for everything between two sides to be filled.
const FILL_TIME: Duration = Duration::from_millis(300);

#[test]
fn a_slow_reader_gets_all_and_the_backend_is_not_read_ahead_of_it() {
    let written = Arc::new(AtomicUsize::new(0));
    let backend = {
        let written = Arc::clone(&written);
        Backend::start(move |mut stream: TcpStream| {
            while let Some(head) = read_head(&mut stream) {
                if path(&head) != "/large" {
                    stream.write_all(&echo_of(path(&head))).unwrap();
                    continue;
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
                for piece in 0..LARGE_BYTES / PIECE_BYTES {
                    stream.write_all(&vec![letter(piece); PIECE_BYTES]).unwrap();
                    written.fetch_add(PIECE_BYTES, Ordering::Relaxed);
                }
            }
        })
    };
    let gateway = Served::before(backend.address);
    let mut slow = Client::connect(gateway.address()).unwrap();
    slow.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(FILL_TIME);
    let ahead = written.load(Ordering::Relaxed);
    assert!(ahead < LARGE_BYTES / 2, "{ahead} bytes were read for a client that reads nothing");

    let mut other = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&other.get("/other").unwrap(), "/other"));

    let head = slow.head();
    assert!(head.contains(&format!("Content-Length: {LARGE_BYTES}\r\n")), "{head}");
    let mut body = vec![0; PIECE_BYTES];
    for piece in 0..LARGE_BYTES / PIECE_BYTES {
        slow.read_exact(&mut body).unwrap();
        assert!(body.iter().all(|&byte| byte == letter(piece)), "piece {piece}");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The connection is in step.
    slow.send(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(slow.head().starts_with("HTTP/1.1 200 OK\r\nX-Path: /next\r\n"));
}

fn letter(piece: usize) -> u8 {
    b"abcdefghijklmnopqrstuvwxyz"[piece % 26]
}

#[test]
fn a_backend_that_does_not_read_holds_up_its_own_client_alone() {
    let (over, is_over) = channel();
    let is_over = Mutex::new(is_over);
    let backend = Backend::start(move |mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            if path(&head) == "/upload" {
                // Nothing of the body is read for as long as the test lasts.
                is_over.lock().unwrap().recv().unwrap();
                return;
            }
            stream.write_all(&echo_of(path(&head))).unwrap();
        }
    });
    let gateway = Served::before(backend.address);
    let mut sender = Client::connect(gateway.address()).unwrap();
    sender.send(
        format!("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE_BYTES}\r\n\r\n")
            .as_bytes(),
    );
    let Client::Unix(stream) = &sender else { panic!("it is a Unix socket") };
    stream.set_write_timeout(Some(FILL_TIME)).unwrap();
    let mut sent = 0;
    let piece = vec![b'u'; PIECE_BYTES];
    let error = loop {
        match sender.write(&piece) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
        assert!(sent < LARGE_BYTES / 2, "{sent} bytes were taken for a backend that reads nothing");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let mut other = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&other.get("/other").unwrap(), "/other"));
    over.send(()).unwrap();
}

#[test]
fn requests_that_come_byte_by_byte_are_answered() {
    let backend = echo();
    let gateway = Served::before(backend.address);
    let mut client = Caller::connect(gateway.address()).unwrap();
    for byte in b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /then HTTP/1.1\r\nHost: a\r\n\r\n" {
        client.client().send(&[*byte]);
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(is_echo(&client.answer().unwrap(), "/slow"));
    assert!(is_echo(&client.answer().unwrap(), "/then"));
}

#[test]
fn bodies_that_come_byte_by_byte_arrive_whole_in_both_directions() {
    const BODY: &[u8] = b"6\r\nslowly\r\n1\r\n,\r\n0\r\nX-Sum: 7\r\n\r\n";
    let backend = Backend::start(|mut stream: TcpStream| {
        while read_head(&mut stream).is_some() {
            let mut body = vec![0; BODY.len()];
            stream.read_exact(&mut body).unwrap();
            let head = b"HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n";
            for byte in head.iter().chain(&body) {
                stream.write_all(&[*byte]).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let gateway = Served::before(backend.address);
    let mut client = Client::connect(gateway.address()).unwrap();
    let head = b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for byte in head.iter().chain(BODY) {
        client.send(&[*byte]);
        std::thread::sleep(Duration::from_micros(200));
    }
    client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.expect(std::str::from_utf8(BODY).unwrap());
}

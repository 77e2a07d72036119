//! Backends that break off, answer garbage, or speak when nobody asked, among good answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{echo_of, is_echo};
use crate::backend::{Backend, path, read_head};
use crate::caller::{Caller, is_broken_off};
use crate::served::Served;

const CLIENTS: usize = 8;
const REQUESTS_OF_A_CLIENT: usize = 300;

/// A backend whose every seventh answer has no head, every eleventh breaks off, and every thirteenth is
/// followed by another one.
fn erratic() -> Backend {
    let answers = AtomicUsize::new(0);
    Backend::start(move |mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            let answer = echo_of(path(&head));
            let number = answers.fetch_add(1, Ordering::Relaxed);
            let (sent, is_last) = match number {
                _ if number.is_multiple_of(7) => (b"\0garbage\r\n\r\n".to_vec(), false),
                _ if number.is_multiple_of(11) => (answer[..answer.len() / 2].to_vec(), true),
                _ if number.is_multiple_of(13) => {
                    ([&answer[..], &echo_of("/evil")].concat(), false)
                }
                _ => (answer, false),
            };
            if stream.write_all(&sent).is_err() || is_last {
                return;
            }
        }
    })
}

#[test]
fn among_garbage_every_client_gets_its_own_answers() {
    let backend = erratic();
    let gateway = Served::before(backend.address);
    let answered = AtomicUsize::new(0);
    let ask = |client: usize| {
        let mut caller = Caller::connect(gateway.address()).unwrap();
        for number in 0..REQUESTS_OF_A_CLIENT {
            let path = format!("/{client}/{number}");
            match caller.get(&path) {
                Ok(answer) if answer.status == 502 => {}
                Ok(answer) => {
                    assert!(is_echo(&answer, &path), "to {path}: {answer:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                    if !answer.is_last() {
                        continue;
                    }
                }
                Err(error) => assert!(is_broken_off(&error), "{path}: {error}"),
            }
            caller = Caller::connect(gateway.address()).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || ask(client));
        }
    });
    // Out of a hundred, 14 are garbage, 8 break off, and what is asked again may meet the same.
    let answered = answered.into_inner();
    assert!(answered > CLIENTS * REQUESTS_OF_A_CLIENT * 6 / 10, "only {answered} were answered");
}

#[test]
fn a_large_body_that_breaks_off_is_seen_to_break_off() {
    const WHOLE_BYTES: usize = 4 << 20;
    let backend = Backend::start(|mut stream: TcpStream| {
        let head = read_head(&mut stream).unwrap();
        let framing = match path(&head) {
            "/length" => format!("Content-Length: {WHOLE_BYTES}\r\n\r\n"),
            _ => format!("Transfer-Encoding: chunked\r\n\r\n{WHOLE_BYTES:x}\r\n"),
        };
        let body = vec![b'x'; WHOLE_BYTES - 1];
        let head = format!("HTTP/1.1 200 OK\r\n{framing}");
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    });
    let gateway = Served::before(backend.address);
    for path in ["/length", "/chunked"] {
        let mut client = Caller::connect(gateway.address()).unwrap();
        let error = client.get(path).unwrap_err();
        assert!(is_broken_off(&error), "{path}: {error}");
    }
}

#[test]
fn a_backend_that_speaks_unasked_is_hung_up_on() {
    let (unasked, hung_up) = std::sync::mpsc::channel();
    let backend = Backend::start(move |mut stream: TcpStream| {
        let head = read_head(&mut stream).unwrap();
        stream.write_all(&echo_of(path(&head))).unwrap();
        if path(&head) == "/first" {
            // Apart from the answer, once that is over and the connection is kept.
            std::thread::sleep(std::time::Duration::from_millis(100));
            stream.write_all(&echo_of("/evil")).unwrap();
            let end = stream.read(&mut [0]);
            unasked.send(matches!(end, Ok(0) | Err(_))).unwrap();
        }
    });
    let gateway = Served::before(backend.address);
    let mut client = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&client.get("/first").unwrap(), "/first"));
    assert!(hung_up.recv_timeout(crate::client::PATIENCE).unwrap(), "it was asked again");
    assert!(is_echo(&client.get("/second").unwrap(), "/second"));
}

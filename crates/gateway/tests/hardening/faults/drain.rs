//! The gateway goes, and what it has begun is finished.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::{echo_of, is_echo};
use crate::backend::{Backend, path, read_head};
use crate::caller::Caller;
use crate::client::{Client, PATIENCE};
use crate::served::Served;

#[test]
fn what_is_in_flight_is_answered_and_nobody_else_is_waited_for() {
    let (begun, is_begun) = channel();
    let backend = Backend::start(move |mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            begun.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            stream.write_all(&echo_of(path(&head))).unwrap();
        }
    });
    let gateway = Served::on_tcp(&[backend.address]);
    let mut idle = Client::connect(gateway.address()).unwrap();
    let mut asking: Vec<_> = (0..4)
        .map(|number| {
            let mut client = Caller::connect(gateway.address()).unwrap();
            client.client().send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            is_begun.recv_timeout(PATIENCE).unwrap();
            client
        })
        .collect();
    gateway.drain();
    for (number, client) in asking.iter_mut().enumerate() {
        let answer = client.answer().unwrap();
        assert!(is_echo(&answer, &format!("/{number}")) && answer.is_last(), "{answer:?}");
    }
    assert_eq!(idle.read_to_close(), b"");
    Client::connect(gateway.address()).unwrap_err();
}

#[test]
fn who_waits_at_a_unix_socket_is_served_in_a_drain_and_who_comes_later_is_refused_at_once() {
    let (go, may_go) = channel();
    let may_go = Mutex::new(may_go);
    let backend = Backend::start(move |mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            may_go.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            stream.write_all(&echo_of(path(&head))).unwrap();
        }
    });
    let gateway = Served::with(backend.address, |config| config.limits.connections = 1);
    let address = &gateway.address().clone();
    let ask = |number: usize| {
        let mut client = Caller::connect(address).unwrap();
        client.client().send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        client
    };
    let clients = [0, 1, 2].map(ask);
    std::thread::scope(|scope| {
        let draining = scope.spawn(|| gateway.drain());
        // Time for the thread to find that it has no room, and that it is to end.
        std::thread::sleep(Duration::from_millis(120));
        let (told, outcome) = channel();
        scope.spawn(move || {
            let late = Client::connect(address).map(|_| ()).map_err(|error| error.kind());
            told.send(late).unwrap();
        });
        let late = outcome.recv_timeout(PATIENCE / 2);
        for (number, mut client) in clients.into_iter().enumerate() {
            go.send(()).unwrap();
            assert!(is_echo(&client.answer().unwrap(), &format!("/{number}")));
        }
        draining.join().unwrap();
        assert_eq!(late, Ok(Err(ErrorKind::ConnectionRefused)));
    });
}

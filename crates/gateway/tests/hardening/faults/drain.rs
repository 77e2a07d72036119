//! The gateway goes, and what it has begun is finished.

use std::io::Write;
use std::net::TcpStream;
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

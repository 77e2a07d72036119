//! A WebSocket, by a library on both sides.

use std::net::TcpStream;

use tollgate_gateway::config::Address;
use tungstenite::{Message, accept, client};

use crate::backend::Backend;
use crate::client::Client;
use crate::served::Served;

/// A backend that says again what it hears, up to the end.
fn parrot() -> Backend {
    Backend::start(|stream: TcpStream| {
        let mut socket = accept(stream).unwrap();
        while let Ok(message) = socket.read() {
            if message.is_text() || message.is_binary() {
                socket.send(message).unwrap();
            }
        }
    })
}

#[test]
fn a_web_socket_goes_through_in_both_directions_to_its_close() {
    let backend = parrot();
    let gateway = Served::before(backend.address);
    let stream = Client::connect(gateway.address()).unwrap();
    let (mut socket, answer) = client("ws://a/socket", stream).unwrap();
    assert_eq!(answer.status(), 101);
    let long = "long ".repeat(100_000);
    for text in ["short", &long] {
        socket.send(Message::text(text)).unwrap();
        assert!(socket.read().unwrap().into_text().unwrap() == text);
    }
    let bytes: Vec<u8> = (0..=255).collect();
    socket.send(Message::binary(bytes.clone())).unwrap();
    assert_eq!(socket.read().unwrap().into_data(), bytes);

    socket.close(None).unwrap();
    assert!(socket.read().unwrap().is_close());
    let end = socket.read().unwrap_err();
    assert!(matches!(end, tungstenite::Error::ConnectionClosed), "{end}");
}

#[test]
fn a_backend_that_is_dead_or_refuses_is_told_as_such() {
    let dead = parrot();
    let gateway = Served::before(dead.address);
    dead.kill();
    let stream = Client::connect(gateway.address()).unwrap();
    let tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer)) =
        client("ws://a/socket", stream).unwrap_err()
    else {
        panic!("an answer other than 101");
    };
    assert_eq!(answer.status(), 502);
    assert!(matches!(gateway.address(), Address::Unix(_)));
}

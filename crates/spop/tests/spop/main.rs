//! Tests by literal bytes, some of them sent by HAProxy 2.6, and by values derived by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

// The handshake, identifiers, limits and ends of a connection.
mod connection;
// Messages of coraza-spoa, and the variables in answer to them.
mod coraza;
// Integers and typed values.
mod data;
// Every piece, edges of buffers, and garbage.
mod pieces;

use tollgate_spop::{Connection, ConnectionError, Event, Limits};

/// HELLO of HAProxy 2.6.
const HELLO: &[u8] =
    b"\x00\x00\x00\x81\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x032.0\
    \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x10pipelining,async\
    \x09engine-id\x08$077d4668-de67-4002-9783-42cfce2b0e4b";

/// HELLO of a health check of HAProxy 2.6.
const HEALTH_CHECK: &[u8] =
    b"\x00\x00\x00N\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x032.0\
    \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x00\x0bhealthcheck\x11";

/// NOTIFY of HAProxy 2.6: stream 9, frame 1.
const NOTIFY: &[u8] = b"\x00\x00\x00\xe2\x03\x00\x00\x00\x01\x09\x01\x0acoraza-req\x0d\x03app\x08\x03app\
    \x06src-ip\x06\x7f\x00\x00\x01\x08src-port\x04\xf8\xf3\x1b\x06dst-ip\x06\x7f\x00\x00\x01\
    \x08dst-port\x04\xfa\xcc\x0c\x06method\x08\x03GET\x04path\x08\x06/ready\x05query\x00\x07version\x08\x031.1\
    \x07headers\x08?host: 127.0.0.1:28090\r\nuser-agent: curl/7.88.1\r\naccept: */*\r\n\r\n\
    \x04body\x09\x00\x08body-len\x04\x00\x09body-size\x04\x00";

/// The answer to [`HELLO`].
const AGENT_HELLO: &[u8] = b"\x00\x00\x00\x40\x65\x00\x00\x00\x01\x00\x00\x07version\x08\x032.0\
    \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x0apipelining";

/// Puts the length before a frame.
fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// A NOTIFY of stream 5, frame 2.
fn notify(payload: &[u8]) -> Vec<u8> {
    frame(&[b"\x03\x00\x00\x00\x01\x05\x02", payload].concat())
}

/// A connection after its handshake.
fn open() -> Connection {
    let mut connection = Connection::new(Limits::default());
    let mut out = Vec::new();
    let event = connection.receive(&mut &HELLO[..], &mut out);
    assert_eq!(event, Ok(Some(Event::Hello { is_health_check: false })));
    assert_eq!(out, AGENT_HELLO);
    connection
}

/// Gives bytes to a new connection. Returns what it appends, and its error.
fn answer(limits: Limits, mut bytes: &[u8]) -> (Vec<u8>, Option<ConnectionError>) {
    let mut connection = Connection::new(limits);
    let mut out = Vec::new();
    loop {
        match connection.receive(&mut bytes, &mut out) {
            Ok(Some(_)) => {}
            Ok(None) => return (out, None),
            Err(error) => {
                let length = out.len();
                assert_eq!(connection.receive(&mut bytes, &mut out), Err(error), "again");
                assert_eq!(out.len(), length, "one DISCONNECT");
                return (out, Some(error));
            }
        }
    }
}

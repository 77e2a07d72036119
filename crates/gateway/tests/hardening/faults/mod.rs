//! What fails around the gateway. No request may hang, and no answer may reach anybody but who asked for it.
//!
//! - `killed`: backends that die under load
//! - `silent`: backends and clients that stop in the middle
//! - `broken`: backends that break off or answer garbage, among good answers
//! - `slow`: those who read or write slowly
//! - `descriptors`: no more files can be opened
//! - `drain`: the gateway ends
//! - `gone`: clients that go away in the middle
//! - `half_open`: ten thousand clients that never finish their requests
//! - `reload`: another configuration under load
//! - `unread`: nobody reads what the gateway tells

mod broken;
mod descriptors;
mod drain;
mod gone;
mod half_open;
mod killed;
mod reload;
mod silent;
mod slow;
mod unread;

use std::io::Write;
use std::net::TcpStream;

use crate::backend::{Backend, path, read_head};
use crate::caller::Answer;

/// A backend that says in each answer which path was asked for, in the head and all over the body.
fn echo() -> Backend {
    Backend::start(serve_echo)
}

fn serve_echo(mut stream: TcpStream) {
    while let Some(head) = read_head(&mut stream) {
        if stream.write_all(&echo_of(path(&head))).is_err() {
            return;
        }
    }
}

/// The answer that says what path it is for. Its length depends on the path, so that a byte too many or
/// too few of one puts the next out of step.
fn echo_of(path: &str) -> Vec<u8> {
    let body = echo_body(path);
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nX-Path: {path}\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn echo_body(path: &str) -> String {
    path.repeat(1 + path.len() % 7 * 20)
}

/// Whether an answer is the one for this path, and for no other.
fn is_echo(answer: &Answer, path: &str) -> bool {
    answer.status == 200
        && answer.header("x-path") == Some(path)
        && answer.body == echo_body(path).as_bytes()
}

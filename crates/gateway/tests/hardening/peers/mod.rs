//! Clients that are not ours, through the gateway; and a server that is not, beside it.

mod ab;
mod curl;
mod paths;
mod websocket;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::backend::{Backend, path, read_head};

/// A backend that answers with what it was sent: the method, the path and the body, whichever way that is
/// framed. It invites a body as soon as it is asked to.
fn mirror() -> Backend {
    Backend::start(|mut stream: TcpStream| {
        while let Some(head) = read_head(&mut stream) {
            let small = head.to_ascii_lowercase();
            if small.contains("\r\nexpect: 100-continue\r\n") {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            }
            let mut body = Vec::new();
            if let Some((_, rest)) = small.split_once("\r\ncontent-length: ") {
                let length = rest.lines().next().unwrap().parse().unwrap();
                body.resize(length, 0);
                stream.read_exact(&mut body).unwrap();
            } else if small.contains("\r\ntransfer-encoding: chunked\r\n") {
                read_chunks(&mut stream, &mut body);
            }
            let method = head.split(' ').next().unwrap();
            let mut seen = format!("{method} {} ", path(&head)).into_bytes();
            seen.extend_from_slice(&body);
            let length = seen.len();
            let mut answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
            if method != "HEAD" {
                answer.extend_from_slice(&seen);
            }
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    })
}

fn read_chunks(stream: &mut TcpStream, body: &mut Vec<u8>) {
    loop {
        let size = usize::from_str_radix(&read_line(stream), 16).unwrap();
        let start = body.len();
        body.resize(start + size, 0);
        stream.read_exact(&mut body[start..]).unwrap();
        assert_eq!(read_line(stream), "");
        if size == 0 {
            return;
        }
    }
}

fn read_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).unwrap()
}

/// What a program prints that must end well.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} does not start ({error}): run scripts/setup"));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}{told}");
    told
}

//! Requests with bodies, one behind the other: each is answered with what its own body asks for, whatever
//! frames it and whatever pieces it comes in.
//!
//! The input is one byte from which the pieces follow, and requests. Of each, the first byte says what is
//! asked, the second how its body is framed, the third how long it is; then comes the body.

#![no_main]

#[path = "pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use tollgate_origin::fuzzing::Client;

fuzz_target!(|input: &[u8]| {
    let [seed, script @ ..] = input else { return };
    let (mut sent, mut owed) = (Vec::new(), Vec::new());
    let mut rest = script;
    while let [asked, framing, length, after @ ..] = rest {
        let (body, after) = after.split_at(after.len().min(usize::from(*length)));
        let (target, answer) = ask(*asked, body);
        sent.extend_from_slice(format!("POST {target} HTTP/1.1\r\nHost: a\r\n").as_bytes());
        frame(*framing, body, &mut sent);
        owed.push(answer);
        rest = after;
    }
    for pieces in [
        &mut std::iter::once(&sent[..]) as &mut dyn Iterator<Item = &[u8]>,
        &mut pieces(&sent, *seed),
        &mut sent.chunks(1 + usize::from(*seed)),
    ] {
        let mut client = Client::default();
        pieces.for_each(|piece| client.send(piece));
        assert!(!client.is_over(), "the connection is kept");
        let received = client.into_received();
        assert!(received.filler.is_empty(), "answers are short");
        assert_eq!(bodies(&received.bytes), owed);
    }
});

/// The target of a request, and the body of the answer that it is owed.
fn ask(asked: u8, body: &[u8]) -> (String, Vec<u8>) {
    match asked % 4 {
        0 => ("/echo".to_owned(), body.to_vec()),
        1 => {
            let answer = format!("{{\"size\":{},\"time\":0.000000}}", body.len());
            ("/upload".to_owned(), answer.into_bytes())
        }
        2 => ("/method".to_owned(), b"{\"method\":\"POST\"}".to_vec()),
        _ => (format!("/?payload={asked}"), vec![b'x'; usize::from(asked)]),
    }
}

/// Writes the end of a head and its body: with its length, or in chunks, written in one of four ways.
fn frame(framing: u8, body: &[u8], sent: &mut Vec<u8>) {
    let (style, chunk_bytes) = (framing >> 6, usize::from(framing & 0x3f));
    if chunk_bytes == 0 {
        sent.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        sent.extend_from_slice(body);
        return;
    }
    sent.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(chunk_bytes) {
        let size = match style {
            0 | 3 => format!("{:x}\r\n", chunk.len()),
            1 => format!("000{:X}\r\n", chunk.len()),
            _ => format!("{:x};name=\"value\"\r\n", chunk.len()),
        };
        sent.extend_from_slice(size.as_bytes());
        sent.extend_from_slice(chunk);
        sent.extend_from_slice(b"\r\n");
    }
    let end: &[u8] = if style == 3 { b"0\r\nTrailer: b\r\n\r\n" } else { b"0\r\n\r\n" };
    sent.extend_from_slice(end);
}

/// The bodies of answers that follow each other.
fn bodies(mut answers: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while !answers.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut answer = httparse::Response::new(&mut headers);
        let head = answer.parse(answers).expect("an answer").unwrap();
        assert_eq!(answer.code, Some(200));
        let length = headers
            .iter()
            .find(|header| header.name == "Content-Length")
            .and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok())
            .expect("a length");
        bodies.push(answers[head..head + length].to_vec());
        answers = &answers[head + length..];
    }
    bodies
}

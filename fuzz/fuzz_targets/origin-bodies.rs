//! Pipelined requests with bodies: each response matches its own body, whatever the framing and the
//! pieces.
//!
//! The input is one byte that seeds the pieces, and requests. The first byte of each selects the
//! endpoint, the second the framing, the third the length of the body; the body follows.

#![no_main]

#[path = "pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use tollgate_origin::fuzzing::TestClient;

fuzz_target!(|input: &[u8]| {
    let [seed, script @ ..] = input else { return };
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    let mut rest = script;
    while let [endpoint, framing, length, after @ ..] = rest {
        let (body, after) = after.split_at(after.len().min(usize::from(*length)));
        let (target, response_body) = select(*endpoint, body);
        sent.extend_from_slice(format!("POST {target} HTTP/1.1\r\nHost: a\r\n").as_bytes());
        frame(*framing, body, &mut sent);
        expected.push(response_body);
        rest = after;
    }
    for pieces in [
        &mut std::iter::once(&sent[..]) as &mut dyn Iterator<Item = &[u8]>,
        &mut pieces(&sent, *seed),
        &mut sent.chunks(1 + usize::from(*seed)),
    ] {
        let mut client = TestClient::default();
        pieces.for_each(|piece| client.send(piece));
        assert!(!client.is_closed, "the connection stays open");
        let received = client.received;
        assert!(received.filler.is_empty(), "responses are short");
        assert_eq!(bodies(&received.bytes), expected);
    }
});

/// Returns the target of a request and the body of its response.
fn select(endpoint: u8, body: &[u8]) -> (String, Vec<u8>) {
    match endpoint % 4 {
        0 => ("/echo".to_owned(), body.to_vec()),
        1 => {
            let json = format!("{{\"size\":{},\"time\":0.000000}}", body.len());
            ("/upload".to_owned(), json.into_bytes())
        }
        2 => ("/method".to_owned(), b"{\"method\":\"POST\"}".to_vec()),
        _ => (format!("/?payload={endpoint}"), vec![b'x'; usize::from(endpoint)]),
    }
}

/// Writes the end of a head and its body: with Content-Length, or chunked in one of four styles.
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

/// Returns the bodies of consecutive responses.
fn bodies(mut responses: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while !responses.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut headers);
        let head = response.parse(responses).expect("a response").unwrap();
        assert_eq!(response.code, Some(200));
        let length = headers
            .iter()
            .find(|header| header.name == "Content-Length")
            .and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok())
            .expect("a length");
        bodies.push(responses[head..head + length].to_vec());
        responses = &responses[head + length..];
    }
    bodies
}

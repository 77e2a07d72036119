//! Gateway, backend side: for any split of the bytes, the client receives the response that the oracle finds, or a 502, or
//! a visibly truncated response; and the next request gets its own response.
//!
//! Input: one byte that determines the pieces, one with flags (1: HEAD, 2: the backend closes), then the bytes of the
//! backend.

#![no_main]

mod oracle;
#[path = "../pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use oracle::{Parsed, Response};
use pieces::pieces;
use tollgate_gateway::fuzzing::{Reply, talk};

const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const NEXT_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\nnext";
const NEXT_RECEIVED: &[u8] =
    b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnext";

fuzz_target!(|input: &[u8]| {
    let [seed, flags, sent @ ..] = input else { return };
    let to_head = flags & 1 == 1;
    let closes = flags & 2 == 2;
    let whole = received(to_head, closes, vec![sent.to_vec()]);
    check(sent, to_head, &whole);
    let split = received(to_head, closes, in_pieces(sent, to_head, *seed));
    check(sent, to_head, &split);
});

/// Splits the response. Surplus bytes stay with its last piece: later, they could not be distinguished from the response to
/// the next request on that connection.
fn in_pieces(sent: &[u8], to_head: bool, seed: u8) -> Vec<Vec<u8>> {
    let surplus_bytes = match last(sent, to_head).0 {
        Parsed::Complete(_, surplus_bytes) => surplus_bytes,
        Parsed::Partial | Parsed::Invalid => 0,
    };
    let (response, surplus) = sent.split_at(sent.len() - surplus_bytes);
    let mut pieces: Vec<Vec<u8>> = pieces(response, seed).map(<[u8]>::to_vec).collect();
    if let Some(piece) = pieces.last_mut() {
        piece.extend_from_slice(surplus);
    }
    pieces
}

/// Returns all bytes received by a client that sends a request with this response, then another request.
fn received(to_head: bool, closes: bool, pieces: Vec<Vec<u8>>) -> Vec<u8> {
    let method = if to_head { "HEAD" } else { "POST" };
    let request = format!("{method} /first HTTP/1.1\r\nHost: a\r\n\r\n");
    let sent = [request.as_bytes(), NEXT].concat();
    let talk = talk(std::iter::once(&sent[..]), |bytes| match oracle::request(bytes) {
        Parsed::Complete(request, consumed) if request.target == "/first" => {
            Some(Reply { consumed, pieces: pieces.clone(), closes })
        }
        Parsed::Complete(_, consumed) => {
            Some(Reply { consumed, pieces: vec![NEXT_RESPONSE.to_vec()], closes: false })
        }
        Parsed::Partial => None,
        Parsed::Invalid => panic!("the backend receives {}", bytes.escape_ascii()),
    });
    talk.received
}

fn check(sent: &[u8], to_head: bool, received: &[u8]) {
    let show = || format!("{} became {}", sent.escape_ascii(), received.escape_ascii());
    let (expected, interims) = last(sent, to_head);
    let (found, found_interims) = last(received, to_head);
    assert!(found_interims <= interims, "{}", show());
    let (got, rest) = match found {
        Parsed::Complete(response, rest) => (response, rest),
        // Nothing follows a truncated response.
        Parsed::Partial => return assert!(!received.ends_with(NEXT_RECEIVED), "{}", show()),
        Parsed::Invalid => panic!("{}", show()),
    };
    let rest = &received[received.len() - rest..];
    assert!(rest.is_empty() || rest == NEXT_RECEIVED, "{}", show());
    match expected {
        _ if got.status == 502 => {}
        Parsed::Complete(response, _) => {
            let (status, body) = (response.status, &response.body);
            assert_eq!((got.status, &got.body), (status, body), "{}", show());
            let (mut forwarded, sent) = (end_to_end(&got), end_to_end(&response));
            if !sent.iter().any(|(name, _)| name == "date") {
                let added = forwarded.pop();
                assert!(added.is_some_and(|(name, _)| name == "date"), "{}", show());
            }
            assert_eq!(forwarded, sent, "{}", show());
        }
        Parsed::Partial | Parsed::Invalid => panic!("{}", show()),
    }
}

/// Returns the final response with the number of bytes after it, and the number of interim responses before it.
fn last(bytes: &[u8], to_head: bool) -> (Parsed<Response>, usize) {
    let mut rest = bytes;
    let mut interims = 0;
    loop {
        match oracle::response(rest, to_head) {
            Parsed::Complete(response, count) if (100..200).contains(&response.status) => {
                if response.status == 101 {
                    return (Parsed::Invalid, interims);
                }
                rest = &rest[count..];
                interims += 1;
            }
            Parsed::Complete(response, count) => {
                return (Parsed::Complete(response, rest.len() - count), interims);
            }
            other => return (other, interims),
        }
    }
}

/// Returns the end-to-end headers.
fn end_to_end(response: &Response) -> Vec<&(String, Vec<u8>)> {
    let options: Vec<String> = response
        .headers
        .iter()
        .filter(|(name, _)| name == "connection")
        .flat_map(|(_, value)| value.split(|&byte| byte == b','))
        .map(|option| String::from_utf8_lossy(option.trim_ascii()).to_ascii_lowercase())
        .collect();
    const NAMES: [&str; 7] = [
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "upgrade",
    ];
    let is_end_to_end =
        |(name, _): &&(String, Vec<u8>)| !NAMES.contains(&&name[..]) && !options.contains(name);
    response.headers.iter().filter(is_end_to_end).collect()
}

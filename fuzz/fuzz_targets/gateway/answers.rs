//! Whatever a backend answers, a client gets what a second reader finds in it, or a 502, or an answer that is
//! seen to break off; and the next request gets its own answer, however the bytes are split.
//!
//! The input is one byte from which the pieces follow, one that says how the backend is asked, and what it
//! answers.

#![no_main]

#[path = "../pieces.rs"]
mod pieces;
#[expect(dead_code, reason = "requests are made up by this program, and hardly read")]
mod reading;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use reading::{Answer, Reading};
use tollgate_gateway::fuzzing::{Reply, talk};

const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const NEXT_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\nnext";
const NEXT_RECEIVED: &[u8] =
    b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnext";

fuzz_target!(|input: &[u8]| {
    let [seed, manner, answered @ ..] = input else { return };
    let to_head = manner & 1 == 1;
    let closes = manner & 2 == 2;
    let whole = received(to_head, closes, vec![answered.to_vec()]);
    check(answered, to_head, &whole);
    let split = received(to_head, closes, in_pieces(answered, to_head, *seed));
    check(answered, to_head, &split);
});

/// The answer in pieces. What is behind its end comes together with that: on its own, a little later, nobody
/// could tell it from the answer to the next request on that connection.
fn in_pieces(answered: &[u8], to_head: bool, seed: u8) -> Vec<Vec<u8>> {
    let surplus_bytes = match last(answered, to_head).0 {
        Reading::Whole(_, surplus_bytes) => surplus_bytes,
        Reading::Unfinished | Reading::Faulty => 0,
    };
    let (answer, surplus) = answered.split_at(answered.len() - surplus_bytes);
    let mut pieces: Vec<Vec<u8>> = pieces(answer, seed).map(<[u8]>::to_vec).collect();
    if let Some(piece) = pieces.last_mut() {
        piece.extend_from_slice(surplus);
    }
    pieces
}

/// What a client gets that asks for something, which is answered so, and then for something else.
fn received(to_head: bool, closes: bool, pieces: Vec<Vec<u8>>) -> Vec<u8> {
    let method = if to_head { "HEAD" } else { "POST" };
    let asked = format!("{method} /odd HTTP/1.1\r\nHost: a\r\n\r\n");
    let sent = [asked.as_bytes(), NEXT].concat();
    let talk = talk(std::iter::once(&sent[..]), |bytes| match reading::request(bytes) {
        Reading::Whole(request, consumed) if request.target == "/odd" => {
            Some(Reply { consumed, pieces: pieces.clone(), closes })
        }
        Reading::Whole(_, consumed) => {
            Some(Reply { consumed, pieces: vec![NEXT_ANSWER.to_vec()], closes: false })
        }
        Reading::Unfinished => None,
        Reading::Faulty => panic!("a backend sees {}", bytes.escape_ascii()),
    });
    talk.received
}

fn check(answered: &[u8], to_head: bool, received: &[u8]) {
    let show = || format!("{} became {}", answered.escape_ascii(), received.escape_ascii());
    let (truth, interims) = last(answered, to_head);
    let (client_s, client_interims) = last(received, to_head);
    assert!(client_interims <= interims, "{}", show());
    let (got, rest) = match client_s {
        Reading::Whole(answer, rest) => (answer, rest),
        // Nothing comes behind what breaks off.
        Reading::Unfinished => return assert!(!received.ends_with(NEXT_RECEIVED), "{}", show()),
        Reading::Faulty => panic!("{}", show()),
    };
    let rest = &received[received.len() - rest..];
    assert!(rest.is_empty() || rest == NEXT_RECEIVED, "{}", show());
    match truth {
        _ if got.status == 502 => {}
        Reading::Whole(answer, _) => {
            assert_eq!((got.status, &got.body), (answer.status, &answer.body), "{}", show());
            let (mut passed, came) = (passing(&got), passing(&answer));
            if !came.iter().any(|(name, _)| name == "date") {
                let added = passed.pop();
                assert!(added.is_some_and(|(name, _)| name == "date"), "{}", show());
            }
            assert_eq!(passed, came, "{}", show());
        }
        Reading::Unfinished | Reading::Faulty => panic!("{}", show()),
    }
}

/// The final answer, with how many bytes are behind it, and how many interim ones come before it.
fn last(bytes: &[u8], to_head: bool) -> (Reading<Answer>, usize) {
    let mut rest = bytes;
    let mut interims = 0;
    loop {
        match reading::answer(rest, to_head) {
            Reading::Whole(answer, count) if (100..200).contains(&answer.status) => {
                if answer.status == 101 {
                    return (Reading::Faulty, interims);
                }
                rest = &rest[count..];
                interims += 1;
            }
            Reading::Whole(answer, count) => {
                return (Reading::Whole(answer, rest.len() - count), interims);
            }
            other => return (other, interims),
        }
    }
}

/// The headers that are for the client.
fn passing(answer: &Answer) -> Vec<&(String, Vec<u8>)> {
    let options: Vec<String> = answer
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
    let passes =
        |(name, _): &&(String, Vec<u8>)| !NAMES.contains(&&name[..]) && !options.contains(name);
    answer.headers.iter().filter(passes).collect()
}

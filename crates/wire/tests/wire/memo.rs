use proptest::prelude::*;
use tollgate_wire::{Answer, HeadMemo, MAX_MEMO_BYTES, ParseError, ResponseScanner, Scan};

// Both heads are 17 + 16 + 19 + 2 = 54 bytes.
const AT_NOON: &[u8] = b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\n\r\n";
const A_SECOND_LATER: &[u8] = b"HTTP/1.1 200 OK\r\nDate: 12:00:01\r\nContent-Length: 2\r\n\r\n";

fn answer(status: u16, body_bytes: u64) -> Answer {
    Answer { status, body_bytes, keep_alive: true }
}

/// The only answer in `bytes`, with its end, by a scanner of its own.
fn whole(bytes: &[u8], to_head: bool, heads: &mut HeadMemo) -> (Answer, usize) {
    match ResponseScanner::new().feed(bytes, to_head, heads, |_| {}).unwrap() {
        Scan::Complete { answer, consumed } => (answer, consumed),
        Scan::Partial => panic!("no end in {}", bytes.escape_ascii()),
    }
}

#[test]
fn one_memo_serves_all_scanners() {
    let mut heads = HeadMemo::new();
    assert_eq!(heads.last(), b"");
    for body in [b"ab", b"cd", b"\r\n"] {
        let bytes = [AT_NOON, body].concat();
        assert_eq!(whole(&bytes, false, &mut heads), (answer(200, 2), 56));
        assert_eq!(heads.last(), AT_NOON);
    }
}

#[test]
fn a_head_that_differs_in_one_byte_is_another() {
    let mut heads = HeadMemo::new();
    for head in [AT_NOON, A_SECOND_LATER, AT_NOON] {
        let bytes = [head, b"ab"].concat();
        assert_eq!(whole(&bytes, false, &mut heads), (answer(200, 2), 56));
        assert_eq!(heads.last(), head);
    }
    let longer = b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(whole(longer, false, &mut heads), (answer(200, 3), 57));
    // It begins with all lines of the first one, and goes on.
    let closing =
        b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
    whole(&[AT_NOON, b"ab"].concat(), false, &mut heads);
    let last = Answer { status: 200, body_bytes: 2, keep_alive: false };
    assert_eq!(whole(closing, false, &mut heads), (last, 56 + 19));
    let blocked = b"HTTP/1.1 403 No\r\nDate: 12:00:00\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(whole(blocked, false, &mut heads), (answer(403, 0), 54));
}

#[test]
fn the_same_head_has_a_body_or_none_by_its_request() {
    let mut heads = HeadMemo::new();
    let bytes = [AT_NOON, b"ab"].concat();
    for _ in 0..2 {
        assert_eq!(whole(&bytes, false, &mut heads), (answer(200, 2), 56));
        assert_eq!(whole(&bytes, true, &mut heads), (answer(200, 0), 54));
    }
}

#[test]
fn a_split_head_is_not_taken_for_the_one_remembered() {
    let mut heads = HeadMemo::new();
    whole(&[AT_NOON, b"ab"].concat(), false, &mut heads);
    let bytes = [A_SECOND_LATER, b"ab"].concat();
    for at in 1..A_SECOND_LATER.len() {
        let mut scanner = ResponseScanner::new();
        let mut feed = |bytes| scanner.feed(bytes, false, &mut heads, |_| {});
        assert_eq!(feed(&bytes[..at]), Ok(Scan::Partial), "{at}");
        let ended = Scan::Complete { answer: answer(200, 2), consumed: 56 - at };
        assert_eq!(feed(&bytes[at..]), Ok(ended), "{at}");
    }
    assert_eq!(heads.last(), AT_NOON, "only what came whole is remembered");
}

/// The second piece begins with the head remembered, but it is a body.
#[test]
fn a_body_is_not_taken_for_a_head() {
    let mut heads = HeadMemo::new();
    whole(&[AT_NOON, b"ab"].concat(), false, &mut heads);
    let mut scanner = ResponseScanner::new();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n";
    assert_eq!(scanner.feed(head, false, &mut heads, |_| {}), Ok(Scan::Partial));
    let body = [AT_NOON, b"1234567"].concat();
    let ended = Scan::Complete { answer: answer(200, 60), consumed: 60 };
    assert_eq!(scanner.feed(&body, false, &mut heads, |_| {}), Ok(ended));
}

#[test]
fn long_heads_are_parsed_each_time() {
    // The start line, the header's name and the line ends are 49 bytes.
    let head = |len: usize| {
        let pad = "x".repeat(len - 49);
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nPadding: {pad}\r\n\r\n")
    };
    let mut heads = HeadMemo::new();
    let (longest, over) = (head(MAX_MEMO_BYTES), head(MAX_MEMO_BYTES + 1));
    for _ in 0..2 {
        assert_eq!(whole(longest.as_bytes(), false, &mut heads), (answer(200, 0), 1024));
        assert_eq!(heads.last(), longest.as_bytes());
        assert_eq!(whole(over.as_bytes(), false, &mut heads), (answer(200, 0), 1025));
        assert_eq!(heads.last(), longest.as_bytes());
    }
}

#[test]
fn interim_answers_are_not_remembered() {
    let mut heads = HeadMemo::new();
    let mut scanner = ResponseScanner::new();
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n";
    assert_eq!(scanner.feed(interim, false, &mut heads, |_| {}), Ok(Scan::Partial));
    assert_eq!(heads.last(), b"");
    let bytes = [interim, AT_NOON, b"ab"].concat();
    for _ in 0..2 {
        assert_eq!(whole(&bytes, false, &mut heads), (answer(200, 2), 28 + 56));
        assert_eq!(heads.last(), AT_NOON);
    }
}

/// What came of one connection: the answers with their payload, and how it ended.
#[derive(Debug, PartialEq)]
struct Transcript {
    answers: Vec<(Answer, Vec<u8>)>,
    end: Result<Option<Answer>, ParseError>,
}

/// Feeds pieces of `steps` bytes in turn; each answer is to a HEAD or not as `to_heads` says in turn.
fn transcript(
    bytes: &[u8],
    steps: &[usize],
    to_heads: &[bool],
    mut memo_at_feed: impl FnMut(&mut HeadMemo),
) -> Transcript {
    let mut scanner = ResponseScanner::new();
    let mut heads = HeadMemo::new();
    let (mut answers, mut payload) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    let mut steps = steps.iter().cycle();
    while !rest.is_empty() {
        memo_at_feed(&mut heads);
        let piece = &rest[..rest.len().min(*steps.next().unwrap())];
        let to_head = to_heads[answers.len() % to_heads.len()];
        let keep = |bytes: &[u8]| payload.extend_from_slice(bytes);
        match scanner.feed(piece, to_head, &mut heads, keep) {
            Ok(Scan::Partial) => rest = &rest[piece.len()..],
            Ok(Scan::Complete { answer, consumed }) => {
                rest = &rest[consumed..];
                answers.push((answer, std::mem::take(&mut payload)));
            }
            Err(error) => return Transcript { answers, end: Err(error) },
        }
    }
    Transcript { answers, end: scanner.close() }
}

fn any_answer() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\n\r\nab"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:01\r\nContent-Length: 2\r\n\r\ncd"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 20\r\n\r\nHTTP/1.1 200 OK\r\nabc"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\nA: b\r\n\r\nab"[..]),
        Just(&b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"[..]),
        Just(&b"HTTP/1.1 204 No Content\r\n\r\n"[..]),
        Just(&b"HTTP/1.1 100 Continue\r\n\r\n"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..]),
        Just(&b"\r\n"[..]),
    ]
}

proptest! {
    /// A memo spares work and changes no result.
    #[test]
    fn with_and_without_a_memo(
        sent in proptest::collection::vec(any_answer(), 1..8),
        steps in proptest::collection::vec(1_usize..200, 1..6),
        to_heads in proptest::collection::vec(any::<bool>(), 1..4),
    ) {
        let bytes = sent.concat();
        let with = transcript(&bytes, &steps, &to_heads, |_| {});
        let without = transcript(&bytes, &steps, &to_heads, |heads| *heads = HeadMemo::new());
        prop_assert_eq!(&with, &without);
        let byte_by_byte = transcript(&bytes, &[1], &to_heads, |_| {});
        prop_assert_eq!(&with, &byte_by_byte);
    }
}

//! Scanning answers: the same result however the bytes are split and whatever the memo has seen,
//! and the same framing as an oracle's.
//!
//! The input is four bytes, then what the server sends. The first says what it answers (`H`: a
//! HEAD); the other three are the lengths of pieces, taken in turn (`@` is 1, `A` is 2, and so on).

#![no_main]

mod oracle;

use libfuzzer_sys::fuzz_target;
use tollgate_wire::{Answer, HeadMemo, ParseError, ResponseScanner, Scan};

/// An answer, its payload, and where it ended.
#[derive(Debug, PartialEq)]
struct Ended {
    answer: Answer,
    payload: Vec<u8>,
    end: usize,
}

/// What came of one connection.
#[derive(Debug, PartialEq)]
struct Transcript {
    answers: Vec<Ended>,
    /// An error of the scanner, or what the server's close meant.
    close: Result<Option<Answer>, ParseError>,
    /// The payload of an answer that had not ended before the close.
    rest: Vec<u8>,
}

fuzz_target!(|input: &[u8]| {
    let Some((&[method, first, second, third], bytes)) = input.split_first_chunk() else { return };
    let to_head = method == b'H';
    let lengths = [first, second, third].map(|byte| 1 + usize::from(byte % 64));

    let mut heads = HeadMemo::new();
    let whole = transcript(bytes, &[bytes.len()], to_head, &mut heads);
    oracle::check(bytes, to_head, &whole.answers, &whole.close);

    // A fault in a split head shows at the end of its line, so that the line has to end.
    let mut split_bytes = bytes.to_vec();
    if whole.close.is_err() {
        split_bytes.push(b'\n');
    }
    let whole = transcript(&split_bytes, &[split_bytes.len()], to_head, &mut HeadMemo::new());
    for lengths in [&lengths[..], &[1], &[split_bytes.len()]] {
        // The memo now knows a head of this very input, and one that answered the other method.
        for asked_head in [to_head, !to_head, to_head] {
            let split = transcript(&split_bytes, lengths, asked_head, &mut heads);
            if asked_head == to_head {
                assert_eq!(split, whole, "in pieces of {lengths:?} bytes");
            }
        }
    }
});

/// Feeds pieces of the given lengths in turn until there is an error or the server closes.
fn transcript(bytes: &[u8], lengths: &[usize], to_head: bool, heads: &mut HeadMemo) -> Transcript {
    let mut scanner = ResponseScanner::new();
    let (mut answers, mut payload) = (Vec::new(), Vec::new());
    let mut from = 0;
    for &length in lengths.iter().cycle() {
        if from == bytes.len() {
            break;
        }
        let piece = &bytes[from..bytes.len().min(from + length)];
        match scanner.feed(piece, to_head, heads, |bytes| payload.extend_from_slice(bytes)) {
            Ok(Scan::Partial) => from += piece.len(),
            Ok(Scan::Complete { answer, consumed }) => {
                assert!(consumed <= piece.len(), "more was consumed than fed");
                assert_eq!(answer.body_bytes, payload.len() as u64, "payload handed on");
                from += consumed;
                answers.push(Ended { answer, payload: std::mem::take(&mut payload), end: from });
            }
            Err(error) => return Transcript { answers, close: Err(error), rest: payload },
        }
    }
    Transcript { answers, close: scanner.close(), rest: payload }
}

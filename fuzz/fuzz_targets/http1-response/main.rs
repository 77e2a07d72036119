//! Response scanner: the same result for any split of the bytes and any content of the head cache, and the framing of an
//! oracle.
//!
//! Input: four bytes, then the responses. The first byte is `H` for responses to HEAD; the others are the lengths of
//! pieces, used in turn (`@` is 1, `A` is 2, and so on).

#![no_main]

mod oracle;

use libfuzzer_sys::fuzz_target;
use tollgate_http1::{ParseError, Response, ResponseHeadCache, ResponseScanner, Scan};

/// A response, its payload and its end.
#[derive(Debug, PartialEq)]
struct Scanned {
    response: Response,
    payload: Vec<u8>,
    end: usize,
}

/// Result of one connection.
#[derive(Debug, PartialEq)]
struct Transcript {
    responses: Vec<Scanned>,
    /// The scanner's error, or its result at the close.
    close: Result<Option<Response>, ParseError>,
    /// Payload of a response that had not ended before the close.
    rest: Vec<u8>,
}

fuzz_target!(|input: &[u8]| {
    let Some((&[method, first, second, third], bytes)) = input.split_first_chunk() else { return };
    let to_head = method == b'H';
    let lengths = [first, second, third].map(|byte| 1 + usize::from(byte % 64));

    let mut heads = ResponseHeadCache::default();
    let whole = transcript(bytes, &[bytes.len()], to_head, &mut heads);
    oracle::check(bytes, to_head, &whole.responses, &whole.close);

    // The scanner finds an error in a split head at the end of its line, so the line has to end.
    let mut split_bytes = bytes.to_vec();
    if whole.close.is_err() {
        split_bytes.push(b'\n');
    }
    let new_cache = &mut ResponseHeadCache::default();
    let whole = transcript(&split_bytes, &[split_bytes.len()], to_head, new_cache);
    for lengths in [&lengths[..], &[1], &[split_bytes.len()]] {
        // The cache holds a head of this input, also as the response to the other method.
        for cached_to_head in [to_head, !to_head, to_head] {
            let split = transcript(&split_bytes, lengths, cached_to_head, &mut heads);
            if cached_to_head == to_head {
                assert_eq!(split, whole, "in pieces of {lengths:?} bytes");
            }
        }
    }
});

/// Feeds pieces of the given lengths in turn until an error or the close.
fn transcript(
    bytes: &[u8],
    lengths: &[usize],
    to_head: bool,
    heads: &mut ResponseHeadCache,
) -> Transcript {
    let mut scanner = ResponseScanner::default();
    let (mut responses, mut payload) = (Vec::new(), Vec::new());
    let mut from = 0;
    for &length in lengths.iter().cycle() {
        if from == bytes.len() {
            break;
        }
        let piece = &bytes[from..bytes.len().min(from + length)];
        match scanner.feed(piece, to_head, heads, |bytes| payload.extend_from_slice(bytes)) {
            Ok(Scan::Partial) => from += piece.len(),
            Ok(Scan::Complete { response, consumed }) => {
                assert!(consumed <= piece.len(), "consumed more than fed");
                assert_eq!(response.body_bytes, payload.len() as u64, "length of the payload");
                from += consumed;
                let payload = std::mem::take(&mut payload);
                responses.push(Scanned { response, payload, end: from });
            }
            Err(error) => return Transcript { responses, close: Err(error), rest: payload },
        }
    }
    Transcript { responses, close: scanner.close(), rest: payload }
}

use proptest::prelude::*;
use tollgate_http1::{
    BodyDecoder, BodyFraming, BodyPartKind, BodyProgress, BodySearch, MAX_CHUNK_LINE_BYTES,
    MAX_TRAILER_BYTES, ParseError, Pattern,
};

fn progress(consumed: usize, body_bytes: u64, done: bool) -> BodyProgress {
    BodyProgress { consumed, body_bytes, done }
}

fn chunked(bytes: &[u8]) -> Result<BodyProgress, ParseError> {
    BodyDecoder::new(BodyFraming::Chunked).feed(bytes, |_| {})
}

#[test]
fn empty_body_consumes_nothing() {
    for framing in [BodyFraming::Empty, BodyFraming::Length(0)] {
        assert_eq!(BodyDecoder::new(framing).feed(b"GET", |_| {}), Ok(progress(0, 0, true)));
        assert_eq!(BodyDecoder::new(framing).feed(b"", |_| {}), Ok(progress(0, 0, true)));
    }
}

#[test]
fn length_leaves_the_next_message_unconsumed() {
    let mut decoder = BodyDecoder::new(BodyFraming::Length(5));
    assert_eq!(decoder.feed(b"ab", |_| {}), Ok(progress(2, 2, false)));
    assert_eq!(decoder.feed(b"cdeGET", |_| {}), Ok(progress(3, 3, true)));
    assert_eq!(decoder.feed(b"GET", |_| {}), Ok(progress(0, 0, true)));
}

#[test]
fn until_close_consumes_everything() {
    let mut decoder = BodyDecoder::new(BodyFraming::UntilClose);
    assert_eq!(decoder.feed(b"abc", |_| {}), Ok(progress(3, 3, false)));
    assert_eq!(decoder.feed(b"", |_| {}), Ok(progress(0, 0, false)));
}

#[test]
fn chunked_counts_payload_only() {
    assert_eq!(chunked(b"0\r\n\r\n"), Ok(progress(5, 0, true)));
    assert_eq!(chunked(b"3\r\nabc\r\n0\r\n\r\nHTTP"), Ok(progress(13, 3, true)));
    assert_eq!(
        chunked(b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"),
        Ok(progress(35, 20, true))
    );
    // Data that looks like framing.
    assert_eq!(chunked(b"5\r\n0\r\n\r\n\r\n0\r\n\r\n"), Ok(progress(15, 5, true)));
}

#[test]
fn skips_extensions_padding_and_trailers() {
    assert_eq!(chunked(b"3;a=\"b;c\"\r\nabc\r\n0;x\r\n\r\n"), Ok(progress(23, 3, true)));
    assert_eq!(chunked(b"3  \r\nabc\r\n000 \r\n\r\n"), Ok(progress(18, 3, true)));
    assert_eq!(chunked(b"3\t ;a b\r\nabc\r\n0\r\n\r\n"), Ok(progress(19, 3, true)));
    let trailer = b"3\r\nabc\r\n0\r\nChecksum: 1\r\nB: 2\r\n\r\n!";
    assert_eq!(chunked(trailer), Ok(progress(32, 3, true)));
}

#[test]
fn chunk_size_is_at_most_the_largest_signed_number() {
    assert_eq!(chunked(b"7fffffffffffffff\r\nab"), Ok(progress(20, 2, false)));
    for size in ["8000000000000000", "8000000000000005", "FFFFFFFFFFFFFFFF", "10000000000000000"] {
        let bytes = format!("{size}\r\nab");
        assert_eq!(chunked(bytes.as_bytes()), Err(ParseError::ChunkSize), "{size}");
    }
}

#[test]
fn rejects_malformed_chunks() {
    for bytes in [
        &b"\r\n"[..],
        b"g\r\n",
        b" 3\r\n",
        b"3 3\r\n",
        b"3 a=b\r\n",
        b"-1\r\n",
        b"0x3\r\n",
        b"3\n",
        b";a\r\n",
    ] {
        assert_eq!(chunked(bytes), Err(ParseError::ChunkSize), "{}", bytes.escape_ascii());
    }
    for bytes in [
        &b"3\r\nabcd"[..],
        b"3\r\nabc\n",
        b"3\r\nabc\rx",
        b"3\rx",
        b"3;a\nabc",
        b"3;a\0\r\n",
        b"0\r\n\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA: b\rx",
        b"0\r\n\rx",
    ] {
        assert_eq!(chunked(bytes), Err(ParseError::ChunkEnd), "{}", bytes.escape_ascii());
    }
}

#[test]
fn limits_size_lines_and_trailer() {
    let size_line = |len: usize| format!("0;{}\r\n\r\n", "x".repeat(len - 2));
    let longest = size_line(MAX_CHUNK_LINE_BYTES);
    assert_eq!(chunked(longest.as_bytes()), Ok(progress(4096 + 4, 0, true)));
    let over = size_line(MAX_CHUNK_LINE_BYTES + 1);
    assert_eq!(chunked(over.as_bytes()), Err(ParseError::ChunkLineTooLong));
    let zeros = "0".repeat(MAX_CHUNK_LINE_BYTES + 1);
    assert_eq!(chunked(zeros.as_bytes()), Err(ParseError::ChunkLineTooLong));

    // The limit counts all lines of the trailer section with their ends, but not the final empty line.
    let trailer = |len: usize| format!("0\r\n{}\r\nyyyyyyy\r\n\r\n", "x".repeat(len - 11));
    let longest = trailer(MAX_TRAILER_BYTES);
    assert_eq!(chunked(longest.as_bytes()), Ok(progress(3 + 16_384 + 2, 0, true)));
    let over = trailer(MAX_TRAILER_BYTES + 1);
    assert_eq!(chunked(over.as_bytes()), Err(ParseError::TrailerTooLong));
}

#[test]
fn limit_of_a_size_line_restarts_with_each_chunk() {
    let chunk = format!("1;{}\r\na\r\n", "x".repeat(MAX_CHUNK_LINE_BYTES - 2));
    let body = format!("{}0\r\n\r\n", chunk.repeat(3));
    assert_eq!(chunked(body.as_bytes()), Ok(progress(body.len(), 3, true)));
}

#[test]
fn limits_size_lines_in_total_relative_to_payload() {
    let body = |chunks: usize, extension: usize, data: usize| {
        let chunk = format!("{data:x};{}\r\n{}\r\n", "e".repeat(extension), "d".repeat(data));
        [chunk.repeat(chunks).as_bytes(), b"0\r\n\r\n"].concat()
    };
    for fine in [body(1_000, 85, 8_192), body(16, 1_000, 1), body(10_000, 13, 1)] {
        assert!(chunked(&fine).is_ok_and(|progress| progress.done));
    }
    for endless in [body(17, 1_000, 1), body(2_000, 30, 1), body(5, 4_000, 1)] {
        assert_eq!(chunked(&endless), Err(ParseError::ChunkLineTooLong));
    }
    let zeros = format!("{}1\r\nd\r\n", "0".repeat(1_000)).repeat(17);
    assert_eq!(chunked(zeros.as_bytes()), Err(ParseError::ChunkLineTooLong));
}

proptest! {
    #[test]
    fn counts_payload_of_chunks_split_anywhere(
        sizes in proptest::collection::vec(1_usize..300, 0..6),
        step in 1_usize..50,
    ) {
        let mut bytes = Vec::new();
        for size in &sizes {
            bytes.extend_from_slice(format!("{size:x};e\r\n").as_bytes());
            bytes.extend(std::iter::repeat_n(b'\n', *size));
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\nT: u\r\n\r\n");
        let coded = bytes.len();
        bytes.extend_from_slice(b"next");

        let mut decoder = BodyDecoder::new(BodyFraming::Chunked);
        let (mut consumed, mut payload, mut done) = (0, 0, false);
        for piece in bytes.chunks(step) {
            let progress = decoder.feed(piece, |_| {}).unwrap();
            consumed += progress.consumed;
            payload += progress.body_bytes;
            done = progress.done;
            if !done {
                prop_assert_eq!(progress.consumed, piece.len());
            }
        }
        prop_assert!(done);
        prop_assert_eq!(consumed, coded);
        prop_assert_eq!(payload, sizes.iter().sum::<usize>() as u64);
    }

    #[test]
    fn chunk_sizes_agree_with_httparse(line in "[0-9a-fA-F]{1,18}(;[a-z=\"]{0,5})?\r\n") {
        let theirs = httparse::parse_chunk_size(line.as_bytes());
        let mut decoder = BodyDecoder::new(BodyFraming::Chunked);
        let ours = decoder.feed(line.as_bytes(), |_| {});
        match theirs {
            // httparse limits the digits to 16, leading zeros included; this decoder limits the value.
            Err(_) => {
                let zeros = line.len() - line.trim_start_matches('0').len();
                prop_assert!(ours.is_err() || zeros > 0);
            }
            Ok(status) => {
                let (len, size) = status.unwrap();
                if size > i64::MAX as u64 {
                    prop_assert!(ours.is_err());
                    return Ok(());
                }
                prop_assert_eq!(ours.unwrap().consumed, len);
                let end = if size == 0 { &b"\r\n"[..] } else { b"x" };
                let after = decoder.feed(end, |_| {}).unwrap();
                prop_assert_eq!(after.body_bytes, u64::from(size > 0));
                prop_assert_eq!(after.done, size == 0);
            }
        }
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in proptest::collection::vec(
        prop_oneof![Just(b'0'), Just(b'3'), Just(b'\r'), Just(b'\n'), Just(b';'), any::<u8>()], 0..40)
    ) {
        if let Ok(progress) = chunked(&bytes) {
            prop_assert!(progress.consumed <= bytes.len());
            prop_assert!(progress.body_bytes <= progress.consumed as u64);
        }
    }
}

#[test]
fn remaining_is_what_length_or_chunk_size_announced() {
    let remaining_after = |framing, bytes: &[u8]| {
        let mut decoder = BodyDecoder::new(framing);
        decoder.feed(bytes, |_| {}).unwrap();
        decoder.remaining()
    };
    assert_eq!(remaining_after(BodyFraming::Empty, b""), 0);
    assert_eq!(remaining_after(BodyFraming::Length(5), b""), 5);
    assert_eq!(remaining_after(BodyFraming::Length(5), b"abc"), 2);
    assert_eq!(remaining_after(BodyFraming::UntilClose, b"abc"), 0);
    for (bytes, remaining) in [
        ("", 0),
        ("ffff\r", 0),
        ("ffff\r\n", 0xffff),
        ("5\r\nab", 3),
        ("5\r\nabcde", 0),
        ("2\r\nab\r\n7fffffffffffffff\r\n", i64::MAX as u64),
        ("0\r\n\r\n", 0),
    ] {
        assert_eq!(remaining_after(BodyFraming::Chunked, bytes.as_bytes()), remaining, "{bytes}");
    }
}

/// Splits a body that arrives in pieces into its parts, and joins the bytes of each kind; payload and coding
/// together.
fn parts(bytes: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, Vec<u8>, usize), ParseError> {
    let mut decoder = BodyDecoder::new(BodyFraming::Chunked);
    let (mut forwarded, mut trailer, mut consumed) = (Vec::new(), Vec::new(), 0);
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        while let Some(part) = decoder.next_part(&bytes[consumed..cut.max(consumed)])? {
            assert!(part.len > 0);
            let part_bytes = &bytes[consumed..consumed + part.len];
            match part.kind {
                BodyPartKind::Payload | BodyPartKind::Coding => forwarded.extend(part_bytes),
                BodyPartKind::Trailer => trailer.extend(part_bytes),
                BodyPartKind::Skipped => {}
            }
            consumed += part.len;
        }
    }
    assert!(decoder.is_done());
    Ok((forwarded, trailer, consumed))
}

#[test]
fn parts_of_a_chunked_body() {
    let cases: [(&[u8], &[u8], &[u8]); 4] = [
        (b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n", b"5\r\nhello\r\nA\r\n0123456789\r\n", b""),
        (b"0005 \t;a=\"b;c\";d\r\nhello\r\n00;last\r\n\r\n", b"5\r\nhello\r\n", b""),
        (b"1\r\nx\r\n0\r\nA:9\r\nB: \xff\r\n\r\n", b"1\r\nx\r\n", b"A:9\r\nB: \xff\r\n"),
        (b"0010\r\n0123456789abcdef\r\n0\r\n\r\n", b"10\r\n0123456789abcdef\r\n", b""),
    ];
    for (bytes, forwarded, trailer) in cases {
        let with_next = [bytes, b"GET"].concat();
        for step in 1..bytes.len() {
            let cuts: Vec<usize> = (1..bytes.len()).step_by(step).collect();
            let expected = (forwarded.to_vec(), trailer.to_vec(), bytes.len());
            assert_eq!(
                parts(&with_next, &cuts),
                Ok(expected),
                "{} by {step}",
                bytes.escape_ascii()
            );
        }
    }
}
/// Searches `body` in pieces of `steps` bytes in turn.
fn is_found(pattern: &str, body: &[u8], steps: &[usize]) -> bool {
    let pattern = Pattern::new(pattern.as_bytes()).unwrap();
    let mut search = BodySearch::default();
    let mut rest = body;
    let mut steps = steps.iter().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(*steps.next().unwrap()));
        search.feed(&pattern, piece);
        rest = after;
    }
    search.found()
}

#[test]
fn finds_pattern_wherever_the_body_is_split() {
    let cases = [
        ("a", "a", true),
        ("a", "b", false),
        ("abc", "xxabcxx", true),
        ("abc", "abxcab", false),
        // A partial match that fails contains the start of another.
        ("aab", "aaab", true),
        ("abab", "abaabab", true),
        ("abacabab", "abacabacabab", true),
        ("abacabab", "abacabacabac", false),
        ("aaaa", "aaabaaabaaa", false),
        ("aaaa", "aaabaaaa", true),
    ];
    for (pattern, body, expected) in cases {
        for step in 1..=body.len() {
            assert_eq!(
                is_found(pattern, body.as_bytes(), &[step]),
                expected,
                "{pattern:?} in {body:?} in pieces of {step}"
            );
        }
    }
}

#[test]
fn match_persists_until_reset() {
    let pattern = Pattern::new(b"ab").unwrap();
    let mut search = BodySearch::default();
    assert!(!search.found());
    search.feed(&pattern, b"ab");
    search.feed(&pattern, b"xx");
    assert!(search.found());
    search.reset();
    assert!(!search.found());
    // The first half belongs to the previous body.
    search.feed(&pattern, b"a");
    search.reset();
    search.feed(&pattern, b"b");
    assert!(!search.found());
}

#[test]
fn pattern_is_not_empty() {
    assert!(Pattern::new(b"").is_none());
}

proptest! {
    /// An alphabet of two letters makes many partial matches.
    #[test]
    fn search_in_pieces_agrees_with_search_in_whole(
        pattern in "[ab]{1,7}",
        body in "[ab]{0,40}",
        steps in proptest::collection::vec(1_usize..12, 1..6),
    ) {
        prop_assert_eq!(is_found(&pattern, body.as_bytes(), &steps), body.contains(&pattern));
    }
}

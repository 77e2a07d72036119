use proptest::prelude::*;
use tollgate_wire::{
    BodyDecoder, BodyFraming, BodyProgress, MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, ParseError,
};

fn progress(consumed: usize, body_bytes: u64, done: bool) -> BodyProgress {
    BodyProgress { consumed, body_bytes, done }
}

fn chunked(bytes: &[u8]) -> Result<BodyProgress, ParseError> {
    BodyDecoder::new(BodyFraming::Chunked).feed(bytes, |_| {})
}

#[test]
fn an_empty_body_takes_nothing() {
    for framing in [BodyFraming::Empty, BodyFraming::Length(0)] {
        assert_eq!(BodyDecoder::new(framing).feed(b"GET", |_| {}), Ok(progress(0, 0, true)));
        assert_eq!(BodyDecoder::new(framing).feed(b"", |_| {}), Ok(progress(0, 0, true)));
    }
}

#[test]
fn a_length_leaves_the_next_message_alone() {
    let mut decoder = BodyDecoder::new(BodyFraming::Length(5));
    assert_eq!(decoder.feed(b"ab", |_| {}), Ok(progress(2, 2, false)));
    assert_eq!(decoder.feed(b"cdeGET", |_| {}), Ok(progress(3, 3, true)));
    assert_eq!(decoder.feed(b"GET", |_| {}), Ok(progress(0, 0, true)));
}

#[test]
fn until_close_takes_everything() {
    let mut decoder = BodyDecoder::new(BodyFraming::UntilClose);
    assert_eq!(decoder.feed(b"abc", |_| {}), Ok(progress(3, 3, false)));
    assert_eq!(decoder.feed(b"", |_| {}), Ok(progress(0, 0, false)));
}

#[test]
fn chunks_count_their_data_only() {
    assert_eq!(chunked(b"0\r\n\r\n"), Ok(progress(5, 0, true)));
    assert_eq!(chunked(b"3\r\nabc\r\n0\r\n\r\nHTTP"), Ok(progress(13, 3, true)));
    assert_eq!(
        chunked(b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"),
        Ok(progress(35, 20, true))
    );
    // The data may look like framing.
    assert_eq!(chunked(b"5\r\n0\r\n\r\n\r\n0\r\n\r\n"), Ok(progress(15, 5, true)));
}

#[test]
fn extensions_padding_and_trailers_are_passed_over() {
    assert_eq!(chunked(b"3;a=\"b;c\"\r\nabc\r\n0;x\r\n\r\n"), Ok(progress(23, 3, true)));
    assert_eq!(chunked(b"3  \r\nabc\r\n000 \r\n\r\n"), Ok(progress(18, 3, true)));
    assert_eq!(chunked(b"3\t ;a b\r\nabc\r\n0\r\n\r\n"), Ok(progress(19, 3, true)));
    let trailer = b"3\r\nabc\r\n0\r\nChecksum: 1\r\nB: 2\r\n\r\n!";
    assert_eq!(chunked(trailer), Ok(progress(32, 3, true)));
}

#[test]
fn a_chunk_of_64_bits_is_not_taken_for_a_small_one() {
    assert_eq!(chunked(b"ffffffffffffffff\r\nab"), Ok(progress(20, 2, false)));
    assert_eq!(chunked(b"10000000000000000\r\n"), Err(ParseError::ChunkSize));
}

#[test]
fn faulty_chunks_are_errors() {
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
        b"0\r\n\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA: b\rx",
        b"0\r\n\rx",
    ] {
        assert_eq!(chunked(bytes), Err(ParseError::ChunkEnd), "{}", bytes.escape_ascii());
    }
}

#[test]
fn lines_have_limits() {
    let size_line = |len: usize| format!("0;{}\r\n\r\n", "x".repeat(len - 2));
    let longest = size_line(MAX_CHUNK_LINE_BYTES);
    assert_eq!(chunked(longest.as_bytes()), Ok(progress(4096 + 4, 0, true)));
    let over = size_line(MAX_CHUNK_LINE_BYTES + 1);
    assert_eq!(chunked(over.as_bytes()), Err(ParseError::ChunkLineTooLong));
    let zeros = "0".repeat(MAX_CHUNK_LINE_BYTES + 1);
    assert_eq!(chunked(zeros.as_bytes()), Err(ParseError::ChunkLineTooLong));

    // The limit is one of the whole trailer, and its line ends are not counted.
    let trailer = |len: usize| format!("0\r\n{}\r\n{}\r\n\r\n", "x".repeat(len - 9), "y".repeat(9));
    let longest = trailer(MAX_TRAILER_BYTES);
    assert_eq!(chunked(longest.as_bytes()), Ok(progress(3 + 16_384 + 6, 0, true)));
    let over = trailer(MAX_TRAILER_BYTES + 1);
    assert_eq!(chunked(over.as_bytes()), Err(ParseError::TrailerTooLong));
}

#[test]
fn the_limit_of_a_size_line_starts_anew_with_each_chunk() {
    let chunk = format!("1;{}\r\na\r\n", "x".repeat(MAX_CHUNK_LINE_BYTES - 2));
    let body = format!("{}0\r\n\r\n", chunk.repeat(3));
    assert_eq!(chunked(body.as_bytes()), Ok(progress(body.len(), 3, true)));
}

#[test]
fn size_lines_may_be_long_beside_what_they_belong_to_and_not_beside_nothing() {
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
    /// Whatever the chunks and wherever they are split, the payload is counted once.
    #[test]
    fn chunks_split_anywhere(
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

    /// Our reading of a size agrees with another one's.
    #[test]
    fn chunk_sizes_agree_with_httparse(line in "[0-9a-fA-F]{1,18}(;[a-z=\"]{0,5})?\r\n") {
        let theirs = httparse::parse_chunk_size(line.as_bytes());
        let mut decoder = BodyDecoder::new(BodyFraming::Chunked);
        let ours = decoder.feed(line.as_bytes(), |_| {});
        match theirs {
            // httparse stops at 16 digits, leading zeros included; we go by the value.
            Err(_) => {
                let zeros = line.len() - line.trim_start_matches('0').len();
                prop_assert!(ours.is_err() || zeros > 0);
            }
            Ok(status) => {
                let (len, size) = status.unwrap();
                prop_assert_eq!(ours.unwrap().consumed, len);
                let end = if size == 0 { &b"\r\n"[..] } else { b"x" };
                let after = decoder.feed(end, |_| {}).unwrap();
                prop_assert_eq!(after.body_bytes, u64::from(size > 0));
                prop_assert_eq!(after.done, size == 0);
            }
        }
    }

    /// No bytes make it panic or take more than it was given.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(
        prop_oneof![Just(b'0'), Just(b'3'), Just(b'\r'), Just(b'\n'), Just(b';'), any::<u8>()], 0..40)
    ) {
        if let Ok(progress) = chunked(&bytes) {
            prop_assert!(progress.consumed <= bytes.len());
            prop_assert!(progress.body_bytes <= progress.consumed as u64);
        }
    }
}

#[test]
fn what_is_still_to_come_is_known_where_it_was_told() {
    let owed = |framing, bytes: &[u8]| {
        let mut decoder = BodyDecoder::new(framing);
        decoder.feed(bytes, |_| {}).unwrap();
        decoder.owed_bytes()
    };
    assert_eq!(owed(BodyFraming::Empty, b""), 0);
    assert_eq!(owed(BodyFraming::Length(5), b""), 5);
    assert_eq!(owed(BodyFraming::Length(5), b"abc"), 2);
    assert_eq!(owed(BodyFraming::UntilClose, b"abc"), 0);
    for (bytes, owed_bytes) in [
        ("", 0),
        ("ffff\r", 0),
        ("ffff\r\n", 0xffff),
        ("5\r\nab", 3),
        ("5\r\nabcde", 0),
        ("2\r\nab\r\nffffffffffffffff\r\n", u64::MAX),
        ("0\r\n\r\n", 0),
    ] {
        assert_eq!(owed(BodyFraming::Chunked, bytes.as_bytes()), owed_bytes, "{bytes}");
    }
}

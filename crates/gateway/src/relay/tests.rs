use proptest::prelude::*;

use super::*;

/// What goes on of `bytes` when they come in pieces that end at these places.
fn through(
    bytes: &[u8],
    keeps_coding: bool,
    cuts: &[usize],
) -> Result<(Vec<u8>, usize), ParseError> {
    let mut body = Body::new(BodyFraming::Chunked, keeps_coding);
    let mut out = Vec::new();
    let mut consumed = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let mut piece = bytes[consumed..cut.max(consumed)].to_vec();
        let taken = body.take(&mut piece)?;
        out.extend_from_slice(&piece[..taken.kept]);
        consumed += taken.consumed;
        if taken.done {
            break;
        }
    }
    if body.is_done() {
        out.extend_from_slice(&body.tail(&HeaderEdits::default()));
    }
    Ok((out, consumed))
}

fn whole(bytes: &[u8]) -> Result<(Vec<u8>, usize), ParseError> {
    through(bytes, true, &[])
}

#[test]
fn a_plain_body_goes_on_as_it_came() {
    let body = b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n";
    assert_eq!(whole(body), Ok((body.to_vec(), body.len())));
    let with_next = [&body[..], b"GET"].concat();
    assert_eq!(whole(&with_next), Ok((body.to_vec(), body.len())));
}

#[test]
fn padding_zeros_and_extensions_end_here() {
    let body = b"0005 \t;a=\"b;c\";d\r\nhello\r\n00;last\r\n\r\n";
    assert_eq!(whole(body), Ok((b"5\r\nhello\r\n0\r\n\r\n".to_vec(), body.len())));
    assert_eq!(through(body, false, &[]), Ok((b"hello".to_vec(), body.len())));
}

#[test]
fn extensions_may_be_long_beside_what_they_belong_to_and_not_beside_nothing() {
    let body = |chunks: usize, extension: usize, data: usize| {
        let chunk = format!("{data:x};{}\r\n{}\r\n", "e".repeat(extension), "d".repeat(data));
        [chunk.repeat(chunks).as_bytes(), b"0\r\n\r\n"].concat()
    };
    // Signed chunks, of which more than the limit is signature.
    let signed = body(1_000, 85, 8_192);
    assert_eq!(whole(&signed).unwrap().1, signed.len());
    assert!(whole(&body(16, 1_000, 1)).is_ok());
    for endless in [body(17, 1_000, 1), body(2_000, 30, 1), body(5, 4_000, 1)] {
        assert_eq!(whole(&endless), Err(ParseError::ChunkLineTooLong));
    }
    let zeros = format!("{}1\r\nd\r\n", "0".repeat(1_000)).repeat(17);
    assert_eq!(whole(zeros.as_bytes()), Err(ParseError::ChunkLineTooLong));
    // Plain ones, of a byte each, have none.
    let plain = "1;last=of-all\r\nd\r\n".repeat(10_000) + "0\r\n\r\n";
    assert_eq!(whole(plain.as_bytes()).unwrap().1, plain.len());
}

#[test]
fn trailers_go_on_and_what_frames_a_message_does_not() {
    let body = b"1\r\nx\r\n0\r\nX-Sum:9\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(whole(body), Ok((b"1\r\nx\r\n0\r\nX-Sum: 9\r\n\r\n".to_vec(), body.len())));
    assert_eq!(through(body, false, &[]), Ok((b"x".to_vec(), body.len())));
}

#[test]
fn what_is_no_chunked_coding_is_an_error() {
    for body in [
        &b"\r\n"[..],
        b"g\r\n",
        b"-1\r\n",
        b"0x5\r\n",
        b"5 5\r\n",
        b"5\n",
        b"5\rx",
        b"5;a\nb\r\n",
        b"5;a\rb\r\n",
        b"1\r\nxy",
        b"1\r\nx\n",
        b"1\r\nx\rx",
        b"11111111111111111\r\n",
        b"0\r\n\n",
        b"0\r\n\rx",
        b"0\r\na: b\n\r\n",
        b"0\r\nno colon\r\n\r\n",
    ] {
        assert!(whole(body).is_err(), "{}", body.escape_ascii());
    }
    let endless = [&b"1;"[..], &[b'a'; 5_000]].concat();
    assert_eq!(whole(&endless), Err(ParseError::ChunkLineTooLong));
    let endless = [&b"0\r\na: "[..], &[b'a'; 20_000]].concat();
    assert_eq!(whole(&endless), Err(ParseError::TrailerTooLong));
}

#[test]
fn a_length_ends_where_it_says() {
    let mut body = Body::new(BodyFraming::Length(5), true);
    let mut bytes = *b"abcdefg";
    let taken = body.take(&mut bytes[..3]).unwrap();
    assert_eq!(taken, Taken { consumed: 3, kept: 3, payload_bytes: 3, done: false });
    let taken = body.take(&mut bytes[3..]).unwrap();
    assert_eq!(taken, Taken { consumed: 2, kept: 2, payload_bytes: 2, done: true });
    assert_eq!(body.tail(&HeaderEdits::default()), &b""[..]);
}

proptest! {
    #[test]
    fn wherever_it_is_cut_the_same_goes_on(
        chunks in prop::collection::vec((1_usize..40, 0_usize..3, prop::bool::ANY), 0..6),
        has_trailer in prop::bool::ANY,
        mut cuts in prop::collection::vec(0_usize..400, 0..12),
    ) {
        let mut body = Vec::new();
        let mut payload = Vec::new();
        for (bytes, zeros, is_extended) in chunks {
            let data: Vec<u8> = (0..bytes).map(|at| b"\r\n0;ab"[at % 6]).collect();
            body.extend_from_slice("0".repeat(zeros).as_bytes());
            body.extend_from_slice(format!("{bytes:x}{}\r\n", if is_extended { ";x" } else { "" }).as_bytes());
            body.extend_from_slice(&data);
            body.extend_from_slice(b"\r\n");
            payload.extend_from_slice(&data);
        }
        body.extend_from_slice(b"0\r\n");
        if has_trailer {
            body.extend_from_slice(b"a: b\r\n");
        }
        body.extend_from_slice(b"\r\nrest");
        let end = body.len() - 4;
        cuts.retain(|cut| *cut <= body.len());
        cuts.sort_unstable();
        prop_assert_eq!(through(&body, true, &cuts).unwrap(), whole(&body).unwrap());
        let (stripped, consumed) = through(&body, false, &cuts).unwrap();
        prop_assert_eq!(stripped, payload);
        prop_assert_eq!(consumed, end);
    }
}

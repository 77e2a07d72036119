//! The chunked coding: sizes, extensions, ends of lines, trailers.

use super::super::case::{Request, forwarded, refused, unfinished};

/// The head of a chunked request, with the body behind it.
macro_rules! chunked {
    ($body:literal) => {
        concat!("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", $body)
    };
}

pub(crate) const CASES: &[Request] = &[
    forwarded(
        "two chunks",
        "RFC 9112, 7.1",
        chunked!("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n").as_bytes(),
        &[chunked!("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")],
    ),
    forwarded(
        "a size in hexadecimal capitals",
        "RFC 9112, 7.1: digits of both cases",
        chunked!("A\r\n0123456789\r\n0\r\n\r\n").as_bytes(),
        &[chunked!("A\r\n0123456789\r\n0\r\n\r\n")],
    ),
    forwarded(
        "a chunk that looks like the last one",
        "RFC 9112, 7.1: data is as long as its size says",
        chunked!("5\r\n0\r\n\r\n\r\n0\r\n\r\n").as_bytes(),
        &[chunked!("5\r\n0\r\n\r\n\r\n0\r\n\r\n")],
    ),
    forwarded(
        "an extension",
        "RFC 9112, 7.1.1: it is for the next hop only",
        chunked!("5;a=\"b;c\";d\r\nhello\r\n0;e\r\n\r\n").as_bytes(),
        &[chunked!("5\r\nhello\r\n0\r\n\r\n")],
    ),
    forwarded(
        "zeros before a size",
        "RFC 9112, 7.1: they mean nothing, but not to those who count digits",
        chunked!("00000000000000000005\r\nhello\r\n000\r\n\r\n").as_bytes(),
        &[chunked!("5\r\nhello\r\n0\r\n\r\n")],
    ),
    forwarded(
        "spaces after a size",
        "RFC 9112, 7.1.1: bad white space, which is removed",
        chunked!("5 \t\r\nhello\r\n0 \r\n\r\n").as_bytes(),
        &[chunked!("5\r\nhello\r\n0\r\n\r\n")],
    ),
    forwarded(
        "a trailer",
        "RFC 9112, 7.1.2",
        chunked!("5\r\nhello\r\n0\r\nX-Sum:9\r\n\r\n").as_bytes(),
        &[chunked!("5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n")],
    ),
    forwarded(
        "trailers that frame and route",
        "RFC 9110, 6.5.1: they must not stand there",
        chunked!("5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nHost: b\r\n\r\n")
            .as_bytes(),
        &[chunked!("5\r\nhello\r\n0\r\n\r\n")],
    ),
    refused(
        "a size of 0x5",
        "RFC 9112, 7.1: digits",
        400,
        chunked!("0x5\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a size of +5",
        "RFC 9112, 7.1: digits",
        400,
        chunked!("+5\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a size of -5",
        "RFC 9112, 7.1: digits",
        400,
        chunked!("-5\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a size of 5_0",
        "RFC 9112, 7.1: digits",
        400,
        chunked!("5_0\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "no size",
        "RFC 9112, 7.1: at least one digit",
        400,
        chunked!("\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "no size but an extension",
        "RFC 9112, 7.1: at least one digit",
        400,
        chunked!(";a=b\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a space before a size",
        "RFC 9112, 7.1",
        400,
        chunked!(" 5\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a vertical tab after a size",
        "RFC 9112, 7.1",
        400,
        chunked!("5\x0b\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "two sizes on a line",
        "RFC 9112, 7.1",
        400,
        chunked!("5 5\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "NUL after a size",
        "RFC 9112, 7.1",
        400,
        chunked!("5\0\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a size of 2^64 + 5",
        "RFC 9112, 7.1: overflow must be prevented",
        400,
        chunked!("10000000000000005\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    unfinished(
        "a size of 2^32 + 5, of which only five come",
        "RFC 9112, 8: the message is incomplete",
        chunked!("100000005\r\nhello").as_bytes(),
    ),
    refused(
        "a size that ends in LF",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a size that ends in CR",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\rhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a size that ends in CR CR LF",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\r\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "data that ends in LF",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\r\nhello\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "data that ends in two other bytes",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\r\nhelloXX0\r\n\r\n").as_bytes(),
    ),
    refused(
        "data without an end",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\r\nhello0\r\n\r\n").as_bytes(),
    ),
    refused(
        "data longer than its size",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("3\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "data shorter than its size",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("6\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "an extension with a bare LF",
        "RFC 9112, 7.1.1: TERM.EXT, where one reads a line's end and another does not",
        400,
        chunked!("5;a\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "an extension with a bare CR",
        "RFC 9112, 7.1.1: EXT.TERM, where one reads a line's end and another does not",
        400,
        chunked!("5;a\rb\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "an extension with CR LF in quotes",
        "RFC 9110, 5.6.4: there is none in a quoted string",
        400,
        chunked!("5;a=\"\r\nb\"\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "the last chunk ends in LF",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\r\nhello\r\n0\n\r\n").as_bytes(),
    ),
    refused(
        "the body ends in LF",
        "RFC 9112, 7.1: CR LF",
        400,
        chunked!("5\r\nhello\r\n0\r\n\n").as_bytes(),
    ),
    refused(
        "a trailer that ends in LF",
        "RFC 9112, 7.1.2",
        400,
        chunked!("5\r\nhello\r\n0\r\nX: y\n\r\n").as_bytes(),
    ),
    refused(
        "a trailer without a colon",
        "RFC 9112, 7.1.2",
        400,
        chunked!("5\r\nhello\r\n0\r\nX\r\n\r\n").as_bytes(),
    ),
    refused(
        "a folded trailer",
        "RFC 9112, 5.2",
        400,
        chunked!("5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n").as_bytes(),
    ),
    refused(
        "NUL in a trailer",
        "RFC 9110, 5.5",
        400,
        chunked!("5\r\nhello\r\n0\r\nX: y\0\r\n\r\n").as_bytes(),
    ),
    refused(
        "NUL in an extension",
        "RFC 9112, 7.1.1",
        400,
        chunked!("5;a\0\r\nhello\r\n0\r\n\r\n").as_bytes(),
    ),
    refused(
        "a trailer with a bare CR",
        "RFC 9112, 2.2",
        400,
        chunked!("5\r\nhello\r\n0\r\nX: y\rz\r\n\r\n").as_bytes(),
    ),
];

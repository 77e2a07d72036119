//! Header fields: their names, their values, and lines that are neither.

use super::super::case::{Request, forwarded, refused};

/// A request with this among its headers.
macro_rules! with {
    ($field:literal) => {
        concat!("GET /a HTTP/1.1\r\nHost: a\r\n", $field, "\r\n\r\n")
    };
}

pub(crate) const CASES: &[Request] = &[
    forwarded(
        "no space after a colon",
        "RFC 9112, 5: white space around a value is optional",
        with!("X:y").as_bytes(),
        &[with!("X: y")],
    ),
    forwarded(
        "an empty value",
        "RFC 9110, 5.5: a value may be empty",
        with!("X:").as_bytes(),
        &[with!("X: ")],
    ),
    forwarded(
        "a tab within a value",
        "RFC 9110, 5.5: it may be within",
        with!("X: y\tz").as_bytes(),
        &[with!("X: y\tz")],
    ),
    forwarded(
        "the same name twice",
        "RFC 9110, 5.3: the order must not change",
        with!("X: 1\r\nY: 2\r\nX: 3").as_bytes(),
        &[with!("X: 1\r\nY: 2\r\nX: 3")],
    ),
    forwarded(
        "colons in a value",
        "RFC 9112, 5: the first colon ends the name",
        with!("X: y: z").as_bytes(),
        &[with!("X: y: z")],
    ),
    forwarded(
        "the sender's address with underscores",
        "CGI (RFC 3875, 4.1.18) reads both names alike; nobody but the gateway says who sent it",
        with!("X_Forwarded_For: 192.0.2.1").as_bytes(),
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "the scheme with one underscore",
        "CGI (RFC 3875, 4.1.18) reads both names alike",
        with!("x-forwarded_PROTO: https").as_bytes(),
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "the host with underscores",
        "CGI (RFC 3875, 4.1.18) reads both names alike",
        with!("X_FORWARDED-HOST: b").as_bytes(),
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "underscores in another name",
        "RFC 9110, 5.6.2: a token may have them",
        with!("X_Forwarded_By: b").as_bytes(),
        &[with!("X_Forwarded_By: b")],
    ),
    refused(
        "a space before a colon",
        "RFC 9112, 5.1: must be refused with 400",
        400,
        with!("X : y").as_bytes(),
    ),
    refused(
        "a space in a name",
        "RFC 9110, 5.1: a name is a token",
        400,
        with!("X Y: z").as_bytes(),
    ),
    refused(
        "a space before the first name",
        "RFC 9112, 2.2",
        400,
        b"GET /a HTTP/1.1\r\n Host: a\r\n\r\n",
    ),
    refused(
        "a folded value",
        "RFC 9112, 5.2: refused or mended",
        400,
        with!("X: y\r\n z").as_bytes(),
    ),
    refused(
        "a value folded by a tab",
        "RFC 9112, 5.2: refused or mended",
        400,
        with!("X: y\r\n\tz").as_bytes(),
    ),
    refused(
        "a folded line of spaces",
        "RFC 9112, 5.2: refused or mended",
        400,
        with!("X: y\r\n ").as_bytes(),
    ),
    refused("a line without a colon", "RFC 9112, 5", 400, with!("X").as_bytes()),
    refused("no name", "RFC 9110, 5.1: a name is at least one byte", 400, with!(": y").as_bytes()),
    refused(
        "a name with a parenthesis",
        "RFC 9110, 5.6.2: it is in no token",
        400,
        with!("X(: y").as_bytes(),
    ),
    refused(
        "a name in quotes",
        "RFC 9110, 5.6.2: it is in no token",
        400,
        with!("\"X\": y").as_bytes(),
    ),
    refused(
        "a name with a slash",
        "RFC 9110, 5.6.2: it is in no token",
        400,
        with!("X/Y: z").as_bytes(),
    ),
    refused(
        "a name with NUL",
        "RFC 9110, 5.6.2: it is in no token",
        400,
        with!("X\0: y").as_bytes(),
    ),
    refused(
        "a name with a control byte",
        "RFC 9110, 5.6.2: it is in no token",
        400,
        with!("X\x01: y").as_bytes(),
    ),
    refused(
        "a name with a vertical tab",
        "RFC 9110, 5.6.2: it is in no token",
        400,
        with!("X\x0b: y").as_bytes(),
    ),
    refused(
        "a name in UTF-8",
        "RFC 9110, 5.6.2: it is in no token",
        400,
        with!("\u{e9}: y").as_bytes(),
    ),
    refused(
        "NUL in a value",
        "RFC 9110, 5.5: must be refused or replaced",
        400,
        with!("X: y\0z").as_bytes(),
    ),
    refused(
        "a bare CR in a value",
        "RFC 9110, 5.5: must be refused or replaced",
        400,
        with!("X: y\rz").as_bytes(),
    ),
    refused("a control byte in a value", "RFC 9110, 5.5", 400, with!("X: y\x01z").as_bytes()),
    refused("DEL in a value", "RFC 9110, 5.5", 400, with!("X: y\x7fz").as_bytes()),
    refused(
        "a value that is a bare CR",
        "RFC 9110, 5.5: must be refused or replaced",
        400,
        with!("X: \r").as_bytes(),
    ),
];

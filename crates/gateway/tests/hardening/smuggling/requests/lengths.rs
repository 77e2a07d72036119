//! `Content-Length`: twice, odd, or not quite it.

use super::super::case::{Request, forwarded, refused};

pub(crate) const CASES: &[Request] = &[
    forwarded(
        "a length",
        "RFC 9112, 6.2: the body is as long as it says",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        &["POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"],
    ),
    forwarded(
        "a body that looks like a request",
        "RFC 9112, 6.2: what is in a body is no request",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r",
        &["POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r"],
    ),
    forwarded(
        "length 0, and a request behind it",
        "RFC 9112, 6.2: there is no body, so the next request begins",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
    ),
    forwarded(
        "no length",
        "RFC 9112, 6.3: a request without framing has no body",
        b"POST /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &["POST /a HTTP/1.1\r\nHost: a\r\n\r\n", "GET /b HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "a GET with a body",
        "RFC 9110, 9.3.1: its framing holds, whatever the body means",
        b"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        &["GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"],
    ),
    forwarded(
        "a HEAD with a body",
        "RFC 9112, 6.3: only the answer to a HEAD has none",
        b"HEAD /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        &["HEAD /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"],
    ),
    forwarded(
        "spaces and tabs around a length",
        "RFC 9110, 5.5: they are not part of the value",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \t 5\t \r\n\r\nhello",
        &["POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"],
    ),
    refused(
        "two lengths that differ",
        "RFC 9112, 6.3",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    ),
    refused(
        "two lengths that agree",
        "RFC 9110, 8.6: may be refused",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    ),
    refused(
        "two lengths, one in capitals",
        "RFC 9110, 5.1: names are the same in any case",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nCONTENT-LENGTH: 0\r\n\r\nhello",
    ),
    refused(
        "a list of one length twice",
        "RFC 9112, 6.3: may be refused",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
    ),
    refused(
        "a list of two lengths",
        "RFC 9112, 6.3",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 0\r\n\r\nhello",
    ),
    refused(
        "a list that ends in a comma",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5,\r\n\r\nhello",
    ),
    refused(
        "an empty length",
        "RFC 9110, 8.6: a length is at least one digit",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nhello",
    ),
    refused(
        "a length with a plus",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
    ),
    refused(
        "a negative length",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
    ),
    refused(
        "a hexadecimal length",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello",
    ),
    refused(
        "a length with an exponent",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5e0\r\n\r\nhello",
    ),
    refused(
        "a length with a fraction",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\nhello",
    ),
    refused(
        "a length with a space in it",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0 5\r\n\r\nhello",
    ),
    refused(
        "a length in quotes",
        "RFC 9110, 8.6: a length is digits",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \"5\"\r\n\r\nhello",
    ),
    refused(
        "a length of 2^64 + 5",
        "RFC 9110, 8.6: overflow is to be expected and prevented",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
    ),
    refused(
        "a length after a vertical tab",
        "RFC 9110, 5.6.3: only space and tab are white space",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \x0b5\r\n\r\nhello",
    ),
    refused(
        "a length after a form feed",
        "RFC 9110, 5.6.3: only space and tab are white space",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \x0c5\r\n\r\nhello",
    ),
    refused(
        "a length in other digits",
        "RFC 9110, 8.6: digits are those of ASCII",
        400,
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \xd9\xa5\r\n\r\nhello",
    ),
    forwarded(
        "a length that servers may take for octal",
        "RFC 9110, 8.6: digits are decimal, but not to all who read them",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 010\r\n\r\nhello67890",
        &["POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello67890"],
    ),
    forwarded(
        "a name with an underscore",
        "RFC 9110, 5.1: it is another name, and frames nothing",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[
            "POST /a HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\n",
            "GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
    ),
];

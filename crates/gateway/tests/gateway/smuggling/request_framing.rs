//! Requests with ambiguous framing: `Content-Length`, `Transfer-Encoding`, chunks and trailers.

use super::RequestOutcome::{Forwarded, Incomplete, Rejected, Unchanged};
use super::{RequestCase, request_cases};

/// A chunked request with this body.
macro_rules! chunked {
    ($body:literal) => {
        concat!("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", $body)
            .as_bytes()
    };
}

pub(crate) const CASES: &[RequestCase] = request_cases! {
    // Content-Length: repeated, malformed, misspelt.
    "Content-Length", "RFC 9112, 6.2: it is the length of the body":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" => Unchanged;
    "a body that looks like a request", "RFC 9112, 6.2: the content of a body is not parsed":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r" => Unchanged;
    "Content-Length 0 before another request", "RFC 9112, 6.2: no body; the next request follows":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n" => Forwarded(&[
            b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        ]);
    "no Content-Length", "RFC 9112, 6.3: a request without framing has no body":
        b"POST /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"
            => Forwarded(&[b"POST /a HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "a GET with a body", "RFC 9110, 9.3.1: its body is framed as usual":
        b"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" => Unchanged;
    "a HEAD with a body", "RFC 9112, 6.3: only the response to HEAD has no body":
        b"HEAD /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" => Unchanged;
    "spaces and tabs around Content-Length", "RFC 9110, 5.5: not part of the value":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \t 5\t \r\n\r\nhello"
            => Forwarded(&[b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"]);
    "two different Content-Lengths", "RFC 9112, 6.3":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!" => Rejected(400);
    "two equal Content-Lengths", "RFC 9110, 8.6: may be rejected":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello" => Rejected(400);
    "two Content-Lengths, one in upper case", "RFC 9110, 5.1: names are case-insensitive":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nCONTENT-LENGTH: 0\r\n\r\nhello" => Rejected(400);
    "a list of two equal lengths", "RFC 9112, 6.3: may be rejected":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello" => Rejected(400);
    "a list of two different lengths", "RFC 9112, 6.3":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 0\r\n\r\nhello" => Rejected(400);
    "a length that ends in a comma", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5,\r\n\r\nhello" => Rejected(400);
    "an empty Content-Length", "RFC 9110, 8.6: at least one digit":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nhello" => Rejected(400);
    "a length with a plus", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello" => Rejected(400);
    "a negative length", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello" => Rejected(400);
    "a hexadecimal length", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello" => Rejected(400);
    "a length with an exponent", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5e0\r\n\r\nhello" => Rejected(400);
    "a length with a fraction", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\nhello" => Rejected(400);
    "a length with a space in it", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0 5\r\n\r\nhello" => Rejected(400);
    "a length in quotes", "RFC 9110, 8.6: only digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \"5\"\r\n\r\nhello" => Rejected(400);
    "a length of 2^64 + 5", "RFC 9110, 8.6: overflow must be prevented":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello" => Rejected(400);
    "a length above 2^63 - 1", "RFC 9112, 6.3: a recipient must anticipate lengths that it cannot represent":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\nhello" => Rejected(400);
    "a chunk size above 2^63 - 1", "RFC 9112, 7.1: a recipient must anticipate large sizes":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8000000000000005\r\nhello" => Rejected(400);
    "a length after a vertical tab", "RFC 9110, 5.6.3: only space and tab are whitespace":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \x0b5\r\n\r\nhello" => Rejected(400);
    "a length after a form feed", "RFC 9110, 5.6.3: only space and tab are whitespace":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \x0c5\r\n\r\nhello" => Rejected(400);
    "a length in Arabic-Indic digits", "RFC 9110, 8.6: only ASCII digits":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: \xd9\xa5\r\n\r\nhello" => Rejected(400);
    "a length with a leading zero", "RFC 9110, 8.6: decimal digits; some servers read octal":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 010\r\n\r\nhello67890"
            => Forwarded(&[b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello67890"]);
    "Content_Length", "RFC 9110, 5.1: another name, without effect on framing":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n" => Forwarded(&[
            b"POST /a HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        ]);

    // Transfer-Encoding: with a length, hidden, or other than chunked. In CL.TE, TE.CL and
    // TE.TE, the first parser uses the first header and the second parser the second one.
    "chunked", "RFC 9112, 7.1":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" => Unchanged;
    "chunked in upper case", "RFC 9112, 7: codings are case-insensitive":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n" => Forwarded(&[
            b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ]);
    "CL.TE: Content-Length, then chunked", "RFC 9112, 6.3: ought to be handled as an error":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG"
            => Rejected(400);
    "TE.CL: chunked, then Content-Length", "RFC 9112, 6.3: ought to be handled as an error":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\n\
            hello\r\n0\r\n\r\n" => Rejected(400);
    "CL.TE: Content-Length 0, then chunked", "RFC 9112, 6.3: ought to be handled as an error":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            => Rejected(400);
    "TE.TE: chunked twice", "RFC 9112, 6.1: must not be applied more than once":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            => Rejected(400);
    "TE.TE: chunked, then an unknown coding", "RFC 9112, 6.3: chunked must be last":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n0\r\n\r\n"
            => Rejected(400);
    "TE.TE: an unknown coding, then chunked", "RFC 9112, 6.1: unknown codings are answered with 501":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            => Rejected(501);
    "chunked twice in a list", "RFC 9112, 6.1: must not be applied more than once":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "gzip, then chunked", "RFC 9112, 6.1: unknown codings are answered with 501":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" => Rejected(501);
    "chunked, then identity", "RFC 9112, 6.3: chunked must be last":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" => Rejected(400);
    "identity", "RFC 9112, 7: no longer a coding; chunked must be last":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"
            => Rejected(400);
    "identity and Content-Length", "RFC 9112, 6.3: both headers are present":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello"
            => Rejected(400);
    "an empty coding and Content-Length", "RFC 9112, 6.3: both headers are present":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello" => Rejected(400);
    "a list of codings that ends in a comma", "RFC 9112, 6.3: chunked must be last, for every parser":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n" => Rejected(400);
    "a list of codings that starts with a comma", "RFC 9112, 6.1: one coding, for every parser":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: , chunked\r\n\r\n0\r\n\r\n" => Rejected(501);
    "xchunked", "RFC 9112, 6.3: chunked must be last":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "chunk", "RFC 9112, 6.3: chunked must be last":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunk\r\n\r\n0\r\n\r\n" => Rejected(400);
    "chunked with a parameter", "RFC 9112, 7.1: chunked has no parameters":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n" => Rejected(400);
    "chunked in quotes", "RFC 9112, 7: a coding is a token":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n" => Rejected(400);
    "chunked after a vertical tab", "RFC 9110, 5.6.3: only space and tab are whitespace":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "chunked and NUL", "RFC 9110, 5.5":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\0\r\n\r\n0\r\n\r\n" => Rejected(400);
    "a space before the colon of Transfer-Encoding", "RFC 9112, 5.1: must be rejected with 400":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "a tab before the colon of Transfer-Encoding", "RFC 9112, 5.1: must be rejected with 400":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "a space before Transfer-Encoding, and Content-Length", "RFC 9112, 5.2: it continues the line before":
        b"POST /a HTTP/1.1\r\nHost: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello"
            => Rejected(400);
    "Transfer-Encoding with a folded value", "RFC 9112, 5.2":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "Transfer-Encoding after a bare CR", "RFC 9112, 2.2":
        b"POST /a HTTP/1.1\r\nHost: a\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "Transfer-Encoding after a bare LF", "RFC 9112, 2.2: may end a line":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\nTransfer-Encoding: chunked\r\n\r\nhello"
            => Rejected(400);
    "chunked in HTTP/1.0", "RFC 9112, 6.1: the framing is faulty":
        b"POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" => Rejected(400);
    "chunked and Content-Length in HTTP/1.0", "RFC 9112, 6.1: the framing is faulty":
        b"POST /a HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello"
            => Rejected(400);
    "Transfer_Encoding and Content-Length", "RFC 9110, 5.1: another name, without effect on framing":
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello"
            => Forwarded(&[b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"]);
    "Content-Encoding: chunked", "RFC 9112, 6.3: without effect on framing":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello" => Unchanged;

    // Chunks: sizes, extensions, ends of lines, trailers.
    "two chunks", "RFC 9112, 7.1": chunked!("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n") => Unchanged;
    "a chunk size in upper case", "RFC 9112, 7.1: digits of both cases":
        chunked!("A\r\n0123456789\r\n0\r\n\r\n") => Unchanged;
    "a chunk that looks like the last one", "RFC 9112, 7.1: the size is the length of the data":
        chunked!("5\r\n0\r\n\r\n\r\n0\r\n\r\n") => Unchanged;
    "an extension", "RFC 9112, 7.1.1: valid for one hop only":
        chunked!("5;a=\"b;c\";d\r\nhello\r\n0;e\r\n\r\n") => Forwarded(&[chunked!("5\r\nhello\r\n0\r\n\r\n")]);
    "leading zeros of a size", "RFC 9112, 7.1: without effect, except for parsers that limit digits":
        chunked!("00000000000000000005\r\nhello\r\n000\r\n\r\n") => Forwarded(&[chunked!("5\r\nhello\r\n0\r\n\r\n")]);
    "spaces after a size", "RFC 9112, 7.1.1: bad whitespace, which is removed":
        chunked!("5 \t\r\nhello\r\n0 \r\n\r\n") => Forwarded(&[chunked!("5\r\nhello\r\n0\r\n\r\n")]);
    "a trailer", "RFC 9112, 7.1.2":
        chunked!("5\r\nhello\r\n0\r\nX-Sum:9\r\n\r\n")
            => Forwarded(&[chunked!("5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n")]);
    "trailers for framing and routing", "RFC 9110, 6.5.1: not allowed in trailers":
        chunked!("5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nHost: b\r\n\r\n")
            => Forwarded(&[chunked!("5\r\nhello\r\n0\r\n\r\n")]);
    "a size of 0x5", "RFC 9112, 7.1: only digits": chunked!("0x5\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a size of +5", "RFC 9112, 7.1: only digits": chunked!("+5\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a size of -5", "RFC 9112, 7.1: only digits": chunked!("-5\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a size of 5_0", "RFC 9112, 7.1: only digits": chunked!("5_0\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "no size", "RFC 9112, 7.1: at least one digit": chunked!("\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "an extension without a size", "RFC 9112, 7.1: at least one digit":
        chunked!(";a=b\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a space before a size", "RFC 9112, 7.1": chunked!(" 5\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a vertical tab after a size", "RFC 9112, 7.1": chunked!("5\x0b\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "two sizes on a line", "RFC 9112, 7.1": chunked!("5 5\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "NUL after a size", "RFC 9112, 7.1": chunked!("5\0\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a size of 2^64 + 5", "RFC 9112, 7.1: overflow must be prevented":
        chunked!("10000000000000005\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a size of 2^32 + 5 with five bytes of data", "RFC 9112, 8: the message is incomplete":
        chunked!("100000005\r\nhello") => Incomplete;
    "a size that ends in LF", "RFC 9112, 7.1: CR LF": chunked!("5\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a size that ends in CR", "RFC 9112, 7.1: CR LF": chunked!("5\rhello\r\n0\r\n\r\n") => Rejected(400);
    "a size that ends in CR CR LF", "RFC 9112, 7.1: CR LF": chunked!("5\r\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "data that ends in LF", "RFC 9112, 7.1: CR LF": chunked!("5\r\nhello\n0\r\n\r\n") => Rejected(400);
    "data that ends in two other bytes", "RFC 9112, 7.1: CR LF": chunked!("5\r\nhelloXX0\r\n\r\n") => Rejected(400);
    "data without CR LF", "RFC 9112, 7.1: CR LF": chunked!("5\r\nhello0\r\n\r\n") => Rejected(400);
    "data longer than its size", "RFC 9112, 7.1: CR LF": chunked!("3\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "data shorter than its size", "RFC 9112, 7.1: CR LF": chunked!("6\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "an extension with a bare LF", "RFC 9112, 7.1.1: TERM.EXT, parsers differ on the end of the line":
        chunked!("5;a\nhello\r\n0\r\n\r\n") => Rejected(400);
    "an extension with a bare CR", "RFC 9112, 7.1.1: EXT.TERM, parsers differ on the end of the line":
        chunked!("5;a\rb\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "an extension with CR LF in quotes", "RFC 9110, 5.6.4: not allowed in a quoted string":
        chunked!("5;a=\"\r\nb\"\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "the last chunk ends in LF", "RFC 9112, 7.1: CR LF": chunked!("5\r\nhello\r\n0\n\r\n") => Rejected(400);
    "the body ends in LF", "RFC 9112, 7.1: CR LF": chunked!("5\r\nhello\r\n0\r\n\n") => Rejected(400);
    "a trailer that ends in LF", "RFC 9112, 7.1.2": chunked!("5\r\nhello\r\n0\r\nX: y\n\r\n") => Rejected(400);
    "a trailer without a colon", "RFC 9112, 7.1.2": chunked!("5\r\nhello\r\n0\r\nX\r\n\r\n") => Rejected(400);
    "a folded trailer", "RFC 9112, 5.2": chunked!("5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n") => Rejected(400);
    "NUL in a trailer", "RFC 9110, 5.5": chunked!("5\r\nhello\r\n0\r\nX: y\0\r\n\r\n") => Rejected(400);
    "NUL in an extension", "RFC 9112, 7.1.1": chunked!("5;a\0\r\nhello\r\n0\r\n\r\n") => Rejected(400);
    "a trailer with a bare CR", "RFC 9112, 2.2": chunked!("5\r\nhello\r\n0\r\nX: y\rz\r\n\r\n") => Rejected(400);
};

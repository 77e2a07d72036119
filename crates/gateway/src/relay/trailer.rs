//! Headers behind a chunked body.

use std::borrow::Cow;

use tollgate_wire::ParseError;

use crate::config::HeaderEdits;
use crate::forward::{is_edited, push_header};

/// How many trailers there may be.
pub(super) const TRAILERS_MAX: usize = 32;

/// Parses the trailer section `section`, which ends in an empty line, and writes it anew, behind the
/// last chunk, without what
/// may not stand there (RFC 9110, section 6.5.1): what says where a message ends, how it is to be
/// handled, or who sent it, or, of an answer, when it was made and how long it holds.
///
/// # Errors
///
/// It is no list of headers, or too long a one.
pub(super) fn filter(section: &[u8]) -> Result<Vec<u8>, ParseError> {
    let mut headers = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let mut kept = LAST_CHUNK.to_vec();
    match httparse::parse_headers(section, &mut headers)? {
        httparse::Status::Complete((_, headers)) => {
            for header in headers.iter().filter(|header| may_trail(header.name)) {
                push_header(&mut kept, header.name, header.value);
            }
        }
        httparse::Status::Partial => return Err(ParseError::ChunkEnd),
    }
    kept.extend_from_slice(b"\r\n");
    Ok(kept)
}

/// What [`filter`] has written, without the headers that a route sets or removes: what it says of a head is not
/// to be got round by saying it behind the body.
pub(super) fn edit<'a>(tail: &'a [u8], edits: &HeaderEdits) -> Cow<'a, [u8]> {
    if edits.is_empty() {
        return Cow::Borrowed(tail);
    }
    let goes_on = |line: &&[u8]| {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        !std::str::from_utf8(name).is_ok_and(|name| is_edited(edits, name))
    };
    let lines = tail.split_inclusive(|&byte| byte == b'\n');
    Cow::Owned(lines.filter(goes_on).collect::<Vec<_>>().concat())
}

const LAST_CHUNK: &[u8] = b"0\r\n";

fn may_trail(name: &str) -> bool {
    const NOT_BEHIND_A_BODY: [&str; 32] = [
        "age",
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "date",
        "expect",
        "expires",
        "forwarded",
        "host",
        "keep-alive",
        "location",
        "max-forwards",
        "pragma",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "range",
        "retry-after",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "via",
        "warning",
        "www-authenticate",
    ];
    // To many who read headers as variables, `Content_Length` is the same name.
    let name = name.to_ascii_lowercase().replace('_', "-");
    !NOT_BEHIND_A_BODY.contains(&&*name)
        && !name.starts_with("x-forwarded-")
        && !name.starts_with("if-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_how_a_message_is_read_may_not_stand_behind_it() {
        let section = b"Server-Timing: a;dur=1\r\nContent-Length: 5\r\nX-Sum:  ab \r\n\
            X-Forwarded-For: 1.2.3.4\r\nif-match: *\r\nTRANSFER-ENCODING: chunked\r\n\
            X_Forwarded_For: 1.2.3.4\r\nContent_Length: 5\r\n\r\n";
        let kept = filter(section).unwrap();
        assert_eq!(kept, b"0\r\nServer-Timing: a;dur=1\r\nX-Sum: ab\r\n\r\n");
    }

    #[test]
    fn nothing_that_frames_routes_authenticates_or_controls_stands_behind_a_body() {
        // By the kinds of RFC 7230, section 4.1.2, which RFC 9110, section 6.5.1, sums up.
        for name in [
            "Transfer-Encoding",
            "Content-Length",
            "Host",
            "Cache-Control",
            "Expect",
            "Max-Forwards",
            "Pragma",
            "Range",
            "TE",
            "If-None-Match",
            "If-Range",
            "WWW-Authenticate",
            "Authorization",
            "Proxy-Authenticate",
            "Proxy-Authorization",
            "Cookie",
            "Set-Cookie",
            "Age",
            "Expires",
            "Date",
            "Location",
            "Retry-After",
            "Vary",
            "Warning",
            "Content-Encoding",
            "Content-Type",
            "Content-Range",
            "Trailer",
            "Connection",
            "Keep-Alive",
            "Upgrade",
        ] {
            let section = format!("{name}: x\r\nETag: \"a\"\r\n\r\n");
            let kept = filter(section.as_bytes()).unwrap();
            assert_eq!(kept, b"0\r\nETag: \"a\"\r\n\r\n", "{name}");
        }
    }

    #[test]
    fn what_a_route_sets_or_removes_is_not_said_behind_a_body_either() {
        let kept = filter(b"X-User: evil\r\nX-Sum: 9:9\r\nx-debug: a\r\n\r\n").unwrap();
        assert_eq!(edit(&kept, &HeaderEdits::default()), &kept[..]);
        let edits = HeaderEdits {
            set: vec![("x-user".into(), "me".into())],
            remove: vec!["x-debug".into()],
        };
        assert_eq!(edit(&kept, &edits), &b"0\r\nX-Sum: 9:9\r\n\r\n"[..]);
    }

    #[test]
    fn what_is_no_header_is_an_error() {
        for section in
            [&b"no colon\r\n\r\n"[..], b"a b: c\r\n\r\n", b"a: b\0\r\n\r\n", b" a: b\r\n\r\n"]
        {
            assert!(filter(section).is_err(), "{}", section.escape_ascii());
        }
    }
}

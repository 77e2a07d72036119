//! Headers behind a chunked body.

use tollgate_wire::ParseError;

use crate::forward::push_header;

/// How many trailers there may be.
pub(super) const TRAILERS_MAX: usize = 32;

/// Parses the trailer section `section`, which ends in an empty line, and writes it anew, behind the
/// last chunk, without what
/// may not stand there (RFC 9110, section 6.5.1): what says where a message ends, how it is to be
/// handled, or who sent it.
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

const LAST_CHUNK: &[u8] = b"0\r\n";

fn may_trail(name: &str) -> bool {
    const NOT_BEHIND_A_BODY: [&str; 24] = [
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "location",
        "max-forwards",
        "proxy-authorization",
        "proxy-connection",
        "range",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
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
    fn what_is_no_header_is_an_error() {
        for section in
            [&b"no colon\r\n\r\n"[..], b"a b: c\r\n\r\n", b"a: b\0\r\n\r\n", b" a: b\r\n\r\n"]
        {
            assert!(filter(section).is_err(), "{}", section.escape_ascii());
        }
    }
}

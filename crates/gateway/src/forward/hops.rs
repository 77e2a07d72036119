//! How often a TRACE or an OPTIONS may still be passed on (RFC 9110, section 7.6.2), and what the last one
//! answers.

use tollgate_wire::{RequestHead, Version};

use super::push_header;
use crate::phase::OwnAnswer;

const NAME: &str = "Max-Forwards";

/// There are several, or one that is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultyHops;

/// How often this request may be passed on, this time included. None: as often as it takes.
///
/// # Errors
///
/// What is said of it could be read in two ways.
pub(crate) fn hops(head: &RequestHead<'_>) -> Result<Option<u32>, FaultyHops> {
    if !are_counted(head.method) {
        return Ok(None);
    }
    let mut values = head.headers.all(NAME);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) if is_number(value) => Ok(Some(number(value))),
        _ => Err(FaultyHops),
    }
}

/// Whether a header of this name is counted down in a request of this method. Of others it is passed on.
pub(super) fn is_count(method: &str, name: &str) -> bool {
    are_counted(method) && name.eq_ignore_ascii_case(NAME)
}

/// Writes how often it may be passed on after this time.
pub(super) fn push_one_less(out: &mut Vec<u8>, value: &[u8]) {
    let left = number(value).saturating_sub(1);
    push_header(out, NAME, left.to_string().as_bytes());
}

/// What the one answers who may not pass it on.
pub(crate) fn last_hop(head: &RequestHead<'_>) -> OwnAnswer {
    let (headers, body) = if head.method == "TRACE" {
        (vec![("Content-Type".to_owned(), "message/http".to_owned())], reflection(head))
    } else {
        (Vec::new(), Vec::new())
    };
    OwnAnswer { status: 200, reason: "OK".to_owned(), headers, body }
}

/// The request as it came, without what nobody but the origin is to know (RFC 9110, section 9.3.8).
fn reflection(head: &RequestHead<'_>) -> Vec<u8> {
    let version = match head.version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
    };
    let mut out = format!("{} {} HTTP/{version}\r\n", head.method, head.target).into_bytes();
    for (name, value) in head.headers.iter().filter(|(name, _)| !is_secret(name)) {
        push_header(&mut out, name, value);
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn is_secret(name: &str) -> bool {
    ["authorization", "cookie", "proxy-authorization"]
        .iter()
        .any(|secret| name.eq_ignore_ascii_case(secret))
}

fn are_counted(method: &str) -> bool {
    matches!(method, "TRACE" | "OPTIONS")
}

fn is_number(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_digit)
}

/// A number, or the highest there is: who asks for more is not asking where a request goes.
fn number(digits: &[u8]) -> u32 {
    let push = |number: u32, digit: &u8| {
        number.saturating_mul(10).saturating_add(u32::from(digit.saturating_sub(b'0')))
    };
    digits.iter().fold(0, push)
}

#[cfg(test)]
mod tests {
    use tollgate_wire::parse_request_head;

    use super::*;

    fn of(head: &str) -> Result<Option<u32>, FaultyHops> {
        hops(&parse_request_head(head.as_bytes()).unwrap().unwrap())
    }

    #[test]
    fn hops_are_counted_where_rfc_9110_has_them_counted() {
        for (method, lines, expected) in [
            ("TRACE", "Max-Forwards: 3\r\n", Ok(Some(3))),
            ("OPTIONS", "max-forwards: 007\r\n", Ok(Some(7))),
            ("OPTIONS", "Max-Forwards: 0\r\n", Ok(Some(0))),
            ("TRACE", "Max-Forwards: 4294967296\r\n", Ok(Some(u32::MAX))),
            ("TRACE", "Max-Forwards: 99999999999999999999999999\r\n", Ok(Some(u32::MAX))),
            ("TRACE", "", Ok(None)),
            ("GET", "Max-Forwards: 0\r\n", Ok(None)),
            ("GET", "Max-Forwards: x\r\n", Ok(None)),
            ("TRACE", "Max-Forwards: \r\n", Err(FaultyHops)),
            ("TRACE", "Max-Forwards: -1\r\n", Err(FaultyHops)),
            ("TRACE", "Max-Forwards: 1, 2\r\n", Err(FaultyHops)),
            ("TRACE", "Max-Forwards: 1\r\nMax-Forwards: 1\r\n", Err(FaultyHops)),
        ] {
            let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            assert_eq!(of(&head), expected, "{head}");
        }
    }
}

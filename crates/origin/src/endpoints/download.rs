//! `/download`: so many bytes, as a file that can be fetched in part and on conditions (RFC 9110).

use crate::answer::{Answer, Body};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

const DEFAULT_CHUNK_BYTES: u64 = 2048;
const MAX_CHUNK_BYTES: u64 = 1 << 20;
const DEFAULT_CHUNKS: u64 = 10;
const MAX_BYTES: u64 = 1 << 30;

const OCTETS: &[u8] = b"application/octet-stream";

/// A file of `size` bytes, by default ten times `chunk_size`. Chunks leave together, as many as the
/// kernel takes at once: a size of chunks that is smaller than that changes nothing else.
pub(crate) fn download<'a>(
    request: &Request<'a>,
    _site: &mut Site,
) -> Result<Plan<'a>, Refusal<'a>> {
    let chunk_bytes = request.query.bytes("chunk_size", DEFAULT_CHUNK_BYTES, 1, MAX_CHUNK_BYTES)?;
    let size = request.query.bytes("size", DEFAULT_CHUNKS * chunk_bytes, 0, MAX_BYTES)?;
    let etag = format!("\"{size}\"");
    match condition(request, etag.as_bytes()) {
        Condition::Holds => {}
        Condition::NotModified => {
            return Ok(Plan::Answer(Answer::bodyless(304, format!("ETag: {etag}\r\n"))));
        }
        Condition::Fails => return Err(Refusal::Precondition { etag_bytes: size }),
    }
    let lines = format!("ETag: {etag}\r\nAccept-Ranges: bytes\r\n");
    let answer = match range(request, etag.as_bytes(), size) {
        Selected::All => Answer::ok(OCTETS, lines, Body::Filler(size)),
        Selected::Part { first, last } => {
            let lines = format!("{lines}Content-Range: bytes {first}-{last}/{size}\r\n");
            let body = Body::Filler(last - first + 1);
            Answer { status: 206, ..Answer::ok(OCTETS, lines, body) }
        }
        Selected::Nothing => return Err(Refusal::Range { size }),
    };
    Ok(Plan::Answer(answer))
}

#[derive(Debug, PartialEq, Eq)]
enum Condition {
    Holds,
    NotModified,
    Fails,
}

/// RFC 9110, section 13.2.2, for a file without a date: its conditions are ignored.
fn condition(request: &Request<'_>, etag: &[u8]) -> Condition {
    if request.headers.first("If-Match").is_some()
        && !request.headers.all("If-Match").any(|list| is_listed(list, etag, Comparison::Strong))
    {
        return Condition::Fails;
    }
    if request.headers.all("If-None-Match").any(|list| is_listed(list, etag, Comparison::Weak)) {
        return match request.method {
            "GET" | "HEAD" => Condition::NotModified,
            _ => Condition::Fails,
        };
    }
    Condition::Holds
}

/// How two entity tags are compared (RFC 9110, section 8.8.3.2). Ours is strong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether `list` is `*` or has `etag` in it. What is no list of entity tags has no others after it.
fn is_listed(list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    loop {
        rest = rest.trim_ascii_start();
        while let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
        }
        let (is_weak, opaque) = match rest.strip_prefix(b"W/") {
            Some(opaque) => (true, opaque),
            None => (false, rest),
        };
        let Some(quoted) = opaque.strip_prefix(b"\"") else { return false };
        let Some(end) = quoted.iter().position(|&byte| byte == b'"') else { return false };
        let tag = &opaque[..end + 2];
        if tag == etag && (comparison == Comparison::Weak || !is_weak) {
            return true;
        }
        rest = &opaque[end + 2..];
    }
}

/// What of a file is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Selected {
    All,
    Part { first: u64, last: u64 },
    Nothing,
}

/// RFC 9110, section 14.2: for GET alone, and only one range of bytes. A server may give the whole
/// instead, as this does when several are asked for, or when it cannot read which.
fn range(request: &Request<'_>, etag: &[u8], size: u64) -> Selected {
    let mut ranges = request.headers.all("Range");
    let (Some(range), None, "GET") = (ranges.next(), ranges.next(), request.method) else {
        return Selected::All;
    };
    // A condition that names another tag, or a date, which this file has not.
    if request.headers.first("If-Range").is_some_and(|validator| validator != etag) {
        return Selected::All;
    }
    let Some((unit, range)) = std::str::from_utf8(range).ok().and_then(|text| text.split_once('='))
    else {
        return Selected::All;
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Selected::All;
    }
    // A list may have empty elements.
    let mut elements = range.split(',').map(str::trim).filter(|element| !element.is_empty());
    let (Some(element), None) = (elements.next(), elements.next()) else {
        return Selected::All;
    };
    match element.split_once('-') {
        Some(("", suffix)) => match (decimal(suffix), size) {
            (Some(0), _) => Selected::Nothing,
            // There is no range of a file without bytes, and yet this one is satisfied.
            (None, _) | (_, 0) => Selected::All,
            (Some(bytes), _) => Selected::Part { first: size - bytes.min(size), last: size - 1 },
        },
        Some((first, last)) => {
            let last = if last.is_empty() { Some(u64::MAX) } else { decimal(last) };
            match (decimal(first), last) {
                (Some(first), Some(last)) if first > last => Selected::All,
                (Some(first), Some(_)) if first >= size => Selected::Nothing,
                (Some(first), Some(last)) => Selected::Part { first, last: last.min(size - 1) },
                _ => Selected::All,
            }
        }
        None => Selected::All,
    }
}

/// A number, however large: what does not fit is behind the end of every file.
fn decimal(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::{ask, text};
    use crate::site::made_up::site;

    fn get(target: &str, lines: &str) -> Answer<'static> {
        ask(&mut site(), &format!("GET /download{target}"), lines, b"")
    }

    /// Status, and first and last byte.
    fn part(range: &str) -> (u16, String) {
        let answer = get("?size=1000", &format!("Range: {range}\r\n"));
        let range =
            answer.lines.split("\r\n").find_map(|line| line.strip_prefix("Content-Range: "));
        (answer.status, range.unwrap_or("").to_owned())
    }

    #[test]
    fn a_file_is_as_large_as_it_should_be() {
        for (target, bytes) in [
            ("", 20_480),
            ("?chunk_size=1", 10),
            ("?chunk_size=1048576&size=5", 5),
            ("?size=0", 0),
            ("?size=1073741824", 1 << 30),
        ] {
            let answer = get(target, "");
            assert_eq!((answer.status, answer.body), (200, Body::Filler(bytes)), "{target}");
            assert_eq!(&answer.content_type[..], OCTETS);
            assert_eq!(answer.lines, format!("ETag: \"{bytes}\"\r\nAccept-Ranges: bytes\r\n"));
        }
        for (target, status) in [
            ("?size=x", 400),
            ("?chunk_size=0", 400),
            ("?chunk_size=1048577", 413),
            ("?size=1073741825", 413),
        ] {
            assert_eq!(get(target, "").status, status, "{target}");
        }
    }

    #[test]
    fn one_range_is_given() {
        for (range, expected) in [
            ("bytes=0-0", "bytes 0-0/1000"),
            ("bytes=0-", "bytes 0-999/1000"),
            ("BYTES= 10-19 ", "bytes 10-19/1000"),
            ("bytes=,10-19,", "bytes 10-19/1000"),
            ("bytes=999-99999999999999999999999", "bytes 999-999/1000"),
            ("bytes=-1", "bytes 999-999/1000"),
            ("bytes=-5000", "bytes 0-999/1000"),
        ] {
            assert_eq!(part(range), (206, expected.to_owned()), "{range}");
        }
        assert_eq!(get("?size=1000", "Range: bytes=10-19\r\n").body, Body::Filler(10));
        assert_eq!(get("?size=0", "Range: bytes=-5\r\n").status, 200);
    }

    #[test]
    fn what_is_behind_the_end_cannot_be_given() {
        for range in
            ["bytes=1000-", "bytes=1000-2000", "bytes=99999999999999999999999-", "bytes=-0"]
        {
            assert_eq!(part(range), (416, "bytes */1000".to_owned()), "{range}");
        }
        let refused = get("?size=5", "Range: bytes=5-\r\n");
        assert_eq!(
            text(&refused),
            "{\"error\":\"the range begins behind the end; there are 5 bytes\"}"
        );
    }

    #[test]
    fn what_is_no_single_range_of_bytes_is_ignored() {
        for range in [
            "bytes=0-1,3-4",
            "bytes=5-4",
            "bytes=",
            "bytes",
            "bytes=a-b",
            "bytes=-",
            "bytes=1",
            "items=0-1",
            "bytes=+1-2",
            "bytes=1-2\r\nRange: bytes=3-4",
        ] {
            assert_eq!(part(range), (200, String::new()), "{range}");
        }
        let head = ask(&mut site(), "HEAD /download", "Range: bytes=0-0\r\n", b"");
        assert_eq!((head.status, head.body), (200, Body::Filler(20_480)));
    }

    #[test]
    fn conditions_are_looked_at_in_their_order() {
        for (lines, status) in [
            ("If-None-Match: \"5\"\r\n", 304),
            ("If-None-Match: W/\"5\"\r\n", 304),
            ("If-None-Match: \"4\" , ,\"a,b\",W/\"5\"\r\n", 304),
            ("If-None-Match: \"4\"\r\nIf-None-Match: \"5\"\r\n", 304),
            ("If-None-Match: *\r\n", 304),
            ("If-None-Match: \"4\"\r\n", 200),
            ("If-None-Match: 5\r\n", 200),
            ("If-None-Match: \"5\r\n", 200),
            ("If-Match: \"5\"\r\n", 200),
            ("If-Match: *\r\n", 200),
            ("If-Match: W/\"5\"\r\n", 412),
            ("If-Match: \"4\"\r\n", 412),
            ("If-Match: \"4\"\r\nIf-None-Match: \"5\"\r\n", 412),
            ("If-Match: \"5\"\r\nIf-None-Match: \"5\"\r\n", 304),
            ("If-None-Match: \"5\"\r\nRange: bytes=0-0\r\n", 304),
            ("If-Match: \"5\"\r\nRange: bytes=0-0\r\n", 206),
            ("Range: bytes=0-0\r\nIf-Range: \"5\"\r\n", 206),
            ("Range: bytes=0-0\r\nIf-Range: \"4\"\r\n", 200),
            ("Range: bytes=0-0\r\nIf-Range: W/\"5\"\r\n", 200),
            ("Range: bytes=0-0\r\nIf-Range: Wed, 21 Oct 2026 07:28:00 GMT\r\n", 200),
        ] {
            assert_eq!(get("?size=5", lines).status, status, "{lines}");
        }
        let not_modified = get("?size=5", "If-None-Match: *\r\n");
        assert_eq!((not_modified.body, &*not_modified.lines), (Body::Never, "ETag: \"5\"\r\n"));
        let mut site = site();
        assert_eq!(ask(&mut site, "PUT /download?size=5", "If-None-Match: *\r\n", b"").status, 412);
        assert_eq!(
            ask(&mut site, "HEAD /download?size=5", "If-None-Match: *\r\n", b"").status,
            304
        );
    }
}

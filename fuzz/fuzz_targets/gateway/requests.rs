//! Gateway, client side: for any split of the bytes, the backend receives exactly the requests that the oracle finds, in
//! order and up to the first rejected one.
//!
//! Input: one byte that determines the pieces, then the bytes of the client.

#![no_main]

mod oracle;
#[path = "../pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use oracle::{Parsed, Request};
use pieces::pieces;
use tollgate_gateway::fuzzing::{Reply, Talk, talk};

fuzz_target!(|input: &[u8]| {
    let [seed, sent @ ..] = input else { return };
    let (received, whole) = pass(std::iter::once(sent));
    check(sent, &received, &whole);
    let (received_in_pieces, in_pieces) = pass(pieces(sent, *seed));
    assert_eq!(received_in_pieces, received);
    check(sent, &received_in_pieces, &in_pieces);
    // An incomplete head is parsed again only when a line ends, so an error may be found in the whole only.
    assert!(
        undated(&whole.received).starts_with(&undated(&in_pieces.received)),
        "{} but in pieces {}",
        whole.received.escape_ascii(),
        in_pieces.received.escape_ascii()
    );
});

/// Returns the requests that the backend receives, and the rest of the exchange.
fn pass<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Talk) {
    let mut received = Vec::new();
    let talk = talk(pieces, |bytes| match oracle::request(bytes) {
        Parsed::Complete(request, consumed) => {
            received.push(bytes[..consumed].to_vec());
            let body = if request.method == "HEAD" { "" } else { "ok" };
            let response =
                format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").into_bytes();
            Some(Reply { consumed, pieces: vec![response], closes: false })
        }
        Parsed::Partial => None,
        Parsed::Invalid => panic!("the backend receives {}", bytes.escape_ascii()),
    });
    (received, talk)
}

/// Removes the `Date` lines of the gateway.
fn undated(received: &[u8]) -> Vec<u8> {
    let lines = received.split_inclusive(|&byte| byte == b'\n');
    lines.filter(|line| !line.starts_with(b"Date: ")).collect::<Vec<_>>().concat()
}

fn check(sent: &[u8], received: &[Vec<u8>], talk: &Talk) {
    let mut rest = sent;
    let mut responses = &talk.received[..];
    for bytes in received {
        skip_local_responses(&mut rest, &mut responses);
        let (Parsed::Complete(original, consumed), Parsed::Complete(forwarded, _)) =
            (oracle::request(rest), oracle::request(bytes))
        else {
            panic!("{} parsed from {}", bytes.escape_ascii(), rest.escape_ascii());
        };
        rest = &rest[consumed..];
        compare(&original, &forwarded);
        let to_head = bytes.starts_with(b"HEAD ");
        let Parsed::Complete(response, consumed) = oracle::response(responses, to_head) else {
            panic!("no response to {} in {}", bytes.escape_ascii(), responses.escape_ascii());
        };
        assert_eq!(
            (response.status, &response.body[..]),
            (200, if to_head { b"" } else { &b"ok"[..] })
        );
        responses = &responses[consumed..];
    }
    assert!(talk.incomplete.len() <= 1, "{:?}", talk.incomplete);
    skip_local_responses(&mut rest, &mut responses);
    // One response to each, and possibly an error response.
    if responses.is_empty() {
        return;
    }
    // A HEAD that the gateway could parse is rejected without a body.
    let mut error_response = oracle::response(responses, false);
    if !matches!(error_response, Parsed::Complete(..))
        && rest.trim_ascii_start().starts_with(b"HEAD ")
    {
        error_response = oracle::response(responses, true);
    }
    let Parsed::Complete(error_response, consumed) = error_response else {
        panic!("not an error response: {}", responses.escape_ascii());
    };
    let is_error_response =
        [400, 405, 413, 414, 417, 431, 501, 505].contains(&error_response.status);
    assert!(is_error_response && consumed == responses.len(), "{}", responses.escape_ascii());
}

/// Skips requests with a local response, and these responses.
fn skip_local_responses(rest: &mut &[u8], responses: &mut &[u8]) {
    while let Parsed::Complete(original, consumed) = oracle::request(rest)
        && let is_head = original.method == "HEAD"
        && let Parsed::Complete(response, response_bytes) = oracle::response(responses, is_head)
        && match response.status {
            200 => hops(&original).is_some_and(|hops| hops.iter().all(|&digit| digit == b'0')),
            405 => original.method == "TRACE",
            417 => original.headers.iter().any(|(name, _)| name == "expect"),
            _ => false,
        }
    {
        *rest = &rest[consumed..];
        *responses = &responses[response_bytes..];
    }
}

/// Returns the value of a valid `Max-Forwards`.
fn hops(original: &Request) -> Option<&[u8]> {
    let mut values = original.headers.iter().filter(|(name, _)| name == "max-forwards");
    let (_, digits) = values.next()?;
    let is_counted = matches!(&original.method[..], "TRACE" | "OPTIONS");
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    (is_counted && is_number && values.next().is_none()).then_some(digits)
}

/// Checks that a forwarded request differs only in hop-by-hop headers and the form of its framing.
fn compare(original: &Request, forwarded: &Request) {
    assert_eq!(forwarded.method, original.method);
    assert!(!forwarded.is_http_1_0);
    assert_eq!(forwarded.body, original.body);
    if original.target.starts_with('/') {
        assert!(forwarded.target == original.target || has_dots(&original.target));
    } else {
        let is_end = original.target.ends_with(forwarded.target.trim_start_matches('/'));
        assert!(forwarded.target == "*" || (forwarded.target.starts_with('/') && is_end));
    }
    let options: Vec<String> = original
        .headers
        .iter()
        .filter(|(name, _)| name == "connection")
        .flat_map(|(_, value)| value.split(|&byte| byte == b','))
        .map(|option| String::from_utf8_lossy(option.trim_ascii()).to_ascii_lowercase())
        .collect();
    let is_kept = |(name, _): &&(String, Vec<u8>)| {
        !is_hop_by_hop(name)
            && !options.contains(name)
            && !(original.is_http_1_0 && name == "expect")
            && !name.contains('_')
            && !REPLACED.contains(&&name[..])
            && !is_decremented(name, original)
    };
    let expected: Vec<_> = original.headers.iter().filter(is_kept).collect();
    let found: Vec<_> = forwarded
        .headers
        .iter()
        .filter(|(name, _)| !is_hop_by_hop(name) && !is_decremented(name, forwarded))
        .collect();
    assert_eq!(hops(forwarded).is_some(), hops(original).is_some());
    assert_eq!(found, expected);
    let all = |name: &str| forwarded.headers.iter().filter(|(found, _)| found == name).count();
    assert_eq!(all("host"), 1);
    assert!(all("content-length") + all("transfer-encoding") <= 1);
    assert!(all("connection") == all("upgrade") && all("upgrade") <= 1);
    assert_eq!(all("keep-alive") + all("te") + all("proxy-connection"), 0);
}

/// True if a segment of the path is `.` or `..`, which the gateway resolves.
fn has_dots(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default().to_lowercase().replace("%2e", ".");
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// Headers that an untrusted client cannot set.
const REPLACED: [&str; 17] = [
    "forwarded",
    "proxy",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-original-host",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];

/// Forwarded with a value less by one.
fn is_decremented(name: &str, of: &Request) -> bool {
    name == "max-forwards" && hops(of).is_some()
}

/// Rewritten or not forwarded.
fn is_hop_by_hop(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "upgrade",
    ];
    NAMES.contains(&name)
}

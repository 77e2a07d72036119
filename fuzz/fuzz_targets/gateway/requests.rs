//! Whatever a client sends, an origin behind the gateway sees the requests that a second reader finds in it,
//! in their order and up to one that is refused, and sees no other; however the bytes are split.
//!
//! The input is one byte from which the pieces follow, and what the client sends.

#![no_main]

#[path = "../pieces.rs"]
mod pieces;
#[expect(dead_code, reason = "answers are made up by this program, and hardly read")]
mod reading;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use reading::{Reading, Request};
use tollgate_gateway::fuzzing::{Reply, Talk, talk};

fuzz_target!(|input: &[u8]| {
    let [seed, sent @ ..] = input else { return };
    let (seen, whole) = pass(std::iter::once(sent));
    check(sent, &seen, &whole);
    let (seen_in_pieces, in_pieces) = pass(pieces(sent, *seed));
    assert_eq!(seen_in_pieces, seen);
    check(sent, &seen_in_pieces, &in_pieces);
    // A head that is faulty and does not end is looked at only with each of its lines. The two may have been
    // answered in different seconds.
    assert!(
        undated(&whole.received).starts_with(&undated(&in_pieces.received)),
        "{} but in pieces {}",
        whole.received.escape_ascii(),
        in_pieces.received.escape_ascii()
    );
});

/// The requests that an origin sees, and the rest of what happens.
fn pass<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Talk) {
    let mut seen = Vec::new();
    let talk = talk(pieces, |bytes| match reading::request(bytes) {
        Reading::Whole(request, consumed) => {
            seen.push(bytes[..consumed].to_vec());
            let body = if request.method == "HEAD" { "" } else { "ok" };
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").into_bytes();
            Some(Reply { consumed, pieces: vec![answer], closes: false })
        }
        Reading::Unfinished => None,
        Reading::Faulty => panic!("an origin sees {}", bytes.escape_ascii()),
    });
    (seen, talk)
}

/// What came, without the lines that say when the gateway answered.
fn undated(received: &[u8]) -> Vec<u8> {
    let lines = received.split_inclusive(|&byte| byte == b'\n');
    lines.filter(|line| !line.starts_with(b"Date: ")).collect::<Vec<_>>().concat()
}

fn check(sent: &[u8], seen: &[Vec<u8>], talk: &Talk) {
    let mut rest = sent;
    let mut answers = &talk.received[..];
    for bytes in seen {
        pass_over_last_hops(&mut rest, &mut answers);
        let (Reading::Whole(asked, consumed), Reading::Whole(passed, _)) =
            (reading::request(rest), reading::request(bytes))
        else {
            panic!("{} is found in {}", bytes.escape_ascii(), rest.escape_ascii());
        };
        rest = &rest[consumed..];
        compare(&asked, &passed);
        let to_head = bytes.starts_with(b"HEAD ");
        let Reading::Whole(answer, consumed) = reading::answer(answers, to_head) else {
            panic!("no answer to {} in {}", bytes.escape_ascii(), answers.escape_ascii());
        };
        assert_eq!(
            (answer.status, &answer.body[..]),
            (200, if to_head { b"" } else { &b"ok"[..] })
        );
        answers = &answers[consumed..];
    }
    assert!(talk.begun.len() <= 1, "{:?}", talk.begun);
    pass_over_last_hops(&mut rest, &mut answers);
    // One answer to each, and perhaps a refusal.
    if answers.is_empty() {
        return;
    }
    // A HEAD that the gateway could read is refused without a body.
    let mut refusal = reading::answer(answers, false);
    if !matches!(refusal, Reading::Whole(..)) && rest.trim_ascii_start().starts_with(b"HEAD ") {
        refusal = reading::answer(answers, true);
    }
    let Reading::Whole(refusal, consumed) = refusal else {
        panic!("no refusal is {}", answers.escape_ascii());
    };
    let is_refusal = [400, 413, 414, 431, 501, 505].contains(&refusal.status);
    assert!(is_refusal && consumed == answers.len(), "{}", answers.escape_ascii());
}

/// Requests that no origin sees, since they say that they may not be passed on: the gateway has answered them, or
/// has refused them for another reason.
fn pass_over_last_hops(rest: &mut &[u8], answers: &mut &[u8]) {
    while let Reading::Whole(asked, consumed) = reading::request(rest)
        && hops(&asked).is_some_and(|hops| hops.iter().all(|&digit| digit == b'0'))
        && let Reading::Whole(answer, answer_bytes) = reading::answer(answers, false)
        && answer.status == 200
    {
        *rest = &rest[consumed..];
        *answers = &answers[answer_bytes..];
    }
}

/// How often a request may be passed on, if it says so in the one way that is understood.
fn hops(asked: &Request) -> Option<&[u8]> {
    let mut said = asked.headers.iter().filter(|(name, _)| name == "max-forwards");
    let (_, digits) = said.next()?;
    let is_counted = matches!(&asked.method[..], "TRACE" | "OPTIONS");
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    (is_counted && is_number && said.next().is_none()).then_some(digits)
}

/// What may differ between a request as it was sent and as it was passed on is what belongs to one
/// connection, and the form of what frames it.
fn compare(asked: &Request, passed: &Request) {
    assert_eq!(passed.method, asked.method);
    assert!(!passed.is_http_1_0);
    assert_eq!(passed.body, asked.body);
    if asked.target.starts_with('/') {
        assert_eq!(passed.target, asked.target);
    } else {
        let is_end = asked.target.ends_with(passed.target.trim_start_matches('/'));
        assert!(passed.target == "*" || (passed.target.starts_with('/') && is_end));
    }
    let options: Vec<String> = asked
        .headers
        .iter()
        .filter(|(name, _)| name == "connection")
        .flat_map(|(_, value)| value.split(|&byte| byte == b','))
        .map(|option| String::from_utf8_lossy(option.trim_ascii()).to_ascii_lowercase())
        .collect();
    let stays = |(name, _): &&(String, Vec<u8>)| {
        !ends_here(name)
            && !options.contains(name)
            && !(asked.is_http_1_0 && name == "expect")
            && !SAID_ANEW.contains(&&name.replace('_', "-")[..])
            && !is_counted_down(name, asked)
    };
    let expected: Vec<_> = asked.headers.iter().filter(stays).collect();
    let found: Vec<_> = passed
        .headers
        .iter()
        .filter(|(name, _)| !ends_here(name) && !is_counted_down(name, passed))
        .collect();
    assert_eq!(hops(passed).is_some(), hops(asked).is_some());
    assert_eq!(found, expected);
    let all = |name: &str| passed.headers.iter().filter(|(found, _)| found == name).count();
    assert_eq!(all("host"), 1);
    assert!(all("content-length") + all("transfer-encoding") <= 1);
    assert!(all("connection") == all("upgrade") && all("upgrade") <= 1);
    assert_eq!(all("keep-alive") + all("te") + all("proxy-connection"), 0);
}

/// What a client that is not trusted may not say, with hyphens or with underscores.
const SAID_ANEW: [&str; 4] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];

/// Passed on as one less.
fn is_counted_down(name: &str, of: &Request) -> bool {
    name == "max-forwards" && hops(of).is_some()
}

/// Written anew, or not passed on.
fn ends_here(name: &str) -> bool {
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

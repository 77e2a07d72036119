//! Tests of sessions.

use std::io::Write as _;
use std::sync::Arc;

use flate2::write::GzEncoder;

use super::*;
use crate::RuleSet;

const RULES: &str = "SecRequestBodyAccess On\nSecResponseBodyAccess On\nSecRequestBodyLimit 100\n\
    SecRequestBodyNoFilesLimit 100\nSecResponseBodyLimit 100\n\
    SecRule REQUEST_URI \"@contains evil\" \"id:1,phase:1,deny,status:404\"\n\
    SecRule ARGS|REQUEST_BODY \"@contains attack\" \"id:2,phase:2,deny\"\n\
    SecRule RESPONSE_STATUS \"@streq 500\" \"id:3,phase:3,deny,status:502\"\n\
    SecRule RESPONSE_BODY \"@contains leak\" \"id:4,phase:4,deny\"\n\
    SecRule RESPONSE_STATUS \"@streq 201\" \"id:5,phase:4,deny,status:405\"";

struct Case {
    session: Session,
    worker: Worker,
}

impl Case {
    fn new(settings: &str, options: SessionOptions) -> Self {
        let text = format!("SecRuleEngine On\n{RULES}\n{settings}");
        let rules = RuleSet::builder().text("t.conf", text).build().unwrap();
        let session = Session::new(Transaction::new(Arc::new(rules)), options);
        Self { session, worker: Worker::new() }
    }

    fn request(&mut self, target: &str, coding: &str, body: BodyLength) -> Next {
        self.session.request_line(b"POST", target.as_bytes(), b"HTTP/1.1");
        self.session.header(
            Direction::Request,
            b"Content-Type",
            b"application/x-www-form-urlencoded",
        );
        self.session.header(Direction::Request, b"Content-Encoding", coding.as_bytes());
        self.session.end_head(Direction::Request, body, &mut self.worker)
    }

    fn response(&mut self, status: u16, coding: &str, body: BodyLength) -> Next {
        self.session.response_line(b"HTTP/1.1", status);
        self.session.header(Direction::Response, b"Content-Type", b"text/html");
        self.session.header(Direction::Response, b"Content-Encoding", coding.as_bytes());
        self.session.end_head(Direction::Response, body, &mut self.worker)
    }

    /// The status with which rules block the message, or 0.
    fn run(&mut self, direction: Direction) -> u16 {
        status(&self.session.run(direction, &mut self.worker))
    }
}

/// Status of a block, 0 of a pass.
fn status(next: &Next) -> u16 {
    match next {
        Next::Block(block) => block.status,
        Next::Pass => 0,
        other => panic!("{other:?}"),
    }
}

const SHORT: Next = Next::Run(Extent::Short);
const LONG: Next = Next::Run(Extent::Long);

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn options(compression: Compression) -> SessionOptions {
    SessionOptions {
        request_compression: compression,
        response_compression: compression,
        ..SessionOptions::default()
    }
}

#[test]
fn head_and_body_of_a_request_are_blocked_by_their_rules() {
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(status(&case.request("/evil", "", BodyLength::Unknown)), 404);
    assert!(case.session.is_blocked());
    for (pieces, expected) in [(["q=att", "ack"], 403), (["q=a", "b"], 0)] {
        let mut case = Case::new("", SessionOptions::default());
        let mut next = case.request("/", "", BodyLength::Unknown);
        for piece in pieces {
            assert_eq!(next, Next::Hold);
            next = case.session.body(Direction::Request, piece.as_bytes());
        }
        assert_eq!((next, case.session.end(Direction::Request)), (Next::Hold, SHORT));
        assert!(case.session.is_collecting());
        assert_eq!(case.run(Direction::Request), expected);
        // A block stays one.
        assert_eq!(status(&case.session.end(Direction::Request)), expected);
        assert_eq!(case.run(Direction::Request), expected);
    }
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(case.request("/?q=attack", "", BodyLength::None), Next::Pass);
    assert_eq!(case.session.end(Direction::Request), SHORT);
    assert_eq!(case.run(Direction::Request), 403);
}

#[test]
fn truncated_body_is_treated_as_one_above_its_limit() {
    for (settings, expected, partial) in [
        ("", 413, true),
        ("SecRequestBodyLimitAction ProcessPartial", 0, true),
        (
            "SecRequestBodyLimitAction ProcessPartial\nSecRule INBOUND_DATA_ERROR \"@eq 1\" \"id:9,phase:2,deny,status:406\"",
            406,
            true,
        ),
        ("SecRequestBodyAccess Off", 0, false),
    ] {
        for body in [&b""[..], b"a=b"] {
            let mut case = Case::new(settings, SessionOptions::default());
            case.request("/", "", BodyLength::Unknown);
            if !body.is_empty() {
                case.session.body(Direction::Request, body);
            }
            let Next::Run(_) = case.session.end_truncated(Direction::Request) else {
                panic!("{settings}: rules do not run");
            };
            assert_eq!(case.run(Direction::Request), expected, "{settings}");
            assert_eq!(case.session.is_partial(), partial, "{settings}");
        }
    }
    let mut case = Case::new("SecRequestBodyLimitAction ProcessPartial", SessionOptions::default());
    case.request("/", "", BodyLength::Unknown);
    case.session.body(Direction::Request, b"a=attack");
    case.session.end_truncated(Direction::Request);
    assert_eq!(case.run(Direction::Request), 403, "the part is inspected");
}

#[test]
fn dropped_arguments_and_rules_that_do_not_run_are_partial_unless_they_block() {
    for (settings, partial, blocked) in [
        ("SecArgumentsLimit 2", false, 0),
        ("SecArgumentsLimit 1", false, 413),
        ("SecArgumentsLimit 1\nSecRequestBodyLimitAction ProcessPartial", true, 0),
        ("SecInspectionLimit 1\nSecInspectionLimitAction ProcessPartial", true, 0),
    ] {
        let mut case = Case::new(settings, SessionOptions::default());
        case.request("/?q=1&r=2", "", BodyLength::None);
        case.session.end(Direction::Request);
        assert_eq!(case.run(Direction::Request), blocked, "{settings}");
        assert_eq!(case.session.is_partial(), partial, "{settings}");
    }
}

#[test]
fn bodies_beyond_their_limit_are_refused_or_cut() {
    let long = [b"q=".as_slice(), &[b'a'; 100]].concat();
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(status(&case.request("/", "", BodyLength::Known(102))), 413);
    assert_eq!(case.session.refusal(), Some("request body limit"));
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(case.request("/", "", BodyLength::Unknown), Next::Hold);
    assert_eq!(case.session.body(Direction::Request, &long), SHORT);
    assert_eq!(case.run(Direction::Request), 413);
    for (text, expected) in [(&long[..], 0), (b"q=attack", 403)] {
        let partial = "SecRequestBodyLimitAction ProcessPartial";
        let mut case = Case::new(partial, SessionOptions::default());
        assert_eq!(case.request("/", "", BodyLength::Known(200)), Next::Hold);
        assert_eq!(
            case.session.body(Direction::Request, text),
            if expected == 0 { SHORT } else { Next::Hold }
        );
        assert_eq!(case.session.body(Direction::Request, &long), SHORT);
        assert_eq!(case.run(Direction::Request), expected);
        assert!(case.session.is_partial());
    }
}

#[test]
fn decoded_bodies_are_inspected() {
    let inflate = options(Compression::Inflate { ratio_max: 100 });
    for (text, expected) in [(b"q=attack".as_slice(), 403), (b"q=a", 0)] {
        let mut case = Case::new("", inflate);
        assert_eq!(case.request("/", "gzip", BodyLength::Unknown), Next::Hold);
        assert_eq!(case.session.body(Direction::Request, &gzip(text)), Next::Hold);
        assert_eq!(
            (case.session.end(Direction::Request), case.run(Direction::Request)),
            (LONG, expected)
        );
    }
    let mut case = Case::new("", inflate);
    assert_eq!(case.response(200, "gzip", BodyLength::Unknown), Next::Hold);
    assert_eq!(case.session.body(Direction::Response, &gzip(b"a leak")), Next::Hold);
    assert_eq!((case.session.end(Direction::Response), case.run(Direction::Response)), (LONG, 403));
    for (body, expected) in [(gzip(&[b'a'; 30_000]), 413), (b"q=attack".to_vec(), 400)] {
        let mut case =
            Case::new("SecRequestBodyLimit 90000", options(Compression::Inflate { ratio_max: 2 }));
        assert_eq!(case.request("/", "gzip", BodyLength::Unknown), Next::Hold);
        case.session.body(Direction::Request, &body);
        case.session.end(Direction::Request);
        assert_eq!(case.run(Direction::Request), expected);
    }
}

#[test]
fn coded_body_beyond_the_limit_is_never_shorter_than_it() {
    // Empty stored blocks of deflate in front of the text: little is decoded before the limit.
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let body = [header.as_slice(), &[0, 0, 0, 0xff, 0xff].repeat(100)].concat();
    let inflate = options(Compression::Inflate { ratio_max: 100 });
    for (settings, expected) in [("", 413), ("SecRequestBodyLimitAction ProcessPartial", 0)] {
        let mut case = Case::new(settings, inflate);
        assert_eq!(case.request("/", "gzip", BodyLength::Unknown), Next::Hold);
        assert_eq!(
            (case.session.body(Direction::Request, &body), case.run(Direction::Request)),
            (LONG, expected)
        );
        assert!(case.session.is_partial() && case.session.is_over_limit());
    }
}

#[test]
fn empty_body_has_no_coding() {
    let mut case = Case::new("", options(Compression::Inflate { ratio_max: 100 }));
    assert_eq!(case.request("/", "gzip", BodyLength::Known(0)), Next::Hold);
    assert_eq!((case.session.end(Direction::Request), case.run(Direction::Request)), (SHORT, 0));
    assert_eq!(case.response(200, "gzip", BodyLength::Known(0)), Next::Hold);
    assert_eq!((case.session.end(Direction::Response), case.run(Direction::Response)), (SHORT, 0));
}

#[test]
fn body_that_cannot_be_decoded_is_partial_in_detection_mode() {
    let mut case =
        Case::new("SecRuleEngine DetectionOnly", options(Compression::Inflate { ratio_max: 100 }));
    assert_eq!(case.request("/", "gzip", BodyLength::Unknown), Next::Hold);
    assert_eq!(case.session.body(Direction::Request, b"q=attack"), Next::Hold);
    assert_eq!((case.session.end(Direction::Request), case.run(Direction::Request)), (LONG, 0));
    assert!(case.session.is_partial());
}

#[test]
fn codings_are_refused_or_passed_and_the_rules_run() {
    for (compression, coding, blocked) in [
        (Compression::Reject, "gzip", true),
        (Compression::Inflate { ratio_max: 9 }, "br", true),
        (Compression::Pass, "gzip", false),
    ] {
        let mut case = Case::new("", options(compression));
        let next = case.request("/?q=attack", coding, BodyLength::Unknown);
        let expected = if blocked { 415 } else { 403 };
        let found = if blocked { status(&next) } else { case.run(Direction::Request) };
        assert_eq!((found, case.session.is_partial()), (expected, !blocked));
        let mut case = Case::new("", options(compression));
        let next = case.response(201, coding, BodyLength::Unknown);
        assert_eq!(status(&next), if blocked { 403 } else { 405 });
        // In detection mode, too.
        let mut case = Case::new("SecRuleEngine DetectionOnly", options(compression));
        assert_eq!(case.request("/?q=attack", coding, BodyLength::Unknown), SHORT);
        case.run(Direction::Request);
        assert_eq!(case.response(201, coding, BodyLength::Unknown), Next::Pass);
        let ids: Vec<u64> = case.session.transaction().matches().iter().map(|m| m.id).collect();
        assert_eq!((ids, case.session.is_partial()), (vec![2, 5], true), "{compression:?}");
    }
}

#[test]
fn long_messages_are_inspected_at_once_or_elsewhere() {
    let options = SessionOptions { short_bytes: 100, ..SessionOptions::default() };
    let mut case = Case::new("", options);
    let target = format!("/evil?{}", "a".repeat(100));
    assert_eq!(case.request(&target, "", BodyLength::None), Next::Pass);
    assert_eq!((case.session.end(Direction::Request), case.run(Direction::Request)), (LONG, 404));
    let mut case = Case::new("", options);
    case.request("/", "", BodyLength::Unknown);
    case.session.body(Direction::Request, &[b'a'; 60]);
    assert_eq!(case.session.end(Direction::Request), LONG);
    // Names repeat, so that they are far longer than the body.
    let json = "SecRequestBodyLimit 9000\nSecRequestBodyNoFilesLimit 9000\n\
        SecAction \"id:6,phase:1,pass,ctl:requestBodyProcessor=JSON\"";
    for (body, expected) in [(format!("[{}1", "[1,".repeat(60)), LONG), ("[1,1]".into(), SHORT)] {
        let mut case = Case::new(json, SessionOptions { short_bytes: 300, ..options });
        case.request("/", "", BodyLength::Unknown);
        case.session.body(Direction::Request, body.as_bytes());
        assert_eq!(case.session.end(Direction::Request), expected);
    }
}

#[test]
fn server_without_memory_blocks_or_cuts() {
    let mut case = Case::new("", SessionOptions::default());
    case.request("/", "", BodyLength::Unknown);
    case.session.body(Direction::Request, b"q=attack");
    assert_eq!(status(&case.session.cut(Direction::Request)), 503);
    let mut case = Case::new("SecRuleEngine DetectionOnly", SessionOptions::default());
    case.request("/", "", BodyLength::Unknown);
    case.session.body(Direction::Request, b"q=attack");
    assert_eq!((case.session.cut(Direction::Request), case.run(Direction::Request)), (LONG, 0));
    assert_eq!(case.session.transaction().matches()[0].id, 2);
    assert!(case.session.is_partial());
    assert!(case.session.held_bytes() >= 8);
}

#[test]
fn body_before_its_head_is_blocked() {
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(status(&case.session.body(Direction::Request, b"q=attack")), 500);
    assert_eq!(case.session.refusal(), Some("body before its head"));
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(status(&case.session.end(Direction::Response)), 500);
}

#[test]
fn responses_are_blocked_by_their_rules() {
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(status(&case.response(500, "", BodyLength::Unknown)), 502);
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(case.response(200, "", BodyLength::Known(4)), Next::Hold);
    assert_eq!(case.session.body(Direction::Response, b"leak"), Next::Hold);
    assert_eq!(
        (case.session.end(Direction::Response), case.run(Direction::Response)),
        (SHORT, 403)
    );
    let mut case = Case::new("", SessionOptions::default());
    assert_eq!(case.response(201, "", BodyLength::None), Next::Pass);
    assert_eq!(
        (case.session.end(Direction::Response), case.run(Direction::Response)),
        (SHORT, 405)
    );
}

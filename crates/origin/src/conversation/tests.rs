use std::time::Duration;

use super::talk::{CALM, Talk};
use super::*;
use crate::output::Sent;
use crate::site::made_up::{made_up_clock, pass, site};

/// One of each framing, back to back.
const REQUESTS: &[u8] = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
    PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
    5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nT: v\r\n\r\n\
    HEAD /?payload=12345 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
    GET /sleep?time=0 HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /zero?size=70000 HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /status/204 HTTP/1.1\r\nHost: a\r\n\r\n\
    BREW /method HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

const ANSWERS: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\n\
    Content-Type: text/plain\r\nContent-Length: 3\r\n\r\nxxx\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    X-Content-Type-Options: nosniff\r\nContent-Length: 20\r\n\r\ntollgate origin: /a\n\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/octet-stream\r\n\
    X-Content-Type-Options: nosniff\r\nContent-Length: 6\r\n\r\nhello!\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Connection: keep-alive\r\nContent-Length: 12345\r\n\r\n\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
    Content-Length: 17\r\n\r\n{\"time\":0.000000}\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
    Content-Length: 30\r\n\r\n{\"size\":70000,\"time\":0.000000}\
    HTTP/1.1 204 No Content\r\nServer: tollgate-origin\r\n\r\n\
    HTTP/1.1 501 Not Implemented\r\nServer: tollgate-origin\r\n\
    Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
    Content-Length: 88\r\n\r\n{\"error\":\"the method is BREW; \
    it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS\"}\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    X-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: 20\r\n\r\n\
    tollgate origin: /b\n";

/// What was answered since the last time.
fn text(talk: &mut Talk<Vec<u8>>) -> String {
    String::from_utf8(std::mem::take(&mut talk.answers)).unwrap()
}

fn converse(pieces: &[&[u8]]) -> (String, Need) {
    let mut talk = Talk::<Vec<u8>>::default();
    let mut last = Need::Input;
    for piece in pieces {
        last = talk.hear(piece);
    }
    (text(&mut talk), last)
}

#[test]
fn answers_do_not_depend_on_where_requests_are_split() {
    let expected = (ANSWERS.to_owned(), Need::Close(Ending::Clean));
    for at in 0..=REQUESTS.len() {
        let (first, second) = REQUESTS.split_at(at);
        assert_eq!(converse(&[first, second]), expected, "split at {at}");
    }
    let single: Vec<&[u8]> = REQUESTS.chunks(1).collect();
    assert_eq!(converse(&single), expected);
}

#[test]
fn a_large_payload_must_be_sent_before_the_next_answer() {
    let mut conversation = Conversation::default();
    let mut site = site();
    let mut output = Output::default();
    let request = b"GET /?payload=50000 HTTP/1.1\r\nHost: a\r\n\r\n";
    let advanced = conversation.advance(&request.repeat(2), &mut output, &mut site, CALM);
    assert_eq!(advanced, (request.len(), Need::Room));
    output.clear();
    let advanced = conversation.advance(request, &mut output, &mut site, CALM);
    assert_eq!(advanced, (request.len(), Need::Room));
    output.clear();
    let advanced = conversation.advance(&[], &mut output, &mut site, CALM);
    assert_eq!(advanced, (0, Need::Input));
    assert!(conversation.is_between_requests());
}

#[test]
fn an_answer_that_waits_holds_up_those_behind_it() {
    let mut talk = Talk::<Vec<u8>>::default();
    let start = made_up_clock();
    let asked = b"GET /?payload=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
        PUT /sleep?time=1.5 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok\
        GET /?payload=2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let until = start + Duration::from_millis(1_500);
    assert_eq!(talk.hear(asked), Need::Until(until));
    assert!(text(&mut talk).ends_with("\r\n\r\nx"));
    pass(Duration::from_millis(1_499));
    assert_eq!(talk.hear(b""), Need::Until(until));
    assert_eq!(text(&mut talk), "");
    pass(Duration::from_micros(1_250));
    assert_eq!(talk.hear(b""), Need::Input);
    let answers = text(&mut talk);
    assert!(answers.contains("\r\n\r\n{\"time\":1.500250}HTTP/1.1 200 OK\r\n"), "{answers}");
    assert!(answers.ends_with("\r\n\r\nxx"), "{answers}");
}

#[test]
fn the_time_of_reading_is_from_the_first_byte_to_the_last() {
    let unread = b"GET /urandom?size=7 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let mut talk = Talk::<Vec<u8>> { unread, ..Talk::default() };
    let mut output = Output::default();
    let mut advance = |talk: &mut Talk<Vec<u8>>| {
        let Talk { site, conversation, unread, .. } = talk;
        let (consumed, need) = conversation.advance(unread, &mut output, site, CALM);
        unread.drain(..consumed);
        need
    };
    assert_eq!(advance(&mut talk), Need::Bytes(Source::Random, 7));
    talk.conversation.fetched(5);
    pass(Duration::from_micros(40));
    assert_eq!(advance(&mut talk), Need::Bytes(Source::Random, 2));
    talk.conversation.fetched(2);
    pass(Duration::from_micros(2));
    assert_eq!(advance(&mut talk), Need::Input);
    assert_eq!(output.send(&mut talk.answers, &mut 10_000, false).unwrap(), Sent::All);
    assert!(text(&mut talk).ends_with("\r\n\r\n{\"size\":7,\"time\":0.000042}"));
}

#[test]
fn what_follows_the_last_request_makes_the_ending_linger() {
    let (_, need) = converse(&[b"GET / HTTP/1.0\r\n\r\nmore"]);
    assert_eq!(need, Need::Close(Ending::Linger));
    let (_, need) = converse(&[b"\0\r\n\r\n"]);
    assert_eq!(need, Need::Close(Ending::Linger));
}

#[test]
fn a_body_before_the_end_makes_the_ending_linger() {
    for body in ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let request = format!("POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{body}");
        for at in [request.len(), request.len() - 1] {
            let (first, second) = request.as_bytes().split_at(at);
            let (_, need) = converse(&[first, second]);
            assert_eq!(need, Need::Close(Ending::Linger), "{request}");
        }
    }
}

#[test]
fn only_a_body_of_which_nothing_came_is_invited() {
    const HEAD: &[u8] =
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    const INVITATION: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(converse(&[HEAD]).0, INVITATION);
    assert!(converse(&[HEAD, b"ok"]).0.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"));
    let half = [HEAD, b"o"].concat();
    assert_eq!(converse(&[&half]).0, "");
    assert!(converse(&[&half, b"k"]).0.starts_with("HTTP/1.1 200 OK\r\n"));
    // A request that is refused anyhow is not.
    let (refused, need) = converse(&[b"GET /upload HTTP/1.1\r\nHost: a\r\n\
        Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"]);
    assert!(refused.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{refused}");
    assert!(refused.contains("\r\nConnection: close\r\n"), "{refused}");
    assert_eq!(need, Need::Close(Ending::Linger));
    // Nor is a body.
    let (refused, _) = converse(&[b"POST /echo HTTP/1.1\r\nHost: a\r\n\
        Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n"]);
    assert!(refused.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{refused}");
}

#[test]
fn a_chunked_body_is_counted_against_the_limit() {
    let mut talk = Talk::<Vec<u8>>::default();
    let head = b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(talk.hear(head), Need::Input);
    let chunk = [b"100000\r\n", &vec![0; 1 << 20][..], b"\r\n"].concat();
    for _ in 0..64 {
        assert_eq!(talk.hear(&chunk), Need::Input);
    }
    // The size of the next is enough.
    assert_eq!(talk.hear(b"1\r"), Need::Input);
    assert_eq!(talk.hear(b"\n"), Need::Close(Ending::Linger));
    let answer = text(&mut talk);
    assert!(answer.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{answer}");
    assert!(answer.ends_with("it may have 67108864 bytes\"}"), "{answer}");
}

#[test]
fn the_answer_of_a_stopping_origin_is_the_last() {
    let mut conversation = Conversation::default();
    let mut output = Output::default();
    let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let stopping = Circumstances { stopping: true };
    let (_, need) = conversation.advance(request, &mut output, &mut site(), stopping);
    assert_eq!(need, Need::Close(Ending::Clean));
    let mut answer = Vec::new();
    assert_eq!(output.send(&mut answer, &mut 10_000, false).unwrap(), Sent::All);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
}

#[test]
fn who_is_late_is_told() {
    for (arrived, arriving) in [
        (&b"GET /"[..], Arriving::Head),
        (
            b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbod",
            Arriving::Body { since: made_up_clock(), bytes: 3 },
        ),
    ] {
        let mut talk = Talk::<Vec<u8>>::default();
        assert_eq!(talk.hear(arrived), Need::Input);
        assert_eq!(talk.conversation.arriving(), arriving);
        let mut output = Output::default();
        talk.conversation.give_up(&mut output, &mut talk.site);
        assert_eq!(output.send(&mut talk.answers, &mut 10_000, false).unwrap(), Sent::All);
        assert_eq!(
            text(&mut talk),
            "HTTP/1.1 408 Request Timeout\r\nServer: tollgate-origin\r\n\
             Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
             Connection: close\r\nContent-Length: 47\r\n\r\n\
             {\"error\":\"the request took too long to arrive\"}"
        );
    }
}

#[test]
fn a_request_that_comes_again_is_answered_and_counted_again() {
    let mut talk = Talk::<Vec<u8>>::default();
    let first = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(talk.hear(&first.repeat(3)), Need::Input);
    let three = text(&mut talk);
    assert_eq!(three, three[..three.len() / 3].repeat(3));
    // Neither one that only begins like it, nor one whose end is to come, nor the last of all.
    talk.hear(b"GET /?payload=3 HTTP/1.1\r\nHost: ab\r\n\r\n");
    assert_eq!(text(&mut talk), three[..three.len() / 3]);
    for (piece, answers) in first.chunks(20).zip([0, 1]) {
        talk.hear(piece);
        assert_eq!(text(&mut talk), three[..three.len() / 3].repeat(answers));
    }
    let told = talk.site.counters.to_json(&["/"], made_up_clock(), false);
    assert!(told.contains("\"requests\":5,") && told.contains("\"2xx\":5,"), "{told}");
    let mut output = Output::default();
    let stopping = Circumstances { stopping: true };
    talk.conversation.advance(first, &mut output, &mut talk.site, stopping);
    assert_eq!(output.send(&mut talk.answers, &mut 10_000, false).unwrap(), Sent::All);
    assert!(text(&mut talk).contains("\r\nConnection: close\r\n"));
}

#[test]
fn requests_are_counted_where_they_belong() {
    let mut talk = Talk::<Vec<u8>>::default();
    talk.hear(REQUESTS);
    talk.conversation = Conversation::default();
    talk.unread.clear();
    talk.hear(b"GET / HTTP/1.1\r\n\r\n");
    let told = talk.site.counters.to_json(&["/"], made_up_clock(), false);
    for part in [
        "\"requests\":10,",
        "\"refused\":2,\"malformed\":1,\"timed_out\":0,",
        "\"classes\":{\"1xx\":0,\"2xx\":8,\"3xx\":0,\"4xx\":1,\"5xx\":1}",
        "\"paths\":{\"/\":2}",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
}

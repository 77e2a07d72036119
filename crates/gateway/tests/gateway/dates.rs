use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::support::{Backend, GET, OK};

const UNDATED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// The second that a date names.
#[track_caller]
fn second(date: &str) -> i64 {
    DateTimeParser::new().parse_timestamp(date).unwrap().as_second()
}

fn this_second() -> i64 {
    Timestamp::try_from(SystemTime::now()).unwrap().as_second()
}

#[test]
fn an_answer_that_came_without_a_date_says_when_it_came() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    let mut peer = None;
    // The later ones are recalled, and not parsed; the last of them in another second.
    for pause_ms in [0, 0, 1_100] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        client.send(GET);
        let peer = peer.get_or_insert_with(|| backend.accept());
        peer.expect(GET);
        let before = this_second();
        peer.send(UNDATED);
        let came = second(&client.expect_dated(UNDATED));
        assert!((before..=this_second()).contains(&came), "{came} is not {before}");
    }
}

#[test]
fn final_answers_of_all_kinds_have_one_and_interim_ones_none() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    let early = "HTTP/1.1 103 Early Hints\r\nLink: b\r\n\r\n";
    peer.send(format!("{early}{UNDATED}"));
    client.expect(early);
    client.expect_dated(UNDATED);
    for (ask, answer) in [
        (GET, "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        (GET, "HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
        ("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),
    ] {
        client.send(ask);
        peer.expect(ask);
        peer.send(answer);
        client.expect_dated(answer);
    }
    let ask = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.send(ask);
    peer.expect(ask);
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    peer.send(switch);
    client.expect(switch);
}

#[test]
fn a_date_that_came_goes_on_as_it_is() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    let mut peer = None;
    for lines in [
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "date: Sunday, 06-Nov-94 08:49:37 GMT\r\n",
        "DATE: Sun Nov  6 08:49:37 1994\r\n",
        "Date: never\r\n",
        "Date: \r\n",
    ] {
        let answer = OK.replace("Date: d\r\n", lines);
        // Parsed, and then recalled.
        for _ in 0..2 {
            client.send(GET);
            let peer = peer.get_or_insert_with(|| backend.accept());
            peer.expect(GET);
            peer.send(&answer);
            client.expect(&answer);
        }
    }
}

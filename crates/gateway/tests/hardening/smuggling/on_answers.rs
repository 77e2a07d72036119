//! The table of answers, through the gateway and its peers.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use memchr::memmem;
use tollgate_gateway::config::Address;

use super::answers::{self, Answer, Fate};
use super::outcome::read;
use crate::backend::{Backend, path, read_head};
use crate::client::Client;
use crate::front::Peer;
use crate::served::Served;

/// The request that follows each row on its connection, and asks for its end.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// What a backend answers to it.
const NEXT_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\nnext";

/// The same as a client of the gateway gets it.
const NEXT_RECEIVED: &[u8] =
    b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnext";

#[test]
fn every_answer_is_passed_on_in_one_form_or_not_at_all() {
    let backend = backend();
    let gateway = Served::before(backend.address);
    let mut faults = Vec::new();
    for (at, answer) in answers::all().enumerate() {
        let received = received(answer, at, gateway.address());
        if !is_as_it_says(answer, &received) {
            let shown = received.escape_ascii();
            faults.push(format!("{} ({}): {shown}", answer.name, answer.rule));
        }
        // Nothing of it is left for anybody else.
        let mut other = Client::connect(gateway.address()).unwrap();
        other.send(NEXT.as_bytes());
        let received = other.read_to_close();
        if received != NEXT_RECEIVED {
            faults.push(format!("after {}: {}", answer.name, received.escape_ascii()));
        }
    }
    assert!(faults.is_empty(), "{} answers went wrong:\n{}", faults.len(), faults.join("\n"));
}

/// What nginx and HAProxy make of the same, beside what we expect: to be read, with `--nocapture`, and no
/// judgement of theirs. Only that both took part is checked.
#[test]
fn peers_make_of_the_same_answers_what_is_printed() {
    let backend = backend();
    let peers = [Peer::nginx(backend.address), Peer::haproxy(backend.address)];
    let briefs = peers.each_ref().map(|peer| {
        let all = answers::all().enumerate();
        all.map(|(at, answer)| brief(answer, &received(answer, at, &peer.address)))
            .collect::<Vec<_>>()
    });
    println!("{:44} {:44} {:44} gateway", "answer", peers[0].name, peers[1].name);
    for (at, answer) in answers::all().enumerate() {
        let ours = answer.fate.brief();
        println!("{:44} {:44} {:44} {ours}", answer.name, briefs[0][at], briefs[1][at]);
    }
    for (peer, briefs) in peers.iter().zip(&briefs) {
        let different: BTreeSet<_> = briefs.iter().collect();
        assert!(different.len() > 4, "{} makes the same of everything: {different:?}", peer.name);
    }
}

#[test]
fn the_table_is_as_long_as_it_says_and_names_no_row_twice() {
    let names: Vec<_> = answers::all().map(|answer| answer.name).collect();
    let different: BTreeSet<_> = names.iter().collect();
    assert!(names.len() >= 75, "{} rows", names.len());
    assert_eq!(different.len(), names.len());
}

/// A backend closes a connection on which nothing comes for so long, which ends what a proxy takes for a
/// body up to the close.
const REST: Duration = Duration::from_millis(150);

/// A backend that answers with the row whose number is the path.
fn backend() -> Backend {
    Backend::start(|mut stream| {
        stream.set_read_timeout(Some(REST)).unwrap();
        while let Some(head) = read_head(&mut stream) {
            let row = path(&head)[1..].parse().ok().and_then(|at| answers::all().nth(at));
            let (sent, closes) = row.map_or((NEXT_ANSWER, false), |row| (row.sent, row.closes));
            if stream.write_all(sent).is_err() || closes {
                return;
            }
        }
    })
}

/// All that a client gets that asks for a row, and for the next thing behind it.
fn received(answer: &Answer, at: usize, proxy: &Address) -> Vec<u8> {
    let mut client = Client::connect(proxy).unwrap();
    let asked = format!("{} /{at} HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}", answer.method);
    client.send(asked.as_bytes());
    read(&mut client).0
}

fn is_as_it_says(answer: &Answer, received: &[u8]) -> bool {
    let is_bad_gateway = || {
        // With what comes next or without: that depends on whether the gateway goes on.
        received.starts_with(b"HTTP/1.1 502 ") && !has(received, b"evil")
    };
    match answer.fate {
        Fate::BadGateway => is_bad_gateway(),
        Fate::Passed(passed) => {
            undated(received) == Some([passed.as_bytes(), NEXT_RECEIVED].concat())
        }
        Fate::PassedToTheClose(passed) => undated(received) == Some(passed.as_bytes().to_vec()),
        Fate::Broken => is_bad_gateway() || is_cut(received),
    }
}

/// The same without the one date that the gateway gives the answer of a row, as no row has one.
fn undated(received: &[u8]) -> Option<Vec<u8>> {
    let is_date = |line: &&[u8]| line.starts_with(b"Date: ") && line.ends_with(b" GMT\r\n");
    let lines = received.split_inclusive(|&byte| byte == b'\n');
    let (dates, rest): (Vec<_>, Vec<_>) = lines.partition(is_date);
    (dates.len() == 1).then(|| rest.concat())
}

/// Whether a client sees that something is missing of an answer that is not followed by another.
fn is_cut(received: &[u8]) -> bool {
    let Some(head_bytes) = memmem::find(received, b"\r\n\r\n").map(|at| at + 4) else {
        return false;
    };
    let head = String::from_utf8_lossy(&received[..head_bytes]);
    let length = head.split_once("\r\nContent-Length: ").and_then(|(_, rest)| rest.lines().next());
    let is_whole = match length {
        Some(length) => received.len() - head_bytes >= length.parse().unwrap(),
        None => received.ends_with(b"\r\n0\r\n\r\n"),
    };
    head.starts_with("HTTP/1.1 200 ") && !is_whole && !has(received, b"next")
}

/// In a few words, for the comparison.
fn brief(answer: &Answer, received: &[u8]) -> String {
    let status = match received.get(9..12) {
        Some(status) if received.starts_with(b"HTTP/1.") => String::from_utf8_lossy(status).into(),
        _ if received.is_empty() => "no answer".to_owned(),
        _ => "no head".to_owned(),
    };
    let form = if !answer.sent.is_empty() && received.starts_with(answer.sent) {
        ", as it came"
    } else if has(received, b"evil") {
        ", with what is odd"
    } else {
        ""
    };
    let next = if received.ends_with(b"next") { "" } else { ", and no next answer" };
    format!("{status}{form}{next}")
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    memmem::find(bytes, what).is_some()
}

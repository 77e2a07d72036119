//! The table, asked of each server over real sockets.

use super::server::Site;
use super::table::{self, Body, Expected, Row, Then};
use super::wire::{Answer, Wire};
use crate::support::Workspace;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[test]
fn nginx_with_lua_answers_what_the_table_says() {
    let workspace = Workspace::new();
    let site = Site::nginx_lua(&workspace);
    answers_the_table(&site);
    sleepers_whose_clients_have_left_are_given_up(&site);
    assert!(!answers_who_has_said_all(&site, "10"));
    drop(site);
    workspace.assert_nothing_runs();
}

#[test]
fn the_built_in_site_answers_what_the_table_says() {
    let workspace = Workspace::new();
    let site = Site::origin(&workspace);
    answers_the_table(&site);
    assert!(answers_who_has_said_all(&site, "0.25"));
    drop(site);
    workspace.assert_nothing_runs();
}

fn answers_the_table(site: &Site) {
    let its_own = table::differences().into_iter().map(|difference| match site.name {
        "nginx-lua" => difference.nginx_lua,
        _ => difference.origin,
    });
    let rows: Vec<Row> = table::rows().into_iter().chain(its_own).collect();
    let wrong: Vec<String> = rows.iter().filter_map(|row| flaw(site.address, row)).collect();
    assert!(
        wrong.is_empty(),
        "{}: {} of {}:\n{}",
        site.name,
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    a_form_may_come_in_two_pieces(site);
    a_body_is_invited(site);
    a_sleep_is_as_long_as_it_says(site);
    sleepers_do_not_wait_for_each_other(site);
    small_chunks_leave_others_their_turn(site);
}

/// What is wrong with the answers to a row; nothing where all is well.
fn flaw(address: SocketAddr, row: &Row) -> Option<String> {
    let mut wire = Wire::open(address);
    wire.send(row.request.as_bytes());
    let found = row
        .answers
        .iter()
        .try_for_each(|expected| compare(&wire.answer(expected.to_head)?, expected))
        .and_then(|()| match row.then {
            Then::Stays => {
                wire.send(b"GET /method HTTP/1.1\r\nHost: a\r\n\r\n");
                let next = wire.answer(false)?;
                told(next.text() == "{\"method\":\"GET\"}", || format!("then it answers {next:?}"))
            }
            Then::Closes => told(wire.is_closed(), || "then it stays open".to_owned()),
        });
    let excerpt: String = row.request.escape_debug().take(300).collect();
    found.err().map(|what| format!("{excerpt}\n    {what}"))
}

fn compare(answer: &Answer, expected: &Expected) -> Result<(), String> {
    let shown = || {
        let text: String = answer.text().chars().take(200).collect();
        format!("{} {:?} {text}", answer.status, answer.headers)
    };
    let is = |holds: bool, what: &str| told(holds, || format!("{what}: {}", shown()));
    is(answer.status == expected.status, &format!("not {}", expected.status))?;
    for (name, value) in &expected.headers {
        is(answer.header(name) == Some(value), &format!("no {name}: {value}"))?;
    }
    for name in &expected.without {
        is(answer.header(name).is_none(), &format!("with {name}"))?;
    }
    match &expected.body {
        Body::Text(text) => is(matches(&answer.text(), text), &format!("not {text}")),
        Body::Filler(size) => is(
            answer.body.len() == *size && answer.body.iter().all(|byte| *byte == b'x'),
            &format!("{} bytes, not {size} x", answer.body.len()),
        ),
        Body::Holds(text) => is(answer.text().contains(text), &format!("without {text}")),
        Body::Reason => {
            let json: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
            let reason = json.as_ref().and_then(|json| json["error"].as_str());
            is(reason.is_some_and(|reason| !reason.is_empty()), "no reason")
        }
    }
}

/// Whether a text is another one in which each `#` stands for a digit.
fn matches(text: &str, pattern: &str) -> bool {
    let same = |(found, wanted): (char, char)| match wanted {
        '#' => found.is_ascii_digit(),
        _ => found == wanted,
    };
    text.chars().count() == pattern.chars().count() && text.chars().zip(pattern.chars()).all(same)
}

fn told(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// A form split at every byte: a boundary may come in two pieces.
fn a_form_may_come_in_two_pieces(site: &Site) {
    let mut wire = Wire::open(site.address);
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\n{}Content-Length: {}\r\n\r\n",
        table::FORM_TYPE,
        table::FORM.len()
    );
    for at in 0..table::FORM.len() {
        let (first, second) = table::FORM.as_bytes().split_at(at);
        wire.send(&[head.as_bytes(), first].concat());
        // Long enough for the server to have read the first piece, as a rule; the answer is the same
        // where it has not.
        std::thread::sleep(Duration::from_millis(1));
        wire.send(second);
        let answer = wire.answer(false).unwrap_or_else(|error| panic!("split at {at}: {error}"));
        compare(&answer, &table::form_answer())
            .unwrap_or_else(|what| panic!("split at {at}: {what}"));
    }
}

/// A client that waits to be invited is invited, and only then sends.
fn a_body_is_invited(site: &Site) {
    for target in ["/upload", "/echo"] {
        let mut wire = Wire::open(site.address);
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        );
        wire.send(head.as_bytes());
        let invitation = wire.answer(false).expect("an invitation");
        assert_eq!(invitation.status, 100, "{target}");
        wire.send(b"hello");
        assert_eq!(wire.answer(false).expect("an answer").status, 200, "{target}");
    }
}

fn a_sleep_is_as_long_as_it_says(site: &Site) {
    for asked in [0.0005, 0.01, 0.25] {
        let begun = Instant::now();
        let mut wire = Wire::open(site.address);
        wire.send(format!("GET /sleep?time={asked} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let answer = wire.answer(false).expect("an answer");
        let seen = begun.elapsed().as_secs_f64();
        let json: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        let slept = json["time"].as_f64().expect("a time");
        // It is told in microseconds.
        assert!(
            asked <= slept + 1e-6 && slept <= seen + 1e-6,
            "asked {asked}, told {slept}, seen {seen}"
        );
    }
}

fn sleepers_do_not_wait_for_each_other(site: &Site) {
    const SLEEPERS: u32 = 20;
    let begun = Instant::now();
    let mut wires: Vec<Wire> = (0..SLEEPERS).map(|_| Wire::open(site.address)).collect();
    for wire in &mut wires {
        wire.send(b"GET /sleep?time=0.5 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for wire in &mut wires {
        assert_eq!(wire.answer(false).expect("an answer").status, 200);
    }
    let took = begun.elapsed();
    let one_by_one = Duration::from_millis(500) * SLEEPERS;
    assert!(took < one_by_one / 2, "{took:?}");
}

/// A download in chunks of a byte is a lot of work for a server that writes each by itself; meanwhile it
/// answers others.
fn small_chunks_leave_others_their_turn(site: &Site) {
    const SIZE: usize = 1_000_000;
    const TURN_MAX: Duration = Duration::from_secs(1);
    let mut download = Wire::open(site.address);
    let request = format!("GET /download?size={SIZE}&chunk_size=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    download.send(request.as_bytes());
    let download = std::thread::spawn(move || download.answer(false));
    let mut other = Wire::open(site.address);
    loop {
        let begun = Instant::now();
        other.send(b"GET /method HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(other.answer(false).expect("an answer").status, 200);
        let took = begun.elapsed();
        assert!(took < TURN_MAX, "{}: {took:?}", site.name);
        if download.is_finished() {
            break;
        }
    }
    let answer = download.join().expect("no panic").expect("the file");
    assert_eq!(answer.body.len(), SIZE);
}

/// Whether a client of `/sleep` that says, while it waits so many seconds, that it has nothing more to say
/// is answered all the same.
fn answers_who_has_said_all(site: &Site, seconds: &str) -> bool {
    let mut wire = Wire::open(site.address);
    wire.send(format!("GET /sleep?time={seconds} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    // It sleeps: what was asked after it is answered.
    let mut last = Wire::open(site.address);
    last.send(b"GET /sleep?time=0.1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(last.answer(false).expect("an answer").status, 200);
    wire.send_no_more();
    match wire.answer(false) {
        Ok(answer) => answer.status == 200,
        Err(ended) => {
            assert!(ended.starts_with("closed after \"\""), "{ended}");
            false
        }
    }
}

/// nginx takes the end of a connection for that of its client's interest. The kernel keeps a connection whose client has left
/// for as long as the server holds it.
fn sleepers_whose_clients_have_left_are_given_up(site: &Site) {
    const SLEEPERS: usize = 20;
    let mut wires: Vec<Wire> = (0..SLEEPERS).map(|_| Wire::open(site.address)).collect();
    for wire in &mut wires {
        wire.send(b"GET /sleep?time=60 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    // They sleep: what was asked after them is answered.
    let mut last = Wire::open(site.address);
    last.send(b"GET /sleep?time=0.1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(last.answer(false).expect("an answer").status, 200);
    drop((wires, last));
    let begun = Instant::now();
    while left_by_clients(site.address) > 0 {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(10), "{}: held for {waited:?}", site.name);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many connections of a server have been closed by their clients and not by itself.
fn left_by_clients(server: SocketAddr) -> usize {
    const CLOSE_WAIT: &str = "08";
    let own = format!(":{:04X}", server.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|fields| fields[1].ends_with(&own) && fields[3] == CLOSE_WAIT).count()
}

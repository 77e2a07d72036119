//! Both servers give the responses of the tables, over real sockets.

use super::protocol;
use super::server::{Connection, Response, Site};
use super::table::{self, Body, Expected, Row, Then};
use crate::support::{Workspace, wait_until};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[test]
fn nginx_with_lua_conforms() {
    let workspace = Workspace::quiet();
    let site = Site::nginx_lua(&workspace);
    conforms(&site);
    sleep_ends_when_client_disconnects(&site);
    assert!(!responds_after_shutdown(&site, "10"));
    drop(site);
    workspace.assert_nothing_runs();
}

#[test]
fn built_in_site_conforms() {
    let workspace = Workspace::quiet();
    let site = Site::origin(&workspace);
    conforms(&site);
    assert!(responds_after_shutdown(&site, "0.25"));
    drop(site);
    workspace.assert_nothing_runs();
}

/// Threads that check the rows of one site.
const THREADS: usize = 16;

fn conforms(site: &Site) {
    let differences = protocol::differences().into_iter().map(|difference| match site.name {
        "nginx-lua" => difference.nginx_lua,
        _ => difference.origin,
    });
    let rows: Vec<Row> =
        table::rows().into_iter().chain(protocol::rows()).chain(differences).collect();
    // Side by side: some servers keep a connection for a while before they close it.
    let wrong = std::thread::scope(|scope| {
        let parts: Vec<_> = rows
            .chunks(rows.len().div_ceil(THREADS))
            .map(|part| {
                let differences = part.iter().filter_map(|row| mismatch(site.address, row));
                scope.spawn(move || differences.collect::<Vec<String>>())
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("a checked part")).collect::<Vec<_>>()
    });
    assert!(
        wrong.is_empty(),
        "{}: {} of {}:\n{}",
        site.name,
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    form_may_arrive_in_two_pieces(site);
    continue_is_sent_for_expected_body(site);
    sleep_takes_reported_time(site);
    sleeps_are_concurrent(site);
    small_chunks_do_not_delay_others(site);
}

/// Returns the first difference from a row.
fn mismatch(address: SocketAddr, row: &Row) -> Option<String> {
    let mut connection = Connection::open(address);
    connection.send(row.request.as_bytes());
    let result = row
        .responses
        .iter()
        .try_for_each(|expected| compare(&connection.response(expected.to_head)?, expected))
        .and_then(|()| match row.then {
            Then::Open => {
                connection.send(b"GET /method HTTP/1.1\r\nHost: a\r\n\r\n");
                let next = connection.response(false)?;
                check(next.text() == "{\"method\":\"GET\"}", || format!("next response: {next:?}"))
            }
            Then::Closed => check(connection.is_closed(), || "connection stays open".to_owned()),
        });
    let excerpt: String = row.request.escape_debug().take(300).collect();
    result.err().map(|error| format!("{excerpt}\n    {error}"))
}

fn compare(response: &Response, expected: &Expected) -> Result<(), String> {
    let shown = || {
        let text: String = response.text().chars().take(200).collect();
        format!("{} {:?} {text}", response.status, response.headers)
    };
    let is = |holds: bool, what: &str| check(holds, || format!("{what}: {}", shown()));
    is(response.status == expected.status, &format!("not {}", expected.status))?;
    for (name, value) in &expected.headers {
        is(response.header(name) == Some(value), &format!("no {name}: {value}"))?;
    }
    for name in &expected.without {
        is(response.header(name).is_none(), &format!("with {name}"))?;
    }
    match &expected.body {
        Body::Text(text) => is(matches(&response.text(), text), &format!("not {text}")),
        Body::Filler(size) => is(
            response.body.len() == *size && response.body.iter().all(|byte| *byte == b'x'),
            &format!("{} bytes, not {size} x", response.body.len()),
        ),
        Body::Contains(text) => is(response.text().contains(text), &format!("without {text}")),
        Body::Error => {
            let json: Option<serde_json::Value> = serde_json::from_slice(&response.body).ok();
            let error = json.as_ref().and_then(|json| json["error"].as_str());
            is(error.is_some_and(|error| !error.is_empty()), "no error")
        }
    }
}

/// Returns true if `text` equals `pattern`, in which each `#` stands for a digit.
fn matches(text: &str, pattern: &str) -> bool {
    let same = |(found, wanted): (char, char)| match wanted {
        '#' => found.is_ascii_digit(),
        _ => found == wanted,
    };
    text.chars().count() == pattern.chars().count() && text.chars().zip(pattern.chars()).all(same)
}

fn check(holds: bool, error: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(error()) }
}

/// Splits a form at every byte, so also within each boundary.
fn form_may_arrive_in_two_pieces(site: &Site) {
    let mut connection = Connection::open(site.address);
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\n{}Content-Length: {}\r\n\r\n",
        table::FORM_TYPE,
        table::FORM.len()
    );
    for at in 0..table::FORM.len() {
        let (first, second) = table::FORM.as_bytes().split_at(at);
        connection.send(&[head.as_bytes(), first].concat());
        // Usually long enough for the server to read the first piece; the response is the same anyway.
        std::thread::sleep(Duration::from_millis(1));
        connection.send(second);
        let response =
            connection.response(false).unwrap_or_else(|error| panic!("split at {at}: {error}"));
        compare(&response, &table::form_response())
            .unwrap_or_else(|error| panic!("split at {at}: {error}"));
    }
}

fn continue_is_sent_for_expected_body(site: &Site) {
    for target in ["/upload", "/echo"] {
        let mut connection = Connection::open(site.address);
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        );
        connection.send(head.as_bytes());
        let interim = connection.response(false).expect("an interim response");
        assert_eq!(interim.status, 100, "{target}");
        connection.send(b"hello");
        assert_eq!(connection.response(false).expect("a response").status, 200, "{target}");
    }
}

fn sleep_takes_reported_time(site: &Site) {
    for requested in [0.0005, 0.01, 0.25] {
        let start = Instant::now();
        let mut connection = Connection::open(site.address);
        connection
            .send(format!("GET /sleep?time={requested} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let response = connection.response(false).expect("a response");
        let elapsed = start.elapsed().as_secs_f64();
        let json: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
        let reported = json["time"].as_f64().expect("a time");
        // It is reported in microseconds.
        assert!(
            requested <= reported + 1e-6 && reported <= elapsed + 1e-6,
            "requested {requested}, reported {reported}, elapsed {elapsed}"
        );
    }
}

fn sleeps_are_concurrent(site: &Site) {
    const SLEEPS: u32 = 20;
    let start = Instant::now();
    let mut connections: Vec<Connection> =
        (0..SLEEPS).map(|_| Connection::open(site.address)).collect();
    for connection in &mut connections {
        connection.send(b"GET /sleep?time=0.5 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for connection in &mut connections {
        assert_eq!(connection.response(false).expect("a response").status, 200);
    }
    let took = start.elapsed();
    let sequential = Duration::from_millis(500) * SLEEPS;
    assert!(took < sequential / 2, "{took:?}");
}

/// A download in chunks of one byte is much work for nginx, which writes each chunk. The others send chunks
/// together, so their download is long enough only with more bytes.
fn small_chunks_do_not_delay_others(site: &Site) {
    let size = if site.name == "nginx-lua" { 1_000_000 } else { 200_000_000 };
    let mut download = Connection::open(site.address);
    let request = format!("GET /download?size={size}&chunk_size=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    download.send(request.as_bytes());
    let download = std::thread::spawn(move || download.response(false));
    let mut other = Connection::open(site.address);
    let mut responses = 0;
    loop {
        other.send(b"GET /method HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(other.response(false).expect("a response").status, 200);
        responses += 1;
        if download.is_finished() {
            break;
        }
    }
    let response = download.join().expect("no panic").expect("the file");
    assert_eq!(response.body.len(), size);
    assert!(responses >= 3, "{}: {responses} responses during the download", site.name);
}

/// Returns true if a client of `/sleep` that shuts down its side gets a response.
fn responds_after_shutdown(site: &Site, seconds: &str) -> bool {
    let mut connection = Connection::open(site.address);
    connection.send(format!("GET /sleep?time={seconds} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    // The request is being processed: a later one has its response.
    let mut last = Connection::open(site.address);
    last.send(b"GET /sleep?time=0.1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(last.response(false).expect("a response").status, 200);
    connection.shut_down();
    match connection.response(false) {
        Ok(response) => response.status == 200,
        Err(error) => {
            assert!(error.starts_with("closed after \"\""), "{error}");
            false
        }
    }
}

/// nginx aborts a request whose client disconnects, and so frees its connection.
fn sleep_ends_when_client_disconnects(site: &Site) {
    const SLEEPS: usize = 20;
    let mut connections: Vec<Connection> =
        (0..SLEEPS).map(|_| Connection::open(site.address)).collect();
    for connection in &mut connections {
        connection.send(b"GET /sleep?time=60 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    // The requests are being processed: a later one has its response.
    let mut last = Connection::open(site.address);
    last.send(b"GET /sleep?time=0.1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(last.response(false).expect("a response").status, 200);
    drop((connections, last));
    let are_closed = || closed_by_clients(site.address) == 0;
    assert!(wait_until(Duration::from_secs(30), are_closed), "{} keeps connections", site.name);
}

/// Returns the number of connections that clients have closed, and the server has not.
fn closed_by_clients(server: SocketAddr) -> usize {
    const CLOSE_WAIT: &str = "08";
    let own = format!(":{:04X}", server.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|fields| fields[1].ends_with(&own) && fields[3] == CLOSE_WAIT).count()
}

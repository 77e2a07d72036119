//! Starting and stopping: ports, threads, and what is in flight.

use std::time::{Duration, Instant};

use crate::support::{Client, Served, addr, on_any_port};
use tollgate_origin::{Config, Error, Listen, LogTarget, Origin};

const GET_ONE: &[u8] = b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\n";
const ONE: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Content-Length: 1\r\n\r\nx";

/// A client whose bytes were read: an answer on a later connection shows it.
fn heard(origin: &Served, bytes: &[u8]) -> Client {
    let mut client = origin.client();
    client.send(bytes);
    let mut other = origin.client();
    other.send(GET_ONE);
    other.expect(ONE);
    client
}

#[test]
fn idle_connections_do_not_hold_up_a_stop() {
    for threads in [1, 3] {
        let origin = Served::start(threads);
        let addr = origin.addr;
        let mut clients: Vec<_> = (0..8).map(|_| origin.client()).collect();
        for client in &mut clients {
            client.send(GET_ONE);
            client.expect(ONE);
        }
        let asked = Instant::now();
        origin.stopper.stop().unwrap();
        origin.outcome().unwrap();
        assert!(asked.elapsed() < Duration::from_millis(900));
        for client in &mut clients {
            client.expect_last("");
        }
        // The port is free again.
        Origin::bind(&Config { listen: Listen::Tcp(addr), ..on_any_port(threads) }).unwrap();
    }
}

#[test]
fn what_is_in_flight_finishes() {
    let origin = Served::start(1);
    let mut halfway = origin.client();
    halfway.send(b"POST /?payload=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo");
    let mut large = origin.client();
    large.send(b"GET /?payload=16777216 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(large.head().contains("\r\nContent-Length: 16777216\r\n"));
    // The other request came before on the same thread, so it is under way too.
    origin.stopper.stop().unwrap();
    halfway.send(b"dy");
    halfway.expect(ONE);
    assert_eq!(large.read_to_end().len(), 16 << 20);
    origin.outcome().unwrap();
}

#[test]
fn a_request_that_does_not_finish_is_given_a_second() {
    let origin = Served::start(1);
    let _stuck = heard(&origin, b"GET /?payl");
    let asked = Instant::now();
    origin.stopper.stop().unwrap();
    origin.outcome().unwrap();
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(990), "{took:?}");
    assert!(took < Duration::from_millis(1_900), "{took:?}");
}

#[test]
fn an_origin_may_be_stopped_before_it_serves() {
    let origin = Origin::bind(&on_any_port(2)).unwrap();
    origin.stopper().stop().unwrap();
    origin.serve().unwrap();
}

#[test]
fn two_origins_stop_apart() {
    let first = Served::start(1);
    let second = Served::start(2);
    assert_ne!(first.addr.port(), second.addr.port());
    first.stopper.stop().unwrap();
    first.outcome().unwrap();
    let mut client = second.client();
    client.send(GET_ONE);
    client.expect(ONE);
}

#[test]
fn a_port_is_never_shared_with_another_origin() {
    for (running, asked) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let origin = Served::start(running);
        let error =
            Origin::bind(&Config { listen: Listen::Tcp(origin.addr), ..on_any_port(asked) })
                .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the origin cannot listen on {}; stop what listens there or choose another port",
                origin.addr
            )
        );
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with("Address already in use"), "{cause}");
    }
}

#[test]
fn every_thread_of_a_port_answers() {
    let origin = Served::start(4);
    let mut clients: Vec<_> = (0..64).map(|_| origin.client()).collect();
    for client in &mut clients {
        client.send(GET_ONE);
    }
    for client in &mut clients {
        client.expect(ONE);
    }
}

#[test]
fn impossible_numbers_of_threads_are_refused() {
    for asked in [0, 257] {
        assert_eq!(
            Origin::bind(&on_any_port(asked)).unwrap_err().to_string(),
            format!("an origin cannot run on {asked} threads; ask for 1 to 256")
        );
    }
}

#[test]
fn a_thread_that_cannot_start_ends_the_others() {
    let config = Config { cpus: vec![0, 1_000_000], ..on_any_port(2) };
    let error = Origin::bind(&config).unwrap().serve().unwrap_err();
    assert!(matches!(error, Error::Pin { cpu: 1_000_000, .. }), "{error:?}");
}

#[test]
fn answers_that_wait_for_their_time_are_ended() {
    let origin = Served::start(1);
    let mut sleeper = heard(&origin, b"GET /sleep?time=50 HTTP/1.1\r\nHost: a\r\n\r\n");
    let asked = Instant::now();
    origin.stopper.stop().unwrap();
    origin.outcome().unwrap();
    assert!(asked.elapsed() < Duration::from_millis(900));
    sleeper.expect_last("");
}

#[test]
fn an_answer_that_is_due_before_the_end_is_waited_for() {
    let origin = Served::start(1);
    let mut sleeper = heard(&origin, b"GET /sleep?time=0.4 HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.stopper.stop().unwrap();
    let answer = sleeper.read_to_end();
    assert!(answer.contains("\r\n\r\n{\"time\":0."), "{answer}");
    origin.outcome().unwrap();
}

#[test]
fn requests_that_came_before_a_stop_are_answered_and_logged() {
    const CLIENTS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let access_log = Some(LogTarget::File(path.clone()));
    let origin = Origin::bind(&Config { access_log, ..on_any_port(1) }).unwrap();
    let addr = addr(&origin);
    // Nothing is accepted yet, as on a busy machine.
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(addr)).collect();
    for client in &mut clients {
        client.send(GET_ONE);
    }
    origin.stopper().stop().unwrap();
    origin.serve().unwrap();
    for client in &mut clients {
        let answer = client.read_to_end();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    let log = std::fs::read_to_string(&path).unwrap();
    assert_eq!(log.lines().count(), CLIENTS);
}

#[test]
fn the_access_log_has_a_line_a_request_once_it_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, "before\n").unwrap();
    let access_log = Some(LogTarget::File(path.clone()));
    let origin = Served::serve(Origin::bind(&Config { access_log, ..on_any_port(1) }).unwrap());
    let mut client = origin.client();
    client.send(
        b"POST /echo?a HTTP/1.1\r\nHost: a\r\nUser-Agent: \"me\"\r\nContent-Length: 5\r\n\r\nhel",
    );
    client.send(b"loHEAD /zero HTTP/1.0\r\nReferer: /b\r\n\r\n");
    client.read_to_end();
    let mut client = origin.client();
    client.send(b"GET\r\n\r\n");
    client.read_to_end();
    origin.stopper.stop().unwrap();
    origin.outcome().unwrap();
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "before"), "{log}");
    for (line, end) in lines[1..].iter().zip([
        "\"POST /echo?a HTTP/1.1\" 200 5 \"-\" \"\\x22me\\x22\"",
        "\"HEAD /zero HTTP/1.0\" 200 0 \"/b\" \"-\"",
        "\"\" 400 75 \"-\" \"-\"",
    ]) {
        // 127.0.0.1 - - [21/Nov/2026:20:38:08 +0000] and then that.
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert_eq!(line.split_once("] ").map(|(_, end)| end), Some(end));
    }
    let nowhere = Some(LogTarget::File(dir.path().join("none/log")));
    let error = Origin::bind(&Config { access_log: nowhere, ..on_any_port(1) }).unwrap_err();
    assert!(error.to_string().contains("none/log cannot be opened; choose a file"), "{error}");
}

#[test]
fn the_access_log_tells_what_was_sent_of_answers_that_were_cut_off() {
    const LARGE: u64 = 67_108_864;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let access_log = Some(LogTarget::File(path.clone()));
    let origin = Served::serve(Origin::bind(&Config { access_log, ..on_any_port(1) }).unwrap());
    let mut leaves = origin.client();
    leaves.send(format!("GET /?payload={LARGE} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    leaves.head();
    leaves.skip(1_000_000);
    drop(leaves);
    let mut sleeper = origin.client();
    sleeper.send(b"GET /sleep?time=50 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut uploader = origin.client();
    uploader.send(b"PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbo");
    // Two answers in one go, of which both are sent.
    let mut other = origin.client();
    other.send(&GET_ONE.repeat(2));
    other.expect(&ONE.repeat(2));
    drop(uploader);
    origin.stopper.stop().unwrap();
    origin.outcome().unwrap();
    sleeper.expect_last("");

    let log = std::fs::read_to_string(&path).unwrap();
    let told = |request: &str| -> Vec<(u16, u64)> {
        let lines = log.lines().filter(|line| line.contains(request));
        lines
            .map(|line| {
                let mut words = line.rsplit(' ').skip(2);
                let bytes = words.next().unwrap().parse().unwrap();
                (words.next().unwrap().parse().unwrap(), bytes)
            })
            .collect()
    };
    assert_eq!(told("\"GET /?payload=1 HTTP/1.1\""), [(200, 1), (200, 1)], "{log}");
    assert_eq!(told("/sleep"), [(499, 0)], "{log}");
    assert_eq!(told("/upload"), [(499, 0)], "{log}");
    let large = told("67108864");
    assert_eq!(large.len(), 1, "{log}");
    assert!(large[0].0 == 200 && (1_000_000..LARGE).contains(&large[0].1), "{log}");
}

use std::thread::sleep;
use std::time::Duration;

use tollgate_load::{Plan, Target};

use crate::plans::refused;
use crate::server::{OK, Server, run, scheduled};

const MS: u64 = 1_000_000;

const SLACK: Duration = Duration::from_millis(5);

/// A server that answers after a delay.
fn delaying(delay: Duration) -> Server {
    Server::start(move |peer| {
        while peer.request().is_some() {
            sleep(delay);
            peer.send(OK);
        }
    })
}

fn with_slack(plan: Plan, connections: usize) -> Plan {
    Plan { timer_slack: SLACK, connections, connections_max: connections, ..plan }
}

#[test]
fn answers_are_read_late_and_their_latency_is_that_of_their_arrival() {
    let server = delaying(Duration::from_millis(2));
    let outcome = run(with_slack(scheduled(server.address, 300, 1000.0), 20));
    assert_eq!(outcome.answered, 300, "{outcome:?}");
    // They are read when the nap is over that begins with the send: after 5 ms. A quarter of them is
    // asked for, since a busy machine only ever delays.
    let from_send = outcome.latency_from_send.unwrap();
    let quarter = from_send.quantile_ns(0.25).unwrap();
    assert!((2 * MS..4 * MS).contains(&quarter), "{quarter}");
    assert!(from_send.min_ns().unwrap() >= 2 * MS, "{from_send:?}");
    assert!(outcome.missed_stamps < 150, "{}", outcome.missed_stamps);
}

#[test]
fn what_is_due_within_the_slack_is_sent_together() {
    let server = Server::answering(OK);
    let outcome = run(with_slack(scheduled(server.address, 300, 1000.0), 20));
    // Five are due in each nap, and the first of them is five milliseconds late or a little less.
    let lateness = outcome.lateness.unwrap();
    let late = |quantile| lateness.quantile_ns(quantile).unwrap();
    assert!(late(0.9) > 3 * MS, "{lateness:?}");
    assert!(late(0.25) < 4 * MS, "{lateness:?}");
    assert!(late(0.5) < 6 * MS, "{lateness:?}");
}

#[test]
fn a_low_rate_is_on_time_whatever_the_slack() {
    let server = Server::answering(OK);
    // The gaps of 11 ms leave time for a nap after the send, for one after the answer, and for a wait.
    let outcome = run(with_slack(scheduled(server.address, 80, 90.0), 2));
    assert_eq!(outcome.answered, 80);
    let lateness = outcome.lateness.unwrap();
    assert!(lateness.quantile_ns(0.25).unwrap() < MS / 2, "{lateness:?}");
}

#[test]
fn an_answer_in_pieces_ends_with_the_last() {
    let server = Server::start(|peer| {
        while peer.request().is_some() {
            peer.send(&OK[..20]);
            sleep(Duration::from_millis(2));
            peer.send(&OK[20..]);
        }
    });
    let outcome = run(with_slack(scheduled(server.address, 100, 1000.0), 20));
    let from_send = outcome.latency_from_send.unwrap();
    assert!(from_send.min_ns().unwrap() >= 2 * MS, "{from_send:?}");
    assert!(from_send.quantile_ns(0.25).unwrap() < 4 * MS, "{from_send:?}");
}

#[test]
fn the_end_of_a_stream_has_no_time_stamp_and_that_is_told() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok");
    });
    let outcome = run(with_slack(scheduled(server.address, 20, 1000.0), 20));
    assert_eq!((outcome.answered, outcome.missed_stamps), (20, 20), "{outcome:?}");
}

#[test]
fn a_slack_that_cannot_be_had_is_told() {
    let address = crate::server::closed_port();
    let plan = || with_slack(scheduled(address, 1, 1000.0), 20);
    let cases = [
        (
            Plan { timer_slack: Duration::from_micros(10_500), ..plan() },
            "a timer slack of 10.5 ms: choose at most 10 ms",
        ),
        (
            Plan { arrivals: tollgate_load::Arrivals::Closed, ..plan() },
            "a timer slack needs a schedule: a closed loop has none",
        ),
        (
            Plan { target: Target::Unix("/run/a.sock".into()), ..plan() },
            "a timer slack needs TCP: the kernel does not note when a unix-domain socket receives",
        ),
        (
            Plan { keep_alive: false, ..plan() },
            "a timer slack needs keep-alive: a connect would be seen that late",
        ),
        (
            Plan { pipeline: 2, ..plan() },
            "a timer slack needs a pipeline of 1: of several answers, the arrival of the last is known",
        ),
        (
            Plan { first_byte: true, ..plan() },
            "a timer slack needs no first_byte: the arrival of the last byte is known",
        ),
        (
            with_slack(scheduled(address, 1, 5000.0), 20),
            "25 requests fall due in a timer slack of 5 ms, and 20 connections carry one each: choose more connections, or less slack",
        ),
    ];
    for (plan, reason) in cases {
        assert_eq!(refused(plan), reason);
    }
}

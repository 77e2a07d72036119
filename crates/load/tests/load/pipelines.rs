use std::time::Duration;

use tollgate_load::Plan;

use crate::server::{OK, Server, plan, run, scheduled};

const MS: u64 = 1_000_000;

#[test]
fn as_many_requests_as_asked_for_are_under_way() {
    // It answers only when it has four requests, which come without answers in between.
    let server = Server::start(|peer| {
        while (0..4).all(|_| peer.request().is_some()) {
            peer.send(&OK.repeat(4));
        }
    });
    let outcome = run(Plan { pipeline: 4, ..plan(server.address, 40) });
    assert_eq!((outcome.answered, outcome.connects, outcome.resent), (40, 1, 0), "{outcome:?}");
}

#[test]
fn each_has_a_latency_of_its_own() {
    let server = Server::start(|peer| {
        while peer.request().is_some() {
            peer.sleep(Duration::from_millis(20));
            peer.send(OK);
        }
    });
    let outcome = run(Plan { pipeline: 4, ..plan(server.address, 4) });
    assert_eq!(outcome.answered, 4);
    // 20, 40, 60 and 80 ms: 50 on average.
    let mean = outcome.latency.mean_ns().unwrap() / MS as f64;
    assert!((50.0..65.0).contains(&mean), "{mean}");
    assert!((20 * MS..32 * MS).contains(&outcome.latency.min_ns().unwrap()));
    assert!(outcome.latency.max_ns().unwrap() >= 80 * MS);
}

#[test]
fn what_a_close_leaves_behind_is_sent_again() {
    // Two answers a connection, the second of which says so.
    let server = Server::start(|peer| {
        peer.request();
        peer.send(OK);
        peer.request();
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    });
    let outcome = run(Plan { pipeline: 3, ..plan(server.address, 12) });
    assert_eq!((outcome.answered, outcome.failures.total()), (12, 0), "{outcome:?}");
    assert_eq!(server.connections(), 6);
    // Each of the first five connections leaves one request behind, or two when its first answer has
    // made room for another.
    assert!((5..=10).contains(&outcome.resent), "{}", outcome.resent);
}

#[test]
fn requests_behind_a_close_do_not_wait_for_it() {
    // It says that it closes, and takes its time with that.
    let server = Server::start(|peer| {
        peer.request();
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        peer.sleep(Duration::from_secs(1));
    });
    let outcome = run(Plan { pipeline: 2, ..plan(server.address, 6) });
    assert_eq!((outcome.answered, outcome.connects), (6, 6), "{outcome:?}");
    assert!(outcome.latency.max_ns().unwrap() < 150 * MS, "{outcome:?}");
}

#[test]
fn what_is_sent_again_keeps_its_first_moment() {
    // The first connection takes 60 ms for the first answer, and then closes.
    let connections = std::sync::atomic::AtomicU64::new(0);
    let server = Server::start(move |peer| {
        let is_first = connections.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        if is_first {
            peer.request();
            peer.sleep(Duration::from_millis(60));
            peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        while peer.request().is_some() {
            peer.send(OK);
        }
    });
    let outcome = run(Plan { pipeline: 2, ..plan(server.address, 2) });
    assert_eq!((outcome.answered, outcome.resent), (2, 1), "{outcome:?}");
    assert!(outcome.latency.min_ns().unwrap() >= 60 * MS, "{outcome:?}");
}

#[test]
fn a_timeout_ends_all_that_have_had_their_time() {
    let server = Server::start(|peer| while peer.request().is_some() {});
    let answer_timeout = Duration::from_millis(100);
    let outcome = run(Plan { pipeline: 50, answer_timeout, ..plan(server.address, 50) });
    assert_eq!(outcome.failures.answer_timeout, 50);
    assert_eq!((outcome.resent, server.connections()), (0, 1), "{outcome:?}");
}

#[test]
fn a_fault_costs_the_request_that_it_answers() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(OK);
        peer.request();
        peer.send(b"nonsense\r\n\r\n");
        peer.hang();
    });
    let outcome = run(Plan { pipeline: 4, ..plan(server.address, 10) });
    assert_eq!((outcome.answered, outcome.failures.malformed), (5, 5), "{outcome:?}");
    assert_eq!(outcome.failures.total(), 5);
}

#[test]
fn long_requests_fill_a_pipeline_bit_by_bit() {
    let server = Server::start(|peer| {
        peer.sleep(Duration::from_millis(50));
        while peer.request().is_some() {
            peer.send(OK);
        }
    });
    let body = "x".repeat(300_000);
    let text =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let workload = crate::server::workload(vec![crate::server::request(text.as_bytes())]);
    let outcome = run(Plan { pipeline: 70, workload, ..plan(server.address, 140) });
    assert_eq!((outcome.answered, outcome.connects), (140, 1), "{:?}", outcome.failures);
}

#[test]
fn a_schedule_uses_the_room_in_pipelines() {
    // It answers only when it has all twenty: none may wait for the answer to another.
    let server = Server::start(|peer| {
        while (0..20).all(|_| peer.request().is_some()) {
            peer.send(&OK.repeat(20));
        }
    });
    let open = scheduled(server.address, 20, 10_000.0);
    let outcome = run(Plan { pipeline: 20, ..open });
    assert_eq!((outcome.answered, server.connections()), (20, 1));
}

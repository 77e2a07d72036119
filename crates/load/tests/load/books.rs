use std::time::Duration;

use tollgate_load::{Generator, Plan, Progress};

use crate::server::{OK, PATIENCE, Server, assert_balance, plan, run, scheduled, wait_until};

#[test]
fn exactly_as_many_as_planned() {
    for (requests, connections, threads) in
        [(1, 1, 1), (7, 3, 1), (100, 8, 1), (101, 7, 3), (2, 8, 4)]
    {
        let server = Server::answering(OK);
        let outcome = run(Plan { connections, threads, ..plan(server.address, requests) });
        assert_eq!(server.requests(), requests);
        assert_eq!(outcome.sent, requests);
        assert_eq!(outcome.answered, requests);
        assert_eq!(outcome.failures.total(), 0);
        assert_eq!(outcome.unanswered, 0);
        assert_eq!(outcome.oldest_unanswered, None);
        assert_eq!(outcome.warm_up, Progress::default());
        // "HTTP/1.1 200 OK\r\n" is 17 bytes, the header and the empty line 21, the body 2.
        assert_eq!(outcome.bytes_received, 40 * requests);
        assert_eq!(outcome.connects, requests.min(connections as u64));
        assert_eq!(outcome.connects, server.connections());
        assert_eq!(outcome.threads.len(), threads);
        assert!(outcome.window > Duration::ZERO);
    }
}

#[test]
fn every_request_the_server_counts_is_in_the_books() {
    let server = Server::answering(OK);
    let generator = Generator::start(Plan {
        connections: 5,
        threads: 2,
        requests: None,
        warm_up: true,
        ..plan(server.address, 1)
    })
    .unwrap();
    wait_until(|| generator.progress().answered >= 50);
    let warm = generator.progress();
    generator.open_window();
    wait_until(|| generator.progress().answered >= warm.answered + 200);
    assert!(!generator.is_done());
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert!(outcome.warm_up.answered >= warm.answered);
    assert!(outcome.answered > 0);
    assert!(outcome.unanswered <= 5);
    // What was under way at the end may or may not have reached the server.
    assert!(server.requests() <= outcome.sent);
    assert!(server.requests() + outcome.unanswered >= outcome.sent);
}

#[test]
fn what_is_drained_is_answered_to_the_last_request() {
    for keep_alive in [true, false] {
        let server = Server::answering(OK);
        let generator = Generator::start(Plan {
            connections: 5,
            threads: 2,
            keep_alive,
            requests: None,
            warm_up: true,
            ..plan(server.address, 1)
        })
        .unwrap();
        wait_until(|| generator.progress().answered >= 50);
        assert!(!generator.wait(Duration::from_millis(1)), "nothing has ended it");
        generator.drain();
        assert!(generator.wait(PATIENCE), "it ends by itself");
        assert!(generator.is_done());
        let outcome = generator.finish().unwrap();
        assert_balance(&outcome);
        assert_eq!((outcome.unanswered, outcome.failures.total()), (0, 0));
        assert_eq!(server.requests(), outcome.sent);
    }
}

#[test]
fn a_schedule_that_is_drained_owes_nothing() {
    let server = Server::answering(OK);
    let plan = Plan { requests: None, ..scheduled(server.address, 1, 1_000.0) };
    let generator = Generator::start(plan).unwrap();
    wait_until(|| generator.progress().answered >= 20);
    generator.drain();
    assert!(generator.wait(PATIENCE), "it ends by itself");
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert_eq!((outcome.unanswered, outcome.overdue), (0, 0));
    assert_eq!(server.requests(), outcome.sent);
}

#[test]
fn a_run_without_a_window_measures_nothing() {
    let server = Server::answering(OK);
    let generator =
        Generator::start(Plan { requests: None, warm_up: true, ..plan(server.address, 1) })
            .unwrap();
    wait_until(|| generator.progress().answered >= 10);
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert!(outcome.warm_up.answered >= 10);
    assert_eq!(outcome.answered, 0);
    assert_eq!(outcome.window, Duration::ZERO);
    assert!(outcome.threads.is_empty());
}

#[test]
fn opening_the_window_of_a_counted_plan_changes_nothing() {
    let server = Server::answering(OK);
    let generator = Generator::start(plan(server.address, 500)).unwrap();
    generator.open_window();
    wait_until(|| generator.is_done());
    let progress = generator.progress();
    assert_eq!((progress.answered, progress.failed), (500, 0));
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert_eq!(outcome.answered, 500);
}

#[test]
fn dropping_a_run_ends_it() {
    let server = Server::answering(OK);
    let generator =
        Generator::start(Plan { requests: None, warm_up: true, ..plan(server.address, 1) })
            .unwrap();
    wait_until(|| generator.progress().answered >= 1);
    drop(generator);
    let requests = server.requests();
    std::thread::sleep(Duration::from_millis(50));
    assert!(server.requests() <= requests + 1, "requests went on after the drop");
}

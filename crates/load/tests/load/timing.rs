use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_load::{Generator, Plan};

use crate::server::{OK, Server, assert_balance, plan, run, wait_until};

const MS: u64 = 1_000_000;

/// A server that answers after a delay.
fn delaying(delay: Duration) -> Server {
    Server::start(move |peer| {
        while peer.request().is_some() {
            std::thread::sleep(delay);
            peer.send(OK);
        }
    })
}

fn assert_within(ns: Option<u64>, low_ms: u64, high_ms: u64) {
    let ns = ns.unwrap();
    assert!(
        (low_ms * MS..high_ms * MS).contains(&ns),
        "{ns} ns is not within {low_ms} to {high_ms} ms"
    );
}

#[test]
fn latency_is_the_servers_delay() {
    let server = delaying(Duration::from_millis(10));
    let outcome = run(Plan { connections: 4, ..plan(server.address, 100) });
    assert_within(outcome.latency.quantile_ns(0.5), 10, 20);
    assert_within(outcome.latency.min_ns(), 9, 20);
    // Little's law: four connections that are always waiting finish 4 / mean requests a second.
    let concurrency = outcome.latency.mean_ns().unwrap() * 100.0 / outcome.window.as_nanos() as f64;
    assert!((3.3..=4.01).contains(&concurrency), "{concurrency}");
}

#[test]
fn connecting_counts_only_without_keep_alive() {
    // The backlog takes the connection at once, so the delay of the accept is one of the answer;
    // what is seen is that the clock starts no later than the connect.
    let server = delaying(Duration::from_millis(10));
    let outcome = run(Plan { keep_alive: false, ..plan(server.address, 3) });
    assert_within(outcome.latency.min_ns(), 9, 100);
    // The wait for the server to close is no part of it: the 200 ms that it is given are not there.
    assert_within(outcome.latency.max_ns(), 9, 100);
}

#[test]
fn timeouts_are_counted_and_stay_in_the_distribution() {
    let calls = AtomicU64::new(0);
    let server = Server::start(move |peer| {
        while peer.request().is_some() {
            if calls.fetch_add(1, Ordering::SeqCst) == 1 {
                return peer.hang();
            }
            peer.send(OK);
        }
    });
    let answer_timeout = Duration::from_millis(100);
    let outcome = run(Plan { answer_timeout, ..plan(server.address, 4) });
    assert_eq!((outcome.answered, outcome.failures.answer_timeout), (3, 1), "{outcome:?}");
    assert_eq!(outcome.failures.total(), 1);
    assert_eq!(outcome.connects, 2, "the connection is replaced");
    assert_eq!(outcome.latency.count(), 4);
    assert_within(outcome.latency.max_ns(), 100, 400);
}

#[test]
fn a_trickle_does_not_put_off_the_timeout() {
    let server = Server::start(|peer| {
        while peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
            for _ in 0..1000 {
                peer.send(b"x");
                peer.sleep(Duration::from_millis(1));
            }
        }
    });
    let answer_timeout = Duration::from_millis(50);
    let outcome = run(Plan { answer_timeout, ..plan(server.address, 1) });
    assert_eq!(outcome.failures.answer_timeout, 1, "{outcome:?}");
    assert_within(outcome.latency.max_ns(), 50, 400);
}

#[test]
fn many_timeouts_at_once() {
    let server = stalled();
    let answer_timeout = Duration::from_millis(50);
    let outcome = run(Plan { connections: 20, answer_timeout, ..plan(server.address, 40) });
    assert_eq!(outcome.failures.answer_timeout, 40, "{outcome:?}");
    assert!(outcome.window < Duration::from_secs(1), "{:?}", outcome.window);
}

#[test]
fn the_window_counts_what_finishes_in_it() {
    let released = Arc::<AtomicU64>::default();
    let server = gated(&released);
    let generator = Generator::start(Plan {
        requests: None,
        warm_up: true,
        connections: 3,
        ..plan(server.address, 1)
    })
    .unwrap();
    let answer = |total: u64| {
        released.store(total, Ordering::SeqCst);
        wait_until(|| generator.progress().answered == total);
        wait_until(|| server.requests() == total + 3);
    };
    wait_until(|| server.requests() == 3);
    answer(3);
    generator.open_window();
    // The three requests under way began before the window and finish in it.
    std::thread::sleep(Duration::from_millis(100));
    answer(6);
    generator.open_window();
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(100));
    // Two of the three stay unanswered for longer than the third's successor.
    answer(7);
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert_eq!((outcome.warm_up.answered, outcome.answered, outcome.unanswered), (3, 4, 3));
    assert_eq!(outcome.sent, 10);
    assert_eq!(outcome.bytes_received, 4 * OK.len() as u64);
    assert_eq!(outcome.connects, 3, "of the whole run");
    assert!(outcome.latency.max_ns().unwrap() >= 100 * MS, "{outcome:?}");
    // They were sent after the second round's answers, a moment before the test saw it.
    let oldest = outcome.oldest_unanswered.unwrap();
    let longest = begun.elapsed() + Duration::from_millis(50);
    assert!((Duration::from_millis(100)..longest).contains(&oldest), "{oldest:?}");
    assert!(outcome.window >= Duration::from_millis(150), "{:?}", outcome.window);
}

/// A server that gives as many answers as are released.
fn gated(released: &Arc<AtomicU64>) -> Server {
    let released = Arc::clone(released);
    let given = AtomicU64::new(0);
    Server::start(move |peer| {
        while peer.request().is_some() {
            let turn = given.fetch_add(1, Ordering::SeqCst);
            while released.load(Ordering::SeqCst) <= turn {
                if !peer.sleep(Duration::from_millis(1)) {
                    return;
                }
            }
            peer.send(OK);
        }
    })
}

#[test]
fn a_stalled_server_leaves_its_requests_unanswered() {
    let server = stalled();
    let begun = Instant::now();
    let generator = Generator::start(Plan {
        requests: None,
        warm_up: true,
        connections: 5,
        ..plan(server.address, 1)
    })
    .unwrap();
    wait_until(|| server.requests() == 5);
    generator.open_window();
    std::thread::sleep(Duration::from_millis(50));
    let outcome = generator.finish().unwrap();
    assert_eq!((outcome.sent, outcome.unanswered, outcome.answered), (5, 5, 0));
    // All began before the window, which the age therefore exceeds.
    let oldest = outcome.oldest_unanswered.unwrap();
    assert!((outcome.window..begun.elapsed()).contains(&oldest), "{oldest:?}");
    assert_eq!(outcome.latency.count(), 0);
}

/// A server that reads a request and never answers.
fn stalled() -> Server {
    Server::start(|peer| {
        peer.request();
        peer.hang();
    })
}

#[test]
fn threads_tell_what_they_used_in_the_window() {
    let server = Server::answering(OK);
    let generator = Generator::start(Plan {
        requests: None,
        warm_up: true,
        connections: 4,
        threads: 2,
        ..plan(server.address, 1)
    })
    .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    generator.open_window();
    std::thread::sleep(Duration::from_millis(300));
    let outcome = generator.finish().unwrap();
    assert_eq!(outcome.threads.len(), 2);
    for thread in &outcome.threads {
        let used = thread.user + thread.system;
        assert!(used > Duration::ZERO && used <= thread.window, "{thread:?}");
        assert!((250..700).contains(&thread.window.as_millis()), "{thread:?}");
    }
}

#[test]
fn an_idle_generator_uses_no_cpu() {
    let server = stalled();
    let generator = Generator::start(Plan {
        requests: None,
        warm_up: true,
        connections: 10,
        ..plan(server.address, 1)
    })
    .unwrap();
    wait_until(|| server.requests() == 10);
    generator.open_window();
    std::thread::sleep(Duration::from_millis(500));
    let outcome = generator.finish().unwrap();
    let used = outcome.threads[0].user + outcome.threads[0].system;
    assert!(used < Duration::from_millis(5), "{used:?} of CPU for waiting");
}

#[test]
fn without_a_warm_up_everything_is_measured() {
    let server = Server::answering(OK);
    let plan = Plan { requests: None, connections: 3, ..plan(server.address, 1) };
    let generator = Generator::start(plan).unwrap();
    wait_until(|| generator.progress().answered >= 30);
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert_eq!((outcome.warm_up.answered, outcome.connects), (0, 3));
    assert_eq!(outcome.sent, outcome.answered + outcome.unanswered);
}

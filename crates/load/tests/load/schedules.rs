use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_eventloop::{Socket, listen};
use tollgate_load::{Arrivals, Generator, Plan, Spacing};

use crate::server::{
    GET, OK, Server, assert_balance, closed_port, request, run, scheduled, wait_until, workload,
};

const MS: u64 = 1_000_000;

#[test]
fn a_schedule_is_sent_whole_and_takes_its_time() {
    let server = Server::answering(OK);
    for spacing in [Spacing::Constant, Spacing::Poisson { seed: 7 }] {
        let arrivals = Arrivals::Open { per_second: 1000.0, spacing };
        let plan =
            Plan { connections: 4, threads: 2, arrivals, ..scheduled(server.address, 200, 1.0) };
        let outcome = run(Plan { connections_max: 4, ..plan });
        assert_eq!((outcome.sent, outcome.answered, outcome.overdue), (200, 200, 0));
        let lateness = outcome.lateness.as_ref().unwrap();
        assert_eq!(lateness.count(), 200, "every request is seen to be due once");
        assert_eq!(outcome.latency_from_send.as_ref().unwrap().count(), 200);
        // The 200th is due after 199 gaps of a millisecond; of 100 exponential gaps a thread, the
        // sum's standard deviation is a tenth of its mean.
        let window = outcome.window.as_secs_f64();
        assert!((0.13..1.0).contains(&window), "{spacing:?}: {window}");
    }
    assert_eq!(server.requests(), 400);
}

/// A server that answers its first request after a while, and the others at once.
fn stalling_once(stall: Duration) -> Server {
    let calls = AtomicU64::new(0);
    Server::start(move |peer| {
        while peer.request().is_some() {
            if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                peer.sleep(stall);
            }
            peer.send(OK);
        }
    })
}

#[test]
fn a_stall_delays_what_was_due_in_it() {
    let server = stalling_once(Duration::from_millis(200));
    let outcome = run(scheduled(server.address, 300, 1000.0));
    assert_eq!(outcome.answered, 300);
    // 200 requests were due in the stall: the one that it held up, and those that found no
    // connection. Their latencies go down from 200 ms, a millisecond from one to the next.
    assert!((150..=230).contains(&outcome.held), "{}", outcome.held);
    let over = |quantile| outcome.latency.quantile_ns(quantile).unwrap();
    assert!((60 * MS..160 * MS).contains(&over(0.67)), "a third below 100 ms: {}", over(0.67));
    assert!(over(0.95) > 170 * MS, "{}", over(0.95));
    // From the send, one request took long.
    let from_send = outcome.latency_from_send.unwrap();
    assert!(from_send.quantile_ns(0.95).unwrap() < 50 * MS);
    assert!(from_send.max_ns().unwrap() >= 200 * MS);
    // And the generator was not to blame.
    assert!(outcome.lateness.unwrap().quantile_ns(0.5).unwrap() < 5 * MS);
}

#[test]
fn requests_that_are_due_before_there_is_a_connection_are_held() {
    // Where the backlog is full, the kernel ignores a connect, and tries again after a second.
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let fillers: Vec<_> = (0..4).map(|_| Socket::connect(address).unwrap()).collect();
    let generator = Generator::start(scheduled(address, 100, 1000.0)).unwrap();
    thread::sleep(Duration::from_millis(200));
    drop(fillers);
    let server = thread::spawn(move || {
        use std::io::{Read, Write};
        listener.set_nonblocking(false).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut answers = 0;
            while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
                stream.write_all(OK).unwrap();
                answers += 1;
            }
            if answers > 0 {
                return;
            }
        }
    });
    wait_until(|| generator.is_done());
    let outcome = generator.finish().unwrap();
    server.join().unwrap();
    assert_balance(&outcome);
    assert_eq!((outcome.answered, outcome.held), (100, 100));
    // They count from when they were due, and the generator, which could not send, was not late.
    let lateness = outcome.lateness.unwrap();
    assert_eq!(lateness.count(), 100, "every request is seen to be due once");
    assert!(lateness.quantile_ns(0.5).unwrap() < 50 * MS, "{lateness:?}");
    assert!(outcome.latency.min_ns().unwrap() > 500 * MS);
}

#[test]
fn connections_grow_to_the_cap_and_no_further() {
    let server = stalling_once(Duration::from_millis(300));
    let outcome = run(Plan { connections_max: 3, ..scheduled(server.address, 100, 1000.0) });
    assert_eq!(outcome.answered, 100);
    // Two connections serve what the stalled one cannot.
    assert!(outcome.latency_from_send.unwrap().quantile_ns(0.9).unwrap() < 100 * MS);
    assert!((2..=3).contains(&server.connections()), "{}", server.connections());

    let stalled = Server::start(|peer| {
        peer.request();
        peer.hang();
    });
    let plan = Plan { connections_max: 5, ..scheduled(stalled.address, 100, 1000.0) };
    let generator = Generator::start(plan).unwrap();
    // The last of them is due after 99 ms.
    let late_enough = generator.begins_at() + Duration::from_millis(150);
    wait_until(|| stalled.requests() == 5 && Instant::now() >= late_enough);
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert_eq!((stalled.connections(), outcome.sent, outcome.unanswered), (5, 5, 5));
    // The rest of the schedule was due, and was not sent: the first of it after 5 ms.
    assert_eq!(outcome.overdue, 95);
    assert!(outcome.oldest_overdue.unwrap() >= Duration::from_millis(145));
    assert!(outcome.oldest_overdue < outcome.oldest_unanswered);
    // What was seen to be due was held, but for those that found a connection at once.
    let seen = outcome.lateness.unwrap().count();
    assert!((0..=5).contains(&(seen - outcome.held)), "{seen} seen, {} held", outcome.held);
}

#[test]
fn without_keep_alive_every_request_has_a_connection_of_its_own() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    });
    let plan = scheduled(server.address, 50, 500.0);
    let outcome = run(Plan { keep_alive: false, connections: 10, connections_max: 10, ..plan });
    assert_eq!((outcome.answered, outcome.connects, server.connections()), (50, 50, 50));
    assert_eq!(outcome.kept_alive, 0);
    assert_eq!(outcome.connect_time.count(), 50);
}

#[test]
fn a_server_that_comes_late_is_found() {
    let address = closed_port();
    let plan = Plan { requests: None, warm_up: true, ..scheduled(address, 1, 200.0) };
    let generator = Generator::start(plan).unwrap();
    generator.open_window();
    wait_until(|| generator.progress().failed >= 5);
    let listener = std::net::TcpListener::bind(address).unwrap();
    let server = thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
            stream.write_all(OK).unwrap();
        }
    });
    wait_until(|| generator.progress().answered >= 20);
    let outcome = generator.finish().unwrap();
    server.join().unwrap();
    assert_balance(&outcome);
    assert!(outcome.failures.refused >= 5, "{:?}", outcome.failures);
    assert_eq!(outcome.failures.refused, outcome.failures.total());
}

#[test]
fn an_idle_connection_that_the_server_closes_is_replaced_quietly() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(OK);
    });
    // Time enough for the close to be there before the next request is due.
    let outcome = run(scheduled(server.address, 6, 8.0));
    assert_eq!((outcome.answered, outcome.failures.total()), (6, 0), "{outcome:?}");
    assert_eq!(server.connections(), 6);
}

#[test]
fn those_who_look_see_the_latencies_so_far() {
    let server = Server::answering(OK);
    let plan = Plan { requests: None, warm_up: true, ..scheduled(server.address, 1, 1000.0) };
    let generator = Generator::start(plan).unwrap();
    assert!(generator.begins_at() > Instant::now() - Duration::from_millis(1));
    generator.open_window();
    wait_until(|| generator.latency_so_far().count() > 20);
    let progress = generator.progress();
    assert!(progress.latency_ns_sum > 0 && progress.answered > 20, "{progress:?}");
}

#[test]
fn nothing_grows_while_a_connection_is_free() {
    let server = Server::answering(OK);
    let outcome = run(Plan { connections_max: 20, ..scheduled(server.address, 8, 20.0) });
    assert_eq!((outcome.answered, outcome.held), (8, 0), "{outcome:?}");
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_rate_beyond_all_means_is_still_measured() {
    let server = Server::answering(OK);
    let plan = scheduled(server.address, 1, 5_000_000.0);
    let plan = Plan { requests: None, connections: 4, connections_max: 4, pipeline: 100, ..plan };
    let generator = Generator::start(plan).unwrap();
    thread::sleep(Duration::from_millis(400));
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert!(outcome.window > Duration::from_millis(300), "{outcome:?}");
    assert!(outcome.answered > 1000 && outcome.overdue > 1000, "{outcome:?}");
}

#[test]
fn timeouts_are_in_every_distribution() {
    let server = Server::start(|peer| {
        while let Some(request) = peer.request() {
            if request.starts_with(b"GET") {
                peer.send(OK);
            } else {
                return peer.hang();
            }
        }
    });
    let requests = vec![request(GET), request(b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n")];
    let plan = Plan {
        workload: workload(requests),
        answer_timeout: Duration::from_millis(50),
        first_byte: true,
        ..scheduled(server.address, 4, 1000.0)
    };
    let outcome = run(plan);
    assert_eq!((outcome.answered, outcome.failures.answer_timeout), (2, 2), "{outcome:?}");
    assert_eq!(outcome.latency_from_send.unwrap().count(), 4);
    assert_eq!([0, 1].map(|i: usize| outcome.templates[i].latency.count()), [2, 2]);
    assert!(outcome.templates[1].latency.min_ns().unwrap() >= 50 * MS);
    assert_eq!(outcome.first_byte.unwrap().count(), 2, "a timeout has no first byte");
}

#[test]
fn the_first_byte_comes_before_the_last() {
    let server = Server::start(|peer| {
        while peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            peer.sleep(Duration::from_millis(40));
            peer.send(b"ok");
        }
    });
    let outcome = run(Plan { first_byte: true, ..scheduled(server.address, 2, 10.0) });
    assert!(outcome.first_byte.unwrap().max_ns().unwrap() < 30 * MS);
    assert!(outcome.latency.min_ns().unwrap() >= 40 * MS);
}

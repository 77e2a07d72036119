use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use tollgate_load::{Generator, Interval, Phases, Rate, RateStage};
use tollgate_net::{Socket, listen};
use tollgate_traffic::load_shape::{Protocol, Spacing};

use crate::server::{
    LAST, MS, OK, Server, closed_port, finish, is_at_least, open_loop, plan, run, run_until,
    scheduled, set_connections, set_connections_max, wait_until, with,
};

#[test]
fn schedule_is_sent_completely_and_on_time() {
    let server = Server::responding(OK);
    for spacing in [Spacing::Constant, Spacing::Poisson] {
        let summary = run(with(plan(server.address, 200), |plan| {
            plan.arrivals = open_loop(Rate::Constant(1000.0), spacing);
            set_connections(plan, 4);
            plan.clients.threads = 2;
        }));
        assert_eq!((summary.sent, summary.responses, summary.unsent), (200, 200, 0));
        assert_eq!(summary.lateness.as_ref().unwrap().count(), 200);
        assert_eq!(summary.uncorrected_latency.as_ref().unwrap().count(), 200);
        // The 200th is due after 199 gaps of 1 ms. The sum of 100 exponential gaps per thread has a
        // standard deviation of a tenth of its mean.
        let window_s = summary.window.as_secs_f64();
        assert!(window_s >= 0.13, "{spacing:?}: {window_s}");
    }
    assert_eq!(server.requests(), 400);
}

#[test]
fn schedule_of_a_length_has_exactly_its_requests() {
    let server = Server::responding(OK);
    for (per_second, ms, count) in [(1000.0, 1, 1), (999.0, 10, 10), (500.0, 60, 30)] {
        let plan = with(scheduled(server.address, 1, per_second), |plan| {
            set_connections(plan, 2);
            plan.clients.threads = 2;
            plan.phases = Phases::For(Duration::from_millis(ms));
        });
        let summary = run(plan);
        assert_eq!(summary.sent + summary.unsent, count, "{summary:?}");
        assert!(summary.window >= Duration::from_millis(ms), "{summary:?}");
    }
}

#[test]
fn closed_loop_of_a_length_ends_by_itself() {
    let server = Server::responding(OK);
    let plan = with(plan(server.address, 1), |plan| {
        plan.phases = Phases::For(Duration::from_millis(50));
    });
    let summary = run(plan);
    assert!(summary.window >= Duration::from_millis(50) && summary.responses > 0, "{summary:?}");
}

#[test]
fn stages_are_sent_as_their_integral() {
    let server = Server::responding(OK);
    let length = Duration::from_millis(100);
    let stage = |from_per_s, to_per_s| RateStage { from_per_s, to_per_s, length };
    // 50 requests, none, and 100.
    let stages = vec![stage(0.0, 1_000.0), stage(0.0, 0.0), stage(1_000.0, 1_000.0)];
    let plan = with(plan(server.address, 1), |plan| {
        plan.arrivals = open_loop(Rate::Stages(stages), Spacing::Constant);
        set_connections(plan, 4);
        plan.clients.threads = 2;
        plan.series = Some(length);
        plan.phases = Phases::Endless;
    });
    let mut generator = Generator::start(plan).unwrap();
    let series = generator.take_series().unwrap();
    wait_until(|| generator.progress().responses == 150);
    // Nothing is due after the stages.
    assert!(!generator.wait(Duration::from_millis(50)));
    let summary = finish(generator);
    assert_eq!((summary.sent, summary.unsent, server.requests()), (150, 0, 150));
    let intervals: Vec<Interval> = series.collect();
    assert_eq!(intervals.iter().map(|interval| interval.sent).sum::<u64>(), 150);
    // A delay of the machine moves requests to later intervals, never to earlier ones.
    assert!(intervals[0].sent <= 50 && intervals[0].sent + intervals[1].sent <= 50);
}

/// Delays the response to its first request only.
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
fn latency_includes_the_wait_of_queued_requests() {
    let server = stalling_once(Duration::from_millis(200));
    let summary = run(scheduled(server.address, 300, 1000.0));
    assert_eq!(summary.responses, 300);
    // About 200 requests were due during the stall: the delayed one, and those without a free
    // connection, whose latencies fall from 200 ms by 1 ms each.
    assert!((150..300).contains(&summary.queued), "{}", summary.queued);
    let quantile = |q| summary.latency.quantile_ns(q).unwrap();
    assert!(quantile(0.67) > 60 * MS && quantile(0.95) > 170 * MS, "{summary:?}");
    // Since its send, one request took long.
    let uncorrected = summary.uncorrected_latency.unwrap();
    assert!(uncorrected.quantile_ns(0.95).unwrap() < 150 * MS, "{uncorrected:?}");
    assert!(is_at_least(uncorrected.max_ns().unwrap(), 200 * MS));
    // The generator was on time.
    assert!(summary.lateness.unwrap().quantile_ns(0.5).unwrap() < 50 * MS);
}

#[test]
fn requests_due_before_a_connection_are_queued() {
    // If the backlog is full, the kernel ignores a connect and tries again after a second.
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let fillers: Vec<_> = (0..4).map(|_| Socket::connect(address).unwrap()).collect();
    let generator = Generator::start(scheduled(address, 100, 1000.0)).unwrap();
    sleep(Duration::from_millis(200));
    drop(fillers);
    let server = thread::spawn(move || {
        listener.set_nonblocking(false).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut responses = 0;
            while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
                stream.write_all(OK).unwrap();
                responses += 1;
            }
            if responses > 0 {
                return;
            }
        }
    });
    wait_until(|| generator.is_done());
    let summary = finish(generator);
    server.join().unwrap();
    assert_eq!((summary.responses, summary.queued), (100, 100));
    // The latency starts when they were due, and the generator was not late.
    let lateness = summary.lateness.unwrap();
    assert_eq!(lateness.count(), 100);
    assert!(lateness.quantile_ns(0.5).unwrap() < 200 * MS, "{lateness:?}");
    assert!(summary.latency.min_ns().unwrap() > 500 * MS);
}

#[test]
fn connections_grow_up_to_their_limit() {
    let server = stalling_once(Duration::from_millis(300));
    let summary =
        run(with(scheduled(server.address, 100, 1000.0), |plan| set_connections_max(plan, 3)));
    assert_eq!(summary.responses, 100);
    // Two connections serve the requests behind the stalled one.
    assert!(summary.uncorrected_latency.unwrap().quantile_ns(0.5).unwrap() < 250 * MS);
    assert!((2..=3).contains(&server.connections()), "{}", server.connections());

    let stalled = Server::stalled();
    let plan = with(scheduled(stalled.address, 100, 1000.0), |plan| set_connections_max(plan, 5));
    let generator = Generator::start(plan).unwrap();
    // The last request is due after 99 ms.
    let all_due = generator.starts_at() + Duration::from_millis(150);
    wait_until(|| stalled.requests() == 5 && Instant::now() >= all_due);
    let summary = finish(generator);
    assert_eq!((stalled.connections(), summary.sent, summary.in_flight), (5, 5, 5));
    // The rest was due, but not sent: the first of it after 5 ms.
    assert_eq!(summary.unsent, 95);
    assert!(summary.oldest_unsent.unwrap() >= Duration::from_millis(145));
    assert!(summary.oldest_unsent < summary.oldest_in_flight);
    // All that was due was queued, except for those that got a connection at once.
    let due = summary.lateness.unwrap().count();
    assert!((0..=5).contains(&(due - summary.queued)), "{due} due, {} queued", summary.queued);
}

#[test]
fn connections_do_not_grow_while_one_is_free() {
    let server = Server::responding(OK);
    let plan = with(scheduled(server.address, 8, 20.0), |plan| set_connections_max(plan, 20));
    run_until(&plan, |it| (it.responses, it.queued, it.connects) == (8, 0, 1));
}

#[test]
fn schedule_without_keep_alive_opens_a_connection_per_request() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(LAST);
    });
    let plan = scheduled(server.address, 50, 500.0);
    let summary = run(with(plan, |plan| {
        set_connections(plan, 10);
        set_connections_max(plan, 10);
        plan.clients.protocol = Protocol::Http1Close;
    }));
    assert_eq!((summary.responses, summary.connects, server.connections()), (50, 50, 50));
    assert_eq!((summary.kept_alive, summary.connect_time.count()), (0, 50));
}

#[test]
fn server_that_starts_late_is_found() {
    let address = closed_port();
    let plan = with(scheduled(address, 1, 200.0), |plan| plan.phases = Phases::WarmUp);
    let generator = Generator::start(plan).unwrap();
    generator.open_window();
    wait_until(|| generator.progress().failed >= 5);
    let listener = TcpListener::bind(address).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
            stream.write_all(OK).unwrap();
        }
    });
    wait_until(|| generator.progress().responses >= 20);
    let summary = finish(generator);
    server.join().unwrap();
    assert!(summary.failures.refused >= 5, "{:?}", summary.failures);
    assert_eq!(summary.failures.refused, summary.failures.total());
}

#[test]
fn idle_connection_closed_by_the_server_costs_no_request() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(OK);
    });
    // Time enough for the close before the next request is due.
    let summary = run(scheduled(server.address, 6, 8.0));
    assert_eq!((summary.responses, summary.failures.total()), (6, 0), "{summary:?}");
    assert_eq!(server.connections(), 6);
}

#[test]
fn rate_beyond_capacity_is_measured() {
    let server = Server::responding(OK);
    let plan = scheduled(server.address, 1, 5_000_000.0);
    let plan = with(plan, |plan| {
        set_connections(plan, 4);
        plan.clients.protocol = Protocol::Http1 { pipeline: 100 };
        plan.phases = Phases::Endless;
    });
    let generator = Generator::start(plan).unwrap();
    wait_until(|| generator.progress().responses > 1000);
    let summary = finish(generator);
    assert!(summary.window > Duration::ZERO && summary.responses > 1000, "{summary:?}");
    assert!(summary.unsent > 1000, "{summary:?}");
}

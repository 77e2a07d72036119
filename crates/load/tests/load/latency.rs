use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_load::{Generator, Phases, Plan};
use tollgate_traffic::load_shape::Protocol;

use crate::server::{
    GET, MS, OK, Server, endless, finish, is_at_least, plan, request, run, run_until, scheduled,
    set_connections, wait_until, with, workload,
};

#[test]
fn latency_includes_the_delay_of_the_server() {
    let server = Server::delaying(Duration::from_millis(10));
    let summary = run(with(plan(server.address, 100), |plan| set_connections(plan, 4)));
    assert!(is_at_least(summary.latency.min_ns().unwrap(), 10 * MS));
    // Little's law: four connections that always wait complete 4 / mean requests per second.
    let mean_ns = summary.latency.mean_ns().unwrap();
    let in_flight = mean_ns * 100.0 / summary.window.as_nanos() as f64;
    assert!((3.0..=4.01).contains(&in_flight), "{in_flight}");
}

#[test]
fn latency_without_keep_alive_ends_with_the_response() {
    let server = Server::delaying(Duration::from_millis(10));
    let summary =
        run(with(plan(server.address, 3), |plan| plan.clients.protocol = Protocol::Http1Close));
    assert!(is_at_least(summary.latency.min_ns().unwrap(), 10 * MS));
    // Without the 200 ms that the server gets to close.
    assert!(summary.latency.min_ns().unwrap() < 200 * MS, "{summary:?}");
}

#[test]
fn timeouts_are_counted_in_every_distribution() {
    let server = Server::start(|peer| {
        while let Some(request) = peer.request() {
            if request.starts_with(b"GET") {
                peer.send(OK);
            } else {
                return peer.hang();
            }
        }
    });
    let requests = vec![request(GET), request(b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n")];
    let open = with(scheduled(server.address, 4, 1000.0), |plan| {
        plan.workload = workload(requests);
        plan.clients.response_timeout = Duration::from_millis(300);
        plan.first_byte = true;
    });
    let closed =
        Plan { arrivals: tollgate_load::Arrivals::Closed { connections: 1 }, ..open.clone() };
    for plan in [open, closed] {
        let summary = run(plan);
        assert_eq!((summary.responses, summary.failures.response_timeout), (2, 2), "{summary:?}");
        assert_eq!((summary.failures.total(), summary.connects), (2, 2), "{summary:?}");
        assert!(summary.uncorrected_latency.is_none_or(|latency| latency.count() == 4));
        assert_eq!([0, 1].map(|i: usize| summary.templates[i].latency.count()), [2, 2]);
        assert!(is_at_least(summary.templates[1].latency.min_ns().unwrap(), 300 * MS));
        assert_eq!(summary.first_byte.unwrap().count(), 2, "a timeout has no first byte");
    }
}

#[test]
fn slow_bytes_do_not_extend_the_timeout() {
    let server = Server::start(|peer| {
        while peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
            while peer.sleep(Duration::from_millis(1)) && !peer.is_closed() {
                peer.send(b"x");
            }
        }
    });
    let response_timeout = Duration::from_millis(50);
    let summary =
        run(with(plan(server.address, 1), |plan| plan.clients.response_timeout = response_timeout));
    assert_eq!(summary.failures.response_timeout, 1, "{summary:?}");
    assert!(is_at_least(summary.latency.min_ns().unwrap(), 50 * MS));
}

#[test]
fn many_requests_time_out_at_once() {
    let server = Server::stalled();
    let response_timeout = Duration::from_millis(50);
    let summary = run(with(plan(server.address, 40), |plan| {
        set_connections(plan, 20);
        plan.clients.response_timeout = response_timeout;
    }));
    assert_eq!(summary.failures.response_timeout, 40, "{summary:?}");
}

/// Sends as many responses as are released.
fn gated(released: &Arc<AtomicU64>) -> Server {
    let released = Arc::clone(released);
    let sent = AtomicU64::new(0);
    Server::start(move |peer| {
        while peer.request().is_some() {
            let turn = sent.fetch_add(1, Ordering::SeqCst);
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
fn window_counts_what_finishes_in_it() {
    let released = Arc::<AtomicU64>::default();
    let server = gated(&released);
    let generator =
        Generator::start(with(endless(server.address), |plan| set_connections(plan, 3))).unwrap();
    let release = |total: u64| {
        released.store(total, Ordering::SeqCst);
        wait_until(|| generator.progress().responses == total);
        wait_until(|| server.requests() == total + 3);
    };
    wait_until(|| server.requests() == 3);
    release(3);
    generator.open_window();
    // The three requests in flight were sent before the window and finish in it.
    thread::sleep(Duration::from_millis(100));
    release(6);
    generator.open_window();
    let released_at = Instant::now();
    thread::sleep(Duration::from_millis(100));
    // Two of the three stay in flight longer than the successor of the third.
    release(7);
    let summary = finish(generator);
    assert_eq!((summary.warm_up.responses, summary.responses, summary.in_flight), (3, 4, 3));
    assert_eq!(summary.sent, 10);
    assert_eq!(summary.bytes_received, 4 * OK.len() as u64);
    assert_eq!(summary.connects, 3, "of the whole run");
    assert!(is_at_least(summary.latency.max_ns().unwrap(), 100 * MS), "{summary:?}");
    // They were sent just before the test noticed the second release.
    let oldest = summary.oldest_in_flight.unwrap();
    assert!(oldest >= Duration::from_millis(100), "{oldest:?}");
    assert!(oldest < released_at.elapsed() + Duration::from_secs(1), "{oldest:?}");
    assert!(summary.window >= Duration::from_millis(150), "{:?}", summary.window);
}

#[test]
fn stalled_requests_are_in_flight_at_the_end() {
    let server = Server::stalled();
    let started_at = Instant::now();
    let generator =
        Generator::start(with(endless(server.address), |plan| set_connections(plan, 5))).unwrap();
    wait_until(|| server.requests() == 5);
    generator.open_window();
    thread::sleep(Duration::from_millis(50));
    let summary = finish(generator);
    assert_eq!((summary.sent, summary.in_flight, summary.responses), (5, 5, 0));
    // All were sent before the window opened.
    let oldest = summary.oldest_in_flight.unwrap();
    assert!((summary.window..started_at.elapsed()).contains(&oldest), "{oldest:?}");
    assert_eq!(summary.latency.count(), 0);
}

#[test]
fn first_byte_arrives_before_the_last() {
    let server = Server::start(|peer| {
        while peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            peer.sleep(Duration::from_millis(400));
            peer.send(b"ok");
        }
    });
    let summary = run(Plan { first_byte: true, ..scheduled(server.address, 2, 10.0) });
    let first_byte = summary.first_byte.unwrap();
    assert!(is_at_least(summary.latency.min_ns().unwrap(), 400 * MS));
    assert!(first_byte.min_ns().unwrap() + 30 * MS < summary.latency.min_ns().unwrap());
}

#[test]
fn live_latency_is_readable_during_the_run() {
    let server = Server::responding(OK);
    let plan = with(scheduled(server.address, 1, 1000.0), |plan| plan.phases = Phases::WarmUp);
    let generator = Generator::start(plan).unwrap();
    generator.open_window();
    wait_until(|| generator.live_latency().count() > 20);
    let progress = generator.progress();
    assert!(progress.latency_ns_sum > 0 && progress.responses > 20, "{progress:?}");
}

#[test]
fn threads_report_their_cpu_time() {
    let server = Server::responding(OK);
    let plan = with(endless(server.address), |plan| {
        set_connections(plan, 4);
        plan.clients.threads = 2;
    });
    let generator = Generator::start(plan).unwrap();
    wait_until(|| generator.progress().responses >= 100);
    generator.open_window();
    thread::sleep(Duration::from_millis(300));
    let summary = finish(generator);
    assert_eq!(summary.threads.len(), 2);
    for thread in &summary.threads {
        let used = thread.user + thread.system;
        assert!(used > Duration::ZERO && used <= thread.window, "{thread:?}");
        assert!(thread.window >= Duration::from_millis(250), "{thread:?}");
        assert_eq!(thread.polled, Duration::ZERO, "{thread:?}");
    }
}

#[test]
fn idle_generator_uses_no_cpu() {
    let server = Server::stalled();
    let generator =
        Generator::start(with(endless(server.address), |plan| set_connections(plan, 10))).unwrap();
    wait_until(|| server.requests() == 10);
    generator.open_window();
    thread::sleep(Duration::from_millis(500));
    let thread = finish(generator).threads[0];
    let used = thread.user + thread.system;
    assert!(used < Duration::from_millis(5), "{used:?} of CPU for waiting");
}

#[test]
fn idle_polling_is_told_apart_from_work() {
    // Ten requests with a delay of 20 ms each.
    let server = Server::delaying(Duration::from_millis(20));
    let thread =
        run(with(plan(server.address, 10), |plan| plan.clients.busy_poll = true)).threads[0];
    // Polls without an event are counted up to the last one before an event.
    assert!(thread.polled > Duration::ZERO && thread.polled <= thread.window, "{thread:?}");
    // A thread that waits for a CPU cannot poll.
    assert!(thread.polled + thread.waited > Duration::from_millis(50), "{thread:?}");

    // On a schedule, at most 80 us before each request every 2 ms.
    let server = Server::responding(OK);
    run_until(&scheduled(server.address, 100, 500.0), |summary| {
        let thread = summary.threads[0];
        assert!(thread.polled < thread.window / 2, "{thread:?}");
        thread.polled > Duration::ZERO
    });
}

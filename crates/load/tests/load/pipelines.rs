use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_traffic::load_shape::Protocol;

use crate::server::{
    LAST, MS, OK, Server, is_at_least, plan, post, run, scheduled, with, workload,
};

#[test]
fn pipeline_keeps_its_number_of_requests_in_flight() {
    // The server responds only when it has four requests.
    let server = Server::start(|peer| {
        while (0..4).all(|_| peer.request().is_some()) {
            peer.send(&OK.repeat(4));
        }
    });
    let summary = run(with(plan(server.address, 40), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 4 }
    }));
    assert_eq!((summary.responses, summary.connects, summary.resent), (40, 1, 0), "{summary:?}");
}

#[test]
fn each_pipelined_request_has_its_own_latency() {
    // After three requests, each response waits for another request and 20 ms. From the fifth on, a request follows the
    // receipt of a response.
    let server = Server::start(|peer| {
        let has_three = (0..3).all(|_| peer.request().is_some());
        for waits in [true, true, true, true, true, false, false, false] {
            if !has_three || (waits && peer.request().is_none()) {
                return;
            }
            peer.sleep(Duration::from_millis(20));
            peer.send(OK);
        }
    });
    let summary = run(with(plan(server.address, 8), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 4 }
    }));
    assert_eq!(summary.responses, 8);
    // At least 20, 40, 60 and 80 ms, then 80 ms.
    let (min, mean) = (summary.latency.min_ns().unwrap(), summary.latency.mean_ns().unwrap());
    assert!(is_at_least(min, 20 * MS) && mean >= 64.9 * MS as f64, "{min} {mean}");
    let max = summary.latency.max_ns().unwrap();
    assert!(is_at_least(max, min + 60 * MS), "{min} {max}");
}

#[test]
fn requests_left_by_a_close_are_sent_again() {
    // Two responses per connection, the second of which announces the close.
    let server = Server::start(|peer| {
        peer.request();
        peer.send(OK);
        peer.request();
        peer.send(LAST);
    });
    let summary = run(with(plan(server.address, 12), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 3 }
    }));
    assert_eq!((summary.responses, summary.failures.total()), (12, 0), "{summary:?}");
    assert_eq!(server.connections(), 6);
    // Each of the first five connections leaves one request, or two if its first response has made room
    // for another.
    assert!((5..=10).contains(&summary.resent), "{}", summary.resent);
}

#[test]
fn requests_behind_an_announced_close_do_not_wait_for_it() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(LAST);
        peer.sleep(Duration::from_secs(10));
    });
    let summary = run(with(plan(server.address, 6), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 2 }
    }));
    assert_eq!((summary.responses, summary.connects), (6, 6), "{summary:?}");
    assert!(summary.latency.max_ns().unwrap() < 5_000 * MS, "{summary:?}");
}

#[test]
fn latency_of_a_resent_request_starts_at_its_first_send() {
    // The first connection responds after 60 ms and closes.
    let is_first = AtomicBool::new(true);
    let server = Server::start(move |peer| {
        if is_first.swap(false, Ordering::SeqCst) {
            peer.request();
            peer.sleep(Duration::from_millis(60));
            return peer.send(LAST);
        }
        while peer.request().is_some() {
            peer.send(OK);
        }
    });
    let summary = run(with(plan(server.address, 2), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 2 }
    }));
    assert_eq!((summary.responses, summary.resent), (2, 1), "{summary:?}");
    assert!(is_at_least(summary.latency.min_ns().unwrap(), 60 * MS), "{summary:?}");
}

#[test]
fn timeout_fails_all_requests_of_a_pipeline() {
    let server = Server::start(|peer| while peer.request().is_some() {});
    let response_timeout = Duration::from_millis(100);
    let summary = run(with(plan(server.address, 50), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 50 };
        plan.clients.response_timeout = response_timeout;
    }));
    assert_eq!(summary.failures.response_timeout, 50);
    assert_eq!((summary.resent, server.connections()), (0, 1), "{summary:?}");
}

#[test]
fn malformed_response_fails_one_request_of_a_pipeline() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(OK);
        peer.request();
        peer.send(b"nonsense\r\n\r\n");
        peer.hang();
    });
    let summary = run(with(plan(server.address, 10), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 4 }
    }));
    assert_eq!((summary.responses, summary.failures.malformed), (5, 5), "{summary:?}");
    assert_eq!(summary.failures.total(), 5);
}

#[test]
fn long_requests_are_sent_in_parts() {
    let server = Server::start(|peer| {
        peer.sleep(Duration::from_millis(50));
        while peer.request().is_some() {
            peer.send(OK);
        }
    });
    let workload = workload(vec![post(300_000)]);
    let summary = run(with(plan(server.address, 140), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 70 };
        plan.workload = workload;
    }));
    assert_eq!((summary.responses, summary.connects), (140, 1), "{:?}", summary.failures);
}

#[test]
fn schedule_uses_the_room_of_a_pipeline() {
    // The server responds only when it has all twenty.
    let server = Server::start(|peer| {
        while (0..20).all(|_| peer.request().is_some()) {
            peer.send(&OK.repeat(20));
        }
    });
    let summary = run(with(scheduled(server.address, 20, 10_000.0), |plan| {
        plan.clients.protocol = Protocol::Http1 { pipeline: 20 }
    }));
    assert_eq!((summary.responses, server.connections()), (20, 1));
}

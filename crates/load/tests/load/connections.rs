use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_eventloop::{Socket, listen};
use tollgate_load::{Failures, Generator, Plan};

use crate::server::{
    OK, Server, assert_balance, closed_port, plan, request, run, wait_until, workload,
};

const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_server_that_announces_its_close_costs_no_request() {
    let server = Server::start(|peer| {
        for answer in [OK, OK, LAST] {
            if peer.request().is_none() {
                return;
            }
            peer.send(answer);
        }
    });
    let outcome = run(Plan { connections: 2, ..plan(server.address, 30) });
    assert_eq!((outcome.answered, outcome.failures.total()), (30, 0), "{outcome:?}");
    assert_eq!(server.requests(), 30);
    // 15 requests on each of two connections would be 10; how they are spread decides.
    assert!((10..=12).contains(&outcome.connects), "{}", outcome.connects);
}

#[test]
fn a_server_that_closes_unannounced_costs_the_request_on_its_way() {
    let server = Server::start(|peer| {
        for _ in 0..3 {
            if peer.request().is_none() {
                return;
            }
            peer.send(OK);
        }
    });
    let outcome = run(plan(server.address, 40));
    let Failures { reset, closed_early, .. } = outcome.failures;
    // Three answers and one lost request a connection, unless the close is seen before the next
    // request leaves: then nothing is lost.
    assert_eq!(outcome.failures.total(), reset + closed_early, "{outcome:?}");
    assert!(reset + closed_early <= 10, "{outcome:?}");
    assert_eq!(outcome.answered + reset + closed_early, 40);
    assert!(outcome.connects >= 10, "{}", outcome.connects);
}

#[test]
fn a_close_that_comes_with_the_answer_costs_no_request() {
    let server = Server::start(|peer| {
        peer.request();
        peer.send(OK);
    });
    // While the generator's only thread is kept busy by the other connection, answer and end of the
    // stream are both there when it looks.
    let outcome = run(Plan { connections: 2, ..plan(server.address, 200) });
    let lost = outcome.failures.total();
    assert!(lost < 100, "{outcome:?}");

    let together = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = together.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        for _ in 0..20 {
            let (mut stream, _) = together.accept().unwrap();
            let _bytes = stream.read(&mut [0; 1024]).unwrap();
            // Corked, the answer leaves with the end of the stream.
            rustix::net::sockopt::set_tcp_cork(&stream, true).unwrap();
            stream.write_all(OK).unwrap();
        }
    });
    let outcome = run(plan(address, 20));
    server.join().unwrap();
    assert_eq!((outcome.answered, outcome.failures.total()), (20, 0), "{outcome:?}");
    assert_eq!(outcome.connects, 20);
}

#[test]
fn an_answer_is_read_though_the_rest_of_the_request_is_refused() {
    const BODY_BYTES: usize = 8_000_000;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let post = [head.as_bytes(), &vec![b'x'; BODY_BYTES]].concat();
    // It answers at once, and closes with most of the request unread: that is a reset.
    let server = Server::start(|peer| {
        peer.half_a_request();
        peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        peer.sleep(Duration::from_millis(5));
    });
    let workload = workload(vec![request(&post)]);
    let outcome = run(Plan { workload, connections: 2, ..plan(server.address, 20) });
    assert_eq!(outcome.templates[0].statuses, [(413, 20)].into(), "{outcome:?}");
}

#[test]
fn a_close_that_is_seen_in_time_costs_no_request() {
    // Closing with half a request unread resets the connection right behind the answer.
    let server = Server::start(|peer| {
        if peer.half_a_request() {
            peer.send(OK);
        }
    });
    let generator =
        Generator::start(Plan { requests: None, warm_up: true, ..plan(server.address, 1) })
            .unwrap();
    // Each connection carries one answer. Were the request behind each of them lost, there would be
    // as many failures as answers.
    wait_until(|| {
        let progress = generator.progress();
        progress.answered > progress.failed + 10
    });
    assert_balance(&generator.finish().unwrap());
}

#[test]
fn a_connect_that_takes_too_long_is_given_up() {
    // Where the backlog is full, the kernel ignores further connects.
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let _fillers: Vec<_> = (0..4).map(|_| Socket::connect(address).unwrap()).collect();
    let connect_timeout = Duration::from_millis(50);
    let outcome = run(Plan { connect_timeout, ..plan(address, 3) });
    assert_eq!(outcome.failures.connect_timeout, 3, "{outcome:?}");
    assert_eq!(outcome.connects, 0);
    let shortest = Duration::from_nanos(outcome.latency.min_ns().unwrap());
    assert!((connect_timeout..connect_timeout * 4).contains(&shortest), "{shortest:?}");

    let generator = Generator::start(Plan { connections: 2, ..plan(address, 9) }).unwrap();
    // After a second, requests no longer wait for the connections before they are counted.
    std::thread::sleep(Duration::from_millis(1_100));
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    assert_eq!((outcome.sent, outcome.unanswered), (2, 2), "connecting is being under way");
}

#[test]
fn a_close_before_any_answer_is_counted() {
    let server = Server::start(|peer| drop(peer.request()));
    let outcome = run(plan(server.address, 5));
    assert_eq!(outcome.failures.closed_early, 5, "{outcome:?}");
    assert_eq!((outcome.sent, outcome.connects), (5, 5));
    assert_eq!(outcome.latency.count(), 0, "failures have no latency");
}

#[test]
fn a_closed_port_ends_and_does_not_spin() {
    let begun = Instant::now();
    let outcome = run(plan(closed_port(), 5));
    assert_eq!(outcome.failures.refused, 5);
    assert_eq!((outcome.sent, outcome.connects), (5, 0));
    // There is a pause of 10 ms after each but the last.
    assert!(begun.elapsed() >= Duration::from_millis(40));

    let generator = Generator::start(Plan {
        requests: None,
        warm_up: true,
        connections: 3,
        ..plan(closed_port(), 1)
    })
    .unwrap();
    generator.open_window();
    std::thread::sleep(Duration::from_millis(200));
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    let refused = outcome.failures.refused + outcome.warm_up.failed;
    assert!((3..=63).contains(&refused), "{refused} tries of 3 connections in 200 ms");
}

#[test]
fn without_keep_alive_each_request_has_its_own_connection() {
    let server = Server::start(|peer| {
        if peer.request().is_some() {
            peer.send(LAST);
        }
    });
    let outcome = run(Plan { keep_alive: false, connections: 4, ..plan(server.address, 50) });
    assert_eq!((outcome.answered, outcome.connects), (50, 50));
    assert_eq!(outcome.failures.total(), 0);
    assert_eq!(server.connections(), 50);
}

#[test]
fn the_server_closes_first_and_its_time_for_that_is_no_latency() {
    const LINGER: Duration = Duration::from_millis(50);
    let deserted = Arc::<AtomicU64>::default();
    let server = Server::start({
        let deserted = Arc::clone(&deserted);
        move |peer| {
            if peer.request().is_some() {
                peer.send(LAST);
                peer.sleep(LINGER);
                deserted.fetch_add(u64::from(peer.is_deserted()), Ordering::SeqCst);
            }
        }
    });
    let outcome = run(Plan { keep_alive: false, ..plan(server.address, 5) });
    assert_eq!((outcome.answered, outcome.connects), (5, 5));
    let shortest = outcome.latency.min_ns().unwrap();
    assert!(u128::from(shortest) < LINGER.as_nanos(), "{shortest} ns");
    drop(server);
    // Only the last connection is left behind, because the run is over.
    assert_eq!(deserted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_server_that_does_not_close_is_cut_off() {
    let server = Server::answering(OK);
    let begun = Instant::now();
    let outcome = run(Plan { keep_alive: false, ..plan(server.address, 3) });
    assert_eq!((outcome.answered, outcome.connects), (3, 3));
    // The run is over with the third answer.
    assert_eq!(outcome.cut_off, 2);
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn an_answer_before_the_request_is_sent_ends_the_connection() {
    const BODY_BYTES: usize = 20_000_000;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let post = [head.as_bytes(), &vec![b'x'; BODY_BYTES]].concat();
    // It reads the begin of the request, so that this has begun, and answers when there is no room on
    // the way for all of the rest.
    let server = Server::start(|peer| {
        peer.half_a_request();
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
        peer.hang();
    });
    let generator = Generator::start(Plan {
        workload: workload(vec![request(&post)]),
        ..plan(server.address, 2)
    })
    .unwrap();
    wait_until(|| generator.is_done());
    let outcome = generator.finish().unwrap();
    assert_eq!(outcome.templates[0].statuses, [(413, 2)].into(), "{outcome:?}");
    assert_eq!(outcome.connects, 2, "{outcome:?}");
}

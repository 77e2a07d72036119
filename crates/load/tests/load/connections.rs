use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_load::{Failures, Generator, MAX_CLOSING, Phases, Plan, Target};
use tollgate_net::{Socket, listen};
use tollgate_traffic::load_shape::Protocol;

use crate::server::{
    LAST, OK, Server, closed_port, endless, finish, plan, post, request, run, scheduled,
    set_connections, wait_until, with, workload,
};

#[test]
fn announced_close_costs_no_request() {
    let server = Server::start(|peer| {
        for response in [OK, OK, LAST] {
            if peer.request().is_none() {
                return;
            }
            peer.send(response);
        }
    });
    let summary = run(with(plan(server.address, 30), |plan| set_connections(plan, 2)));
    assert_eq!((summary.responses, summary.failures.total()), (30, 0), "{summary:?}");
    assert_eq!(server.requests(), 30);
    // 10 for requests that are spread evenly.
    assert!((10..=12).contains(&summary.connects), "{}", summary.connects);
}

#[test]
fn unannounced_close_costs_the_request_on_its_way() {
    let server = Server::start(|peer| {
        for _ in 0..3 {
            if peer.request().is_none() {
                return;
            }
            peer.send(OK);
        }
    });
    let summary = run(plan(server.address, 40));
    let Failures { reset, closed_early, .. } = summary.failures;
    // Three responses and one lost request per connection; none is lost if the close is seen before the
    // next request leaves.
    assert_eq!(summary.failures.total(), reset + closed_early, "{summary:?}");
    assert!(reset + closed_early <= 10, "{summary:?}");
    assert_eq!(summary.responses + reset + closed_early, 40);
    assert!(summary.connects >= 10, "{}", summary.connects);
}

#[test]
fn close_together_with_the_response_costs_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        for _ in 0..20 {
            let (mut stream, _) = listener.accept().unwrap();
            let _bytes = stream.read(&mut [0; 1024]).unwrap();
            // Corked, the response leaves with the end of the stream.
            rustix::net::sockopt::set_tcp_cork(&stream, true).unwrap();
            stream.write_all(OK).unwrap();
        }
    });
    let summary = run(plan(address, 20));
    server.join().unwrap();
    assert_eq!((summary.responses, summary.failures.total()), (20, 0), "{summary:?}");
    assert_eq!(summary.connects, 20);
}

#[test]
fn reset_behind_the_response_costs_no_request() {
    // A close with half a request unread resets the connection behind the response.
    let server = Server::start(|peer| {
        if peer.half_request() {
            peer.send(OK);
        }
    });
    let generator = Generator::start(endless(server.address)).unwrap();
    // Each connection carries one response. If the request after each were lost, there would be as many
    // failures as responses.
    wait_until(|| {
        let progress = generator.progress();
        progress.responses > progress.failed + 10
    });
    finish(generator);
}

#[test]
fn response_is_read_though_the_rest_of_the_request_is_rejected() {
    // The server responds at once and closes with most of the request unread, which is a reset.
    let server = Server::start(|peer| {
        peer.half_request();
        peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        peer.sleep(Duration::from_millis(5));
    });
    let workload = workload(vec![post(8_000_000)]);
    let summary = run(with(plan(server.address, 20), |plan| {
        plan.workload = workload;
        set_connections(plan, 2);
    }));
    assert_eq!(summary.statuses(), [(413, 20)].into(), "{summary:?}");
}

#[test]
fn response_before_the_whole_request_ends_the_connection() {
    // The server reads the start of the request, and responds when there is no room for the rest.
    let server = Server::start(|peer| {
        peer.half_request();
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
        peer.hang();
    });
    let workload = workload(vec![post(20_000_000)]);
    let summary = run(Plan { workload, ..plan(server.address, 2) });
    assert_eq!(summary.statuses(), [(413, 2)].into(), "{summary:?}");
    assert_eq!(summary.connects, 2, "{summary:?}");
}

#[test]
fn close_before_the_response_is_a_failure_without_latency() {
    let server = Server::start(|peer| drop(peer.request()));
    let summary = run(plan(server.address, 5));
    assert_eq!(summary.failures.closed_early, 5, "{summary:?}");
    assert_eq!((summary.sent, summary.connects), (5, 5));
    assert_eq!(summary.latency.count(), 0);
}

#[test]
fn connects_time_out() {
    // If the backlog is full, the kernel ignores further connects.
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), false, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let _fillers: Vec<_> = (0..4).map(|_| Socket::connect(address).unwrap()).collect();
    let connect_timeout = Duration::from_millis(50);
    let summary =
        run(with(plan(address, 3), |plan| plan.clients.connect_timeout = connect_timeout));
    assert_eq!(summary.failures.connect_timeout, 3, "{summary:?}");
    assert_eq!(summary.connects, 0);
    let shortest = Duration::from_nanos(summary.latency.min_ns().unwrap());
    assert!(shortest >= connect_timeout, "{shortest:?}");

    // After a second, requests no longer wait for connections before they count as in flight.
    let generator =
        Generator::start(with(plan(address, 9), |plan| set_connections(plan, 2))).unwrap();
    thread::sleep(Duration::from_millis(1_500));
    let summary = finish(generator);
    assert_eq!((summary.sent, summary.in_flight), (2, 2), "{summary:?}");
}

#[test]
fn refused_connects_are_retried_after_a_wait() {
    let started_at = Instant::now();
    let summary = run(plan(closed_port(), 5));
    assert_eq!(summary.failures.refused, 5);
    assert_eq!((summary.sent, summary.connects), (5, 0));
    // 10 ms after each but the last.
    assert!(started_at.elapsed() >= Duration::from_millis(40));

    let generator =
        Generator::start(with(endless(closed_port()), |plan| set_connections(plan, 3))).unwrap();
    let started_at = Instant::now();
    wait_until(|| generator.progress().failed >= 9);
    let summary = finish(generator);
    let attempts = summary.failures.refused + summary.warm_up.failed;
    let attempts_max = 3 * (2 + started_at.elapsed().as_millis() as u64 / 10);
    assert!(attempts <= attempts_max, "{attempts} attempts of 3 connections");
}

#[test]
fn without_keep_alive_each_request_has_a_connection() {
    let server = Server::start(|peer| {
        if peer.request().is_some() {
            peer.send(LAST);
        }
    });
    let summary = run(with(plan(server.address, 50), |plan| {
        set_connections(plan, 4);
        plan.clients.protocol = Protocol::Http1Close;
    }));
    assert_eq!((summary.responses, summary.connects), (50, 50));
    assert_eq!((summary.failures.total(), summary.kept_alive), (0, 0));
    assert_eq!(server.connections(), 50);
}

#[test]
fn server_closes_first_and_no_request_waits_for_that() {
    const LINGER: Duration = Duration::from_millis(50);
    let closed_by_client = Arc::<AtomicU64>::default();
    let server = Server::start({
        let closed_by_client = Arc::clone(&closed_by_client);
        move |peer| {
            if peer.request().is_some() {
                peer.send(LAST);
                peer.sleep(LINGER);
                closed_by_client.fetch_add(u64::from(peer.is_closed()), Ordering::SeqCst);
            }
        }
    });
    let summary = run(with(scheduled(server.address, 60, 100.0), |plan| {
        plan.clients.protocol = Protocol::Http1Close;
    }));
    // With one connection, a request that waits for the close of the one before it would be queued: the last ones for seconds.
    assert_eq!((summary.responses, summary.connects), (60, 60));
    let median = summary.latency.value_at(0.5).unwrap();
    assert!(u128::from(median) < 10 * LINGER.as_nanos(), "{median} ns");
    drop(server);
    // The last ones are closed by the end of the run.
    let closed_by_client = closed_by_client.load(Ordering::SeqCst);
    assert!(closed_by_client < 30, "{closed_by_client}");
}

#[test]
fn server_that_does_not_close_limits_no_rate() {
    let kept = Server::responding(OK);
    let announced = Server::responding(LAST);
    let asked = request(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let asking = Plan { workload: workload(vec![asked]), ..plan(kept.address, 600) };
    let plans = [
        with(plan(kept.address, 600), |plan| plan.clients.protocol = Protocol::Http1Close),
        asking,
        plan(announced.address, 600),
    ];
    for plan in plans {
        let summary = run(plan);
        assert_eq!((summary.responses, summary.connects, summary.failures.total()), (600, 600, 0));
        // One after the other, their closes would take two minutes.
        assert!(summary.window < Duration::from_secs(60), "{summary:?}");
        let open = u64::try_from(MAX_CLOSING).unwrap();
        assert!(summary.force_closed >= 599 - open, "{summary:?}");
    }
}

#[test]
fn connection_that_the_server_does_not_close_is_closed_by_force() {
    let server = Server::responding(OK);
    let summary = run(with(scheduled(server.address, 30, 30.0), |plan| {
        plan.clients.protocol = Protocol::Http1Close;
    }));
    assert_eq!((summary.responses, summary.connects), (30, 30));
    // Connections of the last 200 ms are open at the end.
    assert!((10..30).contains(&summary.force_closed), "{summary:?}");
}

#[test]
fn requests_go_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("tollgate-load-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut responses = 0;
        while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
            stream.write_all(OK).unwrap();
            responses += 1;
        }
        responses
    });
    let to_socket = Plan { target: Target::Unix(path.clone()), ..plan(closed_port(), 25) };
    let summary = run(to_socket.clone());
    assert_eq!((summary.responses, summary.connects), (25, 1), "{summary:?}");
    assert_eq!(server.join().unwrap(), 25);

    // A socket without a listener, and a missing one.
    let summary = run(with(to_socket.clone(), |plan| plan.phases = Phases::Requests(2)));
    assert_eq!(summary.failures.refused, 2, "{:?}", summary.failures);
    std::fs::remove_file(&path).unwrap();
    let summary = run(with(to_socket, |plan| plan.phases = Phases::Requests(2)));
    let reason = summary.failures.other_example.unwrap();
    assert!(reason.starts_with("cannot connect: No such file"), "{reason}");
}

#[test]
fn full_backlog_of_a_unix_socket_delays_requests() {
    let path = std::env::temp_dir().join(format!("tollgate-backlog-{}", std::process::id()));
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 2).unwrap();
    let listener = UnixListener::from(socket);
    let server = thread::spawn(move || {
        // Eight connections for a backlog of two, which the server does not accept at first.
        thread::sleep(Duration::from_millis(50));
        let serve = |mut stream: UnixStream| {
            while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
                stream.write_all(OK).unwrap();
            }
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                let (stream, _) = listener.accept().unwrap();
                scope.spawn(move || serve(stream));
            }
        });
    });
    let target = Target::Unix(path.clone());
    let summary = run(with(plan(closed_port(), 4000), |plan| {
        plan.target = target;
        set_connections(plan, 8);
    }));
    assert_eq!((summary.responses, summary.failures.total()), (4000, 0), "{:?}", summary.failures);
    // Connections that the run did not need are opened here, so that the server ends.
    for _ in summary.connects..8 {
        drop(UnixStream::connect(&path).unwrap());
    }
    server.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

use std::error::Error as _;
use std::thread;
use std::time::Duration;

use tollgate_load::{Error, Generator, Interval, Phases, Plan, Progress, Workload};
use tollgate_stats::LatencyHistogram;
use tollgate_traffic::load_shape::Protocol;

use crate::server::{
    DEADLINE, GET, OK, Server, closed_port, endless, finish, plan, request, run, scheduled,
    set_connections, wait_until, with, workload,
};

#[test]
fn sends_exactly_the_planned_requests() {
    for (requests, connections, threads) in
        [(1, 1, 1), (7, 3, 1), (100, 8, 1), (101, 7, 3), (2, 8, 4)]
    {
        let server = Server::responding(OK);
        let summary = run(with(plan(server.address, requests), |plan| {
            set_connections(plan, connections);
            plan.clients.threads = threads;
        }));
        assert_eq!(server.requests(), requests);
        assert_eq!((summary.sent, summary.responses), (requests, requests));
        assert_eq!((summary.failures.total(), summary.in_flight), (0, 0));
        assert_eq!(summary.oldest_in_flight, None);
        assert_eq!(summary.warm_up, Progress::default());
        // "HTTP/1.1 200 OK\r\n" is 17 bytes, header and empty line 21, the body 2.
        assert_eq!(summary.bytes_received, 40 * requests);
        assert_eq!(summary.connects, requests.min(connections as u64));
        assert_eq!(summary.connects, server.connections());
        assert_eq!(summary.threads.len(), threads);
        assert!(summary.window > Duration::ZERO);
    }
}

#[test]
fn counts_balance_with_those_of_the_server() {
    let server = Server::responding(OK);
    let plan = with(endless(server.address), |plan| {
        set_connections(plan, 5);
        plan.clients.threads = 2;
    });
    let generator = Generator::start(plan).unwrap();
    wait_until(|| generator.progress().responses >= 50);
    let warm_up = generator.progress();
    generator.open_window();
    wait_until(|| generator.progress().responses >= warm_up.responses + 200);
    assert!(!generator.is_done());
    let summary = finish(generator);
    assert!(summary.warm_up.responses >= warm_up.responses);
    assert!(summary.responses > 0);
    assert!(summary.in_flight <= 5);
    // Requests in flight at the end may have reached the server.
    assert!(server.requests() <= summary.sent);
    assert!(server.requests() + summary.in_flight >= summary.sent);
}

#[test]
fn intervals_add_up_to_the_result() {
    let (server, port) = (Server::responding(OK), closed_port());
    // Stopped within a measurement after a warm-up, with failures only, and at the end of a number of requests.
    for (target, requests) in [(server.address, None), (port, None), (server.address, Some(500))] {
        let threads = with(endless(target), |plan| {
            set_connections(plan, 5);
            plan.clients.threads = 2;
        });
        let series = Some(Duration::from_millis(10));
        let warm_up = requests.is_none();
        let plan = with(threads, |plan| {
            plan.series = series;
            plan.phases = requests.map_or(Phases::WarmUp, Phases::Requests);
        });
        let mut generator = Generator::start(plan).unwrap();
        let series = generator.take_series().unwrap();
        let count = || {
            let Progress { responses, failed, .. } = generator.progress();
            responses + failed
        };
        if warm_up {
            wait_until(|| count() >= 20);
            generator.open_window();
        }
        let before = count();
        wait_until(|| count() >= before + 20 || generator.is_done());
        thread::sleep(Duration::from_millis(35));
        let summary = finish(generator);
        let intervals: Vec<Interval> = series.collect();
        let sum = |count: fn(&Interval) -> u64| intervals.iter().map(count).sum::<u64>();
        assert_eq!(sum(|one| one.responses), summary.responses);
        assert_eq!(sum(|one| one.unexpected), summary.unexpected);
        assert_eq!(sum(|one| one.failures.total()), summary.failures.total());
        assert_eq!(sum(|one| one.failures.refused), summary.failures.refused);
        assert_eq!(sum(|one| one.bytes_received), summary.bytes_received);
        let mut latency = LatencyHistogram::new();
        intervals.iter().for_each(|interval| latency.merge(&interval.latency));
        assert!(latency == summary.latency, "{latency:?} {:?}", summary.latency);
        let last = intervals.last().unwrap();
        assert_eq!(last.in_flight, summary.in_flight);
        assert_eq!(last.end, summary.window);
        for pair in intervals.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
            assert_eq!(pair[0].end - pair[0].start, Duration::from_millis(10));
        }
        let cpu: Duration = intervals.iter().map(|interval| interval.cpu).sum();
        let used: Duration = summary.threads.iter().map(|thread| thread.user + thread.system).sum();
        assert_eq!(cpu, used);
    }
}

#[test]
fn drain_waits_for_all_responses() {
    for protocol in [Protocol::Http1 { pipeline: 1 }, Protocol::Http1Close] {
        let server = Server::responding(OK);
        let plan = with(endless(server.address), |plan| {
            set_connections(plan, 5);
            plan.clients.threads = 2;
            plan.clients.protocol = protocol;
        });
        let generator = Generator::start(plan).unwrap();
        wait_until(|| generator.progress().responses >= 50);
        assert!(!generator.wait(Duration::from_millis(1)), "ended without a command");
        generator.drain();
        assert!(generator.wait(DEADLINE));
        assert!(generator.is_done());
        let summary = finish(generator);
        assert_eq!((summary.in_flight, summary.failures.total()), (0, 0));
        assert_eq!(server.requests(), summary.sent);
    }
}

#[test]
fn drain_leaves_no_scheduled_request_unsent() {
    let server = Server::responding(OK);
    let plan = with(scheduled(server.address, 1, 1_000.0), |plan| plan.phases = Phases::Endless);
    let generator = Generator::start(plan).unwrap();
    wait_until(|| generator.progress().responses >= 20);
    generator.drain();
    assert!(generator.wait(DEADLINE));
    let summary = finish(generator);
    assert_eq!((summary.in_flight, summary.unsent), (0, 0));
    assert_eq!(server.requests(), summary.sent);
}

#[test]
fn warm_up_is_not_measured() {
    let server = Server::responding(OK);
    let generator = Generator::start(endless(server.address)).unwrap();
    wait_until(|| generator.progress().responses >= 10);
    let summary = finish(generator);
    assert!(summary.warm_up.responses >= 10);
    assert_eq!((summary.responses, summary.window), (0, Duration::ZERO));
    assert!(summary.threads.is_empty());
}

#[test]
fn all_is_measured_without_a_warm_up() {
    let server = Server::responding(OK);
    let plan = with(endless(server.address), |plan| {
        set_connections(plan, 3);
        plan.phases = Phases::Endless;
    });
    let generator = Generator::start(plan).unwrap();
    // The window is open already.
    generator.open_window();
    wait_until(|| generator.progress().responses >= 30);
    let summary = finish(generator);
    assert_eq!((summary.warm_up.responses, summary.connects), (0, 3));
    assert_eq!(summary.sent, summary.responses + summary.in_flight);
}

#[test]
fn drop_ends_the_load() {
    let server = Server::responding(OK);
    let generator = Generator::start(endless(server.address)).unwrap();
    wait_until(|| generator.progress().responses >= 1);
    drop(generator);
    let requests = server.requests();
    thread::sleep(Duration::from_millis(50));
    assert!(server.requests() <= requests + 1, "the load continued after the drop");
}

fn rejected(plan: Plan) -> String {
    Generator::start(plan).map(drop).unwrap_err().to_string()
}

#[test]
fn plans_outside_their_limits_are_rejected() {
    let plan = || plan(closed_port(), 1);
    let cases = [
        (with(plan(), |plan| plan.clients.threads = 0), "cannot use 0 threads: choose 1 to 256"),
        (
            with(plan(), |plan| {
                plan.clients.threads = 257;
                set_connections(plan, 300);
            }),
            "cannot use 257 threads: choose 1 to 256",
        ),
        (
            with(plan(), |plan| plan.clients.threads = 2),
            "cannot use 1 connections for 2 threads: choose 2 to 20000",
        ),
        (
            with(plan(), |plan| set_connections(plan, 20_001)),
            "cannot use 20001 connections for 1 threads: choose 1 to 20000",
        ),
        (
            with(plan(), |plan| {
                plan.clients.protocol = Protocol::Http1 { pipeline: 2 };
                plan.workload = workload(vec![request(
                    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                )]);
            }),
            "cannot pipeline 2 requests with `Connection: close`: choose 1",
        ),
        (
            with(plan(), |plan| plan.phases = Phases::Requests(0)),
            "cannot send 0 requests: choose at least 1",
        ),
        (
            with(plan(), |plan| plan.clients.response_timeout = Duration::ZERO),
            "cannot use a response timeout of 0 s: choose more than 0 and at most 3600 s",
        ),
        (
            with(plan(), |plan| plan.clients.connect_timeout = Duration::from_secs(3601)),
            "cannot use a connect timeout of 3601 s: choose more than 0 and at most 3600 s",
        ),
    ];
    for (plan, reason) in cases {
        assert_eq!(rejected(plan), reason);
    }
}

#[test]
fn missing_cpu_is_rejected_before_anything_is_sent() {
    let server = Server::responding(OK);
    let plan = Plan { cpus: vec![1023], ..plan(server.address, 1) };
    let error = Generator::start(plan).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "cannot pin threads to CPUs [1023]: choose others, or none");
    assert!(error.source().is_some());
    assert_eq!(server.connections(), 0);
}

#[test]
fn threads_are_pinned() {
    let server = Server::responding(OK);
    let plan = with(endless(server.address), |plan| {
        plan.cpus = vec![0];
        plan.clients.threads = 2;
        set_connections(plan, 2);
    });
    let generator = Generator::start(plan).unwrap();
    // Names and CPUs of the threads, as the kernel has them. Other tests have threads with that name
    // that are not pinned.
    let is_pinned = |task: &std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        read("comm").starts_with("load-") && cpus == Some("0")
    };
    wait_until(|| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.filter(is_pinned).count() == 2
    });
    drop(generator);
}

#[test]
fn invalid_workloads_are_rejected() {
    let get = || request(GET);
    let rejected = |requests, order| match Workload::new(requests, order) {
        Err(Error::Workload(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(rejected(vec![get()], vec![]), "the workload sends no request");
    assert_eq!(rejected(vec![get()], vec![0, 1]), "cannot send request 1 of 1: indices start at 0");
    let mut long = get();
    long.expect.body_contains = Some(vec![b'x'; 4097].into());
    assert_eq!(
        rejected(vec![long], vec![0]),
        "invalid request 0: the body pattern has 4097 bytes, choose 1 to 4096"
    );
    let template = tollgate_load::Request { template: 1000, ..get() };
    assert_eq!(
        rejected(vec![template], vec![0]),
        "invalid request 0: template 1000 is out of range, choose 0 to 999"
    );
}

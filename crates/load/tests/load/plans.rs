use std::error::Error as _;
use std::time::Duration;

use tollgate_load::{Error, Generator, Plan, Workload};

use crate::server::{GET, OK, Server, closed_port, plan, request, wait_until};

pub(crate) fn refused(plan: Plan) -> String {
    Generator::start(plan).map(drop).unwrap_err().to_string()
}

#[test]
fn limits_are_told() {
    let plan = || plan(closed_port(), 1);
    let cases = [
        (Plan { threads: 0, ..plan() }, "0 threads: choose 1 to 256"),
        (Plan { threads: 257, connections: 300, ..plan() }, "257 threads: choose 1 to 256"),
        (Plan { threads: 2, ..plan() }, "1 connections for 2 threads: choose 2 to 20000"),
        (
            Plan { connections: 20_001, ..plan() },
            "20001 connections for 1 threads: choose 1 to 20000",
        ),
        (Plan { requests: Some(0), ..plan() }, "0 requests: choose at least one"),
        (
            Plan { answer_timeout: Duration::ZERO, ..plan() },
            "the answer timeout is 0 s: choose more than 0 and at most 3600 s",
        ),
        (
            Plan { connect_timeout: Duration::from_secs(3601), ..plan() },
            "the connect timeout is 3601 s: choose more than 0 and at most 3600 s",
        ),
    ];
    for (plan, reason) in cases {
        assert_eq!(refused(plan), reason);
    }
}

#[test]
fn a_cpu_that_is_not_there_is_told_before_anything_is_sent() {
    let server = Server::answering(OK);
    let error = Generator::start(Plan { cpus: vec![1023], ..plan(server.address, 1) })
        .map(drop)
        .unwrap_err();
    assert_eq!(error.to_string(), "pinning threads to the CPUs [1023]: choose others, or none");
    assert!(error.source().is_some());
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_pinned_plan_runs() {
    let server = Server::answering(OK);
    let endless = Plan {
        requests: None,
        cpus: vec![0],
        threads: 2,
        connections: 2,
        ..plan(server.address, 1)
    };
    let generator = Generator::start(endless).unwrap();
    // The threads' names and CPUs, as the kernel has them. Other tests have threads of that name, which
    // are not pinned.
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
fn workloads_are_checked() {
    let get = || request(GET);
    assert!(matches!(Workload::new(vec![get()], vec![]), Err(Error::EmptyOrder)));
    assert!(matches!(Workload::new(vec![], vec![]), Err(Error::EmptyOrder)));
    assert!(matches!(
        Workload::new(vec![get()], vec![0, 1]),
        Err(Error::Order { index: 1, requests: 1 })
    ));
    let empty = Workload::new(vec![get(), request(b"")], vec![0]);
    assert!(matches!(empty, Err(Error::EmptyRequest { index: 1 })));
}

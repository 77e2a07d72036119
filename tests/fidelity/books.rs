use std::net::TcpListener;
use std::thread::sleep;
use std::time::Duration;

use crate::findings::Findings;
use crate::load::{Load, Report, run};
use crate::log::Log;
use crate::machine::alone;
use crate::server::{DelayServer, url};

/// Little's law: in a closed loop as many requests are under way as there are connections, so
/// throughput times mean latency is their number.
#[test]
fn t07_littles_law() {
    // A read ends one latency and begins the next, so nothing is lost between them. The window cuts
    // the latencies at its edges: at the start it takes in some milliseconds too many for each
    // connection, at the end it leaves out as many. For exponential ones both vary by their mean of
    // 4 ms, which for 5 connections over 2 s is a standard deviation of 0.13 %, for 20 half of it.
    const ERROR: f64 = 0.005;
    alone("t07 requests under way in a closed loop", |findings| {
        for connections in [5.0, 20.0] {
            let server = DelayServer::start();
            let options = format!("-c {connections} -d 2s --warmup 200ms");
            let report = run(&options, &server.url("/exponential/4000"));
            server.stop();
            let mean_s = report.figure("/latency/mean_ms") / 1e3;
            let under_way = report.figure("/throughput_per_s") * mean_s;
            let bounds = connections * (1.0 - ERROR)..=connections * (1.0 + ERROR);
            findings.within("throughput * mean latency", under_way, bounds);
        }
    });
}

/// What was sent is what came back, failed, or was under way at the end; and the server counted the
/// same, kind by kind.
#[test]
fn t08_books_balance() {
    const KINDS: [(&str, char); 4] =
        [("closed_early", 'c'), ("reset", 'r'), ("answer_timeout", 's'), ("malformed", 'm')];
    alone("t08 books", |findings| {
        // Whole runs, whose every request is in the figures.
        for options in ["-c 8 -n 1000", "-c 20 -n 500 --rate 400 --poisson --no-keepalive"] {
            let (report, log) = load_with_faults(findings, options);
            findings.equal("sent", report.count("/sent"), log.records.len() as u64);
            findings.equal("answered", report.count("/answered"), log.count('a'));
            for (kind, fate) in KINDS {
                findings.equal(kind, report.count(&format!("/errors/{kind}")), log.count(fate));
            }
        }
        for options in
            ["-c 8 -d 1500ms --warmup 300ms", "-c 20 -d 1500ms --warmup 300ms --rate 400"]
        {
            let (report, log) = load_with_faults(findings, options);
            // A request may be under way at the end whose connection was just being opened.
            let read = log.records.len() as f64;
            let bounds = read..=read + report.figure("/unanswered");
            findings.within("sent", report.figure("/sent"), bounds);
        }
    });
}

/// One request in twenty is met by each of: a close, a reset, silence, a malformed answer.
fn load_with_faults(findings: &mut Findings, options: &str) -> (Report, Log) {
    findings.note(options);
    let server = DelayServer::start();
    let report = run(&format!("{options} --timeout 150ms"), &server.url("/faults"));
    let log = server.stop();
    check_sum(findings, &report);
    (report, log)
}

fn check_sum(findings: &mut Findings, report: &Report) {
    let warm_up = report.count("/warm_up/answered") + report.count("/warm_up/failed");
    let end = report.count("/answered") + report.failed() + report.count("/unanswered");
    findings.equal(
        "warm-up + answered + failed + unanswered",
        warm_up + end,
        report.count("/sent"),
    );
}

/// A request that ran out of time is in the distribution with the time that it lasted.
#[test]
fn t09_timeouts_stay() {
    const TIMEOUT: Duration = Duration::from_millis(150);
    alone("t09 timeouts", |findings| {
        for options in ["-c 4 -n 140", "-c 20 -n 140 --rate 200"] {
            findings.note(options);
            let server = DelayServer::start();
            // The first 100 are answered.
            let options = format!("{options} --timeout {}ms", TIMEOUT.as_millis());
            let report = run(&options, &server.url("/answers-until/100"));
            let log = server.stop();
            check_sum(findings, &report);
            findings.equal("requests that the server read", log.records.len() as u64, 140);
            findings.equal("answered", report.count("/answered"), 100);
            findings.equal("timeouts", report.count("/errors/answer_timeout"), 40);
            findings.equal("latencies", report.count("/latency/count"), 140);
            let at_least = TIMEOUT.mul_f64(0.999);
            findings.equal(
                "of them, the timeout or above",
                report.count_above("/latency", at_least),
                40,
            );
        }
    });
}

/// Who is not there yet is asked again, and each refusal is counted: nothing of the load is given
/// up.
#[test]
fn t09_refused_connections_are_retried() {
    const CONNECTIONS: u64 = 10;
    const LATE: Duration = Duration::from_millis(500);
    alone("t09 a server that starts late", |findings| {
        for rate in ["", "--rate 500"] {
            findings.note(if rate.is_empty() { "closed loop" } else { rate });
            let port = free_port();
            let options = format!("-c {CONNECTIONS} -d 1500ms {rate}");
            let load = Load::start(&options, &url(port, "/delay/1000"));
            sleep(LATE);
            let server = DelayServer::start_on(port);
            let report = load.wait();
            let log = server.stop();
            check_sum(findings, &report);
            let refused = report.count("/errors/refused");
            findings.holds(&format!("{refused} refused"), refused > 0);
            // What was refused before the threads had opened their window counts as warm-up.
            let not_sent = refused + report.count("/warm_up/failed");
            let read = log.records.len() as u64;
            findings.equal("sent and not refused", report.count("/sent") - not_sent, read);
            findings.equal("connections that came to be", report.count("/connects"), CONNECTIONS);
            findings.equal("connections that were used", log.connections(), CONNECTIONS);
        }
    });
}

/// A server that accepts nothing: the kernel completes some connections for it, the others run out
/// of time, and that is counted too.
#[test]
fn t09_connects_run_out_of_time() {
    alone("t09 a server that accepts nothing", |findings| {
        let server = DelayServer::start_with(0, 1);
        server.freeze();
        let load = Load::start("-c 8 -d 1s --connect-timeout 200ms", &server.url("/delay/0"));
        let report = load.wait();
        let log = server.stop();
        check_sum(findings, &report);
        let timeouts = report.count("/errors/connect_timeout");
        // Linux completes one connection more than the backlog of one. The other six run out of time
        // after 200 ms, ahead of the requests, so that this costs none; and then each with a request
        // after 400, 600 and 800 ms, and perhaps at the end.
        findings.within("connect timeouts", timeouts as f64, 18.0..=24.0);
        findings.equal("under way at the end", report.count("/unanswered"), 8);
        findings.equal("read by the server", log.records.len(), 2);
        findings.within("took, in ms", report.elapsed.as_secs_f64() * 1e3, 1000.0..=2000.0);
    });
}

/// A port on which nothing listens. Another program may take it before it is used; ports are given
/// out in a circle, so that is unlikely.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

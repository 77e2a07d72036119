use std::fs;
use std::net::TcpListener;
use std::thread::sleep;
use std::time::Duration;

use crate::load::{Load, Report, run};
use crate::machine::{Checks, exclusive};
use crate::server::{DelayServer, Log, url};

/// Little's law: a closed loop has as many requests in flight as connections, so throughput times mean
/// latency is their number.
#[test]
fn t07_littles_law() {
    // A read ends one latency and starts the next, without a gap. The window cuts latencies at its
    // edges: at the start it includes some milliseconds too many per connection, at the end it leaves
    // out as many. For exponential latencies both vary by their mean of 4 ms, a standard deviation of
    // 0.13 % for 5 connections over 2 s, and half of that for 20.
    const ERROR: f64 = 0.005;
    exclusive("t07 requests in flight in a closed loop", |checks| {
        for connections in [5.0, 20.0] {
            let server = DelayServer::start();
            let options = format!("-c {connections} -d 2s --warmup 200ms");
            let report = run(&options, &server.url("/exponential/4000"));
            server.stop();
            let mean_s = report.figure("/latency/mean_ms") / 1e3;
            let in_flight = report.figure("/throughput_per_s") * mean_s;
            let bounds = connections * (1.0 - ERROR)..=connections * (1.0 + ERROR);
            checks.within("throughput * mean latency", in_flight, bounds);
        }
    });
}

/// Requests sent are responses, failures and requests in flight at the end; the server counted the same
/// of each kind.
#[test]
fn t08_counts_balance() {
    const KINDS: [(&str, char); 4] =
        [("closed_early", 'c'), ("reset", 'r'), ("response_timeout", 's'), ("malformed", 'm')];
    exclusive("t08 balance", |checks| {
        // Complete runs, with every request in the figures.
        for options in ["-c 8 -n 1000", "-c 20 -n 500 --rate 400 --poisson --no-keepalive"] {
            let (report, log) = load_with_faults(checks, options);
            checks.equal("sent", report.count("/sent"), log.records.len() as u64);
            checks.equal("responses", report.count("/responses"), log.count('a'));
            for (kind, outcome) in KINDS {
                checks.equal(kind, report.count(&format!("/failures/{kind}")), log.count(outcome));
            }
        }
        for options in
            ["-c 8 -d 1500ms --warmup 300ms", "-c 20 -d 1500ms --warmup 300ms --rate 400"]
        {
            let (report, log) = load_with_faults(checks, options);
            // The connection of a request in flight may not have been established.
            let read = log.records.len() as f64;
            let bounds = read..=read + report.figure("/in_flight");
            checks.within("sent", report.figure("/sent"), bounds);
        }
    });
}

/// One request in twenty each: a close, a reset, no response, a malformed response.
fn load_with_faults(checks: &mut Checks, options: &str) -> (Report, Log) {
    checks.note(options);
    let server = DelayServer::start();
    let report = run(&format!("{options} --timeout 150ms"), &server.url("/faults"));
    let log = server.stop();
    check_sum(checks, &report);
    (report, log)
}

pub(crate) fn check_sum(checks: &mut Checks, report: &Report) {
    let warm_up = report.count("/warm_up/responses") + report.count("/warm_up/failed");
    let end = report.count("/responses") + report.failed() + report.count("/in_flight");
    checks.equal("warm-up + responses + failed + in flight", warm_up + end, report.count("/sent"));
}

/// A timeout is in the distribution with its length.
#[test]
fn t09_timeouts_are_in_the_distribution() {
    const TIMEOUT: Duration = Duration::from_millis(150);
    exclusive("t09 timeouts", |checks| {
        for options in ["-c 4 -n 140", "-c 20 -n 140 --rate 200"] {
            checks.note(options);
            let server = DelayServer::start();
            // The first 100 get a response.
            let options = format!("{options} --timeout {}ms", TIMEOUT.as_millis());
            let report = run(&options, &server.url("/responses-until/100"));
            let log = server.stop();
            check_sum(checks, &report);
            checks.equal("read by the server", log.records.len() as u64, 140);
            checks.equal("responses", report.count("/responses"), 100);
            checks.equal("timeouts", report.count("/failures/response_timeout"), 40);
            checks.equal("latencies", report.count("/latency/count"), 140);
            let at_least = TIMEOUT.mul_f64(0.999);
            checks.equal("at the timeout or above", report.count_above("/latency", at_least), 40);
        }
    });
}

/// Refused connections are retried, and each refusal is counted.
#[test]
fn t09_refused_connections_are_retried() {
    const CONNECTIONS: u64 = 10;
    const DELAY: Duration = Duration::from_millis(500);
    exclusive("t09 a server that starts late", |checks| {
        for rate in ["", "--rate 500"] {
            checks.note(if rate.is_empty() { "closed loop" } else { rate });
            let port = free_port();
            let options = format!("-c {CONNECTIONS} -d 1500ms {rate}");
            let load = Load::start(&options, &url(port, "/delay/1000"));
            sleep(DELAY);
            let server = DelayServer::start_on(port);
            let report = load.wait();
            let log = server.stop();
            check_sum(checks, &report);
            let refused = report.count("/failures/refused");
            checks.holds(&format!("{refused} refused"), refused > 0);
            // Refusals before the window opened count as warm-up.
            let not_sent = refused + report.count("/warm_up/failed");
            let read = log.records.len() as u64;
            checks.equal("sent and not refused", report.count("/sent") - not_sent, read);
            checks.equal("connections established", report.count("/connects"), CONNECTIONS);
            checks.equal("connections used", log.connections(), CONNECTIONS);
        }
    });
}

/// For a server that accepts nothing, the kernel completes some connections, and the others time out.
#[test]
fn t09_connects_time_out() {
    exclusive("t09 a server that accepts nothing", |checks| {
        let server = DelayServer::start_with(0, 1);
        server.suspend();
        let load = Load::start("-c 8 -d 1s --connect-timeout 200ms", &server.url("/delay/0"));
        let report = load.wait();
        let log = server.stop();
        check_sum(checks, &report);
        let timeouts = report.count("/failures/connect_timeout");
        // Linux completes one connection more than the backlog of one. The other six time out after
        // 200 ms, before the requests; then each with a request after 400, 600 and 800 ms, and perhaps
        // at the end.
        checks.within("connect timeouts", timeouts as f64, 18.0..=24.0);
        checks.equal("in flight at the end", report.count("/in_flight"), 8);
        checks.equal("read by the server", log.records.len(), 2);
        checks.within("took, in ms", report.elapsed.as_secs_f64() * 1e3, 1000.0..=2000.0);
    });
}

/// A port on which nothing listens. The kernel assigns ports in turn, so another program is unlikely to
/// take it.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Limit of the generator's memory: its code, the buffers of a few connections, and histograms. The
/// length of a response does not add to it.
const PEAK_MAX_KIB: f64 = 32.0 * 1024.0;
/// Time that a run may take longer than planned.
const OVERTIME: Duration = Duration::from_secs(1);

/// Responses without an end, as fast as possible or a byte per second: memory is bounded, and the run
/// ends on time.
#[test]
fn t13_endless_responses() {
    const LENGTH: Duration = Duration::from_millis(700);
    const PATHS: [&str; 9] = [
        "/endless/headers",
        "/endless/header",
        "/endless/interim",
        "/endless/body",
        "/endless/chunks",
        "/endless/chunk-size",
        "/endless/trailers",
        "/endless/garbage",
        "/drip",
    ];
    exclusive("t13 endless responses", |checks| {
        for path in PATHS {
            let server = DelayServer::start();
            let options = format!("-c 4 -d {}ms --timeout 300ms", LENGTH.as_millis());
            let mut load = Load::start(&options, &server.url(path));
            let mut peak_kib = 0;
            while !load.has_ended() {
                peak_kib = peak_kib.max(peak_kib_of(load.pid()).unwrap_or(0));
                sleep(Duration::from_millis(10));
            }
            let report = load.wait();
            server.stop();
            checks.note(path);
            checks.within("peak memory in KiB", peak_kib as f64, 1.0..=PEAK_MAX_KIB);
            let bounds = LENGTH.as_secs_f64() * 1e3..=(LENGTH + OVERTIME).as_secs_f64() * 1e3;
            checks.within("took, in ms", report.elapsed.as_secs_f64() * 1e3, bounds);
            checks.equal("responses", report.count("/responses"), 0);
            let failures = report.value("/failures").to_string();
            checks.holds(&format!("failures: {failures}"), report.failed() > 0);
            checks.equal("exit code", report.exit, 4);
        }
    });
}

/// Peak memory of a process; `None` if it has just ended.
fn peak_kib_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.trim().trim_end_matches(" kB").parse().expect("VmHWM in kB"))
}

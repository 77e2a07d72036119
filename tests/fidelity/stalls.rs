use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::load::{Load, Report};
use crate::machine::{Checks, exclusive};
use crate::reference::Sleepers;
use crate::sample::{PRECISION, Sample};
use crate::server::{DelayServer, Log};

/// Length of a stall.
pub(crate) const STALL: Duration = Duration::from_millis(800);
/// Time before it.
const BEFORE: Duration = Duration::from_millis(700);
const RATE: u32 = 500;
const CONNECTIONS: u64 = 10;

/// Limit of the time to send the queued requests after a stall: RATE * STALL = 400 requests, at 10,000 per
/// second or more.
const DRAIN: Duration = Duration::from_millis(40);

/// The server stalls. Requests become due all the time, so the latencies are spread over the stall; the
/// uncorrected latencies hide all but one per connection.
#[test]
fn t03_stalled_server() {
    exclusive("t03 a stalled server, counts and ms", |checks| {
        let server = DelayServer::start();
        let options = format!("-c {CONNECTIONS} --rate {RATE} -n 1000");
        let sleepers = Sleepers::start();
        let load = Load::start(&options, &server.url("/delay/0"));
        sleep(BEFORE);
        let stall = stall(|| server.suspend(), || server.resume());
        let report = load.wait();
        let [generator_cpu, _] = sleepers.stop();
        let log = server.stop();
        checks.equal("responses", report.count("/responses"), 1000);
        check_spread(checks, &report, "/latency", stall, DRAIN);
        check_truth(checks, &report, &log, 0);
        let long = report.count_above("/uncorrected_latency", stall / 10);
        checks.within("uncorrected, above S/10", long as f64, 1.0..=CONNECTIONS as f64);
        // The other requests due during the stall and the drain after it.
        let due = f64::from(RATE) * stall.as_secs_f64();
        let most = due + f64::from(RATE) * DRAIN.as_secs_f64();
        checks.within(
            "queued",
            report.count("/queued") as f64,
            due - 2.0 * CONNECTIONS as f64..=most,
        );
        checks.equal("unsent", report.count("/unsent"), 0);
        // 390 of the 1000 requests were due while no connection was free. The generator may call itself late
        // only if its CPU was busy for a millisecond at one time in a hundred.
        let measured = report.text("/verdict/measured");
        let was_late = generator_cpu.quantile(0.99) > 1000.0;
        let is_right = measured == "connections" || (measured == "generator" && was_late);
        checks.holds(&format!("the verdict is connections: {measured}"), is_right);
    });
}

/// The generator stalls. Latency and lateness show it, the uncorrected latency does not, and the verdict
/// is the generator.
#[test]
fn t04_stalled_generator() {
    exclusive("t04 a stalled generator, counts and ms", |checks| {
        let server = DelayServer::start();
        let options = format!("-c {CONNECTIONS} --rate {RATE} -n 1000");
        let load = Load::start(&options, &server.url("/delay/0"));
        sleep(BEFORE);
        let stall = stall(|| load.suspend(), || load.resume());
        let report = load.wait();
        let log = server.stop();
        checks.equal("responses", report.count("/responses"), 1000);
        check_spread(checks, &report, "/latency", stall, DRAIN);
        check_spread(checks, &report, "/lateness", stall, DRAIN);
        check_truth(checks, &report, &log, CONNECTIONS);
        let long = report.count_above("/uncorrected_latency", stall / 10);
        checks.within("uncorrected, above S/10", long as f64, 0.0..=CONNECTIONS as f64);
        checks.equal("verdict", report.text("/verdict/measured"), "generator");
    });
}

/// Of the requests due in a stall of length S, the first ones waited longest: RATE * S * (1 - x) waited
/// longer than x * S. `drain`: limit of the time until they are sent.
pub(crate) fn check_spread(
    checks: &mut Checks,
    report: &Report,
    place: &str,
    stall: Duration,
    drain: Duration,
) {
    for x in [0.1, 0.25, 0.5, 0.75, 0.9] {
        let seen = report.count_above(place, stall.mul_f64(x));
        let due = |time: Duration| f64::from(RATE) * time.as_secs_f64();
        // One more or less at either end, and the precision of the histogram.
        let least = due(stall.mul_f64(1.0 - x)) - 2.0 - due(stall) / 1000.0;
        let most = due(stall.mul_f64(1.0 - x) + drain) + 2.0;
        checks.within(&format!("{place} above {x} S"), seen as f64, least..=most);
    }
}

/// Compares latencies with the truth from the schedule and the log of the server: the i-th request was due
/// at i / RATE. Up to `unread` responses were written before the generator stalled and read after that.
fn check_truth(checks: &mut Checks, report: &Report, log: &Log, unread: u64) {
    // The requests of one batch are read in any order and get their responses one after the other, which
    // at 10,000 per second moves a figure by 1 ms. The overhead of a request is below that.
    const BATCH_MS: f64 = 1.0;
    let gap_ms = 1e3 / f64::from(RATE);
    let due_ms = |index: usize| index as f64 * gap_ms;
    let in_ms = |ns: u64| (ns - log.records[0].read_ns) as f64 / 1e6;
    let reads = log.records.iter().enumerate();
    let start_ms = reads
        .map(|(index, record)| in_ms(record.read_ns) - due_ms(index))
        .fold(f64::INFINITY, f64::min);
    let responses = log.records.iter().enumerate();
    let truth = Sample::new(
        responses.map(|(index, record)| in_ms(record.written_ns) - start_ms - due_ms(index)),
    );
    let seen = report.histogram("/latency");
    for q in [0.6, 0.7, 0.8, 0.9, 0.95, 0.99] {
        let seen_ms = seen.value_at_quantile(q) as f64 / 1e6;
        let shifted = q + unread as f64 / log.records.len() as f64;
        let least = truth.quantile(q) * (1.0 - PRECISION) - BATCH_MS;
        let bounds = least..=truth.quantile(shifted) * (1.0 + PRECISION) + BATCH_MS;
        checks.within(&format!("latency p{}", 100.0 * q), seen_ms, bounds);
    }
}

/// Suspends a process for [`STALL`] and returns the actual length.
pub(crate) fn stall(suspend: impl Fn(), resume: impl Fn()) -> Duration {
    suspend();
    let suspended_at = Instant::now();
    sleep(STALL);
    resume();
    suspended_at.elapsed()
}

/// A stall until the end of the run: requests in flight and unsent requests are counted with their age.
#[test]
fn t05_stall_at_the_end() {
    // For the start, and for stopping threads and printing at the end.
    const MARGIN_MS: f64 = 100.0;
    const LENGTH: Duration = Duration::from_millis(1500);
    exclusive("t05 a stall at the end, counts and ms", |checks| {
        for is_open in [true, false] {
            let server = DelayServer::start();
            let rate = if is_open { format!("--rate {RATE}") } else { String::new() };
            let options = format!("-c {CONNECTIONS} {rate} -d {}ms", LENGTH.as_millis());
            let load = Load::start(&options, &server.url("/delay/1000"));
            let started_at = load.started_at;
            sleep(BEFORE);
            server.suspend();
            let stalled_ms = (LENGTH - started_at.elapsed()).as_secs_f64() * 1e3;
            let report = load.wait();
            server.stop();
            checks.equal("in flight", report.count("/in_flight"), CONNECTIONS);
            let bounds = stalled_ms - MARGIN_MS..=stalled_ms + MARGIN_MS;
            checks.within(
                "oldest in flight",
                report.figure("/oldest_in_flight_ms"),
                bounds.clone(),
            );
            let length_ms = LENGTH.as_secs_f64() * 1e3;
            let elapsed_ms = report.elapsed.as_secs_f64() * 1e3;
            checks.within("took", elapsed_ms, length_ms..=length_ms + MARGIN_MS);
            if !is_open {
                checks.equal("exit code", report.exit, 0);
                continue;
            }
            let unsent = report.count("/unsent") as f64;
            let due = |ms: f64| f64::from(RATE) * ms / 1e3 - CONNECTIONS as f64;
            checks.within("unsent", unsent, due(*bounds.start())..=due(*bounds.end()));
            // The first of them was due after the last connection got its request.
            let taken_ms = 1e3 * CONNECTIONS as f64 / f64::from(RATE);
            let bounds = bounds.start() - taken_ms..=bounds.end() - taken_ms;
            checks.within("oldest unsent", report.figure("/oldest_unsent_ms"), bounds);
            checks.equal("exit code", report.exit, 3);
        }
    });
}

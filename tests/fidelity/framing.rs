use std::time::Duration;

use crate::delays::histogram_us;
use crate::load::{Report, run};
use crate::machine::{Checks, exclusive};
use crate::sample::PRECISION;
use crate::server::{DelayServer, Log};

/// Timeout of requests: a run that takes as long has hung.
const TIMEOUT: Duration = Duration::from_secs(2);
const REQUESTS: u64 = 12;

fn load(path: &str, options: &str) -> (Report, Log) {
    let server = DelayServer::start();
    let options = format!("{options} --timeout {}ms", TIMEOUT.as_millis());
    let report = run(&options, &server.url(path));
    (report, server.stop())
}

/// Every framing of a response, at once and with a pause after every byte.
#[test]
fn t10_framings() {
    // Path, options, status and length of the body: `ok` and a line feed, or none.
    const FRAMINGS: [(&str, &str, &str, u64); 8] = [
        ("/length", "", "200", 3),
        ("/chunked", "", "200", 3),
        ("/interim", "", "200", 3),
        ("/head", "-X HEAD", "200", 0),
        ("/no-content", "", "204", 0),
        ("/not-modified", "", "304", 0),
        ("/until-close", "", "200", 3),
        ("/last", "", "200", 3),
    ];
    exclusive("t10 framings", |checks| {
        for (path, options, status, body_bytes) in FRAMINGS {
            for prefix in ["", "/bytewise"] {
                let path = format!("{prefix}{path}");
                let (report, log) = load(&path, &format!("-c 3 -n {REQUESTS} {options}"));
                checks.note(&path);
                checks.equal("responses", report.count("/responses"), REQUESTS);
                checks.equal("failed", report.failed(), 0);
                checks.equal(status, report.count(&format!("/statuses/{status}")), REQUESTS);
                checks.equal(
                    "bytes of the bodies",
                    report.count("/body_bytes"),
                    REQUESTS * body_bytes,
                );
                checks.equal("read by the server", log.records.len() as u64, REQUESTS);
                let closes = ["/until-close", "/last"].iter().any(|end| path.ends_with(end));
                // A connection is not replaced before it is needed.
                let connections = if closes { REQUESTS } else { 3 };
                checks.equal("connections", log.connections(), connections);
            }
        }
    });
}

/// A server may close after any response. Requests that it did not read are sent again or fail; none is
/// lost or counted twice.
#[test]
fn t10_close_after_k_responses() {
    exclusive("t10 a close after 3 responses", |checks| {
        for options in ["-c 2 -n 60", "-c 2 -n 60 --pipeline 4"] {
            checks.note(options);
            let (report, log) = load("/close-after/3", options);
            checks.equal("sent", report.count("/sent"), 60);
            checks.equal("responses + failed", report.count("/responses") + report.failed(), 60);
            checks.equal("responses", report.count("/responses"), log.count('a'));
            checks.equal(
                "other failures than closed early",
                report.failed() - report.count("/failures/closed_early"),
                0,
            );
            // Requests that the server read without a response were sent again, or failed.
            let seen = log.records.len() as u64;
            checks.within(
                "read by the server",
                seen as f64,
                report.count("/responses") as f64..=(60 + report.count("/resent")) as f64,
            );
        }
    });
}

/// Each request of a pipeline has its own latency: if the server takes 5 ms for one after the other, those
/// of a batch take 5, 10, 15 and 20 ms.
#[test]
fn t10_pipelined_requests_have_their_own_latencies() {
    // From the write of a batch to its read, and from a response to its read: wake-ups of both sides,
    // which take some tens of microseconds each.
    const WAKE_US: f64 = 1000.0;
    exclusive("t10 a pipeline of 4, in us", |checks| {
        let (report, log) = load("/in-turn/5000", "-c 1 -n 4 --pipeline 4");
        let seen = histogram_us(&report, "/latency");
        checks.equal("latencies", seen.len(), 4);
        let truth = log.delays_us();
        for (q, nominal) in [(0.25, 5000.0), (0.5, 10_000.0), (0.75, 15_000.0), (1.0, 20_000.0)] {
            let truth = truth.quantile(q);
            checks.within("truth", truth, nominal..=nominal + 4.0 * WAKE_US);
            let bounds = truth * (1.0 - PRECISION)..=truth * (1.0 + PRECISION) + WAKE_US;
            checks.within("latency", seen.quantile(q), bounds);
        }
    });
}

/// A malformed response fails at once with its reason, though the connection stays open.
#[test]
fn t10_malformed_responses() {
    const KINDS: [&str; 7] =
        ["version", "status", "header", "length", "lengths", "chunk-size", "chunk-end"];
    exclusive("t10 malformed responses", |checks| {
        for kind in KINDS {
            for prefix in ["", "/bytewise"] {
                let (report, _) = load(&format!("{prefix}/malformed/{kind}"), "-c 2 -n 6");
                checks.note(&format!(
                    "{prefix}/malformed/{kind}: {}",
                    report.text("/failures/malformed_example")
                ));
                check_failure(checks, &report, "malformed");
            }
        }
    });
}

/// A close before the response is a failure of its own kind; a close within it makes it malformed.
#[test]
fn t10_incomplete_responses() {
    const BREAKS: [(&str, &str); 5] = [
        ("/closed", "closed_early"),
        ("/half-head", "malformed"),
        ("/half", "malformed"),
        ("/half-chunk", "malformed"),
        ("/reset", "reset"),
    ];
    exclusive("t10 incomplete responses", |checks| {
        for (path, kind) in BREAKS {
            let (report, _) = load(path, "-c 2 -n 6");
            checks.note(path);
            check_failure(checks, &report, kind);
        }
    });
}

fn check_failure(checks: &mut Checks, report: &Report, kind: &str) {
    checks.equal(kind, report.count(&format!("/failures/{kind}")), 6);
    checks.equal("failed", report.failed(), 6);
    checks.equal("exit code", report.exit, 4);
    checks.holds("at once", report.elapsed < TIMEOUT);
}

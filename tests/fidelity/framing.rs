use std::time::Duration;

use crate::delays::histogram_us;
use crate::findings::Findings;
use crate::floor::PRECISION;
use crate::load::{Report, run};
use crate::log::Log;
use crate::machine::alone;
use crate::server::DelayServer;

/// What the server never ends is given up after this, so a run that takes as long has hung.
const TIMEOUT: Duration = Duration::from_secs(2);
const REQUESTS: u64 = 12;

fn load(path: &str, options: &str) -> (Report, Log) {
    let server = DelayServer::start();
    let options = format!("{options} --timeout {}ms", TIMEOUT.as_millis());
    let report = run(&options, &server.url(path));
    (report, server.stop())
}

/// Every way in which an answer can end, whole and with a pause after every byte.
#[test]
fn t10_framings() {
    // Bytes of the body of each answer; `ok` and a line break, or none.
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
    alone("t10 framings", |findings| {
        for (path, options, status, body_bytes) in FRAMINGS {
            for prefix in ["", "/bytewise"] {
                let path = format!("{prefix}{path}");
                let (report, log) = load(&path, &format!("-c 3 -n {REQUESTS} {options}"));
                findings.note(&path);
                findings.equal("answered", report.count("/answered"), REQUESTS);
                findings.equal("failed", report.failed(), 0);
                findings.equal(status, report.count(&format!("/statuses/{status}")), REQUESTS);
                findings.equal(
                    "bytes of bodies",
                    report.count("/body_bytes"),
                    REQUESTS * body_bytes,
                );
                findings.equal("read by the server", log.records.len() as u64, REQUESTS);
                let closes = ["/until-close", "/last"].iter().any(|end| path.ends_with(end));
                // A connection whose answer was its last is not replaced before it is needed.
                let connections = if closes { REQUESTS } else { 3 };
                findings.equal("connections", log.connections(), connections);
            }
        }
    });
}

/// A server may close after any answer. Requests that it did not read are sent again or counted,
/// and none is lost or counted twice.
#[test]
fn t10_closing_after_k_answers() {
    alone("t10 a server that closes after 3 answers", |findings| {
        for options in ["-c 2 -n 60", "-c 2 -n 60 --pipeline 4"] {
            findings.note(options);
            let (report, log) = load("/close-after/3", options);
            findings.equal("sent", report.count("/sent"), 60);
            findings.equal("answered + failed", report.count("/answered") + report.failed(), 60);
            findings.equal("answered", report.count("/answered"), log.count('a'));
            findings.equal(
                "failed otherwise than closed early",
                report.failed() - report.count("/errors/closed_early"),
                0,
            );
            // What the server read without answering was sent again, or failed.
            let seen = log.records.len() as u64;
            findings.within(
                "read by the server",
                seen as f64,
                report.count("/answered") as f64..=(60 + report.count("/resent")) as f64,
            );
        }
    });
}

/// Requests in a pipeline have a latency each: where the server takes 5 ms for one after the other,
/// those of one batch take 5, 10, 15 and 20 ms.
#[test]
fn t10_pipelined_answers_have_their_own_latencies() {
    // From the writing of a batch to its reading, and from an answer to its reading: wake-ups of
    // both sides, which take some tens of microseconds each.
    const WAKING_US: f64 = 1000.0;
    alone("t10 a pipeline of 4, in us", |findings| {
        let (report, log) = load("/in-turn/5000", "-c 1 -n 4 --pipeline 4");
        let seen = histogram_us(&report, "/latency");
        findings.equal("latencies", seen.len(), 4);
        let truth = log.delays_us();
        for (q, nominal) in [(0.25, 5000.0), (0.5, 10_000.0), (0.75, 15_000.0), (1.0, 20_000.0)] {
            let truth = truth.quantile(q);
            findings.within("truth", truth, nominal..=nominal + 4.0 * WAKING_US);
            let bounds = truth * (1.0 - PRECISION)..=truth * (1.0 + PRECISION) + WAKING_US;
            findings.within("latency", seen.quantile(q), bounds);
        }
    });
}

/// What is no answer is an error with its reason, at once, though the connection stays open.
#[test]
fn t10_malformed_answers() {
    const KINDS: [&str; 7] =
        ["version", "status", "header", "length", "lengths", "chunk-size", "chunk-end"];
    alone("t10 malformed answers", |findings| {
        for kind in KINDS {
            for prefix in ["", "/bytewise"] {
                let (report, _) = load(&format!("{prefix}/malformed/{kind}"), "-c 2 -n 6");
                findings.note(&format!(
                    "{prefix}/malformed/{kind}: {}",
                    report.text("/examples/malformed")
                ));
                check_failure(findings, &report, "malformed");
            }
        }
    });
}

/// The end of the connection instead of an answer, or amid one, which makes it malformed.
#[test]
fn t10_answers_that_break_off() {
    const BREAKS: [(&str, &str); 5] = [
        ("/closed", "closed_early"),
        ("/half-head", "malformed"),
        ("/half", "malformed"),
        ("/half-chunk", "malformed"),
        ("/reset", "reset"),
    ];
    alone("t10 answers that break off", |findings| {
        for (path, kind) in BREAKS {
            let (report, _) = load(path, "-c 2 -n 6");
            findings.note(path);
            check_failure(findings, &report, kind);
        }
    });
}

fn check_failure(findings: &mut Findings, report: &Report, kind: &str) {
    findings.equal(kind, report.count(&format!("/errors/{kind}")), 6);
    findings.equal("failed", report.failed(), 6);
    findings.equal("exit code", report.exit, 4);
    findings.holds("at once", report.elapsed < TIMEOUT);
}

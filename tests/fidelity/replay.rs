use std::fmt::Write as _;

use crate::load::run;
use crate::machine::{Checks, exclusive};
use crate::sample::Sample;
use crate::server::DelayServer;

const REQUESTS: usize = 4_000;
const CLIENTS: u64 = 40;

/// A recording with irregular gaps and interleaved clients. Returns the list, and the times in microseconds.
fn recording(gap_us_max: u64) -> (String, Vec<f64>) {
    let mut state = 1_u64;
    let mut random = |limit: u64| {
        // Knuth's generator of 64 bits, whose upper bits are the random ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut text = format!(
        r#"{{"tollgate_mix":1,"title":"t","requests":1,"templates":[{{"name":"GET","class":"benign"}}],"events":{REQUESTS}}}
{{"template":"GET","path":"/delay/0","headers":["Host: localhost"]}}
"#
    );
    let mut times_us = Vec::new();
    let mut at_us = 0;
    for _ in 0..REQUESTS {
        // A third of the requests follow at once, as those of a page do.
        let gap_us = if random(3) == 0 { random(50) } else { random(gap_us_max) };
        let gap_us = if times_us.is_empty() { 0 } else { gap_us };
        at_us += gap_us;
        times_us.push(at_us as f64);
        writeln!(text, "{{\"order\":[{gap_us},{},0]}}", random(CLIENTS)).expect("a text");
    }
    (text, times_us)
}

/// The requests of a recording arrive with the spacing that it has.
#[test]
fn t17_recorded_spacing() {
    const SPACING_US_MAX: f64 = 1_000.0;
    exclusive("t17 recorded spacing, in us", |checks| {
        for (pace, gap_us_max) in [(1.0, 5_000), (2.0, 10_000), (0.5, 2_500)] {
            checks.note(&format!("--pace x{pace}, gaps up to {gap_us_max} us"));
            spacing(checks, pace, gap_us_max, SPACING_US_MAX);
        }
    });
}

fn spacing(checks: &mut Checks, pace: f64, gap_us_max: u64, most_us: f64) {
    let folder = tempfile::tempdir().expect("a directory");
    let list = folder.path().join("log.mix");
    let (text, times_us) = recording(gap_us_max);
    std::fs::write(&list, text).expect("a list");
    let server = DelayServer::start();
    let options = format!("--mix {} --pace x{pace}", list.display());
    let report = run(&options, &server.url("/"));
    let log = server.stop();
    checks.equal("requests", log.records.len(), REQUESTS);
    checks.equal("responses", report.count("/responses"), REQUESTS as u64);
    checks.equal("sessions", report.count("/replay/sessions"), CLIENTS);
    let arrived_us = log.arrivals_us();
    let due_us: Vec<f64> = times_us.iter().map(|at| at / pace).collect();
    let gaps =
        |times: &[f64]| -> Vec<f64> { times.windows(2).map(|pair| pair[1] - pair[0]).collect() };
    let errors =
        gaps(&arrived_us).into_iter().zip(gaps(&due_us)).map(|(seen, due)| (seen - due).abs());
    let errors = Sample::new(errors);
    checks.within("spacing p99", errors.quantile(0.99), 0.0..=most_us);
    // Times since the first request do not drift either.
    let drift = Sample::new(arrived_us.iter().zip(&due_us).map(|(seen, due)| (seen - due).abs()));
    checks.within("time since the start p99", drift.quantile(0.99), 0.0..=most_us);
}

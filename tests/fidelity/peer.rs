use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::floor::PRECISION;
use crate::load::run;
use crate::machine::{GENERATOR_CPU, alone, pin};
use crate::server::DelayServer;
use crate::witness::observe;

const CONNECTIONS: u32 = 4;
/// Of each run; wrk takes whole seconds.
const SECONDS: u32 = 1;

/// The same figures as wrk has of the same server under the same load.
///
/// wrk, as its latency means the same (from the write of a request to the end of its answer,
/// without the connect) and its figures have two decimals of a millisecond; hey and ab give tenths
/// and whole ones, and h2load begins requests at ticks of 10 ms when it is told a rate. wrk knows
/// the closed loop only, where delay and connections set the rate, so that is compared too; by
/// Little's law it is the mean latency. wrk's own mean is not used: it adds latencies that it did
/// not see ("correction").
#[test]
fn t12_the_same_as_wrk() {
    // In microseconds: `1.05ms` stands for all that rounds to it.
    const WRK_ROUNDING: f64 = 5.0;
    alone("t12 beside wrk, in us above the server's delay", |findings| {
        for (path, delay_us) in [("/delay/1000", 1000.0), ("/delay/5000", 5000.0)] {
            findings.note(path);
            // Ours twice, with wrk's between them: what two runs of one tool differ by is noise.
            let runs = [added(path, ours), added(path, wrk), added(path, ours)];
            let [before, wrk, after] = &runs;
            let jitter = jitter(path);
            for (name, ours, theirs) in [
                ("mean", [before.mean, after.mean], wrk.mean),
                ("p50", [before.median, after.median], wrk.median),
            ] {
                let allowed = jitter + WRK_ROUNDING + PRECISION * delay_us;
                let bounds = ours[0].min(ours[1]) - allowed..=ours[0].max(ours[1]) + allowed;
                findings.within(&format!("wrk's {name} beside ours"), theirs, bounds);
            }
        }
    });
}

/// In microseconds.
struct Figures {
    mean: f64,
    median: f64,
}

/// What a tool saw of a server's delays, less what they were, which differs from run to run.
fn added(path: &str, tool: impl Fn(&str) -> Figures) -> Figures {
    let server = DelayServer::start();
    let seen = tool(&server.url(path));
    let truth = server.stop().delays_us();
    Figures { mean: seen.mean - truth.mean(), median: seen.median - truth.quantile(0.5) }
}

/// How much waking up varies from one request to the next: four in five differ by less.
fn jitter(path: &str) -> f64 {
    let server = DelayServer::start();
    let witness = observe(&server, path, 100, Duration::ZERO);
    let added = witness.overheads_us(&server.stop());
    added.quantile(0.9) - added.quantile(0.1)
}

fn ours(url: &str) -> Figures {
    let report = run(&format!("-c {CONNECTIONS} -d {SECONDS}s"), url);
    Figures {
        mean: mean_of_rate(report.figure("/throughput_per_s")),
        median: 1e3 * report.figure("/latency/quantiles/p50_ms"),
    }
}

fn mean_of_rate(per_second: f64) -> f64 {
    1e6 * f64::from(CONNECTIONS) / per_second
}

/// Runs wrk on the generator's CPU.
fn wrk(url: &str) -> Figures {
    let wrk = || {
        // Of this thread, which the process that it starts inherits.
        pin(0, GENERATOR_CPU);
        Command::new("wrk")
            .args(["-t", "1", "-c", &CONNECTIONS.to_string(), "-d", &SECONDS.to_string()])
            .args(["--latency", url])
            .output()
            .expect("wrk: scripts/setup wrk installs it")
    };
    let output = thread::scope(|scope| scope.spawn(wrk).join()).expect("wrk");
    let text = String::from_utf8(output.stdout).expect("text");
    let after = |label: &str| {
        let value = text.split(label).nth(1).and_then(|rest| rest.split_whitespace().next());
        value.unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    let per_second = after("Requests/sec:").parse().expect("a rate");
    let median_ms = after("50%").strip_suffix("ms").and_then(|ms| ms.parse::<f64>().ok());
    Figures {
        mean: mean_of_rate(per_second),
        median: 1e3 * median_ms.expect("a median of some milliseconds"),
    }
}

use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::load::{Report, run};
use crate::machine::{GENERATOR_CPU, exclusive, pin};
use crate::reference::{ReferenceClient, Sleepers, disturbed_share, sleep_lateness_us};
use crate::sample::{Overhead, PRECISION, Sample};
use crate::server::DelayServer;

/// A delay as measured by the generator, the server and the reference client.
struct Trial {
    report: Report,
    /// Delays of the server, in microseconds.
    truth: Sample,
    /// Time that the machine added for the reference client, in microseconds.
    overhead: Sample,
    /// Share of disturbed times, over both CPUs.
    disturbed: f64,
}

/// Loads `path` with the generator, then with `count` requests of the reference client, each after a
/// sleep of `gap`.
fn trial(path: &str, options: &str, count: usize, gap: Duration) -> Trial {
    let server = DelayServer::start();
    let sleepers = Sleepers::start();
    let report = run(options, &server.url(path));
    let disturbed = sleepers.stop().map(|late| disturbed_share(&[late])).iter().sum();
    let client = ReferenceClient::run(&server, path, count, gap);
    let (log, client_log) = server.stop().without_last_connection();
    assert_eq!(log.records.len() as u64, report.count("/responses"), "{path}");
    let overhead = client.overheads_us(&client_log);
    Trial { report, truth: log.delays_us(), overhead, disturbed }
}

impl Trial {
    /// Bounds of the quantile `q` of the latencies.
    fn bounds(&self, q: f64) -> RangeInclusive<f64> {
        let overhead = Overhead { reference: &self.overhead, disturbed: self.disturbed };
        self.truth.quantile(q) * (1.0 - PRECISION)..=overhead.bound(&self.truth, q)
    }
}

/// Each printed percentile is the logged truth plus overhead.
#[test]
fn t01_fixed_delays() {
    // One connection, so that no response waits for another, and as few requests as the percentiles
    // need; 100 ms are sent on a schedule, to take 3 s only.
    const DELAYS: [(&str, &str, &str, usize); 5] = [
        ("/delay/0", "-c 1 -n 10000", "/latency", 2000),
        ("/delay/100", "-c 1 -n 3000", "/latency", 1000),
        ("/delay/1000", "-c 1 -n 1200", "/latency", 500),
        ("/delay/10000", "-c 1 -n 150", "/latency", 100),
        ("/delay/100000", "-c 30 --rate 100 -n 300", "/uncorrected_latency", 20),
    ];
    exclusive("t01 fixed delays, in us", |checks| {
        for (path, options, place, count) in DELAYS {
            let trial = trial(path, options, count, Duration::ZERO);
            for (q, seen) in trial.report.percentiles_us(place) {
                checks.within(&format!("{path} p{}", 100.0 * q), seen, trial.bounds(q));
            }
        }
    });
}

/// Values of the histogram at `place`, in microseconds, with its precision.
pub(crate) fn histogram_us(report: &Report, place: &str) -> Sample {
    let histogram = report.histogram(place);
    Sample::new(histogram.iter_recorded().flat_map(|step| {
        let us = step.value_iterated_to() as f64 / 1e3;
        std::iter::repeat_n(us, step.count_since_last_iteration() as usize)
    }))
}

/// Every percentile of a distribution of delays is the truth plus overhead.
#[test]
fn t02_mixed_delays() {
    const DELAYS: [(&str, &str); 2] = [
        // One request in five takes 20 ms, the others take 2 ms.
        ("/bimodal/200/2000/20000", "-c 4 -n 1500"),
        // Exponential, with a mean of 4 ms.
        ("/exponential/4000", "-c 4 -n 2000"),
    ];
    exclusive("t02 mixed delays, in us", |checks| {
        for (path, options) in DELAYS {
            let trial = trial(path, options, 100, Duration::ZERO);
            let seen = histogram_us(&trial.report, "/latency");
            checks.equal(&format!("{path} responses"), seen.len(), trial.truth.len());
            let outside: Vec<String> = (1..100)
                .map(|percent| f64::from(percent) / 100.0)
                .filter(|q| !trial.bounds(*q).contains(&seen.quantile(*q)))
                .map(|q| format!("p{:.0} {:.1}", 100.0 * q, seen.quantile(q)))
                .collect();
            checks.within(&format!("{path} p50"), seen.quantile(0.5), trial.bounds(0.5));
            let line = format!("{path} percentiles outside their bounds: {}", outside.join(", "));
            checks.holds(&line, outside.is_empty());
        }
    });
}

/// After a long sleep the generator wakes late, and so do the kernel and the server. The same cost is
/// measured for other processes, and the figures may not have more: neither the uncorrected latency nor
/// the lateness, whose sum is the latency.
#[test]
fn t11_low_rate_is_not_biased() {
    // Short, so that at both rates one request is in flight, as for the reference client.
    const PATH: &str = "/delay/100";
    // In turns: the machine wakes up at another cost after some seconds, which all processes must meet.
    const TURNS: u32 = 5;
    const LOW: (&str, usize, Duration) = ("-c 1 --rate 20 -n 10", 10, Duration::from_millis(50));
    const HIGH: (&str, usize, Duration) =
        ("-c 4 --rate 2000 -n 400", 100, Duration::from_micros(500));
    exclusive("t11 a low rate and a high one, in us", |checks| {
        let (mut low, mut high) = (Turns::default(), Turns::default());
        for _ in 0..TURNS {
            low.add(&trial(PATH, LOW.0, LOW.1, LOW.2), sleep_lateness_us(LOW.2, LOW.1 as u32));
            // The reference client takes about 250 us for a request.
            let trial = trial(PATH, HIGH.0, HIGH.1, HIGH.2 - Duration::from_micros(250));
            high.add(&trial, sleep_lateness_us(HIGH.2, HIGH.1 as u32));
        }
        let count = TURNS * LOW.1 as u32;
        let added = |turns: &Turns| pooled_median(&turns.seen) - pooled_median(&turns.truth);
        let [low_cost, high_cost] = [&low, &high].map(|turns| Sample::pooled(&turns.overhead));
        let requests = Idle { low: &low_cost, high: &high_cost };
        let bias = added(&low) - added(&high);
        checks.within("uncorrected latency, bias", bias, requests.bounds(count));
        let [low_sleep, high_sleep] = [&low, &high].map(|turns| Sample::pooled(&turns.sleeps));
        let sleeps = Idle { low: &low_sleep, high: &high_sleep };
        let bias = pooled_median(&low.lateness) - pooled_median(&high.lateness);
        checks.within("lateness, bias", bias, sleeps.bounds(count));
    });
}

/// Figures of trials at one rate, in microseconds.
#[derive(Default)]
struct Turns {
    seen: Vec<Sample>,
    truth: Vec<Sample>,
    lateness: Vec<Sample>,
    overhead: Vec<Sample>,
    sleeps: Vec<Sample>,
}

impl Turns {
    fn add(&mut self, trial: &Trial, sleeps: Sample) {
        self.seen.push(histogram_us(&trial.report, "/uncorrected_latency"));
        self.lateness.push(histogram_us(&trial.report, "/lateness"));
        self.truth.push(trial.truth.clone());
        self.overhead.push(trial.overhead.clone());
        self.sleeps.push(sleeps);
    }
}

fn pooled_median(samples: &[Sample]) -> f64 {
    median(&Sample::pooled(samples))
}

fn median(sample: &Sample) -> f64 {
    sample.quantile(0.5)
}

/// Figures of other processes at a low rate and at a high one.
struct Idle<'a> {
    low: &'a Sample,
    high: &'a Sample,
}

impl Idle<'_> {
    /// Bounds of the difference between the median of `count` figures at the low rate and that at the
    /// high rate: the same as for other processes, and the errors of both medians.
    fn bounds(&self, count: u32) -> RangeInclusive<f64> {
        // A median of n figures has a standard error of 1.25 standard deviations over the root of n.
        // Half the distance of the 16th and 84th percentiles is one deviation, without outliers. The
        // errors at the high rate are small.
        const MEDIAN_ERROR: f64 = 1.25;
        const ERRORS: f64 = 3.0;
        // In microseconds: after a long sleep the caches are cold, and the generator uses more memory
        // than the others, some 200 misses of a tenth of a microsecond.
        const COLD: f64 = 20.0;
        let deviation = (self.low.quantile(0.84) - self.low.quantile(0.16)) / 2.0;
        let inverse = 1.0 / f64::from(count) + 1.0 / self.low.len() as f64;
        let error = ERRORS * MEDIAN_ERROR * deviation * inverse.sqrt();
        let cost = median(self.low) - median(self.high);
        cost.min(0.0) - error..=cost.max(0.0) + error + COLD
    }
}

const CONNECTIONS: u32 = 4;
/// Of each run; wrk takes whole seconds.
const SECONDS: u32 = 1;

/// The figures of wrk for the same server under the same load.
///
/// The latency of wrk has the same meaning (from the write to the end of the response, without the
/// connect) and two decimals of a millisecond; hey and ab print tenths and whole ones, and h2load sends
/// at ticks of 10 ms at a given rate. wrk has the closed loop only, where delay and connections determine
/// the rate, so the rate is compared too; by Little's law it is the mean latency. The mean of wrk is not
/// used, because its correction adds latencies.
#[test]
fn t12_same_as_wrk() {
    // In microseconds, of a figure such as `1.05ms`.
    const WRK_ROUNDING: f64 = 5.0;
    exclusive("t12 beside wrk, in us above the delay of the server", |checks| {
        for (path, delay_us) in [("/delay/1000", 1000.0), ("/delay/5000", 5000.0)] {
            checks.note(path);
            // Twice, with wrk between them: the difference of two runs of one tool is noise.
            let runs = [added(path, generator), added(path, wrk), added(path, generator)];
            let [before, wrk, after] = &runs;
            let jitter = jitter(path);
            for (name, own, of_wrk) in [
                ("mean", [before.mean, after.mean], wrk.mean),
                ("p50", [before.median, after.median], wrk.median),
            ] {
                let allowed = jitter + WRK_ROUNDING + PRECISION * delay_us;
                let bounds = own[0].min(own[1]) - allowed..=own[0].max(own[1]) + allowed;
                checks.within(&format!("{name} of wrk"), of_wrk, bounds);
            }
        }
    });
}

/// In microseconds.
struct Figures {
    mean: f64,
    median: f64,
}

/// Figures of a tool above the delays of the server, which vary from run to run.
fn added(path: &str, tool: impl Fn(&str) -> Figures) -> Figures {
    let server = DelayServer::start();
    let seen = tool(&server.url(path));
    let truth = server.stop().delays_us();
    Figures { mean: seen.mean - truth.mean(), median: seen.median - truth.quantile(0.5) }
}

/// Variation of wake-ups from one request to the next: four in five differ by less.
fn jitter(path: &str) -> f64 {
    let server = DelayServer::start();
    let client = ReferenceClient::run(&server, path, 100, Duration::ZERO);
    let overhead = client.overheads_us(&server.stop());
    overhead.quantile(0.9) - overhead.quantile(0.1)
}

fn generator(url: &str) -> Figures {
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
        // Child processes inherit the CPU of this thread.
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

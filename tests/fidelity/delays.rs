use std::ops::RangeInclusive;
use std::time::Duration;

use crate::floor::{Floor, PRECISION};
use crate::load::{Report, run};
use crate::machine::alone;
use crate::nap::{Watch, disturbance, lateness_of_naps};
use crate::sample::Sample;
use crate::server::DelayServer;
use crate::witness::observe;

/// One delay, as three saw it: the generator, the server itself, and a client that does nothing
/// else.
struct Trial {
    report: Report,
    /// How long the server took, in microseconds.
    truth: Sample,
    /// What the machine added to that for the witness, in microseconds.
    added: Sample,
    /// The share of moments, over both CPUs, at which the generator or the server was disturbed.
    disturbed: f64,
}

/// Loads `path` with the generator, then asks the witness `count` times, each after a rest of
/// `gap`.
fn trial(path: &str, options: &str, count: usize, gap: Duration) -> Trial {
    let server = DelayServer::start();
    let watch = Watch::start();
    let report = run(options, &server.url(path));
    let disturbed = watch.end().map(|naps| disturbance(&[naps])).iter().sum();
    let witness = observe(&server, path, count, gap);
    let (log, witness_log) = server.stop().without_last_connection();
    assert_eq!(log.records.len() as u64, report.count("/answered"), "{path}: all are answered");
    let added = witness.overheads_us(&witness_log);
    Trial { report, truth: log.delays_us(), added, disturbed }
}

impl Trial {
    /// Where the quantile `q` of the latencies has to lie.
    fn bounds(&self, q: f64) -> RangeInclusive<f64> {
        let floor = Floor { witness: &self.added, disturbed: self.disturbed };
        self.truth.quantile(q) * (1.0 - PRECISION)..=floor.bound(&self.truth, q)
    }
}

/// Each printed percentile is the truth, which the server logged, and what the floor may add.
#[test]
fn t01_fixed_delays() {
    // One connection, so that no answer waits for another, and as few requests as the wanted
    // percentiles need; 100 ms are asked for on a schedule instead, to be done in 3 s.
    const DELAYS: [(&str, &str, &str, usize); 5] = [
        ("/delay/0", "-c 1 -n 10000", "/latency", 2000),
        ("/delay/100", "-c 1 -n 3000", "/latency", 1000),
        ("/delay/1000", "-c 1 -n 1200", "/latency", 500),
        ("/delay/10000", "-c 1 -n 150", "/latency", 100),
        ("/delay/100000", "-c 30 --rate 100 -n 300", "/latency_from_send", 20),
    ];
    alone("t01 fixed delays, in us", |findings| {
        for (path, options, place, count) in DELAYS {
            let trial = trial(path, options, count, Duration::ZERO);
            for (q, seen) in trial.report.percentiles_us(place) {
                findings.within(&format!("{path} p{}", 100.0 * q), seen, trial.bounds(q));
            }
        }
    });
}

/// The figures of the histogram at `place`, in microseconds, as precise as it is.
pub(crate) fn histogram_us(report: &Report, place: &str) -> Sample {
    let histogram = report.histogram(place);
    Sample::new(histogram.iter_recorded().flat_map(|step| {
        let us = step.value_iterated_to() as f64 / 1e3;
        std::iter::repeat_n(us, step.count_since_last_iteration() as usize)
    }))
}

/// Where delays differ, the whole distribution comes back: every hundredth of it.
#[test]
fn t02_mixed_delays() {
    const DELAYS: [(&str, &str); 2] = [
        // One request in five takes 20 ms, the others 2 ms.
        ("/bimodal/200/2000/20000", "-c 4 -n 1500"),
        // Exponential, with a mean of 4 ms.
        ("/exponential/4000", "-c 4 -n 2000"),
    ];
    alone("t02 mixed delays, in us", |findings| {
        for (path, options) in DELAYS {
            let trial = trial(path, options, 100, Duration::ZERO);
            let seen = histogram_us(&trial.report, "/latency");
            findings.equal(&format!("{path} answers"), seen.len(), trial.truth.len());
            let outside: Vec<String> = (1..100)
                .map(|percent| f64::from(percent) / 100.0)
                .filter(|q| !trial.bounds(*q).contains(&seen.quantile(*q)))
                .map(|q| format!("p{:.0} {:.1}", 100.0 * q, seen.quantile(q)))
                .collect();
            findings.within(&format!("{path} p50"), seen.quantile(0.5), trial.bounds(0.5));
            let line = format!("{path} percentiles outside their bounds: {}", outside.join(", "));
            findings.holds(&line, outside.is_empty());
        }
    });
}

/// A generator with a timer slack reads answers up to that long after they came. None of it is in what
/// they took from their send.
#[test]
fn t14_a_timer_slack_is_not_in_the_latency() {
    // Two requests are due in each nap, and all answers come in the next one. The witness rests as
    // long between its requests as the server has nothing to do.
    const OPTIONS: &str = "-c 10 --rate 500 --timer-slack 4ms -n 600";
    const REST: Duration = Duration::from_millis(3);
    alone("t14 a timer slack, in us", |findings| {
        let trial = trial("/delay/1000", OPTIONS, 300, REST);
        for (q, seen) in trial.report.percentiles_us("/latency_from_send") {
            findings.within(&format!("p{} from send", 100.0 * q), seen, trial.bounds(q));
        }
        findings.equal("answers without a time stamp", trial.report.count("/missed_stamps"), 0);
    });
}

/// A generator that sleeps long between requests wakes late, and so do the kernel and the server.
/// What that costs anybody on this machine is measured beside it, and no more may be in the
/// figures: neither in what a request takes from its send, nor in how late it is sent. The latency
/// from schedule is the sum of both.
#[test]
fn t11_a_low_rate_is_not_biased() {
    // Short, so that at both rates one request is under way at a time, as it is for the witness.
    const PATH: &str = "/delay/100";
    const LOW: (&str, Duration) = ("-c 4 --rate 20 -n 50", Duration::from_millis(50));
    const HIGH: (&str, Duration) = ("-c 4 --rate 2000 -n 2000", Duration::from_micros(500));
    alone("t11 a low rate beside a high one, in us", |findings| {
        let low = trial(PATH, LOW.0, 50, LOW.1);
        // The witness rests between its requests, and each takes it about 200 us.
        let high = trial(PATH, HIGH.0, 500, HIGH.1 - Duration::from_micros(250));
        let added = |trial: &Trial| {
            let seen = histogram_us(&trial.report, "/latency_from_send");
            median(&seen) - median(&trial.truth)
        };
        let request = Idling { low: &low.added, high: &high.added };
        findings.within("from send, bias", added(&low) - added(&high), request.bounds(50));
        let late = |trial: &Trial| median(&histogram_us(&trial.report, "/lateness"));
        let naps = [lateness_of_naps(LOW.1, 50), lateness_of_naps(HIGH.1, 500)];
        let naps = Idling { low: &naps[0], high: &naps[1] };
        findings.within("lateness, bias", late(&low) - late(&high), naps.bounds(50));
    });
}

fn median(sample: &Sample) -> f64 {
    sample.quantile(0.5)
}

/// What others than the generator saw at a low rate and at a high one.
struct Idling<'a> {
    low: &'a Sample,
    high: &'a Sample,
}

impl Idling<'_> {
    /// How much more than at the high rate the median of `count` figures may be at the low one: as
    /// much as for others, and the errors of both medians.
    fn bounds(&self, count: u32) -> RangeInclusive<f64> {
        // A median of n figures has a standard error of 1.25 standard deviations over the root of
        // n, and half of what lies between the 16th and the 84th percentile is one deviation,
        // outliers apart. The medians at the high rate are exact beside these.
        const MEDIAN_ERROR: f64 = 1.25;
        const ERRORS: f64 = 3.0;
        // In microseconds. After a long sleep memory is out of the caches, and the generator goes
        // through more of it than the others: some 200 misses of a tenth of a microsecond.
        const COLD: f64 = 20.0;
        let deviation = (self.low.quantile(0.84) - self.low.quantile(0.16)) / 2.0;
        let inverse = 1.0 / f64::from(count) + 1.0 / self.low.len() as f64;
        let error = ERRORS * MEDIAN_ERROR * deviation * inverse.sqrt();
        let cost = median(self.low) - median(self.high);
        cost.min(0.0) - error..=cost.max(0.0) + error + COLD
    }
}

use std::f64::consts::E;
use std::time::Duration;

use crate::load::run;
use crate::machine::{Checks, exclusive};
use crate::reference::{ReferenceClient, Sleepers};
use crate::sample::Sample;
use crate::server::DelayServer;

/// Arrivals of requests that are due at constant gaps.
pub(crate) struct Arrivals {
    pub(crate) at_us: Vec<f64>,
    pub(crate) gap_us: f64,
}

impl Arrivals {
    /// Lateness relative to the least late arrival.
    fn lateness(&self) -> Sample {
        let late = self.at_us.iter().enumerate().map(|(index, at)| at - index as f64 * self.gap_us);
        let earliest = late.clone().fold(f64::INFINITY, f64::min);
        Sample::new(late.map(|late| late - earliest))
    }

    /// The gap, from the median distance of arrivals with half of all between them: single late arrivals do
    /// not change it.
    pub(crate) fn typical_gap(&self) -> f64 {
        let half = self.at_us.len() / 2;
        let halves = self.at_us.iter().zip(&self.at_us[half..]).map(|(from, to)| to - from);
        Sample::new(halves).quantile(0.5) / half as f64
    }

    /// Share of gaps below a fifth of the planned gap, in percent.
    fn short_gaps(&self) -> f64 {
        let short =
            self.at_us.windows(2).filter(|pair| pair[1] - pair[0] < self.gap_us / 5.0).count();
        100.0 * short as f64 / (self.at_us.len() - 1) as f64
    }
}

/// A run as seen by the server.
struct Run {
    /// Times of the reads, in microseconds after the first.
    at_us: Vec<f64>,
    /// Possible causes of lateness, in microseconds: the wake-ups of both CPUs in this run, and the
    /// round trip to the server.
    causes_us: Vec<Sample>,
}

fn observe_arrivals(checks: &mut Checks, options: &str) -> Run {
    let server = DelayServer::start();
    let sleepers = Sleepers::start();
    let report = run(options, &server.url("/delay/0"));
    let mut causes_us = Vec::from(sleepers.stop());
    let client = ReferenceClient::run(&server, "/delay/0", 300, Duration::from_millis(1));
    let (log, client_log) = server.stop().without_last_connection();
    checks.equal("responses", report.count("/responses"), log.records.len() as u64);
    causes_us.push(client.overheads_us(&client_log));
    Run { at_us: log.reads_us(), causes_us }
}

/// At a constant rate requests leave evenly, and as much on time as the machine allows.
#[test]
fn t06_constant_gaps() {
    // Relative to the rate.
    const RATE_ERROR: f64 = 0.001;
    // In percent, without disturbances. A request later than four fifths of a gap causes a short gap, and a
    // disturbance of n gaps causes n, as the generator catches up. Their share is that of times this
    // late, on either CPU; twice that, because the sleepers are a sample.
    const SHORT_GAPS: f64 = 1.0;
    exclusive("t06 constant gaps, in us", |checks| {
        for (rate, options) in [
            (200.0, "-c 20 --rate 200 -n 400"),
            (1000.0, "-c 50 --rate 1000 -n 2000"),
            (5000.0, "-c 50 --rate 5000 -n 10000"),
            (1000.0, "-c 50 --rate 1000 -n 2000 -t 2"),
        ] {
            checks.note(options);
            let Run { at_us, causes_us } = observe_arrivals(checks, options);
            let gap_us = 1e6 / rate;
            let arrivals = Arrivals { at_us, gap_us };
            let bounds = gap_us * (1.0 - RATE_ERROR)..=gap_us * (1.0 + RATE_ERROR);
            checks.within("gap", arrivals.typical_gap(), bounds);
            let late = arrivals.lateness();
            for q in [0.5, 0.9, 0.99] {
                // Requests above q may be late for any of the causes, so each gets its part (the union
                // bound).
                let part = 1.0 - (1.0 - q) / causes_us.len() as f64;
                let most = causes_us.iter().map(|cause| cause.quantile(part)).sum();
                checks.within(&format!("lateness p{}", 100.0 * q), late.quantile(q), 0.0..=most);
            }
            let disturbed: f64 =
                causes_us.iter().map(|cause| share_above(cause, 0.8 * gap_us)).sum();
            let most = SHORT_GAPS + 2.0 * 100.0 * disturbed;
            checks.within("short gaps, in %", arrivals.short_gaps(), 0.0..=most);
        }
    });
}

fn share_above(figures: &Sample, limit: f64) -> f64 {
    figures.count_above(limit) as f64 / figures.len() as f64
}

/// A Poisson schedule has exponential gaps.
#[test]
fn t06_poisson_gaps() {
    const GAP_US: f64 = 4000.0;
    const OPTIONS: &str = "-c 50 --rate 250 --poisson -n 1250";
    // Three standard errors: 1 draw in 370 is outside. The seed is fixed.
    const ERRORS: f64 = 3.0;
    // Kolmogorov-Smirnov: 1 sample in 100 of an exponential distribution is further away than this over the
    // root of n.
    const CRITICAL: f64 = 1.628;
    exclusive("t06 Poisson gaps, in us", |checks| {
        let Run { at_us, causes_us } = observe_arrivals(checks, OPTIONS);
        let gaps = Sample::new(at_us.windows(2).map(|pair| pair[1] - pair[0]));
        let n = gaps.len() as f64;
        // The mean of exponential gaps has a relative standard error of 1 / sqrt(n), and the variance, with a
        // kurtosis of 9, one of sqrt(8 / n).
        let mean = GAP_US * ERRORS / n.sqrt();
        checks.within("mean", gaps.mean(), GAP_US - mean..=GAP_US + mean);
        let deviation = (ERRORS * (8.0 / n).sqrt() + 1.0).sqrt();
        let seen = gaps.variance().sqrt();
        checks.within("standard deviation", seen, GAP_US / deviation..=GAP_US * deviation);
        // Requests due within one wake-up leave together: shorter gaps become even shorter.
        let wake_us: f64 = causes_us.iter().map(|cause| cause.quantile(0.9)).sum();
        let together = 1.0 - E.powf(-wake_us / GAP_US);
        let distance = gaps.distance_from(|gap| 1.0 - E.powf(-gap / GAP_US));
        let most = CRITICAL / n.sqrt() + together;
        checks.within("distance from an exponential, in %", 100.0 * distance, 0.0..=100.0 * most);
    });
}

#[test]
fn lateness_and_gaps_of_arrivals() {
    let at_us = vec![5.0, 105.0, 235.0, 305.0, 405.0];
    let arrivals = Arrivals { at_us, gap_us: 100.0 };
    assert_eq!(arrivals.lateness().quantile(1.0), 30.0);
    assert_eq!(arrivals.lateness().quantile(0.8), 0.0);
    // Two apart: 230, 200, 170.
    assert_eq!(arrivals.typical_gap(), 100.0);
    let bursts = Arrivals { at_us: vec![0.0, 190.0, 200.0, 300.0], gap_us: 100.0 };
    assert!((bursts.short_gaps() - 100.0 / 3.0).abs() < 1e-9);
}

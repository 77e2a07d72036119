use std::f64::consts::E;
use std::time::Duration;

use crate::findings::Findings;
use crate::load::run;
use crate::machine::alone;
use crate::nap::Watch;
use crate::sample::Sample;
use crate::server::DelayServer;
use crate::witness::observe;

/// Moments in microseconds at which requests should have come at constant gaps, and did.
struct Arrivals {
    at: Vec<f64>,
    gap: f64,
}

impl Arrivals {
    /// How late each was, counted from the one that was the least late.
    fn lateness(&self) -> Sample {
        let late = self.at.iter().enumerate().map(|(index, at)| at - index as f64 * self.gap);
        let earliest = late.clone().fold(f64::INFINITY, f64::min);
        Sample::new(late.map(|late| late - earliest))
    }

    /// The gap, by the median of how far arrivals are apart between which half of them lie: what is
    /// late now and then does not move it.
    fn typical_gap(&self) -> f64 {
        let half = self.at.len() / 2;
        let halves = self.at.iter().zip(&self.at[half..]).map(|(from, to)| to - from);
        Sample::new(halves).quantile(0.5) / half as f64
    }

    /// The share of gaps, in percent, that are below a fifth of what they should be.
    fn short_gaps(&self) -> f64 {
        let short = self.at.windows(2).filter(|pair| pair[1] - pair[0] < self.gap / 5.0).count();
        100.0 * short as f64 / (self.at.len() - 1) as f64
    }
}

/// What one run looked like at the server.
struct Run {
    /// When the server read each request, in microseconds after the first.
    at: Vec<f64>,
    /// What may make a request late, in microseconds: the wake-ups of both CPUs at that time, and
    /// the way to the server and back.
    causes: Vec<Sample>,
}

fn observe_arrivals(findings: &mut Findings, options: &str) -> Run {
    let server = DelayServer::start();
    let watch = Watch::start();
    let report = run(options, &server.url("/delay/0"));
    let mut causes = Vec::from(watch.end());
    let witness = observe(&server, "/delay/0", 300, Duration::from_millis(1));
    let (log, witness_log) = server.stop().without_last_connection();
    findings.equal("answered", report.count("/answered"), log.records.len() as u64);
    causes.push(witness.overheads_us(&witness_log));
    Run { at: log.reads_us(), causes }
}

/// At a constant rate requests leave evenly, and as much on time as the machine lets anybody be.
#[test]
fn t06_constant_gaps() {
    // Of the rate.
    const RATE_ERROR: f64 = 0.001;
    // In percent, and besides disturbances: a request that is later than four fifths of a gap makes
    // a short one, and a disturbance of n gaps makes n as the generator catches up. Their share is
    // that of the moments that were so late, on either CPU; twice that, as naps are a sample.
    const SHORT_GAPS: f64 = 1.0;
    alone("t06 constant gaps, in us", |findings| {
        for (rate, options) in [
            (200.0, "-c 20 --rate 200 -n 400"),
            (1000.0, "-c 50 --rate 1000 -n 2000"),
            (5000.0, "-c 50 --rate 5000 -n 10000"),
            (1000.0, "-c 50 --rate 1000 -n 2000 -t 2"),
        ] {
            findings.note(options);
            let Run { at, causes } = observe_arrivals(findings, options);
            let gap = 1e6 / rate;
            let arrivals = Arrivals { at, gap };
            let bounds = gap * (1.0 - RATE_ERROR)..=gap * (1.0 + RATE_ERROR);
            findings.within("gap", arrivals.typical_gap(), bounds);
            let late = arrivals.lateness();
            for q in [0.5, 0.9, 0.99] {
                // What is above q may be late for any of the causes, so each gets its part of it
                // (the union bound).
                let part = 1.0 - (1.0 - q) / causes.len() as f64;
                let most = causes.iter().map(|cause| cause.quantile(part)).sum();
                findings.within(&format!("lateness p{}", 100.0 * q), late.quantile(q), 0.0..=most);
            }
            let disturbed: f64 = causes.iter().map(|cause| share_above(cause, 0.8 * gap)).sum();
            let most = SHORT_GAPS + 2.0 * 100.0 * disturbed;
            findings.within("short gaps, in %", arrivals.short_gaps(), 0.0..=most);
        }
    });
}

fn share_above(figures: &Sample, limit: f64) -> f64 {
    figures.count_above(limit) as f64 / figures.len() as f64
}

/// Poisson arrivals: the gaps are exponential.
#[test]
fn t06_poisson_gaps() {
    const GAP: f64 = 4000.0;
    const OPTIONS: &str = "-c 50 --rate 250 --poisson -n 1250";
    // Three standard errors: 1 draw in 370 is outside; the seed is fixed, so it is always the same.
    const ERRORS: f64 = 3.0;
    // Kolmogorov and Smirnov: 1 sample in 100 of a true exponential is further away than this over
    // the root of n.
    const CRITICAL: f64 = 1.628;
    alone("t06 Poisson gaps, in us", |findings| {
        let Run { at, causes } = observe_arrivals(findings, OPTIONS);
        let gaps = Sample::new(at.windows(2).map(|pair| pair[1] - pair[0]));
        let n = gaps.len() as f64;
        // Of exponential gaps the mean has a standard error of 1 / sqrt(n), relative to itself, and
        // the variance, for its kurtosis of 9, one of sqrt(8 / n).
        let mean = GAP * ERRORS / n.sqrt();
        findings.within("mean", gaps.mean(), GAP - mean..=GAP + mean);
        let deviation = (ERRORS * (8.0 / n).sqrt() + 1.0).sqrt();
        let seen = gaps.variance().sqrt();
        findings.within("standard deviation", seen, GAP / deviation..=GAP * deviation);
        // Requests that are due within one wake-up leave together: the share of gaps that are
        // shorter than that is lost to the shortest ones.
        let waking: f64 = causes.iter().map(|cause| cause.quantile(0.9)).sum();
        let together = 1.0 - E.powf(-waking / GAP);
        let distance = gaps.distance_from(|gap| 1.0 - E.powf(-gap / GAP));
        let most = CRITICAL / n.sqrt() + together;
        findings.within("distance from an exponential, in %", 100.0 * distance, 0.0..=100.0 * most);
    });
}

#[test]
fn lateness_and_rate_are_read_off() {
    let arrivals = Arrivals { at: vec![5.0, 105.0, 235.0, 305.0, 405.0], gap: 100.0 };
    assert_eq!(arrivals.lateness().quantile(1.0), 30.0);
    assert_eq!(arrivals.lateness().quantile(0.8), 0.0);
    // Two apart: 230, 200, 170.
    assert_eq!(arrivals.typical_gap(), 100.0);
    let bursts = Arrivals { at: vec![0.0, 190.0, 200.0, 300.0], gap: 100.0 };
    assert!((bursts.short_gaps() - 100.0 / 3.0).abs() < 1e-9);
}

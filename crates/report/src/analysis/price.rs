//! Prices: subject and baseline, paired block by block, with verdicts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tollgate_records::metric::{ByBlock, Metric, pairs};
use tollgate_stats::{
    Estimate, Interval, OUTLIER_Z, Pair, Verdict, difference, difference_p, holm,
    modified_z_scores, ratio, ratio_p, summarize, verdict, verdict_of_difference,
};
use tollgate_traffic::load_shape::{CaseArrivals, LoadShape, Protocol, TlsSessions};

pub type Prices = BTreeMap<Metric, Price>;

/// One figure of a subject relative to the baseline of the same block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Price {
    /// Number of blocks in which subject and baseline are valid.
    pub n: usize,
    /// Subject divided by baseline; null if one of them is zero, such as the CPU without a proxy.
    pub ratio: Option<Range>,
    /// Subject minus baseline, in the unit of the figure.
    pub difference: Range,
    /// The verdict, corrected for the other prices of this figure.
    pub verdict: Option<Verdict>,
}

/// A price before the correction for multiple comparisons.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub(super) price: Price,
    ratio: Option<Estimate>,
    difference: Estimate,
    /// The p-value; `None` if there is no test.
    p: Option<f64>,
}

pub(super) type RawPrices = BTreeMap<Metric, Raw>;

/// An estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// True if the ends are those of a 95 % interval. With too few blocks for one, they
    /// are the smallest and the largest observed value.
    pub interval: bool,
}

impl Price {
    /// Widens the intervals by a systematic error. Without a ratio the price is the whole CPU of one side: no rest of a
    /// request exists whose cost could differ.
    fn add(&mut self, error: LoadError, pairs: &[Pair]) {
        let Some(ratio) = &mut self.ratio else { return };
        let baselines: Vec<f64> = pairs.iter().map(|pair| pair.baseline).collect();
        let Some(baseline) = summarize(&baselines) else { return };
        let wider = error.widen(*ratio);
        self.difference.low -= (ratio.low - wider.low) * baseline.median;
        self.difference.high += (wider.high - ratio.high) * baseline.median;
        *ratio = wider;
    }
}

impl Range {
    /// True if 1 is outside of the 95 % interval.
    pub fn excludes_one(&self) -> bool {
        self.interval && (self.low > 1.0 || self.high < 1.0)
    }

    /// True for the range of one block, whose ends are its estimate.
    pub fn is_one_value(&self) -> bool {
        !self.interval && self.low == self.high
    }
}

/// Prices a subject: only blocks in which both sides are valid and have the figure count.
/// Intervals of prices in CPU contain the error; verdicts do not need it, since it reverses no difference.
pub(super) fn prices(
    subject: &ByBlock<'_>,
    baseline: &ByBlock<'_>,
    error: Option<LoadError>,
    seed: u64,
) -> RawPrices {
    let raw = |metric: Metric| {
        let pairs = pairs(metric, subject, baseline);
        let ratio = ratio(&pairs, seed);
        let difference = difference(&pairs, seed)?;
        let mut price = Price {
            n: pairs.len(),
            ratio: ratio.map(Range::from),
            difference: difference.into(),
            verdict: None,
        };
        if let (Metric::CpuUsPerRequest, Some(error)) = (metric, error) {
            price.add(error, &pairs);
        }
        let p = match ratio {
            Some(_) => ratio_p(&pairs),
            None => difference_p(&pairs),
        };
        Some((metric, Raw { price, ratio, difference, p }))
    };
    Metric::ALL.iter().copied().filter_map(raw).collect()
}

impl From<Estimate> for Range {
    fn from(estimate: Estimate) -> Self {
        let (low, high, interval) = match estimate.interval {
            Interval::Confidence { low, high } => (low, high, true),
            Interval::TooFew { min, max } => (min, max, false),
        };
        Self { estimate: estimate.point, low, high, interval }
    }
}

/// Systematic error of a price in CPU: the largest amounts by which it is above and below the true one. The rest of a
/// request does not cost the same beside the priced work as without it: caches cool during long work, and a busier server
/// sleeps less often and finds more to do when it wakes. More blocks do not reduce that, so intervals are widened by it.
/// The bounds are those of `benches/truth`, which plants costs of 7 to 400 µs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadError {
    above: Bound,
    below: Bound,
}

/// Bound of an error. All prices are shares of the CPU per request of the cheaper side.
#[derive(Debug, Clone, Copy)]
struct Bound {
    constant: f64,
    per_price: f64,
    /// Largest share of the price. Below 1: an error never hides or reverses a difference.
    share_max: f64,
}

impl Bound {
    fn at(self, price: f64) -> f64 {
        (self.constant + self.per_price * price).min(self.share_max * price)
    }
}

impl LoadError {
    pub(crate) fn of(load: &LoadShape) -> Self {
        /// Caches that cool during the priced work.
        const CACHES: Bound = Bound { constant: 0.05, per_price: 0.04, share_max: 0.1 };
        let keeps_connections = match load.clients.protocol {
            Protocol::Http1 { .. } | Protocol::Http2 { .. } => true,
            Protocol::Http1Close | Protocol::Handshakes => false,
        };
        // The busier side sleeps less often.
        let below = match (&load.arrivals, keeps_connections) {
            (CaseArrivals::Closed { .. }, true) => {
                Bound { constant: 0.0, per_price: 0.0, share_max: 0.0 }
            }
            // Beside a handshake the same sleep is less.
            (CaseArrivals::Closed { .. }, false) => {
                let constant = if load.tls == TlsSessions::Off { 0.25 } else { 0.03 };
                Bound { constant, per_price: 0.0, share_max: 0.5 }
            }
            (CaseArrivals::Open(_), _) => {
                Bound { constant: 0.15, per_price: 0.0125, share_max: 0.25 }
            }
        };
        Self { above: CACHES, below }
    }

    /// Widens the 95 % interval of a ratio. An observed range stays as it is.
    pub(crate) fn widen(self, ratio: Range) -> Range {
        if !ratio.interval {
            return ratio;
        }
        // The price of the dearer side over the cheaper one.
        if ratio.estimate < 1.0 {
            return inverse(self.widen(inverse(ratio)));
        }
        let price = ratio.estimate - 1.0;
        // In logarithms, so that a ratio stays positive.
        Range {
            low: ratio.low / (1.0 + self.above.at(price) / ratio.estimate),
            high: ratio.high * (1.0 + self.below.at(price) / ratio.estimate),
            ..ratio
        }
    }
}

fn inverse(ratio: Range) -> Range {
    Range { estimate: 1.0 / ratio.estimate, low: 1.0 / ratio.high, high: 1.0 / ratio.low, ..ratio }
}

/// The prices that are corrected together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Has no price: the others are priced against it.
    Baseline,
    Priced,
    /// The repeated baseline: a test of the run, not of a subject.
    Again,
}

/// Sets the verdict of every price of a case. The prices of one figure and family are corrected together, because the
/// more there are, the more likely one differs by chance.
pub(super) fn set_verdicts(subjects: &mut [(Family, RawPrices)], margin: f64) {
    for family in [Family::Priced, Family::Again] {
        for metric in Metric::ALL {
            let mut raws: Vec<&mut Raw> = subjects
                .iter_mut()
                .filter(|(of, _)| *of == family)
                .filter_map(|(_, prices)| prices.get_mut(metric))
                .collect();
            // Prices without a p-value were not tested and need no correction.
            let tested: Vec<f64> = raws.iter().filter_map(|raw| raw.p).collect();
            let mut adjusted = holm(&tested).into_iter();
            for raw in &mut raws {
                let p = raw.p.and_then(|_| adjusted.next()).unwrap_or(1.0);
                let more = match &raw.ratio {
                    Some(ratio) => verdict(ratio, p, margin),
                    None => verdict_of_difference(&raw.difference, p),
                };
                raw.price.verdict = Some(oriented(*metric, more));
            }
        }
    }
}

/// Turns a verdict on the value of a figure into one on the cost.
pub(crate) fn oriented(metric: Metric, verdict: Verdict) -> Verdict {
    if metric.more_is_worse() { verdict } else { verdict.reversed() }
}

/// The figures of a subject in one block. Outliers are marked, but not excluded from prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct BlockFigure {
    /// Number of the block, from 1.
    pub block: u32,
    /// CPU of the system per response, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// Expected responses per second.
    pub throughput_per_s: f64,
    /// Median latency, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile of the latency, in milliseconds.
    pub latency_p99_ms: Option<f64>,
    /// CPU per response relative to the baseline in the same block; null if one of them has
    /// none or is invalid.
    pub ratio: Option<f64>,
    /// True if the ratio is far from those of the other blocks; without a ratio, the CPU.
    pub outlier: bool,
}

pub(super) fn by_block(
    subject: &ByBlock<'_>,
    baseline: &ByBlock<'_>,
    is_baseline: bool,
) -> Vec<BlockFigure> {
    let cpu = |figures: &ByBlock<'_>, block: &u32| {
        figures.get(block).and_then(|m| Metric::CpuUsPerRequest.of(m)).filter(|cpu| *cpu > 0.0)
    };
    let mut figures: Vec<BlockFigure> = subject
        .iter()
        .map(|(block, measurement)| {
            let own = cpu(subject, block);
            let ratio = own.zip(cpu(baseline, block)).map(|(own, baseline)| own / baseline);
            BlockFigure {
                block: *block,
                cpu_us_per_request: own,
                throughput_per_s: measurement.throughput_per_s,
                latency_p50_ms: measurement.latency.p50_ms,
                latency_p99_ms: measurement.latency.p99_ms,
                ratio,
                outlier: false,
            }
        })
        .collect();
    // The baseline's own ratios are all 1.
    let shown = |figure: &BlockFigure| {
        if is_baseline {
            figure.cpu_us_per_request
        } else {
            figure.ratio.or(figure.cpu_us_per_request)
        }
    };
    let values: Vec<f64> = figures.iter().filter_map(shown).map(f64::ln).collect();
    let mut scores = modified_z_scores(&values).into_iter();
    for figure in &mut figures {
        if shown(figure).is_some() {
            figure.outlier = scores.next().is_some_and(|score| score.abs() > OUTLIER_Z);
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tollgate_traffic::load_shape::{
        CaseRate, Clients, LoadProgram, OpenLoop, Spacing, WarmUp, Window,
    };

    const KEPT: Protocol = Protocol::Http1 { pipeline: 1 };
    const CLOSED: CaseArrivals = CaseArrivals::Closed { connections: 50 };

    fn error(arrivals: CaseArrivals, protocol: Protocol) -> LoadError {
        let second = Duration::from_secs(1);
        LoadError::of(&LoadShape {
            program: LoadProgram::Tollgate,
            arrivals,
            clients: Clients {
                protocol,
                threads: 1,
                busy_poll: true,
                connect_timeout: second,
                response_timeout: second,
            },
            tls: TlsSessions::Off,
            warm_up: WarmUp::For(second),
            window: Window::For(second),
            idle_poll: false,
        })
    }

    fn ratio(estimate: f64) -> Range {
        Range { estimate, low: estimate - 0.25, high: estimate + 0.25, interval: true }
    }

    fn assert_range(range: Range, low: f64, high: f64) {
        assert!((range.low - low).abs() < 1e-9, "{range:?}");
        assert!((range.high - high).abs() < 1e-9, "{range:?}");
    }

    #[test]
    fn long_work_cools_caches() {
        // Found up to 0.05 + 0.04 * 4 of the baseline too dear: 4.2 % of 5.
        assert_range(error(CLOSED, KEPT).widen(ratio(5.0)), 4.75 / 1.042, 5.25);
        // A tenth of the price: 0.01 of the baseline.
        let small = Range { estimate: 1.1, low: 1.09, high: 1.12, interval: true };
        assert_range(error(CLOSED, KEPT).widen(small), 1.09 / (1.0 + 0.01 / 1.1), 1.12);
    }

    #[test]
    fn busier_server_sleeps_less() {
        // Found up to a quarter of the baseline too cheap: 5 % of 5.
        let new = error(CLOSED, Protocol::Http1Close).widen(ratio(5.0));
        assert_range(new, 4.75 / 1.042, 5.25 * 1.05);
        // 0.15 + 4 / 80 of the baseline: 4 % of 5.
        let rate = OpenLoop {
            rate: CaseRate::PerS(1000.0),
            spacing: Spacing::Constant,
            connections: 50,
            connections_max: 50,
        };
        let open = error(CaseArrivals::Open(rate), KEPT).widen(ratio(5.0));
        assert_range(open, 4.75 / 1.042, 5.25 * 1.04);
    }

    #[test]
    fn cheaper_subject_is_the_inverse_of_a_dearer_one() {
        let cheaper = Range { estimate: 0.2, low: 1.0 / 5.25, high: 1.0 / 4.75, interval: true };
        let wider = error(CLOSED, KEPT).widen(cheaper);
        assert_range(wider, 1.0 / 5.25, 1.042 / 4.75);
    }

    #[test]
    fn observed_range_is_not_widened() {
        let observed = Range { interval: false, ..ratio(5.0) };
        assert_eq!(error(CLOSED, Protocol::Http1Close).widen(observed), observed);
    }

    #[test]
    fn error_never_reverses_a_difference() {
        for protocol in [KEPT, Protocol::Http1Close] {
            for estimate in [1.001, 1.02, 1.5, 10.0, 0.999, 0.5] {
                let exact = Range { estimate, low: estimate, high: estimate, interval: true };
                let wider = error(CLOSED, protocol).widen(exact);
                assert!(wider.excludes_one(), "{wider:?}");
                assert!(wider.low <= estimate && estimate <= wider.high, "{wider:?}");
            }
        }
    }

    #[test]
    fn difference_is_widened_as_its_ratio() {
        let difference = Range { estimate: 40.0, low: 37.5, high: 42.5, interval: true };
        let mut price = Price { n: 8, ratio: Some(ratio(5.0)), difference, verdict: None };
        price.add(error(CLOSED, KEPT), &[Pair { subject: 50.0, baseline: 10.0 }]);
        assert_range(price.difference, 37.5 - 10.0 * (4.75 - 4.75 / 1.042), 42.5);
    }
}

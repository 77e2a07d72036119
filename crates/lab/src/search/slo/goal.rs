//! One goal, and whether a sample keeps it.

use super::sample::Sample;
use crate::record::as_f64;
use crate::report::number::{percent, significant};

/// One figure and what it has to stay within.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Goal {
    pub(super) figure: Figure,
    pub(super) relation: Relation,
    pub(super) limit: Limit,
}

/// How a figure has to stand to its limit. For a quantile and for the longest latency it is the same:
/// latencies are kept to a thousandth of themselves, and one at the limit is not beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Below,
    AtMost,
}

/// What a goal looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Figure {
    /// The latency that a share of all requests did not exceed.
    Quantile { name: &'static str, share: f64 },
    /// The mean latency.
    Mean,
    /// The longest latency.
    Max,
    /// The share of requests without the expected answer: failed, or answered otherwise.
    Errors,
    /// The share of answers that were not the expected ones.
    Unexpected,
}

/// What a figure has to stay within, as it was written and as a number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    pub(super) text: String,
    /// Nanoseconds of a latency, or a share from 0 to 1.
    pub(super) value: f64,
}

/// A quarter of a request, so that 0.1 % of 10,000 are 10 although 0.001 has no exact binary form.
const REQUEST_ROUNDING: f64 = 0.25;

impl Goal {
    pub(super) fn broken_by(&self, sample: &Sample<'_>) -> Option<String> {
        let limit = &self.limit;
        match self.figure {
            Figure::Quantile { share, .. } => {
                let all = as_f64(sample.latency.count() + sample.waiting());
                let beyond = as_f64(sample.beyond(limit.value));
                // As many as lie beyond the quantile may take longer.
                let is_broken = beyond > (1.0 - share) * all + REQUEST_ROUNDING || all == 0.0;
                let of_all = if all > 0.0 { beyond / all } else { 1.0 };
                is_broken.then(|| format!("{} took longer than {}", percent(of_all), limit.text))
            }
            Figure::Max => {
                let beyond = sample.beyond(limit.value);
                let nothing = sample.latency.count() == 0;
                (beyond > 0 || nothing).then(|| match beyond {
                    1 => format!("1 request took longer than {}", limit.text),
                    _ => format!("{beyond} requests took longer than {}", limit.text),
                })
            }
            Figure::Mean => match sample.mean_ns() {
                Some(mean_ns) if self.relation.holds(mean_ns, limit.value) => None,
                Some(mean_ns) => Some(format!("the mean was {} ms", significant(mean_ns / 1e6))),
                None => Some("nothing was answered".to_owned()),
            },
            Figure::Errors => {
                let wrong = sample.failed + sample.unexpected;
                self.share_broken(wrong, sample.failed + sample.answered)
                    .map(|share| format!("{} got no expected answer", percent(share)))
            }
            Figure::Unexpected => self
                .share_broken(sample.unexpected, sample.answered)
                .map(|share| format!("{} of the answers were unexpected", percent(share))),
        }
    }

    /// The share, when it is not within its limit; all of nothing is broken too, even where all is
    /// allowed.
    fn share_broken(&self, part: u64, whole: u64) -> Option<f64> {
        if whole == 0 {
            return Some(1.0);
        }
        let share = as_f64(part) / as_f64(whole);
        (!self.relation.holds(share, self.limit.value)).then_some(share)
    }
}

impl Relation {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Below => "<",
            Self::AtMost => "<=",
        }
    }
}

impl Figure {
    pub(super) const ALL: [Self; 9] = [
        Self::Quantile { name: "p50", share: 0.5 },
        Self::Quantile { name: "p90", share: 0.9 },
        Self::Quantile { name: "p95", share: 0.95 },
        Self::Quantile { name: "p99", share: 0.99 },
        Self::Quantile { name: "p99.9", share: 0.999 },
        Self::Mean,
        Self::Max,
        Self::Errors,
        Self::Unexpected,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Quantile { name, .. } => name,
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Errors => "errors",
            Self::Unexpected => "unexpected",
        }
    }

    pub(super) fn is_share(self) -> bool {
        matches!(self, Self::Errors | Self::Unexpected)
    }
}

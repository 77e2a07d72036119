//! Goals: what a subject has to keep, as `p99<5ms,errors<0.1%`. Pure.

use crate::inputs::toml_file::suggestion;
use crate::record::as_f64;
use crate::report::number::{percent, significant};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;
use tollgate_stats::LatencyHistogram;

/// Everything that a subject has to keep at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo {
    goals: Vec<Goal>,
}

/// One figure and what it has to stay within.
#[derive(Debug, Clone, PartialEq)]
struct Goal {
    figure: Figure,
    relation: Relation,
    limit: Limit,
}

/// How a figure has to stand to its limit. For a quantile and for the longest latency it is the same:
/// latencies are kept to a thousandth of themselves, and one at the limit is not beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Below,
    AtMost,
}

/// What a goal looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
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
struct Limit {
    text: String,
    /// Nanoseconds of a latency, or a share from 0 to 1.
    value: f64,
}

/// What goals look at: the requests of one trial.
#[derive(Debug)]
pub struct Sample<'a> {
    /// Latencies in nanoseconds of all answers and timeouts.
    pub latency: &'a LatencyHistogram,
    /// Requests that were never answered while the window was open, under way or never sent.
    pub waiting: Vec<Waiting>,
    /// Complete answers, expected or not.
    pub answered: u64,
    /// Those of them that were not the expected ones.
    pub unexpected: u64,
    /// Requests without an answer.
    pub failed: u64,
}

/// Requests that still waited when the window closed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// How many.
    pub requests: u64,
    /// How long the oldest of them had, in nanoseconds. All count as that old, as no other age is
    /// known; so a goal is rather said to be broken than kept.
    pub oldest_ns: f64,
}

/// Goals that cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SloError {
    /// There is none.
    #[error("there is no goal; write one such as p99<5ms, or several: p99<5ms,errors<0.1%")]
    Empty,
    /// A part is not of the form.
    #[error("`{goal}` is not a goal such as p99<5ms or errors<0.1%")]
    Form {
        /// The part.
        goal: String,
    },
    /// There is no such figure.
    #[error("`{goal}`: there is no figure `{figure}`{hint}")]
    Figure {
        /// The goal.
        goal: String,
        /// What stands before its `<`.
        figure: String,
        /// The nearest that exists.
        hint: String,
    },
    /// The limit is not one that the figure may have.
    #[error("`{goal}`: {needs}")]
    Limit {
        /// The goal.
        goal: String,
        /// What it needs instead.
        needs: &'static str,
    },
    /// A figure has two goals.
    #[error("`{figure}` has two goals; leave out one")]
    Twice {
        /// The figure.
        figure: &'static str,
    },
}

/// Where no goal is about errors, a system that refuses most requests at once would keep every
/// latency. So then this one is kept besides.
const DEFAULT_ERRORS: (&str, f64) = ("1%", 0.01);

/// A quantile is decided by at least this many requests beyond it, as everywhere in our figures.
const REQUESTS_BEYOND: f64 = 10.0;

/// A quarter of a request, so that 0.1 % of 10,000 are 10 although 0.001 has no exact binary form.
const REQUEST_ROUNDING: f64 = 0.25;

impl Slo {
    /// How many requests a trial needs, so that every quantile is decided by more than a few.
    pub fn requests_min(&self) -> u64 {
        let needs = self.goals.iter().map(|goal| match goal.figure {
            Figure::Quantile { share, .. } => (REQUESTS_BEYOND / (1.0 - share)).round(),
            Figure::Errors | Figure::Unexpected => (1.0 / goal.limit.value).ceil(),
            Figure::Mean | Figure::Max => 0.0,
        });
        // Shares below a millionth are refused, so this is a number of at most eight digits.
        needs.fold(1.0, f64::max) as u64
    }

    /// Why the goals are broken, a line each; empty when they are kept.
    pub fn broken_by(&self, sample: &Sample<'_>) -> Vec<String> {
        self.goals.iter().filter_map(|goal| goal.broken_by(sample)).collect()
    }
}

impl Goal {
    fn broken_by(&self, sample: &Sample<'_>) -> Option<String> {
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

    fn sign(self) -> &'static str {
        match self {
            Self::Below => "<",
            Self::AtMost => "<=",
        }
    }
}

impl Sample<'_> {
    fn waiting(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.requests).sum()
    }

    /// How many requests took longer than `limit_ns`, or have waited longer already.
    fn beyond(&self, limit_ns: f64) -> u64 {
        // A limit is at most an hour, and whole nanoseconds are as fine as latencies are kept.
        let within = self.latency.count_up_to(limit_ns as u64);
        let older = self.waiting.iter().filter(|waiting| waiting.oldest_ns > limit_ns);
        self.latency.count() - within + older.map(|waiting| waiting.requests).sum::<u64>()
    }

    fn mean_ns(&self) -> Option<f64> {
        let (sum, count) = match self.latency.mean_ns() {
            Some(mean_ns) => (mean_ns * as_f64(self.latency.count()), self.latency.count()),
            None => (0.0, 0),
        };
        let waited: f64 = self.waiting.iter().map(|w| as_f64(w.requests) * w.oldest_ns).sum();
        let all = count + self.waiting();
        (count > 0).then(|| (sum + waited) / as_f64(all))
    }
}

impl Figure {
    const ALL: [Self; 9] = [
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

    fn name(self) -> &'static str {
        match self {
            Self::Quantile { name, .. } => name,
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Errors => "errors",
            Self::Unexpected => "unexpected",
        }
    }

    fn is_share(self) -> bool {
        matches!(self, Self::Errors | Self::Unexpected)
    }
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        if text.trim().is_empty() {
            return Err(SloError::Empty);
        }
        let mut goals: Vec<Goal> = Vec::new();
        for part in text.split(',') {
            let goal: Goal = part.trim().parse()?;
            if goals.iter().any(|other| other.figure == goal.figure) {
                return Err(SloError::Twice { figure: goal.figure.name() });
            }
            goals.push(goal);
        }
        if !goals.iter().any(|goal| goal.figure == Figure::Errors) {
            let (text, value) = DEFAULT_ERRORS;
            let limit = Limit { text: text.to_owned(), value };
            goals.push(Goal { figure: Figure::Errors, relation: Relation::Below, limit });
        }
        Ok(Self { goals })
    }
}

impl FromStr for Goal {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        let goal = || text.to_owned();
        let (name, rest) = text.split_once('<').ok_or_else(|| SloError::Form { goal: goal() })?;
        let name = name.trim();
        let (relation, limit) = match rest.strip_prefix('=') {
            Some(rest) => (Relation::AtMost, rest.trim()),
            None => (Relation::Below, rest.trim()),
        };
        if name.is_empty() || limit.is_empty() {
            return Err(SloError::Form { goal: goal() });
        }
        let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name);
        let figure = figure.ok_or_else(|| SloError::Figure {
            goal: goal(),
            figure: name.to_owned(),
            hint: suggestion(name, Figure::ALL.iter().map(|figure| figure.name())),
        })?;
        let value = if figure.is_share() { share(limit) } else { latency_ns(limit) };
        let value = value.map_err(|needs| SloError::Limit { goal: goal(), needs })?;
        let text = limit.split_whitespace().collect();
        Ok(Self { figure, relation, limit: Limit { text, value } })
    }
}

const UNITS_NS: [(&str, f64); 4] = [("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const LATENCY_MAX_NS: f64 = 3.6e12;
const SHARE_MIN: f64 = 1e-6;

fn latency_ns(text: &str) -> Result<f64, &'static str> {
    let needs_unit = "a latency is a number with its unit, us, ms or s, such as 5ms";
    let unit = UNITS_NS.into_iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let (number, ns) = unit.ok_or(needs_unit)?;
    let value = ns * decimal(number).ok_or(needs_unit)?;
    match (1e3..=LATENCY_MAX_NS).contains(&value) {
        true => Ok(value),
        false => Err("a latency has to be from 1us to 3600s"),
    }
}

fn share(text: &str) -> Result<f64, &'static str> {
    let needs_percent = "a share is a number with its unit, such as 0.1%";
    let number = text.strip_suffix('%').ok_or(needs_percent)?;
    let value = decimal(number).ok_or(needs_percent)? / 100.0;
    match (SHARE_MIN..=1.0).contains(&value) {
        true => Ok(value),
        false => Err("a share has to be from 0.0001% to 100%"),
    }
}

/// A number as people write it: digits with at most one point, and neither sign nor exponent.
fn decimal(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_plain.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Slo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, goal) in self.goals.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let Goal { figure, relation, limit } = goal;
            write!(formatter, "{comma}{}{}{}", figure.name(), relation.sign(), limit.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slo(text: &str) -> Slo {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<Slo>().unwrap_err().to_string()
    }

    #[test]
    fn goals_are_read_and_written_back() {
        for (text, written) in [
            ("p99<5ms,errors<0.1%", "p99<5ms,errors<0.1%"),
            (
                " p50 < 200 us , max<=1.5s,unexpected < 2 %",
                "p50<200us,max<=1.5s,unexpected<2%,errors<1%",
            ),
            ("mean<1ms", "mean<1ms,errors<1%"),
            ("p99.9<700µs", "p99.9<700µs,errors<1%"),
            ("errors<0.01%", "errors<0.01%"),
            ("errors <= 1 %", "errors<=1%"),
        ] {
            assert_eq!(slo(text).to_string(), written);
            assert_eq!(slo(written), slo(text));
        }
    }

    #[test]
    fn what_is_no_goal_is_told_with_what_would_be_one() {
        let unit = "a latency is a number with its unit, us, ms or s, such as 5ms";
        let percent = "a share is a number with its unit, such as 0.1%";
        for (text, told) in [
            (
                "",
                "there is no goal; write one such as p99<5ms, or several: p99<5ms,errors<0.1%"
                    .to_owned(),
            ),
            ("p99", "`p99` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p99<5ms,", "`` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("<5ms", "`<5ms` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p99<", "`p99<` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p99>5ms", "`p99>5ms` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p999<5ms", "`p999<5ms`: there is no figure `p999`; did you mean `p99`?".to_owned()),
            ("p99<5", format!("`p99<5`: {unit}")),
            ("p99<ms", format!("`p99<ms`: {unit}")),
            ("p99<-5ms", format!("`p99<-5ms`: {unit}")),
            ("p99<1e3ms", format!("`p99<1e3ms`: {unit}")),
            ("p99<5%", format!("`p99<5%`: {unit}")),
            ("max<0ms", "`max<0ms`: a latency has to be from 1us to 3600s".to_owned()),
            ("max<3601s", "`max<3601s`: a latency has to be from 1us to 3600s".to_owned()),
            ("errors<1", format!("`errors<1`: {percent}")),
            ("errors<1.2.3%", format!("`errors<1.2.3%`: {percent}")),
            ("errors<0%", "`errors<0%`: a share has to be from 0.0001% to 100%".to_owned()),
            ("errors<101%", "`errors<101%`: a share has to be from 0.0001% to 100%".to_owned()),
            ("p99<5ms,p99<6ms", "`p99` has two goals; leave out one".to_owned()),
        ] {
            assert_eq!(error(text), told, "{text}");
        }
    }

    #[test]
    fn a_trial_needs_ten_requests_beyond_each_quantile() {
        assert_eq!(slo("p99<5ms").requests_min(), 1_000);
        assert_eq!(slo("p99.9<5ms,p50<1ms").requests_min(), 10_000);
        assert_eq!(slo("mean<5ms,errors<0.1%").requests_min(), 1_000);
    }

    /// So many requests of a millisecond, and so many of ten.
    fn latencies(fast: u64, slow: u64) -> LatencyHistogram {
        let mut latency = LatencyHistogram::new();
        latency.record_n(1_000_000, fast);
        latency.record_n(10_000_000, slow);
        latency
    }

    fn sample(latency: &LatencyHistogram) -> Sample<'_> {
        let answered = latency.count();
        Sample { latency, waiting: vec![], answered, unexpected: 0, failed: 0 }
    }

    fn broken(goals: &str, sample: &Sample<'_>) -> Vec<String> {
        slo(goals).broken_by(sample)
    }

    #[test]
    fn one_in_a_hundred_may_lie_beyond_p99() {
        assert_eq!(broken("p99<5ms", &sample(&latencies(9_900, 100))), [""; 0]);
        assert_eq!(
            broken("p99<5ms", &sample(&latencies(9_890, 110))),
            ["1.1 % took longer than 5ms"]
        );
        assert_eq!(broken("p99.9<5ms", &sample(&latencies(9_990, 10))), [""; 0]);
        assert_eq!(
            broken("p99.9<5ms", &sample(&latencies(9_989, 11))),
            ["0.1 % took longer than 5ms"]
        );
    }

    #[test]
    fn mean_and_max_look_at_all_latencies() {
        // 9 of 1 ms and 1 of 10 ms: 1.9 ms.
        let latency = latencies(9, 1);
        assert_eq!(broken("mean<2ms", &sample(&latency)), [""; 0]);
        assert_eq!(broken("mean<1.8ms", &sample(&latency)), ["the mean was 1.90 ms"]);
        // One value is its own mean, to a thousandth.
        let mean_ms = latencies(1, 0).mean_ns().unwrap() / 1e6;
        let at = |relation: &str| format!("mean{relation}{mean_ms}ms");
        assert_eq!(broken(&at("<="), &sample(&latencies(1, 0))), [""; 0]);
        assert_eq!(broken(&at("<"), &sample(&latencies(1, 0))), ["the mean was 1.00 ms"]);
        assert_eq!(broken("max<11ms", &sample(&latency)), [""; 0]);
        assert_eq!(broken("max<5ms", &sample(&latency)), ["1 request took longer than 5ms"]);
    }

    #[test]
    fn requests_that_still_wait_count_as_old_as_the_oldest() {
        let latency = latencies(989, 0);
        let with = |requests, oldest_ms: f64| Sample {
            waiting: vec![Waiting { requests, oldest_ns: oldest_ms * 1e6 }],
            ..sample(&latency)
        };
        assert_eq!(broken("p99<5ms", &with(11, 4.9)), [""; 0]);
        assert_eq!(broken("p99<5ms", &with(11, 5.1)), ["1.1 % took longer than 5ms"]);
        // 989 of 1 ms and 11 of 91 ms are 1.99 ms.
        assert_eq!(broken("mean<1.9ms", &with(11, 91.0)), ["the mean was 1.99 ms"]);
        assert_eq!(broken("max<5ms", &with(2, 6.0)), ["2 requests took longer than 5ms"]);
    }

    #[test]
    fn errors_are_failures_and_unexpected_answers() {
        let latency = latencies(1_000, 0);
        let with = |unexpected, failed| Sample { unexpected, failed, ..sample(&latency) };
        // 1 of 1,000 is 0.1 %, which is not below it.
        assert_eq!(broken("errors<0.1%", &with(1, 0)), ["0.1 % got no expected answer"]);
        assert_eq!(broken("errors<=0.1%", &with(1, 0)), [""; 0]);
        assert_eq!(broken("errors<=0.1%", &with(2, 0)), ["0.2 % got no expected answer"]);
        assert_eq!(broken("errors<0.2%", &with(1, 0)), [""; 0]);
        assert_eq!(broken("errors<0.2%", &with(1, 2)), ["0.3 % got no expected answer"]);
        assert_eq!(broken("unexpected<0.2%,errors<50%", &with(1, 500)), [""; 0]);
        assert_eq!(
            broken("unexpected<0.2%", &with(2, 0)),
            ["0.2 % of the answers were unexpected"]
        );
        // A system that refuses everything at once keeps no goal.
        assert_eq!(broken("p99<5ms", &with(1_000, 0)), ["100 % got no expected answer"]);
    }

    #[test]
    fn nothing_answered_keeps_nothing() {
        let none = LatencyHistogram::new();
        for goal in ["p99<5ms", "mean<5ms", "max<5ms", "errors<1%", "unexpected<=100%"] {
            assert!(!broken(goal, &sample(&none)).is_empty(), "{goal}");
        }
    }

    proptest! {
        #[test]
        fn a_goal_that_is_kept_is_kept_with_a_higher_limit(fast in 0u64..5_000, slow in 0u64..200, waiting in 0u64..50, low in 1u32..50, more in 0u32..50) {
            let latency = latencies(fast, slow);
            let waiting = vec![Waiting { requests: waiting, oldest_ns: 20e6 }];
            let sample = Sample { waiting, ..sample(&latency) };
            for figure in ["p50", "p90", "p99", "p99.9", "mean", "max"] {
                let at = |limit: u32| broken(&format!("{figure}<{limit}ms,errors<100%"), &sample);
                prop_assert!(!at(low).is_empty() || at(low + more).is_empty());
            }
        }
    }
}

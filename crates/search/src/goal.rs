//! Goals such as `p99<5ms,errors<0.1%`, and the judgement of trials by them.

use crate::bracket::RateVerdict;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tollgate_load::Summary;
use tollgate_records::error::bad_input;
use tollgate_records::trial::{Bottleneck, Measurement, OpenLoopRecord, TrialOutcome, as_f64};
use tollgate_records::validity::Invalid;
use tollgate_report::condition::{Condition, Dimension, Form, Relation};
use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{percent, significant};

/// Upper limits that a subject has to meet at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Goals {
    goals: Vec<Goal>,
}

#[derive(Debug, Clone, PartialEq)]
struct Goal {
    metric: Metric,
    relation: Relation,
    limit: Limit,
}

#[derive(Debug, Clone, PartialEq)]
struct Limit {
    text: String,
    /// Nanoseconds of a latency, or a share from 0 to 1.
    value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Metric {
    Quantile(f64),
    Mean,
    Max,
    /// Share of requests that failed or got an unexpected response.
    Errors,
    /// Share of responses that were unexpected.
    Unexpected,
}

const METRICS: [(&str, Dimension, Metric); 9] = [
    ("p50", Dimension::Latency, Metric::Quantile(0.5)),
    ("p90", Dimension::Latency, Metric::Quantile(0.9)),
    ("p95", Dimension::Latency, Metric::Quantile(0.95)),
    ("p99", Dimension::Latency, Metric::Quantile(0.99)),
    ("p99.9", Dimension::Latency, Metric::Quantile(0.999)),
    ("mean", Dimension::Latency, Metric::Mean),
    ("max", Dimension::Latency, Metric::Max),
    ("errors", Dimension::Share, Metric::Errors),
    ("unexpected", Dimension::Share, Metric::Unexpected),
];

const LATENCY_MIN_NS: f64 = 1e3;
const LATENCY_MAX_NS: f64 = 3.6e12;
const SHARE_MIN: f64 = 1e-6;

/// Added if no goal limits errors: a system that rejects most requests at once would meet any goal for latency.
const DEFAULT_ERRORS: &str = "errors<1%";

/// Number of requests beyond a quantile that decide it, as in all reports.
const REQUESTS_BEYOND: f64 = 10.0;

/// A quarter of a request, so that 0.1 % of 10,000 are 10 although 0.001 has no exact binary form.
const REQUEST_ROUNDING: f64 = 0.25;

impl FromStr for Goals {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut goals: Vec<Goal> = Vec::new();
        for part in text.split(',') {
            let goal: Goal = part.parse()?;
            if goals.iter().any(|other| other.metric == goal.metric) {
                let metric = goal.metric.name();
                return Err(bad_input(format!(
                    "more than one goal for `{metric}`; remove all but one"
                )));
            }
            goals.push(goal);
        }
        if !goals.iter().any(|goal| goal.metric == Metric::Errors) {
            goals.push(DEFAULT_ERRORS.parse()?);
        }
        Ok(Self { goals })
    }
}

impl FromStr for Goal {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        let metrics = METRICS.map(|(name, dimension, _)| (name, dimension));
        let condition = Condition::parse(text, &metrics, Form::Goal)
            .map_err(|error| bad_input(error.to_string()))?;
        let error = |reason| Err(bad_input(format!("`{text}`: {reason}")));
        let Some((_, dimension, metric)) =
            METRICS.iter().find(|(name, ..)| *name == condition.metric.name)
        else {
            unreachable!("the parser accepts only these metrics");
        };
        if !matches!(condition.relation, Relation::Below | Relation::AtMost) {
            return error("a goal is an upper limit: use `<` or `<=`");
        }
        let value = match dimension {
            Dimension::Share => condition.limit.value,
            _ => condition.limit.value * 1e6,
        };
        match dimension {
            Dimension::Share if !(SHARE_MIN..=1.0).contains(&value) => {
                error("a percentage must be from 0.0001% to 100%")
            }
            Dimension::Latency if !(LATENCY_MIN_NS..=LATENCY_MAX_NS).contains(&value) => {
                error("a latency must be from 1us to 3600s")
            }
            _ => {
                let limit = Limit { text: condition.limit.text, value };
                Ok(Self { metric: *metric, relation: condition.relation, limit })
            }
        }
    }
}

impl fmt::Display for Goals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Goal { metric, relation, limit }) in self.goals.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(formatter, "{comma}{}{}{}", metric.name(), relation.sign(), limit.text)?;
        }
        Ok(())
    }
}

impl Metric {
    fn name(self) -> &'static str {
        METRICS.iter().find(|(.., metric)| *metric == self).map_or("", |(name, ..)| name)
    }
}

impl Goals {
    /// Returns the minimum number of requests of a trial, so that enough requests decide every quantile.
    pub fn requests_min(&self) -> u64 {
        let needs = self.goals.iter().map(|goal| match goal.metric {
            Metric::Quantile(share) => (REQUESTS_BEYOND / (1.0 - share)).round(),
            Metric::Errors | Metric::Unexpected => (1.0 / goal.limit.value).ceil(),
            Metric::Mean | Metric::Max => 0.0,
        });
        // At most 1e6, because of SHARE_MIN.
        needs.fold(1.0, f64::max) as u64
    }

    /// Returns a reason for each goal that is not met.
    fn violations(&self, sample: &Sample<'_>) -> Vec<String> {
        self.goals.iter().filter_map(|goal| goal.violation(sample)).collect()
    }

    /// Returns a reason for each goal that a load does not meet. Requests in flight at its end count as old as they are.
    pub fn missed(&self, load: &Summary) -> Vec<String> {
        self.violations(&Sample::of_load(load))
    }

    /// Judges a trial.
    ///
    /// Effects of the system decide, even if a run would not count the trial: failed requests, unexpected responses,
    /// dead processes. Disturbances from outside make the trial invalid: steal, other processes, a suspended machine.
    pub fn judge(&self, outcome: &TrialOutcome) -> Judgement {
        let invalid = |reasons| Judgement { verdict: RateVerdict::Invalid, reasons };
        let Some(measurement) = outcome.measurement() else {
            return Judgement {
                verdict: RateVerdict::NotMeasured,
                reasons: outcome.why_not_valid(),
            };
        };
        let Some(open_loop) = &measurement.open_loop else {
            return invalid(vec!["the trial had no rate".to_owned()]);
        };
        let matching = |is_kind: fn(&Invalid) -> bool| -> Vec<String> {
            measurement
                .invalid
                .iter()
                .filter(|rule| is_kind(rule))
                .map(Invalid::to_string)
                .collect()
        };
        let disturbances = matching(|rule| {
            matches!(
                rule,
                Invalid::Steal { .. } | Invalid::BackgroundCpu { .. } | Invalid::Paused { .. }
            )
        });
        if !disturbances.is_empty() {
            return invalid(disturbances);
        }
        let Some(histogram) = &measurement.latency.histogram_v2_base64 else {
            return invalid(vec!["the trial has no histogram of latencies".to_owned()]);
        };
        let latency = match LatencyHistogram::from_v2_base64(histogram) {
            Ok(latency) => latency,
            Err(error) => return invalid(vec![format!("cannot read the latencies: {error}")]),
        };
        let mut reasons = self.violations(&Sample::of(measurement, open_loop, &latency));
        reasons.extend(not_delivered(open_loop));
        reasons.extend(matching(|rule| matches!(rule, Invalid::ProcessDied { .. })));
        if reasons.is_empty() {
            // A window that was not closed in time matters only here: if a goal is not met, the generator was
            // overloaded, and its lateness shows that.
            let skewed = matching(|rule| matches!(rule, Invalid::WindowSkew { .. }));
            return if skewed.is_empty() {
                Judgement { verdict: RateVerdict::Pass, reasons }
            } else {
                invalid(skewed)
            };
        }
        let by_system = match measurement.bottleneck {
            Bottleneck::System | Bottleneck::None => true,
            Bottleneck::Generator | Bottleneck::Origin => false,
        };
        Judgement { verdict: RateVerdict::Fail { by_system }, reasons }
    }
}

/// The verdict of a trial, with the reasons unless it passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: RateVerdict,
    pub reasons: Vec<String>,
}

/// A rate that was not delivered fails, regardless of the goals.
fn not_delivered(open_loop: &OpenLoopRecord) -> Option<String> {
    let due = open_loop.due.max(open_loop.unsent).max(1);
    let share = as_f64(open_loop.unsent) / as_f64(due);
    open_loop.fell_behind().then(|| format!("{} were due and never sent", percent(share)))
}

impl Goal {
    fn violation(&self, sample: &Sample<'_>) -> Option<String> {
        let limit = &self.limit;
        match self.metric {
            Metric::Quantile(share) => {
                let all = as_f64(sample.latency.count() + sample.waiting());
                let beyond = as_f64(sample.beyond(limit.value));
                let is_violated = beyond > (1.0 - share) * all + REQUEST_ROUNDING || all == 0.0;
                let of_all = if all > 0.0 { beyond / all } else { 1.0 };
                is_violated.then(|| format!("{} took longer than {}", percent(of_all), limit.text))
            }
            Metric::Max => {
                let beyond = sample.beyond(limit.value);
                let is_empty = sample.latency.count() == 0;
                (beyond > 0 || is_empty).then(|| match beyond {
                    1 => format!("1 request took longer than {}", limit.text),
                    _ => format!("{beyond} requests took longer than {}", limit.text),
                })
            }
            Metric::Mean => match sample.mean_ns() {
                Some(mean_ns) if self.relation.holds(mean_ns, limit.value) => None,
                Some(mean_ns) => Some(format!("the mean was {} ms", significant(mean_ns / 1e6))),
                None => Some("no responses".to_owned()),
            },
            Metric::Errors => {
                let errors = sample.failed + sample.unexpected;
                let share = self.excessive_share(errors, sample.failed + sample.responses)?;
                Some(format!("{} got no expected response", percent(share)))
            }
            Metric::Unexpected => {
                let share = self.excessive_share(sample.unexpected, sample.responses)?;
                Some(format!("{} of the responses were unexpected", percent(share)))
            }
        }
    }

    /// Returns the share if it exceeds the limit. A share of nothing counts as all, even if all is allowed.
    fn excessive_share(&self, part: u64, whole: u64) -> Option<f64> {
        if whole == 0 {
            return Some(1.0);
        }
        let share = as_f64(part) / as_f64(whole);
        (!self.relation.holds(share, self.limit.value)).then_some(share)
    }
}

/// The requests of one trial.
#[derive(Debug)]
struct Sample<'a> {
    /// Latencies of all responses and timeouts, in nanoseconds.
    latency: &'a LatencyHistogram,
    /// Requests without a response at the end: in flight, or never sent.
    waiting: Vec<Waiting>,
    responses: u64,
    unexpected: u64,
    failed: u64,
}

/// Requests that were waiting at the end of the window. All count as old as the oldest, as no other age is known; this
/// errs on the side of a failed goal.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Waiting {
    requests: u64,
    oldest_ns: f64,
}

impl<'a> Sample<'a> {
    fn of(
        measurement: &Measurement,
        open_loop: &OpenLoopRecord,
        latency: &'a LatencyHistogram,
    ) -> Self {
        let waiting = |requests, oldest_ms: Option<f64>| Waiting {
            requests,
            oldest_ns: oldest_ms.map_or(0.0, |ms| ms * 1e6),
        };
        Self {
            latency,
            waiting: vec![
                waiting(measurement.in_flight, measurement.oldest_in_flight_ms),
                waiting(open_loop.unsent, open_loop.oldest_unsent_ms),
            ],
            responses: measurement.responses,
            unexpected: measurement.unexpected,
            failed: measurement.failures.total(),
        }
    }

    fn of_load(load: &'a Summary) -> Self {
        let waiting = |requests, oldest: Option<Duration>| Waiting {
            requests,
            oldest_ns: oldest.map_or(0.0, |oldest| oldest.as_secs_f64() * 1e9),
        };
        Self {
            latency: &load.latency,
            waiting: vec![
                waiting(load.in_flight, load.oldest_in_flight),
                waiting(load.unsent, load.oldest_unsent),
            ],
            responses: load.responses,
            unexpected: load.unexpected,
            failed: load.failures.total(),
        }
    }

    fn waiting(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.requests).sum()
    }

    /// Returns how many requests took longer than `limit_ns`, or have already waited longer.
    fn beyond(&self, limit_ns: f64) -> u64 {
        // Whole nanoseconds are finer than the histogram.
        let within = self.latency.count_up_to(limit_ns as u64);
        let older = self.waiting.iter().filter(|waiting| waiting.oldest_ns > limit_ns);
        self.latency.count() - within + older.map(|waiting| waiting.requests).sum::<u64>()
    }

    fn mean_ns(&self) -> Option<f64> {
        let sum_ns = self.latency.mean_ns()? * as_f64(self.latency.count());
        let waited_ns: f64 = self.waiting.iter().map(|w| as_f64(w.requests) * w.oldest_ns).sum();
        Some((sum_ns + waited_ns) / as_f64(self.latency.count() + self.waiting()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn goals(text: &str) -> Goals {
        text.parse().unwrap()
    }

    #[test]
    fn load_misses_goals_by_its_responses_and_by_requests_that_wait() {
        let mut latency = LatencyHistogram::new();
        (0..100).for_each(|_| latency.record(2_000_000));
        let load = Summary { sent: 101, responses: 100, latency, ..Summary::default() };
        assert_eq!(goals("p50<3ms,errors<1%").missed(&load), [""; 0]);
        assert_eq!(goals("p50<1ms").missed(&load), ["100 % took longer than 1ms"]);
        let unexpected = Summary { unexpected: 2, ..load };
        assert_eq!(goals("p50<3ms").missed(&unexpected), ["2.0 % got no expected response"]);
        let oldest_in_flight = Some(Duration::from_secs(1));
        let waiting = Summary { unexpected: 0, in_flight: 1, oldest_in_flight, ..unexpected };
        assert_eq!(goals("max<3ms").missed(&waiting), ["1 request took longer than 3ms"]);
    }

    #[test]
    fn parses_and_formats_goals() {
        for (text, formatted) in [
            ("p99<5ms,errors<0.1%", "p99<5ms,errors<0.1%"),
            (
                " p50 < 200 us , max<=1.5s,unexpected < 2 %",
                "p50<200us,max<=1.5s,unexpected<2%,errors<1%",
            ),
            ("mean<1", "mean<1ms,errors<1%"),
            ("p99.9<700µs", "p99.9<700µs,errors<1%"),
            ("errors <= 1 %", "errors<=1%"),
        ] {
            assert_eq!(goals(text).to_string(), formatted);
            assert_eq!(goals(formatted), goals(text));
        }
    }

    #[test]
    fn invalid_goals_are_errors() {
        for (text, message) in [
            ("", "``, column 1: expected a metric (p50, "),
            ("p99<5ms,", "``, column 1: expected a metric (p50, "),
            ("p999<5ms", "`p999<5ms`, column 1: unknown metric `p999`; did you mean `p99`?"),
            ("p99", "`p99`, column 4: expected `<`, `<=`, `>` or `>=`, found the end"),
            ("p99(nginx)<5ms", "`p99(nginx)<5ms`, column 4: expected `<`"),
            ("p99<5%", "`p99<5%`, column 6: `%` is not a unit of p99"),
            ("p99>5ms", "`p99>5ms`: a goal is an upper limit: use `<` or `<=`"),
            ("max<0ms", "`max<0ms`: a latency must be from 1us to 3600s"),
            ("max<3601s", "`max<3601s`: a latency must be from 1us to 3600s"),
            ("errors<1", "`errors<1`, column 9: `errors` is a percentage: write `1%`"),
            ("errors<0%", "`errors<0%`: a percentage must be from 0.0001% to 100%"),
            ("errors<101%", "`errors<101%`: a percentage must be from 0.0001% to 100%"),
            ("p99<5ms,p99<6ms", "more than one goal for `p99`; remove all but one"),
        ] {
            let error = text.parse::<Goals>().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_trial_needs_ten_requests_beyond_each_quantile() {
        assert_eq!(goals("p99<5ms").requests_min(), 1_000);
        assert_eq!(goals("p99.9<5ms,p50<1ms").requests_min(), 10_000);
        assert_eq!(goals("mean<5ms,errors<0.1%").requests_min(), 1_000);
    }

    /// `fast` requests of 1 ms and `slow` of 10 ms.
    fn latencies(fast: u64, slow: u64) -> LatencyHistogram {
        let mut latency = LatencyHistogram::new();
        latency.record_n(1_000_000, fast);
        latency.record_n(10_000_000, slow);
        latency
    }

    fn sample(latency: &LatencyHistogram) -> Sample<'_> {
        Sample { latency, waiting: vec![], responses: latency.count(), unexpected: 0, failed: 0 }
    }

    fn violations(text: &str, sample: &Sample<'_>) -> Vec<String> {
        goals(text).violations(sample)
    }

    #[test]
    fn quantiles_allow_their_share_of_slow_requests() {
        for (goal, fast, slow, violation) in [
            ("p99<5ms", 9_900, 100, None),
            ("p99<5ms", 9_890, 110, Some("1.1 % took longer than 5ms")),
            ("p99.9<5ms", 9_990, 10, None),
            ("p99.9<5ms", 9_989, 11, Some("0.1 % took longer than 5ms")),
        ] {
            let found = violations(goal, &sample(&latencies(fast, slow)));
            assert_eq!(found.first().map(String::as_str), violation, "{goal} {slow}");
        }
    }

    #[test]
    fn mean_and_max_use_all_latencies() {
        // 9 of 1 ms and 1 of 10 ms: 1.9 ms.
        let latency = latencies(9, 1);
        assert_eq!(violations("mean<2ms", &sample(&latency)), [""; 0]);
        assert_eq!(violations("mean<1.8ms", &sample(&latency)), ["the mean was 1.90 ms"]);
        let mean_ms = latencies(1, 0).mean_ns().unwrap() / 1e6;
        let at = |relation: &str| format!("mean{relation}{mean_ms}ms");
        assert_eq!(violations(&at("<="), &sample(&latencies(1, 0))), [""; 0]);
        assert_eq!(violations(&at("<"), &sample(&latencies(1, 0))), ["the mean was 1.00 ms"]);
        assert_eq!(violations("max<11ms", &sample(&latency)), [""; 0]);
        assert_eq!(violations("max<5ms", &sample(&latency)), ["1 request took longer than 5ms"]);
    }

    #[test]
    fn waiting_requests_count_as_old_as_the_oldest() {
        let latency = latencies(989, 0);
        let with = |requests, oldest_ms: f64| Sample {
            waiting: vec![Waiting { requests, oldest_ns: oldest_ms * 1e6 }],
            ..sample(&latency)
        };
        assert_eq!(violations("p99<5ms", &with(11, 4.9)), [""; 0]);
        assert_eq!(violations("p99<5ms", &with(11, 5.1)), ["1.1 % took longer than 5ms"]);
        // 989 of 1 ms and 11 of 91 ms: 1.99 ms.
        assert_eq!(violations("mean<1.9ms", &with(11, 91.0)), ["the mean was 1.99 ms"]);
        assert_eq!(violations("max<5ms", &with(2, 6.0)), ["2 requests took longer than 5ms"]);
    }

    #[test]
    fn errors_are_failures_and_unexpected_responses() {
        let latency = latencies(1_000, 0);
        let with = |unexpected, failed| Sample { unexpected, failed, ..sample(&latency) };
        // 1 of 1,000 is 0.1 %, which is not below it.
        assert_eq!(violations("errors<0.1%", &with(1, 0)), ["0.1 % got no expected response"]);
        assert_eq!(violations("errors<=0.1%", &with(1, 0)), [""; 0]);
        assert_eq!(violations("errors<=0.1%", &with(2, 0)), ["0.2 % got no expected response"]);
        assert_eq!(violations("errors<0.2%", &with(1, 2)), ["0.3 % got no expected response"]);
        assert_eq!(violations("unexpected<0.2%,errors<50%", &with(1, 500)), [""; 0]);
        assert_eq!(
            violations("unexpected<0.2%", &with(2, 0)),
            ["0.2 % of the responses were unexpected"]
        );
        assert_eq!(violations("p99<5ms", &with(1_000, 0)), ["100 % got no expected response"]);
    }

    #[test]
    fn no_responses_violate_every_goal() {
        let empty = LatencyHistogram::new();
        for goal in ["p99<5ms", "mean<5ms", "max<5ms", "errors<1%", "unexpected<=100%"] {
            assert!(!violations(goal, &sample(&empty)).is_empty(), "{goal}");
        }
    }

    proptest! {
        #[test]
        fn a_goal_that_is_met_is_met_with_a_higher_limit(fast in 0u64..5_000, slow in 0u64..200, waiting in 0u64..50, low in 1u32..50, more in 0u32..50) {
            let latency = latencies(fast, slow);
            let waiting = vec![Waiting { requests: waiting, oldest_ns: 20e6 }];
            let sample = Sample { waiting, ..sample(&latency) };
            for metric in ["p50", "p90", "p99", "p99.9", "mean", "max"] {
                let at = |limit: u32| violations(&format!("{metric}<{limit}ms,errors<100%"), &sample);
                prop_assert!(!at(low).is_empty() || at(low + more).is_empty());
            }
        }
    }
}

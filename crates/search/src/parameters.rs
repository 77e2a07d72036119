//! The goals of a search, its precision and its limits.

use crate::bracket::BracketOptions;
use crate::goal::Goals;
use std::time::Duration;
use tollgate_records::error::bad_input;
use tollgate_records::run_dir::{SEARCH_SCHEMA, SearchRecord};
use tollgate_records::trial::as_f64;
use tollgate_traffic::load_shape::{
    CaseArrivals, CaseRate, LoadShape, MAX_RATE, OpenLoop, Spacing, Window,
};
use tollgate_traffic::units::Percent;

#[derive(Debug, Clone, PartialEq)]
pub struct SearchParameters {
    pub goals: Goals,
    /// Rate of the first trial, in requests per second.
    pub start: f64,
    /// Requested width of each interval, as a share of its lower end.
    pub width: f64,
    /// Number of times that each end is repeated.
    pub confirmations: u32,
    /// Time after which no trial is started.
    pub budget: Duration,
}

/// Limit for windows that are extended to hold enough requests.
const WINDOW_MAX: Duration = Duration::from_secs(60);
const WIDTH_MIN: f64 = 0.01;
const CONFIRMATIONS_MAX: u32 = 20;
const BUDGET_MAX: Duration = Duration::from_secs(24 * 3600);

impl SearchParameters {
    pub fn check(&self) -> anyhow::Result<()> {
        let bounds = |option: &str, value: String, low: &str, high: &str, holds| {
            if holds {
                Ok(())
            } else {
                Err(bad_input(format!("{option} must be from {low} to {high}, not {value}")))
            }
        };
        let Self { start, width, confirmations, budget, .. } = self;
        let holds = *start >= 1.0 && *start <= MAX_RATE;
        bounds("--start", start.to_string(), "1", "10000000 requests/s", holds)?;
        let holds = (WIDTH_MIN..=1.0).contains(width);
        bounds("--width", Percent(*width).to_string(), "1%", "100%", holds)?;
        let holds = (1..=CONFIRMATIONS_MAX).contains(confirmations);
        bounds("--confirm", confirmations.to_string(), "1", "20", holds)?;
        let holds = (Duration::from_secs(1)..=BUDGET_MAX).contains(budget);
        bounds("--budget", humantime::format_duration(*budget).to_string(), "1s", "1day", holds)
    }

    pub fn bracket(&self) -> BracketOptions {
        BracketOptions {
            start: self.start,
            // Below this rate, the longest window holds too few requests for a quantile.
            min: (as_f64(self.goals.requests_min()) / WINDOW_MAX.as_secs_f64()).ceil(),
            max: MAX_RATE,
            width: self.width,
            confirmations: self.confirmations,
        }
    }

    /// Returns the load of a case as an open loop at `rate`, long enough for the goals. The default spacing is Poisson,
    /// as of many independent clients.
    pub fn load_at(&self, rate: f64, load: &LoadShape) -> LoadShape {
        let time_for = |requests: u64| {
            Duration::from_secs_f64((as_f64(requests) / rate).min(WINDOW_MAX.as_secs_f64()))
        };
        let window = match load.window {
            Window::For(time) => time,
            Window::Requests { requests, .. } => time_for(requests.into()),
        };
        let schedule = OpenLoop {
            rate: CaseRate::PerS(rate),
            spacing: load.open_loop().map_or(Spacing::Poisson, |open_loop| open_loop.spacing),
            connections: load.connections(),
            connections_max: load.connections_max(),
        };
        LoadShape {
            arrivals: CaseArrivals::Open(schedule),
            window: Window::For(window.max(time_for(self.goals.requests_min()))),
            ..load.clone()
        }
    }

    /// Returns the content of `search.json` during the search.
    pub fn to_record(&self, subjects: Vec<String>) -> SearchRecord {
        SearchRecord {
            schema: SEARCH_SCHEMA,
            goals: self.goals.to_string(),
            start_rate_per_s: self.start,
            width: self.width,
            confirmations: self.confirmations,
            budget_s: self.budget.as_secs_f64(),
            subjects,
            ended_by: None,
        }
    }

    pub fn from_record(record: &SearchRecord) -> anyhow::Result<Self> {
        let parameters = Self {
            goals: record.goals.parse()?,
            start: record.start_rate_per_s,
            width: record.width,
            confirmations: record.confirmations,
            budget: Duration::try_from_secs_f64(record.budget_s).unwrap_or(Duration::MAX),
        };
        parameters.check().map(|()| parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_experiment::adjust::Adjustments;
    use tollgate_experiment::catalog::Catalog;
    use tollgate_experiment::experiment::Experiment;

    fn parameters(goals: &str) -> SearchParameters {
        SearchParameters {
            goals: goals.parse().unwrap(),
            start: 1_000.0,
            width: 0.05,
            confirmations: 3,
            budget: Duration::from_secs(600),
        }
    }

    fn load(experiment: &str) -> LoadShape {
        let catalog = Catalog::new(vec![]);
        let experiment = Experiment::load(&catalog, experiment, &Adjustments::default()).unwrap();
        experiment.cases[0].load.clone()
    }

    /// A closed loop of 600 ms.
    fn short() -> LoadShape {
        LoadShape { window: Window::For(Duration::from_millis(600)), ..load("first-look") }
    }

    #[test]
    fn closed_loop_becomes_an_open_loop_with_poisson_spacing() {
        let open = parameters("p99<5ms").load_at(2_000.0, &short());
        let schedule = open.open_loop().unwrap();
        assert_eq!(
            (&schedule.rate, schedule.spacing),
            (&CaseRate::PerS(2_000.0), Spacing::Poisson)
        );
        assert_eq!((open.window, schedule.connections), (short().window, 50));
        let mut constant = load("latency-at-rate");
        if let CaseArrivals::Open(schedule) = &mut constant.arrivals {
            schedule.spacing = Spacing::Constant;
        }
        let kept = parameters("p99<5ms").load_at(2_000.0, &constant);
        let schedule = kept.open_loop().unwrap();
        assert_eq!((schedule.spacing, schedule.connections_max), (Spacing::Constant, 200));
    }

    #[test]
    fn window_is_long_enough_for_the_goals_up_to_a_minute() {
        let window = |goals, rate| parameters(goals).load_at(rate, &short()).window.longest();
        // p99 needs 1,000 requests, p99.9 needs 10,000.
        assert_eq!(window("p99<5ms", 10_000.0), Duration::from_millis(600));
        assert_eq!(window("p99<5ms", 100.0), Duration::from_secs(10));
        assert_eq!(window("p99.9<5ms", 1_000.0), Duration::from_secs(10));
        assert_eq!(window("p99.9<5ms", 1.0), Duration::from_secs(60));
    }

    #[test]
    fn lowest_rate_gives_enough_requests_in_a_minute() {
        // 1,000 and 10,000 in 60 s are 16.7/s and 166.7/s.
        let lowest = |goals| parameters(goals).bracket().min;
        assert_eq!(lowest("p99<5ms").to_string(), "17");
        assert_eq!(lowest("p99.9<5ms").to_string(), "167");
        assert_eq!(lowest("mean<5ms,errors<50%").to_string(), "1");
    }

    #[test]
    fn converts_to_a_record_and_back() {
        let parameters = parameters("p99<5ms");
        let record = parameters.to_record(vec!["nginx".to_owned()]);
        assert_eq!(record.goals, "p99<5ms,errors<1%");
        assert_eq!(SearchParameters::from_record(&record).unwrap(), parameters);
        let odd = SearchRecord { goals: "p98<5ms".to_owned(), ..record };
        assert!(
            SearchParameters::from_record(&odd)
                .unwrap_err()
                .to_string()
                .contains("unknown metric `p98`")
        );
    }

    #[test]
    fn values_out_of_bounds_are_errors() {
        let error = |change: &dyn Fn(&mut SearchParameters)| {
            let mut parameters = parameters("p99<5ms");
            change(&mut parameters);
            parameters.check().unwrap_err().to_string()
        };
        assert_eq!(
            error(&|p| p.start = 0.5),
            "--start must be from 1 to 10000000 requests/s, not 0.5"
        );
        assert_eq!(error(&|p| p.width = 0.005), "--width must be from 1% to 100%, not 0.5%");
        assert_eq!(error(&|p| p.confirmations = 0), "--confirm must be from 1 to 20, not 0");
        assert_eq!(
            error(&|p| p.budget = Duration::from_millis(10)),
            "--budget must be from 1s to 1day, not 10ms"
        );
        assert!(error(&|p| p.start = f64::NAN).ends_with("not NaN"));
    }
}

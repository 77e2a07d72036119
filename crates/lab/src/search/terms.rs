//! What a search is to find, how closely, and in what time: kept beside its records.

use super::bracket::Aim;
use super::slo::{Slo, SloError};
use crate::inputs::experiment::{LoadFile, SpacingFile, Window};
use crate::inputs::percent::Percent;
use crate::record::as_f64;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;
use tollgate_load::MAX_RATE;

/// The version of the shape of `search.json`; a reader refuses what it does not know.
pub const SCHEMA: u32 = 1;

/// What a search is to find, how closely, and in what time.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// What has to be kept.
    pub slo: Slo,
    /// The rate to begin with, in requests a second.
    pub from: f64,
    /// How narrow each interval is to be, as a share of its lower end.
    pub width: f64,
    /// How often each end is tried again.
    pub confirmations: u32,
    /// The time after which no trial is begun.
    pub budget: Duration,
}

/// The same as it stands in `search.json`, and how the search ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TermsRecord {
    /// The version of this shape.
    pub schema: u32,
    /// What has to be kept.
    pub slo: String,
    /// The rate that the search began with, in requests a second.
    pub from_per_s: f64,
    /// How narrow each interval was to be, as a share of its lower end.
    pub width: f64,
    /// How often each end was to be tried again.
    pub confirmations: u32,
    /// The time after which no trial was begun, in seconds.
    pub budget_s: f64,
    /// The subjects that were searched; a baseline may be there without.
    pub subjects: Vec<String>,
    /// What ended it; none while it runs, or when it was killed.
    pub ended_by: Option<EndedBy>,
}

/// What ended a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// Every subject's search was over.
    Found,
    /// The time was spent.
    Budget,
    /// It was asked to stop.
    Interrupted,
}

/// Terms that cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TermsError {
    /// The goals cannot be.
    #[error(transparent)]
    Slo(#[from] SloError),
    /// A number is outside its bounds.
    #[error("{what} {value}: it has to be from {low} to {high}")]
    Bounds {
        /// Which, as the command line calls it.
        what: &'static str,
        /// What it is.
        value: String,
        /// The least that it may be.
        low: &'static str,
        /// The most that it may be.
        high: &'static str,
    },
}

/// The longest window of a trial that is stretched to hold enough requests.
const WINDOW_MAX: Duration = Duration::from_secs(60);

/// The narrowest interval.
const WIDTH_MIN: f64 = 0.01;

/// The most often that an end may be tried again.
const CONFIRMATIONS_MAX: u32 = 20;

/// The longest that a search may take.
const BUDGET_MAX: Duration = Duration::from_secs(24 * 3600);

impl Terms {
    /// Checks what its types do not.
    ///
    /// # Errors
    ///
    /// A number is outside its bounds.
    pub fn check(&self) -> Result<(), TermsError> {
        let bounds = |what, value: String, low, high, holds| match holds {
            true => Ok(()),
            false => Err(TermsError::Bounds { what, value, low, high }),
        };
        let Self { from, width, confirmations, budget, .. } = self;
        let holds = *from >= 1.0 && *from <= MAX_RATE;
        bounds("--from", from.to_string(), "1", "10000000 requests a second", holds)?;
        let holds = (WIDTH_MIN..=1.0).contains(width);
        bounds("--width", Percent(*width).to_string(), "1%", "100%", holds)?;
        let holds = (1..=CONFIRMATIONS_MAX).contains(confirmations);
        bounds("--confirm", confirmations.to_string(), "1", "20", holds)?;
        let holds = (Duration::from_secs(1)..=BUDGET_MAX).contains(budget);
        bounds("--budget", humantime::format_duration(*budget).to_string(), "1s", "1day", holds)
    }

    /// How one subject is searched.
    pub fn aim(&self) -> Aim {
        Aim {
            from: self.from,
            // Below it, the longest window would hold too few requests to tell a quantile.
            min: (as_f64(self.slo.requests_min()) / WINDOW_MAX.as_secs_f64()).ceil(),
            max: MAX_RATE,
            width: self.width,
            confirmations: self.confirmations,
        }
    }

    /// A case's load at a rate: open, and long enough for the goals to be told. Where the case does
    /// not say how requests are spaced, they come as from many independent clients.
    pub fn load_at(&self, rate: f64, load: &LoadFile) -> LoadFile {
        let lasting = |requests: u64| {
            let time_s = as_f64(requests) / rate;
            Duration::from_secs_f64(time_s.min(WINDOW_MAX.as_secs_f64()))
        };
        let of_case = match load.window() {
            Window::For(time) => time,
            // At a rate, what a number of requests takes is known.
            Window::Requests { requests, .. } => lasting(requests.into()),
        };
        LoadFile {
            rate: Some(rate),
            spacing: Some(load.spacing().unwrap_or(SpacingFile::Poisson)),
            ..load.lasting(of_case.max(lasting(self.slo.requests_min())))
        }
    }

    /// What `search.json` holds while the search runs.
    pub fn record(&self, subjects: Vec<String>) -> TermsRecord {
        TermsRecord {
            schema: SCHEMA,
            slo: self.slo.to_string(),
            from_per_s: self.from,
            width: self.width,
            confirmations: self.confirmations,
            budget_s: self.budget.as_secs_f64(),
            subjects,
            ended_by: None,
        }
    }
}

impl TermsRecord {
    /// The terms that were recorded.
    ///
    /// # Errors
    ///
    /// They cannot be those of a search.
    pub fn terms(&self) -> Result<Terms, TermsError> {
        let budget = Duration::try_from_secs_f64(self.budget_s).unwrap_or(Duration::MAX);
        let terms = Terms {
            slo: self.slo.parse()?,
            from: self.from_per_s,
            width: self.width,
            confirmations: self.confirmations,
            budget,
        };
        terms.check().map(|()| terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::catalog::Catalog;
    use crate::inputs::experiment::{Adjustments, Experiment};

    fn terms(slo: &str) -> Terms {
        Terms {
            slo: slo.parse().unwrap(),
            from: 1_000.0,
            width: 0.05,
            confirmations: 3,
            budget: Duration::from_secs(600),
        }
    }

    fn load(experiment: &str) -> LoadFile {
        let catalog = Catalog::new(vec![]);
        Experiment::load(&catalog, experiment, &Adjustments::default()).unwrap().cases[0].load
    }

    #[test]
    fn a_closed_loop_becomes_an_open_one_with_independent_clients() {
        let closed = load("first-look");
        let open = terms("p99<5ms").load_at(2_000.0, &closed);
        assert_eq!((open.rate, open.spacing()), (Some(2_000.0), Some(SpacingFile::Poisson)));
        assert_eq!((open.duration, open.connections), (closed.duration, 50));
        let constant = LoadFile { spacing: None, ..load("latency-at-rate") };
        let kept = terms("p99<5ms").load_at(2_000.0, &constant);
        assert_eq!(kept.spacing(), Some(SpacingFile::Constant));
        assert_eq!(kept.connections_most(), 200);
    }

    #[test]
    fn a_window_is_long_enough_for_the_goals_up_to_a_minute() {
        let of = |slo, rate| terms(slo).load_at(rate, &load("first-look")).window().longest();
        // 2.4 s at 1,000 a second are enough for p99, which needs 1,000; p99.9 needs 10,000.
        assert_eq!(of("p99<5ms", 1_000.0), Duration::from_millis(2_400));
        assert_eq!(of("p99<5ms", 100.0), Duration::from_secs(10));
        assert_eq!(of("p99.9<5ms", 1_000.0), Duration::from_secs(10));
        assert_eq!(of("p99.9<5ms", 1.0), Duration::from_secs(60));
    }

    #[test]
    fn the_lowest_rate_holds_enough_requests_in_a_minute() {
        // 1,000 and 10,000 in 60 s are 16.7 and 166.7 a second.
        let lowest = |slo| terms(slo).aim().min;
        assert_eq!(lowest("p99<5ms").to_string(), "17");
        assert_eq!(lowest("p99.9<5ms").to_string(), "167");
        assert_eq!(lowest("mean<5ms,errors<50%").to_string(), "1");
    }

    #[test]
    fn terms_are_recorded_and_read_back() {
        let terms = terms("p99<5ms");
        let record = terms.record(vec!["nginx".to_owned()]);
        assert_eq!(record.slo, "p99<5ms,errors<1%");
        assert_eq!(record.terms().unwrap(), terms);
        let odd = TermsRecord { slo: "p98<5ms".to_owned(), ..record };
        assert!(odd.terms().unwrap_err().to_string().contains("no figure `p98`"));
    }

    #[test]
    fn numbers_outside_their_bounds_are_told_with_them() {
        let error = |change: &dyn Fn(&mut Terms)| {
            let mut terms = terms("p99<5ms");
            change(&mut terms);
            terms.check().unwrap_err().to_string()
        };
        assert_eq!(
            error(&|terms| terms.from = 0.5),
            "--from 0.5: it has to be from 1 to 10000000 requests a second"
        );
        assert_eq!(
            error(&|terms| terms.width = 0.005),
            "--width 0.5%: it has to be from 1% to 100%"
        );
        assert_eq!(
            error(&|terms| terms.confirmations = 0),
            "--confirm 0: it has to be from 1 to 20"
        );
        assert_eq!(
            error(&|terms| terms.budget = Duration::from_millis(10)),
            "--budget 10ms: it has to be from 1s to 1day"
        );
        assert!(error(&|terms| terms.from = f64::NAN).starts_with("--from NaN"));
    }
}

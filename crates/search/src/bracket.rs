//! The search for one subject: bracket, bisect, confirm. Rates out, verdicts in.
//!
//! The rate is doubled from the start until a trial fails, or halved until one passes; then the interval is bisected on
//! a logarithmic scale down to the requested width. A verdict near the limit is partly chance, and bisection trusts
//! the first one, so finally both ends are repeated. An end that gets a contradicting verdict is replaced by one
//! further out, in steps that double: contradictions widen the interval and never narrow it.

use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BracketOptions {
    /// Rate of the first trial, in requests per second.
    pub start: f64,
    pub min: f64,
    pub max: f64,
    /// Width at which bisection ends: upper end over lower end, minus 1.
    pub width: f64,
    /// Number of times that each end is repeated.
    pub confirmations: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateVerdict {
    Pass,
    Fail {
        /// False if the generator or the origin was the bottleneck, so that the system alone might have passed.
        by_system: bool,
    },
    /// The machine disturbed the trial.
    Invalid,
    /// The subject did not start or was refused.
    NotMeasured,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Bracket {
    options: BracketOptions,
    trials: Vec<(f64, RateVerdict)>,
    passed: Option<f64>,
    failed: Option<f64>,
    /// The interval was narrow enough once; from then on, only its ends are trials.
    confirms: bool,
    steps_down: u32,
    steps_up: u32,
    invalid_in_a_row: u32,
    not_measured_in_a_row: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Open,
    /// Both ends are confirmed.
    Settled,
    /// Trials fail even at the lowest rate.
    NeverPassed,
    /// Trials pass even at the highest rate.
    AlwaysPassed,
    /// Too many trials in a row were invalid or not measured.
    NotMeasurable,
    /// The maximum number of trials was reached before both ends were confirmed.
    TrialLimit,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct End {
    pub rate_per_s: f64,
    /// Number of trials at this rate, all with the same verdict.
    pub trials: u32,
    /// For the upper end: the system failed the goals in most of the trials.
    #[serde(skip)]
    pub by_system: bool,
}

pub(crate) const INVALID_IN_A_ROW_MAX: u32 = 10;

/// As in a run.
pub(crate) const NOT_MEASURED_IN_A_ROW_MAX: u32 = 2;

/// Limit for one subject. Bracketing ten million takes 24 trials, bisecting to 1 % another 7.
pub const TRIALS_MAX: usize = 100;

impl RateVerdict {
    fn is_decisive(self) -> bool {
        matches!(self, Self::Pass | Self::Fail { .. })
    }
}

impl Bracket {
    pub fn new(options: BracketOptions) -> Self {
        let start = rounded(options.start.clamp(options.min, options.max));
        let options = BracketOptions { start, ..options };
        Self {
            options,
            trials: Vec::new(),
            passed: None,
            failed: None,
            confirms: false,
            steps_down: 0,
            steps_up: 0,
            invalid_in_a_row: 0,
            not_measured_in_a_row: 0,
        }
    }

    /// Returns the rates to choose the next trial from, each as often as it is still needed; empty if the search is
    /// finished.
    pub fn candidates(&self) -> Vec<f64> {
        let BracketOptions { start, min, max, .. } = self.options;
        if self.progress() != Progress::Open {
            return Vec::new();
        }
        match (self.passed, self.failed) {
            (None, None) => vec![start],
            (Some(passed), None) if !self.confirms => vec![rounded(passed * 2.0).min(max)],
            (None, Some(failed)) if !self.confirms => vec![rounded(failed / 2.0).max(min)],
            (Some(passed), Some(failed)) if !self.confirms => vec![between(passed, failed)],
            (passed, failed) => {
                let ends = [passed, failed].into_iter().flatten();
                ends.flat_map(|rate| vec![rate; self.lacking(rate)]).collect()
            }
        }
    }

    /// Records the verdict of a trial at one of the candidates.
    pub fn record(&mut self, rate: f64, verdict: RateVerdict) {
        self.trials.push((rate, verdict));
        self.invalid_in_a_row =
            if verdict == RateVerdict::Invalid { self.invalid_in_a_row + 1 } else { 0 };
        self.not_measured_in_a_row =
            if verdict == RateVerdict::NotMeasured { self.not_measured_in_a_row + 1 } else { 0 };
        match verdict {
            RateVerdict::Invalid | RateVerdict::NotMeasured => {}
            RateVerdict::Pass if self.failed == Some(rate) => self.step_up(rate),
            RateVerdict::Fail { .. } if self.passed == Some(rate) => self.step_down(rate),
            RateVerdict::Pass => self.passed = Some(rate),
            RateVerdict::Fail { .. } => self.failed = Some(rate),
        }
        if let (Some(passed), Some(failed)) = (self.passed, self.failed) {
            self.confirms |= self.is_narrow(passed, failed);
        }
        // At the bounds of the range there is nothing to bisect.
        self.confirms |=
            self.passed == Some(self.options.max) || self.failed == Some(self.options.min);
    }

    pub fn progress(&self) -> Progress {
        let is_hopeless = self.not_measured_in_a_row >= NOT_MEASURED_IN_A_ROW_MAX
            || self.invalid_in_a_row >= INVALID_IN_A_ROW_MAX;
        if is_hopeless {
            return Progress::NotMeasurable;
        }
        let is_confirmed = |end: Option<f64>| end.is_none_or(|rate| self.lacking(rate) == 0);
        if !self.confirms || !is_confirmed(self.passed) || !is_confirmed(self.failed) {
            return if self.trials.len() >= TRIALS_MAX {
                Progress::TrialLimit
            } else {
                Progress::Open
            };
        }
        match (self.passed, self.failed) {
            (None, _) => Progress::NeverPassed,
            (Some(_), None) => Progress::AlwaysPassed,
            (Some(_), Some(_)) => Progress::Settled,
        }
    }

    /// Returns the highest rate that always passed and lies below every rate that ever failed.
    pub fn passed(&self) -> Option<End> {
        self.passed.map(|rate| self.end(rate)).filter(|end| end.trials > 0)
    }

    /// Returns the lowest rate that always failed and lies above every rate that ever passed.
    pub fn failed(&self) -> Option<End> {
        self.failed.map(|rate| self.end(rate)).filter(|end| end.trials > 0)
    }

    /// Returns how often an end got a verdict that contradicted the previous ones.
    pub fn contradictions(&self) -> u32 {
        self.steps_down + self.steps_up
    }

    fn is_narrow(&self, passed: f64, failed: f64) -> bool {
        let middle = between(passed, failed);
        failed <= passed * (1.0 + self.options.width) || middle <= passed || middle >= failed
    }

    fn lacking(&self, rate: f64) -> usize {
        let needed = 1 + self.options.confirmations as usize;
        needed.saturating_sub(self.verdicts(rate).count())
    }

    fn verdicts(&self, rate: f64) -> impl Iterator<Item = RateVerdict> {
        let at_rate = self.trials.iter().filter(move |(trials, _)| *trials == rate);
        at_rate.map(|(_, verdict)| *verdict).filter(|verdict| verdict.is_decisive())
    }

    fn end(&self, rate_per_s: f64) -> End {
        let unclear = RateVerdict::Fail { by_system: false };
        let (mut trials, mut unclear_trials) = (0, 0);
        for verdict in self.verdicts(rate_per_s) {
            trials += 1;
            unclear_trials += u32::from(verdict == unclear);
        }
        End { rate_per_s, trials, by_system: 2 * unclear_trials < trials }
    }

    /// Moves the lower end down: to the nearest rate that always passed, but at most by one step; to `None` from the
    /// lowest rate of the range.
    fn step_down(&mut self, from: f64) {
        let BracketOptions { min, .. } = self.options;
        if from <= min {
            self.passed = None;
            return;
        }
        self.steps_down += 1;
        let step = rounded(from / self.stride(self.steps_down)).max(min);
        let known = self.always(RateVerdict::Pass).filter(|rate| *rate < from);
        self.passed = Some(known.fold(step, f64::max));
    }

    /// Moves the upper end up, like [`Self::step_down`].
    fn step_up(&mut self, from: f64) {
        let BracketOptions { max, .. } = self.options;
        if from >= max {
            self.failed = None;
            return;
        }
        self.steps_up += 1;
        let step = rounded(from * self.stride(self.steps_up)).min(max);
        let known = [true, false].map(|by_system| RateVerdict::Fail { by_system });
        let known = known.into_iter().flat_map(|verdict| self.always(verdict));
        self.failed = Some(known.filter(|rate| *rate > from).fold(step, f64::min));
    }

    /// Returns the factor of the `step`th move of an end: the requested width, doubled with each step.
    fn stride(&self, step: u32) -> f64 {
        1.0 + self.options.width * f64::from(2_u32.saturating_pow(step - 1))
    }

    fn always(&self, verdict: RateVerdict) -> impl Iterator<Item = f64> {
        let rates = self.trials.iter().map(|(rate, _)| *rate);
        rates.filter(move |rate| {
            let mut verdicts = self.verdicts(*rate).peekable();
            verdicts.peek().is_some() && verdicts.all(|found| found == verdict)
        })
    }
}

/// Returns the geometric mean.
fn between(low: f64, high: f64) -> f64 {
    rounded((low * high).sqrt())
}

/// Rounds to four digits: finer than any width, and readable.
fn rounded(rate: f64) -> f64 {
    let digits = rate.log10().floor() as i32 + 1;
    let scale = 10_f64.powi(DIGITS - digits);
    (rate * scale).round() / scale
}

const DIGITS: i32 = 4;

#[cfg(test)]
mod tests;

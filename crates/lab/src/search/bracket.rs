//! The search on one subject: bracket, bisect, confirm. Pure: rates out, answers in.
//!
//! From where it begins, the rate is doubled until the goals are broken, or halved until they are
//! kept; then the interval between is halved, on a logarithmic scale, until it is as narrow as was
//! asked for. An answer near the limit is partly chance, and bisection takes the first one for
//! granted; so at last both ends are tried again. An end that once answers otherwise is given up for
//! one further out, in steps that double: answers that contradict each other widen the interval, and
//! never narrow it.

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aim {
    /// The rate to begin with, in requests a second.
    pub from: f64,
    /// The lowest rate that is tried.
    pub min: f64,
    /// The highest rate that is tried.
    pub max: f64,
    /// How narrow the interval has to be: its upper end over its lower one, less one.
    pub width: f64,
    /// How often each end is tried again.
    pub confirmations: u32,
}

/// What a trial at some rate said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The goals were kept.
    Kept,
    /// They were broken.
    Broken {
        /// Whether by the system; otherwise generator or origin were spent, and the system might
        /// have kept them.
        by_system: bool,
    },
    /// Nothing: the machine disturbed the trial, so that it does not count.
    Lost,
    /// Nothing: the subject did not start, or was refused.
    Failed,
}

/// The search on one subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Bracket {
    aim: Aim,
    tried: Vec<(f64, Answer)>,
    kept: Option<f64>,
    broken: Option<f64>,
    /// Whether the interval was narrow enough, so that only its ends are tried again.
    confirms: bool,
    steps_down: u32,
    steps_up: u32,
    lost_in_a_row: u32,
    failed_in_a_row: u32,
}

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is more to try.
    Open,
    /// Both ends are confirmed.
    Settled,
    /// There is no rate, down to the lowest, at which the goals were always kept.
    NeverKept,
    /// There is none, up to the highest, at which they were always broken.
    AlwaysKept,
    /// Too many trials in a row said nothing.
    GivenUp,
    /// So many trials were run that no more are, and the ends are not confirmed.
    MostTrials,
}

/// One end of the interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// The rate, in requests a second.
    pub rate_per_s: f64,
    /// How many trials said so at this rate; none said otherwise.
    pub trials: u32,
    /// For the upper end: whether it was the system that broke the goals in most of them.
    pub by_system: bool,
}

/// How many trials in a row may be disturbed.
const LOST_MAX: u32 = 10;

/// How often in a row a subject may fail or be refused, as in a run.
const FAILED_MAX: u32 = 2;

/// How many trials a search may take; bracketing ten million takes 24, bisecting to 1 % another 7.
pub const TRIALS_MAX: usize = 100;

impl Answer {
    fn says_something(self) -> bool {
        matches!(self, Self::Kept | Self::Broken { .. })
    }
}

impl Bracket {
    /// A search that has not begun.
    pub fn new(aim: Aim) -> Self {
        let aim = Aim { from: rounded(aim.from.clamp(aim.min, aim.max)), ..aim };
        Self {
            aim,
            tried: Vec::new(),
            kept: None,
            broken: None,
            confirms: false,
            steps_down: 0,
            steps_up: 0,
            lost_in_a_row: 0,
            failed_in_a_row: 0,
        }
    }

    /// The rates of which one is to be tried next, any of them; each as often as it is still needed.
    /// None when the search is over.
    pub fn candidates(&self) -> Vec<f64> {
        let Aim { from, min, max, .. } = self.aim;
        if self.progress() != Progress::Open {
            return Vec::new();
        }
        match (self.kept, self.broken) {
            (None, None) => vec![from],
            (Some(kept), None) if !self.confirms => vec![rounded(kept * 2.0).min(max)],
            (None, Some(broken)) if !self.confirms => vec![rounded(broken / 2.0).max(min)],
            (Some(kept), Some(broken)) if !self.confirms => vec![between(kept, broken)],
            (kept, broken) => {
                let ends = [kept, broken].into_iter().flatten();
                ends.flat_map(|rate| vec![rate; self.lacking(rate)]).collect()
            }
        }
    }

    /// Takes in what a trial at one of the candidates said.
    pub fn note(&mut self, rate: f64, answer: Answer) {
        self.tried.push((rate, answer));
        self.lost_in_a_row = if answer == Answer::Lost { self.lost_in_a_row + 1 } else { 0 };
        self.failed_in_a_row = if answer == Answer::Failed { self.failed_in_a_row + 1 } else { 0 };
        match answer {
            Answer::Lost | Answer::Failed => {}
            Answer::Kept if self.broken == Some(rate) => self.step_up(rate),
            Answer::Broken { .. } if self.kept == Some(rate) => self.step_down(rate),
            Answer::Kept => self.kept = Some(rate),
            Answer::Broken { .. } => self.broken = Some(rate),
        }
        if let (Some(kept), Some(broken)) = (self.kept, self.broken) {
            self.confirms |= self.is_narrow(kept, broken);
        }
        // Beyond the bounds there is nothing to bisect.
        self.confirms |= self.kept == Some(self.aim.max) || self.broken == Some(self.aim.min);
    }

    /// How far the search has come.
    pub fn progress(&self) -> Progress {
        let is_hopeless = self.failed_in_a_row >= FAILED_MAX || self.lost_in_a_row >= LOST_MAX;
        if is_hopeless {
            return Progress::GivenUp;
        }
        let is_confirmed = |end: Option<f64>| end.is_none_or(|rate| self.lacking(rate) == 0);
        if !self.confirms || !is_confirmed(self.kept) || !is_confirmed(self.broken) {
            return match self.tried.len() >= TRIALS_MAX {
                true => Progress::MostTrials,
                false => Progress::Open,
            };
        }
        match (self.kept, self.broken) {
            (None, _) => Progress::NeverKept,
            (Some(_), None) => Progress::AlwaysKept,
            (Some(_), Some(_)) => Progress::Settled,
        }
    }

    /// The highest rate at which the goals were always kept, below every one at which they were ever
    /// broken.
    pub fn kept(&self) -> Option<End> {
        self.kept.map(|rate| self.end(rate)).filter(|end| end.trials > 0)
    }

    /// The lowest rate at which they were always broken, above every one at which they were ever kept.
    pub fn broken(&self) -> Option<End> {
        self.broken.map(|rate| self.end(rate)).filter(|end| end.trials > 0)
    }

    /// How often an end answered otherwise than before.
    pub fn contradictions(&self) -> u32 {
        self.steps_down + self.steps_up
    }

    fn is_narrow(&self, kept: f64, broken: f64) -> bool {
        let middle = between(kept, broken);
        broken <= kept * (1.0 + self.aim.width) || middle <= kept || middle >= broken
    }

    /// How many trials an end still needs.
    fn lacking(&self, rate: f64) -> usize {
        let needed = 1 + self.aim.confirmations as usize;
        needed.saturating_sub(self.answers(rate).count())
    }

    fn answers(&self, rate: f64) -> impl Iterator<Item = Answer> {
        let at_rate = self.tried.iter().filter(move |(tried, _)| *tried == rate);
        at_rate.map(|(_, answer)| *answer).filter(|answer| answer.says_something())
    }

    fn end(&self, rate_per_s: f64) -> End {
        let unclear = Answer::Broken { by_system: false };
        let (mut trials, mut unclear_trials) = (0, 0);
        for answer in self.answers(rate_per_s) {
            trials += 1;
            unclear_trials += u32::from(answer == unclear);
        }
        End { rate_per_s, trials, by_system: 2 * unclear_trials < trials }
    }

    /// Gives up the lower end for one further down: the nearest rate that was always kept, but no
    /// further than the step; none below the lowest rate that may be tried.
    fn step_down(&mut self, from: f64) {
        let Aim { min, .. } = self.aim;
        if from <= min {
            // Even the lowest rate keeps the goals only now and then.
            self.kept = None;
            return;
        }
        self.steps_down += 1;
        let step = rounded(from / self.stride(self.steps_down)).max(min);
        let known = self.always(Answer::Kept).filter(|rate| *rate < from);
        self.kept = Some(known.fold(step, f64::max));
    }

    /// The same for the upper end, upwards.
    fn step_up(&mut self, from: f64) {
        let Aim { max, .. } = self.aim;
        if from >= max {
            self.broken = None;
            return;
        }
        self.steps_up += 1;
        let step = rounded(from * self.stride(self.steps_up)).min(max);
        let known = [true, false].map(|by_system| Answer::Broken { by_system });
        let known = known.into_iter().flat_map(|answer| self.always(answer));
        self.broken = Some(known.filter(|rate| *rate > from).fold(step, f64::min));
    }

    /// By how much an end moves that answered otherwise for the `step`th time: the width that was
    /// asked for, and then twice as much each time.
    fn stride(&self, step: u32) -> f64 {
        1.0 + self.aim.width * f64::from(2_u32.saturating_pow(step - 1))
    }

    /// The rates at which every trial said the same.
    fn always(&self, wanted: Answer) -> impl Iterator<Item = f64> {
        let rates = self.tried.iter().map(|(rate, _)| *rate);
        rates.filter(move |rate| {
            let mut answers = self.answers(*rate).peekable();
            answers.peek().is_some() && answers.all(|answer| answer == wanted)
        })
    }
}

/// The geometric mean.
fn between(low: f64, high: f64) -> f64 {
    rounded((low * high).sqrt())
}

/// Four digits are finer than any width, and can be read.
fn rounded(rate: f64) -> f64 {
    let digits = rate.log10().floor() as i32 + 1;
    let scale = 10_f64.powi(DIGITS - digits);
    (rate * scale).round() / scale
}

const DIGITS: i32 = 4;

#[cfg(test)]
mod tests;

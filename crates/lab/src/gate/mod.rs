//! Gates: conditions on the figures and prices of a run, by which a build passes or fails.
//!
//! `cpu(full/off)<60` asks that a request costs `full` less than 60 times the CPU that it costs
//! `off`; `p99(full @ browse)<=5ms` that the 99th percentile of the latency of `full`, under the case
//! `browse`, is at most 5 ms. A gate is judged on the 95 % interval, never on the estimate alone.

mod judge;
mod measure;
mod parse;
mod show;
mod value;

pub use judge::{Judged, Outcome, judge, overall};
pub use measure::Measure;
pub use parse::GateError;
pub use show::{Format, render};

/// A condition on one figure of a subject, or on the ratio of two subjects.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The gate as it was written.
    pub text: String,
    /// The figure.
    pub measure: Measure,
    /// The subject.
    pub subject: Name,
    /// The subject to whose figure of the same block its own is a ratio; none for the figure itself.
    pub over: Option<Name>,
    /// The case; none for every case of the run.
    pub case: Option<Name>,
    /// On which side of the bound the figure has to be.
    pub side: Side,
    /// The bound: a ratio, a share, or a figure in the unit that [`Measure`] is kept in.
    pub bound: f64,
}

/// A name in a gate, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Its first character, counted from 1.
    pub column: usize,
}

/// On which side of its bound a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

impl Side {
    /// Whether a value on this side of the bound is asked for, and this is one.
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
        }
    }
}

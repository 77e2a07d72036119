//! Plots as SVG text: plain data in, markup out.

mod axis;
pub(crate) mod bars;
mod canvas;
pub(crate) mod distribution;
pub(crate) mod dots;
pub(crate) mod history;
mod scale;
pub(crate) mod spectrum;
pub(crate) mod sweep;
pub(crate) mod timeline;

pub(crate) use canvas::{Size, key};

/// An estimate and how far it may be off, as it is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Whisker {
    /// The estimate.
    pub(crate) estimate: f64,
    /// The lower end.
    pub(crate) low: f64,
    /// The upper end.
    pub(crate) high: f64,
    /// Whether the ends are those of an interval; a range that was seen is drawn in dashes.
    pub(crate) interval: bool,
}

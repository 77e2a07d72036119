//! Plots as SVG text: plain data in, markup out.

mod axis;
pub(crate) mod bars;
mod canvas;
pub(crate) mod distribution;
pub(crate) mod dots;
pub mod history;
mod scale;
pub(crate) mod spectrum;
pub(crate) mod sweep;
pub(crate) mod timeline;

pub use canvas::Size;
pub(crate) use canvas::key;

/// An estimate and how far it may be off, as it is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whisker {
    /// The estimate.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Whether the ends are those of an interval; a range that was seen is drawn in dashes.
    pub interval: bool,
}

//! The lines, labels and units about a plot.

use super::canvas::{Anchor, Canvas, LETTER};
use super::scale::{Scale, Tick};

/// Where the plot itself is on its canvas, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// What the labels of an upright axis take on its left.
pub(super) fn margin(ticks: &[Tick]) -> f64 {
    let longest = ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0);
    10.0 + longest as f64 * LETTER
}

/// What the labels and the unit of a level axis take below it.
pub(super) const BELOW: f64 = 40.0;

/// What the unit of an upright axis takes above it.
pub(super) const ABOVE: f64 = 30.0;

/// An axis along the bottom, with a line upwards at each tick.
pub(super) fn level(canvas: &mut Canvas, frame: &Frame, scale: &Scale, ticks: &[Tick], unit: &str) {
    for tick in ticks {
        let x = scale.at(tick.value);
        canvas.line("grid", (x, frame.top), (x, frame.bottom));
        canvas.text("tick", (x, frame.bottom + 15.0), Anchor::Middle, &tick.label);
    }
    canvas.line("axis", (frame.left, frame.bottom), (frame.right, frame.bottom));
    canvas.text("unit", (frame.right, frame.bottom + 33.0), Anchor::End, unit);
}

/// The lines of a level axis alone, for a panel whose labels stand below another one.
pub(super) fn grid(canvas: &mut Canvas, frame: &Frame, scale: &Scale, ticks: &[Tick]) {
    for tick in ticks {
        let x = scale.at(tick.value);
        canvas.line("grid", (x, frame.top), (x, frame.bottom));
    }
    canvas.line("axis", (frame.left, frame.bottom), (frame.right, frame.bottom));
}

/// An axis along the left, with a line across at each tick and its unit above it.
pub(super) fn upright(
    canvas: &mut Canvas,
    frame: &Frame,
    scale: &Scale,
    ticks: &[Tick],
    unit: &str,
) {
    for tick in ticks {
        let y = scale.at(tick.value);
        canvas.line("grid", (frame.left, y), (frame.right, y));
        canvas.text("tick", (frame.left - 6.0, y + 4.0), Anchor::End, &tick.label);
    }
    canvas.line("axis", (frame.left, frame.top), (frame.left, frame.bottom));
    canvas.text("unit", (0.0, frame.top - 10.0), Anchor::Start, unit);
}

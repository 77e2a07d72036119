//! Plots as SVG text: plain data in, markup out. A chart has panels below each other on one horizontal axis.

mod canvas;
mod latency;
mod price;
mod scale;
mod series;
mod timeline;

pub(crate) use canvas::key;
pub(crate) use latency::{Curve, Distribution, SweepPanel, distribution, percentiles, sweep};
pub(crate) use price::{Bar, Bars, Catch, Dots, bars, catches, dots};
pub use price::{LevelChange, Revision, history};
pub(crate) use series::{SeriesPanel, series};
pub(crate) use timeline::{Stripe, Timeline, TimelinePanel, Trial, timeline};

use canvas::{Canvas, END, LETTER, MIDDLE, START, WIDTH};
use scale::{Scale, Tick};

/// The plot area of a panel on its canvas, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

struct PanelAxis {
    scale: Scale,
    ticks: Vec<Tick>,
    unit: String,
    /// Height of the panel, in pixels.
    height: f64,
}

struct Panel {
    frame: Frame,
    scale: Scale,
}

/// A canvas with the axes of its panels.
struct Chart {
    canvas: Canvas,
    /// The horizontal axis.
    along: Scale,
    panels: Vec<Panel>,
}

/// Approximate maximum number of ticks of a horizontal axis.
const TICKS: usize = 8;
/// Height of the labels and the unit below a horizontal axis.
const BELOW: f64 = 40.0;
/// Height of the unit above a vertical axis.
const ABOVE: f64 = 30.0;
const RIGHT: f64 = 16.0;

impl Chart {
    fn new(axes: &[PanelAxis], along: Scale, ticks: &[Tick], unit: &str) -> Self {
        let left = axes.iter().map(|axis| margin(&axis.ticks)).fold(0.0, f64::max);
        let right = WIDTH - RIGHT;
        let along = along.over(left, right);
        let height: f64 = axes.iter().map(|axis| ABOVE + axis.height).sum();
        let mut canvas = Canvas::new(WIDTH, height + BELOW);
        let mut panels: Vec<Panel> = Vec::new();
        for (index, axis) in axes.iter().enumerate() {
            let top = panels.last().map_or(0.0, |panel| panel.frame.bottom) + ABOVE;
            let frame = Frame { left, right, top, bottom: top + axis.height };
            let scale = axis.scale.over(frame.bottom, frame.top);
            vertical(&mut canvas, &frame, &scale, &axis.ticks, &axis.unit);
            let unit = (index + 1 == axes.len()).then_some(unit);
            horizontal(&mut canvas, &frame, &along, ticks, unit);
            panels.push(Panel { frame, scale });
        }
        Self { canvas, along, panels }
    }
}

/// Width of the labels left of a vertical axis.
fn margin(ticks: &[Tick]) -> f64 {
    let longest = ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0);
    10.0 + longest as f64 * LETTER
}

/// Draws an axis along the bottom, with grid lines. Labels appear only with a unit, on the lowest axis of a chart;
/// ticks without room for a label get short lines.
fn horizontal(
    canvas: &mut Canvas,
    frame: &Frame,
    scale: &Scale,
    ticks: &[Tick],
    unit: Option<&str>,
) {
    let labels: Vec<Extent> = ticks.iter().map(|tick| label_below(canvas, scale, tick)).collect();
    for ((tick, label), has_room) in ticks.iter().zip(&labels).zip(with_room(&labels)) {
        let x = scale.at(tick.value);
        if has_room {
            canvas.line("grid", (x, frame.top), (x, frame.bottom));
        }
        match (has_room, unit) {
            (true, Some(_)) => {
                let middle = f64::midpoint(label.from, label.to);
                canvas.text("tick", (middle, frame.bottom + 15.0), MIDDLE, &tick.label);
            }
            (false, Some(_)) => canvas.line("axis", (x, frame.bottom), (x, frame.bottom + 3.0)),
            (_, None) => {}
        }
    }
    canvas.line("axis", (frame.left, frame.bottom), (frame.right, frame.bottom));
    if let Some(unit) = unit {
        canvas.text("unit", (frame.right, frame.bottom + 33.0), END, unit);
    }
}

/// Draws an axis on the left, with a grid line at each tick.
fn vertical(canvas: &mut Canvas, frame: &Frame, scale: &Scale, ticks: &[Tick], unit: &str) {
    let labels: Vec<Extent> =
        ticks.iter().map(|tick| Extent::around(scale.at(tick.value), LINE)).collect();
    for (tick, has_room) in ticks.iter().zip(with_room(&labels)) {
        let y = scale.at(tick.value);
        if has_room {
            canvas.line("grid", (frame.left, y), (frame.right, y));
            canvas.text("tick", (frame.left - 6.0, y + 4.0), END, &tick.label);
        } else {
            canvas.line("axis", (frame.left - 3.0, y), (frame.left, y));
        }
    }
    canvas.line("axis", (frame.left, frame.top), (frame.left, frame.bottom));
    canvas.text("unit", (0.0, frame.top - 10.0), START, unit);
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Extent {
    from: f64,
    to: f64,
}

impl Extent {
    fn around(middle: f64, length: f64) -> Self {
        Self { from: middle - length / 2.0, to: middle + length / 2.0 }
    }

    fn is_clear_of(&self, other: &Self) -> bool {
        self.to + GAP <= other.from || other.to + GAP <= self.from
    }
}

/// Maximum width of a digit in any fallback font, in pixels.
const DIGIT: f64 = 7.8;
const LINE: f64 = 13.0;
/// Minimum gap between two labels.
const GAP: f64 = 3.0;

/// The extent of a label below a horizontal axis, kept within the canvas.
fn label_below(canvas: &Canvas, scale: &Scale, tick: &Tick) -> Extent {
    let length = tick.label.chars().count() as f64 * DIGIT;
    let most = (canvas.width() - length / 2.0).max(length / 2.0);
    Extent::around(scale.at(tick.value).clamp(length / 2.0, most), length)
}

/// Selects labels that do not overlap: the first, then the last, then those between in order.
fn with_room(labels: &[Extent]) -> Vec<bool> {
    let mut kept: Vec<Extent> = Vec::new();
    let mut has_room = vec![false; labels.len()];
    let last = labels.len().checked_sub(1);
    for place in (0..1).chain(last).chain(1..labels.len()).filter(|place| *place < labels.len()) {
        if kept.iter().all(|label| label.is_clear_of(&labels[place])) && !has_room[place] {
            kept.push(labels[place]);
            has_room[place] = true;
        }
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents(ends: &[(f64, f64)]) -> Vec<Extent> {
        ends.iter().map(|(from, to)| Extent { from: *from, to: *to }).collect()
    }

    #[test]
    fn overlapping_labels_are_dropped() {
        // Ten pixels each, three between them.
        let all = [(0.0, 10.0), (13.0, 23.0), (20.0, 30.0), (33.0, 43.0)];
        assert_eq!(with_room(&extents(&all)), [true, true, false, true]);
        let last_but_one = [(0.0, 10.0), (22.0, 32.0), (33.0, 43.0)];
        assert_eq!(with_room(&extents(&last_but_one)), [true, false, true]);
        assert_eq!(with_room(&extents(&[(0.0, 10.0), (5.0, 15.0)])), [true, false]);
        assert_eq!(with_room(&extents(&[(0.0, 10.0)])), [true]);
        assert_eq!(with_room(&[]), [false; 0]);
    }

    #[test]
    fn a_label_at_the_edge_stays_on_the_canvas() {
        let canvas = Canvas::new(100.0, 10.0);
        let scale = Scale::exact(0.0, 100.0).over(0.0, 100.0);
        let tick = |value, label: &str| Tick { value, label: label.to_owned() };
        let extent = label_below(&canvas, &scale, &tick(99.0, "10,000"));
        assert!((extent.to - 100.0).abs() < 1e-9, "{extent:?}");
        assert_eq!(label_below(&canvas, &scale, &tick(1.0, "1")).from, 0.0);
        assert_eq!(label_below(&canvas, &scale, &tick(50.0, "5")), Extent { from: 46.1, to: 53.9 });
    }

    proptest! {
        #[test]
        fn labels_with_room_are_clear_of_each_other_and_others_are_not(
            middles in proptest::collection::vec(0.0..700.0, 1..60),
            length in 5.0..60.0,
        ) {
            let mut middles = middles;
            middles.sort_by(f64::total_cmp);
            let labels: Vec<Extent> = middles.iter().map(|at| Extent::around(*at, length)).collect();
            let has_room = with_room(&labels);
            let kept: Vec<&Extent> =
                labels.iter().zip(&has_room).filter(|(_, room)| **room).map(|(label, _)| label).collect();
            for (index, label) in kept.iter().enumerate() {
                prop_assert!(kept[index + 1..].iter().all(|other| label.is_clear_of(other)));
            }
            for (label, room) in labels.iter().zip(&has_room) {
                prop_assert!(*room || kept.iter().any(|other| !label.is_clear_of(other)));
            }
        }
    }
}

//! Axes: lines, labels and units.

use super::canvas::{Anchor, Canvas, LETTER};
use super::scale::{Scale, Tick};

/// The plot area on its canvas, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// Width of the labels left of a vertical axis.
pub(super) fn margin(ticks: &[Tick]) -> f64 {
    let longest = ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0);
    10.0 + longest as f64 * LETTER
}

/// Height of the labels and the unit below a horizontal axis.
pub(super) const BELOW: f64 = 40.0;

/// Height of the unit above a vertical axis.
pub(super) const ABOVE: f64 = 30.0;

/// An axis along the bottom, with a line upwards at each tick whose label has room, and a short one
/// down at the others.
pub(super) fn level(canvas: &mut Canvas, frame: &Frame, scale: &Scale, ticks: &[Tick], unit: &str) {
    let labels: Vec<Extent> = ticks.iter().map(|tick| beneath(canvas, scale, tick)).collect();
    for ((tick, label), has_room) in ticks.iter().zip(&labels).zip(apart(&labels)) {
        let x = scale.at(tick.value);
        if has_room {
            canvas.line("grid", (x, frame.top), (x, frame.bottom));
            let middle = f64::midpoint(label.from, label.to);
            canvas.text("tick", (middle, frame.bottom + 15.0), Anchor::Middle, &tick.label);
        } else {
            canvas.line("axis", (x, frame.bottom), (x, frame.bottom + 3.0));
        }
    }
    canvas.line("axis", (frame.left, frame.bottom), (frame.right, frame.bottom));
    canvas.text("unit", (frame.right, frame.bottom + 33.0), Anchor::End, unit);
}

/// A horizontal axis without labels, for a panel above another one.
pub(super) fn grid(canvas: &mut Canvas, frame: &Frame, scale: &Scale, ticks: &[Tick]) {
    let labels: Vec<Extent> = ticks.iter().map(|tick| beneath(canvas, scale, tick)).collect();
    for (tick, has_room) in ticks.iter().zip(apart(&labels)) {
        if has_room {
            let x = scale.at(tick.value);
            canvas.line("grid", (x, frame.top), (x, frame.bottom));
        }
    }
    canvas.line("axis", (frame.left, frame.bottom), (frame.right, frame.bottom));
}

/// A vertical axis on the left, with a grid line at each tick.
pub(super) fn upright(
    canvas: &mut Canvas,
    frame: &Frame,
    scale: &Scale,
    ticks: &[Tick],
    unit: &str,
) {
    let labels: Vec<Extent> =
        ticks.iter().map(|tick| Extent::about(scale.at(tick.value), LINE)).collect();
    for (tick, has_room) in ticks.iter().zip(apart(&labels)) {
        let y = scale.at(tick.value);
        if has_room {
            canvas.line("grid", (frame.left, y), (frame.right, y));
            canvas.text("tick", (frame.left - 6.0, y + 4.0), Anchor::End, &tick.label);
        } else {
            canvas.line("axis", (frame.left - 3.0, y), (frame.left, y));
        }
    }
    canvas.line("axis", (frame.left, frame.top), (frame.left, frame.bottom));
    canvas.text("unit", (0.0, frame.top - 10.0), Anchor::Start, unit);
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Extent {
    from: f64,
    to: f64,
}

impl Extent {
    fn about(middle: f64, length: f64) -> Self {
        Self { from: middle - length / 2.0, to: middle + length / 2.0 }
    }

    fn is_clear_of(&self, other: &Self) -> bool {
        self.to + GAP <= other.from || other.to + GAP <= self.from
    }
}

/// The width of a digit at most, in pixels: that of the widest font that a page falls back to.
const DIGIT: f64 = 7.8;
const LINE: f64 = 13.0;
/// Minimum gap between two labels.
const GAP: f64 = 3.0;

/// The extent of a label below a horizontal axis, kept within the canvas.
fn beneath(canvas: &Canvas, scale: &Scale, tick: &Tick) -> Extent {
    let length = tick.label.chars().count() as f64 * DIGIT;
    let most = (canvas.width() - length / 2.0).max(length / 2.0);
    Extent::about(scale.at(tick.value).clamp(length / 2.0, most), length)
}

/// Which labels have room: the first, the last where it is clear of the first, and of those between
/// as many as are clear of each other.
fn apart(labels: &[Extent]) -> Vec<bool> {
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
        assert_eq!(apart(&extents(&all)), [true, true, false, true]);
        let last_but_one = [(0.0, 10.0), (22.0, 32.0), (33.0, 43.0)];
        assert_eq!(apart(&extents(&last_but_one)), [true, false, true]);
        assert_eq!(apart(&extents(&[(0.0, 10.0), (5.0, 15.0)])), [true, false]);
        assert_eq!(apart(&extents(&[(0.0, 10.0)])), [true]);
        assert_eq!(apart(&[]), [false; 0]);
    }

    #[test]
    fn a_label_at_the_edge_stays_on_the_canvas() {
        let canvas = Canvas::new(100.0, 10.0);
        let scale = Scale::exact(0.0, 100.0).over(0.0, 100.0);
        let tick = |value, label: &str| Tick { value, label: label.to_owned() };
        let extent = beneath(&canvas, &scale, &tick(99.0, "10,000"));
        assert!((extent.to - 100.0).abs() < 1e-9, "{extent:?}");
        assert_eq!(beneath(&canvas, &scale, &tick(1.0, "1")).from, 0.0);
        assert_eq!(beneath(&canvas, &scale, &tick(50.0, "5")), Extent { from: 46.1, to: 53.9 });
    }

    proptest! {
        #[test]
        fn labels_with_room_are_clear_of_each_other_and_others_are_not(
            middles in proptest::collection::vec(0.0..700.0, 1..60),
            length in 5.0..60.0,
        ) {
            let mut middles = middles;
            middles.sort_by(f64::total_cmp);
            let labels: Vec<Extent> = middles.iter().map(|at| Extent::about(*at, length)).collect();
            let has_room = apart(&labels);
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

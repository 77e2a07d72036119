//! How latencies are distributed: the share of answers in each class of latency.

use super::axis::{self, Frame};
use super::canvas::{Canvas, Size};
use super::scale::Scale;

/// One subject.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Distribution {
    /// Its name.
    pub(crate) name: String,
    /// Which color and mark it has.
    pub(crate) series: usize,
    /// The share of its answers in each class, in percent.
    pub(crate) percent: Vec<f64>,
}

/// Draws the shares as steps over classes that are equally wide on a logarithmic axis. `edges` are
/// those of the classes in milliseconds, one more than there are classes.
pub(crate) fn draw(edges: &[f64], distributions: &[Distribution], size: Size) -> String {
    let width = size.width();
    let (Some(first), Some(last)) = (edges.first(), edges.last()) else {
        return Canvas::new(width, 0.0).finish("No latency was measured.");
    };
    let highest = distributions.iter().flat_map(|one| &one.percent).copied();
    let share = Scale::linear(highest.chain([0.0]), SHARE_TICKS);
    let share_ticks = share.ticks(SHARE_TICKS);
    let bottom = axis::ABOVE + HEIGHT;
    let frame =
        Frame { left: axis::margin(&share_ticks), right: width - 20.0, top: axis::ABOVE, bottom };
    let share = share.over(frame.bottom, frame.top);
    let latency = Scale::exact_log(*first, *last).over(frame.left, frame.right);
    let mut canvas = Canvas::new(width, bottom + axis::BELOW);
    axis::upright(
        &mut canvas,
        &frame,
        &share,
        &share_ticks,
        "share of the answers in each class, %",
    );
    axis::level(&mut canvas, &frame, &latency, &latency.ticks(size.ticks()), "latency, ms");
    for one in distributions {
        let mut points = Vec::new();
        let mut peak = (0.0, 0.0, 0.0);
        for (ends, percent) in edges.windows(2).zip(&one.percent) {
            let [from, to] = [ends[0], ends[1]].map(|ms| latency.at(ms));
            let y = share.at(*percent);
            // Classes without answers at either end are not drawn.
            if *percent > 0.0 || !points.is_empty() {
                points.extend([(from, y), (to, y)]);
            }
            if *percent > peak.2 {
                peak = (f64::midpoint(from, to), y, *percent);
            }
        }
        while points.last().is_some_and(|point: &(f64, f64)| point.1 >= frame.bottom) {
            points.pop();
        }
        let feet = (points.first().map(|p| p.0), points.last().map(|p| p.0));
        if let (Some(from), Some(to)) = feet {
            points.insert(0, (from, frame.bottom));
            points.push((to, frame.bottom));
            canvas.curve("area", one.series, &points);
            let percent = tollgate_stats::number::significant(peak.2);
            let hint = format!("{}: {percent} % of the answers in its fullest class", one.name);
            canvas.mark("", one.series, (peak.0, peak.1), &hint);
        }
    }
    let names: Vec<&str> = distributions.iter().map(|one| one.name.as_str()).collect();
    canvas.finish(&format!("How the latencies of {} are distributed.", names.join(", ")))
}

const HEIGHT: f64 = 180.0;
const SHARE_TICKS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn distributions() -> Vec<Distribution> {
        vec![Distribution {
            name: "full".to_owned(),
            series: 0,
            percent: vec![0.0, 25.0, 75.0, 0.0],
        }]
    }

    const EDGES: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];

    #[test]
    fn wide() {
        insta::assert_snapshot!(draw(&EDGES, &distributions(), Size::Wide));
    }

    #[test]
    fn steps_are_as_high_as_their_shares() {
        let svg = draw(&EDGES, &distributions(), Size::Narrow);
        // Shares to 80 % on 180 px from 210 up to 30, latencies on 23.6 to 320 px in four classes.
        let x = |class: f64| 23.6 + 296.4 * class / 4.0;
        let (a, b, c) = (x(1.0), x(2.0), x(3.0));
        let outline = format!(
            r#"d="M{a:.1} 210L{a:.1} 153.8L{b:.1} 153.8L{b:.1} 41.2L{c:.1} 41.2L{c:.1} 210""#
        );
        assert!(svg.contains(&outline), "no {outline} in:\n{svg}");
    }

    #[test]
    fn empty_distribution_has_a_message() {
        assert!(draw(&[], &[], Size::Wide).contains("No latency was measured."));
    }
}

//! Latency against load, for cases that differ only in their load.

use super::axis::{self, Frame};
use super::canvas::{Canvas, Size};
use super::scale::{Scale, Tick};
use tollgate_stats::number::{in_full, significant};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Index of its color and mark.
    pub(crate) series: usize,
    /// Load and latency in milliseconds.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One quantile of the latency.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    /// Name with unit.
    pub(crate) unit: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// Draws the panels below each other; both axes are logarithmic, with a tick at each load, and a
/// label where there is room for one.
pub(crate) fn draw(load_unit: &str, panels: &[Panel], size: Size) -> String {
    let width = size.width();
    let points = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let mut loads: Vec<f64> = points().map(|point| point.0).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let scales: Vec<Scale> = panels.iter().map(latencies).collect();
    let margins = scales.iter().map(|scale| axis::margin(&scale.ticks(LATENCY_TICKS)));
    let left = margins.fold(0.0, f64::max);
    let right = width - 16.0;
    let load = Scale::log(loads.iter().copied()).over(left, right);
    let ticks: Vec<Tick> =
        loads.iter().map(|load| Tick { value: *load, label: in_full(*load) }).collect();
    let height = panels.len() as f64 * (axis::ABOVE + PANEL);
    let mut canvas = Canvas::new(width, height + axis::BELOW);
    let mut top = axis::ABOVE;
    for (index, (panel, scale)) in panels.iter().zip(scales).enumerate() {
        let frame = Frame { left, right, top, bottom: top + PANEL };
        let scale = scale.over(frame.bottom, frame.top);
        axis::upright(&mut canvas, &frame, &scale, &scale.ticks(LATENCY_TICKS), panel.unit);
        match index + 1 == panels.len() {
            true => axis::level(&mut canvas, &frame, &load, &ticks, load_unit),
            false => axis::grid(&mut canvas, &frame, &load, &ticks),
        }
        for line in &panel.lines {
            let place = |(at, ms): &(f64, f64)| (load.at(*at), scale.at(*ms));
            let places: Vec<_> = line.points.iter().map(place).collect();
            canvas.curve("curve", line.series, &places);
            for (point, place) in line.points.iter().zip(places) {
                let hint = format!(
                    "{}: {} ms at {} {load_unit}",
                    line.name,
                    significant(point.1),
                    in_full(point.0)
                );
                canvas.mark("", line.series, place, &hint);
            }
        }
        top = frame.bottom + axis::ABOVE;
    }
    canvas.finish(&format!("Latency against load, in {load_unit}."))
}

const PANEL: f64 = 150.0;
const LATENCY_TICKS: usize = 5;

fn latencies(panel: &Panel) -> Scale {
    Scale::log(panel.lines.iter().flat_map(|line| &line.points).map(|point| point.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panels() -> Vec<Panel> {
        let points = vec![(10.0, 1.0), (100.0, 10.0), (1_000.0, 100.0)];
        let lines = vec![Line { name: "full".to_owned(), series: 0, points }];
        vec![Panel { unit: "p50, ms", lines }]
    }

    #[test]
    fn wide() {
        insta::assert_snapshot!(draw("connections", &panels(), Size::Wide));
    }

    /// Where the labels below the axis begin and end, read from the drawing: about their middle, each
    /// letter as wide as a digit of the widest font that a browser may take.
    fn labels(svg: &str) -> Vec<(f64, f64)> {
        let texts = svg.split("<text class=\"tick\" ").skip(1);
        let level = texts.filter(|text| text.contains("text-anchor=\"middle\""));
        let of = |text: &str| {
            let x: f64 = text.split('"').nth(1).unwrap().parse().unwrap();
            let label = text.split_once('>').unwrap().1.split('<').next().unwrap();
            let half = label.chars().count() as f64 * 7.63 / 2.0;
            (x - half, x + half)
        };
        level.map(of).collect()
    }

    #[test]
    fn labels_do_not_overlap_at_any_number_of_levels() {
        let steps: [fn(u32) -> f64; 4] = [
            |level| f64::from(level + 1),
            |level| 10_000.0 + 250.0 * f64::from(level),
            |level| 1.5_f64.powf(f64::from(level)).round(),
            |level| 0.25 * f64::from(level + 1),
        ];
        for (levels, step) in (3..=40).flat_map(|levels| steps.map(|step| (levels, step))) {
            let points = (0..levels).map(|level| (step(level), 1.0)).collect();
            let lines = vec![Line { name: "full".to_owned(), series: 0, points }];
            let panels = [Panel { unit: "p50, ms", lines }];
            for size in [Size::Wide, Size::Narrow] {
                let svg = draw("connections", &panels, size);
                let mut labels = labels(&svg);
                labels.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(labels.windows(2).all(|two| two[0].1 < two[1].0), "{levels}: {labels:?}");
                assert!(labels.len() >= 2, "{levels} levels have {} labels", labels.len());
                let (first, last) = (labels[0].0, labels[labels.len() - 1].1);
                assert!(first >= 0.0 && last <= size.width(), "{first} to {last}");
            }
        }
    }

    #[test]
    fn the_geometric_middle_is_in_the_middle() {
        let svg = draw("connections", &panels(), Size::Narrow);
        // "100" takes 30.4 px; 324 px on the right; 30 + 75 px down.
        let middle = f64::midpoint(30.4, 324.0);
        assert!(svg.contains(&format!("L{middle:.1} 105L")), "{svg}");
        assert!(svg.contains("<title>full: 10.0 ms at 100 connections</title>"), "{svg}");
        for load in [">10<", ">100<", ">1000<"] {
            assert!(svg.contains(load), "no {load} in:\n{svg}");
        }
    }
}

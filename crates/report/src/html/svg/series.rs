//! Curves over the time of a load, in panels on one axis of time.

use super::latency::Curve;
use super::scale::Scale;
use super::{Chart, PanelAxis, TICKS};
use tollgate_stats::number::significant;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeriesPanel {
    /// Name with unit.
    pub(crate) unit: &'static str,
    pub(crate) is_logarithmic: bool,
    /// Seconds and figures. A gap ends a curve, so several may have the same name.
    pub(crate) curves: Vec<Curve>,
}

const HEIGHT: f64 = 130.0;
const PANEL_TICKS: usize = 5;

/// With more points in a curve, marks would cover it.
const MARKS_MAX: usize = 40;

/// Draws the panels over `length_s` seconds.
pub(crate) fn series(panels: &[SeriesPanel], length_s: f64) -> String {
    let (divisor, unit) = if length_s > 300.0 {
        (60.0, "minutes from the start of the measurement")
    } else {
        (1.0, "seconds from the start of the measurement")
    };
    let axes: Vec<PanelAxis> = panels.iter().map(axis).collect();
    let time = Scale::exact(0.0, length_s / divisor);
    let Chart { mut canvas, along, panels: places } =
        Chart::new(&axes, time, &time.ticks(TICKS), unit);
    for (panel, place) in panels.iter().zip(&places) {
        let count: usize = panel.curves.iter().map(|curve| curve.points.len()).sum();
        for Curve { name, series, points } in &panel.curves {
            let at = |(s, value): &(f64, f64)| (along.at(s / divisor), place.scale.at(*value));
            canvas.curve("curve", *series, &points.iter().map(at).collect::<Vec<_>>());
            // A curve of one point is not visible.
            if count <= MARKS_MAX * panel.curves.len() || points.len() == 1 {
                for point in points {
                    let hint = format!("{name}: {} at {:.1} s", significant(point.1), point.0);
                    canvas.mark("", *series, at(point), &hint);
                }
            }
        }
    }
    let units: Vec<&str> = panels.iter().map(|panel| panel.unit).collect();
    canvas.finish(&format!("{} over time; the table below has the figures.", units.join("; ")))
}

fn axis(panel: &SeriesPanel) -> PanelAxis {
    let values = panel.curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
    let scale = if panel.is_logarithmic {
        Scale::log(values)
    } else {
        Scale::linear(values.chain([0.0]), PANEL_TICKS)
    };
    let ticks = scale.ticks(PANEL_TICKS);
    PanelAxis { scale, ticks, unit: panel.unit.to_owned(), height: HEIGHT }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(points: &[(f64, f64)]) -> SeriesPanel {
        let curve = Curve { name: "responses".to_owned(), series: 0, points: points.to_vec() };
        SeriesPanel { unit: "per second", is_logarithmic: false, curves: vec![curve] }
    }

    #[test]
    fn curve_runs_along_the_time() {
        let svg = series(&[panel(&[(0.0, 0.0), (5.0, 100.0), (10.0, 50.0)])], 10.0);
        // "100" takes 30.4 px, and 704 px are on the right; 0 to 100 on 130 px below 30.
        assert!(svg.contains(r#"d="M30.4 160L367.2 30L704 95""#), "{svg}");
        assert!(svg.contains("<title>responses: 50.0 at 10.0 s</title>"), "{svg}");
        assert!(svg.contains("seconds from the start"), "{svg}");
    }

    #[test]
    fn long_curves_have_no_marks_and_long_loads_minutes() {
        let points: Vec<(f64, f64)> = (0..50).map(|at| (f64::from(at) * 10.0, 1.0)).collect();
        let svg = series(&[panel(&points)], 500.0);
        assert!(!svg.contains("mark") && svg.contains("minutes from the start"), "{svg}");
    }
}

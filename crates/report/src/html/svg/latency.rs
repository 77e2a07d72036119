//! Plots of latency: by percentile, as a distribution, and against load.

use super::scale::{Scale, Tick};
use super::{Chart, Panel, PanelAxis, TICKS};
use tollgate_stats::number::{in_full, significant};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Index of its color and mark.
    pub(crate) series: usize,
    /// Quantiles below 1, or loads, and latencies in milliseconds.
    pub(crate) points: Vec<(f64, f64)>,
}

fn latencies(curves: &[Curve]) -> Scale {
    Scale::log(curves.iter().flat_map(|curve| &curve.points).map(|(_, ms)| *ms))
}

const PERCENTILES_HEIGHT: f64 = 240.0;
const PERCENTILES_TICKS: usize = 8;

/// The quantiles with a tick and a mark, and their names in percent.
const SHARES: [(f64, &str); 7] = [
    (0.0, "0"),
    (0.5, "50"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
    (0.99999, "99.999"),
];

/// Draws latency by percentile on HdrHistogram's axis: 1 / (1 - quantile), on a logarithmic scale.
pub(crate) fn percentiles(curves: &[Curve]) -> String {
    let rarity = |quantile: f64| 1.0 / (1.0 - quantile);
    let points = curves.iter().flat_map(|curve| &curve.points);
    let rarest = points.map(|(quantile, _)| rarity(*quantile)).fold(10.0, f64::max);
    let along = Scale::exact_log(1.0, rarest);
    let tick =
        |(quantile, label): (f64, &str)| Tick { value: rarity(quantile), label: label.to_owned() };
    let mut ticks = SHARES.map(tick).to_vec();
    ticks.retain(|tick| along.contains(tick.value));
    let scale = latencies(curves);
    let axis = PanelAxis {
        scale,
        ticks: scale.ticks(PERCENTILES_TICKS),
        unit: "latency, ms".to_owned(),
        height: PERCENTILES_HEIGHT,
    };
    let unit = "share of the responses, %";
    let Chart { mut canvas, along, panels } = Chart::new(&[axis], along, &ticks, unit);
    let place =
        |(quantile, ms): &(f64, f64)| (along.at(rarity(*quantile)), panels[0].scale.at(*ms));
    for Curve { name, series, points } in curves {
        canvas.curve("curve", *series, &points.iter().map(place).collect::<Vec<_>>());
        for (quantile, label) in SHARES {
            // Quantiles of a histogram may be rounded down.
            if let Some(point) = points.iter().find(|point| point.0 >= quantile - 1e-9) {
                let hint = format!("{name}: {label} % within {} ms", significant(point.1));
                canvas.mark("", *series, place(point), &hint);
            }
        }
    }
    canvas.finish(&format!(
        "Latency by percentile of {}; the table below has the figures.",
        names(curves.iter().map(|curve| &curve.name))
    ))
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The share of responses of one subject in each class of latency.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Distribution {
    pub(crate) name: String,
    /// Index of its color and mark.
    pub(crate) series: usize,
    pub(crate) percent: Vec<f64>,
}

const DISTRIBUTION_HEIGHT: f64 = 180.0;
const DISTRIBUTION_TICKS: usize = 5;

/// Draws the shares as steps over classes of equal width on a logarithmic axis. `edges` of the classes are in
/// milliseconds, one more than classes.
pub(crate) fn distribution(edges: &[f64], distributions: &[Distribution]) -> String {
    let (first, last) = (edges.first().copied(), edges.last().copied());
    let along = Scale::exact_log(first.unwrap_or(1.0), last.unwrap_or(10.0));
    let shares = distributions.iter().flat_map(|one| &one.percent).copied();
    let scale = Scale::linear(shares.chain([0.0]), DISTRIBUTION_TICKS);
    let axis = PanelAxis {
        scale,
        ticks: scale.ticks(DISTRIBUTION_TICKS),
        unit: "share of the responses in each class, %".to_owned(),
        height: DISTRIBUTION_HEIGHT,
    };
    let ticks = along.ticks(TICKS);
    let Chart { mut canvas, along, panels } = Chart::new(&[axis], along, &ticks, "latency, ms");
    let Panel { frame, scale } = &panels[0];
    for Distribution { name, series, percent } in distributions {
        let mut points = Vec::new();
        let mut peak = (0.0, 0.0, 0.0);
        for (ends, percent) in edges.windows(2).zip(percent) {
            let [from, to] = [ends[0], ends[1]].map(|ms| along.at(ms));
            let y = scale.at(*percent);
            // Empty classes at both ends are not drawn.
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
        if let (Some((from, _)), Some((to, _))) = (points.first().copied(), points.last().copied())
        {
            points.insert(0, (from, frame.bottom));
            points.push((to, frame.bottom));
            canvas.curve("area", *series, &points);
            let highest = significant(peak.2);
            let hint = format!("{name}: {highest} % of the responses in the most frequent class");
            canvas.mark("", *series, (peak.0, peak.1), &hint);
        }
    }
    let names = names(distributions.iter().map(|one| &one.name));
    canvas.finish(&format!("Latency distribution of {names}."))
}

/// The latencies of one quantile over loads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SweepPanel {
    /// Name with unit.
    pub(crate) unit: &'static str,
    pub(crate) curves: Vec<Curve>,
}

const SWEEP_HEIGHT: f64 = 150.0;
const SWEEP_TICKS: usize = 5;

/// Draws latency against load on logarithmic axes, with a tick at each load.
pub(crate) fn sweep(load_unit: &str, quantiles: &[SweepPanel]) -> String {
    let curves = || quantiles.iter().flat_map(|panel| &panel.curves);
    let mut loads: Vec<f64> =
        curves().flat_map(|curve| &curve.points).map(|(load, _)| *load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let ticks: Vec<Tick> =
        loads.iter().map(|load| Tick { value: *load, label: in_full(*load) }).collect();
    let axis = |panel: &SweepPanel| PanelAxis {
        scale: latencies(&panel.curves),
        ticks: latencies(&panel.curves).ticks(SWEEP_TICKS),
        unit: panel.unit.to_owned(),
        height: SWEEP_HEIGHT,
    };
    let axes: Vec<PanelAxis> = quantiles.iter().map(axis).collect();
    let Chart { mut canvas, along, panels } =
        Chart::new(&axes, Scale::log(loads), &ticks, load_unit);
    for (quantile, Panel { scale, .. }) in quantiles.iter().zip(&panels) {
        for Curve { name, series, points } in &quantile.curves {
            let places: Vec<_> =
                points.iter().map(|(load, ms)| (along.at(*load), scale.at(*ms))).collect();
            canvas.curve("curve", *series, &places);
            for ((load, ms), place) in points.iter().zip(places) {
                let (load, ms) = (in_full(*load), significant(*ms));
                canvas.mark("", *series, place, &format!("{name}: {ms} ms at {load} {load_unit}"));
            }
        }
    }
    canvas.finish(&format!("Latency against load, in {load_unit}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Vec<Curve> {
        vec![Curve { name: "full".to_owned(), series: 0, points: points.to_vec() }]
    }

    fn four_quantiles() -> Vec<Curve> {
        curve(&[(0.0, 1.0), (0.5, 2.0), (0.9, 10.0), (0.99, 100.0)])
    }

    #[test]
    fn percentiles_snapshot() {
        insta::assert_snapshot!(percentiles(&four_quantiles()));
    }

    #[test]
    fn the_90th_percentile_is_halfway_to_the_99th() {
        let svg = percentiles(&four_quantiles());
        // From 1 to 100 along 30.4 ("100" takes 10 + 3 * 6.8) to 704 px: 10 is in the middle.
        let middle = f64::midpoint(30.4, 704.0);
        let tick =
            format!(r#"<text class="tick" x="{middle:.1}" y="285" text-anchor="middle">90</text>"#);
        assert!(svg.contains(&tick), "no {tick} in:\n{svg}");
        // And 10 ms are in the middle of 1 and 100 ms: 30 + 120 px down.
        assert!(svg.contains(&format!("L{middle:.1} 150")), "{svg}");
        assert!(svg.contains("<title>full: 99 % within 100 ms</title>"), "{svg}");
        assert!(!svg.contains("99.9"), "{svg}");
    }

    #[test]
    fn a_subject_without_responses_has_no_curve() {
        assert!(!percentiles(&curve(&[])).contains("<path"));
    }

    const EDGES: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];

    fn four_classes() -> [Distribution; 1] {
        let percent = vec![0.0, 25.0, 75.0, 0.0];
        [Distribution { name: "full".to_owned(), series: 0, percent }]
    }

    #[test]
    fn distribution_snapshot() {
        insta::assert_snapshot!(distribution(&EDGES, &four_classes()));
    }

    #[test]
    fn steps_are_as_high_as_their_shares() {
        let svg = distribution(&EDGES, &four_classes());
        // Shares to 80 % on 180 px from 210 up to 30, latencies on 23.6 to 704 px in four classes.
        let x = |class: f64| 23.6 + 680.4 * class / 4.0;
        let (a, b, c) = (x(1.0), x(2.0), x(3.0));
        let outline = format!(
            r#"d="M{a:.1} 210L{a:.1} 153.8L{b:.1} 153.8L{b:.1} 41.2L{c:.1} 41.2L{c:.1} 210""#
        );
        assert!(svg.contains(&outline), "no {outline} in:\n{svg}");
    }

    fn swept(points: &[(f64, f64)]) -> [SweepPanel; 1] {
        [SweepPanel { unit: "p50, ms", curves: curve(points) }]
    }

    const THREE_LOADS: [(f64, f64); 3] = [(10.0, 1.0), (100.0, 10.0), (1_000.0, 100.0)];

    #[test]
    fn sweep_snapshot() {
        insta::assert_snapshot!(sweep("connections", &swept(&THREE_LOADS)));
    }

    /// The extents of the labels below the axis, with letters as wide as a digit of the widest fallback font.
    fn labels(svg: &str) -> Vec<(f64, f64)> {
        let texts = svg.split("<text class=\"tick\" ").skip(1);
        let level = texts.filter(|text| text.contains("text-anchor=\"middle\""));
        let count = |text: &str| {
            let x: f64 = text.split('"').nth(1).unwrap().parse().unwrap();
            let label = text.split_once('>').unwrap().1.split('<').next().unwrap();
            let half = label.chars().count() as f64 * 7.63 / 2.0;
            (x - half, x + half)
        };
        level.map(count).collect()
    }

    #[test]
    fn labels_do_not_overlap_at_any_number_of_loads() {
        let steps: [fn(u32) -> f64; 4] = [
            |load| f64::from(load + 1),
            |load| 10_000.0 + 250.0 * f64::from(load),
            |load| 1.5_f64.powf(f64::from(load)).round(),
            |load| 0.25 * f64::from(load + 1),
        ];
        for (loads, step) in (3..=80).flat_map(|loads| steps.map(|step| (loads, step))) {
            let points: Vec<(f64, f64)> = (0..loads).map(|load| (step(load), 1.0)).collect();
            let mut labels = labels(&sweep("connections", &swept(&points)));
            labels.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(labels.windows(2).all(|two| two[0].1 < two[1].0), "{loads}: {labels:?}");
            assert!(labels.len() >= 2, "{loads} loads have {} labels", labels.len());
            let (first, last) = (labels[0].0, labels[labels.len() - 1].1);
            assert!(first >= 0.0 && last <= 720.0, "{first} to {last}");
        }
    }

    #[test]
    fn the_geometric_mean_is_in_the_middle() {
        let svg = sweep("connections", &swept(&THREE_LOADS));
        // "100" takes 30.4 px; 704 px on the right; 30 + 75 px down.
        let middle = f64::midpoint(30.4, 704.0);
        assert!(svg.contains(&format!("L{middle:.1} 105L")), "{svg}");
        assert!(svg.contains("<title>full: 10.0 ms at 100 connections</title>"), "{svg}");
        for load in [">10<", ">100<", ">1000<"] {
            assert!(svg.contains(load), "no {load} in:\n{svg}");
        }
    }
}

//! Latency by percentile on HdrHistogram's axis, where each step to the right is ten times rarer.

use super::axis::{self, Frame};
use super::canvas::{Canvas, Size};
use super::scale::{Scale, Tick};

/// One subject.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spectrum {
    /// Its name.
    pub(crate) name: String,
    /// Which color and mark it has.
    pub(crate) series: usize,
    /// Quantiles below 1, and the latency in milliseconds that they did not exceed.
    pub(crate) steps: Vec<(f64, f64)>,
}

/// Draws the latency of each subject against 1 / (1 - quantile).
pub(crate) fn draw(spectra: &[Spectrum], size: Size) -> String {
    let width = size.width();
    let steps = || spectra.iter().flat_map(|spectrum| &spectrum.steps);
    let rarest = steps().map(|(quantile, _)| rarity(*quantile)).fold(10.0, f64::max);
    let latency = Scale::log(steps().map(|(_, ms)| *ms));
    let latency_ticks = latency.ticks(LATENCY_TICKS);
    let bottom = axis::ABOVE + HEIGHT;
    let frame =
        Frame { left: axis::margin(&latency_ticks), right: width - 20.0, top: axis::ABOVE, bottom };
    let latency = latency.over(frame.bottom, frame.top);
    let share = Scale::exact_log(1.0, rarest).over(frame.left, frame.right);
    let mut canvas = Canvas::new(width, bottom + axis::BELOW);
    axis::upright(&mut canvas, &frame, &latency, &latency_ticks, "latency, ms");
    let ticks: Vec<Tick> = SHARES
        .iter()
        .map(|(quantile, label)| Tick { value: rarity(*quantile), label: (*label).to_owned() })
        .filter(|tick| share.holds(tick.value))
        .collect();
    axis::level(&mut canvas, &frame, &share, &ticks, "share of the answers, %");
    for spectrum in spectra {
        let place = |(quantile, ms): &(f64, f64)| (share.at(rarity(*quantile)), latency.at(*ms));
        let points: Vec<_> = spectrum.steps.iter().map(place).collect();
        canvas.curve("curve", spectrum.series, &points);
        for (quantile, label) in SHARES {
            // A little less, because a quantile that was halved its way there is not quite its name.
            let step = spectrum.steps.iter().find(|step| step.0 >= quantile - 1e-9);
            if let Some(step) = step {
                let ms = tollgate_stats::number::significant(step.1);
                let hint = format!("{}: {label} % within {ms} ms", spectrum.name);
                canvas.mark("", spectrum.series, place(step), &hint);
            }
        }
    }
    canvas.finish(&label(spectra))
}

const HEIGHT: f64 = 240.0;
const LATENCY_TICKS: usize = 8;

/// The shares that have a tick.
const SHARES: [(f64, &str); 7] = [
    (0.0, "0"),
    (0.5, "50"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
    (0.99999, "99.999"),
];

/// One of how many answers lies beyond a quantile.
fn rarity(quantile: f64) -> f64 {
    1.0 / (1.0 - quantile)
}

fn label(spectra: &[Spectrum]) -> String {
    let names: Vec<&str> = spectra.iter().map(|spectrum| spectrum.name.as_str()).collect();
    format!("Latency by percentile of {}; the table below has the figures.", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spectra() -> Vec<Spectrum> {
        let steps = vec![(0.0, 1.0), (0.5, 2.0), (0.9, 10.0), (0.99, 100.0)];
        vec![Spectrum { name: "full".to_owned(), series: 0, steps }]
    }

    #[test]
    fn wide() {
        insta::assert_snapshot!(draw(&spectra(), Size::Wide));
    }

    #[test]
    fn nine_in_ten_are_half_the_way_to_ninety_nine_in_a_hundred() {
        let svg = draw(&spectra(), Size::Narrow);
        // From 1 to 100 along 44 to 320 px ("100" takes 10 + 3 * 6.8 = 30.4 px): 10 is in the middle.
        let middle = f64::midpoint(30.4, 320.0);
        let tick =
            format!(r#"<text class="tick" x="{middle:.1}" y="285" text-anchor="middle">90</text>"#);
        assert!(svg.contains(&tick), "no {tick} in:\n{svg}");
        // And 10 ms are half the way from 1 to 100 ms: 30 + 120 px down.
        assert!(svg.contains(&format!("L{middle:.1} 150")), "{svg}");
        assert!(svg.contains("<title>full: 99 % within 100 ms</title>"), "{svg}");
        assert!(!svg.contains("99.9"), "{svg}");
    }

    #[test]
    fn a_subject_without_answers_has_no_curve() {
        let none = [Spectrum { name: "none".to_owned(), series: 0, steps: vec![] }];
        assert!(!draw(&none, Size::Wide).contains("<path"));
    }
}

//! Figures of each trial over the time of the run, in panels on one axis of time.

use super::axis::{self, Frame};
use super::canvas::{Canvas, Size};
use super::scale::{Scale, Tick};

/// A figure of one trial.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moment {
    /// From the begin of the run to that of the trial, in seconds.
    pub(crate) at_s: f64,
    /// The figure, in the unit of its panel.
    pub(crate) value: f64,
    /// The subject's color and mark.
    pub(crate) series: usize,
    /// Whether the trial counts.
    pub(crate) valid: bool,
    /// The figure in words.
    pub(crate) hint: String,
}

/// One figure of all trials.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    /// What it is, with its unit.
    pub(crate) unit: &'static str,
    /// Whether ratios matter, and not differences from zero.
    pub(crate) ratios: bool,
    /// Above which value a trial does not count.
    pub(crate) limit: Option<f64>,
    /// The trials.
    pub(crate) moments: Vec<Moment>,
}

/// A trial that does not count.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Flaw {
    /// When it began and ended, in seconds from the begin of the run.
    pub(crate) span_s: (f64, f64),
    /// Which one, and why.
    pub(crate) hint: String,
}

/// A time without trials that is cut out: the run was stopped, and taken up later.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pause {
    /// Where it would be.
    pub(crate) at_s: f64,
    /// How long it was, in words.
    pub(crate) hint: String,
}

/// Draws the panels below each other, with a stripe through all of them for each trial that does
/// not count, and a line for each pause.
pub(crate) fn draw(
    panels: &[Panel],
    flaws: &[Flaw],
    pauses: &[Pause],
    length_s: f64,
    size: Size,
) -> String {
    let width = size.width();
    let (divisor, unit) = match length_s > 300.0 {
        true => (60.0, "minutes from the begin of the run"),
        false => (1.0, "seconds from the begin of the run"),
    };
    let scales: Vec<(Scale, Vec<Tick>)> = panels.iter().map(values).collect();
    let margins = scales.iter().map(|(_, ticks)| axis::margin(ticks));
    let left = margins.fold(0.0, f64::max);
    let right = width - 12.0;
    let time = Scale::exact(0.0, length_s / divisor).over(left, right);
    let x = |at_s: f64| time.at(at_s / divisor);
    let ticks = time.ticks(size.ticks());
    let height: f64 = panels.iter().map(|panel| axis::ABOVE + tall(panel)).sum();
    let mut canvas = Canvas::new(width, height + axis::BELOW);
    for flaw in flaws {
        // A trial of a long run is shorter than a pixel, and its stripe is not.
        let (from, to) = (x(flaw.span_s.0), x(flaw.span_s.1));
        let corners = ((from - 1.0, axis::ABOVE), (to.max(from + 1.0), height));
        canvas.rect("flaw", corners.0, corners.1, Some(&flaw.hint));
    }
    for pause in pauses {
        let x = x(pause.at_s);
        canvas.rect("pause", (x - 1.0, axis::ABOVE), (x + 1.0, height), Some(&pause.hint));
    }
    let mut top = axis::ABOVE;
    for (index, (panel, (scale, value_ticks))) in panels.iter().zip(scales).enumerate() {
        let frame = Frame { left, right, top, bottom: top + tall(panel) };
        let scale = scale.over(frame.bottom, frame.top);
        axis::upright(&mut canvas, &frame, &scale, &value_ticks, panel.unit);
        match index + 1 == panels.len() {
            true => axis::level(&mut canvas, &frame, &time, &ticks, unit),
            false => axis::grid(&mut canvas, &frame, &time, &ticks),
        }
        if let Some(limit) = panel.limit.filter(|limit| scale.holds(*limit)) {
            canvas.line("limit", (left, scale.at(limit)), (right, scale.at(limit)));
        }
        for moment in &panel.moments {
            let class = if moment.valid { "" } else { "hollow" };
            let at = (x(moment.at_s), scale.at(moment.value));
            canvas.mark(class, moment.series, at, &moment.hint);
        }
        top = frame.bottom + axis::ABOVE;
    }
    let units: Vec<&str> = panels.iter().map(|panel| panel.unit).collect();
    canvas.finish(&format!(
        "Over the time of the run: {}. {} that do not count are marked.",
        units.join("; "),
        crate::report::rows::counted(flaws.len(), "trial")
    ))
}

fn tall(panel: &Panel) -> f64 {
    if panel.ratios { 110.0 } else { 56.0 }
}

/// The scale of a panel, and as many ticks as it has room for.
fn values(panel: &Panel) -> (Scale, Vec<Tick>) {
    let values = panel.moments.iter().map(|moment| moment.value);
    let (scale, about) = match panel.ratios {
        true => (Scale::log(values), 4),
        false => (Scale::linear(values.chain([0.0]), 2), 2),
    };
    (scale, scale.ticks(about))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panels() -> Vec<Panel> {
        let moment = |at_s, value, valid| Moment {
            at_s,
            value,
            series: 1,
            valid,
            hint: format!("{value} at {at_s} s"),
        };
        vec![
            Panel {
                unit: "answers/s",
                ratios: true,
                limit: None,
                moments: vec![moment(0.0, 10.0, true), moment(50.0, 1_000.0, false)],
            },
            Panel {
                unit: "steal, %",
                ratios: false,
                limit: Some(5.0),
                moments: vec![moment(0.0, 0.0, true), moment(50.0, 8.0, false)],
            },
        ]
    }

    fn flaws() -> Vec<Flaw> {
        vec![Flaw { span_s: (50.0, 60.0), hint: "block 2: steal".to_owned() }]
    }

    #[test]
    fn wide() {
        insta::assert_snapshot!(draw(&panels(), &flaws(), &[], 100.0, Size::Wide));
    }

    #[test]
    fn half_the_time_is_half_the_width() {
        let svg = draw(&panels(), &flaws(), &[], 100.0, Size::Narrow);
        // "1,000" takes no comma below five digits: 10 + 4 * 6.8 = 37.2 px, and 328 px on the right.
        let middle = f64::midpoint(37.2, 328.0);
        let stripe = format!(r#"<rect class="flaw" x="{:.1}" y="30""#, middle - 1.0);
        assert!(svg.contains(&stripe), "no {stripe} in:\n{svg}");
        // 8 % on two steps of 5 go up to 10; 5 of those on 56 px that end at 30 + 110 + 30 + 56 = 226.
        assert!(svg.contains(r#"<line class="limit" x1="37.2" y1="198""#), "{svg}");
        assert_eq!(svg.matches("hollow").count(), 2, "{svg}");
    }

    #[test]
    fn long_runs_are_told_in_minutes() {
        assert!(draw(&panels(), &[], &[], 301.0, Size::Wide).contains("minutes from the begin"));
        assert!(draw(&panels(), &[], &[], 300.0, Size::Wide).contains("seconds from the begin"));
    }

    #[test]
    fn a_pause_is_a_line_through_all_panels() {
        let pause = Pause { at_s: 50.0, hint: "a pause of 3 hours".to_owned() };
        let svg = draw(&panels(), &[], &[pause], 100.0, Size::Narrow);
        let middle = f64::midpoint(37.2, 328.0);
        let line = format!(r#"<rect class="pause" x="{:.1}" y="30" width="2""#, middle - 1.0);
        assert!(svg.contains(&line), "no {line} in:\n{svg}");
        assert!(svg.contains("<title>a pause of 3 hours</title>"), "{svg}");
    }
}

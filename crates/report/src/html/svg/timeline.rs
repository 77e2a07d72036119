//! Figures of each trial over the time of the run, in panels on one axis of time.

use super::axis::{self, Frame};
use super::canvas::{Canvas, Size};
use super::scale::{Scale, Tick};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moment {
    /// Start of the trial since the start of the run, in seconds.
    pub(crate) at_s: f64,
    /// The figure, in the unit of its panel; none where the trial has nothing to show but that it was:
    /// then its mark stands on the axis.
    pub(crate) value: Option<f64>,
    /// Index of the subject's color and mark.
    pub(crate) series: usize,
    pub(crate) valid: bool,
    pub(crate) hint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    /// Name with unit.
    pub(crate) unit: &'static str,
    /// True for a logarithmic scale.
    pub(crate) ratios: bool,
    /// The limit above which a trial is invalid.
    pub(crate) limit: Option<f64>,
    pub(crate) moments: Vec<Moment>,
}

/// An invalid trial.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Flaw {
    /// Start and end in seconds since the start of the run.
    pub(crate) span_s: (f64, f64),
    pub(crate) hint: String,
}

/// A pause between the stop and the resumption of a run, omitted from the axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pause {
    pub(crate) at_s: f64,
    pub(crate) hint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    pub(crate) panels: Vec<Panel>,
    pub(crate) flaws: Vec<Flaw>,
    pub(crate) pauses: Vec<Pause>,
    /// Start and end in seconds since the start of the run.
    pub(crate) span_s: (f64, f64),
}

/// Draws the panels below each other, with a stripe through all of them for each invalid trial
/// and a line for each pause.
pub(crate) fn draw(timeline: &Timeline, size: Size) -> String {
    let Timeline { panels, flaws, pauses, span_s } = timeline;
    let width = size.width();
    let (divisor, unit) = match span_s.1 > 300.0 {
        true => (60.0, "minutes from the begin of the run"),
        false => (1.0, "seconds from the begin of the run"),
    };
    let scales: Vec<(Scale, Vec<Tick>)> = panels.iter().map(values).collect();
    let margins = scales.iter().map(|(_, ticks)| axis::margin(ticks));
    let left = margins.fold(0.0, f64::max);
    let right = width - 12.0;
    let time = Scale::exact(span_s.0 / divisor, span_s.1 / divisor).over(left, right);
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
            let y = moment.value.map_or(frame.bottom, |value| scale.at(value));
            let at = (x(moment.at_s), y);
            canvas.mark(class, moment.series, at, &moment.hint);
        }
        top = frame.bottom + axis::ABOVE;
    }
    let units: Vec<&str> = panels.iter().map(|panel| panel.unit).collect();
    canvas.finish(&format!(
        "Over the time of the run: {}. Marked: {}.",
        units.join("; "),
        tollgate_stats::number::counted(flaws.len(), "invalid trial")
    ))
}

fn tall(panel: &Panel) -> f64 {
    if panel.ratios { 110.0 } else { 56.0 }
}

/// The scale of a panel, and as many ticks as it has room for.
fn values(panel: &Panel) -> (Scale, Vec<Tick>) {
    let values = panel.moments.iter().filter_map(|moment| moment.value);
    let (scale, about) = match panel.ratios {
        true => (Scale::log(values), 4),
        false => (Scale::linear(values.chain([0.0]), 2), 2),
    };
    // Without values, an axis would be misleading.
    let has_value = panel.moments.iter().any(|moment| moment.value.is_some());
    (scale, if has_value { scale.ticks(about) } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(pauses: Vec<Pause>, end_s: f64) -> Timeline {
        Timeline { panels: panels(), flaws: flaws(), pauses, span_s: (0.0, end_s) }
    }

    fn panels() -> Vec<Panel> {
        let moment = |at_s, value, valid| Moment {
            at_s,
            value: Some(value),
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
        insta::assert_snapshot!(draw(&timeline(vec![], 100.0), Size::Wide));
    }

    #[test]
    fn half_the_time_is_half_the_width() {
        let svg = draw(&timeline(vec![], 100.0), Size::Narrow);
        // "1,000" takes no comma below five digits: 10 + 4 * 6.8 = 37.2 px, and 328 px on the right.
        let middle = f64::midpoint(37.2, 328.0);
        let stripe = format!(r#"<rect class="flaw" x="{:.1}" y="30""#, middle - 1.0);
        assert!(svg.contains(&stripe), "no {stripe} in:\n{svg}");
        // 8 % on two steps of 5 go up to 10; 5 of those on 56 px that end at 30 + 110 + 30 + 56 = 226.
        assert!(svg.contains(r#"<line class="limit" x1="37.2" y1="198""#), "{svg}");
        assert_eq!(svg.matches("hollow").count(), 2, "{svg}");
    }

    #[test]
    fn a_part_of_a_run_begins_where_it_begins() {
        let part = Timeline { span_s: (50.0, 150.0), ..timeline(vec![], 0.0) };
        let svg = draw(&part, Size::Narrow);
        // What happened at 50 s is on the left, and 100 s are in the middle.
        assert!(svg.contains(r#"<rect class="flaw" x="36.2" y="30""#), "{svg}");
        let middle = f64::midpoint(37.2, 328.0);
        let tick =
            format!(r#"<text class="tick" x="{middle:.1}" y="241" text-anchor="middle">100<"#);
        assert!(svg.contains(&tick), "no {tick} in:\n{svg}");
    }

    #[test]
    fn a_trial_without_a_value_has_its_mark_on_the_axis() {
        let mut timeline = timeline(vec![], 100.0);
        timeline.panels[0].moments[1].value = None;
        let svg = draw(&timeline, Size::Narrow);
        // A square whose corner is 3.5 px from the end of a panel that goes from 30 to 140.
        let x = f64::midpoint(left(&svg), 328.0) - 3.5;
        let mark = format!(r#"<path class="mark hollow s1" d="M{x:.1} 136.5"#);
        assert!(svg.contains(&mark), "no {mark} in:\n{svg}");
        timeline.panels[0].moments[0].value = None;
        let unit = |svg: &str| svg.split(">answers/s<").next().unwrap().matches("\"tick\"").count();
        assert_eq!(unit(&draw(&timeline, Size::Narrow)), 0, "an axis of nothing");
        assert!(unit(&svg) > 0);
    }

    /// Where the panels begin.
    fn left(svg: &str) -> f64 {
        let line = svg.split(r#"<line class="grid" x1=""#).nth(1).unwrap();
        line.split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn long_runs_are_in_minutes() {
        assert!(draw(&timeline(vec![], 301.0), Size::Wide).contains("minutes from the begin"));
        assert!(draw(&timeline(vec![], 300.0), Size::Wide).contains("seconds from the begin"));
    }

    #[test]
    fn a_pause_is_a_line_through_all_panels() {
        let pause = Pause { at_s: 50.0, hint: "a pause of 3 hours".to_owned() };
        let svg = draw(&timeline(vec![pause], 100.0), Size::Narrow);
        let middle = f64::midpoint(37.2, 328.0);
        let line = format!(r#"<rect class="pause" x="{:.1}" y="30" width="2""#, middle - 1.0);
        assert!(svg.contains(&line), "no {line} in:\n{svg}");
        assert!(svg.contains("<title>a pause of 3 hours</title>"), "{svg}");
    }
}

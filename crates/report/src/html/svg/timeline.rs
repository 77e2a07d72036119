//! Figures of each trial over the time of the run, in panels on one axis of time.

use super::scale::Scale;
use super::{Chart, PanelAxis, TICKS};
use tollgate_stats::number::counted;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trial {
    /// Start of the trial since the start of the run, in seconds.
    pub(crate) start_s: f64,
    /// The figure in the unit of its panel. Without one, the mark is on the axis.
    pub(crate) value: Option<f64>,
    /// Index of the subject's color and mark.
    pub(crate) series: usize,
    pub(crate) valid: bool,
    pub(crate) hint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimelinePanel {
    /// Name with unit.
    pub(crate) unit: &'static str,
    pub(crate) is_logarithmic: bool,
    /// The limit above which a trial is invalid.
    pub(crate) limit: Option<f64>,
    pub(crate) trials: Vec<Trial>,
}

/// An invalid trial, or a pause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stripe {
    /// Start and end in seconds since the start of the run.
    pub(crate) span_s: (f64, f64),
    pub(crate) hint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    pub(crate) panels: Vec<TimelinePanel>,
    pub(crate) invalid: Vec<Stripe>,
    /// Pauses between a stop and the resumption of the run. The axis omits them, so they end where they start.
    pub(crate) pauses: Vec<Stripe>,
    pub(crate) length_s: f64,
}

/// Draws the panels, with a stripe through all of them for each invalid trial and a line for each pause.
pub(crate) fn timeline(timeline: &Timeline) -> String {
    let Timeline { panels, invalid, pauses, length_s } = timeline;
    let (divisor, unit) = if *length_s > 300.0 {
        (60.0, "minutes from the start of the run")
    } else {
        (1.0, "seconds from the start of the run")
    };
    let axes: Vec<PanelAxis> = panels.iter().map(panel_axis).collect();
    let time = Scale::exact(0.0, length_s / divisor);
    let chart = Chart::new(&axes, time, &time.ticks(TICKS), unit);
    let Chart { mut canvas, along, panels: places } = chart;
    let x = |at_s: f64| along.at(at_s / divisor);
    let top = places.first().map_or(0.0, |panel| panel.frame.top);
    let bottom = places.last().map_or(0.0, |panel| panel.frame.bottom);
    let invalid_stripes = invalid.iter().map(|stripe| ("invalid", stripe));
    for (class, Stripe { span_s: (from_s, to_s), hint }) in
        invalid_stripes.chain(pauses.iter().map(|stripe| ("pause", stripe)))
    {
        // At least two pixels: a trial of a long run is shorter than one.
        let (from, to) = (x(*from_s), x(*to_s));
        canvas.rect(class, (from - 1.0, top), (to.max(from + 1.0), bottom), Some(hint));
    }
    for (panel, place) in panels.iter().zip(&places) {
        let (frame, scale) = (&place.frame, &place.scale);
        if let Some(limit) = panel.limit.filter(|limit| scale.contains(*limit)) {
            let y = scale.at(limit);
            canvas.line("limit", (frame.left, y), (frame.right, y));
        }
        for trial in &panel.trials {
            let class = if trial.valid { "" } else { "hollow" };
            let y = trial.value.map_or(frame.bottom, |value| scale.at(value));
            canvas.mark(class, trial.series, (x(trial.start_s), y), &trial.hint);
        }
    }
    let units: Vec<&str> = panels.iter().map(|panel| panel.unit).collect();
    canvas.finish(&format!(
        "Over the time of the run: {}. Marked: {}.",
        units.join("; "),
        counted(invalid.len(), "invalid trial")
    ))
}

fn panel_axis(panel: &TimelinePanel) -> PanelAxis {
    let values = || panel.trials.iter().filter_map(|trial| trial.value);
    let (scale, about, height) = if panel.is_logarithmic {
        (Scale::log(values()), 4, 110.0)
    } else {
        (Scale::linear(values().chain([0.0]), 2), 2, 56.0)
    };
    // Without values, labels would be misleading.
    let ticks = values().next().map_or(Vec::new(), |_| scale.ticks(about));
    PanelAxis { scale, ticks, unit: panel.unit.to_owned(), height }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_panels(length_s: f64) -> Timeline {
        let trial = |start_s, value, valid| Trial {
            start_s,
            value: Some(value),
            series: 1,
            valid,
            hint: format!("{value} at {start_s} s"),
        };
        let throughput = TimelinePanel {
            unit: "requests/s",
            is_logarithmic: true,
            limit: None,
            trials: vec![trial(0.0, 10.0, true), trial(50.0, 1_000.0, false)],
        };
        let steal = TimelinePanel {
            unit: "steal, %",
            is_logarithmic: false,
            limit: Some(5.0),
            trials: vec![trial(0.0, 0.0, true), trial(50.0, 8.0, false)],
        };
        let stripe = Stripe { span_s: (50.0, 60.0), hint: "block 2: steal".to_owned() };
        let panels = vec![throughput, steal];
        Timeline { panels, invalid: vec![stripe], pauses: vec![], length_s }
    }

    /// "1000" takes 10 + 4 * 6.8 = 37.2 px, and the panels end at 704 px.
    const LEFT: f64 = 37.2;
    const MIDDLE: f64 = f64::midpoint(LEFT, 704.0);

    #[test]
    fn timeline_snapshot() {
        insta::assert_snapshot!(timeline(&two_panels(100.0)));
    }

    #[test]
    fn half_the_time_is_half_the_width() {
        let svg = timeline(&two_panels(100.0));
        let stripe = format!(r#"<rect class="invalid" x="{:.1}" y="30""#, MIDDLE - 1.0);
        assert!(svg.contains(&stripe), "no {stripe} in:\n{svg}");
        // 8 % on two steps of 5 go up to 10; 5 of those on 56 px that end at 30 + 110 + 30 + 56 = 226.
        assert!(svg.contains(r#"<line class="limit" x1="37.2" y1="198""#), "{svg}");
        assert_eq!(svg.matches("hollow").count(), 2, "{svg}");
    }

    #[test]
    fn a_trial_without_a_value_has_its_mark_on_the_axis() {
        let mut data = two_panels(100.0);
        data.panels[0].trials[1].value = None;
        let svg = timeline(&data);
        // A square whose corner is 3.5 px from the end of a panel that goes from 30 to 140. The label "10" is narrower.
        let left: f64 = svg
            .split(r#"<line class="grid" x1=""#)
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let mark = format!(
            r#"<path class="mark hollow s1" d="M{:.1} 136.5"#,
            f64::midpoint(left, 704.0) - 3.5
        );
        assert!(svg.contains(&mark), "no {mark} in:\n{svg}");
        data.panels[0].trials[0].value = None;
        let labels =
            |svg: &str| svg.split(">requests/s<").next().unwrap().matches("\"tick\"").count();
        assert_eq!(labels(&timeline(&data)), 0, "labels of an axis without values");
        assert!(labels(&svg) > 0);
    }

    #[test]
    fn long_runs_are_in_minutes() {
        assert!(timeline(&two_panels(301.0)).contains("minutes from the start"));
        assert!(timeline(&two_panels(300.0)).contains("seconds from the start"));
    }

    #[test]
    fn a_pause_is_a_line_through_all_panels() {
        let mut data = two_panels(100.0);
        let hint = "a pause of 3 hours".to_owned();
        data.pauses = vec![Stripe { span_s: (50.0, 50.0), hint }];
        let svg = timeline(&data);
        let line =
            format!(r#"<rect class="pause" x="{:.1}" y="30" width="2" height="196""#, MIDDLE - 1.0);
        assert!(svg.contains(&line), "no {line} in:\n{svg}");
        assert!(svg.contains("<title>a pause of 3 hours</title>"), "{svg}");
    }
}

//! The page of a single load.

use super::plots::{Figure, Latencies, curve, distributions, percentiles_table, shares_table};
use super::svg::{self, Curve, SeriesPanel};
use super::{Page, PageBlock, PageSection, STYLE, page_of};
use crate::document::{
    Badge, Block, Cell, Document, File, Footer, Media, Row, Section, Sentence, Table, capitalized,
};
use anyhow::Context;
use std::time::Duration;
use tollgate_load::{Interval, LoadVerdict, Measured, Rate, Report};
use tollgate_records::trial::as_f64;
use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{count, in_full, percent, significant};
use tollgate_traffic::load_shape::Protocol;

/// Limit of the points of a curve. Beyond it, neighbours are merged.
const POINTS_MAX: usize = 600;

/// The intervals of a load, merged so far that they fit a page. Memory does not grow with the load.
#[derive(Debug)]
pub struct Timeline {
    rate: Option<Rate>,
    points: Vec<Point>,
    /// Intervals of a point.
    intervals_per_point: usize,
    /// Intervals of the last point.
    last_intervals: usize,
}

/// Figures of some intervals.
#[derive(Debug, Clone)]
struct Point {
    start: Duration,
    end: Duration,
    responses: u64,
    unexpected: u64,
    failed: u64,
    in_flight: u64,
    cpu: Duration,
    /// Encoded, which takes a hundredth of the memory.
    latency: String,
}

impl Timeline {
    /// `rate`: that of an open loop.
    pub fn new(rate: Option<&Rate>) -> Self {
        let points = Vec::new();
        Self { rate: rate.cloned(), points, intervals_per_point: 1, last_intervals: 0 }
    }

    /// Adds the next interval.
    pub fn add(&mut self, interval: &Interval) -> anyhow::Result<()> {
        let point = Point::new(interval)?;
        match self.points.last_mut() {
            Some(last) if self.last_intervals < self.intervals_per_point => last.append(&point)?,
            _ => {
                if self.points.len() == POINTS_MAX {
                    self.halve()?;
                }
                self.points.push(point);
                self.last_intervals = 0;
            }
        }
        self.last_intervals += 1;
        Ok(())
    }

    fn halve(&mut self) -> anyhow::Result<()> {
        let points = std::mem::take(&mut self.points);
        for pair in points.chunks(2) {
            let mut sum = pair[0].clone();
            pair[1..].iter().try_for_each(|next| sum.append(next))?;
            self.points.push(sum);
        }
        self.intervals_per_point *= 2;
        Ok(())
    }

    /// The points of the plots. The last interval ends with the measurement, a little after its planned end; if it is much
    /// shorter than the others, its rates say nothing.
    fn drawn(&self) -> &[Point] {
        match &self.points[..] {
            [first, .., last] if last.length_s() < first.length_s() / 10.0 => {
                &self.points[..self.points.len() - 1]
            }
            all => all,
        }
    }

    fn length_s(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.end.as_secs_f64())
    }
}

impl Point {
    fn new(interval: &Interval) -> anyhow::Result<Self> {
        Ok(Self {
            start: interval.start,
            end: interval.end,
            responses: interval.responses,
            unexpected: interval.unexpected,
            failed: interval.failures.total(),
            in_flight: interval.in_flight,
            cpu: interval.cpu,
            latency: interval.latency.to_v2_base64()?,
        })
    }

    /// Adds the point that follows.
    fn append(&mut self, next: &Self) -> anyhow::Result<()> {
        self.end = next.end;
        self.responses += next.responses;
        self.unexpected += next.unexpected;
        self.failed += next.failed;
        self.in_flight = next.in_flight;
        self.cpu += next.cpu;
        let mut latency = self.histogram()?;
        latency.merge(&next.histogram()?);
        self.latency = latency.to_v2_base64()?;
        Ok(())
    }

    fn histogram(&self) -> anyhow::Result<LatencyHistogram> {
        Ok(LatencyHistogram::from_v2_base64(&self.latency)?)
    }

    fn length_s(&self) -> f64 {
        (self.end - self.start).as_secs_f64()
    }

    fn middle_s(&self) -> f64 {
        f64::midpoint(self.start.as_secs_f64(), self.end.as_secs_f64())
    }
}

/// Renders the result of a load and its figures over time. `command` repeats it.
pub fn render(report: &Report<'_>, timeline: &Timeline, command: String) -> anyhow::Result<String> {
    let summary = report.summary;
    let verdict = LoadVerdict::new(report.plan, summary);
    let reason = verdict.warning.iter().chain([&verdict.reason]).cloned().collect::<Vec<_>>();
    let document = Document {
        title: format!("Load of {}", report.url),
        headline: vec![Sentence { case: None, text: headline(report) }],
        status: Some((badge(&verdict), format!(" {}.", capitalized(&reason.join(". "))))),
        sections: vec![
            result(report)?,
            Section::new("latency", "Latency", String::new()),
            time(timeline),
            templates(report),
        ],
        footer: Some(Footer {
            made_by: format!("Made by tollgate {}.", env!("CARGO_PKG_VERSION")),
            command,
        }),
    };
    let figures = [Vec::new(), latency(report), over_time(timeline)?, Vec::new()];
    let mut sections = Vec::new();
    for (section, figures) in document.sections.iter().zip(figures) {
        let mut blocks: Vec<PageBlock<'_>> =
            section.blocks(&[Media::Page, Media::Paper]).map(PageBlock::Block).collect();
        if !figures.is_empty() {
            blocks.insert(0, PageBlock::Plots { kind: "figures", data: figures });
        }
        if !blocks.is_empty() {
            sections.push(PageSection { section, line: capitalized(&section.line), blocks });
        }
    }
    page_of(include_str!("page.html.j2"), &Page { style: STYLE, document: &document, sections })
}

fn headline(report: &Report<'_>) -> String {
    let summary = report.summary;
    let Some(throughput) = summary.throughput_per_s() else {
        return "The measurement did not start.".to_owned();
    };
    let latency = &summary.latency;
    let quantile = |name, q| {
        let ns = latency.quantile_ns(q)?;
        Some(format!("{name} {} ms", significant(as_f64(ns) / 1e6)))
    };
    let quantiles = [("median", 0.5), ("p99", 0.99)].into_iter();
    let quantiles: Vec<String> = quantiles.filter_map(|(name, q)| quantile(name, q)).collect();
    let unit = if report.plan.clients.protocol == Protocol::Handshakes {
        "handshakes"
    } else {
        "responses"
    };
    let mut text = format!("{} {unit} per second", significant(throughput));
    if !quantiles.is_empty() {
        text += &format!("; latency: {}", quantiles.join(", "));
    }
    let wrong = summary.failures.total() + summary.unexpected;
    if wrong > 0 {
        text += &format!("; {} requests without the expected response", count(wrong));
    }
    text + "."
}

fn badge(verdict: &LoadVerdict) -> Badge {
    let (words, color) = match (verdict.measured, &verdict.warning) {
        (Measured::Nothing, _) => ("not judged", "bad"),
        (_, Some(_)) => ("check the responses", "bad"),
        (Measured::Server, None) => ("limited by the server or the rate", "good"),
        (Measured::Generator, None) => ("limited by the generator", "warn"),
        (Measured::Connections, None) => ("limited by the connections", "warn"),
    };
    Badge { words, color }
}

/// Counts of the measurement, and the whole result as text.
fn result(report: &Report<'_>) -> anyhow::Result<Section> {
    let summary = report.summary;
    let mut section = Section::new("result", "Result", String::new());
    let completed = if report.plan.clients.protocol == Protocol::Handshakes {
        "Handshakes"
    } else {
        "Responses"
    };
    let mut figures = vec![
        ("Length".to_owned(), format!("{} s", significant(summary.window.as_secs_f64()))),
        (completed.to_owned(), count(summary.responses)),
        ("Unexpected".to_owned(), count(summary.unexpected)),
        ("Failed".to_owned(), count(summary.failures.total())),
    ];
    let kinds = summary.failures.by_kind().into_iter().filter(|(_, failed)| *failed > 0);
    figures
        .extend(kinds.map(|(kind, failed)| (capitalized(&kind.replace('_', " ")), count(failed))));
    figures.push(("In flight at the end".to_owned(), count(summary.in_flight)));
    if report.plan.rate().is_some() {
        figures.push(("Due, but not sent".to_owned(), count(summary.unsent)));
    }
    if let Some(replay) = &summary.replay {
        figures.extend([
            ("Recorded requests".to_owned(), count(replay.planned)),
            ("Sent".to_owned(), count(summary.sent)),
            ("Sessions".to_owned(), count(replay.sessions)),
            ("Cookies from responses".to_owned(), count(replay.cookies)),
            ("Values from responses".to_owned(), count(replay.extractions)),
            ("Failed extractions".to_owned(), count(replay.failed_extractions)),
        ]);
    }
    let busiest = summary.threads.iter().map(tollgate_load::ThreadUsage::busy).fold(0.0, f64::max);
    figures.push(("Busiest thread of the generator".to_owned(), percent(busiest)));
    section.push(Media::All, Block::Definitions(figures));
    let text = report.to_table().context("cannot format the result")?;
    let file = File { name: "The result as text".to_owned(), text, left_out: 0 };
    section.push(Media::All, Block::Files("Everything".to_owned(), vec![file], 0));
    Ok(section)
}

/// Latency by percentile and its distribution; in an open loop also from the send.
fn latency(report: &Report<'_>) -> Vec<Figure> {
    let summary = report.summary;
    let all = [
        ("latency", Some(&summary.latency)),
        ("from the send", summary.uncorrected_latency.as_ref()),
    ];
    let latencies: Vec<Latencies<'_>> = all
        .into_iter()
        .filter_map(|(name, histogram)| Some((name, histogram?)))
        .filter(|(_, histogram)| histogram.count() > 0)
        .enumerate()
        .map(|(series, (name, histogram))| Latencies { name, series, histogram: histogram.clone() })
        .collect();
    let Some((edges, data)) = distributions(&latencies) else { return Vec::new() };
    let curves: Vec<Curve> = latencies.iter().map(curve).collect();
    let legend: Vec<(usize, String)> =
        latencies.iter().map(|one| (one.series, one.name.to_owned())).collect();
    let figure = |name, svg, table: Table| Figure {
        name,
        svg,
        table: Some(table),
        legend: if legend.len() > 1 { legend.clone() } else { Vec::new() },
        ..Figure::default()
    };
    vec![
        figure("load-percentiles", svg::percentiles(&curves), percentiles_table(&latencies)),
        figure("load-distribution", svg::distribution(&edges, &data), shares_table(&edges, &data)),
    ]
}

fn time(timeline: &Timeline) -> Section {
    let line = match timeline.points.first() {
        Some(point) => {
            let seconds = significant(point.length_s());
            format!("intervals of {seconds} s; a request counts where it finished")
        }
        None => String::new(),
    };
    Section::new("time", "Over time", line)
}

/// A value of a point; `None` if the point lacks it.
type Value<'a> = Box<dyn Fn(&Point) -> Option<f64> + 'a>;

/// Curves of a value with a name, a color and a mark.
struct Line<'a> {
    name: &'static str,
    series: usize,
    value: Value<'a>,
}

/// Splits a value into curves without gaps.
fn curves(points: &[Point], Line { name, series, value }: &Line<'_>) -> Vec<Curve> {
    let places: Vec<Option<(f64, f64)>> =
        points.iter().map(|point| Some((point.middle_s(), value(point)?))).collect();
    let runs = places.split(Option::is_none).filter(|run| !run.is_empty());
    let curve = |run: &[Option<(f64, f64)>]| Curve {
        name: (*name).to_owned(),
        series: *series,
        points: run.iter().copied().flatten().collect(),
    };
    runs.map(curve).collect()
}

/// Throughput, errors, requests in flight and CPU; and quantiles of the latency.
fn over_time(timeline: &Timeline) -> anyhow::Result<Vec<Figure>> {
    let points = timeline.drawn();
    if points.is_empty() {
        return Ok(Vec::new());
    }
    let per_s = |number: fn(&Point) -> u64| -> Value<'_> {
        Box::new(move |point| {
            (point.length_s() > 0.0).then(|| as_f64(number(point)) / point.length_s())
        })
    };
    let line = |name, series, value| Line { name, series, value };
    let mut rates = vec![line("responses", 0, per_s(|point| point.responses))];
    if let Some(rate) = &timeline.rate {
        let scheduled = move |point: &Point| {
            let requests = rate.requests_until(point.end) - rate.requests_until(point.start);
            (point.length_s() > 0.0).then(|| requests / point.length_s())
        };
        rates.push(line("scheduled", 1, Box::new(scheduled)));
    }
    let errors = vec![
        line("failed", 2, per_s(|point| point.failed)),
        line("unexpected", 3, per_s(|point| point.unexpected)),
    ];
    let in_flight = line("in flight", 4, Box::new(|point| Some(as_f64(point.in_flight))));
    let cpu = |point: &Point| {
        (point.length_s() > 0.0).then(|| 100.0 * point.cpu.as_secs_f64() / point.length_s())
    };
    let has_errors = points.iter().any(|point| point.failed + point.unexpected > 0);
    let panels = [
        ("requests per second", rates),
        ("failed and unexpected, per second", if has_errors { errors } else { Vec::new() }),
        ("in flight at the end of the interval", vec![in_flight]),
        ("CPU of the generator, %", vec![line("CPU of the generator", 5, Box::new(cpu))]),
    ];
    let panels: Vec<(&str, Vec<Line<'_>>)> =
        panels.into_iter().filter(|(_, lines)| !lines.is_empty()).collect();
    let mut figures = vec![figure("load-rate", "Figures over time", timeline, &panels, false)];

    let mut quantiles: Vec<[Option<f64>; 4]> = Vec::new();
    for point in points {
        let histogram = point.histogram()?;
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| histogram.quantile_ns(q));
        quantiles.push([p50, p90, p99, histogram.max_ns()].map(|ns| ns.map(|ns| as_f64(ns) / 1e6)));
    }
    let starts: Vec<Duration> = points.iter().map(|point| point.start).collect();
    let (quantiles, starts) = (&quantiles, &starts);
    let names = ["p50", "p90", "p99", "maximum"];
    let lines = names.into_iter().enumerate().map(|(index, name)| {
        let value = move |point: &Point| {
            let place = starts.binary_search(&point.start).ok()?;
            quantiles[place][index]
        };
        Line { name, series: index, value: Box::new(value) }
    });
    let panels = [("latency, ms", lines.collect())];
    if quantiles.iter().flatten().any(Option::is_some) {
        figures.push(figure("load-latency", "Latency over time, ms", timeline, &panels, true));
    }
    Ok(figures)
}

fn figure(
    name: &'static str,
    caption: &str,
    timeline: &Timeline,
    panels: &[(&'static str, Vec<Line<'_>>)],
    is_logarithmic: bool,
) -> Figure {
    let points = timeline.drawn();
    let drawn: Vec<SeriesPanel> = panels
        .iter()
        .map(|(unit, lines)| SeriesPanel {
            unit,
            is_logarithmic,
            curves: lines.iter().flat_map(|line| curves(points, line)).collect(),
        })
        .collect();
    let lines = || panels.iter().flat_map(|(_, lines)| lines);
    let rows = points.iter().map(|point| {
        let cells = lines().map(|line| Cell::figure(line.name, (line.value)(point), significant));
        Row::named(None, in_full(point.start.as_secs_f64()), cells)
    });
    let columns = ["from, s"].into_iter().chain(lines().map(|line| line.name));
    Figure {
        name,
        svg: svg::series(&drawn, timeline.length_s()),
        legend: lines().map(|line| (line.series, line.name.to_owned())).collect(),
        table: Some(Table::of_rows(caption, columns, rows)),
        ..Figure::default()
    }
}

/// Responses to each template of a mix.
fn templates(report: &Report<'_>) -> Section {
    let mut section = Section::new("templates", "Templates", String::new());
    let summaries = report.templates.iter().zip(&report.summary.templates);
    let rows = summaries.filter(|_| report.mix.is_some()).map(|(label, template)| {
        let latency = &template.latency;
        let in_ms = |ns: Option<u64>| {
            Cell::figure("latency_ms", ns.map(|ns| as_f64(ns) / 1e6), significant)
        };
        let counts =
            [template.responses(), template.unexpected].map(|number| Cell::from(count(number)));
        let times =
            [latency.quantile_ns(0.5), latency.quantile_ns(0.99), latency.max_ns()].map(in_ms);
        let class = Cell::from(label.class.clone().unwrap_or_default());
        Row::named(None, label.name.clone(), [class].into_iter().chain(counts).chain(times))
    });
    let columns = ["template", "class", "responses", "unexpected", "p50, ms", "p99, ms", "max, ms"];
    section.table(Media::All, Table::of_rows("Responses to each template", columns, rows));
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(index: u64, responses: u64) -> Interval {
        let mut interval = Interval {
            start: Duration::from_millis(10 * index),
            end: Duration::from_millis(10 * index + 10),
            responses,
            in_flight: index,
            ..Interval::default()
        };
        interval.latency.record_n(1_000 * (index + 1), responses);
        interval
    }

    #[test]
    fn long_loads_have_a_limited_number_of_points_and_lose_nothing() {
        let mut timeline = Timeline::new(None);
        let count = 3 * POINTS_MAX as u64 + 1;
        for index in 0..count {
            timeline.add(&interval(index, index % 7)).unwrap();
        }
        let points = &timeline.points;
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 4, "{}", points.len());
        let responses: u64 = points.iter().map(|point| point.responses).sum();
        assert_eq!(responses, (0..count).map(|index| index % 7).sum::<u64>());
        let latencies = points.iter().map(|point| point.histogram().unwrap().count());
        assert_eq!(latencies.sum::<u64>(), responses);
        assert!(points.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(points[0].end, Duration::from_millis(40));
        assert_eq!(points[points.len() - 1].in_flight, count - 1);
    }

    #[test]
    fn curves_are_broken_where_there_is_no_figure() {
        let mut timeline = Timeline::new(None);
        for (index, responses) in [5, 0, 3, 4].into_iter().enumerate() {
            timeline.add(&interval(index as u64, responses)).unwrap();
        }
        let value = |point: &Point| (point.responses > 0).then(|| as_f64(point.responses));
        let line = Line { name: "responses", series: 2, value: Box::new(value) };
        let points: Vec<Vec<(f64, f64)>> =
            curves(&timeline.points, &line).into_iter().map(|curve| curve.points).collect();
        assert_eq!(points, [vec![(0.005, 5.0)], vec![(0.025, 3.0), (0.035, 4.0)]]);
    }

    #[test]
    fn a_very_short_last_interval_is_not_drawn() {
        let mut timeline = Timeline::new(None);
        timeline.add(&interval(0, 5)).unwrap();
        for (us, drawn) in [(999, 1), (1_000, 2)] {
            let end = Duration::from_millis(10) + Duration::from_micros(us);
            timeline.points.truncate(1);
            timeline.points.push(Point::new(&Interval { end, ..interval(1, 0) }).unwrap());
            assert_eq!(timeline.drawn().len(), drawn, "{us}");
        }
    }
}

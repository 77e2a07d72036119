//! A batch as one HTML file, whose links to the reports of rounds hold in the batch's directory.

use super::{Stats, table};
use crate::batch::BatchError;
use crate::batch::dir::round_name;
use crate::batch::findings::{Findings, Found};
use crate::batch::series::Point;
use crate::report::html::STYLE;
use crate::report::html::svg::history::{Cut, Stop, draw};
use crate::report::html::svg::{Size, Whisker};
use crate::report::number::significant;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

/// Writes a batch as a page.
pub(super) fn render(stats: &Stats) -> Result<String, BatchError> {
    let failed = |error: minijinja::Error| BatchError::Render(error.into());
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(failed)?);
    environment.add_template(TEMPLATE, include_str!("batch.html.j2")).map_err(failed)?;
    let template = environment.get_template(TEMPLATE).map_err(failed)?;
    template.render(Serde(Page::of(stats))).map_err(failed)
}

/// Named as HTML, so that all text is escaped.
const TEMPLATE: &str = "batch.html.j2";

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    title: &'a str,
    findings: Vec<String>,
    summary: String,
    wide: String,
    narrow: String,
    caption: String,
    anchor: &'a str,
    rows: Vec<Row<'a>>,
    checks: Vec<String>,
    command: &'a str,
    made_by: String,
}

#[derive(Serialize)]
struct Row<'a> {
    revision: &'a str,
    name: &'a str,
    price: Option<f64>,
    interval: String,
    cpu: String,
    rate: String,
    n: usize,
    state: &'static str,
    date: &'a str,
    log: &'a str,
    rounds: Vec<String>,
    why: &'a [String],
}

impl<'a> Page<'a> {
    fn of(stats: &'a Stats) -> Self {
        let anchor = stats.anchor.as_deref().unwrap_or("anchor");
        let unit = format!("{} × {anchor}", stats.figure);
        let stops: Vec<Stop> = stats.revisions.iter().map(stop).collect();
        let cuts = cuts(stats);
        let findings = stats.findings.as_ref();
        Self {
            style: STYLE,
            title: &stats.title,
            findings: findings.map_or(Vec::new(), Findings::paragraphs),
            summary: table::summary(stats),
            wide: draw(&unit, &stops, &cuts, Size::Wide),
            narrow: draw(&unit, &stops, &cuts, Size::Narrow),
            caption: format!(
                "{} over that of the anchor {anchor} in the same block, with the 95 % interval; in dashes \
                 what was seen in fewer than six blocks. Hollow: without a price. Lines are changes of the \
                 level; one without a word was not confirmed.",
                stats.figure
            ),
            anchor,
            rows: stats.revisions.iter().map(row).collect(),
            checks: table::checks(stats),
            command: &stats.command,
            made_by: format!("Made by tollgate {} on {}.", stats.tollgate, stats.started_at),
        }
    }
}

fn stop(point: &Point) -> Stop {
    let price = point.price.map(|price| Whisker {
        estimate: price.estimate,
        low: price.low,
        high: price.high,
        interval: price.interval,
    });
    let what = point.price.as_ref().map_or(point.state.word().to_owned(), table::interval);
    let hint = format!("{}: {what} {}", point.name, point.log).trim_end().to_owned();
    Stop { name: point.name.clone(), price, hint }
}

fn cuts(stats: &Stats) -> Vec<Cut> {
    let changes = stats.findings.iter().flat_map(|findings| &findings.changes);
    let cut = |found: &Found| {
        let is_it = |point: &Point| point.revision == found.culprit.revision;
        let before = stats.revisions.iter().position(is_it)?;
        Some(Cut { before, confirmed: found.is_confirmed() })
    };
    changes.filter_map(cut).collect()
}

fn row(point: &Point) -> Row<'_> {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), significant);
    Row {
        revision: &point.revision,
        name: &point.name,
        price: point.price.map(|price| price.estimate),
        interval: point.price.as_ref().map_or("-".to_owned(), table::interval),
        cpu: figure(point.means.and_then(|means| means.cpu_us_per_request)),
        rate: figure(point.means.map(|means| means.throughput_per_s)),
        n: point.n,
        state: point.state.word(),
        date: &point.date,
        log: &point.log,
        rounds: point.rounds.iter().map(|round| round_name(*round)).collect(),
        why: &point.why,
    }
}

//! Reports of a batch, as text, CSV and JSON.

use crate::findings::{Findings, Found, factor};
use crate::series::{Check, Point, RevisionState, checks, points};
use crate::store::{BatchRecords, round_name};
use csv::{QuoteStyle, WriterBuilder};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use tollgate_records::files::{json, write_atomic};
use tollgate_report::analysis::Range;
use tollgate_report::document::Table;
use tollgate_report::html::svg::{LevelChange, Revision, history};
use tollgate_report::html::{self, STYLE};
use tollgate_stats::number::{counted, relative, share, significant};
use tollgate_stats::text::Screen;

/// Version of the JSON schema.
pub const SCHEMA: u32 = 3;

/// Findings of a batch.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Stats {
    /// The version of this shape.
    pub schema: u32,
    /// The question that it answers.
    pub title: String,
    /// The version and commit of the tool that began it.
    pub tollgate: String,
    /// Start, RFC 3339, UTC.
    pub started_at: String,
    /// The command that began it.
    pub command: String,
    /// The figure that revisions are priced by, in words.
    pub metric: String,
    /// Margin within which two prices are the same, as a share.
    pub margin: f64,
    /// The revision that prices are over.
    pub anchor: Option<String>,
    /// The revisions, in their order.
    pub revisions: Vec<Point>,
    /// Products that stood twice in a round.
    pub checks: Vec<Check>,
    /// Findings of `tollgate batch find`; none without a search.
    pub findings: Option<Findings>,
}

/// Findings of a batch, from its records and the other files of its directory.
pub fn stats(records: &BatchRecords<'_>, dir: &Path) -> anyhow::Result<Stats> {
    let manifest = &records.manifest;
    let anchor = manifest.anchor.as_deref().and_then(|id| manifest.revision(id));
    Ok(Stats {
        schema: SCHEMA,
        title: manifest.settings.title.clone(),
        tollgate: manifest.tollgate.clone(),
        started_at: manifest.started_at.clone(),
        command: shell_words::join(&manifest.command),
        metric: manifest.settings.metric.words().to_owned(),
        margin: manifest.settings.margin,
        anchor: anchor.map(|revision| revision.name.clone()),
        revisions: points(records),
        checks: checks(records),
        findings: Findings::read(dir)?,
    })
}

/// Writes the reports that the directory of a batch holds.
pub(crate) fn write_all(records: &BatchRecords<'_>, dir: &Path) -> anyhow::Result<()> {
    let stats = stats(records, dir)?;
    let texts = [
        ("stats.csv", render_csv(&stats)?),
        ("stats.json", json(&stats)?),
        ("stats.html", render_html(&stats)?),
    ];
    for (name, text) in texts {
        write_atomic(&dir.join(name), &text)?;
    }
    Ok(())
}

/// Header line, which starts like a comment, as in the original.
const HEADER: &str = ";rps_avg,latency_avg,workers_utime_avg,revision,date,commit_log\n";

/// Renders the columns of modsecurity-performance's `batchbench.sh stats`, one line per revision. A revision without
/// figures has its first three cells empty. A cell is in quotes only if it has a comma or a quote.
pub fn render_csv(stats: &Stats) -> anyhow::Result<String> {
    let mut writer =
        WriterBuilder::new().quote_style(QuoteStyle::Necessary).from_writer(Vec::new());
    for point in &stats.revisions {
        writer.write_record(cells(point))?;
    }
    Ok(HEADER.to_owned() + &String::from_utf8(writer.into_inner()?)?)
}

fn cells(point: &Point) -> [String; 6] {
    let figure = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    [
        figure(point.means.map(|means| means.throughput_per_s)),
        figure(point.means.and_then(|means| means.latency_mean_ms)),
        figure(point.means.and_then(|means| means.user_ticks)),
        point.revision.clone(),
        point.date.clone(),
        point.message.clone(),
    ]
}

pub fn render_table(stats: &Stats, screen: Screen) -> String {
    let anchor = stats.anchor.as_deref().unwrap_or("none yet");
    let mut text = screen.heading(&stats.title);
    text += &screen.wrapped(&summary(stats));
    text.push('\n');
    text += &table(stats, anchor).draw(screen);
    let explained = format!(
        "× {anchor}: {} over that of the anchor {anchor} in the same block, with the 95 % interval; a range \
         in ( ) has fewer than six blocks.",
        stats.metric
    );
    text += &screen.wrapped(&explained);
    for point in stats.revisions.iter().filter(|point| !point.reason.is_empty()) {
        text += &format!("\n{}: {}\n", point.name, point.state);
        text.extend(point.reason.iter().map(|line| format!("    | {line}\n")));
    }
    for line in check_lines(stats) {
        text += &screen.wrapped(&line);
    }
    if let Some(findings) = &stats.findings {
        text.push('\n');
        for paragraph in findings.paragraphs() {
            text += &screen.wrapped(&paragraph);
        }
    }
    text
}

/// Number of revisions in each state.
pub fn summary(stats: &Stats) -> String {
    let states = [
        RevisionState::Done,
        RevisionState::Built,
        RevisionState::Queued,
        RevisionState::Invalid,
        RevisionState::RunFailed,
        RevisionState::BuildFailed,
        RevisionState::TimedOut,
    ];
    let count =
        |state: RevisionState| stats.revisions.iter().filter(|one| one.state == state).count();
    let listed: Vec<String> = states
        .into_iter()
        .filter(|state| count(*state) > 0)
        .map(|state| format!("{} {state}", count(state)))
        .collect();
    format!("{}: {}", counted(stats.revisions.len(), "revision"), listed.join(", "))
}

/// Bias between equal products, which took part twice in a round.
fn check_lines(stats: &Stats) -> Vec<String> {
    if stats.checks.is_empty() {
        return Vec::new();
    }
    let listed = |wanted: &dyn Fn(&Check) -> bool| -> Vec<String> {
        let checks = stats.checks.iter().filter(|check| wanted(check));
        checks
            .map(|check| {
                let (round, subject, same) = (check.round, &check.subject, &check.same_as);
                format!("round {round}, {subject} over {same}: {}", interval(&check.ratio))
            })
            .collect()
    };
    let is_same = |check: &Check| is_within(&check.ratio, stats.margin);
    let same = stats.checks.iter().filter(|check| is_same(check)).count();
    let off = listed(&|check| check.differs);
    let open = listed(&|check| !check.differs && !is_same(check));
    let all = counted(stats.checks.len(), "time");
    let mut text = format!("Equal products were compared {all}.");
    if same > 0 {
        text += &format!(" Equal within {}: {}.", share(stats.margin), counted(same, "time"));
    }
    if !off.is_empty() {
        text += &format!(
            " Different: {}. Differences as small between other products say nothing.",
            off.join("; ")
        );
    }
    if !open.is_empty() {
        text += &format!(" Not settled: {}.", open.join("; "));
    }
    vec![text]
}

/// True if the interval lies within the margin.
fn is_within(ratio: &Range, margin: f64) -> bool {
    ratio.interval && ratio.low >= 1.0 / (1.0 + margin) && ratio.high <= 1.0 + margin
}

/// A price with its interval, as a factor.
pub(crate) fn interval(range: &Range) -> String {
    let [estimate, low, high] = [range.estimate, range.low, range.high].map(factor);
    if range.interval {
        format!("{estimate} [{low} {high}]")
    } else if range.is_one_value() {
        estimate
    } else {
        format!("{estimate} ({low} {high})")
    }
}

fn table(stats: &Stats, anchor: &str) -> Table {
    let header =
        ["revision", &format!("× {anchor} [95 %]"), "change", "CPU µs/request", "requests/s", "n"];
    let mut before: Option<f64> = None;
    let row = |point: &Point| {
        let change = point.price.zip(before).map(|(now, before)| relative(now.estimate / before));
        before = point.price.map(|price| price.estimate).or(before);
        let means = point.means;
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), significant);
        vec![
            point.name.clone(),
            // Without a price: the state of the revision.
            point.price.as_ref().map_or(point.state.to_string(), interval),
            change.unwrap_or("-".to_owned()),
            figure(means.and_then(|means| means.cpu_us_per_request)),
            figure(means.map(|means| means.throughput_per_s)),
            point.n.to_string(),
        ]
    };
    Table::of_text(header, rows(stats).map(row).collect())
}

/// Returns the revisions that the table and the page list. Queued ones are only counted: `--steps` leaves hundreds.
fn rows(stats: &Stats) -> impl Iterator<Item = &Point> {
    stats.revisions.iter().filter(|point| point.state != RevisionState::Queued)
}

pub fn render_html(stats: &Stats) -> anyhow::Result<String> {
    html::page_of(include_str!("batch.html.j2"), &Page::of(stats))
}

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    title: &'a str,
    findings: Vec<String>,
    summary: String,
    plot: String,
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
        let unit = format!("{} × {anchor}", stats.metric);
        let revisions: Vec<Revision> = stats.revisions.iter().map(revision).collect();
        let findings = stats.findings.as_ref();
        Self {
            style: STYLE,
            title: &stats.title,
            findings: findings.map_or(Vec::new(), Findings::paragraphs),
            summary: summary(stats),
            plot: history(&unit, &revisions, &level_changes(stats)),
            caption: format!(
                "{} over that of the anchor {anchor} in the same block, with the 95 % interval; dashed \
                 lines are ranges of fewer than six blocks. Hollow marks have no price. Vertical lines are \
                 changes of the level; those without a label are not confirmed.",
                stats.metric
            ),
            anchor,
            rows: rows(stats).map(row).collect(),
            checks: check_lines(stats),
            command: &stats.command,
            made_by: format!("Made by tollgate {} on {}.", stats.tollgate, stats.started_at),
        }
    }
}

fn revision(point: &Point) -> Revision {
    let what = point.price.as_ref().map_or(point.state.to_string(), interval);
    let hint = format!("{}: {what} {}", point.name, point.message).trim_end().to_owned();
    Revision { name: point.name.clone(), price: point.price, hint }
}

fn level_changes(stats: &Stats) -> Vec<LevelChange> {
    let changes = stats.findings.iter().flat_map(|findings| &findings.changes);
    let change = |found: &Found| {
        let is_it = |point: &Point| point.revision == found.first_bad.revision;
        let before = stats.revisions.iter().position(is_it)?;
        Some(LevelChange { before, confirmed: found.is_confirmed() })
    };
    changes.filter_map(change).collect()
}

fn row(point: &Point) -> Row<'_> {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), significant);
    Row {
        revision: &point.revision,
        name: &point.name,
        price: point.price.map(|price| price.estimate),
        interval: point.price.as_ref().map_or("-".to_owned(), interval),
        cpu: figure(point.means.and_then(|means| means.cpu_us_per_request)),
        rate: figure(point.means.map(|means| means.throughput_per_s)),
        n: point.n,
        state: point.state.into(),
        date: &point.date,
        log: &point.message,
        rounds: point.rounds.iter().map(|round| round_name(*round)).collect(),
        why: &point.reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(checks: Vec<Check>) -> Stats {
        Stats {
            schema: 1,
            title: "t".to_owned(),
            tollgate: String::new(),
            started_at: String::new(),
            command: String::new(),
            metric: "CPU per request".to_owned(),
            margin: 0.02,
            anchor: None,
            revisions: Vec::new(),
            checks,
            findings: None,
        }
    }

    #[test]
    fn equal_products_are_the_same_or_different_or_not_settled() {
        let check = |low: f64, high: f64, interval: bool, differs: bool| Check {
            round: 1,
            subject: "b".to_owned(),
            same_as: "a".to_owned(),
            ratio: Range { estimate: 1.01, low, high, interval },
            n: 12,
            differs,
        };
        let listed = |checks: Vec<Check>| check_lines(&stats(checks)).concat();
        assert_eq!(listed(Vec::new()), "");
        assert_eq!(
            listed(vec![check(0.99, 1.015, true, false)]),
            "Equal products were compared 1 time. Equal within 2 %: 1 time."
        );
        assert_eq!(
            listed(vec![check(1.005, 1.2, true, true), check(0.8, 1.2, true, false)]),
            "Equal products were compared 2 times. Different: round 1, b over a: 1.010 [1.005 1.200]. \
             Differences as small between other products say nothing. Not settled: round 1, b over a: 1.010 \
             [0.800 1.200]."
        );
        // The range of a few blocks is not an interval, however narrow.
        assert!(listed(vec![check(0.999, 1.001, false, false)]).contains("Not settled: "));
    }
}

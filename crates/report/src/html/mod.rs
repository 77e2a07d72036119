//! The report as a single HTML file: no scripts, no network access, inline SVG plots.

mod course;
mod plots;
pub mod svg;
mod tables;

use super::source::{Config, Source};
use crate::analysis::{CaseAnalysis, RunStatus};
use crate::error::ReportError;
use crate::{ablation, rows};
use course::{Course, Part};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use svg::Size;
use tables::Table;

/// Renders a run as an HTML page.
pub fn render(source: &Source) -> Result<String, ReportError> {
    let page = Page::of(source)?;
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(ReportError::Page)?);
    // Named as HTML, so that all text is escaped; the plots alone, which escape it themselves, are
    // marked as safe.
    environment.add_template(TEMPLATE, include_str!("page.html.j2")).map_err(ReportError::Page)?;
    let template = environment.get_template(TEMPLATE).map_err(ReportError::Page)?;
    template.render(Serde(&page)).map_err(ReportError::Page)
}

const TEMPLATE: &str = "page.html.j2";

pub const STYLE: &str = include_str!("style.css");

const LOADS_LEGEND: &str = "Medians over the valid trials. Latency: of a saturated system (closed \
loop); a p99 needs 1000 responses. Limit: the bottleneck. Unless it is the system, requests/s is a lower \
bound and its ratio only a hint.";

const OPEN_LOOP_LEGEND: &str = "Medians over the valid trials. Every subject gets the same rate; \
latency: from the scheduled time of a request (open loop); a p99 needs 1000 responses. Limit: the \
bottleneck. If it is the generator, or it sent late, the latency is an upper bound.";

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    title: &'a str,
    answers: Vec<String>,
    run_status: BadgePart,
    settling: &'a str,
    cases: Vec<CasePart>,
    sweeps: Vec<Plot>,
    notes: &'a [String],
    environment: Table,
    subjects: Table,
    configs: Vec<ConfigPart<'a>>,
    configs_left_out: usize,
    inputs: Vec<ConfigPart<'a>>,
    command: &'a str,
    made_by: String,
}

#[derive(Serialize)]
struct BadgePart {
    words: &'static str,
    color: &'static str,
}

#[derive(Serialize)]
struct CasePart {
    name: String,
    line: String,
    abouts: Vec<(String, String)>,
    ablation: Option<Table>,
    ablation_legend: String,
    ablation_notes: Vec<String>,
    prices: Table,
    /// The status of the case; only if there are several.
    run_status: Option<BadgePart>,
    prices_legend: String,
    loads: Option<Table>,
    loads_legend: &'static str,
    latency: Option<Table>,
    latency_legend: &'static str,
    bytes: Option<Table>,
    bytes_legend: &'static str,
    bars: Option<Plot>,
    dots: Option<Plot>,
    spectrum: Option<Plot>,
    distribution: Option<Plot>,
    timeline: Option<Plot>,
    flaws: Vec<String>,
    answers: Option<Table>,
}

#[derive(Serialize)]
struct Key {
    name: String,
    svg: String,
}

/// A plot in two widths, with its caption and table.
#[derive(Serialize)]
struct Plot {
    /// Machine-readable name.
    name: &'static str,
    title: &'static str,
    /// The case, if there are several.
    of: String,
    caption: String,
    legend: Vec<Key>,
    wide: String,
    narrow: String,
    table: Option<Table>,
    /// Enlarged parts of a long plot, collapsed.
    closer: Vec<Closer>,
}

#[derive(Serialize)]
struct Closer {
    title: String,
    /// With the width for which each is; none where there is one part only, which is all of it.
    drawings: Vec<(&'static str, String)>,
    table: Table,
}

/// A collapsed file.
#[derive(Serialize)]
struct ConfigPart<'a> {
    name: String,
    text: &'a str,
    left_out: u64,
}

impl From<RunStatus> for BadgePart {
    fn from(run_status: RunStatus) -> Self {
        let color = match run_status {
            RunStatus::Settled => "good",
            RunStatus::NotSettled => "warn",
            RunStatus::AaFailed | RunStatus::NoPrice => "bad",
        };
        Self { words: run_status.words(), color }
    }
}

/// What the sentence that begins with the words of a badge says besides them.
fn after_badge(settling: &str, run_status: RunStatus) -> &str {
    let words = run_status.words();
    match settling.split_at_checked(words.len()) {
        Some((begin, rest)) if begin.eq_ignore_ascii_case(words) => rest,
        _ => settling,
    }
}

impl<'a> Page<'a> {
    fn of(source: &'a Source) -> Result<Self, ReportError> {
        let analysis = &source.analysis;
        let manifest = &source.records.manifest;
        let several = analysis.cases.len() > 1;
        let cases = analysis.cases.iter().map(|case| case_part(source, case, several));
        let experiment = &manifest.experiment;
        let inputs = std::iter::once((&experiment.file, &experiment.text)).chain(&experiment.mixes);
        Ok(Self {
            style: STYLE,
            title: &analysis.title,
            answers: analysis.sentences(),
            run_status: analysis.run_status.into(),
            settling: after_badge(&analysis.status_line, analysis.run_status),
            cases: cases.collect::<Result<_, _>>()?,
            sweeps: plots::sweeps(&analysis.cases).iter().map(|sweep| sweep_part(sweep)).collect(),
            notes: &analysis.notes,
            environment: tables::environment(manifest),
            subjects: tables::subjects(manifest),
            configs: source.configs.iter().map(config_part).collect(),
            configs_left_out: source.configs_left_out,
            inputs: inputs
                .map(|(file, text)| ConfigPart { name: file.clone(), text, left_out: 0 })
                .collect(),
            command: &analysis.command,
            made_by: format!(
                "Made by tollgate {} on {}, {}.",
                analysis.tollgate, analysis.started_at, analysis.machine
            ),
        })
    }
}

fn case_part(source: &Source, case: &CaseAnalysis, several: bool) -> Result<CasePart, ReportError> {
    let analysis = &source.analysis;
    let baseline = &analysis.baseline;
    let of = if several { case.case.name.clone() } else { String::new() };
    let named = |table: Table| Table { of: of.clone(), ..table };
    let plot =
        |name, title, caption: &str, table: Option<Table>, draw: &dyn Fn(Size) -> String| Plot {
            name,
            title,
            of: of.clone(),
            caption: caption.to_owned(),
            legend: vec![],
            wide: draw(Size::Wide),
            narrow: draw(Size::Narrow),
            table: table.map(named),
            closer: vec![],
        };
    // The legend contains only the subjects of the plot.
    let legend = |series: &mut dyn Iterator<Item = usize>| {
        let key = |series: usize| {
            let subject = case.subjects.get(series)?;
            Some(Key { name: subject.name.clone(), svg: svg::key(series) })
        };
        series.filter_map(key).collect::<Vec<_>>()
    };

    let bars = plots::bars(analysis, case).map(|bars| {
        let caption = "Each bar starts at the baseline; the scale is logarithmic. The line across its end is the 95 % \
                       interval, dashed if there are too few blocks for one and it is the observed range. \
                       The band around 1 is the noise floor (A/A): differences within it may be noise.";
        let draw = |size| svg::bars::draw(&bars, size);
        plot("bars", "Cost of a request", caption, None, &draw)
    });
    let panels = plots::dots(analysis, case);
    let dots = (!panels.is_empty()).then(|| {
        let caption = "CPU per request relative to the baseline of the same block. Line and band: the price and its \
                       95 % interval. A slope is drift that pairing did not remove; outliers are marked, \
                       but not excluded.";
        let table = tables::blocks(baseline, &panels);
        let draw = |size| svg::dots::draw(baseline, &panels, size);
        plot("dots", "Block by block", caption, table, &draw)
    });
    let latencies = plots::latencies(source, case)?;
    let spectra = plots::spectra(&latencies);
    let spectrum = (!spectra.is_empty()).then(|| {
        let caption = "Over all valid trials. Each step to the right is ten times rarer; a line ends where fewer than \
                       ten responses remain. Closed loop: latency of a saturated system; open loop: from \
                       the scheduled time.";
        let table = tables::percentiles(&latencies);
        let draw = |size| svg::spectrum::draw(&spectra, size);
        let legend = legend(&mut latencies.iter().map(|one| one.series));
        Plot { legend, ..plot("spectrum", "Latency by percentile", caption, table, &draw) }
    });
    let (edges, distributions) = plots::distributions(&latencies);
    let distribution = (!distributions.is_empty()).then(|| {
        let caption = "Over all valid trials, in classes of equal width on the logarithmic axis.";
        let draw = |size| svg::distribution::draw(&edges, &distributions, size);
        let legend = legend(&mut latencies.iter().map(|one| one.series));
        let table = tables::shares(&edges, &distributions);
        let title = "Latency distribution";
        Plot { legend, ..plot("distribution", title, caption, table, &draw) }
    });
    let course = Course::of(source, case)?;
    let timeline = course.whole().map(|whole| {
        let mut caption = String::from(
            "One mark per trial, at its start; on the axis: a trial without expected responses. Hollow \
             marks and stripes: invalid trials. A trial with fewer than 1000 responses has no p99. Dashed \
             lines: limits above which a trial is invalid.",
        );
        if course.has_pauses() {
            caption += " Vertical lines: the run was stopped there and resumed later; the time between is omitted.";
        }
        let draw = |size| svg::timeline::draw(&whole, size);
        let legend = legend(&mut course.subjects().into_iter());
        let plot = plot("timeline", "Over the time of the run", &caption, None, &draw);
        let parts = course.parts();
        let closer = parts.iter().map(|part| {
            let closer = closer(part, parts.len());
            Closer { table: named(closer.table), ..closer }
        });
        Plot { legend, closer: closer.collect(), ..plot }
    });
    let files = case.ablation.as_ref();
    Ok(CasePart {
        name: case.case.name.clone(),
        line: capital(&rows::shape_line(analysis, case)),
        abouts: rows::abouts(case)
            .into_iter()
            .map(|(name, about)| (name.to_owned(), about.to_owned()))
            .collect(),
        prices: named(tables::prices(analysis, case)),
        run_status: several.then(|| case.run_status.into()),
        prices_legend: rows::prices_legend(analysis, case),
        loads: tables::loads(analysis, case).map(named),
        ablation: tables::ablation(case).map(named),
        ablation_legend: files.map_or(String::new(), |files| ablation::legend(analysis, files)),
        ablation_notes: files.map(ablation::notes).unwrap_or_default(),
        latency: analysis.latency.then(|| tables::latency(analysis, case)).flatten().map(named),
        latency_legend: super::latency::LEGEND,
        bytes: analysis.bytes.then(|| tables::bytes(case)).flatten().map(named),
        bytes_legend: super::bytes::LEGEND,
        loads_legend: match case.case.open_loop {
            Some(_) => OPEN_LOOP_LEGEND,
            None => LOADS_LEGEND,
        },
        bars,
        dots,
        spectrum,
        distribution,
        timeline,
        flaws: course.flaws(),
        answers: tables::answers(case).map(named),
    })
}

fn capital(line: &str) -> String {
    let mut characters = line.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

fn closer(part: &Part<'_>, parts: usize) -> Closer {
    let draw = |size| svg::timeline::draw(&part.timeline, size);
    let drawings = match part.trials.len() {
        _ if parts < 2 => vec![],
        // What is clear on a phone is so on a screen, and a page with many cases stays light.
        0..=NARROW_TRIALS_MAX => vec![("any", draw(Size::Narrow))],
        _ => vec![("wide", draw(Size::Wide)), ("narrow", draw(Size::Narrow))],
    };
    Closer { title: part.title.clone(), drawings, table: tables::trials(&part.title, part.trials) }
}

/// Up to this number, each trial has a dozen pixels in the narrow drawing.
const NARROW_TRIALS_MAX: usize = 24;

fn sweep_part(cases: &[&CaseAnalysis]) -> Plot {
    let panels = plots::sweep(cases);
    let unit = cases.first().map_or("", |case| plots::load(case).unit);
    let lines = panels.first().map_or(&[][..], |panel| &panel.lines[..]);
    let names: Vec<&str> = cases.iter().map(|case| case.case.name.as_str()).collect();
    let of = match (names.first(), names.last()) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => String::new(),
    };
    Plot {
        name: "sweep",
        title: "Latency against load",
        caption: format!("Medians over the valid trials of the cases {}.", names.join(", ")),
        legend: lines
            .iter()
            .map(|line| Key { name: line.name.clone(), svg: svg::key(line.series) })
            .collect(),
        wide: svg::sweep::draw(unit, &panels, Size::Wide),
        narrow: svg::sweep::draw(unit, &panels, Size::Narrow),
        table: tables::sweep(unit, &panels).map(|table| Table { of: of.clone(), ..table }),
        closer: vec![],
        of,
    }
}

fn config_part(config: &Config) -> ConfigPart<'_> {
    ConfigPart {
        name: format!("{}: {}", config.subject, config.file),
        text: &config.text,
        left_out: config.left_out,
    }
}

//! The report as one HTML file: no script, no network, every plot as SVG in the text.

mod course;
mod plots;
pub(crate) mod svg;
mod tables;

use super::source::{Config, Source};
use super::{ReportError, rows};
use crate::analysis::{Badge, CaseAnalysis};
use course::{Course, Part};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use svg::Size;
use tables::Table;

/// Writes a run as a page.
///
/// # Errors
///
/// A record holds a time or a histogram that cannot be read.
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

/// The style sheet of all pages.
pub(crate) const STYLE: &str = include_str!("style.css");

/// What the columns of [`tables::loads`] mean.
const LOADS_LEGEND: &str = "Medians over the valid trials. Latency is that of a saturated system \
(closed loop); a p99 takes 1000 answers. Limit: whose CPU was spent. Where it was not the system's, \
requests/s is a lower bound, and its ratio no more than a hint.";

/// The same of an open loop.
const OPEN_LOOP_LEGEND: &str = "Medians over the valid trials. Every subject gets the same rate; \
latency counts from the moment for which a request was scheduled (open loop); a p99 takes 1000 \
answers. Limit: whose CPU was spent. Where it was the generator's, or it sent late, the latency is an \
upper bound.";

/// All that the page holds.
#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    title: &'a str,
    answers: Vec<String>,
    badge: BadgePart,
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

/// Whether prices are settled: a word, and the color for it.
#[derive(Serialize)]
struct BadgePart {
    words: &'static str,
    color: &'static str,
}

/// One case.
#[derive(Serialize)]
struct CasePart {
    name: String,
    line: String,
    abouts: Vec<(String, String)>,
    prices: Table,
    /// Whether its prices are settled, where there are several cases and the page's badge is that of all.
    badge: Option<BadgePart>,
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

/// The color and the mark of a subject.
#[derive(Serialize)]
struct Key {
    name: String,
    svg: String,
}

/// A plot, drawn twice, with the words and the figures that belong to it.
#[derive(Serialize)]
struct Plot {
    /// A name for programs.
    name: &'static str,
    title: &'static str,
    /// Which case it is of, where there are several.
    of: String,
    caption: String,
    legend: Vec<Key>,
    wide: String,
    narrow: String,
    table: Option<Table>,
    /// The same part by part, folded, where that shows more.
    closer: Vec<Closer>,
}

/// A part of a plot, drawn as large as all of it.
#[derive(Serialize)]
struct Closer {
    title: String,
    /// With the width for which each is; none where there is one part only, which is all of it.
    drawings: Vec<(&'static str, String)>,
    table: Table,
}

/// A file, folded.
#[derive(Serialize)]
struct ConfigPart<'a> {
    name: String,
    text: &'a str,
    left_out: u64,
}

impl From<Badge> for BadgePart {
    fn from(badge: Badge) -> Self {
        let color = match badge {
            Badge::Settled => "good",
            Badge::NotSettled => "warn",
            Badge::AaFailed | Badge::NoPrice => "bad",
        };
        Self { words: badge.words(), color }
    }
}

/// What the sentence that begins with the words of a badge says besides them.
fn after_badge(settling: &str, badge: Badge) -> &str {
    let words = badge.words();
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
            badge: analysis.badge.into(),
            settling: after_badge(&analysis.settling, analysis.badge),
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
    // A drawing's legend has those that are in it.
    let legend = |series: &mut dyn Iterator<Item = usize>| {
        let key = |series: usize| {
            let subject = case.subjects.get(series)?;
            Some(Key { name: subject.name.clone(), svg: svg::key(series) })
        };
        series.filter_map(key).collect::<Vec<_>>()
    };

    let bars = plots::bars(analysis, case).map(|bars| {
        let caption = "Each bar begins at the baseline; twice as much and half as much are equally \
                       long. The line across its end is the 95 % interval, in dashes where there \
                       are too few blocks for one and it is the range seen. A band about 1 is what \
                       the baseline found of itself (A/A): what lies in it may be noise.";
        let draw = |size| svg::bars::draw(&bars, size);
        plot("bars", "What a request costs", caption, None, &draw)
    });
    let panels = plots::dots(analysis, case);
    let dots = (!panels.is_empty()).then(|| {
        let caption = "CPU per request over the baseline of the same block. Line and band: the \
                       price and its 95 % interval. A slope is drift that the pairing did not take \
                       out; outliers are marked, and count like the others.";
        let table = tables::blocks(baseline, &panels);
        let draw = |size| svg::dots::draw(baseline, &panels, size);
        plot("dots", "Block by block", caption, table, &draw)
    });
    let latencies = plots::latencies(source, case)?;
    let spectra = plots::spectra(&latencies);
    let spectrum = (!spectra.is_empty()).then(|| {
        let caption = "Over all valid trials. Each step to the right is ten times rarer; a line ends \
                       where fewer than ten answers lie beyond. Of a closed loop it is the latency of \
                       a saturated system, of an open one that from the scheduled moment.";
        let table = tables::percentiles(&latencies);
        let draw = |size| svg::spectrum::draw(&spectra, size);
        let legend = legend(&mut latencies.iter().map(|one| one.series));
        Plot { legend, ..plot("spectrum", "Latency by percentile", caption, table, &draw) }
    });
    let (edges, distributions) = plots::distributions(&latencies);
    let distribution = (!distributions.is_empty()).then(|| {
        let caption = "Over all valid trials, in classes that are equally wide on the logarithmic \
                       axis.";
        let draw = |size| svg::distribution::draw(&edges, &distributions, size);
        let legend = legend(&mut latencies.iter().map(|one| one.series));
        let table = tables::shares(&edges, &distributions);
        let title = "How latencies are distributed";
        Plot { legend, ..plot("distribution", title, caption, table, &draw) }
    });
    let course = Course::of(source, case)?;
    let timeline = course.whole().map(|whole| {
        let mut caption = String::from(
            "A mark a trial, at its begin; on the axis, a trial without an expected answer. Hollow marks \
             and stripes: trials that do not count. A trial with fewer than 1000 answers has no p99. \
             Dashed lines: above them a trial does not count.",
        );
        if course.has_pauses() {
            caption += " Upright lines: the run was stopped there and taken up later, and the time \
                        between is left out.";
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
    Ok(CasePart {
        name: case.case.name.clone(),
        line: capital(&rows::shape_line(analysis, case)),
        abouts: rows::abouts(case)
            .into_iter()
            .map(|(name, about)| (name.to_owned(), about.to_owned()))
            .collect(),
        prices: named(tables::prices(analysis, case)),
        badge: several.then(|| case.badge.into()),
        prices_legend: rows::prices_legend(analysis, case),
        loads: tables::loads(analysis, case).map(named),
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

/// A line as a sentence begins.
fn capital(line: &str) -> String {
    let mut characters = line.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

/// Some blocks of the timeline, of which it has so many parts.
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

/// So many trials have a dozen pixels each on the narrow drawing.
const NARROW_TRIALS_MAX: usize = 24;

fn sweep_part(cases: &[&CaseAnalysis]) -> Plot {
    let panels = plots::sweep(cases);
    let unit = cases.first().map_or("", |case| plots::load(case).unit);
    let lines = panels.first().map_or(&[][..], |panel| &panel.lines[..]);
    let names: Vec<&str> = cases.iter().map(|case| case.case.name.as_str()).collect();
    // A page may have several sweeps, of other cases each.
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

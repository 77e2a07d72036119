//! The report of a run: its sections and blocks in their order.

use super::{Block, Document, File, Footer, Media, Section, Sentence, tables};
use crate::analysis::{Analysis, CaseAnalysis, SubjectAnalysis};
use crate::source::ReportSource;
use serde::Serialize;
use tollgate_records::case::CaseManifest;
use tollgate_records::trial::as_f64;
use tollgate_stats::number::{count, counted, in_full, share, significant};
use tollgate_traffic::load_shape::{
    CaseArrivals, CaseProtocol, CaseRate, LoadProgram, LoadShape, OpenLoop, Protocol, Spacing,
    TlsSessions, Window,
};

/// A plot, with the index of its case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) enum Plot {
    /// CPU prices as bars.
    Bars(usize),
    /// Attacks blocked against CPU prices.
    Catches(usize),
    /// The ratio of each block.
    Dots(usize),
    /// By percentile, and as a distribution.
    Latency(usize),
    Timeline(usize),
    /// Latency over cases that differ only in their load, in ascending order.
    Sweep(Vec<usize>),
}

pub(crate) fn of_run(source: &ReportSource) -> Document {
    let analysis = &source.analysis;
    let cases = analysis.cases.iter().enumerate();
    let mut sections: Vec<Section> =
        cases.map(|(index, case)| case_section(analysis, index, case)).collect();
    let sweeps = sweeps(&analysis.cases);
    if !sweeps.is_empty() {
        // A sweep of three loads or more is the answer; two are a detail.
        let place = if sweeps.iter().any(|sweep| sweep.len() > 2) { 0 } else { sections.len() };
        let mut section = Section::new("sweeps", "Load sweeps", String::new());
        let plots = sweeps.into_iter().map(Plot::Sweep).collect();
        section.push(Media::Page, Block::Plots(plots));
        sections.insert(place, section);
    }
    let mut notes = Section::new("notes", "Notes", String::new());
    notes.list(analysis.notes.clone());
    sections.push(notes);
    sections.push(subjects_section(source));
    let sentence = |(index, case): (usize, &CaseAnalysis)| Sentence {
        case: (analysis.cases.len() > 1).then(|| (case.case.name.clone(), case_id(index))),
        text: case.answer.clone(),
    };
    let words: &str = analysis.run_status.into();
    let rest = analysis.status_line.strip_prefix(words).unwrap_or_default();
    Document {
        title: analysis.title.clone(),
        headline: analysis.cases.iter().enumerate().map(sentence).collect(),
        status: Some((analysis.run_status.into(), rest.to_owned())),
        sections,
        footer: Some(Footer {
            made_by: format!(
                "Made by tollgate {} on {}, {}.",
                analysis.tollgate, analysis.started_at, analysis.machine
            ),
            command: analysis.command.clone(),
        }),
    }
}

fn case_id(index: usize) -> String {
    format!("case-{}", index + 1)
}

fn case_section(analysis: &Analysis, index: usize, case: &CaseAnalysis) -> Section {
    let mut section =
        Section::new(&case_id(index), &case.case.name, load_line(analysis, &case.case));
    section.badge = (analysis.cases.len() > 1).then(|| case.run_status.into());
    if let Some(figures) = &case.ablation {
        section.table(Media::All, tables::ablation(analysis, figures));
        let notes = tables::ablation_notes(figures);
        if !notes.is_empty() {
            let title = "Files that were not removed, and requests blocked by one file only";
            section.folded(Media::All, title, Block::List(notes));
        }
    }
    // On a terminal, the files of an ablation replace its subjects, of which there is one per file.
    let media = if case.ablation.is_some() { Media::Paper } else { Media::All };
    // The subjects of an ablation have nearly the same price.
    let catches = case.ablation.is_none().then_some(Plot::Catches(index));
    let plots = [Plot::Bars(index)].into_iter().chain(catches).collect();
    section.push(Media::Page, Block::Plots(plots));
    let abouts = case.subjects.iter().filter(|subject| !subject.about.is_empty());
    let about = |subject: &SubjectAnalysis| (subject.name.clone(), subject.about.clone());
    let abouts: Vec<(String, String)> = abouts.map(about).collect();
    match media {
        _ if abouts.is_empty() => {}
        Media::All => section.push(media, Block::Definitions(abouts)),
        _ => section.folded(media, "The subjects", Block::Definitions(abouts)),
    }
    section.table(media, tables::prices(analysis, case));
    if media == Media::All {
        section.push(Media::Terminal, cpu_bars(case));
    }
    section.table(media, tables::ratios(analysis, case));
    section.table(media, tables::figures(case));
    if let Some(catch) = &case.catch {
        section.table(media, tables::families(catch));
        section.table(media, tables::pairs(catch));
    }
    let lines = tables::difference_lines(case);
    if !lines.is_empty() {
        let title = "Templates on which subjects differ";
        section.folded(Media::Terminal, title, Block::List(lines));
        section.folded(Media::Paper, title, Block::Table(tables::differences(case)));
    }
    if analysis.latency {
        section.table(media, tables::latency(analysis, case));
    }
    if analysis.bytes {
        section.table(media, tables::bytes(case));
    }
    let spread = tables::spread(case);
    if !spread.rows.is_empty() {
        let media = if analysis.summary { media } else { Media::Paper };
        section.folded(media, "Over the trials of each subject", Block::Table(spread));
    }
    let plots = [Plot::Dots, Plot::Latency, Plot::Timeline];
    section.push(Media::Page, Block::Plots(plots.map(|plot| plot(index)).to_vec()));
    section.table(Media::Page, tables::responses(case));
    section
}

fn cpu_bars(case: &CaseAnalysis) -> Block {
    let bar = |subject: &SubjectAnalysis| {
        Some((subject.name.clone(), subject.figures.as_ref()?.cpu_us_per_request?))
    };
    Block::Bars("CPU per request, µs".to_owned(), case.subjects.iter().filter_map(bar).collect())
}

fn subjects_section(source: &ReportSource) -> Section {
    let manifest = &source.records.manifest;
    let experiment = &manifest.experiment;
    let mut section = Section::new("subjects", "Subjects and machine", String::new());
    section.table(Media::Page, tables::subjects(manifest));
    section.folded(Media::Page, "The machine", Block::Table(tables::environment(manifest)));
    let inputs = [(&experiment.file, &experiment.text)].into_iter().chain(&experiment.mixes);
    let input = |(name, text): (&String, &String)| File {
        name: name.clone(),
        text: text.clone(),
        left_out: 0,
    };
    let title = "Experiment and mixes".to_owned();
    section.push(Media::Page, Block::Files(title, inputs.map(input).collect(), 0));
    if !source.configs.is_empty() {
        let title = "Configuration of each system".to_owned();
        let files = Block::Files(title, source.configs.clone(), source.configs_left_out);
        section.push(Media::Page, files);
    }
    section
}

/// The load, the number of blocks and the length of a trial.
fn load_line(analysis: &Analysis, case: &CaseManifest) -> String {
    let window = match case.load.window {
        Window::Requests { requests, .. } => format!("{} requests", count(requests.into())),
        Window::For(time) => format!("{} s", significant(time.as_secs_f64())),
    };
    let blocks = counted(analysis.blocks as usize, "block");
    format!("{}; {blocks}, {window} per trial", load(case))
}

fn load(case: &CaseManifest) -> String {
    let CaseManifest { load, origins, .. } = case;
    let keeps_connections = load.clients.protocol.keeps_connections();
    let keep_alive = if keeps_connections { "keep-alive" } else { "one request per connection" };
    let origins = if *origins > 1 { format!(", {origins} origins") } else { String::new() };
    let keep_alive = format!("{keep_alive}{}", protocol(load));
    match &load.arrivals {
        CaseArrivals::Closed { connections } => {
            let by = match load.program {
                LoadProgram::Tollgate => String::new(),
                foreign => format!(" of {foreign}"),
            };
            format!("closed loop{by}, {connections} connections, {keep_alive}{origins}")
        }
        CaseArrivals::Open(open_loop) => {
            let (rate, schedule) = (rate(&open_loop.rate), schedule(open_loop));
            format!("open loop, {rate}, {schedule}, {keep_alive}{origins}")
        }
    }
}

fn rate(rate: &CaseRate) -> String {
    match rate {
        CaseRate::PerS(per_s) => format!("{}/s", in_full(*per_s)),
        CaseRate::ShareOf { case, share: part, per_s } => {
            let subject =
                format!("{} of the throughput of the slowest subject in {case}", share(part.0));
            per_s.map_or(subject.clone(), |per_s| format!("{}/s ({subject})", in_full(per_s)))
        }
    }
}

/// The protocol of a load with a comma before it; empty for HTTP/1.1 in the clear.
pub fn protocol(load: &LoadShape) -> String {
    let protocol = match load.protocol() {
        CaseProtocol::H1 => return String::new(),
        CaseProtocol::H2 => "HTTP/2 in the clear",
        CaseProtocol::Https => "HTTP/1.1 over TLS",
        CaseProtocol::HttpsH2 => "HTTP/2 over TLS",
    };
    let streams = match load.clients.protocol {
        Protocol::Http2 { streams } if streams > 1 => format!(", {streams} streams each"),
        _ => String::new(),
    };
    let resumed = if load.tls == TlsSessions::Resumed { ", resumed sessions" } else { "" };
    format!(", {protocol}{streams}{resumed}")
}

pub fn schedule(open_loop: &OpenLoop<CaseRate>) -> String {
    let OpenLoop { spacing, connections, connections_max, .. } = open_loop;
    let spacing = match spacing {
        Spacing::Constant => "constant gaps",
        Spacing::Poisson => "Poisson",
    };
    let most = if connections_max > connections {
        format!(" to {connections_max}")
    } else {
        String::new()
    };
    format!("{spacing}, {connections}{most} connections")
}

/// The unit of a case's load, and the load: the rate of an open loop, or the connections of a closed loop.
pub(crate) fn load_unit(load: &LoadShape) -> (&'static str, f64) {
    match &load.arrivals {
        CaseArrivals::Closed { connections } => ("connections", as_f64(*connections as u64)),
        CaseArrivals::Open(open_loop) => ("requests/s", open_loop.rate.per_s().unwrap_or(0.0)),
    }
}

/// Groups of cases that differ only in their load, in ascending order.
fn sweeps(cases: &[CaseAnalysis]) -> Vec<Vec<usize>> {
    let load = |index: &usize| load_unit(&cases[*index].case.load).1;
    let base = |index: usize| {
        let CaseManifest { mix_file, load, .. } = &cases[index].case;
        let LoadShape { program, clients, tls, arrivals, .. } = load;
        let open_loop = match arrivals {
            CaseArrivals::Closed { .. } => None,
            CaseArrivals::Open(OpenLoop { spacing, connections, connections_max, .. }) => {
                Some((spacing, connections, connections_max))
            }
        };
        (mix_file, program, clients, tls, open_loop)
    };
    let mut sweeps: Vec<Vec<usize>> = Vec::new();
    for case in 0..cases.len() {
        let differs = |other: &usize| base(*other) == base(case) && load(other) != load(&case);
        match sweeps.iter_mut().find(|sweep| sweep.iter().all(differs)) {
            Some(sweep) => sweep.push(case),
            None => sweeps.push(vec![case]),
        }
    }
    sweeps.retain(|sweep| sweep.len() > 1);
    for sweep in &mut sweeps {
        sweep.sort_by(|a, b| load(a).total_cmp(&load(b)));
    }
    sweeps
}

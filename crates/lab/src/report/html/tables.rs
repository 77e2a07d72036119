//! The tables of the page: figures in words, and unrounded beside them for programs.

use super::course::{FIGURES, Timed};
use super::plots::{Latencies, NAMED, ms};
use super::svg::distribution::Distribution;
use super::svg::dots::Panel;
use super::svg::{self, sweep};
use crate::analysis::{
    Analysis, CaseAnalysis, Figures, Metric, Standing, SubjectAnalysis, TemplateFigures,
    verdict_word,
};
use crate::manifest::{Manifest, SubjectManifest, SubjectState};
use crate::record::as_f64;
use crate::report::number::{count, in_full, percent, signed, significant, with_decimals};
use crate::report::{ablation, bytes, latency, rows};
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_traffic::Class;

/// A table with a head of columns and a head of rows.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    /// What it holds.
    pub(super) caption: String,
    /// Which case it is of, where there are several.
    pub(super) of: String,
    /// Whether its cells are words, which may be broken, and not figures.
    pub(super) prose: bool,
    /// The names of the columns, with their units; the first is that of the heads of the rows.
    pub(super) header: Vec<String>,
    /// The rows.
    pub(super) rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Its head.
    pub(super) name: String,
    /// The color and mark of the subject that it is about, drawn.
    pub(super) key: Option<String>,
    /// Its cells, one less than the header has columns.
    pub(super) cells: Vec<Cell>,
}

/// A cell of a table.
#[derive(Debug, Serialize)]
pub(super) struct Cell {
    /// What is read.
    pub(super) text: String,
    /// The figure's name in report.json, where it has one.
    pub(super) figure: Option<&'static str>,
    /// The figure itself, unrounded.
    pub(super) value: Option<String>,
}

/// What each subject costs and what it catches.
pub(super) fn prices(analysis: &Analysis, case: &CaseAnalysis) -> Table {
    let over = &analysis.baseline;
    let header = [
        "subject".to_owned(),
        format!("price: × {over} [95\u{a0}%]"),
        format!("difference: µs over {over} [95\u{a0}%]"),
        "CPU, µs a request".to_owned(),
        "peak memory, MiB".to_owned(),
        "start-up, ms".to_owned(),
        "attacks caught".to_owned(),
        "false alarms".to_owned(),
        "n, blocks".to_owned(),
        "verdict".to_owned(),
    ];
    let rows = (0..).zip(&case.subjects).map(|(series, subject)| Row {
        name: subject.name.clone(),
        key: Some(svg::key(series)),
        cells: price_cells(analysis, subject),
    });
    Table {
        caption: "What a request costs, and what is caught".to_owned(),
        of: String::new(),
        prose: false,
        header: header.to_vec(),
        rows: rows.collect(),
    }
}

fn price_cells(analysis: &Analysis, subject: &SubjectAnalysis) -> Vec<Cell> {
    let price = subject.prices.get(&Metric::CpuUsPerRequest);
    let ratio = price.and_then(|price| price.ratio);
    let figures = subject.figures.as_ref();
    let is_baseline = subject.name == analysis.baseline;
    let in_place = match &subject.standing {
        Standing::Baseline | Standing::Measured if figures.is_some() => None,
        Standing::Baseline | Standing::Measured => Some("no valid trial"),
        other => Some(other.word()),
    };
    let price_text = match (in_place, ratio) {
        (Some(word), _) => word.to_owned(),
        (None, Some(ratio)) => rows::range(&ratio, significant),
        (None, None) if is_baseline => "baseline".to_owned(),
        (None, None) => NONE.to_owned(),
    };
    let difference = price.map(|price| price.difference);
    let difference_text = difference.map_or(NONE.to_owned(), |range| rows::range(&range, signed));
    let mebibytes = |bytes: f64| significant(bytes / f64::from(1 << 20));
    let of = |value: fn(&Figures) -> Option<f64>| figures.and_then(value);
    let n = price.map_or_else(|| figures.map_or(0, |figures| figures.n), |price| price.n);
    vec![
        cell("ratio", ratio.map(|ratio| ratio.estimate), price_text),
        cell("difference", difference.map(|range| range.estimate), difference_text),
        figure("cpu_us_per_request", of(|f| f.cpu_us_per_request), significant),
        figure("memory_peak_bytes", of(|f| f.memory_peak_bytes), mebibytes),
        figure("startup_ms", of(|f| f.startup_ms), significant),
        figure("attacks_blocked", of(|f| f.attacks_blocked), percent),
        figure("harmless_blocked", of(|f| f.harmless_blocked), percent),
        cell("n", Some(as_f64(n as u64)), n.to_string()),
        plain(price.and_then(|price| price.verdict).map_or(NONE, verdict_word)),
    ]
}

/// The ratio of each block: what the dots show.
pub(super) fn blocks(baseline: &str, panels: &[Panel]) -> Option<Table> {
    let mut rows: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    for (column, panel) in panels.iter().enumerate() {
        for dot in &panel.dots {
            let cells = rows.entry(dot.block).or_default();
            // A subject whose trial does not count has no ratio in that block.
            cells.resize_with(column, || plain(NONE));
            let outlier = if dot.outlier { " (outlier)" } else { "" };
            let text = significant(dot.ratio) + outlier;
            cells.push(cell("block_ratio", Some(dot.ratio), text));
        }
    }
    let names = panels.iter().map(|panel| format!("{} × {baseline}", panel.name));
    let table = Table {
        caption: "CPU per request over the baseline of the same block".to_owned(),
        of: String::new(),
        prose: false,
        header: std::iter::once("block".to_owned()).chain(names).collect(),
        rows: rows
            .into_iter()
            .map(|(block, mut cells)| {
                cells.resize_with(panels.len(), || plain(NONE));
                Row { name: block.to_string(), key: None, cells }
            })
            .collect(),
    };
    (!panels.is_empty()).then_some(table)
}

/// The latency of each subject at each quantile that has a name.
pub(super) fn percentiles(latencies: &[Latencies]) -> Option<Table> {
    let header =
        ["subject", "answers", "shortest", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "longest"];
    let rows = latencies.iter().map(|one| {
        let histogram = &one.histogram;
        let mut cells = vec![plain(&significant(as_f64(histogram.count())))];
        let named = NAMED.iter().map(|quantile| histogram.quantile_ns(*quantile));
        let all = std::iter::once(histogram.min_ns()).chain(named).chain([histogram.max_ns()]);
        cells.extend(all.map(|ns| figure("latency_ms", ns.map(ms), significant)));
        Row { name: one.name.clone(), key: Some(svg::key(one.series)), cells }
    });
    let table = Table {
        caption: "Latency in ms, over all valid trials".to_owned(),
        of: String::new(),
        prose: false,
        header: header.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    (!latencies.is_empty()).then_some(table)
}

/// The latency of each subject at each load of a sweep, a row a load: there may be many.
pub(super) fn sweep(unit: &str, panels: &[sweep::Panel]) -> Option<Table> {
    let lines: Vec<(&sweep::Panel, &sweep::Line)> =
        panels.iter().flat_map(|panel| panel.lines.iter().map(move |line| (panel, line))).collect();
    let mut loads: Vec<f64> =
        lines.iter().flat_map(|(_, line)| &line.points).map(|point| point.0).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let rows = loads.iter().map(|load| {
        let at = |line: &sweep::Line| line.points.iter().find(|point| point.0 == *load).copied();
        let latency = |line| figure("latency_ms", at(line).map(|point| point.1), significant);
        Row {
            name: in_full(*load),
            key: None,
            cells: lines.iter().map(|(_, line)| latency(line)).collect(),
        }
    });
    let names = lines.iter().map(|(panel, line)| format!("{}: {}", line.name, panel.unit));
    let table = Table {
        caption: "Latency at each load".to_owned(),
        of: String::new(),
        prose: false,
        header: std::iter::once(unit.to_owned()).chain(names).collect(),
        rows: rows.collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}

/// How the latencies of each subject are distributed, in fewer classes than the drawing has.
pub(super) fn shares(edges: &[f64], distributions: &[Distribution]) -> Option<Table> {
    let rows = (0..edges.len().saturating_sub(1)).step_by(CLASSES_OF_A_ROW).map(|first| {
        let next = (first + CLASSES_OF_A_ROW).min(edges.len() - 1);
        let share = |one: &Distribution| {
            let percent = one.percent.iter().take(next).skip(first).sum();
            cell("share_percent", Some(percent), significant(percent))
        };
        let [from, to] = [first, next].map(|edge| significant(edges[edge]));
        Row {
            name: format!("{from} to {to}"),
            key: None,
            cells: distributions.iter().map(share).collect(),
        }
    });
    let names = distributions.iter().map(|one| one.name.clone());
    let table = Table {
        caption: "Share of the answers by latency, %".to_owned(),
        of: String::new(),
        prose: false,
        header: std::iter::once("latency, ms".to_owned()).chain(names).collect(),
        rows: rows.collect(),
    };
    (!distributions.is_empty()).then_some(table)
}

const CLASSES_OF_A_ROW: usize = 6;

/// What each trial found: what the timeline shows.
pub(super) fn trials(title: &str, trials: &[Timed<'_>]) -> Table {
    let row = |trial: &Timed<'_>| {
        let record = trial.record;
        let again = match record.attempt {
            1 => String::new(),
            attempt => format!(", attempt {attempt}"),
        };
        let mut cells = vec![
            plain(&format!("{}{again}", record.block)),
            cell("begin_s", Some(trial.at_s), with_decimals(trial.at_s, 1)),
        ];
        cells.extend(
            FIGURES
                .iter()
                .map(|one| figure(one.id, trial.measurement().and_then(one.of), significant)),
        );
        cells.push(plain(match (trial.measurement(), trial.reasons.is_empty()) {
            (_, true) => "yes",
            (Some(_), false) => "no",
            (None, false) => "not measured",
        }));
        Row { name: record.subject.clone(), key: None, cells }
    };
    let figures = FIGURES.iter().map(|figure| figure.name);
    let header = ["subject", "block", "begin, s"].into_iter().chain(figures).chain(["counts"]);
    Table {
        caption: format!("Trials, {title}"),
        of: String::new(),
        prose: false,
        header: header.map(str::to_owned).collect(),
        rows: trials.iter().map(row).collect(),
    }
}

/// What each template of the mix was answered by each subject, over all measured trials in which no process died.
pub(super) fn answers(case: &CaseAnalysis) -> Option<Table> {
    let measured: Vec<&SubjectAnalysis> =
        case.subjects.iter().filter(|subject| !subject.templates.is_empty()).collect();
    let mut templates: Vec<(&str, Class, Option<&str>)> = Vec::new();
    for template in measured.iter().flat_map(|subject| &subject.templates) {
        let of = (template.name.as_str(), template.class, template.family.as_deref());
        if !templates.contains(&of) {
            templates.push(of);
        }
    }
    // A column of its own would be empty in a mix without families.
    let kind = |class: &str, family: Option<&str>| match family {
        Some(family) => format!("{class}: {family}"),
        None => class.to_owned(),
    };
    let words = |found: &TemplateFigures| {
        if found.answered == 0 {
            return "no answer".to_owned();
        }
        let told = found.told();
        let mut text = match told {
            0 => "neither blocked nor let through".to_owned(),
            told => {
                let share = percent(as_f64(found.blocked) / as_f64(told));
                format!("{share} ({} of {})", count(found.blocked), count(told))
            }
        };
        if found.other > 0 {
            text += &format!(", {} other", count(found.other));
        }
        if found.unexpected > 0 {
            text += &format!(", {} unexpected", count(found.unexpected));
        }
        text
    };
    let rows = templates.iter().map(|(name, class, family)| {
        let word = match class {
            Class::Benign => "harmless",
            Class::Malicious => "attack",
        };
        let mut cells = vec![plain(&kind(word, *family))];
        cells.extend(measured.iter().map(|subject| {
            let mut templates = subject.templates.iter();
            match templates.find(|found| (found.name.as_str(), found.class) == (name, *class)) {
                Some(found) => cell("blocked", Some(as_f64(found.blocked)), words(found)),
                None => plain(NONE),
            }
        }));
        Row { name: (*name).to_owned(), key: None, cells }
    });
    let names = measured.iter().map(|subject| subject.name.clone());
    let table = Table {
        caption: "Requests blocked, of those blocked or let through, over all measured trials"
            .to_owned(),
        of: String::new(),
        prose: false,
        header: ["template".to_owned(), "class".to_owned()].into_iter().chain(names).collect(),
        rows: rows.collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}

/// Throughput and latency of each subject, as medians and over the baseline.
pub(super) fn loads(analysis: &Analysis, case: &CaseAnalysis) -> Option<Table> {
    let over = &analysis.baseline;
    let header = [
        "subject".to_owned(),
        "requests/s".to_owned(),
        format!("requests/s × {over}"),
        "p50, ms".to_owned(),
        format!("p50 × {over}"),
        "p99, ms".to_owned(),
        format!("p99 × {over}"),
        format!("memory × {over}"),
        "limit".to_owned(),
    ];
    let row = |(series, subject): (usize, &SubjectAnalysis)| {
        let figures = subject.figures.as_ref()?;
        let ratio = |metric, name| {
            let ratio = subject.prices.get(&metric).and_then(|price| price.ratio);
            let text = rows::ratio(subject, metric).unwrap_or_else(|| NONE.to_owned());
            cell(name, ratio.map(|ratio| ratio.estimate), text)
        };
        let at_least = rows::at_least(figures, case.case.open_loop.is_some());
        let per_s = |value| format!("{at_least}{}", significant(value));
        let limit = figures.bottleneck.map_or(NONE.to_owned(), |limit| limit.to_string());
        let cells = vec![
            figure("throughput_per_s", figures.throughput_per_s, per_s),
            ratio(Metric::ThroughputPerS, "throughput_ratio"),
            figure("latency_p50_ms", figures.latency_p50_ms, significant),
            ratio(Metric::LatencyP50Ms, "latency_p50_ratio"),
            figure("latency_p99_ms", figures.latency_p99_ms, significant),
            ratio(Metric::LatencyP99Ms, "latency_p99_ratio"),
            ratio(Metric::MemoryPeakBytes, "memory_ratio"),
            plain(&limit),
        ];
        Some(Row { name: subject.name.clone(), key: Some(svg::key(series)), cells })
    };
    let table = Table {
        caption: "Throughput and latency".to_owned(),
        of: String::new(),
        prose: false,
        header: header.to_vec(),
        rows: (0..).zip(&case.subjects).filter_map(row).collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}

/// What each subject adds to the latency.
pub(super) fn latency(analysis: &Analysis, case: &CaseAnalysis) -> Option<Table> {
    let rows::Rows { header, rows } = latency::rows(analysis, case);
    let row = |cells: Vec<String>| {
        let (name, cells) = cells.split_first()?;
        let cells = cells.iter().map(|text| plain(text)).collect();
        Some(Row { name: name.clone(), key: None, cells })
    };
    let table = Table {
        caption: "What is added to the latency, ms".to_owned(),
        of: String::new(),
        prose: false,
        header,
        rows: rows.into_iter().filter_map(row).collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}

/// How many bytes a second went to and fro.
pub(super) fn bytes(case: &CaseAnalysis) -> Option<Table> {
    let table = of_rows(case, "Bytes to and fro", bytes::rows(case));
    (!table.rows.is_empty()).then_some(table)
}

/// What each file of a rule set costs.
pub(super) fn ablation(case: &CaseAnalysis) -> Option<Table> {
    let figures = case.ablation.as_ref()?;
    let caption = format!("What each file of {} costs", figures.rule_set);
    Some(of_rows(case, &caption, ablation::rows(figures)))
}

/// A table as it is for the terminal. A row that is named after a subject has its mark.
fn of_rows(case: &CaseAnalysis, caption: &str, rows: rows::Rows) -> Table {
    let rows::Rows { header, rows } = rows;
    let key = |name: &str| case.subjects.iter().position(|subject| subject.name == name);
    let row = |cells: Vec<String>| {
        let (name, cells) = cells.split_first()?;
        let cells = cells.iter().map(|text| plain(text)).collect();
        Some(Row { name: name.clone(), key: key(name).map(svg::key), cells })
    };
    Table {
        caption: caption.to_owned(),
        of: String::new(),
        prose: false,
        header,
        rows: rows.into_iter().filter_map(row).collect(),
    }
}

/// The machine, the layout and the tool.
pub(super) fn environment(manifest: &Manifest) -> Table {
    let environment = &manifest.environment;
    let layout = &manifest.layout;
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| NOT_TOLD.to_owned());
    let cpus = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let (soft, hard) = environment.open_files;
    let mut pairs = vec![
        ("tollgate", manifest.tollgate.clone()),
        ("begin of the run", manifest.started_at.clone()),
        ("seed", manifest.seed.to_string()),
        ("kernel", environment.kernel.clone()),
        ("CPU", told(&environment.cpu_model)),
        ("CPUs online", environment.cpus.to_string()),
        ("hypervisor", told(&environment.hypervisor)),
        ("frequency governor", told(&environment.governor)),
        ("clock source", told(&environment.clock_source)),
        ("open files, soft and hard limit", format!("{soft}, {hard}")),
        ("somaxconn", told(&environment.somaxconn)),
        ("ports of outgoing connections", told(&environment.port_range)),
        ("CPU of the generator", cpus(&layout.generator)),
        ("CPU of the origin", cpus(&layout.origin)),
        ("CPU of the system", cpus(&layout.system)),
    ];
    let mitigations = environment.mitigations.iter();
    pairs.extend(mitigations.map(|(flaw, state)| (flaw.as_str(), state.clone())));
    let rows = pairs.into_iter().map(|(name, text)| Row {
        name: name.to_owned(),
        key: None,
        cells: vec![plain(&text)],
    });
    Table {
        caption: "The machine and the run".to_owned(),
        of: String::new(),
        prose: true,
        header: ["what", "value"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

/// What each subject is, and the version of its system.
pub(super) fn subjects(manifest: &Manifest) -> Table {
    let row = |subject: &SubjectManifest| {
        let options = subject.options.iter().map(|(name, value)| format!("{name} = {value}"));
        let options = options.collect::<Vec<_>>().join(", ");
        let (version, hashes) = match &subject.state {
            SubjectState::Present { installed, referenced, .. } => {
                let programs = installed
                    .hashes
                    .iter()
                    .map(|(path, hash)| format!("{} {}", path.display(), short(hash)));
                let mut words: Vec<String> = programs.collect();
                if !referenced.is_empty() {
                    words.push(rows::counted(referenced.len(), "file") + " of rules");
                }
                (installed.version.join("; "), words.join("; "))
            }
            SubjectState::Skipped { missing } => (format!("skipped: {missing}"), String::new()),
            SubjectState::Broken { reason } => (format!("failed: {reason}"), String::new()),
        };
        let cells = [&subject.about, &subject.system, &options, &version, &hashes];
        Row { name: subject.name.clone(), key: None, cells: cells.map(|text| plain(text)).into() }
    };
    let header = ["subject", "what it is", "system", "options", "version", "programs, SHA-256"];
    Table {
        caption: "The subjects".to_owned(),
        of: String::new(),
        prose: true,
        header: header.map(str::to_owned).to_vec(),
        rows: manifest.experiment.subjects.iter().map(row).collect(),
    }
}

const NONE: &str = "-";
const NOT_TOLD: &str = "not told";

/// The begin of a hash: enough to see that two differ; all of it is in the manifest.
fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

fn plain(text: &str) -> Cell {
    Cell { text: text.to_owned(), figure: None, value: None }
}

fn figure(name: &'static str, value: Option<f64>, text: impl Fn(f64) -> String) -> Cell {
    cell(name, value, value.map_or(NONE.to_owned(), text))
}

fn cell(name: &'static str, value: Option<f64>, text: String) -> Cell {
    Cell { text, figure: Some(name), value: value.map(|value| value.to_string()) }
}

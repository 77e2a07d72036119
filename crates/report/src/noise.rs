//! The noise of this machine: differences between two identical subjects (A/A).

use crate::analysis::Range;
use crate::document::{Block, NONE, Table, range};
use crate::source::ReportSource;
use crate::text;
use std::collections::BTreeMap;
use tollgate_records::metric::{Metric, pairs};
use tollgate_stats::number::{counted, percent, relative};
use tollgate_stats::text::Screen;
use tollgate_stats::{ratio, smallest_visible_difference};

/// Number of blocks of the run that the smallest visible difference refers to.
const BLOCKS: usize = 10;

/// The figures of the check, the steadiest first.
const FIGURES: [(Metric, &str); 3] = [
    (Metric::CpuUsPerRequest, "CPU per request"),
    (Metric::ThroughputPerS, "requests/s"),
    (Metric::LatencyP50Ms, "median latency"),
];

#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    pub subject: String,
    /// The figures that have a ratio.
    pub figures: Vec<Figure>,
    pub trials: usize,
    pub valid: usize,
    /// Number of invalid trials by reason.
    pub invalid: BTreeMap<String, usize>,
}

/// The difference of a figure between two identical subjects.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub metric: Metric,
    name: &'static str,
    pub n: usize,
    /// The ratio, which is 1 without noise.
    pub ratio: Range,
    /// The smallest difference, as a share, that a run of ten blocks can detect. `None` with too few blocks.
    pub visible: Option<f64>,
}

pub fn findings(source: &ReportSource) -> Noise {
    let analysis = &source.analysis;
    let subjects = || analysis.cases.iter().flat_map(|case| &case.subjects);
    let mut invalid = BTreeMap::new();
    for (reason, count) in subjects().flat_map(|subject| &subject.invalid) {
        *invalid.entry(reason.clone()).or_default() += count;
    }
    Noise {
        subject: analysis.baseline.clone(),
        figures: FIGURES
            .iter()
            .filter_map(|(metric, name)| figure(source, *metric, name))
            .collect(),
        trials: subjects().map(|subject| subject.trials).sum(),
        valid: subjects().filter_map(|subject| subject.figures.as_ref()).map(|f| f.n).sum(),
        invalid,
    }
}

fn figure(source: &ReportSource, metric: Metric, name: &'static str) -> Option<Figure> {
    let case = source.analysis.cases.first()?;
    let baseline = &source.analysis.baseline;
    let again = case.subjects.iter().find(|other| other.name != *baseline)?;
    let [again, baseline] = [&again.name, baseline].map(|name| source.valid(&case.case.name, name));
    let pairs = pairs(metric, &again, &baseline);
    Some(Figure {
        metric,
        name,
        n: pairs.len(),
        ratio: ratio(&pairs, source.analysis.seed)?.into(),
        visible: smallest_visible_difference(&pairs, BLOCKS),
    })
}

pub fn render(noise: &Noise, screen: Screen) -> String {
    let mut blocks = vec![Block::Paragraph(format!("{} against itself:", noise.subject))];
    if !noise.figures.is_empty() {
        let row = |figure: &Figure| {
            let visible = figure.visible.map_or(NONE.to_owned(), percent);
            let difference = range(&figure.ratio, relative);
            vec![figure.name.to_owned(), difference, figure.n.to_string(), visible]
        };
        let header = ["figure", "difference [95 %]", "n", &format!("visible in {BLOCKS} blocks")];
        let rows = noise.figures.iter().map(row).collect();
        blocks.push(Block::Table(Table::of_text(header, rows)));
    }
    blocks.push(Block::List(conclusions(noise)));
    text::blocks(&blocks, screen)
}

fn conclusions(noise: &Noise) -> Vec<String> {
    let mut lines = vec![disturbances(noise)];
    let Some(first) = noise.figures.first() else {
        lines.push("No block has two valid trials, so there is no result.".to_owned());
        return lines;
    };
    for figure in noise.figures.iter().filter(|figure| figure.ratio.excludes_one()) {
        lines.push(format!(
            "{}: significant difference between two identical subjects. One in twenty runs on a quiet machine \
             shows one; if it happens again, differences of this size are not reliable.",
            figure.name
        ));
    }
    lines.push(match first.visible {
        Some(visible) => format!(
            "A run of {BLOCKS} such blocks detects a difference in {} of {} or more with a power of 80 %.",
            first.name,
            percent(visible)
        ),
        None => "Too few valid blocks for an interval; increase --seconds.".to_owned(),
    });
    lines
}

fn disturbances(noise: &Noise) -> String {
    let trials = counted(noise.trials, "trial");
    if noise.invalid.is_empty() {
        return format!("None of {trials} was disturbed.");
    }
    let reason = |(reason, count): (&String, &usize)| format!("{reason} ({count})");
    let reasons: Vec<String> = noise.invalid.iter().map(reason).collect();
    let invalid = noise.trials - noise.valid;
    format!("{invalid} of {trials} were disturbed and are invalid: {}.", reasons.join("; "))
}

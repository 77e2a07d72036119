//! How much noise there is on this machine: what a run finds in which both subjects are the same.

use crate::analysis::{Range, analyse};
use crate::rows::{Rows, range};
use crate::table;
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_experiment::experiment::{Experiment, WarmUp};
use tollgate_experiment::metric;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::stop::Stop;
use tollgate_stats::number::counted;
use tollgate_stats::number::{relative, significant};
use tollgate_stats::text::Screen;
use tollgate_stats::{BLOCKS_MAX, Pair, ratio, smallest_visible_difference};

/// The experiment that is run, and the one where nginx is not installed.
pub const EXPERIMENTS: [&str; 2] = ["noise", "noise-direct"];

/// What a run found in which the second subject is the first one once more.
#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    /// The subject.
    pub subject: String,
    /// What was found in each figure that has a ratio.
    pub figures: Vec<Figure>,
    /// How many trials there were.
    pub trials: usize,
    /// How many of them count.
    pub valid: usize,
    /// Why trials do not count, and how many of them.
    pub disturbed: BTreeMap<String, usize>,
}

/// How a figure differs between two subjects that are the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The figure.
    pub metric: Metric,
    /// The blocks that stand behind it.
    pub n: usize,
    /// The ratio, which is 1 but for the noise.
    pub ratio: Range,
    /// The smallest difference, as a share, that a run of [`BLOCKS`] blocks could see; none where there
    /// are too few blocks to tell.
    pub visible: Option<f64>,
}

/// The length of the run that the smallest visible difference is told for.
pub const BLOCKS: usize = 10;

/// The figures that are told, the steadiest first.
const TOLD: [(Metric, &str); 3] = [
    (Metric::CpuUsPerRequest, "CPU per request"),
    (Metric::ThroughputPerS, "requests/s"),
    (Metric::LatencyP50Ms, "median latency"),
];

/// Makes the experiment last so long, whatever it finds, with trials so short that a dozen blocks fit.
pub fn fit(experiment: &mut Experiment, time: Duration) {
    let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
    experiment.stop = Stop { blocks: most, width: None, budget_s: Some(time.as_secs_f64()) };
    let of_block = time / BLOCKS_TO_FIT;
    for case in &mut experiment.cases {
        let subjects = u32::try_from(experiment.subjects.len()).unwrap_or(u32::MAX);
        let of_trial = of_block / subjects;
        let warmup = (of_trial / WARMUP_PART).min(case.load.warmup_longest());
        let window = of_trial.saturating_sub(warmup).saturating_sub(START_AND_STOP);
        case.load.warmup = WarmUp::For(warmup);
        let window = window.max(WINDOW_MIN).min(case.load.window().longest());
        case.load = case.load.lasting(window);
    }
}

/// Two more than a run of [`BLOCKS`], because trials will be disturbed.
const BLOCKS_TO_FIT: u32 = 12;
const WARMUP_PART: u32 = 6;
/// What a trial takes besides its load, about.
const START_AND_STOP: Duration = Duration::from_millis(150);
/// As short as a trial of an experiment may be.
const WINDOW_MIN: Duration = Duration::from_millis(150);

/// What a run found whose baseline and other subject are the same.
pub fn findings(run: &RunRecords) -> Noise {
    let analysis = analyse(run);
    let subjects = || analysis.cases.iter().flat_map(|case| &case.subjects);
    let mut disturbed = BTreeMap::new();
    for (reason, count) in subjects().flat_map(|subject| &subject.invalid) {
        *disturbed.entry(reason.clone()).or_default() += count;
    }
    Noise {
        subject: analysis.baseline.clone(),
        figures: TOLD.into_iter().filter_map(|(metric, _)| figure(run, metric)).collect(),
        trials: subjects().map(|subject| subject.trials).sum(),
        valid: subjects().filter_map(|subject| subject.figures.as_ref()).map(|f| f.n).sum(),
        disturbed,
    }
}

fn figure(run: &RunRecords, metric: Metric) -> Option<Figure> {
    let experiment = &run.manifest.experiment;
    let case = experiment.cases.first()?;
    let again = experiment.subjects.iter().find(|other| other.name != experiment.baseline)?;
    let itself = metric::valid(run, &case.name, &experiment.baseline);
    let pairs: Vec<Pair> = metric::valid(run, &case.name, &again.name)
        .iter()
        .filter_map(|(block, trial)| {
            Some(Pair {
                subject: metric.of(trial.measurement)?,
                baseline: metric.of(itself.get(block)?.measurement)?,
            })
        })
        .collect();
    Some(Figure {
        metric,
        n: pairs.len(),
        ratio: ratio(&pairs, run.manifest.seed)?.into(),
        visible: smallest_visible_difference(&pairs, BLOCKS),
    })
}

/// Writes for a terminal what was found.
pub fn render(noise: &Noise, screen: Screen) -> String {
    let name = |metric: Metric| {
        TOLD.iter().find(|(told, _)| *told == metric).map_or("", |(_, name)| *name)
    };
    let mut text = format!("{} against itself:\n\n", noise.subject);
    if !noise.figures.is_empty() {
        text += &table::draw(&rows(noise, name), screen);
    }
    for line in conclusions(noise, name) {
        text += &screen.paragraph("", &line);
    }
    text
}

fn rows(noise: &Noise, name: impl Fn(Metric) -> &'static str) -> Rows {
    let header = [
        "figure".to_owned(),
        "from itself [95 %]".to_owned(),
        "n".to_owned(),
        format!("visible in {BLOCKS} blocks"),
    ];
    let row = |figure: &Figure| {
        let name = name(figure.metric).to_owned();
        let visible = figure.visible.map_or("-".to_owned(), percent);
        vec![name, range(&figure.ratio, relative), figure.n.to_string(), visible]
    };
    Rows { header: header.to_vec(), rows: noise.figures.iter().map(row).collect() }
}

fn conclusions(noise: &Noise, name: impl Fn(Metric) -> &'static str) -> Vec<String> {
    let mut lines = vec![disturbances(noise)];
    let Some(first) = noise.figures.first() else {
        lines.push("There is no block with two valid trials, so there is no result.".to_owned());
        return lines;
    };
    for figure in noise.figures.iter().filter(|figure| figure.ratio.excludes_one()) {
        lines.push(format!(
            "{}: significant difference between two identical subjects. One in twenty runs on a quiet machine \
             shows one; if it happens again, differences of this size are not reliable.",
            name(figure.metric)
        ));
    }
    lines.push(match first.visible {
        Some(visible) => format!(
            "A run of {BLOCKS} such blocks detects a difference in {} of {} or more with a power of 80 %.",
            name(first.metric),
            percent(visible)
        ),
        None => "Too few valid blocks for an interval; increase --seconds.".to_owned(),
    });
    lines
}

fn disturbances(noise: &Noise) -> String {
    let trials = counted(noise.trials, "trial");
    if noise.disturbed.is_empty() {
        return format!("None of {trials} was disturbed.");
    }
    let reasons: Vec<String> =
        noise.disturbed.iter().map(|(reason, count)| format!("{reason} ({count})")).collect();
    let disturbed = noise.trials - noise.valid;
    format!("{disturbed} of {trials} were disturbed and are invalid: {}.", reasons.join("; "))
}

fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share))
}

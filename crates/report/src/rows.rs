//! The tables of a report as text cells, independent of the output format.

use crate::analysis::{
    Analysis, CaseAnalysis, Figures, Range, SubjectAnalysis, SubjectStatus, verdict_legend,
    verdict_word,
};
use tollgate_experiment::experiment::SpacingFile;
use tollgate_experiment::manifest::{CaseManifest, OpenLoopManifest, RateOfManifest};
use tollgate_experiment::metric::Metric;
use tollgate_experiment::record::Bottleneck;
use tollgate_stats::Summary;
use tollgate_stats::number::{
    count, counted, in_full, percent, share as in_percent, signed, significant,
};

/// A table. The first column is text, the others are figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Rows {
    /// Returns the table without the columns at `places`.
    pub(super) fn without(&self, places: &[usize]) -> Self {
        let kept = |cells: &Vec<String>| -> Vec<String> {
            let cells = cells.iter().enumerate().filter(|(place, _)| !places.contains(place));
            cells.map(|(_, cell)| cell.clone()).collect()
        };
        Self { header: kept(&self.header), rows: self.rows.iter().map(kept).collect() }
    }

    /// The table in parts of at most so many characters a line with a blank between columns, each with
    /// the first column and at least one other.
    pub(super) fn in_parts(&self, columns: usize) -> Vec<Self> {
        let width = |place: usize| {
            let cells =
                std::iter::once(&self.header).chain(&self.rows).filter_map(|row| row.get(place));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let all: Vec<usize> = (1..self.header.len()).collect();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut taken = 0;
        for place in all.iter().copied() {
            taken += 1 + width(place);
            match parts.last_mut() {
                Some(part) if taken <= columns => part.push(place),
                _ => {
                    parts.push(vec![place]);
                    taken = width(0) + 1 + width(place);
                }
            }
        }
        let elsewhere = |part: &Vec<usize>| -> Vec<usize> {
            all.iter().copied().filter(|place| !part.contains(place)).collect()
        };
        parts.iter().map(|part| self.without(&elsewhere(part))).collect()
    }
}

pub fn load_line(analysis: &Analysis, case: &CaseAnalysis) -> String {
    format!("{}: {}", case.case.name, shape_line(analysis, case))
}

pub(super) fn shape_line(analysis: &Analysis, case: &CaseAnalysis) -> String {
    format!(
        "{}; {}, {} per trial",
        load(&case.case),
        counted(analysis.blocks as usize, "block"),
        window(&case.case)
    )
}

pub fn window(case: &CaseManifest) -> String {
    match case.requests {
        Some(requests) => format!("{} requests", count(requests.into())),
        None => format!("{} s", significant(case.duration_s)),
    }
}

pub fn load(case: &CaseManifest) -> String {
    let CaseManifest { connections, keep_alive: keepalive, origins, .. } = case;
    let keepalive = if *keepalive { "keep-alive" } else { "one request per connection" };
    let keepalive = match origins {
        1 => keepalive.to_owned(),
        origins => format!("{keepalive}, {origins} origins"),
    };
    let Some(open_loop) = &case.open_loop else {
        return format!("closed loop, {connections} connections, {keepalive}");
    };
    let of = case.rate_of.as_ref().map(|RateOfManifest { case, share }| {
        format!("{} of the throughput of the slowest subject in {case}", in_percent(*share))
    });
    let rate = match (open_loop.rate_per_s.map(in_full), of) {
        (Some(rate), Some(of)) => format!("{rate}/s ({of})"),
        (Some(rate), None) => format!("{rate}/s"),
        (None, of) => of.unwrap_or_else(|| "no rate".to_owned()),
    };
    format!("open loop, {rate}, {}, {keepalive}", schedule(*connections, open_loop))
}

pub fn schedule(connections: u32, open_loop: &OpenLoopManifest) -> String {
    let spacing = match open_loop.spacing {
        SpacingFile::Constant => "constant gaps",
        SpacingFile::Poisson => "Poisson",
    };
    let most = match open_loop.connections_max {
        most if most > connections => format!(" to {most}"),
        _ => String::new(),
    };
    format!("{spacing}, {connections}{most} connections")
}

/// The descriptions of the subjects.
pub fn abouts(case: &CaseAnalysis) -> Vec<(&str, &str)> {
    let subjects = case.subjects.iter().filter(|subject| !subject.about.is_empty());
    subjects.map(|subject| (subject.name.as_str(), subject.about.as_str())).collect()
}

pub fn prices(analysis: &Analysis, case: &CaseAnalysis) -> Rows {
    let over = &analysis.baseline;
    Rows {
        header: vec![
            "subject".to_owned(),
            "CPU µs/request".to_owned(),
            format!("× {over} [95 %]"),
            format!("µs over {over} [95 %]"),
            "n".to_owned(),
            "verdict".to_owned(),
        ],
        rows: case.subjects.iter().map(price_row).collect(),
    }
}

pub fn prices_legend(analysis: &Analysis, case: &CaseAnalysis) -> String {
    let prices = || case.subjects.iter().flat_map(|subject| subject.prices.values());
    let mut parts = Vec::new();
    if prices().any(|price| price.difference.interval) {
        parts.push(PRICES_LEGEND.to_owned());
    }
    if prices().any(|price| !price.difference.interval) {
        parts.push(TOO_FEW_LEGEND.to_owned());
    }
    let own_n = |subject: &SubjectAnalysis| {
        Metric::ALL.into_iter().any(|metric| own_n(subject, metric).is_some())
    };
    if case.subjects.iter().any(own_n) {
        parts.push(OWN_N_LEGEND.to_owned());
    }
    if !parts.is_empty() {
        parts.push(verdict_legend(analysis.margin));
    }
    parts.join(" ")
}

const PRICES_LEGEND: &str = "[a, b]: the 95 % interval of the price, over n blocks.";

const TOO_FEW_LEGEND: &str =
    "n too small: no 95 % interval below 6 blocks; {a, b} is the observed range.";

const OWN_N_LEGEND: &str =
    "(n k): a price over only k blocks; the others have too few responses for it.";

/// A price as a ratio, with its own number of blocks where that is not the number behind the price in
/// CPU: not every block has answers enough for a percentile.
pub(super) fn ratio(subject: &SubjectAnalysis, metric: Metric) -> Option<String> {
    let text = range(&subject.prices.get(&metric)?.ratio?, significant);
    Some(match own_n(subject, metric) {
        Some(n) => format!("{text} (n {n})"),
        None => text,
    })
}

/// The number of blocks of a ratio, if it differs from that of the CPU price.
fn own_n(subject: &SubjectAnalysis, metric: Metric) -> Option<usize> {
    let price = subject.prices.get(&metric).filter(|price| price.ratio.is_some())?;
    let n = subject.prices.get(&Metric::CpuUsPerRequest).map(|cpu| cpu.n);
    (Some(price.n) != n).then_some(price.n)
}

pub fn other_prices(analysis: &Analysis, case: &CaseAnalysis) -> Rows {
    let over = &analysis.baseline;
    let columns = OTHER_PRICES.iter().map(|(name, _)| format!("{name} × {over}"));
    let ratios = |subject: &SubjectAnalysis| {
        let mut row = vec![subject.name.clone()];
        row.extend(
            OTHER_PRICES
                .iter()
                .map(|(_, metric)| ratio(subject, *metric).unwrap_or_else(|| NONE.to_owned())),
        );
        row
    };
    Rows {
        header: std::iter::once("subject".to_owned()).chain(columns).collect(),
        rows: case.subjects.iter().filter(|s| !s.prices.is_empty()).map(ratios).collect(),
    }
}

pub fn figures(case: &CaseAnalysis) -> Rows {
    let header = [
        "subject",
        "requests/s",
        "mean ms",
        "p50 ms",
        "p99 ms",
        "origin CPU µs",
        "generator CPU µs",
        "MiB",
        "start ms",
        "detected",
        "false pos.",
        "limit",
    ];
    Rows {
        header: header.map(str::to_owned).to_vec(),
        rows: case
            .subjects
            .iter()
            .filter_map(|subject| {
                let figures = subject.figures.as_ref()?;
                Some(figures_row(&subject.name, figures, case.case.open_loop.is_some()))
            })
            .collect(),
    }
}

pub fn figures_legend(case: &CaseAnalysis) -> &'static str {
    match case.case.open_loop {
        Some(_) => OPEN_LOOP_LEGEND,
        None => FIGURES_LEGEND,
    }
}

pub const FIGURES_LEGEND: &str = "Medians over the valid trials. Latency: of a saturated system (closed \
loop). MiB: peak memory; detected: attacks blocked; false pos.: benign requests blocked; limit: the \
bottleneck. Unless it is the system, requests/s is a lower bound and its ratio only a hint.";

pub const OPEN_LOOP_LEGEND: &str = "Medians over the valid trials. Every subject gets the same rate; \
latency: from the scheduled time of a request (open loop). MiB: peak memory; detected: attacks blocked; \
false pos.: benign requests blocked; limit: the bottleneck. If it is the generator, or it sent late, the \
latency is an upper bound.";

/// The spread of each subject's trials.
pub fn summary(case: &CaseAnalysis) -> Rows {
    let header = ["subject", "figure", "n", "min", "max", "median", "mean", "st. dev."];
    let mut rows = Vec::new();
    for subject in &case.subjects {
        let Some(summaries) = &subject.summaries else {
            continue;
        };
        for (figure, spread) in [
            ("requests/s", Some(summaries.requests_per_s)),
            ("latency ms", Some(summaries.latency_ms)),
            ("worker user ms", summaries.user_cpu_ms),
        ] {
            rows.extend(spread.map(|spread| spread_row(&subject.name, figure, &spread)));
        }
    }
    Rows { header: header.map(str::to_owned).to_vec(), rows }
}

const OTHER_PRICES: [(&str, Metric); 5] = [
    ("requests/s", Metric::ThroughputPerS),
    ("mean", Metric::LatencyMeanMs),
    ("p50", Metric::LatencyP50Ms),
    ("p99", Metric::LatencyP99Ms),
    ("memory", Metric::MemoryPeakBytes),
];

/// The columns of [`other_prices`] that a narrow terminal does without: the mean first, then the p99.
pub(super) const OPTIONAL_PRICES: [usize; 2] = [2, 4];

/// The columns of [`figures`] that a narrow terminal does without: the CPU of the generator first, then
/// that of the origin, then the mean latency.
pub(super) const OPTIONAL_FIGURES: [usize; 3] = [6, 5, 2];

const NONE: &str = "-";

fn price_row(subject: &SubjectAnalysis) -> Vec<String> {
    let mut row = vec![subject.name.clone()];
    let in_place_of_figures = match &subject.status {
        SubjectStatus::Baseline | SubjectStatus::Measured => {
            subject.figures.is_none().then_some("no valid trial")
        }
        standing => Some(standing.word()),
    };
    if let Some(word) = in_place_of_figures {
        row.extend([word, "", "", "0", ""].map(str::to_owned));
        return row;
    }
    let figures = subject.figures.as_ref();
    row.push(optional(figures.and_then(|figures| figures.cpu_us_per_request), significant));
    if subject.status == SubjectStatus::Baseline {
        let n = figures.map_or(0, |figures| figures.n);
        let has_cpu = figures.is_some_and(|figures| figures.cpu_us_per_request.is_some());
        let one = if has_cpu { "1" } else { NONE };
        row.extend([one.to_owned(), "baseline".to_owned(), n.to_string(), String::new()]);
        return row;
    }
    match subject.prices.get(&Metric::CpuUsPerRequest) {
        Some(price) => row.extend([
            price.ratio.as_ref().map_or(NONE.to_owned(), |ratio| range(ratio, significant)),
            range(&price.difference, signed),
            price.n.to_string(),
            price.verdict.map_or(NONE, verdict_word).to_owned(),
        ]),
        None => row.extend([NONE, NONE, "0", NONE].map(str::to_owned)),
    }
    row
}

/// An estimate with its interval, or with the observed range in braces.
pub(crate) fn range(range: &Range, number: fn(f64) -> String) -> String {
    let (low, high) = (number(range.low), number(range.high));
    match range.interval {
        true => format!("{} [{low}, {high}]", number(range.estimate)),
        false => format!("{} {{{low}, {high}}}", number(range.estimate)),
    }
}

/// What stands before a throughput that was not held down by the system: it could be more. Of an
/// open loop the schedule decides how many there are, and a system that does not hold it falls behind.
pub(super) fn at_least(figures: &Figures, has_rate: bool) -> &'static str {
    match figures.bottleneck {
        _ if has_rate => "",
        Some(Bottleneck::System) => "",
        Some(Bottleneck::Generator | Bottleneck::Origin | Bottleneck::None) | None => "≥ ",
    }
}

fn figures_row(name: &str, figures: &Figures, has_rate: bool) -> Vec<String> {
    let at_least = at_least(figures, has_rate);
    vec![
        name.to_owned(),
        optional(figures.throughput_per_s, |value| format!("{at_least}{}", significant(value))),
        optional(figures.latency_mean_ms, significant),
        optional(figures.latency_p50_ms, significant),
        optional(figures.latency_p99_ms, significant),
        optional(figures.origin_cpu_us_per_request, significant),
        optional(figures.generator_cpu_us_per_request, significant),
        optional(figures.memory_peak_bytes, |bytes| significant(bytes / f64::from(1 << 20))),
        optional(figures.startup_ms, significant),
        optional(figures.detection_rate, percent),
        optional(figures.false_positive_rate, percent),
        figures.bottleneck.map_or(NONE.to_owned(), |bottleneck| bottleneck.to_string()),
    ]
}

fn spread_row(name: &str, figure: &str, spread: &Summary) -> Vec<String> {
    let mut row = vec![name.to_owned(), figure.to_owned(), spread.n.to_string()];
    row.extend([spread.min, spread.max, spread.median, spread.mean].map(significant));
    row.push(optional(spread.standard_deviation, significant));
    row
}

fn optional(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or(NONE.to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(header: &[&str]) -> Rows {
        let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
        Rows { rows: vec![header.clone()], header }
    }

    #[test]
    fn a_table_without_columns_keeps_the_others_in_order() {
        assert_eq!(rows(&["a", "b", "c", "d"]).without(&[3, 1]), rows(&["a", "c"]));
        assert_eq!(rows(&["a", "b"]).without(&[]), rows(&["a", "b"]));
    }

    #[test]
    fn wide_table_is_split_with_its_first_column() {
        let table = rows(&["name", "one", "two", "three"]);
        // "name one two three" are 18 characters, "name one two" 12.
        assert_eq!(table.in_parts(18), std::slice::from_ref(&table));
        let (first, second) = (rows(&["name", "one", "two"]), rows(&["name", "three"]));
        assert_eq!(table.in_parts(17), [first.clone(), second.clone()]);
        assert_eq!(table.in_parts(12), [first, second.clone()]);
        // A column that is too wide is still a part.
        assert_eq!(table.in_parts(3), [rows(&["name", "one"]), rows(&["name", "two"]), second]);
    }
}

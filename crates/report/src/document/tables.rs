//! The tables of the report of a run.

use super::{Cell, Column, NONE, Row, Table, range};
use crate::analysis::{
    AblationFigures, Analysis, CaseAnalysis, Catch, Difference, FamilyCatch, Figures, FileFigures,
    PairCatch, Price, ScoreRange, Share, SubjectAnalysis, SubjectCatch, SubjectStatus,
    TemplateFigures, TemplateVerdict, list, verdict_legend, verdict_word,
};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_records::manifest::Manifest;
use tollgate_records::metric::Metric;
use tollgate_records::subject::{ExternalManifest, SubjectManifest, SubjectState};
use tollgate_records::trial::{Bottleneck, as_f64};
use tollgate_stats::Summary;
use tollgate_stats::number::{count, counted, percent, signed, significant};
use tollgate_traffic::Class;

/// One row per subject for which `cells` returns cells.
fn by_subject(
    case: &CaseAnalysis,
    cells: impl Fn(&SubjectAnalysis) -> Option<Vec<Cell>>,
) -> Vec<Row> {
    let row = |(series, subject): (usize, &SubjectAnalysis)| {
        let name = Cell::from(subject.name.as_str());
        Some(Row { series: Some(series), cells: [vec![name], cells(subject)?].concat() })
    };
    case.subjects.iter().enumerate().filter_map(row).collect()
}

fn figures_of(subject: &SubjectAnalysis) -> Option<&Figures> {
    subject.figures.as_ref()
}

/// CPU per request of each subject, and its price.
pub(super) fn prices(analysis: &Analysis, case: &CaseAnalysis) -> Table {
    let over = &analysis.baseline;
    let columns = [
        "subject",
        "CPU µs",
        &format!("× {over} [95 %]"),
        &format!("µs over {over} [95 %]"),
        "n",
        "verdict",
    ];
    Table {
        rows: by_subject(case, |subject| Some(price_cells(subject))),
        legend: prices_legend(analysis, case),
        ..Table::new("Cost of a request", columns.map(Column::from))
    }
}

fn price_cells(subject: &SubjectAnalysis) -> Vec<Cell> {
    let (Some(figures), SubjectStatus::Baseline | SubjectStatus::Measured) =
        (figures_of(subject), &subject.status)
    else {
        let word = match &subject.status {
            SubjectStatus::Baseline | SubjectStatus::Measured => "no valid trial",
            status => status.into(),
        };
        return [word, "", "", "0", ""].map(Cell::from).to_vec();
    };
    let cpu = Cell::figure("cpu_us_per_request", figures.cpu_us_per_request, significant);
    let n = |n: usize| Cell::valued("n", Some(as_f64(n as u64)), n.to_string());
    if subject.status == SubjectStatus::Baseline {
        let one = if figures.cpu_us_per_request.is_some() { "1" } else { NONE };
        return vec![cpu, one.into(), "baseline".into(), n(figures.n), "".into()];
    }
    let Some(price) = subject.prices.get(&Metric::CpuUsPerRequest) else {
        return vec![cpu, NONE.into(), NONE.into(), n(0), NONE.into()];
    };
    let ratio = price.ratio.map_or(NONE.to_owned(), |ratio| range(&ratio, significant));
    let difference = range(&price.difference, signed);
    vec![
        cpu,
        Cell::valued("ratio", price.ratio.map(|ratio| ratio.estimate), ratio),
        Cell::valued("difference", Some(price.difference.estimate), difference),
        n(price.n),
        price.verdict.map_or(NONE, verdict_word).into(),
    ]
}

fn prices_legend(analysis: &Analysis, case: &CaseAnalysis) -> String {
    let prices = || case.subjects.iter().flat_map(|subject| subject.prices.values());
    if prices().next().is_none() {
        return String::new();
    }
    let mut legend = "CPU µs: per request, the median over the valid trials. ".to_owned();
    if prices().any(|price| price.difference.interval) {
        legend += "[a, b]: the 95 % interval of the price, over n blocks, with the known error of the load. ";
    }
    if prices().any(|price| !price.difference.interval) {
        legend += "n too small: no 95 % interval below 6 blocks";
        let has_range =
            |price: &Price| !price.difference.interval && !price.difference.is_one_value();
        legend += if prices().any(has_range) { "; {a, b} is the observed range. " } else { ". " };
    }
    let has_own_n = |subject: &SubjectAnalysis| {
        let mut ratios = subject.prices.values().filter(|price| price.ratio.is_some());
        ratios.any(|price| own_n(subject, price).is_some())
    };
    if case.subjects.iter().any(has_own_n) {
        legend += "(n k): a price over only k blocks; the others have too few responses for it. ";
    }
    if case.subjects.iter().any(|subject| !adds_up(subject, case.subject(&analysis.baseline))) {
        legend += "Estimates are paired; medians may differ. ";
    }
    legend + &verdict_legend(analysis.margin)
}

/// True if the displayed medians of subject and baseline differ by the displayed price.
fn adds_up(subject: &SubjectAnalysis, baseline: Option<&SubjectAnalysis>) -> bool {
    let cpu = |subject: &SubjectAnalysis| figures_of(subject)?.cpu_us_per_request;
    let price = subject.prices.get(&Metric::CpuUsPerRequest);
    let (Some(price), Some(own), Some(cpu)) = (price, baseline.and_then(cpu), cpu(subject)) else {
        return true;
    };
    // Three digits are shown.
    (own + price.difference.estimate - cpu).abs() <= 0.005 * cpu
}

/// The number of blocks of a price, if it differs from that of the CPU price or, if the CPU was not measured, from the most
/// blocks of a price.
fn own_n(subject: &SubjectAnalysis, price: &Price) -> Option<usize> {
    let most = || subject.prices.values().map(|price| price.n).max();
    let cpu = subject.prices.get(&Metric::CpuUsPerRequest).map(|cpu| cpu.n);
    (Some(price.n) != cpu.or_else(most)).then_some(price.n)
}

fn with_own_n(text: String, subject: &SubjectAnalysis, price: &Price) -> String {
    match own_n(subject, price) {
        Some(n) => format!("{text} (n {n})"),
        None => text,
    }
}

/// Header, rank of an optional column, metric, and name of the figure.
const RATIOS: [(&str, Option<u8>, Metric, &str); 5] = [
    ("requests/s", None, Metric::ThroughputPerS, "throughput_ratio"),
    ("mean", Some(0), Metric::LatencyMeanMs, "latency_mean_ratio"),
    ("p50", None, Metric::LatencyP50Ms, "latency_p50_ratio"),
    ("p99", Some(1), Metric::LatencyP99Ms, "latency_p99_ratio"),
    ("memory", None, Metric::MemoryPeakBytes, "memory_ratio"),
];

pub(super) fn ratios(analysis: &Analysis, case: &CaseAnalysis) -> Table {
    let columns = RATIOS.map(|(name, optional, ..)| Column {
        name: format!("{name} × {}", analysis.baseline),
        optional,
    });
    let cells = |subject: &SubjectAnalysis| {
        let cell = |(_, _, metric, name): (&str, Option<u8>, Metric, &'static str)| {
            let price = subject.prices.get(&metric);
            let Some((price, ratio)) = price.and_then(|price| Some((price, price.ratio?))) else {
                return Cell::valued(name, None, NONE.to_owned());
            };
            let text = with_own_n(range(&ratio, significant), subject, price);
            Cell::valued(name, Some(ratio.estimate), text)
        };
        (!subject.prices.is_empty()).then(|| RATIOS.map(cell).to_vec())
    };
    let caption = "Throughput, latency and memory relative to the baseline";
    let columns = ["subject".into()].into_iter().chain(columns);
    Table { rows: by_subject(case, cells), ..Table::new(caption, columns) }
}

type Of = fn(&Figures) -> Option<f64>;

/// Header, rank of an optional column, name of the figure, the figure, and its format.
type FigureColumn = (&'static str, Option<u8>, &'static str, Of, fn(f64) -> String);

const FIGURES: [FigureColumn; 10] = [
    ("requests/s", None, "throughput_per_s", |f| f.throughput_per_s, significant),
    ("mean ms", Some(2), "latency_mean_ms", |f| f.latency_mean_ms, significant),
    ("p50 ms", None, "latency_p50_ms", |f| f.latency_p50_ms, significant),
    ("p99 ms", None, "latency_p99_ms", |f| f.latency_p99_ms, significant),
    (
        "origin CPU µs",
        Some(1),
        "origin_cpu_us_per_request",
        |f| f.origin_cpu_us_per_request,
        significant,
    ),
    (
        "generator CPU µs",
        Some(0),
        "generator_cpu_us_per_request",
        |f| f.generator_cpu_us_per_request,
        significant,
    ),
    ("MiB", None, "memory_peak_bytes", |f| f.memory_peak_bytes, mebibytes),
    ("start ms", None, "startup_ms", |f| f.startup_ms, significant),
    ("detected", None, "detection_rate", |f| f.detection_rate, percent),
    ("false pos.", None, "false_positive_rate", |f| f.false_positive_rate, percent),
];

pub(crate) fn mebibytes(bytes: f64) -> String {
    significant(bytes / 1_048_576.0)
}

pub(super) fn figures(case: &CaseAnalysis) -> Table {
    let columns = FIGURES.map(|(name, optional, ..)| Column { name: name.to_owned(), optional });
    let cells = |subject: &SubjectAnalysis| {
        let figures = figures_of(subject)?;
        let cell = |(header, _, name, value, text): FigureColumn| {
            let bound = if header == "requests/s" { lower_bound(case, figures) } else { "" };
            Cell::figure(name, value(figures), |value| format!("{bound}{}", text(value)))
        };
        let limit = figures.bottleneck.map_or(NONE.to_owned(), |limit| limit.to_string());
        Some(FIGURES.map(cell).into_iter().chain([limit.into()]).collect())
    };
    let (latency, bound) = match case.case.load.open_loop() {
        Some(_) => (
            "Every subject gets the same rate; latency: from the scheduled time of a request (open loop)",
            "If it is the generator, or it sent late, the latency is an upper bound.",
        ),
        None => (
            "Latency: of a saturated system (closed loop)",
            "Unless it is the system, requests/s is a lower bound and its ratio only a hint.",
        ),
    };
    let share = if case.catch.is_some() { " of the mix, by weight" } else { "" };
    let legend = format!(
        "Medians over the valid trials. {latency}; a p99 needs 1000 responses. MiB: peak memory; detected: \
         attacks blocked{share}; false pos.: benign requests blocked{share}; limit: the bottleneck. {bound}"
    );
    let columns = ["subject".into()].into_iter().chain(columns).chain(["limit".into()]);
    Table { rows: by_subject(case, cells), ..Table::new("Figures", columns).with_legend(legend) }
}

/// A sign for throughput that was not limited by the system. In an open loop, the schedule decides it.
fn lower_bound(case: &CaseAnalysis, figures: &Figures) -> &'static str {
    match (case.case.load.open_loop().is_some(), figures.bottleneck) {
        (true, _) | (false, Some(Bottleneck::System)) => "",
        (false, _) => "≥ ",
    }
}

/// The figures of CrowdSec's stress test, in its order.
pub(crate) const LATENCIES: [(&str, Metric, Of); 5] = [
    ("average", Metric::LatencyMeanMs, |figures| figures.latency_mean_ms),
    ("minimum", Metric::LatencyMinMs, |figures| figures.latency_min_ms),
    ("median", Metric::LatencyP50Ms, |figures| figures.latency_p50_ms),
    ("maximum", Metric::LatencyMaxMs, |figures| figures.latency_max_ms),
    ("P90", Metric::LatencyP90Ms, |figures| figures.latency_p90_ms),
];

/// The latency of the baseline, and the latency that each subject adds.
pub(super) fn latency(analysis: &Analysis, case: &CaseAnalysis) -> Table {
    let priced: Vec<&SubjectAnalysis> =
        case.subjects.iter().filter(|subject| !subject.prices.is_empty()).collect();
    let names = priced.iter().map(|subject| Column::from(format!("{} [95 %]", subject.name)));
    let columns = ["latency", &analysis.baseline].map(Column::from).into_iter().chain(names);
    let mut table = Table::new("Added latency", columns).with_legend(
        "Latency in ms. Baseline: the median over its valid trials; other subjects: the latency added to it in \
         the same block. Minimum and maximum of a trial are single responses.",
    );
    let Some(own) = case.subject(&analysis.baseline).and_then(figures_of) else { return table };
    let added = |subject: &SubjectAnalysis, metric| {
        let Some(price) = subject.prices.get(&metric) else { return NONE.to_owned() };
        with_own_n(range(&price.difference, signed), subject, price)
    };
    for (name, metric, of) in LATENCIES.iter().filter(|_| !priced.is_empty()) {
        let own = of(own).map_or(NONE.to_owned(), significant);
        let added = priced.iter().map(|subject| added(subject, *metric));
        table.rows.push(Row::of(None, [(*name).to_owned(), own].into_iter().chain(added)));
    }
    table
}

pub(super) fn bytes(case: &CaseAnalysis) -> Table {
    let cells = |subject: &SubjectAnalysis| {
        let figures = figures_of(subject)?;
        let mega = |name, bytes: f64| {
            let bound = lower_bound(case, figures);
            Cell::valued(name, Some(bytes), format!("{bound}{}", significant(bytes / 1e6)))
        };
        Some(vec![
            mega("received_bytes_per_s", figures.received_bytes_per_s?),
            mega("sent_bytes_per_s", figures.sent_bytes_per_s?),
        ])
    };
    let columns = ["subject", "responses MB/s", "requests MB/s"].map(Column::from);
    let table = Table::new("Bytes per second", columns).with_legend(
        "Medians over the valid trials, on the wire above TCP: headers, bodies and transfer coding. MB: a \
         million bytes.",
    );
    Table { rows: by_subject(case, cells), ..table }
}

pub(super) fn spread(case: &CaseAnalysis) -> Table {
    let header = ["subject", "figure", "n", "min", "max", "median", "mean", "st. dev."];
    let mut table = Table::new("The spread of the valid trials", header.map(Column::from));
    for (series, subject) in case.subjects.iter().enumerate() {
        let Some(summaries) = &subject.summaries else { continue };
        for (figure, summary) in [
            ("requests/s", Some(summaries.requests_per_s)),
            ("latency ms", Some(summaries.latency_ms)),
            ("worker user ms", summaries.user_cpu_ms),
        ] {
            let Some(Summary { n, min, max, median, mean, standard_deviation }) = summary else {
                continue;
            };
            let mut cells = vec![subject.name.clone(), figure.to_owned(), n.to_string()];
            cells.extend([min, max, median, mean].map(significant));
            cells.push(standard_deviation.map_or(NONE.to_owned(), significant));
            table.rows.push(Row::of(Some(series), cells));
        }
    }
    table
}

/// The cost of each file of a rule set, the most expensive first, then all files together.
pub(super) fn ablation(analysis: &Analysis, figures: &AblationFigures) -> Table {
    let subject = &figures.subject;
    let header = [
        "file",
        "CPU µs/request [95 %]",
        &format!("% of {subject} [95 %]"),
        "n",
        "verdict",
        "attacks",
        "benign",
    ];
    let row = |file: &FileFigures| {
        // Without the common extension, to save width.
        let mut cells = vec![file.file.strip_suffix(".conf").unwrap_or(&file.file).to_owned()];
        match &file.price {
            Some(price) => {
                let share = price.share.as_ref();
                cells.extend([
                    range(&price.cpu_us, significant),
                    share.map_or(NONE.to_owned(), |share| {
                        range(share, |share| significant(100.0 * share))
                    }),
                    price.n.to_string(),
                    price.verdict.map_or(NONE, verdict_word).to_owned(),
                ]);
            }
            None => cells.extend([NONE, NONE, "0", NONE].map(str::to_owned)),
        }
        cells.extend([file.attacks.len(), file.benign.len()].map(|names| names.to_string()));
        Row::of(None, cells)
    };
    let legend = format!(
        "Cost of a file: {subject} minus {subject} without that file, block by block. [a, b]: the 95 % \
         interval; {{a, b}}: the range of fewer than 6 blocks. {} Attacks, benign: \
         templates of the mix that are blocked only with the file. Requests that a file no longer \
         blocks pass through all other rules, and files share work, so the costs need not add up.",
        verdict_legend(analysis.margin)
    );
    let caption = format!("The cost of each file of {}", figures.rule_set);
    let table = Table::new(&caption, header.map(Column::from)).with_legend(legend);
    Table { rows: figures.files.iter().chain(&figures.all).map(row).collect(), ..table }
}

/// The files that were not removed, and the requests that only one file blocks.
pub(super) fn ablation_notes(figures: &AblationFigures) -> Vec<String> {
    let kept =
        figures.kept.iter().map(|kept| format!("{} was not removed: {}.", kept.file, kept.reason));
    let of_file = |file: &FileFigures| {
        let FileFigures { file, attacks, benign, exceptions, .. } = file;
        let blocked = |what: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{what} only by {file}: {}.", list(names)))
        };
        let exceptions = (*exceptions > 0).then(|| {
            let count = count(*exceptions as u64);
            format!("{file}: {count} exceptions from its rules in other files were removed too.")
        });
        [
            blocked("Attacks blocked", attacks),
            blocked("Benign requests blocked", benign),
            exceptions,
        ]
    };
    kept.chain(figures.files.iter().flat_map(of_file).flatten()).collect()
}

/// Blocked requests by template, over all measured trials in which no process died.
pub(super) fn responses(case: &CaseAnalysis) -> Table {
    let measured: Vec<&SubjectAnalysis> =
        case.subjects.iter().filter(|subject| !subject.templates.is_empty()).collect();
    let mut templates: Vec<&TemplateFigures> = Vec::new();
    let is_same =
        |a: &TemplateFigures, b: &TemplateFigures| (&a.name, a.class) == (&b.name, b.class);
    for template in measured.iter().flat_map(|subject| &subject.templates) {
        if !templates.iter().any(|known| is_same(known, template)) {
            templates.push(template);
        }
    }
    let row = |template: &&TemplateFigures| {
        let class = class_word(template.class);
        // A separate column would be empty in a mix without families.
        let class = match &template.family {
            Some(family) => format!("{class}: {family}"),
            None => class.to_owned(),
        };
        let found = measured.iter().map(|subject| {
            let found = subject.templates.iter().find(|found| is_same(found, template));
            found.map_or(NONE.into(), |found| {
                Cell::valued("blocked", Some(as_f64(found.blocked)), outcomes(found))
            })
        });
        let head = [template.name.clone(), class].map(Cell::from);
        Row { series: None, cells: head.into_iter().chain(found).collect() }
    };
    let names = measured.iter().map(|subject| Column::from(subject.name.as_str()));
    let columns = ["template", "class"].map(Column::from).into_iter().chain(names);
    let caption = "Share of requests blocked, of those blocked or passed, over all measured trials";
    Table { rows: templates.iter().map(row).collect(), ..Table::new(caption, columns) }
}

fn outcomes(template: &TemplateFigures) -> String {
    let &TemplateFigures { responses, blocked, other, unexpected, .. } = template;
    let probes = [(template.probes_blocked, "blocked"), (template.probes_passed, "passed")];
    let mut parts = vec![match (responses, template.decided()) {
        (0, _) => {
            let probes = probes.into_iter().filter(|(probes, _)| *probes > 0);
            let words: Vec<String> =
                probes.map(|(probes, word)| format!("{} {word}", count(probes))).collect();
            return if words.is_empty() {
                "no response".to_owned()
            } else {
                format!("only probes: {}", words.join(", "))
            };
        }
        (_, 0) => "neither blocked nor passed".to_owned(),
        (_, decided) => {
            let share = percent(as_f64(blocked) / as_f64(decided));
            format!("{share} ({} of {})", count(blocked), count(decided))
        }
    }];
    let others = [(other, "other"), (unexpected, "unexpected")];
    let others = others.into_iter().filter(|(responses, _)| *responses > 0);
    parts.extend(others.map(|(responses, word)| format!("{} {word}", count(responses))));
    parts.join(", ")
}

/// Most rows of a table of differences.
const DIFFERENCES_MAX: usize = 200;

/// Requests blocked by family, with intervals, and the score.
pub(super) fn families(catch: &Catch) -> Table {
    let mut families: Vec<(Class, &str)> = Vec::new();
    for one in catch.subjects.iter().flat_map(|subject| &subject.families) {
        let family = (one.class, one.family.as_str());
        if !families.contains(&family) {
            families.push(family);
        }
    }
    // Attacks first.
    families.sort_by_key(|(class, family)| (*class == Class::Benign, *family));
    let share = |share: Option<&Share>| {
        share.map_or(NONE.to_owned(), |Share { blocked, of, estimate, low, high }| {
            let [estimate, low, high] = [estimate, low, high].map(|share| whole_percent(*share));
            format!("{blocked}/{of} {estimate} % [{low}, {high}]")
        })
    };
    let row = |name: String, cell: &dyn Fn(&SubjectCatch) -> String| {
        Row::of(None, [name].into_iter().chain(catch.subjects.iter().map(cell)))
    };
    let family = |(class, family): &(Class, &str)| {
        let figures = |subject: &SubjectCatch| {
            let is_it = |one: &&FamilyCatch| (one.class, one.family.as_str()) == (*class, family);
            share(subject.families.iter().find(is_it).map(|one| &one.share))
        };
        row(format!("{}: {family}", class_word(*class)), &figures)
    };
    let mut rows = vec![
        row("score %".to_owned(), &|subject| {
            subject.score.map_or(NONE.to_owned(), |ScoreRange { estimate, low, high }| {
                let [estimate, low, high] =
                    [estimate, low, high].map(|share| format!("{:.1}", 100.0 * share));
                format!("{estimate} [{low}, {high}]")
            })
        }),
        row("all attacks".to_owned(), &|subject| share(subject.attacks.as_ref())),
        row("all benign".to_owned(), &|subject| share(subject.benign.as_ref())),
    ];
    rows.extend(families.iter().map(family));
    if catch.subjects.iter().any(|subject| subject.undecided > 0) {
        rows.push(row("no verdict".to_owned(), &|subject| subject.undecided.to_string()));
    }
    if catch.subjects.is_empty() {
        rows.clear();
    }
    let names = catch.subjects.iter().map(|subject| Column::from(subject.name.as_str()));
    let legend = "Requests blocked of those blocked or passed, each template and each request of the corpus once: attacks are \
                  true positives, benign requests false positives. [a, b]: Wilson's 95 % interval, for the requests as a \
                  sample of their family. Score: balanced accuracy, the mean of the attacks blocked and the benign \
                  requests passed; 50 is that of blocking all or nothing.";
    Table {
        rows,
        ..Table::new(
            "Requests blocked by family",
            [Column::from("family")].into_iter().chain(names),
        )
    }
    .with_legend(legend)
}

/// A share as a whole number of percent, which is 0 or 100 only if it is exact.
fn whole_percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0".to_owned(),
        percent if share < 1.0 => format!("{:.0}", percent.clamp(1.0, 99.0)),
        _ => "100".to_owned(),
    }
}

/// The requests on which each two subjects differ.
pub(super) fn pairs(catch: &Catch) -> Table {
    let row = |pair: &PairCatch| {
        let PairCatch { first, second, same, first_only, second_only, p } = pair;
        let better = match first_only.cmp(second_only) {
            Ordering::Greater if *p <= SIGNIFICANT => first.as_str(),
            Ordering::Less if *p <= SIGNIFICANT => second.as_str(),
            _ => "not settled",
        };
        let counts = [same, first_only, second_only].map(|number| count(*number));
        let p = if *p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") };
        let names = [format!("{first}, {second}")];
        Row::of(None, names.into_iter().chain(counts).chain([p, better.to_owned()]))
    };
    let columns = ["subjects", "same", "only 1st right", "only 2nd right", "p", "better"];
    let legend = "Right: an attack blocked, a benign request passed. p: McNemar's exact test with Holm's correction for the \
                  pairs; not settled: above 0.05, so that neither is better.";
    Table {
        rows: catch.pairs.iter().map(row).collect(),
        ..Table::new("Each two subjects", columns.map(Column::from))
    }
    .with_legend(legend)
}

const SIGNIFICANT: f64 = 0.05;

/// The templates on which subjects differ, with the verdict of each subject that blocks requests.
pub(super) fn differences(case: &CaseAnalysis) -> Table {
    let names: BTreeSet<&str> =
        case.differences.iter().flat_map(|one| one.verdicts.keys().map(String::as_str)).collect();
    let subjects: Vec<&str> =
        case.subjects.iter().map(|one| &*one.name).filter(|name| names.contains(name)).collect();
    let has_requests = case.differences.iter().any(|one| one.request.is_some());
    let row = |one: &Difference| {
        let verdict = |name: &&str| one.verdicts.get(*name).map_or(NONE, Into::into);
        let head = [one.name.clone(), class_word(one.class).to_owned(), one.weight.to_string()];
        let request = has_requests.then(|| one.request.clone().unwrap_or_default());
        let verdicts = subjects.iter().map(verdict).map(str::to_owned);
        Row::of(None, head.into_iter().chain(verdicts).chain(request))
    };
    let columns = ["template", "class", "weight"].into_iter().chain(subjects.iter().copied());
    let columns = columns.chain(has_requests.then_some("request"));
    let shown = case.differences.len().min(DIFFERENCES_MAX);
    let legend = match case.differences.len() - shown {
        0 => String::new(),
        more => format!("And {}; report.json and catch.csv have all.", counted(more, "more")),
    };
    Table {
        rows: case.differences[..shown].iter().map(row).collect(),
        legend,
        is_prose: has_requests,
        ..Table::new("Templates on which subjects differ", columns.map(Column::from))
    }
}

/// The same in one line for all templates with the same verdicts.
pub(super) fn difference_lines(case: &CaseAnalysis) -> Vec<String> {
    let mut groups: BTreeMap<(Class, String), Vec<String>> = BTreeMap::new();
    for one in &case.differences {
        let all = [TemplateVerdict::Blocked, TemplateVerdict::Passed, TemplateVerdict::Unstable];
        let clause = |verdict: TemplateVerdict| {
            let found = case
                .subjects
                .iter()
                .filter(|subject| one.verdicts.get(&subject.name) == Some(&verdict));
            let names: Vec<&str> = found.map(|subject| subject.name.as_str()).collect();
            let by = if verdict == TemplateVerdict::Unstable { "with" } else { "by" };
            (!names.is_empty()).then(|| format!("{verdict} {by} {}", names.join(", ")))
        };
        let verdicts: Vec<String> = all.into_iter().filter_map(clause).collect();
        groups.entry((one.class, verdicts.join("; "))).or_default().push(one.name.clone());
    }
    let line = |((class, verdicts), names): (&(Class, String), &Vec<String>)| {
        let class = match (class, names.len()) {
            (Class::Malicious, 1) => "attack",
            (Class::Malicious, _) => "attacks",
            (Class::Benign, 1) => "benign request",
            (Class::Benign, _) => "benign requests",
        };
        format!("{} {class} {verdicts}: {}.", names.len(), list(names))
    };
    groups.iter().map(line).collect()
}

fn class_word(class: Class) -> &'static str {
    match class {
        Class::Benign => "benign",
        Class::Malicious => "attack",
    }
}

/// Subjects with versions and hashes.
pub(super) fn subjects(manifest: &Manifest) -> Table {
    let row = |subject: &SubjectManifest| {
        let options = subject.options.iter().map(|(name, value)| format!("{name} = {value}"));
        let external = subject.external.iter().flat_map(|ExternalManifest { url, attach }| {
            [Some(url.clone()), attach.clone()].into_iter().flatten()
        });
        let options = options.chain(external).collect::<Vec<_>>().join(", ");
        let (version, programs) = match &subject.state {
            SubjectState::Present { installed, referenced, .. } => {
                // Twelve digits distinguish two hashes; the manifest has all.
                let program = |(path, hash): (&std::path::PathBuf, &String)| {
                    format!("{} {}", path.display(), hash.chars().take(12).collect::<String>())
                };
                let mut words: Vec<String> = installed.hashes.iter().map(program).collect();
                if !referenced.is_empty() {
                    words.push(counted(referenced.len(), "file") + " of rules");
                }
                (installed.version.join("; "), words.join("; "))
            }
            SubjectState::Skipped { missing } => (format!("skipped: {missing}"), String::new()),
            SubjectState::Broken { reason } => (format!("failed: {reason}"), String::new()),
        };
        let SubjectManifest { name, about, system, .. } = subject;
        Row::of(None, [name, about, system, &options, &version, &programs].map(String::as_str))
    };
    let header = ["subject", "what it is", "system", "options", "version", "programs, SHA-256"];
    Table {
        rows: manifest.experiment.subjects.iter().map(row).collect(),
        is_prose: true,
        ..Table::new("The subjects", header.map(Column::from))
    }
}

pub(super) fn environment(manifest: &Manifest) -> Table {
    let environment = &manifest.environment;
    let layout = &manifest.cpu_layout;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let cpus = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let (soft, hard) = environment.open_files;
    let mut properties = vec![
        ("tollgate", manifest.tollgate.clone()),
        ("start of the run", manifest.started_at.clone()),
        ("seed", manifest.seed.to_string()),
        ("kernel", environment.kernel.clone()),
        ("CPU", known(&environment.cpu_model)),
        ("CPUs online", environment.cpus.to_string()),
        ("hypervisor", known(&environment.hypervisor)),
        ("frequency governor", known(&environment.governor)),
        ("clock source", known(&environment.clock_source)),
        ("open files, soft and hard limit", format!("{soft}, {hard}")),
        ("somaxconn", known(&environment.somaxconn)),
        ("ports of outgoing connections", known(&environment.port_range)),
        ("CPU of the generator", cpus(&layout.generator)),
        ("CPU of the origin", cpus(&layout.origin)),
        ("CPU of the system", cpus(&layout.system)),
    ];
    let in_use = layout.all();
    let cores = environment.shared_cores.iter().flatten();
    let cores = cores.filter(|threads| threads.iter().any(|cpu| in_use.contains(cpu)));
    properties.extend(cores.map(|threads| ("hardware threads of one core", cpus(threads))));
    let hosts = manifest.hosts.iter().map(|role| {
        (role.name.as_str(), format!("{}: {}", role.host, role.environment.in_short()))
    });
    properties.extend(hosts);
    let mitigations = environment.mitigations.iter();
    properties.extend(mitigations.map(|(name, state)| (name.as_str(), state.clone())));
    let rows = properties.into_iter().map(|(name, value)| Row::of(None, [name.to_owned(), value]));
    Table {
        rows: rows.collect(),
        is_prose: true,
        ..Table::new("The machine and the run", ["property", "value"].map(Column::from))
    }
}

//! Formats for programs: CSV, JSON, and the formats of other tools.

use crate::analysis::{
    Analysis, FileFigures, FilePrice, Price, Range, SubjectAnalysis, verdict_word,
};
use crate::document::range;
use crate::source::ReportSource;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_records::error::io_error;
use tollgate_records::files::{self, write_atomic};
use tollgate_records::metric::Metric;
use tollgate_records::trial::{Measurement, as_f64};
use tollgate_stats::number::{counted, significant};
use tollgate_stats::{Summary, summarize};
use tollgate_traffic::Class;

/// The folder in a run's directory for HdrHistogram's files.
const HGRM_FOLDER: &str = "hgrm";

const CSV_HEADER: &str = "case,subject,baseline,status,metric,n,ratio,ratio_low,ratio_high,difference,\
                          difference_low,difference_high,interval";

const ABLATION_HEADER: &str = "case,file,subject,n,cpu_us,cpu_us_low,cpu_us_high,share,share_low,share_high,\
                               interval,verdict,attacks,benign,exceptions,kept";

/// Error of [`Format::Github`](crate::Format::Github).
#[derive(Debug, Error)]
pub enum NoFigure {
    #[error(
        "no subject of this run has a valid trial, and github-action-benchmark refuses an empty array; \
         `tollgate report DIR` says why no trial counts"
    )]
    Trial,
    #[error("no price of CPU time to draw; `tollgate report DIR` says why")]
    Price,
}

/// The prices as CSV, unrounded: one line per case, subject and figure. A subject without a price has one line.
pub(crate) fn csv(analysis: &Analysis) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(CSV_HEADER.split(','))?;
    for case in &analysis.cases {
        for subject in &case.subjects {
            let status: &str = (&subject.status).into();
            let head = [&case.case.name, &subject.name, &analysis.baseline, status];
            if subject.prices.is_empty() {
                writer.write_record(head.into_iter().chain([""; 9]))?;
            }
            for (metric, price) in &subject.prices {
                let mut row: Vec<String> = head.map(str::to_owned).to_vec();
                row.extend([metric.to_string(), price.n.to_string()]);
                row.extend(ends(price.ratio.as_ref()));
                row.extend(ends(Some(&price.difference)));
                row.push(kind(&price.difference).to_owned());
                writer.write_record(row)?;
            }
        }
    }
    finish(writer)
}

/// The cost of each file of a rule set as CSV, unrounded. `None` for a run without ablation.
pub fn ablation_csv(analysis: &Analysis) -> anyhow::Result<Option<String>> {
    if analysis.cases.iter().all(|case| case.ablation.is_none()) {
        return Ok(None);
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(ABLATION_HEADER.split(','))?;
    for case in &analysis.cases {
        let Some(figures) = &case.ablation else { continue };
        for file in figures.files.iter().chain(&figures.all) {
            let FileFigures { file, subject, price, attacks, benign, exceptions } = file;
            let mut line = vec![case.case.name.clone(), file.clone(), subject.clone()];
            match price {
                Some(FilePrice { n, cpu_us, share, verdict }) => {
                    line.push(n.to_string());
                    line.extend(ends(Some(cpu_us)));
                    line.extend(ends(share.as_ref()));
                    line.push(kind(cpu_us).to_owned());
                    line.push(verdict.map_or("", verdict_word).to_owned());
                }
                None => line.resize(12, String::new()),
            }
            line.extend([attacks.join(" "), benign.join(" "), exceptions.to_string()]);
            line.push(String::new());
            writer.write_record(line)?;
        }
        for kept in &figures.kept {
            let mut line = vec![case.case.name.clone(), kept.file.clone()];
            line.resize(15, String::new());
            line.push(kept.reason.clone());
            writer.write_record(line)?;
        }
    }
    finish(writer).map(Some)
}

const CATCH_HEADER: &str = "case,kind,subject,other,class,family,name,blocked,of,estimate,low,high,same,first_only,\
                            second_only,p,verdict,other_verdict,request";

/// Detections as CSV: a line per family (`family`, and `all` for a class), score, pair of subjects, and request on which a
/// pair differs (`difference`). `None` if no case has them.
pub fn catch_csv(analysis: &Analysis) -> anyhow::Result<Option<String>> {
    if analysis.cases.iter().all(|case| case.catch.is_none()) {
        return Ok(None);
    }
    let columns: Vec<&str> = CATCH_HEADER.split(',').collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&columns)?;
    let mut line = |cells: &[(&str, &dyn ToString)]| {
        let cell = |column: &&str| {
            let found = cells.iter().find(|(name, _)| name == column);
            found.map_or(String::new(), |(_, value)| value.to_string())
        };
        writer.write_record(columns.iter().map(cell))
    };
    for case in &analysis.cases {
        let Some(catch) = &case.catch else { continue };
        let name = &case.case.name;
        for subject in &catch.subjects {
            let families = subject.families.iter();
            let families =
                families.map(|one| ("family", one.class, one.family.as_str(), &one.share));
            let all = [(Class::Malicious, &subject.attacks), (Class::Benign, &subject.benign)];
            let all = all
                .into_iter()
                .filter_map(|(class, share)| Some(("all", class, "", share.as_ref()?)));
            for (kind, class, family, share) in families.chain(all) {
                line(&[
                    ("case", name),
                    ("kind", &kind),
                    ("subject", &subject.name),
                    ("class", &class_name(class)),
                    ("family", &family),
                    ("blocked", &share.blocked),
                    ("of", &share.of),
                    ("estimate", &share.estimate),
                    ("low", &share.low),
                    ("high", &share.high),
                ])?;
            }
            if let Some(score) = &subject.score {
                line(&[
                    ("case", name),
                    ("kind", &"score"),
                    ("subject", &subject.name),
                    ("estimate", &score.estimate),
                    ("low", &score.low),
                    ("high", &score.high),
                ])?;
            }
        }
        for pair in &catch.pairs {
            line(&[
                ("case", name),
                ("kind", &"pair"),
                ("subject", &pair.first),
                ("other", &pair.second),
                ("same", &pair.same),
                ("first_only", &pair.first_only),
                ("second_only", &pair.second_only),
                ("p", &pair.p),
            ])?;
            for one in &case.differences {
                let verdicts = [&pair.first, &pair.second].map(|name| one.verdicts.get(name));
                let [Some(first), Some(second)] = verdicts else { continue };
                if first == second {
                    continue;
                }
                line(&[
                    ("case", name),
                    ("kind", &"difference"),
                    ("subject", &pair.first),
                    ("other", &pair.second),
                    ("class", &class_name(one.class)),
                    ("family", &one.family.as_deref().unwrap_or_default()),
                    ("name", &one.name),
                    ("verdict", first),
                    ("other_verdict", second),
                    ("request", &one.request.as_deref().unwrap_or_default()),
                ])?;
            }
        }
    }
    finish(writer).map(Some)
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Benign => "benign",
        Class::Malicious => "malicious",
    }
}

fn ends(range: Option<&Range>) -> [String; 3] {
    match range {
        Some(range) => [range.estimate, range.low, range.high].map(|value| value.to_string()),
        None => [const { String::new() }; 3],
    }
}

fn kind(range: &Range) -> &'static str {
    if range.interval { "95 % interval" } else { "range" }
}

fn finish(writer: csv::Writer<Vec<u8>>) -> anyhow::Result<String> {
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    String::from_utf8(bytes).map_err(|error| csv::Error::from(std::io::Error::other(error)).into())
}

type Figure = fn(&Measurement) -> Option<f64>;

/// The figures of a trial: their name at Bencher, their unit at benchstat and its factor, and the figure. benchstat
/// converts nanoseconds to seconds.
const FIGURES: [(&str, &str, f64, Figure); 5] = [
    ("cpu-us-per-request", "cpu-ns/request", 1e3, Measurement::system_cpu_us_per_request),
    ("throughput-per-s", "requests/s", 1.0, |m| Some(m.throughput_per_s)),
    ("latency-p50-ms", "p50-ns", 1e6, |m| m.latency.p50_ms),
    ("latency-p99-ms", "p99-ns", 1e6, |m| m.latency.p99_ms),
    ("memory-peak-bytes", "memory-bytes", 1.0, |m| m.memory_peak_bytes.map(as_f64)),
];

/// Each subject of each case, with its valid measurements in the order of blocks.
fn measured(
    source: &ReportSource,
) -> impl Iterator<Item = (&str, &SubjectAnalysis, Vec<&Measurement>)> {
    source.analysis.cases.iter().flat_map(move |case| {
        let name = case.case.name.as_str();
        case.subjects.iter().map(move |subject| {
            let valid = source.valid(name, &subject.name);
            (name, subject, valid.into_values().collect())
        })
    })
}

/// Go's benchmark format for benchstat: one line per block and subject, so that benchstat's samples are blocks.
///
/// The format: <https://go.googlesource.com/proposal/+/master/design/14313-benchmark-format.md>.
pub(crate) fn gobench(source: &ReportSource) -> String {
    let manifest = &source.records.manifest;
    let model = manifest.environment.cpu_model.as_deref().unwrap_or("unknown");
    // A value ends at the end of its line.
    let [tollgate, model] =
        [&manifest.tollgate, model].map(|text| text.replace(char::is_control, " "));
    // Lower is better in all other units.
    let mut text = format!("tollgate: {tollgate}\ncpu: {model}\nUnit requests/s better=higher\n\n");
    let cpus = manifest.cpu_layout.system.len();
    for (case, SubjectAnalysis { name, .. }, measurements) in measured(source) {
        for measurement in measurements {
            // Names are letters, digits, `-`, `_` and `.`. Without the number of CPUs, benchstat would take the number
            // at the end of a name for it.
            let responses = measurement.responses;
            text += &format!("BenchmarkTollgate/case={case}/subject={name}-{cpus} {responses}");
            for (_, unit, factor, of) in FIGURES {
                text.extend(of(measurement).map(|value| format!(" {} {unit}", value * factor)));
            }
            text.push('\n');
        }
    }
    text
}

/// The Bencher Metric Format: a benchmark is a subject in a case.
///
/// The format: <https://bencher.dev/docs/reference/bencher-metric-format/>. Measures are named after the figures of
/// report.json. The bounds of a ratio are the ends of its interval or, with too few blocks, of the observed range; the
/// bounds of other figures are the smallest and the largest value of the blocks.
pub(crate) fn bencher(source: &ReportSource) -> anyhow::Result<String> {
    let mut benchmarks: BTreeMap<String, BTreeMap<&str, Value>> = BTreeMap::new();
    let measure = |value: f64, low: f64, high: f64| json!({ "value": value, "lower_value": low, "upper_value": high });
    for (case, subject, measurements) in measured(source) {
        let mut measures = BTreeMap::new();
        if let Some((_, Range { estimate, low, high, .. })) = cpu_ratio(subject) {
            measures.insert("cpu-ratio", measure(estimate, low, high));
        }
        for (name, .., of) in FIGURES {
            // `None` if a block lacks the figure.
            let values: Option<Vec<f64>> = measurements.iter().map(|m| of(m)).collect();
            let summary = values.and_then(|values| summarize(&values));
            measures.extend(summary.map(|one| (name, measure(one.median, one.min, one.max))));
        }
        if !measures.is_empty() {
            benchmarks.insert(format!("{case}/{}", subject.name), measures);
        }
    }
    files::json(&benchmarks)
}

fn cpu_ratio(subject: &SubjectAnalysis) -> Option<(&Price, Range)> {
    let price = subject.prices.get(&Metric::CpuUsPerRequest)?;
    Some((price, price.ratio?))
}

/// CPU per request as hyperfine's `--export-json`, for its plotting scripts: a command is a subject, and a run of it is
/// a block, whose time is the CPU seconds per request. A subject without processes uses no CPU and is left out.
pub(crate) fn hyperfine(source: &ReportSource) -> anyhow::Result<String> {
    let result = |(case, subject, measurements): (&str, &SubjectAnalysis, Vec<&Measurement>)| {
        let seconds = |cpu_us: Figure| -> Option<Vec<f64>> {
            measurements.iter().map(|m| Some(cpu_us(m)? / 1e6)).collect()
        };
        let times = seconds(Measurement::system_cpu_us_per_request)?;
        let user = summarize(&seconds(Measurement::system_user_us_per_request)?)?.mean;
        let Summary { min, max, median, mean, standard_deviation, .. } = summarize(&times)?;
        let memory: Vec<u64> = measurements.iter().filter_map(|m| m.memory_peak_bytes).collect();
        Some(json!({
            "command": format!("{case}/{}", subject.name),
            "mean": mean,
            "stddev": standard_deviation,
            "median": median,
            "user": user,
            "system": mean - user,
            "min": min,
            "max": max,
            "times": times,
            "memory_usage_byte": memory,
            // A trial with a failure is invalid.
            "exit_codes": vec![0; times.len()],
            "parameters": { "case": case, "subject": subject.name },
        }))
    };
    let results: Vec<Value> = measured(source).filter_map(result).collect();
    files::json(&json!({ "results": results }))
}

/// The array that github-action-benchmark reads with `tool: customSmallerIsBetter`. One file has one direction, so it
/// contains only figures of which less is better.
pub(crate) fn github(analysis: &Analysis) -> anyhow::Result<String> {
    let mut entries = Vec::new();
    for case in &analysis.cases {
        for subject in &case.subjects {
            let name = format!("{}/{}", case.case.name, subject.name);
            entries.extend(cpu_ratio(subject).map(|(price, ratio)| {
                json!({
                    "name": format!("{name}: CPU per request"),
                    "unit": format!("× {}", analysis.baseline),
                    "value": ratio.estimate,
                    "range": format!("{} to {}", significant(ratio.low), significant(ratio.high)),
                    "extra": format!("{}, {}", counted(price.n, "block"), range(&ratio, significant)),
                })
            }));
            let Some(figures) = &subject.figures else { continue };
            for (figure, unit, value) in [
                ("CPU per request", "µs", figures.cpu_us_per_request),
                ("p50 latency", "ms", figures.latency_p50_ms),
                ("p99 latency", "ms", figures.latency_p99_ms),
                ("peak memory", "bytes", figures.memory_peak_bytes),
                ("start-up", "ms", figures.startup_ms),
            ] {
                entries.extend(value.map(|value| {
                    json!({
                        "name": format!("{name}: {figure}, median"),
                        "unit": unit,
                        "value": value,
                        "extra": counted(figures.n, "block"),
                    })
                }));
            }
        }
    }
    if entries.is_empty() { Err(NoFigure::Trial.into()) } else { files::json(&entries) }
}

/// Writes the latencies of each case and subject with a valid trial as HdrHistogram's percentile distribution, and
/// returns the paths.
pub fn write_hgrm(source: &ReportSource, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for case in &source.analysis.cases {
        // One folder per case: joined names of case and subject could be ambiguous.
        let folder = dir.join(HGRM_FOLDER).join(&case.case.name);
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        for subject in &case.subjects {
            let latencies = source.latencies(&case.case.name, &subject.name)?;
            if latencies.count() > 0 {
                let path = folder.join(format!("{}.hgrm", subject.name));
                write_atomic(&path, &latencies.to_hgrm())?;
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use schemars::generate::Contract;

    #[test]
    fn committed_schema_matches_types() {
        schemas::check::<Analysis>("report", Contract::Serialize);
    }
}

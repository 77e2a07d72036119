//! The input of a report: the records, their analysis, and the configuration files.

use crate::analysis::{Analysis, analyse};
use crate::error::ReportError;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tollgate_experiment::record::{Measurement, Outcome, TrialRecord};
use tollgate_experiment::run_dir::{CONFIGS, RunRecords};
use tollgate_experiment::toml_file::suggestion;
use tollgate_stats::LatencyHistogram;

#[derive(Debug)]
pub struct Source {
    pub records: RunRecords,
    pub analysis: Analysis,
    /// The configuration files of the subjects.
    pub configs: Vec<Config>,
    /// Number of further configuration files.
    pub configs_left_out: usize,
}

/// A configuration file of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub subject: String,
    /// Path relative to the subject's folder.
    pub file: String,
    pub text: String,
    /// Number of bytes cut from a long file.
    pub left_out: u64,
}

impl Source {
    pub fn read(dir: &Path) -> Result<Self, ReportError> {
        let records = RunRecords::read(dir)?;
        let analysis = analyse(&records);
        let (configs, configs_left_out) = configs(&dir.join(CONFIGS))?;
        Ok(Self { records, analysis, configs, configs_left_out })
    }

    /// Computes the prices relative to another subject.
    pub fn over(mut self, baseline: &str) -> Result<Self, ReportError> {
        let experiment = &mut self.records.manifest.experiment;
        let refused = |why| ReportError::Baseline { name: baseline.to_owned(), why };
        let names = experiment.subjects.iter().map(|subject| subject.name.as_str());
        if !names.clone().any(|name| name == baseline) {
            let hint = suggestion(baseline, names);
            return Err(refused(format!("the run has no such subject{hint}")));
        }
        if experiment.baseline != baseline {
            if experiment.ablation.is_some() {
                let why = "what each file of rules costs is told over the subject with all of them; leave \
                           --baseline out";
                return Err(refused(why.to_owned()));
            }
            experiment.baseline = baseline.to_owned();
            // The repeated former baseline is now an ordinary subject.
            experiment.aa_subject = None;
            self.analysis = analyse(&self.records);
        }
        Ok(self)
    }

    /// The valid measurements of a subject under a case, by block.
    pub(super) fn valid(&self, case: &str, subject: &str) -> BTreeMap<u32, &Measurement> {
        let measured = self.measured(case, subject);
        let valid = measured.filter(|(_, measurement)| measurement.invalid.is_empty());
        valid.map(|(trial, measurement)| (trial.block, measurement)).collect()
    }

    /// All measurements of a subject under a case, valid or not, in the order of the run.
    pub(super) fn measured(
        &self,
        case: &str,
        subject: &str,
    ) -> impl Iterator<Item = (&TrialRecord, &Measurement)> {
        let trials = self.records.trials.iter();
        trials.filter(move |trial| trial.case == case && trial.subject == subject).filter_map(
            |trial| match &trial.outcome {
                Outcome::Measured(measurement) => Some((trial, measurement.as_ref())),
                Outcome::Refused(_) | Outcome::Failed(_) => None,
            },
        )
    }

    /// The latencies of all valid trials of a subject under a case.
    pub(super) fn latencies(
        &self,
        case: &str,
        subject: &str,
    ) -> Result<LatencyHistogram, ReportError> {
        let mut merged = LatencyHistogram::new();
        for (block, measurement) in self.valid(case, subject) {
            let text = &measurement.latency.histogram_v2_base64;
            let histogram = LatencyHistogram::from_v2_base64(text).map_err(|source| {
                let trial = format!("{case}, {subject}, block {block}");
                ReportError::Histogram { trial, source }
            })?;
            merged.merge(&histogram);
        }
        Ok(merged)
    }
}

/// Maximum length of a file in a report, in bytes.
const LONGEST_TEXT: u64 = 64 * 1024;
/// Maximum depth of configuration folders.
const DEEPEST: usize = 4;
/// Maximum number of configuration files in a report.
const MOST_FILES: usize = 200;

/// The configs of all subjects, by name, and how many are left out because there are more than a
/// report should hold. A run that ended before its first trial has none.
fn configs(folder: &Path) -> Result<(Vec<Config>, usize), ReportError> {
    let mut files = Vec::new();
    if folder.is_dir() {
        collect(folder, DEEPEST, &mut files)?;
    }
    files.sort();
    let left_out = files.len().saturating_sub(MOST_FILES);
    files.truncate(MOST_FILES);
    let configs = files.iter().map(|path| config(folder, path)).collect::<Result<_, _>>()?;
    Ok((configs, left_out))
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), ReportError> {
    let failed = |source| ReportError::Read { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links could lead out of the run's directory, and a pipe would never end.
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && depth > 0 {
            collect(&entry.path(), depth - 1, files)?;
        }
    }
    Ok(())
}

fn config(folder: &Path, path: &Path) -> Result<Config, ReportError> {
    let failed = |source| ReportError::Read { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    file.take(LONGEST_TEXT).read_to_end(&mut bytes).map_err(failed)?;
    let inside = path.strip_prefix(folder).unwrap_or(path);
    let mut parts = inside.components();
    let subject = parts.next().map_or(String::new(), |part| lossy(part.as_ref()));
    Ok(Config {
        subject,
        file: lossy(parts.as_path()),
        text: String::from_utf8_lossy(&bytes).into_owned(),
        left_out: length.saturating_sub(bytes.len() as u64),
    })
}

fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_are_found_in_order_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("full/rules")).unwrap();
        fs::create_dir_all(path("alone/tmp-body")).unwrap();
        fs::write(path("full/rules/a.conf"), "SecRuleEngine On\n").unwrap();
        fs::write(path("full/nginx.conf"), vec![b'x'; 64 * 1024 + 7]).unwrap();
        fs::write(path("alone/nginx.conf"), [b'a', 0xff, b'b']).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", path("full/outside")).unwrap();
        let (found, left_out) = configs(dir.path()).unwrap();
        assert_eq!(left_out, 0);
        let names: Vec<(&str, &str, u64)> =
            found.iter().map(|c| (c.subject.as_str(), c.file.as_str(), c.left_out)).collect();
        assert_eq!(
            names,
            [("alone", "nginx.conf", 0), ("full", "nginx.conf", 7), ("full", "rules/a.conf", 0)]
        );
        assert_eq!(found[0].text, "a\u{fffd}b");
        assert_eq!(found[1].text.len(), 64 * 1024);
        assert_eq!(found[2].text, "SecRuleEngine On\n");
    }

    #[test]
    fn counts_files_beyond_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("full")).unwrap();
        for number in 0..MOST_FILES + 3 {
            fs::write(dir.path().join(format!("full/{number}.conf")), "x").unwrap();
        }
        let (found, left_out) = configs(dir.path()).unwrap();
        assert_eq!((found.len(), left_out), (MOST_FILES, 3));
    }

    #[test]
    fn a_run_without_configs_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(configs(&dir.path().join("configs")).unwrap(), (vec![], 0));
    }
}

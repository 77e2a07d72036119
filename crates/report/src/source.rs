//! The input of a report: the records, their analysis, and the configuration files.

use crate::analysis::{Analysis, analyse};
use crate::document::File;
use anyhow::Context;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use tollgate_records::error::{bad_input, io_error, suggestion};
use tollgate_records::metric::{self, ByBlock};
use tollgate_records::replay;
use tollgate_records::run_dir::{CONFIGS, RunRecords};
use tollgate_stats::LatencyHistogram;

#[derive(Debug)]
pub struct ReportSource {
    pub records: RunRecords,
    pub analysis: Analysis,
    pub configs: Vec<File>,
    /// Number of further configuration files.
    pub configs_left_out: usize,
}

impl ReportSource {
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let records = RunRecords::read(dir)?;
        let refused = |error| {
            let dir = dir.display();
            bad_input(format!(
                "cannot report {dir}: {error}; restore its files, or start a new run"
            ))
        };
        replay::check(&records).map_err(refused)?;
        let source = Self::from(records);
        let (configs, configs_left_out) = configs(&dir.join(CONFIGS))?;
        Ok(Self { configs, configs_left_out, ..source })
    }

    /// Computes the prices relative to another subject.
    pub fn over(mut self, baseline: &str) -> anyhow::Result<Self> {
        let experiment = &mut self.records.manifest.experiment;
        let refused = |reason: &str| bad_input(format!("--baseline {baseline}: {reason}"));
        let names = experiment.subjects.iter().map(|subject| subject.name.as_str());
        if !names.clone().any(|name| name == baseline) {
            let hint = suggestion(baseline, names);
            return Err(refused(&format!("the run has no such subject{hint}")));
        }
        if experiment.baseline != baseline {
            if experiment.ablation.is_some() {
                let reason =
                    "the baseline of an ablation is the subject with all files; remove --baseline";
                return Err(refused(reason));
            }
            experiment.baseline = baseline.to_owned();
            // The repeated former baseline is now an ordinary subject.
            experiment.aa_subject = None;
            self.analysis = analyse(&self.records);
        }
        Ok(self)
    }

    pub(crate) fn valid<'a>(&'a self, case: &'a str, subject: &'a str) -> ByBlock<'a> {
        let valid = metric::valid(&self.records, case, subject).into_iter();
        valid.map(|(block, trial)| (block, trial.measurement)).collect()
    }

    /// The latencies of all valid trials of a subject in a case.
    pub(crate) fn latencies(&self, case: &str, subject: &str) -> anyhow::Result<LatencyHistogram> {
        let mut merged = LatencyHistogram::new();
        for (block, measurement) in self.valid(case, subject) {
            // Foreign clients report no histogram.
            let Some(text) = &measurement.latency.histogram_v2_base64 else { continue };
            let histogram = LatencyHistogram::from_v2_base64(text).with_context(|| {
                format!(
                    "cannot read the latencies of the trial {case}, {subject}, block {block}: the record was \
                     changed or damaged"
                )
            })?;
            merged.merge(&histogram);
        }
        Ok(merged)
    }
}

impl From<RunRecords> for ReportSource {
    /// Analyses the records; without configuration files.
    fn from(records: RunRecords) -> Self {
        let analysis = analyse(&records);
        Self { records, analysis, configs: Vec::new(), configs_left_out: 0 }
    }
}

/// Maximum length of a file in a report.
const FILE_BYTES_MAX: u64 = 64 * 1024;
const FOLDER_DEPTH_MAX: usize = 4;
const FILES_MAX: usize = 200;

/// Reads the configuration files of all subjects in the order of their paths, and counts those beyond [`FILES_MAX`].
/// A run that ended before its first trial has none.
fn configs(folder: &Path) -> anyhow::Result<(Vec<File>, usize)> {
    let mut files = Vec::new();
    if folder.is_dir() {
        collect(folder, FOLDER_DEPTH_MAX, &mut files)?;
    }
    files.sort();
    let left_out = files.len().saturating_sub(FILES_MAX);
    files.truncate(FILES_MAX);
    let configs = files.iter().map(|path| config(folder, path)).collect::<Result<_, _>>()?;
    Ok((configs, left_out))
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let failed = io_error("read", folder);
    let entries = match fs::read_dir(folder) {
        // The folder for temporary files of a server of another user, which has no configuration.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && depth < FOLDER_DEPTH_MAX => {
            return Ok(());
        }
        entries => entries.map_err(&failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(&failed)?;
        // Links may lead out of the directory, and a pipe has no end.
        let kind = entry.file_type().map_err(&failed)?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && depth > 0 {
            collect(&entry.path(), depth - 1, files)?;
        }
    }
    Ok(())
}

fn config(folder: &Path, path: &Path) -> anyhow::Result<File> {
    let failed = io_error("read", path);
    let file = fs::File::open(path).map_err(&failed)?;
    let length = file.metadata().map_err(&failed)?.len();
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(&failed)?;
    let inside = path.strip_prefix(folder).unwrap_or(path).to_string_lossy();
    // The first folder is that of the subject.
    let (subject, file) = inside.split_once('/').unwrap_or(("", &inside));
    Ok(File {
        name: format!("{subject}: {file}"),
        text: String::from_utf8_lossy(&bytes).into_owned(),
        left_out: length.saturating_sub(bytes.len() as u64),
    })
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
        let names: Vec<(&str, u64)> =
            found.iter().map(|config| (config.name.as_str(), config.left_out)).collect();
        let expected =
            [("alone: nginx.conf", 0), ("full: nginx.conf", 7), ("full: rules/a.conf", 0)];
        assert_eq!(names, expected);
        assert_eq!(found[0].text, "a\u{fffd}b");
        assert_eq!(found[1].text.len(), 64 * 1024);
        assert_eq!(found[2].text, "SecRuleEngine On\n");
    }

    #[test]
    fn counts_files_beyond_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("full")).unwrap();
        for number in 0..FILES_MAX + 3 {
            fs::write(dir.path().join(format!("full/{number}.conf")), "x").unwrap();
        }
        let (found, left_out) = configs(dir.path()).unwrap();
        assert_eq!((found.len(), left_out), (FILES_MAX, 3));
    }

    #[test]
    fn a_run_without_configs_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(configs(&dir.path().join("configs")).unwrap(), (vec![], 0));
    }
}

//! The latencies of each subject as HdrHistogram's percentile distributions, a file each.

use super::source::Source;
use crate::error::{ReportError, write};
use std::fs;
use std::path::{Path, PathBuf};

/// The folder in a run's directory that the files are written to.
const FOLDER: &str = "hgrm";

/// Writes a file for each case and subject that has a valid trial, and says where they are.
pub fn write_all(source: &Source, dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let mut paths = Vec::new();
    for case in &source.analysis.cases {
        // A folder a case: a name of a case and one of a subject, put together, could be those of others.
        let folder = dir.join(FOLDER).join(&case.case.name);
        fs::create_dir_all(&folder)
            .map_err(|source| ReportError::Write { path: folder.clone(), source })?;
        for subject in &case.subjects {
            let latencies = source.latencies(&case.case.name, &subject.name)?;
            if latencies.count() > 0 {
                let path = folder.join(format!("{}.hgrm", subject.name));
                write(&path, &latencies.to_hgrm())?;
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

//! Files of a configuration: those on disk, or those in the output of `nginx -T`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Line before each file in the output of `nginx -T`; the path and a colon follow.
const HEADER: &str = "# configuration file /";

pub(crate) enum Files {
    Disk,
    Dump(BTreeMap<PathBuf, Vec<u8>>),
}

impl Files {
    /// Returns the files that belong to a file, and the path of the first one.
    pub(crate) fn of(path: &Path, text: &[u8]) -> (Self, PathBuf) {
        let Some((first, files)) = dumped(text) else { return (Self::Disk, path.to_owned()) };
        (Self::Dump(files), first)
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk => std::fs::read(path),
            Self::Dump(files) => files
                .get(path)
                .cloned()
                .ok_or_else(|| io::Error::other("not in the output of nginx -T")),
        }
    }

    /// Returns the paths that match a pattern: sorted and without hidden files, as by nginx.
    pub(crate) fn matching(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let options = glob::MatchOptions {
            require_literal_separator: true,
            require_literal_leading_dot: true,
            ..glob::MatchOptions::new()
        };
        let invalid = |error| format!("invalid pattern: {error}");
        match self {
            Self::Disk => {
                let found = glob::glob_with(pattern, options).map_err(invalid)?;
                found.collect::<Result<_, _>>().map_err(|error| error.to_string())
            }
            Self::Dump(files) => {
                let pattern = glob::Pattern::new(pattern).map_err(invalid)?;
                let matches = |path: &&PathBuf| pattern.matches_path_with(path, options);
                Ok(files.keys().filter(matches).cloned().collect())
            }
        }
    }
}

/// Returns the path of the first file and all files, if a text is the output of `nginx -T`, with or without its messages.
fn dumped(text: &[u8]) -> Option<(PathBuf, BTreeMap<PathBuf, Vec<u8>>)> {
    let (mut files, mut current): (BTreeMap<_, Vec<u8>>, _) = (BTreeMap::new(), None);
    let mut first = None;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let header = str::from_utf8(line).ok().map(str::trim_end);
        let header = header.and_then(|line| line.strip_prefix(HEADER)?.strip_suffix(':'));
        match (header, &current) {
            (Some(path), _) => {
                let path = Path::new("/").join(path);
                first.get_or_insert_with(|| path.clone());
                files.insert(path.clone(), Vec::new());
                current = Some(path);
            }
            (None, Some(path)) => files.get_mut(path)?.extend(line),
            (None, None) if line.starts_with(b"nginx: ") => {}
            (None, None) => return None,
        }
    }
    Some((first?, files))
}

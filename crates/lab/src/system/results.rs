//! Results of builds as they are kept: in the user's cache folder, under the build's name, each in a folder that is
//! named after its sources and the tool chain that made it, so that another version of a build never passes for this
//! one, and those of several checkouts lie beside each other.

use super::go::ToolChain;
use super::render::hex;
use crate::inputs::build::Build;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

/// After so many days in which no process has found it, a result may go.
pub const UNUSED_DAYS: u64 = 90;

/// The name of a result: enough to tell those of other sources and those of other tool chains apart.
pub(super) fn version(build: &Build, tool_chain: &ToolChain) -> String {
    format!("{}-{}", of_sources(build), &tool_chain.hash()[..VERSION_DIGITS])
}

/// The hash of the sources, shortened.
pub(super) fn of_sources(build: &Build) -> String {
    let mut hasher = Sha256::new();
    for source in &build.sources {
        hasher.update(format!("{} {}\n", source.name, source.text.len()));
        hasher.update(&source.text);
    }
    hex(&hasher.finalize())[..VERSION_DIGITS].to_owned()
}

/// The results of these sources, whatever tool chain made them, by name.
pub(super) fn of_any_tool_chain(results: &Path, sources: &str) -> Vec<PathBuf> {
    // A folder that is not there, or cannot be read, has no result.
    let entries = fs::read_dir(results).into_iter().flatten().flatten();
    let is_of_sources = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(sources).is_some_and(|tools| tools.starts_with('-'))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_of_sources).collect();
    found.sort();
    found
}

/// The one that there is, where there is one alone.
pub(super) fn only(found: Vec<PathBuf>) -> Option<PathBuf> {
    let [found] = <[PathBuf; 1]>::try_from(found).ok()?;
    Some(found)
}

/// The results in a folder that nobody has found for [`UNUSED_DAYS`], by name. What is no result stays out of it.
pub(super) fn unused(results: &Path, now: SystemTime) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(results)? {
        let entry = entry?;
        // When it was made or found last. One of the future is told by a clock that was set back since.
        let used = entry.metadata()?.modified()?;
        let unused = now.duration_since(used).unwrap_or_default();
        if is_result(&entry.file_name().to_string_lossy()) && unused > UNUSED {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a folder of this name is a result; those that were made before tool chains were told apart have but the
/// hash of their sources.
fn is_result(name: &str) -> bool {
    let is_hash = |part: &str| {
        part.len() == VERSION_DIGITS && part.bytes().all(|one| one.is_ascii_hexdigit())
    };
    match name.split_once('-') {
        Some((sources, tools)) => is_hash(sources) && is_hash(tools),
        None => is_hash(name),
    }
}

const UNUSED: Duration = Duration::from_secs(UNUSED_DAYS * 24 * 3600);
const VERSION_DIGITS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::build::BuildFile;
    use crate::inputs::toml_file::Source;
    use std::fs::File;

    fn build(sources: &[(&str, &str)]) -> Build {
        let source = |(name, text): &(&str, &str)| Source {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
        };
        let file: BuildFile = toml::from_str("title = 'a build'\n[programs]").unwrap();
        Build { name: "a".to_owned(), file, sources: sources.iter().map(source).collect() }
    }

    #[test]
    fn other_sources_are_another_version() {
        let one = of_sources(&build(&[("go.mod", "a"), ("main.go", "b")]));
        assert_eq!(one, of_sources(&build(&[("go.mod", "a"), ("main.go", "b")])));
        assert_ne!(one, of_sources(&build(&[("go.mod", "a"), ("main.go", "c")])));
        // A text that moves from one file into the next is another source.
        assert_ne!(one, of_sources(&build(&[("go.mod", "ab"), ("main.go", "")])));
        assert_eq!(one.len(), 12);
    }

    #[test]
    fn without_a_tool_chain_the_only_result_of_the_sources_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| fs::create_dir(dir.path().join(name)).unwrap();
        let found = || only(of_any_tool_chain(dir.path(), "0123456789ab"));
        make("unfinished-1");
        make("0123456789ac-000000000000");
        // Made before tool chains were told apart: nobody knows by which.
        make("0123456789ab");
        assert_eq!(found(), None);
        make("0123456789ab-000000000001");
        assert_eq!(found(), Some(dir.path().join("0123456789ab-000000000001")));
        make("0123456789ab-000000000002");
        assert_eq!(found(), None);
        assert_eq!(only(of_any_tool_chain(&dir.path().join("nowhere"), "0123456789ab")), None);
    }

    #[test]
    fn only_results_that_nobody_used_for_long_may_go() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        let make = |name: &str, used: SystemTime| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            File::open(&path).unwrap().set_modified(used).unwrap();
            path
        };
        let old = now - days(UNUSED_DAYS + 1);
        let may_go = ["0123456789ab-000000000001", "0123456789ac", "0123456789ac-000000000001"]
            .map(|name| make(name, old));
        // Of other sources than the first, and of its sources by another tool chain.
        make("0123456789ad-000000000001", now - days(UNUSED_DAYS - 1));
        make("0123456789ab-000000000002", now + days(1));
        for name in ["unfinished-1", "unfinished-000000000001", "0123456789ac-mine", "notes"] {
            make(name, old);
        }
        assert_eq!(unused(dir.path(), now).unwrap(), may_go);
    }
}

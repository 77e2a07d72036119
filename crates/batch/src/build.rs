//! Builds a revision: from its sources to a product, with limits on time and output.

use crate::config::{RevisionSource, Settings};
use crate::repository::{GIT_VARIABLES, Revision};
use crate::store::{BuildOutcome, ProductFailure};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tollgate_records::error::io_error;
use tollgate_records::files::hash_text;
use tollgate_runner::process::group::{self, Launch, ProcessGroup};
use tollgate_runner::process::{Interrupt, command};
use tollgate_runner::system::build::hash_files;

/// Returns the SHA-256 over the names, contents and executable bits of all files in a folder.
pub(crate) fn hash(folder: &Path) -> io::Result<String> {
    hash_files(folder, |path, hash, name| {
        let is_program = fs::metadata(path)?.permissions().mode() & EXECUTABLE != 0;
        Ok(format!("{hash} {} {name}\n", if is_program { "program" } else { "file" }))
    })
}

const EXECUTABLE: u32 = 0o111;

/// Limit of the log of a build.
pub(crate) const BYTES_MAX: u64 = 16 << 20;

/// Cuts the start of a log longer than `most` bytes, so that half of `most` remains. Writers must append. Output written
/// during the cut may be lost or out of place.
pub(crate) fn truncate(log: &Path, most: u64) -> io::Result<()> {
    let length = fs::metadata(log)?.len();
    if length <= most {
        return Ok(());
    }
    let mut file = OpenOptions::new().read(true).append(true).open(log)?;
    file.seek(SeekFrom::Start(length - most / 2))?;
    let mut end = Vec::new();
    (&file).take(most / 2).read_to_end(&mut end)?;
    // Starts at the first complete line.
    let start = end.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    file.set_len(0)?;
    file.write_all(CUT)?;
    file.write_all(&end[start..])
}

const CUT: &[u8] = b"[earlier output was removed: the log is limited]\n";

/// The folders, log and CPUs of a build.
#[derive(Debug)]
pub(crate) struct BuildPlace<'a> {
    pub(crate) sources: &'a Path,
    /// Existing empty folder for the product.
    pub(crate) out: &'a Path,
    pub(crate) folder: &'a str,
    pub(crate) log: &'a Path,
    pub(crate) cpus: &'a [usize],
}

/// Returns the hash of everything that a product depends on: sources, command and versions of the tools.
pub(crate) fn key(
    revision: &Revision,
    settings: &Settings,
    tools: &BTreeMap<String, String>,
) -> String {
    let tools: String =
        tools.iter().map(|(tool, version)| format!("{tool}: {version}\n")).collect();
    let parts = [&revision.tree, &settings.build, &tools];
    let text: String = parts.map(|part| format!("{} {part}\n", part.len())).concat();
    hash_text(&text)[..KEY_DIGITS].to_owned()
}

/// Returns the version of each tool, by its version command.
pub(crate) fn tools(
    settings: &Settings,
    interrupt: &Interrupt,
) -> anyhow::Result<BTreeMap<String, String>> {
    let version = |tool: &String| {
        let mut shell = Command::new("sh");
        let printed = command::run(shell.args(["-c", tool]), TOOL_TIMEOUT, interrupt)?;
        let line = if printed.status.success() {
            let text = String::from_utf8_lossy(&printed.stdout);
            text.lines().next().unwrap_or_default().to_owned()
        } else {
            "not installed".to_owned()
        };
        Ok((tool.clone(), line))
    };
    settings.tools.iter().map(version).collect()
}

pub(crate) fn make(
    revision: &Revision,
    settings: &Settings,
    place: &BuildPlace<'_>,
    interrupt: &Interrupt,
) -> anyhow::Result<BuildOutcome> {
    let mut command = vec!["env".to_owned()];
    command.extend(GIT_VARIABLES.iter().flat_map(|name| ["-u".to_owned(), (*name).to_owned()]));
    command.extend(shell(&settings.build));
    let launch = Launch {
        name: "build",
        command: &command,
        env: &environment(revision, settings, place),
        dir: place.sources,
        log: place.log,
        cpus: place.cpus,
    };
    let mut build = ProcessGroup::start(&launch)?;
    let limit = Duration::from_secs_f64(settings.timeout_s);
    let status = interrupt.wait(limit, || {
        truncate(place.log, BYTES_MAX)?;
        build.exit_status()
    });
    let waiting = || format!("cannot wait for the build in {}", place.sources.display());
    let status = status.with_context(waiting)?;
    build.stop();
    // A daemon that the build started would be measured with the system.
    group::stop_orphans();
    truncate(place.log, BYTES_MAX).map_err(io_error("truncate", place.log))?;
    let failure = |reason: String| ProductFailure {
        reason,
        log: build.log_tail(LOG_LINES).unwrap_or_else(|error| vec![format!("no log: {error}")]),
    };
    let Some(status) = status else {
        let reason = format!("the build exceeded its time limit of {} s", settings.timeout_s);
        return Ok(BuildOutcome::TimedOut(failure(reason)));
    };
    if !status.success() {
        return Ok(BuildOutcome::Failed(failure(format!("the build failed ({status})"))));
    }
    let taken = place.out.join(&settings.path);
    let is_empty = || fs::read_dir(&taken).is_ok_and(|mut entries| entries.next().is_none());
    if !taken.exists() || is_empty() {
        let what = if settings.path.is_empty() { "nothing" } else { "no " };
        let reason = format!("the build succeeded but left {what}{} in $OUT", settings.path);
        return Ok(BuildOutcome::Failed(failure(reason)));
    }
    Ok(match hash(place.out) {
        Ok(product) => BuildOutcome::Built { product, folder: place.folder.to_owned() },
        // Such as a dangling link.
        Err(error) => BuildOutcome::Failed(failure(format!("cannot read its product: {error}"))),
    })
}

const KEY_DIGITS: usize = 16;
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
const LOG_LINES: usize = 10;
/// 2000-01-01: the time that compilers embed, so that equal sources give equal products.
const EPOCH_S: &str = "946684800";

/// With -e, a build stops at its first failing command.
fn shell(build: &str) -> [String; 4] {
    ["sh", "-e", "-c", build].map(str::to_owned)
}

fn environment(
    revision: &Revision,
    settings: &Settings,
    place: &BuildPlace<'_>,
) -> BTreeMap<String, String> {
    let path = |path: &Path| path.display().to_string();
    let mut environment = BTreeMap::from([
        ("REV".to_owned(), revision.id.clone()),
        ("SRC".to_owned(), path(place.sources)),
        ("OUT".to_owned(), path(place.out)),
        ("SOURCE_DATE_EPOCH".to_owned(), EPOCH_S.to_owned()),
    ]);
    if let RevisionSource::Versions(_) = settings.source {
        environment.insert("VERSION".to_owned(), revision.id.clone());
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_covers_names_contents_and_executable_bits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bin/server");
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::write(&file, "abc").unwrap();
        let set = |mode: u32| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        let plain = hash(dir.path()).unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(plain, hash_text(&format!("{abc} file bin/server\n")));
        // Other permissions do not matter.
        set(0o600);
        assert_eq!(hash(dir.path()).unwrap(), plain);
        set(0o755);
        assert_eq!(hash(dir.path()).unwrap(), hash_text(&format!("{abc} program bin/server\n")));
    }
}

#[cfg(test)]
mod build_log_tests {
    use super::*;

    const MOST: u64 = 10_000;

    #[test]
    fn long_logs_keep_their_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("build.log");
        fs::write(&log, "one\ntwo\n").unwrap();
        truncate(&log, MOST).unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n");
        let line = format!("{}\n", "x".repeat(99));
        let lines = usize::try_from(MOST).unwrap() / line.len() + 1;
        fs::write(&log, line.repeat(lines) + "the last line\n").unwrap();
        // A writer that appends continues at the new end.
        let mut writer = OpenOptions::new().append(true).open(&log).unwrap();
        truncate(&log, MOST).unwrap();
        writer.write_all(b"one more\n").unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.starts_with("[earlier output was removed"), "{}", &text[..99]);
        assert_eq!(text.lines().nth(1), Some(line.trim_end()));
        assert!(text.ends_with("the last line\none more\n"));
        assert!((text.len() as u64) < MOST / 2 + 200, "{}", text.len());
    }
}

#[cfg(test)]
mod build_tests {
    use super::*;

    #[test]
    fn build_stops_at_its_first_failing_command() {
        let succeeds = |build: &str| {
            let [program, arguments @ ..] = shell(build);
            Command::new(program).args(arguments).status().unwrap().success()
        };
        assert!(!succeeds("false\ntrue"));
        assert!(!succeeds("false; true"));
        assert!(succeeds("true; if false; then true; fi\ntrue"));
    }
}

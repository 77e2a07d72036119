//! Building: from the sources of a revision to a product, in a bounded time and in a group of processes
//! of its own.

use super::records::{BuildFailure, BuildOutcome};
use super::repository::GIT_VARIABLES;
use super::revision::Revision;
use super::settings::{Origin, Settings};
use super::{BatchError, build_log, command, io_error, product};
use crate::causes::in_full;
use crate::interrupt::Interrupt;
use crate::process::group::{self, Launch, ProcessGroup};
use crate::system::render::hash_text;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where a build happens.
#[derive(Debug)]
pub(super) struct Place<'a> {
    /// The sources.
    pub(super) sources: &'a Path,
    /// The folder for the product, which is there and empty.
    pub(super) out: &'a Path,
    /// What that folder is called on record.
    pub(super) folder: &'a str,
    /// The file for what it prints.
    pub(super) log: &'a Path,
    /// The CPUs that it may use.
    pub(super) cpus: &'a [usize],
}

/// What a product depends on, as one hash: sources, command, and versions of the tools.
pub(super) fn key(
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

/// What the tools of a build say of themselves, by the command that asks them.
pub(super) fn tools(
    settings: &Settings,
    interrupt: &Interrupt,
) -> Result<BTreeMap<String, String>, BatchError> {
    let version = |tool: &String| {
        let mut ask = Command::new("sh");
        let printed = command::run(ask.args(["-c", tool]), TOOL_WITHIN, interrupt)?;
        let line = match printed.success {
            true => printed.stdout.lines().next().unwrap_or_default().to_owned(),
            false => "not there".to_owned(),
        };
        Ok((tool.clone(), line))
    };
    settings.tools.iter().map(version).collect()
}

/// Builds a revision whose sources are in place.
///
/// # Errors
///
/// The batch is to stop, or the machine does not let it be tried.
pub(super) fn make(
    revision: &Revision,
    settings: &Settings,
    place: &Place<'_>,
    interrupt: &Interrupt,
) -> Result<BuildOutcome, BatchError> {
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
    let begun = Instant::now();
    let within = Duration::from_secs_f64(settings.timeout_s);
    let mut build = ProcessGroup::start(&launch).map_err(|error| BatchError::Command {
        command: settings.build.clone(),
        what: format!("cannot be started: {}", in_full(&error)),
    })?;
    let status = loop {
        match build.ended() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if begun.elapsed() >= within => break None,
            Ok(None) => {}
            Err(error) => return Err(io_error("waiting for the build in", place.sources)(error)),
        }
        interrupt.sleep(POLL)?;
        build_log::bound(place.log, build_log::BYTES_MAX)
            .map_err(io_error("cutting", place.log))?;
    };
    build.stop();
    // A build may leave a daemon behind, which would be measured with the system.
    group::stop_strays();
    build_log::bound(place.log, build_log::BYTES_MAX).map_err(io_error("cutting", place.log))?;
    let failure = |reason: String| BuildFailure {
        reason,
        log: build.log_tail(LOG_LINES).unwrap_or_else(|error| vec![format!("no log: {error}")]),
    };
    let Some(status) = status else {
        let reason = format!("the build did not end within {} s", settings.timeout_s);
        return Ok(BuildOutcome::TimedOut(failure(reason)));
    };
    if !status.success() {
        return Ok(BuildOutcome::Failed(failure(format!("the build failed ({status})"))));
    }
    let taken = place.out.join(&settings.path);
    let is_empty = || fs::read_dir(&taken).is_ok_and(|mut entries| entries.next().is_none());
    if !taken.exists() || is_empty() {
        let what = if settings.path.is_empty() { "nothing" } else { "no " };
        let reason = format!("the build succeeded and left {what}{} in $OUT", settings.path);
        return Ok(BuildOutcome::Failed(failure(reason)));
    }
    Ok(match product::hash(place.out) {
        Ok(product) => BuildOutcome::Built { product, folder: place.folder.to_owned() },
        // A link that leads nowhere, above all.
        Err(error) => {
            BuildOutcome::Failed(failure(format!("what it left cannot be read: {error}")))
        }
    })
}

const KEY_DIGITS: usize = 16;
const TOOL_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const LOG_LINES: usize = 10;
/// 2000-01-01: compilers that write the time into what they make write this one, so that equal sources
/// make equal products.
const EPOCH_S: &str = "946684800";

/// How a build is run: it ends at the first command that fails, or the later ones would leave a product
/// of half a build.
fn shell(build: &str) -> [String; 4] {
    ["sh", "-e", "-c", build].map(str::to_owned)
}

fn environment(
    revision: &Revision,
    settings: &Settings,
    place: &Place<'_>,
) -> BTreeMap<String, String> {
    let path = |path: &Path| path.display().to_string();
    let mut environment = BTreeMap::from([
        ("REV".to_owned(), revision.id.clone()),
        ("SRC".to_owned(), path(place.sources)),
        ("OUT".to_owned(), path(place.out)),
        ("SOURCE_DATE_EPOCH".to_owned(), EPOCH_S.to_owned()),
    ]);
    if let Origin::Versions(_) = settings.origin {
        environment.insert("VERSION".to_owned(), revision.id.clone());
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_fails_with_its_first_command_that_does() {
        let succeeds = |build: &str| {
            let [program, arguments @ ..] = shell(build);
            Command::new(program).args(arguments).status().unwrap().success()
        };
        assert!(!succeeds("false\ntrue"));
        assert!(!succeeds("false; true"));
        assert!(succeeds("true; if false; then true; fi\ntrue"));
    }
}

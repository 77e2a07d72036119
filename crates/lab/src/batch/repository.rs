//! A clone of the user's repository, which is read once for each batch and never written to. Worktrees
//! are those of the clone.

use super::revision::{LOG_FORMAT, Revision, of_log};
use super::settings::Wanted;
use super::{BatchError, command, io_error};
use crate::interrupt::Interrupt;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The clone.
#[derive(Debug)]
pub(super) struct Repository<'a> {
    dir: PathBuf,
    interrupt: &'a Interrupt,
}

/// What git is told by its environment when a hook starts this program, and what a build must not take
/// for its own: it would then write to the user's repository.
pub(super) const GIT_VARIABLES: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// More than anybody measures; each costs a call of git.
const REVISIONS_MAX: usize = 5_000;

impl<'a> Repository<'a> {
    /// The clone that is there.
    pub(super) fn at(dir: PathBuf, interrupt: &'a Interrupt) -> Self {
        Self { dir, interrupt }
    }

    /// Makes the clone, or brings it up to date.
    pub(super) fn fetch(&self, from: &str) -> Result<(), BatchError> {
        let mut init = git();
        init.args(["init", "--quiet", "--bare"]).arg(&self.dir);
        command::output(&mut init, QUICK, self.interrupt)?;
        let mut fetch = self.git(["fetch", "--quiet", "--force", "--no-tags", "--end-of-options"]);
        fetch.arg(from).args([
            "+HEAD:refs/tollgate/HEAD",
            "+refs/heads/*:refs/heads/*",
            "+refs/remotes/*:refs/remotes/*",
            "+refs/tags/*:refs/tags/*",
        ]);
        command::output(&mut fetch, FETCH, self.interrupt)?;
        self.output(["update-ref", "--no-deref", "HEAD", "refs/tollgate/HEAD"]).map(drop)
    }

    /// The revisions that were asked for, the oldest first where they are a range.
    pub(super) fn revisions(&self, wanted: &Wanted) -> Result<Vec<Revision>, BatchError> {
        let revisions = match wanted {
            Wanted::Range(range) => {
                let ends: Vec<&str> = range.split("..").collect();
                let [from, to] = ends[..] else {
                    return Err(BatchError::Asked(format!("`{range}` is not a range A..B")));
                };
                let to = if to.is_empty() { "HEAD" } else { to };
                let (first, last) = (self.one(from)?, self.one(to)?);
                let later = self.log(&first.id, &last.id, true)?;
                // Named as all others are.
                let text = self.output(["log", "-1", LOG_FORMAT, &first.id])?;
                of_log(&text, &[], true).into_iter().chain(later).collect()
            }
            Wanted::List(names) => self.list(names)?,
            Wanted::Tags(pattern) => {
                let mut list = self.git(["tag", "--list", "--sort=version:refname"]);
                list.arg("--end-of-options").arg(pattern);
                let text = command::output(&mut list, QUICK, self.interrupt)?;
                self.list(&text.lines().map(str::to_owned).collect::<Vec<_>>())?
            }
        };
        match revisions.len() {
            0 => Err(BatchError::Asked("no revision is what was asked for".to_owned())),
            1..=REVISIONS_MAX => Ok(revisions),
            count => Err(BatchError::Asked(format!(
                "{count} revisions are more than {REVISIONS_MAX}; name a shorter range"
            ))),
        }
    }

    /// One revision by any name that git knows.
    pub(super) fn one(&self, name: &str) -> Result<Revision, BatchError> {
        let commit = format!("{name}^{{commit}}");
        let mut log = self.git(["log", "-1", LOG_FORMAT, "--end-of-options"]);
        let text = command::output(log.arg(commit), QUICK, self.interrupt)?;
        let missing = || BatchError::Asked(format!("git knows no revision `{name}`"));
        of_log(&text, &[name.to_owned()], true).into_iter().next().ok_or_else(missing)
    }

    /// The commits after `good` up to `bad`, the oldest first; none where one is not the other's
    /// ancestor, so that there is no way from one to the other.
    pub(super) fn way(&self, good: &str, bad: &str) -> Result<Option<Vec<Revision>>, BatchError> {
        let mut ask = self.git(["merge-base", "--is-ancestor", good, bad]);
        match command::run(&mut ask, QUICK, self.interrupt)?.success {
            true => self.log(good, bad, false).map(Some),
            false => Ok(None),
        }
    }

    /// Puts the sources of a commit into a folder that is not there.
    pub(super) fn check_out(&self, id: &str, sources: &Path) -> Result<(), BatchError> {
        self.forget(sources)?;
        let mut add = self.git(["worktree", "add", "--quiet", "--detach", "--force"]);
        command::output(add.arg(sources).arg(id), FETCH, self.interrupt).map(drop)
    }

    /// Removes the folder again.
    pub(super) fn forget(&self, sources: &Path) -> Result<(), BatchError> {
        if sources.exists() {
            fs::remove_dir_all(sources).map_err(io_error("removing", sources))?;
        }
        self.output(["worktree", "prune"]).map(drop)
    }

    fn list(&self, names: &[String]) -> Result<Vec<Revision>, BatchError> {
        let mut revisions: Vec<Revision> = Vec::new();
        for name in names.iter().take(REVISIONS_MAX + 1) {
            let mut found = self.one(name)?;
            if revisions.iter().any(|known| known.id == found.id) {
                continue;
            }
            // Two tags may look alike once they are names of folders.
            while revisions.iter().any(|known| known.name == found.name) {
                found.name.push('x');
            }
            revisions.push(found);
        }
        Ok(revisions)
    }

    fn log(&self, from: &str, to: &str, listed: bool) -> Result<Vec<Revision>, BatchError> {
        let range = format!("{from}..{to}");
        // Along the first parents, so that each one comes out of the one before it.
        let text = self.output(["log", "--first-parent", "--reverse", LOG_FORMAT, &range])?;
        Ok(of_log(&text, &[], listed))
    }

    fn output(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String, BatchError> {
        command::output(&mut self.git(arguments), QUICK, self.interrupt)
    }

    fn git(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = git();
        command.arg("-C").arg(&self.dir).args(arguments);
        command
    }
}

/// How long git may take for what it has on disk, and for what it fetches or writes.
const QUICK: Duration = Duration::from_secs(120);
const FETCH: Duration = Duration::from_secs(3_600);

fn git() -> Command {
    let mut git = Command::new("git");
    // No hook of the user's runs, nothing is tidied up meanwhile, and nobody is asked for a password.
    git.args([
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "gc.auto=0",
        "-c",
        "advice.detachedHead=false",
    ]);
    git.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    for variable in GIT_VARIABLES {
        git.env_remove(variable);
    }
    git
}

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
        remove_locks(&self.dir)?;
        let mut init = git();
        init.args(["init", "--quiet", "--bare"]).arg(&self.dir);
        command::output(&mut init, QUICK, self.interrupt)?;
        // What is gone there goes here too: a tag would still be listed, and a branch `a` would be in the way of
        // one that is called `a/b`.
        let options = ["--quiet", "--force", "--no-tags", "--prune", "--end-of-options"];
        let mut fetch = self.git(std::iter::once("fetch").chain(options));
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
            Wanted::List(names) => self.in_order(self.list(names)?)?,
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

    /// The commits after `good` up to `bad`, the oldest first; none where no way along first parents leads from
    /// one to the other: one is not the other's ancestor, or came in by a merge, so that those before the merge
    /// lack it.
    pub(super) fn way(&self, good: &str, bad: &str) -> Result<Option<Vec<Revision>>, BatchError> {
        if !self.is_ancestor(good, bad)? {
            return Ok(None);
        }
        let commits = self.log(good, bad, false)?;
        let Some(oldest) = commits.first() else { return Ok(Some(commits)) };
        // The commit itself, and then its parents.
        let parents = self.output(["rev-list", "--parents", "--max-count=1", &oldest.id])?;
        Ok((parents.split_whitespace().nth(1) == Some(good)).then_some(commits))
    }

    /// Puts the sources of a commit into a folder that is not there.
    pub(super) fn check_out(&self, id: &str, sources: &Path) -> Result<(), BatchError> {
        self.forget(sources)?;
        // Twice: a worktree whose making was cut off stays locked.
        let mut add = self.git(["worktree", "add", "--quiet", "--detach", "--force", "--force"]);
        command::output(add.arg(sources).arg(id), FETCH, self.interrupt).map(drop)
    }

    /// Removes the folder again.
    pub(super) fn forget(&self, sources: &Path) -> Result<(), BatchError> {
        if sources.exists() {
            fs::remove_dir_all(sources).map_err(io_error("removing", sources))?;
        }
        self.output(["worktree", "prune"]).map(drop)
    }

    /// These revisions, where none comes before one that it was made from: the price would change the
    /// wrong way round, and no way would lead from one to the other.
    fn in_order(&self, revisions: Vec<Revision>) -> Result<Vec<Revision>, BatchError> {
        for (one, next) in revisions.iter().zip(revisions.iter().skip(1)) {
            if self.is_ancestor(&next.id, &one.id)? {
                return Err(BatchError::Asked(format!(
                    "{} is listed before {}, from which it was made; list the oldest revision first",
                    one.name, next.name
                )));
            }
        }
        Ok(revisions)
    }

    fn is_ancestor(&self, one: &str, of: &str) -> Result<bool, BatchError> {
        let mut ask = self.git(["merge-base", "--is-ancestor", one, of]);
        let printed = command::run(&mut ask, QUICK, self.interrupt)?;
        match printed.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            // git could not tell, which is no answer.
            _ => Err(command::failure(&ask, &printed)),
        }
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

/// Removes the locks that a git which was killed has left in a clone: no batch goes on beside another one in its
/// directory, so nobody holds them.
fn remove_locks(folder: &Path) -> Result<(), BatchError> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(io_error("reading", folder))? {
        let path = entry.map_err(io_error("reading", folder))?.path();
        if path.is_dir() && path.file_name() != Some(OsStr::new("objects")) {
            remove_locks(&path)?;
        } else if path.is_file() && path.extension() == Some(OsStr::new("lock")) {
            fs::remove_file(&path).map_err(io_error("removing", &path))?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What git prints of these arguments in the user's repository.
    fn in_user(dir: &Path, interrupt: &Interrupt, arguments: &[&str]) -> String {
        let mut command = git();
        command.arg("-C").arg(dir.join("user"));
        command.args(["-c", "user.name=A", "-c", "user.email=a@b.invalid"]).args(arguments);
        command::output(&mut command, QUICK, interrupt).unwrap()
    }

    /// A repository with two commits, and a clone of it.
    fn clone_of_two<'a>(dir: &Path, interrupt: &'a Interrupt) -> (Repository<'a>, [String; 2]) {
        let user = dir.join("user");
        let in_user = |arguments: &[&str]| in_user(dir, interrupt, arguments);
        fs::create_dir(&user).unwrap();
        in_user(&["init", "--quiet"]);
        let commits = ["one", "two"].map(|log| {
            in_user(&["commit", "--quiet", "--allow-empty", "-m", log]);
            in_user(&["rev-parse", "HEAD"]).trim().to_owned()
        });
        let repository = Repository::at(dir.join("clone"), interrupt);
        repository.fetch(&user.display().to_string()).unwrap();
        (repository, commits)
    }

    #[test]
    fn what_is_gone_from_the_users_repository_is_gone_from_the_clone() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let user = dir.path().join("user");
        let in_user = |arguments: &[&str]| in_user(dir.path(), &interrupt, arguments);
        let tagged = |repository: &Repository<'_>| -> Vec<String> {
            let found = repository.revisions(&Wanted::Tags("v*".to_owned())).unwrap();
            found.into_iter().map(|revision| revision.id).collect()
        };
        in_user(&["tag", "v1", &one]);
        in_user(&["tag", "v2", &two]);
        in_user(&["branch", "a", &one]);
        let from = user.display().to_string();
        repository.fetch(&from).unwrap();
        assert_eq!(tagged(&repository), [one.clone(), two.clone()]);
        // A branch that moves into the place of another as its folder, and a tag that was a mistake.
        in_user(&["branch", "-m", "a", "a/b"]);
        in_user(&["tag", "-d", "v1"]);
        repository.fetch(&from).unwrap();
        assert_eq!(tagged(&repository), [two]);
        assert_eq!(repository.one("a/b").unwrap().id, one);
    }

    #[test]
    fn sources_whose_making_was_cut_off_are_made_anew() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let sources = dir.path().join("sources");
        repository.check_out(&one, &sources).unwrap();
        // git locks a worktree while it makes it.
        fs::write(dir.path().join("clone/worktrees/sources/locked"), "initializing").unwrap();
        repository.check_out(&two, &sources).unwrap();
        let head = fs::read_to_string(dir.path().join("clone/worktrees/sources/HEAD")).unwrap();
        assert_eq!(head.trim(), two);
        repository.forget(&sources).unwrap();
        assert!(!sources.exists());
    }

    #[test]
    fn locks_of_a_git_that_was_killed_hold_nobody_up() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [_, two]) = clone_of_two(dir.path(), &interrupt);
        for lock in ["HEAD.lock", "config.lock", "refs/tollgate/HEAD.lock"] {
            fs::write(dir.path().join("clone").join(lock), "").unwrap();
        }
        repository.fetch(&dir.path().join("user").display().to_string()).unwrap();
        assert_eq!(repository.one("HEAD").unwrap().id, two);
    }

    #[test]
    fn no_way_leads_over_commits_that_lack_what_a_merge_brought() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let user = dir.path().join("user");
        let in_user = |arguments: &[&str]| in_user(dir.path(), &interrupt, arguments);
        // A branch from the first commit, with one of its own, comes into the one with the second.
        in_user(&["checkout", "--quiet", "-b", "side", &one]);
        in_user(&["commit", "--quiet", "--allow-empty", "-m", "aside"]);
        let aside = in_user(&["rev-parse", "HEAD"]).trim().to_owned();
        in_user(&["checkout", "--quiet", &two]);
        in_user(&["merge", "--quiet", "--no-ff", "-m", "both", &aside]);
        let both = in_user(&["rev-parse", "HEAD"]).trim().to_owned();
        repository.fetch(&user.display().to_string()).unwrap();
        let way = |from: &str| {
            let way = repository.way(from, &both).unwrap();
            way.map(|way| way.into_iter().map(|one| one.id).collect::<Vec<_>>())
        };
        assert_eq!(way(&one).unwrap(), [two.clone(), both.clone()]);
        assert_eq!(way(&aside), None, "the second commit lacks it");
        assert_eq!(way(&both).unwrap(), [""; 0]);
    }

    #[test]
    fn a_list_with_the_newest_first_is_refused() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let list = |names: [&String; 2]| Wanted::List(names.map(String::clone).to_vec());
        assert_eq!(repository.revisions(&list([&one, &two])).unwrap().len(), 2);
        let error = repository.revisions(&list([&two, &one])).unwrap_err().to_string();
        assert!(error.ends_with("list the oldest revision first"), "{error}");
    }

    #[test]
    fn what_git_cannot_tell_is_an_error_and_no_answer() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        assert_eq!(repository.way(&one, &two).unwrap().unwrap().len(), 1);
        assert_eq!(repository.way(&two, &one).unwrap(), None);
        let nowhere = "0".repeat(40);
        assert!(matches!(repository.way(&nowhere, &two), Err(BatchError::Command { .. })));
    }
}

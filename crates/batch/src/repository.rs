//! Revisions: commits of a git repository, which is cloned, or versions of a package.

use crate::config::Wanted;
use crate::division::ANCHOR;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::files::remove_folder;
use tollgate_runner::process::{Interrupt, command};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Commit or version.
    pub id: String,
    /// Short unique name for tables and folders.
    pub name: String,
    /// Identity of the sources: the commit's tree, or a hash of the version and the files.
    pub tree: String,
    /// Commit date as git's `%ci`; empty for a version.
    pub date: String,
    /// First line of the commit message; empty for a version.
    pub message: String,
    /// False if it was found by bisection.
    pub listed: bool,
}

/// Output format of git for [`of_log`].
pub const LOG_FORMAT: &str = "--format=%H%x1f%T%x1f%ci%x1f%s";

/// Parses commits printed by git, one per line. `names`: names given by the user. Repeated commits are dropped.
pub fn of_log(text: &str, names: &[String], listed: bool) -> Vec<Revision> {
    let mut revisions: Vec<Revision> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let parts: Vec<&str> = line.splitn(4, '\u{1f}').collect();
        let [id, tree, date, log] = parts[..] else { continue };
        if revisions.iter().any(|known| known.id == id) {
            continue;
        }
        let name = names.get(index).map_or(id, String::as_str);
        let name = unique_name(&short(name), |name| is_used(&revisions, name));
        let [id, tree, date] = [id, tree, date].map(str::to_owned);
        revisions.push(Revision { id, name, tree, date, message: one_line(log), listed });
    }
    revisions
}

pub fn of_versions(versions: &[String], tree: impl Fn(&str) -> String) -> Vec<Revision> {
    let mut revisions: Vec<Revision> = Vec::new();
    for version in versions {
        if revisions.iter().any(|known| known.id == *version) {
            continue;
        }
        revisions.push(Revision {
            id: version.clone(),
            name: unique_name(&short(version), |name| is_used(&revisions, name)),
            tree: tree(version),
            date: String::new(),
            message: String::new(),
            listed: true,
        });
    }
    revisions
}

/// Length of short commit hashes.
const HASH_DIGITS: usize = 10;
/// Names are used for folders, logs and subjects.
const NAME_CHARS_MAX: usize = 40;

fn short(text: &str) -> String {
    let is_hash = text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit());
    let length = if is_hash { HASH_DIGITS } else { NAME_CHARS_MAX };
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = text.chars().take(length).map(plain).collect();
    // Reserved for the baseline of every round.
    if name.starts_with('.') || name.is_empty() || name == ANCHOR {
        format!("r{name}")
    } else {
        name
    }
}

/// Returns the name, numbered from 2 if it is taken.
pub(crate) fn unique_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut unique = name.to_owned();
    let mut number = 2;
    while is_taken(&unique) {
        unique = format!("{name}-{number}");
        number += 1;
    }
    unique
}

pub(crate) fn is_used(revisions: &[Revision], name: &str) -> bool {
    revisions.iter().any(|revision| revision.name == name)
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[derive(Debug)]
pub(crate) struct Repository<'a> {
    dir: PathBuf,
    interrupt: &'a Interrupt,
}

/// Variables that git sets for hooks. A build must not inherit them: its git commands would change the user's
/// repository.
pub(crate) const GIT_VARIABLES: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// Each revision costs a call of git.
const REVISIONS_MAX: usize = 5_000;

impl<'a> Repository<'a> {
    pub(crate) fn at(dir: PathBuf, interrupt: &'a Interrupt) -> Self {
        Self { dir, interrupt }
    }

    /// Creates or updates the clone.
    pub(crate) fn fetch(&self, from: &str) -> anyhow::Result<()> {
        remove_locks(&self.dir)?;
        let mut init = git();
        init.args(["init", "--quiet", "--bare"]).arg(&self.dir);
        command::output(&mut init, QUICK, self.interrupt)?;
        // Prunes, as a deleted tag would still be listed, and a deleted branch `a` would block a new one `a/b`.
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

    /// Returns the selected revisions; a range is sorted with the oldest first.
    pub(crate) fn revisions(&self, wanted: &Wanted) -> anyhow::Result<Vec<Revision>> {
        let revisions = match wanted {
            Wanted::Range(range) => {
                let ends: Vec<&str> = range.split("..").collect();
                let [from, to] = ends[..] else {
                    return Err(bad_input(format!("`{range}` is not a range A..B")));
                };
                let to = if to.is_empty() { "HEAD" } else { to };
                let (first, last) = (self.one(from)?, self.one(to)?);
                if !self.is_ancestor(&first.id, &last.id)? {
                    return Err(bad_input(format!(
                        "cannot measure `{range}`: {from} is not an ancestor of {to}; write the older revision first"
                    )));
                }
                let later = self.log(&first.id, &last.id, true)?;
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
            0 => Err(bad_input("no revisions selected".to_owned())),
            1..=REVISIONS_MAX => Ok(revisions),
            count => Err(bad_input(format!(
                "{count} revisions exceed the limit of {REVISIONS_MAX}; choose a shorter range"
            ))),
        }
    }

    /// Resolves a name known to git.
    pub(crate) fn one(&self, name: &str) -> anyhow::Result<Revision> {
        let commit = format!("{name}^{{commit}}");
        let mut log = self.git(["log", "-1", LOG_FORMAT, "--ignore-missing", "--end-of-options"]);
        let text = command::output(log.arg(commit), QUICK, self.interrupt)?;
        let missing = || bad_input(format!("unknown revision `{name}`"));
        of_log(&text, &[name.to_owned()], true).into_iter().next().ok_or_else(missing)
    }

    /// Returns the commits after `good` up to `bad`, the oldest first; empty if `good` is not an ancestor along first parents.
    pub(crate) fn commits_between(
        &self,
        good: &str,
        bad: &str,
    ) -> anyhow::Result<Option<Vec<Revision>>> {
        if !self.is_ancestor(good, bad)? {
            return Ok(None);
        }
        let commits = self.log(good, bad, false)?;
        let Some(oldest) = commits.first() else { return Ok(Some(commits)) };
        // Prints the commit and its parents.
        let parents = self.output(["rev-list", "--parents", "--max-count=1", &oldest.id])?;
        Ok((parents.split_whitespace().nth(1) == Some(good)).then_some(commits))
    }

    pub(crate) fn check_out(&self, id: &str, sources: &Path) -> anyhow::Result<()> {
        self.remove_checkout(sources)?;
        // Forced twice, because an interrupted worktree stays locked.
        let mut add = self.git(["worktree", "add", "--quiet", "--detach", "--force", "--force"]);
        command::output(add.arg(sources).arg(id), FETCH, self.interrupt)?;
        Ok(())
    }

    pub(crate) fn remove_checkout(&self, sources: &Path) -> anyhow::Result<()> {
        remove_folder(sources)?;
        self.output(["worktree", "prune"]).map(drop)
    }

    /// Checks that no revision is listed before one of its ancestors.
    fn in_order(&self, revisions: Vec<Revision>) -> anyhow::Result<Vec<Revision>> {
        for (one, next) in revisions.iter().zip(revisions.iter().skip(1)) {
            if self.is_ancestor(&next.id, &one.id)? {
                return Err(bad_input(format!(
                    "{} is listed before its ancestor {}; list the oldest revision first",
                    one.name, next.name
                )));
            }
        }
        Ok(revisions)
    }

    fn is_ancestor(&self, one: &str, of: &str) -> anyhow::Result<bool> {
        let mut ask = self.git(["merge-base", "--is-ancestor", one, of]);
        let printed = command::run(&mut ask, QUICK, self.interrupt)?;
        match printed.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            // git failed.
            _ => Err(command::failure(&ask, &printed)),
        }
    }

    fn list(&self, names: &[String]) -> anyhow::Result<Vec<Revision>> {
        let mut revisions: Vec<Revision> = Vec::new();
        for name in names.iter().take(REVISIONS_MAX + 1) {
            let mut found = self.one(name)?;
            if revisions.iter().any(|known| known.id == found.id) {
                continue;
            }
            // Two tags may become equal as names of folders.
            found.name = unique_name(&found.name, |name| is_used(&revisions, name));
            revisions.push(found);
        }
        Ok(revisions)
    }

    fn log(&self, from: &str, to: &str, listed: bool) -> anyhow::Result<Vec<Revision>> {
        let range = format!("{from}..{to}");
        // Along first parents, so that each commit is based on the previous one.
        let text = self.output(["log", "--first-parent", "--reverse", LOG_FORMAT, &range])?;
        Ok(of_log(&text, &[], listed))
    }

    fn output(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<String> {
        command::output(&mut self.git(arguments), QUICK, self.interrupt)
    }

    fn git(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = git();
        command.arg("-C").arg(&self.dir).args(arguments);
        command
    }
}

/// Removes locks of a killed git process. No other process uses the clone, as the batch is locked.
fn remove_locks(folder: &Path) -> anyhow::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = entry.map_err(io_error("read", folder))?.path();
        if path.is_dir() && path.file_name() != Some(OsStr::new("objects")) {
            remove_locks(&path)?;
        } else if path.is_file() && path.extension() == Some(OsStr::new("lock")) {
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

/// Time limits of git commands: local reads, and fetches or writes.
const QUICK: Duration = Duration::from_secs(120);
const FETCH: Duration = Duration::from_secs(3_600);

fn git() -> Command {
    let mut git = Command::new("git");
    // Without hooks, garbage collection and password prompts.
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

    const A: &str = "10c4f9b1b2476f71159fa5569d9238001760404c";
    const B: &str = "9e9db08b874fe7c1200aafd95fe6bccd41148ae5";

    #[test]
    fn parses_and_names_commits() {
        let line = |id: &str, log: &str| {
            format!("{id}\u{1f}tree\u{1f}2017-08-19 10:21:57 +0300\u{1f}{log}\n")
        };
        let text = line(A, "add a test\tfor macro") + &line(B, "") + &line(A, "add");
        let found = of_log(&text, &[], true);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].name.as_str(), found[0].message.as_str()),
            ("10c4f9b1b2", "add a test for macro")
        );
        assert_eq!(found[1].message, "");
        let tags = ["v3/x".to_owned(), ".v4".to_owned()];
        let found = of_log(&text, &tags, true);
        assert_eq!((found[0].name.as_str(), found[1].name.as_str()), ("v3-x", "r.v4"));
    }

    #[test]
    fn similar_names_stay_unique() {
        let versions = ["v1/0", "v1-0", "v1/0", "v1 0"].map(str::to_owned);
        let found = of_versions(&versions, str::to_owned);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["v1-0", "v1-0-2", "v1-0-3"]);
    }
}

#[cfg(test)]
mod repository_tests {
    use super::*;

    fn in_user(dir: &Path, interrupt: &Interrupt, arguments: &[&str]) -> String {
        let mut command = git();
        command.arg("-C").arg(dir.join("user"));
        command.args(["-c", "user.name=A", "-c", "user.email=a@b.invalid"]).args(arguments);
        command::output(&mut command, QUICK, interrupt).unwrap()
    }

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
    fn deleted_refs_are_pruned() {
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
        // A branch replaced by one below its name, and a deleted tag.
        in_user(&["branch", "-m", "a", "a/b"]);
        in_user(&["tag", "-d", "v1"]);
        repository.fetch(&from).unwrap();
        assert_eq!(tagged(&repository), [two]);
        assert_eq!(repository.one("a/b").unwrap().id, one);
        assert_eq!(repository.one("v1").unwrap_err().to_string(), "unknown revision `v1`");
    }

    #[test]
    fn interrupted_checkout_is_repeated() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let sources = dir.path().join("sources");
        repository.check_out(&one, &sources).unwrap();
        // git locks a worktree while it creates it.
        fs::write(dir.path().join("clone/worktrees/sources/locked"), "initializing").unwrap();
        repository.check_out(&two, &sources).unwrap();
        let head = fs::read_to_string(dir.path().join("clone/worktrees/sources/HEAD")).unwrap();
        assert_eq!(head.trim(), two);
        repository.remove_checkout(&sources).unwrap();
        assert!(!sources.exists());
    }

    #[test]
    fn locks_of_a_killed_git_are_removed() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [_, two]) = clone_of_two(dir.path(), &interrupt);
        for lock in ["HEAD.lock", "config.lock", "refs/tollgate/HEAD.lock"] {
            fs::write(dir.path().join("clone").join(lock), "").unwrap();
        }
        repository.fetch(&dir.path().join("user").display().to_string()).unwrap();
        assert_eq!(repository.one("HEAD").unwrap().id, two);
    }

    #[test]
    fn path_between_commits_follows_first_parents() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let user = dir.path().join("user");
        let in_user = |arguments: &[&str]| in_user(dir.path(), &interrupt, arguments);
        // Merges a branch from the first commit.
        in_user(&["checkout", "--quiet", "-b", "side", &one]);
        in_user(&["commit", "--quiet", "--allow-empty", "-m", "aside"]);
        let aside = in_user(&["rev-parse", "HEAD"]).trim().to_owned();
        in_user(&["checkout", "--quiet", &two]);
        in_user(&["merge", "--quiet", "--no-ff", "-m", "both", &aside]);
        let both = in_user(&["rev-parse", "HEAD"]).trim().to_owned();
        repository.fetch(&user.display().to_string()).unwrap();
        let between = |from: &str| {
            let commits = repository.commits_between(from, &both).unwrap();
            commits.map(|commits| commits.into_iter().map(|one| one.id).collect::<Vec<_>>())
        };
        assert_eq!(between(&one).unwrap(), [two.clone(), both.clone()]);
        assert_eq!(between(&aside), None, "the second commit lacks it");
        assert_eq!(between(&both).unwrap(), [""; 0]);
    }

    #[test]
    fn newest_first_is_an_error() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let list = |names: [&String; 2]| Wanted::List(names.map(String::clone).to_vec());
        assert_eq!(repository.revisions(&list([&one, &two])).unwrap().len(), 2);
        let error = repository.revisions(&list([&two, &one])).unwrap_err().to_string();
        assert!(error.ends_with("list the oldest revision first"), "{error}");
    }

    #[test]
    fn range_starts_at_an_ancestor() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        let range = |from: &str, to: &str| {
            let found = repository.revisions(&Wanted::Range(format!("{from}..{to}")));
            found.map(|found| found.into_iter().map(|one| one.id).collect::<Vec<_>>())
        };
        assert_eq!(range(&one, "HEAD").unwrap(), [one.clone(), two.clone()]);
        assert_eq!(range(&two, "").unwrap(), [two]);
        assert_eq!(
            range("HEAD", &one).unwrap_err().to_string(),
            format!(
                "cannot measure `HEAD..{one}`: HEAD is not an ancestor of {one}; write the older revision first"
            )
        );
    }

    #[test]
    fn failure_of_git_is_an_error() {
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let (repository, [one, two]) = clone_of_two(dir.path(), &interrupt);
        assert_eq!(repository.commits_between(&one, &two).unwrap().unwrap().len(), 1);
        assert_eq!(repository.commits_between(&two, &one).unwrap(), None);
        let nowhere = "0".repeat(40);
        let error = repository.commits_between(&nowhere, &two).unwrap_err().to_string();
        assert!(error.contains("` failed: "), "{error}");
    }
}

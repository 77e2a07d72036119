//! A revision: a commit of a repository, or a version of a package.

use super::rounds::ANCHOR;
use serde::{Deserialize, Serialize};

/// A revision that can be built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// The commit, or the version.
    pub id: String,
    /// What it is called in tables and folders: short, and no other revision's.
    pub name: String,
    /// What its sources are: the commit's tree, or a hash over the version and the files beside it.
    pub tree: String,
    /// When it was committed, as git's `%ci`; empty for a version.
    pub date: String,
    /// The first line of the commit's message; empty for a version.
    pub log: String,
    /// Whether it was asked for. The others were met on the way from one to the next.
    pub listed: bool,
}

/// How git is to print a commit for [`of_log`].
pub const LOG_FORMAT: &str = "--format=%H%x1f%T%x1f%ci%x1f%s";

/// The commits that git printed, one a line. `names` are those they were asked for by, where they have
/// any; a commit that comes again is left out.
pub fn of_log(text: &str, names: &[String], listed: bool) -> Vec<Revision> {
    let mut revisions: Vec<Revision> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let parts: Vec<&str> = line.splitn(4, '\u{1f}').collect();
        let [id, tree, date, log] = parts[..] else { continue };
        if revisions.iter().any(|known| known.id == id) {
            continue;
        }
        let asked = names.get(index).map_or(id, String::as_str);
        let name = distinct(short(asked), &revisions);
        let [id, tree, date] = [id, tree, date].map(str::to_owned);
        revisions.push(Revision { id, name, tree, date, log: one_line(log), listed });
    }
    revisions
}

/// The revisions of a package.
pub fn of_versions(versions: &[String], tree: impl Fn(&str) -> String) -> Vec<Revision> {
    let mut revisions: Vec<Revision> = Vec::new();
    for version in versions {
        if revisions.iter().any(|known| known.id == *version) {
            continue;
        }
        revisions.push(Revision {
            id: version.clone(),
            name: distinct(short(version), &revisions),
            tree: tree(version),
            date: String::new(),
            log: String::new(),
            listed: true,
        });
    }
    revisions
}

/// Letters of a hash that are enough to tell commits apart.
const HASH_DIGITS: usize = 10;
/// Folders, logs and subjects are named after it.
const NAME_CHARS_MAX: usize = 40;

fn short(asked: &str) -> String {
    let is_hash = asked.len() == 40 && asked.chars().all(|c| c.is_ascii_hexdigit());
    let length = if is_hash { HASH_DIGITS } else { NAME_CHARS_MAX };
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = asked.chars().take(length).map(plain).collect();
    // What every round calls its baseline is no revision's name.
    match name.starts_with('.') || name.is_empty() || name == ANCHOR {
        true => format!("r{name}"),
        false => name,
    }
}

fn distinct(name: String, known: &[Revision]) -> String {
    let is_taken = |name: &str| known.iter().any(|other| other.name == name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(name)
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "10c4f9b1b2476f71159fa5569d9238001760404c";
    const B: &str = "9e9db08b874fe7c1200aafd95fe6bccd41148ae5";

    #[test]
    fn what_git_prints_is_read_and_named() {
        let line = |id: &str, log: &str| {
            format!("{id}\u{1f}tree\u{1f}2017-08-19 10:21:57 +0300\u{1f}{log}\n")
        };
        let text = line(A, "add a test\tfor macro") + &line(B, "") + &line(A, "add");
        let found = of_log(&text, &[], true);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].name.as_str(), found[0].log.as_str()),
            ("10c4f9b1b2", "add a test for macro")
        );
        assert_eq!(found[1].log, "");
        let tags = ["v3/x".to_owned(), ".v4".to_owned()];
        let found = of_log(&text, &tags, true);
        assert_eq!((found[0].name.as_str(), found[1].name.as_str()), ("v3-x", "r.v4"));
    }

    #[test]
    fn two_names_that_look_alike_are_told_apart() {
        let versions = ["v1/0", "v1-0", "v1/0", "v1 0"].map(str::to_owned);
        let found = of_versions(&versions, str::to_owned);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["v1-0", "v1-0-2", "v1-0-3"]);
    }
}

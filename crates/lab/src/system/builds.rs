//! Builds on this machine: which results are there, and how they are made.

use super::go::{self, GoError, ToolChain};
use super::render::{hash_file, hash_text};
use super::results::{of_any_tool_chain, of_sources, only, unused, version};
use super::{in_use, unfinished};
use crate::inputs::build::Build;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;
use std::{env, fs, io};
use thiserror::Error;

/// Why a build has no result.
#[derive(Debug, Error)]
pub enum BuildError {
    /// There is no folder to keep results in.
    #[error("there is no cache folder: set XDG_CACHE_HOME or HOME to one that can be written")]
    NoCache,
    /// A file or folder cannot be read or written.
    #[error("{doing} {path}")]
    Files {
        /// What was being done.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no Go that could make it.
    #[error("{title} cannot be built; {mend}")]
    Go {
        /// What the build brings.
        title: String,
        /// What to do about it.
        mend: String,
        /// Why not.
        source: GoError,
    },
    /// A result would be replaced that somebody uses.
    #[error(
        "{folder} is in use by another process, which may start it again at any time, and would find something \
         else; wait for its end"
    )]
    InUse {
        /// The result.
        folder: PathBuf,
    },
    /// A program cannot be run.
    #[error("running `{command}`")]
    Run {
        /// The program and its arguments.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A program failed; what it had to say is on standard error.
    #[error("`{command}` failed ({status}){hint}")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: String,
        /// What may be the reason, where it is known.
        hint: String,
    },
}

/// The folder in which what was made once is kept.
///
/// # Errors
///
/// The user has no cache folder.
pub(crate) fn cache() -> Result<PathBuf, BuildError> {
    let cache = cache_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"));
    cache.ok_or(BuildError::NoCache)
}

/// The folder with the result of a build, if the tool chain that is here has made it. Where there is no Go,
/// nothing says which tool chain is meant: then it is the only result that these sources have. It stays there for
/// as long as this process lives.
pub fn find(build: &Build) -> Option<PathBuf> {
    let results = results(build).ok()?;
    match go::here() {
        Ok(tool_chain) => Some(results.join(version(build, tool_chain))),
        Err(_) => only(of_any_tool_chain(&results, &of_sources(build))),
    }
    .filter(|folder| in_use::hold(folder))
}

/// The results of a build of which nothing says which one is meant: there is no Go, and several have made it.
pub fn undecided(build: &Build) -> Vec<PathBuf> {
    match (go::here(), results(build)) {
        (Err(_), Ok(results)) => {
            let found = of_any_tool_chain(&results, &of_sources(build));
            if found.len() > 1 { found } else { Vec::new() }
        }
        (Ok(_), _) | (_, Err(_)) => Vec::new(),
    }
}

/// Why the Go that is here cannot make a build, and what to do about it.
///
/// # Errors
///
/// There is none, it does not say which one it is, or it is too old.
pub fn can_be_made(build: &Build) -> Result<&'static ToolChain, BuildError> {
    let needed = go::needed(build);
    let here = go::here().and_then(|here| here.suffices(needed).map(|()| here));
    here.map_err(|source| BuildError::Go {
        title: build.file.title.clone(),
        mend: go::mend(needed),
        source,
    })
}

/// Makes a build and returns the folder with its result, which stays there for as long as this process lives. What
/// the tools print goes to standard error.
///
/// A result that somebody uses is not made again: a run starts its servers anew in every trial, and would measure
/// two of them under one name.
///
/// # Errors
///
/// A tool is missing, too old or fails, the result cannot be kept, or there is one that is in use.
pub fn make(build: &Build) -> Result<PathBuf, BuildError> {
    let tool_chain = can_be_made(build)?;
    let parent = results(build)?;
    fs::create_dir_all(&parent).map_err(files("making", &parent))?;
    unfinished::remove(&parent).map_err(files("removing what was not finished in", &parent))?;
    let folder = parent.join(version(build, tool_chain));
    // Said now, and not after minutes that would also have disturbed whoever uses it.
    if folder.is_dir() && in_use::is_held(&folder).map_err(files("locking", &folder))? {
        return Err(BuildError::InUse { folder });
    }
    // Made beside its place and moved there when it is whole: a build that was cut off leaves nothing
    // that looks like a result.
    let work = parent.join(unfinished::name());
    let made = make_in(build, tool_chain, &work)
        .and_then(|result| keep(&result, &folder, &work.join("replaced")));
    // What is left of it helps nobody, and the error of the build says more than one of this.
    fs::remove_dir_all(&work).ok();
    made?;
    in_use::hold(&folder);
    Ok(folder)
}

/// Removes the results of a build, of whatever sources and tool chains, that no process has found for
/// [`UNUSED_DAYS`](super::results::UNUSED_DAYS), and returns their folders. Before that they may be those of another
/// checkout. What a process has found stays until that has ended.
///
/// # Errors
///
/// A folder cannot be read or removed.
pub fn remove_unused(build: &Build) -> Result<Vec<PathBuf>, BuildError> {
    let parent = results(build)?;
    let mut removed = Vec::new();
    for path in unused(&parent, SystemTime::now()).map_err(files("reading", &parent))? {
        let on_the_way = parent.join(unfinished::name());
        if in_use::remove(&path, &on_the_way).map_err(files("removing", &path))? {
            removed.push(path);
        }
    }
    Ok(removed)
}

/// One hash for a folder: over the names and hashes of all files in it.
///
/// # Errors
///
/// A file cannot be read.
pub fn hash_folder(folder: &Path) -> io::Result<String> {
    let mut files = files_below(folder)?;
    files.sort();
    let mut text = String::new();
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        // Writing to a String cannot fail.
        writeln!(text, "{}  {name}", hash_file(&path)?).ok();
    }
    Ok(hash_text(&text))
}

fn cache_folder(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // A relative path is to be ignored, says the XDG base directory specification.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let cache = xdg.and_then(absolute).or(home.and_then(absolute).map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("tollgate"))
}

/// The folder that has a folder for each result of a build.
fn results(build: &Build) -> Result<PathBuf, BuildError> {
    Ok(cache()?.join("builds").join(&build.name))
}

/// Puts a result into its place. What is there already makes room, unless a process holds it.
fn keep(result: &Path, folder: &Path, replaced: &Path) -> Result<(), BuildError> {
    let moving = files("moving the result to", folder);
    if !folder.is_dir() {
        return fs::rename(result, folder).map_err(moving);
    }
    if in_use::replace(folder, result, replaced).map_err(moving)? {
        return Ok(());
    }
    // Another process has made it meanwhile, and found it.
    let hash = |folder: &Path| hash_folder(folder).map_err(files("reading", folder));
    match hash(result)? == hash(folder)? {
        true => Ok(()),
        false => Err(BuildError::InUse { folder: folder.to_owned() }),
    }
}

fn make_in(build: &Build, tool_chain: &ToolChain, work: &Path) -> Result<PathBuf, BuildError> {
    let needed = go::needed(build);
    let hint = match tool_chain.has_to_fetch(needed) {
        true => format!(
            "; {tool_chain} is here and had to fetch a newer one: where it cannot, {}",
            go::mend(needed)
        ),
        false => String::new(),
    };
    let (sources, result) = (work.join("source"), work.join("result"));
    for folder in [&sources, &result] {
        fs::create_dir_all(folder).map_err(files("making", folder))?;
    }
    for source in &build.sources {
        let path = sources.join(&source.name);
        fs::write(&path, &source.text).map_err(files("writing", &path))?;
    }
    for (program, package) in &build.file.programs {
        let mut go = Command::new("go");
        // Nothing is taken but what go.mod and go.sum name.
        go.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"]);
        go.arg(format!("-ldflags=-s -w {}", build.file.ldflags));
        go.arg("-o").arg(result.join(program)).arg(package).current_dir(&sources);
        // The folders above may be part of a workspace, which is no business of this build.
        run(go.env("GOWORK", "off"), &hint)?;
    }
    for words in &build.file.then {
        let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
        run(Command::new(program).args(arguments).current_dir(&result), "")?;
    }
    Ok(result)
}

fn run(command: &mut Command, hint: &str) -> Result<(), BuildError> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words = words.join(" ");
    // Both streams are what is told on the way.
    command.stdin(Stdio::null()).stdout(io::stderr());
    let status =
        command.status().map_err(|source| BuildError::Run { command: words.clone(), source })?;
    match status.success() {
        true => Ok(()),
        false => Err(BuildError::Failed {
            command: words,
            status: status.to_string(),
            hint: hint.to_owned(),
        }),
    }
}

/// Every file below a folder, in no order.
pub(crate) fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files_below(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

fn files(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> BuildError {
    move |source| BuildError::Files { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_folder_is_where_the_user_wants_it() {
        let folder = |xdg: &str, home: &str| {
            let path = cache_folder(Some(xdg.into()), Some(home.into()))?;
            Some(path.display().to_string())
        };
        assert_eq!(folder("/var/cache/me", "/users/me").unwrap(), "/var/cache/me/tollgate");
        assert_eq!(folder("", "/users/me").unwrap(), "/users/me/.cache/tollgate");
        assert_eq!(folder("relative", "/users/me").unwrap(), "/users/me/.cache/tollgate");
        assert_eq!(folder("", ""), None);
    }

    #[test]
    fn a_folder_hashes_by_names_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("rules")).unwrap();
        fs::write(dir.path().join("setup"), "abc").unwrap();
        fs::write(dir.path().join("rules/1"), "").unwrap();
        let hash = hash_folder(dir.path()).unwrap();
        // As sha256sum prints the files in the order of their paths, hashed once more.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash, hash_text(&format!("{empty}  rules/1\n{abc}  setup\n")));
        fs::rename(dir.path().join("setup"), dir.path().join("Setup")).unwrap();
        assert_ne!(hash, hash_folder(dir.path()).unwrap());
    }
}

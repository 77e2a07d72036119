//! Builds on this machine: where their results are kept, and how they are made.
//!
//! A result is kept in the user's cache folder under the build's name and the hash of its sources, so
//! that another version of a build never passes for this one.

use super::render::{hash_file, hash_text};
use crate::inputs::build::Build;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    /// A program cannot be run.
    #[error("running `{command}`{hint}")]
    Run {
        /// The program and its arguments.
        command: String,
        /// What to do about it.
        hint: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A program failed; what it had to say is on standard error.
    #[error("`{command}` failed ({status})")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: String,
    },
}

/// The folder with the result of a build, whether it is there or not.
///
/// # Errors
///
/// The user has no cache folder.
pub fn folder(build: &Build) -> Result<PathBuf, BuildError> {
    Ok(cache()?.join("builds").join(&build.name).join(version(build)))
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

/// The folder with the result of a build, if it has been made.
pub fn find(build: &Build) -> Option<PathBuf> {
    folder(build).ok().filter(|folder| folder.is_dir())
}

/// Makes a build and returns the folder with its result. What the tools print goes to standard error.
///
/// # Errors
///
/// A tool is missing or fails, or the result cannot be kept.
pub fn make(build: &Build) -> Result<PathBuf, BuildError> {
    let folder = folder(build)?;
    let parent = folder.parent().unwrap_or(&folder);
    fs::create_dir_all(parent).map_err(files("making", parent))?;
    // Made beside its place and moved there when it is whole: a build that was cut off leaves nothing
    // that looks like a result.
    let work = parent.join(format!("unfinished-{}", std::process::id()));
    let made = make_in(build, &work).and_then(|result| {
        if folder.is_dir() {
            fs::remove_dir_all(&folder).map_err(files("removing", &folder))?;
        }
        fs::rename(&result, &folder).map_err(files("moving the result to", &folder))
    });
    // What is left of it helps nobody, and the error of the build says more than one of this.
    fs::remove_dir_all(&work).ok();
    made.map(|()| folder)
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

/// The hash of the sources, shortened: enough to tell versions of one build apart.
fn version(build: &Build) -> String {
    let mut hasher = Sha256::new();
    for source in &build.sources {
        hasher.update(format!("{} {}\n", source.name, source.text.len()));
        hasher.update(&source.text);
    }
    let hash = super::render::hex(&hasher.finalize());
    hash[..VERSION_DIGITS].to_owned()
}

const VERSION_DIGITS: usize = 12;

fn make_in(build: &Build, work: &Path) -> Result<PathBuf, BuildError> {
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
        run(&mut go, "; install Go 1.25 or newer")?;
    }
    for words in &build.file.then {
        let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
        run(Command::new(program).args(arguments).current_dir(&result), "")?;
    }
    Ok(result)
}

fn run(command: &mut Command, hint: &'static str) -> Result<(), BuildError> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words = words.join(" ");
    // Both streams are what is told on the way.
    command.stdin(Stdio::null()).stdout(io::stderr());
    let status = command.status().map_err(|source| BuildError::Run {
        command: words.clone(),
        hint,
        source,
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(BuildError::Failed { command: words, status: status.to_string() }),
    }
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
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
    use crate::inputs::build::BuildFile;
    use crate::inputs::toml_file::Source;

    fn build(sources: &[(&str, &str)]) -> Build {
        let source = |(name, text): &(&str, &str)| Source {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
        };
        let file: BuildFile = toml::from_str("title = 'a build'\n[programs]").unwrap();
        Build { name: "a".to_owned(), file, sources: sources.iter().map(source).collect() }
    }

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
    fn other_sources_are_another_version() {
        let one = version(&build(&[("go.mod", "a"), ("main.go", "b")]));
        assert_eq!(one, version(&build(&[("go.mod", "a"), ("main.go", "b")])));
        assert_ne!(one, version(&build(&[("go.mod", "a"), ("main.go", "c")])));
        // A text that moves from one file into the next is another source.
        assert_ne!(one, version(&build(&[("go.mod", "ab"), ("main.go", "")])));
        assert_eq!(one.len(), 12);
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

//! Builds of systems: makes them, and keeps the results in the user's cache folder.
//!
//! A result is a folder named after the hashes of its sources and of the tool chain that made it, so that results of
//! several checkouts and tool chains lie side by side. It is made beside its place and renamed when it is complete.

use super::go::{self, ToolChain};
use crate::process::{Interrupt, command};
use anyhow::{Context, anyhow};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::{env, fs, io};
use tollgate_experiment::recipe::Build;
use tollgate_records::error::io_error;
use tollgate_records::files::{files_below, hash_file, hash_text, hex, remove_folder};

/// Returns the cache folder: `tollgate` in `$XDG_CACHE_HOME` or in `~/.cache`.
pub fn cache() -> anyhow::Result<PathBuf> {
    let cache = cache_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"));
    cache.context("no cache folder: set XDG_CACHE_HOME or HOME to a writable folder")
}

/// Removes the cache folder with all results. Returns its path and the bytes of its files, or `None` if there is none.
pub fn remove_cache() -> anyhow::Result<Option<(PathBuf, u64)>> {
    let cache = cache()?;
    if !cache.exists() {
        return Ok(None);
    }
    let bytes = file_bytes(&cache).map_err(io_error("read", &cache))?;
    remove_folder(&cache)?;
    Ok(Some((cache, bytes)))
}

/// File of a build that pins Python wheels.
const WHEELS: &str = "requirements.txt";

/// Debian package that has pip.
const PIP: &str = "python3-pip";

/// Tool that makes a build.
#[derive(Clone, Copy)]
enum Maker {
    Go(&'static ToolChain),
    /// pip, whose version does not affect the result.
    Pip,
}

/// Reason why nothing can make a build, and what to do.
pub struct NoMaker {
    pub reason: String,
    pub hint: String,
}

/// Returns the Python wheels of a build with their versions.
pub fn wheels(build: &Build) -> impl Iterator<Item = &str> {
    let pinned = build.sources.iter().filter(|source| source.name == WHEELS);
    let lines = pinned.flat_map(|source| source.text.lines());
    lines
        .filter(|line| !line.starts_with('#') && line.contains("=="))
        .filter_map(|line| line.split_whitespace().next())
}

fn has_wheels(build: &Build) -> bool {
    wheels(build).next().is_some()
}

/// Returns the result made by the installed tool chain or, without Go, the only result of these sources.
pub fn find(build: &Build) -> Option<PathBuf> {
    let results = results_folder(build).ok()?;
    let by = match go::installed() {
        _ if has_wheels(build) => Ok(Maker::Pip),
        found => found.map(Maker::Go),
    };
    match by {
        Ok(maker) => Some(results.join(result_name(build, maker))),
        Err(_) => only(results_of_sources(&results, &source_hash(build))),
    }
    .filter(|folder| folder.is_dir())
}

/// Returns the results of a build if there are several and no Go to choose among them.
pub fn ambiguous(build: &Build) -> Vec<PathBuf> {
    if has_wheels(build) {
        return Vec::new();
    }
    match (go::installed(), results_folder(build)) {
        (Err(_), Ok(results)) => {
            let found = results_of_sources(&results, &source_hash(build));
            if found.len() > 1 { found } else { Vec::new() }
        }
        (Ok(_), _) | (_, Err(_)) => Vec::new(),
    }
}

/// Checks that a tool is installed that can make a build.
pub fn check_maker(build: &Build) -> Result<(), NoMaker> {
    maker(build).map(|_| ())
}

fn maker(build: &Build) -> Result<Maker, NoMaker> {
    if has_wheels(build) {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--version"]).stdin(Stdio::null());
        return match pip.output() {
            Ok(output) if output.status.success() => Ok(Maker::Pip),
            Ok(_) | Err(_) => Err(NoMaker {
                reason: "pip for python3 is not installed".to_owned(),
                hint: format!("install the Debian package {PIP}"),
            }),
        };
    }
    let needed = go::needed(build);
    let go = go::installed().and_then(|go| go.check(needed).map(|()| go));
    go.map(Maker::Go).map_err(|reason| NoMaker { reason, hint: go::hint(needed) })
}

/// Makes a build, replaces an earlier result, and returns the folder of the result. The output of the tools goes to
/// standard error.
pub fn make(build: &Build) -> anyhow::Result<PathBuf> {
    let maker = maker(build).map_err(|NoMaker { reason, hint }| {
        anyhow!("cannot build {}; {hint}: {reason}", build.file.title)
    })?;
    let results = results_folder(build)?;
    let folder = results.join(result_name(build, maker));
    let work = results.join(format!("unfinished-{}", process::id()));
    // Left by a killed process with the same id.
    remove_folder(&work)?;
    let made = make_in(build, maker, &work)
        .and_then(|result| move_into_place(&result, &folder, &work.join("replaced")));
    // An error of the build is more important than one of the cleanup.
    fs::remove_dir_all(&work).ok();
    made?;
    Ok(folder)
}

/// Hash over the names and contents of all files in a folder.
pub fn hash_folder(folder: &Path) -> io::Result<String> {
    hash_files(folder, |_, hash, name| Ok(format!("{hash}  {name}\n")))
}

/// Hash over a line for each file in a folder. `line` gets the path, the hash of the content and the name in the folder.
pub fn hash_files(
    folder: &Path,
    line: impl Fn(&Path, &str, &str) -> io::Result<String>,
) -> io::Result<String> {
    let mut text = String::new();
    for name in files_below(folder)? {
        let path = folder.join(&name);
        text += &line(&path, &hash_file(&path)?, &name.display().to_string())?;
    }
    Ok(hash_text(&text))
}

const HASH_DIGITS: usize = 12;

fn cache_folder(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG base directory specification says to ignore relative paths.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let cache = xdg.and_then(absolute).or(home.and_then(absolute).map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("tollgate"))
}

/// Total size of the files below a folder. Symbolic links are not followed.
fn file_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { file_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

fn results_folder(build: &Build) -> anyhow::Result<PathBuf> {
    Ok(cache()?.join("builds").join(&build.name))
}

fn result_name(build: &Build, maker: Maker) -> String {
    let source = source_hash(build);
    match maker {
        Maker::Go(tool_chain) => format!("{source}-{}", &tool_chain.hash()[..HASH_DIGITS]),
        // Wheels are made for each architecture.
        Maker::Pip => format!("{source}-{}", env::consts::ARCH),
    }
}

fn source_hash(build: &Build) -> String {
    let mut hasher = Sha256::new();
    for source in &build.sources {
        hasher.update(format!("{} {}\n", source.name, source.text.len()));
        hasher.update(&source.text);
    }
    hex(&hasher.finalize())[..HASH_DIGITS].to_owned()
}

/// Returns the results of these sources by any tool chain, sorted by name. A missing folder has none.
fn results_of_sources(results: &Path, source_hash: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(results).into_iter().flatten().flatten();
    let is_of_sources = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(source_hash).is_some_and(|rest| rest.starts_with('-'))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_of_sources).collect();
    found.sort();
    found
}

fn only(found: Vec<PathBuf>) -> Option<PathBuf> {
    let [found] = <[PathBuf; 1]>::try_from(found).ok()?;
    Some(found)
}

fn move_into_place(result: &Path, folder: &Path, replaced: &Path) -> anyhow::Result<()> {
    if folder.is_dir() {
        fs::rename(folder, replaced).map_err(io_error("replace", folder))?;
    }
    match fs::rename(result, folder) {
        // Another process finished the same build in between.
        Err(_) if folder.is_dir() => Ok(()),
        moved => moved.map_err(io_error("move the result to", folder)),
    }
}

fn make_in(build: &Build, maker: Maker, work: &Path) -> anyhow::Result<PathBuf> {
    let needed = go::needed(build);
    let hint = match maker {
        Maker::Go(tool_chain) if tool_chain.must_fetch(needed) => format!(
            "; {tool_chain} is installed and has to fetch a newer release; if it cannot, {}",
            go::hint(needed)
        ),
        Maker::Go(_) | Maker::Pip => String::new(),
    };
    let run = |command: &mut Command, hint: &str| {
        let run = command::foreground(command.stdin(Stdio::null()), &Interrupt::default());
        run.with_context(|| format!("cannot build {}{hint}", build.file.title))
    };
    let (sources, result) = (work.join("source"), work.join("result"));
    for folder in [&sources, &result] {
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    }
    for source in &build.sources {
        let path = sources.join(&source.name);
        fs::write(&path, &source.text).map_err(io_error("write", &path))?;
    }
    if let Maker::Pip = maker {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-compile"]);
        pip.args(["--requirement", WHEELS, "--target"]).arg(&result).current_dir(&sources);
        // It warns of packages of the system, which stay as they are.
        pip.env("PIP_ROOT_USER_ACTION", "ignore");
        run(&mut pip, "")?;
    }
    for (program, package) in &build.file.programs {
        let mut go = Command::new("go");
        // Uses exactly the modules in go.mod and go.sum.
        go.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"]);
        go.arg(format!("-ldflags=-s -w {}", build.file.ldflags));
        go.arg("-o").arg(result.join(program)).arg(package).current_dir(&sources);
        // Ignores a workspace in a parent folder.
        run(go.env("GOWORK", "off"), &hint)?;
    }
    for words in &build.file.post_build {
        let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
        run(Command::new(program).args(arguments).current_dir(&result), "")?;
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_experiment::recipe::BuildFile;
    use tollgate_experiment::toml_file::NamedText;

    fn build(sources: &[(&str, &str)]) -> Build {
        let source = |(name, text): &(&str, &str)| NamedText {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
        };
        let file: BuildFile = toml::from_str("title = 'a build'\n[programs]").unwrap();
        Build { name: "a".to_owned(), file, sources: sources.iter().map(source).collect() }
    }

    #[test]
    fn cache_folder_follows_xdg_specification() {
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
    fn hash_of_folder_covers_names_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("rules")).unwrap();
        fs::write(dir.path().join("setup"), "abc").unwrap();
        fs::write(dir.path().join("rules/1"), "").unwrap();
        let hash = hash_folder(dir.path()).unwrap();
        // The output of sha256sum in the order of the paths, hashed once more.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash, hash_text(&format!("{empty}  rules/1\n{abc}  setup\n")));
        assert_eq!(file_bytes(dir.path()).unwrap(), 3);
        fs::rename(dir.path().join("setup"), dir.path().join("Setup")).unwrap();
        assert_ne!(hash, hash_folder(dir.path()).unwrap());
    }

    #[test]
    fn hash_of_sources_covers_names_and_contents() {
        let hash = source_hash(&build(&[("go.mod", "a"), ("main.go", "b")]));
        assert_eq!(hash, source_hash(&build(&[("go.mod", "a"), ("main.go", "b")])));
        assert_ne!(hash, source_hash(&build(&[("go.mod", "a"), ("main.go", "c")])));
        // Text moved from one file to the next.
        assert_ne!(hash, source_hash(&build(&[("go.mod", "ab"), ("main.go", "")])));
        assert_eq!(hash.len(), 12);
    }

    #[test]
    fn without_go_the_only_result_of_the_sources_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let create = |name: &str| fs::create_dir(dir.path().join(name)).unwrap();
        let found = || only(results_of_sources(dir.path(), "0123456789ab"));
        create("unfinished-1");
        create("0123456789ac-000000000000");
        create("0123456789ab");
        assert_eq!(found(), None);
        create("0123456789ab-000000000001");
        assert_eq!(found(), Some(dir.path().join("0123456789ab-000000000001")));
        create("0123456789ab-000000000002");
        assert_eq!(found(), None);
        assert_eq!(only(results_of_sources(&dir.path().join("missing"), "0123456789ab")), None);
    }

    #[test]
    fn finished_result_replaces_an_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for text in ["first", "second"] {
            fs::create_dir_all(at("result")).unwrap();
            fs::write(at("result/file"), text).unwrap();
            move_into_place(&at("result"), &at("place"), &at("replaced")).unwrap();
            assert_eq!(fs::read_to_string(at("place/file")).unwrap(), text);
            assert!(!at("result").exists());
        }
        assert_eq!(fs::read_to_string(at("replaced/file")).unwrap(), "first");
    }
}

//! Systems on this machine: finds their parts, versions and hashes; installs, builds and configures them.

pub mod build;
pub mod go;
mod nginx_config;
mod own_config;
pub mod packages;
pub mod render;
pub mod state;

use crate::process::{Interrupt, command};
use anyhow::{Context, anyhow, bail};
use glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{env, fs};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Subject;
use tollgate_experiment::recipe::{Build, Need};
use tollgate_records::error::io_error;
use tollgate_records::files::{hash_file, hash_text};
use tollgate_records::subject::{Installed, Missing, RuleSetHash};

/// Finds everything that the recipe needs under the options of the subject, with hashes.
pub fn check(catalog: &Catalog, subject: &Subject) -> anyhow::Result<Result<Installed, Missing>> {
    let (mut installed, places) = match look(catalog, subject, &Versions::default())? {
        Ok(found) => found,
        Err(missing) => return Ok(Err(missing)),
    };
    for place in places {
        let hash = if place.is_dir() { build::hash_folder(&place) } else { hash_file(&place) };
        let hash = hash.map_err(io_error("read", &place))?;
        installed.hashes.insert(place, hash);
    }
    installed.rule_set = rule_set(subject, &installed)?;
    Ok(Ok(installed))
}

/// As `check`, without hashes: hashing the hundreds of MB of a build takes seconds.
pub fn find(
    catalog: &Catalog,
    subject: &Subject,
    versions: &Versions,
) -> anyhow::Result<Result<Installed, Missing>> {
    Ok(look(catalog, subject, versions)?.map(|(installed, _)| installed))
}

/// Returns the installed programs and files that come from packages. Builds may still be missing.
pub fn packaged(catalog: &Catalog, subject: &Subject) -> anyhow::Result<Vec<PathBuf>> {
    let mut installed = Installed::default();
    let mut places = Vec::new();
    for need in needs(subject)?.into_iter().filter(|need| need.build.is_none()) {
        places.extend(part(catalog, subject, need, &mut installed)?.unwrap_or_default());
    }
    Ok(places)
}

/// Returns what is installed, without hashes, and the files and folders to hash.
fn look(
    catalog: &Catalog,
    subject: &Subject,
    versions: &Versions,
) -> anyhow::Result<Result<(Installed, Vec<PathBuf>), Missing>> {
    let mut installed = Installed::default();
    let mut places = Vec::new();
    for need in needs(subject)? {
        match part(catalog, subject, need, &mut installed)? {
            Ok(found) => places.extend(found),
            Err(missing) => return Ok(Err(missing)),
        }
    }
    let commands = subject.recipe.file.version.iter();
    let lines = commands.map(|command| version(subject, &installed, command, versions));
    installed.version = lines.collect::<Result<_, _>>()?;
    Ok(Ok((installed, places)))
}

/// Returns the needs of the recipe that apply under the options of the subject.
fn needs(subject: &Subject) -> anyhow::Result<Vec<&Need>> {
    let mut needs = Vec::new();
    for need in &subject.recipe.file.need {
        if need.when.as_ref().map_or(Ok(true), |when| render::holds(subject, when))? {
            needs.push(need);
        }
    }
    Ok(needs)
}

/// Finds the files and folders of one need, and makes them known to templates by `installed`.
fn part(
    catalog: &Catalog,
    subject: &Subject,
    need: &Need,
    installed: &mut Installed,
) -> anyhow::Result<Result<Vec<PathBuf>, Missing>> {
    let mut places = Vec::new();
    if let Some(program) = &need.program {
        let Some(path) = find_program(program) else {
            return Ok(Err(missing(subject, need, format!("no program `{program}`"))));
        };
        places.push(path.clone());
        installed.programs.insert(program.clone(), path);
    }
    if let Some(name) = &need.build {
        let build = catalog.build(name)?;
        let Some(folder) = build::find(&build) else {
            return Ok(Err(not_built(subject, &build)));
        };
        places.push(folder.clone());
        installed.builds.insert(name.clone(), folder);
    }
    if let Some(patterns) = &need.file {
        let patterns: Vec<String> = patterns
            .as_slice()
            .iter()
            .map(|pattern| render::text(subject, installed, pattern))
            .collect::<Result<_, _>>()?;
        let Some(path) = patterns.iter().find_map(|pattern| first_match(pattern)) else {
            let mut known = BTreeSet::new();
            let distinct = patterns.iter().map(String::as_str).filter(|one| known.insert(*one));
            let what = format!("no file {}", distinct.collect::<Vec<_>>().join(" or "));
            return Ok(Err(missing(subject, need, what)));
        };
        if let Some(text) = &need.contains
            && !holds_text(&path, text)?
        {
            let what = format!("{} does not contain `{text}`", path.display());
            return Ok(Err(missing(subject, need, what)));
        }
        places.push(path.clone());
        if let Some(name) = &need.name {
            installed.found.insert(name.clone(), path);
        }
    }
    Ok(Ok(places))
}

fn rule_set(subject: &Subject, installed: &Installed) -> anyhow::Result<Option<RuleSetHash>> {
    let Some(rule_set) = &subject.recipe.file.rule_set else { return Ok(None) };
    if !render::holds(subject, &rule_set.when)? {
        return Ok(None);
    }
    let folder = render::text(subject, installed, &rule_set.folder)?;
    let folder = Path::new(&folder);
    let hash = match &rule_set.files {
        Some(patterns) => {
            let patterns = patterns.iter().map(|pattern| render::text(subject, installed, pattern));
            hash_loaded(folder, &patterns.collect::<Result<Vec<_>, _>>()?)?
        }
        None => build::hash_folder(folder).map_err(io_error("read", folder))?,
    };
    Ok(Some(RuleSetHash { name: rule_set.name.clone(), hash }))
}

/// Searches the PATH and the sbin folders, which the PATH of a user often lacks. `tollgate` is the running program.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    if name == "tollgate" {
        return env::current_exe().ok();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SBIN.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the file of exactly this name, else the first match of the pattern.
fn first_match(pattern: &str) -> Option<PathBuf> {
    let literal = PathBuf::from(pattern);
    if literal.is_file() {
        return Some(literal);
    }
    // An invalid pattern matches nothing and is reported as missing.
    glob::glob(pattern).ok()?.flatten().find(|path| path.is_file())
}

fn not_built(subject: &Subject, build: &Build) -> Missing {
    let title = &build.file.title;
    let line = format!("tollgate systems build {}", subject.recipe.name);
    let (message, hint) = match build::check_maker(build) {
        Ok(()) => (format!("{title} is not built"), line),
        Err(build::NoMaker { reason, hint }) => {
            let folders = build::ambiguous(build);
            let folders: Vec<_> = folders.iter().map(|one| one.display().to_string()).collect();
            if folders.is_empty() {
                (
                    format!("{title} is not built and cannot be built: {reason}"),
                    format!("{hint}; then: {line}"),
                )
            } else {
                (
                    format!(
                        "{title} was built by several tool chains, and without Go it is unknown \
                         which result to use ({reason}): {}",
                        folders.join(", ")
                    ),
                    format!("{hint}; or remove all of these folders but one"),
                )
            }
        }
    };
    Missing { message, hint: Some(hint) }
}

fn missing(subject: &Subject, need: &Need, message: String) -> Missing {
    let packages = &subject.recipe.file.apt;
    let hint = match &need.hint {
        Some(hint) => Some(hint.clone()),
        None if packages.is_empty() => None,
        None => Some(format!("apt-get install -y {}", packages.join(" "))),
    };
    Missing { message, hint }
}

/// Hash over the names and contents of the files that patterns match, in the order of the patterns. Their folders do
/// not count.
fn hash_loaded(folder: &Path, patterns: &[String]) -> anyhow::Result<String> {
    let mut text = String::new();
    for pattern in patterns {
        // A pattern may match nothing; a named file must exist.
        let is_name = !pattern.contains('*');
        let folder = Pattern::escape(&folder.display().to_string());
        let pattern = Path::new(&folder).join(pattern);
        let found = glob::glob(&pattern.display().to_string());
        let unread = || format!("cannot read {}", pattern.display());
        let files: Vec<PathBuf> =
            found.with_context(unread)?.collect::<Result<_, _>>().with_context(unread)?;
        if files.is_empty() && is_name {
            bail!("no file {}", pattern.display());
        }
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            text += &format!("{}  {name}\n", hash_file(&path).map_err(io_error("read", &path))?);
        }
    }
    Ok(hash_text(&text))
}

fn holds_text(path: &Path, text: &str) -> anyhow::Result<bool> {
    let found = fs::read_to_string(path).map_err(io_error("read", path))?;
    Ok(found.contains(text))
}

fn version(
    subject: &Subject,
    installed: &Installed,
    command: &[String],
    versions: &Versions,
) -> anyhow::Result<String> {
    let words: Vec<String> = command
        .iter()
        .map(|word| render::text(subject, installed, word))
        .collect::<Result<_, _>>()?;
    versions.get(&words).map_err(|reason| {
        let (system, command) = (&subject.recipe.name, words.join(" "));
        anyhow!("cannot get the version of system `{system}` by `{command}`: {reason}")
    })
}

/// First lines printed by version commands, each run once. Subjects share most of their parts. Shared by threads.
#[derive(Debug, Default)]
pub struct Versions {
    cache: Mutex<BTreeMap<Vec<String>, Arc<CachedVersion>>>,
}

/// The version, or the reason why it is unknown.
type CachedVersion = OnceLock<Result<String, String>>;

impl Versions {
    fn get(&self, command: &[String]) -> Result<String, String> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::clone(cache.entry(command.to_vec()).or_default());
        // Other commands may run meanwhile.
        drop(cache);
        entry.get_or_init(|| run_version_command(command)).clone()
    }
}

/// Runs a command, which must succeed, for its version.
fn run_version_command(words: &[String]) -> Result<String, String> {
    let (status, printed) = run_for_output(words)?;
    if !status.success() {
        return Err(format!("{status}: {}", printed.trim()));
    }
    first_line_of(&printed)
}

/// Returns the first non-empty line that a command prints, even if it fails, as `wrk -v` does.
pub(crate) fn first_line(words: &[String]) -> Result<String, String> {
    first_line_of(&run_for_output(words)?.1)
}

/// Returns what a command prints on standard output and on standard error, which nginx uses.
fn run_for_output(words: &[String]) -> Result<(ExitStatus, String), String> {
    let (program, arguments) = words.split_first().ok_or("the command is empty")?;
    let mut command = Command::new(program);
    let output = command::run(command.args(arguments), VERSION_TIMEOUT, &Interrupt::default());
    let output = output.map_err(|error| format!("{error:#}"))?;
    let printed = [output.stdout, output.stderr].concat();
    Ok((output.status, String::from_utf8_lossy(&printed).into_owned()))
}

fn first_line_of(printed: &str) -> Result<String, String> {
    let line = printed.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| "it printed nothing".to_owned())
}

const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tollgate_experiment::recipe::{Recipe, RecipeFile};
    use tollgate_records::subject::{OptionValue, Options};

    fn subject(recipe: &str, options: &[(&str, &str)]) -> Subject {
        let file: RecipeFile = toml::from_str(&format!("title = 'a system'\n{recipe}")).unwrap();
        let text = |(name, value): &(&str, &str)| {
            ((*name).to_owned(), OptionValue::Text((*value).to_owned()))
        };
        Subject {
            name: "one".to_owned(),
            recipe: Recipe { name: "a".to_owned(), found_in: String::new(), file },
            options: options.iter().map(text).collect::<Options>(),
            prefix: String::new(),
            about: String::new(),
            lacks_rules: false,
            external: None,
            client: None,
        }
    }

    fn look(subject: &Subject) -> Result<Installed, Missing> {
        check(&Catalog::new(vec![]), subject).unwrap()
    }

    #[test]
    fn first_matching_pattern_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let recipe = format!(
            "[[need]]\nname = 'module'\nfile = ['{at}/{{{{ kind }}}}.so', '{at}/*/module.so']\n
             [[need]]\nwhen = \"kind == 'other'\"\nfile = '/no/such/file'\nhint = 'look for it'"
        );
        let missing = look(&subject(&recipe, &[("kind", "one")])).unwrap_err();
        assert_eq!(missing.message, format!("no file {at}/one.so or {at}/*/module.so"));
        assert_eq!(missing.hint, None);
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("b/module.so"), "abc").unwrap();
        let module = dir.path().join("b/module.so");
        let found = look(&subject(&recipe, &[("kind", "one")])).unwrap();
        assert_eq!(found.found["module"], module);
        assert!(found.hashes[&module].starts_with("ba7816bf"));
        symlink("b/module.so", dir.path().join("one.so")).unwrap();
        let found = look(&subject(&recipe, &[("kind", "one")])).unwrap();
        assert_eq!(found.found["module"], dir.path().join("one.so"));
        let missing = look(&subject(&recipe, &[("kind", "other")])).unwrap_err();
        assert_eq!(
            (missing.message.as_str(), missing.hint.as_deref()),
            ("no file /no/such/file", Some("look for it"))
        );
    }

    #[test]
    fn hashes_folder_of_rule_set_if_enabled() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("rules"), "abc").unwrap();
        let recipe = format!(
            "[rule_set]\nname = 'core'\nwhen = \"rules == 'on'\"\nfolder = '{}'",
            dir.path().display()
        );
        assert_eq!(look(&subject(&recipe, &[("rules", "off")])).unwrap().rule_set, None);
        let used = look(&subject(&recipe, &[("rules", "on")])).unwrap().rule_set.unwrap();
        let hash = build::hash_folder(dir.path()).unwrap();
        assert_eq!(used, RuleSetHash { name: "core".to_owned(), hash });
    }

    #[test]
    fn hash_of_listed_rule_files_ignores_other_files() {
        let write = |folder: &Path, name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let whole = tempfile::tempdir().unwrap();
        for name in ["setup", "rules/1.conf", "rules/2.conf", "rules/words.data"] {
            write(whole.path(), name, name);
        }
        let hash_of = |folder: &Path, setup: &str| {
            let recipe = format!(
                "[rule_set]\nname = 'core'\nwhen = 'true'\nfolder = '{}'
                files = ['{{{{ setup }}}}', 'rules/*.conf', 'rules/*.data']",
                folder.display()
            );
            look(&subject(&recipe, &[("setup", setup)])).unwrap().rule_set.unwrap().hash
        };
        let hash = hash_of(whole.path(), "setup");
        let nowhere = format!(
            "[rule_set]\nname = 'core'\nwhen = 'true'\nfolder = '{}'\nfiles = ['crs-setup.conf']",
            whole.path().display()
        );
        let error = check(&Catalog::new(vec![]), &subject(&nowhere, &[])).unwrap_err();
        assert!(error.to_string().ends_with("/crs-setup.conf"), "{error}");
        // The output of sha256sum in load order, hashed once more.
        let line = |name: &str| {
            let base = name.rsplit('/').next().unwrap();
            format!("{}  {base}\n", hash_text(name))
        };
        let lines = ["setup", "rules/1.conf", "rules/2.conf", "rules/words.data"].map(line);
        assert_eq!(hash, hash_text(&lines.concat()));
        // A package has its setup elsewhere, and documentation and tools beside the rules.
        let packaged = tempfile::tempdir().unwrap();
        for name in
            ["rules/1.conf", "rules/2.conf", "rules/words.data", "util/tool", "rules/README"]
        {
            write(packaged.path(), name, name);
        }
        let etc = tempfile::Builder::new().prefix("etc[1]").tempdir().unwrap();
        write(etc.path(), "setup", "setup");
        let setup = etc.path().join("setup").display().to_string().replace('[', "[[]");
        assert_eq!(hash_of(packaged.path(), &setup), hash);
        // A changed rule or a changed order changes the hash.
        write(packaged.path(), "rules/2.conf", "something else");
        assert_ne!(hash_of(packaged.path(), &setup), hash);
        fs::rename(whole.path().join("rules/1.conf"), whole.path().join("rules/3.conf")).unwrap();
        assert_ne!(hash_of(whole.path(), "setup"), hash);
    }

    #[test]
    fn version_command_runs_once_for_all_threads() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let command = |version: &str| {
            let script = format!("echo {version} >>{}; sleep 0.05; echo {version}", log.display());
            ["sh", "-c", &script].map(str::to_owned)
        };
        let (one, two) = (command("1.0"), command("2.0"));
        let versions = Versions::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(versions.get(&one).unwrap(), "1.0"));
            }
        });
        assert_eq!(versions.get(&two).unwrap(), "2.0");
        assert_eq!(fs::read_to_string(&log).unwrap(), "1.0\n2.0\n");
        assert_eq!(Versions::default().get(&one).unwrap(), "1.0");
        assert_eq!(fs::read_to_string(&log).unwrap(), "1.0\n2.0\n1.0\n");
    }

    #[test]
    fn failed_version_command_is_reported_each_time() {
        let versions = Versions::default();
        let error = |script: &str| {
            let words = ["sh", "-c", script].map(str::to_owned);
            versions.get(&words).unwrap_err()
        };
        for _ in 0..2 {
            assert_eq!(error("echo no such option >&2; exit 3"), "exit status: 3: no such option");
            assert_eq!(error("echo"), "it printed nothing");
        }
        assert_eq!(versions.get(&[]).unwrap_err(), "the command is empty");
    }
}

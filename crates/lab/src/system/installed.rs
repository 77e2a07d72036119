//! Whether a subject's system is on this machine, and which version it is.

use super::builds::{self, BuildError};
use super::render::{self, RenderError};
use super::versions::Versions;
use crate::causes::in_full;
use crate::inputs::build::Build;
use crate::inputs::catalog::{Catalog, CatalogError};
use crate::inputs::experiment::Subject;
use crate::inputs::recipe::Need;
use glob::Pattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, io};
use thiserror::Error;

/// A system that is on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// The programs that its recipe needs, by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// The folders with the results of the builds that it needs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<String, PathBuf>,
    /// The files that it needs and that have a name, by that name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub found: BTreeMap<String, PathBuf>,
    /// What its version commands print, one line each.
    pub version: Vec<String>,
    /// SHA-256 of each program and module file that it needs, and of each build's folder.
    pub hashes: BTreeMap<PathBuf, String>,
    /// The rule set that it shares with others, where it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_set: Option<RuleSetHash>,
}

/// Which rule set a subject uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSetHash {
    /// Its name.
    pub name: String,
    /// The hash over the names and contents of the files that are loaded, in that order.
    pub hash: String,
}

/// A system that is not on this machine, or not as the subject needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// What is missing, in words.
    pub what: String,
    /// The line to type, or what else to do.
    pub mend: Option<String>,
}

/// Why it could not be told.
#[derive(Debug, Error)]
pub enum CheckError {
    /// An expression or template of the recipe is wrong.
    #[error(transparent)]
    Recipe(#[from] RenderError),
    /// A build that the recipe names is not there, or wrong.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A file that is there cannot be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The version command cannot be run.
    #[error("running `{command}` for the version of system `{system}`")]
    Version {
        /// The system's name.
        system: String,
        /// The command.
        command: String,
        /// Why.
        source: Arc<io::Error>,
    },
}

/// Looks for everything that the subject's recipe needs under the options that it chose, with the hashes of all
/// of it.
///
/// # Errors
///
/// The recipe is wrong, or what is there cannot be read or run.
pub fn check(
    catalog: &Catalog,
    subject: &Subject,
) -> Result<Result<Installed, Missing>, CheckError> {
    let (mut installed, places) = match look(catalog, subject, &Versions::default())? {
        Ok(found) => found,
        Err(missing) => return Ok(Err(missing)),
    };
    for place in places {
        let hash = if place.is_dir() { hash_folder(&place)? } else { hash(&place)? };
        installed.hashes.insert(place, hash);
    }
    installed.rule_set = rule_set(subject, &installed)?;
    Ok(Ok(installed))
}

/// As `check`, for who asks only whether it is there and in which version: what is built is some hundred MB, which
/// take seconds to hash. What its version commands say may be known already.
///
/// # Errors
///
/// Those of `check`.
pub fn find(
    catalog: &Catalog,
    subject: &Subject,
    versions: &Versions,
) -> Result<Result<Installed, Missing>, CheckError> {
    Ok(look(catalog, subject, versions)?.map(|(installed, _)| installed))
}

/// The programs and files that are there, of those that packages bring: what has to be built besides may be
/// missing still.
///
/// # Errors
///
/// Those of `check`.
pub fn packaged(catalog: &Catalog, subject: &Subject) -> Result<Vec<PathBuf>, CheckError> {
    let mut installed = Installed::default();
    let mut places = Vec::new();
    for need in needs(subject)?.into_iter().filter(|need| need.build.is_none()) {
        places.extend(part(catalog, subject, need, &mut installed)?.unwrap_or_default());
    }
    Ok(places)
}

/// What is there, without hashes, and the files and folders to hash.
fn look(
    catalog: &Catalog,
    subject: &Subject,
    versions: &Versions,
) -> Result<Result<(Installed, Vec<PathBuf>), Missing>, CheckError> {
    let mut installed = Installed::default();
    let mut places = Vec::new();
    for need in needs(subject)? {
        match part(catalog, subject, need, &mut installed)? {
            Ok(found) => places.extend(found),
            Err(missing) => return Ok(Err(missing)),
        }
    }
    let commands = subject.recipe.file.version.iter();
    let told = commands.map(|command| version(subject, &installed, command, versions));
    installed.version = told.collect::<Result<_, _>>()?;
    Ok(Ok((installed, places)))
}

/// What the recipe needs under the options that the subject chose.
fn needs(subject: &Subject) -> Result<Vec<&Need>, CheckError> {
    let mut needs = Vec::new();
    for need in &subject.recipe.file.need {
        if need.when.as_ref().map_or(Ok(true), |when| render::holds(subject, when))? {
            needs.push(need);
        }
    }
    Ok(needs)
}

/// The files and folders that one need is met by, which from then on are known to templates.
fn part(
    catalog: &Catalog,
    subject: &Subject,
    need: &Need,
    installed: &mut Installed,
) -> Result<Result<Vec<PathBuf>, Missing>, CheckError> {
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
        let Some(folder) = builds::find(&build) else {
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
            let what = format!("no file {}", patterns.join(" or "));
            return Ok(Err(missing(subject, need, what)));
        };
        if let Some(text) = &need.contains
            && !holds_text(&path, text)?
        {
            let what = format!("{} does not hold `{text}`", path.display());
            return Ok(Err(missing(subject, need, what)));
        }
        places.push(path.clone());
        if let Some(name) = &need.name {
            installed.found.insert(name.clone(), path);
        }
    }
    Ok(Ok(places))
}

fn rule_set(subject: &Subject, installed: &Installed) -> Result<Option<RuleSetHash>, CheckError> {
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
        None => hash_folder(folder)?,
    };
    Ok(Some(RuleSetHash { name: rule_set.name.clone(), hash }))
}

/// Where a program is: on the PATH, or in the sbin folders that a user's PATH often lacks. Of this one
/// there may be others, or none, so it is the one that is running.
fn find_program(name: &str) -> Option<PathBuf> {
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

/// The file of that very name, or else the first one that the pattern matches.
fn first_match(pattern: &str) -> Option<PathBuf> {
    let literal = PathBuf::from(pattern);
    if literal.is_file() {
        return Some(literal);
    }
    // What is no pattern matches nothing, and is then missing under its own name.
    glob::glob(pattern).ok()?.flatten().find(|path| path.is_file())
}

fn not_built(subject: &Subject, build: &Build) -> Missing {
    let title = &build.file.title;
    let line = format!("tollgate systems build {}", subject.recipe.name);
    let (what, mend) = match builds::can_be_made(build) {
        Ok(_) => (format!("{title} is not built"), line),
        Err(BuildError::Go { source, mend, .. }) => {
            let why = in_full(&source);
            let several = builds::undecided(build);
            let several: Vec<_> = several.iter().map(|one| one.display().to_string()).collect();
            match several.is_empty() {
                true => (
                    format!("{title} is not built, and cannot be: {why}"),
                    format!("{mend}; then: {line}"),
                ),
                false => (
                    format!(
                        "{title} was built by several tool chains, and nothing says which result is \
                         meant ({why}): {}",
                        several.join(", ")
                    ),
                    format!("{mend}; or remove all of these folders but one"),
                ),
            }
        }
        Err(error) => (format!("{title} is not built, and cannot be: {}", in_full(&error)), line),
    };
    Missing { what, mend: Some(mend) }
}

fn missing(subject: &Subject, need: &Need, what: String) -> Missing {
    let packages = &subject.recipe.file.apt;
    let mend = match &need.mend {
        Some(mend) => Some(mend.clone()),
        None if packages.is_empty() => None,
        None => Some(format!("apt-get install -y {}", packages.join(" "))),
    };
    Missing { what, mend }
}

fn hash(path: &Path) -> Result<String, CheckError> {
    render::hash_file(path).map_err(|source| CheckError::Read { path: path.to_owned(), source })
}

fn hash_folder(path: &Path) -> Result<String, CheckError> {
    builds::hash_folder(path).map_err(|source| CheckError::Read { path: path.to_owned(), source })
}

/// One hash over the files that patterns name, in the order of the patterns: over their contents and their
/// own names, as a rule names the file that it reads. Where they lie is all the same.
fn hash_loaded(folder: &Path, patterns: &[String]) -> Result<String, CheckError> {
    let mut text = String::new();
    for pattern in patterns {
        // A rule set may have no data; a file that is named has to be there.
        let is_name = !pattern.contains('*');
        let folder = Pattern::escape(&folder.display().to_string());
        let pattern = Path::new(&folder).join(pattern);
        let found = glob::glob(&pattern.display().to_string());
        let unread = |source| CheckError::Read { path: pattern.clone(), source };
        let found = found.map_err(|error| unread(io::Error::other(error)))?;
        let files: Vec<PathBuf> = found.collect::<Result<_, _>>().map_err(|error| {
            CheckError::Read { path: error.path().to_owned(), source: error.into() }
        })?;
        if files.is_empty() && is_name {
            return Err(unread(io::Error::new(io::ErrorKind::NotFound, "no such file")));
        }
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            text += &format!("{}  {name}\n", hash(&path)?);
        }
    }
    Ok(render::hash_text(&text))
}

fn holds_text(path: &Path, text: &str) -> Result<bool, CheckError> {
    let found = fs::read_to_string(path)
        .map_err(|source| CheckError::Read { path: path.to_owned(), source })?;
    Ok(found.contains(text))
}

/// What one of its version commands says.
fn version(
    subject: &Subject,
    installed: &Installed,
    command: &[String],
    versions: &Versions,
) -> Result<String, CheckError> {
    let words: Vec<String> = command
        .iter()
        .map(|word| render::text(subject, installed, word))
        .collect::<Result<_, _>>()?;
    versions.of(&words).map_err(|source| CheckError::Version {
        system: subject.recipe.name.clone(),
        command: words.join(" "),
        source,
    })
}

/// In words; the line to type stands on a line of its own, indented, so that it can be copied.
impl std::fmt::Display for Missing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.mend {
            Some(mend) => write!(formatter, "{}. To mend this:\n    {mend}", self.what),
            None => write!(formatter, "{}.", self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::options::{OptionValue, Options};
    use crate::inputs::recipe::{Recipe, RecipeFile};
    use std::os::unix::fs::symlink;

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
            tells_probe: false,
        }
    }

    fn look(subject: &Subject) -> Result<Installed, Missing> {
        check(&Catalog::new(vec![]), subject).unwrap()
    }

    #[test]
    fn of_several_patterns_the_first_that_matches_is_known_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let recipe = format!(
            "[[need]]\nname = 'module'\nfile = ['{at}/{{{{ kind }}}}.so', '{at}/*/module.so']\n
             [[need]]\nwhen = \"kind == 'other'\"\nfile = '/no/such/file'\nmend = 'look for it'"
        );
        let missing = look(&subject(&recipe, &[("kind", "one")])).unwrap_err();
        assert_eq!(missing.what, format!("no file {at}/one.so or {at}/*/module.so"));
        assert_eq!(missing.mend, None);
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
            (missing.what.as_str(), missing.mend.as_deref()),
            ("no file /no/such/file", Some("look for it"))
        );
    }

    #[test]
    fn a_rule_set_is_told_by_the_hash_of_its_folder_where_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("rules"), "abc").unwrap();
        let recipe = format!(
            "[rule_set]\nname = 'core'\nwhen = \"rules == 'on'\"\nfolder = '{}'",
            dir.path().display()
        );
        assert_eq!(look(&subject(&recipe, &[("rules", "off")])).unwrap().rule_set, None);
        let used = look(&subject(&recipe, &[("rules", "on")])).unwrap().rule_set.unwrap();
        let hash = builds::hash_folder(dir.path()).unwrap();
        assert_eq!(used, RuleSetHash { name: "core".to_owned(), hash });
    }
    #[test]
    fn equal_rules_have_equal_hashes_whatever_lies_beside_them() {
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
        // As sha256sum prints them in the order in which they are loaded, hashed once more.
        let line = |name: &str| {
            let base = name.rsplit('/').next().unwrap();
            format!("{}  {base}\n", render::hash_text(name))
        };
        let lines = ["setup", "rules/1.conf", "rules/2.conf", "rules/words.data"].map(line);
        assert_eq!(hash, render::hash_text(&lines.concat()));
        // A package keeps the setup elsewhere, and has a manual and tools beside the rules.
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
        // A rule that is another one, or has another place in the order, makes another rule set.
        write(packaged.path(), "rules/2.conf", "something else");
        assert_ne!(hash_of(packaged.path(), &setup), hash);
        fs::rename(whole.path().join("rules/1.conf"), whole.path().join("rules/3.conf")).unwrap();
        assert_ne!(hash_of(whole.path(), "setup"), hash);
    }
}

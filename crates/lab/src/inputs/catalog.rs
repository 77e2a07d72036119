//! Where experiments, systems, mixes and builds are found: in folders on disk first, then in the binary.

use super::build::{Build, BuildFile};
use super::recipe::{Recipe, RecipeFile};
use super::toml_file::{self, Source, TomlError, suggestion};
use include_dir::{Dir, File, include_dir};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};
use thiserror::Error;
use tollgate_traffic::{Mix, MixError, MixFile, MixTree};

/// The folders in which inputs are looked for, first to last, before those in the binary.
#[derive(Debug, Clone)]
pub struct Catalog {
    folders: Vec<PathBuf>,
}

/// A kind of input; each has a folder of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `experiments/NAME.toml`
    Experiment,
    /// `systems/NAME/system.toml`
    System,
    /// `mixes/NAME.toml`
    Mix,
    /// `builds/NAME/build.toml`
    Build,
}

/// Why an input could not be had.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// Nothing has this name.
    #[error("there is no {kind} `{name}`{hint}")]
    NotFound {
        /// The kind, as a word.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// What there is.
        hint: String,
    },
    /// The file is there and cannot be read.
    #[error("reading {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file does not say what it should.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// The mix cannot be sent.
    #[error("{file}")]
    Mix {
        /// The mix's file.
        file: String,
        /// Why.
        source: MixError,
    },
    /// Mixes include each other in a circle, or too many one another.
    #[error(
        "{file}: mixes may include others {MAX_INCLUDE_DEPTH} deep; does one of them include itself?"
    )]
    IncludeDepth {
        /// The mix whose `include` is too deep.
        file: String,
    },
    /// Nothing would answer.
    #[error("{file}: `origin = false` without a [[process]]: nobody would answer; give it one")]
    Nobody {
        /// The recipe's file.
        file: String,
    },
    /// The recipe offers an option under a name that templates need for something else.
    #[error(
        "{file}: an option cannot be named `{name}`; templates use that name for something else"
    )]
    ReservedOption {
        /// The recipe's file.
        file: String,
        /// The option.
        name: String,
    },
}

impl Catalog {
    /// A catalog that looks into `folders` first. Folders that hold none of the kinds are harmless.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// The names of all inputs of a kind, sorted.
    pub fn names(&self, kind: Kind) -> Vec<String> {
        let mut names = BTreeSet::new();
        for entry in kind.built_in().entries() {
            if kind.file().is_none_or(|file| kind.built_in().contains(entry.path().join(file))) {
                names.extend(kind.name_of(entry.path()));
            }
        }
        for folder in &self.folders {
            // A folder without inputs of this kind adds no name.
            let Ok(entries) = fs::read_dir(folder.join(kind.folder())) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if kind.file().is_none_or(|file| path.join(file).is_file()) {
                    names.extend(kind.name_of(&path));
                }
            }
        }
        names.into_iter().collect()
    }

    /// The text of an experiment, by name, or by path when `name` ends in `.toml`.
    ///
    /// # Errors
    ///
    /// There is none, or its file cannot be read.
    pub fn experiment(&self, name: &str) -> Result<Source, CatalogError> {
        match name.ends_with(".toml") {
            true => read(Path::new(name)),
            false => self.find(Kind::Experiment, name).map_err(as_file),
        }
    }

    /// A mix, by name, or by path when `name` ends in `.toml`; a relative path counts from `folder`.
    /// Beside it, the files that it was read from: its own first, then those that it includes.
    ///
    /// # Errors
    ///
    /// There is none, a file cannot be read, or says what cannot be sent.
    pub fn mix(&self, name: &str, folder: &Path) -> Result<(Mix, Vec<Source>), CatalogError> {
        let mut sources = Vec::new();
        let (mix, _) = self.mix_tree(name, folder, &mut sources, MAX_INCLUDE_DEPTH)?;
        Ok((mix, sources))
    }

    /// A mix, and what it is made from. Each mix that is included is checked by itself, so that an
    /// error names the file that it is in.
    fn mix_tree(
        &self,
        name: &str,
        folder: &Path,
        sources: &mut Vec<Source>,
        depth_left: usize,
    ) -> Result<(Mix, MixTree), CatalogError> {
        let source = match name.ends_with(".toml") {
            true => read(&folder.join(name))?,
            false => self.find(Kind::Mix, name)?,
        };
        let file: MixFile = toml_file::parse(&source)?;
        let place = source.name.clone();
        sources.push(source);
        let folder = Path::new(&place).parent().unwrap_or(Path::new(""));
        let mut included = Vec::new();
        for include in &file.include {
            let depth_left = depth_left
                .checked_sub(1)
                .ok_or_else(|| CatalogError::IncludeDepth { file: place.clone() })?;
            let (_, tree) = self.mix_tree(&include.mix, folder, sources, depth_left)?;
            included.push(tree);
        }
        let tree = MixTree { file, included };
        match Mix::try_from(&tree) {
            Ok(mix) => Ok((mix, tree)),
            Err(error) => Err(CatalogError::Mix { file: place, source: error }),
        }
    }

    /// The files on disk that stand in the place of one in the binary and say something else.
    pub fn replacements(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for kind in Kind::ALL {
            // A README is for people: no input is made from it.
            let is_input = |file: &&File<'_>| file.path().extension() != Some(OsStr::new("md"));
            for file in files(kind.built_in()).into_iter().filter(is_input) {
                let candidates =
                    self.folders.iter().map(|f| f.join(kind.folder()).join(file.path()));
                let replacement = candidates.into_iter().find(|path| path.is_file());
                // One that cannot be read is told of when it is used.
                let differs =
                    |path: &PathBuf| fs::read(path).is_ok_and(|text| text != file.contents());
                found.extend(replacement.filter(differs));
            }
        }
        found
    }

    /// A system's recipe.
    ///
    /// # Errors
    ///
    /// There is none, or its `system.toml` does not say what it should.
    pub fn recipe(&self, name: &str) -> Result<Recipe, CatalogError> {
        let source = self.find(Kind::System, name)?;
        let mut file: RecipeFile = toml_file::parse(&source)?;
        if !file.origin && file.process.is_empty() {
            return Err(CatalogError::Nobody { file: source.name });
        }
        if let Some(other) = &file.options {
            let other: RecipeFile = toml_file::parse(&self.find(Kind::System, other)?)?;
            for (name, spec) in other.option {
                file.option.entry(name).or_insert(spec);
            }
        }
        if let Some(taken) = RESERVED.iter().find(|word| file.option.contains_key(**word)) {
            return Err(CatalogError::ReservedOption {
                file: source.name,
                name: (*taken).to_owned(),
            });
        }
        let found_in = source.name.trim_end_matches(SYSTEM_FILE);
        Ok(Recipe {
            name: name.to_owned(),
            found_in: found_in.trim_end_matches('/').to_owned(),
            file,
        })
    }

    /// A config template, named `SYSTEM/FILE`; templates of one system may extend another's.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be read.
    pub fn template(&self, name: &str) -> Result<Source, CatalogError> {
        self.file(Kind::System, name)?.ok_or_else(|| CatalogError::NotFound {
            kind: "config template",
            name: name.to_owned(),
            hint: String::new(),
        })
    }

    /// A build with its files: those of the first folder that has it, or those in the binary.
    ///
    /// # Errors
    ///
    /// There is none, a file of it cannot be read, or its `build.toml` does not say what it should.
    pub fn build(&self, name: &str) -> Result<Build, CatalogError> {
        let source = self.find(Kind::Build, name)?;
        let file: BuildFile = toml_file::parse(&source)?;
        Ok(Build { name: name.to_owned(), file, sources: self.folder(Kind::Build, name)? })
    }

    /// The files of a catalog's folder that match a pattern, such as `mixes/vpatch/*.yaml`, in the order
    /// of their names.
    ///
    /// # Errors
    ///
    /// No file matches, or one cannot be read.
    pub fn files(&self, pattern: &str) -> Result<Vec<Source>, CatalogError> {
        let none = || CatalogError::NotFound {
            kind: "file of a catalog",
            name: pattern.to_owned(),
            hint: String::new(),
        };
        let (folder, names) = pattern.rsplit_once('/').ok_or_else(none)?;
        let (kind, folder) = folder.split_once('/').unwrap_or((folder, ""));
        let kind = Kind::ALL.into_iter().find(|one| one.folder() == kind).ok_or_else(none)?;
        // What is no pattern is the name of no file.
        let names = glob::Pattern::new(names).ok().ok_or_else(none)?;
        let mut sources = self.folder(kind, folder)?;
        sources.retain(|source| names.matches(&source.name));
        if sources.is_empty() { Err(none()) } else { Ok(sources) }
    }

    /// Every file of a folder, without those of folders in it: of the first catalog that has the folder.
    fn folder(&self, kind: Kind, name: &str) -> Result<Vec<Source>, CatalogError> {
        let mut on_disk = self.folders.iter().map(|folder| folder.join(kind.folder()).join(name));
        let mut sources = match on_disk.find(|folder| folder.is_dir()) {
            Some(folder) => read_all(&folder)?,
            None => {
                let dir = match name {
                    "" => Some(kind.built_in()),
                    name => kind.built_in().get_dir(name),
                };
                let files = dir.into_iter().flat_map(Dir::files);
                let text = |file: &File<'_>| {
                    Some(Source {
                        name: file.path().file_name()?.to_string_lossy().into_owned(),
                        text: file.contents_utf8()?.to_owned(),
                    })
                };
                files.filter_map(text).collect()
            }
        };
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sources)
    }

    fn find(&self, kind: Kind, name: &str) -> Result<Source, CatalogError> {
        let relative = match kind.file() {
            Some(file) => format!("{name}/{file}"),
            None => format!("{name}.toml"),
        };
        if let Some(source) = self.file(kind, &relative)? {
            return Ok(source);
        }
        let names = self.names(kind);
        Err(CatalogError::NotFound {
            kind: kind.word(),
            name: name.to_owned(),
            hint: suggestion(name, names.iter().map(String::as_str)),
        })
    }

    fn file(&self, kind: Kind, relative: &str) -> Result<Option<Source>, CatalogError> {
        for folder in &self.folders {
            let path = folder.join(kind.folder()).join(relative);
            if path.is_file() {
                return read(&path).map(Some);
            }
        }
        let built_in = kind.built_in().get_file(relative);
        Ok(built_in.and_then(|file| file.contents_utf8()).map(|text| Source {
            name: format!("built-in:{}/{relative}", kind.folder()),
            text: text.to_owned(),
        }))
    }
}

impl Kind {
    const ALL: [Self; 4] = [Self::Experiment, Self::System, Self::Mix, Self::Build];

    fn word(self) -> &'static str {
        match self {
            Self::Experiment => "experiment",
            Self::System => "system",
            Self::Mix => "mix",
            Self::Build => "build",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Experiment => "experiments",
            Self::System => "systems",
            Self::Mix => "mixes",
            Self::Build => "builds",
        }
    }

    fn built_in(self) -> &'static Dir<'static> {
        match self {
            Self::Experiment => &EXPERIMENTS,
            Self::System => &SYSTEMS,
            Self::Mix => &MIXES,
            Self::Build => &BUILDS,
        }
    }

    /// The file that makes a folder one of this kind, where it is a folder.
    fn file(self) -> Option<&'static str> {
        match self {
            Self::System => Some(SYSTEM_FILE),
            Self::Build => Some(BUILD_FILE),
            Self::Experiment | Self::Mix => None,
        }
    }

    fn name_of(self, path: &Path) -> Option<String> {
        let stem = match self {
            Self::System | Self::Build => path.file_name(),
            Self::Experiment | Self::Mix if path.extension()? == "toml" => path.file_stem(),
            Self::Experiment | Self::Mix => None,
        };
        stem.map(|stem| stem.to_string_lossy().into_owned())
    }
}

fn files(folder: &'static Dir<'static>) -> Vec<&'static File<'static>> {
    let below = folder.dirs().flat_map(files);
    folder.files().chain(below).collect()
}

static EXPERIMENTS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");
static SYSTEMS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../systems");
static MIXES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../mixes");

static BUILDS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../builds");

const SYSTEM_FILE: &str = "system.toml";
const BUILD_FILE: &str = "build.toml";

/// How many mixes may stand between one that includes and the last that is included.
const MAX_INCLUDE_DEPTH: usize = 4;

/// The names that templates know besides the options.
const RESERVED: [&str; 12] = [
    "builds",
    "connections",
    "dir",
    "found",
    "listen",
    "origin",
    "origins",
    "ports",
    "prefix",
    "programs",
    "root",
    "user",
];

/// Every file of a folder, without those of folders in it.
fn read_all(folder: &Path) -> Result<Vec<Source>, CatalogError> {
    let unreadable = |source| CatalogError::Unreadable { path: folder.to_owned(), source };
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.path().is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            sources.push(Source { name, ..read(&entry.path())? });
        }
    }
    Ok(sources)
}

/// For whoever means a file where there is no such name.
fn as_file(error: CatalogError) -> CatalogError {
    match error {
        CatalogError::NotFound { kind, name, .. } if Path::new(&name).is_file() => {
            let hint = "; the name of a file has to end in .toml".to_owned();
            CatalogError::NotFound { kind, name, hint }
        }
        CatalogError::NotFound { kind, name, .. }
            if Path::new(&format!("{name}.toml")).is_file() =>
        {
            let hint = format!("; did you mean the file {name}.toml?");
            CatalogError::NotFound { kind, name, hint }
        }
        other => other,
    }
}

fn read(path: &Path) -> Result<Source, CatalogError> {
    let text = fs::read_to_string(path)
        .map_err(|source| CatalogError::Unreadable { path: path.to_owned(), source })?;
    Ok(Source { name: path.display().to_string(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_the_binary_is_valid() {
        let catalog = Catalog::new(vec![]);
        for name in catalog.names(Kind::Mix) {
            catalog.mix(&name, Path::new(".")).unwrap();
        }
        for name in catalog.names(Kind::System) {
            let recipe = catalog.recipe(&name).unwrap();
            for build in recipe.file.builds() {
                let build = catalog.build(build).unwrap();
                assert!(
                    build.sources.iter().any(|source| source.name == "go.sum"),
                    "{}",
                    build.name
                );
            }
        }
        assert!(catalog.names(Kind::Experiment).contains(&"first-look".to_owned()));
    }

    #[test]
    fn the_example_of_the_readme_is_a_mix() {
        let readme = Kind::Mix.built_in().get_file("README.md").unwrap().contents_utf8().unwrap();
        let text: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        let source = Source { name: "README.md".to_owned(), text: text.join("\n") };
        let mix = Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap();
        let paths: Vec<String> = mix.samples().map(|message| message.path).collect();
        assert_eq!(paths, ["/products/1000", "/orders"]);
    }

    #[test]
    fn files_are_found_by_folder_and_pattern() {
        let names = |catalog: &Catalog, pattern: &str| -> Vec<String> {
            let files = catalog.files(pattern).unwrap();
            files.into_iter().map(|source| source.name).collect()
        };
        let built_in = Catalog::new(vec![]);
        assert_eq!(names(&built_in, "builds/crs/go.*"), ["go.mod", "go.sum"]);
        let error = built_in.files("builds/crs/*.yaml").unwrap_err();
        assert_eq!(error.to_string(), "there is no file of a catalog `builds/crs/*.yaml`");
        assert!(built_in.files("nowhere/crs/*").is_err());
        assert_eq!(
            names(&built_in, "experiments/noise*.toml"),
            ["noise-direct.toml", "noise.toml"]
        );
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("builds/crs")).unwrap();
        fs::write(folder.path().join("builds/crs/go.work"), "").unwrap();
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        assert_eq!(names(&catalog, "builds/crs/go.*"), ["go.work"]);
    }

    #[test]
    fn a_mix_includes_others_by_name_and_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join("mixes").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("title = 'mine'\nheaders = ['Host: a']\n{text}")).unwrap();
        };
        let template = |name: &str| {
            format!("[[template]]\nname = '{name}'\nclass = 'benign'\nweight = 1\npath = '/'\n")
        };
        write("all.toml", "[[include]]\nmix = 'parts/a'\n[[include]]\nmix = 'parts/b.toml'\n");
        write("parts/a.toml", &template("a"));
        write("parts/b.toml", &template("b"));
        write("again.toml", "[[include]]\nmix = 'again'\n");
        write("wrong.toml", "[[include]]\nmix = 'parts/c'\n");
        write("parts/c.toml", &template("c").repeat(2));
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        let (mix, sources) = catalog.mix("all", Path::new(".")).unwrap();
        let names: Vec<&str> = mix.templates().iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let files: Vec<_> = sources.iter().map(|one| one.name.rsplit('/').next()).collect();
        assert_eq!(files, [Some("all.toml"), Some("a.toml"), Some("b.toml")]);
        let error = |name: &str| catalog.mix(name, Path::new(".")).unwrap_err().to_string();
        assert!(
            error("again").ends_with(
                "/again.toml: mixes may include others 4 deep; does one of them include itself?"
            ),
            "{}",
            error("again")
        );
        assert!(error("wrong").ends_with("/parts/c.toml"), "{}", error("wrong"));
    }

    #[test]
    fn a_folder_on_disk_comes_before_the_binary() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mixes")).unwrap();
        let text = "title = 'mine'\nheaders = ['Host: a']\n[[template]]\nname = 'a'\nclass = 'benign'\nweight = 1\npath = '/'\n";
        fs::write(folder.path().join("mixes/browse.toml"), text).unwrap();
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        let title =
            |catalog: &Catalog| catalog.mix("browse", Path::new(".")).unwrap().0.title().to_owned();
        assert_eq!(title(&catalog), "mine");
        assert_ne!(title(&Catalog::new(vec![])), "mine");
        fs::write(folder.path().join("mixes/README.md"), "mine").unwrap();
        assert_eq!(catalog.replacements(), [folder.path().join("mixes/browse.toml")]);
    }

    #[test]
    fn a_system_may_have_the_options_of_another() {
        let catalog = Catalog::new(vec![]);
        let own = catalog.recipe("nginx").unwrap().file.option;
        let modsecurity = catalog.recipe("nginx-modsecurity").unwrap().file.option;
        for name in ["workers", "worker_connections", "rlimit_nofile", "backlog"] {
            assert_eq!(modsecurity[name].default, own[name].default, "{name}");
        }
        assert!(modsecurity.contains_key("rules") && !own.contains_key("rules"));
    }

    #[test]
    fn somebody_has_to_answer() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("systems/nobody")).unwrap();
        let file = folder.path().join("systems/nobody/system.toml");
        fs::write(&file, "title = 'nobody'\norigin = false\n").unwrap();
        let error = Catalog::new(vec![folder.path().to_owned()]).recipe("nobody").unwrap_err();
        let expected = format!(
            "{}: `origin = false` without a [[process]]: nobody would answer; give it one",
            file.display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_file_that_is_asked_for_by_half_of_its_name_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["mine.toml", "yours"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let error = |name: &str| {
            let path = folder.path().join(name).display().to_string();
            let error = Catalog::new(vec![]).experiment(&path).unwrap_err().to_string();
            error.replace(&folder.path().display().to_string(), "HERE")
        };
        assert_eq!(
            error("mine"),
            "there is no experiment `HERE/mine`; did you mean the file HERE/mine.toml?"
        );
        assert_eq!(
            error("yours"),
            "there is no experiment `HERE/yours`; the name of a file has to end in .toml"
        );
    }

    #[test]
    fn a_name_that_is_not_there_gets_the_nearest() {
        let error = Catalog::new(vec![]).recipe("ngnix").unwrap_err();
        assert_eq!(error.to_string(), "there is no system `ngnix`; did you mean `nginx`?");
    }
}

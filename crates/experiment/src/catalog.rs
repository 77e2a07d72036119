//! Experiments, systems, mixes and builds, from folders on disk or from the binary.

use crate::recipe::{Build, BuildFile, Recipe, RecipeFile};
use crate::toml_file::{self, NamedText};
use anyhow::Context;
use include_dir::{Dir, File, include_dir};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tollgate_records::error::{BadInput, bad_input, io_error, suggestion};
use tollgate_records::files::hash_file;
use tollgate_traffic::{Class, IncludeFile, ListError, Mix, MixFile, MixTree, RequestList};

/// Folders on disk, the first one taking precedence. All take precedence over the binary.
#[derive(Debug, Clone)]
pub struct Catalog {
    folders: Vec<PathBuf>,
}

/// A kind of entry, each with its own subfolder.
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

/// Levels of included mixes.
const MAX_INCLUDE_DEPTH: usize = 4;

/// Template variables besides the options.
const RESERVED: &str =
    "builds connections dir found listen origin origins ports prefix programs root user";

static EXPERIMENTS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");
static SYSTEMS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../systems");
static MIXES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../mixes");
static BUILDS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../builds");

const SYSTEM_FILE: &str = "system.toml";

/// Ending of the file of a list of requests.
const LIST_SUFFIX: &str = ".mix";

impl Catalog {
    /// Folders without entries are ignored.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// Returns the names of all entries of a kind, sorted.
    pub fn names(&self, kind: Kind) -> Vec<String> {
        let mut names = BTreeSet::new();
        for entry in kind.built_in().entries() {
            if kind.file().is_none_or(|file| kind.built_in().contains(entry.path().join(file))) {
                names.extend(kind.name_of(entry.path()));
            }
        }
        for folder in &self.folders {
            let entries = fs::read_dir(folder.join(kind.folder())).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()) {
                if kind.file().is_none_or(|file| path.join(file).is_file()) {
                    names.extend(kind.name_of(&path));
                }
            }
        }
        names.into_iter().collect()
    }

    /// Returns files on disk that replace a file of the binary and differ from it.
    pub fn replacements(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for kind in Kind::ALL {
            let is_input = |file: &&File<'_>| file.path().extension() != Some(OsStr::new("md"));
            for file in files(kind.built_in()).into_iter().filter(is_input) {
                let candidates =
                    self.folders.iter().map(|f| f.join(kind.folder()).join(file.path()));
                let replacement = candidates.into_iter().find(|path| path.is_file());
                // An unreadable file is an error when it is used.
                let differs =
                    |path: &PathBuf| fs::read(path).is_ok_and(|text| text != file.contents());
                found.extend(replacement.filter(differs));
            }
        }
        found
    }

    /// Returns the recipes and mixes on disk, with paths as in the catalog. Of files with one path, the first counts.
    pub fn files_on_disk(&self) -> anyhow::Result<BTreeMap<PathBuf, String>> {
        let mut found = BTreeMap::new();
        for folder in &self.folders {
            for kind in [Kind::System, Kind::Mix] {
                let mut open = vec![PathBuf::from(kind.folder())];
                while let Some(path) = open.pop() {
                    let entries = fs::read_dir(folder.join(&path)).into_iter().flatten().flatten();
                    for entry in entries {
                        let path = path.join(entry.file_name());
                        let full = folder.join(&path);
                        match full.is_dir() {
                            true => open.push(path),
                            // Lists of requests are long, and only their requests are needed.
                            false if path.extension() == Some(OsStr::new("mix")) => {}
                            false if found.contains_key(&path) => {}
                            false => drop(found.insert(path, read(&full)?.text)),
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the text of an experiment, by name or, if `name` ends in `.toml`, by path.
    pub fn experiment(&self, name: &str) -> anyhow::Result<NamedText> {
        if name.ends_with(".toml") {
            read(Path::new(name))
        } else {
            self.find(Kind::Experiment, name)
        }
    }

    pub fn build(&self, name: &str) -> anyhow::Result<Build> {
        let source = self.find(Kind::Build, name)?;
        let file: BuildFile = toml_file::parse(&source)?;
        Ok(Build { name: name.to_owned(), file, sources: self.folder(Kind::Build, name)? })
    }

    pub fn recipe(&self, name: &str) -> anyhow::Result<Recipe> {
        let source = self.find(Kind::System, name)?;
        let mut file: RecipeFile = toml_file::parse(&source)?;
        if !file.origin && file.process.is_empty() {
            return Err(bad_input(format!(
                "{}: nothing would respond: `origin` is false and there is no [[process]]; add one",
                source.name
            )));
        }
        if let Some(other) = &file.options_from {
            let other: RecipeFile = toml_file::parse(&self.find(Kind::System, other)?)?;
            for (name, spec) in other.option {
                file.option.entry(name).or_insert(spec);
            }
        }
        file.add_config_option();
        if let Some(taken) = RESERVED.split(' ').find(|word| file.option.contains_key(*word)) {
            return Err(bad_input(format!(
                "{}: option `{taken}` has the name of another template variable; rename it",
                source.name
            )));
        }
        let found_in = source.name.trim_end_matches(SYSTEM_FILE).trim_end_matches('/').to_owned();
        Ok(Recipe { name: name.to_owned(), found_in, file })
    }

    /// Returns a configuration template by `SYSTEM/FILE`. Templates may extend those of other systems.
    pub fn template(&self, name: &str) -> anyhow::Result<NamedText> {
        let unknown = || {
            let path = |folder: &PathBuf| folder.join(Kind::System.folder()).join(name);
            let paths = self.folders.iter().map(|folder| format!("{} or ", path(folder).display()));
            let paths: String = paths.collect();
            bad_input(format!(
                "unknown configuration template `{name}`: not found in {paths}the built-in files; create it, or \
                 correct its name in system.toml"
            ))
        };
        self.find_template(name)?.ok_or_else(unknown)
    }

    /// As [`Catalog::template`]; `None` if there is no such file.
    pub fn find_template(&self, name: &str) -> anyhow::Result<Option<NamedText>> {
        self.file(Kind::System, name)
    }

    /// Returns a mix by name or, if `name` ends in `.toml` or `.mix`, by path relative to `folder`; and its files: its
    /// own first, then the included ones. A list of requests (`.mix`) is represented by its hash.
    pub fn mix(&self, name: &str, folder: &Path) -> anyhow::Result<(Mix, Vec<NamedText>)> {
        let mut sources = Vec::new();
        let (mix, _) = self.mix_tree(name, folder, &mut sources, MAX_INCLUDE_DEPTH)?;
        Ok((mix, sources))
    }

    /// As [`Catalog::mix`]; a list without attacks, such as one from an access log, gets the attacks by which the probe sees that the rules of
    /// a firewall are active. They are not part of the load.
    pub(crate) fn probed_mix(
        &self,
        name: &str,
        folder: &Path,
    ) -> anyhow::Result<(Mix, Vec<NamedText>)> {
        let mut sources = Vec::new();
        let (mix, tree) = self.mix_tree(name, folder, &mut sources, MAX_INCLUDE_DEPTH)?;
        let has_attack = || mix.templates().iter().any(|one| one.class == Class::Malicious);
        if !matches!(tree, MixTree::List(_)) || has_attack() {
            return Ok((mix, sources));
        }
        let (_, attacks) = self.mix_tree(PROBE_MIX, folder, &mut sources, MAX_INCLUDE_DEPTH)?;
        let include = |mix: &str, weight, only: &[&str]| IncludeFile {
            mix: mix.to_owned(),
            weight,
            only: only.iter().map(|&name| name.to_owned()).collect(),
        };
        let file = MixFile {
            title: mix.title().to_owned(),
            headers: Vec::new(),
            variable: BTreeMap::new(),
            open: false,
            include: vec![include(name, None, &[]), include(PROBE_MIX, Some(0), &PROBE_ATTACKS)],
            template: Vec::new(),
        };
        let mix = Mix::try_from(&MixTree::File { file, included: vec![tree, attacks] })
            .with_context(|| format!("{name} with attacks for the probe"))?;
        Ok((mix, sources))
    }

    /// Validates each included mix separately, so that an error names its file.
    fn mix_tree(
        &self,
        name: &str,
        folder: &Path,
        sources: &mut Vec<NamedText>,
        depth_left: usize,
    ) -> anyhow::Result<(Mix, MixTree)> {
        if name.ends_with(LIST_SUFFIX) {
            let (list, source) = read_list(&folder.join(name))?;
            let tree = MixTree::List(Arc::new(list));
            let mix = Mix::try_from(&tree);
            let mix = mix.map_err(|error| {
                anyhow::Error::from(error).context(BadInput(source.name.clone()))
            })?;
            sources.push(source);
            return Ok((mix, tree));
        }
        let source = if name.ends_with(".toml") {
            read(&folder.join(name))?
        } else {
            self.find(Kind::Mix, name)?
        };
        let file: MixFile = toml_file::parse(&source)?;
        let place = source.name.clone();
        sources.push(source);
        let folder = Path::new(&place).parent().unwrap_or(Path::new(""));
        let mut included = Vec::new();
        for include in &file.include {
            let too_deep = || {
                bad_input(format!(
                    "{place}: includes are nested more than {MAX_INCLUDE_DEPTH} levels deep; a mix may include itself"
                ))
            };
            let depth_left = depth_left.checked_sub(1).ok_or_else(too_deep)?;
            let (_, tree) = self.mix_tree(&include.mix, folder, sources, depth_left)?;
            included.push(tree);
        }
        let tree = MixTree::File { file, included };
        match Mix::try_from(&tree) {
            Ok(mix) => Ok((mix, tree)),
            Err(error) => Err(anyhow::Error::from(error).context(BadInput(place))),
        }
    }

    /// Returns the files that match a pattern in the last part of a path, such as `mixes/vpatch/*.yaml`, sorted by name.
    pub fn files(&self, pattern: &str) -> anyhow::Result<Vec<NamedText>> {
        let none = || bad_input(format!("unknown catalog file `{pattern}`"));
        let (folder, names) = pattern.rsplit_once('/').ok_or_else(none)?;
        let (kind, folder) = folder.split_once('/').unwrap_or((folder, ""));
        let kind = Kind::ALL.into_iter().find(|one| one.folder() == kind).ok_or_else(none)?;
        // An invalid pattern matches nothing.
        let names = glob::Pattern::new(names).ok().ok_or_else(none)?;
        let mut sources = self.folder(kind, folder)?;
        sources.retain(|source| names.matches(&source.name));
        if sources.is_empty() { Err(none()) } else { Ok(sources) }
    }

    /// Returns the files of a folder, without subfolders, from the first place that has the folder.
    fn folder(&self, kind: Kind, name: &str) -> anyhow::Result<Vec<NamedText>> {
        let mut on_disk = self.folders.iter().map(|folder| folder.join(kind.folder()).join(name));
        let mut sources = match on_disk.find(|folder| folder.is_dir()) {
            Some(folder) => read_all(&folder)?,
            None => {
                let dir = match name {
                    "" => Some(kind.built_in()),
                    name => kind.built_in().get_dir(name),
                };
                let text = |file: &File<'_>| {
                    Some(NamedText {
                        name: file.path().file_name()?.to_string_lossy().into_owned(),
                        text: file.contents_utf8()?.to_owned(),
                    })
                };
                dir.into_iter().flat_map(Dir::files).filter_map(text).collect()
            }
        };
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sources)
    }

    fn find(&self, kind: Kind, name: &str) -> anyhow::Result<NamedText> {
        let relative = match kind.file() {
            Some(file) => format!("{name}/{file}"),
            None => format!("{name}.toml"),
        };
        if let Some(source) = self.file(kind, &relative)? {
            return Ok(source);
        }
        let hint = match kind {
            Kind::Experiment if Path::new(name).is_file() => {
                "; the name of a file must end in .toml".to_owned()
            }
            Kind::Experiment if Path::new(&format!("{name}.toml")).is_file() => {
                format!("; did you mean the file {name}.toml?")
            }
            Kind::Experiment if self.names(Kind::System).iter().any(|system| system == name) => {
                format!("; it is a system: `tollgate init {name}` writes an experiment with it")
            }
            _ => suggestion(name, self.names(kind).iter().map(String::as_str)),
        };
        Err(bad_input(format!("unknown {} `{name}`{hint}", kind.word())))
    }

    fn file(&self, kind: Kind, relative: &str) -> anyhow::Result<Option<NamedText>> {
        for folder in &self.folders {
            let path = folder.join(kind.folder()).join(relative);
            if path.is_file() {
                return read(&path).map(Some);
            }
        }
        let built_in = kind.built_in().get_file(relative);
        Ok(built_in.and_then(|file| file.contents_utf8()).map(|text| NamedText {
            name: format!("built-in:{}/{relative}", kind.folder()),
            text: text.to_owned(),
        }))
    }
}

impl Kind {
    const ALL: [Self; 4] = [Self::Experiment, Self::System, Self::Mix, Self::Build];

    fn word(self) -> &'static str {
        self.parts().0
    }

    fn folder(self) -> &'static str {
        self.parts().1
    }

    fn built_in(self) -> &'static Dir<'static> {
        self.parts().2
    }

    /// Returns the main file of an entry that is a folder.
    fn file(self) -> Option<&'static str> {
        self.parts().3
    }

    fn parts(self) -> (&'static str, &'static str, &'static Dir<'static>, Option<&'static str>) {
        match self {
            Self::Experiment => ("experiment", "experiments", &EXPERIMENTS, None),
            Self::System => ("system", "systems", &SYSTEMS, Some(SYSTEM_FILE)),
            Self::Mix => ("mix", "mixes", &MIXES, None),
            Self::Build => ("build", "builds", &BUILDS, Some("build.toml")),
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

/// Returns all files of a built-in folder and its subfolders.
fn files(folder: &'static Dir<'static>) -> Vec<&'static File<'static>> {
    let below = folder.dirs().flat_map(files);
    folder.files().chain(below).collect()
}

/// Reads all files of a folder, without subfolders.
fn read_all(folder: &Path) -> anyhow::Result<Vec<NamedText>> {
    let unreadable = io_error("read", folder);
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).map_err(&unreadable)? {
        let entry = entry.map_err(&unreadable)?;
        if entry.path().is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            sources.push(NamedText { name, ..read(&entry.path())? });
        }
    }
    Ok(sources)
}

/// Reads a list of requests line by line. Its source is a description with the hash of the file.
fn read_list(path: &Path) -> anyhow::Result<(RequestList, NamedText)> {
    let name = path.display().to_string();
    let unreadable = || BadInput(format!("cannot read {name}"));
    let file = fs::File::open(path).with_context(unreadable)?;
    let list = RequestList::read(BufReader::new(file)).map_err(|error| match error {
        ListError::Io(source) => anyhow::Error::from(source).context(unreadable()),
        error @ ListError::Line { .. } => bad_input(format!("{name}:{error}")),
    })?;
    let hash = hash_file(path).with_context(unreadable)?;
    let text = format!("list of requests: {}, sha256 {hash}\n", list.title());
    Ok((list, NamedText { name, text }))
}

pub fn read(path: &Path) -> anyhow::Result<NamedText> {
    let cannot = || BadInput(format!("cannot read {}", path.display()));
    let text = fs::read_to_string(path).with_context(cannot)?;
    Ok(NamedText { name: path.display().to_string(), text })
}

/// Attacks for lists without any.
const PROBE_MIX: &str = "parts/attacks-get";
const PROBE_ATTACKS: [&str; 2] = ["sql-tautology", "xss-script"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_entries_are_valid() {
        let catalog = Catalog::new(vec![]);
        for name in catalog.names(Kind::Mix) {
            catalog.mix(&name, Path::new(".")).unwrap();
        }
        for name in catalog.names(Kind::System) {
            let recipe = catalog.recipe(&name).unwrap();
            for build in recipe.file.builds() {
                let build = catalog.build(build).unwrap();
                let is_pinned = |source: &NamedText| match source.name.as_str() {
                    "go.sum" => true,
                    "requirements.txt" => source.text.contains("--hash=sha256:"),
                    _ => false,
                };
                assert!(build.sources.iter().any(is_pinned), "{}", build.name);
            }
        }
        assert!(catalog.names(Kind::Experiment).contains(&"first-look".to_owned()));
    }

    #[test]
    fn folder_on_disk_precedes_the_binary() {
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
    fn file_named_without_its_extension_gets_a_hint() {
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
            "unknown experiment `HERE/mine`; did you mean the file HERE/mine.toml?"
        );
        assert_eq!(
            error("yours"),
            "unknown experiment `HERE/yours`; the name of a file must end in .toml"
        );
    }

    #[test]
    fn unknown_name_gets_the_nearest_one() {
        let error = Catalog::new(vec![]).recipe("ngnix").unwrap_err();
        assert_eq!(error.to_string(), "unknown system `ngnix`; did you mean `nginx`?");
    }

    #[test]
    fn missing_template_is_an_error_with_the_paths_searched() {
        let catalog = Catalog::new(vec![PathBuf::from("mine")]);
        assert_eq!(
            catalog.template("bad/nope.py").unwrap_err().to_string(),
            "unknown configuration template `bad/nope.py`: not found in mine/systems/bad/nope.py or the built-in \
             files; create it, or correct its name in system.toml"
        );
    }

    #[test]
    fn system_in_place_of_an_experiment_gets_a_hint() {
        let error = Catalog::new(vec![]).experiment("nginx").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown experiment `nginx`; it is a system: `tollgate init nginx` writes an experiment with it"
        );
    }

    #[test]
    fn finds_files_by_folder_and_pattern() {
        let names = |catalog: &Catalog, pattern: &str| -> Vec<String> {
            let files = catalog.files(pattern).unwrap();
            files.into_iter().map(|source| source.name).collect()
        };
        let built_in = Catalog::new(vec![]);
        assert_eq!(names(&built_in, "builds/crs/go.*"), ["go.mod", "go.sum"]);
        let error = built_in.files("builds/crs/*.yaml").unwrap_err();
        assert_eq!(error.to_string(), "unknown catalog file `builds/crs/*.yaml`");
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
    fn first_example_of_the_manual_is_a_complete_mix() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mixes.md");
        let manual = fs::read_to_string(&path).unwrap();
        let (_, rest) = manual.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let source = NamedText { name: "mixes.md".to_owned(), text: text.to_owned() };
        let mix = Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap();
        let paths: Vec<String> = mix.messages().map(|message| message.path).collect();
        assert_eq!(paths, ["/products/1000", "/orders"]);
    }

    #[test]
    fn mix_includes_others_by_name_and_by_path() {
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
                "/again.toml: includes are nested more than 4 levels deep; a mix may include itself"
            ),
            "{}",
            error("again")
        );
        assert!(error("wrong").ends_with("/parts/c.toml"), "{}", error("wrong"));
    }

    #[test]
    fn list_of_requests_is_read_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let head = r#"{"tollgate_mix":1,"title":"recorded","requests":1,"templates":[{"name":"a","class":"benign"}]}"#;
        write(
            "a.mix",
            &format!("{head}\n{{\"template\":\"a\",\"path\":\"/\",\"headers\":[\"Host: h\"]}}\n"),
        );
        write("b.mix", &format!("{head}\n{{\"template\":\"a\"}}\n"));
        write("all.toml", "title = 'all'\n[[include]]\nmix = 'a.mix'\n");
        let catalog = Catalog::new(vec![]);
        let load = |name: &str| catalog.mix(name, folder.path());
        let (mix, sources) = load("a.mix").unwrap();
        assert_eq!((mix.title(), mix.listed().count()), ("recorded", 1));
        let hash = hash_file(&folder.path().join("a.mix")).unwrap();
        assert_eq!(sources[0].text, format!("list of requests: recorded, sha256 {hash}\n"));
        assert_eq!(load("all.toml").unwrap().0.listed().count(), 1);
        // In an experiment, it gets attacks, which are not sent with the load.
        let (probed, sources) = catalog.probed_mix("a.mix", folder.path()).unwrap();
        let templates = probed.templates().iter().map(|one| (one.name.as_str(), one.weight));
        let expected = [("a", 1), ("sql-tautology", 0), ("xss-script", 0)];
        assert_eq!(templates.collect::<Vec<_>>(), expected);
        assert!(probed.title() == "recorded" && sources[0].text.contains(&hash));
        let (probed, _) = catalog.probed_mix("all.toml", folder.path()).unwrap();
        assert_eq!(probed.templates().len(), 1);
        let error = load("b.mix").unwrap_err().to_string();
        assert!(error.contains("b.mix:2:16: missing field `path`"), "{error}");
        let error = load("c.mix").unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.ends_with("c.mix"), "{error}");
    }

    #[test]
    fn system_may_take_the_options_of_another() {
        let catalog = Catalog::new(vec![]);
        let own = catalog.recipe("nginx").unwrap().file.option;
        let modsecurity = catalog.recipe("nginx-modsecurity").unwrap().file.option;
        for name in ["workers", "worker_connections", "rlimit_nofile", "backlog"] {
            assert_eq!(modsecurity[name].default, own[name].default, "{name}");
        }
        assert!(modsecurity.contains_key("rules") && !own.contains_key("rules"));
    }

    #[test]
    fn system_without_origin_needs_a_process() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("systems/nobody")).unwrap();
        let file = folder.path().join("systems/nobody/system.toml");
        fs::write(&file, "title = 'nobody'\norigin = false\n").unwrap();
        let error = Catalog::new(vec![folder.path().to_owned()]).recipe("nobody").unwrap_err();
        let expected = format!(
            "{}: nothing would respond: `origin` is false and there is no [[process]]; add one",
            file.display()
        );
        assert_eq!(error.to_string(), expected);
    }
}

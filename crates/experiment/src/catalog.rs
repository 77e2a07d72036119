//! Where experiments, systems, mixes and builds are found: in folders on disk first, then in the binary.

mod error;
mod folders;
mod kind;
mod mixes;
mod recipes;

pub use error::CatalogError;
pub use kind::Kind;

use super::build::{Build, BuildFile};
use super::toml_file::{self, Source, suggestion};
use include_dir::{Dir, File};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders in which inputs are looked for, first to last, before those in the binary.
#[derive(Debug, Clone)]
pub struct Catalog {
    folders: Vec<PathBuf>,
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
            false => self.find(Kind::Experiment, name).map_err(CatalogError::or_file),
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

fn files(folder: &'static Dir<'static>) -> Vec<&'static File<'static>> {
    let below = folder.dirs().flat_map(files);
    folder.files().chain(below).collect()
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

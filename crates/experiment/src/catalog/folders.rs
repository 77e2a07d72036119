//! Files of a catalog that are taken as they are: those of a folder, and those that match a pattern.

use super::{Catalog, CatalogError, Kind, read};
use crate::toml_file::Source;
use include_dir::{Dir, File};
use std::fs;
use std::path::Path;

impl Catalog {
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
    pub(super) fn folder(&self, kind: Kind, name: &str) -> Result<Vec<Source>, CatalogError> {
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
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
}

//! Mixes, with those that they include.

use super::{Catalog, CatalogError, Kind, read};
use crate::toml_file::{self, Source};
use std::path::Path;
use tollgate_traffic::{Mix, MixFile, MixTree};

impl Catalog {
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
}

/// How many mixes may stand between one that includes and the last that is included.
pub(super) const MAX_INCLUDE_DEPTH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn first_example_of_the_manual_is_a_whole_mix() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mixes.md");
        let manual = fs::read_to_string(&path).unwrap();
        let (_, rest) = manual.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let source = Source { name: "mixes.md".to_owned(), text: text.to_owned() };
        let mix = Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap();
        let paths: Vec<String> = mix.samples().map(|message| message.path).collect();
        assert_eq!(paths, ["/products/1000", "/orders"]);
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
}

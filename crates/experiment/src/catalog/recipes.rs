//! Recipes of systems, and the templates that go with them.

use super::kind::SYSTEM_FILE;
use super::{Catalog, CatalogError, Kind};
use crate::recipe::{Recipe, RecipeFile};
use crate::toml_file::{self, Source};

impl Catalog {
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
        if let Some(other) = &file.options_from {
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
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
}

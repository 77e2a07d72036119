//! Where a subcommand finds experiments, systems and mixes.

use crate::exit::Failure;
use anyhow::anyhow;
use std::path::{Path, PathBuf};
use tollgate_lab::inputs::catalog::Catalog;

/// The folders that come before the working directory and the binary.
#[derive(Debug, clap::Args)]
pub(crate) struct CatalogArgs {
    /// A folder with systems/, experiments/ or mixes/ of your own, which come before those in the
    /// working directory and those in the binary; may be given several times
    #[arg(long, value_name = "DIR", env = "TOLLGATE_CATALOG", hide_env_values = true)]
    catalog: Vec<PathBuf>,
}

impl CatalogArgs {
    /// The catalog of these folders, the working directory and the binary.
    ///
    /// # Errors
    ///
    /// A folder that was given is not there.
    pub(crate) fn open(&self) -> Result<Catalog, Failure> {
        if let Some(missing) = self.catalog.iter().find(|folder| !folder.is_dir()) {
            let error = anyhow!("--catalog {}: there is no such folder", missing.display());
            return Err(Failure::bad_input(error));
        }
        let mut folders = self.catalog.clone();
        folders.push(PathBuf::from("."));
        Ok(Catalog::new(folders))
    }

    /// The same folders, the working directory among them, by names that hold in any other one.
    ///
    /// # Errors
    ///
    /// A folder that was given is not there.
    pub(crate) fn folders(&self) -> Result<Vec<PathBuf>, Failure> {
        self.open()?;
        let folders = self.catalog.iter().map(PathBuf::as_path).chain([Path::new(".")]);
        let named = |folder: &Path| folder.canonicalize();
        Ok(folders.map(named).collect::<Result<_, _>>()?)
    }

    /// The words of a command line that gives the same folders.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let folders = self.catalog.iter().map(|folder| folder.display().to_string());
        folders.flat_map(|folder| ["--catalog".to_owned(), folder])
    }
}

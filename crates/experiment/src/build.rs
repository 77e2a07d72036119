//! A build: programs or files that no package brings, made from Go modules at pinned versions.
//!
//! It is a folder `builds/NAME/` with `build.toml`, a `go.mod` and a `go.sum` that pin everything, and
//! what Go source there has to be.

use super::toml_file::Source;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What `build.toml` says.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildFile {
    /// What it brings, in one line.
    pub title: String,
    /// The Debian packages that it takes, besides Go itself.
    #[serde(default)]
    pub apt: Vec<String>,
    /// The programs, by the name of their file: a Go package of the module or of one that it requires.
    pub programs: BTreeMap<String, String>,
    /// What the linker puts into the programs (`-ldflags`).
    #[serde(default)]
    pub ldflags: String,
    /// Commands that run in the folder of the result once the programs are there.
    #[serde(default)]
    pub post_build: Vec<Vec<String>>,
}

/// A build with all of its files.
#[derive(Debug, Clone)]
pub struct Build {
    /// The folder's name.
    pub name: String,
    /// What `build.toml` says.
    pub file: BuildFile,
    /// Every file of the folder; the names are without the folder's.
    pub sources: Vec<Source>,
}

//! The kinds of inputs, their folders, and those of the binary.

use include_dir::{Dir, include_dir};
use std::path::Path;

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

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Experiment, Self::System, Self::Mix, Self::Build];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Experiment => "experiment",
            Self::System => "system",
            Self::Mix => "mix",
            Self::Build => "build",
        }
    }

    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Experiment => "experiments",
            Self::System => "systems",
            Self::Mix => "mixes",
            Self::Build => "builds",
        }
    }

    pub(super) fn built_in(self) -> &'static Dir<'static> {
        match self {
            Self::Experiment => &EXPERIMENTS,
            Self::System => &SYSTEMS,
            Self::Mix => &MIXES,
            Self::Build => &BUILDS,
        }
    }

    /// The file that makes a folder one of this kind, where it is a folder.
    pub(super) fn file(self) -> Option<&'static str> {
        match self {
            Self::System => Some(SYSTEM_FILE),
            Self::Build => Some(BUILD_FILE),
            Self::Experiment | Self::Mix => None,
        }
    }

    pub(super) fn name_of(self, path: &Path) -> Option<String> {
        let stem = match self {
            Self::System | Self::Build => path.file_name(),
            Self::Experiment | Self::Mix if path.extension()? == "toml" => path.file_stem(),
            Self::Experiment | Self::Mix => None,
        };
        stem.map(|stem| stem.to_string_lossy().into_owned())
    }
}

static EXPERIMENTS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");
static SYSTEMS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../systems");
static MIXES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../mixes");
static BUILDS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../builds");

/// The file that makes a folder a system.
pub(super) const SYSTEM_FILE: &str = "system.toml";
const BUILD_FILE: &str = "build.toml";

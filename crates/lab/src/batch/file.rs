//! What a file of revisions says.

use super::settings::Figure;
use crate::inputs::duration::Span;
use crate::inputs::percent::Percent;
use schemars::JsonSchema;
use serde::Deserialize;

/// A batch as its TOML file writes it. Paths count from the folder of the file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchFile {
    /// The question that the batch answers.
    pub title: Option<String>,
    /// The experiment that each revision is measured with: a name, or a path that ends in `.toml`.
    pub experiment: Option<String>,
    /// Which case of it; may be left out where it has one.
    pub case: Option<String>,
    /// Which subject of it the revisions take the place of.
    pub subject: Option<String>,
    /// A git repository: a folder, or a URL that git knows. It is cloned, and not touched.
    pub repo: Option<String>,
    /// Which commits: `A..B` (A, and what is new in B), a file with one a line, or a list.
    pub revs: Option<Revs>,
    /// Which commits: those that have a tag of this pattern, in the order of their versions.
    pub tags: Option<String>,
    /// In place of a repository: versions of a package, which the build command gets.
    pub versions: Vec<String>,
    /// With `versions`: a folder that each build gets a copy of.
    pub files: Option<String>,
    /// The revision that every block runs too; the first one that can be built, where this is left out.
    pub anchor: Option<String>,
    /// What makes a product, for `sh -c` in the worktree: `REV`, `SRC` and `OUT` are in its environment,
    /// and `VERSION` where there are versions.
    pub build: Option<String>,
    /// How long it may take; 10 minutes where this is left out.
    pub timeout: Option<Span>,
    /// Commands that print the versions of the tools that it uses; a build is not made again while they
    /// print the same. Those of the common compilers where this is left out.
    pub tools: Option<Vec<String>>,
    /// How a product enters the system.
    pub product: Option<ProductFile>,
    /// The figure that revisions are priced by; CPU per request where this is left out.
    pub figure: Option<Figure>,
    /// Blocks of each round; 6 where this is left out, below which there is no interval.
    pub blocks: Option<u32>,
    /// Whether the durations of trials are cut to a fifth.
    pub quick: Option<bool>,
    /// How many products share a round, and so an anchor; 4 where this is left out.
    pub together: Option<u32>,
    /// What is too small to matter; 2 % where this is left out.
    pub margin: Option<Percent>,
}

/// Which commits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Revs {
    /// `A..B`, or a file.
    One(String),
    /// A list.
    Several(Vec<String>),
}

/// How a product enters the system.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProductFile {
    /// The option of the recipe that takes a path.
    pub option: String,
    /// What of `OUT` it gets: a module, a binary, a folder; `OUT` itself where this is left out.
    #[serde(default)]
    pub path: String,
}

impl BatchFile {
    /// The same, with what another one says in the place of what this one does.
    #[must_use]
    pub fn overridden_by(self, other: Self) -> Self {
        let names_revisions = other.revs.is_some() || other.tags.is_some();
        Self {
            title: other.title.or(self.title),
            experiment: other.experiment.or(self.experiment),
            case: other.case.or(self.case),
            subject: other.subject.or(self.subject),
            repo: other.repo.or(self.repo),
            revs: if names_revisions { other.revs } else { self.revs },
            tags: if names_revisions { other.tags } else { self.tags },
            versions: if other.versions.is_empty() { self.versions } else { other.versions },
            files: other.files.or(self.files),
            anchor: other.anchor.or(self.anchor),
            build: other.build.or(self.build),
            timeout: other.timeout.or(self.timeout),
            tools: other.tools.or(self.tools),
            product: other.product.or(self.product),
            figure: other.figure.or(self.figure),
            blocks: other.blocks.or(self.blocks),
            quick: other.quick.or(self.quick),
            together: other.together.or(self.together),
            margin: other.margin.or(self.margin),
        }
    }
}

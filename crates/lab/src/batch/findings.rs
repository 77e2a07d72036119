//! What a search for culprits found, in `find.json` and in words.

use super::settings::Figure;
use super::{BatchError, io_error};
use crate::analysis::Range;
use crate::report::number::{relative, share, significant};
use crate::whole_file;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use tollgate_stats::Verdict;

/// The version of this shape.
pub const SCHEMA: u32 = 1;

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Findings {
    /// The version of this shape.
    pub schema: u32,
    /// The question that the batch answers.
    pub title: String,
    /// The figure, in words.
    pub figure: String,
    /// Whether more of it is better, as of requests a second.
    pub more_is_better: bool,
    /// What is too small to matter, as a share.
    pub margin: f64,
    /// How many revisions have a price.
    pub priced: usize,
    /// The changes of the level, in their order.
    pub changes: Vec<Found>,
}

/// A change of the level, and who made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// The last revision before it that is known.
    pub parent: Named,
    /// The first revision after it that is known.
    pub culprit: Named,
    /// Revisions between the two that cannot be measured, or did not settle on which side they are.
    pub doubtful: Vec<Named>,
    /// The median price before it, over the anchor.
    pub before: f64,
    /// The median price after it.
    pub after: f64,
    /// How likely a series without it would be divided as clearly.
    pub p: f64,
    /// What the confirmation said; none where the step is too small to matter.
    pub confirmation: Option<Confirmation>,
}

/// A revision by its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The commit, or the version.
    pub revision: String,
    /// What it is called in tables.
    pub name: String,
    /// The first line of its message.
    pub log: String,
}

/// A fresh run of culprit and parent beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// The culprit's figure over the parent's; none where no block has both.
    pub ratio: Option<Range>,
    /// Blocks behind it.
    pub n: usize,
    /// What it says, beside the other confirmations.
    pub verdict: Verdict,
}

impl Findings {
    /// Those changes that a confirmation carries.
    pub fn confirmed(&self) -> impl Iterator<Item = &Found> {
        self.changes.iter().filter(|found| found.is_confirmed())
    }

    /// Writes them into the directory of a batch.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), BatchError> {
        let path = dir.join(NAME);
        let failed = io_error("writing", &path);
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        whole_file::write(&path, &(text + "\n")).map_err(failed)
    }

    /// Reads those of a batch; none where nothing was searched for yet.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn read(dir: &Path) -> Result<Option<Self>, BatchError> {
        let path = dir.join(NAME);
        if !path.is_file() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(io_error("reading", &path))?;
        let malformed = |source| BatchError::Malformed { path: path.clone(), line: 1, source };
        serde_json::from_str(&text).map(Some).map_err(malformed)
    }

    /// What was found, a paragraph a change.
    pub fn paragraphs(&self) -> Vec<String> {
        let told: Vec<String> = self.changes.iter().map(|found| self.paragraph(found)).collect();
        if self.confirmed().next().is_some() {
            return told;
        }
        let nothing = format!(
            "No commit is found that changed {}: {} with a price, margin {}.",
            self.figure,
            crate::report::rows::counted(self.priced, "revision"),
            share(self.margin)
        );
        std::iter::once(nothing).chain(told).collect()
    }

    fn paragraph(&self, found: &Found) -> String {
        let Found { parent, culprit, before, after, p, .. } = found;
        let name = |named: &Named| match named.log.is_empty() {
            true => named.name.clone(),
            false => format!("{} ({})", named.name, named.log),
        };
        let step = after / before;
        let place = format!("between {} and {}", parent.name, name(culprit));
        let level = format!("the level of {} moves by {}", self.figure, relative(step));
        let Some(confirmation) = &found.confirmation else {
            return format!("{place}, {level}, which is too small to matter (p {p:.4}).");
        };
        let ratio = confirmation.ratio.map_or("no block has both".to_owned(), |ratio| {
            let ends = if ratio.interval { "95 %" } else { "seen" };
            let [estimate, low, high] = [ratio.estimate, ratio.low, ratio.high].map(factor);
            let parent = &parent.name;
            format!(
                "{estimate} [{ends} {low} to {high}] times that of {parent}, {} blocks",
                confirmation.n
            )
        });
        let figure = &self.figure;
        let doubt = match &found.doubtful[..] {
            [] => String::new(),
            doubtful => {
                let names: Vec<&str> = doubtful.iter().map(|one| one.name.as_str()).collect();
                format!(
                    " It may as well be one of those that could not be told apart: {}.",
                    names.join(", ")
                )
            }
        };
        if found.is_reversed() {
            return format!(
                "Not confirmed: {place}, {level}, but in a fresh run it moves the other way: {ratio}."
            );
        }
        match confirmation.verdict {
            Verdict::CostsMore => {
                format!("Regression: {}: its {figure} is {ratio}.{doubt}", name(culprit))
            }
            Verdict::CostsLess => {
                format!("Improvement: {}: its {figure} is {ratio}.{doubt}", name(culprit))
            }
            Verdict::Same => format!(
                "Not confirmed: {place}, {level}, but in a fresh run the two are the same: {ratio}."
            ),
            Verdict::NotSettled => {
                format!(
                    "Not confirmed: {place}, {level}, but a fresh run does not settle it: {ratio}."
                )
            }
        }
    }
}

impl Found {
    /// Whether its own interval carries it, in the direction of the change.
    pub fn is_confirmed(&self) -> bool {
        self.differs() && !self.is_reversed()
    }

    fn differs(&self) -> bool {
        let verdict = self.confirmation.map(|confirmation| confirmation.verdict);
        matches!(verdict, Some(Verdict::CostsMore | Verdict::CostsLess))
    }

    /// Whether a fresh run says the opposite of the series.
    fn is_reversed(&self) -> bool {
        let ratio = self.confirmation.and_then(|confirmation| confirmation.ratio);
        let opposes = |ratio: Range| (ratio.estimate > 1.0) != (self.after > self.before);
        self.differs() && ratio.is_some_and(opposes)
    }
}

impl Figure {
    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        !self.metric().more_is_worse()
    }
}

const NAME: &str = "find.json";

/// A factor near 1 with the digits in which it differs from it.
fn factor(value: f64) -> String {
    match (0.5..2.0).contains(&value) {
        true => format!("{value:.3}"),
        false => significant(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(verdict: Option<Verdict>) -> Findings {
        let named = |name: &str, log: &str| Named {
            revision: format!("{name}{name}"),
            name: name.to_owned(),
            log: log.to_owned(),
        };
        let range = Range { estimate: 1.052, low: 1.041, high: 1.063, interval: true };
        Findings {
            schema: SCHEMA,
            title: "t".to_owned(),
            figure: "CPU per request".to_owned(),
            more_is_better: false,
            margin: 0.02,
            priced: 10,
            changes: vec![Found {
                parent: named("aaa", "one"),
                culprit: named("bbb", "two"),
                doubtful: Vec::new(),
                before: 1.0,
                after: 1.05,
                p: 0.001,
                confirmation: verdict.map(|verdict| Confirmation {
                    ratio: Some(range),
                    n: 12,
                    verdict,
                }),
            }],
        }
    }

    #[test]
    fn only_a_confirmation_whose_interval_carries_it_is_called_a_regression() {
        for verdict in
            [Some(Verdict::Same), Some(Verdict::NotSettled), Some(Verdict::CostsLess), None]
        {
            let told = findings(verdict).paragraphs().join("\n");
            assert!(!told.contains("egression"), "{verdict:?}: {told}");
        }
        let told = findings(Some(Verdict::CostsMore)).paragraphs();
        assert_eq!(
            told,
            [
                "Regression: bbb (two): its CPU per request is 1.052 [95 % 1.041 to 1.063] times that of aaa, 12 blocks."
            ]
        );
        let none = findings(Some(Verdict::Same)).paragraphs();
        assert_eq!(
            none[0],
            "No commit is found that changed CPU per request: 10 revisions with a price, margin 2 %."
        );
        assert!(none[1].starts_with("Not confirmed: between aaa and bbb (two), "), "{none:?}");
    }

    #[test]
    fn a_fresh_run_that_says_the_opposite_confirms_nothing() {
        let mut findings = findings(Some(Verdict::CostsMore));
        findings.changes[0].after = 0.95;
        assert_eq!(findings.confirmed().count(), 0);
        let told = findings.paragraphs();
        assert!(told[1].starts_with("Not confirmed: between aaa and bbb (two), "), "{told:?}");
        assert!(told[1].contains("in a fresh run it moves the other way: 1.052"), "{told:?}");
    }
}

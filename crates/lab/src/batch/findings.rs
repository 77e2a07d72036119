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
    /// How far apart equal products were for certain, as a share, where that is beyond the margin.
    pub noise: Option<f64>,
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
    /// How likely a series without it would be divided as clearly; of a step that the bisection met besides,
    /// how likely its two ends would differ as much.
    pub p: f64,
    /// What the confirmation said; none where the step is too small to be followed.
    pub confirmation: Option<Confirmation>,
    /// What is concluded from it.
    pub conclusion: Conclusion,
}

/// What is concluded of a change of the level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// A fresh run carries it, and it is for the worse.
    Regression,
    /// A fresh run carries it, and it is for the better.
    Improvement,
    /// In a fresh run, the two are the same.
    Same,
    /// A fresh run does not settle it.
    NotSettled,
    /// A fresh run says the opposite of the series.
    Opposite,
    /// It may be no more than what lies between equal products.
    WithinNoise,
    /// It is too small to matter.
    TooSmall,
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
        let Found { parent, culprit, before, after, p, conclusion, .. } = found;
        let name = |named: &Named| match named.log.is_empty() {
            true => named.name.clone(),
            false => format!("{} ({})", named.name, named.log),
        };
        let figure = &self.figure;
        let level = relative(after / before);
        let change = format!(
            "between {} and {}, the level of {figure} moves by {level}",
            parent.name,
            name(culprit)
        );
        let noise = self.noise.map_or("0 %".to_owned(), share_of_noise);
        let Some(confirmation) = &found.confirmation else {
            let why = match conclusion {
                Conclusion::WithinNoise => {
                    format!("no more than equal products differed by beside each other ({noise})")
                }
                _ => "too small to matter".to_owned(),
            };
            return format!("{change}, which is {why} (p {p:.4}).");
        };
        let ratio = confirmation.words(&parent.name);
        let doubt = found.doubt();
        match conclusion {
            Conclusion::Regression => {
                format!("Regression: {}: its {figure} is {ratio}.{doubt}", name(culprit))
            }
            Conclusion::Improvement => {
                format!("Improvement: {}: its {figure} is {ratio}.{doubt}", name(culprit))
            }
            Conclusion::Same => {
                format!(
                    "Not confirmed: {change}, but in a fresh run the two are the same: {ratio}."
                )
            }
            Conclusion::Opposite => {
                format!(
                    "Not confirmed: {change}, but in a fresh run it moves the other way: {ratio}."
                )
            }
            Conclusion::WithinNoise => format!(
                "Not confirmed: {change}, but a fresh run may show no more than equal products differed by \
                 beside each other ({noise}): {ratio}."
            ),
            Conclusion::NotSettled | Conclusion::TooSmall => {
                format!("Not confirmed: {change}, but a fresh run does not settle it: {ratio}.")
            }
        }
    }
}

impl Confirmation {
    fn words(&self, parent: &str) -> String {
        let Some(ratio) = self.ratio else { return "no block has both".to_owned() };
        let ends = if ratio.interval { "95 %" } else { "seen" };
        let [estimate, low, high] = [ratio.estimate, ratio.low, ratio.high].map(factor);
        format!("{estimate} [{ends} {low} to {high}] times that of {parent}, {} blocks", self.n)
    }
}

impl Conclusion {
    /// What a step of this ratio and a fresh run say together. Nothing is concluded from a difference that is
    /// not for certain beyond what lies between equal products.
    pub(super) fn of(
        step: f64,
        confirmation: Option<&Confirmation>,
        margin: f64,
        noise: Option<f64>,
    ) -> Self {
        let Some(confirmation) = confirmation else {
            let is_small = step.ln().abs() <= (1.0 + margin).ln();
            return if is_small { Self::TooSmall } else { Self::WithinNoise };
        };
        let said = match confirmation.verdict {
            Verdict::Same => return Self::Same,
            Verdict::NotSettled => return Self::NotSettled,
            Verdict::CostsMore => Self::Regression,
            Verdict::CostsLess => Self::Improvement,
        };
        let Some(ratio) = confirmation.ratio else { return Self::NotSettled };
        let widest = 1.0 + noise.unwrap_or(0.0);
        if (ratio.estimate > 1.0) != (step > 1.0) {
            Self::Opposite
        } else if noise.is_some() && ratio.low <= widest && ratio.high >= 1.0 / widest {
            Self::WithinNoise
        } else {
            said
        }
    }
}

impl Found {
    /// Whether its own interval carries it, in the direction of the change.
    pub fn is_confirmed(&self) -> bool {
        matches!(self.conclusion, Conclusion::Regression | Conclusion::Improvement)
    }

    /// Who else it may have been.
    fn doubt(&self) -> String {
        if self.doubtful.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = self.doubtful.iter().map(|one| one.name.as_str()).collect();
        let names = names.join(", ");
        format!(" It may as well be one of those that could not be told apart: {names}.")
    }
}

impl Figure {
    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        !self.metric().more_is_worse()
    }
}

const NAME: &str = "find.json";

/// A share that was measured, in percent with as many digits as it is worth.
fn share_of_noise(noise: f64) -> String {
    format!("{} %", significant(100.0 * noise))
}

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

    fn findings(after: f64, verdict: Option<Verdict>, noise: Option<f64>) -> Findings {
        let named = |name: &str, log: &str| Named {
            revision: format!("{name}{name}"),
            name: name.to_owned(),
            log: log.to_owned(),
        };
        let ratio = Some(Range { estimate: 1.052, low: 1.041, high: 1.063, interval: true });
        let confirmation = verdict.map(|verdict| Confirmation { ratio, n: 12, verdict });
        let conclusion = Conclusion::of(after, confirmation.as_ref(), 0.02, noise);
        Findings {
            schema: SCHEMA,
            title: "t".to_owned(),
            figure: "CPU per request".to_owned(),
            more_is_better: false,
            margin: 0.02,
            noise,
            priced: 10,
            changes: vec![Found {
                parent: named("aaa", "one"),
                culprit: named("bbb", "two"),
                doubtful: Vec::new(),
                before: 1.0,
                after,
                p: 0.001,
                confirmation,
                conclusion,
            }],
        }
    }

    #[test]
    fn only_a_confirmation_whose_interval_carries_it_is_called_a_regression() {
        for verdict in
            [Some(Verdict::Same), Some(Verdict::NotSettled), Some(Verdict::CostsLess), None]
        {
            let told = findings(1.05, verdict, None).paragraphs().join("\n");
            assert!(!told.contains("egression"), "{verdict:?}: {told}");
        }
        let told = findings(1.05, Some(Verdict::CostsMore), None).paragraphs();
        assert_eq!(
            told,
            [
                "Regression: bbb (two): its CPU per request is 1.052 [95 % 1.041 to 1.063] times that of aaa, 12 blocks."
            ]
        );
        let none = findings(1.05, Some(Verdict::Same), None).paragraphs();
        assert_eq!(
            none[0],
            "No commit is found that changed CPU per request: 10 revisions with a price, margin 2 %."
        );
        assert!(none[1].starts_with("Not confirmed: between aaa and bbb (two), "), "{none:?}");
    }

    #[test]
    fn a_fresh_run_that_says_the_opposite_confirms_nothing() {
        let findings = findings(0.95, Some(Verdict::CostsMore), None);
        assert_eq!(findings.confirmed().count(), 0);
        let told = findings.paragraphs();
        assert!(told[1].starts_with("Not confirmed: between aaa and bbb (two), "), "{told:?}");
        assert!(told[1].contains("in a fresh run it moves the other way: 1.052"), "{told:?}");
    }

    #[test]
    fn what_equal_products_differ_by_convicts_nobody() {
        let more = Some(Verdict::CostsMore);
        // From 1.041 on is beyond 4 %, and not beyond 5 %.
        assert_eq!(findings(1.05, more, Some(0.04)).confirmed().count(), 1);
        let within = findings(1.05, more, Some(0.05));
        assert_eq!(within.confirmed().count(), 0);
        let told = within.paragraphs();
        assert!(
            told[1].contains("equal products differed by beside each other (5.00 %)"),
            "{told:?}"
        );
        let told = findings(1.04, None, Some(0.05)).paragraphs();
        assert!(told[1].contains("no more than equal products differed by"), "{told:?}");
        let told = findings(1.01, None, Some(0.05)).paragraphs();
        assert!(told[1].contains("which is too small to matter"), "{told:?}");
    }

    #[test]
    fn programs_read_what_people_read() {
        let word = |after: f64, verdict: Option<Verdict>, noise: Option<f64>| {
            let findings = findings(after, verdict, noise);
            serde_json::to_value(findings).unwrap()["changes"][0]["conclusion"].clone()
        };
        let more = Some(Verdict::CostsMore);
        assert_eq!(word(1.05, more, None), "regression");
        // A figure of which more is better, such as requests/s.
        assert_eq!(word(1.05, Some(Verdict::CostsLess), None), "improvement");
        assert_eq!(word(0.95, more, None), "opposite");
        assert_eq!(word(1.05, more, Some(0.05)), "within-noise");
        assert_eq!(word(1.05, Some(Verdict::Same), None), "same");
        assert_eq!(word(1.05, Some(Verdict::NotSettled), None), "not-settled");
        assert_eq!(word(1.01, None, None), "too-small");
    }
}

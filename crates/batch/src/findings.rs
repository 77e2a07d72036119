//! The result of `tollgate batch find`: `find.json` and text.

use crate::config::Figure;
use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use tollgate_records::error::io_error;
use tollgate_records::files::write_json;
use tollgate_report::analysis::Range;
use tollgate_stats::Verdict;
use tollgate_stats::number::{relative, share, significant};

pub const SCHEMA: u32 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Findings {
    pub schema: u32,
    pub title: String,
    pub metric: String,
    /// As for requests per second.
    pub more_is_better: bool,
    /// As a share.
    pub margin: f64,
    /// Largest significant difference between equal products beyond the margin, as a share.
    pub noise: Option<f64>,
    /// Number of revisions with a price.
    pub priced: usize,
    pub changes: Vec<Found>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// Last known revision before the change.
    pub parent: Named,
    /// First known revision after the change.
    pub first_bad: Named,
    /// Revisions between the two that cannot be measured or are not settled.
    pub candidates: Vec<Named>,
    /// Median price before the change.
    pub before: f64,
    /// Median price after the change.
    pub after: f64,
    /// Probability of an equally clear division by chance; for a change found by bisection, of an equal difference of its ends.
    pub p: f64,
    /// `None` if the change is too small.
    pub confirmation: Option<Confirmation>,
    pub conclusion: Conclusion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Confirmed.
    Regression,
    /// Confirmed.
    Improvement,
    /// The same within the margin in the confirmation.
    Same,
    /// The confirmation is not settled.
    NotSettled,
    /// The confirmation contradicts the series.
    Opposite,
    /// Not larger than the differences between equal products.
    WithinNoise,
    /// Within the margin.
    TooSmall,
}

impl Conclusion {
    /// True if the commit may have changed the figure, which is not confirmed.
    fn is_open(self) -> bool {
        match self {
            Self::NotSettled | Self::Opposite | Self::WithinNoise => true,
            Self::Regression | Self::Improvement | Self::Same | Self::TooSmall => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The commit, or the version.
    pub revision: String,
    pub name: String,
    pub message: String,
}

/// A fresh run of a candidate beside its parent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// Ratio of the candidate to its parent; `None` if no block has both.
    pub ratio: Option<Range>,
    /// Number of blocks.
    pub n: usize,
    /// Corrected for the other confirmations.
    pub verdict: Verdict,
}

impl Findings {
    pub fn confirmed(&self) -> impl Iterator<Item = &Found> {
        self.changes.iter().filter(|found| found.is_confirmed())
    }

    pub fn write(&self, dir: &Path) -> anyhow::Result<()> {
        write_json(&dir.join(NAME), self)
    }

    /// Reads the result of the last search, if any.
    pub fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(NAME);
        if !path.is_file() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        let damaged = || format!("{} is damaged; remove it", path.display());
        serde_json::from_str(&text).map(Some).with_context(damaged)
    }

    pub fn paragraphs(&self) -> Vec<String> {
        let texts: Vec<String> = self.changes.iter().map(|found| self.paragraph(found)).collect();
        if self.confirmed().next().is_some() {
            return texts;
        }
        let headline = if self.changes.iter().any(|found| found.conclusion.is_open()) {
            format!("No change of {} is confirmed", self.metric)
        } else {
            format!("No commit changed {}", self.metric)
        };
        let nothing = format!(
            "{headline}: {} with a price, margin {}.",
            tollgate_stats::number::counted(self.priced, "revision"),
            share(self.margin)
        );
        std::iter::once(nothing).chain(texts).collect()
    }

    fn paragraph(&self, found: &Found) -> String {
        let Found { parent, first_bad, before, after, p, conclusion, .. } = found;
        let name = |named: &Named| {
            if named.message.is_empty() {
                named.name.clone()
            } else {
                format!("{} ({})", named.name, named.message)
            }
        };
        let figure = &self.metric;
        let level = relative(after / before);
        let change =
            format!("between {} and {}, {figure} changes by {level}", parent.name, name(first_bad));
        let noise = self.noise.map_or("0 %".to_owned(), share_of_noise);
        let Some(confirmation) = &found.confirmation else {
            let why = match conclusion {
                Conclusion::WithinNoise => {
                    format!("not larger than the differences between equal products ({noise})")
                }
                _ => "within the margin".to_owned(),
            };
            return format!("{change}, which is {why} (p {p:.4}).");
        };
        let ratio = confirmation.words(&parent.name);
        let doubt = found.doubt();
        match conclusion {
            Conclusion::Regression => {
                format!("Regression: {}: its {figure} is {ratio}.{doubt}", name(first_bad))
            }
            Conclusion::Improvement => {
                format!("Improvement: {}: its {figure} is {ratio}.{doubt}", name(first_bad))
            }
            Conclusion::Same => {
                format!("Not confirmed: {change}, but the same in a fresh run: {ratio}.")
            }
            Conclusion::Opposite => {
                format!("Not confirmed: {change}, but the opposite in a fresh run: {ratio}.")
            }
            Conclusion::WithinNoise => format!(
                "Not confirmed: {change}, but the fresh run is within the differences between equal products ({noise}): \
                 {ratio}."
            ),
            Conclusion::NotSettled | Conclusion::TooSmall => {
                format!("Not confirmed: {change}, but a fresh run is not settled: {ratio}.")
            }
        }
    }
}

impl Confirmation {
    fn words(&self, parent: &str) -> String {
        let Some(ratio) = self.ratio else { return "no block with both".to_owned() };
        let ends = if ratio.interval { "95 %" } else { "range" };
        let [estimate, low, high] = [ratio.estimate, ratio.low, ratio.high].map(factor);
        format!("{estimate} [{ends} {low} to {high}] times that of {parent}, {} blocks", self.n)
    }
}

impl Conclusion {
    /// Draws a conclusion from a step and its confirmation. A difference that may be within the noise gives no result.
    pub(crate) fn of(
        step: f64,
        confirmation: Option<&Confirmation>,
        margin: f64,
        noise: Option<f64>,
    ) -> Self {
        let Some(confirmation) = confirmation else {
            let is_small = step.ln().abs() <= (1.0 + margin).ln();
            return if is_small { Self::TooSmall } else { Self::WithinNoise };
        };
        let direction = match confirmation.verdict {
            Verdict::Same => return Self::Same,
            Verdict::Inconclusive => return Self::NotSettled,
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
            direction
        }
    }
}

impl Found {
    /// True if its interval confirms the direction of the change.
    pub fn is_confirmed(&self) -> bool {
        matches!(self.conclusion, Conclusion::Regression | Conclusion::Improvement)
    }

    fn doubt(&self) -> String {
        if self.candidates.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = self.candidates.iter().map(|one| one.name.as_str()).collect();
        let names = names.join(", ");
        format!(" Other candidates: {names}.")
    }
}

impl Figure {
    pub fn more_is_better(self) -> bool {
        !self.metric().more_is_worse()
    }
}

const NAME: &str = "find.json";

fn share_of_noise(noise: f64) -> String {
    format!("{} %", significant(100.0 * noise))
}

/// Formats a factor. Near 1, shows enough digits for its difference from 1.
pub(crate) fn factor(value: f64) -> String {
    if (0.5..2.0).contains(&value) { format!("{value:.3}") } else { significant(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(after: f64, verdict: Option<Verdict>, noise: Option<f64>) -> Findings {
        let named = |name: &str, log: &str| Named {
            revision: format!("{name}{name}"),
            name: name.to_owned(),
            message: log.to_owned(),
        };
        let ratio = Some(Range { estimate: 1.052, low: 1.041, high: 1.063, interval: true });
        let confirmation = verdict.map(|verdict| Confirmation { ratio, n: 12, verdict });
        let conclusion = Conclusion::of(after, confirmation.as_ref(), 0.02, noise);
        Findings {
            schema: SCHEMA,
            title: "t".to_owned(),
            metric: "CPU per request".to_owned(),
            more_is_better: false,
            margin: 0.02,
            noise,
            priced: 10,
            changes: vec![Found {
                parent: named("aaa", "one"),
                first_bad: named("bbb", "two"),
                candidates: Vec::new(),
                before: 1.0,
                after,
                p: 0.001,
                confirmation,
                conclusion,
            }],
        }
    }

    #[test]
    fn regression_needs_a_confirmed_interval() {
        for verdict in
            [Some(Verdict::Same), Some(Verdict::Inconclusive), Some(Verdict::CostsLess), None]
        {
            let texts = findings(1.05, verdict, None).paragraphs().join("\n");
            assert!(!texts.contains("egression"), "{verdict:?}: {texts}");
        }
        let texts = findings(1.05, Some(Verdict::CostsMore), None).paragraphs();
        assert_eq!(
            texts,
            [
                "Regression: bbb (two): its CPU per request is 1.052 [95 % 1.041 to 1.063] times that of aaa, 12 blocks."
            ]
        );
        let none = findings(1.05, Some(Verdict::Same), None).paragraphs();
        assert_eq!(
            none[0],
            "No commit changed CPU per request: 10 revisions with a price, margin 2 %."
        );
        assert!(none[1].starts_with("Not confirmed: between aaa and bbb (two), "), "{none:?}");
    }

    #[test]
    fn open_change_is_not_called_no_change() {
        let headline = |after: f64, verdict: Verdict, noise: Option<f64>| {
            findings(after, Some(verdict), noise).paragraphs().swap_remove(0)
        };
        let open =
            "No change of CPU per request is confirmed: 10 revisions with a price, margin 2 %.";
        assert_eq!(headline(1.38, Verdict::Inconclusive, None), open);
        assert_eq!(headline(0.95, Verdict::CostsMore, None), open);
        // The confirmation is larger than the margin, but not than the noise.
        assert_eq!(headline(1.38, Verdict::CostsMore, Some(0.5)), open);
        assert!(headline(1.38, Verdict::Same, None).starts_with("No commit changed "));
    }

    #[test]
    fn opposite_confirmation_is_not_a_regression() {
        let findings = findings(0.95, Some(Verdict::CostsMore), None);
        assert_eq!(findings.confirmed().count(), 0);
        let texts = findings.paragraphs();
        assert!(texts[1].starts_with("Not confirmed: between aaa and bbb (two), "), "{texts:?}");
        assert!(texts[1].contains("but the opposite in a fresh run: 1.052"), "{texts:?}");
    }

    #[test]
    fn differences_within_the_noise_are_not_regressions() {
        let more = Some(Verdict::CostsMore);
        // 1.041 is beyond 4 %, but not beyond 5 %.
        assert_eq!(findings(1.05, more, Some(0.04)).confirmed().count(), 1);
        let within = findings(1.05, more, Some(0.05));
        assert_eq!(within.confirmed().count(), 0);
        let texts = within.paragraphs();
        assert!(texts[1].contains("differences between equal products (5.00 %)"), "{texts:?}");
        let texts = findings(1.04, None, Some(0.05)).paragraphs();
        assert!(texts[1].contains("not larger than the differences"), "{texts:?}");
        let texts = findings(1.01, None, Some(0.05)).paragraphs();
        assert!(texts[1].contains("which is within the margin"), "{texts:?}");
    }

    #[test]
    fn json_and_text_agree() {
        let word = |after: f64, verdict: Option<Verdict>, noise: Option<f64>| {
            let findings = findings(after, verdict, noise);
            serde_json::to_value(findings).unwrap()["changes"][0]["conclusion"].clone()
        };
        let more = Some(Verdict::CostsMore);
        assert_eq!(word(1.05, more, None), "regression");
        assert_eq!(word(1.05, Some(Verdict::CostsLess), None), "improvement");
        assert_eq!(word(0.95, more, None), "opposite");
        assert_eq!(word(1.05, more, Some(0.05)), "within-noise");
        assert_eq!(word(1.05, Some(Verdict::Same), None), "same");
        assert_eq!(word(1.05, Some(Verdict::Inconclusive), None), "not-settled");
        assert_eq!(word(1.01, None, None), "too-small");
    }
}

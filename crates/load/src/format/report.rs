//! The facts of a finished load that its reports print.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plan::Plan;
use crate::shard::GeneratorResult;
use crate::summary::{Summary, TemplateSummary};
use crate::verdict::LoadVerdict;

/// A finished load, with everything that its reports print.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// URL as given by the user, with its scheme.
    pub url: &'a str,
    pub hostname: &'a str,
    pub port: u16,
    pub path: &'a str,
    pub plan: &'a Plan,
    /// Planned length of the measurement; `None` if a number of requests ends it.
    pub duration: Option<Duration>,
    pub seed: u64,
    /// Name of the mix; `None` for a single request.
    pub mix: Option<&'a str>,
    /// Labels of the templates, in the order of the workload.
    pub templates: &'a [TemplateLabel],
    pub warm_up: WarmUpResult,
    pub is_interrupted: bool,
    /// Sum of all generators.
    pub summary: &'a Summary,
    /// Results of several generators. Empty for a load from one machine.
    pub generators: &'a [GeneratorResult],
}

#[derive(Debug, Clone)]
pub struct TemplateLabel {
    /// Name in the mix; method and path of a single request.
    pub name: String,
    /// Class in the mix; `None` for a single request.
    pub class: Option<String>,
}

/// End of a warm-up. The default is no warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WarmUpResult {
    pub duration: Duration,
    /// True if the figures were steady at its end; `None` if it had a fixed length.
    pub steady: Option<bool>,
}

impl Report<'_> {
    pub(super) fn verdict(&self) -> LoadVerdict {
        LoadVerdict::of_generators(self.plan, self.summary, self.generators)
    }

    pub(super) fn templates(&self) -> impl Iterator<Item = (&TemplateLabel, &TemplateSummary)> {
        self.templates.iter().zip(&self.summary.templates)
    }

    /// Sum of the templates of each class. Empty without a mix.
    pub(super) fn classes(&self) -> BTreeMap<&str, TemplateSummary> {
        let mut classes: BTreeMap<&str, TemplateSummary> = BTreeMap::new();
        for (label, template) in self.templates() {
            if let Some(class) = &label.class {
                classes.entry(class).or_default().merge(template.clone());
            }
        }
        classes
    }
}

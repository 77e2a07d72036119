//! Adjustments of an experiment by the command line.

use crate::file::{CaseFile, DesignFile, ExperimentFile};
use crate::load_file::{QUICK_DIVISOR, in_range};
use crate::matrix::{self, Axis};
use crate::validate::{LONGEST_BUDGET, SHORTEST_BUDGET};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use tollgate_records::error::suggestion;
use tollgate_records::validity::Limits;
use tollgate_stats::BLOCKS_MAX;
use tollgate_traffic::units::{Percent, Span};

/// Adjustments of an experiment by the command line. Values replace those of the file.
#[derive(Debug, Clone, Default)]
pub struct Adjustments {
    /// Shortens durations to about a fifth.
    pub quick: bool,
    pub blocks: Option<u32>,
    pub width: Option<Percent>,
    pub budget: Option<Span>,
    pub margin: Option<Percent>,
    /// Repeats the baseline in each block.
    pub aa: bool,
    pub baseline: Option<String>,
    /// Keeps only these subjects and the baseline. Empty: all.
    pub only: Vec<String>,
    /// Keeps only these cases, and those that their rates depend on. Empty: all.
    pub cases: Vec<String>,
    /// Options to expand into several subjects or cases.
    pub matrix: Vec<Axis>,
    pub limits: Vec<Limit>,
    /// Lists of requests instead of those of the file.
    pub corpus: Vec<PathBuf>,
    /// Hosts other than this machine that subjects with a `url` may name.
    pub allow_hosts: Vec<String>,
}

impl Adjustments {
    /// Checks the adjustments against a file and applies all except `quick` and `matrix`, which are separate steps.
    pub(crate) fn apply(&self, mut file: ExperimentFile) -> Result<ExperimentFile, String> {
        self.check(&file)?;
        if let Some(baseline) = &self.baseline {
            file.baseline.clone_from(baseline);
        }
        let kept: Vec<usize> = file
            .case
            .iter()
            .filter(|case| self.keeps_case(case, &file))
            .map(|case| case.index)
            .collect();
        file.case.retain(|case| kept.contains(&case.index));
        if file.case.is_empty() {
            let (only, cases) = (self.only.join(","), self.cases.join(","));
            return Err(format!("--case {cases}: includes none of the subjects of --only {only}"));
        }
        let has_case = |name: &str| file.case.iter().any(|case| case.is_for(name, &file.baseline));
        let keeps =
            |name: &String| (self.only.is_empty() || self.only.contains(name)) && has_case(name);
        file.subject.retain(|subject| keeps(&subject.name) || subject.name == file.baseline);
        file.design = self.design(&file.design);
        for limit in &self.limits {
            limit.apply(&mut file.limits)?;
        }
        Ok(file)
    }

    fn check(&self, file: &ExperimentFile) -> Result<(), String> {
        let subjects: Vec<&str> = file.subject.iter().map(|one| one.name.as_str()).collect();
        let cases: Vec<&str> = file.case.iter().map(|case| case.name.as_str()).collect();
        let only = self.only.iter().map(|name| ("--only", name));
        for (flag, name) in only.chain(self.baseline.iter().map(|name| ("--baseline", name))) {
            if !subjects.contains(&name.as_str()) {
                let hint = suggestion(name, subjects.iter().copied());
                return Err(format!("{flag} {name}: unknown subject{hint}"));
            }
        }
        if let Some(name) = self.cases.iter().find(|name| !cases.contains(&name.as_str())) {
            let hint = suggestion(name, cases.iter().copied());
            return Err(format!("--case {name}: unknown case{hint}"));
        }
        matrix::check_names(&self.matrix, &subjects, &cases)?;
        if let Some(blocks) = self.blocks
            && !(1..=BLOCKS_MAX).contains(&(blocks as usize))
        {
            return Err(format!("--blocks {blocks}: expected 1 to {BLOCKS_MAX}"));
        }
        match self.budget {
            Some(budget) => in_range(budget, SHORTEST_BUDGET, LONGEST_BUDGET)
                .map_err(|message| format!("--budget: {message}")),
            None => Ok(()),
        }
    }

    /// Keeps a case with any of the chosen subjects, and a case that the rate of such a case depends on.
    fn keeps_case(&self, case: &CaseFile, file: &ExperimentFile) -> bool {
        let is_chosen = |case: &CaseFile| {
            let mut only = self.only.iter();
            (self.cases.is_empty() || self.cases.contains(&case.name))
                && (self.only.is_empty() || only.any(|only| case.is_for(only, &file.baseline)))
        };
        is_chosen(case) || file.case.iter().any(|other| is_chosen(other) && other.depends_on(case))
    }

    /// A width or a budget of the command line replaces the number of blocks in the file, and the reverse.
    fn design(&self, file: &DesignFile) -> DesignFile {
        let is_open = self.width.is_some() || self.budget.is_some();
        let is_fixed = self.blocks.is_some() && !is_open;
        let (blocks, budget) = if self.quick {
            let budget = file.budget.map(|budget| Span(budget.0 / QUICK_DIVISOR));
            (file.quick_blocks.or(file.blocks), budget)
        } else {
            (file.blocks, file.budget)
        };
        DesignFile {
            blocks: self.blocks.or(if is_open { None } else { blocks }),
            quick_blocks: file.quick_blocks,
            width: self.width.or(if is_fixed { None } else { file.width }),
            budget: self.budget.or(if is_fixed { None } else { budget }),
            margin: self.margin.or(file.margin),
            aa: self.aa || file.aa,
        }
    }
}

/// A limit with its key, such as `background_cpu=50%`.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    key: String,
    percent: Percent,
}

impl Limit {
    /// Sets the limit of this key.
    pub fn apply(&self, limits: &mut Limits) -> Result<(), String> {
        let keys = [
            ("steal", &mut limits.steal),
            ("background_cpu", &mut limits.background_cpu),
            ("pause", &mut limits.pause),
            ("window_skew", &mut limits.window_skew),
            ("imbalance", &mut limits.imbalance),
        ];
        let known: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
        let (_, value) = keys.into_iter().find(|(key, _)| *key == self.key).ok_or_else(|| {
            format!("unknown limit `{}`{}", self.key, suggestion(&self.key, known))
        })?;
        *value = self.percent;
        Ok(())
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, percent) =
            text.split_once('=').ok_or("expected LIMIT=PERCENT, such as background_cpu=50%")?;
        let percent: Percent = percent.parse().map_err(|error| format!("{error}"))?;
        let limit = Self { key: key.to_owned(), percent };
        limit.apply(&mut Limits::default())?;
        Ok(limit)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.key, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tollgate_records::stop::Stop;

    const FILE: DesignFile = DesignFile {
        blocks: Some(9),
        quick_blocks: None,
        width: None,
        budget: None,
        margin: None,
        aa: false,
    };

    fn stop_of(file: DesignFile, adjustments: &Adjustments) -> Stop {
        adjustments.design(&file).stop()
    }

    #[test]
    fn number_of_blocks_is_fixed_by_default() {
        let none = Adjustments::default();
        assert_eq!(stop_of(FILE, &none), Stop::after(9));
        assert_eq!(stop_of(DesignFile::default(), &none), Stop::after(8));
        let five = Adjustments { blocks: Some(5), ..none };
        assert_eq!(stop_of(FILE, &five), Stop::after(5));
        let narrow = DesignFile { width: Some(Percent(0.01)), ..FILE };
        assert_eq!(stop_of(narrow, &five), Stop::after(5));
    }

    #[test]
    fn quick_run_may_have_fewer_blocks() {
        let quick = Adjustments { quick: true, ..Adjustments::default() };
        let file = DesignFile { quick_blocks: Some(2), ..FILE };
        assert_eq!(stop_of(file, &quick), Stop::after(2));
        assert_eq!(stop_of(FILE, &quick), Stop::after(9));
        assert_eq!(stop_of(file, &Adjustments::default()), Stop::after(9));
        let asked_for = Adjustments { blocks: Some(5), ..quick };
        assert_eq!(stop_of(file, &asked_for), Stop::after(5));
    }

    #[test]
    fn width_and_budget_end_a_run_and_default_to_each_other() {
        let narrow = Adjustments { width: Some(Percent(0.01)), ..Adjustments::default() };
        let expected =
            Stop { blocks: 1000, width: Some(0.01), budget_s: Some(600.0), extra_blocks: 0 };
        assert_eq!(stop_of(FILE, &narrow), expected);
        let minute = Adjustments { budget: Some(Span(Duration::from_secs(60))), ..narrow.clone() };
        assert_eq!(stop_of(FILE, &minute), Stop { budget_s: Some(60.0), ..expected });
        let capped = Adjustments { blocks: Some(20), ..minute };
        let expected =
            Stop { blocks: 20, width: Some(0.01), budget_s: Some(60.0), extra_blocks: 0 };
        assert_eq!(stop_of(FILE, &capped), expected);
        let in_file = DesignFile { budget: Some(Span(Duration::from_secs(50))), ..FILE };
        let expected = Stop { blocks: 9, width: Some(0.02), budget_s: Some(10.0), extra_blocks: 0 };
        let quick = Adjustments { quick: true, ..Adjustments::default() };
        assert_eq!(stop_of(in_file, &quick), expected);
    }

    #[test]
    fn limit_is_set_by_its_key() {
        let mut limits = Limits::default();
        let limit: Limit = "background_cpu=50%".parse().unwrap();
        limit.apply(&mut limits).unwrap();
        assert_eq!(limits, Limits { background_cpu: Percent(0.5), ..Limits::default() });
        for (text, error) in [
            ("background=50%", "unknown limit `background`; "),
            ("steel=50%", "unknown limit `steel`; did you mean `steal`?"),
            ("pause", "expected LIMIT=PERCENT, "),
            ("pause=200%", "200%"),
        ] {
            let message = text.parse::<Limit>().unwrap_err();
            assert!(message.contains(error), "{text}: {message}");
        }
    }
}

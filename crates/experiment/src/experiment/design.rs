//! How often an experiment is repeated, and what ends it.

use super::check::{LONGEST_BUDGET, SHORTEST_BUDGET, within};
use super::file::{DesignFile, QUICK_DIVISOR};
use super::{Adjustments, Subject};
use crate::duration::Span;
use crate::plan::stop::{BUDGET, Stop, WIDTH};
use tollgate_stats::BLOCKS_MAX;

/// What is too small to matter, where nobody says.
pub(super) const MARGIN: f64 = 0.02;

/// How many blocks a run has, where nobody says.
const BLOCKS: u32 = 8;

/// What a subject is called that is the baseline a second time.
const AGAIN: &str = "-again";

/// The design with what the command line changes about it. Who asks for a precision or a time there
/// does not want the number of blocks in the file.
pub(super) fn adjusted(file: &DesignFile, adjustments: &Adjustments) -> DesignFile {
    let is_open = adjustments.width.is_some() || adjustments.budget.is_some();
    let is_fixed = adjustments.blocks.is_some() && !is_open;
    let in_file = match adjustments.quick {
        true => file.budget.map(|budget| Span(budget.0 / QUICK_DIVISOR)),
        false => file.budget,
    };
    let blocks = match adjustments.quick {
        true => file.quick_blocks.or(file.blocks),
        false => file.blocks,
    };
    DesignFile {
        blocks: adjustments.blocks.or(if is_open { None } else { blocks }),
        quick_blocks: file.quick_blocks,
        width: adjustments.width.or(if is_fixed { None } else { file.width }),
        budget: adjustments.budget.or(if is_fixed { None } else { in_file }),
        margin: adjustments.margin.or(file.margin),
        aa: adjustments.aa || file.aa,
    }
}

/// What ends a run of this design.
pub(super) fn stop(design: &DesignFile) -> Stop {
    if design.width.is_none() && design.budget.is_none() {
        return Stop::after(design.blocks.unwrap_or(BLOCKS));
    }
    let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
    Stop {
        blocks: design.blocks.unwrap_or(most),
        width: Some(design.width.map_or(WIDTH, |width| width.0)),
        budget_s: Some(design.budget.map_or(BUDGET, |budget| budget.0).as_secs_f64()),
    }
}

/// Adds the baseline a second time, under another name; tells its index.
pub(super) fn add_aa_subject(subjects: &mut Vec<Subject>, baseline: usize) -> usize {
    let mut twin = subjects[baseline].clone();
    while subjects.iter().any(|subject| subject.name == twin.name) {
        twin.name += AGAIN;
    }
    twin.about = format!("{} a second time: the noise of this machine", subjects[baseline].name);
    subjects.push(twin);
    subjects.len() - 1
}

/// Checks what the command line says of the design.
pub(super) fn check(adjustments: &Adjustments) -> Result<(), String> {
    if let Some(blocks) = adjustments.blocks
        && !(1..=BLOCKS_MAX).contains(&(blocks as usize))
    {
        return Err(format!("--blocks {blocks}: it has to be between 1 and {BLOCKS_MAX}"));
    }
    match adjustments.budget {
        Some(budget) => within(budget, SHORTEST_BUDGET, LONGEST_BUDGET)
            .map_err(|what| format!("--budget {what}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::percent::Percent;
    use std::time::Duration;

    const FILE: DesignFile = DesignFile {
        blocks: Some(9),
        quick_blocks: None,
        width: None,
        budget: None,
        margin: None,
        aa: false,
    };

    fn stop_of(file: DesignFile, adjustments: &Adjustments) -> Stop {
        stop(&adjusted(&file, adjustments))
    }

    #[test]
    fn without_a_word_the_number_of_blocks_is_fixed() {
        let none = Adjustments::default();
        assert_eq!(stop_of(FILE, &none), Stop::after(9));
        assert_eq!(stop_of(DesignFile::default(), &none), Stop::after(8));
        let five = Adjustments { blocks: Some(5), ..none };
        assert_eq!(stop_of(FILE, &five), Stop::after(5));
        let narrow = DesignFile { width: Some(Percent(0.01)), ..FILE };
        assert_eq!(stop_of(narrow, &five), Stop::after(5));
    }

    #[test]
    fn a_quick_run_may_have_fewer_blocks() {
        let quick = Adjustments { quick: true, ..Adjustments::default() };
        let file = DesignFile { quick_blocks: Some(2), ..FILE };
        assert_eq!(stop_of(file, &quick), Stop::after(2));
        assert_eq!(stop_of(FILE, &quick), Stop::after(9));
        assert_eq!(stop_of(file, &Adjustments::default()), Stop::after(9));
        let asked_for = Adjustments { blocks: Some(5), ..quick };
        assert_eq!(stop_of(file, &asked_for), Stop::after(5));
    }

    #[test]
    fn a_precision_or_a_time_ends_a_run_and_each_has_the_other_by_default() {
        let narrow = Adjustments { width: Some(Percent(0.01)), ..Adjustments::default() };
        let expected = Stop { blocks: 1000, width: Some(0.01), budget_s: Some(600.0) };
        assert_eq!(stop_of(FILE, &narrow), expected);
        let minute = Adjustments { budget: Some(Span(Duration::from_secs(60))), ..narrow.clone() };
        assert_eq!(stop_of(FILE, &minute), Stop { budget_s: Some(60.0), ..expected });
        let capped = Adjustments { blocks: Some(20), ..minute };
        let expected = Stop { blocks: 20, width: Some(0.01), budget_s: Some(60.0) };
        assert_eq!(stop_of(FILE, &capped), expected);
        let in_file = DesignFile { budget: Some(Span(Duration::from_secs(50))), ..FILE };
        let expected = Stop { blocks: 9, width: Some(0.02), budget_s: Some(10.0) };
        let quick = Adjustments { quick: true, ..Adjustments::default() };
        assert_eq!(stop_of(in_file, &quick), expected);
    }
}

//! `tollgate waf diff`: what other rules would block and let through of the requests in logs.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_report::document::Table;
use tollgate_stats::number::counted;
use tollgate_waf::RuleSet;
use tollgate_waf_tools::difference::{Comparison, Difference};
use tollgate_waf_tools::log::Unread;

use super::waf_replay::read_requests;
use super::waf_report::{self, Findings, Format};
use crate::console::{Exit, Failure};

/// Arguments of `tollgate waf diff`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Rules in use: a file, which may include others, or a folder
    #[arg(value_name = "OLD-RULES")]
    pub(super) old: PathBuf,
    /// Rules to compare with them
    #[arg(value_name = "NEW-RULES")]
    pub(super) new: PathBuf,
    /// Audit log of the gateway, ModSecurity or Coraza, or an access log; a folder of a concurrent log (may be repeated)
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    log: Vec<PathBuf>,
    /// Leave out directives that are not supported
    #[arg(long)]
    pub(super) skip_unsupported: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

const SCHEMA: u32 = 1;

#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "WafDiffReport")]
struct Report {
    schema: u32,
    #[serde(flatten)]
    difference: Difference,
    /// Requests with a body that their log does not contain.
    without_body: u64,
    #[serde(flatten)]
    unread: Unread,
}

/// Compares rule sets on the requests of the logs.
pub(super) fn diff(args: &Args, old: RuleSet, new: RuleSet) -> Result<Exit, Failure> {
    let mut comparison = Comparison::new(&Arc::new(old), &Arc::new(new));
    let mut without_body = 0;
    let unread = read_requests(&args.log, |recorded| {
        without_body += u64::from(recorded.lacks_body);
        comparison.add(&recorded.request);
    })?;
    let report = Report { schema: SCHEMA, difference: comparison.finish(), without_body, unread };
    let findings = Findings {
        title: "Difference between rules",
        summary: report.summary(),
        table: report.table(),
        details: report.examples(),
    };
    waf_report::print(args.format, &findings, &report)?;
    Ok(Exit::Success)
}

impl Report {
    fn summary(&self) -> Vec<String> {
        let Difference { requests, blocked_by_both, newly_blocked, no_longer_blocked, .. } =
            &self.difference;
        let mut lines = vec![format!(
            "{}: {newly_blocked} newly blocked, {no_longer_blocked} no longer blocked, {blocked_by_both} blocked by both.",
            counted(*requests as usize, "request"),
        )];
        if self.without_body > 0 {
            lines
                .push(format!("{} had a body, which the log does not contain.", self.without_body));
        }
        lines.extend(self.unread.sentences());
        lines
    }

    /// Rules in the order of the verdicts that they changed.
    fn table(&self) -> Table {
        let mut rules: Vec<_> = self.difference.rules.iter().collect();
        rules.sort_by_key(|(id, rule)| {
            let changed = rule.newly_blocked + rule.no_longer_blocked;
            (std::cmp::Reverse((changed, rule.new_matches.max(rule.old_matches))), **id)
        });
        let rows = rules.into_iter().map(|(id, rule)| {
            let figures =
                [rule.old_matches, rule.new_matches, rule.newly_blocked, rule.no_longer_blocked];
            let mut cells = vec![id.to_string()];
            cells.extend(figures.map(|figure| figure.to_string()));
            cells
        });
        let header = ["rule", "matches, old", "new", "newly blocked", "no longer"];
        Table::of_text(header, rows.collect())
    }

    /// Messages and examples of the rules, in the order of their ids.
    fn examples(&self) -> Vec<(String, Vec<String>)> {
        let rules = self.difference.rules.iter();
        rules
            .map(|(id, rule)| {
                let name = format!("{id} {}", rule.message).trim_end().to_owned();
                (name, rule.examples.iter().cloned().collect())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use schemars::generate::Contract;

    #[test]
    fn committed_schema_matches_types() {
        schemas::check::<Report>("waf-diff", Contract::Serialize);
    }
}

//! `tollgate waf replay`: replays the requests of a log and reports those that rules would have blocked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use tollgate_waf::{EngineMode, RuleSet, Worker};
use tollgate_waf_tools::{log, replay};

use crate::console::{self, Exit, Failure};

#[derive(Debug, Default)]
struct Totals {
    requests: u64,
    not_understood: u64,
    with_body: u64,
    blocked: u64,
    /// Blocked now but not in the log, and vice versa.
    newly_blocked: u64,
    no_longer_blocked: u64,
    rules: BTreeMap<u64, RuleTotals>,
}

#[derive(Debug, Default)]
struct RuleTotals {
    matches: u64,
    blocked: u64,
    message: String,
    example: String,
}

pub(super) fn replay(rules: RuleSet, path: &Path) -> Result<Exit, Failure> {
    let rules = Arc::new(rules);
    let file = File::open(path)
        .with_context(|| format!("cannot read \"{}\"", path.display()))
        .map_err(Failure::bad_input)?;
    let mut totals = Totals::default();
    let mut worker = Worker::new();
    let mut transaction = worker.warm_up(&rules);
    let not_understood = log::read(BufReader::new(file), |entry| {
        let request = &entry.request;
        transaction.reset();
        transaction.engine_mode(EngineMode::On);
        replay::run_request(&mut transaction, &mut worker, request);
        let is_blocked = transaction.intervention().is_some();
        totals.requests += 1;
        totals.with_body += u64::from(entry.lacks_body);
        totals.blocked += u64::from(is_blocked);
        totals.newly_blocked += u64::from(is_blocked && entry.was_blocked == Some(false));
        totals.no_longer_blocked += u64::from(!is_blocked && entry.was_blocked == Some(true));
        for found in transaction.matches().iter().filter(|found| found.logged) {
            let rule = totals.rules.entry(found.id).or_default();
            if rule.matches == 0 {
                rule.message = found.message.escape_ascii().to_string();
                rule.example = request.target.escape_ascii().to_string();
            }
            rule.matches += 1;
            rule.blocked += u64::from(is_blocked);
        }
    });
    totals.not_understood =
        not_understood.with_context(|| format!("cannot read \"{}\"", path.display()))?;
    if totals.requests == 0 && totals.not_understood > 0 {
        let error =
            anyhow!("no line of \"{}\" is understood; expected {}", path.display(), log::FORMATS);
        return Err(Failure::bad_input(error));
    }
    console::print(&totals.text())?;
    Ok(Exit::Success)
}

impl Totals {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| {
            writeln!(text, "{line}").expect("writing to a string cannot fail");
        };
        line(format_args!("{} requests, {} would be blocked", self.requests, self.blocked));
        if self.newly_blocked + self.no_longer_blocked > 0 {
            line(format_args!(
                "compared with the log: {} newly blocked, {} no longer",
                self.newly_blocked, self.no_longer_blocked
            ));
        }
        if self.with_body > 0 {
            line(format_args!("{} had a body, which the log does not contain", self.with_body));
        }
        if self.not_understood > 0 {
            line(format_args!("lines that are not understood: {}", self.not_understood));
        }
        if !self.rules.is_empty() {
            line(format_args!(
                "{:>10}{:>9}{:>9}  message, first target",
                "rule", "matches", "blocked"
            ));
        }
        let mut rules: Vec<(&u64, &RuleTotals)> = self.rules.iter().collect();
        rules.sort_by_key(|(id, rule)| (std::cmp::Reverse((rule.blocked, rule.matches)), **id));
        for (id, rule) in rules {
            line(format_args!("{id:>10}{:>9}{:>9}  {}", rule.matches, rule.blocked, rule.message));
            let example: String = rule.example.chars().take(100).collect();
            line(format_args!("{:>30}{example}", ""));
        }
        text
    }
}

/// Arguments of `tollgate waf replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Rule files (SecLang, AppSec rules in *.yaml, rules of naxsi in *.rules), or folders with files of one of these
    #[arg(required = true, value_name = "RULES")]
    pub(super) rules: Vec<PathBuf>,
    /// Audit log of the gateway, or an access log: combined, common, httplog of HAProxy, or JSON
    #[arg(long, value_name = "FILE")]
    pub(super) log: PathBuf,
    /// Leave out directives that are not supported
    #[arg(long)]
    pub(super) skip_unsupported: bool,
}

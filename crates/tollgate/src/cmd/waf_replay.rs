//! `tollgate waf replay`: replays the requests of a log and reports those that rules would have blocked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use tollgate_waf::{EngineMode, RuleSet, Worker};
use tollgate_waf_tools::log::{self, Content, Entry, Recorded, Unread};
use tollgate_waf_tools::replay;

use crate::console::{self, Exit, Failure};

#[derive(Debug, Default)]
struct Totals {
    requests: u64,
    unread: Unread,
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

pub(super) fn replay(rules: RuleSet, logs: &[PathBuf]) -> Result<Exit, Failure> {
    let rules = Arc::new(rules);
    let mut totals = Totals::default();
    let mut worker = Worker::new();
    let mut transaction = worker.warm_up(&rules);
    totals.unread = read_requests(logs, |recorded| {
        let request = &recorded.request;
        transaction.reset();
        transaction.engine_mode(EngineMode::On);
        replay::run_request(&mut transaction, &mut worker, request);
        let is_blocked = transaction.intervention().is_some();
        totals.requests += 1;
        totals.with_body += u64::from(recorded.lacks_body);
        totals.blocked += u64::from(is_blocked);
        totals.newly_blocked += u64::from(is_blocked && recorded.was_blocked == Some(false));
        totals.no_longer_blocked += u64::from(!is_blocked && recorded.was_blocked == Some(true));
        for found in transaction.matches().iter().filter(|found| found.logged) {
            let rule = totals.rules.entry(found.id).or_default();
            if rule.matches == 0 {
                rule.message = found.message.escape_ascii().to_string();
                rule.example = request.target.escape_ascii().to_string();
            }
            rule.matches += 1;
            rule.blocked += u64::from(is_blocked);
        }
    })?;
    console::print(&totals.text())?;
    Ok(Exit::Success)
}

/// Calls a function with each request of the logs: files, or folders of the entries of concurrent logs.
pub(super) fn read_requests(
    logs: &[PathBuf],
    mut each: impl FnMut(Recorded),
) -> Result<Unread, Failure> {
    let (mut requests, mut matches) = (0_u64, 0_u64);
    let unread = read_logs(logs, |entry| match entry.content {
        Content::Request(recorded) => {
            requests += 1;
            each(recorded);
        }
        Content::Matches(_) => matches += 1,
    })?;
    if requests == 0 && (matches > 0 || unread != Unread::default()) {
        let error = match matches {
            0 => anyhow!("the logs have no entry that is understood; expected {}", log::FORMATS),
            _ => anyhow!(
                "the logs have matches and no requests; SecAuditLogParts needs B, and C for bodies"
            ),
        };
        return Err(Failure::bad_input(error));
    }
    Ok(unread)
}

/// Calls a function with each entry of the logs.
pub(super) fn read_logs(logs: &[PathBuf], mut each: impl FnMut(Entry)) -> Result<Unread, Failure> {
    let mut unread = Unread::default();
    for path in logs {
        for file in files_below(path).map_err(Failure::bad_input)? {
            let cannot_read = || format!("cannot read \"{}\"", file.display());
            let open = File::open(&file).with_context(cannot_read).map_err(Failure::bad_input)?;
            unread += log::read(BufReader::new(open), &mut each).with_context(cannot_read)?;
        }
    }
    Ok(unread)
}

/// Returns the file itself, or the files of a folder, subfolders included, by name.
fn files_below(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        path.read_dir().with_context(|| format!("cannot read folder \"{}\"", path.display()))?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    paths.sort();
    let found: Vec<Vec<PathBuf>> =
        paths.iter().map(|path| files_below(path)).collect::<anyhow::Result<_>>()?;
    Ok(found.concat())
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
        for sentence in self.unread.sentences() {
            line(format_args!("{}", sentence.trim_end_matches('.')));
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
    /// Audit log of the gateway, ModSecurity or Coraza, or an access log; a folder of a concurrent log (may be repeated)
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub(super) log: Vec<PathBuf>,
    /// Leave out directives that are not supported
    #[arg(long)]
    pub(super) skip_unsupported: bool,
}

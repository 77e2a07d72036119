//! The debug log: why rules matched, in the form `[id] [target] [level] text` of libmodsecurity. Level 1 has the decisions to end
//! transactions, level 2 limits that were reached, level 3 each rule that matched, those with `nolog`, too.

use tollgate_waf::{Match, RuleInfo};

use crate::log_file::LogFile;

/// An open debug log.
#[derive(Debug)]
pub(crate) struct DebugLog {
    pub(crate) file: LogFile,
    /// Higher levels are not written.
    pub(crate) level: u8,
}

/// A level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Decision = 1,
    Limit = 2,
    Match = 3,
}

impl DebugLog {
    pub(crate) fn has(&self, level: Level) -> bool {
        self.level >= level as u8
    }

    /// Writes a line. A log that cannot be written does not end the transaction, as in libmodsecurity.
    pub(crate) fn write(&self, level: Level, id: &[u8], target: &[u8], text: &str) {
        if self.has(level) {
            let (id, target) = (id.escape_ascii(), target.escape_ascii());
            let line = format!("[{id}] [{target}] [{}] {text}\n", level as u8);
            drop(self.file.append(line.as_bytes()));
        }
    }
}

/// The rule with its place and phase, the variable with its value as sent and as compared, the part that the operator matched, and
/// what the rule added to scores.
pub(crate) fn describe(rule: &RuleInfo<'_>, found: &Match) -> String {
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut text =
        format!("Rule {} ({}, phase {}) matched", found.id, rule.place, found.phase as u8);
    if rule.operator.is_empty() {
        text.push_str(" without a condition");
    } else {
        let argument = found.argument.as_deref().unwrap_or(rule.argument);
        text.push_str(&format!(
            " {}: @{} \"{}\" on \"{}\"",
            shown(&found.variable),
            rule.operator,
            shown(argument),
            shown(&found.value)
        ));
        if let Some(original) = &found.original {
            text.push_str(&format!(", sent as \"{}\"", shown(original)));
        }
    }
    if let Some(details) = &found.details {
        if !details.matched.is_empty() {
            text.push_str(&format!(", by \"{}\"", shown(&details.matched)));
        }
        for (name, amount) in &details.scores {
            text.push_str(&format!(", {name} {amount:+}"));
        }
    }
    text
}

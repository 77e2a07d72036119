//! The alert about an inspected request.

use jiff::Timestamp;
use tollgate_waf::Match;

use super::inspection::Inspection;
use crate::local_api::{Alert, AlertEvent, EVENTS_MAX};

/// Longest text of an alert. The rest is cut off.
const TEXT_BYTES_MAX: usize = 512;

/// The alert about a request in which a rule that blocks has matched, as CrowdSec raises one. `None`: there was none, it blocks nothing
/// in this mode, or the address of the client is unknown.
pub(super) fn alert(inspection: &Inspection, is_out_of_band: bool) -> Option<Alert> {
    let client = inspection.client?;
    if !is_out_of_band && !inspection.session.is_blocked() {
        return None;
    }
    let rules = &inspection.rules().set;
    let matches = inspection.session.transaction().matches();
    let mut logged = matches.iter().filter(|found| found.logged);
    let blocks = |position| rules.rule(position).is_some_and(|rule| rule.blocks);
    let cause = logged.clone().find(|found| blocks(found.rule))?;
    // AppSec rules have their names in a tag.
    let appsec_name = |position| {
        let tags = rules.rule(position).map_or(&[][..], |rule| rule.tags);
        tags.iter().find_map(|tag| tag.strip_prefix("crowdsec-").map(str::to_owned))
    };
    let rule_name = |found: &Match| {
        appsec_name(found.rule).unwrap_or_else(|| format!("native_rule:{}", found.id))
    };
    // As CrowdSec names them.
    let scenario = match (appsec_name(cause.rule), inspection.score(), &*cause.message) {
        (Some(name), ..) => name,
        (None, Some(score), _) if is_out_of_band => {
            format!("anomaly score out-of-band: anomaly: {score}")
        }
        (None, Some(score), _) => format!("anomaly score block: anomaly: {score}"),
        (None, None, b"") => rule_name(cause),
        (None, None, message) => shown(message),
    };
    let (method, target, _) = inspection.head.as_ref()?.parts()?;
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let events = logged.by_ref().take(EVENTS_MAX).map(|found| AlertEvent {
        rule: rule_name(found),
        message: shown(&found.message),
        variable: shown(without_matched_name(&found.variable)),
    });
    Some(Alert {
        client,
        at: Timestamp::now(),
        is_out_of_band,
        scenario,
        route: inspection.firewall.counters.label.clone(),
        method: shown(method),
        path: shown(path),
        events: events.collect(),
    })
}

/// The beginning of a text, in whole characters.
fn shown(text: &[u8]) -> String {
    // A character has up to four bytes.
    let start = &text[..text.len().min(TEXT_BYTES_MAX + 3)];
    let mut shown = String::from_utf8_lossy(start).into_owned();
    let end = (0..=TEXT_BYTES_MAX).rev().find(|at| shown.is_char_boundary(*at));
    shown.truncate(end.unwrap_or_default());
    shown
}

/// `ARGS_NAMES` for `ARGS_NAMES:a`, where the name is the value that matched.
fn without_matched_name(variable: &[u8]) -> &[u8] {
    let names = b"_NAMES:";
    let at = variable.windows(names.len()).position(|part| part == names);
    at.map_or(variable, |at| &variable[..at + names.len() - 1])
}

//! The alert about an inspected request.

use jiff::Timestamp;

use super::inspection::Inspection;
use crate::local_api::{Alert, AlertEvent, EVENTS_MAX};

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
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let scenario = match (inspection.score(), &*cause.message) {
        // As CrowdSec names those of the Core Rule Set.
        (Some(score), _) => format!(
            "anomaly score {}: anomaly: {score}",
            if is_out_of_band { "out-of-band" } else { "block" }
        ),
        (None, b"") => format!("native_rule:{}", cause.id),
        (None, message) => shown(message),
    };
    let (method, target, _) = inspection.head.as_ref()?.parts()?;
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let events = logged.by_ref().take(EVENTS_MAX).map(|found| AlertEvent {
        rule: found.id,
        message: shown(&found.message),
        variable: shown(&found.variable),
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

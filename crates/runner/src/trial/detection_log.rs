//! Check of systems that detect attacks without blocking them. Their responses do not show whether the rules are
//! active, so the system's own counter of detections must increase with each attack.

use super::exchange::{ExchangeError, exchange, exchange_with};
use crate::interrupt::{Interrupt, Interrupted};
use crate::system::render::{self, RenderError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::ParseFloatError;
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_experiment::experiment::Subject;
use tollgate_experiment::recipe::DetectionLog;
use tollgate_load::{Expectation, Request};

/// `path` is the page with the counter.
#[derive(Debug, Error)]
pub enum DetectionLogError {
    #[error(transparent)]
    Recipe(#[from] RenderError),
    #[error("`detection_log` of system `{system}` uses unknown port `{port}`; add it to `ports`")]
    NoPort { system: String, port: String },
    #[error("attack `{attack}` failed")]
    Attack { attack: String, source: ExchangeError },
    #[error("cannot get {path} from the system")]
    Page { path: String, source: ExchangeError },
    #[error("cannot get {path} from the system: status {status}, expected 200")]
    Status { path: String, status: u16 },
    #[error("cannot get {path} from the system: more than {MAX_PAGE_BYTES} bytes")]
    TooLong { path: String },
    #[error("cannot read {path}: no number at the end of `{line}`")]
    Sample { path: String, line: String, source: ParseFloatError },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl DetectionLogError {
    pub fn interrupted(&self) -> Option<Interrupted> {
        match self {
            Self::Interrupted(interrupted)
            | Self::Attack { source: ExchangeError::Interrupted(interrupted), .. }
            | Self::Page { source: ExchangeError::Interrupted(interrupted), .. } => {
                Some(*interrupted)
            }
            _ => None,
        }
    }
}

/// A started subject.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub address: SocketAddr,
    /// Further ports, by name.
    pub ports: &'a BTreeMap<String, SocketAddr>,
    pub interrupt: &'a Interrupt,
}

/// Sends the attacks that a subject must detect. Returns why it is refused, or `None` if all were counted.
pub fn refusal_reason(
    subject: &Subject,
    target: &Target<'_>,
) -> Result<Option<String>, DetectionLogError> {
    // It is unknown which attacks the removed rules would detect.
    if subject.lacks_rules {
        return Ok(None);
    }
    let mut reasons = Vec::new();
    for log in &subject.recipe.file.detection_log {
        if render::holds(subject, &log.when)? {
            reasons.extend(undetected(subject, log, target)?);
        }
    }
    Ok((!reasons.is_empty()).then(|| reasons.join("; ")))
}

fn undetected(
    subject: &Subject,
    log: &DetectionLog,
    target: &Target<'_>,
) -> Result<Option<String>, DetectionLogError> {
    let at = *target.ports.get(&log.port).ok_or_else(|| DetectionLogError::NoPort {
        system: subject.recipe.name.clone(),
        port: log.port.clone(),
    })?;
    let before = settled_count(log, at, target.interrupt)?;
    for path in &log.attacks {
        let request = get(&format!("{}{path}", subject.prefix), target.address);
        exchange(target.address, &request, TIMEOUT, target.interrupt)
            .map_err(|source| DetectionLogError::Attack { attack: path.clone(), source })?;
    }
    let expected = log.attacks.len() as u64;
    let deadline = Instant::now() + TIMEOUT;
    // The system may count after its response.
    loop {
        let found = count(log, &page(at, log, target.interrupt)?)?.saturating_sub(before);
        if found >= expected {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            let DetectionLog { detector, counter, path, .. } = log;
            return Ok(Some(format!(
                "{detector} detected {found} of {expected} attacks (counter {counter} on {path})"
            )));
        }
        target.interrupt.sleep(POLL)?;
    }
}

/// Returns the count once it stops changing: the readiness check may have been an attack.
fn settled_count(
    log: &DetectionLog,
    at: SocketAddr,
    interrupt: &Interrupt,
) -> Result<u64, DetectionLogError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut last = None;
    loop {
        let is_over = Instant::now() >= deadline;
        match page(at, log, interrupt) {
            Ok(page) => {
                let now = count(log, &page)?;
                if last == Some(now) || is_over {
                    return Ok(now);
                }
                last = Some(now);
            }
            // The page may become available last.
            Err(DetectionLogError::Page { source: ExchangeError::Io { .. }, .. }) if !is_over => {}
            Err(error) => return Err(error),
        }
        interrupt.sleep(SETTLE_TIME)?;
    }
}

/// Timeout of an attack, and of the count after the last one.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// A count that is unchanged for this time is settled.
const SETTLE_TIME: Duration = Duration::from_millis(250);
/// Pages have some hundred kilobytes.
const MAX_PAGE_BYTES: usize = 16 << 20;

fn get(path: &str, host: SocketAddr) -> Request {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    Request {
        bytes: head.into_bytes(),
        is_head: false,
        expect: Expectation::default(),
        template: 0,
    }
}

fn page(
    at: SocketAddr,
    log: &DetectionLog,
    interrupt: &Interrupt,
) -> Result<String, DetectionLogError> {
    let path = &log.path;
    let mut body = Vec::new();
    let mut keep = |piece: &[u8]| {
        let room = (MAX_PAGE_BYTES + 1).saturating_sub(body.len());
        body.extend_from_slice(&piece[..piece.len().min(room)]);
    };
    let reply = exchange_with(at, &get(path, at), TIMEOUT, interrupt, &mut keep)
        .map_err(|source| DetectionLogError::Page { path: path.clone(), source })?;
    match reply.response.status {
        _ if body.len() > MAX_PAGE_BYTES => Err(DetectionLogError::TooLong { path: path.clone() }),
        200 => Ok(String::from_utf8_lossy(&body).into_owned()),
        status => Err(DetectionLogError::Status { path: path.clone(), status }),
    }
}

/// Sums the samples of the counter that have the labels, in Prometheus' text format: name, labels in braces, and value
/// on one line. A counter of zero may be missing.
fn count(log: &DetectionLog, page: &str) -> Result<u64, DetectionLogError> {
    let mut sum = 0.0;
    for line in page.lines() {
        let Some((labels, value)) = line
            .strip_prefix(log.counter.as_str())
            .and_then(|rest| rest.strip_prefix('{'))
            .and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        // Labels are separated by commas; quotes in values are escaped.
        let labels = format!(",{labels},");
        let has =
            |(name, value): (&String, &String)| labels.contains(&format!(",{name}=\"{value}\","));
        if log.labels.iter().all(has) {
            let value: f64 = value.parse().map_err(|source| DetectionLogError::Sample {
                path: log.path.clone(),
                line: line.to_owned(),
                source,
            })?;
            sum += value;
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    Ok(sum as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP hits Count of triggered rules
# TYPE hits counter
hits{rule="949110",source="127.0.0.1",type="inband"} 40
hits{rule="949110",source="127.0.0.1",type="outofband"} 3
hits{rule="949110",source="10.0.0.1",type="outofband"} 1e+01
hits{rule="9491101",source="127.0.0.1",type="outofband"} 100
hits_total{rule="949110",type="outofband"} 1000
hits 5
"#;

    fn log(labels: &[(&str, &str)]) -> DetectionLog {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        DetectionLog {
            detector: "the rules".to_owned(),
            when: "true".to_owned(),
            attacks: Vec::new(),
            port: "metrics".to_owned(),
            path: "/metrics".to_owned(),
            counter: "hits".to_owned(),
            labels: labels.collect(),
        }
    }

    #[test]
    fn sums_samples_with_all_labels() {
        let of = |labels: &[(&str, &str)]| count(&log(labels), PAGE).unwrap();
        assert_eq!(of(&[("rule", "949110"), ("type", "outofband")]), 13);
        assert_eq!(of(&[("type", "outofband")]), 113);
        assert_eq!(of(&[("type", "nowhere")]), 0);
        assert_eq!(of(&[]), 153);
        assert_eq!(count(&log(&[]), "").unwrap(), 0);
    }

    #[test]
    fn sample_without_number_is_an_error() {
        let error = count(&log(&[]), "hits{rule=\"1\"} many").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read /metrics: no number at the end of `hits{rule=\"1\"} many`"
        );
    }
}

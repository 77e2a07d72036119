//! Attacks that a system finds without blocking them. No answer tells whether it does, and a rule set that was
//! never loaded finds nothing, at no price: so the system's own count of them is read, and has to be right.

use super::exchange::{ExchangeError, exchange, exchange_with};
use crate::inputs::experiment::Subject;
use crate::inputs::recipe::Notice;
use crate::interrupt::{Interrupt, Interrupted};
use crate::system::render::{self, RenderError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::ParseFloatError;
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_load::{Expectation, Request};

/// Why it is not known what a system finds.
#[derive(Debug, Error)]
pub enum NoticeError {
    /// An expression of the recipe is wrong.
    #[error(transparent)]
    Recipe(#[from] RenderError),
    /// The recipe names a port that it does not have.
    #[error("a `notice` of system `{system}` asks at port `{port}`, which is none of its `ports`")]
    NoPort {
        /// The system's name.
        system: String,
        /// The port's name.
        port: String,
    },
    /// An attack got no answer.
    #[error("the attack `{path}`")]
    Attack {
        /// Its path.
        path: String,
        /// Why not.
        source: ExchangeError,
    },
    /// The page with the counts cannot be had.
    #[error("asking the system for {path}")]
    Page {
        /// The page's path.
        path: String,
        /// Why not.
        source: ExchangeError,
    },
    /// The page with the counts is not answered with 200.
    #[error("asking the system for {path}: it answers {status}")]
    Status {
        /// The page's path.
        path: String,
        /// The status code.
        status: u16,
    },
    /// The page does not end.
    #[error("asking the system for {path}: it is longer than {PAGE_BYTES_MAX} bytes")]
    TooLong {
        /// The page's path.
        path: String,
    },
    /// A sample of the counter is not a number.
    #[error("reading {path}: `{line}` ends with no number")]
    Sample {
        /// The page's path.
        path: String,
        /// The line.
        line: String,
        /// Why not.
        source: ParseFloatError,
    },
    /// The run was asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl NoticeError {
    /// The wish to stop, when that is what ended it.
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

/// Where a subject that was just started is asked.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Where it answers requests.
    pub address: SocketAddr,
    /// Its further ports.
    pub ports: &'a BTreeMap<String, SocketAddr>,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
}

/// Sends the attacks that a subject is sure to find, and says where fewer were counted; none where all were.
///
/// # Errors
///
/// The recipe is wrong, or the system does not answer.
pub fn reason(subject: &Subject, asked: &Asked<'_>) -> Result<Option<String>, NoticeError> {
    // Which attacks the rules that were taken away would have found, nobody knows before.
    if subject.lacks_rules {
        return Ok(None);
    }
    let mut reasons = Vec::new();
    for notice in &subject.recipe.file.notice {
        if render::holds(subject, &notice.when)? {
            reasons.extend(lacking(subject, notice, asked)?);
        }
    }
    Ok((!reasons.is_empty()).then(|| reasons.join("; ")))
}

fn lacking(
    subject: &Subject,
    notice: &Notice,
    asked: &Asked<'_>,
) -> Result<Option<String>, NoticeError> {
    let at = *asked.ports.get(&notice.port).ok_or_else(|| NoticeError::NoPort {
        system: subject.recipe.name.clone(),
        port: notice.port.clone(),
    })?;
    let before = still(notice, at, asked.interrupt)?;
    for path in &notice.attacks {
        let request = get(&format!("{}{path}", subject.prefix), asked.address);
        exchange(asked.address, &request, LIMIT, asked.interrupt)
            .map_err(|source| NoticeError::Attack { path: path.clone(), source })?;
    }
    let owed = notice.attacks.len() as u64;
    let deadline = Instant::now() + LIMIT;
    // It is found after the answer, at some time.
    loop {
        let found = counted(notice, &page(at, notice, asked.interrupt)?)?.saturating_sub(before);
        if found >= owed {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            let Notice { by, counter, page, .. } = notice;
            return Ok(Some(format!(
                "{by} found {found} of {owed} attacks, by {counter} on {page}"
            )));
        }
        asked.interrupt.sleep(PAUSE)?;
    }
}

/// What was counted when nothing is added any more: what told that the subject is ready may have been an attack.
fn still(notice: &Notice, at: SocketAddr, interrupt: &Interrupt) -> Result<u64, NoticeError> {
    let deadline = Instant::now() + LIMIT;
    let mut last = None;
    loop {
        let is_over = Instant::now() >= deadline;
        match page(at, notice, interrupt) {
            Ok(page) => {
                let now = counted(notice, &page)?;
                if last == Some(now) || is_over {
                    return Ok(now);
                }
                last = Some(now);
            }
            // The page may be there later than all else.
            Err(NoticeError::Page { source: ExchangeError::Io { .. }, .. }) if !is_over => {}
            Err(error) => return Err(error),
        }
        interrupt.sleep(STILL)?;
    }
}

/// How long an attack may take, and how long after the last one all may take to be counted.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// How long nothing is added before that is taken for the end.
const STILL: Duration = Duration::from_millis(250);
/// What a system counts of itself comes to some hundred kilobytes.
const PAGE_BYTES_MAX: usize = 16 << 20;

fn get(path: &str, host: SocketAddr) -> Request {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    Request {
        bytes: head.into_bytes(),
        is_head: false,
        expect: Expectation::default(),
        template: 0,
    }
}

fn page(at: SocketAddr, notice: &Notice, interrupt: &Interrupt) -> Result<String, NoticeError> {
    let path = &notice.page;
    let mut body = Vec::new();
    let mut keep = |piece: &[u8]| {
        let room = (PAGE_BYTES_MAX + 1).saturating_sub(body.len());
        body.extend_from_slice(&piece[..piece.len().min(room)]);
    };
    let reply = exchange_with(at, &get(path, at), LIMIT, interrupt, &mut keep)
        .map_err(|source| NoticeError::Page { path: path.clone(), source })?;
    match reply.answer.status {
        _ if body.len() > PAGE_BYTES_MAX => Err(NoticeError::TooLong { path: path.clone() }),
        200 => Ok(String::from_utf8_lossy(&body).into_owned()),
        status => Err(NoticeError::Status { path: path.clone(), status }),
    }
}

/// The sum of the counter's samples with those labels, in Prometheus' text format: one a line, the name, labels in
/// braces and the value. A counter that nothing was added to yet is not on the page.
fn counted(notice: &Notice, page: &str) -> Result<u64, NoticeError> {
    let mut sum = 0.0;
    for line in page.lines() {
        let Some((labels, value)) = line
            .strip_prefix(notice.counter.as_str())
            .and_then(|rest| rest.strip_prefix('{'))
            .and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        // Between two labels is a comma; a value cannot hold a quote that is not escaped.
        let labels = format!(",{labels},");
        let has =
            |(name, value): (&String, &String)| labels.contains(&format!(",{name}=\"{value}\","));
        if notice.labels.iter().all(has) {
            let value: f64 = value.parse().map_err(|source| NoticeError::Sample {
                path: notice.page.clone(),
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

    fn notice(labels: &[(&str, &str)]) -> Notice {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Notice {
            by: "the rules".to_owned(),
            when: "true".to_owned(),
            attacks: Vec::new(),
            port: "metrics".to_owned(),
            page: "/metrics".to_owned(),
            counter: "hits".to_owned(),
            labels: labels.collect(),
        }
    }

    #[test]
    fn samples_with_all_of_the_labels_are_added_up() {
        let of = |labels: &[(&str, &str)]| counted(&notice(labels), PAGE).unwrap();
        assert_eq!(of(&[("rule", "949110"), ("type", "outofband")]), 13);
        assert_eq!(of(&[("type", "outofband")]), 113);
        assert_eq!(of(&[("type", "nowhere")]), 0);
        assert_eq!(of(&[]), 153);
        assert_eq!(counted(&notice(&[]), "").unwrap(), 0);
    }

    #[test]
    fn a_count_that_is_no_number_is_told() {
        let error = counted(&notice(&[]), "hits{rule=\"1\"} many").unwrap_err();
        assert_eq!(
            error.to_string(),
            "reading /metrics: `hits{rule=\"1\"} many` ends with no number"
        );
    }
}

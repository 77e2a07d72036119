//! Alerts for the local API, sent by a thread of their own.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate_accesslog::{RateLimit, to_json};

use super::call::{Call, CallError};
use super::counters::LocalApiCounters;
use crate::config::{LocalApi, Machine};
use crate::{LOG_INTERVAL, log};

/// Alerts that wait to be sent. Others are dropped, and counted.
pub(super) const QUEUE_MAX: usize = 1024;
/// Alerts of one request.
const BATCH_MAX: usize = 100;
/// Matches that an alert names.
pub(crate) const EVENTS_MAX: usize = 32;
/// Logged bytes of the response to alerts that are refused.
const REFUSAL_BYTES_MAX: usize = 200;
/// Time for a request, of which a batch has two at most in an attempt.
const CALL_TIME: Duration = Duration::from_secs(3);
/// Waits between the attempts to send a batch.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(16)];

/// A request that was blocked, or that out-of-band rules would have blocked. It has no values of the client, which may be secrets.
#[derive(Debug)]
pub(crate) struct Alert {
    pub(crate) client: IpAddr,
    pub(crate) at: Timestamp,
    pub(crate) is_out_of_band: bool,
    /// Of the rule that blocks.
    pub(crate) scenario: String,
    /// Listener that was asked.
    pub(crate) route: String,
    pub(crate) method: String,
    /// Without its query.
    pub(crate) path: String,
    /// At most [`EVENTS_MAX`].
    pub(crate) events: Vec<AlertEvent>,
}

/// A match.
#[derive(Debug)]
pub(crate) struct AlertEvent {
    /// Its name, or `native_rule:` with its number.
    pub(crate) rule: String,
    pub(crate) message: String,
    pub(crate) variable: String,
}

/// An alert as the local API takes it (`models.Alert` of CrowdSec 1.7).
#[derive(Serialize)]
struct AlertMessage<'a> {
    capacity: i32,
    decisions: [(); 0],
    events: Vec<EventMessage<'a>>,
    events_count: usize,
    leakspeed: &'static str,
    message: String,
    remediation: bool,
    scenario: &'a str,
    scenario_hash: &'static str,
    scenario_version: &'static str,
    simulated: bool,
    source: Source,
    start_at: String,
    stop_at: String,
}

#[derive(Serialize)]
struct Source {
    ip: String,
    scope: &'static str,
    value: String,
}

#[derive(Serialize)]
struct EventMessage<'a> {
    meta: Vec<Meta<'a>>,
    timestamp: String,
}

#[derive(Serialize)]
struct Meta<'a> {
    key: &'static str,
    value: &'a str,
}

impl<'a> AlertMessage<'a> {
    fn of(alert: &'a Alert) -> Self {
        let Alert { client, scenario, route, .. } = alert;
        let (at, ip) = (alert.at.to_string(), client.to_string());
        let events = alert.events.iter().map(|event| {
            let meta = [
                ("rule_name", &*event.rule),
                ("message", &*event.message),
                ("method", &*alert.method),
                ("uri", &*alert.path),
                ("matched_zones", &*event.variable),
            ];
            EventMessage {
                meta: meta.map(|(key, value)| Meta { key, value }).into(),
                timestamp: at.clone(),
            }
        });
        let band = if alert.is_out_of_band { "out-of-band match" } else { "block" };
        Self {
            capacity: 1,
            decisions: [],
            events: events.collect(),
            events_count: alert.events.len(),
            leakspeed: "",
            message: format!("WAF {band}: {scenario} from {ip} ({route})"),
            remediation: false,
            scenario,
            scenario_hash: "",
            scenario_version: "",
            simulated: false,
            source: Source { ip: ip.clone(), scope: "Ip", value: ip },
            start_at: at.clone(),
            stop_at: at,
        }
    }
}

#[derive(Serialize)]
struct LoginMessage<'a> {
    machine_id: &'a str,
    password: &'a str,
    scenarios: [&'static str; 0],
}

#[derive(Deserialize)]
struct LoginReply {
    token: String,
}

#[derive(Debug, thiserror::Error)]
enum AlertError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the login is answered with status {0}; check login and password of `credentials`")]
    Login(u16),
    #[error("the login is answered without a token: {0}")]
    Token(#[source] serde_json::Error),
    #[error("it refuses the alerts with status {status}: {message}")]
    Refused { status: u16, message: String },
}

/// Sends alerts until their queue ends.
pub(super) struct Sender<'a> {
    pub(super) api: &'a LocalApi,
    pub(super) machine: &'a Machine,
    pub(super) counters: &'a LocalApiCounters,
    /// Ends with the gateway. An attempt that begins later is not repeated.
    pub(super) end: &'a Receiver<()>,
    /// Value of `Authorization`.
    pub(super) authorization: Option<String>,
}

impl Sender<'_> {
    pub(super) fn run(mut self, alerts: &Receiver<Alert>) {
        let mut messages = RateLimit::new(LOG_INTERVAL);
        while let Ok(first) = alerts.recv() {
            let rest = alerts.try_iter().take(BATCH_MAX - 1);
            let batch: Vec<Alert> = [first].into_iter().chain(rest).collect();
            if let Err(error) = self.send_in_parts(&batch) {
                if messages.allow(Instant::now()) {
                    log(format_args!(
                        "cannot send alerts to the local API of CrowdSec at {}: {error}; they are lost (logged once a minute, \
                         counted in /metrics)",
                        self.api.host
                    ));
                }
                // Nothing is better by the next batch.
                if self.has_ended() {
                    self.counters
                        .alerts_failed
                        .fetch_add(alerts.try_iter().count() as u64, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.end.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Sends a batch and counts its alerts. The halves of a batch that is refused are sent on their own, as one alert may be the
    /// cause. Returns the first error.
    fn send_in_parts(&mut self, batch: &[Alert]) -> Result<(), AlertError> {
        let result = self.send(batch);
        let counter = match &result {
            Err(AlertError::Refused { status: 400 | 413, .. }) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                return self.send_in_parts(first).and(self.send_in_parts(second));
            }
            Ok(()) => &self.counters.alerts_sent,
            Err(_) => &self.counters.alerts_failed,
        };
        counter.fetch_add(batch.len() as u64, Ordering::Relaxed);
        result
    }

    /// Sends a batch, with some attempts, of which one at most begins after the end.
    fn send(&mut self, batch: &[Alert]) -> Result<(), AlertError> {
        let messages: Vec<AlertMessage<'_>> = batch.iter().map(AlertMessage::of).collect();
        let body = to_json(0, &messages);
        for pause in PAUSES {
            let is_last = self.has_ended();
            match self.attempt(&body) {
                Err(error @ AlertError::Refused { .. }) => return Err(error),
                Err(_) if !is_last => {}
                result => return result,
            }
            if self.end.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        self.attempt(&body)
    }

    fn attempt(&mut self, body: &[u8]) -> Result<(), AlertError> {
        let path = "/v1/alerts";
        let mut logins = 0;
        loop {
            let authorization = match &self.authorization {
                Some(known) => known,
                None => {
                    logins += 1;
                    let token = self.log_in()?;
                    self.authorization.insert(format!("Bearer {token}"))
                }
            };
            let header = Some(("Authorization", &**authorization));
            let reply = Call { method: "POST", path, header, body }.send(self.api, CALL_TIME)?;
            match reply.status {
                200..=299 => return Ok(()),
                // The token has expired.
                401 if logins == 0 => self.authorization = None,
                401 | 403 => {
                    self.authorization = None;
                    return Err(CallError::Status(reply.status).into());
                }
                // They may be taken later.
                status @ (408 | 429) => return Err(CallError::Status(status).into()),
                status @ 400..=499 => {
                    let shown = &reply.body[..reply.body.len().min(REFUSAL_BYTES_MAX)];
                    let message = shown.escape_ascii().to_string();
                    return Err(AlertError::Refused { status, message });
                }
                status => return Err(CallError::Status(status).into()),
            }
        }
    }

    /// Returns a token.
    fn log_in(&self) -> Result<String, AlertError> {
        let Machine { login, password } = self.machine;
        let login = LoginMessage { machine_id: login, password, scenarios: [] };
        let body = to_json(0, &login);
        let call = Call { method: "POST", path: "/v1/watchers/login", header: None, body: &body };
        let reply = call.send(self.api, CALL_TIME)?;
        match reply.status {
            200 => {}
            status @ 400..=499 => return Err(AlertError::Login(status)),
            status => return Err(CallError::Status(status).into()),
        }
        let LoginReply { token } =
            serde_json::from_slice(&reply.body).map_err(AlertError::Token)?;
        Ok(token)
    }
}

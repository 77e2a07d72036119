//! Entries of audit logs in JSON, as ModSecurity 2, ModSecurity 3 and Coraza write them.

use serde::Deserialize;
use serde_json::Value;

use super::entry::{Content, Entry, LoggedMatch, LoggedMatches, Recorded, day};
use super::error_log;
use crate::regression::Members;
use crate::replay::Request;

#[derive(Deserialize)]
struct Written {
    transaction: Transaction,
    /// Of ModSecurity 2, as the two next ones.
    request: Option<WrittenRequest>,
    response: Option<WrittenResponse>,
    audit_data: Option<AuditData>,
    /// Of Coraza.
    #[serde(default)]
    messages: Vec<Value>,
}

#[derive(Deserialize)]
struct Transaction {
    #[serde(alias = "remote_address")]
    client_ip: Option<String>,
    #[serde(alias = "time", alias = "timestamp")]
    time_stamp: Option<String>,
    #[serde(alias = "id", alias = "transaction_id")]
    unique_id: Option<String>,
    request: Option<WrittenRequest>,
    response: Option<WrittenResponse>,
    is_interrupted: Option<bool>,
    /// Of ModSecurity 3.
    #[serde(default)]
    messages: Vec<Value>,
}

#[derive(Deserialize)]
struct WrittenRequest {
    /// Of ModSecurity 2.
    request_line: Option<String>,
    method: Option<String>,
    uri: Option<String>,
    /// A number, or text that may be empty.
    http_version: Option<Value>,
    protocol: Option<String>,
    headers: Option<Members<Values>>,
    #[serde(default)]
    body: Option<Value>,
}

/// Values of a header, a list in logs of Coraza.
#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct WrittenResponse {
    #[serde(alias = "status")]
    http_code: Option<u16>,
}

#[derive(Deserialize)]
struct AuditData {
    #[serde(default)]
    messages: Vec<String>,
}

pub(super) fn parse(line: &[u8]) -> serde_json::Result<Entry> {
    let written: Written = match std::str::from_utf8(line) {
        Ok(text) => serde_json::from_str(text)?,
        // ModSecurity 2 writes bytes as they are.
        Err(_invalid) => serde_json::from_str(&String::from_utf8_lossy(line))?,
    };
    let Written { transaction, request, response, audit_data, messages } = written;
    let status = transaction.response.or(response).and_then(|response| response.http_code);
    let request = transaction.request.or(request);
    let target = request.as_ref().and_then(|request| request.uri.clone()).unwrap_or_default();
    let method = request.as_ref().and_then(|request| request.method.clone()).unwrap_or_default();
    let was_blocked = transaction.is_interrupted.or(status.map(|status| status == 403));
    let content = match request.and_then(WrittenRequest::into_request) {
        Some((request, body)) => Content::Request(Recorded::of(request, body, was_blocked)),
        None => {
            let mut logged = LoggedMatches {
                transaction: transaction.unique_id.unwrap_or_default(),
                method,
                target,
                was_blocked: was_blocked == Some(true),
                is_incomplete: false,
                others: Vec::new(),
                matches: transaction
                    .messages
                    .iter()
                    .chain(&messages)
                    .filter_map(logged_match)
                    .collect(),
            };
            let texts = audit_data.map(|data| data.messages).unwrap_or_default();
            texts.iter().for_each(|text| logged.add(text));
            Content::Matches(logged)
        }
    };
    let day = transaction.time_stamp.as_deref().and_then(day);
    Ok(Entry { client: transaction.client_ip, day, content })
}

impl WrittenRequest {
    /// Returns the request, and its body if the log has it. `None` if the log has no headers.
    fn into_request(self) -> Option<(Request, Option<Vec<u8>>)> {
        let headers = self.headers?.0;
        let version = match self.http_version {
            Some(Value::Number(number)) => Some(format!("HTTP/{number:.1}")),
            Some(Value::String(text)) if !text.is_empty() => Some(format!("HTTP/{text}")),
            _ => self.protocol,
        };
        let line = match (self.request_line, self.method, self.uri) {
            (Some(line), _, _) => line,
            (None, Some(method), Some(uri)) => {
                format!("{method} {uri} {}", version.as_deref().unwrap_or("HTTP/1.1"))
            }
            _ => return None,
        };
        let mut words = line.splitn(3, ' ').map(|word| word.as_bytes().to_vec());
        let (method, target) = (words.next()?, words.next()?);
        let protocol = words.next().unwrap_or_default();
        let body = match self.body {
            Some(Value::String(text)) => Some(text),
            Some(Value::Array(parts)) => Some(parts.iter().filter_map(Value::as_str).collect()),
            _ => None,
        };
        let mut pairs = Vec::new();
        for (name, values) in headers {
            let values = match values {
                Values::One(value) => vec![value],
                Values::Several(values) => values,
            };
            let name = name.into_bytes();
            pairs.extend(values.into_iter().map(|value| (name.clone(), value.into_bytes())));
        }
        let request = Request { method, target, protocol, headers: pairs, body: Vec::new() };
        Some((request, body.map(String::into_bytes)))
    }
}

/// Reads a message: `details` of ModSecurity 3, `data` of Coraza.
fn logged_match(message: &Value) -> Option<LoggedMatch> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let details = &message["details"];
    let (id, data, cause) = match details.is_object() {
        true => (
            details["ruleId"].as_str()?.parse().ok()?,
            text(&details["data"]),
            text(&details["match"]),
        ),
        false => (message["data"]["id"].as_u64()?, text(&message["data"]["data"]), String::new()),
    };
    let variable = error_log::variable(&cause, &data).to_owned();
    Some(LoggedMatch { id, variable, value: error_log::value(&cause, &data) })
}

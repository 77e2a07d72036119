//! Messages and variables of coraza-spoa, whose users keep their `coraza.cfg`.

use std::net::IpAddr;

use thiserror::Error;
use tollgate_http1::{header_lines, parse_length};

use crate::data::{Reader, Value};
use crate::error::ConnectionError;
use crate::frame::{Limits, push_named};

/// Message of a NOTIFY that is to be inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// `coraza-req`
    Request(Request<'a>),
    /// `coraza-res`
    Response(Response<'a>),
}

/// Arguments of `coraza-req`. Numbers and texts that are missing or null are 0 and empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// `app`: name of the rules.
    pub app: &'a [u8],
    /// Identifier chosen by HAProxy.
    pub id: &'a [u8],
    pub src_ip: Option<IpAddr>,
    pub src_port: u16,
    pub dst_ip: Option<IpAddr>,
    pub dst_port: u16,
    pub method: &'a [u8],
    /// As sent, without the query. `*` where HAProxy finds none.
    pub path: &'a [u8],
    /// Without `?`. `None` if the target has no `?`.
    pub query: Option<&'a [u8]>,
    /// `1.1`
    pub version: &'a [u8],
    /// Header lines up to an empty one.
    pub headers: &'a [u8],
    pub body: Body<'a>,
    /// `exportRuleIDs`: the variables are to name the rules that matched.
    pub exports_rules: bool,
}

/// Arguments of `coraza-res`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    pub app: &'a [u8],
    /// The variable `id` of the request.
    pub id: &'a [u8],
    pub version: &'a [u8],
    pub status: u16,
    pub headers: &'a [u8],
    pub body: Body<'a>,
    pub exports_rules: bool,
    /// `detect-only`: the response is not to be blocked.
    pub detects_only: bool,
}

/// The part of a body that HAProxy had in its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Body<'a> {
    pub bytes: &'a [u8],
    /// `body-size`, from `req.body_size`: the announced length, or that of the buffered part.
    pub size: Option<u64>,
    /// `body-complete`, from `internal.htx.has_eom`: the buffer has the end of the message. Only this determines the
    /// extent of a chunked body that fills the buffer exactly.
    pub is_complete: Option<bool>,
}

/// Extent of a [`Body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyExtent {
    Whole,
    /// More follows.
    Truncated,
    /// The arguments do not determine it.
    Unknown,
}

/// Error of a message, whose frame is valid: of HAProxy's configuration.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MessageError {
    #[error("no message is named coraza-req or coraza-res")]
    Unknown,
    #[error("more than one message is to be inspected")]
    Several,
    #[error("argument `{0}` is missing")]
    Missing(&'static str),
    #[error("argument `{0}` occurs twice")]
    Repeated(&'static str),
    #[error("argument `{0}` has a value that it cannot have")]
    Invalid(&'static str),
}

impl<'a> Message<'a> {
    /// Parses the messages of a NOTIFY, of which one is to be inspected.
    pub(crate) fn parse(
        mut payload: Reader<'a>,
        limits: &Limits,
    ) -> Result<Result<Self, MessageError>, ConnectionError> {
        let mut found = Err(MessageError::Unknown);
        let mut count = 0;
        while !payload.is_empty() {
            count += 1;
            let name = payload.string()?;
            let arguments = payload.byte()?;
            if count > limits.messages || arguments > limits.arguments {
                return Err(ConnectionError::TooMany);
            }
            let arguments = Arguments { reader: &mut payload, count: arguments };
            let message = match name {
                b"coraza-req" => Request::parse(arguments)?.map(Self::Request),
                b"coraza-res" => Response::parse(arguments)?.map(Self::Response),
                // Of another kind: its arguments are skipped.
                _ => match arguments.each(|_| Ok(()))? {
                    Ok(()) | Err(_) => Err(MessageError::Unknown),
                },
            };
            found = match (found, message) {
                (Err(MessageError::Unknown), message) => message,
                (found, Err(MessageError::Unknown)) => found,
                _ => Err(MessageError::Several),
            };
        }
        Ok(found)
    }
}

impl<'a> Request<'a> {
    fn parse(arguments: Arguments<'_, 'a>) -> Result<Result<Self, MessageError>, ConnectionError> {
        let (mut method, mut path, mut headers) = (None, None, None);
        let mut request = Self::default();
        let is_read = arguments.each(|argument| match argument.name {
            "app" => argument.bytes(&mut request.app),
            "id" => argument.bytes(&mut request.id),
            "src-ip" => argument.ip(&mut request.src_ip),
            "src-port" => argument.port(&mut request.src_port),
            "dst-ip" => argument.ip(&mut request.dst_ip),
            "dst-port" => argument.port(&mut request.dst_port),
            "method" => argument.some_bytes(&mut method),
            "path" => {
                path = Some(&b"*"[..]);
                argument.some_bytes(&mut path)
            }
            "query" => argument.some_bytes(&mut request.query),
            "version" => argument.bytes(&mut request.version),
            "headers" => argument.some_bytes(&mut headers),
            "exportRuleIDs" => argument.flag(&mut request.exports_rules),
            _ => request.body.read(argument),
        })?;
        Ok(is_read.and_then(|()| {
            Ok(Self {
                method: method.ok_or(MessageError::Missing("method"))?,
                path: path.ok_or(MessageError::Missing("path"))?,
                headers: headers.ok_or(MessageError::Missing("headers"))?,
                ..request
            })
        }))
    }

    /// Extent of the body. Without `Content-Length` and `Transfer-Encoding` there is none.
    pub fn body_extent(&self) -> BodyExtent {
        let has = |name| header(self.headers, name).is_some();
        match self.body.extent(self.headers) {
            BodyExtent::Unknown if !has(b"transfer-encoding") && !has(b"content-length") => {
                BodyExtent::Whole
            }
            extent => extent,
        }
    }
}

impl<'a> Response<'a> {
    fn parse(arguments: Arguments<'_, 'a>) -> Result<Result<Self, MessageError>, ConnectionError> {
        let (mut id, mut status, mut headers) = (None, None, None);
        let mut response = Self::default();
        let is_read = arguments.each(|argument| match argument.name {
            "app" => argument.bytes(&mut response.app),
            "id" => argument.some_bytes(&mut id),
            "version" => argument.bytes(&mut response.version),
            "status" => {
                argument.put(&mut status, |value| value.number()?.try_into().ok().map(Some))
            }
            "headers" => argument.some_bytes(&mut headers),
            "exportRuleIDs" => argument.flag(&mut response.exports_rules),
            "detect-only" => argument.flag(&mut response.detects_only),
            _ => response.body.read(argument),
        })?;
        Ok(is_read.and_then(|()| {
            Ok(Self {
                id: id.ok_or(MessageError::Missing("id"))?,
                status: status.ok_or(MessageError::Missing("status"))?,
                headers: headers.ok_or(MessageError::Missing("headers"))?,
                ..response
            })
        }))
    }

    /// Extent of the body. Responses to HEAD have a length and no body, so that an empty body tells nothing.
    pub fn body_extent(&self) -> BodyExtent {
        if self.body.bytes.is_empty() && self.body.is_complete.is_none() {
            return BodyExtent::Unknown;
        }
        self.body.extent(self.headers)
    }
}

impl<'a> Body<'a> {
    fn read(&mut self, argument: Argument<'a>) -> Result<(), MessageError> {
        match argument.name {
            "body" => argument.bytes(&mut self.bytes),
            "body-size" => argument.put(&mut self.size, |value| value.number().map(Some)),
            "body-complete" => argument.put(&mut self.is_complete, |value| flag(value).map(Some)),
            // An argument of the other message.
            _ => Ok(()),
        }
    }

    /// Extent of the body of a message with these headers.
    fn extent(&self, headers: &[u8]) -> BodyExtent {
        let length = self.bytes.len() as u64;
        match (self.is_complete, content_length(headers)) {
            (Some(true), _) => BodyExtent::Whole,
            (Some(false), _) => BodyExtent::Truncated,
            _ if self.size.is_some_and(|size| length < size) => BodyExtent::Truncated,
            (None, Some(announced)) if length < announced => BodyExtent::Truncated,
            (None, Some(_)) => BodyExtent::Whole,
            (None, None) => BodyExtent::Unknown,
        }
    }
}

/// Value of the first header of this name in lower case.
fn header<'a>(headers: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let is_same = |(other, _): &(&[u8], _)| other.eq_ignore_ascii_case(name);
    header_lines(headers).find(is_same).map(|(_, value)| value)
}

fn content_length(headers: &[u8]) -> Option<u64> {
    parse_length(header(headers, b"content-length")?)
}

/// Names of arguments that are read. Others are ignored, such as `body-len`, which is the length of `body`.
const NAMES: [&str; 17] = [
    "app",
    "id",
    "src-ip",
    "src-port",
    "dst-ip",
    "dst-port",
    "method",
    "path",
    "query",
    "version",
    "status",
    "headers",
    "body",
    "body-size",
    "body-complete",
    "exportRuleIDs",
    "detect-only",
];

/// Arguments of a message that is being read.
struct Arguments<'r, 'a> {
    reader: &'r mut Reader<'a>,
    count: u8,
}

#[derive(Clone, Copy)]
struct Argument<'a> {
    name: &'static str,
    value: Value<'a>,
}

impl<'a> Arguments<'_, 'a> {
    /// Reads all arguments. Gives those with a name that is read to `take`, and returns its first error.
    fn each(
        self,
        mut take: impl FnMut(Argument<'a>) -> Result<(), MessageError>,
    ) -> Result<Result<(), MessageError>, ConnectionError> {
        let mut result = Ok(());
        let mut seen = [false; NAMES.len()];
        for _ in 0..self.count {
            let (name, value) = (self.reader.string()?, self.reader.value()?);
            let Some(at) = NAMES.iter().position(|known| known.as_bytes() == name) else {
                continue;
            };
            let name = NAMES[at];
            if std::mem::replace(&mut seen[at], true) {
                result = result.and(Err(MessageError::Repeated(name)));
            }
            if result.is_ok() {
                result = take(Argument { name, value });
            }
        }
        Ok(result)
    }
}

impl<'a> Argument<'a> {
    /// Puts a value that is not null into its place.
    fn put<T>(
        self,
        place: &mut T,
        read: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Result<(), MessageError> {
        if self.value != Value::Null {
            *place = read(self.value).ok_or(MessageError::Invalid(self.name))?;
        }
        Ok(())
    }

    fn bytes(self, place: &mut &'a [u8]) -> Result<(), MessageError> {
        self.put(place, Value::bytes)
    }

    /// As [`bytes`](Self::bytes), for a place that tells an empty value from none.
    fn some_bytes(self, place: &mut Option<&'a [u8]>) -> Result<(), MessageError> {
        self.put(place, |value| value.bytes().map(Some))
    }

    fn ip(self, place: &mut Option<IpAddr>) -> Result<(), MessageError> {
        self.put(place, |value| match value {
            Value::Ip(ip) => Some(Some(ip)),
            _ => None,
        })
    }

    fn port(self, place: &mut u16) -> Result<(), MessageError> {
        self.put(place, |value| value.number()?.try_into().ok())
    }

    fn flag(self, place: &mut bool) -> Result<(), MessageError> {
        self.put(place, flag)
    }
}

fn flag(value: Value<'_>) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(value),
        // As HAProxy's variables have it.
        value => value.number().map(|number| number != 0),
    }
}

/// Variables of an acknowledgement, with the scope of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variables<'a> {
    /// `id` of the transaction, for the response. Empty: not set.
    pub id: &'a [u8],
    pub interruption: Option<Interruption<'a>>,
    pub matches: Option<Matches<'a>>,
}

/// `action`, `status`, `data` and `ruleid` of a message that is to be blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption<'a> {
    pub action: Action<'a>,
    pub status: u16,
    /// 0: no rule.
    pub rule: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    Deny,
    Drop,
    /// To this URL.
    Redirect(&'a [u8]),
}

/// `rules_hit`, `anomaly_score` and `rule_ids`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matches<'a> {
    pub rules: &'a [u64],
    pub score: i64,
}

/// Type of the action that sets a variable, its number of arguments, and the scope.
const SET_VARIABLE: [u8; 3] = [1, 3, 2];

impl Variables<'_> {
    /// Appends actions until the output has `end_max` bytes. A variable that does not fit is not set, except that a
    /// redirect without its URL denies, and identifiers of rules are cut.
    pub(crate) fn push(&self, end_max: usize, out: &mut Vec<u8>) {
        let mut set = |name: &str, value: Value<'_>| {
            let start = out.len();
            out.extend_from_slice(&SET_VARIABLE);
            push_named(name.as_bytes(), value, out);
            let fits = out.len() <= end_max;
            if !fits {
                out.truncate(start);
            }
            fits
        };
        if let Some(Interruption { action, status, rule }) = self.interruption {
            let action = match action {
                Action::Drop => "drop",
                Action::Redirect(url) if set("data", Value::String(url)) => "redirect",
                Action::Deny | Action::Redirect(_) => "deny",
            };
            set("action", Value::String(action.as_bytes()));
            set("status", Value::Int64(status.into()));
            set("ruleid", Value::Int64(rule.cast_signed()));
        }
        if !self.id.is_empty() {
            set("id", Value::String(self.id));
        }
        if let Some(Matches { rules, score }) = self.matches {
            set("rules_hit", Value::Int64(rules.len() as i64));
            set("anomaly_score", Value::Int64(score));
            let mut text = rules.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            while !set("rule_ids", Value::String(text.as_bytes())) {
                let Some(comma) = text.rfind(',') else { break };
                text.truncate(comma);
            }
        }
    }
}

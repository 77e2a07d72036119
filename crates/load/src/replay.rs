//! Replay of recorded traffic: which client sent which request, and the variables that responses set for later requests
//! of the same client.

use std::collections::HashMap;
use std::fmt;

use regex::bytes::Regex;
use serde_json::Value;
use tollgate_http1::{BodySearch, Pattern, RequestMessage};

use crate::failures::Error;
use crate::workload::Workload;

/// Limit of a body from which variables are extracted.
pub(crate) const EXTRACTED_BODY_BYTES_MAX: usize = 1 << 20;

/// Limit of the variables of a replay: each is searched in all requests.
pub const MAX_VARIABLES: usize = 100;

/// Limit of the value of a variable.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// Requests in their recorded order, with a session for each client. Their times are those of the rate of the plan: the
/// n-th request of a replay is the n-th of the schedule.
#[derive(Debug)]
pub struct Replay {
    pub(crate) events: Vec<ReplayEvent>,
    /// Number of requests of each session.
    pub(crate) requests: Vec<u32>,
    pub(crate) variables: Vec<Variable>,
    /// Variables by the request whose response sets them.
    set_by: HashMap<u32, Box<[usize]>>,
    /// Variables by the request that contains them.
    used_by: HashMap<u32, Box<[usize]>>,
    pace: Pace,
}

/// One request of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEvent {
    /// Number of the client, from 0 and below the number of events.
    pub session: u32,
    /// Index in the workload.
    pub request: u32,
}

/// Times of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The recorded ones, divided by a factor.
    Recorded { factor: f64 },
    /// Those of a rate.
    Rate,
}

/// Definition of a variable, `{{NAME}}` in later requests of the same session.
#[derive(Clone, Debug)]
pub struct ReplayVariable {
    pub name: String,
    /// Method and path without query of the requests whose responses set it.
    pub method: String,
    pub path: String,
    /// True for all paths that start with `path`.
    pub is_prefix: bool,
    pub source: ValueSource,
}

/// Place of a value in a response.
#[derive(Clone, Debug)]
pub enum ValueSource {
    /// Name of a header; the first one counts.
    Header(String),
    /// JSON pointer into the body, to a string, a number or a boolean.
    Json(String),
    /// First group of the first match in the body, or the match if there is no group.
    Regex(Box<Regex>),
}

#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// `{{NAME}}`.
    pub(crate) placeholder: Vec<u8>,
    pub(crate) source: ValueSource,
}

/// Returns the text in requests that stands for a variable.
pub(crate) fn placeholder(name: &str) -> Vec<u8> {
    format!("{{{{{name}}}}}").into_bytes()
}

impl Replay {
    /// Creates a replay of the requests of a workload.
    ///
    /// # Errors
    ///
    /// There is no event, or one with a request or a session that is out of range; too many variables; a variable that no
    /// response sets or no request contains.
    pub fn new(
        workload: &Workload,
        events: Vec<ReplayEvent>,
        variables: Vec<ReplayVariable>,
        pace: Pace,
    ) -> Result<Self, Error> {
        let error = |reason: String| Err(Error::Workload(format!("cannot replay: {reason}")));
        if events.is_empty() {
            return error("the recording has no request".to_owned());
        }
        let sessions = events.iter().map(|event| event.session as usize + 1).max().unwrap_or(0);
        let is_known = |event: &ReplayEvent| (event.request as usize) < workload.requests.len();
        if sessions > events.len() || !events.iter().all(is_known) {
            return error("an event has a session or a request that is out of range".to_owned());
        }
        if variables.len() > MAX_VARIABLES {
            let count = variables.len();
            return error(format!("{count} variables are more than {MAX_VARIABLES}; remove some"));
        }
        let mut requests = vec![0; sessions];
        events.iter().for_each(|event| requests[event.session as usize] += 1);
        let mut set_by: HashMap<u32, Vec<usize>> = HashMap::new();
        let mut used_by: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, variable) in variables.iter().enumerate() {
            let name = &variable.name;
            let placeholder = placeholder(name);
            let finder = Pattern::new(&placeholder);
            let (mut is_set, mut is_used) = (false, false);
            for (request, number) in workload.requests.iter().zip(0..) {
                if variable.is_set_by(&request.message) {
                    set_by.entry(number).or_default().push(index);
                    is_set = true;
                }
                if finder.as_ref().is_some_and(|pattern| contains(pattern, request.message.bytes()))
                {
                    used_by.entry(number).or_default().push(index);
                    is_used = true;
                }
            }
            if !is_set {
                let ReplayVariable { method, path, .. } = variable;
                return error(format!("no request matches `{method} {path}`, which sets `{name}`"));
            }
            if !is_used {
                return error(format!("no request contains {{{{{name}}}}}"));
            }
        }
        let boxed = |map: HashMap<u32, Vec<usize>>| {
            map.into_iter().map(|(request, indices)| (request, indices.into())).collect()
        };
        let variable = |variable: ReplayVariable| Variable {
            placeholder: placeholder(&variable.name),
            name: variable.name,
            source: variable.source,
        };
        Ok(Self {
            events,
            requests,
            variables: variables.into_iter().map(variable).collect(),
            set_by: boxed(set_by),
            used_by: boxed(used_by),
            pace,
        })
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// False: a replay has a request.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Position of the first event of a thread at or after `from`. Sessions are divided among the threads.
    pub(crate) fn next_of(&self, thread: usize, threads: usize, from: usize) -> Option<usize> {
        let rest = self.events.get(from..)?;
        let is_own = |event: &ReplayEvent| event.session as usize % threads == thread;
        rest.iter().position(is_own).map(|distance| from + distance)
    }

    /// Variables that the response to a request sets.
    pub(crate) fn set_by(&self, request: usize) -> &[usize] {
        self.set_by.get(&(request as u32)).map_or(&[], |indices| indices)
    }

    /// Variables that a request contains.
    pub(crate) fn used_by(&self, request: usize) -> &[usize] {
        self.used_by.get(&(request as u32)).map_or(&[], |indices| indices)
    }

    /// True if the body of the response to a request has a variable.
    pub(crate) fn needs_body(&self, request: usize) -> bool {
        let is_in_body =
            |index: &usize| !matches!(self.variables[*index].source, ValueSource::Header(_));
        self.set_by(request).iter().any(is_in_body)
    }
}

fn contains(pattern: &Pattern, bytes: &[u8]) -> bool {
    let mut search = BodySearch::default();
    search.feed(pattern, bytes);
    search.found()
}

impl ReplayVariable {
    fn is_set_by(&self, request: &RequestMessage) -> bool {
        let path = request.path();
        let is_path = if self.is_prefix { path.starts_with(&self.path) } else { path == self.path };
        is_path && request.method() == self.method
    }
}

impl Variable {
    /// Extracts the value from the headers and the body of a response.
    ///
    /// # Errors
    ///
    /// The reason, without the name of the variable.
    pub(crate) fn extract(&self, response: &Captured) -> Result<Box<str>, String> {
        let value = match &self.source {
            ValueSource::Header(name) => {
                let value = response.first(name);
                value.ok_or_else(|| format!("the response has no header {name}"))?.to_vec()
            }
            ValueSource::Json(pointer) => {
                let json: Value = serde_json::from_slice(response.body()?)
                    .map_err(|error| format!("the body is not JSON: {error}"))?;
                match json.pointer(pointer) {
                    Some(Value::String(text)) => text.clone().into_bytes(),
                    Some(value @ (Value::Number(_) | Value::Bool(_))) => {
                        value.to_string().into_bytes()
                    }
                    Some(_) => {
                        return Err(format!("`{pointer}` is not a string, number or boolean"));
                    }
                    None => return Err(format!("the body has no `{pointer}`")),
                }
            }
            ValueSource::Regex(regex) => {
                let captures = regex.captures(response.body()?);
                let captures = captures.ok_or("the regex does not match the body")?;
                let value = captures.get(1).or_else(|| captures.get(0));
                value.map_or(&b""[..], |value| value.as_bytes()).to_vec()
            }
        };
        let value = String::from_utf8(value).map_err(|error| format!("the value is {error}"))?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("the value is longer than {VALUE_BYTES_MAX} bytes"));
        }
        if value.contains(|c: char| c.is_control()) {
            return Err("the value has control characters".to_owned());
        }
        Ok(value.into())
    }
}

/// Parts of a response that a session needs.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) headers: Vec<(Box<str>, Box<[u8]>)>,
    /// `None` if no variable is in it.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) is_body_too_long: bool,
}

impl Captured {
    /// Values of the headers of this name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let of_name = move |(other, _): &&(Box<str>, _)| other.eq_ignore_ascii_case(name);
        self.headers.iter().filter(of_name).map(|(_, value)| &**value)
    }

    fn first(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    fn body(&self) -> Result<&[u8], String> {
        if self.is_body_too_long {
            return Err(format!("the body is longer than {EXTRACTED_BODY_BYTES_MAX} bytes"));
        }
        match self.first("content-encoding") {
            Some(coding) if !coding.eq_ignore_ascii_case(b"identity") => Err(format!(
                "the body has the coding {}; leave Accept-Encoding out of the requests",
                coding.escape_ascii()
            )),
            _ => Ok(self.body.as_deref().unwrap_or_default()),
        }
    }

    pub(crate) fn add_body(&mut self, piece: &[u8]) {
        if let Some(body) = &mut self.body {
            let room = EXTRACTED_BODY_BYTES_MAX - body.len();
            self.is_body_too_long |= piece.len() > room;
            body.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded { factor: 1.0 } => f.write_str("original"),
            Self::Recorded { factor } => write!(f, "x{factor}"),
            Self::Rate => f.write_str("rate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Request;

    fn workload(texts: &[&str]) -> Workload {
        Workload::new(texts.iter().map(|text| Request::parse(text)).collect(), vec![0]).unwrap()
    }

    fn variable(name: &str, method: &str, path: &str, source: ValueSource) -> ReplayVariable {
        let is_prefix = path.ends_with('*');
        ReplayVariable {
            name: name.to_owned(),
            method: method.to_owned(),
            path: path.trim_end_matches('*').to_owned(),
            is_prefix,
            source,
        }
    }

    fn event(session: u32, request: u32) -> ReplayEvent {
        ReplayEvent { session, request }
    }

    const PACE: Pace = Pace::Recorded { factor: 1.0 };

    #[test]
    fn variables_know_their_requests() {
        let workload = workload(&[
            "POST /login?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "GET /login HTTP/1.1\r\nHost: a\r\nX: {{t}}\r\n\r\n",
            "GET /items/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{{i}}{{t}}",
        ]);
        let variables = vec![
            variable("t", "POST", "/login", ValueSource::Header("X".to_owned())),
            variable("i", "GET", "/items/*", ValueSource::Json(String::new())),
        ];
        let events = vec![event(0, 0), event(1, 1), event(0, 2)];
        let replay = Replay::new(&workload, events, variables, PACE).unwrap();
        assert_eq!(
            (replay.set_by(0), replay.set_by(1), replay.set_by(2)),
            (&[0][..], &[][..], &[1][..])
        );
        assert_eq!(
            (replay.used_by(0), replay.used_by(1), replay.used_by(2)),
            (&[][..], &[0][..], &[0, 1][..])
        );
        assert!(!replay.needs_body(0) && replay.needs_body(2));
        assert_eq!(replay.requests, [2, 1]);
        let next = |thread, from| replay.next_of(thread, 2, from);
        assert_eq!(
            [next(0, 0), next(0, 1), next(0, 3), next(1, 0), next(1, 2)],
            [Some(0), Some(2), None, Some(1), None]
        );
    }

    #[test]
    fn invalid_replays_are_named() {
        let workload = workload(&["GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{{a}}"]);
        let header = || ValueSource::Header("X".to_owned());
        for (events, variables, reason) in [
            (vec![], vec![], "the recording has no request"),
            (vec![event(0, 1)], vec![], "out of range"),
            (vec![event(1, 0)], vec![], "out of range"),
            (
                vec![event(0, 0)],
                vec![variable("a", "GET", "/", header()); MAX_VARIABLES + 1],
                "101 variables are more than 100; remove some",
            ),
            (
                vec![event(0, 0)],
                vec![variable("a", "GET", "/b", header())],
                "no request matches `GET /b`, which sets `a`",
            ),
            (
                vec![event(0, 0)],
                vec![variable("b", "GET", "/", header())],
                "no request contains {{b}}",
            ),
        ] {
            let error = Replay::new(&workload, events, variables, PACE).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn values_are_extracted_or_the_reason_is_given() {
        let extract = |source: ValueSource, headers: &[(&str, &str)], body: &str| {
            let variable = Variable { name: String::new(), placeholder: Vec::new(), source };
            let mut captured = Captured { body: Some(Vec::new()), ..Captured::default() };
            let header = |(name, value): &(&str, &str)| ((*name).into(), value.as_bytes().into());
            captured.headers = headers.iter().map(header).collect();
            captured.add_body(body.as_bytes());
            variable.extract(&captured)
        };
        let header = || ValueSource::Header("x-token".to_owned());
        let json = |pointer: &str| ValueSource::Json(pointer.to_owned());
        let regex = |pattern: &str| ValueSource::Regex(Box::new(Regex::new(pattern).unwrap()));
        let found = |value: &str| Ok(value.into());
        assert_eq!(extract(header(), &[("X-Token", "a b"), ("x-token", "c")], ""), found("a b"));
        assert_eq!(extract(json("/a/1"), &[], r#"{"a":[0,"é"]}"#), found("é"));
        assert_eq!(extract(json("/a/0"), &[], r#"{"a":[7.5,true]}"#), found("7.5"));
        assert_eq!(extract(json(""), &[], "true"), found("true"));
        assert_eq!(
            extract(regex(r#"name="t" value="([^"]+)""#), &[], r#"<i name="t" value="x">"#),
            found("x")
        );
        assert_eq!(extract(regex("[0-9]+"), &[], "a12b"), found("12"));
        let long = "7".repeat(EXTRACTED_BODY_BYTES_MAX + 1);
        for (result, reason) in [
            (extract(header(), &[("X", "a")], ""), "the response has no header x-token"),
            (extract(header(), &[("X-Token", "a\tb")], ""), "the value has control characters"),
            (extract(json("/b"), &[], "{}"), "the body has no `/b`"),
            (extract(json("/b"), &[], r#"{"b":{}}"#), "`/b` is not a string, number or boolean"),
            (extract(json("/b"), &[], "<html>"), "the body is not JSON: expected value"),
            (
                extract(json("/b"), &[("Content-Encoding", "gzip")], ""),
                "the body has the coding gzip",
            ),
            (extract(json(""), &[], &long), "the body is longer than 1048576 bytes"),
            (extract(regex("7+"), &[], &long[..20_000]), "the value is longer than 16384 bytes"),
            (extract(regex("x"), &[], "y"), "the regex does not match the body"),
        ] {
            let error = result.unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}

//! Attacks that exclusions let through: payloads of the rule set's tests, placed where the exclusions apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_waf::{EngineMode, RuleSet};

use super::derive::{Judge, class, class_of_tags, is_cause, variable};
use crate::replay::{Request, header};

/// Limit of the examples of payloads that pass, and of one.
const EXAMPLES_MAX: usize = 5;
const EXAMPLE_CHARS_MAX: usize = 120;

/// Value of a test that rules match.
#[derive(Clone, Debug, Default)]
pub(super) struct Payload {
    pub(super) rules: BTreeSet<u64>,
    pub(super) classes: BTreeSet<String>,
}

/// Values of tests, with the rules that match them.
pub(super) type Payloads = BTreeMap<Vec<u8>, Payload>;

/// Outcome of placed payloads.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Placed {
    /// Payloads that the rules block at this place without exclusions.
    pub blocked: u64,
    /// Blocked payloads that pass with the exclusions.
    pub lost: u64,
    /// Payloads that cannot be sent in the variable, so that nothing is known of them.
    pub not_placed: u64,
    /// Some that pass.
    pub examples: Vec<String>,
}

/// Collects the values of the tests that rules match.
pub(super) fn payloads(judge: &mut Judge, tests: &[Request]) -> Payloads {
    let rules = Arc::clone(&judge.rules);
    let mut payloads = Payloads::new();
    for request in tests {
        judge.runs(&rules, request, EngineMode::DetectionOnly);
        for found in judge.transaction.matches().iter().filter(|found| is_cause(found)) {
            let sent = variable(found).and_then(|variable| sent_value(request, &variable));
            let value = sent.unwrap_or_else(|| found.value.clone());
            let payload = payloads.entry(value).or_default();
            payload.rules.insert(found.id);
            payload.classes.extend(class(&rules, found));
        }
    }
    payloads
}

/// Places the payloads of a rule, and of others of its class, into a variable of a request. They are lost if the rules block them,
/// and `after` do not.
pub(super) fn place(
    before: &mut Judge,
    mut passes_after: impl FnMut(&mut Judge, &Request) -> bool,
    payloads: &Payloads,
    (rule, variable): (u64, &str),
    example: &Request,
) -> Placed {
    let classes: BTreeSet<String> = class_of(&before.rules, rule).into_iter().collect();
    let mut placed = Placed::default();
    let concerns =
        |payload: &Payload| payload.rules.contains(&rule) || !payload.classes.is_disjoint(&classes);
    for (value, _) in payloads.iter().filter(|(_, payload)| concerns(payload)) {
        let Some(request) = with_value(example, variable, value) else {
            placed.not_placed += 1;
            continue;
        };
        if !before.blocks(&request) {
            continue;
        }
        placed.blocked += 1;
        if passes_after(before, &request) {
            placed.lost += 1;
            if placed.examples.len() < EXAMPLES_MAX {
                let text: String = value.escape_ascii().to_string();
                placed.examples.push(text.chars().take(EXAMPLE_CHARS_MAX).collect());
            }
        }
    }
    placed
}

/// Kind of attacks of a rule.
pub(super) fn class_of(rules: &RuleSet, id: u64) -> Option<String> {
    let rule = rules.rules().find(|rule| rule.id == id)?;
    class_of_tags(rule.tags)
}

/// Returns the value of a variable as the request has it, without transformations.
fn sent_value(request: &Request, variable: &str) -> Option<Vec<u8>> {
    let (collection, key) = variable.split_once(':')?;
    match collection {
        "ARGS" | "ARGS_GET" | "ARGS_POST" => {
            let query = request.target.splitn(2, |&byte| byte == b'?').nth(1).unwrap_or_default();
            let is_form = header(&request.headers, "content-type")
                .is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded"));
            let body = if is_form { &request.body[..] } else { &[] };
            [query, body].into_iter().find_map(|pairs| argument(pairs, key))
        }
        "REQUEST_HEADERS" => Some(header(&request.headers, key)?.to_vec()),
        "REQUEST_COOKIES" => {
            let cookies = header(&request.headers, "cookie")?;
            let mut pairs = cookies.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            pairs.find_map(|pair| {
                Some(pair.strip_prefix(key.as_bytes())?.strip_prefix(b"=")?.to_vec())
            })
        }
        _ => None,
    }
}

fn argument(pairs: &[u8], key: &str) -> Option<Vec<u8>> {
    let decoded = |text: &[u8]| {
        let spaced: Vec<u8> =
            text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        percent_decode(&spaced).collect::<Vec<u8>>()
    };
    pairs.split(|&byte| byte == b'&').find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        (decoded(&pair[..at]) == key.as_bytes()).then(|| decoded(&pair[at + 1..]))
    })
}

/// Returns a plain request for the path of the example, with the value in the variable. `None` if it cannot be sent there.
fn with_value(example: &Request, variable: &str, value: &[u8]) -> Option<Request> {
    let path = example.target.split(|&byte| byte == b'?').next()?.to_vec();
    let bytes = |text: &str| text.as_bytes().to_vec();
    let mut request = Request {
        method: example.method.clone(),
        target: path,
        protocol: bytes("HTTP/1.1"),
        headers: vec![
            (bytes("Host"), bytes("localhost")),
            (
                bytes("User-Agent"),
                bytes("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101"),
            ),
            (bytes("Accept"), bytes("*/*")),
        ],
        body: Vec::new(),
    };
    let encoded = |text: &[u8]| percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (collection, key) = variable.split_once(':')?;
    if request.method.is_empty() {
        request.method = bytes(if collection.contains("POST") { "POST" } else { "GET" });
    }
    let pair = match collection {
        "ARGS" | "ARGS_GET" | "ARGS_POST" => {
            format!("{}={}", encoded(key.as_bytes()), encoded(value))
        }
        "ARGS_NAMES" | "ARGS_GET_NAMES" | "ARGS_POST_NAMES" => format!("{}=1", encoded(value)),
        "REQUEST_COOKIES" => {
            request.headers.push((bytes("Cookie"), bytes(&format!("{key}={}", encoded(value)))));
            return Some(request);
        }
        "REQUEST_HEADERS" => {
            if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
                return None;
            }
            request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(key.as_bytes()));
            request.headers.push((bytes(key), value.to_vec()));
            return Some(request);
        }
        _ => return None,
    };
    let has_body = matches!(&request.method[..], b"POST" | b"PUT" | b"PATCH");
    if has_body && !collection.contains("GET") {
        request.headers.push((bytes("Content-Type"), bytes("application/x-www-form-urlencoded")));
        request.headers.push((bytes("Content-Length"), bytes(&pair.len().to_string())));
        request.body = pair.into_bytes();
    } else {
        request.target.push(b'?');
        request.target.extend_from_slice(pair.as_bytes());
    }
    Some(request)
}

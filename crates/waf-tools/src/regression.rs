//! Regression tests in the YAML format of go-ftw, as the Core Rule Set publishes them.
//!
//! A stage sends one request through the engine and a simulated backend, and compares the matching
//! rules, the log and the status. No network is used: [`is_malformed`] replaces the checks of the web
//! server in front of the engine that a test expects (`status: 400`).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use tollgate_waf::{Match, RuleSet, Transaction, Worker};

use crate::replay::{Request, Response, frame, is_malformed, parse_raw, run};

/// File of tests.
#[derive(Clone, Debug, Deserialize)]
pub struct TestFile {
    /// Rule under test.
    #[serde(default)]
    pub rule_id: u64,
    /// Tests.
    #[serde(default)]
    pub tests: Vec<Test>,
}

/// Test of one or more stages.
#[derive(Clone, Debug, Deserialize)]
pub struct Test {
    /// Number of the test in its file.
    pub test_id: u64,
    /// Description.
    #[serde(default)]
    pub desc: String,
    /// Stages, each one request.
    pub stages: Vec<TestStage>,
}

/// Request with the expected result.
#[derive(Clone, Debug, Deserialize)]
pub struct TestStage {
    input: Input,
    #[serde(default)]
    output: Output,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Input {
    method: Option<String>,
    uri: Option<String>,
    version: Option<String>,
    data: Option<String>,
    #[serde(default)]
    headers: Headers,
    encoded_request: Option<String>,
    autocomplete_headers: Option<bool>,
    stop_magic: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Output {
    status: Option<u16>,
    #[serde(default)]
    expect_error: bool,
    #[serde(default)]
    log: Log,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Log {
    #[serde(default)]
    expect_ids: Vec<u64>,
    #[serde(default)]
    no_expect_ids: Vec<u64>,
    match_regex: Option<String>,
    no_match_regex: Option<String>,
}

/// Headers in the order of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Members<Option<String>>")]
struct Headers(Vec<(String, String)>);

impl From<Members<Option<String>>> for Headers {
    fn from(Members(members): Members<Option<String>>) -> Self {
        let value = |(name, value): (_, Option<String>)| (name, value.unwrap_or_default());
        Self(members.into_iter().map(value).collect())
    }
}

/// Members of an object in their order, with each of those that have the same name.
#[derive(Debug)]
pub(crate) struct Members<V>(pub(crate) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Members<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Members<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<V>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

impl TestFile {
    /// Parses a file. A file without a document has no tests.
    ///
    /// # Errors
    ///
    /// The text is not YAML or does not have the format of go-ftw.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_content = |line: &str| {
            !line.trim_start().starts_with('#') && !line.trim().is_empty() && line.trim() != "---"
        };
        if !text.lines().any(is_content) {
            return Ok(Self { rule_id: 0, tests: Vec::new() });
        }
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }
}

impl Test {
    /// Runs all stages. `extra` rules such as `SecRuleEngine` belong in the rule set.
    ///
    /// # Errors
    ///
    /// The reason why a stage failed.
    pub fn run(&self, rules: &Arc<RuleSet>, worker: &mut Worker) -> Result<(), String> {
        self.stages.iter().try_for_each(|stage| stage.run(rules, worker))
    }
}

impl TestStage {
    /// Request of the stage.
    ///
    /// # Errors
    ///
    /// `encoded_request` is not Base64.
    pub fn request(&self) -> Result<Request, String> {
        self.input.request()
    }

    /// True if a rule is expected to match.
    pub fn expects_match(&self) -> bool {
        !self.output.log.expect_ids.is_empty() || self.output.log.match_regex.is_some()
    }

    fn run(&self, rules: &Arc<RuleSet>, worker: &mut Worker) -> Result<(), String> {
        let request = self.request()?;
        let mut transaction = Transaction::new(Arc::clone(rules));
        if (self.output.status.is_some() || self.output.expect_error) && is_malformed(&request) {
            return self.output.check(&transaction, 400);
        }
        let status = run(&mut transaction, worker, &request, &reflect(&request));
        self.output.check(&transaction, status)
    }
}

impl Input {
    fn request(&self) -> Result<Request, String> {
        if let Some(encoded) = &self.encoded_request {
            let compact: String = encoded.split_whitespace().collect();
            let raw = STANDARD
                .decode(compact)
                .map_err(|error| format!("cannot decode encoded_request: {error}"))?;
            return Ok(parse_raw(&raw));
        }
        let mut headers = self.headers.0.clone();
        let mut data = self.data.clone().unwrap_or_default();
        if self.autocomplete_headers.or(self.stop_magic.map(|stop| !stop)).unwrap_or(true) {
            complete(&mut headers, &mut data);
        }
        let bytes = |text: &str| text.as_bytes().to_vec();
        let mut request = Request {
            method: bytes(self.method.as_deref().unwrap_or("GET")),
            target: bytes(self.uri.as_deref().unwrap_or("/")),
            protocol: bytes(self.version.as_deref().unwrap_or("HTTP/1.1")),
            headers: headers
                .iter()
                .map(|(name, value)| (bytes(name), bytes(value.trim())))
                .collect(),
            body: data.into_bytes(),
        };
        frame(&mut request);
        Ok(request)
    }
}

/// Adds the headers that go-ftw adds, and encodes a form that is not encoded.
fn complete(headers: &mut Vec<(String, String)>, data: &mut String) {
    const FORM: &str = "application/x-www-form-urlencoded";
    let has = |headers: &[(String, String)], name: &str| {
        headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    };
    let mut add = |name: &str, value: String| {
        if !has(headers, name) {
            headers.push((name.to_owned(), value));
        }
    };
    if !data.is_empty() {
        add("Content-Type", FORM.to_owned());
    }
    add("Connection", "close".to_owned());
    let form = headers
        .iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("content-type") && value == FORM);
    if form && !data.contains(['%', '+', ';']) {
        *data = encode_form(data);
    }
    if !data.is_empty() && !has(headers, "content-length") && !has(headers, "transfer-encoding") {
        headers.push(("Content-Length".to_owned(), data.len().to_string()));
    }
}

/// Writes a form as Go's `url.Values.Encode` does: sorted by name, names and values escaped.
fn encode_form(data: &str) -> String {
    let mut pairs: Vec<(&str, &str)> = data
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_by_key(|(name, _)| *name);
    let escape = |text: &str| {
        let mut escaped = String::new();
        for byte in text.bytes() {
            match byte {
                b' ' => escaped.push('+'),
                b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(byte)),
                _ if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
                _ => escaped.push_str(&format!("%{byte:02X}")),
            }
        }
        escaped
    };
    pairs
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// Response of the simulated backend: `/reflect` sends the response that the request body describes.
pub fn reflect(request: &Request) -> Response {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Described {
        status: Option<u16>,
        headers: Headers,
        body: String,
        encoded_body: Option<String>,
    }
    let mut response = Response { status: 200, headers: Vec::new(), body: Vec::new() };
    if request.target.starts_with(b"/reflect")
        && let Ok(text) = std::str::from_utf8(&request.body)
        && let Ok(described) = serde_saphyr::from_str::<Described>(text)
    {
        response.status = described.status.unwrap_or(200);
        response.headers = described
            .headers
            .0
            .into_iter()
            .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
            .collect();
        let decoded = described.encoded_body.and_then(|encoded| STANDARD.decode(encoded).ok());
        response.body = decoded.unwrap_or_else(|| described.body.into_bytes());
    }
    if !response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"content-type")) {
        response.headers.push((b"Content-Type".to_vec(), b"text/plain; charset=utf-8".to_vec()));
    }
    response
}

impl Output {
    fn check(&self, transaction: &Transaction, status: u16) -> Result<(), String> {
        let logged: Vec<&Match> = transaction.matches().iter().filter(|m| m.logged).collect();
        let ids: Vec<u64> = logged.iter().map(|m| m.id).collect();
        if let Some(expected) = self.status
            && expected != status
        {
            return Err(format!("expected status {expected}, got {status}; matched {ids:?}"));
        }
        if self.expect_error && status < 400 {
            return Err(format!("expected an error, got status {status}"));
        }
        if self.expect_error {
            return Ok(());
        }
        if let Some(id) = self.log.expect_ids.iter().find(|id| !ids.contains(id)) {
            return Err(format!("expected rule {id}, matched {ids:?}"));
        }
        if let Some(id) = self.log.no_expect_ids.iter().find(|id| ids.contains(id)) {
            return Err(format!("unexpected rule {id}, matched {ids:?}"));
        }
        let log = logged.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        for (pattern, expected) in
            [(&self.log.match_regex, true), (&self.log.no_match_regex, false)]
        {
            let Some(pattern) = pattern else { continue };
            let regex = regex::RegexBuilder::new(pattern)
                .multi_line(true)
                .dot_matches_new_line(true)
                .build();
            let regex = regex.map_err(|error| format!("{pattern}: {error}"))?;
            if regex.is_match(&log) != expected {
                let verb = if expected { "does not match" } else { "matches" };
                return Err(format!("log {verb} \"{pattern}\": {log}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
meta: {author: x}
rule_id: 7
tests:
  - test_id: 1
    stages:
      - input:
          headers: {Host: localhost, X-Number: 5}
          uri: "/?a=b"
        output: {log: {expect_ids: [7]}}
      - input: {method: POST, headers: {Host: localhost}, data: "z=<&a=b c"}
        output: {log: {no_expect_ids: [7]}, status: 200}
"#;

    #[test]
    fn stages_become_requests_as_go_ftw_sends_them() {
        let file = TestFile::parse(FILE).unwrap_or_else(|e| panic!("{e}"));
        let request = file.tests[0].stages[1].request().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(request.body, b"a=b+c&z=%3C");
        let names: Vec<_> = request
            .headers
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
            .collect();
        assert_eq!(names, ["Host", "Content-Type", "Connection", "Content-Length"]);
    }

    #[test]
    fn expectations_are_checked() {
        let file = TestFile::parse(FILE).unwrap_or_else(|e| panic!("{e}"));
        let verdict = |text: &str| {
            let rules = Arc::new(
                RuleSet::builder().text("t.conf", text).build().unwrap_or_else(|e| panic!("{e}")),
            );
            file.tests[0].run(&rules, &mut Worker::plain())
        };
        let rule = "SecRuleEngine On\nSecRule ARGS_GET b \"id:7,phase:1,pass\"";
        assert_eq!(verdict(rule), Ok(()));
        assert!(verdict("SecRuleEngine On").unwrap_err().starts_with("expected rule 7"));
        assert!(
            verdict(&rule.replace("ARGS_GET b", "REQUEST_METHOD ."))
                .unwrap_err()
                .starts_with("unexpected rule 7")
        );
    }
}

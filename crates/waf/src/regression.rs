//! Regression tests in the YAML format of go-ftw, as the Core Rule Set publishes them.
//!
//! A stage sends one request through the engine and through a pretended backend, and compares the
//! rules that matched, the log and the status. No network is used: the checks of a web server in
//! front of the engine that a test expects (`status: 400`) are those of [`is_malformed`].

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::transaction::{Connection, Transaction, Worker};
use crate::{Match, RuleSet};

/// File of tests.
#[derive(Clone, Debug, Deserialize)]
pub struct TestFile {
    /// Rule that the tests are about.
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
    pub stages: Vec<Stage>,
}

/// Request with the expected result.
#[derive(Clone, Debug, Deserialize)]
pub struct Stage {
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
#[derive(Clone, Debug, Default)]
struct Headers(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("headers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Option<String>>()? {
                    headers.push((name, value.unwrap_or_default()));
                }
                Ok(Headers(headers))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Request as a client sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Method.
    pub method: Vec<u8>,
    /// Request target.
    pub target: Vec<u8>,
    /// Protocol, such as `HTTP/1.1`.
    pub protocol: Vec<u8>,
    /// Headers in order.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Body without a transfer coding.
    pub body: Vec<u8>,
}

/// Response as a backend sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// Headers in order.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Body.
    pub body: Vec<u8>,
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

impl Stage {
    /// Request of the stage.
    ///
    /// # Errors
    ///
    /// `encoded_request` is not Base64.
    pub fn request(&self) -> Result<Request, String> {
        self.input.request()
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

/// Splits a raw request; lines may end in LF alone.
pub fn parse_raw(raw: &[u8]) -> Request {
    let mut rest = raw;
    let mut next_line = || -> Option<&[u8]> {
        let end = memchr::memchr(b'\n', rest)?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    };
    let line = next_line().unwrap_or_default();
    let mut words = line.splitn(3, |&b| b == b' ');
    let mut word = || words.next().unwrap_or_default().to_vec();
    let (method, target, protocol) = (word(), word(), word());
    let mut headers: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while let Some(line) = next_line().filter(|line| !line.is_empty()) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
        headers.push((line[..colon].to_vec(), value.to_vec()));
    }
    let mut request = Request { method, target, protocol, headers, body: rest.to_vec() };
    frame(&mut request);
    request
}

/// Splits a raw response; lines may end in LF alone.
pub fn parse_raw_response(raw: &[u8]) -> Response {
    // The parts of a status line stand where a request line has its method and target.
    let start = raw.iter().position(|&byte| byte == b'\n').map_or(raw.len(), |end| end + 1);
    let parsed = parse_raw(raw);
    let status = std::str::from_utf8(&parsed.target).ok().and_then(|text| text.parse().ok());
    let body = memchr::memmem::find(raw, b"\r\n\r\n").map_or(start, |end| end + 4);
    let chunked = parsed.header("transfer-encoding").is_some();
    let body = if chunked { parsed.body.clone() } else { raw[body..].to_vec() };
    Response { status: status.unwrap_or(200), headers: parsed.headers, body }
}

/// Reads the body as a web server does (RFC 9112, section 6.3): the chunked coding overrides the
/// length and removes it, and a request with neither has no body.
fn frame(request: &mut Request) {
    let chunked = request
        .header("transfer-encoding")
        .is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    if chunked {
        request.body = dechunk(&request.body);
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(b"content-length"));
        return;
    }
    let length = request
        .header("content-length")
        .map(|text| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()));
    request.body.truncate(length.map_or(0, |length| length.unwrap_or(usize::MAX)));
}

impl Request {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value.as_slice())
    }
}

/// Decodes the chunked coding as far as it is well-formed.
fn dechunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = rest[..end].trim_ascii();
        let digits = line.split(|&b| b == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let Some(size @ 1..) = size else { break };
        let chunk = &rest[end + 1..];
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        rest = chunk.get(size..).unwrap_or_default();
        rest = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")).unwrap_or(rest);
    }
    body
}

/// True if a web server answers 400 in place of the engine.
pub fn is_malformed(request: &Request) -> bool {
    let target = &request.target;
    let method_is_token =
        !request.method.is_empty() && request.method.iter().all(u8::is_ascii_uppercase);
    let origin_form =
        target.starts_with(b"/") && !target.iter().any(|b| *b <= b' ' || *b == b'#' || *b == b'<');
    let target_is_valid = match request.method.as_slice() {
        b"CONNECT" => target
            .iter()
            .rposition(|&b| b == b':')
            .is_some_and(|colon| target[colon + 1..].iter().all(u8::is_ascii_digit)),
        _ => {
            origin_form
                || target.as_slice() == b"*"
                || target.starts_with(b"http://")
                || target.starts_with(b"https://")
        }
    };
    let protocol_is_valid = matches!(request.protocol.as_slice(), b"HTTP/1.0" | b"HTTP/1.1");
    let headers_are_valid = request.headers.iter().all(|(name, value)| {
        !name.is_empty()
            && name.iter().all(|b| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(b))
            && !value.iter().any(|b| matches!(b, 0 | b'\n' | b'\r'))
    });
    let length_is_valid = request
        .header("content-length")
        .is_none_or(|length| !length.is_empty() && length.iter().all(u8::is_ascii_digit));
    let host_is_valid = request
        .header("host")
        .map_or(request.protocol == b"HTTP/1.0", |host| !host.is_empty() && !host.contains(&b'%'));
    !(method_is_token
        && target_is_valid
        && protocol_is_valid
        && headers_are_valid
        && length_is_valid
        && host_is_valid)
}

/// Response of the pretended backend: `/reflect` sends what the body of the request describes.
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

/// Runs a request and its response through all phases, and returns the status for the client.
pub fn run(
    transaction: &mut Transaction,
    worker: &mut Worker,
    request: &Request,
    response: &Response,
) -> u16 {
    run_request(transaction, worker, request);
    if transaction.intervention().is_none() {
        transaction.response_line(b"HTTP/1.1", response.status);
        for (name, value) in &response.headers {
            transaction.response_header(name, value);
        }
        transaction.process_response_headers(worker);
        transaction.append_response_body(&response.body);
        transaction.process_response_body(worker);
    }
    transaction.process_logging(worker);
    transaction.intervention().map_or(response.status, |intervention| intervention.status)
}

/// Runs a request through the phases of requests.
pub fn run_request(transaction: &mut Transaction, worker: &mut Worker, request: &Request) {
    transaction.connection(&Connection {
        client: "127.0.0.1",
        client_port: 33_333,
        server: "127.0.0.1",
        server_port: 80,
    });
    transaction.unique_id("166000000000.000001");
    transaction.request_line(&request.method, &request.target, &request.protocol);
    for (name, value) in &request.headers {
        transaction.request_header(name, value);
    }
    if transaction.process_request_headers(worker).is_none() {
        transaction.append_request_body(&request.body);
        transaction.process_request_body(worker);
    }
}

/// Changes parts of a request: bytes, cases, encodings, lengths. `random` returns a number below its argument.
pub fn mutate(request: &Request, random: &mut impl FnMut(usize) -> usize) -> Request {
    const PIECES: [&[u8]; 18] = [
        b"",
        b"'",
        b"\"",
        b" ",
        b"%",
        b"%27",
        b"+",
        b"<",
        b"&",
        b"&lt;",
        b"\\",
        b"\\u0027",
        b"\0",
        b"\xc3\xa9",
        b"/**/",
        b"(",
        b";",
        b"=",
    ];
    let mut request = request.clone();
    for _ in 0..=random(3) {
        let part = match random(6) {
            0 => &mut request.body,
            1 if !request.headers.is_empty() => {
                let header = random(request.headers.len());
                &mut request.headers[header].1
            }
            _ => &mut request.target,
        };
        let at = random(part.len() + 1);
        let end = (at + random(4)).min(part.len());
        match random(5) {
            0 => part[at..end].make_ascii_uppercase(),
            1 => part.truncate(at.max(1)),
            2 => {
                let encoded: Vec<u8> = part[at..end]
                    .iter()
                    .flat_map(|byte| format!("%{byte:02x}").into_bytes())
                    .collect();
                part.splice(at..end, encoded);
            }
            _ => {
                part.splice(at..end, PIECES[random(PIECES.len())].iter().copied());
            }
        }
    }
    // No web server passes on a zero byte in the target.
    request.target.retain(|&byte| byte != 0);
    request
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
            let regex = crate::regex::compile(pattern)?;
            if regex.is_match(log.as_bytes()) != expected {
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

    #[test]
    fn raw_requests_and_chunks() {
        let request = parse_raw(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n");
        assert_eq!(
            (request.target.as_slice(), request.body.as_slice()),
            (b"/x".as_slice(), b"abcde".as_slice())
        );
        assert!(!is_malformed(&request));
    }
}

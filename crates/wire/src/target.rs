//! The target of a request: which of its forms it has (RFC 9112, section 3.2).

use crate::error::ParseError;
use crate::framing::{excerpt, host};

/// The target of a request in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Whom it is for, if it says: it begins with a scheme then, or it is that of a CONNECT.
    pub authority: Option<&'a str>,
    /// Path and query, as sent: empty where a target with a scheme ends before; `*` as it is.
    pub path_and_query: &'a str,
}

impl<'a> Target<'a> {
    /// Tells the parts of `text` apart, which has been parsed as the target of such a request.
    ///
    /// # Errors
    ///
    /// It is in none of the forms that such a request may have, or what it says of a host is none.
    pub fn read(method: &str, text: &'a str) -> Result<Self, ParseError> {
        // Most have this form.
        if text.starts_with('/') {
            return Ok(Self { authority: None, path_and_query: text });
        }
        let fault = || ParseError::Target(excerpt(text.as_bytes()));
        let (authority, path_and_query) = match after_scheme(text) {
            Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
            None if text == "*" && method == "OPTIONS" => {
                return Ok(Self { authority: None, path_and_query: text });
            }
            None if method == "CONNECT" => (text, ""),
            None => return Err(fault()),
        };
        // RFC 9110, section 4.2.1: one with a scheme needs a host.
        if authority.is_empty() || authority.starts_with(':') || host(authority.as_bytes()).is_err()
        {
            return Err(fault());
        }
        Ok(Self { authority: Some(authority), path_and_query })
    }
}

/// What follows `http://` or `https://`, in capitals or not.
fn after_scheme(text: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let (found, rest) = text.split_at_checked(scheme.len())?;
        found.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_told_apart() {
        for (method, text, authority, path_and_query) in [
            ("GET", "/", None, "/"),
            ("GET", "//a?b", None, "//a?b"),
            ("PUT", "http://localhost", Some("localhost"), ""),
            ("GET", "HTTP://b/method", Some("b"), "/method"),
            ("GET", "hTTps://a:80?x/y", Some("a:80"), "?x/y"),
            ("GET", "http://[::1]:8/a//b", Some("[::1]:8"), "/a//b"),
            ("OPTIONS", "*", None, "*"),
            ("CONNECT", "a:443", Some("a:443"), ""),
        ] {
            let target = Target { authority, path_and_query };
            assert_eq!(Target::read(method, text), Ok(target), "{method} {text}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for (method, text) in [
            ("GET", "*"),
            ("OPTIONS", "*a"),
            ("GET", "a"),
            ("GET", "a/b"),
            ("GET", "?a"),
            ("GET", "a:80"),
            ("GET", "ftp://a/"),
            ("GET", "http:/a"),
            ("GET", "http:"),
            ("GET", "http://"),
            ("GET", "http:///a"),
            ("GET", "http://:80/a"),
            ("GET", "http://a@b/"),
            ("GET", "http://a\\b/"),
            ("GET", "htt\u{e9}://a/"),
            ("CONNECT", "a/b"),
        ] {
            let fault = ParseError::Target(excerpt(text.as_bytes()));
            assert_eq!(Target::read(method, text), Err(fault), "{method} {text}");
        }
    }
}

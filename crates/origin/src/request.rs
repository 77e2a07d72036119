//! A request, as the endpoints see it.

use tollgate_wire::{Headers, RequestHead};

use crate::refusal::{Allowed, Refusal};

/// A request, without its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Query<'a>,
    /// Whom it is for, if the client said; never empty.
    pub(crate) host: Option<&'a str>,
    pub(crate) headers: Headers<'a>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(head: &RequestHead<'a>) -> Self {
        let (path, query) = split(head.target_parts.path_and_query);
        Self {
            method: head.method,
            path,
            query: Query(query),
            // RFC 9112, section 3.2.2: what the target says counts.
            host: head.target_parts.authority.or(head.host).filter(|host| !host.is_empty()),
            headers: head.headers,
        }
    }
}

/// The arguments of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// The value of the first argument of this name; empty for one that has none. As it was sent:
    /// nothing that is asked for needs percent-encoding.
    pub(crate) fn get(self, name: &str) -> Option<&'a str> {
        self.0.split('&').find_map(|argument| {
            let (found, value) = argument.split_once('=').unwrap_or((argument, ""));
            (found == name).then_some(value)
        })
    }

    /// A whole number.
    ///
    /// # Errors
    ///
    /// It is no number, or not within `min` and `max`.
    pub(crate) fn bytes(
        self,
        name: &'static str,
        default: u64,
        min: u64,
        max: u64,
    ) -> Result<u64, Refusal<'a>> {
        self.whole(name, default, min, max, Allowed::Bytes { min, max })
    }

    /// The same, of what is not bytes.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Self::bytes).
    pub(crate) fn whole(
        self,
        name: &'static str,
        default: u64,
        min: u64,
        max: u64,
        allowed: Allowed,
    ) -> Result<u64, Refusal<'a>> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        let refusal = |is_too_large| Refusal::Parameter { name, value, allowed, is_too_large };
        // `parse` alone would take a sign too.
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refusal(false));
        }
        // What does not fit in 64 bits is too large as well.
        match value.parse() {
            Ok(number) if number < min => Err(refusal(false)),
            Ok(number) if number <= max => Ok(number),
            _ => Err(refusal(true)),
        }
    }

    /// A decimal fraction, such as `0.25`: digits, and if need be a point and digits.
    ///
    /// # Errors
    ///
    /// It is none, or larger than `max`.
    pub(crate) fn fraction(
        self,
        name: &'static str,
        default: f64,
        max: f64,
        allowed: Allowed,
    ) -> Result<f64, Refusal<'a>> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        let refusal = |is_too_large| Refusal::Parameter { name, value, allowed, is_too_large };
        let (whole, decimals) = value.split_once('.').unwrap_or((value, "0"));
        let is_digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse::<f64>() {
            Ok(number) if is_digits(whole) && is_digits(decimals) => {
                if number <= max {
                    Ok(number)
                } else {
                    Err(refusal(true))
                }
            }
            _ => Err(refusal(false)),
        }
    }
}

/// Path and query of a target; the path of one without any is `/`.
fn split(path_and_query: &str) -> (&str, &str) {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    (if path.is_empty() { "/" } else { path }, query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_split() {
        for (target, parts) in [
            ("/", ("/", "")),
            ("/?", ("/", "")),
            ("/foo/bar?payload=abc", ("/foo/bar", "payload=abc")),
            ("/foo?a?b", ("/foo", "a?b")),
            ("//?payload=5", ("//", "payload=5")),
            ("", ("/", "")),
            ("?a=b", ("/", "a=b")),
            ("*", ("*", "")),
        ] {
            assert_eq!(split(target), parts, "{target}");
        }
    }

    #[test]
    fn arguments_are_found_by_their_whole_name_and_the_first_counts() {
        let query = Query("q=size=5&xsize=1&flag&size=2&size=3&empty=");
        assert_eq!(query.get("size"), Some("2"));
        assert_eq!((query.get("flag"), query.get("empty")), (Some(""), Some("")));
        assert_eq!(query.get("siz"), None);
    }

    #[test]
    fn whole_numbers_have_digits_only_and_limits() {
        let size = |query| Query(query).bytes("size", 7, 1, 100);
        assert_eq!((size(""), size("size=1"), size("size=0100")), (Ok(7), Ok(1), Ok(100)));
        for value in ["", "abc", "-1", "+1", "1.5", "1e3", "0x10", " 1", "0"] {
            let query = format!("size={value}");
            let refused = Query(&query).bytes("size", 7, 1, 100).unwrap_err();
            assert!(matches!(refused, Refusal::Parameter { is_too_large: false, .. }), "{value}");
        }
        for query in ["size=101", "size=99999999999999999999999"] {
            assert!(matches!(size(query), Err(Refusal::Parameter { is_too_large: true, .. })));
        }
    }

    #[test]
    fn fractions_have_digits_on_both_sides_of_the_point() {
        let time = |query| Query(query).fraction("time", 1.0, 60.0, Allowed::Seconds { max: 60 });
        for (query, number) in
            [("", 1.0), ("time=0", 0.0), ("time=0.25", 0.25), ("time=60.0", 60.0)]
        {
            assert_eq!(time(query), Ok(number), "{query}");
        }
        for query in
            ["time", "time=", "time=-1", "time=.5", "time=5.", "time=1e1", "time=inf", "time=NaN"]
        {
            assert!(
                matches!(time(query), Err(Refusal::Parameter { is_too_large: false, .. })),
                "{query}"
            );
        }
        for query in ["time=60.000001", "time=999999999999999999999999999999"] {
            assert!(
                matches!(time(query), Err(Refusal::Parameter { is_too_large: true, .. })),
                "{query}"
            );
        }
    }
}

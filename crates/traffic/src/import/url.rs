//! URLs of recorded requests, byte for byte.

use std::borrow::Cow;

/// Parts of a URL that a request needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url<'a> {
    pub(super) user: Option<&'a str>,
    /// Host, and port if the URL has one.
    pub(super) host: &'a str,
    /// Path and query.
    pub(super) target: Cow<'a, str>,
}

impl<'a> Url<'a> {
    /// Splits a URL of http or https, byte for byte. The scheme may be missing.
    pub(super) fn parse(url: &'a str) -> Option<Self> {
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
                let is_http = ["http", "https"].iter().any(|one| scheme.eq_ignore_ascii_case(one));
                is_http.then_some(rest)?
            }
            _ if ["data:", "blob:", "about:", "file:"].iter().any(|one| url.starts_with(one)) => {
                return None;
            }
            _ => url,
        };
        let rest = rest.split('#').next()?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let target = match target.as_bytes().first() {
            None => Cow::Borrowed("/"),
            Some(b'?') => Cow::Owned(format!("/{target}")),
            Some(_) => Cow::Borrowed(target),
        };
        (!host.is_empty()).then_some(Self { user, host, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_byte_for_byte() {
        let parts = |url| Url::parse(url).map(|url| (url.user, url.host, url.target.into_owned()));
        let target = |text: &str| text.to_owned();
        assert_eq!(
            parts("https://u:p@a:8/b/../c?d=%27#e"),
            Some((Some("u:p"), "a:8", target("/b/../c?d=%27")))
        );
        assert_eq!(parts("a?x=http://b/"), Some((None, "a", target("/?x=http://b/"))));
        assert_eq!(parts("HTTP://[::1]"), Some((None, "[::1]", target("/"))));
        for other in ["ws://a/", "data:text/html,a", "http:///a", ""] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}

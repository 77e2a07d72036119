//! Requests of a recording.

use std::borrow::Cow;

use super::time::LogTime;
use crate::file::Class;

/// Headers that belong to the recorded connection, or are made when a request is sent.
pub(super) const CONNECTION_HEADERS: [&str; 8] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// A request of a recording, with the response that it got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    pub method: String,
    /// Target in origin form: path and query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Status code of the response, if known.
    pub status: Option<u16>,
    /// Length of the body of the response as sent, if known.
    pub body_bytes: Option<u64>,
    /// `Content-Type` of the response, if known.
    pub content_type: Option<String>,
    /// True if the request had a body that the recording does not contain, or not to its end.
    pub lacks_body: bool,
    /// Time of the request, if known.
    pub time: Option<LogTime>,
    /// Client whose requests are one session, such as its address. Kept as a number.
    pub client: Option<String>,
}

/// Name and class of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Name of the template; by default method and status.
    pub name: Option<String>,
    pub class: Class,
    pub family: Option<String>,
    pub open: bool,
    /// True if the requests are public, so that nothing is masked.
    pub is_public: bool,
}

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

//! URLs of servers that may be loaded: this machine, and hosts that the user allows.

use http::Uri;
use http::uri::InvalidUri;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::num::ParseIntError;
use std::time::Duration;
use thiserror::Error;

/// A URL of http or https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// URL as given, with its scheme.
    pub url: String,
    pub is_tls: bool,
    /// Name or address, without brackets.
    pub hostname: String,
    /// Port of the URL, or 80 or 443.
    pub port: u16,
    /// Host header: host, and port if the URL has one.
    pub host: String,
    /// Path and query, as sent.
    pub path: String,
}

#[derive(Debug, Error)]
pub enum UrlError {
    #[error("invalid URL `{url}`")]
    Syntax { url: String, source: InvalidUri },
    #[error("invalid URL `{url}`: {reason}")]
    Part { url: String, reason: String },
    #[error("invalid URL `{url}`: the port must be at most 65535")]
    Port { url: String, source: ParseIntError },
    #[error("cannot resolve host `{hostname}`")]
    Resolve { hostname: String, source: io::Error },
    #[error("cannot resolve host `{hostname}`: it has no address")]
    NoAddress { hostname: String },
    #[error(
        "cannot load `{hostname}`: not this machine; if you may load it, add --allow-host {hostname}"
    )]
    NotAllowed { hostname: String },
}

impl ServerUrl {
    /// Parses a URL, whose scheme may be missing, as in curl and other clients.
    ///
    /// # Errors
    ///
    /// The URL is not valid, has another scheme, or has a part that is not sent: a user or a fragment.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let part = |reason: String| UrlError::Part { url: url.clone(), reason };
        let uri: Uri = url.parse().map_err(|source| {
            // The last two are valid in a path or a query.
            match [' ', '<', '>', '"', '`'].into_iter().find(|character| url.contains(*character)) {
                Some(found) => part(format!("write %{:02X} for `{found}`", u32::from(found))),
                None => UrlError::Syntax { url: url.clone(), source },
            }
        })?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            other => {
                let other = other.unwrap_or_default();
                return Err(part(format!("scheme {other} is not supported, use http or https")));
            }
        };
        if let Some((_, fragment)) = url.split_once('#') {
            return Err(part(format!("remove `#{fragment}`, fragments are never sent")));
        }
        let authority = uri.authority().ok_or_else(|| part("no host".to_owned()))?;
        if let Some((user, _)) = authority.as_str().rsplit_once('@') {
            // The password is not shown.
            let url = url.replacen(user, "...", 1);
            let reason = "user and password are not supported; with `tollgate load`, use -H 'Authorization: Basic ...'";
            return Err(UrlError::Part { url, reason: reason.to_owned() });
        }
        let host = authority.host();
        // `Authority::port` ignores a number that is too large.
        let after_host = authority.as_str().strip_prefix(host).unwrap_or_default();
        let port = match after_host.strip_prefix(':') {
            None | Some("") if is_tls => 443,
            None | Some("") => 80,
            Some(digits) => {
                digits.parse().map_err(|source| UrlError::Port { url: url.clone(), source })?
            }
        };
        Ok(Self {
            is_tls,
            hostname: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            host: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            url,
        })
    }

    /// Returns the address of a server that may be loaded: this machine, or a host in `allowed`. Of several, that is the
    /// first to which a connection can be opened: `localhost` may have an address of IPv6, on which many servers do not
    /// listen.
    ///
    /// # Errors
    ///
    /// The host has no address, or may not be loaded.
    pub fn resolve(&self, allowed: &[String]) -> Result<SocketAddr, UrlError> {
        let hostname = || self.hostname.clone();
        let addresses: Vec<SocketAddr> = (self.hostname.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|source| UrlError::Resolve { hostname: hostname(), source })?
            .collect();
        if addresses.is_empty() {
            return Err(UrlError::NoAddress { hostname: hostname() });
        }
        let without_brackets = |name: &String| name.trim_matches(['[', ']']).to_owned();
        let mut allowed = allowed.iter().map(without_brackets);
        let is_allowed = allowed.any(|name| name.eq_ignore_ascii_case(&self.hostname));
        // The unspecified address connects to this machine.
        let is_local =
            |address: &SocketAddr| address.ip().is_loopback() || address.ip().is_unspecified();
        let may_load = |address: &SocketAddr| is_allowed || is_local(address);
        let permitted: Vec<SocketAddr> = addresses.into_iter().filter(may_load).collect();
        first_open(&permitted).ok_or_else(|| UrlError::NotAllowed { hostname: hostname() })
    }
}

/// Time limit of the connection that chooses between several addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the only address, or the first to which a connection can be opened, or the first.
fn first_open(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let is_open =
        |address: &&SocketAddr| TcpStream::connect_timeout(address, CONNECT_TIMEOUT).is_ok();
    let open = if addresses.len() > 1 { addresses.iter().find(is_open) } else { None };
    open.or(addresses.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn ports_are_those_behind_the_host() {
        for (url, hostname, port) in [
            ("http://0:8080/", "0", 8080),
            ("http://8:8", "8", 8),
            ("http://[::1]:81", "::1", 81),
            ("http://a", "a", 80),
            ("https://a:/", "a", 443),
        ] {
            let url = ServerUrl::parse(url).unwrap();
            assert_eq!((url.hostname.as_str(), url.port), (hostname, port));
        }
    }

    #[test]
    fn address_with_a_listener_is_preferred() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = SocketAddr::from(([127, 0, 0, 2], open.port()));
        assert_eq!(first_open(&[closed, open]), Some(open));
        assert_eq!(first_open(&[open, closed]), Some(open));
        drop(listener);
        assert_eq!(first_open(&[closed, open]), Some(closed));
        assert_eq!(first_open(&[]), None);
    }

    #[test]
    fn characters_to_encode_are_named() {
        for (url, reason) in
            [("http://a/b c", "write %20 for ` `"), ("a/?q=\"b\"", "write %22 for `\"`")]
        {
            let error = ServerUrl::parse(url).unwrap_err().to_string();
            assert!(error.ends_with(reason), "{error}");
        }
        assert_eq!(ServerUrl::parse("a/\"?q=`{|}").unwrap().path, "/\"?q=`{|}");
    }

    #[test]
    fn passwords_are_not_shown() {
        let error = ServerUrl::parse("http://me:secret@a/").unwrap_err().to_string();
        assert!(error.starts_with("invalid URL `http://...@a/`: user and password"), "{error}");
    }

    #[test]
    fn allowed_addresses_may_have_brackets() {
        let url = ServerUrl::parse("http://[2001:db8::1]:80").unwrap();
        assert!(url.resolve(&[]).is_err());
        assert!(url.resolve(&["[2001:db8::1]".to_owned()]).is_ok());
    }
}

//! Where load goes: a URL, checked against the rule that load stays on this machine.

use anyhow::{Context, Result, bail};
use http::Uri;
use std::net::{SocketAddr, ToSocketAddrs};
use tollgate_wire::RequestText;

/// A server that may be sent load.
#[derive(Debug)]
pub(crate) struct Target {
    /// The URL as it was given.
    pub(crate) url: String,
    /// Where its host is.
    pub(crate) address: SocketAddr,
    host: String,
    path: String,
}

impl Target {
    /// Reads a URL. Its host has to be this machine, or one that was allowed by name.
    ///
    /// # Errors
    ///
    /// It is not an http URL, its host is not known, or load may not be sent there.
    pub(crate) fn parse(url: &str, allowed: &[String]) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => bail!("`{url}`: only http is spoken here, not {other}"),
            None => bail!("`{url}` does not say how: write http://{url}"),
        }
        let authority = uri.authority().context("the URL names no host")?;
        let host = authority.host();
        // `Authority::port` says of a number that is too large that there is none.
        let after_host = authority.as_str().rsplit_once(host).map_or("", |(_, rest)| rest);
        let port = match after_host.strip_prefix(':') {
            None | Some("") => 80,
            Some(digits) => digits
                .parse()
                .with_context(|| format!("`{url}`: the port has to be a number up to 65535"))?,
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address = (bare, port)
            .to_socket_addrs()
            .with_context(|| format!("looking up the host of `{url}`"))?
            .next()
            .with_context(|| format!("the host of `{url}` has no address"))?;
        let allowed = allowed.iter().any(|name| name.eq_ignore_ascii_case(bare));
        if !address.ip().is_loopback() && !allowed {
            bail!(
                "{bare} is not this machine; load is sent elsewhere only with --allow-host {bare}, and only where you may"
            );
        }
        Ok(Self {
            url: url.to_owned(),
            address,
            host: authority.as_str().rsplit('@').next().unwrap_or(host).to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// The bytes of one request.
    ///
    /// # Errors
    ///
    /// A header cannot be sent.
    pub(crate) fn request(&self, given: &[(String, String)], keep_alive: bool) -> Result<Vec<u8>> {
        let is_given = |name: &str| given.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut headers = Vec::new();
        for (name, value) in [("Host", self.host.as_str()), ("User-Agent", USER_AGENT)] {
            if !is_given(name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
        let given =
            given.iter().filter(|(name, _)| keep_alive || !name.eq_ignore_ascii_case("connection"));
        headers.extend(given.cloned());
        if !keep_alive {
            headers.push(("Connection".to_owned(), "close".to_owned()));
        }
        let request =
            RequestText { method: "GET", target: &self.path, headers: &headers, body: &[] };
        request.render().context("making the request")
    }
}

const USER_AGENT: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        format!("{:#}", Target::parse(url, &[]).unwrap_err())
    }

    #[test]
    fn the_path_is_sent_byte_for_byte() {
        let target = Target::parse("http://127.0.0.1:8000/a/../b?x=%27&y=..", &[]).unwrap();
        let request = String::from_utf8(target.request(&[], true).unwrap()).unwrap();
        assert!(
            request.starts_with("GET /a/../b?x=%27&y=.. HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n"),
            "{request}"
        );
        assert_eq!(target.address, "127.0.0.1:8000".parse().unwrap());
    }

    #[test]
    fn headers_replace_the_defaults_and_close_replaces_keep_alive() {
        let target = Target::parse("http://[::1]/", &[]).unwrap();
        let given = [("host", "shop.example"), ("Connection", "keep-alive")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = String::from_utf8(target.request(&given, false).unwrap()).unwrap();
        assert_eq!(request.matches("ost: ").count(), 1, "{request}");
        assert!(request.ends_with("Connection: close\r\n\r\n"), "{request}");
        assert!(!request.contains("keep-alive"), "{request}");
    }

    #[test]
    fn load_stays_on_this_machine_unless_a_host_is_allowed() {
        assert!(refused("http://192.0.2.1/").contains("--allow-host 192.0.2.1"));
        assert!(Target::parse("http://192.0.2.1/", &["192.0.2.1".to_owned()]).is_ok());
        assert!(refused("http://127.0.0.1:99999/").contains("up to 65535"));
        assert!(refused("https://127.0.0.1/").contains("only http"));
        assert!(refused("127.0.0.1:80").contains("write http://127.0.0.1:80"));
    }
}

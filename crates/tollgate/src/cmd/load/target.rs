//! Where load goes: a URL, checked against the rule that load stays on this machine.

use anyhow::{Context, Result, bail};
use http::Uri;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use tollgate_load::Target as Address;

/// A server that may be sent load.
#[derive(Debug)]
pub(crate) struct Target {
    /// The URL as it was given.
    pub(crate) url: String,
    /// What is connected to.
    pub(crate) address: Address,
    /// The URL's host, without its port.
    pub(crate) hostname: String,
    /// The URL's port, or 80.
    pub(crate) port: u16,
    /// What the Host header says: the host, with the port where the URL gives one.
    pub(crate) host: String,
    /// The path and the query, as they are sent.
    pub(crate) path: String,
}

impl Target {
    /// Reads a URL. Its host has to be this machine, or one that was allowed by name. With a
    /// `unix_socket` the host is only a name, because the socket is on this machine.
    ///
    /// # Errors
    ///
    /// It is not an http URL, has a part that is not sent, its host is not known, load may not be
    /// sent there, or there is no such socket.
    pub(crate) fn parse(url: &str, unix_socket: Option<&Path>, allowed: &[String]) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => bail!("`{url}`: only http is spoken here, not {other}"),
            None => bail!("`{url}` does not say how: write http://{url}"),
        }
        if let Some((_, fragment)) = url.split_once('#') {
            bail!("`{url}`: leave out `#{fragment}`, which is for browsers and never sent");
        }
        let authority = uri.authority().context("the URL names no host")?;
        if authority.as_str().contains('@') {
            bail!(
                "`{url}`: a user and password are not sent from the URL; give them as -H 'Authorization: Basic ...'"
            );
        }
        let host = authority.host();
        // `Authority::port` says of a number that is too large that there is none.
        let after_host = authority.as_str().rsplit_once(host).map_or("", |(_, rest)| rest);
        let port = match after_host.strip_prefix(':') {
            None | Some("") => 80,
            Some(digits) => digits
                .parse()
                .with_context(|| format!("`{url}`: the port has to be a number up to 65535"))?,
        };
        let hostname = host.trim_start_matches('[').trim_end_matches(']');
        let address = match unix_socket {
            Some(path) => Address::Unix(socket(path)?.to_owned()),
            None => Address::Tcp(permitted(url, hostname, port, allowed)?),
        };
        Ok(Self {
            url: url.to_owned(),
            address,
            hostname: hostname.to_owned(),
            port,
            host: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

/// The path of a unix-domain socket, which has to be there.
fn socket(path: &Path) -> Result<&Path> {
    let metadata = path.metadata().with_context(|| format!("--unix-socket {}", path.display()))?;
    if !metadata.file_type().is_socket() {
        bail!("--unix-socket {}: this is not a socket", path.display());
    }
    Ok(path)
}

/// The address of a host that may be sent load.
fn permitted(url: &str, hostname: &str, port: u16, allowed: &[String]) -> Result<SocketAddr> {
    let address = (hostname, port)
        .to_socket_addrs()
        .with_context(|| format!("looking up the host of `{url}`"))?
        .next()
        .with_context(|| format!("the host of `{url}` has no address"))?;
    let is_allowed = allowed.iter().any(|name| name.eq_ignore_ascii_case(hostname));
    if !address.ip().is_loopback() && !is_allowed {
        bail!(
            "{hostname} is not this machine; load is sent elsewhere only with --allow-host {hostname}, and only where you may"
        );
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn refused(url: &str) -> String {
        format!("{:#}", Target::parse(url, None, &[]).unwrap_err())
    }

    #[test]
    fn the_path_stays_as_it_is_and_the_port_is_80_by_default() {
        let target = Target::parse("http://127.0.0.1:8000/a/../b?x=%27&y=..", None, &[]).unwrap();
        assert_eq!(target.path, "/a/../b?x=%27&y=..");
        assert_eq!((target.host.as_str(), target.port), ("127.0.0.1:8000", 8000));
        assert_eq!(target.address, Address::Tcp("127.0.0.1:8000".parse().unwrap()));
        let target = Target::parse("http://[::1]", None, &[]).unwrap();
        assert_eq!((target.host.as_str(), target.hostname.as_str()), ("[::1]", "::1"));
        assert_eq!((target.path.as_str(), target.port), ("/", 80));
    }

    #[test]
    fn behind_a_unix_socket_the_host_is_only_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.sock");
        let parse = || Target::parse("http://shop.invalid/a", Some(&path), &[]);
        assert!(
            format!("{:#}", parse().unwrap_err())
                .ends_with("shop.sock: No such file or directory (os error 2)")
        );
        std::fs::write(&path, "").unwrap();
        assert!(format!("{:#}", parse().unwrap_err()).ends_with("this is not a socket"));
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        let target = parse().unwrap();
        assert_eq!(target.address, Address::Unix(path.clone()));
        assert_eq!(target.host, "shop.invalid");
    }

    #[test]
    fn what_would_not_be_sent_is_refused() {
        assert!(refused("http://u:p@127.0.0.1/").contains("-H 'Authorization: Basic ...'"));
        assert!(refused("http://127.0.0.1/a#top").contains("leave out `#top`"));
    }

    #[test]
    fn load_stays_on_this_machine_unless_a_host_is_allowed() {
        assert!(refused("http://192.0.2.1/").contains("--allow-host 192.0.2.1"));
        assert!(Target::parse("http://192.0.2.1/", None, &["192.0.2.1".to_owned()]).is_ok());
        assert!(refused("http://127.0.0.1:99999/").contains("up to 65535"));
        assert!(refused("https://127.0.0.1/").contains("only http"));
        assert!(refused("127.0.0.1:80").contains("write http://127.0.0.1:80"));
    }
}

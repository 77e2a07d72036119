//! TLS of `tollgate load`: trust, and the protocol that a server chooses.

use super::args::{Args, Tls, Version};
use super::request::Target;
use anyhow::{Context, Result, bail};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tollgate_load::{Protocol, Target as Address};
use tollgate_tls::{ClientOptions, TlsClient, TlsVersion, Trust};

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Returns the protocol, and the sessions of a URL with https. Makes one handshake before the load, so that a
/// certificate that is not accepted is an error and not a failure of every request.
pub(super) fn negotiate(args: &Args, target: &Target) -> Result<(Protocol, Option<TlsClient>)> {
    let version = args.version();
    if !target.is_tls {
        let options = [
            ("--cacert", args.cacert.is_some()),
            ("--cert", args.cert.is_some()),
            ("--insecure", args.insecure),
            ("--tls", args.tls.is_some()),
            ("--tls-resume", args.tls_resume),
        ];
        if let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) {
            bail!("{option} needs a URL with https");
        }
        return Ok((args.protocol(version)?, None));
    }
    let offered: &[&[u8]] = match version {
        Version::Http1 => &[HTTP1],
        Version::Http2 => &[HTTP2],
        Version::Auto => &[HTTP2, HTTP1],
    };
    let client = client(args, target, offered)?;
    let chosen = match handshake(&client, &target.address, args.connect_timeout) {
        Ok(chosen) => chosen,
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            let advice = match error.to_string().contains("certificate") {
                true => "; name its authority by --cacert FILE, or accept any by --insecure",
                false => "",
            };
            bail!("cannot load {}: {error}{advice}", target.url);
        }
        // The load reports a server that cannot be reached.
        Err(_) if version != Version::Auto => None,
        Err(error) => {
            return Err(error).with_context(|| {
                format!("cannot ask {} for its version of HTTP; name it by --http", target.url)
            });
        }
    };
    let version = match (version, chosen.as_deref()) {
        (Version::Auto, Some(HTTP2)) => Version::Http2,
        (Version::Auto, _) => Version::Http1,
        (version, _) => version,
    };
    let only: &[&[u8]] = if version == Version::Http2 { &[HTTP2] } else { &[HTTP1] };
    Ok((args.protocol(version)?, Some(self::client(args, target, only)?)))
}

fn client(args: &Args, target: &Target, protocols: &[&[u8]]) -> Result<TlsClient> {
    let trust = match &args.cacert {
        Some(path) => Trust::File(path),
        None if args.insecure => Trust::All,
        None => Trust::System,
    };
    let file = |path: &Path| path.display().to_string();
    let identity = args.cert.as_deref().zip(args.key.as_deref());
    let options = ClientOptions {
        trust,
        name: &target.hostname,
        identity,
        version: args.tls.map(|version| match version {
            Tls::Tls12 => TlsVersion::Tls12,
            Tls::Tls13 => TlsVersion::Tls13,
        }),
        resume: args.tls_resume,
        protocols,
    };
    TlsClient::new(&options).with_context(|| match (trust, identity) {
        (Trust::File(path), None) => format!("--cacert {}", file(path)),
        (_, Some((cert, key))) => format!("--cert {} --key {}", file(cert), file(key)),
        _ => format!("cannot load {}", target.url),
    })
}

/// Returns the protocol that the server chooses.
fn handshake(
    client: &TlsClient,
    address: &Address,
    timeout: Duration,
) -> io::Result<Option<Vec<u8>>> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            client.handshake(stream)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            client.handshake(stream)
        }
    }
}

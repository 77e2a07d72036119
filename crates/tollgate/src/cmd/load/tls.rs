//! TLS of `tollgate load`: trust, and the protocol that a server chooses.

use super::args::{Args, Tls, Version};
use super::request::Target;
use crate::console::Failure;
use anyhow::{Result, anyhow, bail};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_load::{Plan, Target as Address};
use tollgate_tls::{
    ClientError, ClientOptions, Rejection, TlsClient, TlsVersion, Trust, certificate_rejection,
    describe_failure,
};
use tollgate_traffic::load_shape::Protocol;

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Checks that no option for TLS is given without it.
pub(super) fn check_scheme(args: &Args, target: &Target) -> Result<()> {
    let options = [
        ("--cacert", args.cacert.is_some()),
        ("--cert", args.cert.is_some()),
        ("--handshakes", args.handshakes),
        ("--insecure", args.insecure),
        ("--tls", args.tls.is_some()),
        ("--tls-resume", args.tls_resume),
    ];
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) if !target.server.is_tls => bail!("{option} needs a URL with https"),
        _ => Ok(()),
    }
}

/// Sets TLS and the protocol of a plan for an https URL. Makes one handshake before the load, so that a certificate that
/// is not accepted is an error and not a failure of every request.
pub(super) fn negotiate(args: &Args, target: &Target, plan: &mut Plan) -> Result<(), Failure> {
    if !target.server.is_tls {
        return Ok(());
    }
    let version = args.version();
    let offered: &[&[u8]] = match version {
        Version::Http1 => &[HTTP1],
        Version::Http2 => &[HTTP2],
        Version::Auto if args.needs_http1() => &[HTTP1],
        Version::Auto => &[HTTP2, HTTP1],
    };
    let client = client(args, target, offered).map_err(Failure::bad_input)?;
    // Without requests, the load could not tell handshakes that the server rejects later.
    let awaits_end = args.handshakes;
    let reached = match handshake(&client, &target.address, args.connect_timeout, awaits_end) {
        Ok(chosen) => Some(chosen),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            let error = anyhow!(
                "cannot load {}: {}{}",
                target.server.url,
                describe_failure(&error),
                advice(args, &error)
            );
            return Err(Failure::bad_input(error));
        }
        // The load reports a server that cannot be reached.
        Err(_) if version != Version::Auto => None,
        Err(error) => {
            let url = &target.server.url;
            let negotiating = format!("cannot negotiate the HTTP version with {url}");
            return Err(anyhow!(error).context(negotiating).into());
        }
    };
    let version = match (version, reached) {
        (Version::Http2, Some(chosen)) if chosen.as_deref() != Some(HTTP2) => {
            let url = &target.server.url;
            let reason = anyhow!("{url} does not offer HTTP/2 (h2) by ALPN; use --http 1.1");
            return Err(Failure::bad_input(reason));
        }
        (Version::Auto, Some(Some(chosen))) if chosen == HTTP2 => Version::Http2,
        (Version::Auto, _) => Version::Http1,
        (version, _) => version,
    };
    plan.clients.protocol = args.protocol(version).map_err(Failure::bad_input)?;
    let only = alpn(plan.clients.protocol).as_bytes();
    plan.tls = Some(self::client(args, target, &[only]).map_err(Failure::bad_input)?);
    plan.validate()?;
    Ok(())
}

/// Name of a protocol in ALPN.
pub(super) fn alpn(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http1 { .. } | Protocol::Http1Close | Protocol::Handshakes => "http/1.1",
        Protocol::Http2 { .. } => "h2",
    }
}

/// Returns what to do about a failed handshake.
fn advice(args: &Args, error: &io::Error) -> &'static str {
    let text = error.to_string();
    match certificate_rejection(error) {
        Some(Rejection::Untrusted) if !args.insecure => {
            "; trust it or its authority with --cacert FILE, or skip the check with --insecure"
        }
        Some(Rejection::NameOrTime) => "; to skip the check, use --insecure",
        _ if text.contains("NoApplicationProtocol") => "; use another --http",
        _ if text.contains("InvalidContentType") => "; the server does not speak TLS: use http://",
        _ => "",
    }
}

/// Returns the certificates to accept: by the authorities in a file, any, or by those of the system.
pub(super) fn trust(cacert: Option<PathBuf>, insecure: bool) -> Trust {
    match cacert {
        Some(path) => Trust::File(path),
        None if insecure => Trust::All,
        None => Trust::System,
    }
}

fn client(args: &Args, target: &Target, protocols: &[&[u8]]) -> Result<TlsClient> {
    let trust = trust(args.cacert.clone(), args.insecure);
    let options = ClientOptions {
        trust: &trust,
        name: &target.server.hostname,
        identity: args.cert.as_deref().zip(args.key.as_deref()),
        version: args.tls.map(|version| match version {
            Tls::Tls12 => TlsVersion::Tls12,
            Tls::Tls13 => TlsVersion::Tls13,
        }),
        resume: args.tls_resume,
        protocols,
    };
    TlsClient::new(&options).map_err(|error| {
        let about = match (&error, &trust, options.identity) {
            (ClientError::Identity(_), _, Some((cert, key))) => {
                format!("--cert {} --key {}", cert.display(), key.display())
            }
            (ClientError::Authorities(_) | ClientError::Authority(_), Trust::File(path), _) => {
                format!("--cacert {}", path.display())
            }
            _ => format!("cannot load {}", target.server.url),
        };
        anyhow!(error).context(about)
    })
}

/// Returns the protocol that the server chooses.
fn handshake(
    client: &TlsClient,
    address: &Address,
    timeout: Duration,
    awaits_end: bool,
) -> io::Result<Option<Vec<u8>>> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            client.handshake(stream, awaits_end)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            client.handshake(stream, awaits_end)
        }
    }
}

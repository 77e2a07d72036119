//! One request on its own connection, for readiness checks and the probe.

use crate::process::Interrupt;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tollgate_http1::{
    BodySearch, HeadFaults, Pattern, RequestText, Response, ResponseHeadCache, ResponseScanner,
    Scan,
};
use tollgate_http2::{Connection, Event, Fields, Limits, ResetCause, Role};
use tollgate_load::{Expectation, Http2Head, Request};
use tollgate_tls::{ClientOptions, TlsClient, Trust};
use tollgate_traffic::load_shape::CaseProtocol;

/// A server: address, protocol and, over TLS, its name and the certificates that clients trust.
#[derive(Debug, Clone)]
pub struct Site {
    pub address: SocketAddr,
    pub protocol: CaseProtocol,
    pub name: String,
    pub trust: Trust,
}

impl Site {
    /// HTTP/1.1 in the clear.
    pub fn plain(address: SocketAddr) -> Self {
        Self::own(address, CaseProtocol::H1, PathBuf::new())
    }

    /// A server that is started with this certificate.
    pub(crate) fn own(address: SocketAddr, protocol: CaseProtocol, certificate: PathBuf) -> Self {
        let name = SERVER_NAME.to_owned();
        Self { address, protocol, name, trust: Trust::File(certificate) }
    }

    /// Returns the client of its TLS, or `None` in the clear.
    pub(crate) fn tls(&self, resume: bool) -> anyhow::Result<Option<TlsClient>> {
        if !self.protocol.is_tls() {
            return Ok(None);
        }
        let protocol: &[u8] = if self.protocol.is_http2() { b"h2" } else { b"http/1.1" };
        let options = ClientOptions {
            trust: &self.trust,
            name: &self.name,
            identity: None,
            version: None,
            resume,
            protocols: &[protocol],
        };
        TlsClient::new(&options).map(Some).with_context(|| match &self.trust {
            Trust::File(path) => format!("cannot use TLS with {}", path.display()),
            Trust::System | Trust::All => "cannot use TLS".to_owned(),
        })
    }
}

/// Name in the certificates of systems, which clients send.
pub(crate) const SERVER_NAME: &str = "localhost";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) response: Response,
    /// True if the body contains the text that the request expects, or the request expects none.
    pub(crate) has_text: bool,
}

/// Adds "cannot `action` `address`" to an error of the connection. Other errors of an exchange have no [`io::Error`].
fn failed(action: &'static str, address: SocketAddr) -> impl Fn(io::Error) -> anyhow::Error {
    move |error| anyhow::Error::from(error).context(format!("cannot {action} {address}"))
}

/// Sends a request and waits for the complete response. The error may be [`Interrupted`].
///
/// [`Interrupted`]: crate::process::Interrupted
pub(crate) fn exchange(
    site: &Site,
    request: &Request,
    timeout: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<Reply> {
    exchange_with_body(site, request, timeout, interrupt, 0).map(|(reply, _)| reply)
}

/// As [`exchange`]; also returns the first `max_bytes` of the response body.
pub(crate) fn exchange_with_body(
    site: &Site,
    request: &Request,
    timeout: Duration,
    interrupt: &Interrupt,
    max_bytes: usize,
) -> anyhow::Result<(Reply, Vec<u8>)> {
    let address = site.address;
    let deadline = Instant::now() + timeout;
    let failed = |action| failed(action, address);
    let socket = TcpStream::connect_timeout(&address, timeout).map_err(failed("connect to"))?;
    socket.set_write_timeout(Some(timeout)).map_err(failed("send to"))?;
    socket.set_read_timeout(Some(timeout)).map_err(failed("read from"))?;
    let control = socket.try_clone().map_err(failed("read from"))?;
    let mut stream: Box<dyn Stream> = match site.tls(false)? {
        None => Box::new(socket),
        Some(client) => Box::new(client.stream(socket).map_err(failed("agree on TLS with"))?),
    };
    let mut read = |stream: &mut dyn Stream, bytes: &mut [u8]| loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("no response from {address} within {} s", timeout.as_secs());
        }
        interrupt.check()?;
        control.set_read_timeout(Some(left.min(CHECK_INTERVAL))).map_err(failed("read from"))?;
        match stream.read(bytes).map_err(|error| (error.kind(), error)) {
            Ok(count) => return Ok(count),
            // The deadline and the interrupt are checked above.
            Err((ErrorKind::WouldBlock | ErrorKind::Interrupted, _)) => {}
            Err((_, error)) => return Err(failed("read from")(error)),
        }
    };
    if site.protocol.is_http2() {
        exchange_http2(site, &mut *stream, request, max_bytes, &mut read)
    } else {
        exchange_http1(address, &mut *stream, request, max_bytes, &mut read)
    }
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Reads into a buffer within the time limit.
type ReadFn<'a> = dyn FnMut(&mut dyn Stream, &mut [u8]) -> anyhow::Result<usize> + 'a;

fn exchange_http1(
    address: SocketAddr,
    stream: &mut dyn Stream,
    request: &Request,
    max_bytes: usize,
    read: &mut ReadFn<'_>,
) -> anyhow::Result<(Reply, Vec<u8>)> {
    let mut body = Vec::new();
    let malformed = || format!("malformed response from {address}");
    let sent = stream.write_all(request.message.bytes()).map_err(|error| (error.kind(), error));
    let send_error = match sent {
        Ok(()) => None,
        // The server closed before the end of the request. It may have sent a response before.
        Err((ErrorKind::BrokenPipe | ErrorKind::ConnectionReset, error)) => Some(error),
        Err((_, error)) => return Err(failed("send to", address)(error)),
    };
    let mut scanner = ResponseScanner::default();
    let mut heads = ResponseHeadCache::default();
    let pattern = request.expect.body_contains.as_deref().and_then(Pattern::new);
    let mut search = BodySearch::default();
    let mut bytes = vec![0; READ_BYTES];
    let response = loop {
        let read = match read(stream, &mut bytes) {
            Ok(0) => {
                break match (scanner.close().with_context(malformed)?, send_error) {
                    (Some(response), _) => response,
                    (None, Some(error)) => return Err(failed("send to", address)(error)),
                    (None, None) => bail!("{address} closed the connection without a response"),
                };
            }
            Ok(read) => read,
            // The first error is the cause.
            Err(error) => {
                return Err(match send_error {
                    Some(first) if error.is::<io::Error>() => failed("send to", address)(first),
                    _ => error,
                });
            }
        };
        let scan = scanner.feed(&bytes[..read], request.message.is_head(), &mut heads, |piece| {
            if let Some(pattern) = &pattern {
                search.feed(pattern, piece);
            }
            body.extend_from_slice(&piece[..piece.len().min(max_bytes - body.len())]);
        });
        match scan.with_context(malformed)? {
            Scan::Complete { response, .. } => break response,
            Scan::Partial => {}
        }
    };
    Ok((Reply { response, has_text: pattern.is_none() || search.found() }, body))
}

fn exchange_http2(
    site: &Site,
    stream: &mut dyn Stream,
    request: &Request,
    max_bytes: usize,
    read: &mut ReadFn<'_>,
) -> anyhow::Result<(Reply, Vec<u8>)> {
    let address = site.address;
    let head = Http2Head::new(&request.message);
    let scheme: &[u8] = if site.protocol.is_tls() { b"https" } else { b"http" };
    let mut out = Vec::new();
    let mut framing = Connection::new(Role::Client, Limits::default(), Instant::now(), &mut out);
    let mut rest = request.message.body();
    // A new connection accepts a stream.
    let id = framing.send_request(head.fields(scheme), rest.is_empty(), 0, &mut out);
    let id = id.unwrap_or_default();
    let pattern = request.expect.body_contains.as_deref().and_then(Pattern::new);
    let mut search = BodySearch::default();
    let mut fields = Fields::default();
    let faults = HeadFaults::default();
    let mut response = Response { status: 0, body_bytes: 0, keep_alive: true, faults };
    let mut body = Vec::new();
    let mut bytes = vec![0; READ_BYTES];
    loop {
        if !rest.is_empty() {
            // A server that has responded accepts no more.
            let sent = framing.send_data(id, rest, true, &mut out).unwrap_or(rest.len());
            rest = &rest[sent..];
        }
        stream.write_all(&out).map_err(failed("send to", address))?;
        out.clear();
        let count = read(stream, &mut bytes)?;
        if count == 0 {
            bail!("{address} closed the connection without a response");
        }
        let mut input = &bytes[..count];
        loop {
            let event = framing.receive(&mut input, &mut fields, &mut out, Instant::now());
            let event = event.with_context(|| format!("malformed HTTP/2 from {address}"))?;
            let is_complete = match event {
                None => break,
                Some(Event::Response { status, end_stream, .. }) => {
                    response.status = status;
                    end_stream
                }
                Some(Event::Data { stream, data, end_stream, .. }) => {
                    response.body_bytes += data.len() as u64;
                    if let Some(pattern) = &pattern {
                        search.feed(pattern, data);
                    }
                    body.extend_from_slice(&data[..data.len().min(max_bytes - body.len())]);
                    framing.credit(stream, data.len(), &mut out);
                    end_stream
                }
                Some(Event::Trailers { .. }) => true,
                Some(Event::Reset { cause, .. }) => {
                    let code = match cause {
                        ResetCause::Peer(code) => code,
                        ResetCause::Error(error) => error.code(),
                    };
                    bail!("{address} reset the stream: {code}");
                }
                Some(_) => false,
            };
            if is_complete {
                let has_text = pattern.is_none() || search.found();
                return Ok((Reply { response, has_text }, body));
            }
        }
    }
}

/// Returns a GET without expectations, which closes the connection.
pub(crate) fn get(path: &str, host: SocketAddr) -> anyhow::Result<Request> {
    get_with(path, host, &BTreeMap::new())
}

/// As [`get`], with further headers.
pub(crate) fn get_with(
    path: &str,
    host: SocketAddr,
    further: &BTreeMap<String, String>,
) -> anyhow::Result<Request> {
    let host = host.to_string();
    let own = [("Host", &*host), ("Connection", "close")];
    let further = further.iter().map(|(name, value)| (&**name, &**value));
    let headers: Vec<(&str, &str)> = own.into_iter().chain(further).collect();
    let text = RequestText { method: "GET", target: path, headers: &headers, body: b"" };
    let message = text.render().with_context(|| format!("cannot request `{path}`"))?;
    Ok(Request { message, expect: Expectation::default(), template: 0 })
}

const READ_BYTES: usize = 16 * 1024;
/// Interval between checks of the interrupt.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::Arc;

    /// Sends a request to a server that responds with these bytes.
    fn reply(response: &'static [u8], text: Option<&[u8]>) -> Reply {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let expect = Expectation { body_contains: text.map(Arc::from), ..Expectation::default() };
        let request = Request { expect, ..get("/", address).unwrap() };
        let mut received = vec![0; request.message.bytes().len()];
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut received).unwrap();
            stream.write_all(response).unwrap();
        });
        let site = Site::plain(address);
        let reply = exchange(&site, &request, Duration::from_secs(10), &Interrupt::default());
        server.join().unwrap();
        reply.unwrap()
    }

    /// Sends a large body to a server that reads only its begin, runs `server`, and closes.
    fn early_close(server: impl FnOnce(&mut TcpStream) + Send + 'static) -> Result<u16, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            stream.read_exact(&mut request).unwrap();
            server(&mut stream);
        });
        // More than the socket buffers hold.
        let body = vec![b'a'; 32 << 20];
        let text =
            RequestText { method: "POST", target: "/", headers: &[("Host", "a")], body: &body };
        let message = text.render().unwrap();
        let request = Request { message, expect: Expectation::default(), template: 0 };
        let site = Site::plain(address);
        let reply = exchange(&site, &request, Duration::from_secs(30), &Interrupt::default());
        server.join().unwrap();
        reply.map(|reply| reply.response.status).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_response_sent_before_the_end_of_the_request() {
        let response = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(early_close(|stream| stream.write_all(response).unwrap()), Ok(413));
        let error = early_close(|_| {}).unwrap_err();
        assert!(error.starts_with("cannot send to 127.0.0.1:"), "{error}");
    }

    #[test]
    fn searches_the_decoded_body() {
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwel\r\n4\r\ncome\r\n0\r\n\r\n";
        let until_close = b"HTTP/1.1 404 Not Found\r\n\r\nwelcome";
        assert!(reply(chunked, Some(b"welcome")).has_text);
        assert!(!reply(chunked, Some(b"chunked")).has_text);
        assert!(reply(chunked, None).has_text);
        assert!(reply(until_close, Some(b"come")).has_text);
        let Reply { response, has_text } = reply(until_close, Some(b"Found"));
        assert_eq!((response.status, response.body_bytes, has_text), (404, 7, false));
    }
}

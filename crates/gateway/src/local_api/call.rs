//! A request to the local API, over a connection of its own and within a time limit.

use std::io;
use std::net::ToSocketAddrs as _;
use std::time::{Duration, Instant};

use tollgate_http1::{ParseError, ResponseHeadCache, ResponseScanner, Scan};
use tollgate_net::{Address, Events, Interest, Poller, SendBuffer};
use tollgate_tls::{Received, Transport, describe_failure};

use crate::config::{ApiAddress, LocalApi};

/// Longest body of a response.
const BODY_BYTES_MAX: usize = 64 << 10;

const READ_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("cannot resolve its name: {0}")]
    Name(#[source] io::Error),
    #[error("the connection failed: {}", describe_failure(.0))]
    Connection(#[from] io::Error),
    #[error("the connection was closed without a response")]
    Closed,
    #[error("invalid response: {0}")]
    Response(#[from] ParseError),
    #[error("a response of more than 64 KiB")]
    TooLong,
    #[error("no response in time")]
    Timeout,
    #[error("status {0}")]
    Status(u16),
}

/// A request in parts.
pub(super) struct Call<'a> {
    pub(super) method: &'static str,
    /// Below the URL of the API.
    pub(super) path: &'static str,
    /// A header of its own: name and value.
    pub(super) header: Option<(&'static str, &'a str)>,
    /// JSON.
    pub(super) body: &'a [u8],
}

impl Call<'_> {
    fn to_bytes(&self, api: &LocalApi) -> Vec<u8> {
        let Self { method, path, header, body } = self;
        let LocalApi { host, base_path, .. } = api;
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "{method} {base_path}{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tollgate-waf/{version}\r\nConnection: close\r\n"
        );
        if let Some((name, value)) = header {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            text +=
                &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        [text.as_bytes(), body].concat()
    }

    /// Blocks until the response is complete, or for `time`. The resolution of a name may take longer.
    pub(super) fn send(&self, api: &LocalApi, time: Duration) -> Result<Reply, CallError> {
        let address = match &api.address {
            ApiAddress::Known(address) => address.clone(),
            ApiAddress::Name(name) => {
                let mut found =
                    (&*name.host, name.port).to_socket_addrs().map_err(CallError::Name)?;
                let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                Address::Tcp(found.next().ok_or_else(none).map_err(CallError::Name)?)
            }
        };
        let until = Instant::now() + time;
        let poller = Poller::new()?;
        let transport = Transport::connect(&address, api.tls.as_ref().map(|tls| &tls.client))?;
        poller.add(&transport, 0, Interest::BothEdge)?;
        let mut out = SendBuffer::default();
        out.push(&self.to_bytes(api));
        let mut exchange = Exchange {
            transport,
            out,
            to_head: self.method == "HEAD",
            scanner: ResponseScanner::default(),
            heads: ResponseHeadCache::default(),
            body: Vec::new(),
        };
        let mut events = Events::with_capacity(1);
        loop {
            if let Some(reply) = exchange.advance()? {
                return Ok(reply);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CallError::Timeout);
            }
            poller.wait(&mut events, Some(left))?;
        }
    }
}

struct Exchange {
    transport: Transport,
    out: SendBuffer,
    to_head: bool,
    scanner: ResponseScanner,
    heads: ResponseHeadCache,
    body: Vec<u8>,
}

impl Exchange {
    /// Continues as far as possible without blocking. Returns the response once it is complete.
    fn advance(&mut self) -> Result<Option<Reply>, CallError> {
        if !self.transport.handshake()? {
            return Ok(None);
        }
        while !self.out.is_empty() {
            match self.transport.send(self.out.unsent())? {
                0 => return Ok(None),
                count => self.out.advance(count),
            }
        }
        loop {
            let mut input = [0; READ_BYTES];
            let count = match self.transport.receive(&mut input)? {
                Received::Bytes(count) => count,
                Received::Nothing => return Ok(None),
                Received::End => {
                    let response = self.scanner.close()?.ok_or(CallError::Closed)?;
                    return Ok(Some(self.reply(response.status)));
                }
            };
            let body = &mut self.body;
            let payload = |piece: &[u8]| body.extend_from_slice(piece);
            let scan =
                self.scanner.feed(&input[..count], self.to_head, &mut self.heads, payload)?;
            if self.body.len() > BODY_BYTES_MAX {
                return Err(CallError::TooLong);
            }
            if let Scan::Complete { response, .. } = scan {
                return Ok(Some(self.reply(response.status)));
            }
        }
    }

    fn reply(&mut self, status: u16) -> Reply {
        Reply { status, body: std::mem::take(&mut self.body) }
    }
}

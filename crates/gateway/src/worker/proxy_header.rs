//! Headers of the PROXY protocol at the start of connections.

use std::net::SocketAddr;

use super::exchange::{Exchange, Next, Stage};
use super::keys::ListenerKey;
use super::shared::Shared;
use crate::log;
use crate::proxy_protocol::{self, HEADER_BYTES_MAX, InvalidHeader};
use tollgate_tls::Received;

impl Exchange {
    /// Reads the header of a connection from `proxy`, which precedes TLS. The bytes stay in the socket until they are a
    /// header.
    pub(super) fn read_proxy_header(
        &mut self,
        shared: &mut Shared,
        proxy: Option<SocketAddr>,
    ) -> Next {
        let Some(transport) = self.client.transport() else {
            shared.report_bug("a stream has a header of the PROXY protocol");
            return Next::Close;
        };
        if !transport.is_readable() {
            return if shared.stop_by.is_some() { Next::Close } else { Next::Wait };
        }
        let buffer = &mut shared.scratch.input[..HEADER_BYTES_MAX];
        let header = match transport.peek(buffer) {
            Ok(Received::Bytes(count)) => match proxy_protocol::read(&buffer[..count]) {
                Ok(None) if transport.is_read_shut() => Err(InvalidHeader),
                Ok(None) => {
                    transport.await_more();
                    return Next::Wait;
                }
                Ok(Some(header)) if transport.discard(&mut buffer[..header.bytes]).is_err() => {
                    return Next::Close;
                }
                header => header,
            },
            Ok(Received::Nothing) => return Next::Continue,
            // As checks of a port do.
            Ok(Received::End) | Err(_) => return Next::Close,
        };
        let Ok(Some(header)) = header else {
            let cause = "it does not begin with a header of the PROXY protocol";
            shared.refuse_proxy(self.client.listener, proxy, cause);
            return Next::Close;
        };
        let peer = header.client.or(proxy);
        if !shared.admit(peer) {
            return Next::Close;
        }
        self.client.peer = peer;
        self.client.ip = peer.map(|peer| peer.ip());
        self.client.deadline = shared.now + shared.timeouts.idle;
        self.stage = Stage::ReadHead;
        Next::Continue
    }
}

impl Shared {
    /// Counts and reports a connection that is closed for lack of a header.
    pub(super) fn refuse_proxy(
        &mut self,
        listener: ListenerKey,
        proxy: Option<SocketAddr>,
        cause: &str,
    ) {
        self.client_counters().proxy_refused.add(1);
        if self.proxy_log.allow(self.now) {
            let address = &self.listener(listener).address;
            let proxy = proxy.map_or_else(|| "unix:".to_owned(), |proxy| proxy.ip().to_string());
            log(format_args!(
                "closed a connection from {proxy} to {address}: {cause} (logged once a minute, counted in /metrics)"
            ));
        }
    }
}

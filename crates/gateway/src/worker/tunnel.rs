//! Tunnels: connections that were upgraded to another protocol, whose bytes are forwarded unread in both directions.

use super::http2::Following;
use super::keys::UpstreamKey;
use super::scratch::{HEADROOM_BYTES, PIECE_BYTES};
use super::transaction::ResponseState;
use super::turn::{Flow, Turn};
use tollgate_tls::Received;

/// The directions of a tunnel that have ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    client: bool,
    backend: bool,
}

impl Turn<'_> {
    /// Forwards the upgrade: its head, in the scratch space, and the input from `start` to `end`.
    pub(super) fn start_tunnel(&mut self, at: UpstreamKey, start: usize, end: usize) -> Flow {
        let Self { client, transaction, shared, .. } = self;
        transaction.response = ResponseState::Tunnel { client_ended: false, backend_ended: false };
        transaction.status = 101;
        transaction.closes = true;
        transaction.response_body_bytes = (end - start) as u64;
        client.unsent.push(&shared.scratch.head);
        client.unsent.push(&shared.scratch.input[start..end]);
        // Bytes that the client sent after its request belong to the tunnel.
        transaction.request_buffer.push(&std::mem::take(&mut client.unread), 0);
        let place = shared.upstreams[at].place;
        shared.pool_counters(place.generation, place.pool).count_response(101);
        Flow::Continue
    }

    /// Moves what is available, in both directions.
    pub(super) fn forward_tunnel(
        &mut self,
        at: UpstreamKey,
        client_ended: bool,
        backend_ended: bool,
    ) -> Flow {
        let mut ended = Ended { client: client_ended, backend: backend_ended };
        // The backend has ended its direction and takes no more, so that neither a read nor a send shows it.
        if ended.backend && self.shared.upstreams[at].link.is_closed() {
            return Flow::Close;
        }
        let to_client = self.tunnel_to_client(at, &mut ended);
        let to_backend = self.tunnel_to_backend(at, &mut ended);
        let Ended { client, backend } = ended;
        self.transaction.response =
            ResponseState::Tunnel { client_ended: client, backend_ended: backend };
        match (to_client, to_backend) {
            (Flow::Wait, Flow::Wait) if self.has_lost_client(ended) => Flow::Close,
            (Flow::Wait, Flow::Wait) => Flow::Wait,
            (Flow::Continue | Flow::Wait, Flow::Continue | Flow::Wait) => Flow::Continue,
            _ => {
                if client && backend {
                    self.transaction.interruption = None;
                }
                Flow::Close
            }
        }
    }

    /// True if the client is gone, although nothing can be moved that shows it. Bytes of a client that has ended both
    /// directions orderly wait for the backend.
    fn has_lost_client(&self, ended: Ended) -> bool {
        let link = &self.client.link;
        link.has_failed() || (ended.client && link.is_closed())
    }

    fn tunnel_to_client(&mut self, at: UpstreamKey, ended: &mut Ended) -> Flow {
        let Self { client, transaction, shared, .. } = self;
        let timeout = shared.timeouts_of(transaction).tunnel;
        if !client.unsent.is_empty() {
            return match client.flush(&mut shared.http2) {
                Ok(0) => Flow::Wait,
                Ok(_) => {
                    client.deadline = shared.now + timeout;
                    if client.unsent.is_empty() { Flow::Continue } else { Flow::Wait }
                }
                Err(_) => Flow::Close,
            };
        }
        let link = &mut shared.upstreams[at].link;
        if ended.backend || !link.is_readable() {
            return Flow::Wait;
        }
        let room = &mut shared.scratch.input[HEADROOM_BYTES..HEADROOM_BYTES + PIECE_BYTES];
        match link.receive(&mut shared.http2, room) {
            Ok(Received::Bytes(count)) => {
                transaction.response_body_bytes += count as u64;
                client.deadline = shared.now + timeout;
                let sent = client.send(&mut shared.http2, &room[..count], false);
                if sent.is_ok() { Flow::Continue } else { Flow::Close }
            }
            Ok(Received::Nothing) => Flow::Wait,
            Ok(Received::End) if link.has_ended_tunnel() => {
                ended.backend = true;
                let is_over = client.link.finish(&mut shared.http2).is_err() || ended.client;
                if is_over { Flow::Close } else { Flow::Continue }
            }
            Ok(Received::End) | Err(_) => Flow::Close,
        }
    }

    fn tunnel_to_backend(&mut self, at: UpstreamKey, ended: &mut Ended) -> Flow {
        let Self { client, transaction, shared, .. } = self;
        let timeout = shared.timeouts_of(transaction).tunnel;
        let link = &mut shared.upstreams[at].link;
        if link.early_end().is_some() {
            // What it sent before is still forwarded.
            return Flow::Wait;
        }
        let request_buffer = &mut transaction.request_buffer;
        if !request_buffer.is_sent() {
            match link.send(&mut shared.http2, request_buffer.unsent(), Following::Unknown) {
                Ok(0) => return Flow::Wait,
                Ok(count) => request_buffer.advance(count),
                Err(_) => return Flow::Close,
            }
            client.deadline = shared.now + timeout;
            return Flow::Continue;
        }
        if ended.client || !client.link.is_readable() {
            return Flow::Wait;
        }
        let room = &mut shared.scratch.input[HEADROOM_BYTES..HEADROOM_BYTES + PIECE_BYTES];
        match client.link.receive(&mut shared.http2, room) {
            Ok(Received::Bytes(count)) => {
                client.deadline = shared.now + timeout;
                match link.send(&mut shared.http2, &room[..count], Following::Unknown) {
                    Ok(sent) => request_buffer.push(&room[..count], sent),
                    Err(_) => return Flow::Close,
                }
                Flow::Continue
            }
            Ok(Received::Nothing) => Flow::Wait,
            Ok(Received::End) => {
                ended.client = true;
                let is_over = link.finish(&mut shared.http2).is_err() || ended.backend;
                if is_over { Flow::Close } else { Flow::Continue }
            }
            Err(_) => Flow::Close,
        }
    }
}

//! Tunnels: connections that were upgraded to another protocol, whose bytes are forwarded unread in both directions.

use super::downstream::Downstream;
use super::transaction::ResponseState;
use super::{HEADROOM_BYTES, PIECE_BYTES, Step, Worker};
use crate::transport::Received;

impl Worker {
    /// Forwards the upgrade: its head, in the scratch space, and the input from `start` to `end`.
    pub(super) fn start_tunnel(&mut self, key: usize, start: usize, end: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Step::Close };
        transaction.response = ResponseState::Tunnel { client_ended: false, backend_ended: false };
        transaction.status = 101;
        transaction.closes = true;
        transaction.response_body_bytes = (end - start) as u64;
        client.unsent.push(&self.scratch.head);
        client.unsent.push(&self.scratch.input[start..end]);
        // Bytes that the client sent after its request belong to the tunnel.
        transaction.request_buffer.push(&std::mem::take(&mut client.unread), 0);
        let (generation, pool) = (transaction.generation, transaction.pool);
        self.pool_counters(generation, pool).count_response(101);
        Step::Continue
    }

    /// Moves what is available, in both directions.
    pub(super) fn forward_tunnel(&mut self, key: usize) -> Step {
        if self.has_lost_backend(key) {
            return Step::Close;
        }
        match (self.tunnel_to_client(key), self.tunnel_to_backend(key)) {
            (Step::Close, _) | (_, Step::Close) => Step::Close,
            (Step::Wait, Step::Wait) if self.has_lost_client(key) => Step::Close,
            (Step::Wait, Step::Wait) => Step::Wait,
            _ => Step::Continue,
        }
    }

    /// True if the backend has ended its direction and takes no more, so that neither a read nor a send shows it.
    fn has_lost_backend(&self, key: usize) -> bool {
        let Some(transaction) = &self.clients[key].transaction else { return true };
        let Some(at) = transaction.upstream else { return true };
        matches!(transaction.response, ResponseState::Tunnel { backend_ended: true, .. })
            && self.upstreams[at].link.is_closed()
    }

    /// True if the client is gone, although nothing can be moved that shows it. Bytes of a client that has ended both
    /// directions orderly wait for the backend.
    fn has_lost_client(&self, key: usize) -> bool {
        let Downstream { link, transaction: Some(transaction), .. } = &self.clients[key] else {
            return true;
        };
        let has_ended =
            matches!(transaction.response, ResponseState::Tunnel { client_ended: true, .. });
        link.has_failed() || (has_ended && link.is_closed())
    }

    fn tunnel_to_client(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        if !client.unsent.is_empty() {
            return match client.flush(&mut self.http2) {
                Ok(0) => Step::Wait,
                Ok(_) => {
                    client.deadline = self.now + self.timeouts.tunnel;
                    if client.unsent.is_empty() { Step::Continue } else { Step::Wait }
                }
                Err(_) => Step::Close,
            };
        }
        let Some(transaction) = &mut client.transaction else { return Step::Close };
        let ResponseState::Tunnel { client_ended, backend_ended } = &mut transaction.response
        else {
            return Step::Close;
        };
        let Some(at) = transaction.upstream else { return Step::Close };
        let link = &mut self.upstreams[at].link;
        if *backend_ended || !link.is_readable() {
            return Step::Wait;
        }
        let room = &mut self.scratch.input[HEADROOM_BYTES..HEADROOM_BYTES + PIECE_BYTES];
        match link.receive(&mut self.http2, room) {
            Ok(Received::Bytes(count)) => {
                transaction.response_body_bytes += count as u64;
                client.deadline = self.now + self.timeouts.tunnel;
                if client.send(&mut self.http2, &room[..count], false).is_ok() {
                    Step::Continue
                } else {
                    Step::Close
                }
            }
            Ok(Received::Nothing) => Step::Wait,
            Ok(Received::End) if link.has_ended_tunnel() => {
                *backend_ended = true;
                let is_over = client.link.finish(&mut self.http2).is_err() || *client_ended;
                if is_over { Step::Close } else { Step::Continue }
            }
            Ok(Received::End) | Err(_) => Step::Close,
        }
    }

    fn tunnel_to_backend(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Step::Close };
        let ResponseState::Tunnel { client_ended, backend_ended } = &mut transaction.response
        else {
            return Step::Close;
        };
        let Some(at) = transaction.upstream else { return Step::Close };
        let link = &mut self.upstreams[at].link;
        if link.early_end().is_some() {
            // What it sent before is still forwarded.
            return Step::Wait;
        }
        let request_buffer = &mut transaction.request_buffer;
        if !request_buffer.is_sent() {
            match link.send(&mut self.http2, request_buffer.unsent(), false) {
                Ok(0) => return Step::Wait,
                Ok(count) => request_buffer.advance(count),
                Err(_) => return Step::Close,
            }
            client.deadline = self.now + self.timeouts.tunnel;
            return Step::Continue;
        }
        if *client_ended || !client.link.is_readable() {
            return Step::Wait;
        }
        let room = &mut self.scratch.input[HEADROOM_BYTES..HEADROOM_BYTES + PIECE_BYTES];
        match client.link.receive(&mut self.http2, room) {
            Ok(Received::Bytes(count)) => {
                client.deadline = self.now + self.timeouts.tunnel;
                match link.send(&mut self.http2, &room[..count], false) {
                    Ok(sent) => request_buffer.push(&room[..count], sent),
                    Err(_) => return Step::Close,
                }
                Step::Continue
            }
            Ok(Received::Nothing) => Step::Wait,
            Ok(Received::End) => {
                *client_ended = true;
                let is_over = link.finish(&mut self.http2).is_err() || *backend_ended;
                if is_over { Step::Close } else { Step::Continue }
            }
            Err(_) => Step::Close,
        }
    }
}

//! Connections that have switched to another protocol: bytes in both directions, whatever they are.

use super::{Step, Worker};
use crate::exchange::Answer;
use crate::link::Received;
use crate::tools::{HEADROOM_BYTES, INPUT_BYTES};

impl Worker {
    /// Passes the switch on, whose head is in the tools, with what came behind it from `start` to `end`
    /// of the input.
    pub(super) fn begin_tunnel(&mut self, key: usize, start: usize, end: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        exchange.answer = Answer::Tunnel { client_ended: false, backend_ended: false };
        exchange.status = 101;
        exchange.closes = true;
        exchange.answer_bytes = (end - start) as u64;
        client.unsent.keep(&self.tools.head);
        client.unsent.keep(&self.tools.input[start..end]);
        // What the client has sent behind its request is of the other protocol already.
        let ahead = std::mem::take(&mut client.unread);
        exchange.outgoing.add(&ahead, 0);
        let (site, pool) = (exchange.site, exchange.pool);
        self.pool_tally(site, pool).answered(101);
        Step::On
    }

    /// Moves what there is, in both directions.
    pub(super) fn tunnel(&mut self, key: usize) -> Step {
        let mut step = Step::Waits;
        for pass in [Self::pass_to_client, Self::pass_to_backend] {
            match pass(self, key) {
                Step::On => step = Step::On,
                Step::Waits => {}
                Step::Over => return Step::Over,
            }
        }
        step
    }

    fn pass_to_client(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        let Answer::Tunnel { client_ended, backend_ended } = &mut exchange.answer else {
            return Step::Over;
        };
        let Some(at) = exchange.upstream else { return Step::Over };
        if !client.unsent.is_empty() {
            match client.unsent.send(&mut client.link) {
                Ok(0) => return Step::Waits,
                Ok(_) => client.deadline = self.now + self.timeouts.tunnel,
                Err(_) => return Step::Over,
            }
            return Step::On;
        }
        let link = &mut self.upstreams[at].link;
        if *backend_ended || !link.is_readable() {
            return Step::Waits;
        }
        let room = &mut self.tools.input[HEADROOM_BYTES..HEADROOM_BYTES + INPUT_BYTES];
        match link.receive(room) {
            Ok(Received::Bytes(count)) => {
                exchange.answer_bytes += count as u64;
                client.deadline = self.now + self.timeouts.tunnel;
                match client.link.send(&room[..count]) {
                    Ok(sent) => client.unsent.keep(&room[sent..count]),
                    Err(_) => return Step::Over,
                }
                Step::On
            }
            Ok(Received::Nothing) => Step::Waits,
            Ok(Received::End) => {
                *backend_ended = true;
                if *client_ended || client.link.finish().is_err() { Step::Over } else { Step::On }
            }
            Err(_) => Step::Over,
        }
    }

    fn pass_to_backend(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        let Answer::Tunnel { client_ended, backend_ended } = &mut exchange.answer else {
            return Step::Over;
        };
        let Some(at) = exchange.upstream else { return Step::Over };
        let upstream = &mut self.upstreams[at];
        if !exchange.outgoing.is_sent() {
            match upstream.link.send(exchange.outgoing.unsent()) {
                Ok(0) => return Step::Waits,
                Ok(count) => exchange.outgoing.take(count),
                Err(_) => return Step::Over,
            }
            client.deadline = self.now + self.timeouts.tunnel;
            return Step::On;
        }
        if *client_ended || !client.link.is_readable() {
            return Step::Waits;
        }
        let room = &mut self.tools.input[HEADROOM_BYTES..HEADROOM_BYTES + INPUT_BYTES];
        match client.link.receive(room) {
            Ok(Received::Bytes(count)) => {
                client.deadline = self.now + self.timeouts.tunnel;
                match upstream.link.send(&room[..count]) {
                    Ok(sent) => exchange.outgoing.add(&room[..count], sent),
                    Err(_) => return Step::Over,
                }
                Step::On
            }
            Ok(Received::Nothing) => Step::Waits,
            Ok(Received::End) => {
                *client_ended = true;
                if *backend_ended || upstream.link.finish().is_err() {
                    Step::Over
                } else {
                    Step::On
                }
            }
            Err(_) => Step::Over,
        }
    }
}

//! HTTP/2 connections of clients and to backends. Only this module knows of frames and streams: a stream acts as a
//! connection of its own with one request, in HTTP/1.1.

mod backends;
mod clients;
mod connections;
mod message;

use super::link::Link;
use super::{ClientId, Worker};
pub(super) use clients::Detected;
use connections::Carrier;
pub(super) use connections::{Connections, Stream, StreamEnd};

/// Turns of streams that wait for room, between two looks at the sockets.
const FLUSH_ROUNDS: usize = 4;

impl Worker {
    /// Gives a client its turn after all events.
    fn schedule_turn(&mut self, key: usize) {
        self.ready.push_back(ClientId { key, serial: self.clients[key].serial });
    }

    /// Sends the frames of all connections, and gives streams that wait for room their turns.
    pub(super) fn flush_http2(&mut self) {
        for _ in 0..FLUSH_ROUNDS {
            for _ in 0..self.http2.unflushed() {
                let Some(connection) = self.http2.next_unflushed() else { return };
                match self.http2[connection].carrier {
                    Carrier::Client(key) => self.flush_client(key, connection),
                    Carrier::Upstream(at) => self.flush_backend(at, connection),
                    Carrier::Closed => {}
                }
            }
        }
    }

    /// Gives streams that wait for room their turns, as long as there is room. The turn of one may close a connection to
    /// a backend.
    fn resume_waiting(&mut self, connection: usize) {
        for _ in 0..self.http2.waiting(connection) {
            let Some(token) = self.http2.next_waiting(connection) else { return };
            let (link, client) = match self.http2[connection].carrier {
                Carrier::Client(_) => (&mut self.clients[token].link, Some(token)),
                Carrier::Upstream(_) | Carrier::Closed => {
                    let upstream = &mut self.upstreams[token];
                    (&mut upstream.link, upstream.client)
                }
            };
            if let Link::Stream(stream) = link {
                stream.is_waiting = false;
            }
            if let Some(key) = client {
                self.turn(key);
            }
        }
    }
}

//! The heads of requests as they come: read, understood, and told where they lead.

use std::io;
use std::net::IpAddr;

use tollgate_ledger::Entry;
use tollgate_wire::{BodyFraming, ParseError, RequestHead, parse_request_head};

use super::clients::Asker;
use super::{Step, Worker};
use crate::answers::Refusal;
use crate::config::{Balance, HashBy};
use crate::forward::{FaultyHops, Sender, hops, last_hop, render_request};
use crate::link::Received;
use crate::phase::{ExchangeId, OwnAnswer, Verdict};
use crate::pool::Key;
use crate::recall::{RequestKey, RequestMeaning};
use crate::routes::AmbiguousPath;
use crate::tools::{HEADROOM_BYTES, INPUT_BYTES};

/// What the start of the input is. The head that goes on is in the tools then.
enum Arrived {
    /// A part of a head.
    Part,
    Head(RequestMeaning, Verdict),
    Refused(Refusal),
    /// The same, of a request that was read to its end, so that another may follow.
    Unrouted {
        head_bytes: usize,
        asker: Asker,
    },
    /// It may not be passed on once more, and is answered here.
    LastHop {
        head_bytes: usize,
        asker: Asker,
        answer: OwnAnswer,
    },
}

impl Worker {
    /// Sends what is left of the answer before, and reads the next request's head.
    pub(super) fn read_request(&mut self, key: usize) -> io::Result<Step> {
        let client = &mut self.clients[key];
        if !client.unsent.is_empty() {
            match client.unsent.send(&mut client.link) {
                Ok(sent) if sent > 0 => client.deadline = self.now + self.timeouts.body,
                Ok(_) => {}
                Err(_) => return Ok(Step::Over),
            }
            if !client.unsent.is_empty() {
                return Ok(Step::Waits);
            }
            client.deadline = self.now + self.timeouts.idle;
        }
        let start = HEADROOM_BYTES;
        let kept = client.unread.len();
        self.tools.input[start..start + kept].copy_from_slice(&client.unread);
        let mut end = start + kept;
        if kept == 0 || client.is_partial {
            if !client.link.is_readable() {
                return Ok(if kept == 0 && self.stop_by.is_some() {
                    Step::Over
                } else {
                    Step::Waits
                });
            }
            match client.link.receive(&mut self.tools.input[end..start + INPUT_BYTES]) {
                Ok(Received::Bytes(count)) => {
                    if kept == 0 {
                        client.deadline = self.now + self.timeouts.header;
                    }
                    let has_line_end = self.tools.input[end..end + count].contains(&b'\n');
                    end += count;
                    // A head ends with a line, so that bytes within one need no new attempt.
                    if kept > 0 && !has_line_end && end - start < self.head_max_bytes() {
                        let client = &mut self.clients[key];
                        client.unread.extend_from_slice(&self.tools.input[start + kept..end]);
                        return Ok(Step::On);
                    }
                }
                Ok(Received::Nothing) => return Ok(Step::On),
                Ok(Received::End) | Err(_) => return Ok(Step::Over),
            }
        } else {
            // It came behind another request.
            client.deadline = self.now + self.timeouts.header;
        }
        match self.read_head(key, start, end) {
            Arrived::Part => {
                let client = &mut self.clients[key];
                client.keep_unread(&self.tools.input[start..end]);
                client.is_partial = true;
                Ok(Step::On)
            }
            Arrived::Refused(refusal) => {
                self.refuse(key, refusal);
                Ok(Step::On)
            }
            Arrived::Unrouted { head_bytes, asker } => {
                let entry = self.leave_head(key, start, head_bytes, end);
                self.write_refused(key, entry.as_deref(), Refusal::NoRoute, asker.is_head);
                self.tell(key, Refusal::NoRoute, asker);
                Ok(Step::On)
            }
            Arrived::LastHop { head_bytes, asker, answer } => {
                let entry = self.leave_head(key, start, head_bytes, end);
                self.write_own(key, entry.as_deref(), answer.status, answer.body.len() as u64);
                self.counters.clients(self.index).answered_itself(answer.status);
                self.say(key, asker, |delivery, out| answer.render(delivery, out));
                Ok(Step::On)
            }
            Arrived::Head(meaning, verdict) => self.begin(key, &meaning, verdict, start, end),
        }
    }

    /// Keeps what came behind a head that begins no exchange; what its line in the access log will tell.
    fn leave_head(
        &mut self,
        key: usize,
        start: usize,
        head_bytes: usize,
        end: usize,
    ) -> Option<Box<Entry>> {
        let client = &mut self.clients[key];
        client.keep_unread(&self.tools.input[start + head_bytes..end]);
        client.is_partial = false;
        self.entry(&self.tools.input[start..start + head_bytes])
    }

    fn head_max_bytes(&self) -> usize {
        self.sites[self.site].plan.config.limits.header_bytes
    }

    /// Parses or recalls the head at the start of what was read.
    fn read_head(&mut self, key: usize, start: usize, end: usize) -> Arrived {
        // The exchange that begins with it is known by this.
        self.next_serial();
        let client = &self.clients[key];
        let input = &self.tools.input[start..end];
        let request = RequestKey {
            site: self.site,
            listener: client.listener,
            ip: client.ip,
            is_tls: client.link.is_tls(),
        };
        // Who inspects heads is to see them parsed.
        if self.inspector.is_none()
            && let Some(known) = self.tools.requests.find(input, request)
        {
            self.tools.head.clear();
            self.tools.head.extend_from_slice(&known.rendered);
            return Arrived::Head(known.meaning, Verdict::Pass);
        }
        let plan = &self.sites[self.site].plan;
        let limits = &plan.config.limits;
        let head = match parse_request_head(input) {
            Ok(Some(head)) if head.len > limits.header_bytes => {
                return Arrived::Refused(Refusal::of_long_head(input, limits.header_bytes));
            }
            Ok(Some(head)) => head,
            Ok(None) | Err(ParseError::HeadTooLong) if input.len() >= limits.header_bytes => {
                return Arrived::Refused(Refusal::of_long_head(input, limits.header_bytes));
            }
            Ok(None) => return Arrived::Part,
            Err(error) => return Arrived::Refused(Refusal::of(&error)),
        };
        if head.headers.iter().count() > limits.headers {
            return Arrived::Refused(Refusal::HeadTooLarge);
        }
        if head.method == "CONNECT" {
            return Arrived::Refused(Refusal::NotImplemented);
        }
        if !has_plain_target(head.target) {
            return Arrived::Refused(Refusal::Malformed);
        }
        let host = head.target_parts.authority.or(head.host);
        let path = match head.target_parts.path_and_query {
            path if path.starts_with('/') => path,
            // `*`, nothing at all, or a query alone: of the host as a whole.
            _ => "/",
        };
        let asker = Asker {
            is_head: head.method == "HEAD",
            version: head.version,
            stays: head.keep_alive && head.body == BodyFraming::Empty,
        };
        let route = match plan.routes.route(host, path) {
            Ok(Some(route)) => route,
            Ok(None) => return Arrived::Unrouted { head_bytes: head.len, asker },
            Err(AmbiguousPath) => return Arrived::Refused(Refusal::Malformed),
        };
        match hops(&head) {
            Ok(Some(0)) => {
                let answer = last_hop(&head);
                return Arrived::LastHop { head_bytes: head.len, asker, answer };
            }
            Ok(_) => {}
            Err(FaultyHops) => return Arrived::Refused(Refusal::Malformed),
        }
        let listener = &self.listeners[client.listener];
        let sender = Sender { ip: client.ip, is_tls: request.is_tls, own_host: &listener.own_host };
        let hash =
            hash(&plan.config.pools[plan.config.routes[route.0].pool.0].balance, &head, client.ip);
        self.tools.head.clear();
        let asked = render_request(
            &head,
            &plan.config.routes[route.0],
            &plan.config.forwarded,
            &sender,
            &mut self.tools.head,
        );
        let meaning = RequestMeaning { asked, route: route.0, hash };
        let verdict = match &mut self.inspector {
            Some(inspector) => {
                inspector.headers(ExchangeId { client: key, serial: self.serial }, &head, client.ip)
            }
            None => {
                self.tools.requests.remember(
                    &input[..head.len],
                    request,
                    meaning,
                    &self.tools.head,
                );
                Verdict::Pass
            }
        };
        Arrived::Head(meaning, verdict)
    }
}

/// A fragment is never sent, and bytes beyond ASCII are read in many ways.
fn has_plain_target(target: &str) -> bool {
    target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// What requests have in common that are to have the same backend.
fn hash(balance: &Balance, head: &RequestHead<'_>, ip: Option<IpAddr>) -> Key {
    let of_client = || match ip {
        Some(IpAddr::V4(ip)) => Key::new(&ip.octets()),
        Some(IpAddr::V6(ip)) => Key::new(&ip.octets()),
        None => Key::new(b""),
    };
    match balance {
        Balance::ConsistentHash { by: HashBy::Header(name) } => {
            head.headers.first(name).map_or_else(of_client, Key::new)
        }
        Balance::ConsistentHash { by: HashBy::Client } => of_client(),
        Balance::RoundRobin | Balance::LeastConnections | Balance::RandomOfTwo => Key::new(b""),
    }
}

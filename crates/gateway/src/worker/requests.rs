//! Requests as they come, and their way to a backend.

use std::io;
use std::net::IpAddr;

use tollgate_wire::{BodyFraming, ParseError, RequestHead, parse_request_head};

use super::clients::Asker;
use super::phases::{Look, take_body};
use super::{Step, Worker};
use crate::answers::Refusal;
use crate::config::{Balance, HashBy};
use crate::downstream::Stage;
use crate::exchange::{Answer, Exchange};
use crate::forward::{Sender, render_request};
use crate::link::Received;
use crate::phase::{ExchangeId, Verdict};
use crate::pool::{Key, Tried};
use crate::recall::{RequestKey, RequestMeaning};
use crate::relay::{Body, Taken};
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
}

impl Worker {
    /// Sends what is left of the answer before, and reads the next request's head.
    pub(super) fn read_request(&mut self, key: usize) -> io::Result<Step> {
        let client = &mut self.clients[key];
        if !client.unsent.is_empty() {
            match client.unsent.send(&mut client.link, false) {
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
                let client = &mut self.clients[key];
                client.keep_unread(&self.tools.input[start + head_bytes..end]);
                client.is_partial = false;
                let entry = self.entry(&self.tools.input[start..start + head_bytes]);
                self.write_refused(key, entry.as_deref(), Refusal::NoRoute, asker.is_head);
                self.tell(key, Refusal::NoRoute, asker);
                Ok(Step::On)
            }
            Arrived::Head(meaning, verdict) => self.begin(key, &meaning, verdict, start, end),
        }
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
        let Some(route) = plan.routes.find(host, path) else {
            let asker = Asker {
                is_head: head.method == "HEAD",
                version: head.version,
                stays: head.keep_alive && head.body == BodyFraming::Empty,
            };
            return Arrived::Unrouted { head_bytes: head.len, asker };
        };
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

    /// Begins the exchange of a request whose head has come; takes what came with it.
    fn begin(
        &mut self,
        key: usize,
        meaning: &RequestMeaning,
        verdict: Verdict,
        start: usize,
        end: usize,
    ) -> io::Result<Step> {
        let RequestMeaning { asked, route, hash } = *meaning;
        let entry = self.entry(&self.tools.input[start..start + asked.head_bytes]);
        let site = &mut self.sites[self.site];
        let limits = &site.plan.config.limits;
        let client = &mut self.clients[key];
        let mut body = Body::new(asked.body, true);
        let body_start = start + asked.head_bytes;
        let id = ExchangeId { client: key, serial: self.serial };
        let input = &mut self.tools.input[body_start..end];
        let taken = take_body(&mut body, input, &mut self.inspector, id, LOOK);
        let (taken, verdict, refusal) = match taken {
            Ok((taken, of_body)) => {
                let refusal = is_too_long(asked.body, taken.payload_bytes, limits.body_bytes);
                (taken, verdict.and(of_body), refusal)
            }
            Err(_) => (Taken::default(), verdict, Some(Refusal::Malformed)),
        };
        client.keep_unread(&self.tools.input[body_start + taken.consumed..end]);
        client.is_partial = false;
        let mut outgoing = std::mem::take(&mut client.outgoing);
        outgoing.begin(&self.tools.head);
        if taken.kept > 0 {
            outgoing.add(&self.tools.input[body_start..body_start + taken.kept], 0);
        }
        if taken.done {
            outgoing.add(body.tail(), 0);
        }
        site.exchanges += 1;
        client.stage = Stage::Exchanging;
        client.exchange = Some(Exchange {
            id,
            hold: None,
            asked,
            site: self.site,
            route,
            pool: site.plan.config.routes[route].pool.0,
            hash,
            upstream: None,
            waits_for: None,
            is_next: None,
            outgoing,
            body,
            body_bytes: taken.payload_bytes,
            is_cut_short: false,
            answer: Answer::Head,
            is_answered: false,
            interims: 0,
            status: 0,
            answer_bytes: 0,
            closes: !asked.keep_alive,
            tried: Tried::default(),
            wants_fresh: false,
            began: self.now,
            backend: None,
            tries: 0,
            entry,
        });
        if let Some(refusal) = refusal {
            self.refuse(key, refusal);
            return Ok(Step::On);
        }
        Ok(match verdict {
            Verdict::Pass => self.assign(key),
            Verdict::Wait => self.hold(key, Vec::new(), false),
            Verdict::Answer(answer) => {
                self.answer_instead(key, &answer);
                Step::On
            }
        })
    }

    /// Moves what there is, in both directions.
    pub(super) fn go_on(&mut self, key: usize) -> io::Result<Step> {
        let Some(exchange) = &self.clients[key].exchange else {
            return Ok(Step::Over);
        };
        if exchange.hold.is_some() {
            return Ok(Step::Waits);
        }
        if exchange.upstream.is_none() {
            return Ok(self.take_room(key));
        }
        if matches!(exchange.answer, Answer::Tunnel { .. }) {
            return Ok(self.tunnel(key));
        }
        let step = if exchange.is_sent() || exchange.is_cut_short {
            Step::Waits
        } else {
            self.pass_request(key)
        };
        // The exchange may have ended, or be with another backend.
        let goes_on = self.clients[key].stage == Stage::Exchanging && step != Step::Over;
        if !goes_on {
            return Ok(step);
        }
        match (step, self.pass_answer(key)) {
            (Step::On, Step::Waits) => Ok(Step::On),
            (_, step) => Ok(step),
        }
    }

    /// Sends what there is of the request, or reads a piece more of it.
    fn pass_request(&mut self, key: usize) -> Step {
        if !self.send_outgoing(key) {
            return Step::Waits;
        }
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        let Some(at) = exchange.upstream else { return Step::On };
        if exchange.body.is_done() || !client.link.is_readable() || exchange.is_cut_short {
            return Step::Waits;
        }
        let start = HEADROOM_BYTES;
        let count = match client.link.receive(&mut self.tools.input[start..start + INPUT_BYTES]) {
            Ok(Received::Bytes(count)) => count,
            Ok(Received::Nothing) => return Step::Waits,
            Ok(Received::End) if matches!(exchange.answer, Answer::Head) => {
                // The backend is not to take what it has for whole.
                self.refuse(key, Refusal::Malformed);
                return Step::On;
            }
            Ok(Received::End) | Err(_) => return Step::Over,
        };
        let input = &mut self.tools.input[start..start + count];
        let taken = take_body(&mut exchange.body, input, &mut self.inspector, exchange.id, LOOK);
        let limits = &self.sites[exchange.site].plan.config.limits;
        let refusal = match &taken {
            Err(_) => Some(Refusal::Malformed),
            Ok((taken, _)) => {
                exchange.body_bytes += taken.payload_bytes;
                is_too_long(exchange.asked.body, exchange.body_bytes, limits.body_bytes)
            }
        };
        let (taken, verdict) = match (taken, refusal) {
            (Ok(taken), None) => taken,
            _ if matches!(exchange.answer, Answer::Head) => {
                self.refuse(key, refusal.unwrap_or(Refusal::Malformed));
                return Step::On;
            }
            _ => return Step::Over,
        };
        client.deadline = self.now + self.timeouts.body;
        let behind = start + taken.consumed..start + count;
        if !behind.is_empty() {
            client.unread.extend_from_slice(&self.tools.input[behind]);
        }
        let mut end = start + taken.kept;
        if taken.done {
            let tail = exchange.body.tail();
            self.tools.input[end..end + tail.len()].copy_from_slice(tail);
            end += tail.len();
        }
        let piece = &self.tools.input[start..end];
        if verdict != Verdict::Pass {
            exchange.outgoing.add(piece, 0);
            return match verdict {
                Verdict::Answer(answer) if matches!(exchange.answer, Answer::Head) => {
                    self.answer_instead(key, &answer);
                    Step::On
                }
                // A part of another answer is out already.
                Verdict::Answer(_) => Step::Over,
                Verdict::Pass | Verdict::Wait => self.hold(key, Vec::new(), false),
            };
        }
        let upstream = &mut self.upstreams[at];
        match upstream.link.send(piece, false) {
            Ok(sent) => {
                exchange.outgoing.add(piece, sent);
                if exchange.is_sent() {
                    client.deadline = self.now + self.timeouts.answer;
                }
            }
            Err(_) => {
                exchange.outgoing.add(piece, 0);
                exchange.is_cut_short = true;
                upstream.link.look_again();
            }
        }
        Step::On
    }

    /// Sends what was not sent of the request, and says whether all of it was.
    pub(super) fn send_outgoing(&mut self, key: usize) -> bool {
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return false };
        let Some(at) = exchange.upstream else { return false };
        if exchange.outgoing.is_sent() {
            return true;
        }
        let upstream = &mut self.upstreams[at];
        let unsent = exchange.outgoing.unsent();
        match upstream.link.send(unsent, false) {
            Ok(0) => false,
            Ok(count) => {
                upstream.is_connecting = false;
                exchange.outgoing.take(count);
                let patience =
                    if exchange.is_sent() { self.timeouts.answer } else { self.timeouts.body };
                client.deadline = self.now + patience;
                exchange.outgoing.is_sent()
            }
            Err(_) => {
                // What it has answered before may still be read; if there is nothing, that tells.
                exchange.is_cut_short = true;
                upstream.link.look_again();
                true
            }
        }
    }
}

const LOOK: Look = |inspector, id, piece| inspector.body(id, piece);

/// Whether a body is known by now to be longer than is passed on.
fn is_too_long(framing: BodyFraming, so_far: u64, limit: Option<u64>) -> Option<Refusal> {
    let bytes = match framing {
        BodyFraming::Length(bytes) => bytes,
        _ => so_far,
    };
    limit.is_some_and(|limit| bytes > limit).then_some(Refusal::BodyTooLarge)
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

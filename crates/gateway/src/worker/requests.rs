//! Requests on their way to a backend.

use std::io;

use tollgate_wire::BodyFraming;

use super::phases::{Look, take_body};
use super::{Step, Worker};
use crate::answers::Refusal;
use crate::downstream::Stage;
use crate::exchange::{Answer, Exchange};
use crate::link::Received;
use crate::phase::{ExchangeId, Verdict};
use crate::pool::Tried;
use crate::recall::RequestMeaning;
use crate::relay::{Body, Taken};
use crate::tools::{HEADROOM_BYTES, INPUT_BYTES};

impl Worker {
    /// Begins the exchange of a request whose head has come; takes what came with it.
    pub(super) fn begin(
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
            outgoing.add(&body.tail(&site.plan.config.routes[route].request_headers), 0);
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
            waits_in: None,
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
            let route = &self.sites[exchange.site].plan.config.routes[exchange.route];
            let tail = exchange.body.tail(&route.request_headers);
            self.tools.input[end..end + tail.len()].copy_from_slice(&tail);
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
        match upstream.link.send(piece) {
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
        match upstream.link.send(unsent) {
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

//! Answers as they come, and their way to the client.

use std::time::SystemTime;

use tollgate_wire::{AnswerHead, BodyFraming, Version, parse_answer_head};

use super::phases::{Look, take_body};
use super::{Step, Worker};
use crate::answers::Refusal;
use crate::exchange::{Answer, Exchange};
use crate::forward::{Persistence, render_answer};
use crate::link::Received;
use crate::phase::Verdict;
use crate::recall::{AnswerKey, AnswerMeaning};
use crate::relay::Body;
use crate::tools::{HEADROOM_BYTES, INPUT_BYTES, PIECE_BYTES};

/// How many interim answers may come before the final one.
const INTERIMS_MAX: u32 = 64;

/// What the start of the input is. The head that goes on is in the tools then.
enum Arrived {
    /// A part of a head.
    Part,
    Interim {
        head_bytes: usize,
    },
    Switch {
        head_bytes: usize,
    },
    Final(AnswerMeaning, Verdict),
    /// No answer that could be passed on.
    Fault,
}

impl Worker {
    /// Reads a piece of the answer and passes it on, if the client has room for it.
    pub(super) fn pass_answer(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        if !client.unsent.is_empty() {
            match client.unsent.send(&mut client.link) {
                Ok(sent) if sent > 0 => client.deadline = self.now + self.timeouts.body,
                Ok(_) => {}
                Err(_) => return Step::Over,
            }
            if !client.unsent.is_empty() {
                return Step::Waits;
            }
        }
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        let Some(at) = exchange.upstream else { return Step::Waits };
        let upstream = &mut self.upstreams[at];
        if !upstream.link.is_readable() {
            return Step::Waits;
        }
        let start = HEADROOM_BYTES;
        let kept = upstream.head.len();
        let room_bytes = INPUT_BYTES.min(kept + PIECE_BYTES);
        let room = &mut self.tools.input[start..start + room_bytes];
        room[..kept].copy_from_slice(&upstream.head);
        match upstream.link.receive(&mut room[kept..]) {
            Ok(Received::Bytes(count)) => {
                upstream.is_connecting = false;
                upstream.head.clear();
                exchange.is_answered = true;
                self.pass_piece(key, at, start, start + kept + count)
            }
            Ok(Received::Nothing) => Step::Waits,
            Ok(Received::End) => self.answer_ended(key, true),
            Err(_) => self.answer_ended(key, false),
        }
    }

    /// The backend has sent its last byte; `cleanly` or not.
    fn answer_ended(&mut self, key: usize, cleanly: bool) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        match &exchange.answer {
            Answer::Head if exchange.is_answered => self.bad_answer(key),
            Answer::Head => self.backend_failed(key, Refusal::BadGateway),
            Answer::Body { body, .. } if body.ends_at_close() && cleanly => {
                let id = exchange.id;
                let verdict = match &mut self.inspector {
                    Some(inspector) => inspector.answer_body(id, b""),
                    None => Verdict::Pass,
                };
                match verdict {
                    // All of it is out already.
                    Verdict::Answer(_) => return Step::Over,
                    Verdict::Wait => self.hold(key, Vec::new(), false),
                    Verdict::Pass => Step::On,
                };
                self.answer_is_over(key, false, false)
            }
            Answer::Body { .. } => self.answer_broken_off(key),
            Answer::Done { .. } | Answer::Tunnel { .. } => Step::Over,
        }
    }

    /// The backend has failed a request whose answer has begun: the client cannot be told but by the end of
    /// its connection.
    fn answer_broken_off(&mut self, key: usize) -> Step {
        self.blame_backend(key);
        Step::Over
    }

    /// What the backend says is no answer.
    fn bad_answer(&mut self, key: usize) -> Step {
        self.blame_backend(key);
        self.refuse(key, Refusal::BadGateway);
        Step::On
    }

    /// Passes on what of the input, from `start` to `end`, is of the answer.
    fn pass_piece(&mut self, key: usize, at: usize, mut start: usize, end: usize) -> Step {
        let Some(exchange) = &self.clients[key].exchange else { return Step::Over };
        let mut meaning = None;
        let mut verdict = Verdict::Pass;
        if matches!(exchange.answer, Answer::Head) {
            loop {
                match self.read_answer_head(key, start, end) {
                    Arrived::Part => {
                        self.upstreams[at].head.extend_from_slice(&self.tools.input[start..end]);
                        return Step::On;
                    }
                    Arrived::Interim { head_bytes } => {
                        start += head_bytes;
                        if !self.pass_interim(key) {
                            return Step::Over;
                        }
                        if start == end {
                            return Step::On;
                        }
                    }
                    Arrived::Switch { head_bytes } => {
                        return self.begin_tunnel(key, start + head_bytes, end);
                    }
                    Arrived::Final(found, of_head) => {
                        start += found.head_bytes;
                        verdict = of_head;
                        self.begin_answer(key, &found);
                        meaning = Some(found);
                        break;
                    }
                    Arrived::Fault => return self.bad_answer(key),
                }
            }
        }
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        let Answer::Body { body, keep_alive, .. } = &mut exchange.answer else {
            return Step::Over;
        };
        let keep_alive = *keep_alive;
        let input = &mut self.tools.input[start..end];
        let looked = take_body(body, input, &mut self.inspector, exchange.id, LOOK);
        let Ok((taken, of_body)) = looked else {
            if meaning.is_some() {
                // Nothing of it went on yet.
                exchange.answer = Answer::Head;
                return self.bad_answer(key);
            }
            return self.answer_broken_off(key);
        };
        exchange.answer_bytes += taken.payload_bytes;
        let has_surplus = start + taken.consumed < end;
        let mut piece = start..start + taken.kept;
        if taken.done {
            let route = &self.sites[exchange.site].plan.config.routes[exchange.route];
            let tail = body.tail(&route.answer_headers);
            self.tools.input[piece.end..piece.end + tail.len()].copy_from_slice(&tail);
            piece.end += tail.len();
        }
        let verdict = verdict.and(of_body);
        if verdict != Verdict::Pass {
            let head = if meaning.is_some() { &self.tools.head[..] } else { b"" };
            let bytes = [head, &self.tools.input[piece]].concat();
            return match verdict {
                Verdict::Answer(answer) if meaning.is_some() => {
                    self.answer_instead(key, &answer);
                    Step::On
                }
                // A part of what the backend says is out already.
                Verdict::Answer(_) => Step::Over,
                Verdict::Pass | Verdict::Wait => {
                    self.hold(key, bytes, meaning.is_some());
                    if taken.done {
                        self.answer_is_over(key, keep_alive, has_surplus)
                    } else {
                        Step::Waits
                    }
                }
            };
        }
        if meaning.is_some() {
            // Right before the body, so that both leave in one send.
            let head = &self.tools.head;
            if head.len() <= piece.start {
                piece.start -= head.len();
                self.tools.input[piece.start..piece.start + head.len()].copy_from_slice(head);
            } else {
                let sent = client.link.send(head);
                let Ok(sent) = sent else { return Step::Over };
                client.unsent.keep(&head[sent..]);
            }
        }
        let piece = &self.tools.input[piece];
        let follows = !taken.done && self.upstreams[at].link.is_readable();
        if client.unsent.is_empty() && !piece.is_empty() {
            match client.link.send_part(piece, follows) {
                Ok(sent) if sent == piece.len() => {}
                Ok(sent) => client.unsent.keep(&piece[sent..]),
                Err(_) => return Step::Over,
            }
        } else {
            client.unsent.keep(piece);
        }
        client.deadline = self.now + self.timeouts.body;
        if taken.done { self.answer_is_over(key, keep_alive, has_surplus) } else { Step::On }
    }

    /// Parses or recalls the head at the start of what was read.
    fn read_answer_head(&mut self, key: usize, start: usize, end: usize) -> Arrived {
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Arrived::Fault };
        let input = &self.tools.input[start..end];
        // While the request is on its way still, its client has not read to its end; and once told to
        // stop, no client is kept.
        let stays_open = exchange.asked.keep_alive && exchange.is_sent() && self.stop_by.is_none();
        let about = AnswerKey {
            site: exchange.site,
            route: exchange.route,
            is_head: exchange.asked.is_head,
            version: exchange.asked.version,
            stays_open,
        };
        // Who inspects heads is to see them parsed.
        if self.inspector.is_none()
            && let Some(known) = self.tools.answers.find(input, about)
        {
            let meaning = known.meaning;
            self.tools.head.clear();
            self.tools.head.extend_from_slice(&known.rendered);
            if let Some(at) = meaning.date_at
                && let Some(date) = self.tools.date.at(self.now, SystemTime::now)
            {
                self.tools.head[at..at + date.len()].copy_from_slice(date.as_bytes());
            }
            return Arrived::Final(meaning, Verdict::Pass);
        }
        let head = match parse_answer_head(input, exchange.asked.is_head) {
            Ok(Some(head)) => head,
            Ok(None) => return Arrived::Part,
            Err(_) => return Arrived::Fault,
        };
        let config = &self.sites[exchange.site].plan.config;
        let via = config.forwarded.via.as_deref();
        let edits = &config.routes[exchange.route].answer_headers;
        self.tools.head.clear();
        let out = &mut self.tools.head;
        match head.status {
            101 if exchange.asked.wants_upgrade && exchange.is_sent() && names_protocol(&head) => {
                let (persistence, framing) = (Persistence::Upgrade, BodyFraming::Empty);
                render_answer(&head, edits, via, None, persistence, framing, out);
                Arrived::Switch { head_bytes: head.len }
            }
            101 => Arrived::Fault,
            100..=199 if exchange.interims < INTERIMS_MAX => {
                exchange.interims += 1;
                if exchange.asked.version == Version::Http11 {
                    let (persistence, framing) = (Persistence::Interim, BodyFraming::Empty);
                    render_answer(&head, edits, via, None, persistence, framing, out);
                }
                Arrived::Interim { head_bytes: head.len }
            }
            100..=199 => Arrived::Fault,
            _ if head.has_other_coding => Arrived::Fault,
            _ => {
                let mut meaning = meaning(&head, exchange, stays_open);
                let persistence =
                    Persistence::of(exchange.asked.version, stays_open && !meaning.closes);
                let framing =
                    if meaning.strips_coding { BodyFraming::UntilClose } else { head.body };
                let date = self.tools.date.at(self.now, SystemTime::now);
                meaning.date_at = render_answer(&head, edits, via, date, persistence, framing, out);
                let verdict = match &mut self.inspector {
                    Some(inspector) => inspector.answer_headers(exchange.id, &head),
                    None => {
                        let came = &input[..head.len];
                        self.tools.answers.remember(came, about, meaning, &self.tools.head);
                        Verdict::Pass
                    }
                };
                Arrived::Final(meaning, verdict)
            }
        }
    }

    /// Passes an interim answer on, whose head is in the tools. A client of HTTP/1.0 gets none.
    fn pass_interim(&mut self, key: usize) -> bool {
        let client = &mut self.clients[key];
        let head = &self.tools.head;
        if head.is_empty() {
            return true;
        }
        let sent = if client.unsent.is_empty() { client.link.send(head) } else { Ok(0) };
        match sent {
            Ok(sent) => {
                if sent < head.len() {
                    client.unsent.keep(&head[sent..]);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// The head of the final answer is there.
    fn begin_answer(&mut self, key: usize, meaning: &AnswerMeaning) {
        let Some(exchange) = &mut self.clients[key].exchange else { return };
        exchange.status = meaning.status;
        exchange.closes = meaning.closes;
        exchange.answer = Answer::Body {
            body: Body::new(meaning.framing, !meaning.strips_coding),
            keep_alive: meaning.keep_alive,
            ends_at_close: meaning.strips_coding || meaning.framing == BodyFraming::UntilClose,
        };
        let (site, pool) = (exchange.site, exchange.pool);
        self.pool_tally(site, pool).answered(meaning.status);
    }

    /// The answer has come to its end. Its books are closed unless an inspector has it wait.
    fn answer_is_over(&mut self, key: usize, keep_alive: bool, has_surplus: bool) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        let ends_at_close = exchange.answer.ends_at_close();
        exchange.answer = Answer::Done { ends_at_close };
        let is_held = exchange.hold.is_some();
        self.give_back_upstream(key, keep_alive, has_surplus);
        if is_held { Step::Waits } else { self.close_books(key) }
    }
}

const LOOK: Look = |inspector, id, piece| inspector.answer_body(id, piece);

/// Whether a switch says to what, without which nobody knows what comes next (RFC 9110, section 7.8).
fn names_protocol(head: &AnswerHead<'_>) -> bool {
    head.headers.first("upgrade").is_some_and(|protocol| !protocol.is_empty())
}

fn meaning(head: &AnswerHead<'_>, exchange: &Exchange, stays_open: bool) -> AnswerMeaning {
    let strips_coding =
        head.body == BodyFraming::Chunked && exchange.asked.version == Version::Http10;
    AnswerMeaning {
        status: head.status,
        head_bytes: head.len,
        framing: head.body,
        keep_alive: head.keep_alive,
        closes: !stays_open || strips_coding || head.body == BodyFraming::UntilClose,
        strips_coding,
        date_at: None,
    }
}

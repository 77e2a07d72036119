//! Where an inspector looks, and what becomes of what it says.

use tollgate_wire::ParseError;

use super::clients::Asker;
use super::{Step, Worker};
use crate::downstream::Stage;
use crate::exchange::{Answer, Exchange, Hold};
use crate::phase::{ExchangeId, Inspector, Outcome, OwnAnswer, Verdict};
use crate::relay::{Body, Taken};

/// Which of an inspector's two looks at a body is meant.
pub(super) type Look = fn(&mut dyn Inspector, ExchangeId, &[u8]) -> Verdict;

/// Takes what of `bytes` belongs to a body, and has its payload looked at.
pub(super) fn take_body(
    body: &mut Body,
    bytes: &mut [u8],
    inspector: &mut Option<Box<dyn Inspector>>,
    id: ExchangeId,
    look: Look,
) -> Result<(Taken, Verdict), ParseError> {
    let Some(inspector) = inspector else {
        return Ok((body.take(bytes)?, Verdict::Pass));
    };
    let mut verdict = Verdict::Pass;
    let mut add = |piece: &[u8]| {
        let so_far = std::mem::replace(&mut verdict, Verdict::Pass);
        verdict = so_far.and(look(inspector.as_mut(), id, piece));
    };
    let taken = body.take_with(bytes, &mut add)?;
    if taken.done {
        add(b"");
    }
    Ok((taken, verdict))
}

impl Worker {
    /// Has an exchange wait; these bytes for its client with it.
    pub(super) fn hold(&mut self, key: usize, bytes: Vec<u8>, has_head: bool) -> Step {
        let client = &mut self.clients[key];
        if let Some(exchange) = &mut client.exchange {
            exchange.hold = Some(Box::new(Hold { bytes, has_head }));
            client.deadline = self.now + self.timeouts.answer;
        }
        Step::Waits
    }

    /// An exchange that waits goes on.
    pub(super) fn resume(&mut self, id: ExchangeId, verdict: Verdict) -> std::io::Result<()> {
        let key = id.client;
        let Some(client) = self.clients.get_mut(key) else { return Ok(()) };
        let Some(exchange) = client.exchange.as_mut().filter(|exchange| exchange.id == id) else {
            return Ok(());
        };
        if verdict == Verdict::Wait {
            return Ok(());
        }
        let Some(hold) = exchange.hold.take() else { return Ok(()) };
        if let Verdict::Answer(answer) = verdict {
            if hold.has_head || matches!(exchange.answer, Answer::Head) {
                self.answer_instead(key, &answer);
                return self.turn(key);
            }
            self.remove_client(key);
            return Ok(());
        }
        client.unsent.keep(&hold.bytes);
        let step = match (&exchange.answer, exchange.upstream) {
            (Answer::Done { .. }, _) => self.close_books(key),
            (_, None) => self.assign(key),
            (_, Some(_)) => Step::On,
        };
        if step == Step::Over {
            self.remove_client(key);
            return Ok(());
        }
        self.turn(key)
    }

    /// Gives the answer of an inspector.
    pub(super) fn answer_instead(&mut self, key: usize, answer: &OwnAnswer) {
        self.drop_upstream(key);
        let Some(exchange) = &mut self.clients[key].exchange else { return };
        exchange.status = answer.status;
        exchange.answer_bytes = if exchange.asked.is_head { 0 } else { answer.body.len() as u64 };
        // Of the backend's, nothing goes on any more.
        exchange.answer = Answer::Head;
        let asker = Asker {
            is_head: exchange.asked.is_head,
            version: exchange.asked.version,
            stays: exchange.asked.keep_alive && exchange.body.is_done(),
        };
        self.say(key, asker, |delivery, out| answer.render(delivery, out));
        self.leave_exchange(key);
    }

    /// What is shown to the log.
    pub(super) fn show_outcome(&mut self, exchange: &Exchange) {
        if let Some(inspector) = &mut self.inspector {
            let outcome = Outcome {
                status: (exchange.status > 0).then_some(exchange.status),
                body_bytes: exchange.body_bytes,
                answer_bytes: exchange.answer_bytes,
                duration: self.now.saturating_duration_since(exchange.began),
            };
            inspector.log(exchange.id, &outcome);
        }
    }

    /// The answer was read to its end, and the client has it or will have it.
    pub(super) fn close_books(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(exchange) = &client.exchange else { return Step::Over };
        // What it has sent behind its last request may be here, or with the kernel still.
        let has_more = !client.unread.is_empty() || client.link.is_readable();
        let lingers = !exchange.is_sent() || has_more;
        client.stage = if exchange.closes {
            Stage::Ending { lingers, ends_at_close: exchange.answer.ends_at_close() }
        } else {
            Stage::Reading
        };
        // Who has not taken all of it yet is waited for as within it.
        let patience =
            if client.unsent.is_empty() { self.timeouts.idle } else { self.timeouts.body };
        client.deadline = self.now + patience;
        self.leave_exchange(key);
        Step::On
    }
}

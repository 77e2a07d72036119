//! The phases that a request and its answer pass, and who may look at them there: a firewall, for one.
//!
//! In this order: the request's headers, its body, the answer's headers, its body, and the log. Bodies
//! are shown piece by piece as they come, without their coding. What is shown has not gone on yet.
//! Interim answers, and what follows a switch to another protocol, are not shown; nor are requests that
//! no route takes.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tollgate_eventloop::Waker;
use tollgate_wire::{AnswerHead, RequestHead};

use crate::orders::Orders;

/// Looks at what one thread passes on. It is asked on the data path, which stands still meanwhile: what
/// takes long has the exchange wait, and is done elsewhere.
///
/// An exchange whose headers were shown is shown to the log once, whatever became of it.
#[expect(unused_variables, reason = "who does not look needs nothing of what is shown")]
pub trait Inspector: Send {
    /// The head of a request, and who sent it; nobody is known over a unix-domain socket.
    fn headers(&mut self, id: ExchangeId, head: &RequestHead<'_>, from: Option<IpAddr>) -> Verdict {
        Verdict::Pass
    }

    /// A piece of a request's body; an empty one is its end, which comes also where there is no body.
    fn body(&mut self, id: ExchangeId, piece: &[u8]) -> Verdict {
        Verdict::Pass
    }

    /// The head of a final answer.
    fn answer_headers(&mut self, id: ExchangeId, head: &AnswerHead<'_>) -> Verdict {
        Verdict::Pass
    }

    /// A piece of an answer's body; an empty one is its end, which comes also where there is no body.
    fn answer_body(&mut self, id: ExchangeId, piece: &[u8]) -> Verdict {
        Verdict::Pass
    }

    /// An exchange that is over.
    fn log(&mut self, id: ExchangeId, outcome: &Outcome) {}
}

/// What becomes of an exchange at a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It waits until it is resumed, in both directions; as long as for an answer of a backend, and is
    /// refused with 504 then.
    Wait,
    /// The client gets this instead of what the backend says. Where a part of that has gone on already,
    /// it is cut off.
    Answer(Box<OwnAnswer>),
}

impl Verdict {
    /// Of two, the one that stops more.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Pass, other) | (Self::Wait, other @ Self::Answer(_)) => other,
            (this, _) => this,
        }
    }
}

/// An answer that an inspector gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAnswer {
    /// 200 to 999.
    pub status: u16,
    /// The words behind it.
    pub reason: String,
    /// Headers, but for those that say how long the body is and whether the connection stays.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// One request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    pub(crate) client: usize,
    pub(crate) serial: u32,
}

/// What became of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status of the answer. None: there was none.
    pub status: Option<u16>,
    /// The bytes of the request's body that came.
    pub body_bytes: u64,
    /// The bytes of the answer's body.
    pub answer_bytes: u64,
    /// From the request's head to the end of the answer.
    pub duration: Duration,
}

/// Has exchanges of one thread go on that wait, from any thread.
#[derive(Clone, Debug)]
pub struct Resumer {
    orders: Arc<Orders>,
    waker: Waker,
}

impl Resumer {
    pub(crate) fn new(orders: Arc<Orders>, waker: Waker) -> Self {
        Self { orders, waker }
    }

    /// Ends the wait of an exchange, however often it was told to wait before. One that does not wait, or
    /// is over, is not touched.
    ///
    /// # Errors
    ///
    /// The thread could not be woken, which no known kernel does.
    pub fn resume(&self, id: ExchangeId, verdict: Verdict) -> io::Result<()> {
        self.orders.resume(id, verdict);
        self.waker.wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_that_stops_more_counts() {
        let answer = |status| {
            let body = Vec::new();
            Verdict::Answer(Box::new(OwnAnswer {
                status,
                reason: String::new(),
                headers: Vec::new(),
                body,
            }))
        };
        assert_eq!(Verdict::Pass.and(Verdict::Wait), Verdict::Wait);
        assert_eq!(Verdict::Wait.and(Verdict::Pass), Verdict::Wait);
        assert_eq!(Verdict::Wait.and(answer(403)), answer(403));
        assert_eq!(answer(403).and(Verdict::Wait), answer(403));
        assert_eq!(answer(403).and(answer(500)), answer(403));
        assert_eq!(Verdict::Pass.and(Verdict::Pass), Verdict::Pass);
    }
}

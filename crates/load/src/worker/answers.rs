//! Receiving answers.

use std::io::{self, ErrorKind};
use std::time::{Instant, SystemTime};

use thiserror::Error;
use tollgate_wire::{Answer, Scan};

use super::Worker;
use crate::failure::Failure;
use crate::slot::{Slot, State};

/// How often a large answer is read before other connections have their turn.
const READS_PER_TURN_MAX: usize = 16;

/// What a piece of the stream has led to.
#[derive(Debug)]
enum Progress {
    /// The connection goes on.
    Open,
    /// The connection ends with the last answer.
    Ended,
    /// There is no telling what the server means.
    Failed(Failure),
}

impl Worker {
    /// Receives what there is. A read that leaves room in the buffer has emptied the socket, so that
    /// no second one is made to learn that.
    pub(super) fn receive(&mut self, index: usize, buffer: &mut [u8]) {
        for read in 0..READS_PER_TURN_MAX {
            if read > 0 {
                // Long answers take time, and what is due meanwhile is looked for by this clock.
                self.now = Instant::now();
            }
            let State::Open(link) = &mut self.slots[index].state else {
                return;
            };
            let (bytes, stamp) = match link.receive(buffer) {
                Ok((0, _)) => return self.end_of_stream(index),
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.broken(index, &error),
            };
            let is_emptied = bytes < buffer.len() && !link.is_shut;
            self.recorder.received(bytes);
            match self.read(index, &buffer[..bytes], stamp) {
                Progress::Open if is_emptied => return,
                Progress::Open => {}
                Progress::Ended => return self.part(index),
                Progress::Failed(failure) => return self.fail(index, failure),
            }
        }
        self.leave_unread(index);
    }

    /// Has the socket read again at the end of this turn.
    pub(super) fn leave_unread(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if !slot.is_unread {
            slot.is_unread = true;
            self.unread.push(index);
        }
    }

    /// Finds the answers in a piece of a connection's stream, and sends what their ends make room
    /// for. All that end in one piece have ended when it was there, so one look at the clock will do.
    /// `stamp` is when the piece's last byte arrived, where that is known.
    fn read(&mut self, index: usize, mut bytes: &[u8], stamp: Option<SystemTime>) -> Progress {
        let mut arrived = None;
        while !bytes.is_empty() {
            let slot = &mut self.slots[index];
            if !slot.has_begun_front() {
                // A farewell that answers nothing, such as a 408 to an idle connection.
                return Progress::Ended;
            }
            let is_asked_for_more = slot.awaits_several();
            let Slot { state: State::Open(link), under_way, .. } = slot else {
                return Progress::Open;
            };
            let Some(front) = under_way.front_mut() else {
                return Progress::Ended;
            };
            if self.plan.first_byte && front.first_byte.is_none() {
                front.first_byte = Some(*arrived.get_or_insert_with(Instant::now));
            }
            let is_head = self.plan.workload.requests[front.request].is_head;
            let scanned = match &self.plan.workload.needles[front.request] {
                None => link.scanner.feed(bytes, is_head, &mut self.heads, |_| {}),
                Some(needle) => {
                    let search = &mut link.search;
                    link.scanner.feed(bytes, is_head, &mut self.heads, |piece| {
                        search.feed(needle, piece);
                    })
                }
            };
            match scanned {
                Ok(Scan::Complete { answer, consumed }) => {
                    if consumed < bytes.len() && !is_asked_for_more {
                        let surplus = Surplus { bytes: bytes.len() - consumed };
                        return Progress::Failed(Failure::malformed(&surplus));
                    }
                    bytes = &bytes[consumed..];
                    self.now = *arrived.get_or_insert_with(Instant::now);
                    if !self.finish(index, answer, stamp) {
                        return Progress::Ended;
                    }
                }
                Ok(Scan::Partial) => break,
                Err(error) => return Progress::Failed(Failure::malformed(&error)),
            }
        }
        // A server that has shut its side takes nothing more; the end of the stream is read next.
        if matches!(&self.slots[index].state, State::Open(link) if !link.is_shut) {
            self.refill(index);
        }
        Progress::Open
    }

    /// The first request under way has its answer. Whether the connection carries on.
    fn finish(&mut self, index: usize, answer: Answer, stamp: Option<SystemTime>) -> bool {
        let slot = &mut self.slots[index];
        // A server that answers before it has the whole request will not take another after it.
        let is_whole = slot.has_sent_front();
        let (Some(exchange), State::Open(link)) = (slot.pop(), &mut slot.state) else {
            return false;
        };
        let workload = &self.plan.workload;
        let contains = workload.needles[exchange.request].is_none() || link.search.found();
        link.search.reset();
        link.is_reused = true;
        self.under_way -= 1;
        let request = &workload.requests[exchange.request];
        let arrived = match stamp {
            Some(stamp) => self.clocks.instant_of(stamp, exchange.sent, self.now),
            None => self.now,
        };
        self.recorder.answered(&exchange, request, answer, contains, arrived);
        if self.naps.is_some() && stamp.is_none() {
            self.recorder.missed_stamp();
        }
        self.recorder.saw_head(self.heads.last());
        self.plan.keep_alive && answer.keep_alive && is_whole
    }

    /// The server has closed the connection.
    fn end_of_stream(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let is_idle = !slot.has_begun_front();
        let State::Open(link) = &mut slot.state else {
            return;
        };
        if is_idle {
            return self.go_on(index);
        }
        match link.scanner.close() {
            Ok(Some(answer)) => {
                self.now = Instant::now();
                // The end of a stream has no stamp.
                self.finish(index, answer, None);
                self.go_on(index);
            }
            Ok(None) => match link.send_error.take() {
                Some(error) => self.fail(index, Failure::io("sending", &error)),
                None => self.fail(index, Failure::ClosedEarly),
            },
            Err(error) => self.fail(index, Failure::malformed(&error)),
        }
    }

    fn broken(&mut self, index: usize, error: &io::Error) {
        if self.slots[index].has_begun_front() {
            self.fail(index, Failure::io("receiving", error));
        } else {
            self.go_on(index);
        }
    }
}

/// The server sent more than its answer's framing says.
#[derive(Debug, Error)]
#[error("{bytes} bytes follow the answer's end, and no request asks for them")]
struct Surplus {
    bytes: usize,
}

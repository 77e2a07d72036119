//! One client's connection: bytes in, answers out, closing.

mod tools;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tollgate_eventloop::{Event, Interest, Socket};

use crate::config::Timeouts;
use crate::conversation::{Arriving, Circumstances, Conversation, Ending, Need};
use crate::output::{Output, Sent};
use tools::Received;

pub(crate) use tools::Tools;

/// A client that is sending still after the last answer is listened to for so many bytes.
const LINGER_MAX_BYTES: usize = 1 << 20;

/// A connection sends at most so much, and reads about as much, before the others of its thread have
/// their turn.
const TURN_BUDGET_BYTES: usize = 1 << 20;

/// A connection has at most so many random bytes or zeros before the others have their turn: some
/// hundred microseconds' worth of random ones.
const FETCH_BUDGET_BYTES: usize = 256 << 10;

/// One client's connection. Between turns it keeps only what could not be dealt with.
pub(crate) struct Connection {
    socket: Socket,
    /// The client, if there is an access log to name it in.
    peer: Box<str>,
    conversation: Conversation,
    phase: Phase,
    /// There may be something to read. The poller tells once, and a read that leaves room in its
    /// buffer has taken all that there was.
    is_readable: bool,
    /// The client has sent its last byte, of which a read that leaves room says nothing.
    is_shut: bool,
    /// It was told of room to write, or may be, for it has waited for that before.
    has_waited_for_room: bool,
    /// It is to have a turn without anything happening on its socket.
    is_queued: bool,
    unread: Vec<u8>,
    unsent: Output,
    /// Since when the request that is under way arrives; its first byte has come then.
    arriving_since: Instant,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for requests.
    Reading,
    /// Waits for room to send answers, and reads nothing until they are gone.
    Writing,
    /// Waits for a moment; what the client sends meanwhile is left where it is.
    Waiting { until: Instant },
    /// Has random bytes or zeros to be taken.
    Working,
    /// Everything is sent. Reads to the client's end and throws it away.
    Lingering { left_bytes: usize },
}

/// Whether a connection goes on after its turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It does, when something happens on its socket.
    Goes,
    /// It does, at this moment.
    Waits(Instant),
    /// It does, as soon as the others have had their turn.
    Works,
    /// It is over and can be dropped.
    Over,
}

impl Connection {
    pub(crate) fn new(socket: Socket, peer: Box<str>, now: Instant, timeouts: &Timeouts) -> Self {
        Self {
            socket,
            peer,
            conversation: Conversation::default(),
            phase: Phase::Reading,
            is_readable: false,
            is_shut: false,
            has_waited_for_room: false,
            is_queued: false,
            unread: Vec::new(),
            unsent: Output::default(),
            arriving_since: now,
            deadline: now + timeouts.idle,
        }
    }

    /// What it is to be told of.
    pub(crate) fn interest(&self) -> Interest {
        // Once a client has been slow, its connection goes on being told of both, which costs nothing.
        if self.has_waited_for_room { Interest::BothOnce } else { Interest::ReadableOnce }
    }

    /// Takes note of what the poller tells, which it will not tell again. Returns whether there is
    /// something to be done about it now.
    pub(crate) fn notice(&mut self, event: Event) -> bool {
        let is_end = event.is_shut() || event.is_closed();
        self.is_readable |= event.is_readable() || is_end;
        self.is_shut |= is_end;
        !self.is_queued && !matches!(self.phase, Phase::Waiting { .. })
    }

    /// It works on an answer without looking at its socket, or waits to give it.
    pub(crate) fn is_occupied(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. } | Phase::Working)
    }

    /// Reads again, though the poller has told of nothing.
    pub(crate) fn look_again(&mut self) {
        self.is_readable = true;
    }

    /// Its turn comes without anything happening on its socket. Returns whether it is due to one.
    pub(crate) fn is_next_in_queue(&mut self) -> bool {
        std::mem::take(&mut self.is_queued)
    }

    /// No request is under way, not even half a head.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Reading)
            && self.unread.is_empty()
            && self.conversation.is_between_requests()
    }

    /// It waits for this very moment.
    pub(crate) fn waits_for(&self, at: Instant) -> bool {
        self.phase == Phase::Waiting { until: at }
    }

    /// When it is to be closed, unless it has a turn before.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads, answers and sends as far as it goes without waiting, and within bounds. Once told to
    /// stop, `stop_by` is when the origin ends.
    ///
    /// # Errors
    ///
    /// The socket's own; the connection is over then.
    pub(crate) fn turn(
        &mut self,
        tools: &mut Tools,
        now: Instant,
        stop_by: Option<Instant>,
    ) -> io::Result<Turn> {
        let turn = self.go_on(tools, now, stop_by)?;
        self.is_queued = turn == Turn::Works;
        Ok(turn)
    }

    fn go_on(
        &mut self,
        tools: &mut Tools,
        now: Instant,
        stop_by: Option<Instant>,
    ) -> io::Result<Turn> {
        // A connection that failed in its turn may have left answers here that are not ours.
        tools.output.clear();
        let mut send_budget_bytes = TURN_BUDGET_BYTES;
        match self.phase {
            Phase::Lingering { left_bytes } => return self.linger(left_bytes, tools),
            Phase::Writing => {
                let before = self.unsent.left_bytes();
                let sent = self.unsent.send(&mut &self.socket, &mut send_budget_bytes, false);
                let sent_bytes = before - self.unsent.left_bytes();
                self.count_sent(sent_bytes, tools);
                if sent_bytes > 0 {
                    self.deadline = now + tools.timeouts.answer;
                }
                match sent? {
                    Sent::All => self.unsent = Output::default(),
                    Sent::Part => {
                        self.has_waited_for_room = true;
                        return Ok(Turn::Goes);
                    }
                    Sent::Enough => return Ok(Turn::Works),
                }
            }
            // Answers that are due after the end are not waited for.
            Phase::Waiting { until } if is_after(until, stop_by) => return Ok(Turn::Over),
            Phase::Waiting { until } if now < until => return Ok(Turn::Goes),
            Phase::Reading | Phase::Waiting { .. } | Phase::Working => {}
        }
        if self.phase != Phase::Reading {
            // Requests that were received already are answered before more are read. That they had to
            // wait was no fault of the client.
            self.arriving_since = now;
            let input_bytes = self.recall_unread(tools);
            let turn = self.converse(tools, input_bytes, &mut send_budget_bytes, now, stop_by)?;
            if self.phase != Phase::Reading || turn == Turn::Over {
                return Ok(turn);
            }
        }
        let mut read_bytes = 0;
        while self.is_readable {
            if read_bytes >= TURN_BUDGET_BYTES {
                return Ok(Turn::Works);
            }
            let input_bytes = match self.read(tools)? {
                Received::Bytes(count) => count,
                Received::Nothing => return Ok(Turn::Goes),
                Received::End => return Ok(Turn::Over),
            };
            read_bytes += input_bytes;
            let turn = self.converse(tools, input_bytes, &mut send_budget_bytes, now, stop_by)?;
            if self.phase != Phase::Reading || turn == Turn::Over {
                return Ok(turn);
            }
        }
        Ok(Turn::Goes)
    }

    /// Answers what is in the input, and sends the answers, until more input is needed or something
    /// else is to be waited for. Keeps what could not be dealt with.
    fn converse(
        &mut self,
        tools: &mut Tools,
        input_bytes: usize,
        send_budget_bytes: &mut usize,
        now: Instant,
        stop_by: Option<Instant>,
    ) -> io::Result<Turn> {
        let mut fetch_budget_bytes = FETCH_BUDGET_BYTES;
        let mut consumed = 0;
        loop {
            let circumstances = Circumstances { stopping: stop_by.is_some() };
            let input = &tools.input[consumed..input_bytes];
            let (count, need) =
                self.conversation.advance(input, &mut tools.output, &mut tools.site, circumstances);
            consumed += count;
            let last = need == Need::Close(Ending::Clean);
            let sent = self.send(tools, send_budget_bytes, last)?;
            let turn = match need {
                _ if sent != Sent::All => {
                    std::mem::swap(&mut self.unsent, &mut tools.output);
                    self.deadline = now + tools.timeouts.answer;
                    self.phase = Phase::Writing;
                    self.has_waited_for_room |= sent == Sent::Part;
                    if sent == Sent::Enough { Turn::Works } else { Turn::Goes }
                }
                Need::Room => continue,
                Need::Bytes(source, bytes) if fetch_budget_bytes > 0 => {
                    let fetched = tools.sources.fetch(source, bytes)?;
                    self.conversation.fetched(fetched as u64);
                    fetch_budget_bytes = fetch_budget_bytes.saturating_sub(fetched);
                    continue;
                }
                Need::Bytes(..) => {
                    self.phase = Phase::Working;
                    self.deadline = now + tools.timeouts.idle;
                    Turn::Works
                }
                Need::Until(until) if is_after(until, stop_by) => Turn::Over,
                Need::Until(until) => {
                    self.phase = Phase::Waiting { until };
                    self.deadline = until + tools.timeouts.idle;
                    Turn::Waits(until)
                }
                Need::Input => {
                    self.phase = Phase::Reading;
                    self.wait_for_input(now, consumed, input_bytes, &tools.timeouts);
                    Turn::Goes
                }
                Need::Close(Ending::Clean) => {
                    // Sends what the kernel holds back: a close alone would forget it when the client
                    // has sent more than it should.
                    self.socket.shutdown_write()?;
                    Turn::Over
                }
                Need::Close(Ending::Linger) => {
                    self.socket.shutdown_write()?;
                    self.deadline = now + tools.timeouts.linger;
                    self.phase = Phase::Lingering { left_bytes: LINGER_MAX_BYTES };
                    consumed = input_bytes;
                    if self.is_readable { Turn::Works } else { Turn::Goes }
                }
            };
            self.unread.clear();
            if consumed < input_bytes {
                self.unread.extend_from_slice(&tools.input[consumed..input_bytes]);
            } else if self.unread.capacity() > 0 {
                self.unread = Vec::new();
            }
            return Ok(turn);
        }
    }

    /// Sets the deadline for what is to be read.
    fn wait_for_input(
        &mut self,
        now: Instant,
        consumed: usize,
        input_bytes: usize,
        timeouts: &Timeouts,
    ) {
        match self.conversation.arriving() {
            Arriving::Head if consumed == input_bytes => {
                self.arriving_since = now;
                self.deadline = now + timeouts.idle;
            }
            Arriving::Head => {
                // The rest of what was there before, to which bytes were added, or a new beginning.
                if consumed > 0 || self.unread.is_empty() {
                    self.arriving_since = now;
                }
                self.deadline = self.arriving_since + timeouts.head;
            }
            Arriving::Body { since, bytes } => {
                let least = bytes / timeouts.body_bytes_per_second.max(1);
                let at_least_rate = since + timeouts.body + Duration::from_secs(least);
                self.deadline = at_least_rate.min(now + timeouts.body);
            }
            Arriving::Nothing => {}
        }
    }

    /// Sends word to a client that has been too long about its request, if there is room for it. The
    /// connection is over.
    ///
    /// # Errors
    ///
    /// The socket's own.
    pub(crate) fn give_up(&mut self, tools: &mut Tools) -> io::Result<()> {
        // To ask nothing is not to be late with it.
        if self.is_idle() || matches!(self.phase, Phase::Lingering { .. }) {
            return Ok(());
        }
        tools.site.counters.tally().timed_out.add(1);
        if self.phase == Phase::Reading {
            tools.output.clear();
            self.conversation.give_up(&mut tools.output, &mut tools.site);
            self.send(tools, &mut TURN_BUDGET_BYTES.clone(), true)?;
            self.socket.shutdown_write()?;
        }
        Ok(())
    }

    /// It is over. The access log has a line of what was cut off, too.
    pub(crate) fn leave(&mut self, tools: &mut Tools) {
        self.conversation.cut_off(&mut tools.site, &self.peer);
    }

    /// Sends what is in the output, as [`Output::send`] does.
    fn send(
        &mut self,
        tools: &mut Tools,
        budget_bytes: &mut usize,
        last: bool,
    ) -> io::Result<Sent> {
        let before = tools.output.left_bytes();
        let sent = tools.output.send(&mut &self.socket, budget_bytes, last);
        let sent_bytes = before - tools.output.left_bytes();
        self.count_sent(sent_bytes, tools);
        sent
    }

    fn count_sent(&mut self, bytes: u64, tools: &mut Tools) {
        tools.site.counters.tally().bytes_out.add(bytes);
        self.conversation.sent(bytes, &mut tools.site, &self.peer);
    }

    /// Fills the input with what is unread and what has arrived.
    fn read(&mut self, tools: &mut Tools) -> io::Result<Received> {
        let kept = self.recall_unread(tools);
        assert!(kept < tools.input.len(), "an incomplete head leaves room to read");
        let received = tools.receive(&self.socket, kept)?;
        self.is_readable = self.is_readable_after(&received, tools.input.len() - kept);
        Ok(match received {
            Received::Bytes(count) => Received::Bytes(kept + count),
            other => other,
        })
    }

    fn is_readable_after(&self, received: &Received, room: usize) -> bool {
        match received {
            Received::Bytes(count) => *count == room || self.is_shut,
            Received::Nothing => false,
            Received::End => true,
        }
    }

    /// Fills the input with what is unread.
    fn recall_unread(&self, tools: &mut Tools) -> usize {
        tools.input[..self.unread.len()].copy_from_slice(&self.unread);
        self.unread.len()
    }

    fn linger(&mut self, mut left_bytes: usize, tools: &mut Tools) -> io::Result<Turn> {
        while self.is_readable {
            let received = tools.receive(&self.socket, 0)?;
            self.is_readable = self.is_readable_after(&received, tools.input.len());
            match received {
                Received::Bytes(count) if count < left_bytes => left_bytes -= count,
                Received::Bytes(_) | Received::End => return Ok(Turn::Over),
                Received::Nothing => {}
            }
        }
        self.phase = Phase::Lingering { left_bytes };
        Ok(Turn::Goes)
    }
}

/// Whether the origin, once told to stop, has ended by then.
fn is_after(moment: Instant, stop_by: Option<Instant>) -> bool {
    stop_by.is_some_and(|stop_by| moment > stop_by)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;

//! Opening connections, ending them, and what has lasted too long.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::{SWEEP_INTERVAL_MAX, SWEEP_INTERVAL_MIN, Worker};
use crate::failure::Failure;
use crate::link::Link;
use crate::slot::{Sent, Slot, State};

/// How long a connection waits after a failed connect, so that a closed port is not hammered.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// How long the server may take to close a connection after its last answer.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

impl Worker {
    /// Starts to connect, and sends right away what is to be sent: over loopback the connection is
    /// there when the call returns, and waiting for the poller to say so would cost three system
    /// calls.
    pub(super) fn connect(&mut self, index: usize) {
        let began = Instant::now();
        self.now = began;
        self.slots[index].generation = self.slots[index].generation.wrapping_add(1);
        let link = match Link::connect(&self.plan.target, self.naps.is_some()) {
            Ok(link) => link,
            Err(error) => return self.fail_to_connect(index, &error),
        };
        self.enter(index, State::Connecting(link));
        if self.slots[index].under_way.is_empty() {
            return self.await_connect(index);
        }
        if self.plan.keep_alive {
            self.now = Instant::now();
            self.slots[index].restamp(self.now, self.pacer.is_none());
        }
        let token = self.token(index);
        let slot = &mut self.slots[index];
        match slot.send(&self.plan.workload.requests, &self.poller, token) {
            Ok(sent) if sent == Sent::All || slot.has_begun_front() => self.open(index),
            // Until the connection is there, the requests have been under way since the connect.
            Ok(_) => slot.restamp(began, self.pacer.is_none()),
            Err(error) if slot.has_begun_front() => {
                self.open(index);
                self.fail_to_send(index, error);
            }
            Err(error) => self.fail_to_connect(index, &error),
        }
    }

    fn await_connect(&mut self, index: usize) {
        let token = self.token(index);
        let State::Connecting(link) = &mut self.slots[index].state else {
            return;
        };
        if let Err(error) = link.watch(&self.poller, token, true) {
            self.fail_to_connect(index, &error);
        }
    }

    /// The poller says that the attempt to connect has ended.
    pub(super) fn establish(&mut self, index: usize) {
        let State::Connecting(link) = &self.slots[index].state else {
            return;
        };
        match link.socket.error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return self.fail_to_connect(index, &error),
        }
        self.open(index);
        if self.plan.keep_alive {
            self.slots[index].restamp(self.now, self.pacer.is_none());
        }
        self.refill(index);
        if self.pacer.is_some() {
            self.send(index);
        }
    }

    /// The connection is there.
    fn open(&mut self, index: usize) {
        self.now = Instant::now();
        let slot = &mut self.slots[index];
        self.recorder.connected(self.now - slot.since);
        if let State::Connecting(link) = std::mem::replace(&mut slot.state, State::Down) {
            self.enter(index, State::Open(link));
        }
    }

    fn fail_to_connect(&mut self, index: usize, error: &io::Error) {
        self.now = Instant::now();
        let front = self.slots[index].under_way.front();
        let is_waiting =
            front.is_some_and(|front| self.now - front.sent < self.plan.connect_timeout);
        match error.kind() {
            // The backlog of a unix-domain socket is full. Over TCP the kernel would wait for room.
            ErrorKind::WouldBlock if is_waiting => {}
            ErrorKind::WouldBlock => self.end_front(index, Failure::ConnectTimeout),
            _ => self.end_front(index, Failure::io("connecting", error)),
        }
        self.pause(index);
    }

    /// Waits before the next connect.
    fn pause(&mut self, index: usize) {
        self.leave(index);
        self.enter(index, State::Pausing);
    }

    /// Gives up the connection. What was sent on it and is not answered will be sent again.
    pub(super) fn leave(&mut self, index: usize) {
        let to_resend = self.slots[index].leave(self.now);
        self.recorder.resent(to_resend);
    }

    /// Waits for the server to close a connection that carries no further request.
    ///
    /// The side that closes first keeps the pair of ports for a minute (`TIME_WAIT`). On our side
    /// that would leave about 28,000 connects a minute towards one target before connecting fails, so
    /// the server goes first, as it has announced, and only one that does not is cut off. Where other
    /// requests wait for a new connection, they do not wait for that.
    pub(super) fn part(&mut self, index: usize) {
        if !self.slots[index].under_way.is_empty() {
            return self.cut(index);
        }
        match std::mem::replace(&mut self.slots[index].state, State::Down) {
            State::Open(link) if !link.is_shut => self.enter(index, State::Closing(link)),
            state => {
                self.slots[index].state = state;
                self.go_on(index);
            }
        }
    }

    /// Closes a connection that the server should have closed, without keeping the pair of ports.
    fn cut(&mut self, index: usize) {
        let state = std::mem::replace(&mut self.slots[index].state, State::Down);
        if let State::Closing(link) | State::Open(link) = state {
            // Where this fails, the ports are kept for a while, and nothing else is lost.
            link.socket.reset().ok();
        }
        self.go_on(index);
    }

    /// Goes on without the connection that there was: with a new one if there is something to send.
    pub(super) fn go_on(&mut self, index: usize) {
        self.now = Instant::now();
        self.leave(index);
        if self.pacer.is_none() {
            self.fill(index);
        }
        if self.slots[index].under_way.is_empty() {
            self.refill(index);
        } else {
            self.connect(index);
            if self.pacer.is_some() {
                self.offer(index);
            }
        }
    }

    /// The first request under way has failed, and its connection with it.
    pub(super) fn fail(&mut self, index: usize, failure: Failure) {
        self.now = Instant::now();
        self.end_front(index, failure);
        self.go_on(index);
    }

    /// The first request under way has had its time, and perhaps others behind it.
    fn time_out(&mut self, index: usize) {
        while self.deadline(&self.slots[index]).is_some_and(|deadline| deadline <= self.now) {
            self.end_front(index, Failure::AnswerTimeout);
        }
        self.go_on(index);
    }

    fn end_front(&mut self, index: usize, failure: Failure) {
        if let Some(exchange) = self.slots[index].pop() {
            self.under_way -= 1;
            let template = self.course.request(exchange.request).template;
            self.recorder.failed(&exchange, template, failure, self.now);
        }
    }

    fn enter(&mut self, index: usize, state: State) {
        self.slots[index].enter(state, self.now);
        if let Some(deadline) = self.deadline(&self.slots[index]) {
            self.next_sweep = self.next_sweep.min(deadline);
        }
    }

    /// When a slot's state has lasted too long.
    fn deadline(&self, slot: &Slot) -> Option<Instant> {
        match slot.state {
            State::Down => None,
            State::Pausing => Some(slot.since + RETRY_PAUSE),
            State::Connecting(_) => Some(slot.since + self.plan.connect_timeout),
            State::Open(_) => {
                slot.under_way.front().map(|front| front.sent + self.plan.answer_timeout)
            }
            State::Closing(_) => Some(slot.since + CLOSE_TIMEOUT),
        }
    }

    /// Ends what has lasted too long, and finds out when the next look is worth its while.
    pub(super) fn sweep(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if self.deadline(slot).is_none_or(|deadline| deadline > self.now) {
                continue;
            }
            match slot.state {
                State::Connecting(_) => {
                    self.end_front(index, Failure::ConnectTimeout);
                    self.pause(index);
                }
                State::Open(_) => self.time_out(index),
                State::Closing(_) => {
                    self.recorder.cut_off();
                    self.cut(index);
                }
                State::Pausing => self.go_on(index),
                State::Down => {}
            }
        }
        let earliest = self.slots.iter().filter_map(|slot| self.deadline(slot)).min();
        // A request that is sent from now on is due no sooner than after a whole timeout.
        let latest = self.now + SWEEP_INTERVAL_MAX.min(self.plan.answer_timeout);
        let soonest = self.now + SWEEP_INTERVAL_MIN;
        self.next_sweep =
            earliest.map_or(latest, |deadline| deadline.clamp(soonest, latest.max(soonest)));
    }
}

//! Taking requests and sending them.

use std::io;
use std::time::{Duration, Instant};

use super::{EVENTS_PER_WAIT, Worker};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::slot::{Slot, State, is_gone};
use crate::usage::ThreadClock;

/// What may still be done before the poller is asked again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// What one wait tells of at most.
    pub(super) events: usize,
    sends: usize,
    growths: usize,
}

impl Budget {
    /// What may be done in one turn of the loop.
    pub(super) const TURN: Self = Self { events: EVENTS_PER_WAIT, sends: 64, growths: 4 };

    pub(super) fn is_spent(&self) -> bool {
        self.events == 0 || self.sends == 0 || self.growths == 0
    }
}

impl Worker {
    /// Opens the connections that are kept, all of them before the first request: a server that is
    /// busy with requests from the first ones takes long to accept the others, and their requests
    /// would wait for that. Connections that carry one request each begin with it.
    ///
    /// A few in each turn, so that the poller can tell of those that are there.
    pub(super) fn begin(&mut self) {
        let end = self.slots.len().min(self.begun + BEGINS_PER_TURN_MAX);
        for index in self.begun..end {
            if self.plan.keep_alive {
                self.connect(index);
            } else {
                self.go_on(index);
            }
        }
        self.begun = self.begun.max(end);
    }

    /// Sends the first requests when the connections are there, have failed, or take too long.
    pub(super) fn begin_sending(&mut self, clock: &ThreadClock) -> io::Result<()> {
        if self.has_begun {
            return Ok(());
        }
        let is_connecting = |slot: &Slot| matches!(slot.state, State::Connecting(_));
        let is_opening = self.begun < self.slots.len() || self.slots.iter().any(is_connecting);
        let is_too_long = self.now - self.began >= OPENING_MAX;
        if is_opening && !is_too_long {
            return Ok(());
        }
        self.begun = self.slots.len();
        self.has_begun = true;
        self.open_window(clock)?;
        for index in 0..self.slots.len() {
            self.now = Instant::now();
            match self.slots[index].state {
                State::Open(_) => self.refill(index),
                State::Down => self.go_on(index),
                // In a closed loop its requests wait from now on, and are told as unanswered.
                State::Connecting(_) if self.pacer.is_none() => self.fill(index),
                // They come in by themselves.
                State::Connecting(_) | State::Pausing | State::Closing(_) => {}
            }
        }
        Ok(())
    }

    /// Makes use of the room on a slot's connection: sends the next requests of a closed loop, or puts
    /// it in line for those of a schedule.
    pub(super) fn refill(&mut self, index: usize) {
        if !self.has_begun {
            return;
        }
        if self.pacer.is_some() {
            self.offer(index);
        } else {
            self.fill(index);
            self.send(index);
        }
    }

    /// Closed loop: takes as many requests as may be under way on a slot.
    pub(super) fn fill(&mut self, index: usize) {
        while self.has_begun
            && self.slots[index].under_way.len() < self.plan.pipeline
            && let Some(request) = self.course.take()
        {
            self.put(index, request, self.now);
        }
    }

    /// Sends what is due before the next answer is read. With slack it waits for all of them: the
    /// moment of their arrival does not get lost.
    pub(super) fn send_between(&mut self) {
        if self.naps.is_none() {
            self.send_due();
        }
    }

    /// Open loop: sends what is due, as long as there are connections for it. After so many sends the
    /// poller is asked first, so that answers are not left lying while requests go out.
    pub(super) fn send_due(&mut self) {
        // A look at the last reading of the clock is cheaper than another reading. Handlers renew it,
        // and after the last of them the loop does.
        if !self.pacer.as_ref().is_some_and(|pacer| pacer.is_due(self.now)) {
            return;
        }
        loop {
            self.now = Instant::now();
            if !self.pacer.as_ref().is_some_and(|pacer| pacer.is_due(self.now)) {
                return;
            }
            if self.budget.sends == 0 {
                return;
            }
            let Some(index) = self.next_offered().or_else(|| self.grow()) else {
                return self.hold();
            };
            self.budget.sends -= 1;
            self.send_on_schedule(index);
        }
    }

    /// Sends the request that is due on a slot that can take it.
    fn send_on_schedule(&mut self, index: usize) {
        let Some(due) = self.pacer.as_mut().and_then(|pacer| pacer.take(self.now)) else {
            return;
        };
        if !due.was_held {
            self.recorder.due(self.now - due.scheduled, false);
        }
        let request = self.course.next();
        self.put(index, request, due.scheduled);
        match self.slots[index].state {
            State::Down => self.connect(index),
            _ => self.send(index),
        }
        self.offer(index);
    }

    /// Has what is due wait for a connection.
    fn hold(&mut self) {
        if let Some(pacer) = &mut self.pacer {
            pacer.hold(self.now, |late| self.recorder.due(late, true));
        }
    }

    /// Adds a request to those under way on a slot.
    fn put(&mut self, index: usize, request: usize, scheduled: Instant) {
        self.recorder.begun();
        self.under_way += 1;
        let exchange =
            Exchange { request, scheduled, sent: self.now, was_sent: false, first_byte: None };
        self.slots[index].under_way.push_back(exchange);
    }

    /// Puts a slot in line for the next request, if it has room and is not in line.
    pub(super) fn offer(&mut self, index: usize) {
        let can_take = self.can_take(index);
        let slot = &mut self.slots[index];
        if can_take && !slot.is_offered {
            slot.is_offered = true;
            self.offered.push_back(index);
        }
    }

    fn can_take(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let has_room = slot.under_way.len() < self.plan.pipeline;
        let is_up = match &slot.state {
            State::Down => true,
            State::Open(link) => !link.is_shut,
            State::Pausing | State::Connecting(_) | State::Closing(_) => false,
        };
        has_room && is_up
    }

    /// Takes the first slot of the line that can still take a request.
    fn next_offered(&mut self) -> Option<usize> {
        while let Some(index) = self.offered.pop_front() {
            self.slots[index].is_offered = false;
            if self.can_take(index) {
                return Some(index);
            }
        }
        None
    }

    /// Adds a connection, if there may be another one. After a few the poller is asked first: it may
    /// know of one that has become free.
    fn grow(&mut self) -> Option<usize> {
        let is_full = self.slots.len() == self.slots_max;
        if !self.has_begun || is_full || self.budget.growths == 0 {
            return None;
        }
        self.budget.growths -= 1;
        self.begun += 1;
        self.slots.push(Slot::new(self.now));
        Some(self.slots.len() - 1)
    }

    /// Sends what is not sent yet.
    pub(super) fn send(&mut self, index: usize) {
        let token = self.token(index);
        let slot = &mut self.slots[index];
        match slot.send(&self.plan.workload.requests, &self.poller, token) {
            Ok(_) => {}
            Err(error) if slot.was_closed_between(&error) => {
                self.leave(index);
                self.connect(index);
            }
            Err(error) => self.fail_to_send(index, error),
        }
    }

    /// Sending has failed. A server that does not want the rest of a request may have answered before
    /// it closed, so what there is to read is read first.
    pub(super) fn fail_to_send(&mut self, index: usize, error: io::Error) {
        let slot = &mut self.slots[index];
        let may_be_answered = slot.has_begun_front() && is_gone(&error);
        match &mut slot.state {
            State::Open(link) if may_be_answered => {
                link.is_shut = true;
                link.send_error = Some(error);
                self.leave_unread(index);
            }
            _ => self.fail(index, Failure::io("sending", &error)),
        }
    }
}

/// How many connections are begun between two questions to the poller.
const BEGINS_PER_TURN_MAX: usize = 16;

/// How long the first requests wait for the connections. One that takes longer comes in later.
const OPENING_MAX: Duration = Duration::from_secs(1);

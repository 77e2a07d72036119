//! Taking requests and sending them.

use std::time::Instant;

use super::Worker;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::slot::{Slot, State};

impl Worker {
    /// Opens the connections: with a first request each in a closed loop, ahead of the schedule in an
    /// open one that keeps them.
    pub(super) fn begin(&mut self) {
        for index in 0..self.slots.len() {
            if self.pacer.is_some() && self.plan.keep_alive {
                self.connect(index);
            } else {
                self.go_on(index);
            }
        }
    }

    /// Makes use of the room on a slot's connection: sends the next requests of a closed loop, or puts
    /// it in line for those of a schedule.
    pub(super) fn refill(&mut self, index: usize) {
        if self.pacer.is_some() {
            self.offer(index);
        } else {
            self.fill(index);
            self.send(index);
        }
    }

    /// Closed loop: takes as many requests as may be under way on a slot.
    pub(super) fn fill(&mut self, index: usize) {
        while self.slots[index].under_way.len() < self.plan.pipeline
            && let Some(request) = self.course.take()
        {
            self.put(index, request, self.now);
        }
    }

    /// Open loop: sends what is due, as long as there are connections for it.
    pub(super) fn send_due(&mut self) {
        let Some(pacer) = &self.pacer else {
            return;
        };
        // Looking at the clock costs more than this look at the last one, which is never too late.
        if pacer.next().is_none_or(|next| next > self.now) {
            return;
        }
        loop {
            self.now = Instant::now();
            let index = self.next_offered().or_else(|| self.grow());
            let Some(pacer) = &mut self.pacer else {
                return;
            };
            let Some(index) = index else {
                pacer.hold(self.now, |late| self.recorder.due(late, true));
                return;
            };
            let Some(due) = pacer.take(self.now) else {
                self.offer_first(index);
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
        has_room && matches!(slot.state, State::Down | State::Open(_))
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

    /// Puts a slot back at the head of the line.
    fn offer_first(&mut self, index: usize) {
        self.slots[index].is_offered = true;
        self.offered.push_front(index);
    }

    fn grow(&mut self) -> Option<usize> {
        if self.slots.len() == self.slots_max {
            return None;
        }
        self.slots.push(Slot::new(self.now));
        Some(self.slots.len() - 1)
    }

    /// Sends what is not sent yet.
    pub(super) fn send(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        match slot.send(&self.plan.workload.requests, &self.poller, index as u64) {
            Ok(_) => {}
            Err(error) if slot.was_closed_between(&error) => {
                self.leave(index);
                self.connect(index);
            }
            Err(error) => self.fail(index, Failure::io("sending", &error)),
        }
    }
}

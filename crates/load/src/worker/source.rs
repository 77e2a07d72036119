//! Source of the requests of a thread: which one is next, when it is due, and whether all are sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sessions::Sessions;
use crate::pacing::{Pacer, Schedule};
use crate::plan::{Arrivals, Plan, share};
use crate::workload::RequestSequence;
use tollgate_stats::LATENESS_MAX;

#[derive(Debug)]
pub(super) enum RequestSource {
    /// A request is sent as soon as a connection has room.
    Closed(ClosedLoop),
    /// A request is sent when it is due.
    Open(Box<OpenLoop>),
    /// Recorded requests are sent when they are due, on connections of their session.
    Replay(Box<Sessions>),
}

#[derive(Debug)]
pub(super) struct ClosedLoop {
    sequence: RequestSequence,
    /// Requests left to take. `None`: no limit.
    left: Option<u64>,
}

#[derive(Debug)]
pub(super) struct OpenLoop {
    sequence: RequestSequence,
    pub(super) pacer: Pacer,
    /// Connections that can take a request, longest free first, so that all are used.
    pub(super) free: VecDeque<usize>,
}

impl RequestSource {
    /// Creates the source of one of `threads`, whose schedule begins at `start`.
    pub(super) fn new(plan: &Plan, start: Instant, thread: usize, threads: usize) -> Self {
        let sequence = RequestSequence::new(&plan.workload, thread, threads);
        let limit = plan.requests().map(|requests| share(requests, thread, threads));
        match &plan.arrivals {
            Arrivals::Closed { .. } => Self::Closed(ClosedLoop { sequence, left: limit }),
            Arrivals::Open { schedule, seed } => {
                let schedule = Schedule::new(schedule, *seed, thread, threads);
                let pacer = Pacer::new(schedule, start, limit, plan.length());
                Self::Open(Box::new(OpenLoop { sequence, pacer, free: VecDeque::new() }))
            }
            Arrivals::Replay(plan) => Self::Replay(Box::new(Sessions::new(
                &plan.replay,
                &plan.rate,
                start,
                thread,
                threads,
            ))),
        }
    }

    /// Number of requests in all; `None` without a limit.
    pub(super) fn planned(&self) -> Option<u64> {
        match self {
            Self::Closed(source) => source.left,
            Self::Open(source) => source.pacer.limit(),
            Self::Replay(sessions) => Some(sessions.planned()),
        }
    }

    pub(super) fn is_closed_loop(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// True if all requests are sent; never without a limit.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Closed(source) => source.left == Some(0),
            Self::Open(source) => source.pacer.next().is_none(),
            Self::Replay(sessions) => sessions.is_done(),
        }
    }

    /// Drops the requests that are not sent.
    pub(super) fn end(&mut self) {
        match self {
            Self::Closed(source) => source.left = Some(0),
            Self::Open(source) => source.pacer.end(),
            Self::Replay(sessions) => sessions.end(),
        }
    }

    /// Time at which the thread has to send without an event. Queued requests wait for a connection, not for the clock.
    pub(super) fn next_due(&self) -> Option<Instant> {
        match self {
            Self::Closed(_) => None,
            Self::Open(source) => source.pacer.next_unqueued(),
            Self::Replay(sessions) => sessions.pacer.next_unqueued(),
        }
    }

    /// True if a request may be sent without an event.
    pub(super) fn has_ready(&self) -> bool {
        matches!(self, Self::Replay(sessions) if sessions.has_ready())
    }

    /// Number of requests that are due and not sent, and the age of the oldest.
    pub(super) fn unsent(self, now: Instant) -> (u64, Option<Duration>) {
        match self {
            Self::Closed(_) => (0, None),
            Self::Open(source) => source.pacer.unsent(now, LATENESS_MAX),
            Self::Replay(sessions) => sessions.unsent(now, LATENESS_MAX),
        }
    }

    pub(super) fn open_loop(&mut self) -> Option<&mut OpenLoop> {
        match self {
            Self::Open(source) => Some(source),
            Self::Closed(_) | Self::Replay(_) => None,
        }
    }

    pub(super) fn sessions(&mut self) -> Option<&mut Sessions> {
        match self {
            Self::Replay(sessions) => Some(sessions),
            Self::Closed(_) | Self::Open(_) => None,
        }
    }
}

impl ClosedLoop {
    /// Takes the index of the next request; `None` after the last.
    pub(super) fn take(&mut self) -> Option<usize> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        Some(self.sequence.next())
    }
}

impl OpenLoop {
    /// Takes the index of the request that follows the schedule.
    pub(super) fn take(&mut self) -> usize {
        self.sequence.next()
    }
}

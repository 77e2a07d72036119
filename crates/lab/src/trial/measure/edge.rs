//! What had been used at one end of the window.

use super::{MeasureError, Subject};
use crate::noise::Counters;
use crate::process::idle_poll::IdlePoll;
use crate::process::tree::ProcessTable;
use crate::process::usage::Reading;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The processes of each role.
pub(super) struct Pids {
    pub(super) system: BTreeSet<i32>,
    pub(super) origin: BTreeSet<i32>,
}

impl Pids {
    /// Those that are alive now. On CPUs that are spent this takes tens of milliseconds, so it is
    /// done before the window opens and after it has closed.
    pub(super) fn list(subject: &Subject<'_>) -> Result<Self, MeasureError> {
        let table = ProcessTable::read()?;
        Ok(Self { system: subject.system.pids(&table), origin: subject.origin.pids(&table) })
    }
}

/// What had been used at one end of the window.
pub(super) struct Edge {
    pub(super) at: Instant,
    pub(super) counters: Counters,
    pub(super) system: Reading,
    pub(super) origin: Reading,
    /// What keeping the CPUs awake had taken.
    pub(super) awake: Duration,
}

impl Edge {
    pub(super) fn read(
        subject: &Subject<'_>,
        pids: &Pids,
        awake: &IdlePoll,
    ) -> Result<Self, MeasureError> {
        let counters = Counters::read(&subject.layout.all())?;
        Ok(Self {
            counters,
            at: Instant::now(),
            system: Reading::take(&pids.system),
            origin: Reading::take(&pids.origin),
            awake: awake.cpu_time().map_err(MeasureError::IdlePollTime)?,
        })
    }

    /// Adds the processes that began within the window. What they used between its end and now
    /// counts as well, for the sake of an end that is on time.
    pub(super) fn add(&mut self, pids: &Pids) {
        self.system.add(&pids.system);
        self.origin.add(&pids.origin);
    }
}

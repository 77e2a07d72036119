//! CPU time of processes, read from outside.
//!
//! The total comes from the process's own CPU clock, which counts nanoseconds and includes threads
//! that have ended. How it divides into user and system time is known to the kernel's tick only
//! (10 ms as a rule), so it is the total that figures are made of; the division is an estimate.

use nix::errno::Errno;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thiserror::Error;

/// CPU time spent, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTime {
    /// In the program itself.
    pub user_us: u64,
    /// In the kernel on its behalf.
    pub system_us: u64,
}

/// What a set of processes had used at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    processes: BTreeMap<i32, ProcessReading>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ProcessReading {
    total: Duration,
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
}

/// Processes that ended while they were being measured.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{} of its processes ended", .0.len())]
pub struct Died(pub Vec<i32>);

impl CpuTime {
    /// User and system time together, in microseconds.
    pub fn total_us(self) -> u64 {
        self.user_us + self.system_us
    }
}

impl Reading {
    /// Reads the CPU clocks of the processes. One that is gone is left out, and [`Reading::until`]
    /// then says so.
    pub fn take(pids: &BTreeSet<i32>) -> Self {
        let read = |pid: &i32| Some((*pid, ProcessReading::take(*pid)?));
        Self { processes: pids.iter().filter_map(read).collect() }
    }

    /// Reads the CPU clocks of those processes that this reading does not have yet.
    pub fn add(&mut self, pids: &BTreeSet<i32>) {
        let new = pids.iter().filter(|pid| !self.processes.contains_key(pid)).copied().collect();
        self.processes.extend(Self::take(&new).processes);
    }

    /// What was used from this reading to a later one. Processes that began in between count whole.
    ///
    /// # Errors
    ///
    /// A process of this reading is not in the later one.
    pub fn until(&self, later: &Self) -> Result<CpuTime, Died> {
        let gone = |pid: &&i32| !later.processes.contains_key(pid);
        let died: Vec<i32> = self.processes.keys().filter(gone).copied().collect();
        if !died.is_empty() {
            return Err(Died(died));
        }
        let mut spent = CpuTime::default();
        for (pid, end) in &later.processes {
            let start = self.processes.get(pid).copied().unwrap_or_default();
            let used = start.until(*end);
            spent.user_us += used.user_us;
            spent.system_us += used.system_us;
        }
        Ok(spent)
    }

    /// How many threads there are in the processes that did the work from this reading to a later
    /// one: as many CPUs they can use at most. Idle processes, such as a master beside its workers,
    /// do not count.
    pub fn working_threads(&self, later: &Self) -> u64 {
        let used = |(pid, end): (&i32, &ProcessReading)| {
            let start = self.processes.get(pid).copied().unwrap_or_default();
            (start.until(*end).total_us(), end.threads)
        };
        let used: Vec<(u64, u64)> = later.processes.iter().map(used).collect();
        let all: u64 = used.iter().map(|(us, _)| us).sum();
        let working = used.iter().filter(|(us, _)| us * IDLE_DIVISOR > all);
        working.map(|(_, threads)| threads).sum()
    }
}

/// A process that used less than one part in this many is idle.
const IDLE_DIVISOR: u64 = 50;

impl ProcessReading {
    fn take(pid: i32) -> Option<Self> {
        let total = cpu_clock(pid).ok()?;
        let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
        let threads = u64::try_from(stat.num_threads).unwrap_or(1);
        Some(Self { total, user_ticks: stat.utime, system_ticks: stat.stime, threads })
    }

    fn until(self, later: Self) -> CpuTime {
        let total = later.total.saturating_sub(self.total);
        let user = later.user_ticks.saturating_sub(self.user_ticks);
        let system = later.system_ticks.saturating_sub(self.system_ticks);
        // With no tick in between, the division over the whole life is the best there is.
        let (user, system) = match user + system {
            0 => (later.user_ticks, later.system_ticks.max(1)),
            _ => (user, system),
        };
        let total_us = u64::try_from(total.as_micros()).unwrap_or(u64::MAX);
        let user_us = u128::from(total_us) * u128::from(user) / u128::from(user + system);
        let user_us = u64::try_from(user_us).unwrap_or(total_us);
        CpuTime { user_us, system_us: total_us - user_us }
    }
}

fn cpu_clock(pid: i32) -> Result<Duration, Errno> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid))?;
    clock_gettime(clock).map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(pid: i32, total_us: u64, user_ticks: u64, system_ticks: u64) -> Reading {
        let total = Duration::from_micros(total_us);
        let process = ProcessReading { total, user_ticks, system_ticks, threads: 3 };
        Reading { processes: BTreeMap::from([(pid, process)]) }
    }

    #[test]
    fn the_total_is_divided_as_the_ticks_were() {
        let spent = reading(1, 500, 10, 10).until(&reading(1, 40_500, 13, 11)).unwrap();
        assert_eq!(spent, CpuTime { user_us: 30_000, system_us: 10_000 });
    }

    #[test]
    fn a_process_that_ended_is_named_and_one_that_began_counts_whole() {
        let mut later = reading(2, 1_000, 1, 0);
        assert_eq!(reading(1, 0, 0, 0).until(&later), Err(Died(vec![1])));
        later.processes.extend(reading(1, 700, 0, 0).processes);
        let spent = reading(1, 500, 0, 0).until(&later).unwrap();
        assert_eq!(spent.total_us(), 1_200);
    }

    #[test]
    fn adding_reads_the_clocks_of_new_processes_only() {
        let me = std::process::id().cast_signed();
        let mut known = reading(me, 7, 1, 1);
        known.add(&BTreeSet::from([me]));
        assert_eq!(known, reading(me, 7, 1, 1));
        let mut other = reading(0, 7, 1, 1);
        other.add(&BTreeSet::from([me]));
        assert_eq!(other.processes.keys().collect::<Vec<_>>(), [&0, &me]);
    }

    #[test]
    fn only_the_threads_of_processes_that_worked_count() {
        let mut start = reading(1, 0, 0, 0);
        let mut end = reading(1, 100, 0, 0);
        start.processes.extend(reading(2, 0, 0, 0).processes);
        end.processes.extend(reading(2, 9_900, 0, 0).processes);
        assert_eq!(start.working_threads(&end), 3);
    }

    #[test]
    fn the_clock_of_a_real_process_moves_with_its_work() {
        let me = BTreeSet::from([std::process::id().cast_signed()]);
        let before = Reading::take(&me);
        let mut sum = 0_u64;
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            sum = sum.wrapping_add(1);
        }
        assert!(sum > 0);
        let spent = before.until(&Reading::take(&me)).unwrap();
        assert!(spent.total_us() > 1_000, "{spent:?}");
    }
}

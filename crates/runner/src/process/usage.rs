//! Processes of a role, and their CPU time and memory, read from outside.
//!
//! Total CPU time comes from the CPU clock of the process, which counts nanoseconds and includes finished threads.
//! The kernel divides it into user and system time by its tick only (usually 10 ms): figures use the total, and the
//! division is an estimate.

use nix::errno::Errno;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, getpid};
use procfs::process::{Process, Stat, all_processes};
use procfs::{ProcError, ProcResult};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_records::trial::{CpuTime, as_f64};
use tollgate_records::validity::HeavyProcess;

/// Processes that were alive at one moment.
#[derive(Debug)]
pub struct ProcessTable {
    processes: Vec<Stat>,
    read_at: Instant,
}

impl ProcessTable {
    /// Lists live processes. Leaves out those that end meanwhile.
    pub fn read() -> ProcResult<Self> {
        let mut alive = Vec::new();
        for process in all_processes()? {
            match process.and_then(|process| process.stat()) {
                Ok(stat) if stat.state != 'Z' && stat.state != 'X' => alive.push(stat),
                Ok(_) | Err(ProcError::NotFound(_) | ProcError::PermissionDenied(_)) => {}
                // The process ended after its files were opened.
                Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { processes: alive, read_at: Instant::now() })
    }

    /// Returns a process, its descendants and the members of its process group: an orphan keeps its group, but not
    /// its parent. Empty if none is left.
    pub(crate) fn descendants(&self, root: Pid) -> BTreeSet<i32> {
        let belongs = |stat: &&Stat| stat.pid == root.as_raw() || stat.pgrp == root.as_raw();
        self.with_descendants(self.processes.iter().filter(belongs).map(|stat| stat.pid).collect())
    }

    /// Returns all descendants of the calling process.
    pub fn own_descendants(&self) -> BTreeSet<i32> {
        self.orphans(&BTreeSet::new())
    }

    /// Returns processes that detached themselves from their parent, and their descendants. The calling process is a
    /// subreaper, so orphans are its children; `known` are the children that it started itself.
    pub(crate) fn orphans(&self, known: &BTreeSet<i32>) -> BTreeSet<i32> {
        let this = getpid().as_raw();
        // Orphans in the group of a known process already count with that process.
        let is_orphan = |stat: &&Stat| {
            stat.ppid == this && !known.contains(&stat.pid) && !known.contains(&stat.pgrp)
        };
        self.with_descendants(
            self.processes.iter().filter(is_orphan).map(|stat| stat.pid).collect(),
        )
    }

    /// Returns the process that used most CPU time between this table and a later one on these CPUs, except this process,
    /// its descendants and the processes of an attached system. Rounds to ticks of the kernel.
    pub(crate) fn heaviest_since(
        &self,
        later: &Self,
        cpus: &[usize],
        system: &BTreeSet<i32>,
    ) -> Option<HeavyProcess> {
        let own = &later.own_descendants() | system;
        let ticks = |stat: &Stat| stat.utime + stat.stime;
        let before: BTreeMap<(i32, u64), u64> =
            self.processes.iter().map(|stat| ((stat.pid, stat.starttime), ticks(stat))).collect();
        let is_foreign = |stat: &&Stat| {
            let cpu = stat.processor.and_then(|cpu| usize::try_from(cpu).ok());
            stat.pid != getpid().as_raw()
                && !own.contains(&stat.pid)
                && cpu.is_none_or(|cpu| cpus.contains(&cpu))
        };
        let used = later.processes.iter().filter(is_foreign).map(|stat| {
            let earlier = before.get(&(stat.pid, stat.starttime)).copied().unwrap_or(0);
            (ticks(stat).saturating_sub(earlier), stat)
        });
        let (ticks, stat) = used.max_by_key(|(ticks, _)| *ticks).filter(|(ticks, _)| *ticks > 0)?;
        let spent_s = as_f64(ticks) / as_f64(procfs::ticks_per_second());
        let capacity_s = (later.read_at - self.read_at).as_secs_f64() * as_f64(cpus.len() as u64);
        Some(HeavyProcess {
            name: stat.comm.clone(),
            pid: stat.pid,
            is_subject: false,
            percent: 100.0 * spent_s / capacity_s,
        })
    }

    fn with_descendants(&self, mut tree: BTreeSet<i32>) -> BTreeSet<i32> {
        loop {
            let before = tree.len();
            let children = self.processes.iter().filter(|stat| tree.contains(&stat.ppid));
            let children: Vec<i32> = children.map(|stat| stat.pid).collect();
            tree.extend(children);
            if tree.len() == before {
                return tree;
            }
        }
    }
}

/// CPU clocks of a set of processes at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    processes: BTreeMap<i32, ProcessReading>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ProcessReading {
    total: Duration,
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
}

/// Processes that ended during the measurement.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("processes that ended: {}", .0.len())]
pub(crate) struct Died(pub(crate) Vec<i32>);

impl Reading {
    /// Reads the CPU clocks of processes. Leaves out those that have ended; [`Reading::until`] reports them.
    pub(crate) fn take(pids: &BTreeSet<i32>) -> Self {
        let read = |pid: &i32| Some((*pid, ProcessReading::take(*pid)?));
        Self { processes: pids.iter().filter_map(read).collect() }
    }

    /// Adds the CPU clocks of processes that are not in this reading.
    pub(crate) fn add(&mut self, pids: &BTreeSet<i32>) {
        let new = pids.iter().filter(|pid| !self.processes.contains_key(pid)).copied().collect();
        self.processes.extend(Self::take(&new).processes);
    }

    /// Returns the CPU time used between this reading and a later one. Processes that started in between count
    /// in full; a process that is missing in the later reading is an error.
    pub(crate) fn until(&self, later: &Self) -> Result<CpuTime, Died> {
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

    /// Counts the threads of the processes that worked between this reading and a later one: an upper bound of the
    /// CPUs that they can use. Idle processes, such as the master process of nginx, do not count.
    pub(crate) fn working_threads(&self, later: &Self) -> u64 {
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

/// CPU time of each thread of a set of processes at one moment.
#[derive(Debug)]
pub(crate) struct ThreadReading {
    at: Instant,
    /// By process and thread.
    threads: BTreeMap<(i32, i32), Duration>,
}

impl ThreadReading {
    /// Reads the CPU time of all threads. Takes as long as there are threads; leaves out those that end meanwhile.
    pub(crate) fn take(pids: &BTreeSet<i32>) -> Self {
        let at = Instant::now();
        let mut threads = BTreeMap::new();
        let tasks = |pid: &i32| Process::new(*pid).and_then(|process| process.tasks()).ok();
        for task in pids.iter().filter_map(tasks).flatten().flatten() {
            if let Ok(times) = task.schedstat() {
                threads.insert((task.pid, task.tid), Duration::from_nanos(times.sum_exec_runtime));
            }
        }
        Self { at, threads }
    }

    /// Returns the share of the time from this reading until `end` in which the busiest thread used a CPU. `later` is read
    /// after `end`, when no thread works any more.
    pub(crate) fn busiest_until(&self, later: &Self, end: Instant) -> f64 {
        let time_s = end.saturating_duration_since(self.at).as_secs_f64();
        let used = later.threads.iter().map(|(thread, time)| {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            time.saturating_sub(before).as_secs_f64()
        });
        let busiest_s = used.fold(0.0, f64::max);
        if time_s > 0.0 { (busiest_s / time_s).min(1.0) } else { 0.0 }
    }
}

/// A process is idle if its share of the CPU time is below one in this number.
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
        // Without a tick in between, use the division over the lifetime of the process.
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

/// Returns the peak memory of a set of processes, in bytes.
///
/// Sum of the proportional set size (PSS: a page mapped by n processes counts 1/n for each, so that pages shared by
/// workers count once) and of the difference between peak and current resident memory.
pub(crate) fn memory_peak_bytes(pids: &BTreeSet<i32>) -> ProcResult<u64> {
    pids.iter().map(|pid| process_memory_peak_bytes(*pid)).sum()
}

fn process_memory_peak_bytes(pid: i32) -> ProcResult<u64> {
    let process = Process::new(pid)?;
    let rollup = process.smaps_rollup()?;
    let shares = rollup.memory_map_rollup.iter();
    let share: u64 = shares.filter_map(|map| map.extension.map.get("Pss")).sum();
    let status = process.status()?;
    let peak_kib = status.vmhwm.unwrap_or(0);
    let now_kib = status.vmrss.unwrap_or(0);
    Ok(share + peak_kib.saturating_sub(now_kib) * 1024)
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
    fn divides_total_in_proportion_to_ticks() {
        let spent = reading(1, 500, 10, 10).until(&reading(1, 40_500, 13, 11)).unwrap();
        assert_eq!(spent, CpuTime { user_us: 30_000, system_us: 10_000 });
    }

    #[test]
    fn ended_process_is_an_error_while_new_process_counts_in_full() {
        let mut later = reading(2, 1_000, 1, 0);
        assert_eq!(reading(1, 0, 0, 0).until(&later), Err(Died(vec![1])));
        later.processes.extend(reading(1, 700, 0, 0).processes);
        let spent = reading(1, 500, 0, 0).until(&later).unwrap();
        assert_eq!(spent.total_us(), 1_200);
    }

    #[test]
    fn add_reads_clocks_of_new_processes_only() {
        let me = std::process::id().cast_signed();
        let mut known = reading(me, 7, 1, 1);
        known.add(&BTreeSet::from([me]));
        assert_eq!(known, reading(me, 7, 1, 1));
        let mut other = reading(0, 7, 1, 1);
        other.add(&BTreeSet::from([me]));
        assert_eq!(other.processes.keys().collect::<Vec<_>>(), [&0, &me]);
    }

    #[test]
    fn threads_of_idle_processes_do_not_count() {
        let mut start = reading(1, 0, 0, 0);
        let mut end = reading(1, 100, 0, 0);
        start.processes.extend(reading(2, 0, 0, 0).processes);
        end.processes.extend(reading(2, 9_900, 0, 0).processes);
        assert_eq!(start.working_threads(&end), 3);
    }

    #[test]
    fn busiest_thread_is_found_among_idle_ones() {
        let at = Instant::now();
        let reading = |times: &[u64]| ThreadReading {
            at,
            threads: (1..)
                .zip(times)
                .map(|(tid, ms)| ((7, tid), Duration::from_millis(*ms)))
                .collect(),
        };
        let end = at + Duration::from_millis(200);
        // A thread that started in between counts in full.
        assert_eq!(reading(&[50, 9]).busiest_until(&reading(&[60, 9, 100]), end), 0.5);
        assert_eq!(reading(&[50, 9]).busiest_until(&reading(&[250]), end), 1.0);
        assert_eq!(reading(&[]).busiest_until(&reading(&[]), end), 0.0);
    }

    #[test]
    fn clock_of_this_process_advances_with_work() {
        let me = BTreeSet::from([std::process::id().cast_signed()]);
        let before = Reading::take(&me);
        let mut sum = 0_u64;
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            sum = sum.wrapping_add(1);
        }
        assert!(sum > 0);
        let spent = before.until(&Reading::take(&me)).unwrap();
        assert!(spent.total_us() > 1_000, "{spent:?}");
    }

    #[test]
    fn touched_memory_counts() {
        let me = BTreeSet::from([std::process::id().cast_signed()]);
        let before = memory_peak_bytes(&me).unwrap();
        // Much more than concurrent tests of this process allocate and free: runs in a script take a hundred MiB.
        let block = vec![1_u8; 512 << 20];
        let with_block = memory_peak_bytes(&me).unwrap();
        assert_eq!(block[block.len() / 2], 1);
        drop(block);
        let after = memory_peak_bytes(&me).unwrap();
        assert!(with_block > before + (300 << 20), "{before} {with_block}");
        assert!(after > before + (300 << 20), "the peak remains: {before} {after}");
    }
}

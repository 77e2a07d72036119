//! One process in a group of its own, with a log file, that is gone when its value is dropped.

use super::tree::ProcessTable;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// A process to start.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// What it is called in messages.
    pub name: &'a str,
    /// The program and its arguments.
    pub command: &'a [String],
    /// What its environment has besides.
    pub env: &'a BTreeMap<String, String>,
    /// The folder that it starts in.
    pub dir: &'a Path,
    /// The file that gets everything it prints.
    pub log: &'a Path,
    /// The CPUs that it may run on.
    pub cpus: &'a [usize],
}

/// A running process and its descendants. Dropping it stops them all.
#[derive(Debug)]
pub struct ProcessGroup {
    name: String,
    log: PathBuf,
    leader: Child,
}

/// A process that cannot be started.
#[derive(Debug, Error)]
#[error("starting `{name}` ({command})")]
pub struct LaunchError {
    name: String,
    command: String,
    source: io::Error,
}

impl ProcessGroup {
    /// Starts a process.
    ///
    /// It has to be called from a thread that outlives the process: when that thread ends, the
    /// kernel sends the process a TERM, which is how nothing is left when the lab itself is killed.
    ///
    /// # Errors
    ///
    /// The program cannot be run, or its log file cannot be made.
    pub fn start(launch: &Launch<'_>) -> Result<Self, LaunchError> {
        let failed = |source| LaunchError {
            name: launch.name.to_owned(),
            command: launch.command.join(" "),
            source,
        };
        let (program, arguments) = launch
            .command
            .split_first()
            .ok_or_else(|| failed(io::Error::other("the command is empty")))?;
        File::create(launch.log).map_err(failed)?;
        // Appended to, so that it may be cut while the process writes.
        let log = OpenOptions::new().append(true).open(launch.log).map_err(failed)?;
        let cpus = cpu_set(launch.cpus).map_err(failed)?;
        let lab = getpid();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(launch.env)
            .current_dir(launch.dir)
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(failed)?)
            .stdout(log)
            .process_group(0);
        #[expect(unsafe_code, reason = "the calls below are plain system calls, safe after fork")]
        // SAFETY: the closure allocates nothing and takes no lock; it makes three system calls.
        unsafe {
            command.pre_exec(move || {
                set_pdeathsig(Signal::SIGTERM)?;
                // A lab that was killed before this line sends no signal any more.
                if getppid() != lab {
                    return Err(Errno::ESRCH.into());
                }
                sched_setaffinity(Pid::from_raw(0), &cpus)?;
                Ok(())
            });
        }
        // Held over the spawn, so that a process is never without a group in the eyes of others.
        let mut known = leaders();
        let leader = command.spawn().map_err(failed)?;
        known.insert(pid_of(&leader).as_raw());
        Ok(Self { name: launch.name.to_owned(), log: launch.log.to_owned(), leader })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process that was started; its descendants are not counted.
    pub fn pid(&self) -> Pid {
        pid_of(&self.leader)
    }

    /// How the process ended, when it has.
    ///
    /// # Errors
    ///
    /// The operating system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.leader.try_wait()
    }

    /// The last lines that it printed, at most `lines` of them, each cut to a readable length.
    ///
    /// # Errors
    ///
    /// The log file cannot be read.
    pub fn log_tail(&self, lines: usize) -> io::Result<Vec<String>> {
        let text = fs::read(&self.log)?;
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = &all[all.len().saturating_sub(lines)..];
        Ok(tail.iter().map(|line| line.chars().take(MAX_LINE_CHARS).collect()).collect())
    }

    /// Stops the process and all its descendants: TERM, then KILL for what is left after
    /// five seconds, or at once after [`hurry`]. Returns when none is left, or after two seconds
    /// more.
    pub fn stop(&mut self) {
        let mut pids =
            ProcessTable::read().map(|table| table.below(self.pid())).unwrap_or_default();
        pids.insert(self.pid().as_raw());
        signal_group(self.pid(), Signal::SIGTERM);
        if !self.wait_for(&mut pids, polite(GRACE)) {
            signal_group(self.pid(), Signal::SIGKILL);
            kill_all(&pids);
            self.wait_for(&mut pids, at_last());
        }
        leaders().remove(&self.pid().as_raw());
    }

    /// Waits until none of the processes is left; removes those that ended from the set.
    fn wait_for(&mut self, pids: &mut BTreeSet<i32>, is_over: impl Fn() -> bool) -> bool {
        let leader_pid = self.pid().as_raw();
        wait_until_gone(pids, is_over, |pid| match pid == leader_pid {
            // The leader's status is kept by `Child`.
            true => matches!(self.leader.try_wait(), Ok(None)),
            false => is_alive(pid),
        })
    }
}

/// Processes below the lab that no group holds, because they made themselves independent.
pub fn strays(table: &ProcessTable) -> BTreeSet<i32> {
    let known = leaders().clone();
    table.strays(&known)
}

/// Stops what [`strays`] finds, and what that leaves behind in turn.
pub fn stop_strays() {
    stop_strays_but(&BTreeSet::new());
}

/// Stops what [`strays`] finds but these, and what that leaves behind in turn.
pub fn stop_strays_but(spared: &BTreeSet<i32>) {
    for _ in 0..STRAY_ROUNDS {
        // Where the process list cannot be read, there is no knowing whom to stop.
        let Ok(table) = ProcessTable::read() else { return };
        let mut pids = &strays(&table) - spared;
        if pids.is_empty() {
            return;
        }
        for pid in &pids {
            signal_process(*pid, Signal::SIGTERM);
        }
        if !wait_until_gone(&mut pids, polite(STRAY_GRACE), is_alive) {
            kill_all(&pids);
            wait_until_gone(&mut pids, at_last(), is_alive);
        }
    }
}

/// From now on nothing is waited for between TERM and KILL: whoever asks twice for an end means it.
pub fn hurry() {
    HURRY.store(true, Ordering::Relaxed);
}

static HURRY: AtomicBool = AtomicBool::new(false);

/// The processes that groups hold now.
static LEADERS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn leaders() -> MutexGuard<'static, BTreeSet<i32>> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How long a process may take to stop by itself after TERM.
const GRACE: Duration = Duration::from_secs(5);
/// How long the kernel may take to end a process after KILL.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How long a stray may take to stop by itself after TERM.
const STRAY_GRACE: Duration = Duration::from_secs(1);
/// How often strays are looked for: one may start another while it ends.
const STRAY_ROUNDS: usize = 3;
const POLL: Duration = Duration::from_millis(2);
const MAX_LINE_CHARS: usize = 500;

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn cpu_set(cpus: &[usize]) -> io::Result<CpuSet> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu)?;
    }
    Ok(set)
}

/// The end of a wait for processes that were asked to stop.
fn polite(limit: Duration) -> impl Fn() -> bool {
    let deadline = Instant::now() + limit;
    move || HURRY.load(Ordering::Relaxed) || Instant::now() >= deadline
}

/// The end of a wait for processes that the kernel was told to end.
fn at_last() -> impl Fn() -> bool {
    let deadline = Instant::now() + LAST_WAIT;
    move || Instant::now() >= deadline
}

/// Waits until none of the processes is alive; removes those that are not from the set.
fn wait_until_gone(
    pids: &mut BTreeSet<i32>,
    is_over: impl Fn() -> bool,
    mut is_alive: impl FnMut(i32) -> bool,
) -> bool {
    loop {
        pids.retain(|pid| is_alive(*pid));
        if pids.is_empty() {
            return true;
        }
        if is_over() {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

fn kill_all(pids: &BTreeSet<i32>) {
    for pid in pids {
        signal_process(*pid, Signal::SIGKILL);
    }
}

fn is_alive(pid: i32) -> bool {
    let pid = Pid::from_raw(pid);
    // ECHILD: not ours to reap. Anything else says that it still runs, or that it was reaped now.
    if let Err(error) = waitpid(pid, Some(WaitPidFlag::WNOHANG))
        && error != Errno::ECHILD
    {
        return false;
    }
    kill(pid, None).is_ok()
}

/// Sends a signal; a process that is gone already is what was wanted.
fn signal_process(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).ok();
}

fn signal_group(group: Pid, signal: Signal) {
    killpg(group, signal).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, dir: &Path) -> ProcessGroup {
        let command = ["sh", "-c", script].map(str::to_owned);
        ProcessGroup::start(&Launch {
            name: "script",
            command: &command,
            env: &BTreeMap::new(),
            dir,
            log: &dir.join("script.log"),
            cpus: &[0],
        })
        .unwrap()
    }

    fn wait_for_log(group: &ProcessGroup) -> String {
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if let Some(line) = group.log_tail(1).unwrap().pop() {
                return line;
            }
            std::thread::sleep(POLL);
        }
        panic!("the script printed nothing");
    }

    #[test]
    fn descendants_that_ignore_term_are_gone_after_stop() {
        let dir = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; (trap '' TERM; sleep 60) & echo $!; wait; sleep 60";
        let mut group = start(script, dir.path());
        let child: i32 = wait_for_log(&group).trim().parse().unwrap();
        assert!(is_alive(child));
        assert!(ProcessTable::read().unwrap().below(group.pid()).contains(&child));
        group.stop();
        assert!(!is_alive(child));
        assert!(group.ended().unwrap().is_some());
    }

    #[test]
    fn the_log_tail_is_what_was_printed_last() {
        let dir = tempfile::tempdir().unwrap();
        let mut group = start("echo one; echo two >&2; echo three", dir.path());
        while group.ended().unwrap().is_none() {
            std::thread::sleep(POLL);
        }
        assert_eq!(group.log_tail(2).unwrap(), ["two", "three"]);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = ProcessGroup::start(&Launch {
            name: "nothing",
            command: &["/no/such/program".to_owned()],
            env: &BTreeMap::new(),
            dir: dir.path(),
            log: &dir.path().join("log"),
            cpus: &[0],
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "starting `nothing` (/no/such/program)");
    }
}

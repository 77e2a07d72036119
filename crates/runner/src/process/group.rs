//! A process in its own process group, with a log file; stopped with all descendants when dropped.

use super::usage::ProcessTable;
use anyhow::Context;
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use procfs::ProcError;
use procfs::process::{MMapPath, MemoryMap, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tollgate_net::CpuSet;

/// A process to start.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Name in messages.
    pub name: &'a str,
    /// The program and its arguments.
    pub command: &'a [String],
    /// Additional environment variables.
    pub env: &'a BTreeMap<String, String>,
    /// Working directory.
    pub dir: &'a Path,
    /// File for standard output and standard error.
    pub log: &'a Path,
    /// CPUs that the process may run on.
    pub cpus: &'a [usize],
}

/// A running process and its descendants. Dropping stops them all.
#[derive(Debug)]
pub struct ProcessGroup {
    name: String,
    log: PathBuf,
    leader: Child,
}

impl ProcessGroup {
    /// Starts a process.
    ///
    /// The calling thread must outlive the process: when that thread ends, the kernel sends TERM to the process, so
    /// that it does not survive when tollgate is killed.
    pub fn start(launch: &Launch<'_>) -> anyhow::Result<Self> {
        let started = Self::spawn(launch);
        started.with_context(|| {
            format!("cannot start `{}` ({})", launch.name, launch.command.join(" "))
        })
    }

    fn spawn(launch: &Launch<'_>) -> io::Result<Self> {
        let (program, arguments) =
            launch.command.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
        File::create(launch.log)?;
        // In append mode the file may be truncated while the process writes.
        let log = OpenOptions::new().append(true).open(launch.log)?;
        let cpus = CpuSet::new(launch.cpus)?;
        let parent = getpid();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(launch.env)
            .current_dir(launch.dir)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            .process_group(0);
        #[expect(unsafe_code, reason = "the calls below are plain system calls, safe after fork")]
        // SAFETY: the closure allocates nothing and takes no lock; it makes three system calls.
        unsafe {
            command.pre_exec(move || {
                set_pdeathsig(Signal::SIGTERM)?;
                // If the parent died before the previous line, no signal will come.
                if getppid() != parent {
                    return Err(Errno::ESRCH.into());
                }
                cpus.pin_current_thread()
            });
        }
        // Locked during the spawn, so that the process is never mistaken for an orphan.
        let mut known = leaders();
        let leader = command.spawn()?;
        known.insert(pid_of(&leader).as_raw());
        Ok(Self { name: launch.name.to_owned(), log: launch.log.to_owned(), leader })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Id of the started process, which is also the id of its group.
    pub fn pid(&self) -> Pid {
        pid_of(&self.leader)
    }

    /// Returns the exit status, or `None` while the process runs.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.leader.try_wait()
    }

    /// True if the process or a descendant has mapped a file into its memory, as it does with a library.
    pub fn has_mapped(&self, file: &Path) -> anyhow::Result<bool> {
        let found =
            file.canonicalize().with_context(|| format!("cannot find {}", file.display()))?;
        let is_mapped =
            |map: &MemoryMap| matches!(&map.pathname, MMapPath::Path(path) if *path == found);
        let table = ProcessTable::read().context("cannot list processes")?;
        for pid in table.descendants(self.pid()) {
            match Process::new(pid).and_then(|process| process.maps()) {
                Ok(maps) if maps.iter().any(is_mapped) => return Ok(true),
                // The process ended meanwhile, or has changed its user.
                Ok(_) | Err(ProcError::NotFound(_) | ProcError::PermissionDenied(_)) => {}
                Err(error) => {
                    let name = &self.name;
                    return Err(error)
                        .with_context(|| format!("cannot read what `{name}` has loaded"));
                }
            }
        }
        Ok(false)
    }

    /// Returns the last non-empty lines of the log file, each cut to 500 characters.
    pub fn log_tail(&self, lines: usize) -> io::Result<Vec<String>> {
        let text = fs::read(&self.log)?;
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = &all[all.len().saturating_sub(lines)..];
        Ok(tail.iter().map(|line| line.chars().take(MAX_LINE_CHARS).collect()).collect())
    }

    /// Stops the process and all its descendants: TERM, then KILL after five seconds, or at once after [`kill_now`].
    /// Returns when none is left, at the latest two seconds after KILL.
    pub fn stop(&mut self) {
        let mut pids =
            ProcessTable::read().map(|table| table.descendants(self.pid())).unwrap_or_default();
        pids.insert(self.pid().as_raw());
        signal_group(self.pid(), Signal::SIGTERM);
        if !self.wait_for(&mut pids, after_term(GRACE)) {
            signal_group(self.pid(), Signal::SIGKILL);
            kill_all(&pids);
            self.wait_for(&mut pids, after_kill());
        }
        leaders().remove(&self.pid().as_raw());
    }

    /// Waits until all processes have ended; removes ended ones from the set. Returns false if `is_over` came first.
    fn wait_for(&mut self, pids: &mut BTreeSet<i32>, is_over: impl Fn() -> bool) -> bool {
        let leader_pid = self.pid().as_raw();
        wait_until_gone(pids, is_over, |pid| match pid == leader_pid {
            // `Child` has to reap the leader, to keep its status.
            true => matches!(self.leader.try_wait(), Ok(None)),
            false => is_alive(pid),
        })
    }
}

/// Returns descendants of this process that detached themselves from their [`ProcessGroup`].
pub fn orphans(table: &ProcessTable) -> BTreeSet<i32> {
    let known = leaders().clone();
    table.orphans(&known)
}

pub fn stop_orphans() {
    stop_orphans_except(&BTreeSet::new());
}

pub fn stop_orphans_except(spared: &BTreeSet<i32>) {
    for _ in 0..ORPHAN_ROUNDS {
        // Without a process list there is nothing to stop.
        let Ok(table) = ProcessTable::read() else { return };
        let mut pids = &orphans(&table) - spared;
        if pids.is_empty() {
            return;
        }
        for pid in &pids {
            signal_process(*pid, Signal::SIGTERM);
        }
        if !wait_until_gone(&mut pids, after_term(ORPHAN_GRACE), is_alive) {
            kill_all(&pids);
            wait_until_gone(&mut pids, after_kill(), is_alive);
        }
    }
}

/// Sends KILL directly after TERM from now on, as for a second Ctrl-C.
pub fn kill_now() {
    KILL_NOW.store(true, Ordering::Relaxed);
}

static KILL_NOW: AtomicBool = AtomicBool::new(false);

/// Leaders of all process groups that are running.
static LEADERS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn leaders() -> MutexGuard<'static, BTreeSet<i32>> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(5);
/// Time for the kernel to end a process after KILL.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// Time between TERM and KILL for orphans.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);
/// Passes over the process list: an orphan may start another one while it ends.
const ORPHAN_ROUNDS: usize = 3;
const POLL: Duration = Duration::from_millis(2);
const MAX_LINE_CHARS: usize = 500;

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// End of a wait after TERM.
fn after_term(limit: Duration) -> impl Fn() -> bool {
    let deadline = Instant::now() + limit;
    move || KILL_NOW.load(Ordering::Relaxed) || Instant::now() >= deadline
}

/// End of a wait after KILL.
fn after_kill() -> impl Fn() -> bool {
    let deadline = Instant::now() + KILL_WAIT;
    move || Instant::now() >= deadline
}

/// Waits until no process is alive; removes ended ones from the set.
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
    // ECHILD: not a child of this process.
    if let Err(error) = waitpid(pid, Some(WaitPidFlag::WNOHANG))
        && error != Errno::ECHILD
    {
        return false;
    }
    kill(pid, None).is_ok()
}

/// Sends a signal. An error means that the process has ended already.
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
    fn stop_kills_descendants_that_ignore_term() {
        let dir = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; (trap '' TERM; sleep 60) & echo $!; wait; sleep 60";
        let mut group = start(script, dir.path());
        let child: i32 = wait_for_log(&group).trim().parse().unwrap();
        assert!(is_alive(child));
        assert!(ProcessTable::read().unwrap().descendants(group.pid()).contains(&child));
        group.stop();
        assert!(!is_alive(child));
        assert!(group.exit_status().unwrap().is_some());
    }

    #[test]
    fn mapped_file_is_that_of_a_descendant_and_not_of_another_program() {
        let dir = tempfile::tempdir().unwrap();
        let group = start("sleep 60 & echo up; wait", dir.path());
        wait_for_log(&group);
        let program = |name: &str| {
            let path = std::env::var("PATH").unwrap();
            path.split(':').map(|dir| Path::new(dir).join(name)).find(|path| path.exists()).unwrap()
        };
        assert!(group.has_mapped(&program("sh")).unwrap());
        assert!(!group.has_mapped(&program("env")).unwrap());
        // The shell forks before it executes the program.
        while !group.has_mapped(&program("sleep")).unwrap() {
            std::thread::sleep(POLL);
        }
        let error = group.has_mapped(&dir.path().join("missing")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot find "), "{error:#}");
    }

    #[test]
    fn log_tail_has_the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut group = start("echo one; echo two >&2; echo three", dir.path());
        while group.exit_status().unwrap().is_none() {
            std::thread::sleep(POLL);
        }
        assert_eq!(group.log_tail(2).unwrap(), ["two", "three"]);
    }

    #[test]
    fn missing_program_is_named() {
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
        assert_eq!(error.to_string(), "cannot start `nothing` (/no/such/program)");
    }
}

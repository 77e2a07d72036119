//! Ctrl-C, TERM and HUP, and the supervisor: the process that a user starts, whose child does the work.
//!
//! A child that is killed cannot stop its servers, and a server may ignore the signal that the kernel then sends, or
//! run behind a shell that does not forward it. The supervisor is a subreaper: orphans become its children, and it
//! stops them. If the supervisor is killed instead, the child gets TERM and ends as after Ctrl-C.

use crate::console::eprint_line;
use nix::errno::Errno;
use nix::libc::SI_KERNEL;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::io::{self, stdin};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tollgate_runner::process::Interrupt;
use tollgate_runner::process::group::stop_orphans_except;
use tollgate_runner::process::usage::ProcessTable;

/// Runs `work` in a child process and stops all processes that it leaves behind. Must be called with only one thread
/// running. Runs `work` in this process if it cannot fork.
pub(crate) fn supervise(work: impl FnOnce() -> ExitCode) -> ExitCode {
    supervise_until(End::OfChild, work)
}

/// As [`supervise`], for work that ends with its standard input. A child that does not end then, because it is stopped
/// or hangs, is killed.
pub(crate) fn supervise_with_input(work: impl FnOnce() -> ExitCode) -> ExitCode {
    supervise_until(End::OfInput, work)
}

/// Events that end the work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    OfChild,
    OfInput,
}

fn supervise_until(end: End, work: impl FnOnce() -> ExitCode) -> ExitCode {
    let Ok(watch) = Watch::start() else { return work() };
    let supervisor = getpid();
    #[expect(unsafe_code, reason = "fork")]
    // SAFETY: there is only one thread, so the child may call any function.
    let forked = unsafe { fork() };
    match forked {
        Ok(ForkResult::Parent { child }) => match end {
            End::OfChild => watch.wait_for(child),
            End::OfInput => watch.wait_for_input(child),
        },
        Ok(ForkResult::Child) => {
            watch.end();
            let is_supervised = set_pdeathsig(Signal::SIGTERM).is_ok() && getppid() == supervisor;
            if is_supervised { work() } else { ExitCode::FAILURE }
        }
        Err(_) => {
            watch.end();
            work()
        }
    }
}

/// Blocks the signals that the supervisor waits for.
struct Watch {
    signals: SignalFd,
    forwarded: Vec<Signal>,
    mask_after: SigSet,
    /// Existing children, as of a shell that calls `exec`. They are not stopped.
    children_before: BTreeSet<i32>,
}

impl Watch {
    fn start() -> Result<Self, Errno> {
        set_child_subreaper(true)?;
        reset_sigchld()?;
        let forwarded = handled();
        let watched = SigSet::from_iter(forwarded.iter().copied().chain([Signal::SIGCHLD]));
        let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC)?;
        let mut mask_after = watched.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        // Servers inherit the mask; blocked signals would make them unstoppable.
        for signal in &watched {
            mask_after.remove(signal);
        }
        let table = ProcessTable::read();
        let children_before = table.map(|table| table.own_descendants()).unwrap_or_default();
        Ok(Self { signals, forwarded, mask_after, children_before })
    }

    fn end(self) {
        self.mask_after.thread_set_mask().ok();
    }

    fn wait_for(self, child: Pid) -> ExitCode {
        let code = loop {
            if let Some(code) = reap(child) {
                break code;
            }
            let Ok(Some(info)) = self.signals.read_signal() else { continue };
            if let Some(signal) = self.to_forward(&info) {
                kill(child, signal).ok();
            }
        };
        stop_orphans_except(&self.children_before);
        code
    }

    /// Waits for the child. After a signal, or the end of standard input, it gets [`GRACE`]; if it is stopped, none.
    fn wait_for_input(self, child: Pid) -> ExitCode {
        let mut deadline: Option<Instant> = None;
        let input = stdin();
        let code = loop {
            if let Some(code) = reap(child) {
                break code;
            }
            let mut watched = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if deadline.is_none() {
                // Without events, only a hangup is reported.
                watched.push(PollFd::new(&input, PollFlags::empty()));
            }
            // An interrupted wait is one without events.
            poll(&mut watched, Some(&CHECK_INTERVAL)).ok();
            let is_ready = |at: usize| watched.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (has_signal, is_ended) = (is_ready(0), is_ready(1));
            let mut ends = is_ended;
            if has_signal
                && let Ok(Some(info)) = self.signals.read_signal()
                && let Some(signal) = self.to_forward(&info)
            {
                kill(child, signal).ok();
                ends = true;
            }
            if ends {
                deadline.get_or_insert_with(|| Instant::now() + GRACE);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline || is_stopped(child)) {
                kill(child, Signal::SIGKILL).ok();
            }
        };
        stop_orphans_except(&self.children_before);
        code
    }

    fn to_forward(&self, info: &siginfo) -> Option<Signal> {
        let number = i32::try_from(info.ssi_signo).ok()?;
        let signal = self.forwarded.iter().find(|known| **known as i32 == number)?;
        // The child also gets the signals of terminal keys, but not the HUP of a closed terminal, which only the
        // session leader gets.
        let reached_the_child = info.ssi_code == SI_KERNEL && *signal != Signal::SIGHUP;
        (!reached_the_child).then_some(*signal)
    }
}

/// Time to stop servers after a signal or the end of standard input.
const GRACE: Duration = Duration::from_secs(10);

/// Interval of checks of the child and its input.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// True if a process was stopped by a signal.
fn is_stopped(pid: Pid) -> bool {
    let stat = procfs::process::Process::new(pid.as_raw()).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.state == 'T')
}

/// An inherited `SIG_IGN` for SIGCHLD would suppress the notification.
fn reset_sigchld() -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "signal handler")]
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

/// Reaps children; returns the exit code of `child` once it has exited.
fn reap(child: Pid) -> Option<ExitCode> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => {
                return Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                eprint_line(&format!("tollgate: killed by {signal}; stopping its servers"));
                return Some(ExitCode::from(SIGNALED + signal as u8));
            }
            Ok(WaitStatus::StillAlive) => return None,
            Err(Errno::ECHILD) => return Some(ExitCode::FAILURE),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Added to the number of the signal, as shells do.
const SIGNALED: u8 = 128;

const STOP: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Returns the stop signals that this process handles: all but those ignored at its start, such as HUP by `nohup`.
pub(crate) fn handled() -> Vec<Signal> {
    not_ignored(&STOP)
}

/// Returns the `signals` that were not ignored at the start of this process.
pub(crate) fn not_ignored(signals: &[Signal]) -> Vec<Signal> {
    let ignored = ignored().unwrap_or_default();
    let is_handled = |signal: &Signal| ignored & (1 << (*signal as i32 - 1)) == 0;
    signals.iter().copied().filter(is_handled).collect()
}

/// Returns the bit mask of ignored signals (proc(5), `SigIgn`).
fn ignored() -> Option<u64> {
    let status = procfs::process::Process::myself().ok()?.status().ok()?;
    Some(status.sigign)
}

/// Returns an interrupt that is set by the first stop signal. A later one calls `kill_now`, unless it follows at once:
/// `timeout` signals first its child and then the whole group.
pub(crate) fn interrupt(kill_now: impl Fn() + Send + 'static) -> io::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let flag = interrupt.flag();
    let mut first = None;
    listen(move |_| {
        flag.store(true, Ordering::Relaxed);
        if first.get_or_insert_with(Instant::now).elapsed() > REPEAT_INTERVAL {
            kill_now();
        }
    })?;
    Ok(interrupt)
}

const REPEAT_INTERVAL: Duration = Duration::from_millis(100);

/// Calls `on_signal` on a separate thread for each stop signal, with their number so far.
pub(crate) fn listen(mut on_signal: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(handled().into_iter().map(|signal| signal as i32))?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (count, _) in (1..).zip(signals.forever()) {
            on_signal(count);
        }
    })?;
    Ok(())
}

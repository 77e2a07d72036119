//! The keeper: the process that a user starts, while its child does the work.
//!
//! A lab that is killed cannot stop the servers that it started, and a server may ignore what the
//! kernel sends it then, or sit behind a shell that does not pass it on. The keeper outlives the lab,
//! and the kernel hands it whatever the lab leaves behind. When the keeper is killed instead, the lab
//! gets a TERM, ends as after Ctrl-C, and stops its servers itself.

use crate::output::tell;
use crate::signals::heeded;
use nix::errno::Errno;
use nix::libc::SI_KERNEL;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use std::collections::BTreeSet;
use std::process::ExitCode;
use tollgate_lab::process::group::stop_strays_but;
use tollgate_lab::process::tree::ProcessTable;

/// Does `work` in a child process, and stops what that leaves behind. Has to be called while there is
/// one thread only. Where there can be no child, the work is done here.
pub(crate) fn keep(work: impl FnOnce() -> ExitCode) -> ExitCode {
    let Ok(watch) = Watch::begin() else { return work() };
    let keeper = getpid();
    #[expect(unsafe_code, reason = "a fork while there is one thread: the child may do anything")]
    // SAFETY: no other thread exists, so no lock can be held in the child by one that is not there.
    let forked = unsafe { fork() };
    match forked {
        Ok(ForkResult::Parent { child }) => watch.until_end_of(child),
        Ok(ForkResult::Child) => {
            watch.end();
            let kept = set_pdeathsig(Signal::SIGTERM).is_ok() && getppid() == keeper;
            if kept { work() } else { ExitCode::FAILURE }
        }
        Err(_) => {
            watch.end();
            work()
        }
    }
}

/// The signals that the keeper waits for; they are blocked meanwhile.
struct Watch {
    signals: SignalFd,
    /// Those that are meant for the lab.
    passed_on: Vec<Signal>,
    mask_after: SigSet,
    /// Children that were there before, as a shell's are that becomes this program. They stay.
    children_before: BTreeSet<i32>,
}

impl Watch {
    fn begin() -> Result<Self, Errno> {
        set_child_subreaper(true)?;
        reset_sigchld()?;
        let passed_on = heeded();
        let watched = SigSet::from_iter(passed_on.iter().copied().chain([Signal::SIGCHLD]));
        let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC)?;
        let mut mask_after = watched.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        // A mask is inherited by every server: one that blocks these would make them unstoppable.
        for signal in &watched {
            mask_after.remove(signal);
        }
        let table = ProcessTable::read();
        let children_before = table.map(|table| table.below_this()).unwrap_or_default();
        Ok(Self { signals, passed_on, mask_after, children_before })
    }

    fn end(self) {
        self.mask_after.thread_set_mask().ok();
    }

    fn until_end_of(self, lab: Pid) -> ExitCode {
        let code = loop {
            if let Some(code) = reap(lab) {
                break code;
            }
            let Ok(Some(info)) = self.signals.read_signal() else { continue };
            if let Some(signal) = self.to_pass_on(&info) {
                kill(lab, signal).ok();
            }
        };
        stop_strays_but(&self.children_before);
        code
    }

    fn to_pass_on(&self, info: &siginfo) -> Option<Signal> {
        let number = i32::try_from(info.ssi_signo).ok()?;
        let signal = self.passed_on.iter().find(|known| **known as i32 == number)?;
        // What a key of the terminal sends, it sends to the lab too. That the terminal is closed, the
        // kernel tells the leader of its session alone.
        let reached_the_lab = info.ssi_code == SI_KERNEL && *signal != Signal::SIGHUP;
        (!reached_the_lab).then_some(*signal)
    }
}

/// Whoever started this may ignore the ends of children, and then the kernel does not tell of them.
fn reset_sigchld() -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "a handler could do anything; the default does nothing")]
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

/// Takes the ends of children; the exit code, once the lab's is among them.
fn reap(lab: Pid) -> Option<ExitCode> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == lab => {
                return Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == lab => {
                tell(&format!(
                    "tollgate: killed by {signal}; what it had started is being stopped"
                ));
                return Some(ExitCode::from(SIGNALED + signal as u8));
            }
            Ok(WaitStatus::StillAlive) => return None,
            Err(Errno::ECHILD) => return Some(ExitCode::FAILURE),
            Ok(_) | Err(_) => {}
        }
    }
}

/// A process that a signal ended is told as this and the signal's number, as shells do.
const SIGNALED: u8 = 128;

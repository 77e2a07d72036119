//! The servers of a trial: the origin and the system, started until they answer, and stopped.

use super::exchange::exchange;
use crate::interrupt::{Interrupt, Interrupted};
use crate::process::group::{self, Launch, LaunchError, ProcessGroup};
use crate::process::tree::ProcessTable;
use crate::record::{Failure, Step};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_load::Request;

/// The processes of one role. Dropping it stops them, the last one started first.
#[derive(Debug, Default)]
pub struct Servers {
    groups: Vec<ProcessGroup>,
    /// Whether processes that made themselves independent are this role's.
    adopts_strays: bool,
}

/// Why the servers of a role are not ready.
#[derive(Debug, Error)]
pub enum StartError {
    /// The run was asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A process cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A process ended instead of answering.
    #[error("{what} before it answered")]
    Ended {
        /// Which, in words.
        what: String,
        /// The last lines that it printed.
        log: Vec<String>,
    },
    /// A command that comes before the processes failed, or did not end.
    #[error("`{command}` {what}")]
    Prepare {
        /// The command.
        command: String,
        /// How it ended, in words.
        what: String,
        /// The last lines that it printed.
        log: Vec<String>,
    },
    /// No answer came in time.
    #[error("no answer on {address} within {} s: {last}", within.as_secs_f64())]
    NotReady {
        /// Where it was to listen.
        address: SocketAddr,
        /// How long it had.
        within: Duration,
        /// What the last attempt met.
        last: String,
        /// The last lines that its processes printed.
        log: Vec<String>,
    },
}

impl Servers {
    /// The servers of a system: whatever becomes independent below the lab is theirs.
    pub fn of_system() -> Self {
        Self { groups: Vec::new(), adopts_strays: true }
    }

    /// Starts one more process.
    ///
    /// # Errors
    ///
    /// The program cannot be run.
    pub fn start(&mut self, launch: &Launch<'_>) -> Result<(), LaunchError> {
        self.groups.push(ProcessGroup::start(launch)?);
        Ok(())
    }

    /// Waits until a real request is answered, with anything but a server error.
    ///
    /// # Errors
    ///
    /// A process ended, or the time is up.
    pub fn wait_until_ready(
        &mut self,
        address: SocketAddr,
        request: &Request,
        within: Duration,
        interrupt: &Interrupt,
    ) -> Result<(), StartError> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(what) = self.ended() {
                return Err(StartError::Ended { what, log: self.log_tail() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let last = match exchange(address, request, left.clamp(POLL, ATTEMPT), interrupt) {
                Ok(reply) if reply.answer.status < SERVER_ERROR => return Ok(()),
                Ok(reply) => format!("it answers {}", reply.answer.status),
                Err(error) => in_full(&error),
            };
            if left.is_zero() {
                let log = self.log_tail();
                return Err(StartError::NotReady { address, within, last, log });
            }
            interrupt.sleep(POLL)?;
        }
    }

    /// Waits until something listens at an address.
    ///
    /// # Errors
    ///
    /// A process ended, or the time is up.
    pub fn wait_until_listening(
        &mut self,
        address: SocketAddr,
        within: Duration,
        interrupt: &Interrupt,
    ) -> Result<(), StartError> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(what) = self.ended() {
                return Err(StartError::Ended { what, log: self.log_tail() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Err(error) = TcpStream::connect_timeout(&address, left.clamp(POLL, ATTEMPT)) else {
                return Ok(());
            };
            if left.is_zero() {
                let (last, log) = (error.to_string(), self.log_tail());
                return Err(StartError::NotReady { address, within, last, log });
            }
            interrupt.sleep(POLL)?;
        }
    }

    /// Every process of the role.
    pub fn pids(&self, table: &ProcessTable) -> BTreeSet<i32> {
        let groups = self.groups.iter().flat_map(|group| table.below(group.pid()));
        let strays = self.adopts_strays.then(|| group::strays(table));
        groups.chain(strays.into_iter().flatten()).collect()
    }

    /// The first process that has ended, in words.
    pub fn ended(&mut self) -> Option<String> {
        self.groups.iter_mut().find_map(|group| match group.ended() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("`{}` ended ({status})", group.name())),
            Err(error) => Some(format!("`{}` was lost ({error})", group.name())),
        })
    }

    /// The last lines that the processes printed.
    pub fn log_tail(&self) -> Vec<String> {
        self.groups.iter().flat_map(tail).collect()
    }

    /// Stops every process, the last one started first.
    pub fn stop(&mut self) {
        while let Some(mut group) = self.groups.pop() {
            group.stop();
        }
        if self.adopts_strays {
            group::stop_strays();
        }
    }
}

/// Runs a command to its end.
///
/// # Errors
///
/// It cannot be run, fails, or does not end in time.
pub fn run_to_end(
    launch: &Launch<'_>,
    within: Duration,
    interrupt: &Interrupt,
) -> Result<(), StartError> {
    let mut group = ProcessGroup::start(launch)?;
    let deadline = Instant::now() + within;
    let failed = |what: String, group: &ProcessGroup| StartError::Prepare {
        command: launch.command.join(" "),
        what,
        log: tail(group),
    };
    loop {
        match group.ended() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(failed(format!("failed ({status})"), &group)),
            Ok(None) => {}
            Err(error) => return Err(failed(format!("was lost ({error})"), &group)),
        }
        if Instant::now() >= deadline {
            let what = format!("did not end within {} s", within.as_secs_f64());
            return Err(failed(what, &group));
        }
        interrupt.sleep(POLL)?;
    }
}

fn tail(group: &ProcessGroup) -> Vec<String> {
    match group.log_tail(LOG_LINES) {
        Ok(lines) => lines,
        Err(error) => vec![format!("(the log of `{}` cannot be read: {error})", group.name())],
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl StartError {
    /// The failure that the record keeps; `Err` when the run was asked to stop.
    ///
    /// # Errors
    ///
    /// The run was asked to stop.
    pub fn into_failure(self) -> Result<Failure, Interrupted> {
        let reason = in_full(&self);
        let log = match self {
            Self::Interrupted(interrupted) => return Err(interrupted),
            Self::Launch(_) => Vec::new(),
            Self::Ended { log, .. } | Self::Prepare { log, .. } | Self::NotReady { log, .. } => log,
        };
        Ok(Failure { step: Step::Start, reason, log })
    }
}

/// An error with all its causes, on one line.
pub fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

const POLL: Duration = Duration::from_millis(5);
/// How long one attempt may take, so that a process that ended meanwhile is noticed.
const ATTEMPT: Duration = Duration::from_secs(2);
const SERVER_ERROR: u16 = 500;
const LOG_LINES: usize = 5;

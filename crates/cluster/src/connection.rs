//! The coordinator's side of an agent: start, commands, signs of life, end.

use crate::carrier::{ABSENT, AgentPlace, PRESENT, STAGED, bootstrap};
use crate::clock::{self, ClockOffset, ROUND_TRIPS, RoundTrip};
use crate::describe::HostFacts;
use crate::frame::{self, FrameError};
use crate::protocol::{
    COORDINATOR_HEARTBEAT, Command, FromAgent, FromCoordinator, HEARTBEAT_LIMIT, Hello, PROTOCOL,
    Reply, Request,
};
use crate::staging::Binary;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_runner::process::{Interrupt, Interrupted};

/// Limit of the start of an agent, with the copy of the program over a slow network.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Time in which an agent stops what it started and ends.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Time in which a carrier ends after TERM.
const CARRIER_LIMIT: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(20);

/// Lines of a carrier's standard error that are kept, and their length.
const ERROR_LINES: usize = 8;
const ERROR_LINE_CHARS: usize = 300;

/// Limit of the lines before the agent starts, such as the greeting of a login shell.
const GREETING_BYTES: u64 = 64 * 1024;

#[derive(Debug, Error)]
pub enum AgentError {
    #[error("cannot start an agent on {host}: {reason}")]
    Start { host: String, reason: String },
    /// The host, its network or its agent failed. A measurement in progress is not valid.
    #[error("lost {host}: {reason}")]
    Lost { host: String, reason: String },
    /// The agent reports an error.
    #[error("{host}: {message}")]
    Refused { host: String, message: String },
    #[error("{host}: no answer to {command} within {} s", limit.as_secs_f64())]
    Slow { host: String, command: &'static str, limit: Duration },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl AgentError {
    /// True if the agent is of no further use.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Slow { .. })
    }

    /// The host at which it happened.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Start { host, .. }
            | Self::Lost { host, .. }
            | Self::Refused { host, .. }
            | Self::Slow { host, .. } => Some(host.clone()),
            Self::Interrupted(_) => None,
        }
    }

    /// The error, or the interruption that it is.
    pub fn into_plain(self) -> anyhow::Error {
        match self {
            Self::Interrupted(interrupted) => interrupted.into(),
            error => error.into(),
        }
    }
}

/// True if the error is an interruption, of an agent or in another way.
pub fn is_interrupted(error: &anyhow::Error) -> bool {
    error.is::<Interrupted>() || matches!(error.downcast_ref(), Some(AgentError::Interrupted(_)))
}

/// A running agent. Dropping stops it.
#[derive(Debug)]
pub struct Agent {
    host: String,
    place: AgentPlace,
    hello: Hello,
    /// `None` while it is stopped.
    outgoing: Option<Sender<Outgoing>>,
    arrivals: Receiver<Arrival>,
    /// Replies that came while another one was awaited.
    early: BTreeMap<u64, (Reply, Instant)>,
    /// Nanoseconds of the monotonic clock.
    last_byte_ns: Arc<AtomicU64>,
    next_id: u64,
    carrier: CarrierProcess,
}

/// A command that waits for its reply.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Ticket {
    id: u64,
    command: &'static str,
    sent: Instant,
}

#[derive(Debug)]
struct CarrierProcess {
    child: Child,
    errors: Arc<Mutex<VecDeque<String>>>,
    /// Disconnects when all errors were read. Nothing is sent.
    errors_end: Receiver<Infallible>,
}

#[derive(Debug)]
enum Outgoing {
    Binary(Binary),
    Message(FromCoordinator),
}

#[derive(Debug)]
enum Arrival {
    Staged {
        is_present: bool,
    },
    Message(FromAgent, Instant),
    /// The pipe has ended.
    End(String),
}

impl Agent {
    /// Starts an agent, staging the program first if the host does not have it.
    pub fn start(
        place: &AgentPlace,
        binary: &Binary,
        interrupt: &Interrupt,
    ) -> Result<Self, AgentError> {
        let mut starting = Self::spawn(place, binary)?;
        match starting.greet(binary, interrupt) {
            Ok(hello) => {
                starting.hello = hello;
                // Starts the signs of life of this side.
                starting.put(Outgoing::Message(FromCoordinator::Alive));
                Ok(starting)
            }
            Err(Fail::Interrupted(interrupted)) => Err(interrupted.into()),
            Err(Fail::Reason(reason)) => {
                let host = starting.host.clone();
                Err(AgentError::Start { host, reason })
            }
        }
    }

    fn spawn(place: &AgentPlace, binary: &Binary) -> Result<Self, AgentError> {
        let host = place.name();
        let mut command = place.command(&bootstrap(binary));
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for this process, which then stops the agents.
        let failed = |reason: String| AgentError::Start { host: host.clone(), reason };
        let mut child = command
            .process_group(0)
            .spawn()
            .map_err(|error| failed(format!("cannot run `{program}`: {error}; install it")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let errors = Arc::<Mutex<VecDeque<String>>>::default();
        let (reads_errors, errors_end) = mpsc::channel();
        let carrier = CarrierProcess { child, errors: Arc::clone(&errors), errors_end };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("its pipes are missing".to_owned()));
        };
        let last_byte_ns = Arc::new(AtomicU64::new(clock::now_ns()));
        let (outgoing, to_write) = mpsc::channel();
        let (arrived, arrivals) = mpsc::channel();
        let seen = Arc::clone(&last_byte_ns);
        let unwritten = arrived.clone();
        thread::spawn(move || write_all(stdin, &to_write, &unwritten));
        thread::spawn(move || read_all(stdout, &arrived, &seen));
        thread::spawn(move || {
            keep_last_lines(stderr, &errors);
            drop(reads_errors);
        });
        Ok(Self {
            host: host.clone(),
            place: place.clone(),
            hello: Hello {
                protocol: PROTOCOL,
                tollgate: String::new(),
                hostname: host.clone(),
                pid: 0,
            },
            outgoing: Some(outgoing),
            arrivals,
            early: BTreeMap::new(),
            last_byte_ns,
            next_id: 0,
            carrier,
        })
    }

    fn greet(&mut self, binary: &Binary, interrupt: &Interrupt) -> Result<Hello, Fail> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            match self.arrivals.recv_timeout(POLL) {
                Ok(Arrival::Staged { is_present: true }) => {}
                Ok(Arrival::Staged { is_present: false }) => {
                    self.put(Outgoing::Binary(binary.clone()));
                }
                Ok(Arrival::Message(FromAgent::Hello(hello), _)) => {
                    return if hello.protocol == PROTOCOL {
                        Ok(hello)
                    } else {
                        Err(Fail::Reason(format!(
                            "its protocol has version {}, but this is {PROTOCOL}; remove it from the staging folder",
                            hello.protocol
                        )))
                    };
                }
                Ok(Arrival::Message(..)) => {
                    return Err(Fail::Reason("it did not say hello first".to_owned()));
                }
                Ok(Arrival::End(reason)) => return Err(Fail::Reason(self.end_reason(&reason))),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Fail::Reason(self.end_reason("the pipe ended")));
                }
                Err(RecvTimeoutError::Timeout) => interrupt.check().map_err(Fail::Interrupted)?,
            }
            if Instant::now() >= deadline {
                let seconds = START_LIMIT.as_secs();
                return Err(Fail::Reason(self.with_errors(format!("no agent within {seconds} s"))));
            }
        }
    }

    /// Name of the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn place(&self) -> &AgentPlace {
        &self.place
    }

    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Sends a command. [`Agent::receive`] takes the reply.
    pub fn send(&mut self, command: Command) -> Ticket {
        let id = self.next_id;
        self.next_id += 1;
        let (name, sent) = (<&str>::from(&command), Instant::now());
        self.put(Outgoing::Message(FromCoordinator::Request(Request { id, command })));
        Ticket { id, command: name, sent }
    }

    /// Waits for the reply to a command. An error reply is [`AgentError::Refused`].
    pub fn receive(
        &mut self,
        ticket: Ticket,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Reply, AgentError> {
        self.receive_at(ticket, limit, interrupt).map(|(reply, _)| reply)
    }

    /// Sends a command and waits for its reply.
    pub fn call(
        &mut self,
        command: Command,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Reply, AgentError> {
        let ticket = self.send(command);
        self.receive(ticket, limit, interrupt)
    }

    /// Fails if the agent is lost. Keeps replies that have come.
    pub fn check(&mut self) -> Result<(), AgentError> {
        while let Ok(arrival) = self.arrivals.try_recv() {
            self.note(arrival)?;
        }
        self.check_heartbeat()
    }

    /// Describes the host.
    pub fn describe(&mut self, interrupt: &Interrupt) -> Result<HostFacts, AgentError> {
        match self.call(Command::Describe, COMMAND_LIMIT, interrupt)? {
            Reply::Host(facts) => Ok(*facts),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Estimates the offset of the monotonic clock of the host.
    pub fn clock_offset(&mut self, interrupt: &Interrupt) -> Result<ClockOffset, AgentError> {
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let ticket = self.send(Command::Ping);
            let (reply, received) = self.receive_at(ticket, COMMAND_LIMIT, interrupt)?;
            let Reply::Pong { clock_ns } = reply else { return Err(self.unexpected(&reply)) };
            trips.push(RoundTrip {
                sent_ns: clock::from_instant(ticket.sent),
                remote_ns: clock_ns,
                received_ns: clock::from_instant(received),
            });
        }
        ClockOffset::estimate(&trips).ok_or_else(|| self.lost("no round trips".to_owned()))
    }

    pub(crate) fn unexpected(&self, reply: &Reply) -> AgentError {
        // The content of a reply may be long.
        let text: String = format!("{reply:?}").chars().take(100).collect();
        AgentError::Refused { host: self.host.clone(), message: format!("unexpected reply {text}") }
    }

    fn receive_at(
        &mut self,
        ticket: Ticket,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<(Reply, Instant), AgentError> {
        let deadline = ticket.sent + limit;
        loop {
            if let Some((reply, at)) = self.early.remove(&ticket.id) {
                return match reply {
                    Reply::Error { message } => {
                        Err(AgentError::Refused { host: self.host.clone(), message })
                    }
                    reply => Ok((reply, at)),
                };
            }
            match self.arrivals.recv_timeout(POLL) {
                Ok(arrival) => self.note(arrival)?,
                Err(RecvTimeoutError::Timeout) => {
                    interrupt.check()?;
                    self.check_heartbeat()?;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended("the pipe ended")),
            }
            if Instant::now() >= deadline {
                let (host, command) = (self.host.clone(), ticket.command);
                return Err(AgentError::Slow { host, command, limit });
            }
        }
    }

    fn note(&mut self, arrival: Arrival) -> Result<(), AgentError> {
        match arrival {
            Arrival::Message(FromAgent::Reply { id, reply }, at) => {
                self.early.insert(id, (reply, at));
                Ok(())
            }
            Arrival::Message(FromAgent::Alive | FromAgent::Hello(_), _) => Ok(()),
            Arrival::Staged { .. } => Err(self.lost("it started again".to_owned())),
            Arrival::End(reason) => Err(self.ended(&reason)),
        }
    }

    fn check_heartbeat(&self) -> Result<(), AgentError> {
        let is_silent = || {
            let last_ns = self.last_byte_ns.load(Ordering::Relaxed);
            let silent = Duration::from_nanos(clock::now_ns().saturating_sub(last_ns));
            (silent > HEARTBEAT_LIMIT).then_some(silent)
        };
        if is_silent().is_none() {
            return Ok(());
        }
        // This process may have been stopped: its reader gets a moment to catch up.
        thread::sleep(CATCH_UP);
        match is_silent() {
            None => Ok(()),
            Some(silent) => {
                let seconds = silent.as_secs_f64();
                Err(self.lost(format!("no heartbeat for {seconds:.1} s")))
            }
        }
    }

    fn lost(&self, reason: String) -> AgentError {
        AgentError::Lost { host: self.host.clone(), reason }
    }

    fn ended(&mut self, reason: &str) -> AgentError {
        let reason = self.end_reason(reason);
        self.lost(reason)
    }

    /// Adds the exit code of the carrier and its last messages.
    fn end_reason(&mut self, reason: &str) -> String {
        // The pipe ends a moment before the process.
        let status = self.carrier.wait(EXIT_WAIT);
        // The last messages of a process that has ended are in the pipe. Another process may keep it open.
        self.carrier.errors_end.recv_timeout(EXIT_WAIT).ok();
        let exit = status.map_or(String::new(), |status| format!(" ({status})"));
        self.with_errors(format!("{reason}{exit}"))
    }

    fn with_errors(&self, reason: String) -> String {
        let errors = self.carrier.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = errors.iter().map(String::as_str).collect();
        if lines.is_empty() { reason } else { format!("{reason}: {}", lines.join("; ")) }
    }

    fn put(&self, outgoing: Outgoing) {
        if let Some(writer) = &self.outgoing {
            // A writer that has ended is noticed by the end of the other pipe.
            writer.send(outgoing).ok();
        }
    }

    /// Stops the agent and what it started. Returns when its carrier has ended.
    fn stop(&mut self) {
        if self.outgoing.is_none() {
            return;
        }
        let is_silent = self.check_heartbeat().is_err();
        if !is_silent {
            let _unanswered = self.send(Command::Stop);
        }
        // The end of the pipe stops the agent too.
        self.outgoing = None;
        let limit = if is_silent { Duration::ZERO } else { STOP_LIMIT };
        if self.carrier.wait(limit).is_none() {
            self.carrier.kill();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Limit of commands that take no time of their own.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(30);

const CATCH_UP: Duration = Duration::from_millis(100);

const EXIT_WAIT: Duration = Duration::from_secs(1);

enum Fail {
    Interrupted(Interrupted),
    Reason(String),
}

impl CarrierProcess {
    /// Waits for the end of the carrier.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL / 4),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Ends the carrier: TERM, which it forwards to the agent, then KILL.
    fn kill(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        // Fails if the process has ended.
        nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGTERM).ok();
        if self.wait(CARRIER_LIMIT).is_none() {
            nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGKILL).ok();
            self.wait(CARRIER_LIMIT);
        }
    }
}

/// Writes messages, and signs of life when there are none. Closes the pipe when the sender is dropped, or after a failure,
/// which then is the end of the agent.
fn write_all(mut stdin: impl Write, outgoing: &Receiver<Outgoing>, arrived: &Sender<Arrival>) {
    // Heartbeats would be taken for a part of the program before the agent reads them.
    let mut is_alive = false;
    loop {
        let next = outgoing.recv_timeout(COORDINATOR_HEARTBEAT);
        let written = match next {
            Ok(Outgoing::Binary(binary)) => binary.send(&mut stdin).map_err(Into::into),
            Ok(Outgoing::Message(message)) => {
                is_alive = true;
                frame::write(&mut stdin, &message)
            }
            Err(RecvTimeoutError::Timeout) if is_alive => {
                frame::write(&mut stdin, &FromCoordinator::Alive)
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match written {
            Ok(()) => {}
            // The reader reports the end of the agent.
            Err(FrameError::Io(error)) if error.kind() == ErrorKind::BrokenPipe => return,
            Err(error) => {
                let reason = format!("cannot write to it: {:#}", anyhow::Error::from(error));
                // Fails if the agent was dropped.
                arrived.send(Arrival::End(reason)).ok();
                return;
            }
        }
    }
}

/// Reads the line of the script and then messages.
fn read_all(stdout: ChildStdout, arrived: &Sender<Arrival>, last_byte_ns: &AtomicU64) {
    let mut stdout = BufReader::new(stdout);
    let seen = || last_byte_ns.store(clock::now_ns(), Ordering::Relaxed);
    let end = match read_staged(&mut stdout) {
        Ok(is_present) => {
            seen();
            if arrived.send(Arrival::Staged { is_present }).is_err() {
                return;
            }
            read_messages(&mut stdout, arrived, seen)
        }
        Err(error) => error.to_string(),
    };
    // Fails if the agent was dropped.
    arrived.send(Arrival::End(end)).ok();
}

fn read_messages(
    stdout: &mut impl Read,
    arrived: &Sender<Arrival>,
    seen: impl Fn() + Copy,
) -> String {
    loop {
        match frame::read(stdout, seen) {
            Ok(Some(message)) => {
                if arrived.send(Arrival::Message(message, Instant::now())).is_err() {
                    return String::new();
                }
            }
            Ok(None) => return "the agent ended".to_owned(),
            Err(error) => return format!("{:#}", anyhow::Error::from(error)),
        }
    }
}

fn read_staged(stdout: &mut impl BufRead) -> io::Result<bool> {
    let mut greeting = stdout.take(GREETING_BYTES);
    loop {
        let mut line = Vec::new();
        if greeting.read_until(b'\n', &mut line)? == 0 {
            return Err(io::Error::other("it ended before the agent started"));
        }
        let line = String::from_utf8_lossy(&line);
        match line.trim_end() {
            PRESENT => return Ok(true),
            ABSENT => return Ok(false),
            other if other.starts_with(STAGED) => {
                return Err(io::Error::other(format!("unexpected line `{other}`")));
            }
            _ => {}
        }
    }
}

fn keep_last_lines(stderr: impl Read, kept: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let line: String = line.trim().chars().take(ERROR_LINE_CHARS).collect();
        if line.is_empty() {
            continue;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == ERROR_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the end of an agent to which this was written.
    fn end_after(outgoing: Outgoing, stdin: impl Write) -> Option<String> {
        let (sender, to_write) = mpsc::channel();
        let (arrived, arrivals) = mpsc::channel();
        sender.send(outgoing).unwrap();
        drop(sender);
        write_all(stdin, &to_write, &arrived);
        match arrivals.try_recv() {
            Ok(Arrival::End(reason)) => Some(reason),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    #[test]
    fn failed_write_is_the_reason_of_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let binary = Binary { path: file.path().to_owned(), bytes: 7, sha256: String::new() };
        assert_eq!(
            end_after(Outgoing::Binary(binary), io::sink()).as_deref(),
            Some("cannot write to it: the pipe failed: the program has changed since its start")
        );
        let alive = || Outgoing::Message(FromCoordinator::Alive);
        // No space is left for the frame.
        let reason = end_after(alive(), &mut [0; 3][..]).unwrap();
        assert!(reason.starts_with("cannot write to it: the pipe failed: "), "{reason}");
        // The reader knows more about an agent that has ended.
        let (received, sent) = io::pipe().unwrap();
        drop(received);
        assert_eq!(end_after(alive(), sent), None);
    }
}

//! The servers of a trial, origin or system: starts them, waits until they respond, and stops them.

use crate::probe::exchange::{Site, exchange};
use crate::process::attach::Attached;
use crate::process::group::{self, Launch, ProcessGroup};
use crate::process::usage::ProcessTable;
use crate::process::{Interrupt, Interrupted};
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use tollgate_load::Request;
use tollgate_records::trial::{TrialFailure, TrialStep};

/// The processes of one role. Dropping stops them in reverse order.
#[derive(Debug, Default)]
pub struct Servers {
    groups: Vec<ProcessGroup>,
    /// True if orphaned descendants of this process belong to the role.
    adopts_orphans: bool,
    /// Processes that were not started here, and are not stopped.
    attached: Option<Attached>,
}

/// Reason for a trial without measurement.
#[derive(Debug)]
pub enum TrialEnd {
    Failed(TrialFailure),
    Interrupted(Interrupted),
}

impl From<Interrupted> for TrialEnd {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

impl TrialEnd {
    /// The failure of a step, or the interruption in the chain of the error.
    pub fn at(step: TrialStep, error: &anyhow::Error, log: Vec<String>) -> Self {
        match error.downcast_ref() {
            Some(interrupted) => Self::Interrupted(*interrupted),
            None => Self::Failed(TrialFailure { step, reason: format!("{error:#}"), log }),
        }
    }

    /// Converts errors to the failure of a step.
    pub fn failed<E: Into<anyhow::Error>>(step: TrialStep) -> impl Fn(E) -> Self {
        move |error| Self::at(step, &error.into(), Vec::new())
    }

    pub(super) fn not_started(error: io::Error) -> Self {
        Self::at(TrialStep::Start, &error.into(), Vec::new())
    }

    /// The same reason, in another step.
    pub(super) fn in_step(self, step: TrialStep) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(TrialFailure { step, ..failure }),
            Self::Interrupted(interrupted) => Self::Interrupted(interrupted),
        }
    }

    fn before_response(reason: String, log: Vec<String>) -> Self {
        Self::Failed(TrialFailure { step: TrialStep::Start, reason, log })
    }
}

/// First responses of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    AsExpected,
    /// Not as expected for longer than a start takes.
    Unexpected,
}

impl Servers {
    /// Creates the role of the system, to which orphaned descendants belong.
    pub(crate) fn of_system() -> Self {
        Self { groups: Vec::new(), adopts_orphans: true, attached: None }
    }

    /// Creates the role of a server that runs already.
    pub(crate) fn of_attached(attached: Option<Attached>) -> Self {
        Self { groups: Vec::new(), adopts_orphans: false, attached }
    }

    pub fn start(&mut self, launch: &Launch<'_>) -> Result<(), TrialEnd> {
        self.groups.push(launched(launch)?);
        Ok(())
    }

    /// Waits until a request gets the expected response. Gives up after two seconds of unexpected ones: the probe
    /// will report them.
    pub fn wait_until_ready(
        &mut self,
        site: &Site,
        request: &Request,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Ready, TrialEnd> {
        let deadline = Instant::now() + timeout;
        let mut unexpected_since = None;
        loop {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let last = match exchange(site, request, left.clamp(POLL, ATTEMPT), interrupt) {
                Ok(reply) if reply.response.status >= SERVER_ERROR => {
                    unexpected_since = None;
                    format!("status {}", reply.response.status)
                }
                Ok(reply) if request.expect.accepts(reply.response, reply.has_text) => {
                    return Ok(Ready::AsExpected);
                }
                Ok(_) if left.is_zero() => return Ok(Ready::Unexpected),
                Ok(reply) => {
                    let since = *unexpected_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= MAX_UNEXPECTED_TIME {
                        return Ok(Ready::Unexpected);
                    }
                    format!("status {}", reply.response.status)
                }
                Err(error) => format!("{error:#}"),
            };
            if left.is_zero() {
                return Err(self.not_ready(site.address, timeout, &last));
            }
            interrupt.sleep(POLL)?;
        }
    }

    /// Waits until a server, such as a WAF that a bouncer will ask, answers a request with neither 401 nor a server error.
    pub(crate) fn wait_until_answering(
        &mut self,
        address: SocketAddr,
        request: &Request,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<(), TrialEnd> {
        let site = Site::plain(address);
        self.attempt(address, timeout, interrupt, |left| {
            match exchange(&site, request, left, interrupt) {
                Ok(reply) => match reply.response.status {
                    status @ (UNAUTHORIZED | SERVER_ERROR..) => Err(format!("status {status}")),
                    _ => Ok(()),
                },
                Err(error) => Err(format!("{error:#}")),
            }
        })
    }

    pub(crate) fn wait_until_listening(
        &mut self,
        address: SocketAddr,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<(), TrialEnd> {
        self.attempt(address, timeout, interrupt, |left| {
            TcpStream::connect_timeout(&address, left).map(drop).map_err(|error| error.to_string())
        })
    }

    /// Tries until one attempt succeeds. An attempt gets its time limit.
    fn attempt(
        &mut self,
        address: SocketAddr,
        timeout: Duration,
        interrupt: &Interrupt,
        mut attempt: impl FnMut(Duration) -> Result<(), String>,
    ) -> Result<(), TrialEnd> {
        let deadline = Instant::now() + timeout;
        let mut last = None;
        loop {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            let begin = Instant::now();
            let left = deadline.saturating_duration_since(begin);
            let limit = left.clamp(POLL, ATTEMPT);
            let Err(error) = attempt(limit) else {
                return Ok(());
            };
            // An attempt that the deadline has cut short does not hide the reason of the one before.
            let is_whole = limit == ATTEMPT || begin.elapsed() < limit;
            let last = if is_whole { last.insert(error) } else { last.get_or_insert(error) };
            if left.is_zero() {
                return Err(self.not_ready(address, timeout, last));
            }
            interrupt.sleep(POLL)?;
        }
    }

    fn not_ready(&self, address: SocketAddr, timeout: Duration, last: &str) -> TrialEnd {
        let seconds = timeout.as_secs_f64();
        let reason = format!("no response from {address} within {seconds} s: {last}");
        TrialEnd::before_response(reason, self.log_tail())
    }

    /// Fails unless a process of this group, in start order, has loaded a library.
    pub(crate) fn check_loaded(&self, group: usize, library: &Path) -> Result<(), TrialEnd> {
        let group = &self.groups[group];
        if group.has_mapped(library).map_err(TrialEnd::failed(TrialStep::Start))? {
            return Ok(());
        }
        let (name, library) = (group.name(), library.display());
        let reason =
            format!("`{name}` has not loaded {library}: a price would be that of another library");
        Err(TrialEnd::before_response(reason, self.log_tail()))
    }

    pub(crate) fn pids(&self, table: &ProcessTable) -> BTreeSet<i32> {
        let groups = self.groups.iter().flat_map(|group| table.descendants(group.pid()));
        let orphans = self.adopts_orphans.then(|| group::orphans(table));
        let attached = self.attached.iter().flat_map(|attached| attached.pids(table));
        groups.chain(orphans.into_iter().flatten()).chain(attached).collect()
    }

    /// Describes the first process that has ended.
    pub(crate) fn process_exit(&mut self) -> Option<String> {
        let ended = self.groups.iter_mut().find_map(|group| match group.exit_status() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("`{}` ended ({status})", group.name())),
            Err(error) => Some(format!("cannot wait for `{}` ({error})", group.name())),
        });
        ended.or_else(|| self.attached.as_ref()?.gone())
    }

    /// Returns the error if a process ended during the start.
    fn ended(&mut self) -> Option<TrialEnd> {
        let process_exit = self.process_exit()?;
        let is_success = |group: &mut ProcessGroup| matches!(group.exit_status(), Ok(Some(status)) if status.success());
        let hint = if self.groups.iter_mut().any(is_success) {
            "; start a server in the foreground (nginx: `daemon off;`, Apache: -DFOREGROUND)"
        } else {
            ""
        };
        let reason = format!("{process_exit} before the first response{hint}");
        Some(TrialEnd::before_response(reason, self.log_tail()))
    }

    /// Returns the last lines of all log files.
    pub(crate) fn log_tail(&self) -> Vec<String> {
        self.groups.iter().flat_map(tail).collect()
    }

    pub(crate) fn stop(&mut self) {
        while let Some(mut group) = self.groups.pop() {
            group.stop();
        }
        if self.adopts_orphans {
            group::stop_orphans();
        }
    }
}

/// Runs a command that must succeed.
pub(crate) fn run_to_end(
    launch: &Launch<'_>,
    timeout: Duration,
    interrupt: &Interrupt,
) -> Result<(), TrialEnd> {
    let mut group = launched(launch)?;
    let reason = match interrupt.wait(timeout, || group.exit_status()) {
        Ok(Some(status)) if status.success() => return Ok(()),
        Ok(Some(status)) => format!("failed ({status})"),
        Ok(None) => format!("did not finish within {} s", timeout.as_secs_f64()),
        Err(error) if error.is::<Interrupted>() => return Err(Interrupted.into()),
        Err(error) => format!("cannot be waited for ({error})"),
    };
    Err(TrialEnd::before_response(format!("`{}` {reason}", launch.command.join(" ")), tail(&group)))
}

fn launched(launch: &Launch<'_>) -> Result<ProcessGroup, TrialEnd> {
    ProcessGroup::start(launch).map_err(|error| TrialEnd::at(TrialStep::Start, &error, Vec::new()))
}

fn tail(group: &ProcessGroup) -> Vec<String> {
    match group.log_tail(LOG_LINES) {
        Ok(lines) => lines,
        Err(error) => vec![format!("(cannot read the log of `{}`: {error})", group.name())],
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

const POLL: Duration = Duration::from_millis(5);
/// Timeout of one attempt, after which the processes are checked again.
const ATTEMPT: Duration = Duration::from_secs(2);
const UNAUTHORIZED: u16 = 401;
const SERVER_ERROR: u16 = 500;
/// Time for unexpected responses during the start: longer than any system takes from its first response to the first
/// expected one, and short for a system with a wrong configuration.
const MAX_UNEXPECTED_TIME: Duration = Duration::from_secs(2);
const LOG_LINES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::exchange::get;
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use tollgate_load::Expectation;

    fn reason(end: TrialEnd) -> String {
        match end {
            TrialEnd::Failed(failure) => failure.reason,
            TrialEnd::Interrupted(interrupted) => interrupted.to_string(),
        }
    }

    /// Runs `wait` on a server that responds with these status codes, and then with the last one for ever. Returns the
    /// result and the number of responses.
    fn waited<T>(
        statuses: &'static [u16],
        wait: impl FnOnce(SocketAddr, &Request) -> T,
    ) -> (T, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let expect = Expectation { status: Some(200), ..Expectation::default() };
        let request = Request { expect, ..get("/", address).unwrap() };
        let mut received = vec![0; request.message.bytes().len()];
        let server = thread::spawn(move || {
            for count in 1.. {
                let (mut stream, _) = listener.accept().unwrap();
                if stream.read_exact(&mut received).is_err() {
                    return count - 1;
                }
                let status = statuses[count.min(statuses.len()) - 1];
                write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
            unreachable!("the test ends the loop")
        });
        let result = wait(address, &request);
        // A connection without a request ends the server.
        drop(TcpStream::connect(address).unwrap());
        (result, server.join().unwrap())
    }

    fn ready(statuses: &'static [u16], timeout: Duration) -> (Result<Ready, String>, usize) {
        waited(statuses, |address, request| {
            Servers::default()
                .wait_until_ready(&Site::plain(address), request, timeout, &Interrupt::default())
                .map_err(reason)
        })
    }

    fn answering(statuses: &'static [u16], timeout: Duration) -> (Result<(), String>, usize) {
        waited(statuses, |address, request| {
            Servers::default()
                .wait_until_answering(address, request, timeout, &Interrupt::default())
                .map_err(reason)
        })
    }

    #[test]
    fn answers_when_it_no_longer_refuses_or_fails() {
        assert_eq!(answering(&[401, 401, 500, 503, 403], AMPLE), (Ok(()), 5));
        let error = answering(&[401], Duration::from_secs(2)).0.unwrap_err();
        assert!(error.ends_with("within 2 s: status 401"), "{error}");
    }

    const AMPLE: Duration = Duration::from_secs(30);

    #[test]
    fn ready_at_first_expected_response() {
        assert_eq!(ready(&[200], AMPLE), (Ok(Ready::AsExpected), 1));
        assert_eq!(ready(&[404, 403, 502, 403, 200], AMPLE), (Ok(Ready::AsExpected), 5));
    }

    #[test]
    fn gives_up_after_unexpected_responses() {
        let start = Instant::now();
        let (result, responses) = ready(&[403], AMPLE);
        assert_eq!(result, Ok(Ready::Unexpected));
        assert!(responses > 1 && start.elapsed() >= MAX_UNEXPECTED_TIME, "{responses} responses");
        // A shorter timeout is used up.
        assert_eq!(ready(&[404], Duration::from_millis(50)).0, Ok(Ready::Unexpected));
    }

    #[test]
    fn server_without_its_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut servers = Servers::default();
        let launch = Launch {
            name: "server",
            command: &["sleep", "60"].map(str::to_owned),
            env: &BTreeMap::new(),
            dir: folder.path(),
            log: &folder.path().join("log"),
            cpus: &tollgate_net::available_cpus().unwrap(),
        };
        servers.start(&launch).unwrap();
        let library = folder.path().join("libother.so");
        std::fs::write(&library, "").unwrap();
        let expected = format!(
            "`server` has not loaded {}: a price would be that of another library",
            library.display()
        );
        assert_eq!(servers.check_loaded(0, &library).map_err(reason), Err(expected));
    }

    #[test]
    fn server_that_goes_to_the_background_gets_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let start = |script: &str| {
            let mut servers = Servers::default();
            let launch = Launch {
                name: "server",
                command: &["sh", "-c", script].map(str::to_owned),
                env: &BTreeMap::new(),
                dir: folder.path(),
                log: &folder.path().join("log"),
                cpus: &tollgate_net::available_cpus().unwrap(),
            };
            servers.start(&launch).unwrap();
            let nobody = "127.0.0.1:1".parse().unwrap();
            let listens = servers.wait_until_listening(nobody, AMPLE, &Interrupt::default());
            reason(listens.unwrap_err())
        };
        assert_eq!(
            start("exit 0"),
            "`server` ended (exit status: 0) before the first response; start a server in the foreground (nginx: \
             `daemon off;`, Apache: -DFOREGROUND)"
        );
        assert_eq!(start("exit 3"), "`server` ended (exit status: 3) before the first response");
    }

    #[test]
    fn server_errors_are_not_ready() {
        let error = ready(&[503], Duration::from_millis(50)).0.unwrap_err();
        assert!(error.ends_with("within 0.05 s: status 503"), "{error}");
    }
}

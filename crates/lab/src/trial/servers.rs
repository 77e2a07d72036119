//! The servers of a trial: the origin and the system, started until they answer, and stopped.

use super::exchange::exchange;
use crate::causes::in_full;
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

/// How a server answers once it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// As the request is owed.
    Right,
    /// Otherwise, for longer than any start takes.
    Wrong,
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

    /// Waits until a real request gets the answer that it is owed. One that goes on being answered, and
    /// wrongly, is waited for no longer than two seconds: the probe then says what is wrong with it.
    ///
    /// # Errors
    ///
    /// A process ended, or the time is up without an answer other than a server error.
    pub fn wait_until_ready(
        &mut self,
        address: SocketAddr,
        request: &Request,
        within: Duration,
        interrupt: &Interrupt,
    ) -> Result<Ready, StartError> {
        let deadline = Instant::now() + within;
        let mut wrong_since = None;
        loop {
            if let Some(what) = self.ended() {
                return Err(StartError::Ended { what, log: self.log_tail() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let last = match exchange(address, request, left.clamp(POLL, ATTEMPT), interrupt) {
                Ok(reply) if reply.answer.status >= SERVER_ERROR => {
                    wrong_since = None;
                    format!("it answers {}", reply.answer.status)
                }
                Ok(reply) if request.expect.accepts(reply.answer, reply.has_text) => {
                    return Ok(Ready::Right);
                }
                Ok(_) if left.is_zero() => return Ok(Ready::Wrong),
                Ok(reply) => {
                    let since = *wrong_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= WRONG_FOR {
                        return Ok(Ready::Wrong);
                    }
                    format!("it answers {}", reply.answer.status)
                }
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

const POLL: Duration = Duration::from_millis(5);
/// How long one attempt may take, so that a process that ended meanwhile is noticed.
const ATTEMPT: Duration = Duration::from_secs(2);
const SERVER_ERROR: u16 = 500;
/// How long a server may answer wrongly while it starts. Longer than the step from the first answer to the
/// right one takes anywhere, and short enough that a system which is set up wrongly is told soon.
const WRONG_FOR: Duration = Duration::from_secs(2);
const LOG_LINES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use tollgate_load::Expectation;

    /// How a server is found ready that answers its requests with these status codes, the last of them
    /// for ever, and how many it had answered by then.
    fn ready(answers: &'static [u16], within: Duration) -> (Result<Ready, String>, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for count in 1.. {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 18];
                if stream.read_exact(&mut request).is_err() {
                    return count - 1;
                }
                let status = answers[count.min(answers.len()) - 1];
                write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
            unreachable!("it is told to end")
        });
        let request = Request {
            bytes: b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            is_head: false,
            expect: Expectation { status: Some(200), ..Expectation::default() },
            template: 0,
        };
        let ready =
            Servers::default().wait_until_ready(address, &request, within, &Interrupt::default());
        // A connection without a request tells the server to end.
        drop(TcpStream::connect(address).unwrap());
        (ready.map_err(|error| error.to_string()), server.join().unwrap())
    }

    const AMPLE: Duration = Duration::from_secs(30);

    #[test]
    fn a_server_is_ready_with_its_first_right_answer() {
        assert_eq!(ready(&[200], AMPLE), (Ok(Ready::Right), 1));
        assert_eq!(ready(&[404, 403, 502, 403, 200], AMPLE), (Ok(Ready::Right), 5));
    }

    #[test]
    fn a_server_that_goes_on_answering_wrongly_is_left_to_the_probe() {
        let begun = Instant::now();
        let (found, answered) = ready(&[403], AMPLE);
        assert_eq!(found, Ok(Ready::Wrong));
        assert!(answered > 1 && begun.elapsed() >= WRONG_FOR, "{answered} answers");
        // Where there is less time than that, all of it is taken.
        assert_eq!(ready(&[404], Duration::from_millis(50)).0, Ok(Ready::Wrong));
    }

    #[test]
    fn a_server_that_answers_errors_alone_is_not_ready() {
        let (found, _) = ready(&[503], Duration::from_millis(50));
        let found = found.unwrap_err();
        assert!(found.ends_with("within 0.05 s: it answers 503"), "{found}");
    }
}

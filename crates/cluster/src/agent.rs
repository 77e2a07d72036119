//! The agent: executes the commands of its coordinator on one host.
//!
//! Commands come from standard input alone, one after the other. A reader thread answers pings at once, and a third
//! thread sends signs of life. The agent ends, and stops what it started, at the end of its input, on a signal, and when
//! its coordinator is silent for [`COORDINATOR_LIMIT`].

use crate::agent_role::AgentRole;
use crate::clock;
use crate::describe::{self, HostFacts};
use crate::frame::{self, FrameError};
use crate::load::AgentLoad;
use crate::program::AgentProgram;
use crate::protocol::{
    COORDINATOR_LIMIT, Command, FromAgent, FromCoordinator, HEARTBEAT, Hello, PROTOCOL, Reply,
    Request,
};
use crate::staging;
use anyhow::{Context, bail};
use nix::sys::prctl::set_child_subreaper;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tollgate_experiment::files::remove_folder;
use tollgate_experiment::manifest::VERSION;
use tollgate_runner::process::{self, Interrupt};

/// Longest delay before the end of the input or a signal is noticed.
const POLL: Duration = Duration::from_millis(20);

/// Prefix of the folders of agents in the staging folder.
const FOLDER_PREFIX: &str = "agent-";
const LOCK: &str = "lock";

/// The folder of an agent: staged files, configurations and logs. Locked while the agent runs, so that the next agent
/// can remove the folders of agents that were killed with their supervisors.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Removes abandoned folders in the staging folder, and creates one for this process.
    pub fn create(staging: &Path) -> anyhow::Result<Self> {
        remove_abandoned(staging)
            .with_context(|| format!("cannot clean the staging folder {}", staging.display()))?;
        let path = staging.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        let create = || {
            DirBuilder::new().mode(0o700).create(&path)?;
            let lock = File::create(path.join(LOCK))?;
            lock.try_lock()?;
            Ok::<_, io::Error>(lock)
        };
        let cannot = || format!("cannot create the folder {}", path.display());
        let lock = create().with_context(cannot)?;
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder. Supervisor and agent both do; the second finds nothing.
    pub fn remove(&self) -> anyhow::Result<()> {
        match self.path.exists() {
            true => remove_folder(&self.path),
            false => Ok(()),
        }
    }
}

fn remove_abandoned(staging: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(staging)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(FOLDER_PREFIX) {
            continue;
        }
        // Without a lock: of an agent that is just starting.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        match lock.try_lock() {
            Ok(()) => remove_folder(&entry.path())?,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Executes commands until the end of the input. The calling thread must live as long as the process: the kernel stops
/// servers when the thread that started them ends.
pub fn run(
    folder: &Path,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let output = Output { pipe: Arc::new(Mutex::new(Box::new(output))) };
    output.send(&FromAgent::Hello(Hello {
        protocol: PROTOCOL,
        tollgate: VERSION.to_owned(),
        hostname: describe::hostname()?,
        pid: std::process::id(),
    }))?;
    let heard_ns = Arc::new(AtomicU64::new(clock::now_ns()));
    let (sender, requests) = mpsc::channel();
    let reader = Reader {
        output: output.clone(),
        requests: sender,
        heard_ns: Arc::clone(&heard_ns),
        interrupt: interrupt.clone(),
    };
    thread::spawn(move || reader.run(input));
    let (alive, stop) = (output.clone(), interrupt.clone());
    thread::spawn(move || send_heartbeats(&alive, &stop));
    // Servers inherit the limit, and those that detach themselves become children.
    process::raise_file_limit().context("cannot raise the limit of open files")?;
    set_child_subreaper(true).context("cannot become a subreaper")?;
    let mut agent = Agent {
        folder,
        interrupt,
        load: AgentLoad::default(),
        program: AgentProgram::default(),
        role: AgentRole::new(folder, interrupt)?,
    };
    let ended = agent.run(&requests, &heard_ns, &output);
    // The other threads end with the process.
    interrupt.flag().store(true, Ordering::Relaxed);
    ended
}

struct Agent<'a> {
    folder: &'a Path,
    interrupt: &'a Interrupt,
    load: AgentLoad,
    program: AgentProgram,
    role: AgentRole<'a>,
}

impl Agent<'_> {
    fn run(
        &mut self,
        requests: &Receiver<Request>,
        heard_ns: &AtomicU64,
        output: &Output,
    ) -> anyhow::Result<()> {
        loop {
            if self.interrupt.check().is_err() {
                return Ok(());
            }
            match requests.recv_timeout(POLL) {
                Ok(Request { id, command: Command::Stop }) => {
                    return output.send(&FromAgent::Reply { id, reply: Reply::Done });
                }
                Ok(Request { id, command }) => {
                    let reply = self
                        .execute(command)
                        .unwrap_or_else(|error| Reply::Error { message: format!("{error:#}") });
                    output.send(&FromAgent::Reply { id, reply })?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    let silent_ns =
                        clock::now_ns().saturating_sub(heard_ns.load(Ordering::Relaxed));
                    if Duration::from_nanos(silent_ns) > COORDINATOR_LIMIT {
                        let seconds = COORDINATOR_LIMIT.as_secs();
                        bail!("no message from the coordinator for {seconds} s; stopping");
                    }
                }
            }
        }
    }

    fn execute(&mut self, command: Command) -> anyhow::Result<Reply> {
        match command {
            Command::Ping => Ok(Reply::Pong { clock_ns: clock::now_ns() }),
            Command::Describe => Ok(Reply::Host(Box::new(HostFacts::read()?))),
            Command::Store { name, content_base64, sha256 } => {
                staging::store(self.folder, &name, &content_base64, &sha256)?;
                Ok(Reply::Done)
            }
            Command::PrepareLoad(plan) => {
                self.load.prepare(&plan, self.folder)?;
                Ok(Reply::Done)
            }
            Command::StartLoad { at_ns } => {
                Ok(Reply::DoneAt { at_ns: self.load.start(at_ns, self.interrupt)? })
            }
            Command::Progress => Ok(Reply::Progress(self.load.progress()?)),
            Command::OpenWindow { at_ns } => {
                Ok(Reply::DoneAt { at_ns: self.load.open_window(at_ns, self.interrupt)? })
            }
            Command::CloseWindow { at_ns } => {
                Ok(Reply::DoneAt { at_ns: self.load.close_window(at_ns, self.interrupt)? })
            }
            Command::FinishLoad => Ok(Reply::Load(Box::new(self.load.finish()?))),
            Command::Program(command) => {
                Ok(Reply::Program(self.program.execute(command, self.folder)?))
            }
            Command::Stop => Ok(Reply::Done),
            Command::Catalog { .. }
            | Command::State { .. }
            | Command::StartOrigins(_)
            | Command::StartSystem(_)
            | Command::ServersExit
            | Command::ServersCpu
            | Command::OpenReadings { .. }
            | Command::CloseReadings { .. }
            | Command::StopServers => self.role.execute(command),
        }
    }
}

#[derive(Clone)]
struct Output {
    pipe: Arc<Mutex<Box<dyn Write + Send>>>,
}

impl Output {
    fn send(&self, message: &FromAgent) -> anyhow::Result<()> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(&mut *pipe, message).context("cannot write to the coordinator")
    }
}

struct Reader {
    output: Output,
    requests: Sender<Request>,
    heard_ns: Arc<AtomicU64>,
    interrupt: Interrupt,
}

impl Reader {
    fn run(&self, mut input: impl Read) {
        let ended = self.read(&mut input);
        if let Err(error) = ended {
            eprint(&error.into());
        }
        self.interrupt.flag().store(true, Ordering::Relaxed);
    }

    fn read(&self, input: &mut impl Read) -> Result<(), FrameError> {
        let heard = || self.heard_ns.store(clock::now_ns(), Ordering::Relaxed);
        while let Some(message) = frame::read(input, heard)? {
            let sent = match message {
                FromCoordinator::Alive => Ok(()),
                FromCoordinator::Request(Request { id, command: Command::Ping }) => {
                    let reply = Reply::Pong { clock_ns: clock::now_ns() };
                    self.output.send(&FromAgent::Reply { id, reply })
                }
                FromCoordinator::Request(request) => {
                    self.requests.send(request).map_err(anyhow::Error::from)
                }
            };
            // The executor has ended, or the coordinator.
            if sent.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn send_heartbeats(output: &Output, interrupt: &Interrupt) {
    while interrupt.check().is_ok() {
        thread::sleep(HEARTBEAT);
        if output.send(&FromAgent::Alive).is_err() {
            interrupt.flag().store(true, Ordering::Relaxed);
        }
    }
}

/// The coordinator keeps the last lines of standard error.
fn eprint(error: &anyhow::Error) {
    writeln!(io::stderr().lock(), "tollgate agent: {error:#}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FromCoordinator;

    #[test]
    fn folders_of_killed_agents_are_removed_and_locked_ones_kept() {
        let staging = tempfile::tempdir().unwrap();
        let abandoned = staging.path().join("agent-1");
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK), "").unwrap();
        let running = staging.path().join("agent-2");
        fs::create_dir(&running).unwrap();
        let lock = File::create(running.join(LOCK)).unwrap();
        lock.lock().unwrap();
        fs::write(staging.path().join("0123abcd"), "a program").unwrap();
        let folder = Folder::create(staging.path()).unwrap();
        assert!(folder.path().is_dir() && running.is_dir() && !abandoned.exists());
        assert!(staging.path().join("0123abcd").exists());
        folder.remove().unwrap();
        folder.remove().unwrap();
        assert!(!folder.path().exists());
    }

    /// Runs an agent on these commands and returns its messages.
    fn messages(commands: Vec<Command>) -> Vec<FromAgent> {
        let folder = tempfile::tempdir().unwrap();
        let mut input = Vec::new();
        for (id, command) in (0..).zip(commands) {
            let request = FromCoordinator::Request(Request { id, command });
            frame::write(&mut input, &request).unwrap();
        }
        let (mut received, sent) = io::pipe().unwrap();
        // The end of the input ends an agent, whatever it does: it must come after the replies.
        let (pipe, mut writer) = io::pipe().unwrap();
        writer.write_all(&input).unwrap();
        let agent = {
            let path = folder.path().to_owned();
            thread::spawn(move || run(&path, pipe, sent, &Interrupt::default()))
        };
        let mut messages = Vec::new();
        while let Ok(Some(message)) = frame::read::<FromAgent>(&mut received, || {}) {
            let is_last = matches!(message, FromAgent::Reply { reply: Reply::Done, .. });
            messages.push(message);
            if is_last {
                break;
            }
        }
        drop(writer);
        agent.join().unwrap().unwrap();
        messages
    }

    #[test]
    fn agent_says_hello_first_and_answers_each_command() {
        let store = |name: &str| {
            let (content_base64, sha256) = staging::encode(b"abc");
            Command::Store { name: name.to_owned(), content_base64, sha256 }
        };
        let messages =
            messages(vec![store("../a"), Command::Describe, Command::Progress, Command::Stop]);
        let FromAgent::Hello(hello) = &messages[0] else { panic!("{messages:?}") };
        assert_eq!((hello.protocol, hello.pid), (PROTOCOL, std::process::id()));
        let replies = messages.iter().filter_map(|message| match message {
            FromAgent::Reply { id, reply } => Some((*id, reply)),
            FromAgent::Hello(_) | FromAgent::Alive => None,
        });
        let replies: Vec<_> = replies.collect();
        assert_eq!(replies.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(matches!(replies[0].1, Reply::Error { message } if message.contains("`../a`")));
        assert!(matches!(replies[1].1, Reply::Host(_)));
        assert!(
            matches!(replies[2].1, Reply::Error { message } if message == "no load is running")
        );
    }
}

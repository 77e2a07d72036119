//! The agent: executes the commands of its coordinator on one host.
//!
//! Commands come from standard input alone, one after the other. A reader thread answers pings at once, one thread sends
//! signs of life, and one watches for those of the coordinator. The agent ends, and stops what it started, at the end of
//! its input, on a signal, and when its coordinator is silent for [`COORDINATOR_LIMIT`].

use crate::agent_program::AgentProgram;
use crate::agent_role::AgentRole;
use crate::clock;
use crate::describe::{self, HostFacts};
use crate::frame::{self, FrameError};
use crate::load::AgentLoad;
use crate::protocol::{
    COORDINATOR_LIMIT, Command, FromAgent, FromCoordinator, HEARTBEAT, Hello, PROTOCOL, Reply,
    Request,
};
use anyhow::{Context, anyhow};
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
use tollgate_records::files::remove_folder;
use tollgate_records::manifest::VERSION;
use tollgate_runner::process::{self, Interrupt};

/// Longest delay before a signal is noticed. Each check wakes a CPU of the host.
const POLL: Duration = Duration::from_millis(200);

/// Time in which an agent ends by itself before it is killed: as long as its servers may take after TERM.
const END_LIMIT: Duration = Duration::from_secs(10);

const LOCK: &str = "lock";

/// The folder of an agent: staged files, configurations and logs. Locked while the agent runs, so that the next agent of
/// the same host can remove the folders of agents that were killed with their supervisors. Several hosts may share the
/// staging folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Removes abandoned folders in the staging folder, and creates one for this process.
    pub fn create(staging: &Path) -> anyhow::Result<Self> {
        let (host, pid) = (describe::hostname()?, std::process::id());
        remove_abandoned(staging, &host)
            .with_context(|| format!("cannot clean the staging folder {}", staging.display()))?;
        let path = staging.join(format!("agent-{host}-{pid}"));
        // Without the name of an agent until it is locked: another agent would remove it.
        let unlocked = staging.join(format!("new-{host}-{pid}"));
        let create = || {
            remove_folder(&unlocked)?;
            DirBuilder::new().mode(0o700).create(&unlocked)?;
            let lock = File::create(unlocked.join(LOCK))?;
            lock.try_lock()?;
            fs::rename(&unlocked, &path)?;
            anyhow::Ok(lock)
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
        if self.path.exists() { remove_folder(&self.path) } else { Ok(()) }
    }
}

fn remove_abandoned(staging: &Path, host: &str) -> anyhow::Result<()> {
    let is_of_this_host = |name: &str| {
        let pid = name.strip_prefix("agent-").and_then(|rest| rest.strip_prefix(host));
        pid.and_then(|pid| pid.strip_prefix('-')).is_some_and(|pid| pid.parse::<u32>().is_ok())
    };
    for entry in fs::read_dir(staging)? {
        let entry = entry?;
        if !is_of_this_host(&entry.file_name().to_string_lossy()) {
            continue;
        }
        // A network file system locks only files that are open for writing. Removed meanwhile by its own agent.
        let Ok(lock) = File::options().write(true).open(entry.path().join(LOCK)) else { continue };
        match lock.try_lock() {
            Ok(()) => remove_folder(&entry.path())?,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Executes commands until the end of the input. The calling thread must live as long as the process: the kernel stops
/// servers when the thread that started them ends. Calls `kill` if the coordinator is silent and the agent does not end,
/// as when it is writing to a pipe that nobody reads.
pub fn run(
    folder: &Path,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    interrupt: &Interrupt,
    kill: impl FnOnce() + Send + 'static,
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
    let stop = interrupt.clone();
    thread::spawn(move || watch_coordinator(&heard_ns, &stop, END_LIMIT, kill));
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
    let ended = agent.run(&requests, &output);
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
    fn run(&mut self, requests: &Receiver<Request>, output: &Output) -> anyhow::Result<()> {
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
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn execute(&mut self, command: Command) -> anyhow::Result<Reply> {
        match command {
            Command::Ping => Ok(Reply::Pong { clock_ns: clock::now_ns() }),
            Command::Describe => Ok(Reply::Host(Box::new(HostFacts::read()?))),
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
            Command::State { .. }
            | Command::StartOrigins(_)
            | Command::StartSystem(_)
            | Command::ServersExit
            | Command::ServersLog
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
        let written = match (frame::write(&mut *pipe, message), message) {
            // Nothing was written, so the coordinator can have the reason.
            (
                Err(error @ (FrameError::TooLong { .. } | FrameError::Encode(_))),
                FromAgent::Reply { id, .. },
            ) => {
                let message = format!("cannot reply: {:#}", anyhow::Error::from(error));
                let reply = Reply::Error { message };
                frame::write(&mut *pipe, &FromAgent::Reply { id: *id, reply })
            }
            (written, _) => written,
        };
        written.context("cannot write to the coordinator")
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
        if let Err(error) = self.read(&mut input) {
            eprint(&error);
        }
        self.interrupt.flag().store(true, Ordering::Relaxed);
    }

    fn read(&self, input: &mut impl Read) -> anyhow::Result<()> {
        let heard = || self.heard_ns.store(clock::now_ns(), Ordering::Relaxed);
        while let Some(message) = frame::read(input, heard)? {
            match message {
                FromCoordinator::Alive => {}
                FromCoordinator::Request(Request { id, command: Command::Ping }) => {
                    let reply = Reply::Pong { clock_ns: clock::now_ns() };
                    self.output.send(&FromAgent::Reply { id, reply })?;
                }
                FromCoordinator::Request(request) => {
                    if self.requests.send(request).is_err() {
                        // The executor has ended.
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

fn send_heartbeats(output: &Output, interrupt: &Interrupt) {
    while interrupt.check().is_ok() {
        thread::sleep(HEARTBEAT);
        if let Err(error) = output.send(&FromAgent::Alive) {
            eprint(&error);
            interrupt.flag().store(true, Ordering::Relaxed);
        }
    }
}

/// Ends the agent when the coordinator is silent, whatever the executor does.
fn watch_coordinator(
    heard_ns: &AtomicU64,
    interrupt: &Interrupt,
    end_limit: Duration,
    kill: impl FnOnce(),
) {
    let is_heard = || {
        let silent_ns = clock::now_ns().saturating_sub(heard_ns.load(Ordering::Relaxed));
        Duration::from_nanos(silent_ns) <= COORDINATOR_LIMIT
    };
    while is_heard() {
        if interrupt.check().is_err() {
            return;
        }
        // In one piece: shorter checks would wake a CPU of the host more often.
        thread::sleep(HEARTBEAT);
    }
    let seconds = COORDINATOR_LIMIT.as_secs();
    eprint(&anyhow!("no message from the coordinator for {seconds} s; stopping"));
    interrupt.flag().store(true, Ordering::Relaxed);
    // The process ends before, unless its executor hangs.
    thread::sleep(end_limit);
    kill();
}

/// The coordinator keeps the last lines of standard error.
fn eprint(error: &anyhow::Error) {
    writeln!(io::stderr().lock(), "tollgate agent: {error:#}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_program::ProgramCommand;

    #[test]
    fn folders_of_killed_agents_are_removed_and_locked_ones_kept() {
        let staging = tempfile::tempdir().unwrap();
        let host = describe::hostname().unwrap();
        let create = |name: &str| {
            let folder = staging.path().join(name);
            fs::create_dir(&folder).unwrap();
            let lock = File::create(folder.join(LOCK)).unwrap();
            (folder, lock)
        };
        let (abandoned, _) = create(&format!("agent-{host}-1"));
        let (running, lock) = create(&format!("agent-{host}-2"));
        lock.lock().unwrap();
        // Locks of other hosts may not be seen.
        let others = ["agent-other-1".to_owned(), format!("agent-{host}-b-1")];
        let others = others.map(|name| create(&name).0);
        // Of a killed agent with the same pid.
        create(&format!("new-{host}-{}", std::process::id()));
        fs::write(staging.path().join("0123abcd"), "a program").unwrap();
        let folder = Folder::create(staging.path()).unwrap();
        assert!(folder.path().is_dir() && running.is_dir() && !abandoned.exists());
        assert!(others.iter().all(|folder| folder.is_dir()));
        assert!(staging.path().join("0123abcd").exists());
        let is_locked = |folder: &Path| {
            let lock = File::options().write(true).open(folder.join(LOCK)).unwrap();
            matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
        };
        assert!(is_locked(folder.path()));
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
            thread::spawn(move || run(&path, pipe, sent, &Interrupt::default(), || {}))
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
        let list = Command::Program(ProgramCommand::List { folder: "../a".to_owned() });
        let messages = messages(vec![list, Command::Describe, Command::Progress, Command::Stop]);
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

    #[test]
    fn silent_coordinator_ends_an_agent_whose_executor_hangs() {
        let heard_ns = AtomicU64::new(clock::now_ns());
        let interrupt = Interrupt::default();
        interrupt.flag().store(true, Ordering::Relaxed);
        // The agent ends for another reason.
        watch_coordinator(&heard_ns, &interrupt, Duration::ZERO, || panic!("it ends by itself"));
        let silence = COORDINATOR_LIMIT + Duration::from_millis(1);
        let silence_ns = u64::try_from(silence.as_nanos()).unwrap();
        let heard_ns = AtomicU64::new(clock::now_ns() - silence_ns);
        let interrupt = Interrupt::default();
        let mut is_killed = false;
        watch_coordinator(&heard_ns, &interrupt, Duration::ZERO, || is_killed = true);
        assert!(is_killed && interrupt.check().is_err());
    }
}

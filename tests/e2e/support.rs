//! What the tests share: a folder to run in, the binary, and a look at what is left running.

use crate::machine::Share;
use assert_cmd::cargo::cargo_bin;
use nix::unistd::Pid;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, all_processes};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A folder of its own for one test, in which the binary runs, and a share of the machine for as long as
/// the test lasts.
pub(crate) struct Workspace {
    dir: TempDir,
    _machine: Share,
}

impl Workspace {
    /// With the machine for itself: for a test that looks at figures or at the time, as other work would
    /// change them.
    pub(crate) fn new() -> Self {
        Self::on(Share::all())
    }

    /// Beside others: for a test that says the same however busy the machine is.
    pub(crate) fn beside_others() -> Self {
        Self::on(Share::part())
    }

    fn on(machine: Share) -> Self {
        let dir = tempfile::Builder::new().prefix(FOLDER).tempdir().expect("a folder for the test");
        Self { dir, _machine: machine }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).expect("JSON")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin!("tollgate"));
        command.args(arguments).current_dir(self.dir.path()).env("NO_COLOR", "1");
        command.stdin(Stdio::null());
        command
    }

    /// The same as a user without rights, where the test itself has them: the binary is copied to
    /// where that user can reach it, and the folder is theirs.
    pub(crate) fn command_as_nobody(&self, arguments: &[&str]) -> Command {
        if !nix::unistd::geteuid().is_root() {
            return self.command(arguments);
        }
        let binary = self.path("tollgate");
        fs::copy(cargo_bin!("tollgate"), &binary).expect("a copy of the binary");
        std::os::unix::fs::chown(self.dir.path(), Some(NOBODY), Some(NOBODY)).expect("a folder");
        let mut command = Command::new(binary);
        command.args(arguments).current_dir(self.dir.path()).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
        command
    }

    /// Runs the binary to its end. A run whose trials the machine disturbed is repeated, at most twice
    /// and aloud: how busy others are on it is not what these tests are about.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        for attempt in 1.. {
            let output = self.command(arguments).output().expect("the binary runs");
            let out = arguments.iter().skip_while(|argument| **argument != "--out").nth(1);
            let (Some(out), true) = (out, attempt < ATTEMPTS && was_disturbed(&output)) else {
                return output;
            };
            eprintln!("attempt {attempt} was disturbed:\n{}", stderr(&output));
            fs::remove_dir_all(self.path(out)).expect("the run's directory");
        }
        unreachable!("the last attempt returns")
    }

    /// Runs `tollgate load` for its result in JSON, and tells the exit code with it.
    pub(crate) fn load(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let mut all = vec!["load", "--format", "json"];
        all.extend(arguments);
        let output = self.run(&all);
        let result = serde_json::from_str(&stdout(&output));
        (output.status.code(), result.unwrap_or_else(|error| panic!("{error}: {}", told(&output))))
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    }

    /// The process that does the work of one that was started; that one only keeps it.
    pub(crate) fn lab_of(&self, child: &Child) -> Pid {
        let keeper = child.id().cast_signed();
        let children = format!("/proc/{keeper}/task/{keeper}/children");
        let lab = || -> Option<i32> {
            fs::read_to_string(&children).expect("it runs").split_whitespace().next()?.parse().ok()
        };
        wait_until(Duration::from_secs(10), || lab().is_some());
        Pid::from_raw(lab().expect("a child that works"))
    }

    /// A recipe of the repository, copied here so that the binary finds it before its own.
    pub(crate) fn copy_recipe(&self, system: &str) {
        let systems = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems");
        self.copy_folder(&systems.join(system), &format!("systems/{system}"));
    }

    fn copy_folder(&self, from: &Path, to: &str) {
        for entry in fs::read_dir(from).expect("a folder").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            let to = format!("{to}/{name}");
            if entry.path().is_dir() {
                self.copy_folder(&entry.path(), &to);
            } else {
                self.write(&to, &fs::read_to_string(entry.path()).expect("a file"));
            }
        }
    }

    /// Changes a file here; the text to change has to be in it.
    pub(crate) fn change(&self, name: &str, from: &str, to: &str) {
        let text = self.read(name);
        assert!(text.contains(from), "{name} does not hold {from:?}:\n{text}");
        fs::write(self.path(name), text.replace(from, to)).expect("a file");
    }

    /// Processes that run in this folder or are told of it, in words.
    pub(crate) fn running(&self) -> Vec<String> {
        let mut found = Vec::new();
        for process in all_processes().expect("/proc").flatten() {
            let ended = process.stat().is_ok_and(|stat| stat.state == 'Z');
            if self.has(&process) && !ended {
                found.push(format!("{}: {}", process.pid, command_of(&process)));
            }
        }
        found
    }

    fn has(&self, process: &Process) -> bool {
        let dir = self.dir.path().canonicalize().expect("the folder");
        let here = process.cwd().is_ok_and(|cwd| cwd.starts_with(&dir));
        here || command_of(process).contains(dir.to_str().expect("a name"))
    }

    /// The sockets of processes that run in the folders of other tests.
    fn sockets_of_others(&self) -> BTreeSet<u64> {
        let in_a_folder = |process: &Process| {
            let cwd = process.cwd().unwrap_or_default();
            format!("{} {}", cwd.display(), command_of(process)).contains(FOLDER)
        };
        let processes = all_processes().expect("/proc").flatten();
        let others = processes.filter(|process| in_a_folder(process) && !self.has(process));
        let files = others.filter_map(|process| process.fd().ok()).flatten().flatten();
        let inode = |target| match target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        };
        files.filter_map(|file| inode(file.target)).collect()
    }

    /// The addresses that the last trials of a run in `out` used, the origin's and the systems'.
    fn ports(&self) -> BTreeSet<SocketAddr> {
        let configs = fs::read_dir(self.path("out/configs")).into_iter().flatten().flatten();
        let texts = configs
            .filter_map(|subject| fs::read_to_string(subject.path().join("nginx.conf")).ok());
        let addresses = |text: String| -> Vec<SocketAddr> {
            text.split([' ', ';']).filter_map(|word| word.parse().ok()).collect()
        };
        texts.flat_map(addresses).collect()
    }

    /// Fails when a process of this folder is still there after a moment.
    pub(crate) fn assert_nothing_runs(&self) {
        let gone = wait_until(Duration::from_secs(10), || self.running().is_empty());
        assert!(gone, "left running: {:#?}", self.running());
        // Another test may have been given a port since. What ends while it is looked at is not left.
        let (ports, then, others) = (self.ports(), listening(), self.sockets_of_others());
        let mut still = listening();
        still.retain(|inode, address| {
            then.contains_key(inode) && !others.contains(inode) && ports.contains(address)
        });
        assert!(still.is_empty(), "left listening: {still:?}");
    }
}

/// How often a run that the machine disturbs is tried.
const ATTEMPTS: u32 = 3;

/// Whether a trial does not count for something that neither the lab nor the subject did.
fn was_disturbed(output: &Output) -> bool {
    const DISTURBANCES: [&str; 3] =
        ["other processes took", "the hypervisor took", "the lab was stopped or starved"];
    let told = stderr(output);
    told.lines().any(|line| {
        line.contains("does not count") && DISTURBANCES.iter().any(|what| line.contains(what))
    })
}

/// The addresses on which anything listens, by the socket.
fn listening() -> BTreeMap<u64, SocketAddr> {
    let sockets = procfs::net::tcp().expect("/proc/net/tcp");
    let listening = sockets.into_iter().filter(|socket| socket.state == TcpState::Listen);
    listening.map(|socket| (socket.inode, socket.local_address)).collect()
}

fn command_of(process: &Process) -> String {
    process.cmdline().unwrap_or_default().join(" ")
}

pub(crate) fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    holds()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A text with its line breaks taken back, to look for a sentence in.
pub(crate) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Both streams and the code, for the message of a failed assertion.
pub(crate) fn told(output: &Output) -> String {
    format!("{}\n{}\n{}", output.status, stdout(output), stderr(output))
}

/// How the names of the tests' folders begin.
const FOLDER: &str = "tollgate-e2e-";
const NOBODY: u32 = 65_534;

//! Helpers of all suites: a folder to run the binary in, shares of the machine, texts of experiments.

use assert_cmd::cargo::cargo_bin;
use nix::unistd::Pid;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, all_processes};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A folder in which one test runs the binary, and its share of the machine.
pub(crate) struct Workspace {
    dir: TempDir,
    _machine: Share,
}

/// A child that does not outlive its test, even one that fails: others would wait for it.
#[derive(Debug)]
pub(crate) struct Started(Option<Child>);

impl Started {
    pub(crate) fn new(child: Child) -> Self {
        Self(Some(child))
    }

    pub(crate) fn wait_with_output(mut self) -> std::io::Result<Output> {
        self.0.take().expect("it is taken once").wait_with_output()
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("it is taken at the end")
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is taken at the end")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Fails only if it has ended.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Workspace {
    /// For a test that checks figures or times: no other test runs meanwhile.
    pub(crate) fn exclusive() -> Self {
        Self::on(Share::all())
    }

    /// For a test whose result does not depend on the load of the machine.
    pub(crate) fn concurrent() -> Self {
        Self::on(Share::take(Size::Part, Turn::Any))
    }

    /// As [`Self::concurrent`], for one of the longest tests: it takes precedence over others that wait, so that it does
    /// not run alone at the end.
    pub(crate) fn long() -> Self {
        Self::on(Share::take(Size::Part, Turn::First))
    }

    /// For a test that checks large effects, or that mostly waits; its bounds on times are generous. Only four others of its
    /// kind run meanwhile.
    pub(crate) fn quiet() -> Self {
        Self::on(Share::take(Size::Quiet, Turn::Any))
    }

    /// As [`Self::quiet`], for one of the longest tests: see [`Self::long`].
    pub(crate) fn long_quiet() -> Self {
        Self::on(Share::take(Size::Quiet, Turn::First))
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

    /// Writes an experiment of two subjects to `two.toml`, with few requests: tests run side by side.
    pub(crate) fn with_two_subjects(self) -> Self {
        self.write(
            "two.toml",
            &two_subjects().replace("connections = 4", "connections = 4, rate = 200"),
        );
        self
    }

    /// Returns the complete records of the run in `out`.
    pub(crate) fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("out/trials.ndjson")).unwrap_or_default();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Returns the number of complete records of the run in `out`.
    pub(crate) fn trials(&self) -> usize {
        let text = fs::read_to_string(self.path("out/trials.ndjson")).unwrap_or_default();
        text.matches('\n').count()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin!("tollgate"));
        command.args(arguments).current_dir(self.dir.path()).env("NO_COLOR", "1");
        // Tests beside this one are not to be waited for.
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        command.stdin(Stdio::null());
        command
    }

    /// The same as an unprivileged user if the test runs as root. The binary is copied to the folder, which
    /// that user owns.
    pub(crate) fn unprivileged_command(&self, arguments: &[&str]) -> Command {
        if !nix::unistd::geteuid().is_root() {
            return self.command(arguments);
        }
        let binary = self.path("tollgate");
        fs::copy(cargo_bin!("tollgate"), &binary).expect("a copy of the binary");
        std::os::unix::fs::chown(self.dir.path(), Some(NOBODY), Some(NOBODY)).expect("a folder");
        let mut command = Command::new(binary);
        command.args(arguments).current_dir(self.dir.path()).env("NO_COLOR", "1");
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        command.stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
        command
    }

    /// Runs the binary to its end. Repeats a run up to twice, with a message, if other load on the machine
    /// has made trials invalid.
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

    /// Runs `tollgate load`. Returns the exit code and the result.
    pub(crate) fn load(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let mut all = vec!["load", "--format", "json"];
        all.extend(arguments);
        let output = self.run(&all);
        let result = serde_json::from_str(&stdout(&output));
        (output.status.code(), result.unwrap_or_else(|error| panic!("{error}: {}", show(&output))))
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Started {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started::new(command.spawn().expect("the binary runs"))
    }

    /// Returns the process that does the work; `child` only supervises it.
    pub(crate) fn supervised(&self, child: &Child) -> Pid {
        let keeper = child.id().cast_signed();
        let children = format!("/proc/{keeper}/task/{keeper}/children");
        let lab = || -> Option<i32> {
            fs::read_to_string(&children).expect("it runs").split_whitespace().next()?.parse().ok()
        };
        wait_until(Duration::from_secs(10), || lab().is_some());
        Pid::from_raw(lab().expect("a child that works"))
    }

    /// Copies a recipe of the repository, so that it overrides the built-in one.
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

    /// Replaces a text in a file, which must contain it.
    pub(crate) fn change(&self, name: &str, from: &str, to: &str) {
        let text = self.read(name);
        assert!(text.contains(from), "{name} does not contain {from:?}:\n{text}");
        fs::write(self.path(name), text.replace(from, to)).expect("a file");
    }

    /// Returns processes that run in this folder or name it in their command line.
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

    /// Returns the sockets of processes of other tests.
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

    /// Returns the addresses in the configurations of the run in `out`.
    fn ports(&self) -> BTreeSet<SocketAddr> {
        let configs = fs::read_dir(self.path("out/configs")).into_iter().flatten().flatten();
        let texts = configs
            .filter_map(|subject| fs::read_to_string(subject.path().join("nginx.conf")).ok());
        let addresses = |text: String| -> Vec<SocketAddr> {
            text.split([' ', ';']).filter_map(|word| word.parse().ok()).collect()
        };
        texts.flat_map(addresses).collect()
    }

    /// Fails if processes or listeners of this folder are left.
    pub(crate) fn assert_nothing_runs(&self) {
        let gone = wait_until(Duration::from_secs(10), || self.running().is_empty());
        assert!(gone, "left running: {:#?}", self.running());
        let ports = self.ports();
        if ports.is_empty() {
            return;
        }
        // Another test may use a port by now. Sockets that disappear between two looks are not left.
        let (then, others) = (listening(), self.sockets_of_others());
        let mut still = listening();
        still.retain(|inode, address| {
            then.contains_key(inode) && !others.contains(inode) && ports.contains(address)
        });
        assert!(still.is_empty(), "left listening: {still:?}");
    }
}

/// Attempts for a run that other load disturbs.
const ATTEMPTS: u32 = 3;

/// Returns true if other load has made a trial invalid.
fn was_disturbed(output: &Output) -> bool {
    const DISTURBANCES: [&str; 3] =
        ["other processes took", "the hypervisor took", "tollgate was stopped or starved"];
    let message = stderr(output);
    message.lines().any(|line| {
        line.contains("invalid: ") && DISTURBANCES.iter().any(|what| line.contains(what))
    })
}

/// Returns all listening addresses by socket.
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

/// Creates the staging folder of agents, with the program in it. Fails if the folder exists.
pub(crate) fn stage_program(folder: &Path) {
    static HASH: OnceLock<String> = OnceLock::new();
    let program = cargo_bin!("tollgate");
    let hash = HASH.get_or_init(|| {
        let output = Command::new("sha256sum").arg(program).output().expect("sha256sum");
        stdout(&output)[..64].to_owned()
    });
    fs::create_dir(folder).expect("a folder");
    fs::copy(program, folder.join(hash)).expect("a copy");
}

/// True if a process has threads of the load generator.
pub(crate) fn generates_load(process: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.starts_with("load-"))
}

/// Waits until a process generates load, and until its warm-up of 100 ms or less is over.
pub(crate) fn wait_for_load(process: Pid) {
    let starts = wait_until(Duration::from_secs(60), || generates_load(process));
    assert!(starts, "no load from {process}");
    std::thread::sleep(Duration::from_millis(500));
}

/// Joins the lines of a text, to search for sentences.
pub(crate) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats exit code and output for a failed assertion.
pub(crate) fn show(output: &Output) -> String {
    format!("{}\n{}\n{}", output.status, stdout(output), stderr(output))
}

/// Prefix of the names of all folders.
const FOLDER: &str = "tollgate-e2e-";
const NOBODY: u32 = 65_534;

/// A share of the machine, returned on drop.
struct Share(Size);

/// Index into the arrays of [`Users`].
#[derive(Clone, Copy)]
enum Size {
    All,
    Quiet,
    Part,
}

impl Size {
    /// True if a further test may have a share of this size beside those that run. A part is free while other tests have
    /// parts, so that the machine is emptied rarely.
    fn is_free(self, [all, quiet, parts]: [usize; 3]) -> bool {
        match self {
            Self::All => all + quiet + parts == 0,
            Self::Quiet => all + parts == 0 && quiet < QUIET_MAX,
            Self::Part => all + quiet == 0 && parts < parts_max(),
        }
    }
}

/// Order of tests that wait for shares of one size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Any,
}

impl Share {
    /// Waits until no other test has a share, and at most a minute until other processes use less than 40 % of the CPUs.
    fn all() -> Self {
        let share = Self::take(Size::All, Turn::Any);
        if !wait_until(Duration::from_secs(60), || busy_share() < 0.4) {
            eprintln!("another process has kept the machine busy for 60 s; going on");
        }
        share
    }

    fn take(size: Size, turn: Turn) -> Self {
        let (index, is_first) = (size as usize, turn == Turn::First);
        let mut users = users();
        users.first[index] += usize::from(is_first);
        let must_wait = |users: &mut Users| {
            let is_next = is_first || users.first[index] == 0;
            !(is_next && size.is_free(users.running))
        };
        let waited = FREED.wait_timeout_while(users, PATIENCE, must_wait);
        let (mut users, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_first {
            users.first[index] -= 1;
            // The others wait for those that take precedence.
            FREED.notify_all();
        }
        assert!(!waited.timed_out(), "no share of the machine for {PATIENCE:?}");
        users.running[index] += 1;
        Self(size)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        users().running[self.0 as usize] -= 1;
        FREED.notify_all();
    }
}

/// Share of all CPU time that was used in a tenth of a second.
fn busy_share() -> f64 {
    let idle_and_total = || {
        let text = fs::read_to_string("/proc/stat").expect("the CPU times");
        let times = text.lines().next().expect("the sum").split_whitespace().skip(1).take(8);
        let times: Vec<f64> = times.map(|time| time.parse().expect("a number")).collect();
        (times[3] + times[4], times.iter().sum::<f64>())
    };
    let (idle_before, before) = idle_and_total();
    std::thread::sleep(Duration::from_millis(100));
    let (idle, total) = idle_and_total();
    1.0 - (idle - idle_before) / (total - before).max(1.0)
}

/// Tests by the size of their share.
struct Users {
    running: [usize; 3],
    /// Tests that wait with [`Turn::First`].
    first: [usize; 3],
}

static USERS: Mutex<Users> = Mutex::new(Users { running: [0; 3], first: [0; 3] });
static FREED: Condvar = Condvar::new();

fn users() -> MutexGuard<'static, Users> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Limit of quiet tests at a time.
const QUIET_MAX: usize = 5;

/// More than CPUs, as most tests wait for a part of their time.
fn parts_max() -> usize {
    3 * available_parallelism().map_or(1, NonZero::get)
}

/// Longer than all tests together take.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Limits that make trials valid on a busy machine.
pub(crate) const NO_LIMITS: &str = r#"
[limits]
steal = "100%"
background_cpu = "100%"
pause = "100%"
window_skew = "100%"
"#;

/// As [`NO_LIMITS`], for `run` with a built-in experiment.
pub(crate) fn without_limits<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let limits = ["steal=100%", "background_cpu=100%", "pause=100%", "window_skew=100%"];
    arguments
        .iter()
        .copied()
        .chain(limits.into_iter().flat_map(|limit| ["--limit", limit]))
        .collect()
}

/// An experiment with one case, on the mix `browse`.
pub(crate) struct Experiment<'a> {
    pub(crate) title: &'a str,
    /// Keys of the case's load. Generator and origin do not poll unless it says so: tests run side by side.
    pub(crate) load: &'a str,
    /// The first is the baseline.
    pub(crate) subjects: &'a [Subject<'a>],
    pub(crate) blocks: u32,
}

/// Name, system and options (may be empty) of a subject.
pub(crate) type Subject<'a> = (&'a str, &'a str, &'a str);

impl Experiment<'_> {
    pub(crate) fn text(&self) -> String {
        let Self { title, load, subjects, blocks } = self;
        let [(baseline, ..), ..] = subjects else { panic!("an experiment needs a subject") };
        let subjects: String = subjects.iter().map(subject).collect();
        let poll = if load.contains("busy_poll") { "" } else { ", busy_poll = false" };
        format!(
            r#"
title    = "{title}"
baseline = "{baseline}"

[[case]]
name = "browse"
mix  = "browse"
load = {{ {load}{poll} }}

{subjects}[design]
blocks = {blocks}
{NO_LIMITS}"#
        )
    }
}

fn subject((name, system, options): &Subject<'_>) -> String {
    let with = match *options {
        "" => String::new(),
        options => format!("with   = {{ {options} }}\n"),
    };
    format!("[[subject]]\nname   = \"{name}\"\nsystem = \"{system}\"\n{with}\n")
}

/// A proxy, and the same with a WAF.
pub(crate) fn two_subjects() -> String {
    let experiment = Experiment {
        title: "Do both subjects work?",
        load: r#"connections = 4, duration = "500ms", warmup = "50ms""#,
        subjects: &[
            ("nginx", "nginx", ""),
            ("full", "nginx-modsecurity", r#"rules = "crs", crs = "packaged""#),
        ],
        blocks: 4,
    };
    experiment.text()
}

//! The hosts of a Slurm cluster inside this machine: `tests/cluster/cluster`.

use crate::support::{Started, Workspace, generates_load, show, stage_program, stdout, wait_until};
use assert_cmd::cargo::cargo_bin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::net::TcpState;
use procfs::process::Process;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Limit of waits for conditions, far above what they take on an idle machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);

/// Waits for a condition of hosts or of Slurm. Looking at them takes milliseconds of CPU time, so it looks rarely.
pub(super) fn wait_for(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

/// A running cluster, stopped on drop. Commands run on its controller, in the workspace.
pub(super) struct Cluster<'a> {
    workspace: &'a Workspace,
    script: Started,
    /// The controller first.
    hosts: Vec<Host>,
}

pub(super) struct Host {
    pub(super) name: String,
    pub(super) address: String,
    /// Offset of the monotonic clock to that of the controller.
    pub(super) clock_offset_ns: i64,
    /// Process 1 of the host, in the namespace of the test.
    init: Pid,
    files_at_start: BTreeSet<PathBuf>,
}

impl<'a> Cluster<'a> {
    /// Starts a controller and hosts such as `sut1`, with the feature `sut`. The nodes have the program: a copy through
    /// Slurm's pipes takes seconds of CPU time.
    pub(super) fn start(workspace: &'a Workspace, names: &[&str]) -> Self {
        let cluster = Self::start_without_program(workspace, names);
        for node in cluster.nodes() {
            stage_program(&node.path("/var/tmp/tollgate-0"));
        }
        cluster
    }

    /// As [`Self::start`], but the nodes do not have the program: the first command stages it.
    pub(super) fn start_without_program(workspace: &'a Workspace, names: &[&str]) -> Self {
        let binaries = cargo_bin!("tollgate").parent().expect("a folder").to_owned();
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT));
        command.arg("--hide").arg(binaries).args(names).env("TMPDIR", workspace.path(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = Started::new(command.spawn().expect("bash"));
        let output = BufReader::new(script.stdout.take().expect("a pipe"));
        let lines = output.lines().map(|line| line.expect("a line"));
        let lines: Vec<String> = lines.take_while(|line| line != "ready").collect();
        assert_eq!(lines.len(), names.len() + 1, "the cluster did not start: {lines:#?}");
        let hosts = lines.iter().map(|line| Host::parse(line)).collect();
        Self { workspace, script, hosts }
    }

    pub(super) fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).expect("a host of the cluster")
    }

    /// All hosts but the controller.
    pub(super) fn nodes(&self) -> &[Host] {
        &self.hosts[1..]
    }

    pub(super) fn controller(&self) -> &Host {
        &self.hosts[0]
    }

    /// The binary, on the controller.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.controller().command("env");
        command.arg("-C").arg(self.workspace.path("")).arg(cargo_bin!("tollgate")).args(arguments);
        command.env("NO_COLOR", "1").env("XDG_RUNTIME_DIR", self.workspace.path(""));
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("nsenter")
    }

    pub(super) fn spawn(&self, arguments: &[&str]) -> Started {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started::new(command.spawn().expect("nsenter"))
    }

    /// Returns the process of a spawned command: its parent only enters the controller.
    pub(super) fn coordinator(&self, child: &Child) -> Pid {
        let nsenter = Pid::from_raw(child.id().cast_signed());
        assert!(wait_until(PATIENCE, || !children(nsenter).is_empty()), "the command has ended");
        children(nsenter)[0]
    }

    /// Runs a command of Slurm on the controller. Returns its output.
    pub(super) fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.controller().command(program).args(arguments).output().expect("nsenter");
        assert!(output.status.success(), "{program}: {}", show(&output));
        stdout(&output)
    }

    /// Ends the job of a node at once.
    pub(super) fn mark_down(&self, name: &str) {
        let node = format!("nodename={name}");
        self.slurm("scontrol", &["update", &node, "state=down", "reason=test"]);
    }

    /// Kills the controller's daemon.
    pub(super) fn kill_controller(&self) {
        self.controller().kill_daemon("slurmctld");
    }

    pub(super) fn start_controller(&self) {
        self.controller().start_daemon("slurmctld", &[]);
    }

    /// Connects a host to the bridge, or disconnects it.
    pub(super) fn set_link(&self, name: &str, state: &str) {
        let mut command = self.controller().command("ip");
        let output = command.args(["link", "set", name, state]).output().expect("nsenter");
        assert!(output.status.success(), "{}", show(&output));
    }

    /// Starts sshd on all nodes, and configures ssh on the controller.
    pub(super) fn start_sshd(&mut self) {
        // The folder of the controller's own files.
        let run = |name: &str| format!("/run/slurm/{name}");
        let output = self
            .controller()
            .command("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &run("key")])
            .output()
            .expect("nsenter");
        assert!(output.status.success(), "ssh-keygen, of openssh-client: {}", show(&output));
        let key = fs::read(self.controller().path(&run("key"))).expect("a key");
        let public = fs::read(self.controller().path(&run("key.pub"))).expect("a key");
        let config = "IdentityFile /run/slurm/key\nUser root\nLogLevel ERROR\n\
            StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n";
        fs::write(self.controller().path(&run("ssh_config")), config).expect("a file");
        let bind = ["-n", "--bind", "/run/slurm/ssh_config", "/etc/ssh/ssh_config"];
        let output = self.controller().command("mount").args(bind).output().expect("nsenter");
        assert!(output.status.success(), "{}", show(&output));
        for host in &mut self.hosts[1..] {
            let config = "HostKey /run/slurm/key\nAuthorizedKeysFile /run/slurm/key.pub\nStrictModes no\n\
                PermitRootLogin prohibit-password\nUsePAM no\nPidFile none\n";
            for (name, content) in
                [("key", &key[..]), ("key.pub", &public[..]), ("sshd_config", config.as_bytes())]
            {
                let mut options = fs::OpenOptions::new();
                let options = options.write(true).create(true).mode(0o600);
                let file = options.open(host.path(&run(name)));
                file.and_then(|mut file| file.write_all(content)).expect("a file");
            }
            fs::create_dir_all(host.path("/run/sshd")).expect("a folder");
            host.start_daemon("/usr/sbin/sshd", &["-f", "/run/slurm/sshd_config"]);
            host.files_at_start = host.files();
        }
    }

    /// A stand-in of kubectl, whose pods are the nodes, in the namespace `lab`. It permits one form of command.
    pub(super) fn install_kubectl(&self) {
        let pods = self.nodes().iter().map(|host| format!("{}) pid={} ;;\n", host.name, host.init));
        let script = format!(
            r#"#!/bin/sh
if [ "$1 $2 $3 $4 $6" != "exec --stdin --namespace lab --" ]; then
    echo "error: unexpected arguments: $*" >&2
    exit 1
fi
case $5 in
{}*) echo "Error from server (NotFound): pods \"$5\" not found" >&2; exit 1 ;;
esac
shift 6
exec nsenter --target "$pid" --all -- "$@"
"#,
            pods.collect::<String>()
        );
        self.workspace.write("bin/kubectl", &script);
        let permissions = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.workspace.path("bin/kubectl"), permissions).expect("a program");
    }

    /// Kills the process that stops the cluster.
    pub(super) fn kill(&mut self) {
        self.script.kill().expect("the cluster runs");
    }

    /// Waits until no job, process, file or listener is left on the hosts but those of Slurm.
    pub(super) fn assert_nothing_left(&self) {
        self.assert_nothing_left_but("");
    }

    /// As [`Self::assert_nothing_left`], but ignores processes with this name.
    pub(super) fn assert_nothing_left_but(&self, name: &str) {
        let mut left = Vec::new();
        let nothing = || {
            left = self.hosts.iter().flat_map(|host| host.left_but(name)).collect();
            if left.is_empty() {
                // Completing jobs included.
                let jobs = self.slurm("squeue", &["--noheader"]);
                left.extend(jobs.lines().map(|job| format!("job {job}")));
            }
            left.is_empty()
        };
        assert!(wait_for(nothing), "left on the hosts: {left:#?}");
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let has_ended = || self.script.try_wait().is_ok_and(|status| status.is_some());
        wait_until(PATIENCE, has_ended);
    }
}

impl Host {
    /// Parses `NAME PID ADDRESS OFFSET_S`.
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, init, address, offset_s] = words[..] else { panic!("not a host: {line}") };
        let offset_s: i64 = offset_s.parse().expect("seconds");
        let mut host = Self {
            name: name.to_owned(),
            address: address.to_owned(),
            clock_offset_ns: offset_s * 1_000_000_000,
            init: Pid::from_raw(init.parse().expect("a process")),
            files_at_start: BTreeSet::new(),
        };
        host.files_at_start = host.files();
        host
    }

    /// A command on this host.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--all", "--", program]);
        command.stdin(Stdio::null());
        command
    }

    /// A command with the files of this machine and the network of this host.
    pub(super) fn in_network(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--net", "--"]).arg(program);
        command.stdin(Stdio::null());
        command
    }

    pub(super) fn kill_daemon(&self, name: &str) {
        let daemons = || self.processes().into_iter().filter(|one| command_name(one) == name);
        for daemon in daemons() {
            kill(Pid::from_raw(daemon.pid), Signal::SIGKILL).expect("the daemon runs");
        }
        assert!(wait_until(PATIENCE, || daemons().next().is_none()), "{name} runs");
    }

    pub(super) fn start_daemon(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program).args(arguments).output().expect("nsenter");
        assert!(output.status.success(), "{}", show(&output));
    }

    /// Path of a file of this host, for the test.
    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// Processes below the host's process 1, but those that have ended.
    pub(super) fn processes(&self) -> Vec<Process> {
        let mut found = Vec::new();
        let mut parents = vec![self.init];
        while let Some(parent) = parents.pop() {
            for child in children(parent) {
                parents.push(child);
                let process = Process::new(child.as_raw());
                found.extend(
                    process
                        .ok()
                        .filter(|process| process.stat().is_ok_and(|stat| stat.state != 'Z')),
                );
            }
        }
        found
    }

    /// The agent that works, a child of the one that supervises it.
    pub(super) fn agent(&self) -> Option<Pid> {
        let is_agent = |process: &Process| {
            process.cmdline().is_ok_and(|line| line.get(1).is_some_and(|word| word == "agent"))
        };
        let agents: Vec<Process> = self.processes().into_iter().filter(is_agent).collect();
        let is_worker = |process: &&Process| {
            let parent = process.stat().map_or(0, |stat| stat.ppid);
            agents.iter().any(|agent| agent.pid == parent)
        };
        agents.iter().find(is_worker).map(|worker| Pid::from_raw(worker.pid))
    }

    /// True if the agent has threads of the load generator.
    pub(super) fn generates_load(&self) -> bool {
        self.agent().is_some_and(generates_load)
    }

    pub(super) fn signal_agent(&self, signal: Signal) {
        kill(self.agent().expect("an agent"), signal).expect("the agent runs");
    }

    /// Files in folders that are empty at the start, but for the staged program.
    fn files(&self) -> BTreeSet<PathBuf> {
        let is_controller = self.name == "ctl";
        let folders = FOLDERS.iter().filter(|folder| !is_controller || **folder == "/run");
        let entries = |folder: &&str| {
            let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
            entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
        };
        let is_program = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.ends_with("var/tmp/tollgate-0")
                || (name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        folders.flat_map(entries).filter(|path| !is_program(path)).collect()
    }

    /// Addresses of the listeners in the host's network.
    pub(super) fn listeners(&self) -> Vec<SocketAddr> {
        let init = Process::new(self.init.as_raw()).expect("the host runs");
        let sockets =
            [init.tcp(), init.tcp6()].into_iter().flat_map(|table| table.expect("a table"));
        let listening = sockets.filter(|socket| socket.state == TcpState::Listen);
        listening.map(|socket| socket.local_address).collect()
    }

    /// Processes, files and listeners that are not part of Slurm. Ignores processes with this name.
    fn left_but(&self, ignored: &str) -> Vec<String> {
        let is_foreign = |process: &Process| {
            let name = command_name(process);
            name != ignored && !DAEMONS.contains(&name.as_str())
        };
        let processes = self.processes().into_iter().filter(is_foreign).map(|process| {
            format!("process {} {:?}", process.pid, process.cmdline().unwrap_or_default())
        });
        let files = self.files();
        let files = files.difference(&self.files_at_start).map(|file| file.display().to_string());
        let addresses = self.listeners().into_iter();
        let foreign = addresses.filter(|address| !PORTS.contains(&address.port()));
        let listeners = foreign.map(|address| format!("listener {address}"));
        let all = processes.chain(files).chain(listeners);
        all.map(|what| format!("{}: {what}", self.name)).collect()
    }
}

const SCRIPT: &str = "../../tests/cluster/cluster";
const DAEMONS: [&str; 5] = ["munged", "slurmctld", "slurmd", "slurmscriptd", "sshd"];
/// Ports of slurmctld, slurmd and sshd.
const PORTS: [u16; 3] = [6817, 6818, 22];
/// Folders of a host that are its own, and the staging folder.
const FOLDERS: [&str; 4] = ["/run", "/tmp", "/var/tmp", "/var/tmp/tollgate-0"];

fn command_name(process: &Process) -> String {
    process.stat().map(|stat| stat.comm).unwrap_or_default()
}

/// Returns the children of all threads of a process.
pub(super) fn children(parent: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = |list: String| -> Vec<i32> {
        list.split_whitespace().map(|pid| pid.parse().expect("a process")).collect()
    };
    lists.flat_map(numbers).map(Pid::from_raw).collect()
}

//! Processes of a server that runs already: found by pid, unit, control group or container, never stopped or moved.

use super::usage::ProcessTable;
use super::{Interrupt, command};
use anyhow::{Context, anyhow, bail};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, getpid};
use procfs::ProcError;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tollgate_experiment::external::Attach;

/// True if a process listens at a TCP port. False if that cannot be read, as of another user's process.
pub(crate) fn listens(pid: i32, port: u16) -> bool {
    let sockets = [procfs::net::tcp(), procfs::net::tcp6()].into_iter().flatten().flatten();
    let at_port = sockets
        .filter(|socket| socket.state == TcpState::Listen && socket.local_address.port() == port);
    let inodes: BTreeSet<u64> = at_port.map(|socket| socket.inode).collect();
    let files = Process::new(pid).and_then(|process| process.fd());
    files.into_iter().flatten().flatten().any(|file| match file.target {
        FDTarget::Socket(inode) => inodes.contains(&inode),
        _ => false,
    })
}

/// The processes of a server, some of which may end or start.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Description for messages.
    name: String,
    members: Members,
}

#[derive(Debug)]
enum Members {
    /// A process and its descendants. Its start time tells it from a later process with its number.
    Tree { root: Pid, start: u64 },
    /// The folder of a control group.
    Cgroup(PathBuf),
}

impl Attached {
    /// Finds the server.
    pub(crate) fn find(attach: &Attach, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let members = match attach {
            Attach::Pid(pid) => tree(*pid),
            Attach::Unit(name) => unit(name, interrupt),
            Attach::Cgroup(path) => cgroup(path, Path::new(MOUNT)).map(Members::Cgroup),
            Attach::Container(name) => container(name, interrupt).and_then(tree),
        };
        let members = members.with_context(|| format!("cannot attach to {attach}"))?;
        let attached = Self { name: attach.to_string(), members };
        match attached.gone() {
            Some(gone) => Err(anyhow!("cannot attach: {gone}")),
            None => Ok(attached),
        }
    }

    /// Returns the live processes, without this one and those that it started.
    pub(crate) fn pids(&self, table: &ProcessTable) -> BTreeSet<i32> {
        let mut pids = match &self.members {
            Members::Tree { root, .. } if self.gone().is_none() => table.descendants(*root),
            Members::Tree { .. } => BTreeSet::new(),
            // A process that has just ended, or a group that was removed, is reported by `gone`.
            Members::Cgroup(folder) => processes_of(folder).unwrap_or_default(),
        };
        pids.remove(&getpid().as_raw());
        &pids - &table.own_descendants()
    }

    /// Says that the server has ended, if it has.
    pub(crate) fn gone(&self) -> Option<String> {
        match &self.members {
            Members::Tree { root, start } => match start_time(root.as_raw()) {
                Ok(Some(now)) if now == *start => None,
                Ok(_) => Some(format!("the attached process {root} ({}) has ended", self.name)),
                Err(error) => Some(format!("cannot read the state of {}: {error:#}", self.name)),
            },
            Members::Cgroup(folder) => match processes_of(folder) {
                Ok(pids) if pids.is_empty() => Some(format!("no process is left in {}", self.name)),
                Ok(_) => None,
                Err(error) => Some(format!("cannot read {}: {error:#}", self.name)),
            },
        }
    }
}

/// Returns the CPUs that processes may use.
pub(crate) fn allowed_cpus(pids: &BTreeSet<i32>) -> BTreeSet<usize> {
    // A process that has ended has none.
    let sets = pids.iter().filter_map(|pid| sched_getaffinity(Pid::from_raw(*pid)).ok());
    let cpus = sets
        .flat_map(|set| (0..CpuSet::count()).filter(move |cpu| set.is_set(*cpu).unwrap_or(false)));
    cpus.collect()
}

fn tree(pid: i32) -> anyhow::Result<Members> {
    let start = start_time(pid)?.with_context(|| format!("no process has the number {pid}"))?;
    let process = Process::new(pid).and_then(|process| process.status())?.tgid;
    if process != pid {
        bail!("{pid} is a thread of the process {process}");
    }
    Ok(Members::Tree { root: Pid::from_raw(pid), start })
}

/// Returns the start time of a live process in ticks.
fn start_time(pid: i32) -> anyhow::Result<Option<u64>> {
    match Process::new(pid).and_then(|process| process.stat()) {
        Ok(stat) if stat.state == 'Z' || stat.state == 'X' => Ok(None),
        Ok(stat) => Ok(Some(stat.starttime)),
        Err(ProcError::NotFound(_)) => Ok(None),
        // The process ended after its file was opened.
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Mount point of control groups: of version 2 itself, of each controller of version 1 in a folder.
const MOUNT: &str = "/sys/fs/cgroup";
/// File with the processes of a control group, in both versions.
const PROCESSES: &str = "cgroup.procs";

/// Returns the folder of a control group.
fn cgroup(path: &str, mount: &Path) -> anyhow::Result<PathBuf> {
    let below = path.trim_start_matches('/');
    let mut candidates = vec![PathBuf::from(path), mount.join(below)];
    let controllers = fs::read_dir(mount).into_iter().flatten().flatten();
    let mut of_controllers: Vec<PathBuf> =
        controllers.map(|controller| controller.path().join(below)).collect();
    of_controllers.sort();
    candidates.extend(of_controllers);
    let is_group = |folder: &PathBuf| folder.is_absolute() && folder.join(PROCESSES).is_file();
    // With version 1, systemd keeps processes in one hierarchy only, and in the others in the root.
    let has_process = |folder: &&PathBuf| processes_of(folder).is_ok_and(|pids| !pids.is_empty());
    let groups: Vec<PathBuf> = candidates.into_iter().filter(is_group).collect();
    let group = groups.iter().find(has_process).or(groups.first());
    group.cloned().with_context(|| {
        format!("no {PROCESSES} in {path}, or in that folder below {}", mount.display())
    })
}

/// Returns the processes of a control group and of those below it.
fn processes_of(folder: &Path) -> anyhow::Result<BTreeSet<i32>> {
    let file = folder.join(PROCESSES);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    // 0 is a process of another namespace.
    let pids = text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0);
    let mut all: BTreeSet<i32> = pids.collect();
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            match processes_of(&entry.path()) {
                Ok(below) => all.extend(below),
                // It was removed meanwhile.
                Err(_) if !entry.path().is_dir() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(all)
}

const TIME_LIMIT: Duration = Duration::from_secs(10);

fn unit(name: &str, interrupt: &Interrupt) -> anyhow::Result<Members> {
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["show", "--property=ControlGroup", "--property=MainPID", "--", name]);
    let text = command::output(&mut systemctl, TIME_LIMIT, interrupt)?;
    let value = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.map(str::trim).filter(|value| !value.is_empty())
    };
    // A user's unit may be in a group that this process cannot see.
    if let Some(Ok(folder)) = value("ControlGroup").map(|path| cgroup(path, Path::new(MOUNT))) {
        return Ok(Members::Cgroup(folder));
    }
    match value("MainPID").and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0) {
        Some(pid) => tree(pid),
        None => {
            bail!("the unit has no process; start it, or check its name with `systemctl status`")
        }
    }
}

/// Programs that know containers, in this order.
const CONTAINER_PROGRAMS: [&str; 2] = ["docker", "podman"];

/// Returns the first process of a container.
fn container(name: &str, interrupt: &Interrupt) -> anyhow::Result<i32> {
    let mut reasons = Vec::new();
    for program in CONTAINER_PROGRAMS {
        let mut inspect = Command::new(program);
        inspect.args(["inspect", "--type", "container", "--format", "{{.State.Pid}}", "--", name]);
        match command::output(&mut inspect, TIME_LIMIT, interrupt) {
            Ok(text) => match text.trim().parse() {
                Ok(0) => bail!("{program}: the container does not run"),
                Ok(pid) => return Ok(pid),
                Err(_) => {
                    bail!("{program}: expected the number of a process, got `{}`", text.trim())
                }
            },
            Err(error) if error.is::<super::Interrupted>() => return Err(error),
            Err(error) => {
                let is_absent = |cause: &std::io::Error| cause.kind() == ErrorKind::NotFound;
                reasons.push(if error.downcast_ref().is_some_and(is_absent) {
                    format!("{program} is not installed")
                } else {
                    format!("{error:#}")
                });
            }
        }
    }
    bail!("{}", reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn process_listens_at_its_port_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (own, other) = (getpid().as_raw(), 1);
        assert!(listens(own, address.port()) && !listens(other, address.port()));
        // The local port of a connection is none.
        let client = TcpStream::connect(address).unwrap();
        assert!(!listens(own, client.local_addr().unwrap().port()));
        drop(listener);
        assert!(!listens(own, address.port()));
    }
    use std::process::Child;

    /// A process that is stopped at the end of its test.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("600").spawn().unwrap())
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    fn error(attach: &Attach) -> String {
        format!("{:#}", Attached::find(attach, &Interrupt::default()).unwrap_err())
    }

    #[test]
    fn process_that_ends_is_gone() {
        let sleeper = Sleeper::start();
        let attach = Attach::Pid(sleeper.pid());
        let attached = Attached::find(&attach, &Interrupt::default()).unwrap();
        assert_eq!(attached.gone(), None);
        // Its own children are not those of a server that runs already.
        assert_eq!(attached.pids(&ProcessTable::read().unwrap()), BTreeSet::new());
        let pid = sleeper.pid();
        drop(sleeper);
        let gone = format!("the attached process {pid} (pid {pid}) has ended");
        assert_eq!(attached.gone(), Some(gone));
        assert_eq!(
            error(&attach),
            format!("cannot attach to pid {pid}: no process has the number {pid}")
        );
    }

    #[test]
    fn another_process_with_the_number_is_not_the_server() {
        let sleeper = Sleeper::start();
        let Members::Tree { root, start } = tree(sleeper.pid()).unwrap() else { unreachable!() };
        let members = Members::Tree { root, start: start - 1 };
        let attached = Attached { name: "x".to_owned(), members };
        assert!(attached.gone().unwrap().ends_with("has ended"));
    }

    #[test]
    fn control_group_is_found_in_both_versions() {
        let mount = tempfile::tempdir().unwrap();
        let group = |path: &str, pids: &str| {
            let folder = mount.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(PROCESSES), pids).unwrap();
            folder
        };
        let found = |path: &str| cgroup(path, mount.path()).map_err(|error| error.to_string());
        let second = group("system.slice/a.service", "7\n");
        assert_eq!(found("/system.slice/a.service"), Ok(second.clone()));
        assert_eq!(found(second.to_str().unwrap()), Ok(second));
        // Version 1: the first hierarchy with processes.
        group("cpu/b", "");
        let (memory, below) = (group("memory/b", "0\n12\n"), group("memory/b/c", "13\n"));
        assert_eq!(found("b"), Ok(memory.clone()));
        assert_eq!(processes_of(&memory).unwrap(), BTreeSet::from([12, 13]));
        assert_eq!(processes_of(&below).unwrap(), BTreeSet::from([13]));
        let at = mount.path().display();
        let missing = format!("no cgroup.procs in nowhere, or in that folder below {at}");
        assert_eq!(found("nowhere"), Err(missing));
    }

    #[test]
    fn allowed_cpus_are_those_of_all_processes() {
        let mine: BTreeSet<usize> = tollgate_net::available_cpus().unwrap().into_iter().collect();
        let sleeper = Sleeper::start();
        assert_eq!(allowed_cpus(&BTreeSet::from([sleeper.pid()])), mine);
        let first = *mine.first().unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        nix::sched::sched_setaffinity(Pid::from_raw(sleeper.pid()), &one).unwrap();
        assert_eq!(allowed_cpus(&BTreeSet::from([sleeper.pid()])), BTreeSet::from([first]));
        assert_eq!(allowed_cpus(&BTreeSet::new()), BTreeSet::new());
    }
}

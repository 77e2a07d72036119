//! Nodes of Slurm: of the job that this process belongs to, or of a job of its own.
//!
//! A job of its own is held by `salloc`, which runs `cat` on a pipe from this process: when the process ends, however it
//! ends, the pipe closes, `cat` ends, and `salloc` gives the nodes back.

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tollgate_runner::process::{Interrupt, command};

/// Nodes that a job holds. Dropping gives them back, if this process took them.
#[derive(Debug)]
pub struct Allocation {
    pub job: u32,
    pub nodes: Vec<Node>,
    /// `None` for the job that this process belongs to.
    held: Option<Held>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// Address in Slurm's configuration, resolved.
    pub address: Option<IpAddr>,
    /// Features in Slurm's configuration, such as roles.
    pub features: Vec<String>,
}

/// Which nodes a new job gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChoice {
    /// Features, as `salloc --constraint` takes them.
    pub constraint: Option<String>,
    /// Nodes to avoid.
    pub without: Vec<String>,
    /// Fails after a moment instead of waiting in the queue.
    pub is_immediate: bool,
}

#[derive(Debug)]
struct Held {
    salloc: Child,
    /// Closing it ends the job.
    stdin: Option<ChildStdin>,
    /// `None` while the request is in the queue.
    job: Option<u32>,
}

/// Limit of a query to Slurm's controller, which may be restarting.
const QUERY_LIMIT: Duration = Duration::from_secs(60);

/// Time in which `salloc` gives the nodes back.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// Wait for idle nodes, in which the scheduler notices that a job has ended.
const IMMEDIATE_S: u32 = 5;

const POLL: Duration = Duration::from_millis(20);

/// First word of the line that tells job and nodes.
const GRANTED: &str = "tollgate-job";

/// Prints job and nodes, and ends with its standard input.
const HOLD: &str = r#"echo "tollgate-job $SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat >/dev/null"#;

impl Allocation {
    /// Takes `nodes` nodes: the first ones of the job that this process belongs to, or those of a new job. Waits in the
    /// queue until they are free; `waiting` is called once if that takes long. Without a number: all nodes of the job,
    /// or one node of a new one.
    ///
    /// The variables of `salloc`, such as `SALLOC_PARTITION`, `SALLOC_ACCOUNT`, `SALLOC_CONSTRAINT` and
    /// `SALLOC_TIMELIMIT`, choose the nodes of a new job.
    pub fn take(
        nodes: Option<usize>,
        choice: &NodeChoice,
        interrupt: &Interrupt,
        waiting: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Self> {
        let own = (env::var("SLURM_JOB_ID"), env::var("SLURM_JOB_NODELIST"));
        if let (Ok(job), Ok(list)) = own {
            let job = job.parse().context("cannot parse SLURM_JOB_ID")?;
            let mut names = hostnames(&list, interrupt)?;
            let wanted = nodes.unwrap_or(names.len());
            if names.len() < wanted {
                bail!(
                    "cannot use {wanted} nodes: job {job} has {}; ask for more, or start outside of a job",
                    names.len()
                );
            }
            names.truncate(wanted);
            let nodes = self::nodes(&names, interrupt)?;
            return Ok(Self { job, nodes, held: None });
        }
        let (held, job, list) = hold(nodes.unwrap_or(1), choice, interrupt, waiting)?;
        // From here on, an error gives the nodes back.
        let mut allocation = Self { job, nodes: Vec::new(), held: Some(held) };
        allocation.nodes = self::nodes(&hostnames(&list, interrupt)?, interrupt)?;
        Ok(allocation)
    }

    /// True if this process took the nodes.
    pub fn is_own(&self) -> bool {
        self.held.is_some()
    }
}

/// True if this process belongs to a job, whose nodes it uses.
pub fn is_in_job() -> bool {
    env::var_os("SLURM_JOB_ID").is_some() && env::var_os("SLURM_JOB_NODELIST").is_some()
}

/// Nodes that a new job may get, with their states and features, as `sinfo` lists them: those of the partitions in
/// `SALLOC_PARTITION`, or of the default one.
pub fn list_nodes(interrupt: &Interrupt) -> anyhow::Result<Vec<ListedNode>> {
    let mut sinfo = Command::new("sinfo");
    sinfo.args(["--noheader", "--Node", "--format=%N %T %P %f"]);
    let text = command::output(&mut sinfo, QUERY_LIMIT, interrupt)?;
    Ok(usable(&text, env::var("SALLOC_PARTITION").ok().as_deref()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedNode {
    pub name: String,
    pub state: String,
    pub features: String,
}

impl ListedNode {
    pub fn has(&self, feature: &str) -> bool {
        self.features.split(',').any(|one| one == feature)
    }

    pub fn is_idle(&self) -> bool {
        self.state == "idle"
    }

    /// True if it runs jobs, now or later. An asterisk marks a node that does not respond.
    pub fn is_up(&self) -> bool {
        let is_of = |state| self.state.starts_with(state);
        ["idle", "allocated", "mixed", "completing"].into_iter().any(is_of)
            && !self.state.ends_with('*')
    }
}

/// Nodes of these partitions, separated by commas, or of the default one.
fn usable(listed: &str, partitions: Option<&str>) -> Vec<ListedNode> {
    let is_usable = |partition: &str| match partitions {
        Some(names) => names.split(',').any(|name| name == partition.trim_end_matches('*')),
        None => partition.ends_with('*'),
    };
    let nodes = listed.lines().filter_map(parse_listed);
    let nodes = nodes.filter(|(partition, _)| is_usable(partition));
    let mut nodes: Vec<ListedNode> = nodes.map(|(_, node)| node).collect();
    // A node has a line for each of its partitions.
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes.dedup();
    nodes
}

/// Partition and node. The default partition has an asterisk at its end.
fn parse_listed(line: &str) -> Option<(&str, ListedNode)> {
    let mut words = line.split_whitespace();
    let (name, state) = (words.next()?.to_owned(), words.next()?.to_owned());
    let partition = words.next()?;
    let features = words.next().filter(|text| *text != "(null)").unwrap_or_default().to_owned();
    Some((partition, ListedNode { name, state, features }))
}

impl Held {
    /// Waits for the end of `salloc`. Returns false at the time limit.
    fn ends(&mut self) -> bool {
        let deadline = Instant::now() + RELEASE_LIMIT;
        while matches!(self.salloc.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if self.job.is_some() && self.ends() {
            return;
        }
        // `salloc` takes its request out of the queue on this signal, or ends the job. Fails if it has ended.
        kill(Pid::from_raw(self.salloc.id().cast_signed()), Signal::SIGTERM).ok();
        if self.ends() {
            return;
        }
        self.salloc.kill().ok();
        self.salloc.wait().ok();
        if let Some(job) = self.job {
            // A killed `salloc` leaves its job. Without an answer of the controller, its time limit ends it.
            let mut scancel = Command::new("scancel");
            let scancel = scancel.arg(job.to_string());
            command::run(scancel, RELEASE_LIMIT, &Interrupt::default()).ok();
        }
    }
}

fn hold(
    nodes: usize,
    choice: &NodeChoice,
    interrupt: &Interrupt,
    waiting: &mut dyn FnMut(&str),
) -> anyhow::Result<(Held, u32, String)> {
    let mut command = Command::new("salloc");
    command
        .args([&format!("--nodes={nodes}"), "--exclusive", "--no-kill", "--job-name=tollgate"])
        .args(choice.constraint.iter().map(|constraint| format!("--constraint={constraint}")))
        .args(
            (!choice.without.is_empty()).then(|| format!("--exclude={}", choice.without.join(","))),
        )
        .args(choice.is_immediate.then(|| format!("--immediate={IMMEDIATE_S}")))
        .args(["--quiet", "--", "sh", "-c", HOLD])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for this process, which then gives the nodes back.
        .process_group(0);
    let cannot = "cannot run `salloc`; install slurm-client, or choose another carrier";
    let mut salloc = command.spawn().context(cannot)?;
    let (stdin, stdout, stderr) = (salloc.stdin.take(), salloc.stdout.take(), salloc.stderr.take());
    let mut held = Held { salloc, stdin, job: None };
    let (Some(stdout), Some(mut stderr)) = (stdout, stderr) else {
        bail!("cannot read the output of `salloc`");
    };
    let errors = thread::spawn(move || {
        let mut text = String::new();
        // An unreadable message is none.
        stderr.by_ref().take(MAX_MESSAGE_BYTES).read_to_string(&mut text).ok();
        text
    });
    let granted = granted(stdout);
    let started = Instant::now();
    let mut is_told = false;
    loop {
        interrupt.check()?;
        match granted.recv_timeout(POLL) {
            Ok((job, list)) => {
                held.job = Some(job);
                return Ok((held, job, list));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                drop(held);
                let text = errors.join().unwrap_or_default();
                let lines: Vec<&str> =
                    text.lines().filter(|line| !line.trim().is_empty()).collect();
                let reason = lines.join("; ");
                return Err(anyhow!(
                    "cannot take {nodes} nodes of Slurm: {reason}; check `sinfo` and the SALLOC_ variables"
                ));
            }
        }
        if !is_told && started.elapsed() > QUEUE_NOTICE {
            is_told = true;
            waiting(&format!("waiting for {nodes} nodes of Slurm"));
        }
    }
}

const MAX_MESSAGE_BYTES: u64 = 64 * 1024;

/// Wait in the queue that is reported.
const QUEUE_NOTICE: Duration = Duration::from_secs(1);

/// Reads job and nodes on a thread, which then reads to the end. Disconnects if there are none.
fn granted(stdout: ChildStdout) -> mpsc::Receiver<(u32, String)> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(granted) = parse_granted(&line) {
                // The receiver may have been interrupted.
                sender.send(granted).ok();
                return;
            }
        }
    });
    receiver
}

fn parse_granted(line: &str) -> Option<(u32, String)> {
    let mut words = line.split_whitespace();
    let is_line = words.next() == Some(GRANTED);
    let (job, list) = (words.next()?.parse().ok()?, words.next()?.to_owned());
    is_line.then_some((job, list))
}

/// Expands a list of nodes, such as `gen[1-3],sut1`.
fn hostnames(list: &str, interrupt: &Interrupt) -> anyhow::Result<Vec<String>> {
    let mut show = Command::new("scontrol");
    show.args(["show", "hostnames", list]);
    let text = command::output(&mut show, QUERY_LIMIT, interrupt)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn nodes(names: &[String], interrupt: &Interrupt) -> anyhow::Result<Vec<Node>> {
    let mut show = Command::new("scontrol");
    show.args(["--oneliner", "show", "node", &names.join(",")]);
    let text = command::output(&mut show, QUERY_LIMIT, interrupt)?;
    let find = |name: &String| {
        let node = text.lines().find_map(|line| parse_node(line).filter(|node| node.0 == *name));
        let (name, address, features) =
            node.ok_or_else(|| anyhow!("`scontrol show node` does not list {name}"))?;
        let resolved = address.and_then(|name| (name, 0).to_socket_addrs().ok()?.next());
        Ok(Node { name, address: resolved.map(|address| address.ip()), features })
    };
    names.iter().map(find).collect()
}

/// Name, address and features in a line of `scontrol --oneliner show node`.
fn parse_node(line: &str) -> Option<(String, Option<&str>, Vec<String>)> {
    let field = |name: &str| {
        let words = line.split_whitespace();
        words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name)
    };
    let (_, name) = field("NodeName")?;
    let features = field("ActiveFeatures").map(|(_, value)| value).filter(|text| *text != "(null)");
    let features = features.unwrap_or_default().split(',').filter(|name| !name.is_empty());
    Some((
        name.to_owned(),
        field("NodeAddr").map(|(_, address)| address),
        features.map(str::to_owned).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_and_nodes_are_read_from_the_line() {
        assert_eq!(
            parse_granted("tollgate-job 17 gen[1-3],sut1"),
            Some((17, "gen[1-3],sut1".to_owned()))
        );
        assert_eq!(parse_granted("salloc: Granted job allocation 17"), None);
        assert_eq!(parse_granted("tollgate-job x y"), None);
    }

    #[test]
    fn listed_node_has_state_and_features() {
        let (partition, node) = parse_listed("gen1 idle main* gen,fast").unwrap();
        assert_eq!((node.name.as_str(), node.features.as_str()), ("gen1", "gen,fast"));
        assert_eq!((partition, node.is_idle()), ("main*", true));
        let (_, down) = parse_listed("a down* main (null)").unwrap();
        assert!(!down.is_idle() && down.features.is_empty());
        let is_up = |state: &str| {
            parse_listed(&format!("a {state} main* gen")).is_some_and(|(_, node)| node.is_up())
        };
        assert!(["idle", "allocated", "allocated+", "mixed-", "completing"].into_iter().all(is_up));
        assert!(!["idle*", "drained", "draining", "down", "unknown"].into_iter().any(is_up));
    }

    #[test]
    fn nodes_of_other_partitions_are_not_usable() {
        let listed = "a idle main* gen\nb idle debug gen\na idle debug gen\nc idle old (null)\n";
        let names = |partitions| {
            usable(listed, partitions).into_iter().map(|node| node.name).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["a"]);
        assert_eq!(names(Some("debug")), ["a", "b"]);
        assert_eq!(names(Some("main,old")), ["a", "c"]);
        assert_eq!(names(Some("new")), [""; 0]);
    }

    #[test]
    fn node_has_address_and_features() {
        // Printed by Slurm 22.05, shortened.
        let line = "NodeName=gen1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUTot=4 CPULoad=0.31 \
            AvailableFeatures=gen,fast ActiveFeatures=gen,fast Gres=(null) NodeAddr=10.231.7.13 \
            NodeHostName=gen1 Version=22.05.8 OS=Linux 6.1.0 #1 SMP State=IDLE";
        let features = vec!["gen".to_owned(), "fast".to_owned()];
        assert_eq!(parse_node(line), Some(("gen1".to_owned(), Some("10.231.7.13"), features)));
        let plain = "NodeName=a ActiveFeatures=(null) NodeAddr=b";
        assert_eq!(parse_node(plain), Some(("a".to_owned(), Some("b"), vec![])));
        assert_eq!(parse_node("slurm_load_node error"), None);
    }
}

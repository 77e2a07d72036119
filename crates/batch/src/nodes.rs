//! Measures rounds on the hosts of a cluster: one at a time on each, by the program itself, as on this machine.

use crate::division::{ANCHOR, RoundSubject, experiment};
use crate::inputs::SystemInputs;
use crate::schedule::{FAULTY_ROUNDS, RoundOutcome, Schedule};
use crate::store::round_name;
use anyhow::{Context, anyhow, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use tollgate_cluster::agent_program::ProgramEnd;
use tollgate_cluster::carrier::{AgentPlace, Carrier};
use tollgate_cluster::connection::{Agent, AgentError, is_interrupted};
use tollgate_cluster::hosts::Hosts;
use tollgate_cluster::program::ProgramRun;
use tollgate_cluster::slurm::NodeChoice;
use tollgate_cluster::staging::Binary;
use tollgate_experiment::file::ExperimentFile;
use tollgate_records::error::io_error;
use tollgate_records::files::{files_below, remove_folder};
use tollgate_records::replay::ended_by;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::EndedBy;
use tollgate_records::subject::SubjectState;
use tollgate_runner::process::{Interrupt, Interrupted};
use tollgate_stats::number::counted;

/// Where rounds run instead of this machine.
#[derive(Debug, Clone)]
pub struct Nodes {
    pub carrier: Carrier,
    /// Number of nodes, where the carrier does not say it.
    pub count: Option<usize>,
}

/// Attempts of one round, on different nodes if there are several.
const ATTEMPTS: u32 = 3;

/// Time before the agent of a lost node is started again.
const NODE_PAUSE: Duration = Duration::from_secs(5);

/// Limit of a round: a multiple of its planned time, and the waits of a run.
const LIMIT_FACTOR: u32 = 5;
const LIMIT_EXTRA: Duration = Duration::from_secs(900);

/// Limit of the files of a catalog that are copied to each node.
const INPUTS_MAX: usize = 10_000;

/// Folders in the folder of an agent.
const ROUND: &str = "round";
const CATALOG: &str = "catalog";
const RUN: &str = "run";

const POLL: Duration = Duration::from_millis(100);

/// A round to measure.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) round: u32,
    pub(crate) title: String,
    /// Products are paths relative to the batch.
    pub(crate) subjects: Vec<RoundSubject>,
    /// Folders of the products, relative to the batch.
    pub(crate) products: BTreeSet<PathBuf>,
    pub(crate) blocks: u32,
    pub(crate) seed: u64,
    /// Planned time of all trials.
    pub(crate) planned: Duration,
    /// Folder for the records.
    pub(crate) to: PathBuf,
}

/// Inputs of all rounds of a batch.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    /// Directory of the batch.
    pub(crate) batch: &'a Path,
    /// The experiment of the batch. Paths of mixes are relative to the folder of a round.
    pub(crate) base: &'a ExperimentFile,
    pub(crate) option: &'a str,
    pub(crate) quick: bool,
    /// The program.
    pub(crate) tollgate: &'a Path,
    pub(crate) catalog: &'a [PathBuf],
    /// Files beside the experiment of a round, by their path there.
    pub(crate) beside: &'a BTreeMap<String, PathBuf>,
    /// The system of the batch, which each node must have.
    pub(crate) system: Option<&'a SystemInputs>,
}

enum Report {
    Finished,
    Failed {
        reason: String,
        /// The agent or its host is gone.
        is_lost: bool,
    },
    Interrupted,
}

/// State of a node for the coordinator.
struct Node {
    name: String,
    jobs: Sender<usize>,
    /// True if the user knows that it gets no rounds.
    is_reported: bool,
    /// End of the pause after a loss.
    up_at: Option<Instant>,
}

/// Measures rounds. Calls `ended` with each round whose records are in its folder, and the name of the node, once.
pub(crate) fn measure(
    nodes: &Nodes,
    inputs: &Inputs<'_>,
    jobs: &[Job],
    interrupt: &Interrupt,
    ended: &mut dyn FnMut(&Job, &str) -> anyhow::Result<()>,
    notify: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let binary = Binary::read(inputs.tollgate)?;
    // A round cannot use more than one node.
    let (carrier, count) = match &nodes.carrier {
        Carrier::Slurm { nodes: count } => (Carrier::Slurm { nodes: None }, count.or(nodes.count)),
        other => (other.clone(), nodes.count),
    };
    let count = count.unwrap_or(1).min(jobs.len());
    let hosts = Hosts::take(&carrier, Some(count), &NodeChoice::default(), interrupt, notify)?;
    let used = hosts.hosts.len().min(jobs.len());
    let names: Vec<String> = hosts.hosts[..used].iter().map(|host| host.place.name()).collect();
    notify(&format!("measuring {} on {}", counted(jobs.len(), "round"), names.join(", ")));
    // Ends all workers after an error, too.
    let stop = Interrupt::default();
    thread::scope(|scope| {
        let (reports, received) = mpsc::channel();
        let mut all = Vec::new();
        for (index, host) in hosts.hosts[..used].iter().enumerate() {
            let (sender, to_do) = mpsc::channel();
            let reports = reports.clone();
            let mut worker =
                Worker { place: &host.place, binary: &binary, inputs, stop: &stop, agent: None };
            scope.spawn(move || {
                worker.run(jobs, &to_do, |report| reports.send((index, report)).is_ok());
            });
            let name = host.place.name();
            all.push(Node { name, jobs: sender, is_reported: false, up_at: None });
        }
        let result = coordinate(all, jobs, &received, interrupt, ended, notify);
        stop.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        result
    })
}

fn coordinate(
    mut nodes: Vec<Node>,
    jobs: &[Job],
    reports: &Receiver<(usize, Report)>,
    interrupt: &Interrupt,
    ended: &mut dyn FnMut(&Job, &str) -> anyhow::Result<()>,
    notify: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let started = Instant::now();
    let work: Vec<f64> = jobs.iter().map(|job| job.planned.as_secs_f64()).collect();
    let mut schedule = Schedule::new(&work, nodes.len(), ATTEMPTS);
    let mut failures: Vec<String> = Vec::new();
    while !schedule.is_complete() {
        interrupt.check()?;
        let now = Instant::now();
        // Rounds that are neighbours may be bad together.
        let count = nodes.len();
        let all_faulty = |schedule: &Schedule| (0..count).all(|index| schedule.is_faulty(index));
        if all_faulty(&schedule) && !schedule.has_fresh() {
            bail!(
                "no node is left; the same command continues. Last failures:{}",
                listed(&failures[failures.len().saturating_sub(FAULTY_ROUNDS)..])
            );
        }
        for (index, node) in nodes.iter_mut().enumerate() {
            let is_faulty = schedule.is_faulty(index) && !all_faulty(&schedule);
            if std::mem::replace(&mut node.is_reported, is_faulty) != is_faulty {
                notify(&if is_faulty {
                    format!(
                        "{} gets no rounds: {FAULTY_ROUNDS} in a row failed there alone",
                        node.name
                    )
                } else {
                    format!("{} gets rounds again", node.name)
                });
            }
            if !is_faulty && node.up_at.is_some_and(|at| at <= now) {
                node.up_at = None;
                schedule.set_up(index, true);
            }
        }
        for (index, node) in nodes.iter().enumerate() {
            if let Some(job) = schedule.start(index, started.elapsed().as_secs_f64()) {
                notify(&format!("round {} starts on {}", jobs[job].round, node.name));
                node.jobs.send(job).context("a worker has ended")?;
            }
        }
        let (index, report) = match reports.recv_timeout(POLL) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => bail!("all workers have ended"),
        };
        let node = &mut nodes[index];
        match report {
            Report::Finished => {
                if let Some(job) = schedule.finish(index, started.elapsed().as_secs_f64()) {
                    ended(&jobs[job], &node.name)?;
                }
            }
            Report::Failed { reason, is_lost } => {
                let job = if is_lost { schedule.lose(index) } else { schedule.fail(index) };
                let round = job.map_or(0, |job| jobs[job].round);
                let next = match job.and_then(|job| schedule.outcome(job)) {
                    Some(RoundOutcome::GivenUp) => "given up",
                    Some(RoundOutcome::Finished) | None => "it is repeated",
                };
                let failure = format!("round {round} failed on {}: {reason}", node.name);
                notify(&format!("{failure}; {next}"));
                failures.push(failure);
                if is_lost || schedule.is_faulty(index) && !all_faulty(&schedule) {
                    schedule.set_up(index, false);
                    node.up_at = Some(Instant::now() + NODE_PAUSE);
                }
            }
            Report::Interrupted => return Err(Interrupted.into()),
        }
    }
    let given_up = |job: &usize| schedule.outcome(*job) == Some(RoundOutcome::GivenUp);
    let given_up: Vec<String> =
        (0..jobs.len()).filter(given_up).map(|job| jobs[job].round.to_string()).collect();
    if given_up.is_empty() {
        return Ok(());
    }
    bail!(
        "no node could measure round {} in {ATTEMPTS} attempts; the same command tries again:{}",
        given_up.join(", "),
        listed(&failures)
    )
}

fn listed(failures: &[String]) -> String {
    failures.iter().map(|failure| format!("\n  {failure}")).collect()
}

/// Measures rounds on one node.
struct Worker<'a> {
    place: &'a AgentPlace,
    binary: &'a Binary,
    inputs: &'a Inputs<'a>,
    stop: &'a Interrupt,
    /// `None` before the first round, and after a failure.
    agent: Option<RunningAgent>,
}

struct RunningAgent {
    agent: Agent,
    /// The folder of the agent.
    folder: PathBuf,
    /// Products that it has.
    products: BTreeSet<PathBuf>,
}

impl Worker<'_> {
    /// Executes jobs until `to_do` ends or `report` returns false.
    fn run(&mut self, jobs: &[Job], to_do: &Receiver<usize>, report: impl Fn(Report) -> bool) {
        while let Ok(job) = to_do.recv() {
            let result = self.measure(&jobs[job]);
            if result.is_err() {
                // Stops what may still run.
                self.agent = None;
            }
            let message = match result {
                Ok(()) => Report::Finished,
                Err(error) if is_interrupted(&error) => Report::Interrupted,
                Err(error) => Report::Failed {
                    is_lost: error.downcast_ref().is_some_and(is_lost),
                    reason: format!("{error:#}"),
                },
            };
            if !report(message) {
                return;
            }
        }
    }

    fn measure(&mut self, job: &Job) -> anyhow::Result<()> {
        let (inputs, stop) = (self.inputs, self.stop);
        let running = match &mut self.agent {
            Some(running) => running,
            none => none.insert(start(self.place, self.binary, inputs, stop)?),
        };
        for product in &job.products {
            if !running.products.contains(product) {
                let name = product.display().to_string();
                store_folder(&mut running.agent, &inputs.batch.join(product), &name, stop)?;
                running.products.insert(product.clone());
            }
        }
        let RunningAgent { agent, folder, .. } = running;
        agent.remove_files(ROUND, stop)?;
        let on_node = |subject: &RoundSubject| RoundSubject {
            product: folder.join(&subject.product).display().to_string(),
            ..subject.clone()
        };
        let subjects: Vec<RoundSubject> = job.subjects.iter().map(on_node).collect();
        let round = experiment(inputs.base, &job.title, inputs.option, &subjects, job.blocks)?;
        let text = round.to_toml()?;
        let file = format!("{}.toml", round_name(job.round));
        agent.write_file(&format!("{ROUND}/{file}"), text.as_bytes(), false, stop)?;
        for (name, path) in inputs.beside {
            store_file(agent, path, &format!("{ROUND}/{name}"), stop)?;
        }
        let mut arguments: Vec<String> =
            ["run", &file, "--seed", &job.seed.to_string(), "--out", RUN].map(str::to_owned).into();
        if inputs.quick {
            arguments.push("--quick".to_owned());
        }
        for number in 0..inputs.catalog.len() {
            let catalog = folder.join(CATALOG).join(number.to_string());
            arguments.extend(["--catalog".to_owned(), catalog.display().to_string()]);
        }
        let run = ProgramRun {
            folder: ROUND,
            arguments: &arguments,
            is_exclusive: matches!(self.place, AgentPlace::Slurm { .. }),
            limit: job.planned * LIMIT_FACTOR + LIMIT_EXTRA,
        };
        let end = agent.run_program(&run, stop)?;
        remove_folder(&job.to)?;
        let fetched = agent.fetch_files(&format!("{ROUND}/{RUN}"), &job.to, is_record, stop);
        // Without a run directory, the output says why.
        fetched.with_context(|| output(&end))?;
        check(&job.to, folder, inputs, &end)
    }
}

fn start(
    place: &AgentPlace,
    binary: &Binary,
    inputs: &Inputs<'_>,
    stop: &Interrupt,
) -> anyhow::Result<RunningAgent> {
    let mut agent = Agent::start(place, binary, stop)?;
    let folder = agent.folder(stop)?;
    let mut left = INPUTS_MAX;
    for (number, catalog) in inputs.catalog.iter().enumerate() {
        // A folder without entries is ignored, but must exist.
        agent.write_file(&format!("{CATALOG}/{number}/empty"), &b""[..], false, stop)?;
        for kind in ["systems", "mixes"] {
            let from = catalog.join(kind);
            if !from.is_dir() {
                continue;
            }
            let files = files_below(&from).map_err(io_error("read", &from))?;
            left = left.checked_sub(files.len()).ok_or_else(|| {
                anyhow!("{} and its like have more than {INPUTS_MAX} files", from.display())
            })?;
            for file in files {
                let name = format!("{CATALOG}/{number}/{kind}/{}", file.display());
                store_file(&mut agent, &from.join(&file), &name, stop)?;
            }
        }
    }
    Ok(RunningAgent { agent, folder, products: BTreeSet::new() })
}

fn store_folder(agent: &mut Agent, from: &Path, to: &str, stop: &Interrupt) -> anyhow::Result<()> {
    for file in files_below(from).map_err(io_error("read", from))? {
        store_file(agent, &from.join(&file), &format!("{to}/{}", file.display()), stop)?;
    }
    Ok(())
}

fn store_file(agent: &mut Agent, from: &Path, to: &str, stop: &Interrupt) -> anyhow::Result<()> {
    let cannot = || format!("cannot read {}", from.display());
    let file = File::open(from).with_context(cannot)?;
    let is_executable = file.metadata().with_context(cannot)?.permissions().mode() & 0o111 != 0;
    agent.write_file(to, file, is_executable, stop)
}

/// True for the files of a run directory besides its reports, which are written here.
fn is_record(path: &str) -> bool {
    ["manifest.json", "trials.ndjson"].contains(&path)
        || path.starts_with("configs/")
        || path.starts_with("logs/")
}

/// Checks that the records are of a complete run with the system of the batch.
fn check(
    records: &Path,
    folder: &Path,
    inputs: &Inputs<'_>,
    end: &ProgramEnd,
) -> anyhow::Result<()> {
    if !records.join("manifest.json").is_file() {
        bail!("the run has no records: {}", output(end));
    }
    let run = RunRecords::read(records)?;
    if ended_by(&run) == EndedBy::Interrupted {
        bail!("the run is not complete: {}", output(end));
    }
    let anchor = run.manifest.experiment.subjects.iter().find(|subject| subject.name == ANCHOR);
    let (Some(expected), Some(SubjectState::Present { installed, referenced, .. })) =
        (inputs.system, anchor.map(|anchor| &anchor.state))
    else {
        return Ok(());
    };
    let placeless = |text: &str| text.replace(&folder.display().to_string(), "BATCH");
    let versions: Vec<String> = installed.version.iter().map(|text| placeless(text)).collect();
    if versions != expected.versions {
        bail!(
            "its system has another version: {}, but the batch has {}; install the same on all nodes",
            versions.join(", "),
            expected.versions.join(", ")
        );
    }
    let known: BTreeSet<&String> = expected.files.values().collect();
    let files = installed.hashes.iter().chain(referenced);
    if let Some((path, _)) = files.into_iter().find(|(_, hash)| !known.contains(hash)) {
        bail!(
            "{} differs from the file that the batch began with; install the same on all nodes",
            path.display()
        );
    }
    Ok(())
}

/// Exit code and last lines of the program.
fn output(end: &ProgramEnd) -> String {
    let code = end.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
    format!("{code}: {}", end.output.join("; "))
}

fn is_lost(error: &AgentError) -> bool {
    error.is_lost() || matches!(error, AgentError::Start { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coordinates rounds of equal length on one node, on which these fail. Returns the rounds that ended, and the error.
    fn coordinate_with(bad: &'static [u32], rounds: u32) -> (Vec<u32>, Option<String>) {
        let job = |round: u32| Job {
            round,
            title: String::new(),
            subjects: Vec::new(),
            products: BTreeSet::new(),
            blocks: 1,
            seed: 0,
            planned: Duration::from_secs(1),
            to: PathBuf::new(),
        };
        let jobs: Vec<Job> = (1..=rounds).map(job).collect();
        let (sender, to_do) = mpsc::channel();
        let (reports, received) = mpsc::channel();
        let worker = thread::spawn(move || {
            for job in to_do {
                let report = if bad.contains(&(u32::try_from(job).unwrap() + 1)) {
                    Report::Failed { reason: "bad".to_owned(), is_lost: false }
                } else {
                    Report::Finished
                };
                // The coordinator may have ended.
                reports.send((0, report)).ok();
            }
        });
        let node = Node { name: "a".to_owned(), jobs: sender, is_reported: false, up_at: None };
        let mut ended = Vec::new();
        let mut note = |job: &Job, _: &str| {
            ended.push(job.round);
            Ok(())
        };
        let interrupt = Interrupt::default();
        let result = coordinate(vec![node], &jobs, &received, &interrupt, &mut note, &mut |_| {});
        worker.join().unwrap();
        (ended, result.err().map(|error| error.to_string()))
    }

    #[test]
    fn bad_rounds_do_not_keep_the_others_from_a_single_node() {
        assert_eq!(coordinate_with(&[], 3), (vec![1, 2, 3], None));
        let (ended, error) = coordinate_with(&[1, 2], 5);
        assert_eq!(ended, [3, 4, 5]);
        let error = error.unwrap();
        assert!(error.starts_with("no node could measure round 1, 2 in 3 attempts"), "{error}");
        // As many neighbours as make a node faulty.
        assert_eq!(coordinate_with(&[1, 2, 3, 4, 5], 8).0, [6, 7, 8]);
    }

    #[test]
    fn node_on_which_every_round_fails_is_given_up() {
        let (ended, error) = coordinate_with(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 9);
        assert_eq!(ended, [0; 0]);
        let error = error.unwrap();
        assert!(error.starts_with("no node is left"), "{error}");
        assert_eq!(error.matches("failed on a: bad").count(), FAULTY_ROUNDS, "{error}");
    }
}

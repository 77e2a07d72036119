//! What comes before the first trial, of a run as of a search.

use super::RunError;
use crate::causes::in_full;
use crate::environment::Environment;
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{CpusFile, Experiment, Subject};
use crate::layout::{Layout, LayoutError, available_cpus};
use crate::manifest::SubjectState;
use crate::process::files;
use crate::system::installed::{self, Missing};
use crate::system::render::{self, Place, hash_text};
use crate::trial::{config_dir, requests};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// The machine, as it is for all trials.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Which CPUs each role runs on.
    pub(crate) layout: Layout,
    /// What it is.
    pub(crate) environment: Environment,
}

/// A subject that cannot be run.
#[derive(Debug, Clone, Copy)]
pub enum Absent<'a> {
    /// Its system is not on this machine.
    Skipped {
        /// The subject's name.
        subject: &'a str,
        /// What is missing.
        missing: &'a Missing,
    },
    /// Its config cannot be made.
    Broken {
        /// The subject's name.
        subject: &'a str,
        /// Why not.
        reason: &'a str,
    },
}

/// Checks that the experiment's requests can be sent, and makes this process ready to send them.
///
/// # Errors
///
/// A request cannot be sent, or the machine cannot give the layout.
pub(crate) fn machine(experiment: &Experiment) -> Result<Machine, RunError> {
    requests::check(experiment)?;
    let layout = layout(experiment.cpus.as_ref())?;
    leaves_the_origin_its_cpu(experiment, &layout)?;
    let environment = Environment::read().map_err(system_error("reading the machine's limits"))?;
    Ok(Machine { layout, environment })
}

/// Chooses the CPUs of each role, and makes this process ready to start servers on them.
///
/// # Errors
///
/// The machine cannot give the layout.
pub(crate) fn layout(asked: Option<&CpusFile>) -> Result<Layout, RunError> {
    let available = available_cpus().map_err(system_error("asking for the CPUs to run on"))?;
    let layout = Layout::choose(asked, &available)?;
    process(&layout)?;
    Ok(layout)
}

/// A generator that never sleeps would take the CPU of an origin that runs on the same one.
fn leaves_the_origin_its_cpu(experiment: &Experiment, layout: &Layout) -> Result<(), LayoutError> {
    let busy = experiment.cases.iter().find(|case| case.load.busy_poll);
    let has_origin = experiment.subjects.iter().any(|subject| subject.recipe.file.origin);
    match (busy, layout.shared_cpu()) {
        (Some(case), Some(cpu)) if has_origin => {
            Err(LayoutError::BusyPoll { case: case.name.clone(), cpu })
        }
        _ => Ok(()),
    }
}

/// What of each subject is on this machine.
pub(crate) fn states(
    catalog: &Catalog,
    experiment: &Experiment,
    configs: &Path,
    tell: &mut dyn FnMut(Absent<'_>),
) -> Vec<SubjectState> {
    let subjects = experiment.subjects.iter();
    subjects.map(|subject| state(catalog, experiment, subject, configs, tell)).collect()
}

/// What of a subject is on this machine; its configs are rendered once, with fixed ports, so that
/// their hashes can be compared between runs and a broken template is known before the first trial.
fn state(
    catalog: &Catalog,
    experiment: &Experiment,
    subject: &Subject,
    configs: &Path,
    tell: &mut dyn FnMut(Absent<'_>),
) -> SubjectState {
    let mut broken = |reason: String| {
        tell(Absent::Broken { subject: &subject.name, reason: &reason });
        SubjectState::Broken { reason }
    };
    let installed = match installed::check(catalog, subject) {
        Ok(Ok(installed)) => installed,
        Ok(Err(missing)) => {
            tell(Absent::Skipped { subject: &subject.name, missing: &missing });
            return SubjectState::Skipped { missing };
        }
        Err(error) => return broken(in_full(&error)),
    };
    let dir = config_dir(configs, subject);
    if let Err(error) = fs::create_dir_all(&dir) {
        return broken(format!("making {}: {error}", dir.display()));
    }
    let ports = subject.recipe.file.ports.iter().zip(3..);
    let ports = ports
        .map(|(name, port)| (name.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
        .collect();
    let connections = experiment.cases.iter().map(|case| case.load.connections_most()).max();
    let origins = match subject.recipe.file.origin {
        true => experiment.cases.iter().map(|case| case.origins).max().unwrap_or(1),
        false => 0,
    };
    let origins: Vec<SocketAddr> = (0..origins)
        .map(|number| SocketAddr::from((Ipv4Addr::LOCALHOST, 2 + 1_000 * number)))
        .collect();
    let place = Place {
        dir: &dir,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        origins: &origins,
        connections: connections.unwrap_or(1),
        ports: &ports,
        installed: &installed,
    };
    let rendered = match render::render(catalog, subject, &place) {
        Ok(rendered) => rendered,
        Err(error) => return broken(in_full(&error)),
    };
    let mut hashes = BTreeMap::new();
    let recipe = &subject.recipe.file;
    for file in recipe.templates.iter().chain(&recipe.files) {
        match fs::read_to_string(dir.join(file)) {
            Ok(text) => {
                // The folder is another in each run, and no part of what is configured.
                let text = text.replace(&dir.display().to_string(), "RUN");
                hashes.insert(file.clone(), hash_text(&text))
            }
            Err(error) => return broken(format!("reading {file}: {error}")),
        };
    }
    SubjectState::Present { installed, configs: hashes, referenced: rendered.referenced }
}

/// Keeps the lab off the system's CPUs, lets it open as many files as it may, and makes it the
/// parent of every orphan below it, so that none escapes.
fn process(layout: &Layout) -> Result<(), RunError> {
    let mut cpus = CpuSet::new();
    for cpu in layout.generator.iter().chain(&layout.origin) {
        cpus.set(*cpu).map_err(system_error("choosing CPUs"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &cpus).map_err(system_error("choosing CPUs"))?;
    files::raise_limit().map_err(system_error("raising the limit of open files"))?;
    set_child_subreaper(true).map_err(system_error("becoming the parent of orphans"))
}

fn system_error(doing: &'static str) -> impl Fn(Errno) -> RunError {
    move |source| RunError::System { doing, source }
}

impl fmt::Display for Absent<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped { subject, missing } => {
                write!(formatter, "{subject} is skipped: {missing}")
            }
            Self::Broken { subject, reason } => {
                write!(formatter, "{subject} cannot run: {reason}")
            }
        }
    }
}

//! Preparation before the first trial of a run or a search.

use super::RunError;
use crate::environment;
use crate::process;
use crate::system::installed;
use crate::system::render::{self, Place};
use crate::trial::{config_dir, requests};
use nix::sys::prctl::set_child_subreaper;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tollgate_eventloop::{available_cpus, pin_current_thread};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::error_chain;
use tollgate_experiment::experiment::{CpusFile, Experiment, Subject};
use tollgate_experiment::files::hash_text;
use tollgate_experiment::machine::Environment;
use tollgate_experiment::machine::{CpuLayout, CpuLayoutError};
use tollgate_experiment::manifest::SubjectState;
use tollgate_experiment::recipe::Missing;

#[derive(Debug)]
pub struct Machine {
    pub layout: CpuLayout,
    pub environment: Environment,
}

#[derive(Debug, Clone, Copy)]
pub enum NotInstalled<'a> {
    Skipped {
        subject: &'a str,
        missing: &'a Missing,
    },
    /// Its configuration cannot be rendered.
    Broken {
        subject: &'a str,
        reason: &'a str,
    },
}

/// Checks the requests of the experiment, and prepares this process.
pub fn machine(experiment: &Experiment) -> Result<Machine, RunError> {
    requests::check(experiment)?;
    let layout = layout(experiment.cpus.as_ref())?;
    check_busy_poll(experiment, &layout)?;
    let environment =
        environment::read().map_err(system_error("read the limits of the machine"))?;
    Ok(Machine { layout, environment })
}

/// Chooses the CPUs of each role, and prepares this process.
pub fn layout(cpus: Option<&CpusFile>) -> Result<CpuLayout, RunError> {
    let available = available_cpus().map_err(system_error("read the available CPUs"))?;
    let layout = CpuLayout::choose(cpus, &available)?;
    prepare_process(&layout)?;
    Ok(layout)
}

/// A generator with `busy_poll` needs a CPU without an origin.
fn check_busy_poll(experiment: &Experiment, layout: &CpuLayout) -> Result<(), CpuLayoutError> {
    let busy = experiment.cases.iter().find(|case| case.load.busy_poll);
    let has_origin = experiment.subjects.iter().any(|subject| subject.recipe.file.origin);
    match (busy, layout.shared_cpu()) {
        (Some(case), Some(cpu)) if has_origin => {
            Err(CpuLayoutError::BusyPoll { case: case.name.clone(), cpu })
        }
        _ => Ok(()),
    }
}

/// Finds the systems of all subjects.
pub fn states(
    catalog: &Catalog,
    experiment: &Experiment,
    configs: &Path,
    report: &mut dyn FnMut(NotInstalled<'_>),
) -> Vec<SubjectState> {
    let subjects = experiment.subjects.iter();
    subjects.map(|subject| state(catalog, experiment, subject, configs, report)).collect()
}

/// Finds the system of a subject and renders its configuration with fixed ports: hashes can be compared between runs, and
/// template errors are found before the first trial.
fn state(
    catalog: &Catalog,
    experiment: &Experiment,
    subject: &Subject,
    configs: &Path,
    report: &mut dyn FnMut(NotInstalled<'_>),
) -> SubjectState {
    let mut broken = |reason: String| {
        report(NotInstalled::Broken { subject: &subject.name, reason: &reason });
        SubjectState::Broken { reason }
    };
    let installed = match installed::check(catalog, subject) {
        Ok(Ok(installed)) => installed,
        Ok(Err(missing)) => {
            report(NotInstalled::Skipped { subject: &subject.name, missing: &missing });
            return SubjectState::Skipped { missing };
        }
        Err(error) => return broken(error_chain(&error)),
    };
    let dir = config_dir(configs, subject);
    if let Err(error) = fs::create_dir_all(&dir) {
        return broken(format!("cannot create {}: {error}", dir.display()));
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
        Err(error) => return broken(error_chain(&error)),
    };
    let mut hashes = BTreeMap::new();
    let recipe = &subject.recipe.file;
    for file in recipe.templates.iter().chain(&recipe.files) {
        match fs::read_to_string(dir.join(file)) {
            Ok(text) => {
                // The folder differs between runs.
                let text = text.replace(&dir.display().to_string(), "RUN");
                hashes.insert(file.clone(), hash_text(&text))
            }
            Err(error) => return broken(format!("cannot read {file}: {error}")),
        };
    }
    SubjectState::Present { installed, configs: hashes, referenced: rendered.referenced }
}

/// Keeps this process off the CPUs of the system, raises its file limit, and makes it the parent of orphaned descendants.
fn prepare_process(layout: &CpuLayout) -> Result<(), RunError> {
    let cpus = [&layout.generator[..], &layout.origin].concat();
    pin_current_thread(&cpus).map_err(system_error("pin the process to CPUs"))?;
    process::raise_file_limit().map_err(system_error("raise the limit on open files"))?;
    set_child_subreaper(true).map_err(system_error("become a subreaper"))
}

fn system_error<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> RunError {
    move |source| RunError::System { action, source: source.into() }
}

impl fmt::Display for NotInstalled<'_> {
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

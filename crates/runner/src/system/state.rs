//! State of the system of a subject on this machine: its parts, and its configuration with fixed ports.

use super::render::{self, RenderPlace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_records::files::hash_text;
use tollgate_records::subject::{Missing, SubjectState};
use tollgate_traffic::load_shape::{CaseProtocol, Concurrency};

#[derive(Debug, Clone, Copy, Error)]
pub enum NotInstalled<'a> {
    #[error("{subject} is skipped: {missing}")]
    Skipped { subject: &'a str, missing: &'a Missing },
    /// Its configuration cannot be rendered.
    #[error("{subject} cannot run: {reason}")]
    Broken { subject: &'a str, reason: &'a str },
}

/// Finds the systems of all subjects.
pub fn states(
    catalog: &Catalog,
    experiment: &Experiment,
    configs: &Path,
    report: &mut dyn FnMut(NotInstalled<'_>),
) -> Vec<SubjectState> {
    let subjects = experiment.subjects.iter();
    let state = |subject: &Subject| {
        let state = state(catalog, subject, &FixedPlace::of(experiment, subject), configs);
        report_state(&state, &subject.name, report);
        state
    };
    subjects.map(state).collect()
}

pub(crate) fn report_state(
    state: &SubjectState,
    subject: &str,
    report: &mut dyn FnMut(NotInstalled<'_>),
) {
    match state {
        SubjectState::Present { .. } => {}
        SubjectState::Skipped { missing } => report(NotInstalled::Skipped { subject, missing }),
        SubjectState::Broken { reason } => report(NotInstalled::Broken { subject, reason }),
    }
}

/// Variables of a configuration that is rendered to be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedPlace {
    pub concurrency: Concurrency,
    pub origins: u16,
    pub protocol: CaseProtocol,
}

impl FixedPlace {
    /// Returns the variables of a subject for all cases of an experiment.
    pub fn of(experiment: &Experiment, subject: &Subject) -> Self {
        let of_cases = || experiment.cases.iter().map(|case| case.load.concurrency());
        let concurrency = Concurrency {
            connections: of_cases().map(|one| one.connections).max().unwrap_or(1),
            requests: of_cases().map(|one| one.requests).max().unwrap_or(1),
        };
        let origins = if subject.recipe.file.origin {
            experiment.cases.iter().map(|case| case.origins).max().unwrap_or(1)
        } else {
            0
        };
        let of_subject = |case: &&Case| {
            case.subjects.iter().any(|at| experiment.subjects[*at].name == subject.name)
        };
        let first = experiment.cases.iter().find(of_subject);
        let protocol = first.map_or(CaseProtocol::H1, |case| case.load.protocol());
        Self { concurrency, origins, protocol }
    }
}

/// Finds the system of a subject and renders its configuration with fixed ports: hashes can be compared between runs, and
/// template errors are found before the first trial.
pub fn state(
    catalog: &Catalog,
    subject: &Subject,
    fixed: &FixedPlace,
    configs: &Path,
) -> SubjectState {
    let broken = |reason: String| SubjectState::Broken { reason };
    let installed = match super::check(catalog, subject) {
        Ok(Ok(installed)) => installed,
        Ok(Err(missing)) => return SubjectState::Skipped { missing },
        Err(error) => return broken(format!("{error:#}")),
    };
    let dir = config_dir(configs, subject);
    if let Err(error) = fs::create_dir_all(&dir) {
        return broken(format!("cannot create {}: {error}", dir.display()));
    }
    let ports = subject.recipe.file.ports.iter().zip(3..);
    let ports = ports
        .map(|(name, port)| (name.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
        .collect();
    let origins: Vec<SocketAddr> = (0..fixed.origins)
        .map(|number| SocketAddr::from((Ipv4Addr::LOCALHOST, 2 + 1_000 * number)))
        .collect();
    let place = RenderPlace {
        dir: &dir,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        origins: &origins,
        concurrency: fixed.concurrency,
        protocol: fixed.protocol,
        ports: &ports,
        installed: &installed,
    };
    let rendered = match render::render(catalog, subject, &place) {
        Ok(rendered) => rendered,
        Err(error) => return broken(format!("{error:#}")),
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

/// Folder of the configuration files of a subject, and working directory of its processes.
pub fn config_dir(configs: &Path, subject: &Subject) -> PathBuf {
    configs.join(&subject.name)
}

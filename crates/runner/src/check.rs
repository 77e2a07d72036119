//! Check of one subject: installed, starts, and passes the probe.

use crate::process::Interrupt;
use crate::run;
use crate::run::RunError;
use crate::system::{self, CheckError};
use crate::trial::requests::{Requests, RequestsError};
use crate::trial::{self, Checked, RunContext, config_dir};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};
use thiserror::Error;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Case, LoadFile, Subject, WarmUp};
use tollgate_experiment::plan::TrialPlan;
use tollgate_experiment::recipe::{Installed, Missing};
use tollgate_experiment::record::Failure;
use tollgate_experiment::toml_file::Source;
use tollgate_experiment::units::Span;
use tollgate_experiment::validity::Limits;
use tollgate_traffic::Mix;

#[derive(Debug)]
pub struct CheckRequest<'a> {
    pub catalog: &'a Catalog,
    pub subject: &'a Subject,
    /// Mix of the probe, and its files: its own first.
    pub mix: (Mix, Vec<Source>),
    /// The `tollgate` binary, for the origin.
    pub tollgate: &'a Path,
    /// Folder for configuration and log files.
    pub dir: &'a Path,
    pub interrupt: &'a Interrupt,
}

#[derive(Debug)]
pub enum Found {
    NotInstalled(Missing),
    /// Failed before the end of the probe.
    Failed(Installed, Failure),
    Probed(Installed, Checked),
    Interrupted,
}

#[derive(Debug, Error)]
pub enum SystemCheckError {
    #[error(transparent)]
    Installed(#[from] Box<CheckError>),
    #[error(transparent)]
    Requests(#[from] RequestsError),
    #[error(transparent)]
    Machine(#[from] RunError),
    #[error("cannot create a folder for configuration and log files")]
    Folder(#[from] io::Error),
}

/// Starts a subject, sends it one request of each template of a mix, and stops it. The calling thread must live as long
/// as the program, as for a run.
pub fn check(request: CheckRequest<'_>) -> Result<Found, SystemCheckError> {
    let CheckRequest { catalog, subject, mix: (mix, mut sources), .. } = request;
    let installed = match system::check(catalog, subject).map_err(Box::new)? {
        Ok(installed) => installed,
        Err(missing) => return Ok(Found::NotInstalled(missing)),
    };
    let mix_included = sources.split_off(1);
    let mix_source = sources.remove(0);
    let case = Case {
        name: "check".to_owned(),
        mix,
        mix_source,
        mix_included,
        origins: 1,
        load: LOAD,
        subjects: vec![0],
        rate_of: None,
    };
    Requests::render(&case, subject)?;
    let layout = run::layout(None)?;
    let (configs, logs) = (request.dir.join("configs"), request.dir.join("logs"));
    fs::create_dir_all(config_dir(&configs, subject))?;
    fs::create_dir_all(&logs)?;
    let context = RunContext {
        catalog,
        tollgate: request.tollgate,
        configs,
        logs,
        layout: &layout,
        limits: &Limits::default(),
        interrupt: request.interrupt,
    };
    let plan = TrialPlan { case: 0, block: 1, position: 1, subject: 0, attempt: 1, order_seed: 0 };
    Ok(match trial::check(&context, &plan, &case, subject, &installed) {
        Ok(Ok(checked)) => Found::Probed(installed, checked),
        Ok(Err(failure)) => Found::Failed(installed, failure),
        Err(_) => Found::Interrupted,
    })
}

/// Load for the configuration files. Only the probe is sent.
const LOAD: LoadFile = LoadFile {
    connections: 1,
    quick_connections: None,
    connections_max: None,
    rate: None,
    spacing: None,
    duration: Some(Span(Duration::from_secs(1))),
    warmup: WarmUp::For(Duration::ZERO),
    warmup_max: None,
    keepalive: true,
    threads: 1,
    timeout: Span(Duration::from_secs(10)),
    busy_poll: false,
    idle_poll: false,
    quick_duration: None,
    requests: None,
    quick_requests: None,
    duration_max: None,
};

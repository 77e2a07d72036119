//! A look at one subject: is it there, does it start, does it answer the probe as it says.

use crate::inputs::catalog::Catalog;
use crate::inputs::duration::Span;
use crate::inputs::experiment::{Case, LoadFile, Subject, WarmUp};
use crate::inputs::toml_file::Source;
use crate::interrupt::Interrupt;
use crate::plan::TrialPlan;
use crate::record::Failure;
use crate::run::RunError;
use crate::run::prepare;
use crate::system::installed::{self, CheckError, Installed, Missing};
use crate::trial::requests::{Requests, RequestsError};
use crate::trial::validity::Limits;
use crate::trial::{self, Bench, Checked, config_dir};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};
use thiserror::Error;
use tollgate_traffic::Mix;

/// What is to be looked at.
#[derive(Debug)]
pub struct CheckRequest<'a> {
    /// Where inputs are found.
    pub catalog: &'a Catalog,
    /// The configured system.
    pub subject: &'a Subject,
    /// What it is sent, one request of each template, and the files that say it: the mix's own first.
    pub mix: (Mix, Vec<Source>),
    /// The `tollgate` binary, which is started as the origin.
    pub tollgate: &'a Path,
    /// The folder for configs and logs.
    pub dir: &'a Path,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
}

/// What was found.
#[derive(Debug)]
pub enum Found {
    /// It is not on this machine.
    Absent(Missing),
    /// It could not be brought to the probe.
    Failed(Installed, Failure),
    /// It answered.
    Answered(Installed, Checked),
    /// The check was asked to stop.
    Interrupted,
}

/// Why nothing can be found out.
#[derive(Debug, Error)]
pub enum LookError {
    /// What is installed cannot be told.
    #[error(transparent)]
    Installed(#[from] Box<CheckError>),
    /// The mix cannot be sent.
    #[error(transparent)]
    Requests(#[from] RequestsError),
    /// This machine cannot give the layout.
    #[error(transparent)]
    Machine(#[from] RunError),
    /// A folder cannot be made.
    #[error("making a folder for configs and logs")]
    Folder(#[from] io::Error),
}

/// Starts a subject, sends it one request of each template of a mix, and stops it. Call it from a
/// thread that lives as long as the program, as for a run.
///
/// # Errors
///
/// The recipe or the mix is wrong, or the machine does not let it be done.
pub fn check(request: CheckRequest<'_>) -> Result<Found, LookError> {
    let CheckRequest { catalog, subject, mix: (mix, mut sources), .. } = request;
    let installed = match installed::check(catalog, subject).map_err(Box::new)? {
        Ok(installed) => installed,
        Err(missing) => return Ok(Found::Absent(missing)),
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
    let layout = prepare::layout(None)?;
    let (configs, logs) = (request.dir.join("configs"), request.dir.join("logs"));
    fs::create_dir_all(config_dir(&configs, subject))?;
    fs::create_dir_all(&logs)?;
    let bench = Bench {
        catalog,
        tollgate: request.tollgate,
        configs,
        logs,
        layout: &layout,
        limits: &Limits::default(),
        interrupt: request.interrupt,
    };
    let plan = TrialPlan { case: 0, block: 1, position: 1, subject: 0, attempt: 1, order_seed: 0 };
    Ok(match trial::check(&bench, &plan, &case, subject, &installed) {
        Ok(Ok(checked)) => Found::Answered(installed, checked),
        Ok(Err(failure)) => Found::Failed(installed, failure),
        Err(_) => Found::Interrupted,
    })
}

/// What configs are told of a load: there is none besides the probe.
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

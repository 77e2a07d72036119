//! Check of one installed subject: it starts and passes the probe.

use crate::process::Interrupt;
use crate::trial::requests::Requests;
use crate::trial::{self, Checked, RunContext, config_dir};
use std::fs;
use std::path::Path;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::error::io_error;
use tollgate_experiment::experiment::{Case, Protocol, Subject};
use tollgate_experiment::machine::CpuLayout;
use tollgate_experiment::plan::TrialPlan;
use tollgate_experiment::recipe::Installed;
use tollgate_experiment::record::Failure;
use tollgate_experiment::toml_file::{self, Source};
use tollgate_experiment::validity::Limits;
use tollgate_traffic::Mix;

#[derive(Debug)]
pub struct CheckRequest<'a> {
    pub catalog: &'a Catalog,
    /// Only its probe is sent.
    pub case: &'a Case,
    pub subject: &'a Subject,
    pub installed: &'a Installed,
    pub layout: &'a CpuLayout,
    /// The `tollgate` binary, for the origin.
    pub tollgate: &'a Path,
    /// Folder for configuration and log files.
    pub dir: &'a Path,
    pub interrupt: &'a Interrupt,
}

/// Starts a subject, sends it one request of each template of the mix, and stops it. The calling thread must live as long
/// as the program, as for a run. An interruption is an error.
pub fn check(request: &CheckRequest<'_>) -> anyhow::Result<Result<Checked, Failure>> {
    let CheckRequest { catalog, case, subject, installed, layout, tollgate, interrupt, .. } =
        *request;
    Requests::render(case, subject)?;
    let (configs, logs) = (request.dir.join("configs"), request.dir.join("logs"));
    for folder in [&config_dir(&configs, subject), &logs] {
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    }
    let limits = &Limits::default();
    let context = RunContext { catalog, tollgate, configs, logs, layout, limits, interrupt };
    let plan = TrialPlan { case: 0, block: 1, position: 1, subject: 0, attempt: 1, order_seed: 0 };
    Ok(trial::check(&context, &plan, case, subject, installed)?)
}

/// Returns a case of one subject with this mix. `sources`: the files of the mix, its own first.
pub fn case(mix: Mix, mut sources: Vec<Source>) -> anyhow::Result<Case> {
    let mix_included = sources.split_off(1);
    Ok(Case {
        name: "check".to_owned(),
        mix,
        mix_source: sources.remove(0),
        mix_included,
        origins: 1,
        protocol: Protocol::H1,
        load: toml_file::parse(&Source { name: "check".to_owned(), text: LOAD.to_owned() })?,
        subjects: vec![0],
        rate_of: None,
    })
}

/// Load for the configuration files.
const LOAD: &str = "connections = 1\nduration = '1s'\nwarmup = '0s'\nbusy_poll = false";

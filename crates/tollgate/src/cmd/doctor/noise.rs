//! `tollgate doctor --noise`: how much two subjects differ on this machine that are the same.

use crate::cmd::beginning;
use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use crate::signals;
use anyhow::Context;
use jiff::Timestamp;
use std::path::Path;
use std::time::{Duration, Instant};
use tollgate_lab::doctor::noise::{self, EXPERIMENTS};
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_lab::inputs::experiment::{Adjustments, Experiment};
use tollgate_lab::manifest::Circumstances;
use tollgate_lab::plan::stop::EndedBy;
use tollgate_lab::process::group;
use tollgate_lab::record::{Outcome, TrialRecord};
use tollgate_lab::report;
use tollgate_lab::run::{self, Event, RunRequest};
use tollgate_lab::run_dir::RunRecords;
use tollgate_lab::system::installed;

/// Runs a subject against itself for a time, and prints what that says of the machine. The run's
/// directory is kept where one is named.
///
/// # Errors
///
/// The run cannot be made, or its directory cannot be used.
pub(super) fn run(catalog: &Catalog, time: Duration, out: Option<&Path>) -> Result<Exit, Failure> {
    let mut experiment = experiment(catalog)?;
    noise::fit(&mut experiment, time);
    let (dir, folder) = match out {
        Some(out) => (out.to_owned(), None),
        None => {
            let folder = tempfile::Builder::new().prefix("tollgate-noise-").tempdir();
            let folder = folder.context("making a folder for the run; --out names another")?;
            (folder.path().to_owned(), Some(folder))
        }
    };
    let dir = dir.as_path();

    let interrupt = signals::interrupt(group::hurry).context("asking for signals")?;
    let begun = Instant::now();
    tell(&format!(
        "{} against itself for {} s",
        experiment.subjects[experiment.baseline].name,
        time.as_secs()
    ));
    let seed = Timestamp::now().as_second().unsigned_abs();
    let ending = run::run(
        &RunRequest {
            catalog,
            experiment: &experiment,
            circumstances: Circumstances {
                seed,
                quick: false,
                command: format!("tollgate doctor --noise --seconds {}", time.as_secs()),
                directory: std::env::current_dir().context("asking for the current folder")?,
            },
            tollgate: &std::env::current_exe().context("finding the tollgate binary")?,
            out: dir,
            interrupt: &interrupt,
            resumes: false,
        },
        &mut |event| {
            if let Event::Recorded(record) = event {
                tell(&line(record, begun.elapsed()));
            }
        },
    )
    .map_err(beginning::failure)?;

    let records = RunRecords::read(dir)?;
    if out.is_some() {
        report::write_all(&report::of_run(dir)?, dir)?;
    }
    let noise = noise::findings(&records);
    output::print(&format!("\n{}", noise::render(&noise, output::screen())))?;
    if let Some(folder) = folder {
        folder.close().context("removing the folder of the run")?;
    }
    Ok(match ending.ended_by {
        EndedBy::Interrupted => Exit::Interrupted,
        _ if noise.figures.is_empty() => Exit::Nothing,
        _ => Exit::Done,
    })
}

/// The first experiment whose system is installed.
fn experiment(catalog: &Catalog) -> Result<Experiment, Failure> {
    let [with_proxy, without] = EXPERIMENTS;
    let adjustments = Adjustments::default();
    let load = |name| Experiment::load(catalog, name, &adjustments).map_err(Failure::bad_input);
    let experiment = load(with_proxy)?;
    match installed::check(catalog, &experiment.subjects[experiment.baseline])? {
        Ok(_) => Ok(experiment),
        Err(missing) => {
            tell(&format!("there is no nginx, so no proxy is looked at: {missing}"));
            load(without)
        }
    }
}

/// A trial as progress tells it.
fn line(record: &TrialRecord, elapsed: Duration) -> String {
    let what = match &record.outcome {
        Outcome::Measured(measurement) if measurement.invalid.is_empty() => {
            let cpu = measurement.system_cpu_us_per_request();
            let cpu = cpu.map_or(String::new(), |us| format!(", {us:.2} us of CPU each"));
            format!("{:.0} answers/s{cpu}", measurement.throughput_per_s)
        }
        Outcome::Measured(measurement) => {
            let reasons: Vec<String> =
                measurement.invalid.iter().map(ToString::to_string).collect();
            format!("does not count: {}", reasons.join("; "))
        }
        Outcome::Refused(refusal) => format!("refused: {}", refusal.reason),
        Outcome::Failed(failure) => format!("{}: {}", failure.step, failure.reason),
    };
    format!("{:3.0} s: {}: {what}", elapsed.as_secs_f64(), record.subject)
}

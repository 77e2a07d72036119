//! `tollgate doctor`.

mod hosts;

use super::list;
use super::names::DEFAULT_EXPERIMENT;
use super::prepare::CatalogArgs;
use crate::console::{self, Exit, Failure, eprint_line};
use crate::signals;
use anyhow::Context;
use clap::ValueEnum;
use jiff::Timestamp;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate_cluster::carrier::Carrier;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Experiment;
use tollgate_experiment::manifest::Invocation;
use tollgate_records::stop::EndedBy;
use tollgate_records::trial::TrialRecord;
use tollgate_report as report;
use tollgate_report::noise;
use tollgate_report::source::ReportSource;
use tollgate_runner::bench::local::LocalBench;
use tollgate_runner::doctor::{State, examine};
use tollgate_runner::process::group;
use tollgate_runner::run::{self, RunEvent, RunRequest};
use tollgate_runner::system;

/// The experiment of the check, and the one for machines without nginx.
const EXPERIMENTS: [&str; 2] = ["noise", "noise-direct"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate doctor                check this machine and the installed systems
  tollgate doctor --noise        also measure its noise
  tollgate doctor --noise --seconds 120 --out noise
  tollgate doctor --on slurm     examine the idle nodes of Slurm: clocks, round
                                 trips, network cards, CPU models, versions")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// Compare nginx with itself (without nginx: no proxy) to measure the noise
    ///
    /// Prints the differences, the disturbed trials, and the smallest difference that ten blocks would show.
    #[arg(long)]
    pub(crate) noise: bool,
    /// Time for the measurement, in seconds
    #[arg(
        long,
        value_name = "N",
        requires = "noise",
        default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(2..=3600)
    )]
    seconds: u32,
    /// Keep the run in this directory [default: not kept]
    #[arg(long, value_name = "DIR", requires = "noise")]
    out: Option<PathBuf>,
    // Not a comment of documentation, where brackets are links.
    #[arg(
        long,
        value_name = "CARRIER",
        conflicts_with = "noise",
        help = "Examine other hosts instead: slurm[:N], ssh:HOST,HOST, kubectl:[NAMESPACE/]POD,... or local[:N]"
    )]
    on: Option<Carrier>,
    /// Format of the result of --on
    #[arg(long, value_enum, requires = "on", default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(carrier) = &args.on {
        return hosts::run(carrier, args.format);
    }
    let catalog = &args.catalog.open()?;
    let checks = examine(catalog);
    let mut text = String::new();
    for check in &checks {
        let mark = match check.state {
            State::Good => "ok  ",
            State::Poor => "poor",
            State::Impossible => "FAIL",
        };
        writeln!(text, "{mark}  {:<15} {}", check.name, check.found)?;
        if let Some(hint) = &check.hint {
            writeln!(text, "{:22}-> {hint}", "")?;
        }
    }
    text += "\nSystems:\n";
    for (name, system) in list::systems(catalog) {
        let (mark, description) = match system {
            Ok(system) if system.installed => ("ok  ", system.description),
            Ok(system) => ("miss", system.description),
            Err(error) => ("FAIL", format!("{error:#}")),
        };
        writeln!(text, "{mark}  {name:<18} {}", description.replace('\n', "\n    "))?;
    }
    let missing = missing_baseline(catalog)?;
    if let Some(missing) = &missing {
        writeln!(text, "FAIL  {DEFAULT_EXPERIMENT}: its baseline is not installed: {missing}")?;
    }
    let machine_ok = checks.iter().all(|check| check.state != State::Impossible);
    let possible = machine_ok && missing.is_none();
    text += if possible {
        "\nA run is possible on this machine.\n"
    } else {
        "\nA run is not possible on this machine: see the lines with FAIL.\n"
    };
    console::print(&text)?;
    if args.noise && machine_ok {
        let time = Duration::from_secs(args.seconds.into());
        let exit = measure_noise(catalog, time, args.out.as_deref())?;
        return Ok(match exit {
            Exit::Success | Exit::Nothing if !possible => Exit::Failed,
            exit => exit,
        });
    }
    Ok(if possible { Exit::Success } else { Exit::Failed })
}

/// Returns what is missing for the baseline of the default experiment.
fn missing_baseline(catalog: &Catalog) -> Result<Option<String>, Failure> {
    let experiment = Experiment::load(catalog, DEFAULT_EXPERIMENT, &Adjustments::default())?;
    let baseline = &experiment.subjects[experiment.baseline];
    Ok(system::check(catalog, baseline)?.err().map(|missing| missing.to_string()))
}

/// Compares a subject with itself for a time and prints the noise.
fn measure_noise(catalog: &Catalog, time: Duration, out: Option<&Path>) -> Result<Exit, Failure> {
    let mut experiment = noise_experiment(catalog)?;
    experiment.fit_into(time);
    let (dir, folder) = match out {
        Some(out) => (out.to_owned(), None),
        None => {
            let folder = tempfile::Builder::new().prefix("tollgate-noise-").tempdir();
            let folder =
                folder.context("cannot create a folder for the run (choose another with --out)")?;
            (folder.path().to_owned(), Some(folder))
        }
    };
    let dir = dir.as_path();

    let interrupt =
        signals::interrupt(group::kill_now).context("cannot install signal handlers")?;
    let started = Instant::now();
    eprint_line(&format!(
        "comparing {} with itself for {} s",
        experiment.subjects[experiment.baseline].name,
        time.as_secs()
    ));
    let seed = Timestamp::now().as_second().unsigned_abs();
    let tollgate = std::env::current_exe().context("cannot find the tollgate binary")?;
    let mut bench = LocalBench::new(catalog, &tollgate, experiment.cpus.as_ref())?;
    let ending = run::run(
        &mut bench,
        &RunRequest {
            experiment: &experiment,
            invocation: Invocation {
                seed,
                quick: false,
                command: [
                    "tollgate",
                    "doctor",
                    "--noise",
                    "--seconds",
                    &time.as_secs().to_string(),
                ]
                .map(str::to_owned)
                .to_vec(),
                directory: std::env::current_dir().context("cannot read the working directory")?,
            },
            out: dir,
            interrupt: &interrupt,
            resumes: false,
        },
        &mut |event| {
            if let RunEvent::Recorded(record) = event {
                eprint_line(&trial_line(record, started.elapsed()));
            }
        },
    )?;
    drop(bench);

    let source = ReportSource::read(dir)?;
    if out.is_some() {
        report::write_all(&source, dir)?;
    }
    let noise = noise::findings(&source);
    console::print(&format!("\n{}", noise::render(&noise, console::screen())))?;
    if let Some(folder) = folder {
        folder.close().context("cannot remove the folder of the run")?;
    }
    Ok(match ending.ended_by {
        EndedBy::Interrupted => Exit::Interrupted,
        _ if noise.figures.is_empty() => Exit::Nothing,
        _ => Exit::Success,
    })
}

/// Returns the first noise experiment whose system is installed.
fn noise_experiment(catalog: &Catalog) -> anyhow::Result<Experiment> {
    let [with_proxy, without] = EXPERIMENTS;
    let adjustments = Adjustments::default();
    let load = |name| Experiment::load(catalog, name, &adjustments);
    let experiment = load(with_proxy)?;
    match system::check(catalog, &experiment.subjects[experiment.baseline])? {
        Ok(_) => Ok(experiment),
        Err(missing) => {
            eprint_line(&format!("nginx is not installed ({missing}); measuring without a proxy"));
            load(without)
        }
    }
}

fn trial_line(record: &TrialRecord, elapsed: Duration) -> String {
    let reasons = record.outcome.why_not_valid().join("; ");
    let what = match record.outcome.measurement() {
        Some(measurement) if reasons.is_empty() => {
            let cpu = measurement.system_cpu_us_per_request();
            let cpu = cpu.map_or(String::new(), |us| format!(", {us:.2} µs CPU/request"));
            format!("{:.0} responses/s{cpu}", measurement.throughput_per_s)
        }
        Some(_) => format!("invalid: {reasons}"),
        None => reasons,
    };
    format!("{:3.0} s: {}: {what}", elapsed.as_secs_f64(), record.subject)
}

//! `tollgate run`.

use super::names::NamesArgs;
use super::prepare::{
    CatalogArgs, PreparedRun, Process, RunOptions, own_arguments, repeated_command,
};
use super::progress::Progress;
use super::threshold::ThresholdArgs;
use crate::console::{self, Exit, Failure};
use crate::{Cli, Command};
use anyhow::{Context, anyhow};
use clap::Parser;
use std::path::{Path, PathBuf};
use tollgate_cluster::carrier::Carrier;
use tollgate_cluster::remote::{self, RemoteBench};
use tollgate_cluster::staging::Binary;
use tollgate_experiment::adjust::{Adjustments, Limit};
use tollgate_experiment::manifest::Invocation;
use tollgate_experiment::matrix::Axis;
use tollgate_records::run_dir::{NotAppended, RunRecords};
use tollgate_records::stop::EndedBy;
use tollgate_report as report;
use tollgate_report::Format;
use tollgate_report::analysis::{Analysis, SubjectAnalysis, SubjectStatus};
use tollgate_report::source::ReportSource;
use tollgate_runner::ablation::{self, Selection as Ablate};
use tollgate_runner::bench::Bench;
use tollgate_runner::bench::local::LocalBench;
use tollgate_runner::run::{self, NoPrices, RunRequest};
use tollgate_runner::system;
use tollgate_runner::trial::LabFailed;
use tollgate_traffic::units::{Percent, Span};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate run                            nginx, ModSecurity, the gateway
  tollgate run --only full --blocks 20    fewer subjects, more blocks
  tollgate run --baseline direct          prices over no proxy
  tollgate run modsecurity --quick        another experiment, shortened
  tollgate run mine.toml --out results    your own experiment (`tollgate init`)
  tollgate run mine.toml --allow-host staging.example.org
                                          with a server that runs already
  tollgate run nginx haproxy --mix browse -c 50 -d 2s
                                          systems side by side, without a file
  tollgate run nginx nginx-modsecurity:rules=crs,engine=on
  tollgate run old=nginx:workers=1 new=nginx:workers=2
                                          systems with names of their own
  tollgate run --threshold 'cpu(full/nginx)<130' --junit thresholds.xml
  tollgate run --width 1% --budget 15m    as many blocks as needed in 15 minutes
  tollgate run --aa                       the baseline twice, to show the noise
  tollgate run --matrix full.crs=packaged,4.25.0
  tollgate run rule-files --ablate modsecurity
  tollgate run catch --corpus crs.mix     what WAFs block of rule tests
  tollgate run --resume runs/first-look-...

`client = \"wrk\"` (or ab, h2load) in the load of a case has that program send it.
Ctrl-C stops a run; finished trials are kept and shown, and --resume continues.
Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    #[command(flatten)]
    names: NamesArgs,
    /// Shorten trials to a fifth of their time, or as the experiment says
    #[arg(long)]
    quick: bool,
    /// Number of blocks; fewer than 6 give no interval
    ///
    /// Each block runs every subject once. With --width or --budget: the maximum number.
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// Run until the half-width of all intervals is below this, such as 2%
    ///
    /// Applies to CPU per request; to requests/s if the baseline uses no CPU of its own; to the p50 latency if
    /// the rate is given too.
    #[arg(long, value_name = "PERCENT")]
    width: Option<Percent>,
    /// Run until --width is reached (default: 2%), at most for this time [default with --width: 10m]
    ///
    /// Counts the time of trials. The first block is always completed.
    #[arg(long, value_name = "TIME")]
    budget: Option<Span>,
    /// Margin within which prices count as the same [default: 2%]
    #[arg(long, value_name = "PERCENT")]
    margin: Option<Percent>,
    /// Run the baseline twice per block, to show the noise of this machine
    #[arg(long)]
    aa: bool,
    /// Seed of all random choices [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run only these subjects, and the baseline
    #[arg(long, value_name = "SUBJECT", value_delimiter = ',')]
    only: Vec<String>,
    /// Run only these cases, and those that their rates depend on
    #[arg(long = "case", value_name = "CASE", value_delimiter = ',')]
    cases: Vec<String>,
    /// Replace a subject by one per value of an option, such as full.paranoia=1,2 (may be repeated)
    ///
    /// For cases: CASE.connections=10,50 or CASE.rate=100,200. Without a name, such as workers=1,2: applies to all
    /// subjects that have the option. Several matrices give all combinations.
    #[arg(long, value_name = "SUBJECT.OPTION=VALUE,VALUE,...")]
    matrix: Vec<Axis>,
    /// Run this subject with its rule set and without each file of it, to price every file
    ///
    /// With parts of file names: only these files, such as full=941,942.
    #[arg(long, value_name = "SUBJECT[=FILE,FILE,...]", conflicts_with_all = ["matrix", "only"])]
    ablate: Option<Ablate>,
    /// Baseline for the prices, instead of the experiment's
    #[arg(long, value_name = "SUBJECT")]
    baseline: Option<String>,
    /// Replace a limit of disturbance, such as `background_cpu=50%` (may be repeated)
    ///
    /// Trials outside of a limit do not count: `steal`, `background_cpu`, `pause`, `window_skew`, `imbalance`.
    #[arg(long = "limit", value_name = "LIMIT=PERCENT")]
    limits: Vec<Limit>,
    /// List of requests (.mix) to send once in each trial, to compare which of them the subjects block; repeatable
    #[arg(long, value_name = "FILE.mix")]
    corpus: Vec<PathBuf>,
    /// Allow load to the host of a subject's `url`; repeatable, only for hosts that you may load
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Run system, origin and generators on hosts of their own: slurm, ssh:HOST,HOST,HOST,... or
    /// kubectl:[NAMESPACE/]POD,... (see docs/cluster.md)
    #[arg(long, value_name = "CARRIER", conflicts_with_all = ["ablate", "allow_host"])]
    on: Option<Carrier>,
    /// Hosts that send the load, with --on
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    generators: u16,
    /// Directory for records and reports [default: a new one in runs/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    threshold: ThresholdArgs,
    /// Continue the run in this directory, with the options of its command
    ///
    /// No other option may be added. `tollgate report DIR --threshold ...` checks other thresholds.
    #[arg(long, value_name = "DIR", exclusive = true)]
    resume: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.resume {
        None => start(args, &own_arguments(), false),
        Some(dir) => resume(dir),
    }
}

/// Continues a run with its original command, in its original working directory.
fn resume(dir: &Path) -> Result<Exit, Failure> {
    let RunRecords { manifest, .. } = RunRecords::read(dir).map_err(Failure::bad_input)?;
    let dir = dir.canonicalize().with_context(|| format!("cannot resolve {}", dir.display()))?;
    let context =
        || format!("cannot repeat the command of {}: {}", dir.display(), manifest.command_line());
    let cli = Cli::try_parse_from(&manifest.command).with_context(context);
    let Command::Run(mut args) = cli.map_err(Failure::bad_input)?.command else {
        return Err(Failure::bad_input(anyhow!("{}: not a run", context())));
    };
    args.seed = Some(manifest.seed);
    std::env::set_current_dir(&manifest.directory)
        .with_context(|| {
            let folder = &manifest.directory;
            format!("cannot enter {folder}, in which the run was started")
        })
        .map_err(Failure::bad_input)?;
    args.out = Some(dir);
    start(&args, &manifest.command, true)
}

/// `arguments`: those that were parsed.
fn start(args: &Args, arguments: &[String], resumes: bool) -> Result<Exit, Failure> {
    let mut adjustments = Adjustments {
        quick: args.quick,
        blocks: args.blocks,
        only: args.only.clone(),
        cases: args.cases.clone(),
        baseline: args.baseline.clone(),
        width: args.width,
        budget: args.budget,
        margin: args.margin,
        aa: args.aa,
        matrix: args.matrix.clone(),
        limits: args.limits.clone(),
        allow_hosts: args.allow_host.clone(),
        corpus: args.corpus.clone(),
    };
    let prepare = |adjustments: &Adjustments| {
        let options = RunOptions {
            catalog: &args.catalog,
            names: &args.names,
            adjustments,
            seed: args.seed,
            out: args.out.as_deref(),
            prefix: "",
        };
        options.prepare()
    };
    let mut prepared = prepare(&adjustments)?;
    if adjustments.baseline.is_none()
        && args.on.is_none()
        && let Some(fallback) = fallback_baseline(&prepared)
    {
        adjustments.baseline = Some(fallback);
        prepared = prepare(&adjustments)?;
    }
    let PreparedRun { catalog, mut experiment, seed, out } = prepared;
    if let Some(ablate) = &args.ablate {
        experiment = ablation::ablate(&catalog, experiment, ablate)?;
    }
    let subjects: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
    let cases: Vec<&str> = experiment.cases.iter().map(|case| case.name.as_str()).collect();
    let thresholds = args.threshold.parse(&subjects, &cases)?;
    let process = Process::start(&catalog)?;
    let mut bench: Box<dyn Bench> = match &args.on {
        None => Box::new(LocalBench::new(&catalog, &process.tollgate, experiment.cpus.as_ref())?),
        Some(carrier) => {
            remote::check_experiment(&experiment).map_err(Failure::bad_input)?;
            let (generators, binary) = (args.generators.into(), Binary::read(&process.tollgate)?);
            let (catalog, notify) = (args.catalog.open()?, console::eprint_line);
            Box::new(RemoteBench::new(carrier.clone(), generators, binary, catalog, notify))
        }
    };
    let mut progress = Progress::new(&experiment);
    let ending = run::run(
        &mut *bench,
        &RunRequest {
            experiment: &experiment,
            invocation: Invocation {
                seed,
                quick: args.quick,
                command: repeated_command(
                    arguments,
                    seed,
                    adjustments.baseline.as_deref(),
                    &args.catalog,
                    &args.names.names,
                ),
                directory: process.directory,
            },
            out: &out,
            interrupt: &process.interrupt,
            resumes,
        },
        &mut |event| progress.show(&event),
    )
    .map_err(|error| run_error(error, &out))?;
    progress.end();
    // Gives the hosts back before the reports are made.
    drop(bench);

    let source = ReportSource::read(&ending.dir)?;
    let analysis = &source.analysis;
    // A closed terminal does not prevent the reports on disk, nor a full disk the table on the terminal.
    let printed = console::print(&report::render(&source, Format::Table, console::screen())?);
    write_reports(&source, &out)?;
    printed?;
    console::print(&format!(
        "\nRecords, configs, logs and reports: {}\nTo repeat it: {}\n",
        out.display(),
        analysis.command
    ))?;
    if ending.ended_by == EndedBy::Interrupted {
        console::print(&format!("To continue it: {}\n", resume_command(&out)))?;
        return Ok(Exit::Interrupted);
    }
    args.threshold.judge(&thresholds, &source, Format::Table, exit(analysis))
}

/// Returns the fallback if the system of the baseline is not installed, and prints why.
fn fallback_baseline(PreparedRun { catalog, experiment, .. }: &PreparedRun) -> Option<String> {
    let baseline = &experiment.subjects[experiment.baseline];
    let fallback = experiment.baseline_fallback.clone()?;
    // Other errors are reported by the run.
    let Ok(Err(missing)) = system::check(catalog, baseline) else { return None };
    console::eprint_line(&format!(
        "the baseline {} is not installed ({missing}); prices are over {fallback}",
        baseline.name
    ));
    Some(fallback)
}

/// Adds the command that continues the run, if one can. A run that stops for a busy machine has its reports.
fn run_error(error: anyhow::Error, out: &Path) -> anyhow::Error {
    let resume = resume_command(out);
    match error.downcast_ref() {
        Some(NoPrices::NeverQuiet { .. }) => {
            match ReportSource::read(out).and_then(|source| write_reports(&source, out)) {
                Ok(()) => error.context(format!("`{resume}` continues the run")),
                Err(unwritten) => unwritten.context(error),
            }
        }
        _ if error.is::<NotAppended>() || error.is::<LabFailed>() => {
            error.context(format!("the run was interrupted; `{resume}` continues it"))
        }
        _ => error,
    }
}

fn write_reports(source: &ReportSource, out: &Path) -> anyhow::Result<()> {
    report::write_all(source, out).with_context(|| {
        let resume = resume_command(out);
        format!(
            "cannot write the reports (the records are complete; `{resume}` writes the reports)"
        )
    })
}

fn resume_command(out: &Path) -> String {
    shell_words::join([&program(), "run", "--resume", &out.display().to_string()])
}

/// Succeeds if every installed subject has a price, and the baseline its figures.
fn exit(analysis: &Analysis) -> Exit {
    let subjects = || analysis.cases.iter().flat_map(|case| &case.subjects);
    let is_alone = subjects().all(|subject| subject.name == analysis.baseline);
    let has_result = |subject: &SubjectAnalysis| {
        if is_alone { subject.figures.is_some() } else { !subject.prices.is_empty() }
    };
    if !subjects().any(has_result) {
        return Exit::Nothing;
    }
    let is_incomplete = |subject: &SubjectAnalysis| match &subject.status {
        SubjectStatus::Baseline => subject.figures.is_none(),
        SubjectStatus::Measured => subject.prices.is_empty(),
        SubjectStatus::Refused(_) | SubjectStatus::Failed(_) | SubjectStatus::Missing => true,
        SubjectStatus::Skipped(_) => false,
    };
    if subjects().any(is_incomplete) { Exit::Partial } else { Exit::Success }
}

fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "tollgate".to_owned())
}

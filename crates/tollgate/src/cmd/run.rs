//! `tollgate run`: an experiment from its file to its table of prices.

use super::catalog::CatalogArgs;
use super::gates::{self, GateArgs};
use super::progress::Progress;
use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use crate::signals;
use anyhow::Context;
use jiff::Timestamp;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use tollgate_lab::analysis::{Analysis, Standing, SubjectAnalysis};
use tollgate_lab::inputs::experiment::{Adjustments, Experiment};
use tollgate_lab::interrupt::Interrupt;
use tollgate_lab::manifest::Circumstances;
use tollgate_lab::process::group;
use tollgate_lab::report::{self, Format};
use tollgate_lab::run::{self, RunError, RunRequest};
use tollgate_lab::run_dir::RunDirError;

/// What `tollgate run` runs when no experiment is named.
pub(crate) const DEFAULT_EXPERIMENT: &str = "first-look";

/// What `tollgate run` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate run                           nginx, ModSecurity without rules and with all of them
  tollgate run --only full --blocks 20   fewer subjects, more blocks
  tollgate run modsecurity --quick       a first idea of another experiment
  tollgate run mine.toml --out results   an experiment of your own
  tollgate run --threshold 'cpu(full/nginx)<130'   pass or fail, by the 95 % interval

Ctrl-C ends a run at once; what was finished is kept and shown. Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// An experiment's name (see `tollgate list`), or a file that ends in .toml
    #[arg(default_value = DEFAULT_EXPERIMENT, value_name = "NAME | FILE.toml")]
    experiment: String,
    /// The same design with durations cut, so that it ends in about a fifth of the time
    #[arg(long)]
    quick: bool,
    /// Blocks: each runs every subject once; below 6 there is no interval
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// The seed of every random choice; by default a new one for each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only these subjects; the baseline always runs, because every price needs it
    #[arg(long, value_name = "SUBJECT", value_delimiter = ',')]
    only: Vec<String>,
    /// The directory for records and reports; by default a new one below runs/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    gates: GateArgs,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = args.catalog.open()?;
    let adjustments =
        Adjustments { quick: args.quick, blocks: args.blocks, only: args.only.clone() };
    let experiment =
        Experiment::load(&catalog, &args.experiment, &adjustments).map_err(Failure::bad_input)?;
    let subjects: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
    let cases: Vec<&str> = experiment.cases.iter().map(|case| case.name.as_str()).collect();
    let gates = args.gates.gates(&subjects, &cases)?;
    let now = Timestamp::now();
    let seed = args.seed.unwrap_or(now.as_second().unsigned_abs());
    let out = args.out.clone().unwrap_or_else(|| {
        // UTC, as every time in the records, to the millisecond, so that no two runs meet.
        PathBuf::from(format!("runs/{}-{}", experiment.name, now.strftime("%Y%m%dT%H%M%S%.3fZ")))
    });
    let interrupt = Interrupt::default();
    let wish = interrupt.flag();
    signals::listen(move |count| match count {
        1 => wish.store(true, Ordering::Relaxed),
        _ => group::hurry(),
    })
    .context("asking for signals")?;
    let tollgate = std::env::current_exe().context("finding the tollgate binary")?;

    for file in catalog.replacements() {
        tell(&format!("{} is used in place of the one in the binary", file.display()));
    }
    let mut progress = Progress::new(&experiment);
    let ending = run::run(
        &RunRequest {
            catalog: &catalog,
            experiment: &experiment,
            circumstances: Circumstances { seed, quick: args.quick, command: args.command(seed) },
            tollgate: &tollgate,
            out: &out,
            interrupt: &interrupt,
        },
        &mut |event| progress.show(&event),
    )
    .map_err(|error| match error {
        RunError::RunDir(RunDirError::Taken { .. } | RunDirError::Unusable { .. })
        | RunError::Layout(_)
        | RunError::Requests(_) => Failure::bad_input(error),
        RunError::RunDir(_) | RunError::System { .. } => Failure::from(error),
    })?;
    progress.end();

    let analysis = report::of_run(&ending.dir)?;
    report::write_all(&analysis, &ending.dir)?;
    output::print(&report::render(&analysis, Format::Table, output::color())?)?;
    output::print(&format!(
        "\nRecords, configs, logs and reports: {}\nTo repeat it: {}\n",
        out.display(),
        analysis.command
    ))?;
    let exit = match ending.interrupted {
        true => Exit::Interrupted,
        false => verdict(&analysis),
    };
    gates::judge(&gates, &ending.dir, &analysis, Format::Table, exit)
}

/// Whether every subject that is installed got what it was run for: a price, or the baseline its
/// figures.
fn verdict(analysis: &Analysis) -> Exit {
    let subjects = || analysis.cases.iter().flat_map(|case| &case.subjects);
    let is_alone = subjects().all(|subject| subject.name == analysis.baseline);
    let has_result = |subject: &SubjectAnalysis| match is_alone {
        true => subject.figures.is_some(),
        false => !subject.prices.is_empty(),
    };
    if !subjects().any(has_result) {
        return Exit::Nothing;
    }
    let fell_short = |subject: &SubjectAnalysis| match &subject.standing {
        Standing::Baseline => subject.figures.is_none(),
        Standing::Measured => subject.prices.is_empty(),
        Standing::Refused(_) | Standing::Failed(_) | Standing::Missing => true,
        Standing::Skipped(_) => false,
    };
    match subjects().any(fell_short) {
        true => Exit::Partial,
        false => Exit::Done,
    }
}

impl Args {
    /// The command that repeats this run.
    fn command(&self, seed: u64) -> String {
        let program = std::env::args().next().unwrap_or_else(|| "tollgate".to_owned());
        let mut words = vec![program, "run".to_owned(), self.experiment.clone()];
        words.extend(["--seed".to_owned(), seed.to_string()]);
        if self.quick {
            words.push("--quick".to_owned());
        }
        if let Some(blocks) = self.blocks {
            words.extend(["--blocks".to_owned(), blocks.to_string()]);
        }
        if !self.only.is_empty() {
            words.extend(["--only".to_owned(), self.only.join(",")]);
        }
        words.extend(self.catalog.words());
        shell_words::join(words)
    }
}

//! `tollgate run`: an experiment from its file to its table of prices.

use super::beginning::{self, Beginning, Outside, Wish};
use super::catalog::CatalogArgs;
use super::gates::{self, GateArgs};
use super::progress::Progress;
use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output;
use anyhow::{Context, anyhow};
use clap::Parser;
use std::path::{Path, PathBuf};
use tollgate_lab::ablation::{self, AblationError, Wish as Ablate};
use tollgate_lab::analysis::{Analysis, Standing, SubjectAnalysis};
use tollgate_lab::inputs::duration::Span;
use tollgate_lab::inputs::experiment::{Adjustments, Axis};
use tollgate_lab::inputs::percent::Percent;
use tollgate_lab::manifest::Circumstances;
use tollgate_lab::plan::stop::EndedBy;
use tollgate_lab::report::{self, Format};
use tollgate_lab::run::{self, RunError, RunRequest};
use tollgate_lab::run_dir::{RunDirError, RunRecords};
use tollgate_lab::system::installed;

/// What `tollgate run` runs when no experiment is named.
pub(crate) const DEFAULT_EXPERIMENT: &str = "first-look";

/// What `tollgate run` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate run                           nginx, ModSecurity without rules and with all of them
  tollgate run --only full --blocks 20   fewer subjects, more blocks
  tollgate run --baseline direct         prices over no proxy at all
  tollgate run modsecurity --quick       a first idea of another experiment
  tollgate run mine.toml --out results   an experiment of your own
  tollgate run --threshold 'cpu(full/nginx)<130'   pass or fail, by the 95 % interval
  tollgate run --width 1% --budget 15m   as many blocks as it takes, within 15 minutes
  tollgate run --aa                      with the baseline twice, to see what is noise
  tollgate run --matrix full.crs=packaged,4.25.0    one option, several values, side by side
  tollgate run rule-files --ablate modsecurity      what every file of the Core Rule Set costs
  tollgate run --resume runs/first-...   go on with a run that was cut off

Ctrl-C ends a run at once; what was finished is kept and shown, and --resume goes on. Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// An experiment's name (see `tollgate list`), or a file that ends in .toml
    #[arg(default_value = DEFAULT_EXPERIMENT, value_name = "NAME | FILE.toml")]
    experiment: String,
    /// The same design with durations cut, so that it ends in about a fifth of the time
    #[arg(long)]
    quick: bool,
    /// Blocks: each runs every subject once; below 6 there is no interval. With --width or --budget, the
    /// most that are run
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// Run blocks until the interval of every price in CPU per request (in requests/s, where the
    /// baseline has no CPU of its own, or in the p50 latency where the rate is given too) is this narrow:
    /// its half-width, such as 2%
    #[arg(long, value_name = "PERCENT")]
    width: Option<Percent>,
    /// Run blocks until the intervals are within --width (2% by default), but no longer than all trials
    /// together take so long, such as 10m, the default with --width; the first block always runs
    #[arg(long, value_name = "TIME")]
    budget: Option<Span>,
    /// What is too small to matter: prices within it are called the same (default: 2%)
    #[arg(long, value_name = "PERCENT")]
    margin: Option<Percent>,
    /// Run the baseline a second time in each block: what this machine's noise alone looks like
    #[arg(long)]
    aa: bool,
    /// The seed of every random choice; by default a new one for each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only these subjects; the baseline always runs, because every price needs it
    #[arg(long, value_name = "SUBJECT", value_delimiter = ',')]
    only: Vec<String>,
    /// In place of a subject, one with each value of an option: full.paranoia=1,2,3. The load too:
    /// CASE.connections=10,50 or CASE.rate=100,200. Without a name, for all that have the option:
    /// workers=1,2. Given several times, every combination is run
    #[arg(long, value_name = "SUBJECT.OPTION=VALUE,VALUE,...")]
    matrix: Vec<Axis>,
    /// Run this subject with its whole rule set, and without each of its files in turn: what every file
    /// costs, and what is caught because of it. With parts of names, only those files: full=941,942
    #[arg(long, value_name = "SUBJECT[=FILE,FILE,...]", conflicts_with_all = ["matrix", "only"])]
    ablate: Option<Ablate>,
    /// The subject that the others are priced against, in place of the experiment's baseline
    #[arg(long, value_name = "SUBJECT")]
    baseline: Option<String>,
    /// The directory for records and reports; by default a new one below runs/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    gates: GateArgs,
    /// Go on with the run in this directory, as it was begun, from its first trial without a record
    #[arg(long, value_name = "DIR", exclusive = true)]
    resume: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.resume {
        None => begin(args, false),
        Some(dir) => resume(dir),
    }
}

/// Goes on with a run: with the words that it was begun with, in the folder that it was begun in.
fn resume(dir: &Path) -> Result<Exit, Failure> {
    let RunRecords { manifest, .. } = RunRecords::read(dir).map_err(Failure::bad_input)?;
    let dir = dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?;
    let doing = || format!("taking up the command of {}: {}", dir.display(), manifest.command);
    let words = shell_words::split(&manifest.command).with_context(doing);
    let cli = Cli::try_parse_from(words.map_err(Failure::bad_input)?).with_context(doing);
    let Command::Run(mut args) = cli.map_err(Failure::bad_input)?.command else {
        return Err(Failure::bad_input(anyhow!("{}: it is no run", doing())));
    };
    args.seed = Some(manifest.seed);
    std::env::set_current_dir(&manifest.directory)
        .with_context(|| {
            let folder = &manifest.directory;
            format!("a run goes on where it was begun, but there is no going to {folder}")
        })
        .map_err(Failure::bad_input)?;
    args.out = Some(dir);
    begin(&args, true)
}

fn begin(args: &Args, resumes: bool) -> Result<Exit, Failure> {
    let mut adjustments = Adjustments {
        quick: args.quick,
        blocks: args.blocks,
        only: args.only.clone(),
        baseline: args.baseline.clone(),
        width: args.width,
        budget: args.budget,
        margin: args.margin,
        aa: args.aa,
        matrix: args.matrix.clone(),
    };
    let begin = |adjustments: &Adjustments| {
        let wish = Wish {
            catalog: &args.catalog,
            experiment: &args.experiment,
            adjustments,
            seed: args.seed,
            out: args.out.as_deref(),
            prefix: "",
        };
        wish.begin()
    };
    let mut beginning = begin(&adjustments)?;
    if adjustments.baseline.is_none()
        && let Some(stand_in) = stand_in(&beginning)
    {
        adjustments.baseline = Some(stand_in);
        beginning = begin(&adjustments)?;
    }
    let Beginning { catalog, mut experiment, seed, out } = beginning;
    if let Some(wish) = &args.ablate {
        experiment = ablation::ablate(&catalog, experiment, wish).map_err(not_ablated)?;
    }
    let subjects: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
    let cases: Vec<&str> = experiment.cases.iter().map(|case| case.name.as_str()).collect();
    let gates = args.gates.gates(&subjects, &cases)?;
    let outside = Outside::take(&catalog)?;
    let mut progress = Progress::new(&experiment);
    let ending = run::run(
        &RunRequest {
            catalog: &catalog,
            experiment: &experiment,
            circumstances: Circumstances {
                seed,
                quick: args.quick,
                command: args.command(seed, adjustments.baseline.as_deref()),
                directory: outside.directory,
            },
            tollgate: &outside.tollgate,
            out: &out,
            interrupt: &outside.interrupt,
            resumes,
        },
        &mut |event| progress.show(&event),
    )
    .map_err(|error| cut_off(error, &out))?;
    progress.end();

    let analysis = report::of_run(&ending.dir)?;
    // Neither a terminal that is gone nor a disk that is full keeps the other from its answer.
    let printed = output::print(&report::render(&analysis, Format::Table, output::screen())?);
    report::write_all(&analysis, &ending.dir).with_context(|| {
        let go_on = go_on(&out);
        format!("the records are whole, and `{go_on}` writes the reports that are missing")
    })?;
    printed?;
    output::print(&format!(
        "\nRecords, configs, logs and reports: {}\nTo repeat it: {}\n",
        out.display(),
        analysis.command
    ))?;
    if ending.ended_by == EndedBy::Interrupted {
        output::print(&format!("To go on with it: {}\n", go_on(&out)))?;
        return Ok(Exit::Interrupted);
    }
    gates::judge(&gates, &ending.dir, &analysis, Format::Table, verdict(&analysis))
}

/// The subject that takes the place of a baseline whose system is not here, which is told.
fn stand_in(Beginning { catalog, experiment, .. }: &Beginning) -> Option<String> {
    let baseline = &experiment.subjects[experiment.baseline];
    let stand_in = experiment.baseline_else.clone()?;
    // What else may be wrong with it the run tells, as of every subject.
    let Ok(Err(missing)) = installed::check(catalog, baseline) else { return None };
    output::tell(&format!(
        "{} is the baseline, and not here ({missing}): prices are over {stand_in}",
        baseline.name
    ));
    Some(stand_in)
}

/// Why a run did not come to its end, and how to go on with one of which something is kept.
fn cut_off(error: RunError, out: &Path) -> Failure {
    match error {
        RunError::RunDir(RunDirError::NotKept { .. }) => {
            let hint = format!("the run was cut off; `{}` goes on with it", go_on(out));
            Failure::from(anyhow::Error::from(error).context(hint))
        }
        _ => beginning::failure(error),
    }
}

/// Whose fault it is that a rule set cannot be taken apart: what was asked for, or the machine's.
fn not_ablated(error: AblationError) -> Failure {
    match error {
        AblationError::Asked(_)
        | AblationError::Missing { .. }
        | AblationError::NoSetup { .. }
        | AblationError::Files { .. } => Failure::bad_input(error),
        _ => Failure::from(error),
    }
}

/// The command that goes on with a run.
fn go_on(out: &Path) -> String {
    shell_words::join([&program(), "run", "--resume", &out.display().to_string()])
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

/// How this program was called.
pub(crate) fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "tollgate".to_owned())
}

impl Args {
    /// The command that repeats this run, whose baseline may be another than the experiment's.
    fn command(&self, seed: u64, baseline: Option<&str>) -> String {
        let mut words = vec![program(), "run".to_owned(), self.experiment.clone()];
        words.extend(["--seed".to_owned(), seed.to_string()]);
        if self.quick {
            words.push("--quick".to_owned());
        }
        if let Some(blocks) = self.blocks {
            words.extend(["--blocks".to_owned(), blocks.to_string()]);
        }
        if let Some(width) = self.width {
            words.extend(["--width".to_owned(), width.to_string()]);
        }
        if let Some(budget) = self.budget {
            // Without the spaces that stand between its parts.
            let budget = humantime::format_duration(budget.0).to_string().replace(' ', "");
            words.extend(["--budget".to_owned(), budget]);
        }
        if let Some(margin) = self.margin {
            words.extend(["--margin".to_owned(), margin.to_string()]);
        }
        if self.aa {
            words.push("--aa".to_owned());
        }
        if !self.only.is_empty() {
            words.extend(["--only".to_owned(), self.only.join(",")]);
        }
        for axis in &self.matrix {
            words.extend(["--matrix".to_owned(), axis.to_string()]);
        }
        if let Some(ablate) = &self.ablate {
            words.extend(["--ablate".to_owned(), ablate.to_string()]);
        }
        if let Some(baseline) = baseline {
            words.extend(["--baseline".to_owned(), baseline.to_owned()]);
        }
        words.extend(self.gates.words());
        words.extend(self.catalog.words());
        shell_words::join(words)
    }
}

//! `tollgate batch`.

use super::prepare::{CatalogArgs, Process, own_arguments};
use super::progress::Progress;
use crate::console::{self, Exit, Failure, eprint_line};
use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use tollgate_batch::config::{BatchFile, ProductFile, Revs, Settings, Wanted, is_folder};
use tollgate_batch::find::find;
use tollgate_batch::findings::Conclusion;
use tollgate_batch::manifest::BatchManifest;
use tollgate_batch::nodes::Nodes;
use tollgate_batch::report;
use tollgate_batch::repository::Revision;
use tollgate_batch::request::{BatchEvent, Request};
use tollgate_batch::run::{BatchOptions, run as run_batch};
use tollgate_batch::store::{self, BuildOutcome, Purpose, StoredBatch};
use tollgate_cluster::carrier::{Carrier, MAX_HOSTS};
use tollgate_experiment::adjust::Limit;
use tollgate_experiment::catalog::{self, Catalog};
use tollgate_experiment::toml_file;
use tollgate_records::files;
use tollgate_runner::process::Interrupted;
use tollgate_stats::number::{counted, significant};
use tollgate_traffic::units::Span;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate batch run revisions.toml     build and measure every revision
  tollgate batch stats                  prices with intervals and states
  tollgate batch find                   find and confirm the commits that
                                        changed the price

The same command continues an interrupted batch. Exit codes: see
`tollgate --help`.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build and measure revisions
    Run(Box<RunArgs>),
    /// Print the figures of each revision
    Stats(StatsArgs),
    /// Find the commits that changed the price
    Find(FindArgs),
}

impl Command {
    /// True if the command starts servers, which must not outlive it.
    pub(crate) fn starts_servers(&self) -> bool {
        match self {
            Self::Run(_) | Self::Find(_) => true,
            Self::Stats(_) => false,
        }
    }
}

const DEFAULT_DIR: &str = "batch";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file of revisions:
  experiment = \"mine.toml\"          # a name, or a file
  subject    = \"full\"               # the subject whose option gets each product
  product    = { option = \"crs\", path = \"rules\" }     # $OUT/rules
  repo       = \"../coreruleset\"     # or: versions = [\"v1.0\", \"v1.1\"]
  revs       = \"v4.0.0..HEAD\"       # or a file, or a list; or: tags = \"v4.*\"
  build      = \"./make.sh && cp -r rules $OUT/\"       # knows REV, SRC and OUT

Examples:
  tollgate batch run revisions.toml
  tollgate batch run revisions.toml --revs v4.7.0..v4.8.0 --out other
  tollgate batch run revisions.toml --steps 10
  tollgate batch run revisions.toml --on slurm --nodes 8
  tollgate batch run --repo ../server --tags 'v3.*' --experiment mine.toml \\
      --subject server --build 'make && cp server $OUT' --product binary=server

The repository is cloned into the directory of the batch and not changed. A
revision that does not build, start or pass the probe is a result, and the batch
continues; the anchor is built and probed first, and the batch stops if it
fails. The same command continues an interrupted batch and measures new
revisions, but only with the same tollgate, mix, recipe, systems and compilers.
Exits with 4 if the anchor fails or no revision has a price. Exit codes: see
`tollgate --help`.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// File of revisions; options override it
    #[arg(value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// Git repository: a folder or a URL
    #[arg(long, value_name = "DIR")]
    repo: Option<String>,
    /// Commits: A..B (A, an ancestor of B, and the commits after it), or a file with one per line
    #[arg(long, value_name = "FILE | A..B", conflicts_with = "tags")]
    revs: Option<String>,
    /// Commits with a matching tag
    #[arg(long, value_name = "PATTERN")]
    tags: Option<String>,
    /// Revision to run in every block [default: the first that builds]
    #[arg(long, value_name = "REV")]
    anchor: Option<String>,
    /// Name of an experiment, or a .toml file
    #[arg(long, value_name = "NAME | FILE.toml")]
    experiment: Option<String>,
    /// Case of the experiment, if it has several
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// Subject of the experiment to replace by revisions
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// Shell command that builds a revision
    #[arg(long, value_name = "COMMAND")]
    build: Option<String>,
    /// Time limit of a build
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// Option that gets a product, and its path in $OUT
    #[arg(long, value_name = "OPTION[=PATH]")]
    product: Option<String>,
    /// Blocks per round; fewer than 6 give no interval
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// Shorten trials to a fifth of their time, or as the experiment says
    #[arg(long)]
    quick: bool,
    /// Replace a limit of disturbance, such as `background_cpu=50%` (may be repeated)
    ///
    /// As of `tollgate run`, in place of the limits of the experiment.
    #[arg(long = "limit", value_name = "LIMIT=PERCENT")]
    limits: Vec<Limit>,
    /// Measure only N revisions, evenly spread
    ///
    /// Revisions that cannot be built or run are replaced by their neighbours. `tollgate batch find` continues from
    /// there.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    steps: Option<u32>,
    /// Repeat failed builds and runs
    #[arg(long)]
    retry: bool,
    #[command(flatten)]
    nodes: NodesArgs,
    /// Seed of all random choices [default: random, kept by the batch]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Directory of the batch
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate batch stats
  tollgate batch stats --format csv > stats.csv
  tollgate batch stats --format html > batch/page.html

The CSV has the columns of `batchbench.sh stats` of modsecurity-performance:
means over the valid trials of requests/s, latency in milliseconds, and the
system's user time in ticks of 10 ms. Links of the page are relative to the
directory of the batch, which contains the same page as `stats.html`.")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = StatsFormat::Table)]
    format: StatsFormat,
}

/// The directory of an existing batch, with the option of `run` or without.
#[derive(Debug, clap::Args)]
struct DirArgs {
    /// Directory of the batch [default: batch]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory of the batch, as for `run`
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    out: Option<PathBuf>,
}

impl DirArgs {
    fn path(&self) -> &Path {
        self.dir.as_deref().or(self.out.as_deref()).unwrap_or(Path::new(DEFAULT_DIR))
    }
}

/// Hosts for rounds.
#[derive(Debug, clap::Args)]
struct NodesArgs {
    /// Measure on other hosts, a round at a time on each: slurm, ssh:HOST,HOST or kubectl:POD,POD
    ///
    /// Builds and probes stay on this machine. See docs/batch.md.
    #[arg(long, value_name = "CARRIER")]
    on: Option<Carrier>,
    /// Number of nodes of Slurm [default: 1]
    #[arg(long, value_name = "N", requires = "on")]
    nodes: Option<u32>,
}

impl NodesArgs {
    fn nodes(&self) -> Result<Option<Nodes>, Failure> {
        let Some(carrier) = self.on.clone() else { return Ok(None) };
        match (&carrier, self.nodes) {
            (_, Some(count)) if !(1..=MAX_HOSTS).contains(&(count as usize)) => {
                Err(Failure::bad_input(anyhow!("--nodes must be from 1 to {MAX_HOSTS}")))
            }
            (Carrier::Slurm { nodes: None } | Carrier::Local { agents: None }, count) => {
                Ok(Some(Nodes { carrier, count: count.map(|count| count as usize) }))
            }
            (_, None) => Ok(Some(Nodes { carrier, count: None })),
            (_, Some(_)) => Err(Failure::bad_input(anyhow!(
                "`{carrier}` says the number of nodes; remove --nodes"
            ))),
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StatsFormat {
    /// For a terminal: prices, intervals and states
    Table,
    /// For a spreadsheet: the columns of batchbench.sh
    Csv,
    /// For programs: all data
    Json,
    /// For a browser: with a plot, and links to the reports of all rounds
    Html,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate batch find                         the batch in batch/
  tollgate batch run revisions.toml --steps 10 && tollgate batch find
                                              a long history, coarse then fine
  tollgate batch find --fail-on regression    exits with 99 if one is confirmed

Where the level of the series changes, the commits between are bisected: each is
measured beside the anchor until its interval lies on one side of the middle, in
at most three rounds; commits that do not build or run are skipped. Several
changes between two revisions are all searched. Finally each candidate and its
parent run side by side; it is reported as regression or improvement only if the
95 % interval of that run excludes 1 and lies beyond the differences that the
batch has seen between equal products. Exit codes: see `tollgate --help`.")]
pub(crate) struct FindArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// First measure N revisions, evenly spread [default: as in the last `batch run`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    steps: Option<u32>,
    /// Repeat failed builds and runs
    #[arg(long)]
    retry: bool,
    #[command(flatten)]
    nodes: NodesArgs,
    /// Exit with 99 if a confirmed change of this kind is found
    #[arg(long, value_enum, value_name = "CHANGE")]
    fail_on: Option<FailOn>,
    /// Output format
    #[arg(long, value_enum, default_value_t = FindFormat::Text)]
    format: FindFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FailOn {
    /// A revision that costs more
    Regression,
    /// A revision that costs more or less
    Change,
}

impl FailOn {
    fn includes(self, conclusion: Conclusion) -> bool {
        match self {
            Self::Regression => conclusion == Conclusion::Regression,
            Self::Change => matches!(conclusion, Conclusion::Regression | Conclusion::Improvement),
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FindFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let result = match &args.command {
        Command::Run(args) => args.run(),
        Command::Stats(args) => print_stats(args.dir.path(), args.format),
        Command::Find(args) => args.run(),
    };
    match result {
        Err(failure) if failure.is::<Interrupted>() => {
            eprint_line("Finished work is kept; the same command continues.");
            Ok(Exit::Interrupted)
        }
        result => result,
    }
}

impl RunArgs {
    fn run(&self) -> Result<Exit, Failure> {
        let folders = self.catalog.folders()?;
        let catalog = Catalog::new(folders.clone());
        let process = Process::start(&catalog)?;
        let options = self.options(&catalog, &process.directory, folders)?;
        let Settings { title, experiment, build, .. } = &options.settings;
        eprint_line(&format!("{title}: experiment {experiment}, `{build}`"));
        let nodes = self.nodes.nodes()?;
        let mut events = Events::default();
        let request = Request {
            out: &self.out,
            tollgate: &process.tollgate,
            interrupt: &process.interrupt,
            steps: self.steps.map(|steps| steps as usize),
            retries: self.retry,
            nodes: nodes.as_ref(),
        };
        run_batch(&request, &options, &mut |event| events.show(&event))?;
        print_stats(&self.out, StatsFormat::Table)
    }

    fn options(
        &self,
        catalog: &Catalog,
        directory: &Path,
        folders: Vec<PathBuf>,
    ) -> anyhow::Result<BatchOptions> {
        let (in_file, folder) = match &self.file {
            Some(path) => {
                let source = catalog::read(path)?;
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                (toml_file::parse::<BatchFile>(&source)?, directory.join(folder))
            }
            None => (BatchFile::default(), directory.to_owned()),
        };
        let file = rooted(in_file, &folder).overridden_by(rooted(self.as_file(), directory));
        Ok(BatchOptions {
            settings: Settings::of(&file, directory, catalog)?,
            wanted: Wanted::of(&file, directory)?,
            anchor: file.anchor,
            catalog: folders,
            command: own_arguments(),
            directory: directory.to_owned(),
            seed: self.seed,
        })
    }

    /// Returns the options as a file, which overrides the other one.
    fn as_file(&self) -> BatchFile {
        let product = self.product.as_ref().map(|product| {
            let (option, path) = product.split_once('=').unwrap_or((product, ""));
            ProductFile { option: option.to_owned(), path: path.to_owned() }
        });
        BatchFile {
            repo: self.repo.clone(),
            revs: self.revs.clone().map(Revs::One),
            tags: self.tags.clone(),
            anchor: self.anchor.clone(),
            experiment: self.experiment.clone(),
            case: self.case.clone(),
            subject: self.subject.clone(),
            build: self.build.clone(),
            timeout: self.timeout,
            product,
            blocks: self.blocks,
            quick: self.quick.then_some(true),
            limits: self.limits.clone(),
            ..BatchFile::default()
        }
    }
}

/// Makes paths absolute; paths in a file are relative to its folder.
fn rooted(file: BatchFile, folder: &Path) -> BatchFile {
    let root = |path: String| folder.join(path).display().to_string();
    BatchFile {
        experiment: file
            .experiment
            .map(|name| if name.ends_with(".toml") { root(name) } else { name }),
        repo: file.repo.map(|repo| if is_folder(&repo) { root(repo) } else { repo }),
        revs: file.revs.map(|revs| match revs {
            Revs::One(list) if !list.contains("..") => Revs::One(root(list)),
            other => other,
        }),
        files: file.files.map(root),
        ..file
    }
}

/// Prints the figures of a batch; fails if no revision has a price.
fn print_stats(dir: &Path, format: StatsFormat) -> Result<Exit, Failure> {
    let stats = report::stats(&StoredBatch::read(dir)?.records(), dir)?;
    console::print(&match format {
        StatsFormat::Csv => report::render_csv(&stats)?,
        StatsFormat::Table => report::render_table(&stats, console::screen()),
        StatsFormat::Json => files::json(&stats)?,
        StatsFormat::Html => report::render_html(&stats)?,
    })?;
    if stats.revisions.iter().any(|point| point.price.is_some()) {
        return Ok(Exit::Success);
    }
    Err(Failure::nothing(anyhow!("no revision in {} has a price; see the table", dir.display())))
}

impl FindArgs {
    fn run(&self) -> Result<Exit, Failure> {
        let manifest = BatchManifest::read(self.dir.path())?;
        let process = Process::start(&Catalog::new(manifest.catalog))?;
        let nodes = self.nodes.nodes()?;
        let mut events = Events::default();
        let request = Request {
            out: self.dir.path(),
            tollgate: &process.tollgate,
            interrupt: &process.interrupt,
            steps: self.steps.map(|steps| steps as usize),
            retries: self.retry,
            nodes: nodes.as_ref(),
        };
        let found = find(&request, &mut |event| events.show(&event))?;
        let screen = console::screen();
        console::print(&match self.format {
            FindFormat::Text => {
                found.paragraphs().iter().map(|paragraph| screen.wrapped(paragraph)).collect()
            }
            FindFormat::Json => files::json(&found)?,
        })?;
        let fails = |fail_on: FailOn| {
            found.changes.iter().any(|change| fail_on.includes(change.conclusion))
        };
        Ok(if self.fail_on.is_some_and(fails) { Exit::ThresholdFailed } else { Exit::Success })
    }
}

/// Progress of a batch on standard error.
#[derive(Default)]
struct Events {
    round: Option<Progress>,
}

impl Events {
    fn show(&mut self, event: &BatchEvent<'_>) {
        match event {
            BatchEvent::Revisions { count, tried } if count == tried => {
                eprint_line(&counted(*count, "revision"));
            }
            BatchEvent::Revisions { count, tried } => {
                eprint_line(&format!("{tried} of {}", counted(*count, "revision")));
            }
            BatchEvent::Building { revision } => {
                eprint_line(format!("building {} {}", revision.name, revision.message).trim_end());
            }
            BatchEvent::Built { revision, record } => match &record.outcome {
                BuildOutcome::Built { product, .. } => {
                    let seconds = significant(record.duration_s);
                    eprint_line(&format!(
                        "built {} in {seconds} s: {}",
                        revision.name,
                        &product[..HASH_DIGITS]
                    ));
                }
                BuildOutcome::Failed(failure) | BuildOutcome::TimedOut(failure) => {
                    print_failure(revision, failure);
                }
            },
            BatchEvent::ProbeFailed { revision, failure } => print_failure(revision, failure),
            BatchEvent::Round { round, experiment } => {
                let what = match round.purpose {
                    Purpose::Series => "series",
                    Purpose::Bisection => "bisection",
                    Purpose::Confirmation { .. } => "confirmation",
                };
                let subjects: Vec<&str> =
                    experiment.subjects.iter().map(|subject| subject.name.as_str()).collect();
                eprint_line(&format!("round {}, {what}: {}", round.round, subjects.join(", ")));
                self.round = Some(Progress::new(experiment));
            }
            BatchEvent::Run(event) => {
                if let Some(round) = &mut self.round {
                    round.show(event);
                }
            }
            BatchEvent::RoundEnded => {
                if let Some(round) = self.round.take() {
                    round.end();
                }
            }
            BatchEvent::Search(what) | BatchEvent::Nodes(what) => eprint_line(what),
        }
    }
}

fn print_failure(revision: &Revision, failure: &store::ProductFailure) {
    eprint_line(&format!("{}: {}", revision.name, failure.reason));
    for line in &failure.log {
        eprint_line(&format!("    | {line}"));
    }
}

/// Digits of a hash that identify a product.
const HASH_DIGITS: usize = 12;

//! `tollgate search`: the highest rate at which each subject keeps a goal.

use super::beginning::{self, Beginning, Outside, Wish};
use super::catalog::CatalogArgs;
use super::run::{DEFAULT_EXPERIMENT, program};
use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use anyhow::Context;
use clap::ValueEnum;
use std::path::PathBuf;
use tollgate_lab::inputs::duration::Span;
use tollgate_lab::inputs::experiment::Adjustments;
use tollgate_lab::inputs::percent::Percent;
use tollgate_lab::manifest::Circumstances;
use tollgate_lab::report::number::in_full;
use tollgate_lab::search::bracket::{Answer, Progress};
use tollgate_lab::search::findings::{Findings, Standing, of_search};
use tollgate_lab::search::report;
use tollgate_lab::search::run::{Event, SearchRequest, search};
use tollgate_lab::search::slo::Slo;
use tollgate_lab::search::terms::Terms;
use tollgate_lab::whole_file;

/// What `tollgate search` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Goals, with < or <=, are separated by commas, and all have to be kept:
  p50 p90 p95 p99 p99.9 mean max   latency from the scheduled moment, in us, ms or s
  errors                           requests without the expected answer, in %
  unexpected                       answers other than the expected one, in %
Without a goal for errors, fewer than 1 % are allowed. A rate of which more than 1 % was due and
never sent is not kept.

Examples:
  tollgate search --slo 'p99<5ms'                            every subject of first-look
  tollgate search --slo 'p99<5ms,errors<0.1%' --only full    one subject alone
  tollgate search mine.toml --slo 'p99.9<20ms' --width 10%   coarser, and so sooner
  tollgate search --slo 'mean<2ms' --quick --format json     short trials, for a program

Each trial is an open loop, in the case's spacing, or Poisson where the case is a closed one.
The rate is doubled or halved from --from until one keeps the goals and one breaks them, and the
interval between is bisected. Then both ends are tried again; one that once answers otherwise is
moved out. Ctrl-C keeps what there is. Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// An experiment's name (see `tollgate list`), or a file that ends in .toml
    #[arg(default_value = DEFAULT_EXPERIMENT, value_name = "NAME | FILE.toml")]
    experiment: String,
    /// What has to be kept, such as 'p99<5ms,errors<0.1%'
    #[arg(long, value_name = "GOALS")]
    slo: Slo,
    /// The same search with trials cut to a fifth
    #[arg(long)]
    quick: bool,
    /// The seed of every random choice; by default a new one for each search
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only these subjects
    #[arg(long, value_name = "SUBJECT", value_delimiter = ',')]
    only: Vec<String>,
    /// The rate to begin with, in requests a second
    #[arg(long, value_name = "RATE", default_value_t = 1_000.0)]
    from: f64,
    /// How narrow each interval has to be
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    width: Percent,
    /// How often each end of an interval is tried again
    #[arg(long, value_name = "N", default_value_t = 3)]
    confirm: u32,
    /// The time after which no trial is begun
    #[arg(long, value_name = "TIME", default_value = "10m")]
    budget: Span,
    /// The directory for records and report; by default a new one below runs/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to write what was found
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal
    Table,
    /// For a program: everything, every trial included
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let terms = args.terms();
    terms.check().map_err(Failure::bad_input)?;
    let adjustments =
        Adjustments { quick: args.quick, only: args.only.clone(), ..Adjustments::default() };
    let wish = Wish {
        catalog: &args.catalog,
        experiment: &args.experiment,
        adjustments: &adjustments,
        seed: args.seed,
        out: args.out.as_deref(),
        prefix: "search-",
    };
    let Beginning { catalog, experiment, seed, out } = wish.begin()?;
    let outside = Outside::take(&catalog)?;
    let dir = search(
        &SearchRequest {
            catalog: &catalog,
            experiment: &experiment,
            only: &args.only,
            terms: &terms,
            circumstances: Circumstances {
                seed,
                quick: args.quick,
                command: args.command(seed),
                directory: outside.directory,
            },
            tollgate: &outside.tollgate,
            out: &out,
            interrupt: &outside.interrupt,
        },
        &mut |event| tell(&in_words(&event)),
    )
    .map_err(beginning::failure)?;

    let findings = of_search(&dir)?;
    let json = report::json(&findings)?;
    let path = dir.join("report.json");
    let written = whole_file::write(&path, &json);
    match args.format {
        Format::Json => output::print(&json)?,
        Format::Table => output::print(&format!(
            "{}\nRecords, configs, logs and report: {}\nTo repeat it: {}\n",
            report::table(&findings, output::screen()),
            out.display(),
            findings.command
        ))?,
    }
    // A disk that is full does not keep the answer from a terminal.
    written.with_context(|| {
        let dir = dir.display();
        format!(
            "the search is kept, and `tollgate report {dir}` shows it: writing {}",
            path.display()
        )
    })?;
    Ok(verdict(&findings))
}

/// Whether a rate was found for every subject that is installed.
fn verdict(findings: &Findings) -> Exit {
    if findings.is_interrupted() {
        return Exit::Interrupted;
    }
    if findings.subjects().all(|subject| subject.kept.is_none()) {
        return Exit::Nothing;
    }
    let is_done = |standing: &Standing| {
        matches!(standing, Standing::Settled | Standing::AtLeast | Standing::Skipped(_))
    };
    match findings.subjects().all(|subject| is_done(&subject.standing)) {
        true => Exit::Done,
        false => Exit::Partial,
    }
}

fn in_words(event: &Event<'_>) -> String {
    match event {
        Event::Absent(absent) => absent.to_string(),
        Event::Tried { step, case, subject, rate, judgement, progress } => {
            let said = match judgement.answer {
                Answer::Kept => "kept",
                Answer::Broken { by_system: true } => "broken",
                Answer::Broken { by_system: false } => "broken, and not by the system alone",
                Answer::Lost => "does not count",
                Answer::Failed => "no measurement",
            };
            let because = match judgement.because.is_empty() {
                true => String::new(),
                false => format!(" ({})", judgement.because.join("; ")),
            };
            let over = if *progress == Progress::Open { "" } else { "; its search is over" };
            let rate = in_full(*rate);
            format!("step {step}: {subject} ({case}) at {rate}/s: {said}{because}{over}")
        }
    }
}

impl Args {
    fn terms(&self) -> Terms {
        Terms {
            slo: self.slo.clone(),
            from: self.from,
            width: self.width.0,
            confirmations: self.confirm,
            budget: self.budget.0,
        }
    }

    /// The command that repeats this search.
    fn command(&self, seed: u64) -> String {
        let mut words = vec![program(), "search".to_owned(), self.experiment.clone()];
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        add("--slo", self.slo.to_string());
        add("--seed", seed.to_string());
        add("--from", self.from.to_string());
        add("--width", self.width.to_string());
        add("--confirm", self.confirm.to_string());
        add("--budget", humantime::format_duration(self.budget.0).to_string());
        if !self.only.is_empty() {
            add("--only", self.only.join(","));
        }
        if self.quick {
            words.push("--quick".to_owned());
        }
        words.extend(self.catalog.words());
        shell_words::join(words)
    }
}

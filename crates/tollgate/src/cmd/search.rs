//! `tollgate search`: the highest rate at which each subject meets its goals.

use super::names::NamesArgs;
use super::prepare::{
    CatalogArgs, PreparedRun, Process, RunOptions, own_arguments, repeated_command,
};
use crate::console::{self, Exit, Failure, eprint_line};
use anyhow::Context;
use clap::ValueEnum;
use std::path::PathBuf;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::manifest::Invocation;
use tollgate_records::files;
use tollgate_search::bracket::{Progress, RateVerdict};
use tollgate_search::goal::Goals;
use tollgate_search::parameters::SearchParameters;
use tollgate_search::report::{SearchReport, Status};
use tollgate_search::run::{SearchEvent, SearchRequest, search};
use tollgate_stats::number::in_full;
use tollgate_traffic::units::{Percent, Span};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Goals are upper limits (< or <=), separated by commas; all of them must be met:
  p50 p90 p95 p99 p99.9 mean max   latency from the due time, in ms, us or s
  errors                           requests without the expected response, in %
  unexpected                       responses other than the expected one, in %
Without a goal for errors, less than 1 % is allowed. A rate fails if more than
1 % of its requests were due and never sent.

Examples:
  tollgate search --goal 'p99<5ms'                   all subjects of first-look
  tollgate search --goal 'p99<5ms,errors<0.1%' --only full
  tollgate search mine.toml --goal 'p99.9<20ms' --width 10%
  tollgate search nginx haproxy --goal 'p99<5ms'     without a file
  tollgate search old=nginx new=nginx:workers=2 --goal 'p99<5ms'
  tollgate search --goal 'mean<2ms' --quick --format json

Each trial is an open loop, with the spacing of the case or Poisson. The rate is
doubled or halved from --start until one passes and one fails, then bisected.
Finally both ends are repeated; an end with contradicting trials is moved out.
Ctrl-C keeps the records. Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    #[command(flatten)]
    names: NamesArgs,
    /// Goals to meet, such as 'p99<5ms,errors<0.1%'
    #[arg(long = "goal", alias = "slo", value_name = "GOALS")]
    goals: Goals,
    /// Shorten trials to a fifth of their time, or as the experiment says
    #[arg(long)]
    quick: bool,
    /// Seed of all random choices [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Search only these subjects
    #[arg(long, value_name = "SUBJECT", value_delimiter = ',')]
    only: Vec<String>,
    /// First rate, in requests per second
    #[arg(long, value_name = "RATE", default_value_t = 1_000.0)]
    start: f64,
    /// Width of each interval
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    width: Percent,
    /// Number of times to repeat each end of an interval
    #[arg(long, value_name = "N", default_value_t = 3)]
    confirm: u32,
    /// Time after which no trial is started
    #[arg(long, value_name = "TIME", default_value = "10m")]
    budget: Span,
    /// Allow load to the host of a subject's `url`; repeatable, only for hosts that you may load
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Directory for records and report [default: a new one in runs/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal
    Table,
    /// For programs: all data, with every trial
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let parameters = args.parameters();
    parameters.check()?;
    let adjustments = Adjustments {
        quick: args.quick,
        only: args.only.clone(),
        allow_hosts: args.allow_host.clone(),
        ..Adjustments::default()
    };
    let options = RunOptions {
        catalog: &args.catalog,
        names: &args.names,
        adjustments: &adjustments,
        seed: args.seed,
        out: args.out.as_deref(),
        prefix: "search-",
    };
    let PreparedRun { catalog, experiment, seed, out } = options.prepare()?;
    let process = Process::start(&catalog)?;
    let dir = search(
        &SearchRequest {
            catalog: &catalog,
            experiment: &experiment,
            only: &args.only,
            parameters: &parameters,
            invocation: Invocation {
                seed,
                quick: args.quick,
                command: repeated_command(
                    &own_arguments(),
                    seed,
                    None,
                    &args.catalog,
                    &args.names.names,
                ),
                directory: process.directory,
            },
            tollgate: &process.tollgate,
            out: &out,
            interrupt: &process.interrupt,
        },
        &mut |event| eprint_line(&in_words(&event)),
    )?;

    let report = SearchReport::read(&dir)?;
    let json = files::json(&report)?;
    let path = dir.join("report.json");
    let written = files::write_atomic(&path, &json);
    match args.format {
        Format::Json => console::print(&json)?,
        Format::Table => console::print(&format!(
            "{}\nRecords, configs, logs and report: {}\nTo repeat it: {}\n",
            report.table(console::screen()),
            out.display(),
            report.command
        ))?,
    }
    // Reported after the result, so that a full disk does not hide it.
    written.with_context(|| {
        let dir = dir.display();
        format!("the records are complete; see `tollgate report {dir}`")
    })?;
    Ok(exit(&report))
}

/// Succeeds if a rate was found for every installed subject.
fn exit(report: &SearchReport) -> Exit {
    if report.is_interrupted() {
        return Exit::Interrupted;
    }
    if report.subjects().all(|subject| subject.passed.is_none()) {
        return Exit::Nothing;
    }
    let is_done =
        |status: &Status| matches!(status, Status::Settled | Status::AtLeast | Status::Skipped(_));
    if report.subjects().all(|subject| is_done(&subject.status)) {
        Exit::Success
    } else {
        Exit::Partial
    }
}

fn in_words(event: &SearchEvent<'_>) -> String {
    match event {
        SearchEvent::NotInstalled(subject) => subject.to_string(),
        SearchEvent::Waiting(text) => (*text).to_owned(),
        SearchEvent::Trial { step, case, subject, rate_per_s, judgement, progress } => {
            let verdict = match judgement.verdict {
                RateVerdict::Pass => "pass",
                RateVerdict::Fail { by_system: true } => "fail",
                RateVerdict::Fail { by_system: false } => "fail, not by the system alone",
                RateVerdict::Invalid => "invalid",
                RateVerdict::NotMeasured => "not measured",
            };
            let reasons = if judgement.reasons.is_empty() {
                String::new()
            } else {
                format!(" ({})", judgement.reasons.join("; "))
            };
            let finished = if *progress == Progress::Open { "" } else { "; finished" };
            let rate = in_full(*rate_per_s);
            format!("step {step}: {subject} ({case}) at {rate}/s: {verdict}{reasons}{finished}")
        }
    }
}

impl Args {
    fn parameters(&self) -> SearchParameters {
        SearchParameters {
            goals: self.goals.clone(),
            start: self.start,
            width: self.width.0,
            confirmations: self.confirm,
            budget: self.budget.0,
        }
    }
}

//! Runs a search. Each trial is on record before the next one starts.

use crate::bracket::{Bracket, Progress};
use crate::goal::Judgement;
use crate::parameters::SearchParameters;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::corpus::Corpus;
use tollgate_experiment::experiment::{Case, Experiment};
use tollgate_experiment::manifest::Invocation;
use tollgate_records::error::bad_input;
use tollgate_records::run_dir::{RunDir, SearchEnd};
use tollgate_records::schedule::TrialPlan;
use tollgate_records::subject::{Installed, SubjectState};
use tollgate_runner::bench::local::LocalBench;
use tollgate_runner::bench::{Bench, BenchDescription};
use tollgate_runner::process::{Interrupt, Interrupted};
use tollgate_runner::run;
use tollgate_runner::system::state::NotInstalled;
use tollgate_runner::trial::{self, Trial, TrialContext};

#[derive(Debug)]
pub struct SearchRequest<'a> {
    pub catalog: &'a Catalog,
    pub experiment: &'a Experiment,
    /// Subjects to search; empty: all.
    pub only: &'a [String],
    pub parameters: &'a SearchParameters,
    pub invocation: Invocation,
    /// The `tollgate` binary, to start origins.
    pub tollgate: &'a Path,
    /// The directory of the search, which must not exist.
    pub out: &'a Path,
    pub interrupt: &'a Interrupt,
}

#[derive(Debug)]
pub enum SearchEvent<'a> {
    NotInstalled(NotInstalled<'a>),
    /// The search waits for another process.
    Waiting(&'a str),
    Trial {
        step: u32,
        case: &'a str,
        subject: &'a str,
        rate_per_s: f64,
        judgement: &'a Judgement,
        progress: Progress,
    },
}

/// Runs a search until it is settled or its budget is spent. Call it from a thread that lives as long as the program, as
/// for a run.
pub fn search(
    request: &SearchRequest<'_>,
    report: &mut dyn FnMut(SearchEvent<'_>),
) -> anyhow::Result<PathBuf> {
    let SearchRequest { catalog, parameters, invocation, interrupt, .. } = request;
    let experiment = request.experiment;
    if !experiment.is_sent_by_tollgate() {
        let message = "cannot search with a foreign client, which keeps no rate; remove `client`";
        return Err(bad_input(message.to_owned()));
    }
    let mut bench = LocalBench::new(catalog, request.tollgate, experiment.cpus.as_ref())?;
    let BenchDescription { layout, environment, .. } =
        run::describe(&mut bench, experiment, interrupt)?;
    let mut run_dir = RunDir::create(request.out)?;
    let mut record = parameters.to_record(searched(experiment, request.only));
    run_dir.write_search(&record)?;

    let mut not_installed = |subject: NotInstalled<'_>| report(SearchEvent::NotInstalled(subject));
    let configs = run_dir.configs();
    let states = run::states(&mut bench, experiment, &configs, interrupt, &mut not_installed)?;
    let mut searches = searches(experiment, &states, &record.subjects, parameters);
    let open_loop = as_open_loop(experiment, parameters);
    let manifest = open_loop.manifest(states, &layout, environment, Vec::new(), invocation);
    run_dir.write_manifest(&manifest)?;

    let context = TrialContext {
        configs,
        logs: run_dir.logs(),
        limits: &experiment.limits,
        // Each trial would send it again.
        corpus: &Corpus::default(),
        interrupt,
    };
    let mut trials = Trials { bench: &mut bench, context: &context, experiment, parameters };
    let mut rng = ChaCha8Rng::seed_from_u64(invocation.seed);
    let end = run_steps(&mut trials, &mut searches, &mut run_dir, &mut rng, report);
    record.ended_by = Some(match end {
        Err(error) if error.is::<Interrupted>() => SearchEnd::Interrupted,
        end => end?,
    });
    run_dir.write_search(&record)?;
    Ok(run_dir.path().to_owned())
}

struct Trials<'a> {
    bench: &'a mut dyn Bench,
    context: &'a TrialContext<'a>,
    experiment: &'a Experiment,
    parameters: &'a SearchParameters,
}

struct SubjectSearch {
    case: usize,
    subject: usize,
    installed: Installed,
    bracket: Bracket,
}

/// Returns the experiment for the manifest: every case as an open loop at the first rate.
fn as_open_loop(experiment: &Experiment, parameters: &SearchParameters) -> Experiment {
    let mut experiment = experiment.clone();
    for case in &mut experiment.cases {
        case.load = parameters.load_at(parameters.start, &case.load);
    }
    experiment
}

/// Returns the names of the subjects to search, without the repeated baseline.
fn searched(experiment: &Experiment, only: &[String]) -> Vec<String> {
    let subjects = experiment.subjects.iter().enumerate();
    let once = subjects.filter(|(index, _)| experiment.aa_subject != Some(*index));
    let names = once.map(|(_, subject)| subject.name.clone());
    names.filter(|name| only.is_empty() || only.contains(name)).collect()
}

fn searches(
    experiment: &Experiment,
    states: &[SubjectState],
    searched: &[String],
    parameters: &SearchParameters,
) -> Vec<SubjectSearch> {
    let mut searches = Vec::new();
    for (case, of_case) in experiment.cases.iter().enumerate() {
        for (subject, state) in states.iter().enumerate() {
            if let SubjectState::Present { installed, .. } = state
                && of_case.subjects.contains(&subject)
                && searched.contains(&experiment.subjects[subject].name)
            {
                let (installed, bracket) = (installed.clone(), Bracket::new(parameters.bracket()));
                searches.push(SubjectSearch { case, subject, installed, bracket });
            }
        }
    }
    searches
}

/// Runs steps until every search is finished, the budget is spent, or a stop is requested.
fn run_steps(
    trials: &mut Trials<'_>,
    searches: &mut [SubjectSearch],
    run_dir: &mut RunDir,
    rng: &mut ChaCha8Rng,
    report: &mut dyn FnMut(SearchEvent<'_>),
) -> anyhow::Result<SearchEnd> {
    trials.bench.ready(trials.context.interrupt, &mut |text| report(SearchEvent::Waiting(text)))?;
    let started = Instant::now();
    for step in 1.. {
        let mut order: Vec<usize> = (0..searches.len())
            .filter(|index| searches[*index].bracket.progress() == Progress::Open)
            .collect();
        if order.is_empty() {
            break;
        }
        order.shuffle(rng);
        let order_seed = rng.random();
        for (position, index) in (1..).zip(order) {
            let SubjectSearch { case, subject, installed, bracket } = &mut searches[index];
            let Some(rate) = bracket.candidates().choose(rng).copied() else {
                continue;
            };
            if started.elapsed() >= trials.parameters.budget {
                return Ok(SearchEnd::Budget);
            }
            let plan = TrialPlan {
                case: *case,
                block: step,
                position,
                subject: *subject,
                attempt: 1,
                order_seed,
            };
            let subject = &trials.experiment.subjects[*subject];
            let case = at_rate(trials, *case, rate);
            let trial = Trial { plan: &plan, case: &case, subject, installed };
            let record = trial::run(trials.bench, trials.context, &trial)?;
            run_dir.append(&record)?;
            let judgement = trials.parameters.goals.judge(&record.outcome);
            bracket.record(rate, judgement.verdict);
            report(SearchEvent::Trial {
                step,
                case: &case.name,
                subject: &subject.name,
                rate_per_s: rate,
                judgement: &judgement,
                progress: bracket.progress(),
            });
            if trials.context.interrupt.check().is_err() {
                return Ok(SearchEnd::Interrupted);
            }
        }
    }
    Ok(SearchEnd::Complete)
}

fn at_rate(trials: &Trials<'_>, case: usize, rate: f64) -> Case {
    let case = &trials.experiment.cases[case];
    Case { load: trials.parameters.load_at(rate, &case.load), ..case.clone() }
}

//! Running a search: every trial on record before the next.

use super::bracket::{Bracket, Progress};
use super::judge::{Judgement, judge};
use super::terms::{EndedBy, Terms};
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Case, Experiment};
use crate::interrupt::Interrupt;
use crate::manifest::{Circumstances, Manifest, SubjectState};
use crate::plan::TrialPlan;
use crate::run::RunError;
use crate::run::prepare::{self, Absent, Machine};
use crate::run_dir::RunDir;
use crate::system::installed::Installed;
use crate::trial::{self, Bench};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is to be searched, and where its records go.
#[derive(Debug)]
pub struct SearchRequest<'a> {
    /// Where inputs are found.
    pub catalog: &'a Catalog,
    /// The experiment whose cases and subjects are searched.
    pub experiment: &'a Experiment,
    /// Only these subjects; empty for all.
    pub only: &'a [String],
    /// What is to be found, how closely, and in what time.
    pub terms: &'a Terms,
    /// Seed, speed and the command that repeats the search.
    pub circumstances: Circumstances,
    /// The `tollgate` binary, which is started as the origin.
    pub tollgate: &'a Path,
    /// The search's directory, which must not be there yet.
    pub out: &'a Path,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
}

/// What a search tells while it is under way.
#[derive(Debug)]
pub enum Event<'a> {
    /// A subject cannot be run.
    Absent(Absent<'a>),
    /// One trial is on record.
    Tried {
        /// Its step.
        step: u32,
        /// Its case.
        case: &'a str,
        /// Its subject.
        subject: &'a str,
        /// Requests a second.
        rate: f64,
        /// What it said.
        judgement: &'a Judgement,
        /// How far the subject's search has come.
        progress: Progress,
    },
}

/// Runs a search to its end, or to that of its time. Call it from a thread that lives as long as the
/// program, as for a run.
///
/// # Errors
///
/// The machine cannot give the layout, or the directory cannot be written.
pub fn search(
    request: &SearchRequest<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<PathBuf, RunError> {
    let SearchRequest { catalog, terms, circumstances, interrupt, .. } = request;
    let experiment = request.experiment;
    let Machine { layout, environment } = prepare::machine(experiment)?;
    let mut run_dir = RunDir::create(request.out)?;
    let mut record = terms.record(searched(experiment, request.only));
    run_dir.write_search(&record)?;

    let mut tell_absent = |absent: Absent<'_>| tell(Event::Absent(absent));
    let states = prepare::states(catalog, experiment, &run_dir.configs(), &mut tell_absent);
    let mut seekers = seekers(experiment, &states, &record.subjects, terms);
    let opened = opened(experiment, terms);
    let manifest = Manifest::of(&opened, states, &layout, environment, circumstances);
    run_dir.write_manifest(&manifest)?;

    let bench = Bench {
        catalog,
        tollgate: request.tollgate,
        configs: run_dir.configs(),
        logs: run_dir.logs(),
        layout: &layout,
        limits: &experiment.limits,
        interrupt,
    };
    let place = Place { bench: &bench, experiment, terms };
    let mut rng = ChaCha8Rng::seed_from_u64(circumstances.seed);
    record.ended_by = Some(go(&place, &mut seekers, &mut run_dir, &mut rng, tell)?);
    run_dir.write_search(&record)?;
    Ok(run_dir.path().to_owned())
}

/// What all trials of a search have in common.
struct Place<'a> {
    bench: &'a Bench<'a>,
    experiment: &'a Experiment,
    terms: &'a Terms,
}

/// One subject under one case, and how far its search has come.
struct Seeker {
    case: usize,
    subject: usize,
    installed: Installed,
    bracket: Bracket,
}

/// The experiment as the manifest tells it: every case an open loop, at the rate that the search
/// begins with.
fn opened(experiment: &Experiment, terms: &Terms) -> Experiment {
    let mut experiment = experiment.clone();
    for case in &mut experiment.cases {
        case.load = terms.load_at(terms.from, &case.load);
        case.rate_of = None;
    }
    experiment
}

/// The names of the subjects that are searched: those asked for, and the baseline once.
fn searched(experiment: &Experiment, only: &[String]) -> Vec<String> {
    let subjects = experiment.subjects.iter().enumerate();
    let once = subjects.filter(|(index, _)| experiment.again != Some(*index));
    let names = once.map(|(_, subject)| subject.name.clone());
    names.filter(|name| only.is_empty() || only.contains(name)).collect()
}

fn seekers(
    experiment: &Experiment,
    states: &[SubjectState],
    searched: &[String],
    terms: &Terms,
) -> Vec<Seeker> {
    let mut seekers = Vec::new();
    for (case, of_case) in experiment.cases.iter().enumerate() {
        for (subject, state) in states.iter().enumerate() {
            if let SubjectState::Present { installed, .. } = state
                && of_case.subjects.contains(&subject)
                && searched.contains(&experiment.subjects[subject].name)
            {
                let (installed, bracket) = (installed.clone(), Bracket::new(terms.aim()));
                seekers.push(Seeker { case, subject, installed, bracket });
            }
        }
    }
    seekers
}

/// Step by step until every search is over, the time is spent, or it is asked to stop.
fn go(
    place: &Place<'_>,
    seekers: &mut [Seeker],
    run_dir: &mut RunDir,
    rng: &mut ChaCha8Rng,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<EndedBy, RunError> {
    let begun = Instant::now();
    for step in 1.. {
        let mut order: Vec<usize> = (0..seekers.len())
            .filter(|index| seekers[*index].bracket.progress() == Progress::Open)
            .collect();
        if order.is_empty() {
            break;
        }
        order.shuffle(rng);
        let order_seed = rng.random();
        for (position, index) in (1..).zip(order) {
            let Seeker { case, subject, installed, bracket } = &mut seekers[index];
            let Some(rate) = bracket.candidates().choose(rng).copied() else {
                continue;
            };
            if begun.elapsed() >= place.terms.budget {
                return Ok(EndedBy::Budget);
            }
            let plan = TrialPlan {
                case: *case,
                block: step,
                position,
                subject: *subject,
                attempt: 1,
                order_seed,
            };
            let subject = &place.experiment.subjects[*subject];
            let case = at_rate(place, *case, rate);
            let Ok(record) = trial::run(place.bench, &plan, &case, subject, installed) else {
                return Ok(EndedBy::Interrupted);
            };
            run_dir.append(&record)?;
            let judgement = judge(&place.terms.slo, &record.outcome);
            bracket.note(rate, judgement.answer);
            tell(Event::Tried {
                step,
                case: &case.name,
                subject: &subject.name,
                rate,
                judgement: &judgement,
                progress: bracket.progress(),
            });
            if place.bench.interrupt.check().is_err() {
                return Ok(EndedBy::Interrupted);
            }
        }
    }
    Ok(EndedBy::Found)
}

fn at_rate(place: &Place<'_>, case: usize, rate: f64) -> Case {
    let case = &place.experiment.cases[case];
    Case { load: place.terms.load_at(rate, &case.load), rate_of: None, ..case.clone() }
}

//! `tollgate batch run`: every revision built, and every product measured beside the anchor.

use super::beginning::{Beginning, manifest};
use super::dir::BatchDir;
use super::plan::{Wanted, shares};
use super::records::{BuildRecord, Purpose, Round};
use super::revision::Revision;
use super::series::{Point, points};
use super::states::State;
use super::steps::{spread, stand_ins};
use super::workshop::{Workshop, product_of};
use super::{BatchError, report};
use crate::inputs::experiment::Experiment;
use crate::interrupt::Interrupt;
use crate::run;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

/// What a batch needs of the process that works on it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The batch's directory.
    pub out: &'a Path,
    /// The `tollgate` binary, which is started as the origin.
    pub tollgate: &'a Path,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
    /// How many revisions are measured, as far apart as can be. Where this is left out, `run` measures all, and
    /// `find` as many as were measured last.
    pub steps: Option<usize>,
    /// Whether builds that failed, and products that did not run, are tried again.
    pub retries: bool,
}

/// What a batch tells while it is under way.
#[derive(Debug)]
pub enum Event<'a> {
    /// The revisions are known.
    Revisions {
        /// How many there are.
        count: usize,
        /// How many of them are measured now.
        tried: usize,
    },
    /// A build begins.
    Building {
        /// Of which revision.
        revision: &'a Revision,
    },
    /// A build ended.
    Built {
        /// Of which revision.
        revision: &'a Revision,
        /// What came of it.
        record: &'a BuildRecord,
    },
    /// A round begins, or goes on.
    Round {
        /// Which.
        round: &'a Round,
        /// What it runs.
        experiment: &'a Experiment,
    },
    /// What the round's run tells.
    Run(&'a run::Event<'a>),
    /// The round is over.
    RoundEnded,
    /// A search goes on, for a culprit or for a revision that can be measured: in words.
    Search(&'a str),
}

/// Begins a batch, or takes up the one that is there, and measures its revisions.
///
/// # Errors
///
/// It cannot be what was asked for, or the machine does not let it be done. A revision that fails is no
/// error.
pub fn run(
    request: &Request<'_>,
    beginning: &Beginning,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(), BatchError> {
    let dir = BatchDir::open(request.out)?;
    let manifest = manifest(&dir, request, beginning)?;
    manifest.write(dir.path())?;
    let mut workshop = Workshop::new(dir, manifest, beginning.catalog.clone(), request)?;
    series(&mut workshop, tell)?;
    report::write_all(&workshop.records()?, workshop.dir.path())
}

/// Measures the listed revisions, or so many of them as the batch takes steps, as far as that was not done
/// yet.
pub(super) fn series(
    workshop: &mut Workshop<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(), BatchError> {
    let listed: Vec<Revision> =
        workshop.manifest.revisions.iter().filter(|one| one.listed).cloned().collect();
    let chosen = spread(listed.len(), workshop.manifest.steps.unwrap_or(listed.len()));
    tell(Event::Revisions { count: listed.len(), tried: chosen.len() });
    anchor(workshop, &listed, tell)?;
    workshop.hold_inputs()?;
    workshop.end_rounds(tell)?;
    // Of each step the revision that was chosen, and those that may stand in for it.
    let mut steps: Vec<VecDeque<usize>> = (0..chosen.len())
        .map(|which| {
            let others = stand_ins(&chosen, which, listed.len());
            std::iter::once(chosen[which]).chain(others).collect()
        })
        .collect();
    // What was measured now, and what needs no more blocks.
    let mut done = BTreeSet::new();
    loop {
        let wanted = wanted(workshop, &listed, &mut steps, &done, tell)?;
        done.append(&mut measured(workshop)?);
        let left: Vec<Wanted> =
            wanted.into_iter().filter(|one| !done.contains(&one.product)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let (together, blocks) =
            (workshop.manifest.settings.together, workshop.manifest.settings.blocks);
        for share in shares(&left, together, &workshop.anchor_product()?) {
            workshop.measure(Purpose::Series, share, blocks, tell)?;
        }
        // Where one of them turned out not to run, the next one takes its place.
        done.extend(left.into_iter().map(|one| one.product));
    }
}

/// Builds a revision for each step; their products. One that cannot be built, or is known not to run (where that
/// is tried again, from what was done now), leaves its place to the next that may stand in for it.
fn wanted(
    workshop: &mut Workshop<'_>,
    listed: &[Revision],
    steps: &mut [VecDeque<usize>],
    done: &BTreeSet<String>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Wanted>, BatchError> {
    let points = points(&workshop.records()?);
    let retries = workshop.retries();
    let fails = |product: &String| {
        if retries && !done.contains(product) {
            return false;
        }
        let is_it = |point: &&Point| point.product.as_ref() == Some(product);
        points.iter().find(is_it).is_some_and(|point| point.state == State::RunFailed)
    };
    let mut wanted: Vec<Wanted> = Vec::new();
    for step in steps {
        while let Some(revision) = step.front().map(|place| &listed[*place]) {
            let product = workshop.build(revision, tell)?.filter(|product| !fails(product));
            let Some(product) = product else {
                step.pop_front();
                if let Some(next) = step.front().map(|place| &listed[*place]) {
                    let told = format!(
                        "{} cannot be measured; {} is tried in its place",
                        revision.name, next.name
                    );
                    tell(Event::Search(&told));
                }
                continue;
            };
            match wanted.iter_mut().find(|known| known.product == product) {
                Some(known) => known.revisions += 1,
                None => wanted.push(Wanted { product, name: revision.name.clone(), revisions: 1 }),
            }
            break;
        }
    }
    Ok(wanted)
}

/// The products that need no more blocks: those with enough for an interval, and those that do not run, unless
/// that is tried again.
pub(super) fn measured(workshop: &Workshop<'_>) -> Result<BTreeSet<String>, BatchError> {
    let enough = (workshop.manifest.settings.blocks as usize).min(INTERVAL_BLOCKS);
    let is_lost = |point: &Point| point.state == State::RunFailed && !workshop.retries();
    let is_measured = |point: &Point| is_lost(point) || point.n >= enough;
    let points = points(&workshop.records()?);
    Ok(points.into_iter().filter(is_measured).filter_map(|point| point.product).collect())
}

/// With fewer, there is no interval.
pub(super) const INTERVAL_BLOCKS: usize = 6;

/// Makes sure that there is an anchor that was built: the one that was asked for, or else the first
/// revision that can be.
fn anchor(
    workshop: &mut Workshop<'_>,
    listed: &[Revision],
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(), BatchError> {
    if let Some(id) = workshop.manifest.anchor.clone() {
        // From the first round on, the product itself is what prices are over.
        if let Some(product) = &workshop.manifest.anchor_product
            && workshop.manifest.inputs.is_some()
            && workshop.folder_of(product).is_some()
        {
            return Ok(());
        }
        let revision = workshop.manifest.revision(&id).cloned();
        let gone =
            || BatchError::Asked(format!("the anchor {id} is no revision of the batch any more"));
        let revision = revision.ok_or_else(gone)?;
        return match workshop.build(&revision, tell)? {
            Some(product) => workshop.pin_anchor(&revision, product),
            None => Err(BatchError::Asked(format!(
                "the anchor {} cannot be built; choose another --anchor, and another --out",
                revision.name
            ))),
        };
    }
    for revision in listed {
        if let Some(product) = workshop.build(revision, tell)? {
            return workshop.pin_anchor(revision, product);
        }
    }
    let builds = workshop.dir.builds.lines();
    let last = builds.iter().rev().find(|build| product_of(build).is_none());
    let log =
        last.map_or(String::new(), |build| workshop.dir.log(&build.key).display().to_string());
    Err(BatchError::Asked(format!("no revision can be built; the last build printed {log}")))
}

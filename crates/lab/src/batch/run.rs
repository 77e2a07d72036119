//! `tollgate batch run`: every revision built, and every product measured beside the anchor.

use super::dir::BatchDir;
use super::making;
use super::manifest::{BatchManifest, SCHEMA};
use super::plan::{Wanted as WantedProduct, shares};
use super::records::{BuildRecord, Purpose, Round};
use super::repository::Repository;
use super::revision::{Revision, of_versions, spread};
use super::series::{Point, points};
use super::settings::{Origin, Settings, Wanted};
use super::states::State;
use super::workshop::{Workshop, product_of};
use super::{BatchError, report};
use crate::inputs::experiment::Experiment;
use crate::interrupt::Interrupt;
use crate::manifest::VERSION;
use crate::run;
use crate::system::render::hash_text;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a batch needs of the process that works on it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The batch's directory.
    pub out: &'a Path,
    /// The `tollgate` binary, which is started as the origin.
    pub tollgate: &'a Path,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
    /// How many revisions are measured, as far apart as can be; all where this is left out.
    pub steps: Option<usize>,
    /// Whether builds that failed are tried again.
    pub retries: bool,
}

/// What is asked of a batch when it is begun or taken up.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// What is done with each revision.
    pub settings: Settings,
    /// Which revisions.
    pub wanted: Wanted,
    /// The revision that every block runs too.
    pub anchor: Option<String>,
    /// The folders in which inputs are looked for.
    pub catalog: Vec<PathBuf>,
    /// The command that this is.
    pub command: String,
    /// The folder that it is given in.
    pub directory: PathBuf,
    /// The seed of every random choice of a batch that is begun.
    pub seed: u64,
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
    /// A search for a culprit goes on, in words.
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
    let mut workshop = Workshop::new(dir, manifest, request)?;
    series(&mut workshop, request.steps, tell)?;
    report::write_all(&workshop.records()?, workshop.dir.path())
}

/// Measures the listed revisions, or so many of them, as far as that was not done yet.
pub(super) fn series(
    workshop: &mut Workshop<'_>,
    steps: Option<usize>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(), BatchError> {
    let listed: Vec<Revision> =
        workshop.manifest.revisions.iter().filter(|one| one.listed).cloned().collect();
    let chosen = spread(listed.len(), steps.unwrap_or(listed.len()));
    tell(Event::Revisions { count: listed.len(), tried: chosen.len() });
    anchor(workshop, &listed, tell)?;
    workshop.end_rounds(tell)?;
    let mut wanted: Vec<WantedProduct> = Vec::new();
    for place in chosen {
        let revision = &listed[place];
        let Some(product) = workshop.build(revision, tell)? else { continue };
        match wanted.iter_mut().find(|known| known.product == product) {
            Some(known) => known.revisions += 1,
            None => {
                wanted.push(WantedProduct { product, name: revision.name.clone(), revisions: 1 });
            }
        }
    }
    let measured = measured(workshop)?;
    wanted.retain(|one| !measured.contains(&one.product));
    let (together, blocks) =
        (workshop.manifest.settings.together, workshop.manifest.settings.blocks);
    for share in shares(&wanted, together, &workshop.anchor_product()?) {
        workshop.measure(Purpose::Series, share, blocks, tell)?;
    }
    Ok(())
}

/// The products that need no more blocks: those with enough for an interval, and those that do not run.
pub(super) fn measured(workshop: &Workshop<'_>) -> Result<BTreeSet<String>, BatchError> {
    let enough = (workshop.manifest.settings.blocks as usize).min(INTERVAL_BLOCKS);
    let is_measured = |point: &Point| point.state == State::RunFailed || point.n >= enough;
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
        let revision = workshop.manifest.revision(&id).cloned();
        let gone =
            || BatchError::Asked(format!("the anchor {id} is no revision of the batch any more"));
        let revision = revision.ok_or_else(gone)?;
        return match workshop.build(&revision, tell)? {
            Some(_) => Ok(()),
            None => Err(BatchError::Asked(format!(
                "the anchor {} cannot be built; choose another --anchor, and another --out",
                revision.name
            ))),
        };
    }
    for revision in listed {
        if workshop.build(revision, tell)?.is_some() {
            workshop.manifest.anchor = Some(revision.id.clone());
            return workshop.manifest.write(workshop.dir.path());
        }
    }
    let builds = workshop.dir.builds.lines();
    let last = builds.iter().rev().find(|build| product_of(build).is_none());
    let log =
        last.map_or(String::new(), |build| workshop.dir.log(&build.key).display().to_string());
    Err(BatchError::Asked(format!("no revision can be built; the last build printed {log}")))
}

/// The manifest of the batch: a new one, or the one that is there with the revisions of today.
fn manifest(
    dir: &BatchDir,
    request: &Request<'_>,
    beginning: &Beginning,
) -> Result<BatchManifest, BatchError> {
    let Beginning { settings, wanted, anchor, .. } = beginning;
    let (mut revisions, anchor) = match &settings.origin {
        Origin::Repository(from) => {
            let repository = Repository::at(dir.repository(), request.interrupt);
            repository.fetch(from)?;
            let anchor = anchor.as_deref().map(|name| repository.one(name)).transpose()?;
            (repository.revisions(wanted)?, anchor)
        }
        Origin::Versions(files) => {
            let files = making::files_hash(files.as_deref())?;
            let tree = |version: &str| hash_text(&format!("{version}\n{files}"));
            let Wanted::List(versions) = wanted else {
                return Err(BatchError::Asked("`versions` has to be a list".to_owned()));
            };
            let anchor = anchor.iter().cloned().collect::<Vec<_>>();
            (of_versions(versions, tree), of_versions(&anchor, tree).pop())
        }
    };
    let anchor_id = anchor.as_ref().map(|anchor| anchor.id.clone());
    if let Some(anchor) = anchor
        && !revisions.iter().any(|one| one.id == anchor.id)
    {
        revisions.insert(0, Revision { listed: false, ..anchor });
    }
    if !BatchManifest::is_in(dir.path()) {
        return Ok(BatchManifest {
            schema: SCHEMA,
            tollgate: VERSION.to_owned(),
            started_at: Timestamp::now().to_string(),
            command: beginning.command.clone(),
            directory: beginning.directory.clone(),
            catalog: beginning.catalog.clone(),
            seed: beginning.seed,
            settings: settings.clone(),
            anchor: anchor_id,
            revisions,
        });
    }
    let mut known = BatchManifest::read(dir.path())?;
    let path = dir.path().display();
    if known.settings != *settings {
        return Err(BatchError::Asked(format!(
            "{path} holds a batch with other settings, and figures of both would be mixed up; choose \
             another --out, or repeat its command: {}",
            known.command
        )));
    }
    if anchor_id.is_some() && known.anchor.is_some() && anchor_id != known.anchor {
        return Err(BatchError::Asked(format!(
            "{path} holds a batch with another anchor, and its prices are over that one; choose another \
             --out"
        )));
    }
    known.anchor = known.anchor.or(anchor_id);
    // Once pinned, the anchor stays a revision of the batch, whatever is listed today.
    let pinned = known.anchor.as_deref().and_then(|id| known.revision(id)).cloned();
    known.take_up(revisions);
    if let Some(pinned) = pinned
        && known.revision(&pinned.id).is_none()
    {
        known.revisions.insert(0, Revision { listed: false, ..pinned });
    }
    Ok(known)
}

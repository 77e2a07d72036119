//! `tollgate batch run`: creates or continues a batch and measures its revisions.

use crate::batch::Batch;
use crate::builds::{product_of, store_files};
use crate::config::{RevisionSource, Settings, Wanted};
use crate::division::{RoundProduct, replacements, shares, spread};
use crate::manifest::{BatchManifest, SCHEMA};
use crate::measure::NoAnchor;
use crate::report;
use crate::repository::{Repository, Revision, of_versions};
use crate::request::{BatchEvent, Request};
use crate::series::{Point, RevisionState, points};
use crate::store::{BatchDir, ProductFailure, Purpose};
use jiff::Timestamp;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use tollgate_records::error::bad_input;
use tollgate_records::files::hash_text;
use tollgate_records::manifest::VERSION;

#[derive(Debug, Clone)]
pub struct BatchOptions {
    pub settings: Settings,
    pub wanted: Wanted,
    /// Revision that runs in every block.
    pub anchor: Option<String>,
    pub catalog: Vec<PathBuf>,
    pub command: Vec<String>,
    pub directory: PathBuf,
    /// `None`: from the clock, for a new batch.
    pub seed: Option<u64>,
}

/// Returns a new manifest, or the existing one with the current revisions.
pub(crate) fn manifest(
    dir: &BatchDir,
    request: &Request<'_>,
    options: &BatchOptions,
) -> anyhow::Result<BatchManifest> {
    let known = BatchManifest::is_in(dir.path()).then(|| BatchManifest::read(dir.path()));
    // Before the first round, only builds are kept, which do not depend on the other settings.
    let known = known.transpose()?.filter(|known| known.inputs.is_some());
    let known = known.map(|known| same_settings(known, dir, options)).transpose()?;
    let Selection { mut revisions, anchor, files } = select(dir, request, options, known.as_ref())?;
    let anchor_id = anchor.as_ref().map(|anchor| anchor.id.clone());
    if let Some(anchor) = anchor
        && !revisions.iter().any(|one| one.id == anchor.id)
    {
        revisions.insert(0, Revision { listed: false, ..anchor });
    }
    let Some(mut known) = known else {
        let now = Timestamp::now();
        return Ok(BatchManifest {
            schema: SCHEMA,
            tollgate: VERSION.to_owned(),
            started_at: now.to_string(),
            command: options.command.clone(),
            directory: options.directory.clone(),
            catalog: options.catalog.clone(),
            seed: options.seed.unwrap_or_else(|| now.as_second().unsigned_abs()),
            settings: options.settings.clone(),
            files,
            steps: request.steps,
            inputs: None,
            anchor: anchor_id,
            anchor_product: None,
            revisions,
        });
    };
    if anchor_id.is_some() && known.anchor.is_some() && anchor_id != known.anchor {
        return Err(bad_input(format!(
            "{} is a batch with another anchor; choose another --out",
            dir.path().display()
        )));
    }
    known.steps = request.steps;
    known.anchor = known.anchor.or(anchor_id);
    // A pinned anchor stays in the batch, even if it is not listed any more.
    let pinned = known.anchor.as_deref().and_then(|id| known.revision(id)).cloned();
    known.update_listed(revisions);
    if let Some(pinned) = pinned
        && known.revision(&pinned.id).is_none()
    {
        known.revisions.insert(0, Revision { listed: false, ..pinned });
    }
    Ok(known)
}

struct Selection {
    revisions: Vec<Revision>,
    anchor: Option<Revision>,
    /// Hash of the files for versions.
    files: Option<String>,
}

fn select(
    dir: &BatchDir,
    request: &Request<'_>,
    options: &BatchOptions,
    known: Option<&BatchManifest>,
) -> anyhow::Result<Selection> {
    let BatchOptions { settings, wanted, anchor, .. } = options;
    match &settings.source {
        RevisionSource::Repository(from) => {
            let repository = Repository::at(dir.repository(), request.interrupt);
            repository.fetch(from)?;
            let anchor = anchor.as_deref().map(|name| repository.one(name)).transpose()?;
            Ok(Selection { revisions: repository.revisions(wanted)?, anchor, files: None })
        }
        RevisionSource::Versions(from) => {
            let before = known.and_then(|known| known.files.as_deref());
            let files = store_files(from.as_deref(), &dir.files(), before)?;
            let tree = |version: &str| hash_text(&format!("{version}\n{files}"));
            let Wanted::List(versions) = wanted else {
                return Err(bad_input("`versions` must be a list".to_owned()));
            };
            let anchor = anchor.iter().cloned().collect::<Vec<_>>();
            let revisions = of_versions(versions, tree);
            let anchor = of_versions(&anchor, tree).pop();
            Ok(Selection { revisions, anchor, files: Some(files) })
        }
    }
}

/// Checks that an existing batch has the same settings and seed.
fn same_settings(
    known: BatchManifest,
    dir: &BatchDir,
    options: &BatchOptions,
) -> anyhow::Result<BatchManifest> {
    let out = dir.path().display();
    if known.settings != options.settings {
        let catalog = known.other_catalog(&options.catalog);
        let catalog = catalog.map_or(String::new(), |catalog| format!(" ({catalog})"));
        return Err(bad_input(format!(
            "{out} is a batch with other settings{catalog}, and figures of both would be mixed up; choose \
             another --out, or repeat its command: {}",
            shell_words::join(&known.command)
        )));
    }
    match options.seed {
        Some(seed) if seed != known.seed => Err(bad_input(format!(
            "{out} is a batch with --seed {}; remove --seed, or choose another --out",
            known.seed
        ))),
        Some(_) | None => Ok(known),
    }
}

pub fn run(
    request: &Request<'_>,
    options: &BatchOptions,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<()> {
    let dir = BatchDir::open(request.out)?;
    let manifest = manifest(&dir, request, options)?;
    manifest.write(dir.path())?;
    let mut batch = Batch::open(dir, manifest, options.catalog.clone(), request)?;
    series(&mut batch, notify)?;
    report::write_all(&batch.records(), batch.dir.path())
}

/// Measures the listed revisions, or evenly spread ones if the batch has steps, unless already done.
pub(crate) fn series(
    batch: &mut Batch<'_>,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<()> {
    let listed: Vec<Revision> =
        batch.manifest.revisions.iter().filter(|one| one.listed).cloned().collect();
    let chosen = spread(listed.len(), batch.manifest.steps.unwrap_or(listed.len()));
    notify(BatchEvent::Revisions { count: listed.len(), tried: chosen.len() });
    anchor(batch, &listed, notify)?;
    if batch.manifest.inputs.is_none() {
        probe_anchor(batch, notify)?;
    }
    batch.check_inputs()?;
    batch.end_rounds(notify)?;
    // For each step: the revision and its replacements.
    let mut steps: Vec<VecDeque<usize>> = (0..chosen.len())
        .map(|which| {
            let others = replacements(&chosen, which, listed.len());
            std::iter::once(chosen[which]).chain(others).collect()
        })
        .collect();
    // Products measured now, and products with enough blocks.
    let mut done = BTreeSet::new();
    loop {
        let wanted = wanted_products(batch, &listed, &mut steps, &done, notify)?;
        done.append(&mut measured(batch)?);
        let left: Vec<RoundProduct> =
            wanted.into_iter().filter(|one| !done.contains(&one.product)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let (together, blocks) =
            (batch.manifest.settings.products_per_round, batch.manifest.settings.blocks);
        let shares = shares(&left, together, &batch.anchor_product()?);
        batch.measure_all(&Purpose::Series, shares, blocks, notify)?;
        // A product that did not run is replaced by the next one.
        done.extend(left.into_iter().map(|one| one.product));
    }
}

/// Builds a revision for each step and returns the products. A revision that cannot be built, or that does not run, is
/// replaced.
fn wanted_products(
    batch: &mut Batch<'_>,
    listed: &[Revision],
    steps: &mut [VecDeque<usize>],
    done: &BTreeSet<String>,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<Vec<RoundProduct>> {
    let points = points(&batch.records());
    let retries = batch.builds.retries();
    let fails = |product: &String| {
        if retries && !done.contains(product) {
            return false;
        }
        let of_product = |point: &&Point| point.product.as_ref() == Some(product);
        points.iter().find(of_product).is_some_and(|point| point.state == RevisionState::RunFailed)
    };
    let mut wanted: Vec<RoundProduct> = Vec::new();
    for step in steps {
        while let Some(revision) = step.front().map(|place| &listed[*place]) {
            let product = batch.product(revision, notify)?.filter(|product| !fails(product));
            let Some(product) = product else {
                step.pop_front();
                if let Some(next) = step.front().map(|place| &listed[*place]) {
                    let message = format!(
                        "{} cannot be measured; trying {} instead",
                        revision.name, next.name
                    );
                    notify(BatchEvent::Search(&message));
                }
                continue;
            };
            match wanted.iter_mut().find(|known| known.product == product) {
                Some(known) => known.revisions += 1,
                None => {
                    wanted.push(RoundProduct {
                        product,
                        name: revision.name.clone(),
                        revisions: 1,
                    });
                }
            }
            break;
        }
    }
    Ok(wanted)
}

/// Returns the products that need no more blocks: with enough for an interval, or that do not run, unless that is
/// repeated.
pub(crate) fn measured(batch: &Batch<'_>) -> anyhow::Result<BTreeSet<String>> {
    let enough = (batch.manifest.settings.blocks as usize).min(INTERVAL_BLOCKS);
    let cannot_run =
        |point: &Point| point.state == RevisionState::RunFailed && !batch.builds.retries();
    let is_measured = |point: &Point| cannot_run(point) || point.n >= enough;
    let points = points(&batch.records());
    Ok(points.into_iter().filter(is_measured).filter_map(|point| point.product).collect())
}

pub(crate) const INTERVAL_BLOCKS: usize = 6;

/// Builds the anchor: the selected one, or the first revision that can be built.
fn anchor(
    batch: &mut Batch<'_>,
    listed: &[Revision],
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<()> {
    if let Some(id) = batch.manifest.anchor.clone() {
        // After the first round, the product is fixed.
        if let Some(product) = &batch.manifest.anchor_product
            && batch.manifest.inputs.is_some()
            && batch.builds.folder_of(&batch.dir, product).is_some()
        {
            return Ok(());
        }
        let revision = batch.manifest.revision(&id).cloned();
        let missing =
            || bad_input(format!("the anchor {id} is not a revision of the batch any more"));
        let revision = revision.ok_or_else(missing)?;
        return match batch.builds.build(&batch.dir, &batch.manifest, &revision, notify)? {
            Some(product) => batch.pin_anchor(&revision, product),
            None => Err(NoAnchor::NotBuilt(revision.name).into()),
        };
    }
    for revision in listed {
        if let Some(product) = batch.builds.build(&batch.dir, &batch.manifest, revision, notify)? {
            return batch.pin_anchor(revision, product);
        }
    }
    let builds = batch.builds.records();
    let last = builds.iter().rev().find(|build| product_of(build).is_none());
    let log = last.map_or(String::new(), |build| batch.dir.log(&build.key).display().to_string());
    Err(NoAnchor::NoneBuilt(log).into())
}

/// Probes the anchor before anything else is built. If it fails, the batch has no anchor yet.
fn probe_anchor(
    batch: &mut Batch<'_>,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<()> {
    let product = batch.anchor_product()?;
    let id = batch.manifest.anchor.clone().unwrap_or_default();
    let Some(revision) = batch.manifest.revision(&id).cloned() else { return Ok(()) };
    match batch.probe(&revision, &product, notify)? {
        None => Ok(()),
        Some(ProductFailure { reason, .. }) => {
            Err(NoAnchor::ProbeFailed { name: revision.name, reason }.into())
        }
    }
}

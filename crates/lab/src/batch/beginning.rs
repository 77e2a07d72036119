//! What is asked of a batch when it is begun or taken up, and what it then is.

use super::dir::BatchDir;
use super::manifest::{BatchManifest, SCHEMA};
use super::repository::Repository;
use super::revision::{Revision, of_versions};
use super::run::Request;
use super::settings::{Origin, Settings, Wanted};
use super::{BatchError, files};
use crate::manifest::VERSION;
use crate::system::render::hash_text;
use jiff::Timestamp;
use std::path::PathBuf;

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
    /// The seed of every random choice; a new one for a batch that is begun without.
    pub seed: Option<u64>,
}

/// The manifest of the batch: a new one, or the one that is there with the revisions of today.
pub(super) fn manifest(
    dir: &BatchDir,
    request: &Request<'_>,
    beginning: &Beginning,
) -> Result<BatchManifest, BatchError> {
    let known = match BatchManifest::is_in(dir.path()) {
        true => Some(same_settings(BatchManifest::read(dir.path())?, dir, beginning)?),
        false => None,
    };
    let Asked { mut revisions, anchor, files } = asked(dir, request, beginning, known.as_ref())?;
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
            command: beginning.command.clone(),
            directory: beginning.directory.clone(),
            catalog: beginning.catalog.clone(),
            seed: beginning.seed.unwrap_or_else(|| now.as_second().unsigned_abs()),
            settings: beginning.settings.clone(),
            files,
            steps: request.steps,
            inputs: None,
            anchor: anchor_id,
            anchor_product: None,
            revisions,
        });
    };
    if anchor_id.is_some() && known.anchor.is_some() && anchor_id != known.anchor {
        return Err(BatchError::Asked(format!(
            "{} holds a batch with another anchor, and its prices are over that one; choose another --out",
            dir.path().display()
        )));
    }
    known.steps = request.steps;
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

/// What is asked for, looked up.
struct Asked {
    revisions: Vec<Revision>,
    anchor: Option<Revision>,
    /// The hash of the files that come with versions.
    files: Option<String>,
}

fn asked(
    dir: &BatchDir,
    request: &Request<'_>,
    beginning: &Beginning,
    known: Option<&BatchManifest>,
) -> Result<Asked, BatchError> {
    let Beginning { settings, wanted, anchor, .. } = beginning;
    match &settings.origin {
        Origin::Repository(from) => {
            let repository = Repository::at(dir.repository(), request.interrupt);
            repository.fetch(from)?;
            let anchor = anchor.as_deref().map(|name| repository.one(name)).transpose()?;
            Ok(Asked { revisions: repository.revisions(wanted)?, anchor, files: None })
        }
        Origin::Versions(from) => {
            let before = known.and_then(|known| known.files.as_deref());
            let files = files::take(from.as_deref(), &dir.files(), before)?;
            let tree = |version: &str| hash_text(&format!("{version}\n{files}"));
            let Wanted::List(versions) = wanted else {
                return Err(BatchError::Asked("`versions` has to be a list".to_owned()));
            };
            let anchor = anchor.iter().cloned().collect::<Vec<_>>();
            let revisions = of_versions(versions, tree);
            let anchor = of_versions(&anchor, tree).pop();
            Ok(Asked { revisions, anchor, files: Some(files) })
        }
    }
}

/// What is known of a batch, where it is asked for with the same settings and seed.
fn same_settings(
    known: BatchManifest,
    dir: &BatchDir,
    beginning: &Beginning,
) -> Result<BatchManifest, BatchError> {
    let out = dir.path().display();
    if known.settings != beginning.settings {
        let catalog = known.other_catalog(&beginning.catalog);
        let catalog = catalog.map_or(String::new(), |catalog| format!(" ({catalog})"));
        return Err(BatchError::Asked(format!(
            "{out} holds a batch with other settings{catalog}, and figures of both would be mixed up; choose \
             another --out, or repeat its command: {}",
            known.command
        )));
    }
    match beginning.seed {
        Some(seed) if seed != known.seed => Err(BatchError::Asked(format!(
            "{out} holds a batch that was begun with --seed {}; leave --seed out, or choose another --out",
            known.seed
        ))),
        Some(_) | None => Ok(known),
    }
}

//! A batch in progress: its directory, manifest, builds, probes and rounds.

use crate::builds::{Builds, product_of};
use crate::division::RoundSubject;
use crate::manifest::BatchManifest;
use crate::repository::Revision;
use crate::request::Request;
use crate::rounds::Rounds;
use crate::store::{BatchDir, BatchRecords, BuildRecord, ProbeRecord, RecordFile};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tollgate_records::error::bad_input;

#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) dir: BatchDir,
    pub(crate) manifest: BatchManifest,
    pub(crate) builds: Builds<'a>,
    pub(crate) probes: Probes,
    pub(crate) rounds: Rounds,
    /// Input folders: those of the manifest, once verified to have the same content.
    pub(crate) catalog: Vec<PathBuf>,
    pub(crate) request: Request<'a>,
}

/// The first starts of products.
#[derive(Debug)]
pub(crate) struct Probes {
    pub(crate) file: RecordFile<ProbeRecord>,
    /// Products that this process has probed.
    pub(crate) tried: BTreeSet<String>,
    /// Number of failed revisions; `None` once another product than the anchor's has passed the probe.
    failed_first: Option<u32>,
}

impl<'a> Batch<'a> {
    pub(crate) fn open(
        dir: BatchDir,
        manifest: BatchManifest,
        catalog: Vec<PathBuf>,
        request: &Request<'a>,
    ) -> anyhow::Result<Self> {
        let file = RecordFile::open(&dir.probes())?;
        Ok(Self {
            builds: Builds::open(&dir, request.interrupt, request.retries)?,
            probes: Probes { file, tried: BTreeSet::new(), failed_first: Some(0) },
            rounds: Rounds::open(&dir)?,
            dir,
            manifest,
            catalog,
            request: *request,
        })
    }

    pub(crate) fn records(&self) -> BatchRecords<'_> {
        BatchRecords {
            manifest: &self.manifest,
            builds: self.builds.records(),
            probes: self.probes.file.lines(),
            rounds: self.rounds.runs(),
        }
    }

    pub(crate) fn anchor_product(&self) -> anyhow::Result<String> {
        let product = self.manifest.anchor_product.clone();
        product.ok_or_else(|| bad_input("no anchor could be built".to_owned()))
    }

    /// Counts a revision with its product, if that passed the probe. Returns true for the last of the first few that all
    /// failed.
    pub(crate) fn is_last_of_failed_first(&mut self, product: Option<&str>) -> bool {
        let is_anchor = product.is_some() && product == self.manifest.anchor_product.as_deref();
        match (product, &mut self.probes.failed_first) {
            (Some(_), failed) if !is_anchor => *failed = None,
            (None, Some(failed)) => *failed += 1,
            (Some(_), _) | (None, None) => return false,
        }
        self.probes.failed_first == Some(FAILED_FIRST)
    }

    /// Pins the product of a revision as the anchor.
    pub(crate) fn pin_anchor(
        &mut self,
        revision: &Revision,
        product: String,
    ) -> anyhow::Result<()> {
        self.manifest.anchor = Some(revision.id.clone());
        self.manifest.anchor_product = Some(product);
        self.manifest.write(self.dir.path())
    }

    pub(crate) fn subject(&self, name: &str, product: &str) -> anyhow::Result<RoundSubject> {
        let mut path = self.builds.folder_of(&self.dir, product).ok_or_else(|| {
            bad_input(format!(
                "the product of {name} is gone from {}, or was changed there; remove what is left of it, and \
                 run the batch again to build it",
                self.dir.product("").display()
            ))
        })?;
        if !self.manifest.settings.path.is_empty() {
            path.push(&self.manifest.settings.path);
        }
        let builds = self.builds.records();
        let of_product = |build: &&BuildRecord| product_of(build) == Some(product);
        let revisions = builds.iter().filter(of_product);
        let mut revisions = revisions.filter_map(|build| self.manifest.revision(&build.revision));
        let first = revisions.clone().next();
        let about = revisions.find(|one| one.name == name).or(first);
        let about = about.map_or(String::new(), |revision| {
            let log: String = revision.message.chars().take(ABOUT_CHARS).collect();
            format!("{} {log}", revision.name).trim_end().to_owned()
        });
        Ok(RoundSubject { name: name.to_owned(), about, product: path.display().to_string() })
    }
}

const ABOUT_CHARS: usize = 70;
/// Number of failed revisions at the start of a batch that triggers a report.
const FAILED_FIRST: u32 = 3;

//! First starts of products, which show whether they can be measured.

use crate::batch::Batch;
use crate::division::ANCHOR;
use crate::repository::Revision;
use crate::request::BatchEvent;
use crate::series::{not_started, refused};
use crate::store::{ProbeRecord, ProductFailure, SCHEMA};
use std::fs;
use tollgate_records::error::io_error;
use tollgate_runner::run;
use tollgate_runner::system;
use tollgate_runner::trial::{self, CheckRequest};

const NONE_RUNS: &str = "none of the first 3 revisions beside the anchor can be measured, for the reasons above; the \
                         batch continues; stop it if they share a cause, such as the experiment or the build";

impl Batch<'_> {
    /// Builds a revision and probes its product. Returns the product if it can be measured.
    pub(crate) fn product(
        &mut self,
        revision: &Revision,
        notify: &mut dyn FnMut(BatchEvent<'_>),
    ) -> anyhow::Result<Option<String>> {
        let mut product = self.builds.build(&self.dir, &self.manifest, revision, notify)?;
        if let Some(built) = &product
            && self.probe(revision, built, notify)?.is_some()
        {
            product = None;
        }
        if self.is_last_of_failed_first(product.as_deref()) {
            notify(BatchEvent::Search(NONE_RUNS));
        }
        Ok(product)
    }

    /// Starts a product and sends it the requests of the probe, as before a trial, unless it has passed before. Returns
    /// and records the failure. Failures are repeated for the anchor, and with --retry.
    pub(crate) fn probe(
        &mut self,
        revision: &Revision,
        product: &str,
        notify: &mut dyn FnMut(BatchEvent<'_>),
    ) -> anyhow::Result<Option<ProductFailure>> {
        let anchor = self.anchor_product()?;
        let known = self.probes.file.lines().iter().rev().find(|one| one.product == product);
        match known.map(|known| &known.failure) {
            Some(Some(failure))
                if product != anchor
                    && (!self.builds.retries() || self.probes.tried.contains(product)) =>
            {
                return Ok(Some(failure.clone()));
            }
            Some(None) => return Ok(None),
            Some(Some(_)) | None => {}
        }
        if self.rounds.started().any(|round| round.products.values().any(|one| one == product)) {
            return Ok(None);
        }
        let failure = self.start_and_probe(revision, product, &anchor)?;
        if let Some(failure) = &failure {
            notify(BatchEvent::ProbeFailed { revision, failure });
        }
        self.probes.tried.insert(product.to_owned());
        let record =
            ProbeRecord { schema: SCHEMA, product: product.to_owned(), failure: failure.clone() };
        self.probes.file.add(record)?;
        Ok(failure)
    }

    fn start_and_probe(
        &self,
        revision: &Revision,
        product: &str,
        anchor: &str,
    ) -> anyhow::Result<Option<ProductFailure>> {
        self.builds.use_all_cpus()?;
        let folder = self.dir.probe();
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let path = folder.join("probe.toml");
        let mut subjects = vec![(ANCHOR.to_owned(), anchor.to_owned())];
        if product != anchor {
            subjects.push((revision.name.clone(), product.to_owned()));
        }
        self.write_experiment(&path, &self.manifest.settings.title, &subjects, 1)?;
        let (catalog, experiment) = self.experiment(&path)?;
        let (Some(case), Some(subject)) = (experiment.cases.first(), experiment.subjects.last())
        else {
            return Ok(None);
        };
        run::check_inputs(&experiment)?;
        // As in a run, a version command that fails is a failure of the product.
        let installed = match system::check(&catalog, subject) {
            Ok(Ok(installed)) => installed,
            Ok(Err(missing)) => return Ok(Some(ProductFailure::of_text(&missing.to_string()))),
            Err(error) => return Ok(Some(ProductFailure::of_text(&format!("{error:#}")))),
        };
        let checked = trial::check(&CheckRequest {
            catalog: &catalog,
            case,
            subject,
            installed: &installed,
            cpus: experiment.cpus.as_ref(),
            tollgate: self.request.tollgate,
            dir: &folder,
            interrupt: self.request.interrupt,
        })?;
        Ok(match checked {
            Ok(checked) => checked.refused.map(|reason| refused(&reason)),
            Err(failure) => Some(not_started(&failure)),
        })
    }
}

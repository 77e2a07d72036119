//! The manifest of a run, made from its experiment and the state of its subjects.

use crate::experiment::{Case, Experiment};
use crate::external::External;
use crate::workload::{self, Delivery};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tollgate_records::case::{CaseManifest, ResponsesManifest};
use tollgate_records::machine::{CpuLayout, Environment};
use tollgate_records::manifest::{ExperimentManifest, HostManifest, Manifest, SCHEMA, VERSION};
use tollgate_records::subject::{SubjectManifest, SubjectState};
use tollgate_traffic::RecordedResponses;

/// Inputs of a run besides its experiment.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub seed: u64,
    pub quick: bool,
    /// Words of the command that repeats the run.
    pub command: Vec<String>,
    /// Working directory of that command.
    pub directory: PathBuf,
}

impl Experiment {
    /// Returns the manifest of a run that starts now.
    pub fn manifest(
        &self,
        states: Vec<SubjectState>,
        layout: &CpuLayout,
        environment: Environment,
        hosts: Vec<HostManifest>,
        invocation: &Invocation,
    ) -> Manifest {
        let mixes = self
            .cases
            .iter()
            .flat_map(|case| std::iter::once(&case.mix_source).chain(&case.mix_included))
            .chain(&self.corpus.sources)
            .map(|source| (source.name.clone(), source.text.clone()));
        let subjects = self.subjects.iter().zip(states);
        let subjects = subjects.map(|(subject, state)| SubjectManifest {
            name: subject.name.clone(),
            about: subject.about.clone(),
            system: subject.recipe.name.clone(),
            recipe: subject.recipe.found_in.clone(),
            options: subject.options.clone(),
            prefix: subject.prefix.clone(),
            external: subject.external.as_ref().map(External::manifest),
            state,
        });
        Manifest {
            schema: SCHEMA,
            tollgate: VERSION.to_owned(),
            started_at: jiff::Timestamp::now().to_string(),
            command: invocation.command.clone(),
            directory: invocation.directory.display().to_string(),
            seed: invocation.seed,
            experiment: ExperimentManifest {
                name: self.name.clone(),
                title: self.title.clone(),
                file: self.source.name.clone(),
                text: self.source.text.clone(),
                quick: invocation.quick,
                stop: self.stop,
                margin: self.margin,
                limits: self.limits,
                baseline: self.subjects[self.baseline].name.clone(),
                aa_subject: self.aa_subject.map(|at| self.subjects[at].name.clone()),
                summary: self.summary,
                bytes: self.bytes,
                latency: self.latency,
                catch: self.catch,
                corpus: self.corpus.requests(),
                requests: if self.catch {
                    self.cases.iter().map(probe_requests).collect()
                } else {
                    BTreeMap::new()
                },
                cases: self.cases.iter().map(|case| case_manifest(case, self)).collect(),
                mixes: mixes.collect(),
                subjects: subjects.collect(),
                ablation: self.ablation.clone(),
            },
            cpu_layout: layout.clone(),
            environment,
            hosts,
        }
    }
}

fn case_manifest(case: &Case, experiment: &Experiment) -> CaseManifest {
    let name = |at: &usize| experiment.subjects[*at].name.clone();
    CaseManifest {
        name: case.name.clone(),
        mix: case.mix.title().to_owned(),
        mix_file: case.mix_source.name.clone(),
        origins: case.origins,
        responses: RecordedResponses::of(&case.mix).as_ref().map(responses_manifest),
        load: case.load.clone(),
        only_subjects: if case.subjects.len() == experiment.subjects.len() {
            Vec::new()
        } else {
            case.subjects.iter().map(name).collect()
        },
    }
}

fn responses_manifest(responses: &RecordedResponses) -> ResponsesManifest {
    let groups = || responses.by_request();
    ResponsesManifest {
        requests: groups().count(),
        in_turn: groups().filter(|group| group.len() > 1).count(),
        without_length: groups().flatten().filter(|one| one.bytes.is_none()).count(),
    }
}

/// Returns the name of a case, and its probe requests by template.
fn probe_requests(case: &Case) -> (String, BTreeMap<String, String>) {
    let as_written =
        Delivery { prefix: "", host: None, keep_alive: true, blocks: None, responses: None };
    // A mix that cannot be rendered was rejected before.
    let samples = workload::samples(&case.mix, &as_written).unwrap_or_default();
    let lines = samples.iter().map(|sample| workload::in_one_line(&sample.message));
    let names = case.mix.templates().iter().map(|template| template.name.clone());
    (case.name.clone(), names.zip(lines).collect())
}

//! Tables of the trials, the machine and the subjects.

use super::{Row, Table, cell, figure, plain};
use crate::html::course::{FIGURES, Timed};
use tollgate_experiment::manifest::{Manifest, SubjectManifest, SubjectState};
use tollgate_stats::number::{counted, significant, with_decimals};

/// The trials, as in the timeline.
pub(in crate::html) fn trials(title: &str, trials: &[Timed<'_>]) -> Table {
    let row = |trial: &Timed<'_>| {
        let record = trial.record;
        let again = match record.attempt {
            1 => String::new(),
            attempt => format!(", attempt {attempt}"),
        };
        let mut cells = vec![
            plain(&format!("{}{again}", record.block)),
            cell("begin_s", Some(trial.at_s), with_decimals(trial.at_s, 1)),
        ];
        cells.extend(
            FIGURES
                .iter()
                .map(|one| figure(one.id, trial.measurement().and_then(one.of), significant)),
        );
        cells.push(plain(match (trial.measurement(), trial.reasons.is_empty()) {
            (_, true) => "yes",
            (Some(_), false) => "no",
            (None, false) => "not measured",
        }));
        Row { name: record.subject.clone(), key: None, cells }
    };
    let figures = FIGURES.iter().map(|figure| figure.name);
    let header = ["subject", "block", "start, s"].into_iter().chain(figures).chain(["valid"]);
    Table {
        caption: format!("Trials, {title}"),
        of: String::new(),
        prose: false,
        header: header.map(str::to_owned).collect(),
        rows: trials.iter().map(row).collect(),
    }
}

pub(in crate::html) fn environment(manifest: &Manifest) -> Table {
    let environment = &manifest.environment;
    let layout = &manifest.cpu_layout;
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    let cpus = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let (soft, hard) = environment.open_files;
    let mut pairs = vec![
        ("tollgate", manifest.tollgate.clone()),
        ("start of the run", manifest.started_at.clone()),
        ("seed", manifest.seed.to_string()),
        ("kernel", environment.kernel.clone()),
        ("CPU", told(&environment.cpu_model)),
        ("CPUs online", environment.cpus.to_string()),
        ("hypervisor", told(&environment.hypervisor)),
        ("frequency governor", told(&environment.governor)),
        ("clock source", told(&environment.clock_source)),
        ("open files, soft and hard limit", format!("{soft}, {hard}")),
        ("somaxconn", told(&environment.somaxconn)),
        ("ports of outgoing connections", told(&environment.port_range)),
        ("CPU of the generator", cpus(&layout.generator)),
        ("CPU of the origin", cpus(&layout.origin)),
        ("CPU of the system", cpus(&layout.system)),
    ];
    let mitigations = environment.mitigations.iter();
    pairs.extend(mitigations.map(|(flaw, state)| (flaw.as_str(), state.clone())));
    let rows = pairs.into_iter().map(|(name, text)| Row {
        name: name.to_owned(),
        key: None,
        cells: vec![plain(&text)],
    });
    Table {
        caption: "The machine and the run".to_owned(),
        of: String::new(),
        prose: true,
        header: ["property", "value"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

pub(in crate::html) fn subjects(manifest: &Manifest) -> Table {
    let row = |subject: &SubjectManifest| {
        let options = subject.options.iter().map(|(name, value)| format!("{name} = {value}"));
        let options = options.collect::<Vec<_>>().join(", ");
        let (version, hashes) = match &subject.state {
            SubjectState::Present { installed, referenced, .. } => {
                let programs = installed
                    .hashes
                    .iter()
                    .map(|(path, hash)| format!("{} {}", path.display(), short(hash)));
                let mut words: Vec<String> = programs.collect();
                if !referenced.is_empty() {
                    words.push(counted(referenced.len(), "file") + " of rules");
                }
                (installed.version.join("; "), words.join("; "))
            }
            SubjectState::Skipped { missing } => (format!("skipped: {missing}"), String::new()),
            SubjectState::Broken { reason } => (format!("failed: {reason}"), String::new()),
        };
        let cells = [&subject.about, &subject.system, &options, &version, &hashes];
        Row { name: subject.name.clone(), key: None, cells: cells.map(|text| plain(text)).into() }
    };
    let header = ["subject", "what it is", "system", "options", "version", "programs, SHA-256"];
    Table {
        caption: "The subjects".to_owned(),
        of: String::new(),
        prose: true,
        header: header.map(str::to_owned).to_vec(),
        rows: manifest.experiment.subjects.iter().map(row).collect(),
    }
}

const UNKNOWN: &str = "unknown";

/// A prefix that distinguishes two hashes; the manifest contains the full hash.
fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

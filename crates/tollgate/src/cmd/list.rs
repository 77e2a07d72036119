//! `tollgate list`.

use super::prepare::CatalogArgs;
use crate::console::{self, Exit, Failure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::iter;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::{Catalog, Kind};
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_records::subject::{Installed, OptionValue, Options};
use tollgate_runner::system::{self, Versions};

/// Arguments of `tollgate list` and `tollgate systems list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    if args.json {
        let list = json!({
            "experiments": experiments_json(catalog),
            "systems": systems_json(catalog),
            "mixes": mixes_json(catalog),
        });
        return print_json(&list);
    }
    let mut text = String::from("Experiments (tollgate run NAME):\n");
    let mut all_valid = true;
    for name in catalog.names(Kind::Experiment) {
        let about = match Experiment::load(catalog, &name, &Adjustments::default()) {
            Ok(experiment) => {
                let subjects: Vec<&str> =
                    experiment.subjects.iter().map(|s| s.name.as_str()).collect();
                format!("{} ({})", experiment.title, subjects.join(", "))
            }
            Err(error) => broken(&mut all_valid, &error),
        };
        writeln!(text, "  {name:<18} {about}")?;
    }
    text += "\nSystems (system = \"NAME\" in an experiment):\n";
    for (name, system) in systems(catalog) {
        let about = match system {
            Ok(system) => system.description,
            Err(error) => broken(&mut all_valid, &error),
        };
        writeln!(text, "  {name:<18} {about}")?;
    }
    text += "\nMixes (mix = \"NAME\" in an experiment):\n";
    for name in catalog.names(Kind::Mix) {
        let about = match catalog.mix(&name, Path::new(".")) {
            Ok((mix, _)) => mix.title().to_owned(),
            Err(error) => broken(&mut all_valid, &error),
        };
        writeln!(text, "  {name:<18} {about}")?;
    }
    console::print(&text)?;
    Ok(if all_valid { Exit::Success } else { Exit::BadInput })
}

/// Prints a list. Fails if an entry has an error, as without `--json`.
pub(crate) fn print_json(list: &Value) -> Result<Exit, Failure> {
    console::print(&format!("{list:#}\n"))?;
    let lists = list.as_object().map_or(vec![list], |lists| lists.values().collect());
    let mut entries = lists.into_iter().filter_map(Value::as_array).flatten();
    let is_broken = entries.any(|entry| entry.get("error").is_some());
    Ok(if is_broken { Exit::BadInput } else { Exit::Success })
}

fn experiments_json(catalog: &Catalog) -> Value {
    let entry = |name: String| match Experiment::load(catalog, &name, &Adjustments::default()) {
        Ok(experiment) => {
            let subjects = experiment.subjects.iter().map(|subject| &subject.name);
            let cases = experiment.cases.iter().map(|case| &case.name);
            json!({
                "name": name, "title": experiment.title,
                "subjects": subjects.collect::<Vec<_>>(), "cases": cases.collect::<Vec<_>>(),
            })
        }
        Err(error) => json!({"name": name, "error": format!("{error:#}")}),
    };
    catalog.names(Kind::Experiment).into_iter().map(entry).collect()
}

fn mixes_json(catalog: &Catalog) -> Value {
    let entry = |name: String| match catalog.mix(&name, Path::new(".")) {
        Ok((mix, _)) => json!({"name": name, "title": mix.title()}),
        Err(error) => json!({"name": name, "error": format!("{error:#}")}),
    };
    catalog.names(Kind::Mix).into_iter().map(entry).collect()
}

pub(crate) fn systems_json(catalog: &Catalog) -> Value {
    let entry = |(name, system): (String, anyhow::Result<SystemState>)| match system {
        Ok(SystemState { title, versions, missing, further, .. }) => json!({
            "name": name, "title": title, "installed": missing.is_none(), "versions": versions,
            "missing": missing, "further": further,
        }),
        Err(error) => json!({"name": name, "error": format!("{error:#}")}),
    };
    systems(catalog).into_iter().map(entry).collect()
}

/// A system as shown by `list` and `doctor`.
pub(crate) struct SystemState {
    pub(crate) title: String,
    /// With its default options.
    pub(crate) versions: Vec<String>,
    /// Missing programs and files with the default options; `None` if it is installed.
    pub(crate) missing: Option<String>,
    /// Missing programs and files with other values of its options.
    pub(crate) further: BTreeSet<String>,
    /// Title, versions, and what is missing.
    pub(crate) description: String,
    /// With its default options.
    pub(crate) installed: bool,
}

/// Checks all systems, several at a time, because version commands take most of the time. Sorted by name.
pub(crate) fn systems(catalog: &Catalog) -> Vec<(String, anyhow::Result<SystemState>)> {
    let names = catalog.names(Kind::System);
    let (versions, next) = (Versions::default(), AtomicUsize::new(0));
    let search = || {
        let name = || names.get(next.fetch_add(1, Ordering::Relaxed));
        let found = |name: &String| (name.clone(), system(catalog, name, &versions));
        iter::from_fn(name).map(found).collect::<Vec<_>>()
    };
    let mut found = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(search)).collect();
        let found = threads.into_iter().flat_map(|thread| match thread.join() {
            Ok(found) => found,
            Err(panic) => resume_unwind(panic),
        });
        found.collect::<Vec<_>>()
    });
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

const THREADS: usize = 8;

/// Checks a system with its default options and with each other value of one option, which may need more packages.
pub(crate) fn system(
    catalog: &Catalog,
    name: &str,
    versions: &Versions,
) -> anyhow::Result<SystemState> {
    let subject = default_subject(catalog, name)?;
    let found = system::find(catalog, &subject, versions)?;
    let mut further = BTreeSet::new();
    for (option, value, variant) in variants(&subject) {
        match (&found, system::find(catalog, &variant, versions)?) {
            (Ok(_), Err(missing)) => {
                further.insert(format!("{option} = \"{value}\" is missing: {missing}"));
            }
            (Ok(present), Ok(other)) => {
                further.extend(further_versions(option, value, present, &other));
            }
            (Err(_), _) => {}
        }
    }
    let title = subject.recipe.file.title;
    let mut lines = vec![title.clone()];
    let installed = found.is_ok();
    let (versions, missing) = match found {
        Ok(present) => (present.version, None),
        Err(missing) => (Vec::new(), Some(missing.to_string())),
    };
    lines.push(match &missing {
        None if versions.is_empty() => "nothing to install".to_owned(),
        None => format!("installed: {}", versions.join(", ")),
        Some(missing) => format!("missing: {missing}"),
    });
    lines.extend(further.iter().cloned());
    let description = lines.join("\n").replace('\n', &format!("\n{:DESCRIPTION_COLUMN$}", ""));
    Ok(SystemState { title, versions, missing, further, description, installed })
}

/// Returns the installed programs and files of a system that come from packages, for all values of its options.
pub(crate) fn packaged(catalog: &Catalog, name: &str) -> anyhow::Result<BTreeSet<PathBuf>> {
    let subject = default_subject(catalog, name)?;
    let mut paths = BTreeSet::from_iter(system::packaged(catalog, &subject)?);
    for (_, _, variant) in variants(&subject) {
        paths.extend(system::packaged(catalog, &variant)?);
    }
    Ok(paths)
}

fn default_subject(catalog: &Catalog, name: &str) -> anyhow::Result<Subject> {
    Ok(Subject::new(name, catalog.recipe(name)?, &Options::new())?)
}

/// Returns the subject with each other value of one option: option, value, subject.
fn variants(subject: &Subject) -> Vec<(&str, &str, Subject)> {
    let mut variants = Vec::new();
    for (option, spec) in &subject.recipe.file.option {
        for value in spec.values.iter().flatten() {
            let mut variant = subject.clone();
            let chosen = OptionValue::Text(value.clone());
            variant.options.insert(option.clone(), chosen);
            variants.push((option.as_str(), value.as_str(), variant));
        }
    }
    variants
}

/// Describes the versions that a value of an option adds, such as of a rule set.
fn further_versions(
    option: &str,
    value: &str,
    present: &Installed,
    other: &Installed,
) -> Option<String> {
    let more: Vec<&str> = other
        .version
        .iter()
        .filter(|version| !present.version.contains(version))
        .map(String::as_str)
        .collect();
    (!more.is_empty()).then(|| format!("{option} = \"{value}\": {}", more.join(", ")))
}

const DESCRIPTION_COLUMN: usize = 21;

fn broken(all_valid: &mut bool, error: &anyhow::Error) -> String {
    *all_valid = false;
    format!("cannot be used: {error:#}")
}

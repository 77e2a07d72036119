//! `tollgate list`: what there is to run.

use super::catalog::CatalogArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::iter;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tollgate_lab::inputs::catalog::{Catalog, Kind};
use tollgate_lab::inputs::experiment::{Adjustments, Experiment, Subject};
use tollgate_lab::inputs::options;
use tollgate_lab::system::installed::{self, Installed};
use tollgate_lab::system::versions::Versions;

pub(crate) fn run(args: &CatalogArgs) -> Result<Exit, Failure> {
    let catalog = &args.open()?;
    let mut text = String::from("Experiments (tollgate run NAME):\n");
    let mut all_sound = true;
    for name in catalog.names(Kind::Experiment) {
        let about = match Experiment::load(catalog, &name, &Adjustments::default()) {
            Ok(experiment) => {
                let subjects: Vec<&str> =
                    experiment.subjects.iter().map(|s| s.name.as_str()).collect();
                format!("{} ({})", experiment.title, subjects.join(", "))
            }
            Err(error) => broken(&mut all_sound, &error.into()),
        };
        writeln!(text, "  {name:<18} {about}")?;
    }
    text += "\nSystems (system = \"NAME\" in an experiment):\n";
    for (name, system) in systems(catalog) {
        let about = match system {
            Ok(system) => system.in_words,
            Err(error) => broken(&mut all_sound, &error),
        };
        writeln!(text, "  {name:<18} {about}")?;
    }
    text += "\nMixes (mix = \"NAME\" in an experiment):\n";
    for name in catalog.names(Kind::Mix) {
        let about = match catalog.mix(&name, Path::new(".")) {
            Ok((mix, _)) => mix.title().to_owned(),
            Err(error) => broken(&mut all_sound, &error.into()),
        };
        writeln!(text, "  {name:<18} {about}")?;
    }
    output::print(&text)?;
    Ok(if all_sound { Exit::Done } else { Exit::BadInput })
}

/// A system as `list` and `doctor` tell it.
pub(crate) struct SystemState {
    /// What it is, whether it is installed and in which version, and what to type if not.
    pub(crate) in_words: String,
    /// Whether every part that its default options need is installed.
    pub(crate) installed: bool,
}

/// Looks for every system, several at a time: most of the time goes by while their version commands run. By name.
pub(crate) fn systems(catalog: &Catalog) -> Vec<(String, anyhow::Result<SystemState>)> {
    let names = catalog.names(Kind::System);
    let (versions, next) = (Versions::default(), AtomicUsize::new(0));
    let look = || {
        let name = || names.get(next.fetch_add(1, Ordering::Relaxed));
        let found = |name: &String| (name.clone(), system(catalog, name, &versions));
        iter::from_fn(name).map(found).collect::<Vec<_>>()
    };
    let mut found = thread::scope(|scope| {
        let lookers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(look)).collect();
        let found = lookers.into_iter().flat_map(|looker| match looker.join() {
            Ok(found) => found,
            Err(panic) => resume_unwind(panic),
        });
        found.collect::<Vec<_>>()
    });
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

const AT_ONCE: usize = 8;

/// Looks for a system under its default options and under every single other word of them, because
/// an option may need a package more.
///
/// # Errors
///
/// The recipe is wrong.
pub(crate) fn system(
    catalog: &Catalog,
    name: &str,
    versions: &Versions,
) -> anyhow::Result<SystemState> {
    let subject = by_default(catalog, name)?;
    let found = installed::find(catalog, &subject, versions)?;
    let mut further = BTreeSet::new();
    for (option, word, variant) in variants(&subject) {
        match (&found, installed::find(catalog, &variant, versions)?) {
            (Ok(_), Err(lack)) => {
                further.insert(format!("{option} = \"{word}\" is missing: {lack}"));
            }
            (Ok(present), Ok(other)) => further.extend(besides(option, word, present, &other)),
            (Err(_), _) => {}
        }
    }
    let mut lines = vec![subject.recipe.file.title];
    let installed = found.is_ok();
    match found {
        Ok(present) if present.version.is_empty() => lines.push("nothing to install".to_owned()),
        Ok(present) => lines.push(format!("installed: {}", present.version.join(", "))),
        Err(lack) => lines.push(format!("missing: {lack}")),
    }
    lines.extend(further);
    // Each line begins in one column; what is indented below its own line stays so.
    let in_words = lines.join("\n").replace('\n', &format!("\n{:ABOUT_COLUMN$}", ""));
    Ok(SystemState { in_words, installed })
}

/// The programs and files of a system that packages bring and that are there, under its default options and under
/// every single other word of them.
///
/// # Errors
///
/// The recipe is wrong.
pub(crate) fn packaged(catalog: &Catalog, name: &str) -> anyhow::Result<BTreeSet<PathBuf>> {
    let subject = by_default(catalog, name)?;
    let mut places = BTreeSet::from_iter(installed::packaged(catalog, &subject)?);
    for (_, _, variant) in variants(&subject) {
        places.extend(installed::packaged(catalog, &variant)?);
    }
    Ok(places)
}

fn by_default(catalog: &Catalog, name: &str) -> anyhow::Result<Subject> {
    let recipe = catalog.recipe(name)?;
    Ok(Subject {
        name: name.to_owned(),
        options: options::choose(name, &recipe.file.option, &options::Options::new())?,
        recipe,
        prefix: String::new(),
        about: String::new(),
        lacks_rules: false,
        tells_probe: false,
    })
}

/// A subject with every other word that an option of it may be, one at a time.
fn variants(subject: &Subject) -> Vec<(&str, &str, Subject)> {
    let mut variants = Vec::new();
    for (option, spec) in &subject.recipe.file.option {
        for word in spec.values.iter().flatten() {
            let mut variant = subject.clone();
            let value = options::OptionValue::Text(word.clone());
            variant.options.insert(option.clone(), value);
            variants.push((option.as_str(), word.as_str(), variant));
        }
    }
    variants
}

/// What another word of an option brings besides what is in use by default, such as a rule set.
fn besides(option: &str, word: &str, present: &Installed, other: &Installed) -> Option<String> {
    let more: Vec<&str> = other
        .version
        .iter()
        .filter(|version| !present.version.contains(version))
        .map(String::as_str)
        .collect();
    (!more.is_empty()).then(|| format!("{option} = \"{word}\": {}", more.join(", ")))
}

/// Where the texts beside the names begin.
const ABOUT_COLUMN: usize = 21;

fn broken(all_sound: &mut bool, error: &anyhow::Error) -> String {
    *all_sound = false;
    format!("cannot be used: {error:#}")
}

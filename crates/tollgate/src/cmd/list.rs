//! `tollgate list`: what there is to run.

use super::catalog::CatalogArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use tollgate_lab::inputs::catalog::{Catalog, Kind};
use tollgate_lab::inputs::experiment::{Adjustments, Experiment, Subject};
use tollgate_lab::inputs::options;
use tollgate_lab::system::installed::{self, Installed};

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
    for name in catalog.names(Kind::System) {
        let about = match system(catalog, &name) {
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

/// Looks for a system under its default options and under every single other word of them, because
/// an option may need a package more.
///
/// # Errors
///
/// The recipe is wrong.
pub(crate) fn system(catalog: &Catalog, name: &str) -> anyhow::Result<SystemState> {
    let recipe = catalog.recipe(name)?;
    let title = recipe.file.title.clone();
    let subject = Subject {
        name: name.to_owned(),
        options: options::choose(name, &recipe.file.option, &options::Options::new())?,
        recipe,
        prefix: String::new(),
        about: String::new(),
        lacks_rules: false,
        tells_probe: false,
    };
    let found = installed::find(catalog, &subject)?;
    let mut further = BTreeSet::new();
    for (option, spec) in &subject.recipe.file.option {
        for word in spec.values.iter().flatten() {
            let mut variant = subject.clone();
            let value = options::OptionValue::Text(word.clone());
            variant.options.insert(option.clone(), value);
            match (&found, installed::find(catalog, &variant)?) {
                (Ok(_), Err(lack)) => {
                    further.insert(format!("{option} = \"{word}\" is missing: {lack}"));
                }
                (Ok(present), Ok(other)) => further.extend(besides(option, word, present, &other)),
                (Err(_), _) => {}
            }
        }
    }
    let mut lines = vec![title];
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

//! Everything that a batch measures with, besides the revisions. A batch continues only if it is unchanged.

use crate::repository::unique_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Experiment;
use tollgate_records::difference::differences;
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::files::hash_text;
use tollgate_records::manifest::VERSION;
use tollgate_records::subject::SubjectState;
use tollgate_runner::system::state::{self, NotInstalled, config_dir};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Version and commit of tollgate.
    pub tollgate: String,
    /// Versions of the build tools, by command.
    pub tools: BTreeMap<String, String>,
    /// SHA-256 of the mix and its includes, by file name without folder.
    pub mixes: BTreeMap<String, String>,
    /// SHA-256 of the recipe, of the one in `options_from`, and of copied catalog files. Templates are covered by the configs.
    pub recipe: BTreeMap<String, String>,
    pub system: SystemInputs,
}

/// The installed system, with the anchor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemInputs {
    pub versions: Vec<String>,
    /// SHA-256 of its programs and of the files that its configs include.
    pub files: BTreeMap<String, String>,
    /// SHA-256.
    pub configs: BTreeMap<String, String>,
    pub rule_set: Option<String>,
}

impl Inputs {
    /// Collects the inputs of an experiment with only the anchor. `batch`: directory of the batch; `configs`: folder for the
    /// rendered configs.
    pub(crate) fn of(
        catalog: &Catalog,
        experiment: &Experiment,
        tools: BTreeMap<String, String>,
        batch: &Path,
        configs: &Path,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            tollgate: VERSION.to_owned(),
            tools,
            mixes: mixes(experiment),
            recipe: recipe(catalog, experiment)?,
            system: system(catalog, experiment, batch, configs)?,
        })
    }

    /// Checks that the inputs equal those of the start of the batch. `moved` describes the difference to the
    /// catalog of the start.
    pub(crate) fn check_unchanged(
        &self,
        original: &Self,
        moved: Option<&str>,
    ) -> anyhow::Result<()> {
        let as_value = |inputs: &Self| serde_json::to_value(inputs).unwrap_or_default();
        let differences = differences(&as_value(original), &as_value(self));
        if differences.is_empty() {
            return Ok(());
        }
        let lines = differences.iter().map(ToString::to_string);
        let lines = lines.chain(moved.map(str::to_owned));
        let listed: String = lines.map(|line| format!("\n  {line}")).collect();
        Err(bad_input(format!(
            "the inputs of the batch have changed:{listed}\n\
             Restore them, or choose another --out for a new series"
        )))
    }
}

const SYSTEM_FILE: &str = "system.toml";

fn mixes(experiment: &Experiment) -> BTreeMap<String, String> {
    let cases = experiment.cases.iter();
    let sources =
        cases.flat_map(|case| std::iter::once(&case.mix_source).chain(&case.mix_included));
    let mut hashes = BTreeMap::new();
    for source in sources {
        let file = source.name.rsplit('/').next().unwrap_or_default();
        // Files of the same name in several folders are numbered in the order of inclusion.
        let name = unique_name(file, |name| hashes.contains_key(name));
        hashes.insert(name, hash_text(&source.text));
    }
    hashes
}

fn recipe(catalog: &Catalog, experiment: &Experiment) -> anyhow::Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for subject in &experiment.subjects {
        let file = &subject.recipe.file;
        for system in std::iter::once(&subject.recipe.name).chain(&file.options_from) {
            let source = catalog.template(&format!("{system}/{SYSTEM_FILE}"))?;
            hashes.insert(format!("systems/{system}/{SYSTEM_FILE}"), hash_text(&source.text));
        }
        for copied in &file.copy {
            for source in catalog.files(&copied.from)? {
                let name = format!("{}: {}", copied.from, source.name);
                hashes.insert(name, hash_text(&source.text));
            }
        }
    }
    Ok(hashes)
}

/// Describes the installed system of the anchor, without the path of the batch, which may be moved.
fn system(
    catalog: &Catalog,
    experiment: &Experiment,
    batch: &Path,
    configs: &Path,
) -> anyhow::Result<SystemInputs> {
    let mut message = String::new();
    let mut notify = |absent: NotInstalled<'_>| message = absent.to_string();
    let state = state::states(catalog, experiment, configs, &mut notify).pop();
    let (Some(subject), Some(SubjectState::Present { installed, configs: names, referenced })) =
        (experiment.subjects.first(), state)
    else {
        return Err(bad_input(format!("cannot run the system of the revisions: {message}")));
    };
    let batch = batch.display().to_string();
    let placeless = |text: &str| text.replace(&batch, "BATCH");
    let hash = |name: String| {
        let path = config_dir(configs, subject).join(&name);
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        Ok((name, hash_text(&placeless(&text))))
    };
    let files = installed.hashes.into_iter().chain(referenced);
    let files = files.map(|(path, hash)| (placeless(&path.display().to_string()), hash));
    Ok(SystemInputs {
        versions: installed.version,
        files: files.collect(),
        configs: names.into_keys().map(hash).collect::<anyhow::Result<_>>()?,
        rule_set: installed.rule_set.map(|set| set.hash),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_experiment::adjust::Adjustments;

    const SYSTEM: &str = "title = 'a system'\nversion = [['echo', '1']]\ntemplates = ['a.conf']\n\
                          [option.binary]\ndefault = '/nowhere'\npath = true\nabout = ''\n\
                          [[need]]\nfile = '{{ binary }}'\n\
                          [[process]]\nname = 'a'\ncommand = ['true']\n";
    const CONFIG: &str = "run {{ binary }} in {{ dir }}";
    const MIX: &str = "title = 'a mix'\nheaders = ['Host: a']\n[[template]]\nname = 'a'\nclass = 'benign'\n\
                       weight = 1\npath = '/'\n";
    const EXPERIMENT: &str = "title = 't'\nbaseline = 'anchor'\n[[case]]\nname = 'c'\nmix = 'm'\n\
                              load = { connections = 1, duration = '1s' }\n[[subject]]\nname = 'anchor'\n\
                              system = 'a'\nwith = { binary = 'BATCH/server' }\n";

    fn inputs(dir: &Path, cc: &str) -> anyhow::Result<Inputs> {
        inputs_in(dir, &dir.join("batch"), cc)
    }

    fn inputs_in(dir: &Path, batch: &Path, cc: &str) -> anyhow::Result<Inputs> {
        let catalog = Catalog::new(vec![dir.to_owned()]);
        let path = dir.join("anchor.toml");
        let text = EXPERIMENT.replace("BATCH", &batch.display().to_string());
        fs::write(&path, text).unwrap();
        fs::create_dir_all(batch).unwrap();
        fs::write(batch.join("server"), "").unwrap();
        let path = path.display().to_string();
        let experiment = Experiment::load(&catalog, &path, &Adjustments::default()).unwrap();
        let tools = BTreeMap::from([("cc --version".to_owned(), cc.to_owned())]);
        Inputs::of(&catalog, &experiment, tools, batch, &batch.join("inputs"))
    }

    #[test]
    fn changes_of_all_inputs_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let files = [
            ("mixes/m.toml", MIX),
            ("systems/a/system.toml", SYSTEM),
            ("systems/a/a.conf", CONFIG),
        ];
        for (name, text) in files {
            write(name, text);
        }
        let original = inputs(dir.path(), "cc 12").unwrap();
        inputs(dir.path(), "cc 12").unwrap().check_unchanged(&original, None).unwrap();
        let message = |cc: &str| {
            inputs(dir.path(), cc)
                .unwrap()
                .check_unchanged(&original, None)
                .unwrap_err()
                .to_string()
        };
        assert!(
            message("cc 13").contains("\n  tools.cc --version: cc 12, now cc 13\n"),
            "{}",
            message("cc 13")
        );
        for ((name, text), place) in files.into_iter().zip(["mixes.", "recipe.", "system."]) {
            write(name, &format!("{text}\n# changed\n"));
            let message = message("cc 12");
            assert!(message.contains(&format!("\n  {place}")), "{name}: {message}");
            assert!(message.ends_with("choose another --out for a new series"), "{message}");
            write(name, text);
        }
        // A moved batch has the same inputs.
        let moved = inputs_in(dir.path(), &dir.path().join("moved"), "cc 12").unwrap();
        moved.check_unchanged(&original, Some("catalog: /a, now /b")).unwrap();
        let older = Inputs { tollgate: "0.0.1 (abc)".to_owned(), ..original.clone() };
        let message =
            original.check_unchanged(&older, Some("catalog: /a, now /b")).unwrap_err().to_string();
        assert!(message.contains("\n  tollgate: 0.0.1 (abc), now "), "{message}");
        assert!(message.contains("\n  catalog: /a, now /b\nRestore "), "{message}");
    }

    #[test]
    fn mixes_are_compared_by_content() {
        let hashes = |folder: &Path, included: &str| {
            let write = |name: &str, text: &str| {
                let path = folder.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("systems/a/system.toml", SYSTEM);
            write("systems/a/a.conf", CONFIG);
            write("mixes/parts/m.toml", &MIX.replace("path = '/'", included));
            let include = format!("{}[[include]]\nmix = 'parts/m'\n", MIX.replace("'a'", "'own'"));
            write("mixes/m.toml", &include);
            inputs(folder, "cc 12").unwrap().mixes
        };
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = [folders[0].path(), folders[1].path()];
        let original = hashes(one, "path = '/'");
        assert_eq!(original.keys().collect::<Vec<_>>(), ["m.toml", "m.toml-2"]);
        assert_eq!(hashes(other, "path = '/'"), original);
        assert_ne!(hashes(other, "path = '/other'"), original);
    }

    #[test]
    fn missing_system_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["mixes", "systems/a"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("mixes/m.toml"), MIX).unwrap();
        let needs = format!("{SYSTEM}[[need]]\nprogram = 'no-such-program'\n");
        fs::write(dir.path().join("systems/a/system.toml"), needs).unwrap();
        fs::write(dir.path().join("systems/a/a.conf"), CONFIG).unwrap();
        let error = inputs(dir.path(), "cc 12").unwrap_err().to_string();
        assert!(
            error.contains("cannot run the system of the revisions: anchor is skipped: no program"),
            "{error}"
        );
    }
}

//! `tollgate init`: writes a commented experiment or recipe to start from.

use crate::console::{self, Exit, Failure};
use anyhow::{Context, anyhow, bail};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::{Catalog, Kind};
use tollgate_experiment::experiment::Experiment;
use tollgate_experiment::side_by_side::SideBySide;
use tollgate_traffic::units::Span;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate init                            experiment.toml: nginx and HAProxy
  tollgate init nginx nginx-modsecurity:rules=crs,engine=on --out waf.toml
  tollgate init old=nginx:workers=1 new=nginx:workers=2
  tollgate init --system lighttpd          systems/lighttpd/: a recipe

Existing files are not replaced.")]
pub(crate) struct Args {
    /// Systems to compare, the first of which is the baseline, as in `tollgate run`
    #[arg(value_name = "SYSTEM", default_values = ["nginx", "haproxy"])]
    systems: Vec<String>,
    /// File of the experiment
    #[arg(long, value_name = "FILE.toml", default_value = "experiment.toml")]
    out: PathBuf,
    /// Write a recipe for a new system, in systems/NAME/
    #[arg(long, value_name = "NAME", conflicts_with_all = ["systems", "out"], value_parser = name)]
    system: Option<String>,
}

const RECIPE: &str = r#"# How to install, start and configure a system. docs/systems.md describes all keys.

title     = "NAME as a reverse proxy"
apt       = ["NAME"] # Debian packages, for `tollgate systems install NAME`
templates = ["NAME.conf"] # configuration files in this folder, rendered for each trial
version   = [['{{ programs["NAME"] }}', "-v"]] # prints the version

# The program. Without it, the system is skipped.
[[need]]
program = "NAME"

# An option for experiments: with = { workers = 2 }.
[option.workers]
about   = "worker processes"
default = 1
minimum = 1
maximum = 64

# The server. It must stay in the foreground.
[[process]]
name    = "NAME"
command = ['{{ programs["NAME"] }}', "-f", "{{ dir }}/NAME.conf"]

# A firewall also says how it blocks attacks:
# [blocks]
# status = 403
"#;

const CONFIG: &str = r#"{# A template for NAME's own syntax. Values: the options, `listen.address`, `origin.address`, `dir`.
   `tollgate systems check NAME` starts NAME and prints its responses. #}
listen  {{ listen.address }}
backend {{ origin.address }}
workers {{ workers }}
"#;

fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !text.is_empty() && !text.starts_with(['.', '-']) && text.chars().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits, `-`, `_` and `.`".to_owned())
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let text = match &args.system {
        Some(name) => {
            if Catalog::new(vec![]).names(Kind::System).contains(name) {
                let error = anyhow!("{name} is a built-in system; choose another name");
                return Err(Failure::bad_input(error));
            }
            let (recipe, config) = write_recipe(Path::new("systems"), name)?;
            format!(
                "{} and {}\nTo try it: tollgate systems check {name}\n",
                recipe.display(),
                config.display()
            )
        }
        None => {
            let sides = SideBySide {
                systems: &args.systems,
                mix: "browse",
                connections: 50,
                duration: Span(Duration::from_secs(2)),
            };
            let catalog = Catalog::new(vec![PathBuf::from(".")]);
            Experiment::from_written(&catalog, sides.experiment()?, &Adjustments::default())?;
            create(&args.out, &sides.commented()?)?;
            let file = args.out.display().to_string();
            format!("{file}\nTo run it: tollgate run {}\n", shell_words::quote(&file))
        }
    };
    console::print(&format!("wrote {text}"))?;
    Ok(Exit::Success)
}

/// Returns the paths of the recipe and its configuration template.
fn write_recipe(systems: &Path, name: &str) -> Result<(PathBuf, PathBuf), Failure> {
    let folder = systems.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let paths = (folder.join("system.toml"), folder.join(format!("{name}.conf")));
    create(&paths.0, &RECIPE.replace("NAME", name))?;
    create(&paths.1, &CONFIG.replace("NAME", name))?;
    Ok(paths)
}

fn create(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || {
        if path.exists() {
            bail!("cannot write {}: it exists; remove it, or choose another name", path.display());
        }
        let cannot = || format!("cannot write {}", path.display());
        let mut file = File::create_new(path).with_context(cannot)?;
        file.write_all(text.as_bytes()).with_context(cannot)
    };
    write().map_err(Failure::bad_input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_recipe_and_experiment_are_valid() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        write_recipe(&folder.path().join("systems"), "my-proxy").unwrap();
        let recipe = catalog.recipe("my-proxy").unwrap();
        assert_eq!(recipe.file.title, "my-proxy as a reverse proxy");
        catalog.template("my-proxy/my-proxy.conf").unwrap();
        let path = folder.path().join("mine.toml");
        let systems = ["nginx".to_owned(), "my-proxy:workers=2".to_owned()];
        let sides = SideBySide {
            systems: &systems,
            mix: "browse",
            connections: 50,
            duration: Span(Duration::from_secs(2)),
        };
        create(&path, &sides.commented().unwrap()).unwrap();
        let name = path.to_str().unwrap();
        let experiment = Experiment::load(&catalog, name, &Adjustments::default()).unwrap();
        assert_eq!(experiment.subjects[1].name, "my-proxy");
    }

    #[test]
    fn existing_files_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        create(&path, "one").unwrap();
        assert!(create(&path, "two").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    }
}

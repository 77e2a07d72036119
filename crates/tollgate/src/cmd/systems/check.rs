//! `tollgate systems check`: does a system do what its recipe says?

use super::recipe;
use crate::cmd::catalog::CatalogArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use crate::signals;
use anyhow::{Context, anyhow};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tollgate_lab::check::{self, CheckRequest, Found};
use tollgate_lab::inputs::experiment::Subject;
use tollgate_lab::inputs::options::{self, OptionValue, Options};
use tollgate_lab::inputs::recipe::Recipe;
use tollgate_lab::process::group;
use tollgate_lab::record::ProbeAnswer;
use tollgate_lab::system::installed::Installed;
use tollgate_lab::trial::Checked;
use tollgate_traffic::Class;

/// What `tollgate systems check` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems check haproxy
  tollgate systems check apache-modsecurity --with rules=crs
  tollgate systems check crowdsec-appsec --with in_band=crs --with bouncer=nginx --mix browse")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The system (see `tollgate systems list`)
    #[arg(value_name = "NAME")]
    system: String,
    /// An option of the system, and its value; may be given several times
    #[arg(long, value_name = "OPTION=VALUE")]
    with: Vec<String>,
    /// The mix whose requests are sent, one of each template: a name, or a file that ends in .toml
    #[arg(long, value_name = "NAME | FILE.toml", default_value = "browse")]
    mix: String,
    /// Keep configs and logs in this directory; by default nothing is kept
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let recipe = recipe(catalog, &args.system)?;
    let options = options(&recipe, &args.with)?;
    let mix = catalog.mix(&args.mix, Path::new(".")).map_err(Failure::bad_input)?;
    let subject = Subject {
        name: args.system.clone(),
        recipe,
        options,
        prefix: String::new(),
        about: String::new(),
        lacks_rules: false,
        tells_probe: false,
    };
    let folder = tempfile::Builder::new().prefix("tollgate-check-").tempdir();
    let folder = folder.context("making a folder for configs and logs")?;
    // Servers are started in it, and told of it: by a path that is the same from everywhere.
    let dir = match &args.out {
        Some(out) => std::path::absolute(out).context("finding the folder to keep")?,
        None => folder.path().to_owned(),
    };
    let interrupt = signals::interrupt(group::hurry).context("asking for signals")?;
    let found = check::check(CheckRequest {
        catalog,
        subject: &subject,
        mix,
        tollgate: &std::env::current_exe().context("finding the tollgate binary")?,
        dir: &dir,
        interrupt: &interrupt,
    })?;
    folder.close().context("removing the folder with configs and logs")?;
    match found {
        Found::Absent(missing) => {
            tell(&format!("{} is not installed: {missing}", args.system));
            Ok(Exit::Failed)
        }
        Found::Failed(installed, failure) => {
            output::print(&about(&subject, &installed)?)?;
            tell(&format!("{}: {}", failure.step, failure.reason));
            for line in &failure.log {
                tell(&format!("    | {line}"));
            }
            Ok(Exit::Failed)
        }
        Found::Answered(installed, checked) => {
            output::print(&about(&subject, &installed)?)?;
            output::print(&answers(&checked)?)?;
            Ok(if checked.refused.is_none() { Exit::Done } else { Exit::Partial })
        }
        Found::Interrupted => Ok(Exit::Interrupted),
    }
}

/// The options that were chosen, as values of the kind that the recipe has, and the rest by default.
fn options(recipe: &Recipe, with: &[String]) -> Result<Options, Failure> {
    let mut chosen = Options::new();
    for word in with {
        let Some((name, value)) = word.split_once('=') else {
            let error = anyhow!("--with {word}: an option and its value are needed, as rules=crs");
            return Err(Failure::bad_input(error));
        };
        let number = value.parse().ok().map(OptionValue::Integer);
        let value = number.unwrap_or_else(|| OptionValue::Text(value.to_owned()));
        chosen.insert(name.to_owned(), value);
    }
    options::choose(&recipe.name, &recipe.file.option, &chosen).map_err(Failure::bad_input)
}

fn about(subject: &Subject, installed: &Installed) -> Result<String, std::fmt::Error> {
    let mut text = format!("{}\n", subject.recipe.file.title);
    let options: Vec<String> =
        subject.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    writeln!(text, "  options   {}", options.join(" "))?;
    for version in &installed.version {
        writeln!(text, "  version   {version}")?;
    }
    for (path, hash) in &installed.hashes {
        writeln!(text, "  sha256    {hash} {}", path.display())?;
    }
    if let Some(rule_set) = &installed.rule_set {
        writeln!(text, "  rule set  {} {}", rule_set.name, rule_set.hash)?;
    }
    Ok(text)
}

fn answers(checked: &Checked) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    if let Some(startup) = checked.startup {
        writeln!(text, "  answers   after {:.0} ms", startup.as_secs_f64() * 1e3)?;
    }
    if let Some(bytes) = checked.memory_peak_bytes {
        let mebibytes = bytes.div_ceil(1 << 20);
        writeln!(text, "  memory    {mebibytes} MiB at its peak, with the probe alone")?;
    }
    let wide = |text: fn(&ProbeAnswer) -> &str| {
        checked.answers.iter().map(|answer| text(answer).chars().count()).max().unwrap_or(0)
    };
    let (name, got) = (wide(|answer| &answer.template), wide(|answer| &answer.got));
    for answer in &checked.answers {
        let mark = if answer.as_expected { "ok  " } else { "FAIL" };
        let owed = if answer.as_expected { "" } else { &format!("owed: {}", answer.expected) };
        let line = format!(
            "{mark}  {:name$}  {:<8}  {:got$}  {owed}",
            answer.template,
            match answer.class {
                Class::Benign => "harmless",
                Class::Malicious => "attack",
            },
            answer.got
        );
        writeln!(text, "{}", line.trim_end())?;
    }
    match &checked.refused {
        None => writeln!(text, "Every answer is the one owed.")?,
        Some(reason) => writeln!(text, "It would be refused: {reason}.")?,
    }
    Ok(text)
}

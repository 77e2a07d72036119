//! `tollgate systems`: lists, installs, builds and checks the systems under test.

use super::list;
use super::prepare::CatalogArgs;
use crate::console::{self, Exit, Failure, eprint_line};
use crate::signals;
use anyhow::{Context, anyhow};
use clap::Subcommand;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;
use tollgate_experiment::catalog::Kind;
use tollgate_experiment::experiment::Subject;
use tollgate_experiment::options;
use tollgate_experiment::recipe::{Build, Recipe};
use tollgate_records::files::hash_file;
use tollgate_records::subject::{Installed, OptionValue, Options};
use tollgate_records::trial::ProbeResponse;
use tollgate_runner::process::{Interrupt, Interrupted, group};
use tollgate_runner::system::{self, Versions, build, go, packages, render};
use tollgate_runner::trial::{self, CheckRequest, Checked};
use tollgate_traffic::Class;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems list                   all systems, one line each
  tollgate systems show nginx             options, versions, missing parts
  tollgate systems install haproxy        Debian packages of a system
  tollgate systems install                Debian packages of all systems
  tollgate systems build caddy-coraza     Caddy with Coraza, from source
  tollgate systems clean                  remove everything that was built
  tollgate systems check nginx-modsecurity --with rules=crs

Exit codes: 0 success; 1 system error, or (check) the system did not start;
2 bad input; 3 (check) a response differs from the recipe; 130 stopped.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the systems
    List(list::Args),
    /// Show the options, versions and missing parts of a system
    Show(ShowArgs),
    /// Install the Debian packages of systems, without starting services
    Install(InstallArgs),
    /// Build what a system needs from source: Go modules at pinned versions
    Build(BuildArgs),
    /// Remove the cache of builds and of rule sets with omitted files; not while a run uses it
    Clean,
    /// Start a system, send it one request per template of a mix, and print each response
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems show nginx-modsecurity")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// System (see `tollgate systems list`)
    #[arg(value_name = "NAME")]
    system: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems install haproxy
  tollgate systems install apache-modsecurity caddy-coraza")]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// Systems (see `tollgate systems list`) [default: all]
    #[arg(value_name = "NAME")]
    systems: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems build nginx-modsecurity   the Core Rule Set 4.25.0: seconds
  tollgate systems build crowdsec-appsec     CrowdSec and Caddy: minutes, once

Needs Go. Results are stored in $XDG_CACHE_HOME/tollgate/builds/NAME/ (default:
~/.cache), one folder for each version of the sources and of Go, shared by all
checkouts. `tollgate systems clean` removes all of them.")]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// System (see `tollgate systems list`)
    #[arg(value_name = "NAME")]
    system: String,
    /// Rebuild and replace an existing result; not while a run uses it
    #[arg(long = "rebuild", alias = "again")]
    rebuild: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems check haproxy
  tollgate systems check nginx-modsecurity          with its rules
  tollgate systems check nginx-modsecurity --with rules=none
  tollgate systems check crowdsec-appsec --with in_band=crs --with bouncer=nginx")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// System (see `tollgate systems list`)
    #[arg(value_name = "NAME")]
    system: String,
    /// Option of the system (may be repeated) [default: those with which it blocks]
    #[arg(long, value_name = "OPTION=VALUE")]
    with: Vec<String>,
    /// Mix to take the requests from: a name, or a .toml file
    #[arg(long, value_name = "NAME | FILE.toml", default_value = "browse")]
    mix: String,
    /// Keep configs and logs in this directory [default: not kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::List(args) => list_all(args),
        Command::Show(args) => show(args),
        Command::Install(args) => install(args),
        Command::Build(args) => build_parts(args),
        Command::Clean => clean(),
        Command::Check(args) => check(args),
    }
}

fn list_all(args: &list::Args) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    if args.json {
        return list::print_json(&list::systems_json(catalog));
    }
    let mut text = String::new();
    let mut all_valid = true;
    for (name, system) in list::systems(catalog) {
        let line = match system {
            Ok(system) if system.installed => format!("installed  {}", system.title),
            Ok(system) => format!("missing    {}", system.title),
            Err(error) => {
                all_valid = false;
                let reason = format!("{error:#}").replace('\n', " ");
                format!("broken     {}", reason.chars().take(REASON_CHARS).collect::<String>())
            }
        };
        writeln!(text, "{name:<21}{line}")?;
    }
    text +=
        "\n`tollgate systems show NAME` prints options, versions, and what is missing or broken.\n";
    console::print(&text)?;
    Ok(if all_valid { Exit::Success } else { Exit::BadInput })
}

/// Keeps a line of the list within 80 columns.
const REASON_CHARS: usize = 48;

fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let recipe = catalog.recipe(&args.system)?;
    let state = list::system(catalog, &args.system, &Versions::default())?;
    let mut text = format!("{:<21}{}\n", args.system, state.description);
    for (option, spec) in &recipe.file.option {
        let (about, expected) = (&spec.about, spec.expected());
        writeln!(text, "  {option:<18} {about} ({expected}; {})", spec.default)?;
    }
    console::print(&text)?;
    Ok(Exit::Success)
}

fn install(args: &InstallArgs) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let systems =
        if args.systems.is_empty() { catalog.names(Kind::System) } else { args.systems.clone() };
    let mut wanted: Vec<String> = Vec::new();
    for system in &systems {
        let recipe = catalog.recipe(system)?;
        wanted.extend(recipe.file.apt.iter().cloned());
        for build in recipe.file.builds() {
            let build: Build = catalog.build(build)?;
            wanted.extend(build.file.apt);
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let missing = packages::missing(&wanted)?;
    match (wanted.is_empty(), missing.is_empty()) {
        (true, _) => eprint_line(&format!("{}: no packages needed", systems.join(", "))),
        (false, true) => eprint_line(&format!("already installed: {}", wanted.join(", "))),
        (false, false) => {
            eprint_line(&format!("installing {}", missing.join(", ")));
            let interrupt = package_interrupt().context("cannot install signal handlers")?;
            match packages::install(&missing, &interrupt) {
                Err(error) if error.is::<Interrupted>() => {
                    eprint_line("stopped");
                    return Ok(Exit::Interrupted);
                }
                installed => installed?,
            }
        }
    }
    if let [system] = &args.systems[..] {
        let state = list::system(catalog, system, &Versions::default())?;
        let mut text = format!("{system:<21}{}\n", state.description);
        for path in list::packaged(catalog, system)? {
            let hash =
                hash_file(&path).with_context(|| format!("cannot read {}", path.display()))?;
            writeln!(text, "  sha256  {hash} {}", path.display())?;
        }
        console::print(&text)?;
    }
    Ok(Exit::Success)
}

/// Returns an interrupt that never kills the package manager, which would leave half an installed package.
fn package_interrupt() -> io::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let flag = interrupt.flag();
    signals::listen(move |count| {
        flag.store(true, Ordering::Relaxed);
        if count == 1 {
            eprint_line("stopping after the current package operation");
        }
    })?;
    Ok(interrupt)
}

fn build_parts(args: &BuildArgs) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let recipe = catalog.recipe(&args.system)?;
    let mut text = String::new();
    for name in recipe.file.builds() {
        let build = catalog.build(name)?;
        let found = if args.rebuild { None } else { build::find(&build) };
        let folder = match found {
            Some(folder) => {
                eprint_line(&format!("{}: already built", build.file.title));
                folder
            }
            None => {
                eprint_line(&format!("building {}", build.file.title));
                let started = Instant::now();
                let folder = build::make(&build)?;
                eprint_line(&format!("built in {} s", started.elapsed().as_secs()));
                folder
            }
        };
        writeln!(text, "{}", build.file.title)?;
        for module in go::modules(&build) {
            writeln!(text, "  module  {module}")?;
        }
        for wheel in build::wheels(&build) {
            writeln!(text, "  wheel   {wheel}")?;
        }
        writeln!(text, "  in      {}", folder.display())?;
        writeln!(text, "  sha256  {} (over all files)", build::hash_folder(&folder)?)?;
    }
    if text.is_empty() {
        eprint_line(&format!("{}: nothing to build", args.system));
        let state = list::system(catalog, &args.system, &Versions::default())?;
        if !state.installed {
            eprint_line(&state.description);
            return Ok(Exit::Failed);
        }
    }
    console::print(&text)?;
    Ok(Exit::Success)
}

fn clean() -> Result<Exit, Failure> {
    match build::remove_cache()? {
        Some((path, bytes)) => {
            let mebibytes = bytes.div_ceil(1 << 20);
            eprint_line(&format!("removed {}: {mebibytes} MiB freed", path.display()));
        }
        None => eprint_line("nothing to remove"),
    }
    Ok(Exit::Success)
}

fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let recipe = catalog.recipe(&args.system)?;
    let chosen = parse_options(&recipe, &args.with)?;
    let (mix, sources) = catalog.mix(&args.mix, Path::new("."))?;
    let subject = Subject::new(&args.system, recipe, &chosen).map_err(Failure::bad_input)?;
    let folder = tempfile::Builder::new().prefix("tollgate-check-").tempdir();
    let folder = folder.context("cannot create a folder for configs and logs")?;
    // Absolute, as servers have other working directories.
    let dir = match &args.out {
        Some(out) => std::path::absolute(out).context("cannot resolve --out")?,
        None => folder.path().to_owned(),
    };
    let interrupt =
        signals::interrupt(group::kill_now).context("cannot install signal handlers")?;
    let installed = match system::check(catalog, &subject)? {
        Ok(installed) => installed,
        Err(missing) => {
            eprint_line(&format!("{} is not installed: {missing}", args.system));
            return Ok(Exit::Failed);
        }
    };
    let checked = trial::check(&CheckRequest {
        catalog,
        case: &trial::case_for_check(mix, sources)?,
        subject: &subject,
        installed: &installed,
        cpus: None,
        tollgate: &std::env::current_exe().context("cannot find the tollgate binary")?,
        dir: &dir,
        interrupt: &interrupt,
    });
    folder.close().context("cannot remove the folder of configs and logs")?;
    let checked = match checked {
        Err(error) if error.is::<Interrupted>() => return Ok(Exit::Interrupted),
        checked => checked?,
    };
    console::print(&describe(&subject, &installed)?)?;
    match checked {
        Err(failure) => {
            eprint_line(&format!("{}: {}", failure.step, failure.reason));
            for line in &failure.log {
                eprint_line(&format!("    | {line}"));
            }
            Ok(Exit::Failed)
        }
        Ok(checked) => {
            console::print(&responses(&checked)?)?;
            if let Some(hint) = hint_at_blocking(&subject)? {
                console::print(&(hint + "\n"))?;
            }
            Ok(if checked.refused.is_none() { Exit::Success } else { Exit::Partial })
        }
    }
}

/// Parses --with. By default: the options that make the system block.
fn parse_options(recipe: &Recipe, with: &[String]) -> Result<Options, Failure> {
    if let (Some(blocks), []) = (&recipe.file.blocks, with) {
        return Ok(blocks.with.clone());
    }
    let mut chosen = Options::new();
    for text in with {
        let Some((name, value)) = text.split_once('=') else {
            let error = anyhow!("--with {text}: expected OPTION=VALUE, such as rules=crs");
            return Err(Failure::bad_input(error));
        };
        let number = value.parse().ok().map(OptionValue::Integer);
        let value = number.unwrap_or_else(|| OptionValue::Text(value.to_owned()));
        chosen.insert(name.to_owned(), value);
    }
    options::make_absolute(&recipe.file.option, &mut chosen, Path::new(""))
        .context("cannot resolve the paths of --with")?;
    Ok(chosen)
}

/// Returns a hint at the options that make the system block, if these do not.
fn hint_at_blocking(subject: &Subject) -> anyhow::Result<Option<String>> {
    let Some(blocks) = &subject.recipe.file.blocks else { return Ok(None) };
    if blocks.with.is_empty() || render::holds(subject, &blocks.when)? {
        return Ok(None);
    }
    let options: Vec<String> =
        blocks.with.iter().map(|(name, value)| format!("--with {name}={value}")).collect();
    Ok(Some(format!("With these options it blocks nothing; it does with {}.", options.join(" "))))
}

fn describe(subject: &Subject, installed: &Installed) -> Result<String, std::fmt::Error> {
    let mut text = format!("{}\n", subject.recipe.file.title);
    let options: Vec<String> =
        subject.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !options.is_empty() {
        writeln!(text, "  options   {}", options.join(" "))?;
    }
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

fn responses(checked: &Checked) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    if let Some(startup) = checked.startup {
        writeln!(text, "  startup   {:.0} ms", startup.as_secs_f64() * 1e3)?;
    }
    if let Some(bytes) = checked.memory_peak_bytes {
        let mebibytes = bytes.div_ceil(1 << 20);
        writeln!(text, "  memory    {mebibytes} MiB (peak during the probe)")?;
    }
    let width = |text: fn(&ProbeResponse) -> &str| {
        checked.responses.iter().map(|answer| text(answer).chars().count()).max().unwrap_or(0)
    };
    let (name, got) = (width(|answer| &answer.template), width(|answer| &answer.actual));
    for answer in &checked.responses {
        let mark = if answer.as_expected { "ok  " } else { "FAIL" };
        let expected =
            if answer.as_expected { "" } else { &format!("expected: {}", answer.expected) };
        let line = format!(
            "{mark}  {:name$}  {:<8}  {:got$}  {expected}",
            answer.template,
            match answer.class {
                Class::Benign => "benign",
                Class::Malicious => "attack",
            },
            answer.actual
        );
        writeln!(text, "{}", line.trim_end())?;
    }
    match &checked.refused {
        None => writeln!(text, "All responses are as expected.")?,
        Some(reason) => writeln!(text, "A run would refuse it: {reason}.")?,
    }
    Ok(text)
}

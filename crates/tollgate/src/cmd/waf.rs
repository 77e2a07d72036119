//! `tollgate waf`: check rules, explain matches, run the regression tests of a rule set.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use tollgate_stats::number::counted;
use tollgate_stats::text::escape_controls;
use tollgate_waf::{EngineMode, Match, RuleInfo, RuleSet, Transaction, Worker};
use tollgate_waf_tools::regression::TestFile;
use tollgate_waf_tools::replay;

use super::{waf_diff, waf_nginx, waf_replay, waf_serve, waf_tune};
use crate::console::{self, Exit, Failure, eprint_line};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate waf check crs-setup.conf rules/
  tollgate waf check --for modsecurity /etc/nginx/nginx.conf
  tollgate waf explain crs-setup.conf rules/ --request attack.http
  tollgate waf test crs-setup.conf rules/ --tests tests/regression/tests/
  tollgate waf replay crs-setup.conf rules/ --log access.log
  tollgate waf diff crs-3/ crs-4/ --log access.log
  tollgate waf tune crs-setup.conf rules/ --log audit.log --out exclusions.conf
  tollgate waf serve waf.yaml

docs/waf.md describes the rules. Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Parse rules, and count them by phase and paranoia level
    ///
    /// With --for modsecurity, say what the drop-in of libmodsecurity would load for each server and location of an nginx
    /// configuration, what it refuses, and what it would do differently. Exits with 1 if nginx would not start with it.
    Check(CheckArgs),
    /// Print each rule that a request matches, with the exclusion that would silence it
    ///
    /// Exits with 1 when the request would be blocked.
    Explain(ExplainArgs),
    /// Run regression tests in the format of go-ftw
    ///
    /// Exits with 1 when a test fails that is not a known difference.
    Test(TestArgs),
    /// Say what the rules would have blocked of the requests in a log
    Replay(waf_replay::Args),
    /// Say what other rules would block and let through of the requests in logs
    Diff(waf_diff::Args),
    /// Derive exclusions from logs, each with the attacks that it lets through
    ///
    /// Exits with 1 when more than --max-lost attacks pass.
    Tune(waf_tune::Args),
    /// Give verdicts on the requests of nginx, Traefik, Caddy or Envoy, and to bouncers of CrowdSec
    Serve(waf_serve::Args),
}

#[derive(Debug, clap::Args)]
struct RuleArgs {
    /// Rule files (SecLang, AppSec rules in *.yaml, rules of naxsi in *.rules), or folders with files of one of these
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<PathBuf>,
    /// Leave out directives that are not supported, and list them
    #[arg(long)]
    skip_unsupported: bool,
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    rules: RuleArgs,
    /// Read an nginx configuration in place of rules, as the library for its connector would
    #[arg(long = "for", value_name = "LIBRARY", value_enum, conflicts_with = "skip_unsupported")]
    library: Option<Library>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Library {
    Modsecurity,
}

#[derive(Debug, clap::Args)]
struct ExplainArgs {
    #[command(flatten)]
    rules: RuleArgs,
    /// File with a raw HTTP/1.1 request
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// File with a raw HTTP/1.1 response, for the rules of responses
    #[arg(long, value_name = "FILE")]
    response: Option<PathBuf>,
    /// Print rules with nolog, too
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    /// Rule files (SecLang, AppSec rules in *.yaml, rules of naxsi in *.rules), or folders with files of one of these
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<PathBuf>,
    /// File or folder of tests (YAML)
    #[arg(long, value_name = "TESTS", required = true)]
    tests: Vec<PathBuf>,
    /// File of known differences, one a line: RULE-TEST: reason
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Print tests that pass, too
    #[arg(long)]
    verbose: bool,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Check(args) => match (args.library, args.rules.rules.as_slice()) {
            (None, _) => check(&args.rules),
            (Some(Library::Modsecurity), [config]) => waf_nginx::check(config),
            (Some(Library::Modsecurity), _) => {
                Err(Failure::bad_input(anyhow!("--for modsecurity takes one nginx configuration")))
            }
        },
        Command::Explain(args) => explain(args),
        Command::Serve(args) => waf_serve::run(args),
        Command::Test(args) => test(args),
        Command::Replay(args) => {
            waf_replay::replay(load_blocking(&args.rules, args.skip_unsupported)?, &args.log)
        }
        Command::Tune(args) => {
            let mut tests = Vec::new();
            for path in &args.attacks {
                tests.extend(files(path, "yaml").map_err(Failure::bad_input)?);
            }
            // Exclusions come before the rules.
            let load = |exclusions: &str| {
                load(&args.rules, args.skip_unsupported, &format!("{BLOCKING}{exclusions}"))
            };
            waf_tune::tune(args, &tests, load)
        }
        Command::Diff(args) => {
            let load = |path| load_blocking(std::slice::from_ref(path), args.skip_unsupported);
            waf_diff::diff(args, load(&args.old)?, load(&args.new)?)
        }
    }
}

/// Settings before the rules, which may change them. Rule sets leave them to the configuration of a server, and the engine
/// is off without.
const BLOCKING: &str = "SecRuleEngine On\nSecRequestBodyAccess On\nSecResponseBodyAccess On\n";

/// As [`BLOCKING`], but the rules decide about the engine.
const BODIES: &str = "SecRequestBodyAccess On\nSecResponseBodyAccess On\n";

/// All rules run, as tests expect, also after one that would block.
const DETECTING: &str =
    "SecRuleEngine DetectionOnly\nSecRequestBodyAccess On\nSecResponseBodyAccess On\n";

fn load(paths: &[PathBuf], skip_unsupported: bool, settings: &str) -> Result<RuleSet, Failure> {
    let mut builder =
        RuleSet::builder().skip_unsupported(skip_unsupported).text("settings", settings);
    for path in paths {
        let mut found = Vec::new();
        for extension in ["conf", "yaml", "rules"] {
            if found.is_empty() {
                found = files(path, extension).map_err(Failure::bad_input)?;
            }
        }
        if found.is_empty() {
            let message =
                anyhow!("no *.conf, *.yaml or *.rules file in folder \"{}\"", path.display());
            return Err(Failure::bad_input(message));
        }
        builder = found.iter().fold(builder, tollgate_waf::Builder::file);
    }
    builder.build().map_err(|error| {
        let reason = escape_controls(&error.to_string());
        Failure::bad_input(anyhow!("cannot load rules: {reason}"))
    })
}

/// Loads rules whose matches block as in the gateway, where `mode` takes precedence over `SecRuleEngine`.
fn load_blocking(paths: &[PathBuf], skip_unsupported: bool) -> Result<RuleSet, Failure> {
    let rules = load(paths, skip_unsupported, BLOCKING)?;
    if rules.settings().engine != EngineMode::On {
        eprint_line(
            "the rules set SecRuleEngine to block nothing; verdicts are those of the gateway with `mode: on`",
        );
    }
    Ok(rules)
}

/// The file itself, or the files of a folder with that extension, by name, subfolders included.
pub(super) fn files(path: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let entries =
        path.read_dir().with_context(|| format!("cannot read folder \"{}\"", path.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn check(args: &RuleArgs) -> Result<Exit, Failure> {
    let rules = load(&args.rules, args.skip_unsupported, BODIES)?;
    let mut counts: BTreeMap<String, [usize; 5]> = BTreeMap::new();
    for rule in rules.rules() {
        let level = rule
            .paranoia_level
            .map_or_else(|| "control".to_owned(), |level| format!("level {level}"));
        counts.entry(level).or_default()[rule.phase as usize - 1] += 1;
    }
    let mut text = format!(
        "{:<10}{:>8}{:>8}{:>8}{:>8}{:>8}\n",
        "rules", "phase 1", "phase 2", "phase 3", "phase 4", "phase 5"
    );
    for (level, phases) in &counts {
        write!(text, "{level:<10}")?;
        phases.iter().try_for_each(|count| write!(text, "{count:>8}"))?;
        text.push('\n');
    }
    let conditions: usize = rules.rules().map(|rule| rule.conditions).sum();
    writeln!(
        text,
        "{} with {}, {} of which never match; {} removed",
        counted(rules.rules().count(), "rule"),
        counted(conditions, "condition"),
        rules.never_matching().len(),
        rules.removed()
    )?;
    for (title, list) in [
        ("never matches", rules.never_matching()),
        ("without effect", rules.inert()),
        ("excludes nothing", rules.idle_exclusions()),
        ("left out", rules.skipped()),
    ] {
        for entry in list {
            let entry = format!("{title}: {}: {}", entry.place, entry.message);
            writeln!(text, "{}", escape_controls(&entry))?;
        }
    }
    for bodies in rules.uninspected_bodies() {
        writeln!(text, "uninspected: {bodies}")?;
    }
    for broad in rules.broad_allows() {
        let entry = format!("too broad: {}: {}", broad.place, broad.message);
        writeln!(text, "{}", escape_controls(&entry))?;
    }
    for reason in reasons_to_pass(&rules) {
        writeln!(text, "blocks nothing: {reason}")?;
    }
    if !rules.rules().any(|rule| is_of_core_rule_set(&rule)) {
        writeln!(text, "no rule of the Core Rule Set is loaded")?;
    }
    console::print(&text)?;
    Ok(Exit::Success)
}

/// Reasons why rules that match block nothing.
fn reasons_to_pass(rules: &RuleSet) -> Vec<String> {
    let mut reasons = Vec::new();
    match rules.settings().engine {
        EngineMode::On => {}
        EngineMode::DetectionOnly => reasons.push("SecRuleEngine is DetectionOnly".to_owned()),
        EngineMode::Off => reasons.push(
            "SecRuleEngine is Off or not set; in the gateway, `mode` takes precedence".to_owned(),
        ),
    }
    for (evaluation, scoring, scores) in
        [(949_110, 911..=944, "requests"), (959_100, 950..=956, "responses")]
    {
        let is_scoring =
            |rule: &RuleInfo<'_>| scoring.contains(&(rule.id / 1000)) && is_of_core_rule_set(rule);
        let has_scores = rules.rules().any(|rule| is_scoring(&rule));
        if has_scores && !rules.rules().any(|rule| rule.id == evaluation) {
            reasons.push(format!(
                "rule {evaluation}, which evaluates the scores of {scores}, is missing"
            ));
        }
    }
    reasons
}

fn is_of_core_rule_set(rule: &RuleInfo<'_>) -> bool {
    rule.tags.iter().any(|tag| tag == "OWASP_CRS")
}

fn explain(args: &ExplainArgs) -> Result<Exit, Failure> {
    let rules = Arc::new(load_blocking(&args.rules.rules, args.rules.skip_unsupported)?);
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .with_context(|| format!("cannot read \"{}\"", path.display()))
            .map_err(Failure::bad_input)
    };
    let request = replay::parse_raw(&read(&args.request)?);
    if request.target.is_empty() {
        let path = args.request.display();
        let error =
            anyhow!("\"{path}\" is not a request: expected a first line such as `GET / HTTP/1.1`");
        return Err(Failure::bad_input(error));
    }
    let mut transaction = Transaction::new(Arc::clone(&rules));
    transaction.record_details(true);
    transaction.record_silent(args.all);
    transaction.engine_mode(EngineMode::On);
    let mut worker = Worker::new();
    match &args.response {
        Some(path) => {
            let response = replay::parse_raw_response(&read(path)?);
            replay::run(&mut transaction, &mut worker, &request, &response);
        }
        None => replay::run_request(&mut transaction, &mut worker, &request),
    }
    let mut text = String::new();
    for found in transaction.matches() {
        let rule = rules.rule(found.rule).context("a match has no rule")?;
        describe(&mut text, found, &rule)?;
    }
    if let Some(score) = transaction.tx("blocking_inbound_anomaly_score") {
        writeln!(text, "inbound anomaly score: {}", String::from_utf8_lossy(&score))?;
    }
    let limits = transaction.limits_reached().to_string();
    if !limits.is_empty() {
        writeln!(text, "limits reached: {limits}")?;
    }
    let blocked = transaction.intervention();
    match blocked {
        Some(intervention) => writeln!(text, "blocked with status {}", intervention.status)?,
        None => writeln!(text, "not blocked; {} matches", transaction.matches().len())?,
    }
    console::print(&text)?;
    Ok(if blocked.is_some() { Exit::Failed } else { Exit::Success })
}

fn describe(text: &mut String, found: &Match, rule: &RuleInfo<'_>) -> Result<(), Failure> {
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    writeln!(text, "rule {} at {}: {}", found.id, rule.place, shown(&found.message))?;
    let Some(details) = &found.details else { return Ok(()) };
    writeln!(text, "  variable   {}", shown(&details.source))?;
    writeln!(text, "  value      {}", shown(&found.value))?;
    if !details.matched.is_empty() {
        writeln!(text, "  matched    {}", shown(&details.matched))?;
    }
    for (name, amount) in &details.scores {
        writeln!(text, "  score      {name} {amount:+}")?;
    }
    if let Some(exclusion) = found.exclusion() {
        writeln!(text, "  exclusion  {exclusion}")?;
    }
    Ok(())
}

fn test(args: &TestArgs) -> Result<Exit, Failure> {
    let rules = Arc::new(load(&args.rules, false, DETECTING)?);
    let mut known = match &args.known {
        Some(path) => known_differences(path).map_err(Failure::bad_input)?,
        None => HashMap::new(),
    };
    let mut worker = Worker::new();
    let (mut passed, mut failed, mut text) = (0, 0, String::new());
    let mut paths = Vec::new();
    for path in &args.tests {
        paths.extend(files(path, "yaml").map_err(Failure::bad_input)?);
    }
    for path in &paths {
        let content = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read \"{}\"", path.display()))
            .map_err(Failure::bad_input)?;
        let file = TestFile::parse(&content)
            .map_err(|error| Failure::bad_input(anyhow!("{}: {error}", path.display())))?;
        for test in &file.tests {
            let name = format!("{}-{}", file.rule_id, test.test_id);
            match (test.run(&rules, &mut worker), known.remove(&name)) {
                (Ok(()), None) => {
                    passed += 1;
                    if args.verbose {
                        writeln!(text, "{name}: passed")?;
                    }
                }
                (Ok(()), Some(reason)) => {
                    failed += 1;
                    writeln!(
                        text,
                        "{name}: passed, but is listed as a known difference ({reason})"
                    )?;
                }
                (Err(_), Some(reason)) => writeln!(text, "{name}: known difference: {reason}")?,
                (Err(reason), None) => {
                    failed += 1;
                    writeln!(text, "{name}: failed: {reason}")?;
                }
            }
        }
    }
    writeln!(text, "{passed} passed, {failed} failed")?;
    console::print(&text)?;
    Ok(if failed == 0 { Exit::Success } else { Exit::Failed })
}

fn known_differences(path: &Path) -> anyhow::Result<HashMap<String, String>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read \"{}\"", path.display()))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line
                .split_once(": ")
                .ok_or_else(|| anyhow!("\"{line}\" is not RULE-TEST: reason"))?;
            Ok((name.to_owned(), reason.to_owned()))
        })
        .collect()
}

//! `tollgate waf tune`: exclusions for benign requests that rules block, with what each lets through.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_experiment::catalog::Catalog;
use tollgate_report::document::Table;
use tollgate_stats::number::counted;
use tollgate_traffic::{Class, Mix, Sample};
use tollgate_waf::RuleSet;
use tollgate_waf_tools::log::{Content, Entry, Unread};
use tollgate_waf_tools::regression::TestFile;
use tollgate_waf_tools::replay::Request;
use tollgate_waf_tools::tuning::{
    self, Exclusion, NotReplayed, Options, Origin, Proposal, Tuner, Tuning,
};

use super::waf_replay::read_logs;
use super::waf_report::{self, Findings, Format};
use crate::console::{Exit, Failure};

/// Arguments of `tollgate waf tune`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Rule files, or folders with files of rules
    #[arg(required = true, value_name = "RULES")]
    pub(super) rules: Vec<PathBuf>,
    /// Log with requests, such as an audit log of ModSecurity; a folder of a concurrent log (may be repeated)
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "benign")]
    log: Vec<PathBuf>,
    /// Mix whose benign requests must pass: a name of the catalog, or a file (may be repeated)
    #[arg(long, value_name = "MIX")]
    benign: Vec<String>,
    /// Tests in the format of go-ftw, whose payloads are tried against each exclusion
    #[arg(long, value_name = "TESTS")]
    pub(super) attacks: Vec<PathBuf>,
    /// Engine that reads the exclusions
    #[arg(long = "for", value_name = "ENGINE", value_enum, default_value_t = Engine::Tollgate)]
    engine: Engine,
    /// File for the exclusions
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Id of the first rule; below 100000 are those for local use
    #[arg(long, value_name = "ID", default_value_t = 10_000)]
    first_id: u64,
    /// Clients of a log that must have sent a match before it counts as benign
    #[arg(long, value_name = "N", default_value_t = 3)]
    min_clients: usize,
    /// Exit with 1 if the exclusions let through more attacks
    #[arg(long, value_name = "N")]
    max_lost: Option<usize>,
    /// Leave out directives that are not supported
    #[arg(long)]
    pub(super) skip_unsupported: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Tollgate,
    Modsecurity2,
    Modsecurity3,
    Coraza,
}

const SCHEMA: u32 = 1;

#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "WafTuneReport")]
struct Report {
    schema: u32,
    engine: Engine,
    #[serde(flatten)]
    tuning: Tuning,
    /// Number of tests whose payloads were tried.
    tests: usize,
    /// Requests with a body that their log does not contain.
    without_body: u64,
    #[serde(flatten)]
    unread: Unread,
}

/// Derives exclusions, writes them, and reports their proof. `load` loads the rules behind a text, `tests` has the files of tests.
pub(super) fn tune(
    args: &Args,
    tests: &[PathBuf],
    load: impl Fn(&str) -> Result<RuleSet, Failure>,
) -> Result<Exit, Failure> {
    let mut tuner = Tuner::new(Arc::new(load("")?))?;
    let attacks = requests_of_tests(tests)?;
    for name in &args.benign {
        let (mix, _) =
            Catalog::new(Vec::new()).mix(name, Path::new(".")).map_err(Failure::bad_input)?;
        let origin = Origin { client: None, day: None, is_benign: true };
        for request in benign_requests(&mix) {
            tuner.add(&request, origin)?;
        }
    }
    let mut without_body = 0;
    let mut failed = None;
    let unread = read_logs(&args.log, |Entry { client, day, content }| match content {
        Content::Request(recorded) if failed.is_none() => {
            without_body += u64::from(recorded.lacks_body);
            let origin = Origin { client: client.as_deref(), day, is_benign: false };
            failed = tuner.add(&recorded.request, origin).err();
        }
        Content::Request(_) => {}
        Content::Matches(logged) => tuner.add_matches(client, day, logged),
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let engine = match args.engine {
        Engine::Tollgate => tuning::Engine::Tollgate,
        Engine::Modsecurity2 => tuning::Engine::Modsecurity2,
        Engine::Modsecurity3 => tuning::Engine::Modsecurity3,
        Engine::Coraza => tuning::Engine::Coraza,
    };
    let options = Options { engine, clients_min: args.min_clients };
    // Exclusions that do not parse are not written.
    let tuning = tuner.finish(options, &attacks, |chosen| {
        load(&tuning::render(chosen, args.first_id)).map_err(TuneFailure)
    });
    let tuning = tuning.map_err(|TuneFailure(failure)| failure)?;
    if tuning.requests + tuning.not_replayed.transactions == 0 {
        return Err(Failure::bad_input(anyhow!(
            "the logs have no entry that is understood; expected {}",
            tollgate_waf_tools::log::FORMATS
        )));
    }
    let lost = tuning.lost;
    let tests = attacks.len();
    let report =
        Report { schema: SCHEMA, engine: args.engine, tuning, tests, without_body, unread };
    std::fs::write(&args.out, report.exclusions(args.first_id))
        .with_context(|| format!("cannot write \"{}\"", args.out.display()))
        .map_err(Failure::bad_input)?;
    let details = report
        .samples()
        .map(|(exclusion, proof, sample)| (exclusion.to_string(), vec![proof, sample.to_owned()]));
    let findings = Findings {
        title: "Exclusions",
        summary: report.summary(),
        table: report.table(),
        details: details.collect(),
    };
    waf_report::print(args.format, &findings, &report)?;
    Ok(if args.max_lost.is_some_and(|limit| lost > limit) { Exit::Failed } else { Exit::Success })
}

/// An error of loading, with its exit code.
struct TuneFailure(Failure);

impl From<tuning::TuneError> for TuneFailure {
    fn from(error: tuning::TuneError) -> Self {
        Self(error.into())
    }
}

/// Returns the requests of tests that expect a match.
fn requests_of_tests(paths: &[PathBuf]) -> Result<Vec<Request>, Failure> {
    let mut requests = Vec::new();
    for path in paths {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read \"{name}\""))
            .map_err(Failure::bad_input)?;
        let in_file = |error| Failure::bad_input(anyhow!("{name}: {error}"));
        let file = TestFile::parse(&text).map_err(in_file)?;
        let stages = file.tests.iter().flat_map(|test| &test.stages);
        for stage in stages.filter(|stage| stage.expects_match()) {
            requests.push(stage.request().map_err(in_file)?);
        }
    }
    Ok(requests)
}

/// Returns the benign requests of a mix: one of each template, and all of its lists.
fn benign_requests(mix: &Mix) -> impl Iterator<Item = Request> {
    let header = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let texts = mix.templates().iter().zip(mix.samples()).filter_map(move |(template, sample)| {
        let Sample::Message(message) = sample else { return None };
        let mut headers: Vec<_> =
            message.headers.iter().map(|(name, value)| header(name, value)).collect();
        let has = |wanted: &str| {
            message.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        if !has("content-length") && !message.body.is_empty() {
            headers.push(header("Content-Length", &message.body.len().to_string()));
        }
        let request = Request {
            method: message.method.into_bytes(),
            target: message.path.into_bytes(),
            protocol: b"HTTP/1.1".to_vec(),
            headers,
            body: message.body.into_bytes(),
        };
        (template.class == Class::Benign).then_some(request)
    });
    let listed =
        mix.listed().filter(|(template, _)| mix.templates()[*template].class == Class::Benign);
    let listed = listed.map(move |(_, one)| Request {
        method: one.message.method().as_bytes().to_vec(),
        target: one.message.target().as_bytes().to_vec(),
        protocol: b"HTTP/1.1".to_vec(),
        headers: one.message.headers().map(|(name, value)| header(name, value)).collect(),
        body: one.message.body().to_vec(),
    });
    texts.chain(listed)
}

/// The sentence of the proof.
fn proof(proposal: &Proposal, tests: usize) -> String {
    let Proposal { requests, not_replayed, clients, days, class, attacks, .. } = proposal;
    let mut text = format!("saves {}", counted(*requests as usize, "request"));
    if *clients > 0 {
        text += &format!(" of {}", counted(*clients, "client"));
    }
    if *days > 0 {
        text += &format!(" on {}", counted(*days, "day"));
    }
    if *not_replayed > 0 {
        text += &format!(" ({not_replayed} not replayed)");
    }
    if tests == 0 {
        return text + "; attacks are not tried: name tests with --attacks";
    }
    let class = class.as_ref().map_or(String::new(), |class| format!(" of {class}"));
    text += &format!("; lets through {} of {} payloads{class}", attacks.lost, attacks.blocked);
    if attacks.not_placed > 0 {
        text += &format!(", {} more cannot be tried there", attacks.not_placed);
    }
    text
}

impl Report {
    fn summary(&self) -> Vec<String> {
        let Tuning { requests, blocked, saved, not_replayed, refused, proposals, lost } =
            &self.tuning;
        let mut lines = vec![format!(
            "{}, of which {blocked} are blocked; {} let {saved} of them pass.",
            counted(*requests as usize, "request"),
            counted(proposals.len(), "exclusion"),
        )];
        if not_replayed.transactions > 0 {
            let NotReplayed { transactions, blocked, saved } = not_replayed;
            lines.push(format!(
                "The logs have matches of {} without the request, which are not replayed; {blocked} are blocked, and the exclusions silence \
                 all matches of {saved} of them.",
                counted(*transactions as usize, "transaction"),
            ));
        }
        if self.tests > 0 {
            lines.push(format!("Together they let {lost} attacks through."));
        }
        if !refused.is_empty() {
            let reasons: Vec<String> =
                refused.iter().map(|(reason, count)| format!("{reason} ({count})")).collect();
            lines.push(format!("Without a proposal: {}.", reasons.join("; ")));
        }
        if self.without_body > 0 {
            lines.push(format!(
                "Requests whose body the log does not contain: {}.",
                self.without_body
            ));
        }
        lines.extend(self.unread.sentences());
        lines
    }

    fn table(&self) -> Table {
        let rows = self.tuning.proposals.iter().map(|proposal| {
            let Proposal { exclusion, requests, clients, attacks, .. } = proposal;
            let lost = if self.tests == 0 {
                "-".to_owned()
            } else {
                format!("{} of {}", attacks.lost, attacks.blocked)
            };
            vec![exclusion.to_string(), requests.to_string(), clients.to_string(), lost]
        });
        Table::of_text(["exclusion", "saves", "clients", "lets through"], rows.collect())
    }

    fn samples(&self) -> impl Iterator<Item = (&Exclusion, String, &str)> {
        let proposals = self.tuning.proposals.iter();
        proposals.map(|one| (&one.exclusion, proof(one, self.tests), one.sample.as_str()))
    }

    /// Renders the file of exclusions.
    fn exclusions(&self, first_id: u64) -> String {
        let engine = match self.engine {
            Engine::Tollgate => "Tollgate",
            Engine::Modsecurity2 => "ModSecurity 2",
            Engine::Modsecurity3 => "ModSecurity 3",
            Engine::Coraza => "Coraza",
        };
        let mut text = format!(
            "# Exclusions for {engine}, proved with Tollgate's engine on {}; derived from {} more, not replayed.\n\
             # Include this file before the rules. Read each sample: the exclusions are right only if it is benign.\n",
            counted(self.tuning.requests as usize, "request"),
            self.tuning.not_replayed.transactions
        );
        for (exclusion, proof, sample) in self.samples() {
            writeln!(text, "#\n# {exclusion}\n#   {proof}\n#   {sample}")
                .expect("a string takes all text");
        }
        let chosen: Vec<Exclusion> =
            self.tuning.proposals.iter().map(|one| one.exclusion.clone()).collect();
        text + "\n" + &tuning::render(&chosen, first_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use schemars::generate::Contract;

    #[test]
    fn committed_schema_matches_types() {
        schemas::check::<Report>("waf-tune", Contract::Serialize);
    }
}

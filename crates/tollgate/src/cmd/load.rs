//! `tollgate load`: sends load to one server and prints the result.

mod args;
mod hosts;
mod metrics;
mod progress;
mod request;
mod series;
mod tls;
mod values;

pub(crate) use args::Args;

use crate::console::{self, Exit, Failure};
use crate::signals;
use anyhow::{Context, Result, bail};
use args::{Format, WarmUp};
use progress::{ProgressLine, RunEnd};
use request::{Content, Target};
use series::Outputs;
use std::env::args_os;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use tollgate_experiment::catalog::Catalog;
use tollgate_load::{
    Arrivals, Generator, GeneratorResult, Phases, Plan, ReplayPlan, Report, Shard, Summary,
    UNSENT_SHARE_MAX,
};
use tollgate_net::available_cpus;
use tollgate_records::files::write_atomic;
use tollgate_report::html;
use tollgate_runner::process;
use tollgate_search::goal::Goals;
use tollgate_traffic::import::{mask_body, mask_header, mask_url};
use tollgate_traffic::load_shape::{Clients, OpenLoop, Spacing};

/// One load, validated.
#[derive(Debug)]
struct Load {
    target: Target,
    content: Content,
    plan: Plan,
    /// Length of the measurement; `None` if the plan ends after a number of requests.
    duration: Option<Duration>,
    warm_up: WarmUp,
    seed: u64,
    format: Format,
}

/// Limit of the connections of a replay, unless another one is given.
const REPLAY_CONNECTIONS_MAX: usize = 1_000;

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = args.catalog.open()?;
    let mut load = Load::new(args, &catalog).map_err(Failure::bad_input)?;
    if let Some(carrier) = &args.on {
        return hosts::run(args, load, carrier);
    }
    let files_max = process::raise_file_limit().context("cannot raise the limit of open files")?;
    let cpus = available_cpus().context("cannot read the available CPUs")?;
    load.check_machine(files_max, &cpus).map_err(Failure::bad_input)?;
    tls::negotiate(args, &load.target, &mut load.plan)?;
    // No child process outlives the program, so a second signal may end it at once.
    let kill_now = || std::process::exit(Exit::Interrupted as i32);
    let interrupt = signals::interrupt(kill_now).context("cannot handle signals")?;
    let outputs = Outputs::open(args, &load.plan).map_err(Failure::bad_input)?;
    let mut generator = Generator::start(load.plan.clone())?;
    let reader = generator.take_series().map(|series| outputs.read(series)).transpose()?;
    let mut line = ProgressLine::new();
    let end = progress::run(&load, &mut generator, &mut line, &interrupt);
    line.clear();
    let end = end?;
    let summary = generator.finish();
    let (written, timeline) = reader.map_or((Ok(()), None), series::Reader::finish);
    let summary = summary?;
    // One output that fails does not prevent the others.
    let printed = load.render(end, &summary, &[]).and_then(|text| console::print(&text));
    let saved = match (&args.html, timeline) {
        (Some(path), Some(timeline)) => {
            // A page is shown to others.
            let [url, target] = [&args.url, &load.target.server.path].map(|text| mask_url(text));
            let report = Report { url: &url, path: &target, ..load.report(end, &summary, &[]) };
            html::load::render(&report, &timeline, command_line(args_os(), &args.url))
                .and_then(|page| write_atomic(path, &page))
        }
        _ => Ok(()),
    };
    written.and(printed).and(saved)?;
    Ok(if end.is_interrupted { Exit::Interrupted } else { exit(&summary, args.threshold.as_ref()) })
}

/// The command with its arguments, quoted for a shell. Secrets in headers, in the URL and in bodies are masked.
fn command_line(arguments: impl Iterator<Item = OsString>, url: &str) -> String {
    let (mut is_header, mut is_body) = (false, false);
    let arguments = arguments.skip(1).map(|argument| {
        let argument = argument.to_string_lossy().into_owned();
        if std::mem::take(&mut is_body) {
            return mask_body(&argument);
        }
        is_body = !is_header && matches!(&*argument, "--body" | "--data");
        if argument == url && !is_header {
            return mask_url(url);
        }
        let body = ["--body=", "--data="].into_iter().find(|prefix| argument.starts_with(prefix));
        if let Some(prefix) = body.filter(|_| !is_header) {
            return format!("{prefix}{}", mask_body(&argument[prefix.len()..]));
        }
        let prefix = ["--header=", "-H"].into_iter().find(|prefix| argument.starts_with(prefix));
        let is_value = std::mem::replace(&mut is_header, matches!(&*argument, "-H" | "--header"));
        let at = if is_value { 0 } else { prefix.map_or(argument.len(), str::len) };
        match argument[at..].split_once(':') {
            Some((name, value)) => {
                let (name_end, value) = (at + name.len(), value.trim());
                format!("{}: {}", &argument[..name_end], mask_header(name.trim(), value))
            }
            None => argument,
        }
    });
    shell_words::join(["tollgate".to_owned()].into_iter().chain(arguments))
}

/// Prints which thresholds were missed.
fn exit(summary: &Summary, threshold: Option<&Goals>) -> Exit {
    let missed = threshold.map_or(Vec::new(), |goals| goals.missed(summary));
    missed.iter().for_each(|reason| console::eprint_line(&format!("threshold missed: {reason}")));
    if summary.responses == 0 {
        Exit::Nothing
    } else if !missed.is_empty() {
        Exit::ThresholdFailed
    } else if summary.unsent_share() > UNSENT_SHARE_MAX {
        Exit::Partial
    } else {
        Exit::Success
    }
}

impl Load {
    fn new(args: &Args, catalog: &Catalog) -> Result<Self> {
        let target = Target::parse(&args.url, args.unix_socket.as_deref(), &args.allow_host)?;
        let content = Content::new(args, &target, catalog)?;
        tls::check_scheme(args, &target)?;
        args.check_stages()?;
        args.check_pace()?;
        let warm_up = args.warmup.unwrap_or(WarmUp::None);
        let plan = Plan {
            target: target.address.clone(),
            tls: None,
            workload: content.workload.clone(),
            arrivals: arrivals(args, &content)?,
            clients: Clients {
                protocol: args.requested_protocol(target.server.is_tls)?,
                threads: args.threads,
                busy_poll: args.busy_poll,
                connect_timeout: args.connect_timeout,
                response_timeout: args.timeout,
            },
            phases: match args.requests {
                Some(requests) => Phases::Requests(requests),
                None if warm_up != WarmUp::None => Phases::WarmUp,
                // Hosts close their windows together.
                None if args.on.is_some() => Phases::Endless,
                None => args.length().map_or(Phases::Endless, Phases::For),
            },
            series: series::interval(args)?,
            // It costs CPU per response, so only the formats that print it record it.
            first_byte: matches!(args.format(), Format::Ab | Format::Json),
            cpus: args.cpus.as_ref().map_or(Vec::new(), |list| list.0.clone()),
            shard: Shard::WHOLE,
        };
        plan.validate()?;
        let (duration, seed, format) = (args.length(), args.seed, args.format());
        Ok(Self { target, content, plan, duration, warm_up, seed, format })
    }

    /// Checks the plan against the limit of open files and the available CPUs.
    fn check_machine(&self, files_max: u64, cpus: &[usize]) -> Result<()> {
        let plan = &self.plan;
        if let Some(cpu) = plan.cpus.iter().find(|cpu| !cpus.contains(cpu)) {
            let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            bail!("--cpus: CPU {cpu} is not available to this process, choose from {list}");
        }
        let connections = plan.connections_max();
        let files = plan.open_files();
        if files as u64 > files_max {
            let grows = connections > plan.connections();
            let option = if grows { "--max-connections" } else { "-c" };
            bail!(
                "{option} {connections} needs {files} open files, but the limit is {files_max}: raise it with `ulimit -n`, or use fewer connections"
            );
        }
        Ok(())
    }

    fn report<'a>(
        &'a self,
        end: RunEnd,
        summary: &'a Summary,
        generators: &'a [GeneratorResult],
    ) -> Report<'a> {
        Report {
            url: &self.target.server.url,
            hostname: &self.target.server.hostname,
            port: self.target.server.port,
            path: &self.target.server.path,
            plan: &self.plan,
            duration: self.duration,
            seed: self.seed,
            mix: self.content.mix.as_deref(),
            templates: &self.content.templates,
            warm_up: end.warm_up,
            is_interrupted: end.is_interrupted,
            summary,
            generators,
        }
    }

    fn render(
        &self,
        end: RunEnd,
        summary: &Summary,
        generators: &[GeneratorResult],
    ) -> Result<String> {
        let report = self.report(end, summary, generators);
        let text = match self.format {
            Format::Table => report.to_table(),
            Format::Json => report.to_json(),
            Format::Csv => report.to_csv(),
            Format::Ab => Ok(report.to_ab()),
            Format::Hgrm => Ok(report.to_hgrm()),
        };
        text.context("cannot format the result")
    }
}

fn arrivals(args: &Args, content: &Content) -> Result<Arrivals> {
    let rate = content.times.as_ref().or(args.rate.as_ref());
    let connections = args.connections;
    match (rate, &content.replay) {
        (None, None) => Ok(Arrivals::Closed { connections }),
        (Some(rate), None) => {
            let schedule = OpenLoop {
                rate: rate.clone(),
                spacing: if args.poisson { Spacing::Poisson } else { Spacing::Constant },
                connections,
                connections_max: args.max_connections.unwrap_or(connections),
            };
            Ok(Arrivals::Open { schedule, seed: args.seed })
        }
        (rate, Some(replay)) => {
            let threads = args.threads;
            let connections_max =
                args.max_connections.unwrap_or(REPLAY_CONNECTIONS_MAX.max(threads));
            if connections_max < threads {
                bail!(
                    "cannot use {connections_max} connections for {threads} threads: set --max-connections to at least {threads}"
                );
            }
            let rate = rate.context("a replay needs a rate or recorded times")?.clone();
            Ok(Arrivals::Replay(ReplayPlan { replay: Arc::clone(replay), rate, connections_max }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use tollgate_load::Rate;
    use tollgate_traffic::load_shape::Protocol;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// Parses arguments separated by blanks.
    pub(super) fn parse(line: &str) -> Result<Args, clap::Error> {
        let words = ["load"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    pub(super) fn args(line: &str) -> Args {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub(super) fn load(line: &str) -> Result<Load> {
        Load::new(&args(line), &Catalog::new(vec![]))
    }

    fn plan(line: &str) -> Plan {
        load(line).unwrap().plan
    }

    #[test]
    fn command_line_has_no_secrets() {
        for (argument, shown) in [
            (&["-H", "Authorization: Bearer ab:c"][..], "-H 'Authorization: Bearer xxxx'"),
            (&["-Hcookie:a=bc"], "'-Hcookie: a=xx'"),
            (&["--header=X-Api-Key: k"], "'--header=X-Api-Key: x'"),
            (&["--header", "Accept: a/b", "-n", "1"], "--header 'Accept: a/b' -n 1"),
            (&["http://[::1]:80/"], "'http://[::1]:80/'"),
            (&["https://u:p@a/?q=1&token=ab"], "'https://x:x@a/?q=1&token=xx'"),
            (
                &["127.0.0.1/a?Key=k", "--body", "x@y/?key=k"],
                "'127.0.0.1/a?Key=x' --body 'x@y/?key=k'",
            ),
            (&["--body", "user=a&password=bc"], "--body 'user=a&password=xx'"),
            (&["--data=token=bc", "-n", "1"], "'--data=token=xx' -n 1"),
            (&["--data", r#"{"token": "b\"c", "a": 1}"#], r#"--data '{"token": "xxxx", "a": 1}'"#),
            (&["http://a/b;jsessionid=7F;v=2?c"], "'http://a/b;jsessionid=xx;v=2?c'"),
        ] {
            let words = ["/bin/tollgate", "load"].iter().chain(argument).map(OsString::from);
            let is_url = |word: &&&str| word.contains("://") || word.starts_with("127.");
            let url = argument.iter().find(is_url).copied().unwrap_or_default();
            assert_eq!(command_line(words, url), format!("tollgate load {shown}"));
        }
    }

    #[test]
    fn default_is_a_closed_loop_over_fifty_connections() {
        let load = load("http://127.0.0.1:8000/").unwrap();
        let plan = &load.plan;
        assert!(matches!(plan.arrivals, Arrivals::Closed { connections: 50 }));
        let clients = Clients {
            protocol: Protocol::Http1 { pipeline: 1 },
            threads: 1,
            busy_poll: false,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        };
        let ten_seconds = Phases::For(Duration::from_secs(10));
        assert_eq!((&plan.clients, plan.phases), (&clients, ten_seconds));
        assert_eq!(load.duration, Some(Duration::from_secs(10)));
        assert_eq!(load.warm_up, WarmUp::None);
        assert!(!plan.first_byte);
    }

    #[test]
    fn options_reach_the_plan() {
        let line = "http://127.0.0.1/ -n 7 -c 4 --max-connections 9 -t 2 --cpus 0,2-3 --rate 2.5 \
            --poisson --seed 3 --pipeline 5 --timeout 1s --connect-timeout 2s --format ab";
        let full = plan(line);
        let Arrivals::Open { schedule, seed: 3 } = full.arrivals else { panic!("{full:?}") };
        let expected = OpenLoop {
            rate: Rate::Constant(2.5),
            spacing: Spacing::Poisson,
            connections: 4,
            connections_max: 9,
        };
        assert_eq!(schedule, expected);
        let clients = Clients {
            protocol: Protocol::Http1 { pipeline: 5 },
            threads: 2,
            busy_poll: false,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
        };
        assert_eq!(full.clients, clients);
        assert_eq!((full.phases, full.cpus), (Phases::Requests(7), vec![0, 2, 3]));
        let protocol = |line| plan(line).clients.protocol;
        assert_eq!(
            protocol("http://127.0.0.1/ --http 2 --streams 7"),
            Protocol::Http2 { streams: 7 }
        );
        assert_eq!(protocol("http://127.0.0.1/ --no-keepalive"), Protocol::Http1Close);
        for warm_up in ["1s", "steady"] {
            let plan = plan(&format!("http://127.0.0.1/ -d 1s --warmup {warm_up}"));
            assert_eq!(plan.phases, Phases::WarmUp);
        }
    }

    #[test]
    fn stages_set_the_length() {
        let staged = load("http://127.0.0.1/ --rate 5..9/2s,9/3s").unwrap();
        assert_eq!(staged.duration, Some(Duration::from_secs(5)));
        for (options, reason) in [
            ("--rate 5/2s -d 1s", "remove --duration"),
            ("--rate 5/2s --warmup 1s", "have no --warmup"),
            ("--rate 5/23h,5/2h", "take longer than 1day"),
        ] {
            let error = load(&format!("http://127.0.0.1/ {options}")).unwrap_err();
            assert!(error.to_string().contains(reason), "{options}: {error}");
        }
    }

    #[test]
    fn time_to_first_byte_is_recorded_for_formats_that_print_it() {
        let first_byte =
            |options: &str| plan(&format!("http://127.0.0.1/ -n 1 {options}")).first_byte;
        assert!(["json", "ab"].iter().all(|name| first_byte(&format!("--format {name}"))));
        assert!(
            !["table", "csv", "hgrm"].iter().any(|name| first_byte(&format!("--format {name}")))
        );
    }

    #[test]
    fn invalid_plans_are_rejected() {
        for (line, reason) in [
            ("-c 1 -t 2", "cannot use 1 connections for 2 threads"),
            ("--rate 1 --max-connections 49", "cannot grow 50 connections to 49"),
            ("--pipeline 2 --no-keepalive", "without keep-alive"),
            ("--streams 2", "--streams needs --http 2"),
            ("--http 2 --pipeline 2", "over HTTP/2 use --streams N"),
            ("--http 2 --no-keepalive", "use HTTP/1.1"),
            ("--rate 5..9/1s", "--rate: stages have their own length; remove --requests"),
        ] {
            let error =
                format!("{:#}", load(&format!("http://127.0.0.1/ -n 1 {line}")).unwrap_err());
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn replay_needs_a_connection_for_each_thread() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("a.mix");
        let lines = [
            r#"{"tollgate_mix":1,"title":"a","requests":1,"templates":[{"name":"GET","class":"benign"}],"events":1}"#,
            r#"{"template":"GET","path":"/","headers":["Host: a"]}"#,
            r#"{"order":[0,0,0]}"#,
        ];
        std::fs::write(&list, lines.join("\n")).unwrap();
        let load = |options: &str| {
            load(&format!("http://127.0.0.1/ --mix {} --pace x2 {options}", list.display()))
        };
        let error = load("--max-connections 1 -t 4").unwrap_err().to_string();
        assert!(error.starts_with("cannot use 1 connections for 4 threads: set --max"), "{error}");
        assert_eq!(load("--max-connections 4 -t 4").unwrap().plan.connections_max(), 4);
        assert_eq!(load("-t 4").unwrap().plan.connections_max(), 1_000);
    }

    #[test]
    fn limits_of_the_machine_are_checked() {
        let check = |options: &str, files_max| {
            let load = load(&format!("http://127.0.0.1/ -n 1 {options}")).unwrap();
            load.check_machine(files_max, &[0, 2]).map_err(|error| error.to_string())
        };
        assert_eq!(check("-c 50 --cpus 0,2", 87), Ok(()));
        let reason = check("-c 50", 86).unwrap_err();
        assert!(reason.starts_with("-c 50 needs 87 open files, but the limit is 86"), "{reason}");
        let reason = check("-c 1 --rate 1 --max-connections 100", 20).unwrap_err();
        assert!(reason.starts_with("--max-connections 100 needs 137 open files"), "{reason}");
        let reason = check("--cpus 0,99", 1_024).unwrap_err();
        let expected = "--cpus: CPU 99 is not available to this process, choose from 0, 2";
        assert_eq!(reason, expected);
    }

    #[test]
    fn exit_code_depends_on_responses_and_unsent_requests() {
        let summary =
            |responses, unsent| Summary { sent: 9_900, responses, unsent, ..Summary::default() };
        assert_eq!(exit(&summary(1, 0), None), Exit::Success);
        // 100 of 10,000 are 1 %, 101 of 10,001 more.
        assert_eq!(exit(&summary(1, 100), None), Exit::Success);
        assert_eq!(exit(&summary(1, 101), None), Exit::Partial);
        assert_eq!(exit(&summary(0, 0), None), Exit::Nothing);
        let goals: Goals = "errors<50%".parse().unwrap();
        assert_eq!(exit(&summary(1, 0), Some(&goals)), Exit::Success);
        let unexpected = Summary { unexpected: 1, ..summary(1, 0) };
        assert_eq!(exit(&unexpected, Some(&goals)), Exit::ThresholdFailed);
        assert_eq!(exit(&unexpected, None), Exit::Success);
    }
}

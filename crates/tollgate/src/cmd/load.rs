//! `tollgate load`: load on one server, and what came of it.

mod report;
mod target;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals;
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use indicatif::ProgressBar;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use target::Target;
use tollgate_lab::interrupt::Interrupt;
use tollgate_lab::process::files;
use tollgate_load::{
    Expectation, Generator, MAX_CONNECTIONS, MAX_THREADS, Plan, Request, Workload,
};

/// What `tollgate load` is told.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("end").required(true).args(["requests", "duration"])))]
#[command(after_help = "\
Closed loop: each connection sends when the answer to its last request is in.
This finds what a server can hold; the latency is that of a saturated server.

Examples:
  tollgate load 'http://127.0.0.1:8000/?payload=100' -c 50 -d 10s
  tollgate load http://127.0.0.1:8000/ -c 100 -n 10000 --no-keepalive")]
pub(crate) struct Args {
    /// What to ask for, sent byte for byte: `http://HOST[:PORT]/PATH?QUERY`
    #[arg(value_name = "URL")]
    url: String,
    /// Connections that are open at the same time
    #[arg(short, long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=MAX_CONNECTIONS as i64))]
    connections: u32,
    /// Stop after this many requests
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Stop after this time
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Threads that send
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MAX_THREADS as i64))]
    threads: u32,
    /// A new connection for every request
    #[arg(long)]
    no_keepalive: bool,
    /// A header to send; may be given several times, and may replace Host and User-Agent
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// A host that may be sent load besides this machine itself: only one that you may load
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// How the result is printed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let target = Target::parse(&args.url, &args.allow_host).map_err(Failure::bad_input)?;
    if args.threads > args.connections {
        let threads = args.threads;
        let error = anyhow!("{threads} threads need at least {threads} connections (-c)");
        return Err(Failure::bad_input(error));
    }
    let request = Request {
        bytes: target.request(&args.headers, !args.no_keepalive).map_err(Failure::bad_input)?,
        is_head: false,
        expect: Expectation { status: None, ..Expectation::default() },
        template: 0,
    };
    files::raise_limit().context("raising the limit of open files")?;
    let interrupt = Interrupt::default();
    let wish = interrupt.flag();
    signals::listen(move |count| match count {
        1 => wish.store(true, Ordering::Relaxed),
        _ => std::process::exit(Exit::Interrupted as i32),
    })
    .context("asking for signals")?;
    let generator = Generator::start(Plan {
        target: tollgate_load::Target::Tcp(target.address),
        arrivals: tollgate_load::Arrivals::Closed,
        connections_max: args.connections as usize,
        pipeline: 1,
        first_byte: false,
        workload: Arc::new(Workload::new(vec![request], vec![0])?),
        connections: args.connections as usize,
        threads: args.threads as usize,
        keep_alive: !args.no_keepalive,
        connect_timeout: args.timeout,
        answer_timeout: args.timeout,
        requests: args.requests,
        cpus: Vec::new(),
    })?;
    generator.open_window();
    wait(&generator, args.duration, &interrupt);
    generator.close_window();
    let outcome = generator.finish()?;
    output::print(&match args.format {
        Format::Table => report::table(&target.url, args.connections, &outcome),
        Format::Json => report::json(&target.url, args.connections, &outcome)?,
    })?;
    Ok(match (interrupt.check(), outcome.answered) {
        (Err(_), _) => Exit::Interrupted,
        (Ok(()), 0) => Exit::Nothing,
        (Ok(()), _) => Exit::Done,
    })
}

const POLL: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Waits until the load is delivered, the time is up, or a signal asks for an end. A terminal is
/// shown what has been answered so far.
fn wait(generator: &Generator, duration: Option<Duration>, interrupt: &Interrupt) {
    let deadline = Instant::now() + duration.unwrap_or(LONGEST);
    let spinner = ProgressBar::new_spinner();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || generator.is_done() || interrupt.sleep(left.min(POLL)).is_err() {
            break;
        }
        let progress = generator.progress();
        spinner.set_message(format!("{} answered, {} failed", progress.answered, progress.failed));
        spinner.tick();
    }
    spinner.finish_and_clear();
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() || duration > LONGEST {
        return Err("it has to be above 0 and at most 24h".to_owned());
    }
    Ok(duration)
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("it has to be of the form `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

//! The arguments of `tollgate load`, as they are written.

mod values;

use crate::cmd::catalog::CatalogArgs;
use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_load::{MAX_CONNECTIONS, MAX_PIPELINE, MAX_THREADS};
use values::{
    count, cpu_list, duration, header, host, rate, requests, seed, timeout, timer_slack, warm_up,
};

/// What `tollgate load` is told.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("end").required(true).args(["requests", "duration"])))]
#[command(after_help = "\
Closed loop (without --rate): each connection sends when the answer to its last request is in.
This finds what a server can hold; the latency is that with no more requests under way than the
connections carry.

Open loop (with --rate): requests leave on schedule, whatever comes back. This finds the latency
under a known load; it counts from the scheduled moment, so that waiting is not left out.

Examples:
  tollgate load 'http://127.0.0.1:8000/?payload=100' -c 50 -d 10s
  tollgate load 'http://127.0.0.1:8000/?payload=100' --rate 5000 --poisson -d 30s --warmup steady
  tollgate load http://127.0.0.1:8000/ -c 200 --rate 40000 --timer-slack 1ms -d 10s
  tollgate load 'http://127.0.0.1:8000/?payload=100' -c 100 -n 10000 --no-keepalive --format ab
  tollgate load http://127.0.0.1:8000/ --mix browse -d 10s --format json
  tollgate load 'http://127.0.0.1:8000/?payload=100' -c 1 -d 10s --busy-poll --cpus 1
  tollgate load http://shop.example/ --unix-socket /run/shop.sock -n 1000

FORMAT.md describes what each format holds.

Exit codes:
  0    the load was delivered; that says nothing of the answers, which may all be errors
  1    the machine did not let it be done
  2    bad input
  3    more than 1 % of an open loop's requests were due and never sent
  4    no answer came
  130  stopped by a signal; the result so far is printed")]
pub(crate) struct Args {
    /// What to ask for, sent byte for byte: `http://HOST[:PORT]/PATH?QUERY`
    #[arg(value_name = "URL")]
    pub(super) url: String,

    /// Stop after this many requests, which are all measured
    #[arg(short = 'n', long, value_name = "N", help_heading = "How long", allow_negative_numbers = true, value_parser = requests)]
    pub(super) requests: Option<u64>,
    /// Stop after this time, such as 10s or 1m 30s
    #[arg(short, long, value_name = "TIME", help_heading = "How long", allow_hyphen_values = true, value_parser = duration)]
    pub(super) duration: Option<Duration>,
    /// What is sent before the measurement: for a time, or until throughput and mean latency stand
    /// still, at most 30 s, and no longer where nothing is answered for 5 s
    #[arg(long, value_name = "TIME|steady", help_heading = "How long", allow_hyphen_values = true, conflicts_with = "requests", value_parser = warm_up)]
    pub(super) warmup: Option<WarmUp>,

    /// Connections that are open at the same time
    #[arg(short, long, value_name = "N", help_heading = "Load", default_value_t = 50, value_parser = count(MAX_CONNECTIONS))]
    pub(super) connections: u64,
    /// With --rate: how far connections may grow when requests are due and none is free; by default
    /// not at all
    #[arg(long, value_name = "N", help_heading = "Load", requires = "rate", value_parser = count(MAX_CONNECTIONS))]
    pub(super) max_connections: Option<u64>,
    /// Open loop: this many requests a second, at constant gaps
    #[arg(long, value_name = "N", help_heading = "Load", allow_negative_numbers = true, value_parser = rate)]
    pub(super) rate: Option<f64>,
    /// With --rate: exponential gaps, as of many independent clients
    #[arg(long, help_heading = "Load", requires = "rate")]
    pub(super) poisson: bool,
    /// With --rate: send up to this late, at most 10ms, so that one waking serves many requests; at
    /// high rates that saves most of the CPU that being on time costs. The latency from send does not
    /// hold it: the kernel tells when answers came. Needs TCP
    #[arg(long, value_name = "TIME", help_heading = "Load", requires = "rate", conflicts_with_all = ["no_keepalive", "busy_poll"], value_parser = timer_slack)]
    pub(super) timer_slack: Option<Duration>,
    /// What Poisson gaps, the order of a mix and its variables are drawn from
    #[arg(long, value_name = "N", help_heading = "Load", default_value_t = 1, allow_negative_numbers = true, value_parser = seed)]
    pub(super) seed: u64,
    /// A new connection for every request
    #[arg(long, help_heading = "Load")]
    pub(super) no_keepalive: bool,
    /// Requests under way on one connection
    #[arg(long, value_name = "N", help_heading = "Load", default_value_t = 1, value_parser = count(MAX_PIPELINE))]
    pub(super) pipeline: u64,
    /// Threads that send
    #[arg(short, long, value_name = "N", help_heading = "Load", default_value_t = 1, value_parser = count(MAX_THREADS))]
    pub(super) threads: u64,
    /// Never sleep: ask for events over and over. Each thread takes a whole CPU, and the server pays
    /// nothing for waking it
    #[arg(long, help_heading = "Load")]
    pub(super) busy_poll: bool,
    /// CPUs to send from, such as 0,2-3: each thread runs on one of them, in a circle
    #[arg(long, value_name = "LIST", help_heading = "Load", value_parser = cpu_list)]
    pub(super) cpus: Option<CpuList>,

    /// The method; GET by default, POST where there is a body
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub(super) method: Option<String>,
    /// A header to send; may be given several times, and may replace Host and User-Agent
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", help_heading = "Request", value_parser = header)]
    pub(super) headers: Vec<(String, String)>,
    /// The body to send
    #[arg(long, value_name = "TEXT", help_heading = "Request", conflicts_with = "body_file")]
    pub(super) body: Option<String>,
    /// A file that holds the body to send
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub(super) body_file: Option<PathBuf>,
    /// The Host header, where it is not that of the URL
    #[arg(long, value_name = "NAME", help_heading = "Request", value_parser = host)]
    pub(super) host: Option<String>,
    /// The status that counts as expected; by default any answer does
    #[arg(long, value_name = "STATUS", help_heading = "Request", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(super) expect: Option<u16>,
    /// Send a mix: its name (see `tollgate list`), or a file that ends in .toml; the URL gives only
    /// the address. What the file expects is expected of attacks too, so those that a WAF blocks
    /// are counted as unexpected
    #[arg(long, value_name = "NAME | FILE.toml", help_heading = "Request", conflicts_with_all = ["method", "headers", "body", "body_file", "expect"])]
    pub(super) mix: Option<String>,
    #[command(flatten, next_help_heading = "Request")]
    pub(super) catalog: CatalogArgs,

    /// Connect to this unix-domain socket; the URL gives Host and path
    #[arg(long, value_name = "PATH", help_heading = "Target and limits")]
    pub(super) unix_socket: Option<PathBuf>,
    /// A host that may be sent load besides this machine itself: only one that you may load
    #[arg(long, value_name = "HOST", help_heading = "Target and limits")]
    pub(super) allow_host: Vec<String>,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", help_heading = "Target and limits", default_value = "10s", value_parser = timeout)]
    pub(super) timeout: Duration,
    /// How long connecting may take
    #[arg(long, value_name = "TIME", help_heading = "Target and limits", default_value = "5s", value_parser = timeout)]
    pub(super) connect_timeout: Duration,

    /// How to print the result
    #[arg(long, value_enum, help_heading = "Result", default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// How the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs: everything
    Json,
    /// For spreadsheets: a row for the whole, each class and each template
    Csv,
    /// As `ab` (Apache's benchmark) prints it, for scripts that read that
    Ab,
    /// The percentiles of the latency in milliseconds, for HdrHistogram's plotters
    Hgrm,
}

/// What comes before the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmUp {
    /// Nothing.
    None,
    /// Load for a time.
    For(Duration),
    /// Load until the figures stand still.
    Steady,
}

/// CPUs by their numbers, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CpuList(pub(super) Vec<usize>);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The arguments of a line, whose words are apart by blanks.
    pub(in crate::cmd::load) fn args(line: &str) -> Args {
        parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn parsed(line: &str) -> Result<Args, clap::Error> {
        let words = ["load"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn options_that_need_or_exclude_another_say_so() {
        for (line, why) in [
            ("http://127.0.0.1/", "--requests"),
            ("http://127.0.0.1/ -n 1 -d 1s", "--duration"),
            ("http://127.0.0.1/ -n 1 --warmup 1s", "--warmup"),
            ("http://127.0.0.1/ -d 1s --poisson", "--rate"),
            ("http://127.0.0.1/ -d 1s --max-connections 9", "--rate"),
            ("http://127.0.0.1/ -d 1s --timer-slack 1ms", "--rate"),
            ("http://127.0.0.1/ -d 1s --rate 1 --timer-slack 11ms", "above 0 and at most 10ms"),
            ("http://127.0.0.1/ -d 1s --rate 1 --timer-slack 1ms --no-keepalive", "--no-keepalive"),
            ("http://127.0.0.1/ -d 1s --body a --body-file b", "--body-file"),
            ("http://127.0.0.1/ -d 1s --mix browse --expect 200", "--expect"),
            ("http://127.0.0.1/ -d 1s --mix browse -H a:b", "--header"),
            ("http://127.0.0.1/ -d 1s --expect 99", "--expect"),
            ("http://127.0.0.1/ -d 1s --pipeline 1001", "--pipeline"),
            ("http://127.0.0.1/ -d -5s", "'-5s' for '--duration <TIME>': it has to be a time"),
            ("http://127.0.0.1/ -n -5", "'-5' for '--requests <N>': it has to be a whole number"),
            ("http://127.0.0.1/ -d 1s --rate -5", "'-5' for '--rate <N>': it has to be a number"),
            ("http://127.0.0.1/ -d 1s --seed -5", "'-5' for '--seed <N>': it has to be a whole"),
            ("http://127.0.0.1/ -d 1s --warmup -5s", "'-5s' for '--warmup <TIME|steady>': it has"),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}

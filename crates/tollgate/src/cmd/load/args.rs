//! Arguments of `tollgate load`.

use super::values::{
    CpuList, MAX_DURATION, cpu_list, header, host, interval, length, number, pace, rate, requests,
    timeout, warm_up,
};
use super::{metrics, series};
use crate::cmd::prepare::CatalogArgs;
use anyhow::{Result, bail};
use clap::ValueEnum;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_cluster::carrier::Carrier;
use tollgate_load::{Pace, Rate};
use tollgate_search::goal::Goals;
use tollgate_traffic::load_shape::{
    MAX_CONNECTIONS, MAX_PIPELINE, MAX_STREAMS, MAX_THREADS, Protocol,
};

/// Without a number of requests.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// Arguments of `tollgate load`.
#[derive(Debug, clap::Args)]
#[command(args = foreign::options())]
#[command(group = clap::ArgGroup::new("open_loop").args(["rate", "pace"]).multiple(true))]
#[command(after_help = "\
Closed loop (without --rate or --pace): each connection sends when its last
response is complete. This finds the capacity of a server.

Open loop (with --rate or --pace): requests leave on a schedule, independent of
responses. This finds the latency at a known load, from the moment when each
request was due.

Examples:
  tollgate load http://127.0.0.1:8000/                50 connections, 10 s
  tollgate load 'http://127.0.0.1:8000/?payload=100' -c 100 -d 30s
  tollgate load 127.0.0.1:8000/upload -H 'Content-Type: image/png' --body @a.png
  tollgate load http://127.0.0.1:8000/ --rate 5000 --poisson --warmup steady
  tollgate load http://127.0.0.1:8000/ --rate 100..5000/60s
  tollgate load http://127.0.0.1:8000/ --http 2 -c 10 --streams 10
  tollgate load https://127.0.0.1:8443/ --http auto --insecure
  tollgate load http://127.0.0.1:8000/ -n 10000 --no-keepalive --format ab
  tollgate load http://127.0.0.1:8000/ --mix browse -d 10s --format json
  tollgate load http://127.0.0.1:8000/ --mix ./access.mix --pace x2
  tollgate load http://127.0.0.1:8000/ -c 1 --busy-poll --cpus 1
  tollgate load http://shop.example/ --unix-socket /run/shop.sock -n 1000
  tollgate load http://sut:8080/ --rate 200000 --on slurm:4 --allow-host sut

Also understood, from other tools: -z for --duration, -R for --rate, -D for
--body-file, --data for --body, --json (or -j) for --format json,
--disable-keepalive. -k and --latency are the default.

docs/formats.md describes the formats.

Exit codes:
  0    the load was sent; responses may still be unexpected, or requests failed
  1    system error
  2    invalid arguments
  3    more than 1 % of the requests of an open loop were due, but not sent
  4    no response
  99   a goal of --threshold was missed
  130  stopped by a signal; the result so far is printed")]
pub(crate) struct Args {
    /// URL to request, sent byte for byte: `[http[s]://]HOST[:PORT]/PATH?QUERY`
    #[arg(value_name = "URL")]
    pub(super) url: String,

    /// Number of requests to send, all measured
    #[arg(short = 'n', long, value_name = "N", help_heading = "Length", conflicts_with = "duration", allow_negative_numbers = true, value_parser = requests)]
    pub(super) requests: Option<u64>,
    /// Length of the measurement, such as 10s or 1m 30s; a number alone is in seconds [default: 10s
    /// without -n; the whole recording with --pace]
    #[arg(short, long, short_alias = 'z', value_name = "TIME", help_heading = "Length", allow_hyphen_values = true, value_parser = length)]
    pub(super) duration: Option<Duration>,
    /// Warm-up before the measurement: a time, or `steady` to wait up to 30s until throughput and mean
    /// latency are steady [default: none]
    #[arg(long, value_name = "TIME|steady", help_heading = "Length", allow_hyphen_values = true, conflicts_with = "requests", value_parser = warm_up)]
    pub(super) warmup: Option<WarmUp>,

    /// Open connections
    #[arg(short, long, value_name = "N", help_heading = "Load", default_value = "50", value_parser = number(MAX_CONNECTIONS))]
    pub(super) connections: usize,
    /// Open loop: limit of connections, added when a request is due and none is free [default:
    /// --connections; 1000 with --pace]
    #[arg(long, value_name = "N", help_heading = "Load", requires = "open_loop", value_parser = number(MAX_CONNECTIONS))]
    pub(super) max_connections: Option<usize>,
    /// Open loop: requests per second, at constant gaps. A rate that changes has stages, each a rate or
    /// a ramp with its length: 100..5000/60s or 1000,2000,4000/10s or 10..500/30s,500/1m
    #[arg(long, short_alias = 'R', value_name = "N | STAGES", help_heading = "Load", allow_negative_numbers = true, value_parser = rate)]
    pub(super) rate: Option<Rate>,
    /// Open loop: send a recording of `tollgate mix import` once, in its order: at the recorded times, at N
    /// times their rate (x2, x0.5), or at --rate. The requests of a client are a session, with its own
    /// connections, cookies and variables
    #[arg(long, value_name = "original | xN | rate", help_heading = "Load", requires = "mix", conflicts_with_all = ["requests", "warmup", "poisson", "connections", "no_keepalive", "pipeline"], value_parser = pace)]
    pub(super) pace: Option<Pace>,
    /// Open loop: exponential gaps, as from many independent clients
    #[arg(long, help_heading = "Load", requires = "rate")]
    pub(super) poisson: bool,
    /// Seed of Poisson gaps and of the order and variables of a mix
    #[arg(
        long,
        value_name = "N",
        help_heading = "Load",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub(super) seed: u64,
    /// Open a new connection for each request
    #[arg(long, alias = "disable-keepalive", help_heading = "Load")]
    pub(super) no_keepalive: bool,
    /// Requests in flight on one connection over HTTP/1.1 [default: 1]
    #[arg(long, value_name = "N", help_heading = "Load", value_parser = number(MAX_PIPELINE))]
    pipeline: Option<usize>,
    /// Version of HTTP; `auto` uses the version that an https server selects by ALPN. Over http, 2
    /// needs prior knowledge (h2c)
    #[arg(long, value_name = "VERSION", help_heading = "Load", default_value = "1.1")]
    http: Version,
    /// Streams on one connection over HTTP/2: requests in flight [default: 1]
    #[arg(long, value_name = "N", help_heading = "Load", conflicts_with_all = ["pipeline", "no_keepalive"], value_parser = number(MAX_STREAMS))]
    streams: Option<usize>,
    /// `--http2` of oha and `--http2-prior-knowledge` of curl.
    #[arg(
        long,
        alias = "h2c",
        alias = "http2-prior-knowledge",
        hide = true,
        conflicts_with = "http"
    )]
    http2: bool,
    /// Threads that send
    #[arg(short, long, value_name = "N", help_heading = "Load", default_value = "1", value_parser = number(MAX_THREADS))]
    pub(super) threads: usize,
    /// Poll for events instead of sleeping; each thread uses a whole CPU, and the server does not pay
    /// for waking it
    #[arg(long, help_heading = "Load")]
    pub(super) busy_poll: bool,
    /// CPUs to send from, such as 0,2-3, one per thread, round robin [default: any]
    #[arg(long, value_name = "LIST", help_heading = "Load", value_parser = cpu_list)]
    pub(super) cpus: Option<CpuList>,

    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub(super) method: Option<String>,
    /// Header to send; repeatable, may replace Host and User-Agent
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", help_heading = "Request", value_parser = header)]
    pub(super) headers: Vec<(String, String)>,
    /// Body to send, or @FILE to read it from a file; set its type with -H
    #[arg(
        long,
        alias = "data",
        value_name = "TEXT | @FILE",
        help_heading = "Request",
        conflicts_with = "body_file"
    )]
    pub(super) body: Option<String>,
    /// File with the body to send
    #[arg(long, short_alias = 'D', value_name = "FILE", help_heading = "Request")]
    pub(super) body_file: Option<PathBuf>,
    /// Host header [default: that of the URL]
    #[arg(long, value_name = "NAME", help_heading = "Request", value_parser = host)]
    pub(super) host: Option<String>,
    /// Expected status code [default: any]
    #[arg(long, value_name = "STATUS", help_heading = "Request", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(super) expect: Option<u16>,
    /// Send a mix to the address of the URL: a name (see `tollgate list`), a .toml file, or a .mix file of
    /// `tollgate mix import`; attacks that are blocked count as unexpected
    #[arg(long, value_name = "NAME | FILE", help_heading = "Request", conflicts_with_all = ["method", "headers", "body", "body_file", "expect"])]
    pub(super) mix: Option<String>,
    #[command(flatten, next_help_heading = "Request")]
    pub(super) catalog: CatalogArgs,

    /// Connect to this unix-domain socket; the URL gives Host and path
    #[arg(long, value_name = "PATH", help_heading = "Target and limits")]
    pub(super) unix_socket: Option<PathBuf>,
    /// Allow load to a host other than this machine; repeatable, only for hosts that you may load
    #[arg(long, value_name = "HOST", help_heading = "Target and limits")]
    pub(super) allow_host: Vec<String>,
    // Not a comment of documentation, where brackets are links.
    #[arg(
        long,
        value_name = "CARRIER",
        help_heading = "Target and limits",
        conflicts_with_all = ["pace", "unix_socket", "series", "html", "metrics"],
        help = "Send from several hosts, whose results are merged exactly: slurm[:N], ssh:HOST,HOST, \
                kubectl:[NAMESPACE/]POD,... or local[:N]; rate, requests and connections are those of all hosts"
    )]
    pub(super) on: Option<Carrier>,
    /// Trust the certificates in this PEM file, and those they issued, instead of the authorities of the system
    #[arg(long, value_name = "FILE", help_heading = "TLS", conflicts_with = "insecure")]
    pub(super) cacert: Option<PathBuf>,
    /// Accept any certificate
    #[arg(long, help_heading = "TLS")]
    pub(super) insecure: bool,
    /// Certificate of the client, with its chain, in PEM
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// Only this version of TLS [default: both]
    #[arg(long, value_name = "VERSION", help_heading = "TLS")]
    pub(super) tls: Option<Tls>,
    /// Resume sessions by tickets in further handshakes; without, each is a full one
    #[arg(long, help_heading = "TLS")]
    pub(super) tls_resume: bool,

    /// Make only TLS handshakes, each on a new connection; full ones, or resumed with --tls-resume
    #[arg(long, help_heading = "TLS", conflicts_with_all = ["pipeline", "streams", "mix", "host", "expect", "method", "headers", "body", "body_file"])]
    pub(super) handshakes: bool,

    /// Limit of the time to a complete response
    #[arg(long, value_name = "TIME", help_heading = "Target and limits", default_value = "10s", value_parser = timeout)]
    pub(super) timeout: Duration,
    /// Limit of the time to connect, and of a TLS handshake
    #[arg(long, value_name = "TIME", help_heading = "Target and limits", default_value = "5s", value_parser = timeout)]
    pub(super) connect_timeout: Duration,

    /// Format of the result
    #[arg(long, value_enum, help_heading = "Result", default_value_t = Format::Table)]
    format: Format,
    /// Write figures over time to this file while the load runs: .csv, or .jsonl for JSON lines
    #[arg(long, value_name = "FILE", help_heading = "Result", value_parser = series::path)]
    pub(super) series: Option<PathBuf>,
    /// Length of the intervals of --series, --html and --metrics, from 10ms [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Result", value_parser = interval)]
    pub(super) series_interval: Option<Duration>,
    /// Write a page with the result and plots over time to this file
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(super) html: Option<PathBuf>,
    /// Serve metrics for Prometheus on this address of this machine while the load runs
    #[arg(long, value_name = "[ADDRESS:]PORT", help_heading = "Result", value_parser = metrics::address)]
    pub(super) metrics: Option<SocketAddr>,
    /// Upper limits that the load has to meet, such as 'p99<5ms,errors<0.1%'; exits with 99 if it does not
    ///
    /// The goals of `tollgate search`; without one for errors, less than 1 % is allowed.
    #[arg(long, value_name = "GOALS", help_heading = "Result")]
    pub(super) threshold: Option<Goals>,
    /// `--json` of oha.
    #[arg(long, short = 'j', hide = true, conflicts_with = "format")]
    json: bool,
}

impl Args {
    pub(super) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    pub(super) fn version(&self) -> Version {
        if self.http2 { Version::Http2 } else { self.http }
    }

    /// True if an option is for HTTP/1.1 alone.
    pub(super) fn needs_http1(&self) -> bool {
        self.no_keepalive || self.handshakes || self.pipeline.is_some()
    }

    /// Protocol before a server was asked, which it may change with `auto`.
    pub(super) fn requested_protocol(&self, is_tls: bool) -> Result<Protocol> {
        match self.version() {
            Version::Auto if is_tls && !self.needs_http1() => self.protocol(Version::Http2),
            Version::Auto => self.protocol(Version::Http1),
            version => self.protocol(version),
        }
    }

    /// Protocol with the requests in flight on one connection.
    pub(super) fn protocol(&self, version: Version) -> Result<Protocol> {
        match version {
            Version::Http2 if self.handshakes => {
                bail!("--handshakes sends no requests; remove --http 2")
            }
            Version::Http2 if self.pipeline.is_some() => {
                bail!("--pipeline is for HTTP/1.1; over HTTP/2 use --streams N")
            }
            Version::Http2 if self.no_keepalive => {
                bail!("cannot open a connection for each request over HTTP/2: use HTTP/1.1")
            }
            Version::Http2 => Ok(Protocol::Http2 { streams: self.streams.unwrap_or(1) }),
            Version::Http1 | Version::Auto if self.streams.is_some() => match self.version() {
                Version::Auto => bail!("--streams needs HTTP/2, which is not used here"),
                Version::Http1 | Version::Http2 => bail!("--streams needs --http 2"),
            },
            Version::Http1 | Version::Auto if self.handshakes => Ok(Protocol::Handshakes),
            Version::Http1 | Version::Auto => match (self.no_keepalive, self.pipeline) {
                (false, pipeline) => Ok(Protocol::Http1 { pipeline: pipeline.unwrap_or(1) }),
                (true, None | Some(1)) => Ok(Protocol::Http1Close),
                (true, Some(pipeline)) => {
                    bail!("cannot pipeline {pipeline} requests without keep-alive: choose 1")
                }
            },
        }
    }

    /// Length of the measurement; `None` if a number of requests ends it.
    pub(super) fn length(&self) -> Option<Duration> {
        let planned = self.duration.or_else(|| self.rate.as_ref().and_then(Rate::length));
        let is_endless = self.requests.is_none() && self.pace.is_none();
        planned.or(is_endless.then_some(DEFAULT_DURATION))
    }

    /// Checks that a pace and a rate fit together.
    pub(super) fn check_pace(&self) -> Result<()> {
        match (self.pace, &self.rate) {
            (Some(Pace::Rate), None) => bail!("--pace rate needs --rate N"),
            (Some(pace @ Pace::Recorded { .. }), Some(_)) => {
                bail!("--pace {pace} has the recorded times; remove --rate, or use --pace rate")
            }
            _ => Ok(()),
        }
    }

    /// Checks that nothing else sets the length of a rate with stages.
    pub(super) fn check_stages(&self) -> Result<()> {
        let Some(length) = self.rate.as_ref().and_then(Rate::length) else { return Ok(()) };
        if length > MAX_DURATION {
            let max = humantime::format_duration(MAX_DURATION);
            bail!("--rate: the stages take longer than {max}");
        }
        let options = [
            ("--duration", self.duration.is_some()),
            ("--requests", self.requests.is_some()),
            ("--warmup", self.warmup.is_some()),
        ];
        match options.into_iter().find(|(_, is_given)| *is_given) {
            Some(("--warmup", _)) => {
                bail!("--rate: stages have no --warmup; put a stage before them")
            }
            Some((option, _)) => bail!("--rate: stages have their own length; remove {option}"),
            None => Ok(()),
        }
    }
}

/// Options of wrk, oha, hey, ab and curl that mean something else here, or the default.
mod foreign {
    use clap::builder::TypedValueParser;
    use clap::error::ErrorKind;
    use clap::{Arg, ArgAction, Command, Error};
    use std::ffi::OsStr;

    /// Long or short option, and its replacement.
    const OTHERS: &[(&str, &str)] = &[
        ("A", "use -H 'Accept: TYPE' or -H 'User-Agent: NAME'"),
        ("a", "use -H 'Authorization: Basic ...'"),
        ("b", "use -H 'Cookie: ...'"),
        ("C", "use -H 'Cookie: ...'"),
        ("I", "use --method HEAD"),
        ("i", "use --method HEAD"),
        ("L", "redirects are not followed"),
        ("m", "use --method METHOD, or --timeout TIME for the limit of a request"),
        ("o", "use --format json or csv, and > FILE"),
        ("p", "use --body @FILE, or --pipeline N for requests in flight per connection"),
        ("q", "use --rate N, in requests per second over all connections"),
        ("s", "use --timeout TIME, or --mix FILE.toml for a script of requests"),
        ("T", "use -H 'Content-Type: TYPE', or --timeout TIME"),
        ("u", "use -H 'Authorization: Basic ...', or --body @FILE for the body of a PUT"),
        ("w", "use --format csv"),
        ("x", "proxies are not supported: name the proxy in the URL and the server with --host"),
        ("concurrency", "use --connections N"),
        ("cookie", "use -H 'Cookie: ...'"),
        ("data-binary", "use --body TEXT or --body @FILE"),
        ("iterations", "use --requests N"),
        ("max-time", "use --timeout TIME"),
        ("output", "use --format json or csv, and > FILE"),
        ("output-format", "use --format json or csv"),
        ("qps", "use --rate N, in requests per second over all connections"),
        ("request", "use --method METHOD"),
        ("rps", "use --rate N, in requests per second over all connections"),
        ("script", "use --mix FILE.toml"),
        ("user", "use -H 'Authorization: Basic ...'"),
        ("vus", "use --connections N"),
    ];

    /// Fails with the replacement option.
    #[derive(Clone)]
    struct Instead(&'static str, &'static str);

    impl TypedValueParser for Instead {
        type Value = String;

        fn parse_ref(&self, cmd: &Command, _: Option<&Arg>, _: &OsStr) -> Result<String, Error> {
            let Self(name, instead) = self;
            let dashes = if name.len() == 1 { "-" } else { "--" };
            let message = format!("unexpected option '{dashes}{name}': {instead}");
            Err(cmd.clone().error(ErrorKind::UnknownArgument, message))
        }
    }

    pub(super) fn options() -> Vec<Arg> {
        let hidden = |name: &'static str| {
            let arg = Arg::new(name).hide(true);
            match name.chars().next() {
                Some(short) if name.len() == 1 => arg.short(short),
                _ => arg.long(name),
            }
        };
        let rejected = |(name, instead): &(&'static str, &'static str)| {
            let arg = hidden(name).num_args(0..=1).default_missing_value("");
            arg.value_parser(Instead(name, instead))
        };
        let default = ["k", "latency", "latency-correction", "no-tui"]
            .map(|name| hidden(name).action(ArgAction::SetTrue));
        OTHERS.iter().map(rejected).chain(default).collect()
    }
}

/// Version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Version {
    #[value(name = "1.1")]
    Http1,
    #[value(name = "2")]
    Http2,
    Auto,
}

/// Version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Tls {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

/// Format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// Everything, for programs
    Json,
    /// A row for the total, each class and each template, for spreadsheets
    Csv,
    /// The report of `ab`, Apache's benchmark
    Ab,
    /// Latency percentiles in milliseconds, for the plotters of `HdrHistogram`
    Hgrm,
}

/// Phase before the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmUp {
    None,
    For(Duration),
    Steady,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::tests::parse;

    #[test]
    fn invalid_options_are_named() {
        for (line, reason) in [
            ("-n 1 -d 1s", "--duration"),
            ("-n 1 --warmup 1s", "--warmup"),
            ("-d 1s --poisson", "--rate"),
            ("-d 1s --max-connections 9", "--rate"),
            ("-d 1s --body a --body-file b", "--body-file"),
            ("-d 1s --mix browse --expect 200", "--expect"),
            ("-d 1s --mix browse -H a:b", "--header"),
            ("-d 1s --expect 99", "--expect"),
            ("-d 1s --pipeline 1001", "--pipeline"),
            ("-d 1s --http 3", "[possible values: 1.1, 2, auto]"),
            ("-d 1s --http 2 --streams 1001", "--streams"),
            ("-d 1s --streams 2 --pipeline 2", "--pipeline"),
            ("-n 0", "'0' for '--requests <N>'"),
            ("-n -5", "'-5' for '--requests <N>'"),
            ("-d -5s", "'-5s' for '--duration <TIME>': expected number"),
            ("-d 1s --rate -5", "'-5' for '--rate <N | STAGES>': expected a number above 0"),
            ("-d 1s --seed -5", "'-5' for '--seed <N>'"),
            ("--series 1s", "a file ending in .csv or .jsonl; --series-interval sets"),
            ("--series-interval 1ms", "expected at least 10ms"),
            ("--metrics 0.0.0.0:1", "a loopback address with a port, such as 127.0.0.1:9090"),
            ("--metrics 0", "a loopback address with a port, such as 127.0.0.1:9090"),
            ("--handshakes -X HEAD", "--method"),
            ("--handshakes --host a", "--host"),
            ("--pace original", "--mix"),
            ("--mix a.mix --pace x0", "a factor from x0.001 to x1000000, such as x2 or x0.5"),
            ("--mix a.mix --pace 2", "expected `original`, `rate`, or a factor"),
            ("--mix a.mix --pace x2 -n 5", "--requests"),
            ("--mix a.mix --pace x2 -c 5", "--connections"),
            ("--mix a.mix --pace x2 --warmup 1s", "--warmup"),
            ("--mix a.mix --pace x2 --no-keepalive", "--no-keepalive"),
            ("--mix a.mix --pace rate --rate 5 --poisson", "--poisson"),
            ("--handshakes -H a:b", "--header"),
            ("--handshakes --body a", "--body"),
            ("--handshakes --body-file a", "--body-file"),
            ("-d 1s --warmup stead", "such as 500ms, 10s or 1m 30s, or `steady`"),
        ] {
            let error = parse(&format!("http://127.0.0.1/ {line}")).unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn pace_and_rate_fit_together() {
        for (options, expected) in [
            ("--pace rate", Some("--pace rate needs --rate N")),
            (
                "--pace x2 --rate 5",
                Some("--pace x2 has the recorded times; remove --rate, or use --pace rate"),
            ),
            ("--pace original --max-connections 9 -d 5s", None),
            ("--pace rate --rate 5..9/1s", None),
        ] {
            let args = parse(&format!("127.0.0.1 --mix a.mix {options}")).unwrap();
            let error = args.check_pace().err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{options}");
        }
        let length = |options| parse(&format!("127.0.0.1 --mix a.mix {options}")).unwrap().length();
        assert_eq!(length("--pace x0.5"), None);
        assert_eq!(length("--pace x0.5 -d 5s"), Some(Duration::from_secs(5)));
    }

    #[test]
    fn handshakes_are_not_over_http2() {
        let protocol = |options: &str| {
            let line = format!("https://127.0.0.1/ --handshakes {options}");
            parse(&line).unwrap().requested_protocol(true)
        };
        for options in ["--http 2", "--http2"] {
            let error = protocol(options).unwrap_err().to_string();
            assert_eq!(error, "--handshakes sends no requests; remove --http 2");
        }
        assert_eq!(protocol("--http auto").unwrap(), Protocol::Handshakes);
    }

    #[test]
    fn options_of_other_tools_are_understood_or_named() {
        for (line, same) in [
            ("-z 5s", "-d 5s"),
            ("-z5", "-d 5s"),
            ("-R 100", "--rate 100"),
            ("-D f", "--body-file f"),
            ("--data a=1", "--body a=1"),
            ("--json", "--format json"),
            ("-j -k --latency", "--format json"),
            ("--disable-keepalive", "--no-keepalive"),
            ("--http2", "--http 2"),
            ("--h2c --streams 9", "--http 2 --streams 9"),
        ] {
            let args = |line: &str| {
                let args = parse(&format!("{line} http://127.0.0.1/")).unwrap();
                let format = args.format();
                let protocol = args.requested_protocol(false).unwrap();
                let rest = Args {
                    json: false,
                    format: Format::Table,
                    http: Version::Http1,
                    http2: false,
                    ..args
                };
                format!("{rest:?} {format:?} {protocol:?}")
            };
            assert_eq!(args(line), args(same), "{line}");
        }
        for (line, reason) in [
            ("-q 100", "unexpected option '-q': use --rate N"),
            ("-q", "unexpected option '-q': use --rate N"),
            ("-m 5", "unexpected option '-m': use --method METHOD, or --timeout TIME"),
            ("-o out.json", "use --format json"),
            ("--script=a.lua", "'--script': use --mix"),
            ("-T text/plain", "use -H 'Content-Type: TYPE'"),
            ("--rps 10", "'--rps': use --rate N"),
            ("--iterations 9", "'--iterations': use --requests N"),
            ("-d {\"a\":1}", "for a body use --body"),
            ("--json --format csv", "--json"),
        ] {
            let error = parse(&format!("http://127.0.0.1/ {line}")).unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
            assert!(!error.contains("as a value"), "{line}: {error}");
        }
    }
}

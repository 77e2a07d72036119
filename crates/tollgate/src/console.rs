//! Standard output for data, standard error for progress and errors, and the exit codes of all subcommands.

use anyhow::Context;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use terminal_size::{Width, terminal_size_of};
use tollgate_batch::measure::NoAnchor;
use tollgate_cluster::connection::is_interrupted;
use tollgate_records::error::BadInput;
use tollgate_runner::run::NoPrices;
use tollgate_stats::text::{COLUMNS, Screen};

/// Prints to standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints a line to standard error. Errors are ignored: a closed standard error must not stop a measurement.
pub(crate) fn eprint_line(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Returns width and color of standard output.
pub(crate) fn screen() -> Screen {
    let wide = io::stdout().is_terminal().then(|| terminal_size_of(io::stdout())).flatten();
    let columns = wide.map_or(COLUMNS, |(Width(columns), _)| usize::from(columns));
    Screen { columns: columns.max(COLUMNS_MIN), color: color() }
}

const COLUMNS_MIN: usize = 40;

fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success = 0,
    /// System error.
    Failed = 1,
    BadInput = 2,
    /// Some subjects have no result, or not all load was sent.
    Partial = 3,
    /// No result.
    Nothing = 4,
    /// A threshold is not settled, and none failed.
    NotSettled = 75,
    ThresholdFailed = 99,
    Interrupted = 130,
}

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    success; systems that are not installed are skipped, and unexpected
       responses to `load` do not change the exit code
  1    system error (doctor: a run is not possible; waf explain: blocked; waf
       check: nginx would not start; waf test: a test fails; waf tune: more
       attacks pass than --max-lost)
  2    bad input: an option, a file or a name
  3    partial result: a subject failed or was refused, a search is not settled,
       or more than 1 % of an open loop's requests were due and never sent
  4    no result: no response, no price, no rate
  75   a --threshold is not settled: the 95 % interval contains the limit
  99   a --threshold failed, or `batch find --fail-on` found a change
  130  stopped by Ctrl-C, TERM or HUP; finished trials are kept and shown
  128+N  killed by signal N (137: kill -9); continue a run with --resume

Examples:
  tollgate run                        price nginx and ModSecurity in a minute
  tollgate run modsecurity --quick    another experiment, in a fifth of its time
  tollgate report runs/first-look-... --format markdown
  tollgate load http://127.0.0.1:8080/ -c 50 -d 10s";

/// Prints an error to standard error and returns the exit code.
pub(crate) fn exit_code(result: Result<Exit, Failure>) -> ExitCode {
    let exit = result.unwrap_or_else(|Failure { exit, error }| {
        eprint_line(&format!("tollgate: {error:#}"));
        exit
    });
    ExitCode::from(exit as u8)
}

impl Failure {
    pub(crate) fn bad_input(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::BadInput, error: error.into() }
    }

    /// True if the error, or its context, is of this type.
    pub(crate) fn is<E: std::error::Error + Send + Sync + 'static>(&self) -> bool {
        self.error.is::<E>()
    }

    pub(crate) fn nothing(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Nothing, error: error.into() }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// The exit code of an interruption, [`BadInput`], [`NoPrices`] or [`NoAnchor`], otherwise that of a system error.
    fn from(error: E) -> Self {
        let error = error.into();
        if error.is::<BadInput>() {
            return Self::bad_input(error);
        }
        if is_interrupted(&error) {
            return Self { exit: Exit::Interrupted, error };
        }
        if error.is::<NoPrices>() || error.is::<NoAnchor>() {
            Self::nothing(error)
        } else {
            Self { exit: Exit::Failed, error }
        }
    }
}

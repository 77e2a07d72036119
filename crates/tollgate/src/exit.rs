//! Exit codes: part of the command line's promise, the same for every subcommand.

use crate::output::tell;
use std::process::ExitCode;

/// How a subcommand ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything that was asked for was done.
    Done = 0,
    /// The machine did not let it be done.
    Failed = 1,
    /// What was asked for cannot be.
    BadInput = 2,
    /// Prices or rates were found, but not for every subject; load was delivered, but not all of it.
    Partial = 3,
    /// Nothing could be measured.
    Nothing = 4,
    /// A gate is not settled, and none is broken.
    NotSettled = 75,
    /// A gate is broken.
    Broken = 99,
    /// It was asked to stop.
    Interrupted = 130,
}

/// An error and the code that tells it.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

/// What `--help` says about exit codes.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done; a subject whose system is not installed is skipped and does not change this, and
       neither do answers to a load that are not the expected ones
  1    the machine did not let it be done (doctor: a run would not be possible)
  2    bad input: an option, a file, or a name that does not exist
  3    prices were found, but a subject failed or was refused; or more than 1 % of an open
       loop's requests were due and never sent; or a search did not settle for every subject
  4    nothing could be measured: no answer came, there is no price, or a search found no rate;
       or a report in the format github would be empty
  75   a --threshold is not settled: the 95 % interval holds its bound, or there is none
  99   a --threshold is broken: all of the 95 % interval is on the wrong side
  130  stopped by Ctrl-C, TERM or HUP; what was finished is kept and shown
  128+N  killed by signal N (137: kill -9); a run goes on with --resume

Examples:
  tollgate run                          price nginx and ModSecurity in 90 seconds
  tollgate run modsecurity --quick      the ModSecurity benchmark, cut to a fifth of its time
  tollgate report runs/first-look-... --format markdown
  tollgate load http://127.0.0.1:8080/ -c 50 -d 10s";

/// The code to exit with; an error is told on standard error first.
pub(crate) fn code(ended: Result<Exit, Failure>) -> ExitCode {
    let exit = match ended {
        Ok(exit) => exit,
        Err(Failure { exit, error }) => {
            tell(&format!("tollgate: {error:#}"));
            exit
        }
    };
    ExitCode::from(exit as u8)
}

impl Failure {
    /// What was asked for cannot be.
    pub(crate) fn bad_input(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::BadInput, error: error.into() }
    }

    /// There is nothing that could be told.
    pub(crate) fn nothing(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Nothing, error: error.into() }
    }
}

/// Any other error is the machine's.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { exit: Exit::Failed, error: error.into() }
    }
}

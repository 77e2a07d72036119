//! Standard output for data, standard error for progress and errors.

use anyhow::Context;
use std::io::{self, ErrorKind, IsTerminal, Write};
use terminal_size::{Width, terminal_size_of};
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
pub(crate) fn tell(text: &str) {
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

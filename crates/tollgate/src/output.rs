//! Standard output is for data, standard error for what is told on the way.

use anyhow::Context;
use std::io::{self, ErrorKind, IsTerminal, Write};
use terminal_size::{Width, terminal_size_of};
use tollgate_lab::report::layout::{COLUMNS, Screen};

/// Prints a text. A reader that has seen enough (`| head`) is not an error.
///
/// # Errors
///
/// It cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}

/// Tells a person something on standard error. One that nobody reads any more is no reason to stop a
/// measurement, so what cannot be written is let go.
pub(crate) fn tell(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// What standard output is shown on: a terminal as wide as it says that it is, or else what all can read.
pub(crate) fn screen() -> Screen {
    let wide = io::stdout().is_terminal().then(|| terminal_size_of(io::stdout())).flatten();
    let columns = wide.map_or(COLUMNS, |(Width(columns), _)| usize::from(columns));
    Screen { columns: columns.max(COLUMNS_MIN), color: color() }
}

/// What is narrower holds no table.
const COLUMNS_MIN: usize = 40;

/// Whether standard output shows colors: it is a terminal, and `NO_COLOR` is not set.
fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

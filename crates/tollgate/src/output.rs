//! Standard output is for data, standard error for what is told on the way.

use std::io::{self, ErrorKind, IsTerminal, Write};

/// Prints a text. A reader that has seen enough (`| head`) is not an error.
///
/// # Errors
///
/// It cannot be written.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Tells a person something on standard error. One that nobody reads any more is no reason to stop a
/// measurement, so what cannot be written is let go.
pub(crate) fn tell(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Whether standard output shows colors: it is a terminal, and `NO_COLOR` is not set.
pub(crate) fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

//! The access log: a line a request, in the combined format of Apache and nginx.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;
use tollgate_wire::RequestHead;

use crate::config::AccessLog;
use crate::error::Error;

/// From this size on, collected lines are written though the thread has more to do.
const FLUSH_BYTES: usize = 64 << 10;

/// Where the lines of all threads go, each thread's by the batch.
#[derive(Clone)]
pub(crate) struct LogFile(Arc<Mutex<Writing>>);

struct Writing {
    to: Box<dyn Write + Send>,
    has_failed: bool,
}

/// One thread's lines.
pub(crate) struct ThreadLog {
    file: LogFile,
    lines: Vec<u8>,
    second: Second,
}

/// The lines of one connection whose answers are on their way: each is written once its answer is over,
/// with what was sent of it.
#[derive(Default)]
pub(crate) struct Unwritten {
    /// All that the connection has sent.
    sent_bytes: u64,
    lines: VecDeque<Line>,
}

struct Line {
    entry: Option<Box<Entry>>,
    status: u16,
    /// How much the connection has sent when the body begins.
    begins_at: u64,
    /// The same when the answer is over.
    ends_at: u64,
}

/// The status of a request that ended without an answer, which nginx writes so too.
const UNANSWERED: u16 = 499;

/// A moment as the lines tell it; made anew each second.
#[derive(Default)]
struct Second {
    unix: i64,
    text: String,
}

/// What a line says about a request, kept until its answer is known.
#[derive(Debug)]
pub(crate) struct Entry {
    request: String,
    referer: String,
    agent: String,
}

impl LogFile {
    /// Opens what the lines are to be written to.
    ///
    /// # Errors
    ///
    /// [`Error::AccessLog`].
    pub(crate) fn open(log: &AccessLog) -> Result<Self, Error> {
        let to: Box<dyn Write + Send> = match log {
            AccessLog::Stdout => Box::new(io::stdout()),
            AccessLog::File(path) => Box::new(
                File::options()
                    .append(true)
                    .create(true)
                    .open(path)
                    .map_err(|source| Error::AccessLog { path: path.clone(), source })?,
            ),
        };
        Ok(Self::writing(to))
    }

    fn writing(to: Box<dyn Write + Send>) -> Self {
        Self(Arc::new(Mutex::new(Writing { to, has_failed: false })))
    }

    /// The lines of one thread.
    pub(crate) fn of_thread(&self) -> ThreadLog {
        ThreadLog { file: self.clone(), lines: Vec::new(), second: Second::default() }
    }

    fn write(&self, lines: &[u8]) {
        let mut writing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if writing.has_failed {
            return;
        }
        if let Err(error) = writing.to.write_all(lines).and_then(|()| writing.to.flush()) {
            // Said once: serving goes on without.
            writing.has_failed = true;
            eprintln!("tollgate origin: the access log ends here: {error}");
        }
    }
}

impl ThreadLog {
    /// Adds the line of a request. `entry` is missing of one that could not be read.
    pub(crate) fn add(&mut self, peer: &str, entry: Option<&Entry>, status: u16, body_bytes: u64) {
        self.add_at(&Zoned::now(), peer, entry, status, body_bytes);
    }

    fn add_at(
        &mut self,
        now: &Zoned,
        peer: &str,
        entry: Option<&Entry>,
        status: u16,
        body_bytes: u64,
    ) {
        let unix = now.timestamp().as_second();
        if self.second.unix != unix || self.second.text.is_empty() {
            self.second = Second { unix, text: now.strftime("%d/%b/%Y:%H:%M:%S %z").to_string() };
        }
        let time = &self.second.text;
        let (request, referer, agent) =
            entry.map_or(("", "-", "-"), |entry| (&entry.request, &entry.referer, &entry.agent));
        let line = format!(
            "{peer} - - [{time}] \"{request}\" {status} {body_bytes} \"{referer}\" \"{agent}\"\n"
        );
        self.lines.extend_from_slice(line.as_bytes());
        if self.lines.len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Writes what was collected.
    pub(crate) fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.file.write(&self.lines);
            self.lines.clear();
        }
    }
}

impl Unwritten {
    /// An answer with a body of so many bytes follows what is left to send, of which it is the end.
    pub(crate) fn add(
        &mut self,
        entry: Option<Box<Entry>>,
        status: u16,
        body_bytes: u64,
        left_bytes: u64,
    ) {
        let ends_at = self.sent_bytes + left_bytes;
        let begins_at = ends_at - body_bytes;
        self.lines.push_back(Line { entry, status, begins_at, ends_at });
    }

    /// So many more bytes were sent. Writes the lines of the answers that are over now.
    pub(crate) fn sent(&mut self, bytes: u64, log: &mut Option<ThreadLog>, peer: &str) {
        self.sent_bytes += bytes;
        while self.lines.front().is_some_and(|line| line.ends_at <= self.sent_bytes) {
            self.write_first(log, peer);
        }
    }

    /// No more will be sent. Writes the lines of the answers that were cut off, and that of `entry`, if
    /// there is one, which has no answer yet.
    pub(crate) fn cut_off(
        &mut self,
        entry: Option<&Entry>,
        log: &mut Option<ThreadLog>,
        peer: &str,
    ) {
        while !self.lines.is_empty() {
            self.write_first(log, peer);
        }
        if let (Some(log), Some(entry)) = (log, entry) {
            log.add(peer, Some(entry), UNANSWERED, 0);
        }
    }

    fn write_first(&mut self, log: &mut Option<ThreadLog>, peer: &str) {
        if let (Some(line), Some(log)) = (self.lines.pop_front(), log) {
            let sent_bytes = line.ends_at.min(self.sent_bytes).saturating_sub(line.begins_at);
            log.add(peer, line.entry.as_deref(), line.status, sent_bytes);
        }
    }
}

impl Drop for ThreadLog {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Entry {
    pub(crate) fn new(head: &RequestHead<'_>) -> Self {
        let minor = if head.version == tollgate_wire::Version::Http10 { 0 } else { 1 };
        let header = |name| head.headers.first(name).map_or_else(|| "-".to_owned(), escaped);
        Self {
            request: format!(
                "{} {} HTTP/1.{minor}",
                escaped(head.method.as_bytes()),
                escaped(head.target.as_bytes())
            ),
            referer: header("Referer"),
            agent: header("User-Agent"),
        }
    }
}

/// Nothing that a client sends ends a field or a line: what is not plain text, and quotes and
/// backslashes, stand there as nginx writes them.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => text.push_str(&format!("\\x{byte:02X}")),
            _ => text.push(char::from(byte)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tollgate_wire::parse_request_head;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_tells_the_request_in_the_combined_format() {
        let written = Shared::default();
        let mut log = LogFile::writing(Box::new(written.clone())).of_thread();
        let head = parse_request_head(
            b"GET /a\"b?\\ HTTP/1.1\r\nHost: a\r\nUser-Agent: x/1 (\"y\")\r\nReferer: /\xc3\xa9\r\n\r\n",
        )
        .unwrap()
        .unwrap();
        let now: Zoned = "2026-11-21T20:38:08+01:00[+01:00]".parse().unwrap();
        log.add_at(&now, "127.0.0.1", Some(&Entry::new(&head)), 200, 26);
        log.add_at(&now, "unix:", None, 400, 5);
        assert_eq!(*written.0.lock().unwrap(), b"");
        log.flush();
        assert_eq!(
            String::from_utf8(written.0.lock().unwrap().clone()).unwrap(),
            "127.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /a\\x22b?\\x5C HTTP/1.1\" 200 26 \
             \"/\\xC3\\xA9\" \"x/1 (\\x22y\\x22)\"\n\
             unix: - - [21/Nov/2026:20:38:08 +0100] \"\" 400 5 \"-\" \"-\"\n"
        );
    }
}

//! The access log: a line a request, each thread's by the batch.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;

use crate::line::{Line, LogFormat, Second};

/// From this size on, collected lines are written though the thread has more to do.
const FLUSH_BYTES: usize = 64 << 10;

/// Where the lines of an access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// To standard output.
    Stdout,
    /// To the end of this file, which is made if it is not there.
    File(PathBuf),
}

/// Where the lines of all threads go.
#[derive(Clone)]
pub struct LogFile {
    writing: Arc<Mutex<Writing>>,
    format: LogFormat,
}

struct Writing {
    to: Box<dyn Write + Send>,
    /// Who says so when it ends.
    program: &'static str,
    has_failed: bool,
}

/// One thread's lines.
pub struct ThreadLog {
    file: LogFile,
    lines: Vec<u8>,
    second: Second,
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFile").field("format", &self.format).finish_non_exhaustive()
    }
}

impl LogFile {
    /// Opens what the lines are to be written to. `program` is who says so, once, when that is no longer
    /// possible.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or made.
    pub fn open(target: &LogTarget, format: LogFormat, program: &'static str) -> io::Result<Self> {
        let to: Box<dyn Write + Send> = match target {
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::File(path) => {
                Box::new(File::options().append(true).create(true).open(path)?)
            }
        };
        Ok(Self::writing(to, format, program))
    }

    fn writing(to: Box<dyn Write + Send>, format: LogFormat, program: &'static str) -> Self {
        let writing = Writing { to, program, has_failed: false };
        Self { writing: Arc::new(Mutex::new(writing)), format }
    }

    /// The lines of one thread.
    #[must_use]
    pub fn of_thread(&self) -> ThreadLog {
        ThreadLog { file: self.clone(), lines: Vec::new(), second: Second::default() }
    }

    fn write(&self, lines: &[u8]) {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if writing.has_failed {
            return;
        }
        if let Err(error) = writing.to.write_all(lines).and_then(|()| writing.to.flush()) {
            // Said once: serving goes on without.
            writing.has_failed = true;
            eprintln!("{}: the access log ends here: {error}", writing.program);
        }
    }
}

impl ThreadLog {
    /// Adds the line of a request.
    pub fn add(&mut self, line: &Line<'_>) {
        self.add_at(&Zoned::now(), line);
    }

    fn add_at(&mut self, now: &Zoned, line: &Line<'_>) {
        let format = self.file.format;
        line.write(&mut self.lines, format, self.second.text(now, format));
        if self.lines.len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Writes what was collected.
    pub fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.file.write(&self.lines);
            self.lines.clear();
        }
    }
}

impl Drop for ThreadLog {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_wire::parse_request_head;

    use super::*;
    use crate::line::{Entry, Upstream};

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

    /// What is written about an odd request, and about one that could not be read.
    fn written(format: LogFormat) -> String {
        let written = Shared::default();
        let mut log = LogFile::writing(Box::new(written.clone()), format, "a test").of_thread();
        let head = parse_request_head(
            b"GET /a\"b?\\ HTTP/1.1\r\nHost: a\r\nUser-Agent: x/1 (\"y\")\r\nReferer: /\xc3\xa9\r\n\r\n",
        )
        .unwrap()
        .unwrap();
        let now: Zoned = "2026-11-21T20:38:08+01:00[+01:00]".parse().unwrap();
        let entry = Entry::new(&head);
        let upstream = Upstream {
            pool: "site",
            backend: Some("127.0.0.1:9001"),
            tries: 1,
            duration: Duration::from_micros(1_020),
        };
        let answered = Line {
            peer: "127.0.0.1",
            entry: Some(&entry),
            status: 200,
            body_bytes: 26,
            upstream: Some(upstream),
        };
        log.add_at(&now, &answered);
        let unread =
            Line { peer: "unix:", entry: None, status: 400, body_bytes: 5, upstream: None };
        log.add_at(&now, &unread);
        assert_eq!(*written.0.lock().unwrap(), b"");
        log.flush();
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_tells_the_request_in_the_combined_format() {
        assert_eq!(
            written(LogFormat::Combined),
            "127.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /a\\x22b?\\x5C HTTP/1.1\" 200 26 \
             \"/\\xC3\\xA9\" \"x/1 (\\x22y\\x22)\"\n\
             unix: - - [21/Nov/2026:20:38:08 +0100] \"\" 400 5 \"-\" \"-\"\n"
        );
    }

    #[test]
    fn a_line_of_json_tells_more() {
        assert_eq!(
            written(LogFormat::Json),
            "{\"time\":\"2026-11-21T20:38:08+01:00\",\"client\":\"127.0.0.1\",\"method\":\"GET\",\
             \"target\":\"/a\\\"b?\\\\\",\"version\":\"1.1\",\"host\":\"a\",\"referer\":\"/\u{e9}\",\
             \"agent\":\"x/1 (\\\"y\\\")\",\"status\":200,\"body_bytes\":26,\"pool\":\"site\",\
             \"backend\":\"127.0.0.1:9001\",\"tries\":1,\"duration_ms\":1.020}\n\
             {\"time\":\"2026-11-21T20:38:08+01:00\",\"client\":\"unix:\",\"status\":400,\
             \"body_bytes\":5}\n"
        );
        for line in written(LogFormat::Json).lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn a_file_is_added_to() {
        let path = std::env::temp_dir().join(format!("tollgate-ledger-{}", std::process::id()));
        for _ in 0..2 {
            let target = LogTarget::File(path.clone());
            let file = LogFile::open(&target, LogFormat::Combined, "a test").unwrap();
            let line = Line { peer: "a", entry: None, status: 400, body_bytes: 0, upstream: None };
            file.of_thread().add(&line);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
    }
}

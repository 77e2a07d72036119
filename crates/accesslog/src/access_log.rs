//! Writers of an access log. Each thread collects entries and writes them in batches.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;

use crate::entry::{Entry, LogFormat, push_all};
use crate::queue::{FINISH_TIMEOUT, Queue, QueueConfig, Sink, SinkError};
use crate::stderr_log;
use crate::syslog::{Syslog, SyslogAddress};

/// Collected entries of this size are written without waiting for a flush.
const FLUSH_BYTES: usize = 64 << 10;

/// Place of the milliseconds in the time of an entry, unless it is of the combined format.
const MILLISECONDS: std::ops::Range<usize> = 20..23;

/// Limit for bytes queued for a slow reader. Entries beyond it are dropped.
const QUEUE_MAX_BYTES: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    Stdout,
    /// A file to append to, created if missing.
    File(PathBuf),
    Syslog(SyslogAddress),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("/dev/stdout"),
            Self::File(path) => path.display().fmt(f),
            Self::Syslog(address) => address.fmt(f),
        }
    }
}

/// A reader has not taken the end of a log in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot finish the {log}: the last {bytes} bytes were not read within {} seconds",
    FINISH_TIMEOUT.as_secs()
)]
pub struct UnreadError {
    log: &'static str,
    bytes: usize,
}

/// An open access log, shared by all threads.
#[derive(Clone)]
pub struct LogFile {
    target: LogTarget,
    writer: Writer,
    /// Name in messages.
    name: &'static str,
    format: LogFormat,
}

#[derive(Clone)]
enum Writer {
    /// Threads write themselves: a regular file takes entries at once.
    Direct(Arc<Mutex<DirectWriter>>),
    /// Another thread writes, because the reader, such as that of a pipe, may be slow.
    Queued(Arc<Queue>, Reader),
}

struct DirectWriter {
    to: Box<dyn Sink>,
    /// Name of the program in the message of a failure.
    program: &'static str,
    name: &'static str,
    has_failed: bool,
}

/// Identity of a destination whose reader may be slow.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reader {
    /// A pipe, a socket or a terminal.
    File {
        device: u64,
        inode: u64,
    },
    Syslog(SyslogAddress),
}

pub struct ThreadLog {
    file: LogFile,
    lines: Vec<u8>,
    line_count: u64,
    dropped_lines: u64,
    clock: ClockText,
}

/// The current time as formatted in entries, renewed every second but for its milliseconds.
#[derive(Default)]
struct ClockText {
    unix_s: i64,
    text: String,
}

impl LogTarget {
    /// Returns `None` for a regular file, existing or not.
    fn reader(&self) -> io::Result<Option<Reader>> {
        let metadata = match self {
            Self::Syslog(address) => return Ok(Some(Reader::Syslog(address.clone()))),
            Self::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata()?,
            Self::File(path) => match path.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                found => found?,
            },
        };
        let reader = Reader::File { device: metadata.dev(), inode: metadata.ino() };
        Ok((!metadata.is_file()).then_some(reader))
    }

    fn open(&self, program: &'static str) -> io::Result<Box<dyn Sink>> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::File(path) => Box::new(File::options().append(true).create(true).open(path)?),
            Self::Syslog(address) => Box::new(Syslog::connect(address.clone(), program)?),
        })
    }
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFile").field("format", &self.format).finish_non_exhaustive()
    }
}

impl LogFile {
    /// Opens a log. `program` and `name` name the program and the log in messages about failures and slow readers.
    ///
    /// Always opens a regular file, since `target` may name another file now than in `previous`; keeps the writer of
    /// `previous` for the same pipe, so that its entries stay in order.
    pub fn open(
        target: &LogTarget,
        format: LogFormat,
        program: &'static str,
        name: &'static str,
        previous: Option<&Self>,
    ) -> io::Result<Self> {
        let reader = target.reader()?;
        if let Some(Writer::Queued(queue, same)) = previous.map(|previous| &previous.writer)
            && reader.as_ref() == Some(same)
            && !queue.has_failed()
        {
            let writer = Writer::Queued(Arc::clone(queue), same.clone());
            return Ok(Self { target: target.clone(), writer, name, format });
        }
        let to = target.open(program)?;
        let writer = match reader {
            None => {
                let direct = DirectWriter { to, program, name, has_failed: false };
                Writer::Direct(Arc::new(Mutex::new(direct)))
            }
            Some(reader) => {
                let config = QueueConfig {
                    program,
                    name,
                    thread: "access-log",
                    max_bytes: QUEUE_MAX_BYTES,
                    report: stderr_log::write,
                };
                Writer::Queued(Arc::new(Queue::start(to, config)?), reader)
            }
        };
        Ok(Self { target: target.clone(), writer, name, format })
    }

    /// Opens a regular file again, which may have been renamed. Writers of a pipe and standard output remain. After an
    /// error the old file stays open.
    pub fn reopen(&self) -> io::Result<()> {
        if let (Writer::Direct(direct), LogTarget::File(_)) = (&self.writer, &self.target) {
            let mut direct = direct.lock().unwrap_or_else(PoisonError::into_inner);
            direct.to = self.target.open(direct.program)?;
            direct.has_failed = false;
        }
        Ok(())
    }

    pub fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Name in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn thread_log(&self) -> ThreadLog {
        ThreadLog {
            file: self.clone(),
            lines: Vec::new(),
            line_count: 0,
            dropped_lines: 0,
            clock: ClockText::default(),
        }
    }

    /// Waits until a slow reader has taken all entries, for [`FINISH_TIMEOUT`] at most. Call after the threads
    /// have ended.
    pub fn finish(&self) -> Result<(), UnreadError> {
        let bytes = match &self.writer {
            Writer::Direct(_) => 0,
            Writer::Queued(queue, _) => queue.finish(FINISH_TIMEOUT),
        };
        if bytes == 0 { Ok(()) } else { Err(UnreadError { log: self.name, bytes }) }
    }

    fn write(&self, lines: &[u8], count: u64) -> u64 {
        let mut direct = match &self.writer {
            Writer::Direct(direct) => direct.lock().unwrap_or_else(PoisonError::into_inner),
            Writer::Queued(queue, _) => return queue.add(lines, count),
        };
        if direct.has_failed {
            return count;
        }
        match direct.to.write_lines(lines) {
            Ok(()) => 0,
            Err(SinkError::Lost { lines, .. }) => lines,
            Err(SinkError::Closed(error)) => {
                direct.has_failed = true;
                stderr_log::write(&format!(
                    "{}: {} write failed: {error}; logging disabled",
                    direct.program, direct.name
                ));
                count
            }
        }
    }
}

impl ThreadLog {
    /// Adds an entry with the current time.
    pub fn add(&mut self, entry: &Entry<'_>) {
        self.add_at(&Zoned::now(), entry);
    }

    /// Adds a JSON object with the current time as its first member, and `members`.
    pub fn add_json(&mut self, members: &[u8]) {
        let time = self.clock.text(&Zoned::now(), &LogFormat::Json);
        let parts = [b"{\"time\":\"", time.as_bytes(), b"\",", members, b"}\n"];
        push_all(&mut self.lines, &parts);
        self.count_line();
    }

    fn add_at(&mut self, now: &Zoned, entry: &Entry<'_>) {
        let format = &self.file.format;
        entry.write(&mut self.lines, format, self.clock.text(now, format));
        self.count_line();
    }

    fn count_line(&mut self) {
        self.line_count += 1;
        if self.lines.len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.dropped_lines += self.file.write(&self.lines, self.line_count);
            self.lines.clear();
            self.line_count = 0;
        }
    }

    /// Returns the number of entries dropped since the last call, because the reader is too slow or gone.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped_lines)
    }
}

impl Drop for ThreadLog {
    fn drop(&mut self) {
        self.flush();
    }
}

impl ClockText {
    fn text(&mut self, now: &Zoned, format: &LogFormat) -> &str {
        let unix_s = now.timestamp().as_second();
        if self.unix_s != unix_s || self.text.is_empty() {
            let pattern = match format {
                LogFormat::Combined => "%d/%b/%Y:%H:%M:%S %z",
                LogFormat::Json | LogFormat::Template(_) => "%Y-%m-%dT%H:%M:%S.000%:z",
            };
            *self = Self { unix_s, text: now.strftime(pattern).to_string() };
        }
        if *format != LogFormat::Combined {
            let milliseconds = format!("{:03}", now.subsec_nanosecond() / 1_000_000);
            self.text.replace_range(MILLISECONDS, &milliseconds);
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use tollgate_http1::parse_request_head;

    use super::*;
    use crate::entry::{LogField, LogPart, LoggedRequest, Tls, Upstream};

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

    /// Logs a request with special characters and one that could not be parsed.
    fn written(format: LogFormat) -> String {
        let written = Shared::default();
        let to = Box::new(written.clone());
        let direct = DirectWriter { to, program: "test", name: "access log", has_failed: false };
        let writer = Writer::Direct(Arc::new(Mutex::new(direct)));
        let mut log =
            LogFile { target: LogTarget::Stdout, writer, name: "access log", format }.thread_log();
        let head = parse_request_head(
            b"GET /a\"b?\\ HTTP/1.1\r\nHost: a\r\nUser-Agent: x/1 (\"y\")\r\nReferer: /\xc3\xa9\r\n\r\n",
        )
        .unwrap()
        .unwrap();
        let now: Zoned = "2026-11-21T20:38:08.0415+01:00[+01:00]".parse().unwrap();
        let mut request = LoggedRequest::new(&head);
        request.set_user("a \"b\" \u{e9}".into());
        let upstream = Upstream {
            pool: "site",
            backend: Some("127.0.0.1:9001"),
            tries: 1,
            first_byte: Some(Duration::from_micros(930)),
            duration: Duration::from_micros(1_020),
        };
        let answered = Entry {
            peer: "127.0.0.1",
            tls: Some(Tls {
                version: "TLSv1.3",
                cipher: "TLS_AES_256_GCM_SHA384",
                server_name: Some("a"),
            }),
            request: Some(&request),
            status: 200,
            body_bytes: 26,
            reason: None,
            interruption: None,
            transaction: Some("65a"),
            upstream: Some(upstream),
        };
        log.add_at(&now, &answered);
        let unparsed = Entry {
            peer: "unix:",
            tls: None,
            request: None,
            status: 400,
            body_bytes: 5,
            reason: Some("syntax"),
            interruption: None,
            transaction: None,
            upstream: None,
        };
        log.add_at(&now, &unparsed);
        assert_eq!(*written.0.lock().unwrap(), b"");
        log.flush();
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn combined_format() {
        assert_eq!(
            written(LogFormat::Combined),
            "127.0.0.1 - a\\x20\\x22b\\x22\\x20\\xC3\\xA9 [21/Nov/2026:20:38:08 +0100] \"GET /a\\x22b?\\x5C HTTP/1.1\" 200 26 \
             \"/\\xC3\\xA9\" \"x/1 (\\x22y\\x22)\"\n\
             unix: - - [21/Nov/2026:20:38:08 +0100] \"\" 400 5 \"-\" \"-\" \"syntax\"\n"
        );
    }

    #[test]
    fn template_has_fields_of_clients_escaped_and_a_dash_for_those_that_are_missing() {
        let text = |text: &str| LogPart::Text(text.to_owned());
        let field = |name| LogPart::Field(LogField::named(name).unwrap());
        let format = LogFormat::Template(
            [
                field("time"),
                text(" \u{b5} "),
                field("target"),
                text(" \""),
                field("referer"),
                text("\" "),
                field("user"),
                text("|"),
                field("status"),
                text("|"),
                field("first_byte_ms"),
                text("|"),
                field("backend"),
            ]
            .into(),
        );
        assert_eq!(
            written(format),
            "2026-11-21T20:38:08.041+01:00 \u{b5} /a\\x22b?\\x5C \"/\\xC3\\xA9\" a \\x22b\\x22 \\xC3\\xA9|200|0.930|127.0.0.1:9001\n\
             2026-11-21T20:38:08.041+01:00 \u{b5} - \"-\" -|400|-|-\n"
        );
        assert_eq!(LogField::named("Time"), None);
    }

    #[test]
    fn json_format() {
        assert_eq!(
            written(LogFormat::Json),
            "{\"time\":\"2026-11-21T20:38:08.041+01:00\",\"client\":\"127.0.0.1\",\"tls\":\"TLSv1.3\",\
             \"cipher\":\"TLS_AES_256_GCM_SHA384\",\"sni\":\"a\",\"method\":\"GET\",\
             \"target\":\"/a\\\"b?\\\\\",\"version\":\"1.1\",\"host\":\"a\",\"referer\":\"/\u{e9}\",\
             \"agent\":\"x/1 (\\\"y\\\")\",\"user\":\"a \\\"b\\\" \u{e9}\",\"transaction\":\"65a\",\"status\":200,\"body_bytes\":26,\"end\":\"complete\",\"pool\":\"site\",\
             \"backend\":\"127.0.0.1:9001\",\"tries\":1,\"first_byte_ms\":0.930,\"duration_ms\":1.020}\n\
             {\"time\":\"2026-11-21T20:38:08.041+01:00\",\"client\":\"unix:\",\"status\":400,\
             \"body_bytes\":5,\"reason\":\"syntax\",\"end\":\"complete\"}\n"
        );
        for line in written(LogFormat::Json).lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn reopening_keeps_the_writer_of_a_pipe_only() {
        let folder =
            std::env::temp_dir().join(format!("tollgate-accesslog-pipe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (pipe, file) = (folder.join("pipe"), folder.join("file"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // Opening a pipe for both reading and writing does not block.
        let reader = File::options().read(true).write(true).open(&pipe).unwrap();
        let open = |path: &PathBuf, previous: Option<&LogFile>| {
            let target = LogTarget::File(path.clone());
            LogFile::open(&target, LogFormat::Combined, "test", "access log", previous).unwrap()
        };
        let same = |one: &LogFile, other: &LogFile| match (&one.writer, &other.writer) {
            (Writer::Queued(one, _), Writer::Queued(other, _)) => Some(Arc::ptr_eq(one, other)),
            (Writer::Direct(one), Writer::Direct(other)) => Some(Arc::ptr_eq(one, other)),
            _ => None,
        };
        let first = open(&pipe, None);
        assert_eq!(same(&first, &open(&pipe, Some(&first))), Some(true));
        assert_eq!(same(&first, &open(&pipe, None)), Some(false));
        let first_file = open(&file, Some(&first));
        assert_eq!(same(&first, &first_file), None);
        assert_eq!(same(&first_file, &open(&file, Some(&first_file))), Some(false));
        drop(reader);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn existing_file_is_appended_to() {
        let path = std::env::temp_dir().join(format!("tollgate-accesslog-{}", std::process::id()));
        for _ in 0..2 {
            let target = LogTarget::File(path.clone());
            let file =
                LogFile::open(&target, LogFormat::Combined, "test", "access log", None).unwrap();
            let entry = Entry {
                peer: "a",
                tls: None,
                request: None,
                status: 400,
                body_bytes: 0,
                reason: None,
                interruption: None,
                transaction: None,
                upstream: None,
            };
            file.thread_log().add(&entry);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
    }
}

//! Entries of an access log, and their writers. Each thread collects entries and writes them in batches.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Zoned;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use tollgate_http1::RequestHead;

use crate::json::{ClientText, push_json};
use crate::queue::{FINISH_TIMEOUT, Queue, QueueConfig};
use crate::stderr_log;

/// Collected entries of this size are written without waiting for a flush.
const FLUSH_BYTES: usize = 64 << 10;

/// Decimals of durations in milliseconds.
const DURATION_DECIMALS: usize = 3;

/// Limit for bytes queued for a slow reader. Entries beyond it are dropped.
const QUEUE_MAX_BYTES: usize = 4 << 20;

/// Status logged for a request that ended without a response, as in nginx.
pub const STATUS_NO_RESPONSE: u16 = 499;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined log format of Apache and nginx.
    Combined,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    Stdout,
    /// A file to append to, created if missing.
    File(PathBuf),
}

impl LogTarget {
    pub fn path(&self) -> &Path {
        match self {
            Self::Stdout => Path::new("/dev/stdout"),
            Self::File(path) => path,
        }
    }
}

/// Request line and headers to log, kept until the response has ended.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    method: Box<[u8]>,
    target: Box<[u8]>,
    /// Such as `1.1`.
    version: &'static str,
    host: Option<Box<[u8]>>,
    referer: Option<Box<[u8]>>,
    agent: Option<Box<[u8]>>,
    id: Option<Box<str>>,
    user: Option<Box<str>>,
}

/// One line of an access log: a request and its response.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Address of the client, or `unix:`.
    pub peer: &'a str,
    /// `None` for plain HTTP. Logged in JSON only.
    pub tls: Option<Tls<'a>>,
    /// `None` if not even the request line could be parsed.
    pub request: Option<&'a LoggedRequest>,
    /// Status of the response, or [`STATUS_NO_RESPONSE`].
    pub status: u16,
    /// Bytes of the response body that were sent.
    pub body_bytes: u64,
    /// Reason, in one word, for an error response of the server. In the combined format an additional quoted field.
    pub reason: Option<&'a str>,
    /// Cause of an incomplete response, in one word. `None`: the response is complete. The combined format has it in the
    /// field of `reason`, which is empty then.
    pub interruption: Option<&'a str>,
    /// Origin of a forwarded response. Logged in JSON only.
    pub upstream: Option<Upstream<'a>>,
}

impl<'a> Entry<'a> {
    /// A response of the server's own, without a reason and facts of TLS.
    pub fn new(
        peer: &'a str,
        request: Option<&'a LoggedRequest>,
        status: u16,
        body_bytes: u64,
    ) -> Self {
        let (tls, reason, interruption, upstream) = (None, None, None, None);
        Self { peer, tls, request, status, body_bytes, reason, interruption, upstream }
    }
}

/// TLS of the client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    pub version: &'a str,
    pub cipher: &'a str,
    /// Name that the client has sent (SNI).
    pub server_name: Option<&'a str>,
}

/// Origin of a forwarded response.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    pub pool: &'a str,
    /// Address of the backend, or `None` if no backend took the request.
    pub backend: Option<&'a str>,
    pub tries: usize,
    /// Time from the request's head to the end of the response.
    pub duration: Duration,
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
    to: Box<dyn Write + Send>,
    /// Name of the program in the message of a failure.
    program: &'static str,
    name: &'static str,
    has_failed: bool,
}

/// Identity of a pipe, a socket or a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader {
    device: u64,
    inode: u64,
}

pub struct ThreadLog {
    file: LogFile,
    lines: Vec<u8>,
    line_count: u64,
    dropped_lines: u64,
    clock: ClockText,
}

/// The current time as formatted in entries, renewed every second.
#[derive(Default)]
struct ClockText {
    unix_s: i64,
    text: String,
}

impl LogTarget {
    /// Returns `None` for a regular file, existing or not.
    fn reader(&self) -> io::Result<Option<Reader>> {
        let metadata = match self {
            Self::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata()?,
            Self::File(path) => match path.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                found => found?,
            },
        };
        let reader = Reader { device: metadata.dev(), inode: metadata.ino() };
        Ok((!metadata.is_file()).then_some(reader))
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::File(path) => Box::new(File::options().append(true).create(true).open(path)?),
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
            && reader == Some(*same)
            && !queue.has_failed()
        {
            let writer = Writer::Queued(Arc::clone(queue), *same);
            return Ok(Self { target: target.clone(), writer, name, format });
        }
        let to = target.open()?;
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
            let to = self.target.open()?;
            let mut direct = direct.lock().unwrap_or_else(PoisonError::into_inner);
            direct.to = to;
            direct.has_failed = false;
        }
        Ok(())
    }

    /// The file or standard output.
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
        match direct.to.write_all(lines).and_then(|()| direct.to.flush()) {
            Ok(()) => 0,
            Err(error) => {
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
        let time = self.clock.text(&Zoned::now(), LogFormat::Json);
        let parts = [b"{\"time\":\"", time.as_bytes(), b"\",", members, b"}\n"];
        push_all(&mut self.lines, &parts);
        self.count_line();
    }

    fn add_at(&mut self, now: &Zoned, entry: &Entry<'_>) {
        let format = self.file.format;
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

impl LoggedRequest {
    pub fn new(head: &RequestHead<'_>) -> Self {
        let header = |name| head.headers.first(name).map(Box::from);
        Self {
            method: head.method.as_bytes().into(),
            target: head.target.as_bytes().into(),
            version: head.version.number(),
            // The target takes precedence over `Host` (RFC 9112, section 3.2.2).
            host: head.target_parts.authority.or(head.host).map(|host| host.as_bytes().into()),
            referer: header("Referer"),
            agent: header("User-Agent"),
            id: None,
            user: None,
        }
    }

    /// Sets the identifier that a backend gets, too.
    pub fn set_id(&mut self, id: &str) {
        self.id = Some(id.into());
    }

    /// Sets the user whose password was checked.
    pub fn set_user(&mut self, user: Box<str>) {
        self.user = Some(user);
    }

    /// The request line of an invalid head, behind empty lines; `None` if it is incomplete or invalid too.
    pub fn of_first_line(head: &[u8]) -> Option<Self> {
        let begin = head.iter().position(|byte| !b"\r\n".contains(byte))?;
        let head = &head[begin..];
        let end = head.iter().position(|byte| *byte == b'\n')?;
        let line = head[..end].strip_suffix(b"\r").unwrap_or(&head[..end]);
        let mut words = line.split(|byte| *byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let version = match (words.next()?, words.next()) {
            (b"HTTP/1.0", None) => "1.0",
            (b"HTTP/1.1", None) => "1.1",
            _ => return None,
        };
        let is_valid = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
        if !is_valid(method) || !is_valid(target) {
            return None;
        }
        let (method, target) = (method.into(), target.into());
        let (host, referer, agent, id, user) = (None, None, None, None, None);
        Some(Self { method, target, version, host, referer, agent, id, user })
    }

    /// A request over HTTP/2. `header` returns the first header of a name in lower case.
    pub fn http2<'a>(
        method: &str,
        target: &str,
        host: Option<&str>,
        header: impl Fn(&'static [u8]) -> Option<&'a [u8]>,
    ) -> Self {
        Self {
            method: method.as_bytes().into(),
            target: target.as_bytes().into(),
            version: "2.0",
            host: host.map(|host| host.as_bytes().into()),
            referer: header(b"referer").map(Box::from),
            agent: header(b"user-agent").map(Box::from),
            id: None,
            user: None,
        }
    }
}

impl Entry<'_> {
    fn write(&self, lines: &mut Vec<u8>, format: LogFormat, time: &str) {
        match format {
            LogFormat::Combined => self.write_combined(lines, time),
            LogFormat::Json => {
                push_json(lines, DURATION_DECIMALS, &JsonEntry { time, entry: self });
            }
        }
        lines.push(b'\n');
    }

    fn write_combined(&self, lines: &mut Vec<u8>, time: &str) {
        push_all(lines, &[self.peer.as_bytes(), b" - "]);
        match self.request.and_then(|request| request.user.as_deref()) {
            // The field ends at a space.
            Some(user) => user.split(' ').enumerate().for_each(|(at, word)| {
                lines.extend_from_slice(if at == 0 { b"" } else { b"\\x20" });
                push_escaped(lines, word.as_bytes());
            }),
            None => lines.push(b'-'),
        }
        push_all(lines, &[b" [", time.as_bytes(), b"] \""]);
        if let Some(request) = self.request {
            push_escaped(lines, &request.method);
            lines.push(b' ');
            push_escaped(lines, &request.target);
            push_all(lines, &[b" HTTP/", request.version.as_bytes()]);
        }
        let (mut status, mut body_bytes) = (itoa::Buffer::new(), itoa::Buffer::new());
        let status = status.format(self.status).as_bytes();
        let body_bytes = body_bytes.format(self.body_bytes).as_bytes();
        push_all(lines, &[b"\" ", status, b" ", body_bytes, b" \""]);
        let (referer, agent) = self
            .request
            .map_or((None, None), |request| (request.referer.as_deref(), request.agent.as_deref()));
        push_escaped(lines, referer.unwrap_or(b"-"));
        lines.extend_from_slice(b"\" \"");
        push_escaped(lines, agent.unwrap_or(b"-"));
        lines.push(b'"');
        if let Some(reason) = self.reason.or(self.interruption) {
            push_all(lines, &[b" \"", reason.as_bytes(), b"\""]);
        }
    }
}

/// An entry with its time, as a JSON object.
struct JsonEntry<'a> {
    time: &'a str,
    entry: &'a Entry<'a>,
}

impl Serialize for JsonEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { time, entry } = self;
        let mut json = serializer.serialize_map(None)?;
        json.serialize_entry("time", time)?;
        json.serialize_entry("client", entry.peer)?;
        if let Some(tls) = entry.tls {
            json.serialize_entry("tls", tls.version)?;
            json.serialize_entry("cipher", tls.cipher)?;
            json.serialize_entry("sni", &tls.server_name)?;
        }
        if let Some(request) = entry.request {
            json.serialize_entry("method", &ClientText(&request.method))?;
            json.serialize_entry("target", &ClientText(&request.target))?;
            json.serialize_entry("version", request.version)?;
            json.serialize_entry("host", &request.host.as_deref().map(ClientText))?;
            json.serialize_entry("referer", &request.referer.as_deref().map(ClientText))?;
            json.serialize_entry("agent", &request.agent.as_deref().map(ClientText))?;
            if let Some(id) = &request.id {
                json.serialize_entry("request_id", id)?;
            }
            if let Some(user) = &request.user {
                json.serialize_entry("user", user)?;
            }
        }
        json.serialize_entry("status", &entry.status)?;
        json.serialize_entry("body_bytes", &entry.body_bytes)?;
        if let Some(reason) = entry.reason {
            json.serialize_entry("reason", reason)?;
        }
        json.serialize_entry("end", entry.interruption.unwrap_or("complete"))?;
        if let Some(upstream) = &entry.upstream {
            json.serialize_entry("pool", upstream.pool)?;
            json.serialize_entry("backend", &upstream.backend)?;
            json.serialize_entry("tries", &upstream.tries)?;
            let duration_us = upstream.duration.as_micros() as f64;
            json.serialize_entry("duration_ms", &(duration_us / 1_000.0))?;
        }
        json.end()
    }
}

impl ClockText {
    fn text(&mut self, now: &Zoned, format: LogFormat) -> &str {
        let unix_s = now.timestamp().as_second();
        if self.unix_s != unix_s || self.text.is_empty() {
            let pattern = match format {
                LogFormat::Combined => "%d/%b/%Y:%H:%M:%S %z",
                LogFormat::Json => "%Y-%m-%dT%H:%M:%S%:z",
            };
            *self = Self { unix_s, text: now.strftime(pattern).to_string() };
        }
        &self.text
    }
}

fn push_all(lines: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| lines.extend_from_slice(part));
}

/// Escapes control characters, quotes, backslashes and bytes above ASCII as nginx does, so that a client cannot end
/// a field or a line.
fn push_escaped(lines: &mut Vec<u8>, mut bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let needs_escape = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=31 | 127..);
    while let Some(at) = bytes.iter().position(needs_escape) {
        let byte = bytes[at];
        let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        push_all(lines, &[&bytes[..at], b"\\x", &digits]);
        bytes = &bytes[at + 1..];
    }
    lines.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use tollgate_http1::parse_request_head;

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
        let now: Zoned = "2026-11-21T20:38:08+01:00[+01:00]".parse().unwrap();
        let request = LoggedRequest::new(&head);
        let upstream = Upstream {
            pool: "site",
            backend: Some("127.0.0.1:9001"),
            tries: 1,
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
            "127.0.0.1 - - [21/Nov/2026:20:38:08 +0100] \"GET /a\\x22b?\\x5C HTTP/1.1\" 200 26 \
             \"/\\xC3\\xA9\" \"x/1 (\\x22y\\x22)\"\n\
             unix: - - [21/Nov/2026:20:38:08 +0100] \"\" 400 5 \"-\" \"-\" \"syntax\"\n"
        );
    }

    #[test]
    fn host_of_an_absolute_target_is_logged() {
        let host =
            |head: &[u8]| LoggedRequest::new(&parse_request_head(head).unwrap().unwrap()).host;
        let absolute = b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(host(absolute).as_deref(), Some(&b"b"[..]));
        assert_eq!(host(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").as_deref(), Some(&b"a"[..]));
        assert_eq!(host(b"GET / HTTP/1.0\r\n\r\n"), None);
    }

    #[test]
    fn json_format() {
        assert_eq!(
            written(LogFormat::Json),
            "{\"time\":\"2026-11-21T20:38:08+01:00\",\"client\":\"127.0.0.1\",\"tls\":\"TLSv1.3\",\
             \"cipher\":\"TLS_AES_256_GCM_SHA384\",\"sni\":\"a\",\"method\":\"GET\",\
             \"target\":\"/a\\\"b?\\\\\",\"version\":\"1.1\",\"host\":\"a\",\"referer\":\"/\u{e9}\",\
             \"agent\":\"x/1 (\\\"y\\\")\",\"status\":200,\"body_bytes\":26,\"end\":\"complete\",\"pool\":\"site\",\
             \"backend\":\"127.0.0.1:9001\",\"tries\":1,\"duration_ms\":1.020}\n\
             {\"time\":\"2026-11-21T20:38:08+01:00\",\"client\":\"unix:\",\"status\":400,\
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
                upstream: None,
            };
            file.thread_log().add(&entry);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
    }
}

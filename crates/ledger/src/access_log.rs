//! The access log: a line a request, each thread's by the batch.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Zoned;

use crate::line::{Line, LogFormat, Second};
use crate::messages;
use crate::queue::{Kind, Queue};

/// From this size on, collected lines are written though the thread has more to do.
const FLUSH_BYTES: usize = 64 << 10;

/// How many bytes wait for a slow reader at most; lines beyond that are left out.
const WAITING_MAX_BYTES: usize = 4 << 20;

/// For how long a reader is waited for at the end, at most.
pub const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// A reader of the access log has not taken its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadError {
    bytes: usize,
}

impl fmt::Display for UnreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the last {} bytes of the access log were not read in time, and are lost",
            self.bytes
        )
    }
}

impl std::error::Error for UnreadError {}

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
    way: Way,
    format: LogFormat,
}

/// How lines get there.
#[derive(Clone)]
enum Way {
    /// Each thread writes its own: to a file, which takes them at once.
    Direct(Arc<Mutex<Writing>>),
    /// Another thread does, since a reader may be slow: at the end of a pipe, say.
    Queued(Arc<Queue>, Reader),
}

/// What tells one reader from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader {
    device: u64,
    inode: u64,
}

impl LogTarget {
    /// Who reads it. None: it is a plain file, or is going to be.
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

fn kind(program: &'static str) -> Kind {
    Kind {
        program,
        name: "the access log",
        thread: "access-log",
        waiting_max_bytes: WAITING_MAX_BYTES,
        tell: messages::tell,
    }
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
    /// How many there are.
    count: u64,
    /// How many were left out since that was asked last.
    lost: u64,
    second: Second,
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFile").field("format", &self.format).finish_non_exhaustive()
    }
}

impl LogFile {
    /// Opens what the lines are to be written to. `program` is who says so, once, when that is no longer
    /// possible, and when a reader is too slow for all of them. A file is opened anew, since it may be
    /// another by now; where `before` leads to the same reader, its lines go on through that.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or made, or there are no threads left.
    pub fn open(
        target: &LogTarget,
        format: LogFormat,
        program: &'static str,
        before: Option<&Self>,
    ) -> io::Result<Self> {
        let reader = target.reader()?;
        if let Some(Way::Queued(queue, its)) = before.map(|before| &before.way)
            && reader == Some(*its)
            && !queue.has_failed()
        {
            return Ok(Self { way: Way::Queued(Arc::clone(queue), *its), format });
        }
        let to = target.open()?;
        let way = match reader {
            None => {
                let writing = Writing { to, program, has_failed: false };
                Way::Direct(Arc::new(Mutex::new(writing)))
            }
            Some(reader) => Way::Queued(Arc::new(Queue::start(to, kind(program))?), reader),
        };
        Ok(Self { way, format })
    }

    /// The lines of one thread.
    #[must_use]
    pub fn of_thread(&self) -> ThreadLog {
        ThreadLog {
            file: self.clone(),
            lines: Vec::new(),
            count: 0,
            lost: 0,
            second: Second::default(),
        }
    }

    /// Waits until a slow reader has taken all lines, once the threads have ended; a few seconds at most.
    ///
    /// # Errors
    ///
    /// It has not.
    pub fn finish(&self) -> Result<(), UnreadError> {
        let bytes = match &self.way {
            Way::Direct(_) => 0,
            Way::Queued(queue, _) => queue.finish(FINISH_TIMEOUT),
        };
        if bytes == 0 { Ok(()) } else { Err(UnreadError { bytes }) }
    }

    /// Says how many of the lines were left out.
    fn write(&self, lines: &[u8], count: u64) -> u64 {
        let mut writing = match &self.way {
            Way::Direct(writing) => writing.lock().unwrap_or_else(PoisonError::into_inner),
            Way::Queued(queue, _) => return queue.add(lines, count),
        };
        if writing.has_failed {
            return count;
        }
        match writing.to.write_all(lines).and_then(|()| writing.to.flush()) {
            Ok(()) => 0,
            Err(error) => {
                // Said once: serving goes on without.
                writing.has_failed = true;
                messages::tell(&format!("{}: the access log ends here: {error}", writing.program));
                count
            }
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
        self.count += 1;
        if self.lines.len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Writes what was collected.
    pub fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.lost += self.file.write(&self.lines, self.count);
            self.lines.clear();
            self.count = 0;
        }
    }

    /// How many lines were left out since this was asked last, as nobody took them.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
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
        let to = Box::new(written.clone());
        let writing = Writing { to, program: "a test", has_failed: false };
        let way = Way::Direct(Arc::new(Mutex::new(writing)));
        let mut log = LogFile { way, format }.of_thread();
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
    fn a_reader_is_gone_on_with_and_a_file_is_opened_anew() {
        let folder =
            std::env::temp_dir().join(format!("tollgate-ledger-pipe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (pipe, file) = (folder.join("pipe"), folder.join("file"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // With both ends, opening it waits for nobody.
        let reader = File::options().read(true).write(true).open(&pipe).unwrap();
        let open = |path: &PathBuf, before: Option<&LogFile>| {
            let target = LogTarget::File(path.clone());
            LogFile::open(&target, LogFormat::Combined, "a test", before).unwrap()
        };
        let same = |one: &LogFile, other: &LogFile| match (&one.way, &other.way) {
            (Way::Queued(one, _), Way::Queued(other, _)) => Some(Arc::ptr_eq(one, other)),
            (Way::Direct(one), Way::Direct(other)) => Some(Arc::ptr_eq(one, other)),
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
    fn a_file_is_added_to() {
        let path = std::env::temp_dir().join(format!("tollgate-ledger-{}", std::process::id()));
        for _ in 0..2 {
            let target = LogTarget::File(path.clone());
            let file = LogFile::open(&target, LogFormat::Combined, "a test", None).unwrap();
            let line = Line { peer: "a", entry: None, status: 400, body_bytes: 0, upstream: None };
            file.of_thread().add(&line);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
    }
}

//! Figures over time: a file, a page and metrics, fed while the load runs.

use super::args::Args;
use super::metrics::MetricsServer;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf, absolute};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tollgate_load::{Interval, Plan, Series, SeriesFormat, SeriesWriter};
use tollgate_report::html::load::Timeline;

/// Files that may be a series, by their endings.
const ENDINGS: [(&str, SeriesFormat); 3] = [
    ("csv", SeriesFormat::Csv),
    ("jsonl", SeriesFormat::JsonLines),
    ("ndjson", SeriesFormat::JsonLines),
];

/// Parses the path of a series.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    match format(Path::new(text)) {
        Some(_) => Ok(PathBuf::from(text)),
        None => Err("expected a file ending in .csv or .jsonl; --series-interval sets the length of an interval".to_owned()),
    }
}

fn format(path: &Path) -> Option<SeriesFormat> {
    let ending = path.extension()?.to_str()?;
    ENDINGS.into_iter().find(|(name, _)| *name == ending).map(|(_, format)| format)
}

/// Length of the intervals, if anything needs them.
pub(super) fn interval(args: &Args) -> Result<Option<Duration>> {
    let is_needed = args.series.is_some() || args.html.is_some() || args.metrics.is_some();
    if !is_needed && args.series_interval.is_some() {
        bail!("--series-interval needs --series FILE, --html FILE or --metrics ADDRESS");
    }
    Ok(is_needed.then(|| args.series_interval.unwrap_or(Duration::from_secs(1))))
}

/// Outputs of the series of a load, opened before it starts.
pub(super) struct Outputs {
    file: Option<(PathBuf, SeriesWriter<File>)>,
    timeline: Option<Timeline>,
    metrics: Option<MetricsServer>,
}

/// Reads the series on a thread of its own, so that a slow disk delays neither the load nor its end.
pub(super) struct Reader(JoinHandle<(Result<()>, Option<Timeline>)>);

impl Outputs {
    /// Creates the file last, so that an error of another output leaves an earlier series as it is.
    pub(super) fn open(args: &Args, plan: &Plan) -> Result<Self> {
        if let (Some(series), Some(html)) = (&args.series, &args.html)
            && absolute(series)? == absolute(html)?
        {
            bail!("cannot write --series and --html to the same file {}", html.display());
        }
        let metrics = args.metrics.map(MetricsServer::start).transpose()?;
        args.html.as_deref().map(check_folder).transpose()?;
        let timeline = args.html.as_ref().map(|_| Timeline::new(plan.rate()));
        let file = args.series.as_ref().map(|path| open_file(path, plan)).transpose()?;
        Ok(Self { file, timeline, metrics })
    }

    /// Starts to read a series, until its load ends.
    pub(super) fn read(self, series: Series) -> Result<Reader> {
        let Self { file, mut timeline, metrics } = self;
        let file = file.map(|(path, writer)| FileThread::start(path, writer));
        let mut file = file.transpose().context(NO_THREAD)?;
        let thread = thread::Builder::new().name("series".to_owned());
        let read = move || {
            let mut result = Ok(());
            for interval in series {
                if let Some(drawn) = &mut timeline
                    && let Err(error) = drawn.add(&interval)
                {
                    result = Err(error);
                    timeline = None;
                }
                if let Some(metrics) = &metrics {
                    metrics.add(&interval);
                }
                if let Some(file) = &mut file {
                    file.add(interval);
                }
            }
            (file.map_or(Ok(()), FileThread::finish).and(result), timeline)
        };
        Ok(Reader(thread.spawn(read).context(NO_THREAD)?))
    }
}

const NO_THREAD: &str = "cannot start a thread of the series";

/// Limit of the intervals that wait for the file. The histogram of each takes about 264 KiB.
const QUEUED_MAX: usize = 256;

/// Writes a file on a thread of its own, so that a slow disk or reader of a FIFO delays neither metrics nor page.
struct FileThread {
    path: PathBuf,
    /// `None` after an interval for which there was no room.
    intervals: Option<SyncSender<Interval>>,
    /// Start of the first interval that is left out.
    left_out_from: Option<Duration>,
    thread: JoinHandle<io::Result<()>>,
}

impl FileThread {
    fn start(
        path: PathBuf,
        mut writer: SeriesWriter<impl Write + Send + 'static>,
    ) -> io::Result<Self> {
        let (intervals, queued) = sync_channel::<Interval>(QUEUED_MAX);
        let write = move || queued.iter().try_for_each(|interval| writer.write(&interval));
        let thread = thread::Builder::new().name("series-file".to_owned()).spawn(write)?;
        Ok(Self { path, intervals: Some(intervals), left_out_from: None, thread })
    }

    fn add(&mut self, interval: Interval) {
        // The thread ends before the queue only with an error, which `finish` returns.
        if let Some(intervals) = &self.intervals
            && let Err(TrySendError::Full(interval)) = intervals.try_send(interval)
        {
            self.left_out_from = Some(interval.start);
            self.intervals = None;
        }
    }

    fn finish(self) -> Result<()> {
        drop(self.intervals);
        let written = self.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        let path = self.path.display();
        written.with_context(|| format!("cannot write {path}"))?;
        match self.left_out_from {
            None => Ok(()),
            Some(start) => bail!(
                "cannot write {path}: it is too slow for the intervals; those from {} s on are left out; use a longer --series-interval",
                start.as_secs_f64()
            ),
        }
    }
}

impl Reader {
    /// Waits for the end of the series. Returns the first error of an output, and the data of a page.
    pub(super) fn finish(self) -> (Result<()>, Option<Timeline>) {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Checks that a file can be created beside the page, as its draft will be.
fn check_folder(path: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if path.is_dir() {
        bail!("{}: it is a folder", cannot());
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).with_context(cannot)?;
    Ok(())
}

fn open_file(path: &Path, plan: &Plan) -> Result<(PathBuf, SeriesWriter<File>)> {
    let cannot = || format!("cannot write {}", path.display());
    let format = format(path).with_context(cannot)?;
    let file = File::create(path).with_context(cannot)?;
    let writer = SeriesWriter::new(format, plan.rate(), file).with_context(cannot)?;
    Ok((path.to_owned(), writer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::tests::{args, load};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    /// Blocks each write until its channel has an item or no sender.
    struct Slow(Receiver<()>, Arc<AtomicUsize>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            self.1.fetch_add(bytes.iter().filter(|byte| **byte == b'\n').count(), Ordering::SeqCst);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_file_leaves_later_intervals_out() {
        let second = |start| Interval { start: Duration::from_secs(start), ..Interval::default() };
        for (count, is_too_many) in [(QUEUED_MAX as u64, false), (QUEUED_MAX as u64 + 2, true)] {
            let (release, blocked) = channel();
            let lines = Arc::new(AtomicUsize::new(0));
            let slow = Slow(blocked, Arc::clone(&lines));
            let writer = SeriesWriter::new(SeriesFormat::JsonLines, None, slow).unwrap();
            let mut file = FileThread::start(PathBuf::from("slow.jsonl"), writer).unwrap();
            (0..count).for_each(|start| file.add(second(start)));
            drop(release);
            let result = file.finish();
            let lines = lines.load(Ordering::SeqCst) as u64;
            match result {
                Ok(()) => assert!(!is_too_many && lines == count, "{lines}"),
                Err(error) => {
                    assert!(is_too_many, "{error}");
                    let reason = format!("those from {lines} s on are left out");
                    assert!(error.to_string().contains(&reason), "{error} {lines}");
                }
            }
        }
    }

    #[test]
    fn outputs_that_cannot_be_opened_leave_an_earlier_series() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let used = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = used.local_addr().unwrap().port();
        let series = path("earlier.csv");
        std::fs::write(&series, "earlier").unwrap();
        for (option, reason) in [
            (format!("--html {}", path("none/page.html")), "none/page.html"),
            (format!("--html {}", path("")), "it is a folder"),
            (format!("--html {}", path("./earlier.csv")), "to the same file"),
            (format!("--metrics {port}"), "cannot listen on"),
        ] {
            let line = format!("http://127.0.0.1/ --series {series} {option}");
            let plan = load(&line).unwrap().plan;
            let error = Outputs::open(&args(&line), &plan).err().unwrap();
            let error = format!("{error:#}");
            assert!(error.contains(reason) && error.contains("cannot "), "{line}: {error}");
            assert_eq!(std::fs::read_to_string(&series).unwrap(), "earlier", "{line}");
        }
    }
}

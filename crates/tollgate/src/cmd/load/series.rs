//! Figures over time: a file, a page and metrics, fed while the load runs.

use super::args::Args;
use super::metrics::MetricsServer;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tollgate_load::{Plan, Series, SeriesFormat, SeriesWriter};
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
    pub(super) fn open(args: &Args, plan: &Plan) -> Result<Self> {
        let file = args.series.as_ref().map(|path| open_file(path, plan)).transpose()?;
        let timeline = args.html.as_ref().map(|_| Timeline::new(plan.rate()));
        let metrics = args.metrics.map(MetricsServer::start).transpose()?;
        Ok(Self { file, timeline, metrics })
    }

    /// Starts to read a series, until its load ends.
    pub(super) fn read(mut self, series: Series) -> Result<Reader> {
        let thread = thread::Builder::new().name("series".to_owned());
        let read = move || {
            let mut result = Ok(());
            for interval in series {
                if let Some((path, writer)) = &mut self.file
                    && let Err(error) = writer.write(&interval)
                {
                    result = Err(error).with_context(|| format!("cannot write {}", path.display()));
                    self.file = None;
                }
                if let Some(timeline) = &mut self.timeline
                    && let Err(error) = timeline.add(&interval)
                {
                    result = result.and(Err(error));
                    self.timeline = None;
                }
                if let Some(metrics) = &self.metrics {
                    metrics.add(&interval);
                }
            }
            (result, self.timeline)
        };
        Ok(Reader(thread.spawn(read).context("cannot start the thread of the series")?))
    }
}

impl Reader {
    /// Waits for the end of the series. Returns the first error of an output, and the data of a page.
    pub(super) fn finish(self) -> (Result<()>, Option<Timeline>) {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

fn open_file(path: &Path, plan: &Plan) -> Result<(PathBuf, SeriesWriter<File>)> {
    let cannot = || format!("cannot write {}", path.display());
    let format = format(path).with_context(cannot)?;
    let file = File::create(path).with_context(cannot)?;
    let writer = SeriesWriter::new(format, plan.rate(), file).with_context(cannot)?;
    Ok((path.to_owned(), writer))
}

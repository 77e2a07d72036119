//! Figures over time: a file, a page and metrics, fed while the load runs.

use super::args::Args;
use super::metrics::MetricsServer;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf, absolute};
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

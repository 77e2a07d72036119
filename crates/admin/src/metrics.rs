//! Prometheus's text format 0.0.4.

use std::fmt::{Arguments, Display, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use procfs::WithCurrentSystemInfo as _;
use procfs::process::{LimitValue, Process};

/// Upper bounds of the buckets of durations, in microseconds; a last bucket has no bound.
pub const DURATION_BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// A page of metrics. The names of counters end in `_total`.
#[derive(Debug)]
pub struct Page {
    text: String,
    prefix: &'static str,
}

impl Page {
    /// `prefix`: of all names.
    pub fn new(prefix: &'static str) -> Self {
        Self { text: String::new(), prefix }
    }

    /// Adds metrics of the build and the process, which started at `started_at`, and returns the text.
    pub fn finish(mut self, started_at: SystemTime) -> String {
        self.prefix = "";
        build_metrics(&mut self);
        process_metrics(&mut self, started_at);
        self.text
    }

    /// Starts a counter or a gauge.
    pub fn family(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.describe(name, help, kind);
    }

    /// Starts a histogram.
    pub fn histogram(&mut self, name: &str, help: &str) {
        self.describe(name, help, "histogram");
    }

    fn describe(&mut self, name: &str, help: &str, kind: &str) {
        let prefix = self.prefix;
        self.push(format_args!("# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}\n"));
    }

    /// Writes a sample of the current family.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let prefix = self.prefix;
        self.push(format_args!("{prefix}{name}"));
        for (at, (label, text)) in labels.iter().enumerate() {
            let separator = if at == 0 { '{' } else { ',' };
            self.push(format_args!("{separator}{label}=\"{}\"", escape(text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.push(format_args!("{end} {value}\n"));
    }

    /// Writes the samples of a histogram with these labels. `counts` has one more bucket than there are bounds.
    pub fn buckets(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[impl Display],
        counts: &[u64],
        sum: impl Display,
    ) {
        let mut total = 0;
        let bounds = bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            total += count;
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample(&format!("{name}_bucket"), &labels, total);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, total);
    }

    fn push(&mut self, text: Arguments<'_>) {
        self.text.write_fmt(text).expect("writing to a string cannot fail");
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn build_metrics(page: &mut Page) {
    page.family("tollgate_build_info", "1, with the version and the architecture as labels.");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("arch", std::env::consts::ARCH)];
    page.sample("tollgate_build_info", &labels, 1);
}

/// The usual metrics of a process. Those that cannot be read are left out.
fn process_metrics(page: &mut Page, started_at: SystemTime) {
    let mut metric = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            page.family(name, help);
            page.sample(name, &[], value);
        }
    };
    let start = started_at.duration_since(UNIX_EPOCH).ok();
    metric(
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970.",
        start.map(|start| start.as_secs_f64()),
    );
    let Ok(process) = Process::myself() else { return };
    let stat = process.stat().ok();
    let cpu = stat
        .as_ref()
        .map(|stat| (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64);
    metric("process_cpu_seconds_total", "CPU time of the process, in seconds.", cpu);
    let resident = stat.as_ref().map(|stat| stat.rss_bytes().get() as f64);
    metric("process_resident_memory_bytes", "Resident memory of the process.", resident);
    let open = process.fd_count().ok().map(|count| count as f64);
    metric("process_open_fds", "Open file descriptors.", open);
    let max = process.limits().ok().map(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Unlimited => f64::INFINITY,
        LimitValue::Value(count) => count as f64,
    });
    metric("process_max_fds", "Limit on open file descriptors.", max);
}

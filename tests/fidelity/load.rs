use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::machine::{GENERATOR_CPU, has_two_cpus};

/// A running `tollgate load`.
pub(crate) struct Load {
    child: Child,
    pub(crate) started_at: Instant,
}

/// Result and exit code of a run.
pub(crate) struct Report {
    json: Value,
    pub(crate) exit: i32,
    pub(crate) elapsed: Duration,
}

impl Load {
    /// Starts the generator on its CPU with options of the command line.
    pub(crate) fn start(options: &str, url: &str) -> Self {
        let mut command = Command::new(cargo_bin!("tollgate"));
        command.args(["load", "--format", "json"]).args(options.split_whitespace()).arg(url);
        if has_two_cpus() {
            command.args(["--cpus", &GENERATOR_CPU.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Self { started_at: Instant::now(), child: command.spawn().expect("the binary runs") }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Suspends it (SIGSTOP).
    pub(crate) fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_some()
    }

    /// Waits for the end. The pipe has room for the result.
    pub(crate) fn wait(self) -> Report {
        let output = self.child.wait_with_output().expect("its status");
        let elapsed = self.started_at.elapsed();
        let text = String::from_utf8(output.stdout).expect("text");
        let json = serde_json::from_str(&text);
        let exit = output.status.code().expect("an exit code");
        let json =
            json.unwrap_or_else(|error| panic!("exit code {exit}, invalid JSON ({error}): {text}"));
        Report { json, exit, elapsed }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a running generator");
    }
}

/// Runs the generator to its end.
pub(crate) fn run(options: &str, url: &str) -> Report {
    Load::start(options, url).wait()
}

impl Report {
    /// Value at a JSON pointer.
    pub(crate) fn value(&self, place: &str) -> &Value {
        let missing = || panic!("no {place} in {}", self.json);
        self.json.pointer(place).unwrap_or_else(missing)
    }

    pub(crate) fn count(&self, place: &str) -> u64 {
        self.value(place).as_u64().unwrap_or_else(|| panic!("{place} is not a count"))
    }

    pub(crate) fn figure(&self, place: &str) -> f64 {
        self.value(place).as_f64().unwrap_or_else(|| panic!("{place} is not a number"))
    }

    pub(crate) fn text(&self, place: &str) -> &str {
        self.value(place).as_str().unwrap_or_else(|| panic!("{place} is not a string"))
    }

    /// Requests without a complete response.
    pub(crate) fn failed(&self) -> u64 {
        self.count("/failed")
    }

    /// Percentiles at `place`, as shares and in microseconds, without those that are null.
    pub(crate) fn percentiles_us(&self, place: &str) -> Vec<(f64, f64)> {
        let quantiles = self.value(&format!("{place}/quantiles")).as_object().expect("an object");
        let percent = |name: &str| name.strip_prefix('p')?.strip_suffix("_ms")?.parse::<f64>().ok();
        let mut found: Vec<(f64, f64)> = quantiles
            .iter()
            .filter_map(|(name, ms)| {
                let percent = percent(name).unwrap_or_else(|| panic!("{name} is not a percentile"));
                Some((percent / 100.0, ms.as_f64()? * 1e3))
            })
            .collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found
    }

    /// Histogram at `place`, in nanoseconds.
    pub(crate) fn histogram(&self, place: &str) -> Histogram<u64> {
        let text = self.text(&format!("{place}/histogram_v2_base64"));
        let bytes = STANDARD.decode(text).expect("base64");
        Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram")
    }

    /// Number of values above `limit` in the histogram at `place`, with its precision.
    pub(crate) fn count_above(&self, place: &str, limit: Duration) -> u64 {
        let histogram = self.histogram(place);
        histogram.len() - histogram.count_between(0, limit.as_nanos() as u64)
    }
}

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

/// A run of `tollgate load` that is under way.
pub(crate) struct Load {
    child: Child,
    pub(crate) started: Instant,
}

/// What a run printed, and how it ended.
pub(crate) struct Report {
    json: Value,
    pub(crate) exit: i32,
    pub(crate) elapsed: Duration,
}

impl Load {
    /// Starts the generator on its CPU; `options` are those of the command line.
    pub(crate) fn start(options: &str, url: &str) -> Self {
        let mut command = Command::new(cargo_bin!("tollgate"));
        command.args(["load", "--format", "json"]).args(options.split_whitespace()).arg(url);
        if has_two_cpus() {
            command.args(["--cpus", &GENERATOR_CPU.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Self { started: Instant::now(), child: command.spawn().expect("the binary runs") }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it stands.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it was started here").is_some()
    }

    /// Waits for the end. The result is some kilobytes, which the pipe holds until it is read.
    pub(crate) fn wait(self) -> Report {
        let output = self.child.wait_with_output().expect("it was started here");
        let elapsed = self.started.elapsed();
        let text = String::from_utf8(output.stdout).expect("text");
        let json = serde_json::from_str(&text);
        let exit = output.status.code().expect("an exit code, and no signal");
        let json =
            json.unwrap_or_else(|error| panic!("exit code {exit}, no JSON ({error}): {text}"));
        Report { json, exit, elapsed }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the generator runs");
    }
}

/// Runs the generator to its end.
pub(crate) fn run(options: &str, url: &str) -> Report {
    Load::start(options, url).wait()
}

impl Report {
    /// What stands at `place`, a JSON pointer.
    pub(crate) fn value(&self, place: &str) -> &Value {
        let missing = || panic!("there is no {place} in {}", self.json);
        self.json.pointer(place).unwrap_or_else(missing)
    }

    /// A count.
    pub(crate) fn count(&self, place: &str) -> u64 {
        self.value(place).as_u64().unwrap_or_else(|| panic!("{place} is no count"))
    }

    /// A figure.
    pub(crate) fn figure(&self, place: &str) -> f64 {
        self.value(place).as_f64().unwrap_or_else(|| panic!("{place} is no figure"))
    }

    pub(crate) fn text(&self, place: &str) -> &str {
        self.value(place).as_str().unwrap_or_else(|| panic!("{place} is no text"))
    }

    /// Requests without a complete answer.
    pub(crate) fn failed(&self) -> u64 {
        let errors = self.value("/errors").as_object().expect("an object");
        let failures = errors.iter().filter(|(kind, _)| *kind != "unexpected");
        failures.map(|(kind, count)| count.as_u64().unwrap_or_else(|| panic!("{kind}"))).sum()
    }

    /// The percentiles that are printed at `place`, as shares and in microseconds; those without
    /// enough answers behind them are left out.
    pub(crate) fn percentiles_us(&self, place: &str) -> Vec<(f64, f64)> {
        let quantiles = self.value(&format!("{place}/quantiles")).as_object().expect("an object");
        let percent = |name: &str| name.strip_prefix('p')?.strip_suffix("_ms")?.parse::<f64>().ok();
        let mut found: Vec<(f64, f64)> = quantiles
            .iter()
            .filter_map(|(name, ms)| {
                let percent = percent(name).unwrap_or_else(|| panic!("{name} is no percentile"));
                Some((percent / 100.0, ms.as_f64()? * 1e3))
            })
            .collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found
    }

    /// The histogram at `place`, in nanoseconds.
    pub(crate) fn histogram(&self, place: &str) -> Histogram<u64> {
        let text = self.text(&format!("{place}/histogram_v2_base64"));
        let bytes = STANDARD.decode(text).expect("base64");
        Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram")
    }

    /// How many figures of the histogram at `place` are above `limit`, to its precision.
    pub(crate) fn count_above(&self, place: &str, limit: Duration) -> u64 {
        let histogram = self.histogram(place);
        histogram.len() - histogram.count_between(0, limit.as_nanos() as u64)
    }
}

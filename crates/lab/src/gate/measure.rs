//! What gates can look at, and in which units.

use crate::analysis::Metric;
use crate::blocks::Valid;

/// A figure that a gate looks at, in the units of the records: microseconds of CPU a request, answers
/// a second, milliseconds, bytes; shares from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// One that has a price in every report.
    Priced(Metric),
    /// From the start of the system to its first right answer.
    Startup,
    /// The share of attacks that were blocked.
    Caught,
    /// The share of harmless requests that were blocked.
    Alarms,
}

/// A unit that a bound may be written in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    /// How it is written.
    pub(super) name: &'static str,
    /// What one of it is in the measure's own unit.
    pub(super) factor: f64,
}

impl Measure {
    /// Every measure, by the word that gates have for it.
    pub const WORDS: [(&'static str, Self); 9] = [
        ("cpu", Self::Priced(Metric::CpuUsPerRequest)),
        ("throughput", Self::Priced(Metric::ThroughputPerS)),
        ("p50", Self::Priced(Metric::LatencyP50Ms)),
        ("p99", Self::Priced(Metric::LatencyP99Ms)),
        ("mean", Self::Priced(Metric::LatencyMeanMs)),
        ("memory", Self::Priced(Metric::MemoryPeakBytes)),
        ("startup", Self::Startup),
        ("caught", Self::Caught),
        ("alarms", Self::Alarms),
    ];

    /// The word that gates have for it.
    pub fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(_, measure)| *measure == self);
        known.map_or("", |(word, _)| word)
    }

    /// Its value in one trial that counts. Shares are not of one trial: they have no value here.
    pub(super) fn of(self, trial: &Valid<'_>) -> Option<f64> {
        match self {
            Self::Priced(metric) => metric.of(trial.measurement),
            Self::Startup => trial.startup_ms,
            Self::Caught | Self::Alarms => None,
        }
    }

    /// Whether it is a share from 0 to 1, whose bound needs its `%`.
    pub(super) fn is_share(self) -> bool {
        matches!(self, Self::Caught | Self::Alarms)
    }

    /// The units of its bound; the first is that of a bare number, but for shares.
    pub(super) fn units(self) -> &'static [Unit] {
        match self {
            Self::Priced(Metric::CpuUsPerRequest) => &CPU,
            Self::Priced(Metric::ThroughputPerS) => &RATE,
            Self::Priced(Metric::MemoryPeakBytes) => &BYTES,
            Self::Priced(
                Metric::LatencyMeanMs
                | Metric::LatencyMinMs
                | Metric::LatencyP50Ms
                | Metric::LatencyP90Ms
                | Metric::LatencyP99Ms
                | Metric::LatencyMaxMs,
            )
            | Self::Startup => &TIME,
            Self::Caught | Self::Alarms => &SHARE,
        }
    }
}

/// The units of a ratio: 1.5, 1.5x and 150% are the same.
pub(super) const RATIO: [Unit; 2] = [unit("x", 1.0), unit("%", 0.01)];

const CPU: [Unit; 4] = [unit("us", 1.0), unit("µs", 1.0), unit("ns", 1e-3), unit("ms", 1e3)];
const RATE: [Unit; 1] = [unit("/s", 1.0)];
const TIME: [Unit; 4] = [unit("ms", 1.0), unit("us", 1e-3), unit("µs", 1e-3), unit("s", 1e3)];
const BYTES: [Unit; 3] =
    [unit("MiB", 1_048_576.0), unit("KiB", 1_024.0), unit("GiB", 1_073_741_824.0)];
const SHARE: [Unit; 1] = [unit("%", 0.01)];

const fn unit(name: &'static str, factor: f64) -> Unit {
    Unit { name, factor }
}

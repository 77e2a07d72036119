//! A series as CSV or JSON lines, written while the load runs.

use std::io::{self, Write};

use csv::Writer;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_stats::Failures;

use crate::distribution::Distribution;
use crate::rate::Rate;
use crate::series::Interval;

/// Version of the schema of a line. Incompatible changes increment it.
const SCHEMA: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesFormat {
    Csv,
    /// An object per line.
    JsonLines,
}

/// Writes intervals, each at once and whole.
#[derive(Debug)]
pub struct SeriesWriter<W: Write> {
    rate: Option<Rate>,
    output: Output<W>,
}

#[derive(Debug)]
enum Output<W: Write> {
    Csv(Box<Writer<W>>),
    JsonLines(W),
}

/// Figures of one interval of a load.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct IntervalLine {
    /// Version of this schema.
    schema: u32,
    /// Start, in seconds since the start of the measurement.
    start_s: f64,
    /// End, in seconds since the start of the measurement. The last interval ends with the measurement.
    end_s: f64,
    /// Open loop: mean rate that the schedule has in it, in requests per second.
    scheduled_per_s: Option<f64>,
    /// Requests sent.
    sent: u64,
    /// Complete responses, expected or not.
    responses: u64,
    /// Responses per second; null for an interval without length.
    throughput_per_s: Option<f64>,
    /// Responses that were not the expected ones.
    unexpected: u64,
    /// Requests without a complete response: the sum of `failures`.
    failed: u64,
    /// Requests without a complete response, by kind; without examples.
    failures: Failures,
    /// Open loop: requests that became due while no connection was free.
    queued: u64,
    /// Requests in flight at the end.
    in_flight: u64,
    /// Bytes received, with heads and transfer codings.
    bytes_received: u64,
    /// CPU time of the threads of the generator, in microseconds.
    cpu_us: u64,
    /// Latency of the responses and, as a lower bound, of the timeouts.
    latency: Distribution,
}

impl IntervalLine {
    fn new(interval: &Interval, rate: Option<&Rate>) -> io::Result<Self> {
        let &Interval { start, end, .. } = interval;
        let length_s = end.saturating_sub(start).as_secs_f64();
        let per_s = |number: f64| (length_s > 0.0).then(|| number / length_s);
        Ok(Self {
            schema: SCHEMA,
            start_s: start.as_secs_f64(),
            end_s: end.as_secs_f64(),
            scheduled_per_s: rate.and_then(|rate| interval.scheduled_per_s(rate)),
            sent: interval.sent,
            responses: interval.responses,
            throughput_per_s: per_s(interval.responses as f64),
            unexpected: interval.unexpected,
            failed: interval.failures.total(),
            failures: interval.failures.clone(),
            queued: interval.queued,
            in_flight: interval.in_flight,
            bytes_received: interval.bytes_received,
            cpu_us: u64::try_from(interval.cpu.as_micros()).map_err(io::Error::other)?,
            latency: Distribution::new(&interval.latency).map_err(io::Error::other)?,
        })
    }

    /// Columns of CSV with their values.
    fn columns(&self) -> Vec<(String, String)> {
        fn or_empty(number: Option<f64>) -> String {
            number.map_or(String::new(), |number| number.to_string())
        }
        let counts = [
            ("start_s", self.start_s.to_string()),
            ("end_s", self.end_s.to_string()),
            ("scheduled_per_s", or_empty(self.scheduled_per_s)),
            ("sent", self.sent.to_string()),
            ("responses", self.responses.to_string()),
            ("throughput_per_s", or_empty(self.throughput_per_s)),
            ("unexpected", self.unexpected.to_string()),
            ("failed", self.failed.to_string()),
        ];
        let kinds = self.failures.by_kind().map(|(kind, count)| (kind, count.to_string()));
        let rest = [
            ("queued", self.queued.to_string()),
            ("in_flight", self.in_flight.to_string()),
            ("bytes_received", self.bytes_received.to_string()),
            ("cpu_us", self.cpu_us.to_string()),
        ];
        let named = counts.into_iter().chain(kinds).chain(rest);
        let named = named.map(|(name, value)| (name.to_owned(), value));
        let latency = self.latency.figures_ms();
        named.chain(latency.map(|(name, ms)| (format!("{name}_ms"), or_empty(ms)))).collect()
    }
}

impl<W: Write> SeriesWriter<W> {
    /// `rate`: that of an open loop.
    pub fn new(format: SeriesFormat, rate: Option<&Rate>, writer: W) -> io::Result<Self> {
        let mut output = match format {
            SeriesFormat::Csv => Output::Csv(Box::new(Writer::from_writer(writer))),
            SeriesFormat::JsonLines => Output::JsonLines(writer),
        };
        if let Output::Csv(csv) = &mut output {
            let columns = IntervalLine::new(&Interval::default(), None)?.columns();
            csv.write_record(columns.iter().map(|(name, _)| name))?;
            csv.flush()?;
        }
        Ok(Self { rate: rate.cloned(), output })
    }

    pub fn write(&mut self, interval: &Interval) -> io::Result<()> {
        let line = IntervalLine::new(interval, self.rate.as_ref())?;
        match &mut self.output {
            Output::Csv(csv) => {
                csv.write_record(line.columns().iter().map(|(_, value)| value))?;
                csv.flush()
            }
            Output::JsonLines(writer) => {
                let mut text = serde_json::to_vec(&line)?;
                text.push(b'\n');
                writer.write_all(&text)?;
                writer.flush()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_stats::LatencyHistogram;

    use super::*;
    use crate::rate::RateStage;

    /// The second half second of a load: 20 responses of 2 ms, and a timeout.
    fn interval() -> Interval {
        let mut latency = LatencyHistogram::new();
        latency.record_n(1_000, 20);
        latency.record(2_000);
        Interval {
            start: Duration::from_millis(500),
            end: Duration::from_millis(1_000),
            sent: 25,
            responses: 20,
            unexpected: 2,
            failures: Failures { response_timeout: 1, ..Failures::default() },
            queued: 3,
            bytes_received: 4_000,
            in_flight: 4,
            cpu: Duration::from_micros(1_234),
            latency,
        }
    }

    fn written(format: SeriesFormat, rate: Option<&Rate>) -> String {
        let mut bytes = Vec::new();
        let mut writer = SeriesWriter::new(format, rate, &mut bytes).unwrap();
        writer.write(&interval()).unwrap();
        drop(writer);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn csv_has_a_header_and_a_line_per_interval() {
        let length = Duration::from_secs(1);
        let ramp = Rate::Stages(vec![RateStage { from_per_s: 0.0, to_per_s: 80.0, length }]);
        let text = written(SeriesFormat::Csv, Some(&ramp));
        let lines: Vec<&str> = text.lines().collect();
        let names = "start_s,end_s,scheduled_per_s,sent,responses,throughput_per_s,unexpected,failed,refused,reset,\
            connect_timeout,response_timeout,closed_early,malformed,no_port,other,queued,in_flight,bytes_received,cpu_us,\
            mean_ms,stddev_ms,min_ms,p50_ms";
        assert!(lines[0].starts_with(names), "{text}");
        // 40 t^2 requests until t: 40 - 10 in half a second. The median is of 21 times, p75 of too few.
        let values = "0.5,1,60,25,20,40,2,1,0,0,0,1,0,0,0,0,3,4,4000,1234,";
        assert!(lines[1].starts_with(values), "{text}");
        assert!(lines[1].ends_with(",0.001,0.001,,,,,,,0.002"), "{text}");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn json_has_an_object_per_line_with_the_histogram() {
        let text = written(SeriesFormat::JsonLines, None);
        let line: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(
            (&line["schema"], &line["scheduled_per_s"]),
            (&1.into(), &serde_json::Value::Null)
        );
        assert_eq!(line["failures"]["response_timeout"], 1);
        let histogram = line["latency"]["histogram_v2_base64"].as_str().unwrap();
        assert!(LatencyHistogram::from_v2_base64(histogram).unwrap() == interval().latency);
    }
}

//! Foreign load generators: wrk, ab and h2load in the place of tollgate's own.
//!
//! Each has a file with the command line for a load and the parser of its output, both pure. A client sends one request
//! again and again; `tollgate_experiment` rejects loads that it cannot send.

mod ab;
mod h2load;
pub(crate) mod output;
mod wrk;

use anyhow::Context;
use output::{ClientLoad, Printed};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tollgate_load::{Summary, TemplateSummary, ThreadUsage};
use tollgate_records::error::io_error;
use tollgate_records::trial::{ClientRecord, CpuTime, Measurement, as_f64};
use tollgate_traffic::load_shape::LoadProgram;

/// Returns the arguments of a client for a load.
pub(crate) fn arguments(client: LoadProgram, load: &ClientLoad<'_>) -> Vec<String> {
    match client {
        LoadProgram::Tollgate => unreachable!("the own generator is no process"),
        LoadProgram::Wrk => wrk::arguments(load),
        LoadProgram::Ab => ab::arguments(load),
        LoadProgram::H2load => h2load::arguments(load),
    }
}

/// Reads the figures of a client that has ended. `log`: its output.
pub(crate) fn read(client: LoadProgram, log: &Path) -> anyhow::Result<Printed> {
    let file = |path: &Path| fs::read_to_string(path).map_err(io_error("read", path));
    let text = file(log)?;
    let printed = match client {
        LoadProgram::Tollgate => unreachable!("the own generator prints nothing"),
        LoadProgram::Wrk => wrk::parse(&text),
        LoadProgram::Ab => ab::parse(&text, &file(&ab::percentiles(log))?),
        LoadProgram::H2load => h2load::parse(&text),
    };
    printed.with_context(|| format!("cannot read the figures of {client} in {}", log.display()))
}

impl Printed {
    /// Returns the figures as those of a load in this window. `template`: index of the only template of the load among
    /// `templates`.
    pub(crate) fn summary(
        &self,
        client: LoadProgram,
        templates: usize,
        template: usize,
        cpu: CpuTime,
        threads: usize,
        window: Duration,
    ) -> Summary {
        // The process has ended, and its threads are not known any more.
        let of_thread = |us: u64| Duration::from_micros(us / threads as u64);
        let usage = ThreadUsage {
            user: of_thread(cpu.user_us),
            system: of_thread(cpu.system_us),
            waited: Duration::ZERO,
            polled: Duration::ZERO,
            window,
        };
        let mut templates = vec![TemplateSummary::default(); templates];
        templates[template].unexpected = self.unexpected;
        templates[template].unexpected_example =
            (self.unexpected > 0).then(|| format!("counted by {client}"));
        Summary {
            window,
            responses: self.responses,
            unexpected: self.unexpected,
            failures: self.failures.clone(),
            bytes_received: self.bytes_received,
            templates,
            threads: vec![usage; threads],
            ..Summary::default()
        }
    }

    /// Replaces the figures of a measurement that the client has measured itself, by its own clock.
    pub(crate) fn complete(self, measurement: &mut Measurement, record: ClientRecord) {
        let per_response = |count: u64| as_f64(count) / as_f64(self.responses.max(1));
        let expected = self.responses - self.unexpected;
        measurement.throughput_per_s = self.per_s * per_response(expected);
        measurement.received_bytes_per_s = Some(self.per_s * per_response(self.bytes_received));
        measurement.sent_bytes_per_s = None;
        measurement.latency = self.latency;
        measurement.client = Some(record);
    }
}

//! The interface between a run and the machines on which its trials happen.
//!
//! A run decides which trial is next and records it; a [`Bench`] carries it out: on this machine ([`local`]), on hosts of
//! their own for each role (crate `tollgate-cluster`), or, in tests of runs, nowhere.

pub mod local;
#[cfg(test)]
pub(crate) mod mock;

use crate::measurement::Expected;
use crate::probe::exchange::Site;
use crate::probe::requests::Requests;
use crate::probe::{self, Target};
use crate::process::{Interrupt, Interrupted};
use crate::role::ServerFiles;
use crate::role::servers::TrialEnd;
use anyhow::Context;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_load::{
    Arrivals, Phases, Plan, Progress, Rate, Request, Shard, Slice, Target as LoadTarget, Workload,
    becomes_steady,
};
use tollgate_records::machine::{CpuLayout, Environment};
use tollgate_records::manifest::HostManifest;
use tollgate_records::subject::{Installed, Missing, SubjectState};
use tollgate_records::trial::{Measurement, Noise, ProbeResponse, as_f64};
use tollgate_traffic::RecordedResponses;
use tollgate_traffic::load_shape::{CaseArrivals, LoadShape, OpenLoop, TlsSessions};

/// Machines for the trials of a run.
///
/// A trial calls `ready`, `start`, `probe`, `verdicts`, `measure` and `stop`, with a `check` after each step that depends on
/// running servers. Its servers are stopped by `stop`, and when the bench is dropped.
pub trait Bench: fmt::Debug {
    /// Takes the machines of an experiment and describes them.
    fn describe(
        &mut self,
        experiment: &Experiment,
        interrupt: &Interrupt,
    ) -> anyhow::Result<BenchDescription>;

    /// Finds the system of a subject and renders its configuration with fixed ports. `configs`: folder for configuration
    /// folders of all subjects.
    fn state(
        &mut self,
        experiment: &Experiment,
        subject: &Subject,
        configs: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<SubjectState>;

    /// Waits until a trial can start: other measurements have ended, and lost machines are replaced. Calls `waiting` if that
    /// takes long. The error may be [`Interrupted`].
    fn ready(&mut self, interrupt: &Interrupt, waiting: &mut dyn FnMut(&str))
    -> anyhow::Result<()>;

    /// Measures the noise of the idle machine. `None` if it cannot be measured between trials.
    fn noise(
        &mut self,
        time: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Noise>, Interrupted>;

    /// Starts origins and system, and waits for the first response.
    fn start(&mut self, request: &StartRequest<'_>) -> Result<Started, TrialEnd>;

    /// Fails if a machine is lost or a server has ended: a system with the step `probe`.
    fn check(&mut self) -> Result<(), TrialEnd>;

    /// Last lines of the system's logs, for the record of a failure.
    fn system_log(&mut self) -> Vec<String>;

    /// Sends the probe to a started subject. The error may be [`Interrupted`].
    fn probe(&mut self, request: &ProbeRequest<'_>) -> anyhow::Result<ProbeReport> {
        let ProbeRequest { case, subject, requests, started, interrupt } = *request;
        let target = Target { site: &started.site, ports: &started.ports, interrupt };
        Ok(ProbeReport {
            undetected: probe::undetected_attacks(subject, &target)?,
            responses: probe::probe(&started.site, case.mix.templates(), requests, interrupt)?,
        })
    }

    /// Sends the requests of a corpus and returns the verdict on each. The error may be [`Interrupted`].
    fn verdicts(
        &mut self,
        corpus: &[(Request, Option<u16>)],
        request: &ProbeRequest<'_>,
    ) -> anyhow::Result<String> {
        let ProbeRequest { requests, started, interrupt, .. } = *request;
        probe::verdicts(&started.site, corpus, requests.blocked_status, interrupt)
    }

    /// Warms up, measures and stops the load.
    fn measure(&mut self, request: &MeasureRequest<'_>) -> Result<Measurement, TrialEnd>;

    /// Stops the servers.
    fn stop(&mut self);
}

#[derive(Debug, Clone)]
pub struct BenchDescription {
    /// CPUs of each role, on its own machine.
    pub layout: CpuLayout,
    /// The machine of the system.
    pub environment: Environment,
    /// Empty for this machine.
    pub hosts: Vec<HostManifest>,
    /// Part that the baseline lacks, if that is known without the directory of the run.
    pub missing: Option<Missing>,
}

/// Servers of a trial.
#[derive(Debug, Clone, Copy)]
pub struct StartRequest<'a> {
    pub case: &'a Case,
    pub subject: &'a Subject,
    pub installed: &'a Installed,
    /// Folders of the servers on this machine.
    pub files: &'a ServerFiles,
    /// Responses of the origins in place of the benchmark site.
    pub responses: Option<&'a RecordedResponses>,
    /// Request of the readiness check.
    pub ready: &'a Request,
    pub interrupt: &'a Interrupt,
}

/// A started subject.
#[derive(Debug, Clone)]
pub struct Started {
    pub site: Site,
    /// Further ports of the system, by name.
    pub ports: BTreeMap<String, SocketAddr>,
    /// Time from the start of the first process to the first expected response, if there was one.
    pub startup: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
pub struct ProbeRequest<'a> {
    pub case: &'a Case,
    pub subject: &'a Subject,
    pub requests: &'a Requests<'a>,
    pub started: &'a Started,
    pub interrupt: &'a Interrupt,
}

#[derive(Debug, Clone)]
pub struct ProbeReport {
    /// Description of attacks that the subject did not detect.
    pub undetected: Option<String>,
    /// Response to one request of each template.
    pub responses: Vec<ProbeResponse>,
}

/// Load and window of a trial.
#[derive(Debug, Clone)]
pub struct MeasureRequest<'a> {
    pub site: &'a Site,
    pub subject: &'a Subject,
    /// Folders of the trial.
    pub files: &'a ServerFiles,
    pub expected: Expected<'a>,
    pub workload: Arc<Workload>,
    /// Seed of a Poisson schedule.
    pub gaps_seed: u64,
    pub interrupt: &'a Interrupt,
}

impl MeasureRequest<'_> {
    /// Returns the plan of the load from these CPUs; from all, if there are none.
    pub fn plan(&self, cpus: Vec<usize>) -> anyhow::Result<Plan> {
        let (site, load) = (self.site, self.expected.load);
        Ok(Plan {
            target: LoadTarget::Tcp(site.address),
            tls: site.tls(load.tls == TlsSessions::Resumed)?,
            workload: Arc::clone(&self.workload),
            arrivals: arrivals(load, self.gaps_seed)?,
            clients: load.clients.clone(),
            phases: Phases::Endless,
            series: None,
            first_byte: false,
            cpus,
            shard: Shard::WHOLE,
        })
    }

    /// Waits until the figures of the load are steady, and returns false if they were not within the time limit. `sample`
    /// waits until a time, then reads the counts of the load and the CPU time of the system.
    pub fn wait_until_steady<E>(
        &self,
        sample: impl FnMut(Instant) -> Result<(Instant, Progress, Option<u64>), E>,
    ) -> Result<bool, E> {
        let load = self.expected.load;
        becomes_steady(load.warm_up.longest(), sample, |slice, before, now| {
            let cpu_us = now.zip(*before).map(|(now, before)| now.saturating_sub(before));
            steady_figures(slice, cpu_us, load.open_loop().is_some())
        })
    }
}

fn arrivals(load: &LoadShape, seed: u64) -> anyhow::Result<Arrivals> {
    Ok(match &load.arrivals {
        CaseArrivals::Closed { connections } => Arrivals::Closed { connections: *connections },
        CaseArrivals::Open(OpenLoop { rate, spacing, connections, connections_max }) => {
            let per_s = rate.per_s().context("the rate of the case is not known yet")?;
            let schedule = OpenLoop {
                rate: Rate::Constant(per_s),
                spacing: *spacing,
                connections: *connections,
                connections_max: *connections_max,
            };
            Arrivals::Open { schedule, seed }
        }
    })
}

/// Returns the figures that must be steady: throughput in a closed loop, and the CPU time per request of the system.
/// Without either: the mean latency.
fn steady_figures(slice: &Slice, cpu_us: Option<u64>, is_open_loop: bool) -> Vec<f64> {
    let throughput_per_s = (!is_open_loop).then(|| slice.throughput_per_s());
    let cpu_us_per_request = cpu_us.map(|us| as_f64(us) / as_f64(slice.responses.max(1)));
    let figures: Vec<f64> = throughput_per_s.into_iter().chain(cpu_us_per_request).collect();
    if figures.is_empty() { slice.latency_ns_mean().into_iter().collect() } else { figures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_figures_depend_on_loop_and_system() {
        // 100 responses in 200 ms, of 7 ns each.
        let slice =
            Slice { length: Duration::from_millis(200), responses: 100, latency_ns_sum: 700 };
        assert_eq!(steady_figures(&slice, Some(1_200), false), [500.0, 12.0]);
        assert_eq!(steady_figures(&slice, None, false), [500.0]);
        assert_eq!(steady_figures(&slice, Some(1_200), true), [12.0]);
        assert_eq!(steady_figures(&slice, None, true), [7.0]);
    }
}

//! The interface to roles on hosts of their own. The trial is the same; servers, load and clocks are elsewhere.

use super::exchange::Site;
use super::measure::Expected;
use super::servers::Stop;
use crate::process::Interrupt;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_load::{Request, Workload};
use tollgate_records::machine::{CpuLayout, Environment};
use tollgate_records::manifest::HostManifest;
use tollgate_records::subject::SubjectState;
use tollgate_records::trial::Measurement;

/// Hosts of the roles of a run. Hosts that are lost in a trial are replaced before the next one.
pub trait RoleHosts: fmt::Debug {
    /// Takes the hosts and describes them.
    fn describe(&mut self, interrupt: &Interrupt) -> anyhow::Result<HostsDescription>;

    /// Finds the system of a subject on its host, and renders its configuration with fixed ports.
    fn state(
        &mut self,
        catalog: &Catalog,
        experiment: &Experiment,
        subject: &Subject,
        interrupt: &Interrupt,
    ) -> anyhow::Result<SubjectState>;

    /// Replaces hosts that were lost in the last trial. `waiting` is told if that takes long.
    fn replace_lost(
        &mut self,
        interrupt: &Interrupt,
        waiting: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()>;

    /// Starts origins and system.
    fn start(&mut self, request: &StartRequest<'_>) -> Result<StartedOnHosts, Stop>;

    /// Fails if a host is lost, or if a server has ended.
    fn check(&mut self) -> Result<(), Stop>;

    /// Warms up, measures and stops the load.
    fn measure(&mut self, request: &MeasureRequest<'_>) -> Result<Measurement, Stop>;

    /// Stops the servers.
    fn stop(&mut self);
}

#[derive(Debug, Clone)]
pub struct HostsDescription {
    /// CPUs of each role on its own host.
    pub layout: CpuLayout,
    /// The host of the system.
    pub environment: Environment,
    pub hosts: Vec<HostManifest>,
}

/// Servers of a trial.
#[derive(Debug, Clone, Copy)]
pub struct StartRequest<'a> {
    pub case: &'a Case,
    pub subject: &'a Subject,
    /// Request of the readiness check.
    pub ready: &'a Request,
    pub interrupt: &'a Interrupt,
}

#[derive(Debug, Clone)]
pub struct StartedOnHosts {
    /// Address of the subject.
    pub address: SocketAddr,
    /// Further ports of the system, by name.
    pub ports: BTreeMap<String, SocketAddr>,
    /// Time from the start of the first process to the first expected response, if there was one.
    pub startup: Option<Duration>,
}

/// Load and window of a trial.
#[derive(Debug, Clone)]
pub struct MeasureRequest<'a> {
    pub site: &'a Site,
    pub expected: Expected<'a>,
    pub workload: Arc<Workload>,
    /// Seed of a Poisson schedule.
    pub gaps_seed: u64,
    pub interrupt: &'a Interrupt,
}

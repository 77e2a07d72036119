//! A bench without machines, for tests of runs: what happens in a trial is written in a script.

use super::{
    Bench, BenchDescription, MeasureRequest, ProbeReport, ProbeRequest, StartRequest, Started,
};
use crate::environment;
use crate::measurement::{Readings, assemble};
use crate::probe::exchange::Site;
use crate::process::{Interrupt, Interrupted};
use crate::role::servers::TrialEnd;
use crate::role::window::RoleReadings;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_load::{Request, Summary};
use tollgate_records::machine::CpuLayout;
use tollgate_records::subject::{Installed, SubjectState};
use tollgate_records::trial::{
    CpuTime, Measurement, Noise, ProbeOutcome, ProbeResponse, TrialFailure, TrialStep, WarmUpRecord,
};

/// Events of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Play {
    Measured,
    /// Measured on a busy machine.
    Disturbed,
    Refused,
    NotStarted,
    /// As `NotStarted`, in a folder that takes no file.
    DiskFull,
    OriginDies,
    HostLost,
}

#[derive(Debug)]
pub(crate) struct MockBench {
    /// Returns what happens in a trial, named by block, attempt from the second on, case and subject: `002-2-a-nginx-`.
    pub(crate) script: fn(&str) -> Play,
    /// Steal of the idle machine.
    pub(crate) idle_steal_percent: f64,
    /// Call at which the run is interrupted, from 1.
    pub(crate) interrupted_at: Option<usize>,
    /// Names of the calls so far.
    pub(crate) calls: Vec<&'static str>,
    /// Events of the started trial.
    pub(crate) play: Play,
}

impl MockBench {
    pub(crate) fn new(script: fn(&str) -> Play) -> Self {
        Self {
            script,
            idle_steal_percent: 0.0,
            interrupted_at: None,
            calls: Vec::new(),
            play: Play::Measured,
        }
    }

    fn call(&mut self, name: &'static str, interrupt: &Interrupt) -> Result<(), Interrupted> {
        self.calls.push(name);
        if self.interrupted_at == Some(self.calls.len()) {
            interrupt.flag().store(true, Ordering::Relaxed);
        }
        interrupt.check()
    }

    fn fail(step: TrialStep, reason: &str) -> TrialEnd {
        TrialEnd::Failed(TrialFailure { step, reason: reason.to_owned(), log: Vec::new() })
    }
}

impl Bench for MockBench {
    fn describe(
        &mut self,
        _: &Experiment,
        interrupt: &Interrupt,
    ) -> anyhow::Result<BenchDescription> {
        self.call("describe", interrupt)?;
        Ok(BenchDescription {
            layout: CpuLayout { generator: vec![0], origin: vec![0], system: vec![1] },
            environment: environment::read()?,
            hosts: Vec::new(),
            missing: None,
        })
    }

    fn state(
        &mut self,
        _: &Experiment,
        _: &Subject,
        _: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<SubjectState> {
        self.call("state", interrupt)?;
        let (configs, referenced) = (BTreeMap::new(), BTreeMap::new());
        Ok(SubjectState::Present { installed: Installed::default(), configs, referenced })
    }

    fn ready(&mut self, interrupt: &Interrupt, _: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        Ok(self.call("ready", interrupt)?)
    }

    fn noise(&mut self, _: Duration, interrupt: &Interrupt) -> Result<Option<Noise>, Interrupted> {
        self.call("noise", interrupt)?;
        Ok(Some(noise(self.idle_steal_percent)))
    }

    fn start(&mut self, request: &StartRequest<'_>) -> Result<Started, TrialEnd> {
        self.call("start", request.interrupt)?;
        self.play = (self.script)(&request.files.log_prefix);
        if self.play == Play::DiskFull {
            fs::remove_dir_all(&request.files.logs).expect("a folder for logs");
        }
        if matches!(self.play, Play::NotStarted | Play::DiskFull) {
            return Err(Self::fail(TrialStep::Start, "no such program"));
        }
        let site = Site::plain("127.0.0.1:1".parse().unwrap());
        Ok(Started { site, ports: BTreeMap::new(), startup: Some(Duration::from_millis(7)) })
    }

    fn check(&mut self) -> Result<(), TrialEnd> {
        match self.play {
            Play::OriginDies => Err(Self::fail(TrialStep::Origin, "the origin ended")),
            Play::HostLost => Err(Self::fail(TrialStep::Host, "lost node-1")),
            _ => Ok(()),
        }
    }

    fn system_log(&mut self) -> Vec<String> {
        vec!["last words".to_owned()]
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> anyhow::Result<ProbeReport> {
        self.call("probe", request.interrupt)?;
        let is_refused = self.play == Play::Refused;
        let responses = request.case.mix.templates().iter().map(|template| ProbeResponse {
            template: template.name.clone(),
            class: template.class,
            expected: "200".to_owned(),
            actual: if is_refused { "500 with 0 bytes" } else { "200 with 9 bytes" }.to_owned(),
            as_expected: !is_refused,
            outcome: if is_refused { ProbeOutcome::Other } else { ProbeOutcome::Passed },
        });
        Ok(ProbeReport { undetected: None, responses: responses.collect() })
    }

    fn verdicts(
        &mut self,
        corpus: &[(Request, Option<u16>)],
        request: &ProbeRequest<'_>,
    ) -> anyhow::Result<String> {
        self.call("verdicts", request.interrupt)?;
        Ok("p".repeat(corpus.len()))
    }

    fn measure(&mut self, request: &MeasureRequest<'_>) -> Result<Measurement, TrialEnd> {
        self.call("measure", request.interrupt)?;
        let window = request.expected.load.window.longest();
        let role = |cpu| RoleReadings {
            window_s: window.as_secs_f64(),
            cpu,
            busiest_thread: 0.1,
            softirq_us: None,
            usable_cpus: 1,
            died: None,
            memory_peak_bytes: None,
            origin_requests: Vec::new(),
            polled_us: 0,
        };
        let cpu = CpuTime { user_us: 5_000, system_us: 5_000 };
        let readings = Readings {
            summary: Summary { window, responses: 1_000, ..Summary::default() },
            warm_up: WarmUpRecord { duration_s: 1.0, steady: None },
            system: role(Some(cpu)),
            origin: role(None),
            system_softirq_us: None,
            generator_busy: 0.1,
            is_shared: true,
            is_late: false,
            noise: noise(if self.play == Play::Disturbed { 50.0 } else { 0.0 }),
            heaviest: None,
            lateness: Duration::ZERO,
        };
        assemble(&request.expected, readings).map_err(TrialEnd::failed(TrialStep::Load))
    }

    fn stop(&mut self) {
        self.calls.push("stop");
    }
}

fn noise(steal_percent: f64) -> Noise {
    Noise {
        steal_percent,
        background_cpu_percent: 0.0,
        cpu_pressure_percent: None,
        context_switches: 0,
    }
}

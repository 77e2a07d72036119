//! Builders of records with round figures.

use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_records::case::CaseManifest;
use tollgate_records::machine::{CpuLayout, Environment};
use tollgate_records::manifest::{self, ExperimentManifest, Manifest};
use tollgate_records::metric::Metric;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::Stop;
use tollgate_records::subject::{Installed, SubjectManifest, SubjectState};
use tollgate_records::trial::{
    self, Bottleneck, CpuRecord, CpuTime, LatencyRecord, Measurement, Noise, Refusal,
    TemplateRecord, TrialFailure, TrialOutcome, TrialRecord, TrialStep,
};
use tollgate_records::validity::Limits;
use tollgate_report::analysis::{Analysis, Figures, Price, SubjectAnalysis, analyse};
use tollgate_report::source::ReportSource;
use tollgate_report::{Format, render};
use tollgate_stats::text::Screen;
use tollgate_stats::{Failures, LatencyHistogram};
use tollgate_traffic::Class;
use tollgate_traffic::load_shape::{
    CaseArrivals, CaseRate, Clients, LoadProgram, LoadShape, OpenLoop, Protocol, Spacing,
    TlsSessions, WarmUp, Window,
};

/// The case of all records that do not set another one.
pub(crate) const CASE: &str = "browse";

/// A finished run of one case. The first subject is the baseline.
pub(crate) fn run(subjects: &[&str], trials: Vec<TrialRecord>) -> RunRecords {
    RunRecords {
        manifest: Manifest {
            schema: manifest::SCHEMA,
            tollgate: "0.1.0 (0123456)".to_owned(),
            started_at: "2026-01-02T03:04:05Z".to_owned(),
            command: ["tollgate", "run", "first-look", "--seed", "7"].map(str::to_owned).to_vec(),
            directory: "/srv/bench".to_owned(),
            seed: 7,
            experiment: ExperimentManifest {
                name: "first-look".to_owned(),
                title: "What does it cost?".to_owned(),
                file: "first-look.toml".to_owned(),
                text: String::new(),
                quick: false,
                stop: Stop::after(6),
                margin: 0.02,
                limits: Limits::default(),
                aa_subject: None,
                baseline: subjects[0].to_owned(),
                summary: false,
                bytes: false,
                latency: false,
                catch: false,
                corpus: vec![],
                requests: BTreeMap::new(),
                cases: vec![case(CASE)],
                mixes: BTreeMap::new(),
                subjects: subjects.iter().map(|name| subject(name)).collect(),
                ablation: None,
            },
            hosts: Vec::new(),
            cpu_layout: CpuLayout { generator: vec![0], origin: vec![0], system: vec![1] },
            environment: Environment {
                kernel: "Linux 6.1.0 x86_64".to_owned(),
                cpu_model: Some("Example CPU".to_owned()),
                cpus: 2,
                shared_cores: None,
                mitigations: BTreeMap::new(),
                hypervisor: None,
                governor: None,
                clock_source: None,
                open_files: (1024, 4096),
                somaxconn: None,
                port_range: None,
            },
        },
        trials,
        cut_off: false,
    }
}

pub(crate) fn case(name: &str) -> CaseManifest {
    CaseManifest {
        name: name.to_owned(),
        mix: "pages".to_owned(),
        mix_file: "pages.toml".to_owned(),
        origins: 1,
        responses: None,
        load: LoadShape {
            program: LoadProgram::Tollgate,
            arrivals: CaseArrivals::Closed { connections: 50 },
            clients: Clients {
                protocol: Protocol::Http1 { pipeline: 1 },
                threads: 1,
                busy_poll: false,
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(10),
            },
            tls: TlsSessions::Off,
            warm_up: WarmUp::For(Duration::from_millis(500)),
            window: Window::For(Duration::from_millis(2_500)),
            idle_poll: false,
        },
        only_subjects: vec![],
    }
}

/// A schedule over 50 connections at the start.
pub(crate) fn open_loop(rate: CaseRate, spacing: Spacing, connections_max: usize) -> CaseArrivals {
    CaseArrivals::Open(OpenLoop { rate, spacing, connections: 50, connections_max })
}

fn subject(name: &str) -> SubjectManifest {
    SubjectManifest {
        name: name.to_owned(),
        about: format!("what {name} is"),
        system: "nginx".to_owned(),
        recipe: "built in".to_owned(),
        options: BTreeMap::new(),
        prefix: String::new(),
        external: None,
        state: SubjectState::Present {
            installed: Installed::default(),
            configs: BTreeMap::new(),
            referenced: BTreeMap::new(),
        },
    }
}

/// Sets the state of a subject before the first trial.
pub(crate) fn set_state(run: &mut RunRecords, name: &str, state: SubjectState) {
    let mut subjects = run.manifest.experiment.subjects.iter_mut();
    subjects.find(|subject| subject.name == name).unwrap().state = state;
}

pub(crate) fn trial(subject: &str, block: u32, outcome: TrialOutcome) -> TrialRecord {
    TrialRecord {
        schema: trial::SCHEMA,
        case: CASE.to_owned(),
        subject: subject.to_owned(),
        block,
        position: 1,
        attempt: 1,
        started_at: "2026-01-02T03:04:05Z".to_owned(),
        duration_s: 3.5,
        startup_ms: Some(30.0),
        outcome,
    }
}

pub(crate) fn measured(subject: &str, block: u32, measurement: Measurement) -> TrialRecord {
    trial(subject, block, TrialOutcome::Measured(Box::new(measurement)))
}

pub(crate) fn refused(subject: &str, block: u32, reason: &str) -> TrialRecord {
    let refusal = Refusal { reason: reason.to_owned(), responses: Vec::new() };
    trial(subject, block, TrialOutcome::Refused(refusal))
}

pub(crate) fn failed(
    subject: &str,
    block: u32,
    step: TrialStep,
    reason: &str,
    log: &[&str],
) -> TrialRecord {
    let log = log.iter().map(|&line| line.to_owned()).collect();
    trial(
        subject,
        block,
        TrialOutcome::Failed(TrialFailure { step, reason: reason.to_owned(), log }),
    )
}

/// One trial per block, from block 1 on, with these microseconds of CPU per request.
pub(crate) fn blocks(subject: &str, cpu_us_per_request: &[u64]) -> Vec<TrialRecord> {
    let trials = (1..).zip(cpu_us_per_request);
    trials.map(|(block, &cpu_us)| measured(subject, block, costing(cpu_us))).collect()
}

/// CPU of a machine that drifts: each block is twice as slow as the previous one, so pairing different blocks gives an
/// error of at least 2.
pub(crate) const DRIFT: [u64; 6] = [10, 20, 40, 80, 160, 320];

pub(crate) fn drifting(subject: &str, times: u64) -> Vec<TrialRecord> {
    blocks(subject, &DRIFT.map(|cpu_us| times * cpu_us))
}

/// A valid measurement of 1,000 responses in one second, so that a millisecond of CPU is a microsecond per request.
pub(crate) fn costing(cpu_us_per_request: u64) -> Measurement {
    Measurement {
        window_s: 1.0,
        responses: 1_000,
        throughput_per_s: 1_000.0,
        received_bytes_per_s: Some(250_000.0),
        sent_bytes_per_s: Some(120_000.0),
        latency: LatencyRecord {
            mean_ms: Some(1.5),
            min_ms: Some(0.5),
            max_ms: Some(4.0),
            p50_ms: Some(1.0),
            p90_ms: Some(2.0),
            p95_ms: Some(2.5),
            p99_ms: Some(3.0),
            p999_ms: None,
            histogram_v2_base64: Some(histogram()),
        },
        open_loop: None,
        cpu: CpuRecord {
            servers_window_s: 1.0,
            system: Some(CpuTime {
                user_us: 600 * cpu_us_per_request,
                system_us: 400 * cpu_us_per_request,
            }),
            is_unknown: false,
            origin: Some(CpuTime { user_us: 1_000, system_us: 1_000 }),
            generator: CpuTime { user_us: 2_000, system_us: 1_000 },
            system_softirq_us: None,
            origin_polled_us: 0,
            generator_polled_us: 0,
        },
        memory_peak_bytes: Some(8 * MIB),
        attached_cpus: vec![],
        origin_requests: vec![],
        corpus: String::new(),
        templates: vec![template(Class::Benign, 0, 1_000)],
        unexpected: 0,
        failures: Failures::default(),
        in_flight: 0,
        oldest_in_flight_ms: None,
        noise: Noise {
            steal_percent: 0.0,
            background_cpu_percent: 0.0,
            cpu_pressure_percent: None,
            context_switches: 0,
        },
        warm_up: None,
        bottleneck: Bottleneck::System,
        invalid: Vec::new(),
        hosts: None,
        client: None,
    }
}

/// 1,000 responses: 900 within a millisecond, 90 within two, and 10 within four.
fn histogram() -> String {
    let mut histogram = LatencyHistogram::new();
    for (ms, responses) in [(1, 900), (2, 90), (4, 10)] {
        histogram.record_n(ms * 1_000_000, responses);
    }
    histogram.to_v2_base64().unwrap()
}

pub(crate) const MIB: u64 = 1 << 20;

/// A valid measurement of a subject without processes.
pub(crate) fn without_processes() -> Measurement {
    let mut measurement = costing(0);
    measurement.cpu.system = None;
    measurement.memory_peak_bytes = None;
    measurement.bottleneck = Bottleneck::Generator;
    measurement
}

/// A template with `blocked` of `responses` blocked.
pub(crate) fn template(class: Class, blocked: u64, responses: u64) -> TemplateRecord {
    TemplateRecord {
        name: "page".to_owned(),
        class,
        family: None,
        weight: 1,
        probe: None,
        statuses: BTreeMap::from([(200, responses - blocked), (403, blocked)]),
        blocked,
        passed: responses - blocked,
        unexpected: 0,
        unexpected_example: None,
    }
}

/// A report without color, 80 columns wide.
pub(crate) fn report(run: &RunRecords, format: Format) -> String {
    render(&ReportSource::from(run.clone()), format, Screen::PLAIN).unwrap()
}

pub(crate) fn table(run: &RunRecords) -> String {
    report(run, Format::Table)
}

pub(crate) fn markdown(run: &RunRecords) -> String {
    report(run, Format::Markdown)
}

/// The page, with spaces for its no-break spaces.
pub(crate) fn page(run: &RunRecords) -> String {
    report(run, Format::Html).replace('\u{a0}', " ")
}

/// The words of a text, without its line breaks.
pub(crate) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The analysis of a subject in the first case.
pub(crate) fn analysed(run: &RunRecords, name: &str) -> SubjectAnalysis {
    found(&analyse(run), 0, name).clone()
}

pub(crate) fn found<'a>(analysis: &'a Analysis, case: usize, name: &str) -> &'a SubjectAnalysis {
    let mut subjects = analysis.cases[case].subjects.iter();
    subjects.find(|subject| subject.name == name).unwrap()
}

/// The medians of a subject in the first case.
pub(crate) fn figures(run: &RunRecords, name: &str) -> Figures {
    analysed(run, name).figures.unwrap()
}

/// The CPU price of a subject in the first case.
pub(crate) fn cpu_price(run: &RunRecords, name: &str) -> Price {
    analysed(run, name).prices[&Metric::CpuUsPerRequest]
}

/// Compares except for the last digits, which logarithms may change.
#[track_caller]
pub(crate) fn assert_close(found: f64, expected: f64) {
    let off = (found - expected).abs();
    assert!(off <= 1e-12 * expected.abs(), "{found} is not {expected}");
}

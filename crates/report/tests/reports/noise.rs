//! The noise of a machine, from an A/A run.

use crate::records::{blocks, costing, flat, measured, run, without_processes};
use tollgate_records::metric::Metric;
use tollgate_records::trial::TrialRecord;
use tollgate_records::validity::Invalid;
use tollgate_report::noise::{Noise, findings, render};
use tollgate_report::source::ReportSource;
use tollgate_stats::text::Screen;

fn found(trials: Vec<TrialRecord>) -> Noise {
    findings(&ReportSource::from(run(&["nginx", "nginx-again"], trials)))
}

fn rendered(noise: &Noise) -> String {
    flat(&render(noise, Screen::PLAIN))
}

/// Two identical subjects, two percent apart in either direction.
fn noisy() -> Vec<TrialRecord> {
    let (itself, again) = ([100, 102, 100, 102, 100, 102], [102, 100, 102, 100, 102, 100]);
    [blocks("nginx", &itself), blocks("nginx-again", &again)].concat()
}

#[test]
fn reports_noise_and_detectable_difference() {
    let noise = found(noisy());
    let cpu = &noise.figures[0];
    assert_eq!((cpu.metric, cpu.n), (Metric::CpuUsPerRequest, 6));
    assert!((cpu.ratio.estimate - 1.0).abs() < 1e-12, "{cpu:?}");
    // Every block is off by 2 %, up or down, and the interval of ten leaves out 8 of the 55 pairwise
    // means at either end. With four blocks down, ten means are 2 % down; 83 % of runs have as many.
    let visible = cpu.visible.unwrap();
    assert!((visible - 0.02).abs() < 1e-9, "{visible}");
    let text = rendered(&noise);
    assert!(text.contains("None of 12 trials was disturbed."), "{text}");
    assert!(text.contains("detects a difference in CPU per request of"), "{text}");
    assert!(!text.contains("significant difference"), "{text}");
}

#[test]
fn counts_disturbed_trials_by_reason() {
    let mut trials = noisy();
    let mut disturbed = costing(100);
    disturbed.invalid =
        vec![Invalid::BackgroundCpu { percent: 14.0, limit_percent: 10.0, heaviest: None }];
    trials.push(measured("nginx", 7, disturbed));
    trials.push(measured("nginx-again", 7, costing(100)));
    let noise = found(trials);
    assert_eq!((noise.trials, noise.figures[0].n), (14, 6));
    let text = rendered(&noise);
    assert!(text.contains("1 of 14 trials were disturbed and are invalid: other processes took more than 10 % of the CPUs (limit `background_cpu`) (1)."), "{text}");
}

#[test]
fn reports_a_false_difference() {
    let trials = [blocks("nginx", &[100; 6]), blocks("nginx-again", &[103; 6])].concat();
    let text = rendered(&found(trials));
    assert!(
        text.contains("CPU per request: significant difference between two identical subjects."),
        "{text}"
    );
}

#[test]
fn too_few_blocks_suggest_more_time() {
    let trials = [blocks("nginx", &[100; 3]), blocks("nginx-again", &[103; 3])].concat();
    let text = rendered(&found(trials));
    assert!(text.contains("Too few valid blocks for an interval"), "{text}");
    assert!(!text.contains("significant difference"), "{text}");
    assert!(rendered(&found(Vec::new())).contains("there is no result"));
}

#[test]
fn reports_throughput_without_a_proxy() {
    let of = |subject: &'static str| {
        (1..=6).map(move |block| measured(subject, block, without_processes()))
    };
    let trials = of("direct").chain(of("direct-again")).collect();
    let noise = findings(&ReportSource::from(run(&["direct", "direct-again"], trials)));
    let metrics: Vec<Metric> = noise.figures.iter().map(|figure| figure.metric).collect();
    assert_eq!(metrics, [Metric::ThroughputPerS, Metric::LatencyP50Ms]);
    assert!(rendered(&noise).contains("detects a difference in requests/s of 0 % or more"));
}

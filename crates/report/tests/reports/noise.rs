//! The noise of a machine, from an A/A run.

use crate::records::{blocks, costing, flat, measured, run, without_processes};
use std::time::Duration;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Adjustments, Experiment};
use tollgate_experiment::metric::Metric;
use tollgate_experiment::record::TrialRecord;
use tollgate_experiment::validity::Invalid;
use tollgate_report::noise::{EXPERIMENTS, Noise, findings, fit, render};
use tollgate_report::source::Source;
use tollgate_stats::text::Screen;

fn found(trials: Vec<TrialRecord>) -> Noise {
    findings(&Source::from(run(&["nginx", "nginx-again"], trials)))
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
    let noise = findings(&Source::from(run(&["direct", "direct-again"], trials)));
    let metrics: Vec<Metric> = noise.figures.iter().map(|figure| figure.metric).collect();
    assert_eq!(metrics, [Metric::ThroughputPerS, Metric::LatencyP50Ms]);
    assert!(rendered(&noise).contains("detects a difference in requests/s of 0 % or more"));
}

#[test]
fn a_dozen_blocks_fit_into_the_time() {
    for name in EXPERIMENTS {
        let load =
            || Experiment::load(&Catalog::new(vec![]), name, &Adjustments::default()).unwrap();
        // 30 s are 12 blocks of 2.5 s: two trials of 1.25 s, of which 0.15 s are to start and stop.
        let mut half_a_minute = load();
        fit(&mut half_a_minute, Duration::from_secs(30));
        let of = half_a_minute.cases[0].load;
        assert_eq!(
            (of.warmup_longest().as_millis(), of.window().longest().as_millis()),
            (200, 900),
            "{name}"
        );
        let stop = half_a_minute.stop;
        assert_eq!((stop.blocks, stop.width, stop.budget_s), (1_000, None, Some(30.0)));
        let mut short = load();
        fit(&mut short, Duration::from_secs(3));
        assert_eq!(short.cases[0].load.window().longest().as_millis(), 150);
        let mut long = load();
        fit(&mut long, Duration::from_secs(600));
        assert_eq!(long.cases[0].load.window().longest().as_millis(), 1_000);
        let names: Vec<&str> = long.subjects.iter().map(|s| s.recipe.name.as_str()).collect();
        assert_eq!(names[0], names[1], "the subjects are identical");
        assert_eq!(long.subjects[0].options, long.subjects[1].options);
    }
}

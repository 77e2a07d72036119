//! Medians, shares and bottlenecks of one subject.

use crate::records::{
    CASE, MIB, analysed, assert_close, blocks, costing, figures, measured, run, template,
    without_processes,
};
use tollgate_records::trial::{Bottleneck, CpuTime, Measurement, TemplateRecord, TrialRecord};
use tollgate_records::validity::Invalid;
use tollgate_traffic::Class;

/// One trial per block, each with one of the values.
fn each<T>(values: impl IntoIterator<Item = T>, set: fn(&mut Measurement, T)) -> Vec<TrialRecord> {
    let trial = |(block, value)| {
        let mut measurement = costing(10);
        set(&mut measurement, value);
        measured("nginx", block, measurement)
    };
    (1..).zip(values).map(trial).collect()
}

#[test]
fn cpu_time_and_responses_have_their_own_windows() {
    let mut measurement = costing(0);
    // 2,000 responses per second for 2 s; the CPU time of the servers is over 2.5 s.
    measurement.window_s = 2.0;
    measurement.responses = 4_000;
    measurement.cpu.servers_window_s = 2.5;
    // Per second, 40,000 us of the system, 5,000 of the origin, and 6,000 of the generator.
    measurement.cpu.system = Some(CpuTime { user_us: 75_000, system_us: 25_000 });
    measurement.cpu.origin = Some(CpuTime { user_us: 5_000, system_us: 7_500 });
    measurement.cpu.generator = CpuTime { user_us: 8_000, system_us: 4_000 };
    let figures = figures(&run(&["nginx"], vec![measured("nginx", 1, measurement)]), "nginx");
    assert_close(figures.cpu_us_per_request.unwrap(), 20.0);
    assert_close(figures.user_cpu_us_per_request.unwrap(), 15.0);
    assert_close(figures.origin_cpu_us_per_request.unwrap(), 2.5);
    assert_close(figures.generator_cpu_us_per_request.unwrap(), 3.0);
}

#[test]
fn a_system_without_an_origin_has_no_origin_cpu() {
    let mut measurement = costing(20);
    measurement.cpu.origin = None;
    let figures = figures(&run(&["nginx"], vec![measured("nginx", 1, measurement)]), "nginx");
    assert_eq!(figures.origin_cpu_us_per_request, None);
    assert_close(figures.cpu_us_per_request.unwrap(), 20.0);
}

#[test]
fn bytes_per_second_are_medians_and_may_be_missing() {
    let trials = [(1, 3e6, 1e6), (2, 9e6, 5e6), (3, 4e6, 2e6)].map(|(block, received, sent)| {
        let mut measurement = costing(10);
        measurement.received_bytes_per_s = Some(received);
        measurement.sent_bytes_per_s = Some(sent);
        measured("nginx", block, measurement)
    });
    let of = figures(&run(&["nginx"], trials.to_vec()), "nginx");
    assert_eq!((of.received_bytes_per_s, of.sent_bytes_per_s), (Some(4e6), Some(2e6)));
    let mut old = serde_json::to_value(costing(10)).unwrap();
    for key in ["received_bytes_per_s", "sent_bytes_per_s"] {
        old.as_object_mut().unwrap().remove(key).unwrap();
    }
    let old = serde_json::from_value(old).unwrap();
    let of = figures(&run(&["nginx"], vec![measured("nginx", 1, old)]), "nginx");
    assert_eq!((of.received_bytes_per_s, of.sent_bytes_per_s), (None, None));
}

#[test]
fn figures_are_medians_of_the_valid_trials() {
    let mut trials = blocks("nginx", &[12, 10, 90, 14]);
    let mut stolen = costing(5_000);
    stolen.invalid = vec![Invalid::Steal { percent: 7.0, limit_percent: 5.0 }];
    trials.push(measured("nginx", 5, stolen));
    let figures = figures(&run(&["nginx"], trials), "nginx");
    // Of 10, 12, 14, 90; the mean would be 31.5.
    assert_eq!(figures.n, 4);
    assert_close(figures.cpu_us_per_request.unwrap(), 13.0);
}

#[test]
fn every_figure_has_its_own_field() {
    let trials = each([1_u32, 2, 9], |measurement, step| {
        let step = f64::from(step);
        measurement.throughput_per_s = 100.0 * step;
        measurement.latency.mean_ms = Some(step);
        measurement.latency.p50_ms = Some(10.0 * step);
        measurement.latency.p99_ms = Some(1_000.0 * step);
    });
    let mut trials = trials;
    for (trial, startup_ms) in trials.iter_mut().zip([25.0, 500.0, 35.0]) {
        trial.startup_ms = Some(startup_ms);
    }
    let figures = figures(&run(&["nginx"], trials), "nginx");
    assert_eq!(figures.throughput_per_s, Some(200.0));
    assert_eq!(figures.latency_mean_ms, Some(2.0));
    assert_eq!(figures.latency_p50_ms, Some(20.0));
    assert_eq!(figures.latency_p99_ms, Some(2_000.0));
    assert_eq!(figures.memory_peak_bytes, Some(8_388_608.0));
    assert_eq!(figures.startup_ms, Some(35.0));
}

#[test]
fn a_quantile_missing_in_one_trial_has_no_median() {
    let trials = each([Some(3.0), None, Some(5.0)], |measurement, p99_ms| {
        measurement.latency.p99_ms = p99_ms;
    });
    let figures = figures(&run(&["nginx"], trials), "nginx");
    assert_eq!(figures.latency_p99_ms, None);
    assert_eq!(figures.latency_p50_ms, Some(1.0));
}

#[test]
fn no_processes_mean_no_cpu_and_no_memory() {
    let trials = vec![measured("direct", 1, without_processes())];
    let figures = figures(&run(&["direct"], trials), "direct");
    assert_eq!(figures.cpu_us_per_request, None);
    assert_eq!(figures.user_cpu_us_per_request, None);
    assert_eq!(figures.memory_peak_bytes, None);
    assert_eq!(figures.throughput_per_s, Some(1_000.0));
}

#[test]
fn blocked_requests_are_counted_over_all_trials_and_by_class() {
    let trials =
        each([(9, 10, 0), (1, 30, 2)], |measurement, (blocked, attacks, false_positives)| {
            measurement.templates = vec![
                template(Class::Malicious, blocked, attacks),
                template(Class::Benign, false_positives, 50),
                template(Class::Benign, 0, 150),
            ];
        });
    let figures = figures(&run(&["nginx"], trials), "nginx");
    // 10 of 40 attacks, where the mean of the shares would be 46.7 %; 2 of 400 others.
    assert_eq!(figures.detection_rate, Some(0.25));
    assert_eq!(figures.false_positive_rate, Some(0.005));
}

#[test]
fn other_responses_are_excluded_from_rates() {
    let with_statuses = |class, statuses: &[(u16, u64)]| TemplateRecord {
        statuses: statuses.iter().copied().collect(),
        blocked: 6,
        passed: 2,
        ..template(class, 0, 0)
    };
    let mut measurement = costing(10);
    measurement.templates = vec![
        with_statuses(Class::Malicious, &[(403, 6), (200, 2), (502, 90), (400, 10)]),
        with_statuses(Class::Benign, &[(403, 6), (200, 2), (502, 40)]),
    ];
    let counted = |measurement| {
        let run = run(&["nginx"], vec![measured("nginx", 1, measurement)]);
        let templates = analysed(&run, "nginx").templates;
        let counts = templates.iter().map(|one| (one.blocked, one.passed, one.other));
        let figures = figures(&run, "nginx");
        (counts.collect::<Vec<_>>(), figures.detection_rate, figures.false_positive_rate)
    };
    assert_eq!(
        counted(measurement.clone()),
        (vec![(6, 2, 100), (6, 2, 40)], Some(0.75), Some(0.75))
    );
    // If nothing was blocked or passed, there is no share.
    for template in &mut measurement.templates {
        (template.blocked, template.passed) = (0, 0);
    }
    assert_eq!(counted(measurement), (vec![(0, 0, 108), (0, 0, 48)], None, None));
}

#[test]
fn responses_after_the_death_of_a_process_do_not_count() {
    let died = Invalid::ProcessDied { what: "process 7 ended".to_owned() };
    let trials = each([(10, None), (0, Some(died))], |measurement, (blocked, died)| {
        measurement.templates = vec![template(Class::Malicious, blocked, 10)];
        measurement.invalid.extend(died);
    });
    let run = run(&["nginx"], trials);
    assert_eq!(figures(&run, "nginx").detection_rate, Some(1.0));
    let subject = analysed(&run, "nginx");
    assert_eq!((subject.templates[0].responses, subject.templates[0].passed), (10, 0));
}

#[test]
fn a_class_without_requests_has_no_share() {
    let figures = figures(&run(&["nginx"], blocks("nginx", &[10])), "nginx");
    assert_eq!(figures.detection_rate, None);
    assert_eq!(figures.false_positive_rate, Some(0.0));
}

#[test]
fn the_most_frequent_bottleneck_is_named() {
    use Bottleneck::{Generator, Origin, System};
    let trials =
        each([Generator, System, Origin, System, Generator, System], |measurement, name| {
            measurement.bottleneck = name;
        });
    let figures = figures(&run(&["nginx"], trials), "nginx");
    assert_eq!(figures.bottleneck, Some(System));
}

#[test]
fn summaries_spread_the_valid_trials() {
    let trials = each([2_u32, 4, 4, 4, 5, 5, 7, 9], |measurement, value| {
        measurement.throughput_per_s = 1_000.0 * f64::from(value);
        measurement.latency.mean_ms = Some(f64::from(value));
        let user_us = 1_000 * u64::from(value);
        measurement.cpu.system = Some(CpuTime { user_us, system_us: 77 });
        measurement.memory_peak_bytes = Some(MIB);
    });
    let summaries = analysed(&run(&["nginx"], trials), "nginx").summaries.unwrap();
    // Mean 5; squared distances 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, over 7.
    let deviation = (32.0_f64 / 7.0).sqrt();
    for (spread, unit) in [
        (summaries.requests_per_s, 1_000.0),
        (summaries.latency_ms, 1.0),
        (summaries.user_cpu_ms.unwrap(), 1.0),
    ] {
        assert_eq!((spread.n, spread.min, spread.max), (8, 2.0 * unit, 9.0 * unit));
        assert_eq!((spread.median, spread.mean), (4.5 * unit, 5.0 * unit));
        assert_close(spread.standard_deviation.unwrap(), deviation * unit);
    }
}

#[test]
fn without_a_valid_trial_there_are_no_figures() {
    let trials = each([()], |measurement, ()| measurement.invalid = vec![Invalid::NoResponse]);
    let nginx = analysed(&run(&["nginx"], trials), "nginx");
    assert_eq!((nginx.figures, nginx.summaries), (None, None));
    assert_eq!(nginx.trials, 1);
}

#[test]
fn records_of_another_case_are_excluded() {
    let mut trials = blocks("nginx", &[10, 500]);
    trials[1].case = format!("not {CASE}");
    let nginx = analysed(&run(&["nginx"], trials), "nginx");
    assert_eq!(nginx.trials, 1);
    assert_eq!(nginx.figures.unwrap().cpu_us_per_request, Some(10.0));
}

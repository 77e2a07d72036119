//! Verdicts, the status of a run, and the noise floor.

use crate::records::{
    analysed, blocks, case, costing, failed, measured, open_loop, run, without_processes,
};
use tollgate_records::metric::Metric;
use tollgate_records::run_dir::{RunDir, RunRecords};
use tollgate_records::stop::{EndedBy, Stop};
use tollgate_records::trial::{TrialRecord, TrialStep};
use tollgate_records::validity::Invalid;
use tollgate_report::analysis::{RunStatus, analyse};
use tollgate_report::source::ReportSource;
use tollgate_stats::Verdict;
use tollgate_traffic::load_shape::{CaseRate, Spacing};

/// A run of as many blocks as the trials have.
fn ended(subjects: &[&str], trials: Vec<TrialRecord>) -> RunRecords {
    let blocks = trials.iter().map(|trial| trial.block).max().unwrap();
    let mut run = run(subjects, trials);
    run.manifest.experiment.stop = Stop::after(blocks);
    run
}

fn verdict_on_cpu(run: &RunRecords, subject: &str) -> Option<Verdict> {
    analysed(run, subject).prices[&Metric::CpuUsPerRequest].verdict
}

#[test]
fn verdicts_of_prices() {
    let nginx = blocks("nginx", &[1000, 1010, 990, 1000, 1005, 995]);
    for (cpu_us, verdict) in [
        ([1100, 1111, 1089, 1100, 1106, 1094], Verdict::CostsMore),
        ([900, 909, 891, 900, 905, 895], Verdict::CostsLess),
        ([1010, 1020, 1000, 1010, 1015, 1005], Verdict::Same),
        ([900, 1111, 891, 1100, 905, 1094], Verdict::Inconclusive),
    ] {
        let run = ended(&["nginx", "other"], [nginx.clone(), blocks("other", &cpu_us)].concat());
        assert_eq!(verdict_on_cpu(&run, "other"), Some(verdict), "{cpu_us:?}");
        let run_status = match verdict {
            Verdict::Inconclusive => RunStatus::NotSettled,
            Verdict::CostsMore | Verdict::CostsLess | Verdict::Same => RunStatus::Settled,
        };
        assert_eq!(analyse(&run).run_status, run_status);
    }
}

#[test]
fn fewer_requests_a_second_cost_more() {
    let slow = (1..=6).map(|block| {
        let mut slow = costing(10);
        slow.throughput_per_s = 500.0;
        measured("slow", block, slow)
    });
    let trials = blocks("nginx", &[10; 6]).into_iter().chain(slow).collect();
    let prices = analysed(&ended(&["nginx", "slow"], trials), "slow").prices;
    assert_eq!(prices[&Metric::ThroughputPerS].verdict, Some(Verdict::CostsMore));
    assert_eq!(prices[&Metric::CpuUsPerRequest].verdict, Some(Verdict::Same));
}

#[test]
fn subjects_are_judged_together() {
    // Student's t of the logarithms is 2.9: p is 0.03, enough for one subject, but not for two.
    let unsteady = |name| blocks(name, &[105, 105, 110, 115, 125, 150]);
    let nginx = blocks("nginx", &[100; 6]);
    let one = ended(&["nginx", "a"], [nginx.clone(), unsteady("a")].concat());
    assert_eq!(verdict_on_cpu(&one, "a"), Some(Verdict::CostsMore));
    let two = ended(&["nginx", "a", "b"], [nginx.clone(), unsteady("a"), unsteady("b")].concat());
    assert_eq!(verdict_on_cpu(&two, "a"), Some(Verdict::Inconclusive));
    assert_eq!(
        analyse(&two).status_line,
        "Not settled after 6 blocks (all blocks were run): a, b; more blocks narrow the intervals."
    );
    // The size of a difference counts: six blocks settle large ones of any number of subjects.
    let six = |name| blocks(name, &[200, 210, 220, 230, 240, 250]);
    let three = [nginx.clone(), six("a"), six("b"), six("c")].concat();
    let three = ended(&["nginx", "a", "b", "c"], three);
    assert_eq!(verdict_on_cpu(&three, "c"), Some(Verdict::CostsMore));
    // The repeated baseline is judged alone.
    let trials = [nginx.clone(), six("a"), blocks("nginx-again", &[100; 6])].concat();
    let mut again = ended(&["nginx", "a", "nginx-again"], trials);
    again.manifest.experiment.aa_subject = Some("nginx-again".to_owned());
    assert_eq!(verdict_on_cpu(&again, "a"), Some(Verdict::CostsMore));
    assert_eq!(verdict_on_cpu(&again, "nginx-again"), Some(Verdict::Same));
    let analysis = analyse(&again);
    assert_eq!(analysis.cases[0].noise_floor.map(|floor| floor.estimate), Some(1.0));
    assert_eq!(analysis.run_status, RunStatus::Settled);
    assert!(
        analysis.status_line.ends_with("(baseline against itself): 0 % [0 %, 0 %]."),
        "{}",
        analysis.status_line
    );
    // An A/A comparison alone is a complete run.
    let trials = [nginx, blocks("nginx-again", &[100; 6])].concat();
    let mut alone = ended(&["nginx", "nginx-again"], trials);
    alone.manifest.experiment.aa_subject = Some("nginx-again".to_owned());
    assert_eq!(analyse(&alone).run_status, RunStatus::Settled);
    alone.trials.retain(|trial| trial.block < 6);
    assert_eq!(analyse(&alone).run_status, RunStatus::NoPrice);
}

#[test]
fn failed_aa_comparison_comes_first() {
    let trials =
        [blocks("nginx", &[100; 6]), blocks("a", &[300; 6]), blocks("nginx-again", &[110; 6])];
    let mut run = ended(&["nginx", "a", "nginx-again"], trials.concat());
    run.manifest.experiment.aa_subject = Some("nginx-again".to_owned());
    let analysis = analyse(&run);
    assert_eq!(analysis.run_status, RunStatus::AaFailed);
    assert_eq!(
        analysis.status_line,
        "A/A failed after 6 blocks (all blocks were run): the baseline differs from itself by \
         +10.0 % [+10.0 %, +10.0 %]; differences of that size may be noise."
    );
}

#[test]
fn derives_the_end_of_a_run_from_its_records() {
    let two = || [blocks("nginx", &[10; 6]), blocks("a", &[20; 6])].concat();
    let mut run = ended(&["nginx", "a"], two());
    assert_eq!(analyse(&run).ended_by, EndedBy::Blocks);
    run.manifest.experiment.stop =
        Stop { blocks: 100, width: Some(0.02), budget_s: Some(600.0), extra_blocks: 0 };
    assert_eq!(analyse(&run).ended_by, EndedBy::Width);
    // Each trial took 3.5 s: twelve of them 42 s, and another block would take 7 s.
    run.manifest.experiment.stop =
        Stop { blocks: 100, width: None, budget_s: Some(48.0), extra_blocks: 0 };
    assert_eq!(analyse(&run).ended_by, EndedBy::Budget);
    run.manifest.experiment.stop =
        Stop { blocks: 100, width: None, budget_s: Some(50.0), extra_blocks: 0 };
    assert_eq!(analyse(&run).ended_by, EndedBy::Interrupted);
    run.manifest.experiment.stop = Stop::after(6);
    run.trials.pop();
    assert_eq!(analyse(&run).ended_by, EndedBy::Interrupted);
    // All subjects were given up.
    let failures =
        (1..=2).map(|block| failed("nginx", block, TrialStep::Start, "why", &[])).collect();
    let mut run = ended(&["nginx"], failures);
    run.manifest.experiment.stop = Stop::after(6);
    assert_eq!(analyse(&run).ended_by, EndedBy::Exhausted);
}

#[test]
fn one_case_without_a_price_does_not_hide_the_others() {
    let trials =
        [blocks("nginx", &[100; 6]), blocks("a", &[300; 6]), blocks("nginx-again", &[100; 6])];
    let mut run = ended(&["nginx", "a", "nginx-again"], trials.concat());
    run.manifest.experiment.aa_subject = Some("nginx-again".to_owned());
    run.manifest.experiment.cases.push(case("other"));
    let analysis = analyse(&run);
    let statuses: Vec<RunStatus> = analysis.cases.iter().map(|case| case.run_status).collect();
    assert_eq!(statuses, [RunStatus::Settled, RunStatus::NoPrice]);
    assert_eq!(analysis.run_status, RunStatus::NotSettled);
    assert!(analysis.status_line.contains("other has no price"), "{}", analysis.status_line);
    for trial in run.trials.iter_mut().filter(|trial| trial.subject == "nginx-again") {
        *trial = measured("nginx-again", trial.block, costing(110));
    }
    assert_eq!(analyse(&run).run_status, RunStatus::AaFailed);
}

#[test]
fn case_of_the_baseline_alone_leaves_no_price_open() {
    let trials = [blocks("nginx", &[10; 6]), blocks("full", &[20; 6])].concat();
    let mut run = run(&["nginx", "full"], trials);
    let mut alone = run.manifest.experiment.cases[0].clone();
    alone.name = "alone".to_owned();
    alone.only_subjects = vec!["nginx".to_owned()];
    run.manifest.experiment.cases.push(alone);
    let mut of_alone = blocks("nginx", &[10; 6]);
    for trial in &mut of_alone {
        trial.case = "alone".to_owned();
    }
    run.trials.extend(of_alone);
    let analysis = analyse(&run);
    assert_eq!(analysis.run_status, RunStatus::Settled, "{}", analysis.status_line);
}

#[test]
fn repeated_baseline_with_a_wide_interval_leaves_no_subject_open() {
    let again = blocks("nginx-again", &[900, 1111, 891, 1100, 905, 1094]);
    let trials = [blocks("nginx", &[1000; 6]), blocks("a", &[3000; 6]), again];
    let mut run = ended(&["nginx", "a", "nginx-again"], trials.concat());
    run.manifest.experiment.aa_subject = Some("nginx-again".to_owned());
    assert_eq!(verdict_on_cpu(&run, "nginx-again"), Some(Verdict::Inconclusive));
    assert_eq!(analyse(&run).run_status, RunStatus::Settled);
}

#[test]
fn width_requires_valid_blocks() {
    let mut measurement = costing(20);
    measurement.invalid = vec![Invalid::NoResponse];
    let mut trials = [blocks("nginx", &[10; 6]), blocks("a", &[20; 6])].concat();
    trials[8] = measured("a", 3, measurement.clone());
    trials.push(TrialRecord { attempt: 2, ..measured("a", 3, measurement) });
    let mut run = run(&["nginx", "a"], trials);
    run.manifest.experiment.stop =
        Stop { blocks: 100, width: Some(0.5), budget_s: Some(600.0), extra_blocks: 0 };
    // Six blocks were run, and five count.
    assert_eq!(analyse(&run).ended_by, EndedBy::Interrupted);
    run.trials.extend([measured("nginx", 7, costing(10)), measured("a", 7, costing(20))]);
    assert_eq!(analyse(&run).ended_by, EndedBy::Width);
}

#[test]
fn without_baseline_cpu_width_is_of_throughput() {
    let direct = |blocks: u32| (1..=blocks).map(|it| measured("direct", it, without_processes()));
    let trials = |throughputs: &[f64]| {
        let nginx = (1..).zip(throughputs).map(|(block, throughput_per_s)| {
            let mut nginx = costing(10);
            nginx.throughput_per_s = *throughput_per_s;
            measured("nginx", block, nginx)
        });
        direct(6).chain(nginx).collect::<Vec<_>>()
    };
    let of = |throughputs: &[f64]| {
        let mut run = run(&["direct", "nginx"], trials(throughputs));
        run.manifest.experiment.stop =
            Stop { blocks: 100, width: Some(0.02), budget_s: Some(600.0), extra_blocks: 0 };
        analyse(&run)
    };
    let narrow = of(&[500.0, 501.0, 502.0, 500.0, 501.0, 502.0]);
    assert_eq!(narrow.ended_by, EndedBy::Width);
    let note = "direct uses no CPU, so there are no ratios of CPU: the width of the intervals was judged on \
                requests/s.";
    assert!(narrow.notes.contains(&note.to_owned()), "{:?}", narrow.notes);
    // The narrow intervals of CPU per request do not count.
    assert_eq!(of(&[400.0, 501.0, 602.0, 400.0, 501.0, 602.0]).ended_by, EndedBy::Interrupted);
    let cpu = ended(&["nginx", "a"], [blocks("nginx", &[10; 6]), blocks("a", &[20; 6])].concat());
    assert_eq!(analyse(&cpu).notes, [""; 0]);
}

#[test]
fn with_a_rate_width_is_of_median_latency() {
    let direct = || (1..=6).map(|block| measured("direct", block, without_processes()));
    let of = |p50_ms: [f64; 6]| {
        let nginx = (1..).zip(p50_ms).map(|(block, p50_ms)| {
            let mut nginx = costing(10);
            nginx.latency.p50_ms = Some(p50_ms);
            measured("nginx", block, nginx)
        });
        let mut run = run(&["direct", "nginx"], direct().chain(nginx).collect());
        run.manifest.experiment.cases[0].load.arrivals =
            open_loop(CaseRate::PerS(1_000.0), Spacing::Poisson, 50);
        run.manifest.experiment.stop =
            Stop { blocks: 100, width: Some(0.02), budget_s: Some(600.0), extra_blocks: 0 };
        analyse(&run)
    };
    // The narrow intervals of throughput do not count: all held the rate.
    let wide = of([2.0, 3.0, 4.0, 2.0, 3.0, 4.0]);
    assert_eq!(wide.ended_by, EndedBy::Interrupted);
    let note = "direct uses no CPU, so there are no ratios of CPU: the width of the intervals was judged on the \
                p50 latency, because the rate is fixed.";
    assert!(wide.notes.contains(&note.to_owned()), "{:?}", wide.notes);
    assert_eq!(of([2.0, 2.01, 2.02, 2.0, 2.01, 2.02]).ended_by, EndedBy::Width);
}

#[test]
fn repeated_trial_counts_once() {
    let mut measurement = costing(90);
    measurement.invalid = vec![Invalid::Paused { percent: 20.0, limit_percent: 10.0 }];
    let mut trials = [blocks("nginx", &[10; 6]), blocks("a", &[20; 6])].concat();
    trials[7] = measured("a", 2, measurement);
    trials.push(TrialRecord { attempt: 2, ..measured("a", 2, costing(20)) });
    let run = ended(&["nginx", "a"], trials);
    let a = analysed(&run, "a");
    assert_eq!((a.trials, a.figures.unwrap().n), (7, 6));
    assert_eq!(a.prices[&Metric::CpuUsPerRequest].n, 6);
    assert_eq!(analyse(&run).ended_by, EndedBy::Blocks);
}

#[test]
fn outlier_is_marked_and_kept() {
    let trials = [blocks("nginx", &[10; 7]), blocks("a", &[20, 21, 20, 22, 21, 20, 60])].concat();
    let a = analysed(&ended(&["nginx", "a"], trials), "a");
    let marked: Vec<u32> = a.blocks.iter().filter(|b| b.outlier).map(|b| b.block).collect();
    assert_eq!(marked, [7]);
    assert_eq!(a.blocks[6].ratio, Some(6.0));
    assert_eq!(a.prices[&Metric::CpuUsPerRequest].n, 7);
}

#[test]
fn duplicated_and_missing_records_are_refused() {
    let complete = [blocks("nginx", &[100; 6]), blocks("full", &[300; 6])].concat();
    let read = |trials: &[TrialRecord]| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut run_dir = RunDir::create(&path).unwrap();
        run_dir.write_manifest(&ended(&["nginx", "full"], trials.to_vec()).manifest).unwrap();
        trials.iter().for_each(|trial| run_dir.append(trial).unwrap());
        ReportSource::read(&path).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(read(&complete), Ok(()));
    let duplicated = [&complete[..], &complete[3..4]].concat();
    let error = read(&duplicated).unwrap_err();
    assert!(error.contains("1 of its records do not match its plan"), "{error}");
    // Block 3 lacks the baseline, so blocks 4 to 6 cannot have followed.
    let missing = [&complete[..2], &complete[3..]].concat();
    let error = read(&missing).unwrap_err();
    assert!(error.contains("of its records do not match its plan"), "{error}");
}

//! Open loops: rate, legend, and notes on missed rates and a late generator.

use crate::records::{CASE, case, costing, flat, measured, open_loop, run};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::Stop;
use tollgate_records::trial::{
    Bottleneck, LatencyRecord, Measurement, OpenLoopRecord, TrialOutcome, TrialRecord,
};
use tollgate_records::validity::Invalid;
use tollgate_report::analysis::analyse;
use tollgate_traffic::load_shape::{CaseRate, Spacing};
use tollgate_traffic::units::Percent;

/// A trial with `unsent` of 5,000 scheduled requests.
fn trial(block: u32, unsent: u64, lateness_p99_ms: f64) -> TrialRecord {
    let latency: LatencyRecord = costing(10).latency;
    let open_loop = OpenLoopRecord {
        rate_per_s: 5_000.0,
        spacing: Spacing::Poisson,
        uncorrected_latency: latency,
        lateness_p99_ms: Some(lateness_p99_ms),
        due: 5_000,
        queued: 0,
        unsent,
        oldest_unsent_ms: None,
    };
    let measurement =
        Measurement { open_loop: Some(open_loop), bottleneck: Bottleneck::None, ..costing(10) };
    measured("nginx", block, measurement)
}

fn at_a_rate(trials: Vec<TrialRecord>) -> RunRecords {
    let mut run = run(&["nginx"], trials);
    let arrivals = open_loop(CaseRate::PerS(5_000.0), Spacing::Poisson, 200);
    run.manifest.experiment.cases[0].load.arrivals = arrivals;
    run
}

/// Makes the rate half of the throughput of another case.
fn derive_rate(run: &mut RunRecords) {
    let rate = CaseRate::ShareOf { case: "capacity".to_owned(), share: Percent(0.5), per_s: None };
    run.manifest.experiment.cases[0].load.arrivals = open_loop(rate, Spacing::Poisson, 200);
}

fn table(run: &RunRecords) -> String {
    flat(&crate::records::table(run))
}

fn notes(trials: Vec<TrialRecord>) -> Vec<String> {
    let mut run = at_a_rate(trials);
    run.manifest.experiment.stop = Stop::after(u32::try_from(run.trials.len()).unwrap());
    analyse(&run).notes
}

#[test]
fn load_line_has_rate_spacing_and_connections() {
    let mut run = at_a_rate(vec![]);
    let line = "browse: open loop, 5000/s, Poisson, 50 to 200 connections, keep-alive; ";
    assert!(table(&run).contains(line), "{}", table(&run));
    let fixed = open_loop(CaseRate::PerS(0.5), Spacing::Constant, 50);
    run.manifest.experiment.cases[0].load.arrivals = fixed;
    let line = "browse: open loop, 0.5/s, constant gaps, 50 connections, keep-alive; ";
    assert!(table(&run).contains(line), "{}", table(&run));
}

#[test]
fn load_line_names_the_case_of_a_derived_rate() {
    let mut run = at_a_rate(vec![trial(1, 0, 0.1)]);
    derive_rate(&mut run);
    // The rate is that of the trials.
    let line = "browse: open loop, 5000/s (50 % of the throughput of the slowest subject in capacity), Poisson, ";
    assert!(table(&run).contains(line), "{}", table(&run));
    run.trials.clear();
    let line =
        "browse: open loop, 50 % of the throughput of the slowest subject in capacity, Poisson, ";
    assert!(table(&run).contains(line), "{}", table(&run));
}

#[test]
fn notes_a_lowered_rate_with_its_block() {
    let mut run = at_a_rate((1..=3).map(|block| trial(block, 0, 0.1)).collect());
    derive_rate(&mut run);
    let expected = "the rate was 5000/s at first and 1200/s from block 2 on";
    assert!(!table(&run).contains("at first"), "{}", table(&run));
    for trial in run.trials.iter_mut().filter(|trial| trial.block > 1) {
        let TrialOutcome::Measured(measurement) = &mut trial.outcome else { panic!("{trial:?}") };
        measurement.open_loop.as_mut().unwrap().rate_per_s = 1_200.0;
    }
    let text = table(&run);
    assert!(text.contains(expected) && text.contains("browse: open loop, 1200/s ("), "{text}");
}

#[test]
fn legend_of_an_open_loop() {
    let text = table(&at_a_rate(vec![trial(1, 0, 0.1)]));
    assert!(text.contains("from the scheduled time of a request (open loop)"), "{text}");
    assert!(!text.contains("saturated"), "{text}");
    // The bottleneck is unknown, but the throughput is that of the schedule.
    assert!(text.contains("nginx 1000 1.00 3.00") && !text.contains('≥'), "{text}");
    let mut both = at_a_rate(vec![trial(1, 0, 0.1)]);
    both.manifest.experiment.cases.insert(0, case("closed"));
    for trial in &mut both.trials.clone() {
        assert_eq!(trial.case, CASE);
        trial.case = "closed".to_owned();
        both.trials.push(trial.clone());
    }
    let text = table(&both);
    assert!(text.contains("saturated") && text.contains("the scheduled time"), "{text}");
}

#[test]
fn no_note_if_the_rate_was_held() {
    // 50 of 5,000 are within the limit of 1 %.
    assert_eq!(notes(vec![trial(1, 0, 0.1), trial(2, 50, 1.0)]), [""; 0]);
}

#[test]
fn notes_a_missed_rate_with_the_worst_trial() {
    let found = notes(vec![trial(1, 0, 0.1), trial(2, 500, 0.1), trial(3, 1_250, 0.1)]);
    let [note] = &found[..] else { panic!("{found:?}") };
    let expected = "nginx did not hold the rate in 2 of 3 trials: up to 25.0 % of the scheduled requests were not sent";
    assert!(note.starts_with(expected), "{note}");
}

#[test]
fn notes_a_late_generator() {
    let found = notes(vec![trial(1, 0, 2.5), trial(2, 0, 1.5), trial(3, 0, 0.5)]);
    let expected = "nginx: the generator sent late in 2 of 3 trials (p99 up to 2.50 ms), so the latency is an upper bound.";
    assert_eq!(found, [expected]);
}

#[test]
fn invalid_trials_have_only_their_reason() {
    let mut invalid = trial(1, 2_000, 9.0);
    let TrialOutcome::Measured(measurement) = &mut invalid.outcome else { panic!("not measured") };
    measurement.invalid = vec![Invalid::NoResponse];
    assert_eq!(
        notes(vec![invalid, trial(2, 0, 0.1)]),
        ["nginx: 1 of 2 trials is invalid: no response was received."]
    );
}

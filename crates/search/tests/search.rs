//! The report of a search, from literal records.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

#[expect(dead_code, reason = "the builders serve the tests of the report too")]
#[path = "../../report/tests/reports/records.rs"]
mod records;

use records::{costing, measured, refused, run, set_state};
use serde_json::json;
use std::time::Duration;
use tollgate_load::Failures;
use tollgate_records::run_dir::{RunRecords, SearchEnd};
use tollgate_records::subject::{Missing, SubjectState};
use tollgate_records::trial::{
    Bottleneck, LatencyRecord, Measurement, OpenLoopRecord, TrialOutcome, TrialRecord, WarmUpRecord,
};
use tollgate_records::validity::Invalid;
use tollgate_search::bracket::{End, RateVerdict};
use tollgate_search::goal::Goals;
use tollgate_search::parameters::SearchParameters;
use tollgate_search::report::{SearchReport, Status, SubjectReport};
use tollgate_stats::LatencyHistogram;
use tollgate_stats::text::Screen;
use tollgate_traffic::load_shape::{CaseArrivals, CaseRate, OpenLoop, Spacing};

/// A trial of 1,000 requests with the same latency.
fn at(rate: f64, latency_ms: u64) -> Measurement {
    let mut histogram = LatencyHistogram::new();
    histogram.record_n(latency_ms * 1_000_000, 1_000);
    let latency = LatencyRecord::of(&histogram).unwrap();
    let open_loop = OpenLoopRecord {
        rate_per_s: rate,
        spacing: Spacing::Poisson,
        uncorrected_latency: latency.clone(),
        lateness_p99_ms: Some(0.1),
        due: 1_000,
        queued: 0,
        unsent: 0,
        oldest_unsent_ms: None,
    };
    Measurement { latency, open_loop: Some(open_loop), ..costing(10) }
}

fn parameters() -> SearchParameters {
    SearchParameters {
        goals: "p99<5ms".parse().unwrap(),
        start: 100.0,
        width: 1.0,
        confirmations: 1,
        budget: Duration::from_secs(600),
    }
}

/// The report of a finished search.
fn report(subjects: &[&str], trials: Vec<TrialRecord>) -> SearchReport {
    report_of(run(subjects, trials), subjects, SearchEnd::Complete)
}

fn report_of(mut run: RunRecords, subjects: &[&str], ended_by: SearchEnd) -> SearchReport {
    let schedule = OpenLoop {
        rate: CaseRate::PerS(100.0),
        spacing: Spacing::Poisson,
        connections: 50,
        connections_max: 50,
    };
    run.manifest.experiment.cases[0].load.arrivals = CaseArrivals::Open(schedule);
    let mut record =
        parameters().to_record(subjects.iter().map(|name| (*name).to_owned()).collect());
    record.ended_by = Some(ended_by);
    SearchReport::of(&run, &parameters(), record)
}

/// Doubled from 100 until 400 failed, then both ends repeated.
fn settled(subject: &str) -> Vec<TrialRecord> {
    let trials = [(100.0, 1), (200.0, 1), (400.0, 9), (400.0, 9), (200.0, 1)];
    let trials = (1..).zip(trials);
    trials.map(|(step, (rate, ms))| measured(subject, step, at(rate, ms))).collect()
}

fn only(report: &SearchReport) -> &SubjectReport {
    &report.cases[0].subjects[0]
}

#[test]
fn trial_limit_is_reported() {
    let trials = (1..=100).map(|step| measured("nginx", step, at(100.0, 1)));
    let run = run(&["nginx"], trials.collect());
    let parameters = SearchParameters { confirmations: 20, ..parameters() };
    let record = parameters.to_record(vec!["nginx".to_owned()]);
    let report = SearchReport::of(&run, &parameters, record);
    assert_eq!(only(&report).status, Status::TrialLimit);
    let text = table(&report);
    assert!(text.contains("nginx: not confirmed within the limit of 100 trials"), "{text}");
    assert!(text.contains("not settled"), "{text}");
}

#[test]
fn unsteady_trials_are_noted() {
    let mut trials = settled("nginx");
    for (trial, steady) in trials.iter_mut().zip([true, false]) {
        if let TrialOutcome::Measured(measurement) = &mut trial.outcome {
            measurement.warm_up = Some(WarmUpRecord { duration_s: 1.0, steady: Some(steady) });
        }
    }
    let text = table(&report(&["nginx"], trials));
    let note = "nginx was not steady after the warm-up in 1 of 5 trials; they count.";
    assert!(text.contains(note), "{text}");
}

/// Returns the table without line breaks.
fn table(report: &SearchReport) -> String {
    report.table(Screen::PLAIN).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn interval_and_verdicts_come_from_the_records() {
    let found = report(&["nginx"], settled("nginx"));
    let nginx = only(&found);
    assert_eq!(nginx.status, Status::Settled);
    let end = |rate: Option<End>| rate.map(|rate| (rate.rate_per_s, rate.trials));
    assert_eq!((end(nginx.passed), end(nginx.failed)), (Some((200.0, 2)), Some((400.0, 2))));
    let verdicts: Vec<RateVerdict> = nginx.trials.iter().map(|trial| trial.verdict).collect();
    let (pass, fail) = (RateVerdict::Pass, RateVerdict::Fail { by_system: true });
    assert_eq!(verdicts, [pass, pass, fail, fail, pass]);
    assert_eq!(nginx.trials[2].reasons, ["100 % took longer than 5ms"]);
}

#[test]
fn unfinished_searches_report_their_trials() {
    let trials = settled("nginx")[..3].to_vec();
    let found = report_of(run(&["nginx"], trials), &["nginx"], SearchEnd::Budget);
    assert_eq!(only(&found).status, Status::NotSettled);
    assert_eq!(only(&found).passed.unwrap().trials, 1);
    let text = table(&found);
    assert!(text.contains("nginx 200 400 1 + 1 of 3 not settled"), "{text}");
    assert!(
        text.contains("The budget of 600 s was spent before every search was finished"),
        "{text}"
    );
    let summary = "is met by nginx up to a rate between 200 and 400 requests/s (not settled).";
    assert!(text.ends_with(summary), "{text}");
    let started =
        report_of(run(&["nginx"], settled("nginx")[..1].to_vec()), &["nginx"], SearchEnd::Budget);
    let summary = "is met by nginx at 100 requests/s (not settled).";
    assert!(table(&started).ends_with(summary), "{}", table(&started));
    let none = report_of(run(&["nginx"], vec![]), &["nginx"], SearchEnd::Interrupted);
    assert!(table(&none).ends_with("Interrupted. No rate was found."), "{}", table(&none));
    let mut killed = started.clone();
    killed.parameters.ended_by = None;
    assert!(table(&killed).contains("still running, or was killed"), "{}", table(&killed));
}

#[test]
fn invalid_trials_are_named_and_leave_the_rate_that_passed() {
    let steal = Invalid::Steal { percent: 25.0, limit_percent: 5.0 };
    let invalid = |block| {
        measured("nginx", block, Measurement { invalid: vec![steal.clone()], ..at(200.0, 1) })
    };
    let trials = |count: u32| {
        let passed = measured("nginx", 1, at(100.0, 1));
        std::iter::once(passed).chain((2..2 + count).map(invalid)).collect::<Vec<_>>()
    };
    let spent = report_of(run(&["nginx"], trials(3)), &["nginx"], SearchEnd::Budget);
    let note = format!(
        "was spent on trials of which 3 of 4 were invalid, the last one because: {steal}. Remove"
    );
    assert!(table(&spent).contains(&note), "{}", table(&spent));
    let found = report(&["nginx"], trials(10));
    assert!(matches!(only(&found).status, Status::NotMeasurable(_)), "{:?}", only(&found));
    let summary = "is met by nginx at 100 requests/s (not settled).";
    assert!(table(&found).ends_with(summary), "{}", table(&found));
}

#[test]
fn widened_intervals_are_noted() {
    // Bisected to 200 and 400; 200 then fails once and is replaced by 100.
    let trials = [(100.0, 1), (200.0, 1), (400.0, 9), (200.0, 9), (400.0, 9), (100.0, 1)];
    let trials = (1..).zip(trials);
    let trials = trials.map(|(step, (rate, ms))| measured("nginx", step, at(rate, ms)));
    let found = report(&["nginx"], trials.collect());
    assert_eq!(only(&found).status, Status::Wide);
    assert_eq!(only(&found).passed.map(|end| end.rate_per_s), Some(100.0));
    let text = table(&found);
    let note = "nginx: the interval is 300 % wide, more than the requested 100 %. Trials at the same rate within it \
                contradict each other, so its search ended.";
    assert!(text.contains(note), "{text}");
    assert!(!text.contains(" settled") || text.contains("not settled"), "{text}");
    let narrow = table(&report(&["nginx"], settled("nginx")));
    assert!(!narrow.contains("more than the requested"), "{narrow}");
}

#[test]
fn upper_end_caused_by_the_generator_gives_a_lower_bound() {
    let mut trials = settled("nginx");
    for trial in &mut trials[2..4] {
        let TrialOutcome::Measured(measurement) = &mut trial.outcome else {
            panic!("not measured")
        };
        measurement.bottleneck = Bottleneck::Generator;
    }
    let found = report(&["nginx"], trials);
    assert_eq!(only(&found).status, Status::AtLeast);
    assert_eq!(only(&found).trials[2].verdict, RateVerdict::Fail { by_system: false });
    let text = table(&found);
    assert!(text.contains("nginx ≥ 200 - 2 + 2 of 5 at least"), "{text}");
    assert!(
        text.contains("nginx may sustain more: at higher rates the CPU of the generator"),
        "{text}"
    );
    assert!(text.contains("is met by nginx up to at least 200 requests/s."), "{text}");
}

#[test]
fn subjects_without_a_rate_have_a_reason() {
    let refusals = (1..3).map(|step| refused("off", step, "1 of 2 attacks were let through"));
    // Halved to the lowest rate with 1,000 requests per minute.
    let rates = (1..).zip([100.0, 50.0, 25.0, 17.0, 17.0]);
    let slow = rates.map(|(step, rate)| measured("slow", step, at(rate, 9)));
    let names = ["nginx", "off", "slow", "gone"];
    let trials = settled("nginx").into_iter().chain(refusals).chain(slow).collect();
    let mut records = run(&names, trials);
    let missing = Missing { message: "no program `nginx`".to_owned(), hint: None };
    set_state(&mut records, "gone", SubjectState::Skipped { missing });
    let found = report_of(records, &names, SearchEnd::Complete);
    let text = table(&found);
    for part in [
        "off - - 0 + 0 of 2 not measurable",
        "off could not be measured: refused: 1 of 2 attacks were let through. Its search ended before its budget, \
         after 2 trials in a row without a measurement.",
        "slow did not meet the goals at any rate: 100 % took longer than 5ms.",
        "gone - - 0 + 0 of 0 skipped",
        "gone was skipped: no program `nginx`",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn table_fits_80_columns_and_describes_the_load() {
    let text = report(&["nginx"], settled("nginx")).table(Screen::PLAIN);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("Highest rate that meets p99<5ms,errors<1%\n"), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = "browse: open loop, Poisson, 50 connections, keep-alive; trials of 2.50 s";
    assert!(flat.contains(line), "{text}");
    assert!(flat.contains("nginx 200 400 2 + 2 of 5 settled"), "{text}");
    let summary = "p99<5ms,errors<1% is met by nginx up to a rate between 200 and 400 requests/s.";
    assert!(flat.ends_with(summary), "{text}");
}

#[test]
fn json_contains_every_trial() {
    let found = report(&["nginx"], settled("nginx"));
    let text = tollgate_records::files::json(&found).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], json!(3));
    assert_eq!(value["parameters"]["goals"], json!("p99<5ms,errors<1%"));
    assert_eq!(value["parameters"]["ended_by"], json!("complete"));
    let nginx = &value["cases"][0]["subjects"][0];
    assert_eq!(nginx["status"], json!("settled"));
    assert_eq!(nginx["passed"], json!({"rate_per_s": 200.0, "trials": 2}));
    assert_eq!(nginx["failed"], json!({"rate_per_s": 400.0, "trials": 2}));
    assert_eq!(nginx["trials"].as_array().unwrap().len(), 5);
    assert_eq!(
        nginx["trials"][2],
        json!({"step": 3, "rate_per_s": 400.0, "verdict": "fail", "reasons": ["100 % took longer than 5ms"]})
    );
}

fn verdict(goals: &str, measurement: Measurement) -> RateVerdict {
    let goals: Goals = goals.parse().unwrap();
    goals.judge(&TrialOutcome::Measured(Box::new(measurement))).verdict
}

const FAIL: RateVerdict = RateVerdict::Fail { by_system: true };

#[test]
fn disturbances_make_a_trial_invalid_and_effects_of_the_system_decide() {
    let with = |rule: Invalid| Measurement { invalid: vec![rule], ..at(100.0, 1) };
    assert_eq!(verdict("p99<5ms", at(100.0, 1)), RateVerdict::Pass);
    for rule in [
        Invalid::Steal { percent: 9.0, limit_percent: 5.0 },
        Invalid::BackgroundCpu { percent: 20.0, limit_percent: 10.0, heaviest: None },
        Invalid::Paused { percent: 30.0, limit_percent: 10.0 },
        Invalid::WindowSkew { percent: 6.0, limit_percent: 5.0 },
    ] {
        assert_eq!(verdict("p99<5ms", with(rule.clone())), RateVerdict::Invalid, "{rule}");
    }
    let died = Invalid::ProcessDied { what: "process 7 ended".to_owned() };
    assert_eq!(verdict("p99<5ms", with(died)), FAIL);
    // Failed requests are judged by the goals, not by the validity rules of a run.
    let failed = Invalid::Failed { requests: 5, kinds: "reset: 5".to_owned() };
    let few = |reset| Measurement {
        failures: Failures { reset, ..Failures::default() },
        ..with(failed.clone())
    };
    assert_eq!(verdict("p99<5ms", few(5)), RateVerdict::Pass);
    assert_eq!(verdict("p99<5ms", few(50)), FAIL);
    assert_eq!(verdict("p99<5ms,errors<10%", few(50)), RateVerdict::Pass);
    // A skewed window does not matter if the goals are not met.
    let skewed = Measurement {
        invalid: vec![Invalid::WindowSkew { percent: 6.0, limit_percent: 5.0 }],
        bottleneck: Bottleneck::Generator,
        ..at(100.0, 9)
    };
    assert_eq!(verdict("p99<5ms", skewed), RateVerdict::Fail { by_system: false });
}

#[test]
fn a_rate_that_was_not_delivered_fails() {
    let with = |in_flight, unsent| {
        let mut measurement = at(100.0, 1);
        measurement.in_flight = in_flight;
        measurement.oldest_in_flight_ms = Some(8.0);
        let open_loop = measurement.open_loop.as_mut().unwrap();
        open_loop.unsent = unsent;
        open_loop.oldest_unsent_ms = Some(0.5);
        measurement
    };
    assert_eq!(verdict("p99<5ms", with(10, 10)), RateVerdict::Pass);
    assert_eq!(verdict("p99<5ms", with(0, 11)), FAIL);
    // Requests in flight may have waited longer than the goal.
    assert_eq!(verdict("p99<5ms", with(11, 0)), FAIL);
    assert_eq!(verdict("p99<9ms", with(11, 0)), RateVerdict::Pass);
    assert_eq!(verdict("p99<5ms", costing(10)), RateVerdict::Invalid, "closed loop");
}

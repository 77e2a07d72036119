//! The intervals of a search, from literal records, and how they are told.

use crate::records::{costing, measured, refused, run, set_state};
use serde_json::json;
use std::time::Duration;
use tollgate_lab::inputs::experiment::SpacingFile;
use tollgate_lab::manifest::{OpenLoopManifest, SubjectState};
use tollgate_lab::record::{
    LatencyRecord, Measurement, OpenLoopRecord, Outcome, TrialRecord, WarmUpRecord,
};
use tollgate_lab::report::layout::Screen;
use tollgate_lab::run_dir::RunRecords;
use tollgate_lab::search::bracket::Answer;
use tollgate_lab::search::findings::{Findings, Said, Standing, SubjectFindings, find};
use tollgate_lab::search::judge::judge;
use tollgate_lab::search::report;
use tollgate_lab::search::slo::Slo;
use tollgate_lab::search::terms::{EndedBy, Terms};
use tollgate_lab::system::installed::Missing;
use tollgate_lab::trial::bottleneck::Bottleneck;
use tollgate_lab::trial::validity::Invalid;
use tollgate_load::Failures;
use tollgate_stats::LatencyHistogram;

/// A trial of 1,000 requests at a rate, each answered in so many milliseconds.
fn at(rate: f64, latency_ms: u64) -> Measurement {
    let mut histogram = LatencyHistogram::new();
    histogram.record_n(latency_ms * 1_000_000, 1_000);
    let latency = LatencyRecord::of(&histogram).unwrap();
    let open_loop = OpenLoopRecord {
        rate_per_s: rate,
        spacing: SpacingFile::Poisson,
        latency_from_send: latency.clone(),
        lateness_p99_ms: Some(0.1),
        due: 1_000,
        held: 0,
        overdue: 0,
        oldest_overdue_ms: None,
    };
    Measurement { latency, open_loop: Some(open_loop), ..costing(10) }
}

fn terms() -> Terms {
    Terms {
        slo: "p99<5ms".parse().unwrap(),
        from: 100.0,
        width: 1.0,
        confirmations: 1,
        budget: Duration::from_secs(600),
    }
}

/// A search of these subjects, of which there are these records.
fn findings(subjects: &[&str], trials: Vec<TrialRecord>) -> Findings {
    of(run(subjects, trials), subjects, EndedBy::Found)
}

fn of(mut run: RunRecords, subjects: &[&str], ended_by: EndedBy) -> Findings {
    let open_loop = OpenLoopManifest {
        rate_per_s: Some(100.0),
        spacing: SpacingFile::Poisson,
        connections_max: 50,
    };
    run.manifest.experiment.cases[0].open_loop = Some(open_loop);
    let mut record = terms().record(subjects.iter().map(|name| (*name).to_owned()).collect());
    record.ended_by = Some(ended_by);
    find(&run, &terms(), record)
}

/// Doubled from 100 until 400 broke the goal, and both ends tried again.
fn settled(subject: &str) -> Vec<TrialRecord> {
    let trials = [(100.0, 1), (200.0, 1), (400.0, 9), (400.0, 9), (200.0, 1)];
    let trials = (1..).zip(trials);
    trials.map(|(step, (rate, ms))| measured(subject, step, at(rate, ms))).collect()
}

fn only(findings: &Findings) -> &SubjectFindings {
    &findings.cases[0].subjects[0]
}

#[test]
fn a_search_that_took_its_most_trials_says_so() {
    // However that came about: here by one rate again and again.
    let trials = (1..=100).map(|step| measured("nginx", step, at(100.0, 1)));
    let run = run(&["nginx"], trials.collect());
    let searched = Terms { confirmations: 20, ..terms() };
    let record = searched.record(vec!["nginx".to_owned()]);
    let findings = find(&run, &searched, record);
    assert_eq!(only(&findings).standing, Standing::MostTrials);
    assert!(table(&findings).contains("nginx: 100 trials, the most that a search may take"));
    assert!(table(&findings).contains("not settled"), "{}", table(&findings));
}

#[test]
fn trials_of_a_search_that_were_not_steady_are_told_of() {
    let mut trials = settled("nginx");
    for (trial, steady) in trials.iter_mut().zip([true, false]) {
        if let Outcome::Measured(measurement) = &mut trial.outcome {
            measurement.warm_up = Some(WarmUpRecord { lasted_s: 1.0, steady: Some(steady) });
        }
    }
    let text = table(&findings(&["nginx"], trials));
    let told = "nginx was not steady yet when the warm-up was over in 1 of 5 trials; they count.";
    assert!(text.contains(told), "{text}");
}

/// A table with its lines put together again.
fn table(findings: &Findings) -> String {
    report::table(findings, Screen::PLAIN).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn records_give_the_interval_with_its_trials() {
    let found = findings(&["nginx"], settled("nginx"));
    let nginx = only(&found);
    assert_eq!(nginx.standing, Standing::Settled);
    let end = |rate: Option<tollgate_lab::search::findings::Rate>| {
        rate.map(|rate| (rate.rate_per_s, rate.trials))
    };
    assert_eq!((end(nginx.kept), end(nginx.broken)), (Some((200.0, 2)), Some((400.0, 2))));
    let said: Vec<Said> = nginx.trials.iter().map(|tried| tried.answer).collect();
    assert_eq!(said, [Said::Kept, Said::Kept, Said::Broken, Said::Broken, Said::Kept]);
    assert_eq!(nginx.trials[2].because, ["100 % took longer than 5ms"]);
}

#[test]
fn a_search_that_stopped_half_way_keeps_what_there_is() {
    let trials = settled("nginx")[..3].to_vec();
    let found = of(run(&["nginx"], trials), &["nginx"], EndedBy::Budget);
    assert_eq!(only(&found).standing, Standing::NotSettled);
    assert_eq!(only(&found).kept.unwrap().trials, 1);
    let text = table(&found);
    assert!(text.contains("nginx 200 400 1 + 1 of 3 not settled"), "{text}");
    assert!(text.contains("The budget of 600 s was spent before every search was over"), "{text}");
    let answer =
        "is kept by nginx, as far as was tried, up to a rate between 200 and 400 a second.";
    assert!(text.ends_with(answer), "{text}");
    let begun = of(run(&["nginx"], settled("nginx")[..1].to_vec()), &["nginx"], EndedBy::Budget);
    let answer = "is kept by nginx, as far as was tried, at 100 a second.";
    assert!(table(&begun).ends_with(answer), "{}", table(&begun));
    let none = of(run(&["nginx"], vec![]), &["nginx"], EndedBy::Interrupted);
    assert!(table(&none).ends_with("It was asked to stop. No rate was found."), "{}", table(&none));
    let mut killed = begun.clone();
    killed.terms.ended_by = None;
    assert!(table(&killed).contains("under way, or was killed"), "{}", table(&killed));
}

#[test]
fn an_interval_that_contradictions_widened_says_that_it_is_wider_than_asked() {
    // Bisected to 200 and 400; 200 then breaks the goal once, and is given up for 100.
    let trials = [(100.0, 1), (200.0, 1), (400.0, 9), (200.0, 9), (400.0, 9), (100.0, 1)];
    let trials = (1..).zip(trials);
    let trials = trials.map(|(step, (rate, ms))| measured("nginx", step, at(rate, ms)));
    let found = findings(&["nginx"], trials.collect());
    assert_eq!(only(&found).standing, Standing::Settled);
    assert_eq!(only(&found).kept.map(|end| end.rate_per_s), Some(100.0));
    let text = table(&found);
    let told = "nginx: confirmed, but wider than asked: its ends are 300 % apart, and 100 % was asked for.";
    assert!(text.contains(told), "{text}");
    let narrow = table(&findings(&["nginx"], settled("nginx")));
    assert!(!narrow.contains("wider than asked"), "{narrow}");
    assert!(narrow.contains("the highest rate that kept the goals in every trial, and below every rate that ever broke them"), "{narrow}");
}

#[test]
fn an_upper_end_that_the_generator_made_is_none() {
    let mut trials = settled("nginx");
    for trial in &mut trials[2..4] {
        let Outcome::Measured(measurement) = &mut trial.outcome else { panic!("it was measured") };
        measurement.bottleneck = Bottleneck::Generator;
    }
    let found = findings(&["nginx"], trials);
    assert_eq!(only(&found).standing, Standing::AtLeast);
    assert_eq!(only(&found).trials[2].answer, Said::Unclear);
    let text = table(&found);
    assert!(text.contains("nginx ≥ 200 - 2 + 2 of 5 at least"), "{text}");
    assert!(
        text.contains("nginx may hold more: above that rate the CPU of the generator"),
        "{text}"
    );
    assert!(text.contains("is kept by nginx up to 200 a second at least."), "{text}");
}

#[test]
fn subjects_without_a_rate_say_why() {
    let refusals = (1..3).map(|step| refused("off", step, "1 of 2 attacks were let through"));
    // Halved to the lowest rate that holds 1,000 requests a minute.
    let rates = (1..).zip([100.0, 50.0, 25.0, 17.0, 17.0]);
    let slow = rates.map(|(step, rate)| measured("slow", step, at(rate, 9)));
    let names = ["nginx", "off", "slow", "gone"];
    let trials = settled("nginx").into_iter().chain(refusals).chain(slow).collect();
    let mut records = run(&names, trials);
    let missing = Missing { what: "no program `nginx`".to_owned(), mend: None };
    set_state(&mut records, "gone", SubjectState::Skipped { missing });
    let found = of(records, &names, EndedBy::Found);
    let text = table(&found);
    for told in [
        "off - - 0 + 0 of 2 given up",
        "off was given up: refused: 1 of 2 attacks were let through.",
        "slow did not keep the goals at any rate: 100 % took longer than 5ms.",
        "gone - - 0 + 0 of 0 skipped",
        "gone was skipped: no program `nginx`",
    ] {
        assert!(text.contains(told), "no {told:?} in:\n{text}");
    }
}

#[test]
fn the_table_fits_a_terminal_and_says_what_was_sent() {
    let text = report::table(&findings(&["nginx"], settled("nginx")), Screen::PLAIN);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("The highest rate that keeps p99<5ms,errors<1%\n"), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = "browse: open loop, Poisson, 50 connections, kept alive; trials of 2.50 s";
    assert!(flat.contains(line), "{text}");
    assert!(flat.contains("nginx 200 400 2 + 2 of 5 settled"), "{text}");
    let answer = "p99<5ms,errors<1% is kept by nginx up to a rate between 200 and 400 a second.";
    assert!(flat.ends_with(answer), "{text}");
}

#[test]
fn json_holds_every_trial() {
    let found = findings(&["nginx"], settled("nginx"));
    let text = report::json(&found).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], json!(1));
    assert_eq!(value["terms"]["slo"], json!("p99<5ms,errors<1%"));
    assert_eq!(value["terms"]["ended_by"], json!("found"));
    let nginx = &value["cases"][0]["subjects"][0];
    assert_eq!(nginx["standing"], json!("settled"));
    assert_eq!(nginx["kept"], json!({"rate_per_s": 200.0, "trials": 2}));
    assert_eq!(nginx["broken"], json!({"rate_per_s": 400.0, "trials": 2}));
    assert_eq!(nginx["trials"].as_array().unwrap().len(), 5);
    assert_eq!(
        nginx["trials"][2],
        json!({"step": 3, "rate_per_s": 400.0, "answer": "broken", "because": ["100 % took longer than 5ms"]})
    );
}

fn answer(goals: &str, measurement: Measurement) -> Answer {
    let slo: Slo = goals.parse().unwrap();
    judge(&slo, &Outcome::Measured(Box::new(measurement))).answer
}

const BROKEN: Answer = Answer::Broken { by_system: true };

#[test]
fn what_was_done_to_a_trial_is_no_answer_and_what_the_system_did_is_one() {
    let with = |rule: Invalid| Measurement { invalid: vec![rule], ..at(100.0, 1) };
    assert_eq!(answer("p99<5ms", at(100.0, 1)), Answer::Kept);
    for rule in [
        Invalid::Steal { percent: 9.0, limit_percent: 5.0 },
        Invalid::Starved { foreign_cpu_percent: 20.0, limit_percent: 10.0 },
        Invalid::Halted { percent: 30.0, limit_percent: 10.0 },
        Invalid::Skewed { percent: 6.0, limit_percent: 5.0 },
    ] {
        assert_eq!(answer("p99<5ms", with(rule.clone())), Answer::Lost, "{rule}");
    }
    let died = Invalid::ProcessDied { what: "process 7 ended".to_owned() };
    assert_eq!(answer("p99<5ms", with(died)), BROKEN);
    // What failed is in the goals, and not in the rules of a run.
    let failed = Invalid::Failed { requests: 5, kinds: "reset: 5".to_owned() };
    let few = |reset| Measurement {
        failures: Failures { reset, ..Failures::default() },
        ..with(failed.clone())
    };
    assert_eq!(answer("p99<5ms", few(5)), Answer::Kept);
    assert_eq!(answer("p99<5ms", few(50)), BROKEN);
    assert_eq!(answer("p99<5ms,errors<10%", few(50)), Answer::Kept);
    // A window that was noticed late is the load's, where the goals are broken anyway.
    let skewed = Measurement {
        invalid: vec![Invalid::Skewed { percent: 6.0, limit_percent: 5.0 }],
        bottleneck: Bottleneck::Generator,
        ..at(100.0, 9)
    };
    assert_eq!(answer("p99<5ms", skewed), Answer::Broken { by_system: false });
}

#[test]
fn a_rate_that_was_not_delivered_keeps_no_goal() {
    let with = |unanswered, overdue| {
        let mut measurement = at(100.0, 1);
        measurement.unanswered = unanswered;
        measurement.oldest_unanswered_ms = Some(8.0);
        let open_loop = measurement.open_loop.as_mut().unwrap();
        open_loop.overdue = overdue;
        open_loop.oldest_overdue_ms = Some(0.5);
        measurement
    };
    assert_eq!(answer("p99<5ms", with(10, 10)), Answer::Kept);
    assert_eq!(answer("p99<5ms", with(0, 11)), BROKEN);
    // Those under way may have been so for longer than the goal.
    assert_eq!(answer("p99<5ms", with(11, 0)), BROKEN);
    assert_eq!(answer("p99<9ms", with(11, 0)), Answer::Kept);
    assert_eq!(answer("p99<5ms", costing(10)), Answer::Lost, "a closed loop has no rate");
}

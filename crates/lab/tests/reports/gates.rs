//! Gates: held, broken or not settled, by the interval and never by the estimate.

use crate::records::{MIB, assert_close, blocks, case, costing, measured, refused, run, template};
use tollgate_lab::analysis::analyse;
use tollgate_lab::gate::{Format, Gate, Judged, Outcome, judge, overall, render};
use tollgate_lab::manifest::SubjectState;
use tollgate_lab::record::{TemplateRecord, TrialRecord};
use tollgate_lab::report::layout::Screen;
use tollgate_lab::run_dir::RunRecords;
use tollgate_lab::system::installed::Missing;
use tollgate_lab::trial::bottleneck::Bottleneck;
use tollgate_lab::trial::validity::Invalid;
use tollgate_traffic::Class;

/// Each block is twice as slow as the one before: who pairs anything but the same block is off by a
/// factor of two at the least.
const DRIFT: [u64; 6] = [10, 20, 40, 80, 160, 320];

fn drifting(subject: &str, times: u64) -> Vec<TrialRecord> {
    blocks(subject, &DRIFT.map(|cpu_us| times * cpu_us))
}

/// A gate under the only case of the run.
fn judged(run: &RunRecords, gate: &str) -> Judged {
    let mut all = judge(&gate.parse::<Gate>().unwrap(), run, &analyse(run));
    assert_eq!(all.len(), 1, "{gate}");
    all.remove(0)
}

#[track_caller]
fn assert_outcomes(run: &RunRecords, expected: &[(&str, Outcome)]) {
    for (gate, outcome) in expected {
        let judged = judged(run, gate);
        assert_eq!(judged.outcome, *outcome, "{judged:?}");
    }
}

#[test]
fn the_ends_of_the_interval_decide() {
    // The ratios are 1, 2, 4, 8, 16, 32; six blocks have the whole range for an interval.
    let run = run(&["nginx", "full"], [blocks("nginx", &[10; 6]), blocks("full", &DRIFT)].concat());
    assert_outcomes(
        &run,
        &[
            ("cpu(full/nginx)<33", Outcome::Held),
            ("cpu(full/nginx)<31", Outcome::NotSettled),
            ("cpu(full/nginx)<0.9", Outcome::Broken),
            ("cpu(full/nginx)>0.9", Outcome::Held),
            ("cpu(full/nginx)>1.1", Outcome::NotSettled),
            ("cpu(full/nginx)>33", Outcome::Broken),
        ],
    );
    let judged = judged(&run, "cpu(full/nginx)<31");
    let value = judged.value.unwrap();
    assert_close(value.estimate, 32.0_f64.sqrt());
    assert_close(value.high, 32.0);
    assert_eq!(judged.n, 6);
    assert!(judged.note.unwrap().contains("the interval holds the bound"));
}

#[test]
fn a_bound_that_is_met_exactly_is_met_and_not_passed() {
    // Shares and figures without spread are exact, where ratios have gone through logarithms.
    let run = run(&["nginx"], blocks("nginx", &[10; 6]));
    assert_outcomes(
        &run,
        &[
            ("cpu(nginx)<=10us", Outcome::Held),
            ("cpu(nginx)<10us", Outcome::Broken),
            ("cpu(nginx)>=10us", Outcome::Held),
            ("cpu(nginx)>10us", Outcome::Broken),
            ("alarms(nginx)<=0%", Outcome::Held),
            ("alarms(nginx)>0%", Outcome::Broken),
        ],
    );
}

#[test]
fn any_two_subjects_are_paired_block_by_block() {
    let trials = [drifting("nginx", 1), drifting("light", 2), drifting("full", 3)].concat();
    let run = run(&["nginx", "light", "full"], trials);
    let judged = judged(&run, "cpu(full/light)<1.51");
    assert_eq!(judged.outcome, Outcome::Held);
    assert_close(judged.value.unwrap().high, 1.5);
    assert_outcomes(&run, &[("cpu(full/light)<149%", Outcome::Broken)]);
}

#[test]
fn a_trial_that_does_not_count_is_in_no_ratio() {
    let mut trials = [drifting("nginx", 1), drifting("full", 3)].concat();
    let mut invalid = costing(5_000);
    invalid.invalid = vec![Invalid::NoAnswer];
    trials.push(measured("nginx", 7, costing(10)));
    trials.push(measured("full", 7, invalid));
    let judged = judged(&run(&["nginx", "full"], trials), "cpu(full/nginx)<3.01");
    assert_eq!((judged.outcome, judged.n), (Outcome::Held, 6));
}

#[test]
fn below_six_blocks_nothing_is_settled() {
    let trials = [blocks("nginx", &[10; 5]), blocks("full", &[30; 5])].concat();
    let run = run(&["nginx", "full"], trials);
    for gate in ["cpu(full/nginx)<100", "cpu(full/nginx)<2", "cpu(full)<1", "caught(full)>=0%"] {
        let judged = judged(&run, gate);
        assert_eq!(judged.outcome, Outcome::NotSettled, "{gate}");
        let note = judged.note.unwrap();
        assert!(note.contains("n too small") || note.contains("no attack"), "{note}");
    }
}

#[test]
fn every_metric_has_its_figure_in_its_unit() {
    let run = run(&["nginx"], blocks("nginx", &[10; 6]));
    for (gate, value) in [
        ("cpu(nginx)<11", 10.0),
        ("throughput(nginx)>999", 1_000.0),
        ("p50(nginx)<1.1ms", 1.0),
        ("p99(nginx)<3100us", 3.0),
        ("mean(nginx)<0.0016s", 1.5),
        ("memory(nginx)<8.5MiB", 8.0 * f64::from(u32::try_from(MIB).unwrap())),
        ("startup(nginx)<31", 30.0),
        ("alarms(nginx)<1%", 0.0),
    ] {
        let judged = judged(&run, gate);
        assert_eq!(judged.outcome, Outcome::Held, "{judged:?}");
        assert_close(judged.value.unwrap().estimate, value);
    }
}

#[test]
fn a_single_attack_that_slipped_through_is_not_lost() {
    // Of 20 attacks in each of twelve blocks, one was let through: 239 of 240.
    let trials = (1..=12).map(|block| {
        let mut measurement = costing(10);
        let blocked = if block == 3 { 19 } else { 20 };
        measurement.templates = vec![template(Class::Malicious, blocked, 20)];
        measured("full", block, measurement)
    });
    let run = run(&["full"], trials.collect());
    assert_outcomes(
        &run,
        &[
            ("caught(full)>=100%", Outcome::NotSettled),
            ("caught(full)>=90%", Outcome::Held),
            ("caught(full)<90%", Outcome::Broken),
        ],
    );
    assert_close(judged(&run, "caught(full)>=100%").value.unwrap().estimate, 239.0 / 240.0);
}

#[test]
fn throughput_that_something_else_held_down_is_a_bound() {
    let limited = |subject: &'static str| {
        (1..=6).map(move |block| {
            let mut measurement = costing(10);
            measurement.bottleneck = Bottleneck::Generator;
            measured(subject, block, measurement)
        })
    };
    let full = blocks("full", &[30; 6]);
    let run = run(&["nginx", "full"], limited("nginx").chain(full).collect());
    assert_outcomes(
        &run,
        &[
            // 1,000 at least.
            ("throughput(nginx)>900", Outcome::Held),
            ("throughput(nginx)<1100", Outcome::NotSettled),
            ("throughput(nginx)<900", Outcome::Broken),
            // 1 at most.
            ("throughput(full/nginx)<1.1", Outcome::Held),
            ("throughput(full/nginx)>0.9", Outcome::NotSettled),
            ("throughput(full/nginx)>1.1", Outcome::Broken),
            // Other figures hold.
            ("cpu(nginx)<11", Outcome::Held),
        ],
    );
    let note = judged(&run, "throughput(full/nginx)>0.9").note.unwrap();
    assert_eq!(note, "the CPU of nginx was not spent, so the value is an upper bound");
}

#[test]
fn why_there_is_no_value_is_told() {
    let mut refused_twice = run(
        &["nginx", "full"],
        [blocks("nginx", &[10; 6]), vec![refused("full", 1, "it lets attacks through")]].concat(),
    );
    let judged_full = judged(&refused_twice, "cpu(full/nginx)<60");
    assert_eq!((judged_full.outcome, judged_full.n), (Outcome::NotSettled, 0));
    assert_eq!(judged_full.note.unwrap(), "full was refused: it lets attacks through");

    let missing = Missing { what: "no program `nginx`".to_owned(), mend: None };
    refused_twice.trials.pop();
    refused_twice.manifest.experiment.subjects[1].state = SubjectState::Skipped { missing };
    let note = judged(&refused_twice, "cpu(full)<60").note.unwrap();
    assert_eq!(note, "full was skipped: no program `nginx`");

    let zero = [blocks("nginx", &[10; 6]), blocks("direct", &[0; 6])].concat();
    let zero = judged(&run(&["nginx", "direct"], zero), "cpu(nginx/direct)<60");
    let expected = "there is no ratio, because cpu of nginx or direct is zero or missing";
    assert_eq!((zero.outcome, zero.note.as_deref()), (Outcome::NotSettled, Some(expected)));

    // Answers came, and none of them says whether the request was blocked.
    for (class, gate, expected) in [
        (Class::Malicious, "caught(nginx)>=99%", "no attack was blocked or let through"),
        (Class::Benign, "alarms(nginx)<=1%", "no harmless request was blocked or let through"),
    ] {
        let mut measurement = costing(10);
        let none = TemplateRecord { let_through: Some(0), ..template(class, 0, 20) };
        measurement.templates = vec![none];
        let run = run(&["nginx"], vec![measured("nginx", 1, measurement)]);
        assert_eq!(judged(&run, gate).note.as_deref(), Some(expected));
    }
}

#[test]
fn without_a_case_every_case_is_judged() {
    let mut trials = [blocks("nginx", &[10; 6]), blocks("full", &[30; 6])].concat();
    let mut second = [blocks("nginx", &[10; 6]), blocks("full", &[50; 6])].concat();
    second.iter_mut().for_each(|trial| "search".clone_into(&mut trial.case));
    trials.extend(second);
    let mut run = run(&["nginx", "full"], trials);
    run.manifest.experiment.cases.push(case("search"));
    let outcomes = |gate: &str| {
        let judged = judge(&gate.parse::<Gate>().unwrap(), &run, &analyse(&run));
        let each: Vec<(String, Outcome)> =
            judged.iter().map(|judged| (judged.case.clone(), judged.outcome)).collect();
        (each, overall(&judged))
    };
    let (each, all) = outcomes("cpu(full/nginx)<4");
    assert_eq!(
        each,
        [("browse".to_owned(), Outcome::Held), ("search".to_owned(), Outcome::Broken)]
    );
    assert_eq!(all, Outcome::Broken);
    let (each, all) = outcomes("cpu(full/nginx @ browse)<4");
    assert_eq!((each.len(), all), (1, Outcome::Held));
}

#[test]
fn one_broken_gate_breaks_all_and_one_open_gate_settles_none() {
    let run = run(&["nginx", "full"], [blocks("nginx", &[10; 6]), blocks("full", &DRIFT)].concat());
    let (held, open, broken) = (
        judged(&run, "cpu(full/nginx)<33"),
        judged(&run, "cpu(full/nginx)<4"),
        judged(&run, "cpu(full/nginx)<0.9"),
    );
    assert_eq!(overall(&[held.clone(), open.clone(), broken]), Outcome::Broken);
    assert_eq!(overall(&[held.clone(), open]), Outcome::NotSettled);
    assert_eq!(overall(&[held]), Outcome::Held);
    assert_eq!(overall(&[]), Outcome::Held);
}

#[test]
fn gates_are_a_table_with_what_has_to_be_known() {
    let trials = [blocks("nginx", &[10; 6]), blocks("full", &[30, 30, 30, 30, 30, 60])].concat();
    let run = run(&["nginx", "full"], trials);
    let gates = ["cpu(full/nginx)<7", "memory(full)<4MiB", "p99(full)<5ms", "cpu(full)<40us"];
    let judged: Vec<Judged> = gates.iter().map(|gate| judged(&run, gate)).collect();
    assert_eq!(
        render(&judged, Format::Table { screen: Screen::PLAIN }),
        "\
gate                        value [95 %]  n      outcome
────────────────────────────────────────────────────────
cpu(full/nginx)<7    3.00 [3.00, 6.00] ×  6         held
memory(full)<4MiB  8.00 [8.00, 8.00] MiB  6       broken
p99(full)<5ms       3.00 [3.00, 3.00] ms  6         held
cpu(full)<40us      30.0 [30.0, 60.0] µs  6  not settled
cpu(full)<40us: the interval holds the bound; more --blocks make it narrower.
"
    );
    let markdown = render(&judged[3..], Format::Markdown);
    assert!(markdown.contains("| cpu(full)\\<40us | 30.0 \\[30.0, 60.0\\] µs | 6 | not settled |"));
    assert!(markdown.contains("\n- cpu(full)\\<40us: the interval holds the bound"), "{markdown}");
}

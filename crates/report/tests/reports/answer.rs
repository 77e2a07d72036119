//! The headline sentence.

use crate::records::{
    blocks, case, costing, failed, found, measured, run, template, without_processes,
};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::trial::{TrialRecord, TrialStep};
use tollgate_report::analysis::analyse;
use tollgate_traffic::Class;

fn answer(run: &RunRecords) -> String {
    analyse(run).answer
}

fn direct(blocks: u32) -> Vec<TrialRecord> {
    (1..=blocks).map(|block| measured("direct", block, without_processes())).collect()
}

/// Eight blocks of `full`, which blocks `blocked` of 1,000 attacks.
fn blocking(blocked: u64) -> Vec<TrialRecord> {
    let trial = |block| {
        let mut measurement = costing(400);
        measurement.templates.push(template(Class::Malicious, blocked, 1_000));
        measured("full", block, measurement)
    };
    (1..=8).map(trial).collect()
}

#[test]
fn names_the_most_expensive_subject_first() {
    let trials = [
        blocks("nginx", &[10; 8]),
        blocking(1_000),
        blocks("light", &[20; 8]),
        blocks("cached", &[5; 8]),
        direct(8),
    ];
    let run = run(&["nginx", "light", "full", "direct", "cached"], trials.concat());
    assert_eq!(
        answer(&run),
        "full (what full is) costs 40.0 times what nginx does (390 µs more per request) and blocks every \
         attack; light costs 2.00 times; cached costs 0.500 times; direct uses no CPU."
    );
}

#[test]
fn states_the_detection_rate() {
    let some = [blocks("nginx", &[10; 6]), blocking(250)].concat();
    assert_eq!(
        answer(&run(&["nginx", "full"], some)),
        "full (what full is) costs 40.0 times what nginx does (390 µs more per request) and blocks 25.0 % \
         of the attacks."
    );
    let none = [blocks("nginx", &[10; 6]), blocking(0)].concat();
    assert_eq!(
        answer(&run(&["nginx", "full"], none)),
        "full (what full is) costs 40.0 times what nginx does (390 µs more per request)."
    );
}

#[test]
fn is_not_significant_below_six_blocks() {
    let trials = [blocks("nginx", &[10; 5]), blocks("light", &[20; 5])].concat();
    assert_eq!(
        answer(&run(&["nginx", "light"], trials)),
        "light (what light is) costs about 2.00 times what nginx does, not settled by 5 blocks."
    );
}

#[test]
fn marks_costs_that_are_not_significant() {
    let nginx = blocks("nginx", &[1000, 1010, 990, 1000, 1005, 995]);
    let of = |cpu_us: [u64; 6]| {
        let trials = [nginx.clone(), blocks("other", &cpu_us)].concat();
        answer(&run(&["nginx", "other"], trials))
    };
    assert_eq!(
        of([1010, 1020, 1000, 1010, 1015, 1005]),
        "other (what other is) costs the same as nginx within 2 %."
    );
    // The prices are 0.9, 1.1, 0.9, 1.1, 0.9005 and 1.0995: their middle is the square root of 0.9 * 1.1.
    assert_eq!(
        of([900, 1111, 891, 1100, 905, 1094]),
        "other (what other is) costs between 0.900 and 1.10 times what nginx does, not settled by 6 blocks."
    );
    // The detection rate needs no verdict.
    let unsteady = (1..).zip([3, 50, 3, 50, 3, 50]).map(|(block, cpu_us)| {
        let mut measurement = costing(cpu_us);
        measurement.templates.push(template(Class::Malicious, 1_000, 1_000));
        measured("full", block, measurement)
    });
    let trials = blocks("nginx", &[10; 6]).into_iter().chain(unsteady).collect();
    assert_eq!(
        answer(&run(&["nginx", "full"], trials)),
        "full (what full is) costs between 0.295 and 5.00 times what nginx does, not settled by 6 blocks, \
         and blocks every attack."
    );
}

#[test]
fn without_a_ratio_names_the_difference() {
    let trials = [direct(5), blocks("nginx", &[10; 5])].concat();
    assert_eq!(
        answer(&run(&["direct", "nginx"], trials)),
        "direct uses no CPU; nginx (what nginx is) costs about 10.0 µs per request, not settled by 5 blocks."
    );
}

#[test]
fn omits_the_repeated_baseline() {
    let trials = [blocks("nginx", &[10; 6]), blocks("again", &[20; 6]), blocks("full", &[40; 6])];
    let mut run = run(&["nginx", "again", "full"], trials.concat());
    run.manifest.experiment.aa_subject = Some("again".to_owned());
    let expected =
        "full (what full is) costs 4.00 times what nginx does (30.0 µs more per request).";
    assert_eq!(answer(&run), expected);
    assert_eq!(analyse(&run).cases[0].answer, expected);
    run.trials.retain(|trial| trial.block < 6 || trial.subject != "again");
    assert_eq!(answer(&run), expected, "its blocks do not matter either");
}

#[test]
fn a_baseline_without_processes_has_no_ratios() {
    let trials = [direct(8), blocks("nginx", &[10; 8]), blocking(1_000)].concat();
    assert_eq!(
        answer(&run(&["direct", "full", "nginx"], trials)),
        "direct uses no CPU; full (what full is) costs 400 µs per request and blocks every attack; nginx \
         costs 10.0 µs per request."
    );
}

#[test]
fn a_baseline_alone_has_its_own_cost() {
    assert_eq!(
        answer(&run(&["nginx"], blocks("nginx", &[10; 6]))),
        "nginx costs 10.0 µs of CPU per request."
    );
}

#[test]
fn without_a_baseline_there_is_no_price() {
    let why = "There is no price, because the baseline nginx has no valid trial.";
    let broken = vec![failed("nginx", 1, TrialStep::Start, "why", &[])];
    let trials = [broken, blocks("light", &[20; 6])].concat();
    assert_eq!(answer(&run(&["nginx", "light"], trials)), why);
    assert_eq!(answer(&run(&["nginx", "light"], vec![])), why);
}

#[test]
fn one_sentence_per_case() {
    let mut attack = [blocks("nginx", &[10; 6]), blocks("light", &[80; 6])].concat();
    for trial in &mut attack {
        trial.case = "attack".to_owned();
    }
    let browse = [blocks("nginx", &[10; 6]), blocks("light", &[20; 6])].concat();
    let mut run = run(&["nginx", "light"], [attack, browse].concat());
    run.manifest.experiment.cases.push(case("attack"));
    let analysis = analyse(&run);
    let names: Vec<&str> = analysis.cases.iter().map(|part| part.case.name.as_str()).collect();
    assert_eq!(names, ["browse", "attack"]);
    for (index, cpu_us_per_request) in [(0, 20.0), (1, 80.0)] {
        let light = found(&analysis, index, "light");
        assert_eq!(light.trials, 6);
        assert_eq!(light.figures.as_ref().unwrap().cpu_us_per_request, Some(cpu_us_per_request));
    }
    assert_eq!(
        analysis.answer,
        "browse: light (what light is) costs 2.00 times what nginx does (10.0 µs more per request). \
         attack: light (what light is) costs 8.00 times what nginx does (70.0 µs more per request)."
    );
}

#[test]
fn shortens_many_subjects_and_names_common_rates_once() {
    let blocking = |name: &'static str, cpu_us| {
        (1..=6).map(move |block| {
            let mut measurement = costing(cpu_us);
            measurement.templates =
                vec![template(Class::Malicious, 10, 10), template(Class::Benign, 10, 10)];
            measured(name, block, measurement)
        })
    };
    let names = ["nginx", "a", "b", "c", "d", "e", "f"];
    let firewalls = (2..).zip(&names[1..=4]).flat_map(|(times, name)| blocking(name, 10 * times));
    let proxies = [blocks("nginx", &[10; 6]), blocks("e", &[60; 6]), blocks("f", &[5; 6])];
    let trials = firewalls.chain(proxies.concat()).collect();
    assert_eq!(
        answer(&run(&names, trials)),
        "e (what e is) costs 6.00 times what nginx does (50.0 µs more per request); d costs 5.00 times; \
         3 others are between; f costs 0.500 times; the 4 firewalls block every attack and 100 % of the \
         benign requests."
    );
}

#[test]
fn two_firewalls_with_equal_rates_are_both() {
    let full = blocking(250);
    let own = full.iter().map(|trial| TrialRecord { subject: "own".to_owned(), ..trial.clone() });
    let trials: Vec<TrialRecord> =
        blocks("nginx", &[800; 8]).into_iter().chain(full.clone()).chain(own).collect();
    assert_eq!(
        answer(&run(&["nginx", "full", "own"], trials.clone())),
        "full (what full is) costs 0.500 times what nginx does (400 µs less per request); own costs \
         0.500 times; both block 25.0 % of the attacks."
    );
    // Beside a third subject they are named.
    let trials = trials.into_iter().chain(blocks("light", &[1600; 8])).collect();
    let answer = answer(&run(&["nginx", "full", "own", "light"], trials));
    assert!(answer.ends_with("; full and own block 25.0 % of the attacks."), "{answer}");
}

//! The answer in one sentence.

use crate::records::{
    blocks, case, costing, failed, found, measured, run, template, without_processes,
};
use tollgate_lab::analysis::analyse;
use tollgate_lab::record::{Step, TrialRecord};
use tollgate_lab::run_dir::RunRecords;
use tollgate_traffic::Class;

fn answer(run: &RunRecords) -> String {
    analyse(run).answer
}

fn direct(blocks: u32) -> Vec<TrialRecord> {
    (1..=blocks).map(|block| measured("direct", block, without_processes())).collect()
}

/// `full`, which blocks so many of 1,000 attacks in each of eight blocks: enough for several prices.
fn blocking(blocked: u64) -> Vec<TrialRecord> {
    let trial = |block| {
        let mut measurement = costing(400);
        measurement.templates.push(template(Class::Malicious, blocked, 1_000));
        measured("full", block, measurement)
    };
    (1..=8).map(trial).collect()
}

#[test]
fn subjects_are_named_from_the_cheapest_to_the_dearest() {
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
        "A request costs nginx 10.0 µs of CPU; direct takes none of it, cached takes 0.500 times \
         that (-5.00 µs), light takes 2.00 times that (+10.0 µs), and full takes 40.0 times that \
         (+390 µs) and blocks every attack."
    );
}

#[test]
fn attacks_that_got_through_are_not_passed_over() {
    let some = [blocks("nginx", &[10; 6]), blocking(250)].concat();
    assert_eq!(
        answer(&run(&["nginx", "full"], some)),
        "A request costs nginx 10.0 µs of CPU; full takes 40.0 times that (+390 µs) and blocks \
         25.0 % of the attacks."
    );
    let none = [blocks("nginx", &[10; 6]), blocking(0)].concat();
    assert_eq!(
        answer(&run(&["nginx", "full"], none)),
        "A request costs nginx 10.0 µs of CPU; full takes 40.0 times that (+390 µs)."
    );
}

#[test]
fn below_six_blocks_the_answer_is_said_with_a_grain_of_salt() {
    let trials = [blocks("nginx", &[10; 5]), blocks("light", &[20; 5])].concat();
    assert_eq!(
        answer(&run(&["nginx", "light"], trials)),
        "A request costs nginx 10.0 µs of CPU; what light takes is not settled (2.00 times that so \
         far) (n too small for an interval)."
    );
}

#[test]
fn only_what_is_settled_is_told_as_a_difference() {
    let nginx = blocks("nginx", &[1000, 1010, 990, 1000, 1005, 995]);
    let of = |cpu_us: [u64; 6]| {
        let trials = [nginx.clone(), blocks("other", &cpu_us)].concat();
        answer(&run(&["nginx", "other"], trials))
    };
    assert_eq!(
        of([1010, 1020, 1000, 1010, 1015, 1005]),
        "A request costs nginx 1000 µs of CPU; other takes the same within 2 %."
    );
    // The prices are 0.9, 1.1, 0.9, 1.1, 0.9005 and 1.0995: their middle is the square root of 0.9 * 1.1.
    assert_eq!(
        of([900, 1111, 891, 1100, 905, 1094]),
        "A request costs nginx 1000 µs of CPU; what other takes is not settled (0.995 times that so far)."
    );
    // What it blocks was counted, and is settled.
    let unsteady = (1..).zip([3, 50, 3, 50, 3, 50]).map(|(block, cpu_us)| {
        let mut measurement = costing(cpu_us);
        measurement.templates.push(template(Class::Malicious, 1_000, 1_000));
        measured("full", block, measurement)
    });
    let trials = blocks("nginx", &[10; 6]).into_iter().chain(unsteady).collect();
    assert_eq!(
        answer(&run(&["nginx", "full"], trials)),
        "A request costs nginx 10.0 µs of CPU; what full takes is not settled (1.22 times that so \
         far) while it blocks every attack."
    );
}

#[test]
fn without_a_multiple_what_is_not_settled_is_told_in_microseconds() {
    let trials = [direct(5), blocks("nginx", &[10; 5])].concat();
    assert_eq!(
        answer(&run(&["direct", "nginx"], trials)),
        "direct runs nothing that costs CPU; what nginx takes is not settled (10.0 µs so far) (n too \
         small for an interval)."
    );
}

#[test]
fn the_second_time_of_the_baseline_is_no_part_of_the_answer() {
    let trials = [blocks("nginx", &[10; 6]), blocks("again", &[20; 6]), blocks("full", &[40; 6])];
    let mut run = run(&["nginx", "again", "full"], trials.concat());
    run.manifest.experiment.again = Some("again".to_owned());
    let told = "A request costs nginx 10.0 µs of CPU; full takes 4.00 times that (+30.0 µs).";
    assert_eq!(answer(&run), told);
    assert_eq!(analyse(&run).sentences(), [told]);
    run.trials.retain(|trial| trial.block < 6 || trial.subject != "again");
    assert_eq!(answer(&run), told, "nor are its blocks");
}

#[test]
fn a_baseline_without_processes_has_no_multiples() {
    let trials = [direct(8), blocks("nginx", &[10; 8]), blocking(1_000)].concat();
    assert_eq!(
        answer(&run(&["direct", "full", "nginx"], trials)),
        "direct runs nothing that costs CPU; nginx takes 10.0 µs, and full takes 400 µs and \
         blocks every attack."
    );
}

#[test]
fn a_baseline_alone_has_its_own_cost() {
    assert_eq!(
        answer(&run(&["nginx"], blocks("nginx", &[10; 6]))),
        "A request costs nginx 10.0 µs of CPU."
    );
}

#[test]
fn without_a_baseline_there_is_no_price() {
    let why = "There is no price, because the baseline nginx has no valid trial.";
    let broken = vec![failed("nginx", 1, Step::Start, "why", &[])];
    let trials = [broken, blocks("light", &[20; 6])].concat();
    assert_eq!(answer(&run(&["nginx", "light"], trials)), why);
    assert_eq!(answer(&run(&["nginx", "light"], vec![])), why);
}

#[test]
fn each_case_has_its_own_figures_and_its_own_sentence() {
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
        "browse: A request costs nginx 10.0 µs of CPU; light takes 2.00 times that (+10.0 µs). \
         attack: A request costs nginx 10.0 µs of CPU; light takes 8.00 times that (+70.0 µs)."
    );
}

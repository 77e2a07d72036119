//! The experiments in the binary: each can be run, and those on WAFs ask what they are said to ask.

use std::collections::BTreeSet;
use std::time::Duration;
use tollgate_experiment::catalog::{Catalog, Kind};
use tollgate_experiment::experiment::{Adjustments, Case, Experiment, RateOfFile, Subject, Window};
use tollgate_runner::trial::requests;

fn load(name: &str, adjustments: &Adjustments) -> Experiment {
    Experiment::load(&Catalog::new(vec![]), name, adjustments)
        .unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

#[test]
fn every_experiment_can_be_sent() {
    for name in Catalog::new(vec![]).names(Kind::Experiment) {
        requests::check(&load(&name, &Adjustments::default())).unwrap();
    }
}

/// What starting, probing and stopping a system takes on top of its load. CrowdSec compiles its rules, is asked
/// about bodies of 50 KB, and takes its time to stop.
fn besides(subject: &Subject) -> Duration {
    match subject.recipe.name.as_str() {
        "crowdsec-appsec" => Duration::from_secs(6),
        _ => Duration::from_millis(1_500),
    }
}

#[test]
fn a_quick_run_of_an_experiment_on_wafs_takes_less_than_three_minutes() {
    let quick = Adjustments { quick: true, ..Adjustments::default() };
    // What a request takes where it has a core of its own and all of the Core Rule Set is looked at: 1.5 ms
    // on the machine of the reference points.
    let of_request = Duration::from_millis(3);
    for name in ["naxsi", "crowdsec-basic", "crowdsec-stress", "wafs"] {
        let experiment = load(name, &quick);
        let of_case = |case: &Case| {
            let window = match case.load.window() {
                Window::For(time) => time,
                Window::Requests { requests, .. } => of_request * requests,
            };
            let started: Duration =
                case.subjects.iter().map(|subject| besides(&experiment.subjects[*subject])).sum();
            (window + case.load.warmup_longest()) * case.subjects.len() as u32 + started
        };
        let block: Duration = experiment.cases.iter().map(of_case).sum();
        let all = block * experiment.stop.blocks;
        assert!(all < Duration::from_secs(180), "{name}: {all:?}");
    }
}

#[test]
fn the_wafs_of_one_experiment_are_sent_one_mix() {
    let experiment = load("wafs", &Adjustments::default());
    let mixes: BTreeSet<&str> =
        experiment.cases.iter().map(|case| case.mix_source.name.as_str()).collect();
    assert_eq!(mixes, ["built-in:mixes/realistic.toml"].into());
    let rates: Vec<_> = experiment.cases.iter().map(|case| case.rate_of.as_ref()).collect();
    let of = |rate_of: &RateOfFile| (rate_of.case.clone(), rate_of.share.in_percent());
    let rates: Vec<_> = rates.into_iter().map(|rate_of| rate_of.map(of)).collect();
    assert_eq!(rates, [None, Some(("capacity".to_owned(), 50.0))]);
}

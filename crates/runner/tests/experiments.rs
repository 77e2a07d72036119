//! The built-in experiments can be run, and those on WAFs are short enough with `--quick`.

use std::collections::BTreeSet;
use std::time::Duration;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::{Catalog, Kind};
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_runner::probe::requests;
use tollgate_traffic::load_shape::Window;

fn load(name: &str, adjustments: &Adjustments) -> Experiment {
    Experiment::load(&Catalog::new(vec![]), name, adjustments)
        .unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

#[test]
fn built_in_experiments_can_be_sent() {
    for name in Catalog::new(vec![]).names(Kind::Experiment) {
        requests::check(&load(&name, &Adjustments::default())).unwrap();
    }
}

/// Time to start, probe and stop a system. CrowdSec compiles its rules, gets bodies of 50 KB, and stops slowly.
fn overhead(subject: &Subject) -> Duration {
    let runs_crowdsec =
        subject.options.get("engine").is_none_or(|engine| engine.to_string() == "crowdsec");
    match subject.recipe.name.as_str() {
        "crowdsec-appsec" if runs_crowdsec => Duration::from_secs(6),
        _ => Duration::from_millis(1_500),
    }
}

#[test]
fn quick_run_of_a_waf_experiment_takes_less_than_ten_minutes_and_has_intervals() {
    let quick = Adjustments { quick: true, ..Adjustments::default() };
    // A request through the Core Rule Set takes 1.5 ms on a core of the reference machine.
    let of_request = Duration::from_millis(3);
    for name in ["naxsi", "crowdsec-basic", "crowdsec-stress", "wafs"] {
        let experiment = load(name, &quick);
        let of_case = |case: &Case| {
            let window = match case.load.window {
                Window::For(time) => time,
                Window::Requests { requests, .. } => of_request * requests,
            };
            let started: Duration =
                case.subjects.iter().map(|subject| overhead(&experiment.subjects[*subject])).sum();
            (window + case.load.warm_up.longest()) * case.subjects.len() as u32 + started
        };
        let block: Duration = experiment.cases.iter().map(of_case).sum();
        let all = block * experiment.stop.blocks;
        assert!(all < Duration::from_secs(600), "{name}: {all:?}");
        // Prices need six blocks. The bodies of the other one take half a minute each.
        assert!(experiment.stop.blocks >= 6 || name == "crowdsec-stress", "{name}");
    }
}

#[test]
fn all_wafs_of_an_experiment_get_the_same_mix() {
    let experiment = load("wafs", &Adjustments::default());
    let mixes: BTreeSet<&str> =
        experiment.cases.iter().map(|case| case.mix_source.name.as_str()).collect();
    assert_eq!(mixes, ["built-in:mixes/realistic.toml"].into());
    let rate_of = |case: &Case| {
        case.load.rate_of().map(|(other, share)| (other.to_owned(), share.in_percent()))
    };
    let rates: Vec<_> = experiment.cases.iter().map(rate_of).collect();
    assert_eq!(rates, [None, Some(("capacity".to_owned(), 50.0))]);
}

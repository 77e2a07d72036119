//! Comparisons of two runs: prices are compared, figures are not.

use crate::records::{assert_close, blocks, case, flat, run};
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_records::manifest::HostManifest;
use tollgate_records::metric::Metric;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::subject::SubjectState;
use tollgate_report::compare::{
    Change, Comparison, Line, check_layouts, compare, render, render_markdown,
};
use tollgate_report::source::ReportSource;
use tollgate_stats::Verdict;
use tollgate_stats::text::Screen;
use tollgate_traffic::load_shape::{CaseArrivals, WarmUp};

fn priced(nginx: &[u64], full: &[u64]) -> RunRecords {
    run(&["nginx", "full"], [blocks("nginx", nginx), blocks("full", full)].concat())
}

fn compared(old: &RunRecords, new: &RunRecords) -> Comparison {
    compare(old, new).unwrap()
}

/// The change of the CPU price of `full`.
fn change(old: &RunRecords, new: &RunRecords) -> Change {
    let comparison = compared(old, new);
    let mut subjects = comparison.cases[0].subjects.iter();
    let full = subjects.find(|subject| subject.name == "full").unwrap();
    full.changes[&Metric::CpuUsPerRequest]
}

#[test]
fn slower_machine_changes_no_price() {
    let old = priced(&[10, 11, 12, 13, 14, 15], &[30, 33, 36, 39, 42, 45]);
    let new = priced(&[20, 22, 24, 26], &[60, 66, 72, 78]);
    let change = change(&old, &new);
    assert_close(change.ratio.estimate, 1.0);
    assert_eq!((change.n_old, change.n_new, change.verdict), (6, 4, Verdict::Same));
    let comparison = compared(&old, &new);
    let full = &comparison.cases[0].subjects[1];
    assert_close(full.old.figures.as_ref().unwrap().cpu_us_per_request.unwrap(), 37.5);
    assert_close(full.new.figures.as_ref().unwrap().cpu_us_per_request.unwrap(), 69.0);
}

#[test]
fn higher_price_costs_more() {
    // Old prices 2, new ones 3 and 4.
    let (old, new) = (priced(&[10; 6], &[20; 6]), priced(&[10; 6], &[30, 30, 30, 40, 40, 40]));
    let there = change(&old, &new);
    // Half of the 36 quotients are 1.5 and half are 2; the middle of their logarithms is that of sqrt(3).
    assert_close(there.ratio.estimate, 3.0_f64.sqrt());
    assert_close(there.ratio.low, 1.5);
    assert_close(there.ratio.high, 2.0);
    assert!(there.ratio.interval);
    assert_eq!(there.verdict, Verdict::CostsMore);
    assert_eq!(change(&new, &old).verdict, Verdict::CostsLess);
}

#[test]
fn too_few_blocks_have_a_range_and_no_verdict() {
    let change = change(&priced(&[10; 3], &[20; 3]), &priced(&[10; 3], &[80; 3]));
    assert_close(change.ratio.estimate, 4.0);
    assert!(!change.ratio.interval);
    assert_eq!(change.verdict, Verdict::Inconclusive);
}

#[test]
fn lower_throughput_costs_more() {
    let old = priced(&[10; 6], &[20; 6]);
    let mut new = priced(&[10; 6], &[20; 6]);
    for trial in new.trials.iter_mut().filter(|trial| trial.subject == "full") {
        if let tollgate_records::trial::TrialOutcome::Measured(measurement) = &mut trial.outcome {
            measurement.throughput_per_s = 500.0;
        }
    }
    let comparison = compared(&old, &new);
    let full = &comparison.cases[0].subjects[1];
    assert_eq!(full.changes[&Metric::ThroughputPerS].verdict, Verdict::CostsMore);
    assert_eq!(full.changes[&Metric::CpuUsPerRequest].verdict, Verdict::Same);
}

#[test]
fn corrects_for_the_number_of_subjects() {
    // All of four new values are above four old ones: p is 2 / 70 = 0.029, and 0.086 for three subjects.
    let of = |times: u64| [blocks("nginx", &[10; 4]), blocks("full", &[20 * times; 4])].concat();
    let (old, new) = (run(&["nginx", "full"], of(1)), run(&["nginx", "full"], of(2)));
    assert_eq!(change(&old, &new).verdict, Verdict::CostsMore);
    let with_three = |times: u64| {
        let others = ["a", "b"].map(|name| blocks(name, &[40 * times; 4])).concat();
        run(&["nginx", "full", "a", "b"], [of(times), others].concat())
    };
    assert_eq!(change(&with_three(1), &with_three(2)).verdict, Verdict::Inconclusive);
    // The repeated baseline is judged alone.
    let with_again = |times: u64| {
        let again = blocks("nginx-again", &[10; 4]);
        let mut run = run(&["nginx", "full", "nginx-again"], [of(times), again].concat());
        run.manifest.experiment.aa_subject = Some("nginx-again".to_owned());
        run
    };
    let (old, new) = (with_again(1), with_again(2));
    assert_eq!(change(&old, &new).verdict, Verdict::CostsMore);
    let comparison = compared(&old, &new);
    let again = &comparison.cases[0].subjects[2];
    assert_eq!(again.changes[&Metric::CpuUsPerRequest].verdict, Verdict::Same);
}

#[test]
fn different_baselines_are_refused() {
    let old = priced(&[10; 6], &[20; 6]);
    let new =
        run(&["full", "nginx"], [blocks("nginx", &[10; 6]), blocks("full", &[20; 6])].concat());
    let error = compare(&old, &new).unwrap_err().to_string();
    assert!(error.contains("against `nginx`, the new one against `full`"), "{error}");
    let [old, new] = [old, new].map(|run| ReportSource::from(run).over("full").unwrap());
    assert_eq!(compared(&old.records, &new.records).old.baseline, "full");
}

#[test]
fn different_layouts_are_refused() {
    let on = |hosts: &[(&str, &str)]| {
        let mut manifest = priced(&[10; 6], &[20; 6]).manifest;
        let environment = &manifest.environment;
        let host = |(name, host): &(&str, &str)| HostManifest {
            name: (*name).to_owned(),
            host: (*host).to_owned(),
            environment: environment.clone(),
        };
        manifest.hosts = hosts.iter().map(host).collect();
        manifest
    };
    let (alone, hosts) = (on(&[]), on(&[("system", "a"), ("origin", "b"), ("generator-1", "c")]));
    check_layouts(&alone, &alone).unwrap();
    let others = on(&[("system", "x"), ("origin", "y"), ("generator-1", "z")]);
    check_layouts(&hosts, &others).unwrap();
    let error = check_layouts(&alone, &hosts).unwrap_err().to_string();
    assert!(
        error.contains("on one machine, the new one on hosts of their own (system,"),
        "{error}"
    );
    let more = on(&[("system", "a"), ("origin", "b"), ("generator-1", "c"), ("generator-2", "d")]);
    assert!(check_layouts(&hosts, &more).unwrap_err().to_string().contains("--across-layouts"));
}

#[test]
fn names_what_only_one_run_has() {
    let mut old = priced(&[10; 6], &[20; 6]);
    old.manifest.experiment.cases.push(case("search"));
    let new =
        run(&["nginx", "light"], [blocks("nginx", &[10; 6]), blocks("light", &[20; 6])].concat());
    let comparison = compared(&old, &new);
    assert_eq!(
        comparison.missing,
        [
            "only the old run has the case search",
            "only the old run has the subject full",
            "only the new run has the subject light",
        ]
    );
    assert!(!comparison.has_changes());
    let text = render(&comparison, Screen::PLAIN);
    assert!(text.contains("No subject has a price in both runs."), "{text}");
}

#[test]
fn fingerprint_ignores_seed_and_time() {
    let old = priced(&[10; 6], &[20; 6]);
    let mut new = priced(&[10; 6], &[20; 6]);
    new.manifest.seed = 8;
    "2027-01-02T03:04:05Z".clone_into(&mut new.manifest.started_at);
    new.manifest.command.push("--quick".to_owned());
    assert_eq!(compared(&old, &new).fingerprint, []);
}

#[test]
fn lists_every_difference_of_fingerprints() {
    let old = priced(&[10; 6], &[20; 6]);
    let mut new = priced(&[10; 6], &[20; 6]);
    let manifest = &mut new.manifest;
    "0.2.0 (89abcde)".clone_into(&mut manifest.tollgate);
    "Linux 6.2.0 x86_64".clone_into(&mut manifest.environment.kernel);
    manifest.environment.governor = Some("performance".to_owned());
    manifest.cpu_layout.system = vec![2];
    manifest.experiment.mixes = BTreeMap::from([("pages.toml".to_owned(), "other".to_owned())]);
    manifest.experiment.cases[0].load.arrivals = CaseArrivals::Closed { connections: 60 };
    let SubjectState::Present { installed, configs, referenced } =
        &mut manifest.experiment.subjects[1].state
    else {
        panic!("not present");
    };
    installed.version = vec!["nginx/1.27".to_owned()];
    installed.hashes.insert("/usr/sbin/nginx".into(), "ab".repeat(32));
    configs.insert("nginx.conf".to_owned(), "cd".repeat(32));
    referenced.insert("/etc/rules.conf".into(), "ef".repeat(32));
    let comparison = compared(&old, &new);
    let lines: Vec<&str> = comparison.fingerprint.iter().map(|line| line.what.as_str()).collect();
    assert_eq!(
        lines,
        [
            "case browse, load, arrivals, closed, connections",
            "case browse, mix",
            "layout, system",
            "machine, governor",
            "machine, kernel",
            "subject full, config nginx.conf",
            "subject full, program /usr/sbin/nginx",
            "subject full, rules /etc/rules.conf",
            "subject full, version",
            "tollgate",
        ]
    );
    let kernel = &comparison.fingerprint[4];
    assert_eq!(kernel.old.as_deref(), Some("Linux 6.1.0 x86_64"));
    assert_eq!(kernel.new.as_deref(), Some("Linux 6.2.0 x86_64"));
    let text = render(&comparison, Screen::PLAIN);
    assert!(text.contains("Warning: the runs differ"), "{text}");
    assert!(text.contains("\nmachine, governor: nothing, now performance\n"), "{text}");
    assert!(text.contains("program /usr/sbin/nginx: nothing, now abababababab\n"), "{text}");
}

#[test]
fn fingerprint_describes_the_warm_up() {
    let warmed_up = |warm_up: WarmUp| {
        let mut run = priced(&[10; 6], &[20; 6]);
        run.manifest.experiment.cases[0].load.warm_up = warm_up;
        run
    };
    let fixed = |ms| warmed_up(WarmUp::For(Duration::from_millis(ms)));
    let steady_in = |s| warmed_up(WarmUp::Steady { within: Duration::from_secs(s) });
    let differences = |old: &RunRecords, new: &RunRecords| {
        let lines = compared(old, new).fingerprint;
        let texts = |line: &Line| {
            [Some(line.what.clone()), line.old.clone(), line.new.clone()].map(Option::unwrap)
        };
        lines.iter().map(texts).collect::<Vec<_>>()
    };
    let steady = "until steady, at most 2s";
    assert_eq!(
        differences(&fixed(100), &steady_in(2)),
        [["case browse, load, warm_up", "100ms", steady]]
    );
    // The limit of one is the duration of the other.
    assert_eq!(
        differences(&steady_in(2), &fixed(2_000)),
        [["case browse, load, warm_up", steady, "2s"]]
    );
    assert_eq!(differences(&steady_in(2), &steady_in(2)), [[""; 3]; 0]);
}

#[test]
fn comparison_as_table_markdown_and_json() {
    let (old, new) = (priced(&[10; 6], &[20; 6]), priced(&[10; 6], &[30, 30, 30, 40, 40, 40]));
    let comparison = compared(&old, &new);
    let table = render(&comparison, Screen::PLAIN);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(
        table.contains("\nfull          1.73 [1.50, 2.00]      6      6  costs more\n"),
        "{table}"
    );
    let flat = flat(&table);
    assert!(
        flat.contains("costs more or less than before, the same within 2 %, or not settled."),
        "{table}"
    );
    assert!(
        flat.starts_with(
            "What does it cost? Runs: old started 2026-01-02T03:04:05Z by tollgate 0.1.0 (0123456) on 2 x"
        ),
        "{table}"
    );
    let markdown = render_markdown(&comparison);
    assert!(
        markdown.contains("| full | 1.73 \\[1.50, 2.00\\] | 6 | 6 | costs more |"),
        "{markdown}"
    );
    let json = serde_json::to_value(&comparison).unwrap();
    let change = &json["cases"][0]["subjects"][1]["changes"]["cpu_us_per_request"];
    assert_eq!(change["verdict"], "costs-more");
    assert_eq!((&change["n_old"], &change["n_new"]), (&6.into(), &6.into()));
    assert_eq!(json["schema"], 2);
}

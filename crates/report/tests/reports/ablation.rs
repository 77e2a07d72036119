//! Ablation: the cost of each file of a rule set.

use crate::records::{CASE, costing, markdown, measured, run, table, template};
use tollgate_records::manifest::{AblatedFile, Ablation};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::trial::{Measurement, ProbeOutcome, TemplateRecord, TrialRecord};
use tollgate_report::analysis::{AblationFigures, analyse};
use tollgate_report::export::ablation_csv;
use tollgate_stats::Verdict;
use tollgate_traffic::Class;

/// Eight blocks of a subject; its probe found `blocked` templates blocked.
fn trials(subject: &str, cpu_us: u64, blocked: &[&str]) -> Vec<TrialRecord> {
    let named = |name: &str, class| TemplateRecord {
        name: name.to_owned(),
        probe: Some(if blocked.contains(&name) {
            ProbeOutcome::Blocked
        } else {
            ProbeOutcome::Passed
        }),
        ..template(class, if blocked.contains(&name) { 10 } else { 0 }, 10)
    };
    let templates = vec![
        named("page", Class::Benign),
        named("search", Class::Benign),
        named("xss", Class::Malicious),
        named("sql", Class::Malicious),
    ];
    let measurement = || Measurement { templates: templates.clone(), ..costing(cpu_us) };
    (1..=8).map(|block| measured(subject, block, measurement())).collect()
}

fn file(name: &str, kept: Option<&str>, exceptions: usize) -> AblatedFile {
    AblatedFile {
        file: format!("{name}.conf"),
        subject: kept.is_none().then(|| format!("without-{name}")),
        kept_reason: kept.map(str::to_owned),
        exceptions,
    }
}

/// 1,000 µs with all rules; the file `sql` takes 200 of them, `xss` 100, and `log` 10.
fn ablated() -> RunRecords {
    let all = ["search", "xss", "sql"];
    let mut run = run(
        &["full", "without-log", "without-xss", "without-sql", "without-all"],
        [
            trials("full", 1_000, &all),
            trials("without-log", 990, &all),
            trials("without-xss", 900, &["sql"]),
            trials("without-sql", 800, &["search", "xss"]),
            trials("without-all", 650, &[]),
        ]
        .concat(),
    );
    run.manifest.experiment.stop.blocks = 8;
    run.manifest.experiment.ablation = Some(Ablation {
        subject: "full".to_owned(),
        rule_set: "OWASP CRS".to_owned(),
        files: vec![
            file("start", Some("2 other files read what it alone sets, such as tx.level"), 0),
            file("log", None, 0),
            file("xss", None, 7),
            file("sql", None, 0),
        ],
        without_all: Some("without-all".to_owned()),
    });
    run
}

fn figures(run: &RunRecords) -> AblationFigures {
    analyse(run).cases[0].ablation.clone().unwrap()
}

#[test]
fn cost_of_a_file_is_whole_minus_rest() {
    let figures = figures(&ablated());
    let files: Vec<&str> = figures.files.iter().map(|file| file.file.as_str()).collect();
    assert_eq!(files, ["sql.conf", "xss.conf", "log.conf"]);
    let price = figures.files[0].price.unwrap();
    assert_eq!((price.n, price.cpu_us.estimate), (8, 200.0));
    let share = price.share.unwrap();
    assert!((share.estimate - 0.2).abs() < 1e-12 && share.low <= share.high, "{share:?}");
    assert_eq!(price.verdict, Some(Verdict::CostsMore));
    // 1 % is within the margin of 2 %.
    assert_eq!(figures.files[2].price.unwrap().verdict, Some(Verdict::Same));
    let all = figures.all.unwrap();
    assert_eq!((all.file.as_str(), all.exceptions), ("all 3 together", 7));
    assert_eq!(all.price.unwrap().cpu_us.estimate, 350.0);
    assert_eq!(figures.kept[0].file, "start.conf");
}

#[test]
fn names_requests_blocked_only_by_a_file() {
    let figures = figures(&ablated());
    let [sql, xss, log] = &figures.files[..] else { panic!("three files: {figures:?}") };
    assert_eq!((sql.attacks.join(" "), sql.benign.join(" ")), ("sql".into(), String::new()));
    assert_eq!((xss.attacks.join(" "), xss.benign.join(" ")), ("xss".into(), "search".into()));
    assert!(log.attacks.is_empty() && log.benign.is_empty());
    assert_eq!(figures.all.unwrap().attacks, ["xss", "sql"]);
}

#[test]
fn ignores_requests_blocked_by_some_probe() {
    let mut run = ablated();
    let trial = run.trials.iter_mut().find(|trial| trial.subject == "without-sql").unwrap();
    *trial = trials("without-sql", 800, &["sql"]).swap_remove(0);
    assert_eq!(figures(&run).files[0].attacks, [""; 0]);
    // Without a probe of a subject, nothing is known.
    run.trials.retain(|trial| trial.subject != "without-xss");
    let figures = figures(&run);
    let xss = figures.files.iter().find(|file| file.file == "xss.conf").unwrap();
    assert!(xss.attacks.is_empty() && xss.price.is_none());
}

#[test]
fn headline_names_the_most_expensive_files() {
    let mut run = ablated();
    assert_eq!(
        analyse(&run).answer,
        "full costs 1000 µs of CPU per request, of which sql costs 200 µs (20.0 %), and xss costs 100 µs \
         (10.0 %)."
    );
    run.trials.retain(|trial| trial.block <= 3);
    assert_eq!(
        analyse(&run).answer,
        "full costs 1000 µs of CPU per request; no file of OWASP CRS has a significant cost yet (highest so \
         far: sql costs 200 µs (20.0 %)) (n too small for an interval)."
    );
    run.trials.retain(|trial| trial.subject != "full");
    assert_eq!(analyse(&run).answer, "There is no price, because full has no valid trial.");
}

#[test]
fn all_formats_contain_the_files() {
    let run = ablated();
    insta::assert_snapshot!("ablation_table", table(&run));
    let markdown = markdown(&run);
    let row = "| sql | 200 \\[184, 200\\] | 20.0 \\[18.4, 20.0\\] | 8 | more | 1 | 0 |";
    assert!(markdown.contains(row), "{markdown}");
    let csv = ablation_csv(&analyse(&run)).unwrap().unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 6, "{csv}");
    assert!(lines[1].starts_with(&format!("{CASE},sql.conf,without-sql,8,200,184.0")), "{csv}");
    assert!(lines[5].contains("start.conf") && lines[5].contains("such as tx.level"), "{csv}");
    // A run without ablation has no such file.
    let mut whole = ablated();
    whole.manifest.experiment.ablation = None;
    assert_eq!(ablation_csv(&analyse(&whole)).unwrap(), None);
}

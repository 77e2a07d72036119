//! CSV and JSON, literally.

use crate::records::{
    MIB, blocks, costing, measured, refused, report, run, set_state, template, without_processes,
};
use serde_json::{Value, json};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::subject::{Missing, SubjectState};
use tollgate_records::trial::TemplateRecord;
use tollgate_records::validity::Invalid;
use tollgate_report::Format;
use tollgate_traffic::Class;

const HEADER: &str = "case,subject,baseline,status,metric,n,ratio,ratio_low,ratio_high,\
                      difference,difference_low,difference_high,interval";

fn csv(run: &RunRecords) -> String {
    report(run, Format::Csv)
}

fn json(run: &RunRecords) -> Value {
    let text = report(run, Format::Json);
    assert!(text.ends_with("}\n"));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn csv_has_one_line_per_price() {
    // Powers of two, whose logarithms are exact.
    let mut full = costing(20);
    full.throughput_per_s = 500.0;
    full.latency.p99_ms = None;
    full.memory_peak_bytes = Some(16 * MIB);
    let full = (1..=6).map(|block| measured("full", block, full.clone()));
    let trials = blocks("nginx", &[10; 6]).into_iter().chain(full).collect();
    let lines = [
        HEADER,
        "browse,nginx,nginx,baseline,,,,,,,,,",
        "browse,full,nginx,measured,cpu_us_per_request,6,2,1.9138755980861246,2,10,9.138755980861246,10,95 % interval",
        "browse,full,nginx,measured,throughput_per_s,6,0.5,0.5,0.5,-500,-500,-500,95 % interval",
        "browse,full,nginx,measured,latency_mean_ms,6,1,1,1,0,0,0,95 % interval",
        "browse,full,nginx,measured,latency_min_ms,6,1,1,1,0,0,0,95 % interval",
        "browse,full,nginx,measured,latency_p50_ms,6,1,1,1,0,0,0,95 % interval",
        "browse,full,nginx,measured,latency_p90_ms,6,1,1,1,0,0,0,95 % interval",
        "browse,full,nginx,measured,latency_max_ms,6,1,1,1,0,0,0,95 % interval",
        "browse,full,nginx,measured,memory_peak_bytes,6,2,2,2,8388608,8388608,8388608,95 % interval",
        "",
    ];
    assert_eq!(csv(&run(&["nginx", "full"], trials)), lines.join("\n"));
}

#[test]
fn csv_has_the_number_of_blocks_behind_each_price() {
    let few = (1..=8).map(|block| {
        let mut full = costing(20);
        if block > 5 {
            full.latency.p50_ms = None;
        }
        measured("full", block, full)
    });
    let text =
        csv(&run(&["nginx", "full"], blocks("nginx", &[10; 8]).into_iter().chain(few).collect()));
    let line = |metric: &str| text.lines().find(|line| line.contains(metric)).unwrap().to_owned();
    assert!(
        line("cpu_us_per_request").starts_with("browse,full,nginx,measured,cpu_us_per_request,8,")
    );
    assert!(line("cpu_us_per_request").ends_with(",95 % interval"));
    assert!(line("latency_p50_ms").starts_with("browse,full,nginx,measured,latency_p50_ms,5,"));
    assert!(line("latency_p50_ms").ends_with(",range"));
}

#[test]
fn csv_distinguishes_intervals_from_ranges() {
    let direct = (1..=2).map(|block| measured("direct", block, without_processes()));
    let trials = blocks("nginx", &[10, 30]).into_iter().chain(direct).collect();
    let text = csv(&run(&["nginx", "direct"], trials));
    assert_eq!(
        text.lines().nth(2).unwrap(),
        "browse,direct,nginx,measured,cpu_us_per_request,2,,,,-20,-30,-10,range"
    );
}

#[test]
fn csv_keeps_subjects_without_a_price() {
    let names = ["nginx", "refused", "skipped", "broken", "never"];
    let trials = [blocks("nginx", &[10; 6]), vec![refused("refused", 1, "xss got 200")]].concat();
    let mut run = run(&names, trials);
    let missing = Missing { message: "no program `nginx`".to_owned(), hint: None };
    set_state(&mut run, "skipped", SubjectState::Skipped { missing });
    set_state(&mut run, "broken", SubjectState::Broken { reason: "why".to_owned() });
    let lines = [
        HEADER,
        "browse,nginx,nginx,baseline,,,,,,,,,",
        "browse,refused,nginx,refused,,,,,,,,,",
        "browse,skipped,nginx,skipped,,,,,,,,,",
        "browse,broken,nginx,failed,,,,,,,,,",
        "browse,never,nginx,not run,,,,,,,,,",
        "",
    ];
    assert_eq!(csv(&run), lines.join("\n"));
}

#[test]
fn csv_quotes_special_characters() {
    let mut run = run(&["nginx"], vec![]);
    run.manifest.experiment.cases[0].name = "a,\"b\"".to_owned();
    assert_eq!(csv(&run).lines().nth(1).unwrap(), "\"a,\"\"b\"\"\",nginx,nginx,not run,,,,,,,,,");
}

#[test]
fn json_holds_everything_unrounded() {
    let trials = [blocks("nginx", &[16; 6]), blocks("full", &[32; 6])].concat();
    let report = json(&run(&["nginx", "full"], trials));
    assert_eq!(report["schema"], json!(4));
    assert_eq!((&report["run_status"], &report["ended_by"]), (&json!("settled"), &json!("blocks")));
    assert_eq!(report["title"], json!("What does it cost?"));
    assert_eq!(report["baseline"], json!("nginx"));
    assert_eq!(report["seed"], json!(7));
    assert_eq!(report["command"], json!("tollgate run first-look --seed 7"));
    assert_eq!(report["machine"], json!("2 x Example CPU, Linux 6.1.0 x86_64, bare metal"));
    let case = &report["cases"][0];
    assert_eq!(
        (&case["name"], &case["load"]["arrivals"]["closed"]["connections"]),
        (&json!("browse"), &json!(50))
    );
    let (nginx, full) = (&case["subjects"][0], &case["subjects"][1]);
    assert_eq!(nginx["name"], json!("nginx"));
    assert_eq!(nginx["prices"], json!({}));
    assert_eq!(nginx["figures"]["cpu_us_per_request"], json!(16.0));
    assert_eq!(full["about"], json!("what full is"));
    assert_eq!(full["status"], json!("measured"));
    assert_eq!(full["figures"]["bottleneck"], json!("system"));
    assert_eq!(
        full["prices"]["cpu_us_per_request"],
        json!({
            "n": 6,
            // Lower by 0.09 of the baseline, a systematic error: 2 / (1 + 0.09 / 2), and 16 less the difference.
            "ratio": {"estimate": 2.0, "low": 2.0 / 1.045, "high": 2.0, "interval": true},
            "difference": {"estimate": 16.0, "low": 16.0 - 16.0 * (2.0 - 2.0 / 1.045), "high": 16.0, "interval": true},
            "verdict": "costs-more",
        })
    );
}

#[test]
fn json_counts_blocked_and_passed_requests_by_template() {
    let named = |name: &str, class, blocked, answered| TemplateRecord {
        name: name.to_owned(),
        ..template(class, blocked, answered)
    };
    let mut first = costing(10);
    first.templates =
        vec![named("xss", Class::Malicious, 9, 10), named("page", Class::Benign, 0, 40)];
    first.templates[0].unexpected = 1;
    let mut second = first.clone();
    second.templates =
        vec![named("xss", Class::Malicious, 1, 30), named("page", Class::Benign, 2, 60)];
    // Trials that are invalid because of their responses count here.
    second.invalid = vec![Invalid::NoResponse];
    let trials =
        vec![measured("nginx", 1, first), measured("nginx", 2, second), refused("full", 1, "no")];
    let report = json(&run(&["nginx", "full"], trials));
    let subjects = &report["cases"][0]["subjects"];
    assert_eq!(
        subjects[0]["templates"],
        json!([
            {"name": "xss", "class": "malicious", "weight": 1, "verdict": "unstable",
             "responses": 40, "blocked": 10, "passed": 30, "other": 0, "unexpected": 1,
             "probes_blocked": 0, "probes_passed": 0},
            {"name": "page", "class": "benign", "weight": 1, "verdict": "unstable",
             "responses": 100, "blocked": 2, "passed": 98, "other": 0, "unexpected": 0,
             "probes_blocked": 0, "probes_passed": 0},
        ])
    );
    assert_eq!(subjects[0]["figures"]["detection_rate"], json!(0.25));
    assert_eq!(subjects[1]["templates"], json!([]));
}

#[test]
fn json_has_the_reason_for_missing_figures() {
    let mut run = run(&["nginx", "full"], vec![refused("nginx", 1, "xss got 200")]);
    let hint = Some("apt-get install -y nginx".to_owned());
    let missing = Missing { message: "no program `nginx`".to_owned(), hint };
    set_state(&mut run, "full", SubjectState::Skipped { missing });
    let report = json(&run);
    let [nginx, full] = [0, 1].map(|index| &report["cases"][0]["subjects"][index]);
    assert_eq!((&nginx["status"], &nginx["reason"]), (&json!("refused"), &json!("xss got 200")));
    assert_eq!(nginx["invalid"], json!({"xss got 200": 1}));
    assert_eq!(nginx["figures"], Value::Null);
    assert_eq!(full["status"], json!("skipped"));
    assert_eq!(
        full["reason"],
        json!({"message": "no program `nginx`", "hint": "apt-get install -y nginx"})
    );
}

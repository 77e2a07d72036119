//! Thresholds: pass, fail or not settled, by the interval and never by the estimate.

use crate::records::{
    DRIFT, MIB, assert_close, blocks, case, costing, drifting, measured, refused, run, template,
};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::subject::{Missing, SubjectState};
use tollgate_records::trial::{Bottleneck, Measurement, TemplateRecord};
use tollgate_records::validity::Invalid;
use tollgate_report::junit;
use tollgate_report::source::ReportSource;
use tollgate_report::threshold::{
    Judged, Threshold, ThresholdOutcome, overall, render, render_markdown,
};
use tollgate_stats::text::Screen;
use tollgate_traffic::Class;

/// Judges a threshold in the only case of the run.
fn judged(run: &RunRecords, text: &str) -> Judged {
    let mut all = text.parse::<Threshold>().unwrap().judge(&ReportSource::from(run.clone()));
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

#[track_caller]
fn assert_outcomes(run: &RunRecords, expected: &[(&str, ThresholdOutcome)]) {
    for (text, outcome) in expected {
        let judged = judged(run, text);
        assert_eq!(judged.outcome, *outcome, "{judged:?}");
    }
}

#[test]
fn ends_of_the_interval_decide() {
    // The ratios are 1, 2, 4, 8, 16, 32; with six blocks, the interval is the whole range.
    let run = run(&["nginx", "full"], [blocks("nginx", &[10; 6]), blocks("full", &DRIFT)].concat());
    assert_outcomes(
        &run,
        &[
            ("cpu(full/nginx)<33", ThresholdOutcome::Pass),
            ("cpu(full/nginx)<31", ThresholdOutcome::NotSettled),
            ("cpu(full/nginx)<0.9", ThresholdOutcome::Fail),
            ("cpu(full/nginx)>0.9", ThresholdOutcome::Pass),
            ("cpu(full/nginx)>1.1", ThresholdOutcome::NotSettled),
            ("cpu(full/nginx)>33", ThresholdOutcome::Fail),
        ],
    );
    let judged = judged(&run, "cpu(full/nginx)<31");
    let value = judged.value.unwrap();
    assert_close(value.estimate, 32.0_f64.sqrt());
    assert_close(value.high, 32.0);
    assert_eq!(judged.n, 6);
    assert!(judged.note.unwrap().contains("the interval contains the limit"));
}

#[test]
fn equality_satisfies_only_inclusive_relations() {
    // Figures and shares without spread are exact; ratios are not, because of logarithms.
    let run = run(&["nginx"], blocks("nginx", &[10; 6]));
    assert_outcomes(
        &run,
        &[
            ("cpu(nginx)<=10us", ThresholdOutcome::Pass),
            ("cpu(nginx)<10us", ThresholdOutcome::Fail),
            ("cpu(nginx)>=10us", ThresholdOutcome::Pass),
            ("cpu(nginx)>10us", ThresholdOutcome::Fail),
            ("false_positives(nginx)<=0%", ThresholdOutcome::Pass),
            ("false_positives(nginx)>0%", ThresholdOutcome::Fail),
        ],
    );
}

#[test]
fn any_two_subjects_are_paired_by_block() {
    let trials = [drifting("nginx", 1), drifting("light", 2), drifting("full", 3)].concat();
    let run = run(&["nginx", "light", "full"], trials);
    let judged = judged(&run, "cpu(full/light)<1.51");
    assert_eq!(judged.outcome, ThresholdOutcome::Pass);
    assert_close(judged.value.unwrap().high, 1.5);
    // The systematic error of 0.05 of light's CPU could explain the last 3 %.
    assert_outcomes(
        &run,
        &[
            ("cpu(full/light)<149%", ThresholdOutcome::NotSettled),
            ("cpu(full/light)<145%", ThresholdOutcome::Fail),
        ],
    );
}

#[test]
fn invalid_trials_are_left_out() {
    let mut trials = [drifting("nginx", 1), drifting("full", 3)].concat();
    let mut invalid = costing(5_000);
    invalid.invalid = vec![Invalid::NoResponse];
    trials.push(measured("nginx", 7, costing(10)));
    trials.push(measured("full", 7, invalid));
    let judged = judged(&run(&["nginx", "full"], trials), "cpu(full/nginx)<3.01");
    assert_eq!((judged.outcome, judged.n), (ThresholdOutcome::Pass, 6));
}

#[test]
fn fewer_than_six_blocks_settle_nothing() {
    let trials = [blocks("nginx", &[10; 5]), blocks("full", &[30; 5])].concat();
    let run = run(&["nginx", "full"], trials);
    for text in
        ["cpu(full/nginx)<100", "cpu(full/nginx)<2", "cpu(full)<1", "detection_rate(full)>=0%"]
    {
        let judged = judged(&run, text);
        assert_eq!(judged.outcome, ThresholdOutcome::NotSettled, "{text}");
        let note = judged.note.unwrap();
        assert!(note.contains("fewer than 6 blocks") || note.contains("no attack"), "{note}");
    }
}

#[test]
fn invalid_trials_that_leave_too_few_blocks_are_named() {
    let invalid = Measurement { invalid: vec![Invalid::NoResponse], ..costing(30) };
    let invalid = (3..=6).map(|block| measured("full", block, invalid.clone())).collect();
    let trials = [blocks("nginx", &[10; 6]), blocks("full", &[30; 2]), invalid].concat();
    let judged = judged(&run(&["nginx", "full"], trials), "cpu(full/nginx)<100");
    assert_eq!((judged.outcome, judged.n), (ThresholdOutcome::NotSettled, 2));
    assert_eq!(
        judged.note.unwrap(),
        "fewer than 6 valid blocks give no 95 % interval; invalid: 4 trials (no response was received)"
    );
}

#[test]
fn metrics_are_in_their_units() {
    let run = run(&["nginx"], blocks("nginx", &[10; 6]));
    for (text, value) in [
        ("cpu(nginx)<11", 10.0),
        ("throughput(nginx)>999", 1_000.0),
        ("p50(nginx)<1.1ms", 1.0),
        ("p99(nginx)<3100us", 3.0),
        ("mean(nginx)<0.0016s", 1.5),
        ("memory(nginx)<8.5MiB", 8.0 * f64::from(u32::try_from(MIB).unwrap())),
        ("startup(nginx)<31", 30.0),
        ("false_positives(nginx)<1%", 0.0),
    ] {
        let judged = judged(&run, text);
        assert_eq!(judged.outcome, ThresholdOutcome::Pass, "{judged:?}");
        assert_close(judged.value.unwrap().estimate, value);
    }
}

#[test]
fn one_missed_attack_counts() {
    // One of 20 attacks in one of twelve blocks was missed: 239 of 240.
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
            ("detection_rate(full)>=100%", ThresholdOutcome::NotSettled),
            ("detection_rate(full)>=90%", ThresholdOutcome::Pass),
            ("detection_rate(full)<90%", ThresholdOutcome::Fail),
        ],
    );
    assert_close(judged(&run, "detection_rate(full)>=100%").value.unwrap().estimate, 239.0 / 240.0);
}

#[test]
fn throughput_limited_by_another_role_is_a_bound() {
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
            // At least 1,000.
            ("throughput(nginx)>900", ThresholdOutcome::Pass),
            ("throughput(nginx)<1100", ThresholdOutcome::NotSettled),
            ("throughput(nginx)<900", ThresholdOutcome::Fail),
            // At most 1.
            ("throughput(full/nginx)<1.1", ThresholdOutcome::Pass),
            ("throughput(full/nginx)>0.9", ThresholdOutcome::NotSettled),
            ("throughput(full/nginx)>1.1", ThresholdOutcome::Fail),
            // Other figures are not affected.
            ("cpu(nginx)<11", ThresholdOutcome::Pass),
        ],
    );
    let note = judged(&run, "throughput(full/nginx)>0.9").note.unwrap();
    assert_eq!(note, "the CPU of nginx was not the bottleneck, so the value is an upper bound");
}

#[test]
fn missing_values_have_a_reason() {
    let mut refused_twice = run(
        &["nginx", "full"],
        [blocks("nginx", &[10; 6]), vec![refused("full", 1, "it lets attacks through")]].concat(),
    );
    let judged_full = judged(&refused_twice, "cpu(full/nginx)<60");
    assert_eq!((judged_full.outcome, judged_full.n), (ThresholdOutcome::NotSettled, 0));
    assert_eq!(judged_full.note.unwrap(), "full was refused: it lets attacks through");

    let missing = Missing { message: "no program `nginx`".to_owned(), hint: None };
    refused_twice.trials.pop();
    refused_twice.manifest.experiment.subjects[1].state = SubjectState::Skipped { missing };
    let note = judged(&refused_twice, "cpu(full)<60").note.unwrap();
    assert_eq!(note, "full was skipped: no program `nginx`");

    let zero = [blocks("nginx", &[10; 6]), blocks("direct", &[0; 6])].concat();
    let zero = judged(&run(&["nginx", "direct"], zero), "cpu(nginx/direct)<60");
    let expected = "no ratio, because cpu of nginx or direct is zero or missing";
    assert_eq!(
        (zero.outcome, zero.note.as_deref()),
        (ThresholdOutcome::NotSettled, Some(expected))
    );

    // There were responses, but none shows whether the request was blocked.
    for (class, text, expected) in [
        (Class::Malicious, "detection_rate(nginx)>=99%", "no attack was blocked or passed"),
        (Class::Benign, "false_positives(nginx)<=1%", "no benign request was blocked or passed"),
    ] {
        let mut measurement = costing(10);
        let none = TemplateRecord { passed: 0, ..template(class, 0, 20) };
        measurement.templates = vec![none];
        let run = run(&["nginx"], vec![measured("nginx", 1, measurement)]);
        assert_eq!(judged(&run, text).note.as_deref(), Some(expected));
    }
}

#[test]
fn applies_to_every_case_by_default() {
    let mut trials = [blocks("nginx", &[10; 6]), blocks("full", &[30; 6])].concat();
    let mut second = [blocks("nginx", &[10; 6]), blocks("full", &[50; 6])].concat();
    second.iter_mut().for_each(|trial| "search".clone_into(&mut trial.case));
    trials.extend(second);
    let mut run = run(&["nginx", "full"], trials);
    run.manifest.experiment.cases.push(case("search"));
    let outcomes = |text: &str| {
        let judged = text.parse::<Threshold>().unwrap().judge(&ReportSource::from(run.clone()));
        let each: Vec<(String, ThresholdOutcome)> =
            judged.iter().map(|judged| (judged.case.clone(), judged.outcome)).collect();
        (each, overall(&judged))
    };
    let (each, all) = outcomes("cpu(full/nginx)<4");
    assert_eq!(
        each,
        [
            ("browse".to_owned(), ThresholdOutcome::Pass),
            ("search".to_owned(), ThresholdOutcome::Fail)
        ]
    );
    assert_eq!(all, ThresholdOutcome::Fail);
    let (each, all) = outcomes("cpu(full/nginx @ browse)<4");
    assert_eq!((each.len(), all), (1, ThresholdOutcome::Pass));
}

#[test]
fn overall_outcome_is_the_worst() {
    let run = run(&["nginx", "full"], [blocks("nginx", &[10; 6]), blocks("full", &DRIFT)].concat());
    let (pass, open, fail) = (
        judged(&run, "cpu(full/nginx)<33"),
        judged(&run, "cpu(full/nginx)<4"),
        judged(&run, "cpu(full/nginx)<0.9"),
    );
    assert_eq!(overall(&[pass.clone(), open.clone(), fail]), ThresholdOutcome::Fail);
    assert_eq!(overall(&[pass.clone(), open]), ThresholdOutcome::NotSettled);
    assert_eq!(overall(&[pass]), ThresholdOutcome::Pass);
    assert_eq!(overall(&[]), ThresholdOutcome::Pass);
}

#[test]
fn renders_a_table_with_notes() {
    let trials = [blocks("nginx", &[10; 6]), blocks("full", &[30, 30, 30, 30, 30, 60])].concat();
    let run = run(&["nginx", "full"], trials);
    let thresholds = ["cpu(full/nginx)<7", "memory(full)<4MiB", "p99(full)<5ms", "cpu(full)<40us"];
    let judged: Vec<Judged> = thresholds.iter().map(|text| judged(&run, text)).collect();
    assert_eq!(
        render(&judged, Screen::PLAIN),
        "\
threshold                   value [95 %]  n      outcome
────────────────────────────────────────────────────────
cpu(full/nginx)<7    3.00 [2.88, 6.00] ×  6         pass
memory(full)<4MiB  8.00 [8.00, 8.00] MiB  6         fail
p99(full)<5ms       3.00 [3.00, 3.00] ms  6         pass
cpu(full)<40us      30.0 [30.0, 60.0] µs  6  not settled

cpu(full)<40us: the interval contains the limit; more --blocks narrow it.
"
    );
    let markdown = render_markdown(&judged[3..]);
    assert!(markdown.contains("| cpu(full)\\<40us | 30.0 \\[30.0, 60.0\\] µs | 6 | not settled |"));
    assert!(
        markdown.contains("\n- cpu(full)\\<40us: the interval contains the limit"),
        "{markdown}"
    );
}

#[test]
fn interval_of_a_change_decides() {
    let priced = |full: &[u64; 6]| {
        let trials = [blocks("nginx", &[10; 6]), blocks("full", full)].concat();
        ReportSource::from(run(&["nginx", "full"], trials))
    };
    // Prices 2, then 3 and 4: the change is 1.73 from 1.5 to 2.
    let (old, new) = (priced(&[20; 6]), priced(&[30, 30, 30, 40, 40, 40]));
    let judged = |text: &str| {
        let threshold = Threshold::of_change(text).unwrap();
        let mut all = threshold.judge_change(&old, &new);
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0)
    };
    for (text, outcome) in [
        ("cpu(full)<201%", ThresholdOutcome::Pass),
        ("cpu(full/nginx)<2.01", ThresholdOutcome::Pass),
        ("cpu(full)<1.9", ThresholdOutcome::NotSettled),
        ("cpu(full)<1.4", ThresholdOutcome::Fail),
        // The price of nginx over full falls.
        ("cpu(nginx/full)<0.7", ThresholdOutcome::Pass),
        ("startup(full)<1.4", ThresholdOutcome::Pass),
    ] {
        assert_eq!(judged(text).outcome, outcome, "{text}: {:?}", judged(text));
    }
    let value = judged("cpu(full)<3").value.unwrap();
    assert_close(value.low, 1.5);
    assert_close(value.high, 2.0);
    let text = render(&[judged("cpu(full)<3")], Screen::PLAIN);
    assert!(text.contains("1.73 [1.50, 2.00] ×"), "{text}");
    let error = Threshold::of_change("detection_rate(full)>1").unwrap_err().to_string();
    assert!(error.contains("unknown metric `detection_rate`"), "{error}");
    let error = Threshold::of_change("cpu(nginx)<2").unwrap().check_change("nginx").unwrap_err();
    assert!(error.to_string().contains("the price of the baseline `nginx` is always 1"), "{error}");
}

#[test]
fn thresholds_and_goals_take_the_same_quantiles() {
    let mut run = run(&["nginx"], blocks("nginx", &[10; 6]));
    for trial in &mut run.trials {
        if let tollgate_records::trial::TrialOutcome::Measured(measurement) = &mut trial.outcome {
            measurement.latency.p95_ms = Some(4.0);
            measurement.latency.p999_ms = None;
        }
    }
    let p95 = judged(&run, "p95(nginx)<5ms");
    assert_eq!(p95.outcome, ThresholdOutcome::Pass, "{p95:?}");
    let rare = judged(&run, "p99.9(nginx)<5ms");
    assert_eq!(rare.note.unwrap(), "too few requests per trial for p99.9");
}

#[test]
fn junit_has_a_test_case_per_threshold_and_case() {
    let mut trials =
        [blocks("nginx", &[10; 6]), blocks("full", &[30, 30, 30, 30, 30, 60])].concat();
    trials.push(refused("light", 1, "no <rules>"));
    let mut second = blocks("nginx", &[10; 6]);
    second.iter_mut().for_each(|trial| "search".clone_into(&mut trial.case));
    trials.extend(second);
    let mut run = run(&["nginx", "full", "light"], trials);
    run.manifest.experiment.cases.push(case("search"));
    let source = ReportSource::from(run);
    let thresholds = [
        "p99(full @ browse)<5ms",
        "memory(nginx)<4MiB",
        "cpu(full @ browse)<40us",
        "cpu(light/nginx @ browse)<9",
    ];
    let judged: Vec<Judged> = thresholds
        .iter()
        .flat_map(|text| text.parse::<Threshold>().unwrap().judge(&source))
        .collect();
    let expected = "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites name=\"Cost &amp; &quot;catch&quot;\u{fffd}\" tests=\"5\" failures=\"2\" errors=\"1\" skipped=\"1\">
  <testsuite name=\"browse\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\">
    <testcase classname=\"browse.full\" name=\"p99(full @ browse)&lt;5ms\">
      <system-out>3.00 [3.00, 3.00] ms, 6 blocks</system-out>
    </testcase>
    <testcase classname=\"browse.nginx\" name=\"memory(nginx)&lt;4MiB\">
      <failure message=\"8.00 [8.00, 8.00] MiB, 6 blocks\" type=\"threshold\">8.00 [8.00, 8.00] MiB, 6 blocks</failure>
    </testcase>
    <testcase classname=\"browse.full\" name=\"cpu(full @ browse)&lt;40us\">
      <skipped message=\"30.0 [30.0, 60.0] µs, 6 blocks; the interval contains the limit; more --blocks narrow it\"/>
    </testcase>
    <testcase classname=\"browse.light\" name=\"cpu(light/nginx @ browse)&lt;9\">
      <error message=\"light was refused: no &lt;rules&gt;\" type=\"threshold\">light was refused: no &lt;rules&gt;</error>
    </testcase>
  </testsuite>
  <testsuite name=\"search\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\">
    <testcase classname=\"search.nginx\" name=\"memory(nginx)&lt;4MiB\">
      <failure message=\"8.00 [8.00, 8.00] MiB, 6 blocks\" type=\"threshold\">8.00 [8.00, 8.00] MiB, 6 blocks</failure>
    </testcase>
  </testsuite>
</testsuites>
";
    assert_eq!(junit::render("Cost & \"catch\"\u{1b}", &judged).unwrap(), expected);
}

#[test]
fn generator_cpu_is_that_of_the_sender() {
    // 3 µs per response of each, whatever the system costs.
    let trials = [blocks("nginx", &[10; 6]), blocks("full", &[30; 6])].concat();
    let run = run(&["nginx", "full"], trials);
    assert_outcomes(
        &run,
        &[
            ("generator_cpu(full)<3.1us", ThresholdOutcome::Pass),
            ("generator_cpu(full)<2900ns", ThresholdOutcome::Fail),
            ("generator_cpu(full/nginx)<=1.01", ThresholdOutcome::Pass),
            ("generator_cpu(full/nginx)>1.01", ThresholdOutcome::Fail),
        ],
    );
}

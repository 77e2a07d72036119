//! Notes on subjects and trials without figures, and on warm-ups.

use crate::records::{
    analysed, blocks, case, costing, failed, measured, refused, run, set_state, table,
};
use std::time::Duration;
use tollgate_records::case::ResponsesManifest;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::subject::{ExternalManifest, Missing, SubjectState};
use tollgate_records::trial::{ClientRecord, Measurement, TrialRecord, TrialStep, WarmUpRecord};
use tollgate_records::validity::{HeavyProcess, Invalid};
use tollgate_report::analysis::{RunStatus, SubjectStatus, analyse};
use tollgate_traffic::load_shape::{LoadProgram, WarmUp};

/// A measured baseline, and `full` with these trials.
fn with_full(trials: Vec<TrialRecord>) -> RunRecords {
    run(&["nginx", "full"], [blocks("nginx", &[10; 6]), trials].concat())
}

fn status(run: &RunRecords) -> SubjectStatus {
    analysed(run, "full").status
}

fn notes(run: &RunRecords) -> Vec<String> {
    analyse(run).notes
}

#[test]
fn no_note_if_all_blocks_were_measured() {
    let run = with_full(blocks("full", &[30; 6]));
    assert_eq!(status(&run), SubjectStatus::Measured);
    assert_eq!(analysed(&run, "nginx").status, SubjectStatus::Baseline);
    assert_eq!(notes(&run), [""; 0]);
}

#[test]
fn notes_why_a_subject_was_refused() {
    let run =
        with_full(vec![refused("full", 1, "xss got 200"), refused("full", 2, "sqli got 200")]);
    assert_eq!(status(&run), SubjectStatus::Refused("sqli got 200".to_owned()));
    assert_eq!(notes(&run), ["full was refused: sqli got 200."]);
    let full = analysed(&run, "full");
    assert_eq!((full.trials, full.figures), (2, None));
    assert!(full.prices.is_empty());
}

#[test]
fn notes_last_output_of_a_subject_that_did_not_start() {
    let log = ["nginx: loading", "nginx: no such module"];
    let run = with_full(vec![failed("full", 1, TrialStep::Start, "it ended with 1", &log)]);
    let reason = "it did not start: it ended with 1 (nginx: no such module)";
    assert_eq!(status(&run), SubjectStatus::Failed(reason.to_owned()));
    assert_eq!(notes(&run), [format!("full failed: {reason}.")]);
}

#[test]
fn only_failed_starts_have_their_last_output() {
    for (step, reason) in [
        (TrialStep::Configure, "it could not be configured: why"),
        (TrialStep::Origin, "the origin ended: why"),
        (TrialStep::Probe, "the probe failed: why"),
        (TrialStep::Load, "the load could not be sent: why"),
    ] {
        let run = with_full(vec![failed("full", 1, step, "why", &["a line about other things"])]);
        assert_eq!(status(&run), SubjectStatus::Failed(reason.to_owned()));
    }
    let run = with_full(vec![failed("full", 1, TrialStep::Start, "why", &[])]);
    assert_eq!(status(&run), SubjectStatus::Failed("it did not start: why".to_owned()));
}

#[test]
fn notes_how_to_install_a_missing_subject() {
    let mut run = with_full(vec![]);
    let hint = Some("apt-get install -y nginx".to_owned());
    let missing = Missing { message: "no program `nginx`".to_owned(), hint };
    set_state(&mut run, "full", SubjectState::Skipped { missing: missing.clone() });
    assert_eq!(status(&run), SubjectStatus::Skipped(missing));
    assert_eq!(
        notes(&run),
        ["full was skipped: no program `nginx`. To fix this:\n    apt-get install -y nginx"]
    );
}

#[test]
fn a_subject_whose_config_cannot_be_made_is_failed() {
    let mut run = with_full(vec![]);
    let reason = "undefined value in nginx.conf:3".to_owned();
    set_state(&mut run, "full", SubjectState::Broken { reason: reason.clone() });
    assert_eq!(status(&run), SubjectStatus::Failed(reason));
    assert_eq!(notes(&run), ["full failed: undefined value in nginx.conf:3."]);
}

#[test]
fn distinguishes_a_subject_without_trials() {
    let run = with_full(vec![]);
    assert_eq!(status(&run), SubjectStatus::Missing);
    assert_eq!(notes(&run), ["full: the run ended before its first trial."]);
}

#[test]
fn counts_invalid_trials_by_reason() {
    let invalid = |block, invalid: Vec<Invalid>| {
        let mut measurement = costing(30);
        measurement.invalid = invalid;
        measured("full", block, measurement)
    };
    let mut trials = blocks("full", &[30; 2]);
    // Trials that break the same rule with different figures are counted together.
    trials.push(invalid(3, vec![Invalid::Steal { percent: 7.0, limit_percent: 5.0 }]));
    let background = Invalid::BackgroundCpu {
        percent: 12.0,
        limit_percent: 10.0,
        heaviest: Some(HeavyProcess {
            name: "rustc".to_owned(),
            pid: 77,
            is_subject: true,
            percent: 11.4,
        }),
    };
    trials.push(invalid(4, vec![Invalid::Steal { percent: 9.5, limit_percent: 5.0 }, background]));
    trials.push(failed("full", 5, TrialStep::Start, "the port was taken", &[]));
    trials.push(refused("full", 6, "xss got 200"));
    let run = with_full(trials);
    assert_eq!(status(&run), SubjectStatus::Measured);
    assert_eq!(
        notes(&run),
        [
            "The process that disturbed a trial most was `rustc` (pid 77), with 11 % of the CPUs, the subject itself: \
             measure it with `attach`, or move it to other CPUs.",
            "full: 1 of 6 trials is invalid: it did not start: the port was taken.",
            "full: 1 of 6 trials is invalid: other processes took more than 10 % of the CPUs (limit `background_cpu`).",
            "full: 2 of 6 trials are invalid: the hypervisor took more than 5 % of the CPUs (limit `steal`).",
            "full: 1 of 6 trials is invalid: xss got 200.",
        ]
    );
    assert_eq!(analysed(&run, "full").figures.unwrap().n, 2);
}

#[test]
fn a_baseline_that_failed_leaves_the_others_without_a_price() {
    let trials =
        [vec![failed("nginx", 1, TrialStep::Start, "why", &[])], blocks("full", &[30; 6])].concat();
    let run = run(&["nginx", "full"], trials);
    assert_eq!(
        analysed(&run, "nginx").status,
        SubjectStatus::Failed("it did not start: why".to_owned())
    );
    let full = analysed(&run, "full");
    assert_eq!(full.status, SubjectStatus::Measured);
    assert_eq!(full.figures.unwrap().cpu_us_per_request, Some(30.0));
    assert!(full.prices.is_empty());
}

#[test]
fn notes_an_incomplete_last_record_first() {
    let mut run = with_full(vec![]);
    run.cut_off = true;
    assert_eq!(
        notes(&run),
        [
            "The last record is incomplete and was ignored.",
            "full: the run ended before its first trial.",
        ]
    );
}

fn warmed_up(subject: &str, block: u32, duration_s: f64, steady: Option<bool>) -> TrialRecord {
    let warm_up = Some(WarmUpRecord { duration_s, steady });
    measured(subject, block, Measurement { warm_up, ..costing(10) })
}

fn until_steady(trials: Vec<TrialRecord>) -> RunRecords {
    let mut run = run(&["nginx", "full"], trials);
    run.manifest.experiment.stop.blocks = 2;
    let case = &mut run.manifest.experiment.cases[0];
    case.load.warm_up = WarmUp::Steady { within: Duration::from_secs(10) };
    run
}

const STEADY: Option<bool> = Some(true);

#[test]
fn notes_warm_up_durations() {
    let mut run = until_steady(vec![
        warmed_up("nginx", 1, 1.0, STEADY),
        warmed_up("full", 1, 2.5, STEADY),
        warmed_up("nginx", 2, 1.0, STEADY),
        warmed_up("full", 2, 1.25, STEADY),
    ]);
    let expected = "Warm-up until steady, at most 10.0 s: nginx 1.00 s, full 1.25 to 2.50 s.";
    assert_eq!(analyse(&run).notes, [expected]);
    run.manifest.experiment.cases.push(case("other"));
    assert_eq!(analyse(&run).notes[0], expected.replace("10.0 s:", "10.0 s (browse):"));
}

#[test]
fn share_of_receive_work_is_over_all_trials() {
    let trial = |subject, block, softirq_us| {
        let mut measurement = costing(10);
        let all_us = measurement.cpu.system.unwrap().total_us();
        measurement.cpu.system_softirq_us = Some(all_us * softirq_us / 100);
        measured(subject, block, measurement)
    };
    let subjects = ["nginx", "full"];
    let trials = || {
        let all = [("nginx", 1, 30), ("full", 1, 0), ("nginx", 2, 40), ("full", 2, 4)];
        all.map(|(subject, block, percent)| trial(subject, block, percent)).to_vec()
    };
    let mut two_blocks = run(&subjects, trials());
    two_blocks.manifest.experiment.stop.blocks = 2;
    let expected = "Softirqs on the CPU of the system, over loopback also the receive work of client and origin, as a \
                    share of the CPU time of its processes (above 100 % where the CPU was mostly idle): nginx 35 %, full 2 %.";
    assert_eq!(analyse(&two_blocks).notes, [expected]);
    // A trial of an earlier version lacks it.
    two_blocks.trials[2] = measured("nginx", 2, costing(10));
    assert_eq!(analyse(&two_blocks).notes, [expected.replace("nginx 35 %, ", "")]);
}

#[test]
fn counts_trials_that_were_not_steady() {
    let mut measurement = costing(10);
    measurement.invalid = vec![Invalid::NoResponse];
    measurement.warm_up = Some(WarmUpRecord { duration_s: 10.0, steady: Some(false) });
    let run = until_steady(vec![
        warmed_up("nginx", 1, 1.0, STEADY),
        warmed_up("full", 1, 10.0, Some(false)),
        warmed_up("nginx", 2, 1.0, STEADY),
        warmed_up("full", 2, 1.0, STEADY),
        measured("full", 3, measurement),
    ]);
    let expected = "full was not yet steady at the end of the warm-up in 1 of 2 trials; they are valid, but the \
                system may still have been getting faster or slower.";
    let notes = analyse(&run).notes;
    assert!(notes.contains(&expected.to_owned()), "{notes:?}");
    assert_eq!(notes.iter().filter(|note| note.contains("was not yet steady")).count(), 1);
}

#[test]
fn no_note_on_a_fixed_warm_up() {
    let trials =
        [1, 2].map(|block| ["nginx", "full"].map(|name| warmed_up(name, block, 0.4, None)));
    let mut run = until_steady(trials.concat());
    run.manifest.experiment.cases[0].load.warm_up = WarmUp::For(Duration::from_millis(400));
    assert_eq!(analyse(&run).notes, [""; 0]);
}

#[test]
fn unknown_cpu_is_in_the_headline_and_leaves_the_blocks_of_other_prices() {
    let mut unknown = costing(20);
    unknown.cpu.system = None;
    unknown.cpu.is_unknown = true;
    unknown.memory_peak_bytes = None;
    let hand = (1..=6).map(|block| measured("hand", block, unknown.clone())).collect();
    let trials = [blocks("nginx", &[10; 6]), blocks("full", &[40; 6]), hand].concat();
    let mut run = run(&["nginx", "full", "hand"], trials);
    run.manifest.experiment.subjects[2].external =
        Some(ExternalManifest { url: "http://127.0.0.1:81".to_owned(), attach: None });
    let answer = analyse(&run).answer;
    assert!(
        answer.ends_with(
            "(30.0 µs more per request); the CPU of hand was not measured (no `attach`)."
        ),
        "{answer}"
    );
    let text = table(&run);
    assert!(!text.contains("(n 6)") && !text.contains("(n k)"), "{text}");
}

/// Two servers of which only the address is known are judged by what a client sees.
#[test]
fn servers_without_cpu_are_judged_by_throughput() {
    let by_address = |responses: u64| {
        let mut unknown = costing(20);
        unknown.cpu.system = None;
        unknown.cpu.is_unknown = true;
        unknown.memory_peak_bytes = None;
        unknown.throughput_per_s = responses as f64;
        unknown
    };
    let trials = |name: &str, responses: u64| -> Vec<_> {
        let noise = [0, 3, 1, 4, 2, 5];
        let blocks = (1..).zip(noise);
        blocks.map(|(block, more)| measured(name, block, by_address(responses + more))).collect()
    };
    let compared = |responses: u64| {
        let trials = [trials("old", 10_000), trials("new", responses)].concat();
        let mut run = run(&["old", "new"], trials);
        for subject in &mut run.manifest.experiment.subjects {
            subject.external =
                Some(ExternalManifest { url: "http://127.0.0.1:81".to_owned(), attach: None });
        }
        analyse(&run)
    };
    let slower = compared(8_000);
    assert_eq!(slower.run_status, RunStatus::Settled);
    let start = "new has 0.800 times the requests/s of old. There is no price in CPU";
    assert!(slower.answer.starts_with(start), "{}", slower.answer);
    let equal = compared(10_000);
    assert!(
        equal.answer.starts_with("new has the requests/s of old within 2 %"),
        "{}",
        equal.answer
    );
}

#[test]
fn server_that_runs_already_is_noted_with_what_is_not_measured() {
    let external = |attach: Option<&str>| ExternalManifest {
        url: "http://127.0.0.1:81".to_owned(),
        attach: attach.map(str::to_owned),
    };
    let notes = |attach: Option<&str>, change: &dyn Fn(&mut Measurement)| {
        let mut measurement = costing(20);
        change(&mut measurement);
        let trials = vec![measured("nginx", 1, costing(10)), measured("hand", 1, measurement)];
        let mut run = run(&["nginx", "hand"], trials);
        run.manifest.experiment.subjects[1].external = Some(external(attach));
        let analysis = analyse(&run);
        let note = analysis.notes.iter().find(|note| note.contains("server that runs already"));
        (note.unwrap().clone(), analysed(&run, "hand").prices.len())
    };
    let (note, prices) = notes(None, &|measurement| {
        measurement.cpu.system = None;
        measurement.cpu.is_unknown = true;
        measurement.memory_peak_bytes = None;
    });
    assert!(
        note.starts_with("hand is a server that runs already, at http://127.0.0.1:81:"),
        "{note}"
    );
    assert!(note.ends_with("Not measured: start time, CPU, memory."), "{note}");
    // Neither CPU nor memory: not those of a subject without processes, which are 0.
    let (note_of_all, all) =
        notes(Some("pid 7"), &|measurement| measurement.attached_cpus = vec![0, 1]);
    assert_eq!(all, prices + 2);
    let end = "Not measured: start time. CPU is that of pid 7, which may use the CPUs 0, 1; the others have 1.";
    assert!(note_of_all.ends_with(end), "{note_of_all}");
    let (note, _) = notes(Some("pid 7"), &|measurement| {
        measurement.attached_cpus = vec![1];
        measurement.memory_peak_bytes = None;
    });
    let end = "start time, memory (no permission to read it). CPU is that of pid 7.";
    assert!(note.ends_with(end), "{note}");
}

#[test]
fn notes_foreign_clients_with_their_loads() {
    let client = ClientRecord {
        name: LoadProgram::Wrk,
        version: "wrk 4.1.0\u{1b}[31m".to_owned(),
        command: vec!["/usr/bin/wrk".to_owned()],
    };
    let sent = Measurement { client: Some(client), ..costing(30) };
    let run = with_full((1..=6).map(|block| measured("full", block, sent.clone())).collect());
    assert_eq!(
        notes(&run),
        [
            "wrk (`wrk 4.1.0 [31m`) sent the load of full in browse. Its responses, throughput and latency are those that it \
             printed; generator CPU is that of its whole process."
        ]
    );
}

#[test]
fn notes_that_the_origin_responds_as_recorded() {
    let mut run = with_full(blocks("full", &[30; 6]));
    let responses = ResponsesManifest { requests: 7, in_turn: 2, without_length: 1 };
    run.manifest.experiment.cases[0].responses = Some(responses);
    let expected = "browse: the origin responds to the 7 targets of the recording with their recorded status, length and type \
                    (without a type, that of the extension of the path); bodies are text of a page, or letters if their type \
                    is not text. 2 take turns with several responses. 1 response of unknown length: a line of text.";
    assert_eq!(notes(&run), [expected]);
}

//! Verdicts: the limit of a load, with the reason.

use super::*;

fn closed(summary: &Summary) -> LoadVerdict {
    LoadVerdict::new(&closed_loop(), summary)
}

fn open(summary: &Summary) -> LoadVerdict {
    LoadVerdict::new(&open_loop(Rate::Constant(1_000.0), Spacing::Constant), summary)
}

/// 10,000 requests of an open loop, `late` of them late by `late_ns` and the others by 1 us.
fn on_schedule(late: u64, late_ns: u64) -> Summary {
    let mut lateness = equal_times(1_000, 10_000 - late);
    lateness.record_n(late_ns, late);
    Summary { sent: 10_000, lateness: Some(lateness), ..summary() }
}

#[test]
fn nothing_without_a_response() {
    let silent = Summary { responses: 0, ..summary() };
    assert_eq!(closed(&silent).measured, Measured::Nothing);
    let verdict = open(&silent);
    assert_eq!(verdict.measured, Measured::Nothing);
    assert_eq!(verdict.reason, "no response received: check the failures");
    assert_eq!(verdict.warning, None);
    let hanging = Summary { failures: Failures::default(), ..silent };
    assert_eq!(open(&hanging).reason, "no response received");
}

#[test]
fn nothing_if_stopped_during_the_warm_up() {
    let warm_up = Progress { responses: 12_345, ..Progress::default() };
    let stopped = Summary { responses: 0, window: Duration::ZERO, warm_up, ..summary() };
    let verdict = closed(&stopped);
    assert_eq!(verdict.measured, Measured::Nothing);
    assert_eq!(verdict.reason, "stopped during the warm-up, after 12,345 responses");
}

#[test]
fn nothing_with_few_responses_or_a_short_window() {
    let with = |responses, window_ms| {
        closed(&Summary { responses, window: Duration::from_millis(window_ms), ..summary() })
    };
    for (responses, window_ms, measured) in
        [(100, 100, Measured::Server), (99, 100, Measured::Nothing), (100, 99, Measured::Nothing)]
    {
        assert_eq!(with(responses, window_ms).measured, measured);
    }
    assert_eq!(
        with(1, 20).reason,
        "too short to judge: 1 response in 20.0 ms, of 100 responses and 100 ms needed"
    );
}

#[test]
fn warning_above_one_percent_of_wrong_results() {
    let warning = |responses, unexpected, refused| {
        let failures = Failures { refused, ..Failures::default() };
        closed(&Summary { responses, unexpected, failures, ..summary() }).warning
    };
    // 10 of 1,000 are 1 %, 11 of 1,000 more.
    assert_eq!(warning(995, 5, 5), None);
    assert_eq!(
        warning(995, 6, 5).as_deref(),
        Some("1.1 % of the requests got no expected response: check the failures first")
    );
    assert!(warning(1_000, 0, 50_000).unwrap().starts_with("98.0 % of"));
}

#[test]
fn error_statuses_without_an_expectation_are_a_warning() {
    let with = |statuses: &[(u16, u64)]| {
        let responses = statuses.iter().map(|(_, count)| count).sum();
        let statuses = statuses.iter().copied().collect();
        let template = TemplateSummary { statuses, ..TemplateSummary::default() };
        let (templates, failures) = (vec![template], Failures::default());
        Summary { responses, unexpected: 0, failures, templates, ..summary() }
    };
    let warning = |statuses: &[(u16, u64)]| closed(&with(statuses)).warning;
    assert_eq!(warning(&[(200, 990), (404, 6), (500, 4)]), None);
    let share = "1.1 % of the responses were 4xx or 5xx: check the URL";
    assert_eq!(warning(&[(200, 989), (404, 6), (500, 5)]).as_deref(), Some(share));
    for statuses in [&[(404, 1_000)][..], &[(401, 500), (503, 500)]] {
        let warning = warning(statuses).unwrap();
        assert!(warning.starts_with("no response was 2xx or 3xx: "), "{warning}");
    }
    assert_eq!(warning(&[(302, 1_000)]), None);
    // An expected 404 is none of it.
    let expect = Expectation { status: Some(404), ..Expectation::default() };
    let workload = Workload::new(vec![Request { expect, ..get(0) }], vec![0]).unwrap();
    let plan = Plan { workload: Arc::new(workload), ..closed_loop() };
    let summary = with(&[(404, 1_000)]);
    assert_eq!(LoadVerdict::new(&plan, &summary).warning, None);
    assert_eq!(summary.error_responses(&plan.workload), [0, 0]);
    assert_eq!(summary.error_responses(&closed_loop().workload), [1_000, 0]);
}

#[test]
fn closed_loop_is_limited_by_a_saturated_thread() {
    let measured = |threads| closed(&Summary { threads, ..summary() }).measured;
    assert_eq!(measured(vec![thread(400, 400, 100, 1_000)]), Measured::Generator);
    assert_eq!(measured(vec![thread(400, 400, 99, 1_000)]), Measured::Server);
    let second = vec![thread(0, 10, 0, 1_000), thread(500, 0, 400, 1_000)];
    assert_eq!(measured(second), Measured::Generator);
    // An open loop is judged by its schedule.
    let busy = Summary { threads: vec![thread(500, 500, 0, 1_000)], ..on_schedule(0, 1) };
    assert_eq!(open(&busy).measured, Measured::Server);
}

#[test]
fn one_saturated_generator_limits_the_load() {
    let generator = |name: &str, summary| {
        let (name, clock_error) = (name.to_owned(), Duration::from_micros(20));
        GeneratorResult { name, summary, clock_error }
    };
    let fine = on_schedule(0, 1_000);
    let late = on_schedule(200, 5_000_000);
    let sum = Summary::sum([&fine, &fine, &fine, &late].map(Clone::clone));
    // The sum alone is on schedule: 200 of 40,000 are late.
    assert_eq!(open(&sum).measured, Measured::Server);
    let verdict = |generators: &[GeneratorResult]| {
        LoadVerdict::of_generators(
            &open_loop(Rate::Constant(1_000.0), Spacing::Constant),
            &sum,
            generators,
        )
    };
    let generators = [generator("a", fine.clone()), generator("b", late)];
    assert_eq!(verdict(&generators).measured, Measured::Generator);
    assert!(verdict(&generators).reason.starts_with("b: its lateness was"));
    assert_eq!(verdict(&generators[..1]).measured, Measured::Server);
}

#[test]
fn generator_is_judged_by_its_share_of_the_rate() {
    let reason = |rate: Rate| {
        LoadVerdict::of_part(&open_loop(rate, Spacing::Constant), 4, &on_schedule(0, 1_000)).reason
    };
    let constant = reason(Rate::Constant(1_000.0));
    assert!(constant.starts_with("250 requests/s were sent on schedule"), "{constant}");
    let (from_per_s, to_per_s) = (400.0, 800.0);
    let stage = RateStage { from_per_s, to_per_s, length: Duration::from_secs(1) };
    let stages = reason(Rate::Stages(vec![stage]));
    assert!(stages.starts_with("100 to 200 requests/s were sent"), "{stages}");
}

#[test]
fn open_loop_is_limited_by_a_late_generator() {
    for (late, late_ns, measured) in [
        (100, 5_000_000, Measured::Server),
        (101, 5_000_000, Measured::Generator),
        // Three digits, rounded up: a millisecond is 1,000,447 ns, which is above the limit.
        (101, 999_000, Measured::Server),
        (101, 1_001_000, Measured::Generator),
    ] {
        assert_eq!(open(&on_schedule(late, late_ns)).measured, measured, "{late} {late_ns}");
    }
}

#[test]
fn reason_has_the_lateness_of_the_table() {
    let sent = "1000 requests/s were sent on schedule";
    let reason = |summary: &Summary| open(summary).reason;
    assert_eq!(reason(&on_schedule(0, 1)), format!("{sent} (lateness p99 0.00100 ms)"));
    // With 901 requests there is no p99.
    let mut lateness = equal_times(1_000, 896);
    lateness.record_n(2_000, 5);
    let few = Summary { lateness: Some(lateness), ..on_schedule(0, 1) };
    assert_eq!(reason(&few), format!("{sent} (lateness max 0.00200 ms)"));
}

#[test]
fn open_loop_is_limited_by_connections_above_one_percent_queued() {
    let queued = |queued, unsent| Summary { queued, unsent, ..on_schedule(0, 1) };
    assert_eq!(open(&queued(100, 0)).measured, Measured::Server);
    assert_eq!(open(&queued(101, 0)).measured, Measured::Connections);
    assert_eq!(open(&queued(5_000, 9_000)).measured, Measured::Connections);
    // The share is of the requests due in the window, without those of a warm-up.
    let warmed_up = Summary { sent: 100_000, ..queued(5_000, 0) };
    assert!(open(&warmed_up).reason.starts_with("50.0 % of the requests"));
    // A saturated thread does not read the responses that would free its connections.
    let with = |thread| Summary { threads: vec![thread], ..queued(5_000, 0) };
    let verdict = open(&with(thread(500, 400, 0, 1_000)));
    assert_eq!(verdict.measured, Measured::Generator);
    let reason = "90.0 % of the time, and 50.0 % of the requests were due";
    assert!(verdict.reason.contains(reason), "{}", verdict.reason);
    assert_eq!(open(&with(thread(500, 399, 0, 1_000))).measured, Measured::Connections);
}

#[test]
fn open_loop_is_limited_by_the_generator_above_one_percent_unsent() {
    let unsent = |unsent| Summary { unsent, ..on_schedule(0, 1) };
    // 101 of 10,101 are just below 1 %, 102 of 10,102 just above.
    assert_eq!(open(&unsent(101)).measured, Measured::Server);
    assert_eq!(open(&unsent(102)).measured, Measured::Generator);
    assert!((unsent(102).unsent_share() - 102.0 / 10_102.0).abs() < 1e-12);
    let reason = "1.0 % of the requests were due, but not sent, though connections were free:";
    assert!(open(&unsent(102)).reason.starts_with(reason));
    let reason = open(&Summary { queued: 1, ..unsent(102) }).reason;
    let start = "1.0 % of the requests were due, but not sent: try";
    assert!(reason.starts_with(start), "{reason}");
}

#[test]
fn requests_that_got_no_response_are_named() {
    let ages = |stalled: u64| {
        let mut ages = equal_times(100_000, 50 - stalled);
        ages.record_n(9_000_000_000, stalled);
        Summary {
            in_flight: 50,
            in_flight_ages: Some(ages),
            oldest_in_flight: Some(Duration::from_secs(9)),
            failures: Failures::default(),
            ..on_schedule(0, 1)
        }
    };
    let warning = |stalled| LoadVerdict::new(&closed_loop(), &ages(stalled)).warning;
    assert_eq!(warning(5), None);
    let expected = "45 of 50 requests in flight at the end had waited for longer than the p99, the oldest for 9000 ms: \
                    the tail of the latency is a lower bound";
    assert_eq!(warning(45).as_deref(), Some(expected));
    // 45 of them among some ten thousand: the last 0.45 % of the distribution.
    let responses = ages(45).latency.count() as f64;
    let first_unknown = 1.0 - 45.0 / (responses + 45.0);
    assert!(ages(45).is_lower_bound(first_unknown + 1e-6) && ages(45).is_lower_bound(1.0));
    assert!(!ages(45).is_lower_bound(first_unknown - 1e-6) && !ages(0).is_lower_bound(1.0));
}

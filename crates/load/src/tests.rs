//! Verdicts and reports of results made by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::generate::Contract;
use serde_json::Value;
use tollgate_stats::LatencyHistogram;

use crate::format::{IntervalLine, LoadResult};
use crate::{schemas, *};

fn get(template: usize) -> Request {
    Request {
        bytes: b"GET /shop?page=2 HTTP/1.1\r\nHost: a\r\n\r\n"[..].into(),
        is_head: false,
        expect: Expectation::default(),
        template,
    }
}

/// A closed loop over ten connections for two seconds.
fn closed_loop() -> Plan {
    Plan {
        target: Target::Tcp(([127, 0, 0, 1], 8080).into()),
        workload: Arc::new(Workload::new(vec![get(0)], vec![0]).unwrap()),
        arrivals: Arrivals::Closed,
        connections: 10,
        connections_max: 10,
        timer_slack: Duration::ZERO,
        threads: 1,
        tls: None,
        protocol: Protocol::Http1 { pipeline: 1 },
        keep_alive: true,
        connect_timeout: Duration::from_secs(5),
        response_timeout: Duration::from_secs(10),
        requests: None,
        warm_up: false,
        series: None,
        handshakes: false,
        replay: None,
        first_byte: false,
        busy_poll: false,
        cpus: vec![],
        shard: Shard::WHOLE,
    }
}

fn open_loop(per_second: f64, spacing: Spacing) -> Plan {
    Plan { arrivals: Arrivals::Open { rate: Rate::Constant(per_second), spacing }, ..closed_loop() }
}

/// 1,000 to 10,000 us, each multiple of 10 us once: 901 latencies with a median of 5,500 us.
fn latencies() -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    for us in (1_000..=10_000).step_by(10) {
        histogram.record(us * 1_000);
    }
    histogram
}

fn equal_times(ns: u64, count: u64) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    histogram.record_n(ns, count);
    histogram
}

/// Two seconds with 901 responses, three of them unexpected, and nine failures.
fn summary() -> Summary {
    Summary {
        window: Duration::from_secs(2),
        sent: 917,
        responses: 901,
        unexpected: 3,
        unexpected_example: Some("502 instead of 200".to_owned()),
        failures: Failures {
            refused: 2,
            reset: 1,
            response_timeout: 4,
            malformed: 2,
            malformed_example: Some("the status line has no version".to_owned()),
            ..Failures::default()
        },
        in_flight: 7,
        oldest_in_flight: Some(Duration::from_micros(12_500)),
        templates: vec![TemplateSummary {
            statuses: BTreeMap::from([(200, 898), (502, 3)]),
            unexpected: 3,
            unexpected_example: Some("502 instead of 200".to_owned()),
            latency: latencies(),
        }],
        latency: latencies(),
        connect_time: equal_times(200_000, 10),
        threads: vec![thread(300, 500, 20, 2_000)],
        bytes_received: 135_150,
        bytes_sent: 90_100,
        body_bytes: 4_505,
        connects: 10,
        kept_alive: 900,
        first_head: b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nContent-Length: 5\r\n\r\n"
            .to_vec(),
        ..Summary::default()
    }
}

/// The same of an open loop over a benign template and an attack: 20 requests unsent, 30 queued, sent
/// 50 us late.
fn open_summary() -> Summary {
    let benign = TemplateSummary {
        statuses: BTreeMap::from([(200, 848), (502, 3)]),
        ..summary().templates.remove(0)
    };
    let attack = TemplateSummary {
        statuses: BTreeMap::from([(403, 50)]),
        latency: equal_times(1_500_000, 50),
        ..TemplateSummary::default()
    };
    Summary {
        unsent: 20,
        oldest_unsent: Some(Duration::from_millis(8)),
        queued: 30,
        uncorrected_latency: Some(equal_times(2_000_000, 901)),
        lateness: Some(equal_times(50_000, 917)),
        templates: vec![benign, attack],
        ..summary()
    }
}

fn thread(user_ms: u64, system_ms: u64, waited_ms: u64, window_ms: u64) -> ThreadUsage {
    let [user, system, waited, window] =
        [user_ms, system_ms, waited_ms, window_ms].map(Duration::from_millis);
    ThreadUsage { user, system, waited, polled: Duration::ZERO, window }
}

fn label(name: &str, class: Option<&str>) -> TemplateLabel {
    TemplateLabel { name: name.to_owned(), class: class.map(str::to_owned) }
}

/// A plan and its result, which a report borrows.
struct Example {
    plan: Plan,
    templates: Vec<TemplateLabel>,
    mix: Option<&'static str>,
    summary: Summary,
}

impl Example {
    fn closed(summary: Summary) -> Self {
        let templates = vec![label("GET /shop?page=2", None)];
        Self { plan: closed_loop(), templates, mix: None, summary }
    }

    fn open(summary: Summary) -> Self {
        let templates = vec![label("page", Some("benign")), label("attack", Some("malicious"))];
        let plan = open_loop(5_000.0, Spacing::Poisson { seed: 1 });
        let plan = Plan { connections: 50, connections_max: 50, ..plan };
        Self { plan, templates, mix: Some("browser-headers"), summary }
    }

    fn report(&self) -> Report<'_> {
        Report {
            url: "http://127.0.0.1:8080/shop?page=2",
            hostname: "127.0.0.1",
            port: 8080,
            path: "/shop?page=2",
            plan: &self.plan,
            duration: Some(Duration::from_secs(2)),
            seed: 1,
            mix: self.mix,
            templates: &self.templates,
            warm_up: WarmUpResult::default(),
            is_interrupted: false,
            summary: &self.summary,
            generators: &[],
        }
    }

    fn table(&self) -> String {
        self.report().to_table().unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.report().to_json().unwrap()).unwrap()
    }
}

#[test]
fn closed_loops_over_streams_coalesce_unless_they_poll_or_wait_for_windows() {
    let workload = |body_bytes: usize| {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {body_bytes}\r\n\r\n");
        let bytes = [head.as_bytes(), &vec![b'x'; body_bytes]].concat().into();
        let workload = Workload::new(vec![Request { bytes, ..get(0) }], vec![0]).unwrap();
        workload.render_http2().unwrap();
        Arc::new(workload)
    };
    let plan = |streams: usize, body_bytes: usize| Plan {
        protocol: Protocol::Http2 { streams },
        workload: workload(body_bytes),
        ..closed_loop()
    };
    assert!(plan(2, 0).coalesces());
    assert!(plan(10, 6_553).coalesces());
    assert!(!plan(10, 6_554).coalesces());
    assert!(!plan(1, 0).coalesces());
    assert!(!Plan { protocol: Protocol::Http1 { pipeline: 2 }, ..plan(2, 0) }.coalesces());
    assert!(!Plan { busy_poll: true, ..plan(2, 0) }.coalesces());
    let arrivals = open_loop(100.0, Spacing::Constant).arrivals;
    assert!(!Plan { arrivals, ..plan(2, 0) }.coalesces());
}

mod verdict {
    use super::*;

    fn closed(summary: &Summary) -> Verdict {
        Verdict::new(&closed_loop(), summary)
    }

    fn open(summary: &Summary) -> Verdict {
        Verdict::new(&open_loop(1_000.0, Spacing::Constant), summary)
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
        for (responses, window_ms, measured) in [
            (100, 100, Measured::Server),
            (99, 100, Measured::Nothing),
            (100, 99, Measured::Nothing),
        ] {
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
        assert_eq!(Verdict::new(&plan, &summary).warning, None);
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
            Verdict::of_generators(&open_loop(1_000.0, Spacing::Constant), &sum, generators)
        };
        let generators = [generator("a", fine.clone()), generator("b", late)];
        assert_eq!(verdict(&generators).measured, Measured::Generator);
        assert!(verdict(&generators).reason.starts_with("b: its lateness was"));
        assert_eq!(verdict(&generators[..1]).measured, Measured::Server);
    }

    #[test]
    fn generator_is_judged_by_its_share_of_the_rate() {
        let reason = |rate: Rate| {
            let arrivals = Arrivals::Open { rate, spacing: Spacing::Constant };
            let plan = Plan { arrivals, ..open_loop(1_000.0, Spacing::Constant) };
            Verdict::of_part(&plan, 4, &on_schedule(0, 1_000)).reason
        };
        let constant = reason(Rate::Constant(1_000.0));
        assert!(constant.starts_with("250 requests/s were sent on schedule"), "{constant}");
        let (from_per_s, to_per_s) = (400.0, 800.0);
        let stage = Stage { from_per_s, to_per_s, length: Duration::from_secs(1) };
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
        // The slack is no lateness.
        let timer_slack = Duration::from_millis(2);
        let plan = Plan { timer_slack, ..open_loop(1_000.0, Spacing::Constant) };
        let measured = |late_ns| Verdict::new(&plan, &on_schedule(101, late_ns)).measured;
        assert_eq!(measured(2_990_000), Measured::Server);
        assert_eq!(measured(3_010_000), Measured::Generator);
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
}

mod json {
    use super::*;

    #[test]
    fn committed_schemas_are_those_of_the_types() {
        schemas::check::<LoadResult<'_>>("load-result", Contract::Serialize);
        schemas::check::<IntervalLine>("load-interval", Contract::Serialize);
    }

    #[test]
    fn every_field_is_required_by_the_schema() {
        let schema = schemas::of::<LoadResult<'_>>(Contract::Serialize).to_value();
        let required = schema["required"].as_array().unwrap();
        let result = Example::closed(summary()).json();
        assert_eq!(result["first_byte"], Value::Null);
        for field in result.as_object().unwrap().keys() {
            assert!(required.contains(&Value::from(field.as_str())), "{field}");
        }
        assert_eq!(required.len(), result.as_object().unwrap().len());
    }

    #[test]
    fn figures_are_those_of_the_summary() {
        let result = Example::closed(summary()).json();
        let expected = serde_json::json!({
            "schema": 4, "url": "http://127.0.0.1:8080/shop?page=2", "target": "127.0.0.1:8080",
            "window_s": 2.0, "throughput_per_s": 450.5, "interrupted": false,
            "sent": 917, "responses": 901, "failed": 9, "in_flight": 7, "unexpected": 3,
            "statuses": {"200": 898, "502": 3}, "oldest_in_flight_ms": 12.5,
            "oldest_unsent_ms": null, "unexpected_example": "502 instead of 200", "classes": [],
        });
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(result[field], *value, "{field}");
        }
        assert_eq!(result["failures"]["response_timeout"], 4);
        let thread = &result["threads"][0];
        assert_eq!((&thread["user_us"], &thread["busy"]), (&300_000.into(), &0.41.into()));
        assert_eq!(result["templates"][0]["name"], "GET /shop?page=2");
        let load = &result["load"];
        assert_eq!((&load["loop"], &load["arrivals"]), (&"closed".into(), &Value::Null));
        assert_eq!((&load["requests"], &load["duration_s"]), (&Value::Null, &2.0.into()));
        assert_eq!(
            (&load["timeout_ms"], &load["timer_slack_ms"]),
            (&10_000.0.into(), &Value::Null)
        );
        let stopped = Summary { window: Duration::ZERO, ..summary() };
        assert_eq!(Example::closed(stopped).json()["throughput_per_s"], Value::Null);
    }

    #[test]
    fn classes_are_the_sums_of_their_templates() {
        let result = Example::open(open_summary()).json();
        assert_eq!(result["load"]["arrivals"], "poisson");
        let classes = result["classes"].as_array().unwrap();
        let figures = |class: &Value| {
            let names = class["class"].as_str().unwrap().to_owned();
            (names, class["responses"].as_u64().unwrap(), class["unexpected"].as_u64().unwrap())
        };
        let classes: Vec<_> = classes.iter().map(figures).collect();
        assert_eq!(classes, [("benign".to_owned(), 851, 3), ("malicious".to_owned(), 50, 0)]);
        assert_eq!(result["classes"][1]["latency"]["count"], 50);
    }
}

mod csv {
    use super::*;

    #[test]
    fn rows_for_the_total_each_class_and_each_template() {
        let text = Example::open(open_summary()).report().to_csv().unwrap();
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
        let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let labels: Vec<_> = rows.iter().map(|row| [&row[0], &row[1], &row[2]]).collect();
        assert_eq!(
            labels,
            [
                ["total", "http://127.0.0.1:8080/shop?page=2", ""],
                ["class", "benign", "benign"],
                ["class", "malicious", "malicious"],
                ["template", "page", "benign"],
                ["template", "attack", "malicious"],
            ]
        );
        let columns = "window_s throughput_per_s responses unexpected sent failed in_flight unsent \
            queued refused reset connect_timeout response_timeout closed_early malformed no_port other";
        let columns: Vec<&str> = columns.split_whitespace().collect();
        assert_eq!(names[3..20], columns);
        let total: Vec<&str> = rows[0].iter().skip(3).take(17).collect();
        let expected = "2 450.5 901 3 917 9 7 20 30 2 1 0 4 0 2 0 0";
        assert_eq!(total, expected.split_whitespace().collect::<Vec<_>>());
        let class: Vec<&str> = rows[2].iter().skip(3).take(6).collect();
        assert_eq!(class, ["2", "25", "50", "0", "", ""]);
        // 50 responses have a median and no p99.
        let column = |name| names.iter().position(|column| column == name).unwrap();
        assert_eq!(&rows[2][column("p50_ms")], "1.500159");
        assert_eq!(&rows[2][column("p99_ms")], "");
    }
}

mod ab {
    use super::*;

    #[test]
    fn report_has_the_lines_of_ab() {
        insta::assert_snapshot!(Example::closed(summary()).report().to_ab());
    }

    #[test]
    fn body_and_missing_keep_alive_have_their_lines() {
        // The bytes of 10,000 requests of a warm-up do not count.
        let mut example = Example::closed(Summary { sent: 10_917, ..summary() });
        let post = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na=1".to_vec();
        let length = post.len() as u64;
        let request = Request { bytes: post.into(), ..get(0) };
        example.plan.workload = Arc::new(Workload::new(vec![request], vec![0]).unwrap());
        example.plan.keep_alive = false;
        let text = example.report().to_ab();
        assert!(!text.contains("Keep-Alive requests:"), "{text}");
        let total = format!("\nTotal body sent:        {}\n", 910 * length);
        assert!(text.contains(&total), "{total}\n{text}");
        let kib_per_s = (910 * length) as f64 / 1024.0 / 2.0;
        assert!(text.contains(&format!(" {kib_per_s:.2} kb/s sent\n")), "{text}");
        assert!(text.contains(" kb/s total\n"), "{text}");
    }

    #[test]
    fn nothing_is_divided_by_zero_responses() {
        let text = Example::closed(Summary {
            responses: 0,
            latency: LatencyHistogram::new(),
            first_head: Vec::new(),
            ..summary()
        })
        .report()
        .to_ab();
        assert!(text.contains("Complete requests:      0\nFailed requests:        12\n"), "{text}");
        assert!(text.contains("Server Software:        \n"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

mod table {
    use tollgate_stats::text::COLUMNS;

    use super::*;

    #[test]
    fn closed_loop() {
        insta::assert_snapshot!(Example::closed(summary()).table());
    }

    #[test]
    fn open_loop_over_a_mix() {
        let example = Example::open(open_summary());
        let warm_up = WarmUpResult { duration: Duration::from_millis(1_400), steady: Some(true) };
        insta::assert_snapshot!(Report { warm_up, ..example.report() }.to_table().unwrap());
    }

    #[test]
    fn no_response() {
        insta::assert_snapshot!(
            Example::closed(Summary {
                responses: 0,
                unexpected: 0,
                unexpected_example: None,
                latency: LatencyHistogram::new(),
                templates: vec![],
                ..summary()
            })
            .table()
        );
    }

    #[test]
    fn rare_conditions_have_lines() {
        let mut example =
            Example::closed(Summary { force_closed: 1_800, missing_timestamps: 3, ..summary() });
        example.plan.timer_slack = Duration::from_micros(2_500);
        example.plan.arrivals = open_loop_arrivals();
        let text = Report { is_interrupted: true, ..example.report() }.to_table().unwrap();
        for line in [
            "open loop: 5000/s, up to 2.50 ms late, 10 connections, 1 thread, 2.00 s",
            "force-closed    1800 connections that the server left open",
            "interrupted     stopped before its end",
            "no timestamp    3 responses: their latency is up to the slack too long",
        ] {
            assert!(text.contains(&format!("\n{line}")), "{line}\n{text}");
        }
    }

    fn open_loop_arrivals() -> Arrivals {
        Arrivals::Open { rate: Rate::Constant(5_000.0), spacing: Spacing::Constant }
    }

    #[test]
    fn stop_during_the_warm_up_has_no_rate() {
        let warm_up = Progress { responses: 700, ..Progress::default() };
        let text = Example::closed(Summary {
            window: Duration::ZERO,
            sent: 707,
            warm_up,
            responses: 0,
            unexpected: 0,
            failures: Failures::default(),
            latency: LatencyHistogram::new(),
            templates: vec![],
            ..summary()
        })
        .table();
        assert!(text.contains("\nresponses       0\n"), "{text}");
        let sent = "707 = 0 responses + 0 failed + 7 in flight + 700 finished in the";
        assert!(text.contains(&format!("\nsent            {sent}")), "{text}");
        assert!(text.contains("verdict         stopped during the warm-up, after 700"), "{text}");
    }

    #[test]
    fn replay_has_its_sessions() {
        let mut example = Example::open(Summary {
            replay: Some(ReplaySummary {
                planned: 937,
                sessions: 12,
                cookies: 30,
                rejected_cookies: 2,
                extractions: 11,
                failed_extractions: 1,
                failed_extraction_example: Some(
                    "`id` from POST /login: the body has no `/id`".to_owned(),
                ),
                awaited: 4,
                without_value: 3,
            }),
            ..open_summary()
        });
        let workload = Workload::new(vec![get(0)], vec![0]).unwrap();
        let events = vec![ReplayEvent { session: 0, request: 0 }; 937];
        let pace = Pace::Recorded { factor: 2.0 };
        let replay = Replay::new(&workload, events, Vec::new(), pace).unwrap();
        let times = (0..937).map(|number| number * 2_000_000).collect();
        example.plan = Plan {
            arrivals: Arrivals::Open { rate: Rate::Recorded(times), spacing: Spacing::Constant },
            replay: Some(Arc::new(replay)),
            connections: 1,
            connections_max: 1_000,
            ..example.plan
        };
        let text = example.table();
        for line in [
            "replay: x2, 500/s on average, up to 1000 connections, 1 thread, 2.00 s",
            "replay          937 planned, 917 sent",
            "sessions        12, with 30 cookies from responses",
            "extracted       11 values, 1 failed, first: `id` from POST /login: the body has",
            "rejected        2 cookies: invalid, or for another domain",
            "awaited         4 requests waited for a response with a variable",
            "no value        3 requests were sent without a value of a variable",
        ] {
            assert!(text.contains(&format!("\n{line}")), "{line}\n{text}");
        }
        let json = example.json();
        assert_eq!(json["load"]["pace"], "x2");
        assert_eq!(json["load"]["arrivals"], "recorded");
        assert_eq!(json["load"]["rate_per_s"], Value::Null);
        assert_eq!(json["replay"]["failed_extractions"], 1);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        example.summary = Summary { unsent: 0, queued: 0, ..example.summary };
        let reason = Verdict::new(&example.plan, &example.summary).reason;
        let start = "917 of 937 recorded requests were sent, on schedule (lateness";
        assert!(reason.starts_with(start), "{reason}");
        assert!(reason.ends_with("), but 4 waited for a variable"), "{reason}");
        let replay = Some(ReplaySummary { planned: 917, ..ReplaySummary::default() });
        example.summary = Summary { replay, ..example.summary };
        let reason = Verdict::new(&example.plan, &example.summary).reason;
        assert!(reason.starts_with("the recorded requests were sent on schedule"), "{reason}");
        assert!(reason.ends_with(')'), "{reason}");
    }

    #[test]
    fn unix_socket_is_named() {
        let mut example = Example::closed(summary());
        example.plan.target = Target::Unix("/run/shop.sock".into());
        let text = example.table();
        assert!(text.contains("\nthrough the socket /run/shop.sock\n"), "{text}");
        assert!(text.contains("2 refused: nothing listens on that socket"), "{text}");
    }

    #[test]
    fn busiest_of_many_threads_have_lines() {
        let threads = (0..10).map(|index| thread(index * 100, 0, 0, 1_000)).collect();
        let text = Example::closed(Summary { threads, ..summary() }).table();
        let lines: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("thread")).collect();
        // The first two, which used 0 and 10 %, have none.
        let third = "thread 3        20.0 % of a CPU (user 20.0 %, system 0 %, waited 0 %)";
        assert_eq!(lines[0], third, "{text}");
        assert!(lines[7].starts_with("thread 10       90.0 % of a CPU"), "{text}");
        assert_eq!(lines[8].trim_start(), "and 2 that used no more than these");
    }

    /// The largest figures of a day on a large machine.
    fn wide() -> Summary {
        let many = 1_234_567_890;
        let mut latency = equal_times(3_500_000_000_001, 100_000);
        latency.record_n(3_599_000_000_000, many);
        let summary = open_summary();
        let templates = summary.templates.iter().map(|template| TemplateSummary {
            statuses: (200..=211).map(|status| (status, many)).collect(),
            unexpected: many,
            latency: latency.clone(),
            ..template.clone()
        });
        Summary {
            sent: many,
            responses: many,
            unexpected: many / 2,
            queued: many,
            unsent: many,
            force_closed: many,
            templates: templates.collect(),
            lateness: Some(latency.clone()),
            uncorrected_latency: Some(latency.clone()),
            latency,
            failures: Failures {
                connect_timeout: many,
                no_port: many,
                other: many,
                other_example: Some("a word that ends here ".repeat(10)),
                ..summary.failures
            },
            ..summary
        }
    }

    #[test]
    fn lines_fit_a_terminal() {
        let mut widest = Example::open(wide());
        let spacing = Spacing::Poisson { seed: 1 };
        widest.plan.arrivals = Arrivals::Open { rate: Rate::Constant(9_999_999.5), spacing };
        (widest.plan.connections, widest.plan.connections_max) = (256, 20_000);
        (widest.plan.threads, widest.plan.keep_alive) = (256, false);
        let mut long_names = Example::open(wide());
        for template in &mut long_names.templates {
            template.name = "a product's page".repeat(10);
        }
        let mut closed_widest = Example::open(wide());
        closed_widest.plan = Plan {
            connections: 20_000,
            protocol: Protocol::Http1 { pipeline: 1_000 },
            ..super::closed_loop()
        };
        for example in [
            Example::closed(summary()),
            Example::open(open_summary()),
            widest,
            long_names,
            closed_widest,
        ] {
            let report = Report { seed: u64::MAX, ..example.report() };
            let text = report.to_table().unwrap();
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= COLUMNS, "{widest:?} in\n{text}");
        }
    }
}

//! Verdicts and reports of results made by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::generate::Contract;
use serde_json::Value;
use tollgate_stats::LatencyHistogram;
use tollgate_traffic::load_shape::{Clients, OpenLoop, Protocol, Spacing};

use crate::format::{IntervalLine, LoadResult};
use crate::{schemas, *};

mod table;
mod verdict;

fn get(template: usize) -> Request {
    Request { template, ..Request::get("/shop?page=2") }
}

/// A closed loop over ten connections for two seconds.
fn closed_loop() -> Plan {
    Plan {
        target: Target::Tcp(([127, 0, 0, 1], 8080).into()),
        workload: Arc::new(Workload::new(vec![get(0)], vec![0]).unwrap()),
        arrivals: Arrivals::Closed { connections: 10 },
        clients: Clients {
            protocol: Protocol::Http1 { pipeline: 1 },
            threads: 1,
            busy_poll: false,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        },
        phases: Phases::Endless,
        tls: None,
        series: None,
        first_byte: false,
        cpus: vec![],
        shard: Shard::WHOLE,
    }
}

/// A schedule over ten connections for two seconds.
fn open_loop(rate: Rate, spacing: Spacing) -> Plan {
    let schedule = OpenLoop { rate, spacing, connections: 10, connections_max: 10 };
    Plan { arrivals: Arrivals::Open { schedule, seed: 1 }, ..closed_loop() }
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
        first_headers: Some(
            [("Server", "nginx/1.22.1"), ("Content-Length", "5")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        ),
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
        let (rate, spacing) = (Rate::Constant(5_000.0), Spacing::Poisson);
        let schedule = OpenLoop { rate, spacing, connections: 50, connections_max: 50 };
        let plan = Plan { arrivals: Arrivals::Open { schedule, seed: 1 }, ..closed_loop() };
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
        let request = Request::parse(&(head + &"x".repeat(body_bytes)));
        Arc::new(Workload::new(vec![request], vec![0]).unwrap())
    };
    let plan = |protocol: Protocol, body_bytes: usize| Plan {
        clients: Clients { protocol, ..closed_loop().clients },
        workload: workload(body_bytes),
        ..closed_loop()
    };
    let http2 = |streams: usize, body_bytes: usize| plan(Protocol::Http2 { streams }, body_bytes);
    assert!(http2(2, 0).coalesces());
    assert!(http2(10, 6_553).coalesces());
    assert!(!http2(10, 6_554).coalesces());
    assert!(!http2(1, 0).coalesces());
    assert!(!plan(Protocol::Http1 { pipeline: 2 }, 0).coalesces());
    let mut polling = http2(2, 0);
    polling.clients.busy_poll = true;
    assert!(!polling.coalesces());
    let arrivals = open_loop(Rate::Constant(100.0), Spacing::Constant).arrivals;
    assert!(!Plan { arrivals, ..http2(2, 0) }.coalesces());
}

#[test]
fn spare_files_are_for_connections_that_close() {
    let mut plan = closed_loop();
    plan.arrivals = Arrivals::Closed { connections: 50 };
    // 50 connections, 32 of the program, 4 of the thread, and a connection that closes.
    assert_eq!(plan.open_files(), 87);
    assert_eq!(
        [0, 87, 88, 341, 342, 343].map(|max| plan.closing_max(max)),
        [1, 1, 2, 255, 256, 256]
    );
    plan.clients.threads = 2;
    assert_eq!(plan.open_files(), 92);
    assert_eq!([93, 94, 1_024].map(|max| plan.closing_max(max)), [1, 2, 256]);
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
        assert_eq!(load["timeout_ms"], 10_000.0);
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
        let request = Request::parse("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na=1");
        let length = request.message.bytes().len() as u64;
        example.plan.workload = Arc::new(Workload::new(vec![request], vec![0]).unwrap());
        example.plan.clients.protocol = Protocol::Http1Close;
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
            first_headers: None,
            ..summary()
        })
        .report()
        .to_ab();
        assert!(text.contains("Complete requests:      0\nFailed requests:        12\n"), "{text}");
        assert!(text.contains("Server Software:        \n"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

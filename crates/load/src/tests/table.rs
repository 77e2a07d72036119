//! The table of `tollgate load`.

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
    let mut example = Example::closed(Summary { force_closed: 1_800, ..summary() });
    example.plan = open_loop(Rate::Constant(5_000.0), Spacing::Constant);
    let text = Report { is_interrupted: true, ..example.report() }.to_table().unwrap();
    for line in [
        "open loop: 5000/s, 10 connections, 1 thread, 2.00 s",
        "force-closed    1800 connections that the server left open",
        "interrupted     stopped before its end",
    ] {
        assert!(text.contains(&format!("\n{line}")), "{line}\n{text}");
    }
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
        arrivals: Arrivals::Replay(ReplayPlan {
            replay: Arc::new(replay),
            rate: Rate::Recorded(times),
            connections_max: 1_000,
        }),
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
    let reason = LoadVerdict::new(&example.plan, &example.summary).reason;
    let start = "917 of 937 recorded requests were sent, on schedule (lateness";
    assert!(reason.starts_with(start), "{reason}");
    assert!(reason.ends_with("), but 4 waited for a variable"), "{reason}");
    let replay = Some(ReplaySummary { planned: 917, ..ReplaySummary::default() });
    example.summary = Summary { replay, ..example.summary };
    let reason = LoadVerdict::new(&example.plan, &example.summary).reason;
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
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("thread")).collect();
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
    let (rate, spacing) = (Rate::Constant(9_999_999.5), Spacing::Poisson);
    let schedule = OpenLoop { rate, spacing, connections: 256, connections_max: 20_000 };
    widest.plan.arrivals = Arrivals::Open { schedule, seed: 1 };
    widest.plan.clients.threads = 256;
    widest.plan.clients.protocol = Protocol::Http1Close;
    let mut long_names = Example::open(wide());
    for template in &mut long_names.templates {
        template.name = "a product's page".repeat(10);
    }
    let mut closed_widest = Example::open(wide());
    closed_widest.plan = super::closed_loop();
    closed_widest.plan.arrivals = Arrivals::Closed { connections: 20_000 };
    closed_widest.plan.clients.protocol = Protocol::Http1 { pipeline: 1_000 };
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

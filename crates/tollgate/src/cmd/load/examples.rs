//! Results made by hand, for the tests of what is printed.

use super::args::tests::args;
use super::course::Course;
use super::settings::Settings;
use super::warm_up::WarmedUp;
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_load::{Failures, Outcome, Progress, TemplateTally, ThreadUsage};
use tollgate_stats::LatencyHistogram;

/// A closed loop of ten connections for two seconds.
pub(super) fn closed_loop() -> Settings {
    settings("http://127.0.0.1:8080/shop?page=2 -c 10 -d 2s")
}

/// An open loop over a mix of one benign template and one attack.
pub(super) fn open_loop() -> Settings {
    settings(
        "http://127.0.0.1:8080/ --rate 5000 --poisson -d 2s --warmup steady --mix browser-headers",
    )
}

pub(super) fn settings(line: &str) -> Settings {
    Settings::of(&args(line), &Catalog::new(vec![])).unwrap()
}

/// A load that was delivered, without a warm-up.
pub(super) const COLD: Course =
    Course { warm_up: WarmedUp { lasted: Duration::ZERO, steady: None }, is_interrupted: false };

/// 1,000 to 10,000 us, each whole 10 us once: 901 latencies whose median is 5,500 us.
pub(super) fn latencies() -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    for us in (1_000..=10_000).step_by(10) {
        histogram.record(us * 1_000);
    }
    histogram
}

/// Two seconds of 901 answers, three of them not the expected ones, and nine failures.
pub(super) fn outcome() -> Outcome {
    let mut connect_time = LatencyHistogram::new();
    connect_time.record_n(200_000, 10);
    Outcome {
        window: Duration::from_secs(2),
        sent: 917,
        warm_up: Progress::default(),
        answered: 901,
        failures: Failures {
            refused: 2,
            reset: 1,
            answer_timeout: 4,
            malformed: 2,
            malformed_example: Some("the status line has no version".to_owned()),
            ..Failures::default()
        },
        unanswered: 7,
        oldest_unanswered: Some(Duration::from_micros(12_500)),
        overdue: 0,
        oldest_overdue: None,
        held: 0,
        missed_stamps: 0,
        resent: 0,
        unexpected: 3,
        templates: vec![TemplateTally {
            statuses: BTreeMap::from([(200, 898), (502, 3)]),
            unexpected: 3,
            unexpected_example: Some("502 instead of 200".to_owned()),
            latency: latencies(),
        }],
        latency: latencies(),
        latency_from_send: None,
        lateness: None,
        connect_time,
        first_byte: None,
        threads: vec![ThreadUsage {
            user: Duration::from_millis(300),
            system: Duration::from_millis(500),
            waited: Duration::from_millis(20),
            polled: Duration::ZERO,
            window: Duration::from_secs(2),
        }],
        bytes_received: 135_150,
        bytes_sent: 90_100,
        body_bytes: 4_505,
        connects: 10,
        cut_off: 0,
        kept_alive: 900,
        first_head: b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nContent-Length: 5\r\n\r\n"
            .to_vec(),
    }
}

/// The same of an open loop: 50 attacks blocked, 20 requests overdue, 30 held, sent by a generator
/// that was 50 us late.
pub(super) fn open_outcome() -> Outcome {
    let mut lateness = LatencyHistogram::new();
    lateness.record_n(50_000, 917);
    let mut attacks = LatencyHistogram::new();
    attacks.record_n(1_500_000, 50);
    let mut from_send = LatencyHistogram::new();
    from_send.record_n(2_000_000, 901);
    let benign = TemplateTally {
        statuses: BTreeMap::from([(200, 848), (502, 3)]),
        unexpected: 3,
        unexpected_example: Some("502 instead of 200".to_owned()),
        latency: latencies(),
    };
    let attack = TemplateTally {
        statuses: BTreeMap::from([(403, 50)]),
        unexpected: 0,
        unexpected_example: None,
        latency: attacks,
    };
    Outcome {
        overdue: 20,
        oldest_overdue: Some(Duration::from_millis(8)),
        held: 30,
        latency_from_send: Some(from_send),
        lateness: Some(lateness),
        templates: vec![benign, attack],
        ..outcome()
    }
}

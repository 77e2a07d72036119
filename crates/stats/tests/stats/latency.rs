use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use tollgate_stats::{DecodeError, LatencyHistogram};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Written by an independent HdrHistogram; see `fixtures/latencies.py`.
const FOREIGN: &str = include_str!("../fixtures/latencies.v2.b64");

fn histogram(latencies_ns: impl IntoIterator<Item = u64>) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    for ns in latencies_ns {
        histogram.record(ns);
    }
    histogram
}

/// Encodes a V2 header with `payload_len`, `digits`, `low` and `high`, in base64.
fn header(payload_len: u32, digits: u32, low: u64, high: u64) -> String {
    let mut bytes = vec![0x1c, 0x84, 0x93, 0x13];
    bytes.extend(payload_len.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(digits.to_be_bytes());
    bytes.extend(low.to_be_bytes());
    bytes.extend(high.to_be_bytes());
    bytes.extend(1.0_f64.to_be_bytes());
    STANDARD.encode(bytes)
}

#[test]
fn empty_histogram_has_no_figures() {
    let empty = LatencyHistogram::default();
    assert_eq!(empty.count(), 0);
    assert_eq!(empty.min_ns(), None);
    assert_eq!(empty.max_ns(), None);
    assert_eq!(empty.mean_ns(), None);
    assert_eq!(empty.quantile_ns(0.5), None);
}

#[test]
fn small_latencies_are_exact() {
    let histogram = histogram(1..=1_000);
    assert_eq!(histogram.count(), 1_000);
    assert_eq!(histogram.min_ns(), Some(1));
    assert_eq!(histogram.max_ns(), Some(1_000));
    assert!((histogram.mean_ns().unwrap() - 500.5).abs() < 1e-9);
    assert_eq!(histogram.quantile_ns(0.5), Some(500));
    assert_eq!(histogram.quantile_ns(0.9), Some(900));
    assert_eq!(histogram.quantile_ns(0.99), Some(990));
}

#[test]
fn quantile_needs_ten_samples_beyond_it() {
    let needed =
        [(0.01, 1_000), (0.5, 20), (0.9, 100), (0.95, 200), (0.99, 1_000), (0.999, 10_000)];
    for (q, samples) in needed {
        let short = histogram((1..samples).map(|_| 7));
        assert_eq!(short.quantile_ns(q), None, "q = {q}");
        let enough = histogram((0..samples).map(|_| 7));
        assert_eq!(enough.quantile_ns(q), Some(7), "q = {q}");
    }
}

#[test]
fn quantile_of_one_has_no_samples_beyond_it() {
    assert_eq!(histogram(1..=10_000).quantile_ns(1.0), None);
}

#[test]
#[should_panic(expected = "99 is not a quantile")]
fn rejects_percentile_as_quantile() {
    LatencyHistogram::new().quantile_ns(99.0);
}

#[test]
fn value_at_needs_no_samples_beyond_it() {
    assert_eq!(LatencyHistogram::new().value_at(0.5), None);
    let few = histogram([10, 20, 30]);
    assert_eq!(few.value_at(0.5), Some(20));
    assert_eq!(few.value_at(0.99), Some(30));
    assert_eq!(few.value_at(1.0), Some(30));
}

#[test]
fn deviation_is_that_of_the_population() {
    assert_eq!(LatencyHistogram::new().stdev_ns(), None);
    // Mean 5; the squares of the distances are 9, 1, 1, 1, 0, 0, 4 and 16, their mean is 4.
    let known = histogram([2, 4, 4, 4, 5, 5, 7, 9]);
    assert!((known.stdev_ns().unwrap() - 2.0).abs() < 1e-9);
}

#[test]
fn record_n_counts_n_times() {
    let mut counted = histogram([5]);
    counted.record_n(7, 3);
    counted.record_n(0, 2);
    assert_eq!(counted, histogram([1, 1, 5, 7, 7, 7]));
}

#[test]
fn counts_latencies_up_to_a_value() {
    let some = histogram([10, 20, 20, 30, HOUR_NS]);
    assert_eq!(some.count_up_to(9), 0);
    assert_eq!(some.count_up_to(10), 1);
    assert_eq!(some.count_up_to(29), 3);
    assert_eq!(some.count_up_to(HOUR_NS), 5);
    assert_eq!(some.count_up_to(u64::MAX), 5);
}

#[test]
fn empty_histogram_has_no_percentiles() {
    assert_eq!(LatencyHistogram::new().percentiles(5).count(), 0);
}

#[test]
fn latencies_out_of_range_count_at_its_ends() {
    let outside = histogram([0, u64::MAX, HOUR_NS + 1]);
    assert_eq!(outside, histogram([1, HOUR_NS, HOUR_NS]));
    assert_eq!(outside.count(), 3);
    assert_eq!(outside.min_ns(), Some(1));
    let max_ns = outside.max_ns().unwrap();
    assert!((HOUR_NS..HOUR_NS + HOUR_NS / 1_000).contains(&max_ns), "{max_ns}");
}

#[test]
fn decodes_an_independent_histogram() {
    let expected =
        histogram((1..=200).flat_map(|k| (0..k).map(move |_| k * 1_000)).chain([2, HOUR_NS]));
    assert_eq!(expected.count(), 20_102);
    let foreign = LatencyHistogram::from_v2_base64(FOREIGN.trim_end()).unwrap();
    assert_eq!(foreign, expected);
}

#[test]
fn encodes_as_an_independent_implementation() {
    let foreign = LatencyHistogram::from_v2_base64(FOREIGN.trim_end()).unwrap();
    assert_eq!(foreign.to_v2_base64().unwrap(), FOREIGN.trim_end());
}

#[test]
fn counter_beyond_the_format_is_an_error() {
    // No sample of 0 ns, then 2^63 - 1 of 1 ns: the limit of the format, in zigzag encoding.
    let mut bytes = STANDARD.decode(header(10, 3, 1, HOUR_NS)).unwrap();
    bytes.extend([0x00, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let mut full = LatencyHistogram::from_v2_base64(&STANDARD.encode(bytes)).unwrap();
    assert_eq!(full.count(), 9_223_372_036_854_775_807);
    full.record(1);
    full.to_v2_base64().unwrap_err();
}

#[test]
fn rejects_another_range_or_precision() {
    for (digits, low, high) in [(2, 1, HOUR_NS), (3, 1_000, HOUR_NS), (3, 1, HOUR_NS - 1)] {
        let error = LatencyHistogram::from_v2_base64(&header(0, digits, low, high)).unwrap_err();
        assert!(matches!(error, DecodeError::OtherRange { .. }), "{error}");
    }
}

#[test]
fn empty_payload_is_an_empty_histogram() {
    let empty = LatencyHistogram::from_v2_base64(&header(0, 3, 1, HOUR_NS)).unwrap();
    assert_eq!(empty, LatencyHistogram::new());
}

#[test]
fn rejects_bytes_other_than_one_histogram() {
    let whole = STANDARD.decode(FOREIGN.trim_end()).unwrap();
    let longer = [whole.as_slice(), &[0]].concat();
    let cut = &whole[..whole.len() - 1];
    let boastful = STANDARD.decode(header(u32::MAX, 3, 1, HOUR_NS)).unwrap();
    let compressed = b"\x1c\x84\x93\x14\x00\x00\x00\x00".repeat(5);
    for bytes in [&longer, cut, &boastful, &compressed, &whole[..39], b""] {
        let error = LatencyHistogram::from_v2_base64(&STANDARD.encode(bytes)).unwrap_err();
        assert!(matches!(error, DecodeError::NotOneHistogram), "{error}");
    }
}

#[test]
fn rejects_invalid_text_with_its_reason() {
    let error = LatencyHistogram::from_v2_base64("not base64!").unwrap_err();
    assert!(matches!(error, DecodeError::Base64(_)), "{error}");
    let error = LatencyHistogram::from_v2_base64(&"A".repeat(1_000_000)).unwrap_err();
    assert!(matches!(error, DecodeError::TooLong { len: 1_000_000 }), "{error}");
    let error = LatencyHistogram::from_v2_base64(&header(0, 9, 1, HOUR_NS)).unwrap_err();
    assert!(matches!(error, DecodeError::Format(_)), "{error}");
}

proptest! {
    #[test]
    fn latency_is_kept_to_three_digits(ns in 1..=HOUR_NS) {
        let kept = histogram(std::iter::repeat_n(ns, 20));
        for value in [kept.min_ns(), kept.quantile_ns(0.5), kept.max_ns()] {
            prop_assert!(value.unwrap().abs_diff(ns) * 1_000 <= ns);
        }
        prop_assert!(kept.min_ns().unwrap() <= ns && ns <= kept.max_ns().unwrap());
        prop_assert!((kept.mean_ns().unwrap() / ns as f64 - 1.0).abs() <= 0.001);
    }

    #[test]
    fn merging_equals_recording_both(
        left in prop::collection::vec(1..=HOUR_NS, 0..50),
        right in prop::collection::vec(1..=HOUR_NS, 0..50),
    ) {
        let mut merged = histogram(left.clone());
        merged.merge(&histogram(right.clone()));
        prop_assert_eq!(merged, histogram(left.into_iter().chain(right)));
    }

    #[test]
    fn encoding_round_trips(latencies in prop::collection::vec(1..=HOUR_NS, 0..100)) {
        let written = histogram(latencies);
        let read = LatencyHistogram::from_v2_base64(&written.to_v2_base64().unwrap()).unwrap();
        prop_assert_eq!(read, written);
    }

    #[test]
    fn median_is_the_middle_latency(
        mut latencies in prop::collection::vec(1..2_000_u64, 20..200),
    ) {
        let histogram = histogram(latencies.clone());
        latencies.sort_unstable();
        let middle = latencies[latencies.len().div_ceil(2) - 1];
        prop_assert_eq!(histogram.quantile_ns(0.5), Some(middle));
    }
}

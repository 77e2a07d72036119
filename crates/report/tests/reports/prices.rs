//! Ratios and differences, paired by block.

use crate::records::{
    DRIFT, MIB, analysed, assert_close, blocks, costing, cpu_price, drifting, measured, report,
    run, without_processes,
};
use proptest::prelude::*;
use tollgate_records::metric::Metric;
use tollgate_records::trial::TrialRecord;
use tollgate_records::validity::Invalid;
use tollgate_report::Format;
use tollgate_report::analysis::{Price, Range};
use tollgate_report::source::ReportSource;

fn spoil(trials: &mut [TrialRecord], subject: &str, block: u32) {
    let mut trials = trials.iter_mut();
    let trial = trials.find(|trial| trial.subject == subject && trial.block == block).unwrap();
    let mut measurement = costing(5_000);
    measurement.invalid = vec![Invalid::NoResponse];
    *trial = measured(subject, block, measurement);
}

/// In a closed loop with kept connections, the interval of a ratio r reaches lower by min(0.05 + 0.04 (r - 1),
/// 0.1 (r - 1)) / r: long work cools caches.
const COOLED_2: f64 = 2.0 / (1.0 + 0.09 / 2.0);
const COOLED_3: f64 = 3.0 / (1.0 + 0.13 / 3.0);
const COOLED_4: f64 = 4.0 / (1.0 + 0.17 / 4.0);

#[track_caller]
fn assert_range(range: &Range, estimate: f64, low: f64, high: f64) {
    assert_close(range.estimate, estimate);
    assert_close(range.low, low);
    assert_close(range.high, high);
}

#[test]
fn common_drift_cancels_in_ratios() {
    let run = run(&["nginx", "full"], [drifting("full", 3), drifting("nginx", 1)].concat());
    let price = cpu_price(&run, "full");
    assert_eq!(price.n, 6);
    assert_range(&price.ratio.unwrap(), 3.0, COOLED_3, 3.0);
}

#[test]
fn prices_relative_to_another_subject() {
    let trials = [drifting("nginx", 2), drifting("haproxy", 4), drifting("gateway", 1)].concat();
    let mut run = run(&["nginx", "haproxy", "gateway"], trials);
    run.manifest.experiment.aa_subject = Some("gateway".to_owned());
    let source = ReportSource::from(run.clone()).over("haproxy").unwrap();
    assert_eq!(source.analysis.baseline, "haproxy");
    for (name, ratio, high) in [("nginx", 0.5, 1.0 / COOLED_2), ("gateway", 0.25, 1.0 / COOLED_4)] {
        let price = cpu_price(&source.records, name);
        assert_range(&price.ratio.unwrap(), ratio, ratio, high);
    }
    let subjects = &source.analysis.cases[0].subjects;
    assert_eq!(subjects[0].name, "haproxy");
    // The former baseline's repetition is no A/A comparison with the new one.
    assert_eq!((source.analysis.aa_subject, source.analysis.cases[0].noise_floor), (None, None));

    let unknown = ReportSource::from(run.clone()).over("haprox").unwrap_err();
    let expected = "--baseline haprox: the run has no such subject; did you mean `haproxy`?";
    assert_eq!(unknown.to_string(), expected);
    // The run's own baseline changes nothing.
    assert_eq!(
        ReportSource::from(run).over("nginx").unwrap().analysis.aa_subject.as_deref(),
        Some("gateway")
    );
}

#[test]
fn excludes_blocks_without_baseline() {
    let mut trials = [drifting("nginx", 1), drifting("full", 3)].concat();
    trials.retain(|trial| !(trial.subject == "nginx" && trial.block == 3));
    let price = cpu_price(&run(&["nginx", "full"], trials), "full");
    assert_eq!(price.n, 5);
    assert_range(&price.ratio.unwrap(), 3.0, 3.0, 3.0);
}

#[test]
fn invalid_trials_exclude_blocks() {
    // An invalid trial of the baseline excludes the block of all subjects.
    for (subject, block, n) in [("full", 2, (6, 5)), ("nginx", 4, (5, 5))] {
        let mut trials = [drifting("nginx", 1), drifting("light", 2), drifting("full", 3)].concat();
        spoil(&mut trials, subject, block);
        let run = run(&["nginx", "light", "full"], trials);
        let (light, full) = (cpu_price(&run, "light"), cpu_price(&run, "full"));
        assert_eq!((light.n, full.n), n, "{subject}");
        // Five blocks have a range, which is as observed.
        let low = |price: &Price, cooled, exact| if price.n == 6 { cooled } else { exact };
        assert_range(&light.ratio.unwrap(), 2.0, low(&light, COOLED_2, 2.0), 2.0);
        assert_range(&full.ratio.unwrap(), 3.0, low(&full, COOLED_3, 3.0), 3.0);
    }
}

#[test]
fn without_a_block_in_common_there_is_no_price() {
    let trials = vec![measured("nginx", 1, costing(10)), measured("full", 2, costing(30))];
    let run = run(&["nginx", "full"], trials);
    assert!(analysed(&run, "full").prices.is_empty());
}

#[test]
fn the_baseline_has_no_price_over_itself() {
    let run = run(&["nginx"], drifting("nginx", 1));
    assert!(analysed(&run, "nginx").prices.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_order_of_the_records_does_not_matter(
        shuffled in Just([drifting("nginx", 1), drifting("full", 3)].concat()).prop_shuffle()
    ) {
        let in_order = run(&["nginx", "full"], [drifting("nginx", 1), drifting("full", 3)].concat());
        let shuffled = run(&["nginx", "full"], shuffled);
        prop_assert_eq!(report(&shuffled, Format::Json), report(&in_order, Format::Json));
    }
}

#[test]
fn six_blocks_give_the_range_of_the_walsh_averages() {
    // Without CPU of the baseline the differences are 2, 3, 5, 7, 11, 13. Their 21 pairwise means, each value with itself
    // included, are 2 2.5 3 3.5 4 4.5 5 5 6 6.5 | 7 | 7 7.5 8 8 9 9 10 11 12 13.
    let direct = (1..=6).map(|block| measured("direct", block, without_processes()));
    let full = blocks("full", &[2, 3, 5, 7, 11, 13]);
    let run = run(&["direct", "full"], direct.chain(full).collect());
    let difference = cpu_price(&run, "full").difference;
    assert!(difference.interval);
    assert_range(&difference, 7.0, 2.0, 13.0);
}

#[test]
fn ratios_are_averaged_on_logarithms() {
    // The ratios are 2^0 to 2^5, so their pairwise means on logarithms are centred on 2^2.5; the
    // mean of the ratios themselves would be 10.5.
    let trials = [blocks("nginx", &[10; 6]), blocks("full", &DRIFT)].concat();
    let ratio = cpu_price(&run(&["nginx", "full"], trials), "full").ratio.unwrap();
    assert!(ratio.interval);
    let estimate = 32.0_f64.sqrt();
    let cooled = 1.0 + (0.05 + 0.04 * (estimate - 1.0)) / estimate;
    assert_range(&ratio, estimate, 1.0 / cooled, 32.0);
}

#[test]
fn five_blocks_have_a_range_and_no_interval() {
    let trials = [blocks("nginx", &[10; 5]), blocks("full", &DRIFT[..5])].concat();
    let price = cpu_price(&run(&["nginx", "full"], trials), "full");
    let ratio = price.ratio.unwrap();
    assert_eq!((price.n, ratio.interval, price.difference.interval), (5, false, false));
    assert_range(&ratio, 4.0, 1.0, 16.0);
    assert_close(price.difference.high, 150.0);
}

#[test]
fn every_figure_has_its_price() {
    let nginx = costing(10);
    let mut full = costing(40);
    full.throughput_per_s = 250.0;
    full.latency.mean_ms = Some(3.0);
    full.latency.min_ms = Some(0.75);
    full.latency.p50_ms = Some(4.0);
    full.latency.p90_ms = Some(12.0);
    full.latency.p99_ms = Some(24.0);
    full.latency.max_ms = Some(36.0);
    full.memory_peak_bytes = Some(32 * MIB);
    let trials = vec![measured("nginx", 1, nginx), measured("full", 1, full)];
    let prices = analysed(&run(&["nginx", "full"], trials), "full").prices;
    let expected = [
        (Metric::CpuUsPerRequest, 4.0, 30.0),
        (Metric::ThroughputPerS, 0.25, -750.0),
        (Metric::LatencyMeanMs, 2.0, 1.5),
        (Metric::LatencyMinMs, 1.5, 0.25),
        (Metric::LatencyP50Ms, 4.0, 3.0),
        (Metric::LatencyP90Ms, 6.0, 10.0),
        (Metric::LatencyP99Ms, 8.0, 21.0),
        (Metric::LatencyMaxMs, 9.0, 32.0),
        (Metric::MemoryPeakBytes, 4.0, 25_165_824.0),
    ];
    assert_eq!(prices.len(), expected.len());
    for (metric, ratio, difference) in expected {
        let price = &prices[&metric];
        assert_close(price.ratio.unwrap().estimate, ratio);
        assert_close(price.difference.estimate, difference);
    }
}

#[test]
fn unreadable_memory_has_no_price() {
    let mut trials = [drifting("nginx", 1), drifting("full", 3)].concat();
    let mut unread = costing(60);
    unread.memory_peak_bytes = None;
    trials[7] = measured("full", 2, unread);
    let prices = analysed(&run(&["nginx", "full"], trials), "full").prices;
    let memory = &prices[&Metric::MemoryPeakBytes];
    assert_eq!(memory.n, 5);
    assert_close(memory.difference.estimate, 0.0);
    // A subject without processes uses no memory.
    let trials =
        vec![measured("direct", 1, without_processes()), measured("nginx", 1, costing(10))];
    let prices = analysed(&run(&["direct", "nginx"], trials), "nginx").prices;
    assert_eq!(prices[&Metric::MemoryPeakBytes].n, 1);
}

#[test]
fn missing_figure_excludes_its_block() {
    let mut trials = [drifting("nginx", 1), drifting("full", 3)].concat();
    let mut without_p99 = costing(60);
    without_p99.latency.p99_ms = None;
    trials[7] = measured("full", 2, without_p99);
    let prices = analysed(&run(&["nginx", "full"], trials), "full").prices;
    assert_eq!(prices[&Metric::LatencyP99Ms].n, 5);
    assert_eq!(prices[&Metric::LatencyP50Ms].n, 6);
    assert_eq!(prices[&Metric::CpuUsPerRequest].n, 6);
}

#[test]
fn no_processes_mean_a_difference_and_no_ratio() {
    let nginx = drifting("nginx", 1);
    let direct = (1..=6).map(|block| measured("direct", block, without_processes()));
    let trials: Vec<TrialRecord> = nginx.into_iter().chain(direct).collect();
    let direct = analysed(&run(&["nginx", "direct"], trials.clone()), "direct").prices;
    for metric in [Metric::CpuUsPerRequest, Metric::MemoryPeakBytes] {
        assert_eq!(direct[&metric].ratio, None, "{metric:?}");
    }
    // Of the 21 pairwise means of 10, 20, 40, 80, 160, 320 the eleventh is that of 10 and 160:
    // 10 15 20 25 30 40 45 50 60 80 | 85 | 90 100 120 160 165 170 180 200 240 320.
    assert_range(&direct[&Metric::CpuUsPerRequest].difference, -85.0, -320.0, -10.0);
    assert_close(direct[&Metric::MemoryPeakBytes].difference.estimate, -8_388_608.0);
    assert_close(direct[&Metric::ThroughputPerS].ratio.unwrap().estimate, 1.0);

    // The other way round.
    let nginx = cpu_price(&run(&["direct", "nginx"], trials), "nginx");
    assert_eq!((nginx.n, nginx.ratio), (6, None));
    assert_range(&nginx.difference, 85.0, 10.0, 320.0);
}

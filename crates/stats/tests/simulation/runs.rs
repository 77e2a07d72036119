//! Simulated runs of subjects with known prices on disturbed machines.
//!
//! A trial measures the subject's true value times the disturbance of the machine at that moment, which does not depend
//! on the subject. The disturbances were chosen before the first interval was computed.

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tollgate_stats::{Interval, Pair, Verdict, half_width, holm, ratio, ratio_p, verdict};

use super::noise::{NOISE, Noise, noise};

/// Slow-down of a drifting machine over a run.
const DRIFT: f64 = 0.1;

/// Probability that a burst starts with a trial, its maximal length in trials, and its slow-down.
const BURST_CHANCE: f64 = 0.1;
const BURST_TRIALS_MAX: usize = 3;
const BURST: f64 = 0.2;

/// The true ratio.
const TRUTH: f64 = 1.37;

/// Simulated machine.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// Name in the table.
    pub(crate) name: &'static str,
    /// Noise of the baseline.
    noise: Noise,
    /// Noise of the other subjects.
    noise_of_subjects: Noise,
    drifts: bool,
    has_bursts: bool,
    /// True if every second block reverses the order of the previous one, as Williams squares do for two subjects.
    balances: bool,
}

impl Machine {
    const fn with_noise(name: &'static str, noise: Noise) -> Self {
        Self {
            name,
            noise,
            noise_of_subjects: noise,
            drifts: false,
            has_bursts: false,
            balances: false,
        }
    }

    /// Machines on which intervals have nominal coverage.
    pub(crate) const FAIR: [Self; 6] = [
        Self::with_noise("normal", Noise::Normal),
        Self { drifts: true, ..Self::with_noise("drift", Noise::Normal) },
        Self { has_bursts: true, ..Self::with_noise("bursts", Noise::Normal) },
        Self::with_noise("student-3", Noise::Student3),
        Self::with_noise("lognormal", Noise::Lognormal),
        Self { drifts: true, has_bursts: true, ..Self::with_noise("all", Noise::Student3) },
    ];

    /// Machines with balanced orders, as real runs have. These remove a drift from the price but not from the interval,
    /// which is wider than necessary.
    pub(crate) const EVEN: [Self; 2] = [
        Self { name: "drift-even", balances: true, ..Self::FAIR[1] },
        Self { name: "all-even", balances: true, ..Self::FAIR[5] },
    ];

    /// Skewed noise of the subjects only, which violates the assumption of symmetric ratios.
    pub(crate) const SKEWED: Self =
        Self { noise_of_subjects: Noise::Lognormal, ..Self::with_noise("skewed", Noise::Normal) };

    /// Returns the difference of the medians of a subject's and the baseline's noise, on logarithms.
    fn shift_of_medians(&self) -> f64 {
        let median = |noise| match noise {
            Noise::Normal | Noise::Student3 => 0.0,
            Noise::Lognormal => NOISE,
        };
        median(self.noise_of_subjects) - median(self.noise)
    }
}

/// Simulates a run of subjects with these true ratios. Returns the pairs of each.
fn run(
    machine: &Machine,
    blocks: usize,
    ratios: &[f64],
    random: &mut ChaCha8Rng,
) -> Vec<Vec<Pair>> {
    let values: Vec<f64> = std::iter::once(1.0).chain(ratios.iter().copied()).collect();
    let trials = blocks * values.len();
    let mut order: Vec<usize> = (0..values.len()).collect();
    let mut trial = 0_usize;
    let mut burst_trials = 0;
    let mut measured = vec![Vec::with_capacity(values.len()); blocks];
    for (block, measured) in measured.iter_mut().enumerate() {
        if machine.balances && block % 2 == 1 {
            order.reverse();
        } else {
            order.shuffle(random);
        }
        measured.extend(&values);
        for &subject in &order {
            if machine.has_bursts && burst_trials == 0 && random.random_bool(BURST_CHANCE) {
                burst_trials = random.random_range(1..=BURST_TRIALS_MAX);
            }
            let burst = if burst_trials > 0 { BURST } else { 0.0 };
            let drift = if machine.drifts { DRIFT * trial as f64 / trials as f64 } else { 0.0 };
            let kind = if subject == 0 { machine.noise } else { machine.noise_of_subjects };
            measured[subject] *= (noise(kind, random) + drift + burst).exp();
            burst_trials = burst_trials.saturating_sub(1);
            trial += 1;
        }
    }
    let pairs_of = |subject: usize| {
        measured.iter().map(|block| Pair { subject: block[subject], baseline: block[0] }).collect()
    };
    (1..values.len()).map(pairs_of).collect()
}

/// Counts the runs whose interval covers the true ratio.
pub(crate) fn count_covered(machine: &Machine, blocks: usize, runs: usize) -> usize {
    let truth = TRUTH * machine.shift_of_medians().exp();
    let mut random = ChaCha8Rng::seed_from_u64(blocks as u64);
    let covers = |seed: usize| {
        let pairs = run(machine, blocks, &[TRUTH], &mut random).remove(0);
        is_within(
            truth,
            &ratio(&pairs, seed as u64).expect("simulated values are positive").interval,
        )
    };
    (0..runs).map(covers).filter(|&covered| covered).count()
}

/// Returns the verdicts on all subjects of a simulated run with these true ratios.
fn verdicts(
    machine: &Machine,
    blocks: usize,
    ratios: &[f64],
    seed: u64,
    random: &mut ChaCha8Rng,
) -> Vec<Verdict> {
    let table = run(machine, blocks, ratios, random);
    let p: Vec<f64> = table.iter().filter_map(|pairs| ratio_p(pairs)).collect();
    assert_eq!(p.len(), ratios.len(), "simulated values are positive");
    let adjusted = holm(&p).into_iter();
    let verdicts = table.iter().zip(adjusted).map(|(pairs, p)| {
        let price = ratio(pairs, seed).expect("simulated values are positive");
        // A margin would hide small differences.
        verdict(&price, p, 0.0)
    });
    verdicts.collect()
}

/// Counts the runs in which at least one of `subjects` subjects, all equal to the baseline, differs significantly.
pub(crate) fn count_false_verdicts(
    machine: &Machine,
    blocks: usize,
    subjects: usize,
    runs: usize,
) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(blocks as u64);
    let any_differs = |seed: usize| {
        let verdicts = verdicts(machine, blocks, &vec![1.0; subjects], seed as u64, &mut random);
        verdicts.iter().any(|verdict| *verdict != Verdict::Inconclusive)
    };
    (0..runs).map(any_differs).filter(|&differs| differs).count()
}

/// Counts the runs in which all of `subjects` subjects have the right verdict, where each costs more by four times the
/// noise of a block's ratio, as a standard deviation.
pub(crate) fn count_settled(
    machine: &Machine,
    blocks: usize,
    subjects: usize,
    runs: usize,
) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(blocks as u64);
    let noise = run(machine, NOISE_BLOCKS, &[1.0], &mut random).remove(0);
    let squares: f64 = noise.iter().map(|pair| (pair.subject / pair.baseline).ln().powi(2)).sum();
    let dearer = (4.0 * (squares / NOISE_BLOCKS as f64).sqrt()).exp();
    let all_settled = |seed: usize| {
        let verdicts = verdicts(machine, blocks, &vec![dearer; subjects], seed as u64, &mut random);
        verdicts.iter().all(|verdict| *verdict == Verdict::CostsMore)
    };
    (0..runs).map(all_settled).filter(|&settled| settled).count()
}

/// Blocks of the run that measures the noise.
const NOISE_BLOCKS: usize = 10_000;

/// Counts the runs whose interval covers the true ratio, where a run stops after the first block from `blocks_min` to
/// `blocks_max` with a half-width of at most `width`.
pub(crate) fn count_covered_at_stop(
    machine: &Machine,
    (blocks_min, blocks_max): (usize, usize),
    width: f64,
    runs: usize,
) -> usize {
    let truth = TRUTH * machine.shift_of_medians().exp();
    let mut random = ChaCha8Rng::seed_from_u64(blocks_max as u64);
    let covers = |seed: usize| {
        let pairs = run(machine, blocks_max, &[TRUTH], &mut random).remove(0);
        let price_after = |blocks: usize| {
            ratio(&pairs[..blocks], seed as u64).expect("simulated values are positive")
        };
        let at_stop = (blocks_min..blocks_max)
            .map(price_after)
            .find(|price| half_width(price).is_some_and(|half| half <= width))
            .unwrap_or_else(|| price_after(blocks_max));
        is_within(truth, &at_stop.interval)
    };
    (0..runs).map(covers).filter(|&covered| covered).count()
}

fn is_within(truth: f64, interval: &Interval) -> bool {
    match *interval {
        Interval::Confidence { low, high } => low <= truth && truth <= high,
        Interval::TooFew { .. } => panic!("too few blocks for an interval"),
    }
}

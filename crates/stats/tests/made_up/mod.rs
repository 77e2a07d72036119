//! Made-up runs: what subjects of known price would measure on machines that misbehave in known
//! ways.
//!
//! A trial takes the subject's true figure times what the machine does to it at that moment. All
//! that the machine does hits whoever runs. What it is was settled before the first interval was
//! looked at.

mod noise;

use noise::{NOISE, Noise, noise};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tollgate_stats::{Interval, Pair, Verdict, half_width, holm, ratio, ratio_p, verdict};

/// How much slower a machine that drifts is at the end of a run than at its beginning.
const DRIFT: f64 = 0.1;

/// The chance that a burst begins with a trial, how many trials it may last, and how much slower
/// the machine is meanwhile.
const BURST_CHANCE: f64 = 0.1;
const BURST_TRIALS_MAX: usize = 3;
const BURST: f64 = 0.2;

/// The true ratio that an interval has to hold.
const TRUTH: f64 = 1.37;

/// A machine that runs are made up on.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// The noise of the baseline, and of all that are alike.
    noise: Noise,
    /// The noise of the other subjects, where it is of another kind.
    noise_of_subjects: Noise,
    drifts: bool,
    has_bursts: bool,
    /// Whether every second block takes the order of the one before it from behind, which for two
    /// subjects is what Williams squares come to.
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

    /// Where the interval has to hold the truth in 95 %.
    pub(crate) const FAIR: [Self; 6] = [
        Self::with_noise("normal", Noise::Normal),
        Self { drifts: true, ..Self::with_noise("drift", Noise::Normal) },
        Self { has_bursts: true, ..Self::with_noise("bursts", Noise::Normal) },
        Self::with_noise("student-3", Noise::Student3),
        Self::with_noise("lognormal", Noise::Lognormal),
        Self { drifts: true, has_bursts: true, ..Self::with_noise("all", Noise::Student3) },
    ];

    /// Where the orders of the blocks are balanced, as those of a run are, and not each drawn by
    /// itself. That takes a drift out of the price, but the interval takes it for noise still, and
    /// is wider than it had to be.
    pub(crate) const EVEN: [Self; 2] = [
        Self { name: "drift-even", balances: true, ..Self::FAIR[1] },
        Self { name: "all-even", balances: true, ..Self::FAIR[5] },
    ];

    /// Where only the subjects are now and then hit, so that ratios are lopsided, and the centre
    /// of a symmetric distribution, which the method assumes, does not exist.
    pub(crate) const LOPSIDED: Self =
        Self { noise_of_subjects: Noise::Lognormal, ..Self::with_noise("lopsided", Noise::Normal) };

    /// The logarithm by which the median of a subject's noise exceeds that of the baseline's.
    fn shift_of_medians(&self) -> f64 {
        let median = |noise| match noise {
            Noise::Normal | Noise::Student3 => 0.0,
            Noise::Lognormal => NOISE,
        };
        median(self.noise_of_subjects) - median(self.noise)
    }
}

/// The pairs of each subject with the baseline, where `ratios` are the subjects' true prices.
fn run(
    machine: &Machine,
    blocks: usize,
    ratios: &[f64],
    random: &mut ChaCha8Rng,
) -> Vec<Vec<Pair>> {
    let figures: Vec<f64> = std::iter::once(1.0).chain(ratios.iter().copied()).collect();
    let trials = blocks * figures.len();
    let mut order: Vec<usize> = (0..figures.len()).collect();
    let mut trial = 0_usize;
    let mut burst_trials = 0;
    let mut measured = vec![Vec::with_capacity(figures.len()); blocks];
    for (block, measured) in measured.iter_mut().enumerate() {
        if machine.balances && block % 2 == 1 {
            order.reverse();
        } else {
            order.shuffle(random);
        }
        measured.extend(&figures);
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
    (1..figures.len()).map(pairs_of).collect()
}

/// In how many of `runs` runs of `blocks` blocks the interval holds the true ratio.
pub(crate) fn truths_held(machine: &Machine, blocks: usize, runs: usize) -> usize {
    let truth = TRUTH * machine.shift_of_medians().exp();
    let mut random = ChaCha8Rng::seed_from_u64(blocks as u64);
    let holds = |seed: usize| {
        let pairs = run(machine, blocks, &[TRUTH], &mut random).remove(0);
        is_within(
            truth,
            &ratio(&pairs, seed as u64).expect("made-up figures are positive").interval,
        )
    };
    (0..runs).map(holds).filter(|&held| held).count()
}

/// In how many of `runs` runs at least one of `subjects` subjects, all of them the baseline again,
/// is said to differ from it.
pub(crate) fn false_verdicts(
    machine: &Machine,
    blocks: usize,
    subjects: usize,
    runs: usize,
) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(blocks as u64);
    let any_differs = |seed: usize| {
        let table = run(machine, blocks, &vec![1.0; subjects], &mut random);
        let p: Vec<f64> = table.iter().filter_map(|pairs| ratio_p(pairs)).collect();
        assert_eq!(p.len(), subjects, "made-up figures are positive");
        table.iter().zip(holm(&p)).any(|(pairs, p)| {
            let price = ratio(pairs, seed as u64).expect("made-up figures are positive");
            // Without a margin, so that nothing is excused as small.
            matches!(verdict(&price, p, 0.0), Verdict::CostsMore | Verdict::CostsLess)
        })
    };
    (0..runs).map(any_differs).filter(|&differs| differs).count()
}

/// In how many of `runs` runs the interval holds the true ratio, where a run ends with the first
/// block from `blocks_min` to `blocks_max` after which half its interval is within `width`.
pub(crate) fn truths_held_at_stop(
    machine: &Machine,
    (blocks_min, blocks_max): (usize, usize),
    width: f64,
    runs: usize,
) -> usize {
    let truth = TRUTH * machine.shift_of_medians().exp();
    let mut random = ChaCha8Rng::seed_from_u64(blocks_max as u64);
    let holds = |seed: usize| {
        let pairs = run(machine, blocks_max, &[TRUTH], &mut random).remove(0);
        let price_after = |blocks: usize| {
            ratio(&pairs[..blocks], seed as u64).expect("made-up figures are positive")
        };
        let at_stop = (blocks_min..blocks_max)
            .map(price_after)
            .find(|price| half_width(price).is_some_and(|half| half <= width))
            .unwrap_or_else(|| price_after(blocks_max));
        is_within(truth, &at_stop.interval)
    };
    (0..runs).map(holds).filter(|&held| held).count()
}

fn is_within(truth: f64, interval: &Interval) -> bool {
    match *interval {
        Interval::Confidence { low, high } => low <= truth && truth <= high,
        Interval::TooFew { .. } => panic!("too few blocks for an interval"),
    }
}

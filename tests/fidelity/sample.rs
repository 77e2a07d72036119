/// Sorted figures of one unit; not empty.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        assert!(!figures.is_empty(), "a sample is not empty");
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    /// The figures of several samples as one.
    pub(crate) fn pooled(samples: &[Self]) -> Self {
        Self::new(samples.iter().flat_map(|sample| sample.0.iter().copied()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest figure that at least a share `q` of all figures does not exceed, as defined by
    /// HDR histograms.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }

    pub(crate) fn min(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    pub(crate) fn variance(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.0.iter().map(|figure| (figure - mean).powi(2)).sum();
        squares / (self.0.len() - 1) as f64
    }

    pub(crate) fn count_above(&self, limit: f64) -> usize {
        self.0.len() - self.0.partition_point(|figure| *figure <= limit)
    }

    /// The largest distance between the distribution of these figures and `cdf` (Kolmogorov-Smirnov).
    pub(crate) fn distance_from(&self, cdf: impl Fn(f64) -> f64) -> f64 {
        let n = self.0.len() as f64;
        let distances = self.0.iter().enumerate().map(|(index, figure)| {
            let expected = cdf(*figure);
            (expected - index as f64 / n).abs().max(((index + 1) as f64 / n - expected).abs())
        });
        distances.fold(0.0, f64::max)
    }
}

/// Relative precision of a histogram with three digits.
pub(crate) const PRECISION: f64 = 0.001;

/// CPU time that the generator spends besides that of the reference client: a wait before each read,
/// which is one more system call, and its metrics.
const GENERATOR_US: f64 = 20.0;

/// The time that generator and machine may add to a delay, in microseconds. Measured in the same run,
/// and not by the generator, whose own figures would excuse themselves.
pub(crate) struct Overhead<'a> {
    /// Time added to the same delay for the reference client.
    pub(crate) reference: &'a Sample,
    /// Share of disturbed times of the run, over both CPUs.
    pub(crate) disturbed: f64,
}

impl Overhead<'_> {
    /// Overhead of the reference client, its variation over half of all wake-ups, because the generator
    /// has other ones, and the time of the generator itself.
    fn quantile(&self, q: f64) -> f64 {
        let variation = self.reference.quantile(0.75) - self.reference.quantile(0.25);
        self.reference.quantile(q) + variation + GENERATOR_US
    }

    /// Upper bound of the quantile `q` of truth plus overhead, whichever request meets which overhead.
    /// If a share a of the truths is above T and a share b of the overheads above O, at most a + b of
    /// the sums are above T + O (the union bound). So T + O holds for every a + b = 1 - q, and the
    /// lowest is returned.
    ///
    /// A request that is sent or answered during a disturbance may take as long as that lasts, so the
    /// disturbed share counts as above. If nothing is left, there is no bound.
    pub(crate) fn bound(&self, truth: &Sample, q: f64) -> f64 {
        const PARTS: u32 = 8;
        let above = 1.0 - q - 2.0 * self.disturbed;
        if above <= 0.0 {
            return f64::INFINITY;
        }
        let bounds = (1..PARTS).map(|parts| {
            let a = above * f64::from(parts) / f64::from(PARTS);
            let b = above - a;
            truth.quantile(1.0 - a) + self.quantile(1.0 - b)
        });
        bounds.fold(f64::INFINITY, f64::min) * (1.0 + PRECISION)
    }
}

#[test]
fn statistics_of_a_small_sample() {
    let sample = Sample::new([4.0, 1.0, 3.0, 2.0]);
    assert_eq!((sample.min(), sample.max(), sample.mean()), (1.0, 4.0, 2.5));
    assert_eq!(
        (sample.quantile(0.5), sample.quantile(0.51), sample.quantile(1.0)),
        (2.0, 3.0, 4.0)
    );
    // (2.25 + 0.25 + 0.25 + 2.25) / 3
    assert!((sample.variance() - 5.0 / 3.0).abs() < 1e-12);
    assert_eq!((sample.count_above(2.0), sample.count_above(4.5)), (2, 0));
    // Against the uniform distribution on 0 to 4, every step from k/4 to (k+1)/4 ends on the line.
    assert!((sample.distance_from(|figure| figure / 4.0) - 0.25).abs() < 1e-12);
}

#[test]
fn overhead_bound_takes_the_lowest_split() {
    // A fixed truth, and an overhead of 10 for five eighths and 90 above; it varies by 80.
    let truth = Sample::new([1000.0; 8]);
    let reference = Sample::new([10.0, 10.0, 10.0, 10.0, 10.0, 90.0, 90.0, 90.0]);
    let bound = |q, disturbed| Overhead { reference: &reference, disturbed }.bound(&truth, q);
    // At 0.5 the overhead may take up to 7/16 of the 1/2 above: its quantile 0.5625 is 10.
    assert!((bound(0.5, 0.0) - (1010.0 + 80.0 + GENERATOR_US) * 1.001).abs() < 1e-9);
    // At 0.75 it takes 7/32 of 1/4: its quantile 0.78 is 90. The same at 0.5 with 1/4 disturbed.
    assert!((bound(0.75, 0.0) - (1090.0 + 80.0 + GENERATOR_US) * 1.001).abs() < 1e-9);
    assert!((bound(0.5, 0.125) - (1090.0 + 80.0 + GENERATOR_US) * 1.001).abs() < 1e-9);
    assert!(bound(0.5, 0.25).is_infinite());
}

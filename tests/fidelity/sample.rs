/// Figures in rising order, all of one unit, and at least one of them.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        assert!(!figures.is_empty(), "a sample needs at least one figure");
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest figure that a share of at least `q` of all figures does not exceed: the
    /// definition that HDR histograms follow.
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

    /// The largest distance between the distribution of these figures and `cdf` (Kolmogorov,
    /// Smirnov).
    pub(crate) fn distance_from(&self, cdf: impl Fn(f64) -> f64) -> f64 {
        let n = self.0.len() as f64;
        let distances = self.0.iter().enumerate().map(|(index, figure)| {
            let expected = cdf(*figure);
            (expected - index as f64 / n).abs().max(((index + 1) as f64 / n - expected).abs())
        });
        distances.fold(0.0, f64::max)
    }
}

#[test]
fn the_arithmetic_is_right() {
    let sample = Sample::new([4.0, 1.0, 3.0, 2.0]);
    assert_eq!((sample.min(), sample.max(), sample.mean()), (1.0, 4.0, 2.5));
    assert_eq!(
        (sample.quantile(0.5), sample.quantile(0.51), sample.quantile(1.0)),
        (2.0, 3.0, 4.0)
    );
    // (2.25 + 0.25 + 0.25 + 2.25) / 3
    assert!((sample.variance() - 5.0 / 3.0).abs() < 1e-12);
    assert_eq!((sample.count_above(2.0), sample.count_above(4.5)), (2, 0));
    // Against the uniform distribution on 0 to 4 every step from k/4 to (k+1)/4 ends on the line.
    assert!((sample.distance_from(|figure| figure / 4.0) - 0.25).abs() < 1e-12);
}

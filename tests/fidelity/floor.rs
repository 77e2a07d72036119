use crate::sample::Sample;

/// A histogram of three digits gives a figure to one part in a thousand.
pub(crate) const PRECISION: f64 = 0.001;

/// What the generator and the machine together add to a delay, share by share of the requests, in
/// microseconds. All of it is measured in the run that it is used in.
pub(crate) struct Floor<'a> {
    /// The generator's own latencies where the server does not delay.
    pub(crate) at_once: &'a Sample,
    /// What the witness saw added where the server does not delay.
    pub(crate) witness_at_once: &'a Sample,
    /// What the witness saw added to the delay in question.
    pub(crate) witness: &'a Sample,
}

impl Floor<'_> {
    /// The floor at no delay; what waking up costs more after the longer sleep, if anything; and
    /// how much that varies (four in five wake-ups), as the generator meets others than the
    /// witness.
    fn quantile(&self, q: f64) -> f64 {
        let waking = self.witness.quantile(q) - self.witness_at_once.quantile(q);
        let jitter = self.witness.quantile(0.9) - self.witness.quantile(0.1);
        self.at_once.quantile(q) + waking.max(0.0) + jitter
    }

    /// The most that the quantile `q` of truth plus floor can be, whichever request meets which
    /// floor. Where a share a of the truths is above T and a share b of the floors above F, at most
    /// a + b of the sums are above T + F (the union bound), so T + F holds for every a + b = 1 - q,
    /// and the lowest of them is taken.
    pub(crate) fn bound(&self, truth: &Sample, q: f64) -> f64 {
        const PARTS: u32 = 8;
        let bounds = (1..PARTS).map(|parts| {
            let a = (1.0 - q) * f64::from(parts) / f64::from(PARTS);
            let b = 1.0 - q - a;
            truth.quantile(1.0 - a) + self.quantile(1.0 - b)
        });
        bounds.fold(f64::INFINITY, f64::min) * (1.0 + PRECISION)
    }
}

#[test]
fn a_bound_takes_the_better_split() {
    // A fixed truth and a floor that is 10 for three quarters and 90 above.
    let truth = Sample::new([1000.0; 8]);
    let at_once = Sample::new([10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 90.0, 90.0]);
    let still = Sample::new([5.0; 8]);
    let floor = Floor { at_once: &at_once, witness_at_once: &still, witness: &still };
    // At 0.5 the floor may take up to 7/16 of the 1/2 above: its quantile 0.5625 is 10.
    assert!((floor.bound(&truth, 0.5) - 1010.0 * 1.001).abs() < 1e-9);
    // At 0.75 it takes 7/32 of 1/4: its quantile 0.78 is 90.
    assert!((floor.bound(&truth, 0.75) - 1090.0 * 1.001).abs() < 1e-9);
}

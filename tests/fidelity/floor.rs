use crate::sample::Sample;

/// A histogram of three digits gives a figure to one part in a thousand.
pub(crate) const PRECISION: f64 = 0.001;

/// What the generator and the machine together may add to a delay, share by share of the requests,
/// in microseconds. All of it is measured in the run that it is used in, and nothing by the
/// generator, whose own figures would excuse themselves.
pub(crate) struct Floor<'a> {
    /// What the witness saw added to the same delay.
    pub(crate) witness: &'a Sample,
    /// The share of moments of the run, over both CPUs, at which something kept a process off its
    /// CPU.
    pub(crate) disturbed: f64,
}

/// What the generator does besides the witness, in microseconds: a wait before each read, which is
/// one more system call, and its books.
const OWN_US: f64 = 20.0;

impl Floor<'_> {
    /// What the witness met, how much that varies in half of all wake-ups, as the generator meets
    /// others, and what it does itself.
    fn quantile(&self, q: f64) -> f64 {
        let variation = self.witness.quantile(0.75) - self.witness.quantile(0.25);
        self.witness.quantile(q) + variation + OWN_US
    }

    /// The most that the quantile `q` of truth plus floor can be, whichever request meets which
    /// floor. Where a share a of the truths is above T and a share b of the floors above F, at most
    /// a + b of the sums are above T + F (the union bound), so T + F holds for every a + b = 1 - q,
    /// and the lowest of them is taken.
    ///
    /// A request that was sent or answered amid a disturbance may take as long as that lasts, so
    /// their share counts as above; where nothing is left, there is no bound.
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
fn a_bound_takes_the_better_split() {
    // A fixed truth and a floor that is 10 for five eighths and 90 above; it varies by 80.
    let truth = Sample::new([1000.0; 8]);
    let witness = Sample::new([10.0, 10.0, 10.0, 10.0, 10.0, 90.0, 90.0, 90.0]);
    let bound = |q, disturbed| Floor { witness: &witness, disturbed }.bound(&truth, q);
    // At 0.5 the floor may take up to 7/16 of the 1/2 above: its quantile 0.5625 is 10.
    assert!((bound(0.5, 0.0) - (1010.0 + 80.0 + OWN_US) * 1.001).abs() < 1e-9);
    // At 0.75 it takes 7/32 of 1/4: its quantile 0.78 is 90. So it does at 0.5 with 1/4 disturbed.
    assert!((bound(0.75, 0.0) - (1090.0 + 80.0 + OWN_US) * 1.001).abs() < 1e-9);
    assert!((bound(0.5, 0.125) - (1090.0 + 80.0 + OWN_US) * 1.001).abs() < 1e-9);
    assert!(bound(0.5, 0.25).is_infinite());
}

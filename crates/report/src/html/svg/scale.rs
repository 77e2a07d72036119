//! Linear and logarithmic scales with round ticks.

use tollgate_stats::number::with_decimals;

/// Maps values to pixels along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    Log,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

impl Scale {
    /// A linear scale. Its ends are widened to round values, and also if all values are the same.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>, ticks: usize) -> Self {
        let (low, high) = ends(values).unwrap_or((0.0, 1.0));
        let (low, high) = match high > low {
            true => (low, high),
            // Without values: from 0 to 1.
            false if low == 0.0 => (0.0, 1.0),
            false => (low - low.abs() / 2.0, low + low.abs() / 2.0),
        };
        let step = round_step(high - low, ticks);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Self::exact(low, high)
    }

    /// A linear scale with exactly these ends.
    pub(super) fn exact(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { kind: Kind::Linear, low, high, from: 0.0, to: 1.0 }
    }

    /// A logarithmic scale with room at both ends. Ignores values that are not positive.
    pub(super) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) =
            ends(values.into_iter().filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        let room = ((high / low).powf(LOG_ROOM)).max(LOG_ROOM_MIN);
        Self::exact_log(low / room, high * room)
    }

    /// A logarithmic scale with exactly these ends.
    pub(super) fn exact_log(low: f64, high: f64) -> Self {
        Self { kind: Kind::Log, low, high, from: 0.0, to: 1.0 }
    }

    /// Places the scale between two pixels; `from` belongs to the lowest value.
    pub(super) fn over(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns approximately `about` round values between the ends.
    pub(super) fn ticks(&self, about: usize) -> Vec<Tick> {
        let decades = (self.high / self.low).log10();
        match self.kind {
            Kind::Linear => steps(self.low, self.high, about),
            // Over little more than a decade, equal steps are rounder than powers.
            Kind::Log if decades < 0.9 => steps(self.low, self.high, about),
            Kind::Log => powers(self.low, self.high, decades, about),
        }
    }
}

/// Room at each end of a logarithmic scale, as a share of its length.
const LOG_ROOM: f64 = 0.06;
/// Minimum of that room, as a factor.
const LOG_ROOM_MIN: f64 = 1.02;

fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

/// Rounds `span / count` to 1, 2 or 5 times a power of ten.
fn round_step(span: f64, count: usize) -> f64 {
    let rough = span / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let limits = [(1.5, 1.0), (3.5, 2.0), (7.5, 5.0)];
    let round = limits.into_iter().find(|(limit, _)| rough / power < *limit);
    power * round.map_or(10.0, |(_, round)| round)
}

fn steps(low: f64, high: f64, about: usize) -> Vec<Tick> {
    let step = round_step(high - low, about);
    let decimals = decimals_of(step);
    let first = (low / step - 1e-9).ceil();
    (0..TICKS_MAX)
        .map(|index| (first + index as f64) * step)
        .take_while(|value| *value <= high + step * 1e-9)
        .map(|value| {
            // Adding zero makes a negative zero a zero.
            let value = if value.abs() < step * 1e-9 { 0.0 } else { value };
            Tick { value, label: with_decimals(value, decimals) }
        })
        .collect()
}

/// Powers of ten; if there is room, also 2 and 5, or 3, times these; otherwise every second, third ... power.
fn powers(low: f64, high: f64, decades: f64, about: usize) -> Vec<Tick> {
    let about = about as f64;
    let (parts, stride): (&[f64], usize) = if decades * 3.0 <= about {
        (&[1.0, 2.0, 5.0], 1)
    } else if decades * 2.0 <= about {
        (&[1.0, 3.0], 1)
    } else {
        let stride = (1..TICKS_MAX).find(|stride| *stride as f64 >= decades / about);
        (&[1.0], stride.unwrap_or(TICKS_MAX))
    };
    let first = low.log10().floor();
    let exponents = (0..TICKS_MAX).map(|index| first + (index * stride) as f64);
    let exponents = exponents.take_while(|exponent| 10_f64.powf(*exponent) <= high);
    exponents
        .flat_map(|exponent| parts.iter().map(move |part| (exponent, part * 10_f64.powf(exponent))))
        .filter(|(_, value)| (low * 0.999_999..=high * 1.000_001).contains(value))
        .map(|(exponent, value)| Tick {
            value,
            label: with_decimals(value, decimals_of(10_f64.powf(exponent))),
        })
        .collect()
}

/// More ticks than any axis has room for.
const TICKS_MAX: usize = 60;

fn decimals_of(step: f64) -> usize {
    (0..12).find(|decimals| step * 10_f64.powf(*decimals as f64) >= 0.999_999).unwrap_or(12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn domain(scale: &Scale) -> (f64, f64) {
        (scale.low, scale.high)
    }

    fn labels(scale: &Scale, about: usize) -> Vec<String> {
        scale.ticks(about).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn linear_scale_ends_at_round_values() {
        let scale = Scale::linear([3.2, 17.5], 4).over(100.0, 300.0);
        // A quarter of 14.3 is 3.6, and the next round step is 5: from 0 to 20.
        assert_eq!(domain(&scale), (0.0, 20.0));
        assert_eq!(labels(&scale, 4), ["0", "5", "10", "15", "20"]);
        assert_eq!([0.0, 5.0, 20.0].map(|value| scale.at(value)), [100.0, 150.0, 300.0]);
    }

    #[test]
    fn logarithmic_scale_spaces_ratios_equally() {
        let scale = Scale::exact_log(1.0, 100.0).over(0.0, 200.0);
        assert_eq!([1.0, 10.0, 100.0].map(|value| scale.at(value).round()), [0.0, 100.0, 200.0]);
        assert_eq!(labels(&scale, 6), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(labels(&scale, 4), ["1", "3", "10", "30", "100"]);
        assert_eq!(labels(&scale, 2), ["1", "10", "100"]);
        let long = Scale::exact_log(0.01, 1e6);
        assert_eq!(labels(&long, 4), ["0.01", "1", "100", "10,000", "1,000,000"]);
    }

    #[test]
    fn short_logarithmic_scale_has_equal_steps() {
        let scale = Scale::exact_log(0.97, 1.06);
        assert_eq!(labels(&scale, 4), ["0.98", "1.00", "1.02", "1.04", "1.06"]);
    }

    #[test]
    fn labels_have_the_decimals_of_their_step() {
        assert_eq!(labels(&Scale::exact(0.0, 0.5), 5), ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(labels(&Scale::exact(-10.0, 10.0), 2), ["-10", "0", "10"]);
        assert_eq!(labels(&Scale::exact(0.0, 40_000.0), 2), ["0", "20,000", "40,000"]);
    }

    #[test]
    fn no_value_and_a_single_value_have_a_scale() {
        assert_eq!(domain(&Scale::linear([], 4)), (0.0, 1.0));
        assert_eq!(domain(&Scale::linear([0.0], 4)), (0.0, 1.0));
        assert_eq!(domain(&Scale::linear([10.0, 10.0], 4)), (4.0, 16.0));
        assert!(Scale::log([5.0]).contains(5.0));
        assert!(Scale::log([f64::NAN, 0.0]).contains(2.0));
    }

    proptest! {
        #[test]
        fn scale_contains_its_values_and_ticks(values in proptest::collection::vec(1e-3..1e6, 1..20), about in 1usize..12) {
            for scale in [Scale::linear(values.clone(), about), Scale::log(values.clone())] {
                let scale = scale.over(0.0, 500.0);
                for value in &values {
                    prop_assert!(scale.contains(*value));
                    prop_assert!((-1e-6..=500.000_001).contains(&scale.at(*value)));
                }
                let ticks = scale.ticks(about);
                prop_assert!(ticks.len() <= 3 * about + 6, "{} ticks", ticks.len());
                prop_assert!(ticks.is_sorted_by(|a, b| a.value < b.value));
                prop_assert!(ticks.iter().all(|tick| scale.contains(tick.value * 0.999_999) || scale.contains(tick.value * 1.000_001)));
            }
        }
    }
}

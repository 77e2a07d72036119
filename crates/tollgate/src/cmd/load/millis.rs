//! Nanoseconds, in which is counted, as milliseconds, in which is told.

/// So many nanoseconds in milliseconds.
pub(crate) fn ms(ns: u64) -> f64 {
    ms_of(ns as f64)
}

/// The same of a mean, which is not a whole number.
pub(crate) fn ms_of(ns: f64) -> f64 {
    ns / NS_PER_MS
}

const NS_PER_MS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_nanoseconds_are_a_millisecond() {
        assert_eq!(ms(1_500_000), 1.5);
        assert_eq!(ms_of(0.5), 0.000_000_5);
    }
}

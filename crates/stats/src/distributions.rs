//! Approximations of the normal distribution and of Student's t distribution.
//!
//! Source: M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions" (1964), chapter 26.

/// The 97.5 % quantile of the standard normal distribution.
pub(crate) const NORMAL_QUANTILE: f64 = 1.959_963_984_540_054;

/// Returns the 97.5 % quantile of Student's t, within 0.0002 from 11 degrees of freedom up (26.7.5).
pub(crate) fn student_quantile(degrees_of_freedom: f64) -> f64 {
    let x = NORMAL_QUANTILE;
    let terms = [
        x,
        (x.powi(3) + x) / 4.0,
        (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0,
        (3.0 * x.powi(7) + 19.0 * x.powi(5) + 17.0 * x.powi(3) - 15.0 * x) / 384.0,
    ];
    polynomial(&terms, 1.0 / degrees_of_freedom)
}

/// Returns the share of the standard normal distribution above `x`, within 1e-7 (26.2.17). `x` must not be negative.
pub(crate) fn normal_tail(x: f64) -> f64 {
    let terms = [0.0, 0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    density * polynomial(&terms, 1.0 / (1.0 + 0.231_641_9 * x))
}

/// Returns the probability that Student's t lies at least as far from zero as `t`, within 1e-12 (26.7.3 and 26.7.4).
/// `t` must not be negative.
pub(crate) fn student_two_sided(t: f64, degrees_of_freedom: usize) -> f64 {
    let angle = t.atan2((degrees_of_freedom as f64).sqrt());
    let (sine, cosine) = angle.sin_cos();
    // Odd: cos + 2/3 cos^3 + 2 4 / (3 5) cos^5 ...; even: 1 + 1/2 cos^2 + 1 3 / (2 4) cos^4 ...
    let is_odd = degrees_of_freedom % 2 == 1;
    let (first, first_divisor) = if is_odd { (cosine, 3) } else { (1.0, 2) };
    let mut term = first;
    let mut sum = 0.0;
    let mut divisor = first_divisor;
    for _ in 0..degrees_of_freedom / 2 {
        sum += term;
        term *= cosine * cosine * f64::from(divisor - 1) / f64::from(divisor);
        divisor += 2;
    }
    let within =
        if is_odd { std::f64::consts::FRAC_2_PI * (angle + sine * sum) } else { sine * sum };
    (1.0 - within).max(0.0)
}

/// Returns the sum of `terms[k] * x^k`.
fn polynomial(terms: &[f64], x: f64) -> f64 {
    terms.iter().rev().fold(0.0, |sum, term| sum * x + term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_quantiles_match_the_printed_table() {
        for (degrees_of_freedom, quantile) in [(11.0, 2.201), (19.0, 2.093), (99.0, 1.984)] {
            let difference: f64 = student_quantile(degrees_of_freedom) - quantile;
            assert!(difference.abs() < 0.0006, "{degrees_of_freedom}");
        }
    }

    #[test]
    fn normal_tails_match_the_printed_table() {
        for (x, share) in [(0.0, 0.5), (1.0, 0.158_655), (1.96, 0.024_998), (3.0, 0.001_350)] {
            let difference: f64 = normal_tail(x) - share;
            assert!(difference.abs() < 0.000_001, "{x}");
        }
    }

    #[test]
    fn approximations_match_scipy() {
        let by_scipy = include_str!("../tests/fixtures/formulas.tsv");
        let mut compared = 0;
        for line in by_scipy.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let [expected, given] = [1, 2].map(|column| columns[column].parse::<f64>());
            let (ours, slack) = match (columns[0], given) {
                ("student", Ok(degrees_of_freedom)) => (student_quantile(degrees_of_freedom), 2e-4),
                ("normal-tail", Ok(x)) => (normal_tail(x), 1e-7),
                _ => continue,
            };
            assert!((ours - expected.unwrap()).abs() < slack, "{line}: {ours}");
            compared += 1;
        }
        assert_eq!(compared, 17);
    }
}

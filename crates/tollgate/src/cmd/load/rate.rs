//! Notation of rates: `5000`, or stages as in `100..5000/60s,5000/30s`.

use super::args::duration;
use std::time::Duration;
use tollgate_load::{MAX_RATE, MAX_STAGES, Rate, Stage};

/// Parses a rate, or stages separated by commas, each a rate or `FROM..TO`. A stage without a length takes that of the
/// next one that has one.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    if !text.contains([',', '/']) && !text.contains("..") {
        let rate = number(text, "a number above 0")?;
        return if rate > 0.0 {
            Ok(Rate::Constant(rate))
        } else {
            Err(expected("a number above 0"))
        };
    }
    let mut stages = Vec::new();
    let mut length: Option<Duration> = None;
    for part in text.rsplit(',') {
        let (rates, own) = match part.split_once('/') {
            Some((rates, time)) => (rates, Some(duration(time)?)),
            None => (part, None),
        };
        let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
        let [from_per_s, to_per_s] = [number(from, "rates from 0")?, number(to, "rates from 0")?];
        length = own.or(length);
        let Some(length) = length else {
            return Err(format!("stage `{part}` has no length; write {part}/10s"));
        };
        stages.push(Stage { from_per_s, to_per_s, length });
    }
    if stages.len() > MAX_STAGES {
        return Err(format!("expected at most {MAX_STAGES} stages"));
    }
    stages.reverse();
    Ok(Rate::Stages(stages))
}

fn number(text: &str, what: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(rate) if (0.0..=MAX_RATE).contains(&rate) => Ok(rate),
        _ => Err(expected(what)),
    }
}

fn expected(what: &str) -> String {
    format!(
        "expected {what} and at most {MAX_RATE}, such as 5000, 0.5, 100..5000/60s or 1000,2000,4000/10s"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(from_per_s: f64, to_per_s: f64, seconds: u64) -> Stage {
        Stage { from_per_s, to_per_s, length: Duration::from_secs(seconds) }
    }

    #[test]
    fn rates_are_constant_or_stages() {
        assert_eq!(rate("0.5"), Ok(Rate::Constant(0.5)));
        let stages = |stages: &[Stage]| Ok(Rate::Stages(stages.to_vec()));
        assert_eq!(rate("100..5000/60s"), stages(&[stage(100.0, 5_000.0, 60)]));
        let steps = [stage(1_000.0, 1_000.0, 10), stage(2_000.0, 2_000.0, 10), stage(0.0, 0.0, 10)];
        assert_eq!(rate("1000,2000,0/10s"), stages(&steps));
        let mixed = [stage(1.0, 9.0, 2), stage(9.0, 9.0, 60), stage(9.0, 0.0, 2)];
        assert_eq!(rate("1..9/2, 9/1m, 9..0/2s"), stages(&mixed));
    }

    #[test]
    fn errors_say_what_is_expected() {
        for text in [
            "0",
            "-1",
            "NaN",
            "inf",
            "10000000.1",
            "5k",
            "1..x/1s",
            "-1..5/1s",
            "..5/1s",
            ",5/1s",
            "5..",
        ] {
            let error = rate(text).unwrap_err();
            assert!(
                error.ends_with("such as 5000, 0.5, 100..5000/60s or 1000,2000,4000/10s"),
                "{text}: {error}"
            );
        }
        for (text, reason) in [
            ("100..200", "stage `100..200` has no length; write 100..200/10s"),
            ("5/1s,6", "stage `6` has no length; write 6/10s"),
            ("5/0s", "expected a time above 0"),
            ("5/fast", "expected a time such as"),
        ] {
            let error = rate(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}

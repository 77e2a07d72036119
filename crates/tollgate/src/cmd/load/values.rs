//! Values of the options of `tollgate load`.

use super::args::WarmUp;
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use http::uri::Authority;
use std::time::Duration;
use tollgate_load::{MAX_STAGES, MIN_INTERVAL, Pace, Rate, RateStage};
use tollgate_traffic::load_shape::{MAX_RATE, MAX_TIMEOUT};

/// Limit of the length of a measurement or a warm-up.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// Factors of a recorded rate.
const PACES: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

/// Limit of CPU numbers: the size of the kernel's CPU masks.
const MAX_CPU: usize = 1023;

/// CPU numbers; not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CpuList(pub(super) Vec<usize>);

pub(super) fn number(max: usize) -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=max as u64)
}

/// Parses a number of requests.
pub(super) fn requests(text: &str) -> Result<u64, String> {
    let (digits, factor) = with_unit(text);
    match digits.parse().ok().and_then(|number: u64| number.checked_mul(factor)) {
        None | Some(0) => Err("expected a number above 0, such as 5000 or 10k".to_owned()),
        Some(number) => Ok(number),
    }
}

/// Splits off thousands or millions: `10k`, `2M`.
fn with_unit(text: &str) -> (&str, u64) {
    match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    duration_up_to(text, MAX_DURATION)
}

/// Parses a duration. The error names the replacement of curl's -d, which the user may have meant.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|error| {
        let is_time = text.starts_with(|first: char| first.is_ascii_digit() || first == '-');
        if is_time { error } else { format!("{error}; for a body use --body") }
    })
}

/// Parses the pace of a replay.
pub(super) fn pace(text: &str) -> Result<Pace, String> {
    let factor = text.strip_prefix('x').and_then(|digits| digits.parse().ok());
    match (text, factor) {
        ("original", _) => Ok(Pace::Recorded { factor: 1.0 }),
        ("rate", _) => Ok(Pace::Rate),
        (_, Some(factor)) if PACES.contains(&factor) => Ok(Pace::Recorded { factor }),
        _ => Err(format!(
            "expected `original`, `rate`, or a factor from x{} to x{}, such as x2 or x0.5",
            PACES.start(),
            PACES.end()
        )),
    }
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    duration_up_to(text, MAX_TIMEOUT)
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        length if length >= MIN_INTERVAL => Ok(length),
        _ => Err(format!("expected at least {}", humantime::format_duration(MIN_INTERVAL))),
    }
}

pub(super) fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text {
        "steady" => Ok(WarmUp::Steady),
        time => duration(time).map(WarmUp::For).map_err(|error| format!("{error}, or `steady`")),
    }
}

fn duration_up_to(text: &str, max: Duration) -> Result<Duration, String> {
    // A number alone is in seconds, as in wrk and curl.
    let parsed = match text.parse().ok().map(Duration::try_from_secs_f64) {
        Some(Ok(seconds)) => Ok(seconds),
        _ => humantime::parse_duration(text),
    };
    let duration =
        parsed.map_err(|error| format!("{error}; expected a time such as 500ms, 10s or 1m 30s"))?;
    if duration.is_zero() || duration > max {
        let max = humantime::format_duration(max);
        return Err(format!("expected a time above 0 and at most {max}"));
    }
    Ok(duration)
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) fn host(text: &str) -> Result<String, String> {
    match text.parse::<Authority>() {
        Ok(host) if !host.as_str().contains('@') => Ok(text.to_owned()),
        _ => Err("expected a host such as shop.example or shop.example:8080".to_owned()),
    }
}

pub(super) fn cpu_list(text: &str) -> Result<CpuList, String> {
    let number = |digits: &str| match digits.trim().parse::<usize>() {
        Ok(cpu) if cpu <= MAX_CPU => Ok(cpu),
        _ => Err(format!("expected numbers up to {MAX_CPU} and ranges, such as 0,2-3")),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("range `{part}` is empty, write {last}-{first}"));
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

/// Parses a rate, or stages separated by commas, each a rate or `FROM..TO`. A stage without a length takes that of the
/// next one that has one.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    // As other tools write requests per second.
    let text = match text.strip_suffix("/s") {
        Some(rate) if !rate.contains([',', '/']) && !rate.contains("..") => rate,
        _ => text,
    };
    if !text.contains([',', '/']) && !text.contains("..") {
        let rate = per_s(text, "a number above 0")?;
        return if rate > 0.0 {
            Ok(Rate::Constant(rate))
        } else {
            Err(expected_rate("a number above 0"))
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
        let [from_per_s, to_per_s] = [per_s(from, "rates from 0")?, per_s(to, "rates from 0")?];
        length = own.or(length);
        let Some(length) = length else {
            return Err(format!("stage `{part}` has no length; write {part}/10s"));
        };
        stages.push(RateStage { from_per_s, to_per_s, length });
    }
    if stages.len() > MAX_STAGES {
        return Err(format!("expected at most {MAX_STAGES} stages"));
    }
    stages.reverse();
    Ok(Rate::Stages(stages))
}

fn per_s(text: &str, what: &str) -> Result<f64, String> {
    let (digits, factor) = with_unit(text.trim());
    let number = if digits.starts_with('.') { None } else { digits.parse::<f64>().ok() };
    match number.map(|number| number * factor as f64).ok_or(()) {
        Ok(rate) if (0.0..=MAX_RATE).contains(&rate) => Ok(rate),
        _ => Err(expected_rate(what)),
    }
}

fn expected_rate(what: &str) -> String {
    format!(
        "expected {what} and at most {MAX_RATE}, such as 5000, 0.5, 100..5000/60s or 1000,2000,4000/10s"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(from_per_s: f64, to_per_s: f64, seconds: u64) -> RateStage {
        RateStage { from_per_s, to_per_s, length: Duration::from_secs(seconds) }
    }

    #[test]
    fn rates_are_constant_or_stages() {
        assert_eq!(rate("0.5"), Ok(Rate::Constant(0.5)));
        assert_eq!(rate("100/s"), Ok(Rate::Constant(100.0)));
        assert_eq!(rate("2.5k"), Ok(Rate::Constant(2_500.0)));
        assert_eq!(rate("1k/s"), Ok(Rate::Constant(1_000.0)));
        let stages = |stages: &[RateStage]| Ok(Rate::Stages(stages.to_vec()));
        assert_eq!(rate("100..5000/60s"), stages(&[stage(100.0, 5_000.0, 60)]));
        let steps = [stage(1_000.0, 1_000.0, 10), stage(2_000.0, 2_000.0, 10), stage(0.0, 0.0, 10)];
        assert_eq!(rate("1000,2000,0/10s"), stages(&steps));
        let mixed = [stage(1.0, 9.0, 2), stage(9.0, 9.0, 60), stage(9.0, 0.0, 2)];
        assert_eq!(rate("1..9/2, 9/1m, 9..0/2s"), stages(&mixed));
    }

    #[test]
    fn errors_of_rates_say_what_is_expected() {
        for text in [
            "0",
            "-1",
            "NaN",
            "inf",
            "10000000.1",
            "5t",
            ".5",
            "10...100/1s",
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

    #[test]
    fn cpu_lists_have_numbers_and_ranges() {
        assert_eq!(cpu_list("0,2-3, 7"), Ok(CpuList(vec![0, 2, 3, 7])));
        assert_eq!(cpu_list("1,1"), Ok(CpuList(vec![1, 1])));
        for (text, reason) in [
            ("", "such as 0,2-3"),
            ("0,,1", "such as 0,2-3"),
            ("3-2", "write 2-3"),
            ("1024", "numbers up to 1023"),
        ] {
            let error = cpu_list(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn times_have_limits() {
        assert_eq!(warm_up("steady"), Ok(WarmUp::Steady));
        assert_eq!(warm_up("2s"), Ok(WarmUp::For(Duration::from_secs(2))));
        for (text, seconds) in [("1", 1.0), ("0.5", 0.5), ("10s", 10.0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)));
        }
        for text in ["-5s", "-5", "", "fast", "NaN", "inf", "1e400"] {
            assert!(duration(text).unwrap_err().contains("expected a time such as"), "{text:?}");
        }
        for error in [duration("25h"), timeout("61m"), timeout("0s")] {
            assert!(error.unwrap_err().starts_with("expected a time above 0 and at most"));
        }
    }

    #[test]
    fn host_has_an_optional_port() {
        for text in ["shop.example", "shop.example:8080", "[::1]:80", "127.0.0.1"] {
            assert_eq!(host(text), Ok(text.to_owned()));
        }
        for text in ["", "a b", "a/b", "a\r\nb", "user@shop.example"] {
            assert!(host(text).unwrap_err().contains("such as shop.example"), "{text:?}");
        }
    }
}

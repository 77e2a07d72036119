//! The values of options, read by themselves.

use super::{CpuList, WarmUp};
use std::time::Duration;
use tollgate_load::{MAX_RATE, MAX_TIMEOUT};

/// The longest that a measurement or a warm-up may last.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The highest number of a CPU: what the kernel's default CPU masks hold.
const CPU_MAX: usize = 1023;

pub(super) fn count(most: usize) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=most as u64)
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    time_up_to(text, LONGEST)
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    time_up_to(text, MAX_TIMEOUT)
}

pub(super) fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text {
        "steady" => Ok(WarmUp::Steady),
        time => duration(time).map(WarmUp::For).map_err(|why| format!("{why}, or `steady`")),
    }
}

fn time_up_to(text: &str, longest: Duration) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() || time > longest {
        let longest = humantime::format_duration(longest);
        return Err(format!("it has to be above 0 and at most {longest}"));
    }
    Ok(time)
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if rate > 0.0 && rate <= MAX_RATE {
        return Ok(rate);
    }
    Err(format!("it has to be above 0 and at most {MAX_RATE}"))
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("it has to be of the form `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) fn cpu_list(text: &str) -> Result<CpuList, String> {
    let number = |digits: &str| match digits.trim().parse::<usize>() {
        Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
        Ok(cpu) => Err(format!("CPU {cpu}: the highest number is {CPU_MAX}")),
        Err(error) => Err(format!("`{digits}`: {error}; write a list such as 0,2-3")),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("`{part}` goes down; write {last}-{first}"));
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_in_ranges() {
        assert_eq!(cpu_list("0,2-3, 7"), Ok(CpuList(vec![0, 2, 3, 7])));
        assert_eq!(cpu_list("1,1"), Ok(CpuList(vec![1, 1])));
        for (text, why) in [
            ("", "write a list"),
            ("0,,1", "write a list"),
            ("3-2", "write 2-3"),
            ("1024", "highest number is 1023"),
        ] {
            let error = cpu_list(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn rates_are_decimal_numbers_within_bounds() {
        assert_eq!(rate("0.5"), Ok(0.5));
        for text in ["0", "-1", "NaN", "inf", "10000000.1", "fast"] {
            rate(text).unwrap_err();
        }
    }

    #[test]
    fn a_warm_up_has_a_time_or_ends_when_steady() {
        assert_eq!(warm_up("steady"), Ok(WarmUp::Steady));
        assert_eq!(warm_up("2s"), Ok(WarmUp::For(Duration::from_secs(2))));
        assert!(warm_up("steddy").unwrap_err().ends_with(", or `steady`"));
        duration("25h").unwrap_err();
        timeout("61m").unwrap_err();
        timeout("0s").unwrap_err();
    }
}

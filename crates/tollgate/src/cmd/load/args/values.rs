//! The values of options, read by themselves.

use super::{CpuList, WarmUp};
use http::uri::Authority;
use std::time::Duration;
use tollgate_load::{MAX_RATE, MAX_TIMEOUT, MAX_TIMER_SLACK};

/// The longest that a measurement or a warm-up may last.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The highest number of a CPU: what the kernel's default CPU masks hold.
const CPU_MAX: usize = 1023;

pub(super) fn count(most: usize) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=most as u64)
}

pub(super) fn requests(text: &str) -> Result<u64, String> {
    whole_number(text, 1)
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    whole_number(text, 0)
}

fn whole_number(text: &str, least: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("it has to be a whole number from {least} to {}", u64::MAX)),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    time_up_to(text, LONGEST)
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    time_up_to(text, MAX_TIMEOUT)
}

pub(super) fn timer_slack(text: &str) -> Result<Duration, String> {
    time_up_to(text, MAX_TIMER_SLACK)
}

pub(super) fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text {
        "steady" => Ok(WarmUp::Steady),
        time => duration(time).map(WarmUp::For).map_err(|why| format!("{why}; or write `steady`")),
    }
}

fn time_up_to(text: &str, longest: Duration) -> Result<Duration, String> {
    let Ok(time) = humantime::parse_duration(text) else {
        return Err("it has to be a time with its unit, such as 500ms, 10s or 1m 30s".to_owned());
    };
    if time.is_zero() || time > longest {
        let longest = humantime::format_duration(longest);
        return Err(format!("it has to be above 0 and at most {longest}"));
    }
    Ok(time)
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate <= MAX_RATE => Ok(rate),
        _ => Err(format!(
            "it has to be a number above 0 and at most {MAX_RATE}, such as 5000 or 0.5"
        )),
    }
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("it has to be of the form `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) fn host(text: &str) -> Result<String, String> {
    match text.parse::<Authority>() {
        Ok(host) if !host.as_str().contains('@') => Ok(text.to_owned()),
        _ => Err("it has to be a host, such as shop.example or shop.example:8080".to_owned()),
    }
}

pub(super) fn cpu_list(text: &str) -> Result<CpuList, String> {
    let number = |digits: &str| match digits.trim().parse::<usize>() {
        Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
        Ok(cpu) => Err(format!("CPU {cpu}: the highest number is {CPU_MAX}")),
        Err(_) => Err("it has to be a list of numbers and ranges, such as 0,2-3".to_owned()),
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
            ("", "such as 0,2-3"),
            ("0,,1", "such as 0,2-3"),
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
        for text in ["0", "-1", "NaN", "inf", "10000000.1", "5k"] {
            assert!(rate(text).unwrap_err().ends_with("such as 5000 or 0.5"), "{text}");
        }
    }

    #[test]
    fn whole_numbers_say_where_they_begin() {
        assert_eq!((requests("1"), seed("0")), (Ok(1), Ok(0)));
        for text in ["0", "-1", "1.5", ""] {
            let why = requests(text).unwrap_err();
            assert!(why.starts_with("it has to be a whole number from 1 to"), "{text}: {why}");
        }
        assert!(seed("-1").unwrap_err().starts_with("it has to be a whole number from 0"));
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for text in ["shop.example", "shop.example:8080", "[::1]:80", "127.0.0.1"] {
            assert_eq!(host(text), Ok(text.to_owned()));
        }
        for text in ["", "a b", "a/b", "a\r\nb", "user@shop.example"] {
            assert!(host(text).unwrap_err().contains("such as shop.example"), "{text:?}");
        }
    }

    #[test]
    fn a_warm_up_has_a_time_or_ends_when_steady() {
        assert_eq!(warm_up("steady"), Ok(WarmUp::Steady));
        assert_eq!(warm_up("2s"), Ok(WarmUp::For(Duration::from_secs(2))));
        let why =
            "it has to be a time with its unit, such as 500ms, 10s or 1m 30s; or write `steady`";
        assert_eq!(warm_up("stead"), Err(why.to_owned()));
        for text in ["10", "-5s", "", "fast"] {
            assert!(duration(text).unwrap_err().contains("with its unit"), "{text:?}");
        }
        for why in [duration("25h"), timeout("61m"), timeout("0s"), timeout("0")] {
            assert!(why.unwrap_err().starts_with("it has to be above 0 and at most"));
        }
    }
}

//! Number formats of every report: three significant digits, percentages, digit groups.

/// Formats with three significant digits: whole numbers from 100 on, digit groups from 10,000 on.
/// Magnitudes below a millionth become 0.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    if size >= 99.95 {
        return with_decimals(value, 0);
    }
    // Rounding may carry into the next power of ten, which takes one decimal less.
    let decimals = (0..=MAX_DECIMALS).find(|decimals| {
        let scale = 10_f64.powi(*decimals);
        (size * scale).round() >= 100.0
    });
    match decimals {
        Some(decimals) => format!("{value:.*}", usize::try_from(decimals).unwrap_or(0)),
        None => "0".to_owned(),
    }
}

/// Enough for three digits of a millionth.
const MAX_DECIMALS: i32 = 8;

/// Formats as [`significant`], with a sign in front of positive values too.
pub fn signed(value: f64) -> String {
    let text = significant(value);
    if value > 0.0 && text != "0" { format!("+{text}") } else { text }
}

/// Formats a ratio as a change in percent: 1.05 is `+5.00 %`.
pub fn relative(ratio: f64) -> String {
    format!("{} %", signed(100.0 * (ratio - 1.0)))
}

/// Formats a share from 0 to 1 in percent, without trailing zeros: 0.02 is `2 %`.
pub fn share(share: f64) -> String {
    // 0.07 * 100 is not 7.
    format!("{} %", (share * 1e8).round() / 1e6)
}

/// Formats a count with all its digits.
pub fn count(count: u64) -> String {
    group(&count.to_string())
}

/// Formats a configured number, such as a rate, with all its digits.
pub fn in_full(value: f64) -> String {
    group(&value.to_string())
}

pub fn with_decimals(value: f64, decimals: usize) -> String {
    group(&format!("{value:.decimals$}"))
}

/// Groups the digits before the point by three, from five digits on: 9999, but 10,000. All functions
/// above use it, so that every report groups alike.
fn group(number: &str) -> String {
    let (sign, digits) = number.split_at(usize::from(number.starts_with('-')));
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    if whole.len() < 5 {
        return number.to_owned();
    }
    let mut grouped = sign.to_owned();
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Formats a share from 0 to 1 in percent with one decimal. Only exact shares become `0 %` and
/// `100 %`; close ones become `<0.1 %` and `>99.9 %`.
pub fn percent(share: f64) -> String {
    if share <= 0.0 {
        "0 %".to_owned()
    } else if share >= 1.0 {
        "100 %".to_owned()
    } else if share < 0.001 {
        "<0.1 %".to_owned()
    } else if share > 0.999 {
        ">99.9 %".to_owned()
    } else {
        format!("{:.1} %", 100.0 * share)
    }
}

/// Formats a count with its noun: "1 block", "2 blocks".
pub fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_keeps_three_digits() {
        assert_eq!(significant(0.0), "0");
        assert_eq!(significant(-0.001), "-0.00100");
        assert_eq!(significant(0.000_000_1), "0");
        assert_eq!(significant(0.0201), "0.0201");
        assert_eq!(significant(0.999_6), "1.00");
        assert_eq!(significant(0.5), "0.500");
        assert_eq!(significant(8.104), "8.10");
        assert_eq!(significant(9.996), "10.0");
        assert_eq!(significant(70.06), "70.1");
        assert_eq!(significant(99.96), "100");
        assert_eq!(significant(951.4), "951");
        assert_eq!(significant(9999.4), "9999");
        assert_eq!(significant(52_310.0), "52,310");
        assert_eq!(significant(-1_234_567.0), "-1,234,567");
        assert_eq!(with_decimals(-12_345.678, 1), "-12,345.7");
        assert_eq!(with_decimals(0.5, 2), "0.50");
        assert_eq!(signed(13.7), "+13.7");
        assert_eq!(signed(-13.7), "-13.7");
        assert_eq!(signed(0.0), "0");
    }

    #[test]
    fn digit_groups_start_at_five_digits() {
        for (value, text) in [
            (0_u32, "0"),
            (999, "999"),
            (1_000, "1000"),
            (9_999, "9999"),
            (10_000, "10,000"),
            (123_456, "123,456"),
            (1_000_000, "1,000,000"),
        ] {
            assert_eq!(count(u64::from(value)), text);
            assert_eq!(in_full(f64::from(value)), text);
            assert_eq!(with_decimals(f64::from(value), 0), text);
            assert_eq!(with_decimals(-f64::from(value), 0).trim_start_matches('-'), text);
            if value >= 100 {
                assert_eq!(significant(f64::from(value)), text);
            }
        }
    }

    #[test]
    fn in_full_keeps_all_digits() {
        assert_eq!(in_full(12_345.5), "12,345.5");
        assert_eq!(in_full(0.5), "0.5");
        assert_eq!(in_full(-10_000.25), "-10,000.25");
    }

    #[test]
    fn relative_and_share_are_percentages() {
        assert_eq!(relative(1.05), "+5.00 %");
        assert_eq!(relative(0.988), "-1.20 %");
        assert_eq!(relative(1.0), "0 %");
        assert_eq!(share(0.02), "2 %");
        assert_eq!(share(0.07), "7 %");
        assert_eq!(share(0.0055), "0.55 %");
    }

    #[test]
    fn percent_reserves_0_and_100_for_exact_shares() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.99999), ">99.9 %");
        assert_eq!(percent(0.25), "25.0 %");
        assert_eq!(percent(0.00001), "<0.1 %");
        assert_eq!(percent(0.0), "0 %");
    }
}

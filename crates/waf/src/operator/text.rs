//! Comparisons of text and of numbers.

use memchr::memmem;

use crate::transformation::is_space;

/// `contains` and `strmatch`: returns the first position of the argument. An empty argument is found at 0.
pub(crate) fn contains(value: &[u8], argument: &[u8]) -> Option<usize> {
    memmem::find(value, argument)
}

/// `containsWord`: the argument between bytes other than ASCII letters. `1ab2` contains the word
/// `ab`.
pub(crate) fn contains_word(value: &[u8], argument: &[u8]) -> bool {
    let is_boundary =
        |position: usize| value.get(position).is_some_and(|byte| !byte.is_ascii_alphabetic());
    argument.is_empty()
        || value == argument
        || memmem_overlapping(value, argument).any(|start| {
            let end = start + argument.len();
            let before = start == 0 || is_boundary(start - 1);
            let after = end == value.len() || is_boundary(end);
            before && after
        })
}

/// Positions of the argument, overlapping ones too. Linear, since a position that is a part of the
/// one before it is found by `memmem` from the next byte on only where the text repeats itself.
fn memmem_overlapping<'a>(value: &'a [u8], argument: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let finder = memmem::Finder::new(argument);
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + finder.find(value.get(from..)?)?;
        from = start + 1;
        Some(start)
    })
}

/// `beginsWith`.
pub(crate) fn begins_with(value: &[u8], argument: &[u8]) -> bool {
    value.starts_with(argument)
}

/// `endsWith`.
pub(crate) fn ends_with(value: &[u8], argument: &[u8]) -> bool {
    value.ends_with(argument)
}

/// `within`: the argument contains the value, which may be empty.
pub(crate) fn within(value: &[u8], argument: &[u8]) -> bool {
    memmem::find(argument, value).is_some()
}

/// `streq`.
pub(crate) fn streq(value: &[u8], argument: &[u8]) -> bool {
    value == argument
}

/// Reads a number for `ge`, `gt`, `le` and `lt` like `atoll` of C: leading whitespace, a sign and digits; 0 without
/// digits; the nearest 64-bit number on overflow.
pub(crate) fn parse_integer(value: &[u8]) -> i64 {
    let (number, negative) = digits(value);
    number.unwrap_or(if negative { i64::MIN } else { i64::MAX })
}

/// The number at the start of a value, `None` if it does not fit, and true for a minus sign.
fn digits(value: &[u8]) -> (Option<i64>, bool) {
    let start = value.iter().position(|byte| !is_space(*byte)).unwrap_or(value.len());
    let (negative, digits) = match &value[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    };
    let mut number = Some(0i64);
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let digit = i64::from(digit - b'0');
        let digit = if negative { -digit } else { digit };
        number = number.and_then(|number| number.checked_mul(10)?.checked_add(digit));
    }
    (number, negative)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::NumberOperator;

    #[test]
    fn contains_word_needs_no_letter_at_either_side() {
        for value in ["ab", "x ab y", "ab y", "y ab", "xab ab", "1ab2", "ab_"] {
            assert!(contains_word(value.as_bytes(), b"ab"), "{value}");
        }
        for value in ["xab", "abx", "abab", "a", ""] {
            assert!(!contains_word(value.as_bytes(), b"ab"), "{value}");
        }
        assert!(contains_word(b"xaa aa", b"aa"));
        assert!(contains_word(b"", b""));
    }

    #[test]
    fn within_takes_the_value_as_the_part() {
        assert!(within(b"", b"ab cd"));
        assert!(within(b"b c", b"ab cd"));
        assert!(!within(b"ab cd e", b"ab cd"));
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, order, equality) in [
            ("5", 5, 5),
            (" \t05x", 5, 5),
            ("+5", 5, 5),
            ("-7.5", -7, -7),
            ("x", 0, 0),
            ("", 0, 0),
            ("0x5", 0, 0),
            ("- 5", 0, 0),
            ("2147483648", 2_147_483_648, 0),
            ("-2147483648", -2_147_483_648, -2_147_483_648),
            ("9223372036854775807", i64::MAX, 0),
            ("99999999999999999999", i64::MAX, 0),
            ("-99999999999999999999", i64::MIN, 0),
        ] {
            let number = parse_integer(text.as_bytes());
            assert_eq!((number, NumberOperator::Equal.narrow(number)), (order, equality), "{text}");
        }
    }
}

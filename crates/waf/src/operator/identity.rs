//! Check digits of `verifyCC`, `verifyCPF`, `verifySSN` and `verifySVNR`.
//!
//! Each function gets the text that the operator's regex matched and reads only its decimal digits.
//! libmodsecurity searches from every position of the value: if a match at `start` fails, the search
//! continues from `start + 1`.

/// Returns the digits if there are exactly `N`.
fn exactly<const N: usize>(text: &[u8]) -> Option<[u32; N]> {
    let mut digits = [0; N];
    let mut count = 0;
    for byte in text.iter().filter(|byte| byte.is_ascii_digit()) {
        *digits.get_mut(count)? = u32::from(byte - b'0');
        count += 1;
    }
    (count == N).then_some(digits)
}

/// The first `N` digits, read up to a zero byte. `None` if there are fewer.
fn first<const N: usize>(text: &[u8]) -> Option<[u32; N]> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or(text);
    let mut digits =
        text.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| u32::from(byte - b'0'));
    let mut out = [0; N];
    for digit in &mut out {
        *digit = digits.next()?;
    }
    Some(out)
}

fn all_equal(digits: &[u32]) -> bool {
    digits.iter().all(|digit| *digit == digits[0])
}

fn weighted(digits: &[u32], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum()
}

/// Returns true if the digits have a correct check digit by Luhn's formula: `4111111111111111`.
pub(crate) fn valid_credit_card(text: &[u8]) -> bool {
    let mut sum = 0;
    let mut digits = 0;
    for byte in text.iter().rev().filter(|byte| byte.is_ascii_digit()) {
        let digit = u32::from(byte - b'0');
        sum += match (digits % 2, digit) {
            (0, digit) => digit,
            (_, digit @ 0..=4) => 2 * digit,
            (_, digit) => 2 * digit - 9,
        };
        digits += 1;
    }
    digits > 0 && sum % 10 == 0
}

/// Returns true for a social security number of the USA: nine digits whose three fields are not
/// zero, with an area below 740 other than 666, and that do not count up or repeat one digit.
pub(crate) fn valid_ssn(text: &[u8]) -> bool {
    let Some(digits) = exactly::<9>(text) else { return false };
    let area = weighted(&digits[..3], &[100, 10, 1]);
    let group = weighted(&digits[3..5], &[10, 1]);
    let serial = weighted(&digits[5..], &[1000, 100, 10, 1]);
    let counts_up = digits.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    area > 0
        && area < 740
        && area != 666
        && group > 0
        && serial > 0
        && !counts_up
        && !all_equal(&digits)
}

/// Returns true for a taxpayer number of Brazil (CPF): eleven digits, the last two of which check
/// the others modulo 11, other than `01234567890` and one digit repeated: `529.982.247-25`.
pub(crate) fn valid_cpf(text: &[u8]) -> bool {
    let Some(digits) = first::<11>(text) else { return false };
    const WEIGHTS: [u32; 10] = [11, 10, 9, 8, 7, 6, 5, 4, 3, 2];
    let check = |sum: u32| if sum % 11 < 2 { 0 } else { 11 - sum % 11 };
    !all_equal(&digits)
        && digits != [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
        && digits[9] == check(weighted(&digits[..9], &WEIGHTS[1..]))
        && digits[10] == check(weighted(&digits[..10], &WEIGHTS))
}

/// Returns true for a social insurance number of Austria (SVNR): ten digits, the fourth of which
/// checks the others modulo 11, other than one digit below 8 repeated: `1237 010180`.
pub(crate) fn valid_svnr(text: &[u8]) -> bool {
    let Some(digits) = first::<10>(text) else { return false };
    let sum = weighted(&digits, &[3, 7, 9, 0, 5, 8, 4, 2, 1, 6]) % 11;
    let known_bad = all_equal(&digits) && digits[0] < 8;
    !known_bad && digits[3] == sum % 10
}

//! Decoders and encoders, and digests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use memchr::{memchr, memchr2};
use sha1::Sha1;

use super::edit::{is_space, truncate_at_zero};

/// Value of two bytes read as hexadecimal digits without a check, as in libmodsecurity.
pub(crate) fn hex_pair(high: u8, low: u8) -> u8 {
    let digit = |byte: u8| {
        if byte >= b'A' {
            (byte & 0xdf).wrapping_sub(b'A').wrapping_add(10)
        } else {
            byte.wrapping_sub(b'0')
        }
    };
    digit(high).wrapping_mul(16).wrapping_add(digit(low))
}

fn is_octal(byte: u8) -> bool {
    matches!(byte, b'0'..=b'7')
}

/// Copies up to the next byte `needle` and returns its position.
fn copy_until(needle: u8, input: &[u8], from: usize, output: &mut Vec<u8>) -> Option<usize> {
    let found = memchr(needle, &input[from..]).map(|offset| from + offset);
    output.extend_from_slice(&input[from..found.unwrap_or(input.len())]);
    found
}

/// The byte of a 16-bit code in four hexadecimal digits: the lower one, or ASCII for the
/// full-width forms U+FF01 to U+FF5E.
fn code_byte(digits: &[u8]) -> u8 {
    let byte = hex_pair(digits[2], digits[3]);
    let full_width = digits[..2].eq_ignore_ascii_case(b"ff") && (0x01..0x5f).contains(&byte);
    if full_width { byte + 0x20 } else { byte }
}

fn all_hex(input: &[u8], from: usize, count: usize) -> Option<&[u8]> {
    let digits = input.get(from..from + count)?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)
}

/// Decodes URL escapes. `UNICODE` adds `%uXXXX`.
pub(crate) fn url<const UNICODE: bool>(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    while let Some(offset) = memchr2(b'%', b'+', &input[i..]) {
        output.extend_from_slice(&input[i..i + offset]);
        i += offset;
        if input[i] == b'+' {
            output.push(b' ');
            i += 1;
        } else if UNICODE && matches!(input.get(i + 1), Some(b'u' | b'U')) {
            if let Some(digits) = all_hex(input, i + 2, 4) {
                output.push(code_byte(digits));
                i += 6;
            } else {
                output.extend_from_slice(&input[i..i + 2]);
                i += 2;
            }
        } else if let Some(digits) = all_hex(input, i + 1, 2) {
            output.push(hex_pair(digits[0], digits[1]));
            i += 3;
        } else {
            output.push(b'%');
            i += 1;
        }
    }
    output.extend_from_slice(&input[i..]);
}

pub(super) fn html(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    while let Some(start) = copy_until(b'&', input, i, output) {
        let rest = &input[start + 1..];
        let (prefix, radix) = match rest {
            [b'#', b'x' | b'X', ..] => (2, 16),
            [b'#', ..] => (1, 10),
            _ => (0, 36),
        };
        let length =
            rest[prefix..].iter().take_while(|byte| char::from(**byte).is_digit(radix)).count();
        let text = &rest[prefix..prefix + length];
        let byte = match radix {
            36 => named_entity(text),
            _ if text.is_empty() => None,
            _ => Some(number_byte(text, radix)),
        };
        i = start + 1 + prefix;
        match byte {
            Some(byte) => {
                output.push(byte);
                i += length;
                if input.get(i) == Some(&b';') {
                    i += 1;
                }
            }
            None => {
                // The marks, and the name if there is one, are copied.
                if radix == 36 {
                    i += length;
                }
                output.extend_from_slice(&input[start..i]);
            }
        }
    }
}

fn named_entity(name: &[u8]) -> Option<u8> {
    const NAMES: [(&[u8], u8); 5] =
        [(b"quot", b'"'), (b"amp", b'&'), (b"lt", b'<'), (b"gt", b'>'), (b"nbsp", 0xa0)];
    NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, byte)| *byte)
}

/// Lowest byte of a number. One that does not fit 63 bits gives 255, as `strtol` saturates.
fn number_byte(digits: &[u8], radix: u32) -> u8 {
    let mut number = 0i64;
    for &digit in digits {
        let digit = char::from(digit).to_digit(radix).unwrap_or(0);
        let next =
            number.checked_mul(i64::from(radix)).and_then(|n| n.checked_add(i64::from(digit)));
        match next {
            Some(next) => number = next,
            None => return 255,
        }
    }
    number as u8
}

fn letter_escape(letter: u8) -> Option<u8> {
    Some(match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => 10,
        b'r' => 13,
        b't' => 9,
        b'v' => 11,
        _ => return None,
    })
}

/// Value and length of the up to three octal digits at the start.
fn octal(input: &[u8]) -> (u32, usize) {
    let length = input.iter().take(3).take_while(|byte| is_octal(**byte)).count();
    (input[..length].iter().fold(0, |value, digit| value * 8 + u32::from(digit - b'0')), length)
}

pub(super) fn js(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    while let Some(start) = copy_until(b'\\', input, i, output) {
        let Some(&kind) = input.get(start + 1) else {
            output.push(b'\\');
            return;
        };
        i = start + 2;
        let code = if kind == b'u' { all_hex(input, i, 4) } else { None };
        let byte = if kind == b'x' { all_hex(input, i, 2) } else { None };
        if let Some(digits) = code {
            output.push(code_byte(digits));
            i += 4;
        } else if let Some(digits) = byte {
            output.push(hex_pair(digits[0], digits[1]));
            i += 2;
        } else if is_octal(kind) {
            let (value, length) = octal(&input[start + 1..]);
            // The third digit is ignored if the value would exceed a byte.
            let (value, length) = if value > 255 { (value / 8, 2) } else { (value, length) };
            output.push(value as u8);
            i = start + 1 + length;
        } else {
            output.push(letter_escape(kind).unwrap_or(kind));
        }
    }
}

pub(super) fn ansi_c(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    while let Some(start) = copy_until(b'\\', input, i, output) {
        let Some(&kind) = input.get(start + 1) else {
            output.push(b'\\');
            return;
        };
        i = start + 2;
        let byte = if matches!(kind, b'x' | b'X') { all_hex(input, i, 2) } else { None };
        if let Some(digits) = byte {
            output.push(hex_pair(digits[0], digits[1]));
            i += 2;
        } else if is_octal(kind) {
            let (value, length) = octal(&input[start + 1..]);
            output.push(value as u8);
            i = start + 1 + length;
        } else {
            output.push(letter_escape(kind).unwrap_or(kind));
        }
    }
}

pub(super) fn css(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    while let Some(start) = copy_until(b'\\', input, i, output) {
        i = start + 1;
        let length = input[i..].iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
        let digits = &input[i..i + length];
        match (digits, input.get(i)) {
            ([], None) => break,
            ([], Some(b'\n')) => i += 1,
            ([], Some(&byte)) => {
                output.push(byte);
                i += 1;
            }
            (digits, _) => {
                output.push(css_code(digits));
                i += length;
                // One whitespace byte ends the escape.
                if input.get(i).is_some_and(|&byte| is_space(byte)) {
                    i += 1;
                }
            }
        }
    }
    truncate_at_zero(output);
}

/// The lower byte of a CSS escape, or ASCII for a full-width form in four digits, or in up to
/// six with leading zeros.
fn css_code(digits: &[u8]) -> u8 {
    match digits {
        [digit] => hex_pair(b'0', *digit),
        [.., high, low] if digits.len() < 4 => hex_pair(*high, *low),
        [zeros @ .., _, _, _, _] if zeros.iter().all(|digit| *digit == b'0') => {
            code_byte(&digits[zeros.len()..])
        }
        [.., high, low] => hex_pair(*high, *low),
        [] => 0,
    }
}

pub(super) fn hex(input: &[u8], output: &mut Vec<u8>) {
    output.extend(input.chunks_exact(2).map(|pair| hex_pair(pair[0], pair[1])));
}

pub(super) fn sql_hex(input: &[u8], output: &mut Vec<u8>) {
    // libmodsecurity reads the value as a C string and compares a count that runs ahead by one.
    let at = |i: usize| input.get(i).copied().unwrap_or(0);
    let digits_at = |i: usize| at(i).is_ascii_hexdigit() && at(i + 1).is_ascii_hexdigit();
    let mut i = 0;
    let mut count = 0;
    loop {
        count += 1;
        if count >= input.len() || at(i) == 0 {
            break;
        }
        if at(i) == b'0' && at(i + 1).eq_ignore_ascii_case(&b'x') && digits_at(i + 2) {
            i += 2;
            count += 2;
            while digits_at(i) {
                output.push(hex_pair(at(i), at(i + 1)));
                i += 2;
                count += 2;
            }
        }
        output.push(at(i));
        i += 1;
    }
    truncate_at_zero(output);
}

/// Value of a Base64 digit in the standard alphabet.
fn base64_digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

pub(super) fn base64(input: &[u8], output: &mut Vec<u8>) {
    let input = &input[..memchr(0, input).unwrap_or(input.len())];
    // First the whole value is checked, then groups of four are decoded.
    let mut padding = 0;
    let mut i = 0;
    while i < input.len() {
        let spaces = input[i..].iter().take_while(|byte| **byte == b' ').count();
        i += spaces;
        match &input[i..] {
            [] => break,
            [b'\r', b'\n', ..] | [b'\n', ..] => {}
            _ if spaces > 0 => return,
            [b'=', ..] if padding < 2 => padding += 1,
            [byte, ..] if padding == 0 && base64_digit(*byte).is_some() => {}
            _ => return,
        }
        i += 1;
    }
    let mut group = 0u32;
    let mut length = 0;
    let mut bytes = 3;
    for &byte in input {
        let digit = match byte {
            b'\r' | b'\n' | b' ' => continue,
            b'=' => {
                bytes -= 1;
                0
            }
            _ => base64_digit(byte).unwrap_or(0),
        };
        group = (group << 6) | u32::from(digit);
        length += 1;
        if length == 4 {
            output.extend_from_slice(&group.to_be_bytes()[1..=bytes]);
            (group, length) = (0, 0);
        }
    }
}

pub(super) fn base64_ext(input: &[u8], output: &mut Vec<u8>) {
    let mut group = 0u32;
    let mut length = 0;
    let mut last = 0;
    for (i, &byte) in input.iter().enumerate() {
        last = 0;
        if byte == b'=' {
            // Padding after a single digit empties the value.
            if length % 4 == 1 && input.get(i + 1) != Some(&b'=') {
                output.clear();
                return;
            }
            last = b'=';
            continue;
        }
        let Some(digit) = base64_digit(byte) else { continue };
        last = digit;
        group = (group << 6) | u32::from(digit);
        length += 1;
        match length % 4 {
            2 => output.push((group >> 4) as u8),
            3 => output.push((group >> 2) as u8),
            0 => output.push(group as u8),
            _ => {}
        }
    }
    // libmodsecurity takes the digit `9`, whose value is the code of `=`, for padding here.
    if length % 4 == 1 && last == b'=' {
        output.clear();
    }
}

pub(super) fn utf8_to_unicode(input: &[u8], output: &mut Vec<u8>) {
    let is_tail = |i: usize| input.get(i).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut i = 0;
    while i < input.len() {
        let byte = input[i];
        let (length, mask, minimum) = match byte {
            0 => {
                i += 1;
                continue;
            }
            0x01..=0x7f => {
                let rest = &input[i..];
                let ascii =
                    rest.iter().position(|&byte| byte == 0 || byte >= 0x80).unwrap_or(rest.len());
                output.extend_from_slice(&rest[..ascii]);
                i += ascii;
                continue;
            }
            0xc0..=0xdf => (2, 0x1f, 0x80),
            0xe0..=0xef => (3, 0x0f, 0x800),
            0xf0..=0xf7 => (4, 0x07, 0x1_0000),
            0x80..=0xbf | 0xf8..=0xff => {
                output.push(byte);
                i += 1;
                continue;
            }
        };
        // Above U+10FFFF.
        if matches!(byte, 0xf5..=0xf7) {
            output.push(byte);
        }
        if !(1..length).all(|k| is_tail(i + k)) {
            i += 1;
            continue;
        }
        let code = (1..length)
            .fold(u32::from(byte & mask), |code, k| (code << 6) | u32::from(input[i + k] & 0x3f));
        output.extend_from_slice(b"%u");
        let digits = (u32::BITS - code.leading_zeros()).div_ceil(4).max(4);
        let digit = |number: u32| b"0123456789abcdef"[(code >> (4 * number) & 15) as usize];
        output.extend((0..digits).rev().map(digit));
        // Surrogates and overlong forms leave their first byte behind.
        if (0xd800..=0xdfff).contains(&code) {
            output.push(byte);
        }
        if code < minimum {
            output.push(byte);
        }
        i += length;
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn encode_base64(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(STANDARD.encode(input).as_bytes());
}

pub(super) fn encode_hex(input: &[u8], output: &mut Vec<u8>) {
    for &byte in input {
        push_hex(byte, output);
    }
}

pub(super) fn encode_url(input: &[u8], output: &mut Vec<u8>) {
    for &byte in input {
        if byte == b' ' {
            output.push(b'+');
        } else if byte.is_ascii_alphanumeric() || byte == b'*' {
            output.push(byte);
        } else {
            output.push(b'%');
            push_hex(byte, output);
        }
    }
}

pub(super) fn md5(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&Md5::digest(input));
}

pub(super) fn sha1(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&Sha1::digest(input));
}

fn push_hex(byte: u8, output: &mut Vec<u8>) {
    output.push(DIGITS[usize::from(byte >> 4)]);
    output.push(DIGITS[usize::from(byte & 15)]);
}

//! Decoders and encoders, and digests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use memchr::memchr;
use sha1::Sha1;

use super::edit::is_space;
use super::unicode::{UnicodeMap, low_byte};

/// Value of two bytes read as hexadecimal digits without a check, as in libmodsecurity.
pub(crate) const fn hex_pair(high: u8, low: u8) -> u8 {
    const fn digit(byte: u8) -> u8 {
        if byte >= b'A' {
            (byte & 0xdf).wrapping_sub(b'A').wrapping_add(10)
        } else {
            byte.wrapping_sub(b'0')
        }
    }
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

fn all_hex(input: &[u8], from: usize, count: usize) -> Option<&[u8]> {
    let digits = input.get(from..from + count)?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)
}

fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |code, &digit| (code << 4) | u32::from(hex_pair(b'0', digit)))
}

/// Decodes URL escapes.
pub(crate) fn url(input: &[u8], output: &mut Vec<u8>) {
    url_escapes(input, output, None);
}

/// Decodes URL escapes and `%uXXXX`.
pub(super) fn url_uni(input: &[u8], output: &mut Vec<u8>, map: &UnicodeMap) {
    url_escapes(input, output, Some(map));
}

fn url_escapes(input: &[u8], output: &mut Vec<u8>, map: Option<&UnicodeMap>) {
    const BLOCK: usize = 16;
    let start = output.len();
    // Nothing becomes longer.
    output.resize(start + input.len(), 0);
    let decoded = &mut output[start..];
    let (mut from, mut to) = (0, 0);
    while from < input.len() {
        if let Some(block) = input[from..].first_chunk::<BLOCK>()
            && let Some(room) = decoded[to..].first_chunk_mut::<BLOCK>()
            && !block.iter().fold(false, |found, &byte| found | (byte == b'%') | (byte == b'+'))
        {
            *room = *block;
            (from, to) = (from + BLOCK, to + BLOCK);
            continue;
        }
        let end = input.len().min(from + BLOCK);
        while from < end {
            let (byte, length) = match input[from] {
                b'%' => url_escape(&input[from..], map).unwrap_or((b'%', 1)),
                b'+' => (b' ', 1),
                byte => (byte, 1),
            };
            decoded[to] = byte;
            (from, to) = (from + length, to + 1);
        }
    }
    output.truncate(start + to);
}

/// Byte and length of an escape at the start of an input that begins with `%`.
fn url_escape(input: &[u8], map: Option<&UnicodeMap>) -> Option<(u8, usize)> {
    if let (Some(map), [_, b'u' | b'U', rest @ ..]) = (map, input) {
        return Some((map.byte(number(all_hex(rest, 0, 4)?) as u16), 6));
    }
    let [_, high, low, ..] = *input else { return None };
    let (high, low) = (HEX_VALUES[usize::from(high)], HEX_VALUES[usize::from(low)]);
    ((high | low) < 16).then_some((high << 4 | low, 3))
}

/// Values of hexadecimal digits, 255 of other bytes.
static HEX_VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut byte = 0;
    while byte < values.len() {
        if (byte as u8).is_ascii_hexdigit() {
            values[byte] = hex_pair(b'0', byte as u8);
        }
        byte += 1;
    }
    values
};

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
            36 => named_entity(text, rest.get(length) == Some(&b';')),
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

/// Names of HTML 4 and 5 for ASCII characters and the no-break space. HTML 5 reads the first five without a semicolon, too.
/// `Tab` and `NewLine` are missing: rules of the Core Rule Set look for them as they are written.
const ENTITIES: [(&[u8], u8); 42] = [
    (b"quot", b'"'),
    (b"amp", b'&'),
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"nbsp", 0xa0),
    (b"excl", b'!'),
    (b"num", b'#'),
    (b"dollar", b'$'),
    (b"percnt", b'%'),
    (b"apos", b'\''),
    (b"lpar", b'('),
    (b"rpar", b')'),
    (b"ast", b'*'),
    (b"midast", b'*'),
    (b"plus", b'+'),
    (b"comma", b','),
    (b"period", b'.'),
    (b"sol", b'/'),
    (b"colon", b':'),
    (b"semi", b';'),
    (b"equals", b'='),
    (b"quest", b'?'),
    (b"commat", b'@'),
    (b"lsqb", b'['),
    (b"lbrack", b'['),
    (b"bsol", b'\\'),
    (b"rsqb", b']'),
    (b"rbrack", b']'),
    (b"Hat", b'^'),
    (b"lowbar", b'_'),
    (b"UnderBar", b'_'),
    (b"grave", b'`'),
    (b"DiacriticalGrave", b'`'),
    (b"lcub", b'{'),
    (b"lbrace", b'{'),
    (b"verbar", b'|'),
    (b"vert", b'|'),
    (b"VerticalLine", b'|'),
    (b"rcub", b'}'),
    (b"rbrace", b'}'),
    (b"hyphen", b'-'),
    (b"NonBreakingSpace", 0xa0),
];

fn named_entity(name: &[u8], has_semicolon: bool) -> Option<u8> {
    let known = if has_semicolon { &ENTITIES[..] } else { &ENTITIES[..5] };
    known.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, byte)| *byte)
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
        let braced = if kind == b'u' { braced_code(&input[i..]) } else { None };
        let byte = if kind == b'x' { all_hex(input, i, 2) } else { None };
        if let Some(digits) = code {
            output.push(low_byte(number(digits)));
            i += 4;
        } else if let Some((code, length)) = braced {
            output.push(low_byte(code));
            i += length;
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

/// Code and length of `{61}` at the start, with any number of leading zeros.
fn braced_code(input: &[u8]) -> Option<(u32, usize)> {
    let digits = input.strip_prefix(b"{")?;
    let digits = &digits[..memchr(b'}', digits)?];
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let valid =
        !digits.is_empty() && digits.len() - zeros <= 6 && digits.iter().all(u8::is_ascii_hexdigit);
    valid
        .then(|| (number(&digits[zeros..]), digits.len() + 2))
        .filter(|(code, _)| *code <= 0x10_ffff)
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
        if length > 0 {
            css_character(number(&input[i..i + length]), output);
            i += length;
            // One whitespace byte ends the escape.
            i += usize::from(input.get(i).is_some_and(|&byte| is_space(byte)));
            continue;
        }
        match input[i..] {
            [] => return,
            [b'\r', b'\n', ..] => i += 2,
            [b'\n' | b'\r' | b'\x0c', ..] => i += 1,
            [byte, ..] => {
                output.push(byte);
                i += 1;
            }
        }
    }
}

fn css_character(code: u32, output: &mut Vec<u8>) {
    let code = if matches!(code, 0xff01..=0xff5e) { code - 0xfee0 } else { code };
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    output.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

pub(super) fn hex(input: &[u8], output: &mut Vec<u8>) {
    output.extend(input.chunks_exact(2).map(|pair| hex_pair(pair[0], pair[1])));
}

pub(super) fn sql_hex(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    while let Some(start) = copy_until(b'0', input, i, output) {
        let digits = match input[start..] {
            [_, b'x' | b'X', ref rest @ ..] => {
                rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count() & !1
            }
            _ => 0,
        };
        i = start + 2;
        if digits == 0 {
            output.push(b'0');
            i = start + 1;
        }
        output.extend(input[i..i + digits].chunks_exact(2).map(|pair| hex_pair(pair[0], pair[1])));
        i += digits;
    }
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

pub(crate) fn base64(input: &[u8], output: &mut Vec<u8>) {
    let lines = input.iter().filter(|byte| !matches!(byte, b'\r' | b'\n'));
    base64_digits(lines.map_while(|&byte| base64_digit(byte)), output);
}

pub(super) fn base64_ext(input: &[u8], output: &mut Vec<u8>) {
    let standard = input.iter().map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    });
    base64_digits(standard.filter_map(base64_digit), output);
}

/// Decodes groups of four digits, of which the last one may be incomplete.
fn base64_digits(digits: impl Iterator<Item = u8>, output: &mut Vec<u8>) {
    let mut group = 0u32;
    for (at, digit) in digits.enumerate() {
        group = (group << 6) | u32::from(digit);
        match at % 4 {
            0 => {}
            1 => output.push((group >> 4) as u8),
            2 => output.push((group >> 2) as u8),
            _ => output.push(group as u8),
        }
    }
}

pub(super) fn utf8_to_unicode(input: &[u8], output: &mut Vec<u8>) {
    let is_tail = |i: usize| input.get(i).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut i = 0;
    while i < input.len() {
        let byte = input[i];
        let (length, mask, minimum) = match byte {
            0x00..=0x7f => {
                let rest = &input[i..];
                let ascii = rest.iter().position(|&byte| byte >= 0x80).unwrap_or(rest.len());
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
        if !(1..length).all(|k| is_tail(i + k)) {
            output.push(byte);
            i += 1;
            continue;
        }
        // Above U+10FFFF.
        if matches!(byte, 0xf5..=0xf7) {
            output.push(byte);
        }
        let code = (1..length)
            .fold(u32::from(byte & mask), |code, k| (code << 6) | u32::from(input[i + k] & 0x3f));
        let digit = |at: u32| DIGITS[(code >> (4 * at) & 15) as usize];
        let digits = [5, 4, 3, 2, 1, 0].map(digit);
        let zeros = digits.iter().take(2).take_while(|digit| **digit == b'0').count();
        output.extend_from_slice(b"%u");
        output.extend_from_slice(&digits[zeros..]);
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

//! Parameters of multipart headers: the boundary of the body, names of parts.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use memchr::{memchr, memmem};

use crate::limits::CONTENT_TYPE_MAX;
use crate::transformation::{base64, hex_pair, is_space};

/// Boundary of a `Content-Type`, and how it was written.
pub(super) struct Boundary<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) is_quoted: bool,
    /// Whitespace stands around the equals sign.
    pub(super) is_spaced: bool,
    /// No semicolon stands before it.
    pub(super) lacks_semicolon: bool,
}

/// Returns the boundary of a `Content-Type`.
pub(super) fn parse_boundary(content_type: &[u8]) -> Result<Boundary<'_>, &'static str> {
    const TYPE: &[u8] = b"multipart/form-data";
    let content_type = &content_type[..memchr(0, content_type).unwrap_or(content_type.len())];
    if content_type.len() > CONTENT_TYPE_MAX {
        return Err("invalid boundary in Content-Type (length)");
    }
    let Some((_, parameters)) = content_type
        .split_at_checked(TYPE.len())
        .filter(|(kind, _)| kind.eq_ignore_ascii_case(TYPE))
    else {
        return Err("invalid media type");
    };
    let mut rest = skip_spaces(parameters);
    let mut found: Option<Boundary<'_>> = None;
    let mut lacks_semicolon = false;
    while !rest.is_empty() {
        rest = match rest.strip_prefix(b";") {
            Some(after) => skip_spaces(after),
            None if found.is_none() && rest.starts_with(b"boundary") => {
                lacks_semicolon = true;
                rest
            }
            None => return Err("invalid boundary in Content-Type (malformed)"),
        };
        if rest.is_empty() {
            break;
        }
        let equals = memchr(b'=', rest).ok_or("invalid boundary in Content-Type (malformed)")?;
        let (name, value) = (&rest[..equals], skip_spaces(&rest[equals + 1..]));
        let is_spaced = name.ends_with(b" ") || value.len() < rest.len() - equals - 1;
        let name = name.trim_ascii_end();
        let (text, is_quoted, after) = parameter_value(value)?;
        rest = skip_spaces(after);
        if !name.eq_ignore_ascii_case(b"boundary") {
            if name.iter().any(|byte| !is_token(*byte)) {
                return Err("invalid boundary in Content-Type (parameter name)");
            }
            continue;
        }
        if name != b"boundary" {
            return Err("invalid boundary in Content-Type (case)");
        }
        let boundary = Boundary { bytes: text, is_quoted, is_spaced, lacks_semicolon };
        if found.replace(boundary).is_some() {
            return Err("multiple boundary parameters in Content-Type");
        }
    }
    let boundary = found.ok_or("no boundary in Content-Type")?;
    if boundary.bytes.is_empty() {
        return Err("invalid boundary in Content-Type (empty)");
    }
    if memmem::find(&boundary.bytes.to_ascii_lowercase(), b"boundary=").is_some() {
        return Err("invalid boundary in Content-Type (content)");
    }
    if !valid_boundary(boundary.bytes) {
        return Err("invalid boundary in Content-Type (characters)");
    }
    Ok(boundary)
}

/// Splits a value, whether it was quoted, and the rest behind it. A quoted value has no escapes.
fn parameter_value(text: &[u8]) -> Result<(&[u8], bool, &[u8]), &'static str> {
    if let Some(quoted) = text.strip_prefix(b"\"") {
        let end = memchr(b'"', quoted).ok_or("invalid boundary in Content-Type (quote)")?;
        return Ok((&quoted[..end], true, &quoted[end + 1..]));
    }
    let (value, after) = text.split_at(memchr(b';', text).unwrap_or(text.len()));
    match memchr(b'"', value) {
        Some(_) => Err("invalid boundary in Content-Type (quote)"),
        None => Ok((value, false, after)),
    }
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    &text[text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len())..]
}

/// Characters of RFC 2046.
fn valid_boundary(boundary: &[u8]) -> bool {
    let valid = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+_,-./:=?".contains(byte);
    boundary.iter().all(valid) && boundary.last() != Some(&b' ')
}

pub(super) fn skip_blanks(text: &[u8]) -> &[u8] {
    &text[text.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len())..]
}

/// Removes carriage returns at the end.
pub(super) fn chomp(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1)]
}

/// Token of RFC 2045.
pub(super) fn is_token(byte: u8) -> bool {
    matches!(byte, 33..=126) && !b"()<>@,;:\\\"/[]?=".contains(&byte)
}

/// Reads up to the closing quote. Only the quote and the backslash can be escaped.
pub(super) fn quoted_value(mut rest: &[u8], quote: u8) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut value = Vec::new();
    loop {
        match rest {
            [] => return Err("closing quote missing"),
            [b'\\'] => return Err("incomplete escape"),
            [b'\\', byte, ..] if *byte == quote || *byte == b'\\' => {
                value.push(*byte);
                rest = &rest[2..];
            }
            [byte, after @ ..] if *byte == quote => return Ok((value, after)),
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
        }
    }
}

/// Reads `charset'language'name` of RFC 5987 and returns the decoded name: in UTF-8, or the bytes of ISO-8859-1.
pub(super) fn extended_value(rest: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let charset = rest
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !b"!#$%&+-^_`{}~".contains(byte))
        .filter(|end| *end > 0 && rest[*end] == b'\'')
        .ok_or("charset missing")?;
    let (charset, rest) = (&rest[..charset], &rest[charset + 1..]);
    let encoding = Encoding::for_label_no_replacement(charset);
    // An escape of ASCII must be that character.
    let encoding =
        encoding.filter(|encoding| encoding.is_ascii_compatible()).ok_or("unsupported charset")?;
    let is_kept = encoding == UTF_8 || encoding == WINDOWS_1252;
    let language = memchr(b'\'', rest).ok_or("language missing")?;
    let rest = &rest[language + 1..];
    let mut name = Vec::new();
    let mut rest = rest;
    loop {
        rest = match rest {
            [] | [b';', ..] if is_kept => return Ok((name, rest)),
            [] | [b';', ..] => {
                let (name, _) = encoding.decode_without_bom_handling(&name);
                return Ok((name.into_owned().into_bytes(), rest));
            }
            [b'%', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                name.push(hex_pair(*high, *low));
                after
            }
            [b'%', ..] => return Err("invalid escape"),
            [byte, after @ ..] if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`~".contains(byte) => {
                name.push(*byte);
                after
            }
            _ => return Err("invalid character"),
        };
    }
}

/// Longest charset of an encoded word.
const CHARSET_MAX: usize = 40;

/// Decodes the encoded words of RFC 2047 in a text. `None` if it has none.
pub(super) fn decode_words(text: &[u8]) -> Option<Vec<u8>> {
    let last_end = memmem::rfind(text, b"?=")?;
    let (mut decoded, mut rest, mut has_word) = (Vec::new(), text, false);
    while let Some(start) = memmem::find(rest, b"=?") {
        decoded.extend_from_slice(&rest[..start]);
        rest = &rest[start..];
        // No word ends behind it.
        if text.len() - rest.len() + 2 > last_end {
            break;
        }
        match decode_word(&rest[2..]) {
            Some((word, after)) => {
                decoded.extend_from_slice(&word);
                (rest, has_word) = (after, true);
            }
            None => {
                decoded.extend_from_slice(b"=?");
                rest = &rest[2..];
            }
        }
    }
    decoded.extend_from_slice(rest);
    has_word.then_some(decoded)
}

/// Decodes the word at the start of a text, behind its `=?`. Returns it in UTF-8, and what follows it.
fn decode_word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (charset, rest) = text.split_at(memchr(b'?', &text[..text.len().min(CHARSET_MAX)])?);
    let (&[_, kind, b'?'], rest) = rest.split_first_chunk()? else { return None };
    let decode: fn(&[u8], &mut Vec<u8>) = match kind {
        b'B' | b'b' => base64,
        b'Q' | b'q' => quoted_printable,
        _ => return None,
    };
    let end = memmem::find(rest, b"?=")?;
    let (coded, after) = (&rest[..end], &rest[end + 2..]);
    let mut bytes = Vec::new();
    decode(coded, &mut bytes);
    // A language may follow the charset (RFC 2231).
    let label = charset.split(|&byte| byte == b'*').next().unwrap_or_default();
    let word = match Encoding::for_label_no_replacement(label) {
        Some(encoding) => encoding.decode_without_bom_handling(&bytes).0.into_owned().into_bytes(),
        None => bytes,
    };
    Some((word, after))
}

/// Decodes the "Q" encoding of RFC 2047.
fn quoted_printable(mut coded: &[u8], bytes: &mut Vec<u8>) {
    while let [byte, tail @ ..] = coded {
        coded = match (byte, tail) {
            (b'=', [high, low, tail @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                bytes.push(hex_pair(*high, *low));
                tail
            }
            (byte, tail) => {
                bytes.push(if *byte == b'_' { b' ' } else { *byte });
                tail
            }
        };
    }
}

//! Parameters of multipart headers: the boundary of the body, names of parts.

use memchr::{memchr, memmem};

use super::multipart::Flags;
use crate::transformation::is_space;

const CONTENT_TYPE_MAX: usize = 1024;

/// Returns the boundary of a `Content-Type`.
pub(super) fn parse_boundary<'a>(
    content_type: &'a [u8],
    flags: &mut Flags,
) -> Result<&'a [u8], &'static str> {
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
    let words = count_boundary_words(content_type);
    if words > 1 {
        return Err("multiple boundary parameters in Content-Type");
    }
    let Some(start) = memmem::find(parameters, b"boundary") else {
        return Err(if words > 0 {
            "invalid boundary in Content-Type (case)"
        } else {
            "no boundary in Content-Type"
        });
    };
    let mut before = parameters[..start].iter().filter(|byte| !is_space(**byte));
    match (before.next(), before.next()) {
        (None, _) => flags.missing_semicolon = true,
        (Some(b';'), None) => {}
        _ => return Err("invalid boundary in Content-Type (malformed)"),
    }
    let rest = &parameters[start + b"boundary".len()..];
    let equals = memchr(b'=', rest).ok_or("invalid boundary in Content-Type (malformed)")?;
    flags.boundary_whitespace = is_space(rest[0]);
    if !rest[..equals].iter().all(|byte| is_space(*byte)) {
        return Err("invalid boundary in Content-Type (parameter name)");
    }
    let value = &rest[equals + 1..];
    flags.boundary_whitespace |= value.first().is_some_and(|byte| is_space(*byte));
    let mut boundary = match value {
        [b'"', inner @ .., b'"'] => {
            flags.boundary_quoted = true;
            inner
        }
        [b'"', ..] | [_, .., b'"'] => return Err("invalid boundary in Content-Type (quote)"),
        _ => value,
    };
    if count_boundary_words(boundary) > 0 {
        return Err("invalid boundary in Content-Type (content)");
    }
    if !valid_boundary(boundary) {
        // Tolerates a charset, which some clients append.
        boundary = &boundary[..memchr(b';', boundary).unwrap_or(boundary.len())];
    }
    if boundary.is_empty() {
        return Err("invalid boundary in Content-Type (empty)");
    }
    if !valid_boundary(boundary) {
        return Err("invalid boundary in Content-Type (characters)");
    }
    Ok(boundary)
}

/// Counts the words `boundary`, in any case, that an equals sign follows anywhere.
fn count_boundary_words(text: &[u8]) -> usize {
    let lower = text.to_ascii_lowercase();
    memmem::find_iter(&lower, b"boundary")
        .filter(|at| memchr(b'=', &lower[at + 8..]).is_some())
        .count()
}

/// Characters of RFC 2046.
fn valid_boundary(boundary: &[u8]) -> bool {
    let valid = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+_,-./:=?".contains(byte);
    boundary.iter().all(valid) && boundary.last() != Some(&b' ')
}

/// A part that is being read.
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

/// Reads `charset'language'name` of RFC 5987 and returns the name, which is not decoded.
pub(super) fn extended_value(rest: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let charset = rest
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !b"!#$%&+-^_`{}~".contains(byte))
        .filter(|end| *end > 0 && rest[*end] == b'\'')
        .ok_or("charset missing")?;
    let rest = &rest[charset + 1..];
    let language = memchr(b'\'', rest).ok_or("language missing")?;
    let rest = &rest[language + 1..];
    let mut end = 0;
    loop {
        match &rest[end..] {
            [] | [b';', ..] => return Ok(rest.split_at(end)),
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                end += 3;
            }
            [b'%', ..] => return Err("invalid escape"),
            [byte, ..] if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`~".contains(byte) => end += 1,
            _ => return Err("invalid character"),
        }
    }
}

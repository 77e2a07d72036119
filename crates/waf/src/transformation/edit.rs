//! Transformations that drop, replace or reorder bytes without decoding them.

use memchr::{memchr, memmem};

/// `isspace` of C in the locale "C".
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

pub(super) fn remove(input: &[u8], output: &mut Vec<u8>, dropped: impl Fn(u8) -> bool) {
    output.extend(input.iter().copied().filter(|&byte| !dropped(byte)));
}

pub(super) fn trim(mut input: &[u8], left: bool, right: bool) -> &[u8] {
    while let [first, rest @ ..] = input
        && left
        && is_space(*first)
    {
        input = rest;
    }
    while let [rest @ .., last] = input
        && right
        && is_space(*last)
    {
        input = rest;
    }
    input
}

pub(super) fn compress_whitespace(input: &[u8], output: &mut Vec<u8>) {
    let mut in_space = false;
    for &byte in input {
        let space = is_space(byte);
        if !space {
            output.push(byte);
        } else if !in_space {
            output.push(b' ');
        }
        in_space = space;
    }
}

pub(super) fn cmd_line(input: &[u8], output: &mut Vec<u8>) {
    let mut after_space = false;
    for &byte in input {
        match byte {
            b'"' | b'\'' | b'\\' | b'^' => {}
            b' ' | b',' | b';' | b'\t' | b'\r' | b'\n' => {
                if !after_space {
                    output.push(b' ');
                }
                after_space = true;
            }
            b'/' | b'(' => {
                if after_space {
                    output.pop();
                }
                after_space = false;
                output.push(byte);
            }
            _ => {
                after_space = false;
                output.push(byte.to_ascii_lowercase());
            }
        }
    }
}

pub(super) fn replace_comments(mut input: &[u8], output: &mut Vec<u8>) {
    while let Some(start) = memmem::find(input, b"/*") {
        output.extend_from_slice(&input[..start]);
        output.push(b' ');
        input = &input[start + 2..];
        match memmem::find(input, b"*/") {
            Some(end) => input = &input[end + 2..],
            None => return,
        }
    }
    output.extend_from_slice(input);
}

pub(super) fn remove_comments(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    let mut in_comment = false;
    while i < input.len() {
        let rest = &input[i..];
        if in_comment {
            let end = if rest.starts_with(b"*/") {
                2
            } else if rest.starts_with(b"-->") {
                3
            } else {
                i += 1;
                continue;
            };
            in_comment = false;
            // libmodsecurity copies the next byte without checking it: at the end of the value, the
            // zero byte of its C string.
            output.push(rest.get(end).copied().unwrap_or(0));
            i += end + 1;
        } else if rest.starts_with(b"/*") {
            in_comment = true;
            i += 2;
        } else if rest.starts_with(b"<!--") {
            in_comment = true;
            i += 4;
        } else if rest.starts_with(b"--") || rest[0] == b'#' {
            return;
        } else {
            output.push(rest[0]);
            i += 1;
        }
    }
    if in_comment {
        output.push(b' ');
    }
}

pub(super) fn remove_comments_char(input: &[u8], output: &mut Vec<u8>) {
    let mut i = 0;
    while i < input.len() {
        let rest = &input[i..];
        i += match rest[0] {
            b'/' if rest.starts_with(b"/*") => 2,
            b'*' if rest.starts_with(b"*/") => 2,
            b'<' if rest.starts_with(b"<!--") => 4,
            b'-' if rest.starts_with(b"-->") => 3,
            b'-' if rest.starts_with(b"--") => 2,
            b'#' => 1,
            byte => {
                output.push(byte);
                1
            }
        };
    }
}

/// Normalizes a path. `output` serves as a stack: a back reference cuts it at the slash before the last
/// segment. Only the end of a segment is checked, so any segment that ends in `..` counts as a back
/// reference (including `x..`), as in libmodsecurity.
pub(super) fn normalize_path<const WINDOWS: bool>(input: &[u8], output: &mut Vec<u8>) {
    let Some(end) = input.len().checked_sub(1) else { return };
    let is_slash = |byte: u8| byte == b'/' || (WINDOWS && byte == b'\\');
    let relative = !is_slash(input[0]);
    let trailing = is_slash(input[end]);
    // In a relative path: the part in front is already above the start, `..` is kept.
    let mut above_start = false;
    let mut i = 0;
    while i <= end {
        let last = i == end;
        let first = i;
        // libmodsecurity turns backslashes into slashes two bytes at a time as it goes, and reads
        // later ones of a run raw.
        let at = |i: usize| if is_slash(input[i]) && i <= first + 1 { b'/' } else { input[i] };
        if last || at(i + 1) == b'/' {
            let byte = at(i);
            if !last && byte == b'/' {
                // An empty segment: the run of slashes is skipped below.
            } else if byte == b'.' {
                match output.last() {
                    Some(b'.') if relative && (above_start || output.len() <= 2) => {
                        above_start = true;
                    }
                    Some(b'.') => {
                        // Cuts `..` and the segment before it, up to its slash.
                        let mut keep = output.len().saturating_sub(3);
                        while keep > 0 && output[keep] != b'/' {
                            keep -= 1;
                        }
                        if keep == 0 {
                            above_start = true;
                            // The first slash of an absolute path stays.
                            keep = usize::from(!relative && last);
                        }
                        output.truncate(keep);
                        if last {
                            break;
                        }
                        i += 1;
                    }
                    None => {
                        if last {
                            break;
                        }
                        i += 1;
                    }
                    Some(b'/') => {
                        if last {
                            break;
                        }
                        output.pop();
                        i += 1;
                    }
                    Some(_) => {}
                }
            } else if !output.is_empty() {
                above_start = false;
            }
        }
        let mut byte = at(i);
        if byte == b'/' {
            while i < end && is_slash(input[i + 1]) && (WINDOWS || input[i + 1] == b'/') {
                i += 1;
            }
            byte = at(i);
            if relative && output.is_empty() {
                i += 1;
                continue;
            }
        }
        output.push(byte);
        i += 1;
    }
    if !trailing && output.last() == Some(&b'/') {
        output.pop();
    }
}

/// Cuts a value at its first zero byte, where libmodsecurity hands it on as a C string.
pub(super) fn truncate_at_zero(output: &mut Vec<u8>) {
    if let Some(end) = memchr(0, output) {
        output.truncate(end);
    }
}

//! Transformations that drop, replace or reorder bytes without decoding them.

use memchr::{memmem, memrchr};

/// `isspace` of C in the locale "C".
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn map(input: &[u8], output: &mut Vec<u8>, byte: impl Fn(u8) -> u8) {
    output.extend(input.iter().map(|&old| byte(old)));
}

pub(super) fn lowercase(input: &[u8], output: &mut Vec<u8>) {
    map(input, output, |byte| byte.to_ascii_lowercase());
}

pub(super) fn uppercase(input: &[u8], output: &mut Vec<u8>) {
    map(input, output, |byte| byte.to_ascii_uppercase());
}

pub(super) fn replace_nulls(input: &[u8], output: &mut Vec<u8>) {
    map(input, output, |byte| if byte == 0 { b' ' } else { byte });
}

pub(super) fn parity_even(input: &[u8], output: &mut Vec<u8>) {
    map(input, output, |byte| (byte & 0x7f) | ((byte.count_ones() as u8 & 1) << 7));
}

pub(super) fn parity_odd(input: &[u8], output: &mut Vec<u8>) {
    map(input, output, |byte| (byte & 0x7f) | ((!byte.count_ones() as u8 & 1) << 7));
}

pub(super) fn parity_zero(input: &[u8], output: &mut Vec<u8>) {
    map(input, output, |byte| byte & 0x7f);
}

pub(super) fn length(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(itoa::Buffer::new().format(input.len()).as_bytes());
}

fn remove(input: &[u8], output: &mut Vec<u8>, dropped: impl Fn(u8) -> bool) {
    // Without a branch for each byte: long texts have spaces everywhere.
    let mut end = output.len();
    output.resize(end + input.len(), 0);
    for &byte in input {
        output[end] = byte;
        end += usize::from(!dropped(byte));
    }
    output.truncate(end);
}

pub(super) fn remove_nulls(input: &[u8], output: &mut Vec<u8>) {
    remove(input, output, |byte| byte == 0);
}

pub(super) fn remove_whitespace(input: &[u8], output: &mut Vec<u8>) {
    /// True for the bytes that are removed.
    const SPACES: [bool; 256] = {
        let mut spaces = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            spaces[byte] = matches!(byte as u8, b' ' | b'\t'..=b'\r' | 0xa0 | 0xc2);
            byte += 1;
        }
        spaces
    };
    remove(input, output, |byte| SPACES[usize::from(byte)]);
}

fn without_left(mut input: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = input
        && is_space(*first)
    {
        input = rest;
    }
    input
}

fn without_right(mut input: &[u8]) -> &[u8] {
    while let [rest @ .., last] = input
        && is_space(*last)
    {
        input = rest;
    }
    input
}

pub(super) fn trim(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(without_left(without_right(input)));
}

pub(super) fn trim_left(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(without_left(input));
}

pub(super) fn trim_right(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(without_right(input));
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

pub(super) fn remove_comments(mut rest: &[u8], output: &mut Vec<u8>) {
    while let [byte, after @ ..] = rest {
        let opening = if rest.starts_with(b"/*") {
            2
        } else if rest.starts_with(b"<!--") {
            4
        } else if rest.starts_with(b"--") || *byte == b'#' {
            return;
        } else {
            output.push(*byte);
            rest = after;
            continue;
        };
        // Either end closes either comment, as in libmodsecurity.
        let comment = &rest[opening..];
        let ends = [&b"*/"[..], b"-->"];
        let ends = ends.map(|end| memmem::find(comment, end).map(|at| at + end.len()));
        let Some(end) = ends.into_iter().flatten().min() else {
            output.push(b' ');
            return;
        };
        rest = &comment[end..];
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

pub(super) fn normalize_path(input: &[u8], output: &mut Vec<u8>) {
    normalize(input, output, |byte| byte == b'/');
}

pub(super) fn normalize_path_win(input: &[u8], output: &mut Vec<u8>) {
    normalize(input, output, |byte| matches!(byte, b'/' | b'\\'));
}

/// Normalizes a path. `output` is a stack: a back reference cuts it at the slash before the last segment.
fn normalize(input: &[u8], output: &mut Vec<u8>, is_slash: impl Fn(u8) -> bool + Copy) {
    let (Some(&first), Some(&last)) = (input.first(), input.last()) else { return };
    let root = usize::from(is_slash(first));
    output.extend_from_slice(&b"/"[..root]);
    for segment in input.split(|&byte| is_slash(byte)) {
        match segment {
            b"" | b"." => continue,
            b".." => {
                let start = memrchr(b'/', output).map_or(0, |slash| slash + 1);
                if output.len() > root && output[start..] != *b".." {
                    output.truncate(start.saturating_sub(1).max(root));
                    continue;
                }
                if root == 1 {
                    continue;
                }
            }
            _ => {}
        }
        if output.len() > root {
            output.push(b'/');
        }
        output.extend_from_slice(segment);
    }
    if is_slash(last) && output.len() > root {
        output.push(b'/');
    }
}

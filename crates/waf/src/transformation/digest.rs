//! Encoders and digests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use sha1::Sha1;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn base64(input: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(STANDARD.encode(input).as_bytes());
}

pub(super) fn hex(input: &[u8], output: &mut Vec<u8>) {
    for &byte in input {
        push_hex(byte, output);
    }
}

pub(super) fn url(input: &[u8], output: &mut Vec<u8>) {
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

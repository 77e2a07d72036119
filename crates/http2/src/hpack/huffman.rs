//! The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, so the lengths
//! alone define it. Decoding takes four bits a step through a table with one row for each inner node of the tree.

use super::HpackError;

const EOS: usize = 256;

/// Length of each symbol's code in bits; the last one is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; EOS + 1] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const LENGTH_MAX: u8 = 30;

/// Code of each symbol, right-aligned.
const CODES: [u32; EOS + 1] = {
    let mut codes = [0; EOS + 1];
    let mut next = 0_u32;
    let mut length = 1;
    while length <= LENGTH_MAX {
        next <<= 1;
        let mut symbol = 0;
        while symbol <= EOS {
            if LENGTHS[symbol] == length {
                codes[symbol] = next;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    assert!(next == 1 << LENGTH_MAX, "the lengths make a complete code");
    codes
};

/// A complete code of 257 symbols has this many inner nodes, which are the states. The root is state 0.
const STATES: usize = 256;

/// Transition for four input bits.
#[derive(Clone, Copy)]
struct DecodeStep {
    next: u8,
    flags: u8,
    symbol: u8,
}

/// The step completes `symbol`.
const SYMBOL: u8 = 1;
/// The string may end after the step: at most seven bits follow the last symbol, all ones.
const ACCEPT: u8 = 2;
/// The step completes EOS, which is an error.
const FAIL: u8 = 4;

const NIBBLES: usize = 16;

static STEPS: [[DecodeStep; NIBBLES]; STATES] = {
    // Children of each inner node: another one, or a symbol above LEAF.
    const LEAF: u16 = 0x8000;
    const NONE: u16 = 0x7fff;
    let mut children = [[NONE; 2]; STATES];
    let mut accepts = [false; STATES];
    accepts[0] = true;
    let mut nodes = 1;
    let mut symbol = 0;
    while symbol <= EOS {
        let mut node = 0;
        let mut left = LENGTHS[symbol];
        while left > 1 {
            left -= 1;
            let bit = (CODES[symbol] >> left & 1) as usize;
            if children[node][bit] == NONE {
                children[node][bit] = nodes as u16;
                nodes += 1;
            }
            node = children[node][bit] as usize;
            // EOS is all ones, so the nodes on the way to it are the valid paddings.
            if symbol == EOS && LENGTHS[symbol] - left <= 7 {
                accepts[node] = true;
            }
        }
        children[node][(CODES[symbol] & 1) as usize] = LEAF | symbol as u16;
        symbol += 1;
    }
    assert!(nodes == STATES, "every inner node is a state");

    let mut steps = [[DecodeStep { next: 0, flags: 0, symbol: 0 }; NIBBLES]; STATES];
    let mut state = 0;
    while state < STATES {
        let mut nibble = 0;
        while nibble < NIBBLES {
            let mut step = DecodeStep { next: 0, flags: 0, symbol: 0 };
            let mut node = state;
            let mut bit = 4;
            while bit > 0 {
                bit -= 1;
                let child = children[node][nibble >> bit & 1];
                if child == LEAF | EOS as u16 {
                    step.flags |= FAIL;
                    node = 0;
                } else if child & LEAF != 0 {
                    // No code is shorter than five bits, so a step completes one symbol at most.
                    step.flags |= SYMBOL;
                    step.symbol = (child & 0xff) as u8;
                    node = 0;
                } else {
                    node = child as usize;
                }
            }
            step.next = node as u8;
            if accepts[node] {
                step.flags |= ACCEPT;
            }
            steps[state][nibble] = step;
            nibble += 1;
        }
        state += 1;
    }
    steps
};

/// Appends the decoded string to `out`.
pub(crate) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    // Five bits a symbol at least.
    out.reserve(bytes.len() * 8 / 5);
    let mut state = 0_u8;
    let mut flags = ACCEPT;
    let mut failed = 0;
    for &byte in bytes {
        for nibble in [byte >> 4, byte & 0xf] {
            let step = STEPS[usize::from(state)][usize::from(nibble)];
            if step.flags & SYMBOL != 0 {
                out.push(step.symbol);
            }
            failed |= step.flags;
            flags = step.flags;
            state = step.next;
        }
    }
    if failed & FAIL != 0 || flags & ACCEPT == 0 {
        return Err(HpackError::Huffman);
    }
    Ok(())
}

/// Length in bytes of the encoded string.
pub(crate) fn encoded_len(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded string to `out`.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut bits = 0_u64;
    let mut count = 0;
    for &byte in bytes {
        let symbol = usize::from(byte);
        // At most 31 bits are left from before, and a code has at most 30.
        bits = bits << LENGTHS[symbol] | u64::from(CODES[symbol]);
        count += u32::from(LENGTHS[symbol]);
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    let padding = count.next_multiple_of(8) - count;
    bits = bits << padding | ((1 << padding) - 1);
    count += padding;
    while count > 0 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes from appendix B of RFC 7541: the first and last of several lengths.
    #[test]
    fn codes_are_those_of_the_rfc() {
        let codes = [
            (b'0', 0x0, 5),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b'u', 0x2d, 6),
            (b':', 0x5c, 7),
            (b'z', 0x7b, 7),
            (b'&', 0xf8, 8),
            (b'Z', 0xfd, 8),
            (b'!', 0x3f8, 10),
            (b'|', 0x7fc, 11),
            (b'>', 0xffb, 12),
            (b'~', 0x1ffd, 13),
            (b'^', 0x3ffc, 14),
            (b'{', 0x7ffe, 15),
            (b'\\', 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (1, 0x7fffd8, 23),
            (10, 0x3ffffffc, 30),
            (22, 0x3ffffffe, 30),
            (127, 0xffffffc, 28),
            (255, 0x3ffffee, 26),
        ];
        for (symbol, code, length) in codes {
            let symbol = usize::from(symbol);
            assert_eq!((CODES[symbol], LENGTHS[symbol]), (code, length), "{symbol}");
        }
        assert_eq!(CODES[EOS], 0x3fffffff);
    }

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).ok().map(|()| out)
    }

    #[test]
    fn every_symbol_survives_alone_and_in_pairs() {
        for first in 0..=255 {
            for second in [b'0', b'z', 0, 127, 249, 255] {
                let text = [first, second, first];
                let mut encoded = Vec::new();
                encode(&text, &mut encoded);
                assert_eq!(encoded.len(), encoded_len(&text));
                assert_eq!(decoded(&encoded).as_deref(), Some(&text[..]));
            }
        }
    }

    #[test]
    fn padding_is_at_most_seven_ones() {
        assert_eq!(decoded(b""), Some(vec![]));
        // `a` is 00011.
        assert_eq!(decoded(&[0b0001_1111]), Some(b"a".to_vec()));
        assert_eq!(decoded(&[0b0001_1110]), None);
        assert_eq!(decoded(&[0b0001_1111, 0xff]), None);
        assert_eq!(decoded(&[0xff]), None);
        // EOS within a string, followed by two ones.
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None);
        // `&` is 11111000, and needs no padding.
        assert_eq!(decoded(&[0xf8]), Some(b"&".to_vec()));
    }
}

//! Presence masks: the set of bytes of a value, at the resolution that gates need.

use super::bytes::Bytes;

/// Bits of a mask.
const ATOMS_MAX: usize = 127;

/// Shortest value whose bytes are marked before their bits are collected.
const MARKED_LENGTH_MIN: usize = 256;

/// Partition of the bytes into at most 127 atoms, so that a set of bytes of interest is a union of atoms.
#[derive(Debug)]
pub(crate) struct Atoms {
    /// Bit of each byte.
    bit: Box<[u128; 256]>,
    /// Atoms that hold only letters and digits.
    alphanumeric: u128,
}

impl Atoms {
    /// Builds the partition. Sets that would need too many atoms are replaced by larger ones when
    /// they are looked up; the first sets have precedence.
    pub(crate) fn new(sets: &[Bytes]) -> Self {
        let mut atom = [0usize; 256];
        // Bytes of each atom.
        let mut sizes = vec![256];
        for set in sets {
            let mut inside = [0; ATOMS_MAX];
            set.iter().for_each(|byte| inside[atom[usize::from(byte)]] += 1);
            let mut count = sizes.len();
            // New atom of the bytes of the set in each atom that it splits.
            let mut split = [None; ATOMS_MAX];
            for (old, &size) in sizes.iter().enumerate() {
                if inside[old] > 0 && inside[old] < size {
                    split[old] = Some(count);
                    count += 1;
                }
            }
            if count > ATOMS_MAX || count == sizes.len() {
                continue;
            }
            sizes.resize(count, 0);
            for byte in set.iter() {
                let atom = &mut atom[usize::from(byte)];
                if let Some(new) = split[*atom] {
                    sizes[*atom] -= 1;
                    sizes[new] += 1;
                    *atom = new;
                }
            }
        }
        let bit = Box::new(atom.map(|atom| 1u128 << atom));
        let other = (0..=255u8)
            .filter(|byte| !byte.is_ascii_alphanumeric())
            .fold(0, |mask, byte| mask | bit[usize::from(byte)]);
        let all = bit.iter().fold(0, |mask, bit| mask | bit);
        Self { bit, alphanumeric: all & !other }
    }

    /// Mask of the bytes of a value.
    #[inline]
    pub(crate) fn mask(&self, value: &[u8]) -> u128 {
        if value.len() >= MARKED_LENGTH_MIN {
            return self.mask_of_long(value);
        }
        value.iter().fold(0, |mask, &byte| mask | self.bit[usize::from(byte)])
    }

    /// Marks the bytes first, which costs less for each of them.
    fn mask_of_long(&self, value: &[u8]) -> u128 {
        let mut is_present = [false; 256];
        value.iter().for_each(|&byte| is_present[usize::from(byte)] = true);
        let bits = self.bit.iter().zip(is_present);
        bits.fold(0, |mask, (bit, is_present)| if is_present { mask | bit } else { mask })
    }

    /// Mask of the smallest union of atoms that contains a set.
    pub(crate) fn covering(&self, set: Bytes) -> u128 {
        set.iter().fold(0, |mask, byte| mask | self.bit[usize::from(byte)])
    }

    /// Mask of the largest union of atoms within a set.
    pub(crate) fn within(&self, set: Bytes) -> u128 {
        self.covering(set) & !self.covering(set.complement())
    }

    /// The mask without the distinction of letters and digits.
    #[inline]
    pub(crate) fn collapse(&self, mask: u128) -> u128 {
        if mask & self.alphanumeric == 0 { mask } else { mask | self.alphanumeric }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_the_sets_of_interest() {
        let quote = Bytes::of(b"'\"");
        let atoms = Atoms::new(&[quote, Bytes::of(b"'"), Bytes::of(b"x")]);
        assert_eq!(atoms.mask(b"'") & atoms.covering(Bytes::of(b"\"")), 0);
        assert_ne!(atoms.mask(b"a'b") & atoms.covering(quote), 0);
        assert_eq!(atoms.mask(b"abc"), atoms.mask(b"d"));
        assert_ne!(atoms.mask(b"abc"), atoms.mask(b"x"));
        assert_eq!(atoms.collapse(atoms.mask(b"x")) & atoms.mask(b"'"), 0);
    }

    #[test]
    fn long_values_have_the_masks_of_short_ones() {
        let atoms = Atoms::new(&[Bytes::of(b"<"), Bytes::of(b"'")]);
        for value in [b"a<b", b"abc", b"'<\xff"] {
            assert_eq!(atoms.mask(&value.repeat(MARKED_LENGTH_MIN)), atoms.mask(value));
        }
    }

    #[test]
    fn too_many_sets_are_covered() {
        let sets: Vec<Bytes> = (0..=255).map(|byte| Bytes::of(&[byte])).collect();
        let atoms = Atoms::new(&sets);
        for set in sets {
            let byte = set.iter().next().unwrap_or_default();
            assert_ne!(atoms.mask(&[byte]) & atoms.covering(set), 0);
        }
    }
}

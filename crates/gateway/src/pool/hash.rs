//! Consistent hashing: what goes to a backend depends on that backend and on nothing else.
//!
//! Weighted rendezvous hashing (Thaler and Ravishankar 1998; the weights by Schindelhauer and Schomaker
//! 2005): each backend has a number for each key, and the highest wins. Without a backend its keys go to
//! others and no other key moves; with one more, keys move to it and nowhere else; and a backend's share
//! is that of its weight, where a ring of points would only come near to it.

use crate::config::Backend;

/// What requests that belong together have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

/// Where the backends of a pool are, as hashes: not their order, which may change.
#[derive(Debug)]
pub(super) struct Places(Box<[Place]>);

#[derive(Debug)]
struct Place {
    hash: u64,
    weight: f64,
}

impl Key {
    /// The key of all requests that have these bytes in common.
    #[must_use]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(hash(bytes))
    }
}

impl Places {
    pub(super) fn new(backends: &[Backend]) -> Self {
        let place = |backend: &Backend| Place {
            hash: hash(backend.address.to_string().as_bytes()),
            weight: f64::from(backend.weight),
        };
        Self(backends.iter().map(place).collect())
    }

    /// The backend of a key, of these.
    pub(super) fn first(&self, key: Key, of: impl Iterator<Item = usize>) -> Option<usize> {
        of.map(|at| (self.0[at].score(key), at))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, at)| at)
    }
}

impl Place {
    /// `-weight / ln(u)`, where u is from 0 to 1 and evenly spread.
    fn score(&self, key: Key) -> f64 {
        let mixed = mix(self.hash ^ key.0);
        // 53 bits, which a float has room for, and never 0 nor 1.
        let even = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -self.weight / even.ln()
    }
}

/// FNV-1a with 64 bits, which never changes, then mixed, since its high bits differ little for short
/// texts.
fn hash(bytes: &[u8]) -> u64 {
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// The last step of `SplitMix64` (Steele, Lea and Flood 2014): each bit decides over every other.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

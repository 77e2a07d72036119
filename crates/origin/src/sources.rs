//! Where `/urandom` and `/zero` take their bytes from.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use rand::Rng;
use rand::rngs::ThreadRng;

use crate::plan::Source;

/// How many bytes are taken at once.
const PIECE_BYTES: usize = 64 << 10;

/// The sources of one thread.
pub(crate) struct Sources {
    /// A cryptographic generator, as the C library's `arc4random` is one: the kernel seeds it, and
    /// again after every 64 KiB, which is many times cheaper than a system call for every request.
    random: ThreadRng,
    /// `/dev/zero`, which all threads share.
    zero: Arc<File>,
    piece: Box<[u8]>,
}

impl Sources {
    /// The generator is that of the calling thread.
    pub(crate) fn new(zero: Arc<File>) -> Self {
        Self { random: rand::rng(), zero, piece: vec![0; PIECE_BYTES].into_boxed_slice() }
    }

    /// Opens `/dev/zero`.
    ///
    /// # Errors
    ///
    /// Descriptors have run out.
    pub(crate) fn open_zero() -> io::Result<Arc<File>> {
        File::open("/dev/zero").map(Arc::new)
    }

    /// Takes so many bytes, or fewer, and throws them away. Returns how many.
    ///
    /// # Errors
    ///
    /// The kernel's own, for `/dev/zero`.
    pub(crate) fn fetch(&mut self, source: Source, bytes: u64) -> io::Result<usize> {
        let count = usize::try_from(bytes).map_or(PIECE_BYTES, |bytes| bytes.min(PIECE_BYTES));
        let piece = &mut self.piece[..count];
        match source {
            Source::Random => {
                self.random.fill_bytes(piece);
                Ok(count)
            }
            Source::Zero => (&*self.zero).read(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_piece_by_piece() {
        let mut sources = Sources::new(Sources::open_zero().unwrap());
        for source in [Source::Random, Source::Zero] {
            assert_eq!(sources.fetch(source, 0).unwrap(), 0);
            assert_eq!(sources.fetch(source, 2048).unwrap(), 2048);
            assert_eq!(sources.fetch(source, u64::MAX).unwrap(), PIECE_BYTES);
        }
        assert!(sources.piece.iter().all(|&byte| byte == 0));
        // Of 64 KiB of random bytes, all of 256 values, as good as surely.
        sources.fetch(Source::Random, 1 << 20).unwrap();
        assert!((0..=255).all(|value| sources.piece.contains(&value)));
        // And others the next time.
        let before = sources.piece.clone();
        sources.fetch(Source::Random, 1 << 20).unwrap();
        assert_ne!(before, sources.piece);
    }

    #[test]
    fn no_two_threads_have_the_same_random_bytes() {
        let take = || {
            let mut sources = Sources::new(Sources::open_zero().unwrap());
            sources.fetch(Source::Random, 32).unwrap();
            sources.piece[..32].to_vec()
        };
        assert_ne!(std::thread::spawn(take).join().unwrap(), take());
    }
}

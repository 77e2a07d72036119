//! Bytes that the kernel makes: random ones, and zeros.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::plan::Source;

/// How many bytes are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// One thread's hold on the kernel.
pub(crate) struct Kernel {
    /// `/dev/zero`, which all threads share.
    zero: Arc<File>,
    piece: Box<[u8]>,
}

impl Kernel {
    pub(crate) fn new(zero: Arc<File>) -> Self {
        Self { zero, piece: vec![0; PIECE_BYTES].into_boxed_slice() }
    }

    /// Opens `/dev/zero`.
    ///
    /// # Errors
    ///
    /// Descriptors have run out.
    pub(crate) fn open_zero() -> io::Result<Arc<File>> {
        File::open("/dev/zero").map(Arc::new)
    }

    /// Reads so many bytes, or fewer, and throws them away. Returns how many.
    ///
    /// # Errors
    ///
    /// The kernel's own.
    pub(crate) fn fetch(&mut self, source: Source, bytes: u64) -> io::Result<usize> {
        let count = usize::try_from(bytes).map_or(PIECE_BYTES, |bytes| bytes.min(PIECE_BYTES));
        let piece = &mut self.piece[..count];
        match source {
            Source::Random => Ok(getrandom(piece, GetRandomFlags::empty())?),
            Source::Zero => (&*self.zero).read(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_piece_by_piece() {
        let mut kernel = Kernel::new(Kernel::open_zero().unwrap());
        for source in [Source::Random, Source::Zero] {
            assert_eq!(kernel.fetch(source, 0).unwrap(), 0);
            assert_eq!(kernel.fetch(source, 2048).unwrap(), 2048);
            assert_eq!(kernel.fetch(source, u64::MAX).unwrap(), PIECE_BYTES);
        }
        assert!(kernel.piece.iter().all(|&byte| byte == 0));
        // Of 64 KiB of random bytes, all of 256 values, as good as surely.
        kernel.fetch(Source::Random, 1 << 20).unwrap();
        assert!((0..=255).all(|value| kernel.piece.contains(&value)));
    }
}

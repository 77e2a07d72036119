//! Bytes that the kernel makes or keeps: random ones, zeros, and filler.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::rand::{GetRandomFlags, getrandom};
use tollgate_eventloop::Socket;

use crate::output::Sink;
use crate::plan::Source;

/// How much filler is kept; more is the same again.
const FILLER_BYTES: u64 = 1 << 20;

/// How many bytes are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// The files that all threads of an origin share.
#[derive(Debug)]
pub(crate) struct KernelFiles {
    zero: File,
    /// A file in memory, whose pages leave for a socket without being copied.
    filler: File,
}

impl KernelFiles {
    /// Opens `/dev/zero`, and makes the filler.
    ///
    /// # Errors
    ///
    /// Descriptors or memory have run out.
    pub(crate) fn open() -> io::Result<Self> {
        let mut filler = File::from(memfd_create("tollgate-filler", MemfdFlags::CLOEXEC)?);
        filler.write_all(&vec![b'x'; FILLER_BYTES as usize])?;
        Ok(Self { zero: File::open("/dev/zero")?, filler })
    }
}

/// One thread's hold on the kernel.
pub(crate) struct Kernel {
    files: Arc<KernelFiles>,
    piece: Box<[u8]>,
}

impl Kernel {
    pub(crate) fn new(files: Arc<KernelFiles>) -> Self {
        Self { files, piece: vec![0; PIECE_BYTES].into_boxed_slice() }
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
            Source::Zero => (&self.files.zero).read(piece),
        }
    }

    /// A socket, and the filler that is sent to it.
    pub(crate) fn sink<'a>(&'a self, socket: &'a Socket) -> SocketSink<'a> {
        SocketSink { socket, filler: &self.files.filler }
    }
}

/// A socket as an output's sink.
pub(crate) struct SocketSink<'a> {
    socket: &'a Socket,
    filler: &'a File,
}

impl Sink for SocketSink<'_> {
    fn send(&mut self, bytes: &[u8], more: bool) -> io::Result<usize> {
        if more { self.socket.send_more(bytes) } else { self.socket.send(bytes) }
    }

    fn send_filler(&mut self, count: u64) -> io::Result<usize> {
        // At most a mebibyte, so it fits.
        self.socket.send_file(self.filler.as_fd(), 0, count.min(FILLER_BYTES) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_piece_by_piece() {
        let mut kernel = Kernel::new(Arc::new(KernelFiles::open().unwrap()));
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

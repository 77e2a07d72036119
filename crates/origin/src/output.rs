//! Answers on their way out: bytes to send, then filler.

use std::io::{self, ErrorKind, IoSlice, Write};

/// Up to this size a payload is copied behind its head, so that both leave in one plain write.
const COPIED_FILLER_MAX_BYTES: u64 = 16 << 10;

/// From this size on, what is collected is sent before more requests are answered.
const BATCH_BYTES: usize = 64 << 10;

/// What payloads are made of, however large: the same bytes again and again.
static FILLER: [u8; 64 << 10] = [b'x'; 64 << 10];

/// Answers on their way out. Large payloads are only counted, so memory does not grow with them.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    sent_bytes: usize,
    filler_left_bytes: u64,
}

impl Output {
    /// Adds bytes to send.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        assert_eq!(self.filler_left_bytes, 0, "filler is the end of an output");
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds bytes to send that come one by one.
    pub(crate) fn extend(&mut self, bytes: impl Iterator<Item = u8>) {
        assert_eq!(self.filler_left_bytes, 0, "filler is the end of an output");
        self.bytes.extend(bytes);
    }

    /// Adds filler to send.
    pub(crate) fn push_filler(&mut self, count: u64) {
        match usize::try_from(count) {
            Ok(short) if count <= COPIED_FILLER_MAX_BYTES => self.push(&FILLER[..short]),
            _ => self.filler_left_bytes = count,
        }
    }

    /// Adds what `other` holds, of which nothing has been sent.
    pub(crate) fn append(&mut self, other: &Self) {
        self.push(&other.bytes);
        self.filler_left_bytes = other.filler_left_bytes;
    }

    /// Forgets what is left to send.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.sent_bytes = 0;
        self.filler_left_bytes = 0;
    }

    /// Enough is collected; send it before adding more.
    pub(crate) fn is_full(&self) -> bool {
        self.filler_left_bytes > 0 || self.bytes.len() >= BATCH_BYTES
    }

    /// Sends what `stream` takes at once, and no more than `budget_bytes`, from which it is taken
    /// away. Says whether everything was sent.
    ///
    /// # Errors
    ///
    /// The stream's own, other than that it would block.
    pub(crate) fn send(
        &mut self,
        stream: &mut impl Write,
        budget_bytes: &mut usize,
    ) -> io::Result<bool> {
        loop {
            let unsent = &self.bytes[self.sent_bytes..];
            let filler = match usize::try_from(self.filler_left_bytes) {
                Ok(short) if short < FILLER.len() => &FILLER[..short],
                _ => &FILLER,
            };
            let offered = unsent.len() + filler.len();
            if offered == 0 {
                self.clear();
                return Ok(true);
            }
            if *budget_bytes == 0 {
                return Ok(false);
            }
            let written = if filler.is_empty() {
                stream.write(unsent)
            } else {
                stream.write_vectored(&[IoSlice::new(unsent), IoSlice::new(filler)])
            };
            match written {
                Ok(count) => {
                    self.take(count);
                    *budget_bytes = budget_bytes.saturating_sub(count);
                    // A socket that took a part is full: asking again would only be told so.
                    if count < offered {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts `count` more bytes as sent.
    fn take(&mut self, count: usize) {
        let from_bytes = count.min(self.bytes.len() - self.sent_bytes);
        self.sent_bytes += from_bytes;
        self.filler_left_bytes -= (count - from_bytes) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that takes so many bytes a write, and says `Interrupted` before each.
    struct Narrow {
        width: usize,
        received: Vec<u8>,
        interrupted: bool,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            if self.width == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.width);
            self.received.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            self.write(&all)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn narrow(width: usize) -> Narrow {
        Narrow { width, received: Vec::new(), interrupted: false }
    }

    #[test]
    fn every_byte_is_sent_once_however_narrow_the_socket() {
        for filler in [0, 1, 16 << 10, (16 << 10) + 1, 64 << 10, 200_000] {
            for width in [1_009, 65_536, 65_537, 1_000_000] {
                let mut output = Output::default();
                output.push(b"head");
                output.push_filler(filler);
                let mut socket = narrow(width);
                let mut turns = 0;
                while !output.send(&mut socket, &mut usize::MAX.clone()).unwrap() {
                    turns += 1;
                    assert!(turns < 1_000);
                }
                assert_eq!(&socket.received[..4], b"head");
                assert_eq!(socket.received.len() as u64, 4 + filler);
                assert!(socket.received[4..].iter().all(|&byte| byte == b'x'));
            }
        }
    }

    #[test]
    fn a_full_socket_and_a_spent_budget_keep_the_rest() {
        let mut output = Output::default();
        output.push_filler(300_000);
        let mut budget = 100_000;
        assert!(!output.send(&mut narrow(0), &mut budget).unwrap());
        assert_eq!(budget, 100_000);

        // What takes a part is not asked again.
        let mut socket = narrow(10);
        assert!(!output.send(&mut socket, &mut budget).unwrap());
        assert_eq!((budget, socket.received.len()), (99_990, 10));

        let mut socket = narrow(usize::MAX);
        assert!(!output.send(&mut socket, &mut budget).unwrap());
        assert_eq!((budget, socket.received.len()), (0, 131_072));
        assert!(output.is_full());
    }

    #[test]
    fn large_payloads_take_no_memory() {
        let mut output = Output::default();
        output.push_filler(1 << 40);
        assert_eq!(output.bytes.capacity(), 0);
    }

    #[test]
    fn an_appended_output_follows() {
        let mut later = Output::default();
        later.push(b"second");
        later.push_filler(20_000);
        let mut output = Output::default();
        output.push(b"first ");
        output.append(&later);
        let mut socket = narrow(usize::MAX);
        assert!(output.send(&mut socket, &mut 1_000_000).unwrap());
        assert_eq!(&socket.received[..14], b"first secondxx");
        assert_eq!(socket.received.len(), 20_012);
    }
}

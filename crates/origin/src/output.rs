//! Answers on their way out: bytes to send, then filler.

use std::io::{self, ErrorKind, IoSlice};

use tollgate_eventloop::Socket;

/// Up to this size filler is copied behind what comes before it, so that both leave in one plain send.
const COPIED_FILLER_MAX_BYTES: u64 = 16 << 10;

/// From this size on, what is collected is sent before more requests are answered.
const BATCH_BYTES: usize = 64 << 10;

/// An output that has grown beyond this gives its memory back once it is sent.
const KEPT_CAPACITY_MAX_BYTES: usize = 4 * BATCH_BYTES;

/// What filler is made of, however much: the same bytes again and again, few enough to stay in the
/// processor's cache.
static FILLER: [u8; 64 << 10] = [b'x'; 64 << 10];

/// How often the filler is given to the kernel at once, at most.
const FILLER_SLICES: usize = 16;

/// Where an output goes.
pub(crate) trait Sink {
    /// Sends bytes as far as there is room, or says `WouldBlock` where there is none. When they are the
    /// last, the sink is told of the end once all are sent.
    fn send(&mut self, bytes: &[u8], last: bool) -> io::Result<usize>;
    /// The same of several slices, one after the other.
    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl Sink for &Socket {
    fn send(&mut self, bytes: &[u8], last: bool) -> io::Result<usize> {
        if last { self.send_more(bytes) } else { Socket::send(self, bytes) }
    }

    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Socket::send_slices(self, slices)
    }
}

/// How much of an output was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All of it.
    All,
    /// What there was room for.
    Part,
    /// As much as the budget allows; there may be room for more.
    Enough,
}

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

    /// How much is collected, filler aside that is only counted.
    pub(crate) fn collected_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What was collected after the first so many bytes; nothing when filler follows that is not there.
    pub(crate) fn collected_after(&self, count: usize) -> Option<&[u8]> {
        if self.filler_left_bytes > 0 { None } else { self.bytes.get(count..) }
    }

    /// Forgets what is left to send.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_CAPACITY_MAX_BYTES {
            self.bytes = Vec::new();
        }
        self.sent_bytes = 0;
        self.filler_left_bytes = 0;
    }

    /// Enough is collected; send it before adding more.
    pub(crate) fn is_full(&self) -> bool {
        self.filler_left_bytes > 0 || self.bytes.len() >= BATCH_BYTES
    }

    /// Sends what `sink` takes at once, and no more than `budget_bytes`, from which it is taken away.
    /// When it is the `last`, the sink has to be told of the end once everything is sent.
    ///
    /// # Errors
    ///
    /// The sink's own, other than that it would block.
    pub(crate) fn send(
        &mut self,
        sink: &mut impl Sink,
        budget_bytes: &mut usize,
        last: bool,
    ) -> io::Result<Sent> {
        loop {
            let unsent = &self.bytes[self.sent_bytes..];
            if unsent.is_empty() && self.filler_left_bytes == 0 {
                self.clear();
                return Ok(Sent::All);
            }
            if *budget_bytes == 0 {
                return Ok(Sent::Enough);
            }
            let filler_budget_bytes = budget_bytes.saturating_sub(unsent.len()) as u64;
            let filler_bytes = self.filler_left_bytes.min(filler_budget_bytes);
            let (sent, offered) = if filler_bytes == 0 {
                (sink.send(unsent, last && self.filler_left_bytes == 0), unsent.len())
            } else {
                send_with_filler(sink, unsent, filler_bytes)
            };
            match sent {
                Ok(count) => {
                    self.take(count);
                    *budget_bytes = budget_bytes.saturating_sub(count);
                    // A socket that took a part is full: asking again would only be told so.
                    if count < offered {
                        return Ok(Sent::Part);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Sent::Part),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// How many bytes are left to send.
    pub(crate) fn left_bytes(&self) -> u64 {
        (self.bytes.len() - self.sent_bytes) as u64 + self.filler_left_bytes
    }

    /// Counts `count` more bytes as sent.
    fn take(&mut self, count: usize) {
        let from_bytes = count.min(self.bytes.len() - self.sent_bytes);
        self.sent_bytes += from_bytes;
        self.filler_left_bytes -= (count - from_bytes) as u64;
    }
}

/// Sends bytes and filler after them in one call. Returns how many bytes it offered, too.
fn send_with_filler(
    sink: &mut impl Sink,
    bytes: &[u8],
    mut filler_bytes: u64,
) -> (io::Result<usize>, usize) {
    let mut slices = [IoSlice::new(&[]); 1 + FILLER_SLICES];
    slices[0] = IoSlice::new(bytes);
    let mut offered = bytes.len();
    let mut used = 1;
    while used < slices.len() && filler_bytes > 0 {
        let piece = match usize::try_from(filler_bytes) {
            Ok(short) if short < FILLER.len() => &FILLER[..short],
            _ => &FILLER,
        };
        slices[used] = IoSlice::new(piece);
        used += 1;
        offered += piece.len();
        filler_bytes -= piece.len() as u64;
    }
    (sink.send_slices(&slices[..used]), offered)
}

/// Takes everything.
#[cfg(test)]
impl Sink for Vec<u8> {
    fn send(&mut self, bytes: &[u8], _last: bool) -> io::Result<usize> {
        self.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        slices.iter().map(|slice| self.send(slice, false)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that takes so many bytes a call, and says `Interrupted` before each.
    struct Narrow {
        width: usize,
        received: Vec<u8>,
        interrupted: bool,
    }

    impl Sink for Narrow {
        fn send(&mut self, bytes: &[u8], _last: bool) -> io::Result<usize> {
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

        fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let mut all = Vec::new();
            for slice in slices {
                all.extend_from_slice(&slice[..slice.len().min(self.width - all.len())]);
            }
            self.send(&all, false)
        }
    }

    fn narrow(width: usize) -> Narrow {
        Narrow { width, received: Vec::new(), interrupted: false }
    }

    #[test]
    fn every_byte_is_sent_once_however_narrow_the_socket() {
        for filler in [0, 1, 16 << 10, (16 << 10) + 1, 64 << 10, 200_000, (1 << 20) + 1] {
            for width in [1_109, 65_536, 65_537, 1_000_000, 2_000_000] {
                let mut output = Output::default();
                output.push(b"head");
                output.push_filler(filler);
                assert_eq!(output.left_bytes(), 4 + filler);
                let mut socket = narrow(width);
                let mut turns = 0;
                while output.send(&mut socket, &mut usize::MAX.clone(), false).unwrap() != Sent::All
                {
                    turns += 1;
                    assert!(turns < 1_000);
                }
                assert_eq!(&socket.received[..4], b"head");
                assert_eq!(socket.received.len() as u64, 4 + filler);
                assert!(socket.received[4..].iter().all(|&byte| byte == b'x'));
                assert_eq!(output.left_bytes(), 0);
            }
        }
    }

    #[test]
    fn a_full_socket_and_a_spent_budget_keep_the_rest() {
        let mut output = Output::default();
        output.push(b"head");
        output.push_filler(300_000);
        let mut budget = 100_000;
        assert_eq!(output.send(&mut narrow(0), &mut budget, false).unwrap(), Sent::Part);
        assert_eq!(budget, 100_000);

        // What takes a part of the bytes is not asked again.
        let mut socket = narrow(3);
        assert_eq!(output.send(&mut socket, &mut budget, false).unwrap(), Sent::Part);
        assert_eq!((budget, socket.received.len()), (99_997, 3));

        let mut socket = narrow(usize::MAX);
        assert_eq!(output.send(&mut socket, &mut budget, false).unwrap(), Sent::Enough);
        assert_eq!((budget, socket.received.len()), (0, 99_997));
        assert!(output.is_full());
        assert_eq!(output.left_bytes(), 300_004 - 100_000);
    }

    #[test]
    fn large_payloads_take_no_memory_and_large_bodies_give_it_back() {
        let mut output = Output::default();
        output.push_filler(1 << 40);
        assert_eq!(output.bytes.capacity(), 0);
        output.clear();
        output.push(&vec![b'b'; 1 << 20]);
        assert_eq!(
            output.send(&mut Vec::new(), &mut usize::MAX.clone(), false).unwrap(),
            Sent::All
        );
        assert_eq!(output.bytes.capacity(), 0);
    }
}

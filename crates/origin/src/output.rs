//! Bytes of responses to be sent: rendered bytes, then filler.

use std::io::{self, IoSlice};

use tollgate_net::{SendBuffer, try_io};
use tollgate_tls::Transport;

/// Filler up to this size is copied, so that it leaves with its head in one plain send.
const COPIED_FILLER_MAX_BYTES: u64 = 16 << 10;

/// Once this many rendered bytes wait, they are sent before more requests are processed.
const BATCH_BYTES: usize = 64 << 10;

/// Largest capacity that is kept for the next responses.
const KEPT_CAPACITY_MAX_BYTES: usize = 4 * BATCH_BYTES;

/// Bytes that make a response long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Filler {
    /// The letter `x`.
    #[default]
    Letters,
    /// The site's page, again and again: a firewall inspects responses of text.
    Page,
    /// Members of a list, again and again.
    Json,
}

/// The site's page, with the placeholder of its host.
pub(crate) const PAGE: &str = include_str!("../../../site/page.html");

const JSON: &str = r#"{"id":1042,"sku":"B-01042","name":"Leather boots","price":79.95,"available":true,"sizes":[40,41,42,43],
"tags":["boots","winter"],"image":"https://shop.example/images/1042.jpg","text":"Warm boots of brown leather, for cold days."},
"#;

/// Small enough to stay in the processor's cache.
static LETTERS: [u8; 64 << 10] = [b'x'; 64 << 10];

impl Filler {
    /// Returns the bytes from a position on, of any length but 0, and at most `count`.
    fn piece(self, position: u64, count: u64) -> &'static [u8] {
        let source = match self {
            Self::Letters => &LETTERS[..],
            Self::Page => from_position(PAGE, position),
            Self::Json => from_position(JSON, position),
        };
        &source[..usize::try_from(count).unwrap_or(usize::MAX).min(source.len())]
    }

    /// Appends `count` bytes from a position on.
    pub(crate) fn append(self, position: u64, count: u64, out: &mut Vec<u8>) {
        let mut appended = 0;
        while appended < count {
            let piece = self.piece(position + appended, count - appended);
            out.extend_from_slice(piece);
            appended += piece.len() as u64;
        }
    }
}

/// Returns the rest of a text behind a position in its repetition.
fn from_position(text: &'static str, position: u64) -> &'static [u8] {
    &text.as_bytes()[(position % text.len() as u64) as usize..]
}

/// Limit for slices of filler in one system call.
const FILLER_SLICES: usize = 16;

pub(crate) trait Sink {
    /// Sends as much as there is room for, or fails with `WouldBlock`. `last` says that no bytes
    /// follow these.
    fn send(&mut self, bytes: &[u8], last: bool) -> io::Result<usize>;
    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// Sends 0 bytes if the socket is full.
impl Sink for Transport {
    fn send(&mut self, bytes: &[u8], last: bool) -> io::Result<usize> {
        if last { self.send_last(bytes) } else { Self::send(self, bytes) }
    }

    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::send_slices(self, slices)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// The socket is full.
    Partial,
    /// The budget is used up; the socket may have room.
    BudgetExhausted,
}

/// Responses to be sent. Large filler is only counted, so it takes no memory.
#[derive(Default)]
pub(crate) struct OutputBuffer {
    bytes: SendBuffer<KEPT_CAPACITY_MAX_BYTES>,
    /// Follows `bytes`.
    filler: Filler,
    filler_bytes: u64,
    /// Position of the next byte of the filler.
    filler_position: u64,
}

impl OutputBuffer {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        assert_eq!(self.filler_bytes, 0, "filler must be sent before more bytes are pushed");
        self.bytes.push(bytes);
    }

    pub(crate) fn extend(&mut self, bytes: impl Iterator<Item = u8>) {
        assert_eq!(self.filler_bytes, 0, "filler must be sent before more bytes are pushed");
        self.bytes.tail().extend(bytes);
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        assert_eq!(self.filler_bytes, 0, "filler must be sent before more bytes are pushed");
        self.bytes.tail()
    }

    pub(crate) fn push_filler(&mut self, filler: Filler, count: u64) {
        if count <= COPIED_FILLER_MAX_BYTES {
            filler.append(0, count, self.bytes_mut());
        } else {
            (self.filler, self.filler_bytes, self.filler_position) = (filler, count, 0);
        }
    }

    /// Number of unsent bytes without counted filler.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.unsent().len()
    }

    /// Returns the bytes pushed after the first `count`, unless counted filler follows them.
    pub(crate) fn held_after(&self, count: usize) -> Option<&[u8]> {
        if self.filler_bytes > 0 { None } else { self.bytes.unsent().get(count..) }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.filler_bytes = 0;
    }

    /// True if the buffer must be sent before more is pushed.
    pub(crate) fn is_full(&self) -> bool {
        self.filler_bytes > 0 || self.held_bytes() >= BATCH_BYTES
    }

    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.held_bytes() as u64 + self.filler_bytes
    }

    /// Sends what `sink` has room for, up to `budget_bytes`, which is reduced accordingly. `last` says
    /// that nothing follows the contents of the buffer.
    pub(crate) fn send(
        &mut self,
        sink: &mut impl Sink,
        budget_bytes: &mut usize,
        last: bool,
    ) -> io::Result<Sent> {
        loop {
            let unsent = self.bytes.unsent();
            if unsent.is_empty() && self.filler_bytes == 0 {
                return Ok(Sent::All);
            }
            if *budget_bytes == 0 {
                return Ok(Sent::BudgetExhausted);
            }
            let filler_budget_bytes = budget_bytes.saturating_sub(unsent.len()) as u64;
            let filler_bytes = self.filler_bytes.min(filler_budget_bytes);
            let (offered, sent) = if filler_bytes == 0 {
                let is_last = last && self.filler_bytes == 0;
                (unsent.len(), try_io(|| sink.send(unsent, is_last))?)
            } else {
                let filler = (self.filler, self.filler_position);
                send_with_filler(sink, unsent, filler, filler_bytes)?
            };
            let Some(sent) = sent else { return Ok(Sent::Partial) };
            self.advance(sent);
            *budget_bytes = budget_bytes.saturating_sub(sent);
            // A socket that took less than offered is full.
            if sent < offered {
                return Ok(Sent::Partial);
            }
        }
    }

    fn advance(&mut self, count: usize) {
        let from_bytes = count.min(self.held_bytes());
        self.bytes.advance(from_bytes);
        let from_filler = (count - from_bytes) as u64;
        self.filler_bytes -= from_filler;
        self.filler_position += from_filler;
    }
}

/// Sends bytes and filler in one call. Returns the number of bytes offered and, unless the call
/// would block, of bytes sent.
fn send_with_filler(
    sink: &mut impl Sink,
    bytes: &[u8],
    (filler, mut position): (Filler, u64),
    mut filler_bytes: u64,
) -> io::Result<(usize, Option<usize>)> {
    let mut slices = [IoSlice::new(&[]); 1 + FILLER_SLICES];
    slices[0] = IoSlice::new(bytes);
    let mut offered = bytes.len();
    let mut used = 1;
    while used < slices.len() && filler_bytes > 0 {
        let piece = filler.piece(position, filler_bytes);
        slices[used] = IoSlice::new(piece);
        used += 1;
        offered += piece.len();
        filler_bytes -= piece.len() as u64;
        position += piece.len() as u64;
    }
    Ok((offered, try_io(|| sink.send_slices(&slices[..used]))?))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// A socket that takes `width` bytes a call, and fails with `Interrupted` before each.
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
    fn sends_every_byte_once_through_narrow_socket() {
        let page = PAGE.bytes().cycle().take((1 << 20) + 1).collect::<Vec<_>>();
        let lengths = [0, 1, 16 << 10, (16 << 10) + 1, 64 << 10, 200_000, (1 << 20) + 1];
        let json = JSON.bytes().cycle().take(page.len()).collect();
        let letters = (Filler::Letters, vec![b'x'; page.len()]);
        let fillers = [letters, (Filler::Page, page), (Filler::Json, json)];
        for (filler, (kind, expected)) in
            lengths.iter().flat_map(|&length| fillers.iter().map(move |filler| (length, filler)))
        {
            for width in [1_109, 65_536, 65_537, 1_000_000, 2_000_000] {
                let mut output = OutputBuffer::default();
                output.push(b"head");
                output.push_filler(*kind, filler);
                assert_eq!(output.unsent_bytes(), 4 + filler);
                let mut socket = narrow(width);
                let mut turns = 0;
                while output.send(&mut socket, &mut usize::MAX.clone(), false).unwrap() != Sent::All
                {
                    turns += 1;
                    assert!(turns < 1_000);
                }
                assert_eq!(&socket.received[..4], b"head");
                assert_eq!(socket.received.len() as u64, 4 + filler);
                assert!(socket.received[4..] == expected[..filler as usize]);
                assert_eq!(output.unsent_bytes(), 0);
            }
        }
    }

    #[test]
    fn keeps_rest_for_full_socket_and_exhausted_budget() {
        let mut output = OutputBuffer::default();
        output.push(b"head");
        output.push_filler(Filler::Letters, 300_000);
        let mut budget = 100_000;
        assert_eq!(output.send(&mut narrow(0), &mut budget, false).unwrap(), Sent::Partial);
        assert_eq!(budget, 100_000);

        // A socket that took a part is full.
        let mut socket = narrow(3);
        assert_eq!(output.send(&mut socket, &mut budget, false).unwrap(), Sent::Partial);
        assert_eq!((budget, socket.received.len()), (99_997, 3));

        let mut socket = narrow(usize::MAX);
        assert_eq!(output.send(&mut socket, &mut budget, false).unwrap(), Sent::BudgetExhausted);
        assert_eq!((budget, socket.received.len()), (0, 99_997));
        assert!(output.is_full());
        assert_eq!(output.unsent_bytes(), 300_004 - 100_000);
    }

    #[test]
    fn large_filler_takes_no_memory_and_large_capacity_is_released() {
        let mut output = OutputBuffer::default();
        output.push_filler(Filler::Letters, 1 << 40);
        assert_eq!(output.bytes.tail().capacity(), 0);
        output.clear();
        output.push(&vec![b'b'; 1 << 20]);
        let mut socket = narrow(usize::MAX);
        let sent = output.send(&mut socket, &mut usize::MAX.clone(), false).unwrap();
        assert_eq!((sent, socket.received.len()), (Sent::All, 1 << 20));
        assert_eq!(output.bytes.tail().capacity(), 0);
    }
}

//! Nonblocking calls and bytes that wait to be sent.

use std::io::{self, ErrorKind};

/// Runs a nonblocking call. Returns `None` if it would block; repeats it if a signal interrupts it.
#[inline]
pub fn try_io<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
    loop {
        match call() {
            Ok(result) => return Ok(Some(result)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Bytes to be sent on one connection, in order.
///
/// Empty again after the last byte is sent, it keeps a capacity of at most `KEPT_BYTES`: none by default, so that an idle
/// connection holds no memory. Buffers that connections use in turn keep theirs.
#[derive(Debug, Default)]
pub struct SendBuffer<const KEPT_BYTES: usize = 0> {
    bytes: Vec<u8>,
    /// Number of bytes at the start that are sent.
    sent: usize,
}

impl<const KEPT_BYTES: usize> SendBuffer<KEPT_BYTES> {
    /// Creates a buffer of `bytes` without copying them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }

    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes for a caller that appends to them, such as a renderer. Others must not change.
    #[inline]
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    #[inline]
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// True if all bytes are sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.sent
    }

    /// Marks the first `count` unsent bytes as sent. Empties the buffer after the last.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.retain(count);
        if self.is_empty() {
            self.clear();
        }
    }

    /// Marks the first `count` unsent bytes as sent, but retains them for [`rewind`](Self::rewind).
    #[inline]
    pub fn retain(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.bytes.len(), "more bytes sent than were there");
    }

    /// Number of bytes that are retained after they were sent.
    pub fn retained(&self) -> usize {
        self.sent
    }

    /// Marks all retained bytes as unsent, to send them again on another connection.
    pub fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Frees the memory of sent bytes, for a buffer that is appended to before all of it is sent.
    pub fn discard_sent(&mut self) {
        self.bytes.drain(..self.sent);
        self.sent = 0;
    }

    /// Number of bytes that fit without an allocation.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Drops all bytes, sent or not.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Calls `send` once with the unsent bytes; it may also return 0 for no room. Returns the number of bytes sent;
    /// [`is_empty`](Self::is_empty) is true if all are sent.
    #[inline]
    pub fn send(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let count = try_io(|| send(self.unsent()))?.unwrap_or(0);
        self.advance(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_every_byte_once_through_a_narrow_socket() {
        let mut received = Vec::new();
        let mut calls = 0;
        let mut narrow = |bytes: &[u8]| {
            calls += 1;
            match calls % 3 {
                0 => Err(ErrorKind::WouldBlock.into()),
                1 => Err(ErrorKind::Interrupted.into()),
                _ => {
                    let count = bytes.len().min(2);
                    received.extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        };
        let mut buffer: SendBuffer = SendBuffer::new(b"abc".to_vec());
        buffer.push(b"de");
        assert_eq!(buffer.send(&mut narrow).unwrap(), 2);
        assert_eq!(buffer.unsent(), b"cde");
        assert_eq!(buffer.send(&mut narrow).unwrap(), 0);
        while !buffer.is_empty() {
            buffer.send(&mut narrow).unwrap();
        }
        assert_eq!(buffer.send(&mut narrow).unwrap(), 0);
        assert_eq!(received, b"abcde");
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    #[test]
    fn keeps_bytes_on_error() {
        let mut buffer: SendBuffer = SendBuffer::new(b"ab".to_vec());
        let error = buffer.send(|_| Err(ErrorKind::ConnectionReset.into())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(buffer.unsent(), b"ab");
    }

    #[test]
    fn keeps_capacity_up_to_its_limit() {
        let mut buffer: SendBuffer<64> = SendBuffer::new(Vec::with_capacity(64));
        buffer.tail().extend_from_slice(&[b'a'; 64]);
        buffer.advance(64);
        assert_eq!((buffer.unsent().len(), buffer.bytes.capacity()), (0, 64));
        buffer.push(&[b'a'; 65]);
        buffer.clear();
        assert_eq!((buffer.unsent().len(), buffer.bytes.capacity()), (0, 0));
    }

    #[test]
    fn retained_bytes_are_sent_again() {
        let mut buffer: SendBuffer = SendBuffer::new(b"abc".to_vec());
        buffer.retain(3);
        assert_eq!((buffer.is_empty(), buffer.retained()), (true, 3));
        buffer.push(b"d");
        buffer.retain(1);
        buffer.rewind();
        assert_eq!((buffer.unsent(), buffer.retained()), (&b"abcd"[..], 0));
        buffer.advance(4);
        assert_eq!(buffer.retained(), 0);
    }

    #[test]
    fn bytes_follow_those_that_wait() {
        let mut buffer: SendBuffer = SendBuffer::new(b"abc".to_vec());
        buffer.advance(2);
        buffer.discard_sent();
        buffer.push(b"d");
        assert_eq!((buffer.unsent(), buffer.bytes.as_slice()), (&b"cd"[..], &b"cd"[..]));
    }
}

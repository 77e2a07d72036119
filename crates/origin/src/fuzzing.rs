//! What the programs of `fuzz/` drive. It is there only in tests and under `--cfg fuzzing`, which
//! cargo-fuzz sets.

use std::io::{self, IoSlice};

use crate::conversation::Need;
use crate::conversation::talk::Talk;
use crate::multipart::Multipart;
use crate::output::Sink;
use crate::site::made_up::{made_up_clock, pass};

/// A client of a site of its own. Where an answer waits for a moment, that moment comes at once.
#[derive(Default)]
pub struct Client {
    talk: Talk<Received>,
    is_over: bool,
}

impl Client {
    /// Sends the next bytes, and receives whatever is answered to them. After the last answer of a
    /// connection they are not heard.
    pub fn send(&mut self, piece: &[u8]) {
        let mut piece = piece;
        while !self.is_over {
            match self.talk.hear(piece) {
                Need::Until(moment) => pass(moment.saturating_duration_since(made_up_clock())),
                Need::Close(_) => self.is_over = true,
                _ => return,
            }
            piece = &[];
        }
    }

    /// Whether the site has closed the connection.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What was answered.
    #[must_use]
    pub fn into_received(self) -> Received {
        self.talk.answers
    }
}

/// Answers as they came. A lot of filler is only counted, as it is in the site.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// What came, but for filler that is only counted.
    pub bytes: Vec<u8>,
    /// Before which of the bytes there was filler, and how many bytes of it.
    pub filler: Vec<(usize, u64)>,
}

impl Sink for Received {
    fn send(&mut self, bytes: &[u8], _last: bool) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// The first slice is what comes before the filler.
    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let first_bytes = slices[0].len();
        self.bytes.extend_from_slice(&slices[0]);
        let filler_bytes: usize = slices[1..].iter().map(|slice| slice.len()).sum();
        let at = self.bytes.len();
        match self.filler.last_mut() {
            Some((before, bytes)) if *before == at => *bytes += filler_bytes as u64,
            _ => self.filler.push((at, filler_bytes as u64)),
        }
        Ok(first_bytes + filler_bytes)
    }
}

/// A part of a multipart/form-data body: its name, its file name, and how many bytes it has.
pub type Part = (Vec<u8>, Option<Vec<u8>>, u64);

/// The parts of a body that comes in these pieces, or the name of what is wrong with it; nothing where
/// its type is another one.
///
/// # Errors
///
/// The name of the fault.
pub fn parts<'a>(
    content_type: &[u8],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<Result<Vec<Part>, String>> {
    let read = |multipart: Multipart| {
        let mut multipart = multipart;
        for piece in pieces {
            multipart.feed(piece)?;
        }
        multipart.finish()
    };
    let parts = Multipart::of_type(content_type).transpose()?.and_then(read);
    Some(match parts {
        Ok(parts) => {
            Ok(parts.into_iter().map(|part| (part.name, part.filename, part.bytes)).collect())
        }
        Err(fault) => Err(format!("{fault:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_waits_for_no_moment_and_counts_filler() {
        let mut client = Client::default();
        client
            .send(b"GET /sleep?time=60 HTTP/1.1\r\nHost: a\r\n\r\nGET /download?size=1073741824 ");
        client.send(b"HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\n");
        assert!(client.is_over());
        let received = client.into_received();
        let text = String::from_utf8(received.bytes.clone()).unwrap();
        assert!(text.contains("\r\n\r\n{\"time\":60.000000}HTTP/1.1 200 OK\r\n"), "{text}");
        assert_eq!(received.filler, [(text.len(), 1 << 30)]);
    }
}

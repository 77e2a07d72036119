//! Frames: a length in four bytes, big-endian, and a JSON document of that length.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use thiserror::Error;

/// Limit of one frame. A workload of a thousand templates and the histograms of its result are below it.
pub const MAX_FRAME_BYTES: usize = 256 << 20;

/// Bytes of the length.
const HEADER_BYTES: usize = 4;

/// Step of reading a frame, so that a wrong length cannot reserve the memory of the limit.
const READ_STEP: usize = 1 << 20;

#[derive(Debug, Error)]
pub enum FrameError {
    #[error("frame of {bytes} bytes, but the limit is {MAX_FRAME_BYTES}")]
    TooLong { bytes: usize },
    #[error("the pipe ended within a frame")]
    Truncated,
    #[error("cannot encode a frame")]
    Encode(#[source] serde_json::Error),
    #[error("malformed frame")]
    Decode(#[source] serde_json::Error),
    #[error("the pipe failed")]
    Io(#[from] io::Error),
}

/// Writes one frame and flushes.
pub fn write(pipe: &mut impl Write, message: &impl Serialize) -> Result<(), FrameError> {
    let mut frame = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut frame, message).map_err(FrameError::Encode)?;
    let bytes = frame.len() - HEADER_BYTES;
    let too_long = FrameError::TooLong { bytes };
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= MAX_FRAME_BYTES).ok_or(too_long)?;
    frame[..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    // One write, so that a short frame is one segment.
    pipe.write_all(&frame)?;
    pipe.flush()?;
    Ok(())
}

/// Reads one frame; `None` at the end of the pipe. Calls `on_bytes` after each successful read.
pub fn read<M: DeserializeOwned>(
    pipe: &mut impl Read,
    mut on_bytes: impl FnMut(),
) -> Result<Option<M>, FrameError> {
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    while filled < HEADER_BYTES {
        match read_some(pipe, &mut header[filled..])? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(FrameError::Truncated),
            bytes => filled += bytes,
        }
        on_bytes();
    }
    let bytes = u32::from_be_bytes(header) as usize;
    if bytes > MAX_FRAME_BYTES {
        return Err(FrameError::TooLong { bytes });
    }
    let mut body = Vec::new();
    while body.len() < bytes {
        let start = body.len();
        body.resize(bytes.min(start + READ_STEP), 0);
        let read = read_some(pipe, &mut body[start..])?;
        if read == 0 {
            return Err(FrameError::Truncated);
        }
        body.truncate(start + read);
        on_bytes();
    }
    serde_json::from_slice(&body).map(Some).map_err(FrameError::Decode)
}

fn read_some(pipe: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match pipe.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(bytes: &[u8]) -> Result<Option<String>, String> {
        read(&mut &bytes[..], || {}).map_err(|error| error.to_string())
    }

    #[test]
    fn frame_is_a_length_and_json() {
        let mut bytes = Vec::new();
        write(&mut bytes, &"ab").unwrap();
        assert_eq!(bytes, b"\0\0\0\x04\"ab\"");
        write(&mut bytes, &"c").unwrap();
        let mut pipe = &bytes[..];
        let mut next = || read::<String>(&mut pipe, || {}).unwrap();
        assert_eq!([next(), next(), next()], [Some("ab".to_owned()), Some("c".to_owned()), None]);
    }

    #[test]
    fn frame_in_single_bytes_is_read() {
        struct OneByOne<'a>(&'a [u8]);
        impl Read for OneByOne<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let some = buffer.len().min(1);
                self.0.read(&mut buffer[..some])
            }
        }
        let mut reads = 0;
        let text: Option<String> = read(&mut OneByOne(b"\0\0\0\x04\"ab\""), || reads += 1).unwrap();
        assert_eq!((text.as_deref(), reads), (Some("ab"), 8));
    }

    #[test]
    fn invalid_frames_are_errors() {
        assert_eq!(read_text(b"\0\0"), Err("the pipe ended within a frame".to_owned()));
        assert_eq!(read_text(b"\0\0\0\x04\"a"), Err("the pipe ended within a frame".to_owned()));
        assert_eq!(read_text(b"\0\0\0\x01{"), Err("malformed frame".to_owned()));
        let error = read_text(b"\xff\xff\xff\xff").unwrap_err();
        assert_eq!(error, "frame of 4294967295 bytes, but the limit is 268435456");
    }
}

//! Content codings: gzip and deflate.

use std::io::{self, Read};

use flate2::read::{MultiGzDecoder, ZlibDecoder};

/// Below this size a decoded body never exceeds its ratio.
const RATIO_FREE_BYTES: usize = 16 << 10;

/// Content coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    Deflate,
    /// Another one, or several.
    Unknown,
}

impl ContentCoding {
    /// Adds the value of a `Content-Encoding` header to the coding of those before it. `identity` is none.
    pub(crate) fn with_header(coding: Option<Self>, value: &[u8]) -> Option<Self> {
        let names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let names =
            names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"));
        names.fold(coding, |coding, name| {
            Some(match name.to_ascii_lowercase().as_slice() {
                b"gzip" | b"x-gzip" if coding.is_none() => Self::Gzip,
                b"deflate" if coding.is_none() => Self::Deflate,
                _ => Self::Unknown,
            })
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    All,
    /// Beyond the limit, or up to where the body is cut.
    Cut,
    RatioExceeded,
}

/// Decodes a body piece by piece. Stops behind `limit`, so that its receiver sees that the limit was reached.
pub(crate) fn decode(
    coding: ContentCoding,
    body: &[u8],
    is_cut: bool,
    limit: usize,
    ratio_max: u32,
    receive: impl FnMut(&[u8]),
) -> io::Result<Decoded> {
    match coding {
        ContentCoding::Gzip => {
            receive_all(&mut MultiGzDecoder::new(body), body, is_cut, limit, ratio_max, receive)
        }
        ContentCoding::Deflate => {
            let mut decoder = ZlibDecoder::new(body);
            let decoded = receive_all(&mut decoder, body, is_cut, limit, ratio_max, receive)?;
            // Bytes behind the stream, which a receiver may read.
            let has_rest = decoded == Decoded::All && decoder.total_in() != body.len() as u64;
            if has_rest { Err(io::ErrorKind::InvalidData.into()) } else { Ok(decoded) }
        }
        ContentCoding::Unknown => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn receive_all(
    decoder: &mut impl Read,
    body: &[u8],
    is_cut: bool,
    limit: usize,
    ratio_max: u32,
    mut receive: impl FnMut(&[u8]),
) -> io::Result<Decoded> {
    let allowed = body.len().saturating_mul(ratio_max as usize).max(RATIO_FREE_BYTES);
    let mut total = 0;
    let mut piece = [0; 8 << 10];
    loop {
        let count = match decoder.read(&mut piece) {
            Ok(count) => count,
            Err(_) if is_cut => return Ok(Decoded::Cut),
            Err(error) => return Err(error),
        };
        if count == 0 {
            return Ok(Decoded::All);
        }
        total += count;
        if total > allowed {
            return Ok(Decoded::RatioExceeded);
        }
        receive(&piece[..count]);
        if total > limit {
            return Ok(Decoded::Cut);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    #[test]
    fn headers_name_at_most_one_coding() {
        let coding = |values: &[&str]| {
            values
                .iter()
                .fold(None, |coding, value| ContentCoding::with_header(coding, value.as_bytes()))
        };
        for (values, expected) in [
            (&[][..], None),
            (&["identity, "], None),
            (&["GZip"], Some(ContentCoding::Gzip)),
            (&["identity", "x-gzip"], Some(ContentCoding::Gzip)),
            (&["deflate"], Some(ContentCoding::Deflate)),
            (&["br"], Some(ContentCoding::Unknown)),
            (&["gzip, gzip"], Some(ContentCoding::Unknown)),
            (&["gzip", "deflate"], Some(ContentCoding::Unknown)),
        ] {
            assert_eq!(coding(values), expected, "{values:?}");
        }
    }

    #[test]
    fn decoding_ends_at_the_limit_the_ratio_and_the_cut() -> io::Result<()> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&[b'a'; 100_000])?;
        let body = encoder.finish()?;
        let decoded = |body: &[u8], is_cut, limit, ratio| {
            let mut size = 0;
            let decoded = decode(ContentCoding::Gzip, body, is_cut, limit, ratio, |piece| {
                assert!(piece.iter().all(|&byte| byte == b'a'));
                size += piece.len();
            });
            (decoded.ok(), size)
        };
        assert_eq!(decoded(&body, false, 200_000, 1000), (Some(Decoded::All), 100_000));
        assert_eq!(decoded(&body, false, 10_000, 1000), (Some(Decoded::Cut), 16_384));
        assert_eq!(decoded(&body, false, 200_000, 2), (Some(Decoded::RatioExceeded), 16_384));
        let half = &body[..body.len() - 12];
        assert_eq!(decoded(half, true, 200_000, 1000).0, Some(Decoded::Cut));
        assert_eq!(decoded(half, false, 200_000, 1000).0, None);
        Ok(())
    }

    #[test]
    fn bytes_behind_the_last_stream_are_an_error() -> io::Result<()> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(b"q=a")?;
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(b"q=a")?;
        for (coding, body) in
            [(ContentCoding::Gzip, gzip.finish()?), (ContentCoding::Deflate, zlib.finish()?)]
        {
            let decoded = |body: &[u8]| decode(coding, body, false, 100, 100, |_| ()).ok();
            assert_eq!(decoded(&body), Some(Decoded::All), "{coding:?}");
            assert_eq!(decoded(&[body.as_slice(), b"q=attack"].concat()), None, "{coding:?}");
            assert_eq!(decoded(&[body.as_slice(), b"\0"].concat()), None, "{coding:?}");
        }
        Ok(())
    }
}

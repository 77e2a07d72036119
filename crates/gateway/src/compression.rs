//! Compression of response bodies: the coding that a client gets, the responses that are suitable, and their encoders.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brotli::CompressorWriter;
use flate2::write::GzEncoder;
use tollgate_http1::{BodyFraming, Headers, RequestHead, ResponseHead, Version};
use zstd::stream::raw::CParameter;
use zstd::stream::write::Encoder as ZstdEncoder;

use crate::config::{Compression, ContentCoding, HeaderEdits};

/// Bytes of a body that are read at once, as each one that is compressed delays other clients.
pub(crate) const PIECE_BYTES: usize = 16 << 10;

/// Levels that cost about the same CPU time.
const GZIP_LEVEL: u32 = 4;
const BROTLI_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 3;
/// Bounds the memory of an encoder. The window of gzip is 32 KiB at most.
const WINDOW_LOG: u32 = 16;
const BUFFER_BYTES: usize = 4 << 10;

/// Compression of a response, as its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseCoding {
    /// Every client gets it as the backend has sent it.
    Received,
    /// Others get it compressed, so that it varies with `Accept-Encoding`.
    Identity,
    /// Response to HEAD, or 304, in place of one that is compressed.
    Bodiless,
    Compressed(ContentCoding),
}

/// Returns the coding of `compression` that the client prefers (RFC 9110, section 12.5.3).
pub(crate) fn select(head: &RequestHead<'_>, compression: &Compression) -> Option<ContentCoding> {
    // A body of unknown length ends with the connection in HTTP/1.0.
    if head.version == Version::Http10 || has_no_transform(head.headers) {
        return None;
    }
    let accepted = Accepted::of(head.headers);
    let mut best: Option<(ContentCoding, f32)> = None;
    for &coding in &compression.codings {
        let weight = accepted.codings[coding as usize].or(accepted.others).unwrap_or(0.0);
        // Among equal ones, the first of the configuration.
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((coding, weight));
        }
    }
    let is_preferred = |&(_, weight): &(_, f32)| accepted.identity.is_none_or(|of| weight >= of);
    best.filter(is_preferred).map(|(coding, _)| coding)
}

/// Weights in `Accept-Encoding`, from 0 to 1.
#[derive(Default)]
struct Accepted {
    /// By [`ContentCoding`].
    codings: [Option<f32>; 3],
    identity: Option<f32>,
    others: Option<f32>,
}

impl Accepted {
    fn of(headers: Headers<'_>) -> Self {
        let mut accepted = Self::default();
        for item in headers.all("accept-encoding").flat_map(items) {
            let mut parts = item.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            // An invalid weight accepts nothing.
            let weight = parts.find_map(weight).unwrap_or(1.0);
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let known = ContentCoding::ALL.into_iter().find(|coding| is(coding.name()));
            if let Some(coding) = known.or(is("x-gzip").then_some(ContentCoding::Gzip)) {
                accepted.codings[coding as usize] = Some(weight);
            } else if is("identity") {
                accepted.identity = Some(weight);
            } else if is("*") {
                accepted.others = Some(weight);
            }
        }
        accepted
    }
}

fn weight(parameter: &[u8]) -> Option<f32> {
    let (b'q' | b'Q', rest) = parameter.split_first()? else { return None };
    let value = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let number = str::from_utf8(value).ok().and_then(|value| value.parse::<f32>().ok());
    Some(number.filter(|number| (0.0..=1.0).contains(number)).unwrap_or(0.0))
}

/// Returns the coding of a response whose client gets `accepted`.
pub(crate) fn response_coding(
    head: &ResponseHead<'_>,
    compression: &Compression,
    edits: &HeaderEdits,
    accepted: Option<ContentCoding>,
) -> ResponseCoding {
    if !is_suitable(head, compression, edits) {
        return ResponseCoding::Received;
    }
    match accepted {
        None => ResponseCoding::Identity,
        Some(_) if head.body == BodyFraming::Empty => ResponseCoding::Bodiless,
        Some(coding) => ResponseCoding::Compressed(coding),
    }
}

/// True if another representation may take the place of the response.
fn is_suitable(head: &ResponseHead<'_>, compression: &Compression, edits: &HeaderEdits) -> bool {
    // A 304 may lack the fields that describe its body.
    let is_not_modified = head.status == 304;
    let is_long_enough = match head.body {
        BodyFraming::Length(bytes) => bytes >= compression.bytes_min,
        BodyFraming::Chunked => true,
        BodyFraming::Empty if is_not_modified => true,
        BodyFraming::Empty if head.status == 204 => false,
        // A response to HEAD.
        BodyFraming::Empty => {
            head.content_length.is_none_or(|bytes| bytes >= compression.bytes_min)
        }
        // The body may have been cut off.
        BodyFraming::UntilClose => false,
    };
    let has_type = has_type(head.headers, &compression.types)
        || (is_not_modified && head.headers.first("content-type").is_none());
    // These fields describe the received bytes.
    let is_bound = |name: &str| {
        let codings = ["content-encoding", "content-range"];
        codings.iter().any(|bound| name.eq_ignore_ascii_case(bound)) || is_digest(name)
    };
    let keeps = |(name, value): &(String, String)| {
        is_bound(name)
            || (name.eq_ignore_ascii_case("cache-control") && is_no_transform(value.as_bytes()))
    };
    is_long_enough
        && head.status != 206
        && has_type
        && !has_no_transform(head.headers)
        && !head.headers.fields().any(|field| is_bound(field.name))
        && !edits.set.iter().any(keeps)
}

/// True for fields with a digest of a body as received.
pub(crate) fn is_digest(name: &str) -> bool {
    let digests = ["content-digest", "repr-digest", "digest", "content-md5"];
    digests.iter().any(|digest| name.eq_ignore_ascii_case(digest))
}

fn has_type(headers: Headers<'_>, types: &[String]) -> bool {
    headers.first("content-type").is_some_and(|value| {
        let kind = value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        types.iter().any(|known| kind.eq_ignore_ascii_case(known.as_bytes()))
    })
}

/// RFC 9110, section 7.7.
fn has_no_transform(headers: Headers<'_>) -> bool {
    headers.all("cache-control").any(is_no_transform)
}

fn is_no_transform(value: &[u8]) -> bool {
    items(value).any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

/// True if a value of `Vary` says that the response varies with the coding.
pub(crate) fn names_coding(vary: &[u8]) -> bool {
    items(vary).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"))
}

fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Number of encoders, of all threads.
#[derive(Debug, Default)]
pub(crate) struct Encoders(Arc<AtomicUsize>);

impl Encoders {
    pub(crate) fn len(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Threads that begin at the same time may exceed a limit by one each.
    pub(crate) fn start(&self, coding: ContentCoding) -> Box<Encoder> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&self.0));
        Box::new(Encoder { writer: Writer::new(coding), has_pending: false, _counted: counted })
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Encoder of one body.
pub(crate) struct Encoder {
    writer: Writer,
    /// It may hold bytes back.
    has_pending: bool,
    _counted: Counted,
}

enum Writer {
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

impl Encoder {
    /// True if the client cannot decode all pushed bytes yet.
    pub(crate) fn has_pending(&self) -> bool {
        self.has_pending
    }

    /// Appends to `out` what is sent for `bytes`. With `flush`, the client can decode all of them.
    pub(crate) fn push(&mut self, bytes: &[u8], flush: bool, out: &mut Vec<u8>) {
        self.has_pending |= !bytes.is_empty();
        let flush = flush && self.has_pending;
        self.has_pending &= !flush;
        let encoded = match &mut self.writer {
            Writer::Gzip(writer) => push(writer, GzEncoder::get_mut, bytes, flush),
            Writer::Brotli(writer) => push(&mut **writer, CompressorWriter::get_mut, bytes, flush),
            Writer::Zstd(writer) => push(writer, ZstdEncoder::get_mut, bytes, flush),
        };
        out.extend_from_slice(&encoded.expect(INFALLIBLE));
    }

    /// As [`push`](Self::push), with the last bytes.
    pub(crate) fn finish(mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.push(bytes, false, out);
        let rest = match self.writer {
            Writer::Gzip(writer) => writer.finish().expect(INFALLIBLE),
            Writer::Brotli(writer) => writer.into_inner(),
            Writer::Zstd(writer) => writer.finish().expect(INFALLIBLE),
        };
        out.extend_from_slice(&rest);
    }
}

const INFALLIBLE: &str = "writing to a vector cannot fail";

/// Returns what a writer has written to its vector, without keeping the memory of a long piece.
fn push<W: io::Write>(
    writer: &mut W,
    output: impl FnOnce(&mut W) -> &mut Vec<u8>,
    bytes: &[u8],
    flush: bool,
) -> io::Result<Vec<u8>> {
    writer.write_all(bytes)?;
    if flush {
        writer.flush()?;
    }
    Ok(std::mem::take(output(writer)))
}

impl Writer {
    fn new(coding: ContentCoding) -> Self {
        match coding {
            ContentCoding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Self::Gzip(GzEncoder::new(Vec::new(), level))
            }
            ContentCoding::Br => Self::Brotli(Box::new(CompressorWriter::new(
                Vec::new(),
                BUFFER_BYTES,
                BROTLI_LEVEL,
                WINDOW_LOG,
            ))),
            ContentCoding::Zstd => {
                let writer = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL).and_then(|mut writer| {
                    writer.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
                    Ok(writer)
                });
                Self::Zstd(writer.expect("the level and the window are valid"))
            }
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Encoder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tollgate_http1::{parse_request_head, parse_response_head};

    use super::*;

    const ALL: [ContentCoding; 3] = ContentCoding::ALL;

    fn selected(lines: &str) -> Option<ContentCoding> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
        let head = parse_request_head(bytes.as_bytes()).unwrap().unwrap();
        select(&head, &Compression::default())
    }

    #[test]
    fn client_gets_the_coding_that_it_prefers() {
        use ContentCoding::{Br, Gzip, Zstd};
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some(Br)),
            ("gzip, zstd", Some(Zstd)),
            ("gzip;q=1.0, br;q=0.5", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZIP ; Q = 0.1", Some(Gzip)),
            ("*", Some(Br)),
            ("br;q=0, *", Some(Zstd)),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("gzip;q=2", None),
            ("gzip;q=x", None),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0.5, identity;q=0.5", Some(Gzip)),
            ("identity", None),
            ("deflate", None),
            ("gzipped", None),
            ("", None),
        ] {
            let lines = format!("Accept-Encoding: {accepted}\r\n");
            assert_eq!(selected(&lines), expected, "{accepted}");
        }
        assert_eq!(selected(""), None);
        assert_eq!(selected("Accept-Encoding: deflate\r\nAccept-Encoding: gzip\r\n"), Some(Gzip));
        assert_eq!(selected("Accept-Encoding: gzip\r\nCache-Control: a, No-Transform\r\n"), None);
    }

    #[test]
    fn responses_bound_to_their_bytes_are_left_alone() {
        let coding = |status: &str, lines: &str, set: &[(&str, &str)]| {
            let bytes = format!("HTTP/1.1 {status} X\r\n{lines}\r\n");
            let head = parse_response_head(bytes.as_bytes(), false).unwrap().unwrap();
            let set = set.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
            let edits = HeaderEdits { set: set.collect(), ..HeaderEdits::default() };
            response_coding(&head, &Compression::default(), &edits, Some(ContentCoding::Gzip))
        };
        const HTML: &str = "Content-Length: 1024\r\nContent-Type: Text/HTML; charset=utf-8\r\n";
        let compressed = ResponseCoding::Compressed(ContentCoding::Gzip);
        for status in ["200", "404", "500"] {
            assert_eq!(coding(status, HTML, &[("X-A", "b")]), compressed);
        }
        let chunked = "Transfer-Encoding: chunked\r\nContent-Type: text/css\r\n";
        assert_eq!(coding("200", chunked, &[]), compressed);
        for (status, lines) in [
            ("304", ""),
            ("304", "ETag: \"a\"\r\nContent-Length: 0\r\n"),
            ("304", "Content-Type: text/css\r\n"),
        ] {
            assert_eq!(coding(status, lines, &[]), ResponseCoding::Bodiless, "{status} {lines}");
        }
        for (status, lines) in [
            ("200", "Content-Length: 1023\r\nContent-Type: text/html\r\n"),
            ("200", "Content-Length: 1024\r\nContent-Type: image/png\r\n"),
            ("200", "Content-Length: 1024\r\n"),
            ("200", "Content-Type: text/html\r\n"),
            ("206", HTML),
            ("204", "Content-Type: text/html\r\n"),
            ("304", "Content-Type: image/png\r\n"),
            ("304", "Content-Encoding: br\r\n"),
            ("304", "Cache-Control: no-transform\r\n"),
        ] {
            assert_eq!(coding(status, lines, &[]), ResponseCoding::Received, "{status} {lines}");
        }
        for line in [
            "Content-Encoding: br",
            "Cache-Control: private, no-transform",
            "Content-Range: bytes 0-1/2",
            "Content-MD5: x",
            "Content-Digest: x",
            "Repr-Digest: x",
        ] {
            let lines = format!("{HTML}{line}\r\n");
            assert_eq!(coding("200", &lines, &[]), ResponseCoding::Received, "{line}");
        }
        let set = [("cache-control", "no-transform")];
        assert_eq!(coding("200", HTML, &set), ResponseCoding::Received);
    }

    fn decoder<'a>(coding: ContentCoding, bytes: &'a [u8]) -> Box<dyn io::Read + 'a> {
        match coding {
            ContentCoding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            ContentCoding::Br => Box::new(brotli::Decompressor::new(bytes, 4096)),
            ContentCoding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        }
    }

    #[test]
    fn flushed_bytes_can_be_decoded_before_the_end() {
        let encoders = Encoders::default();
        for coding in ALL {
            let mut encoder = encoders.start(coding);
            assert_eq!(encoders.len(), 1);
            let mut out = Vec::new();
            encoder.push(b"first ", false, &mut out);
            encoder.push(b"second ", true, &mut out);
            let mut flushed = [0; 13];
            decoder(coding, &out).read_exact(&mut flushed).unwrap();
            assert_eq!(&flushed, b"first second ", "{coding:?}");
            let without_end = decoder(coding, &out).read_to_end(&mut Vec::new());
            assert!(without_end.is_err(), "{coding:?}");
            let flushed = out.len();
            encoder.push(b"", true, &mut out);
            assert_eq!(out.len(), flushed, "nothing is pending");
            // Bytes that cannot be compressed.
            let mut state = 1_u64;
            let noise = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            });
            let noise: Vec<u8> = noise.take(400_000).collect();
            for piece in noise.chunks(16_000) {
                encoder.push(piece, false, &mut out);
            }
            encoder.finish(b"last", &mut out);
            let expected = [b"first second ", &noise[..], b"last"].concat();
            let mut decoded = Vec::new();
            decoder(coding, &out).read_to_end(&mut decoded).unwrap();
            assert!(decoded == expected, "{coding:?}");
            assert_eq!(encoders.len(), 0);
        }
    }
}

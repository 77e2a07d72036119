//! Field blocks of one connection: agreement with h2, and round trips of our encoder through both decoders.
//!
//! Input: blocks, each preceded by a byte with its length.

#![no_main]

use std::io::Cursor;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use h2::Codec;
use h2::frame::Frame;
use libfuzzer_sys::fuzz_target;
use tollgate_http2::{Decoder, Encoder, FieldLimits, Fields, FrameHeader, FrameType, flags};

type List = Vec<(Vec<u8>, Vec<u8>)>;

fuzz_target!(|input: &[u8]| {
    let mut blocks = Vec::new();
    let mut rest = input;
    while let Some((length, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(usize::from(*length)));
        blocks.push(block.to_vec());
        rest = after;
    }
    let mut decoder = Decoder::default();
    let ours: Vec<Option<List>> = blocks.iter().map(|block| decode(&mut decoder, block)).collect();
    // h2 rejects invalid fields while it decodes, so it may end earlier.
    for (ours, theirs) in ours.iter().zip(their_lists(&blocks)) {
        let ours = ours.as_ref().expect("h2 decodes it");
        assert_eq!(*ours, theirs);
    }

    // The decoder may not be used after an error.
    let lists: Vec<List> = ours.into_iter().map_while(|list| list).collect();
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::default());
    let mut encoded = Vec::new();
    for list in &lists {
        let mut block = Vec::new();
        encoder.start(&mut block);
        for (name, value) in list {
            encoder.encode(name, value, false, &mut block);
        }
        assert_eq!(decode(&mut decoder, &block).as_ref(), Some(list));
        encoded.push(block);
    }
    // h2 is fed with the blocks that it can represent.
    let is_plain = |list: &&List| list.iter().all(|(name, value)| is_plain(name, value));
    let plain = lists.iter().take_while(is_plain).count();
    assert_eq!(their_lists(&encoded[..plain]), lists[..plain]);
});

/// Fields in the order of their names, as h2 groups them.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<List> {
    let mut fields = Fields::default();
    decoder.decode(block, FieldLimits { bytes: 1 << 24, fields: 1 << 20 }, &mut fields).ok()?;
    let mut list: List =
        fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    Some(list)
}

/// The lists of h2 up to its first error.
fn their_lists(blocks: &[Vec<u8>]) -> Vec<List> {
    let mut bytes = Vec::new();
    for block in blocks {
        let flags = flags::END_HEADERS;
        let header =
            FrameHeader { length: block.len() as u32, kind: FrameType::HEADERS, flags, stream: 1 };
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(block);
    }
    let mut codec: Codec<_, &[u8]> = Codec::new(Cursor::new(bytes));
    // The tests' encoder makes no block above this.
    codec.set_max_recv_frame_size((1 << 24) - 1);
    let mut lists = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(Frame::Headers(headers)))) =
        Pin::new(&mut codec).poll_next(&mut context)
    {
        let (pseudo, map) = headers.into_parts();
        let mut list: List = map
            .iter()
            .map(|(name, value)| (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        let mut push = |name: &str, value: Option<&[u8]>| {
            list.extend(value.map(|value| (name.as_bytes().to_vec(), value.to_vec())));
        };
        push(":method", pseudo.method.as_ref().map(|method| method.as_str().as_bytes()));
        push(":scheme", pseudo.scheme.as_deref().map(str::as_bytes));
        push(":authority", pseudo.authority.as_deref().map(str::as_bytes));
        push(":path", pseudo.path.as_deref().map(str::as_bytes));
        push(":protocol", pseudo.protocol.as_ref().map(|protocol| protocol.as_str().as_bytes()));
        push(":status", pseudo.status.as_ref().map(|status| status.as_str().as_bytes()));
        list.sort_by(|a, b| a.0.cmp(&b.0));
        lists.push(list);
    }
    lists
}

/// True for fields that h2 does not reject in any message.
fn is_plain(name: &[u8], value: &[u8]) -> bool {
    const REJECTED: [&[u8]; 6] = [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"transfer-encoding",
        b"upgrade",
        b"te",
    ];
    !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && !REJECTED.contains(&name)
        && value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f)
}

//! Buffers and caches that the connections of a thread use in turn, so that idle connections need none.

use std::net::IpAddr;

use tollgate_http1::{BodyFraming, HeadCache, MAX_HEAD_BYTES, Version};

use super::keys::{GenerationKey, ListenerKey};
use crate::body::TAIL_BYTES_MAX;
use crate::cluster::HashKey;
use crate::compression::ResponseCoding;
use crate::config::{ContentCoding, PoolId, RouteId};
use crate::headers::{DateCache, RequestSummary};

/// Space in front of the input, so that a rewritten head can be placed right before the body that was read with it.
pub(super) const HEADROOM_BYTES: usize = 4 << 10;
/// Bytes per read: an incomplete head plus the same amount.
pub(super) const INPUT_BYTES: usize = 2 * MAX_HEAD_BYTES;
/// Bytes of a body or tunnel per read, which fill two segments: over loopback, or where the network card cuts them, these have at
/// most 65,483 bytes. With a few bytes more, the rest would be a segment of its own, and where the congestion control
/// paces (BBR) wait for a timer, which cost more than twice the CPU of the whole piece.
pub(super) const PIECE_BYTES: usize = 2 * (MAX_HEAD_BYTES - 1024);
/// Bytes of a response per read for a stream of HTTP/2, where they wait in memory for windows and other streams fill the pauses.
pub(super) const STREAM_PIECE_BYTES: usize = MAX_HEAD_BYTES;

/// Heads cached per direction.
const CACHED_HEADS: usize = 4;

#[derive(Debug)]
pub(super) struct Scratch {
    /// Headroom, input, and space for the tail of a body.
    pub(super) input: Box<[u8]>,
    /// A piece of a compressed body, with space for its framing.
    pub(super) compressed: Vec<u8>,
    /// The head to forward.
    pub(super) head: Vec<u8>,
    /// Heads of requests that a pool serves and the firewall does not see.
    pub(super) requests: HeadCache<RequestKey, (CachedRequest, PoolId), CACHED_HEADS>,
    pub(super) responses: HeadCache<ResponseKey, CachedResponse, CACHED_HEADS>,
    pub(super) date: DateCache,
}

/// Context that determines the meaning of a request head, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestKey {
    pub(super) generation: GenerationKey,
    pub(super) listener: ListenerKey,
    /// The peer that has sent the request.
    pub(super) ip: Option<IpAddr>,
    /// A reload can switch TLS of a listener on or off.
    pub(super) is_tls: bool,
    pub(super) is_http2: bool,
}

/// The meaning of a request head.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedRequest {
    pub(super) request: RequestSummary,
    pub(super) client: Option<IpAddr>,
    pub(super) route: RouteId,
    pub(super) hash_key: HashKey,
    /// The firewall sees the request and its response.
    pub(super) is_inspected: bool,
}

/// Context that determines the meaning of a response head, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseKey {
    pub(super) generation: GenerationKey,
    pub(super) route: RouteId,
    pub(super) is_head: bool,
    pub(super) version: Version,
    pub(super) coding: Option<ContentCoding>,
    /// The client's connection can be kept.
    pub(super) keep_alive: bool,
}

/// The meaning of a final response head.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedResponse {
    pub(super) status: u16,
    pub(super) head_bytes: usize,
    pub(super) framing: BodyFraming,
    /// The backend keeps its connection open.
    pub(super) keep_alive: bool,
    /// Seconds for which the backend says that it keeps its connection.
    pub(super) keep_alive_s: Option<u16>,
    /// Its body is a stream of events or of a gRPC call.
    pub(super) is_streaming: bool,
    /// The client's connection ends with the response.
    pub(super) closes: bool,
    /// The body is forwarded without its chunked coding.
    pub(super) strips_coding: bool,
    /// Coding of the body for the client.
    pub(super) coding: ResponseCoding,
    /// Position of the gateway's date in the head to forward. `None`: the response has a date.
    pub(super) date_at: Option<usize>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            input: vec![0; HEADROOM_BYTES + INPUT_BYTES + TAIL_BYTES_MAX].into_boxed_slice(),
            compressed: Vec::new(),
            head: Vec::new(),
            requests: HeadCache::default(),
            responses: HeadCache::default(),
            date: DateCache::default(),
        }
    }
}

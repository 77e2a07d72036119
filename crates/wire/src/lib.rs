//! HTTP/1.1 bytes to types and back (RFC 9112), without any I/O.
//!
//! Rendering ([`RequestText`]) happens once, before a run. Reading is incremental: [`BodyDecoder`]
//! and [`ResponseScanner`] take bytes as they come, split anywhere, and keep no body; [`BodySearch`]
//! looks into one as it passes. Both ends of a benchmark must agree on where a message ends, so what RFC 9112 calls faulty framing is an error
//! with its reason, never a guess.

mod body;
mod chunked;
mod error;
mod framing;
mod head;
mod headers;
mod memo;
mod request;
mod response;
mod search;
mod size_lines;
mod target;

pub use body::{BodyDecoder, BodyProgress};
pub use chunked::MAX_TRAILER_BYTES;
pub use error::ParseError;
pub use framing::BodyFraming;
pub use head::{
    AnswerHead, MAX_HEAD_BYTES, MAX_HEADERS, RequestHead, Version, parse_answer_head,
    parse_request_head,
};
pub use headers::Headers;
pub use memo::{HeadMemo, MAX_MEMO_BYTES};
pub use request::{Part, RenderError, RequestText};
pub use response::{Answer, ResponseScanner, Scan};
pub use search::{BodySearch, Needle};
pub use size_lines::{MAX_CHUNK_LINE_BYTES, SizeLines};
pub use target::Target;

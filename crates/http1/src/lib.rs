//! HTTP/1.1 (RFC 9112): parsing heads, decoding bodies, rendering requests. No I/O. The checks of heads also take those of
//! HTTP/2, as a [`FieldList`].
//!
//! Decoders are incremental: [`BodyDecoder`], [`ResponseScanner`] and [`BodySearch`] take bytes in any pieces and keep
//! no body. Ambiguous framing is an error with its reason, never a guess, because peers that disagree on the end of
//! a message are open to request smuggling.

mod body;
mod error;
mod escape;
mod field_list;
mod head;
mod head_cache;
mod headers;
mod render;
mod response;
mod status;

pub use body::{BodyDecoder, BodyPart, BodyPartKind, BodyProgress, BodySearch, Pattern};
pub use error::{MAX_CHUNK_LINE_BYTES, MAX_HEAD_BYTES, MAX_HEADERS, MAX_TRAILER_BYTES, ParseError};
pub use escape::{escape_invalid, unescape_invalid};
pub use field_list::{FieldList, FieldListIter, ListedField};
pub use head::{
    HeadFaults, RequestHead, ResponseHead, ResponseSummary, Target, parse_request_head,
    parse_response_head, parse_response_head_for_client,
};
pub use head_cache::{CachedHead, HeadCache, MAX_CACHED_HEAD_BYTES};
pub use headers::{
    BodyFraming, HeaderField, HeaderLines, Headers, Version, header_lines, is_token, is_token_byte,
    parse_host, parse_length,
};
pub use render::{RenderError, RequestMessage, RequestPart, RequestText};
pub use response::{Response, ResponseHeadCache, ResponseScanner, Scan};
pub use status::reason_phrase;

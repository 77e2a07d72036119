//! Tests by literal bytes and values derived by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

// Bodies: framing, chunked coding, search.
mod body;
// Heads of requests and responses.
mod head;
// The head cache, alone and in the scanner.
mod head_cache;
// Rendering requests.
mod render;
// Scanning responses.
mod response;

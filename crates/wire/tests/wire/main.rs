//! The crate from outside: literal bytes in, hand-derived values out.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

// Rendering requests.
mod request;
// Parsing request heads.
mod head;
// Finding the end of bodies, the chunked coding above all.
mod body;
// Parsing the heads of answers, for who passes them on.
mod answer_head;
// Scanning answers, split everywhere.
mod response;
// Recalling heads, which must change no result.
mod memo;
// Finding a substring of a body, split everywhere.
mod search;

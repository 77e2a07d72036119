//! What becomes of a head on its way: the one that a backend gets of a request, and the one that a
//! client gets of an answer. Nothing of a head is passed on without having been parsed; framing is
//! always said anew, in one way.

mod answer;
mod hop;
mod hops;
mod request;

pub(crate) use answer::{Persistence, render_answer};
pub(crate) use hops::{FaultyHops, hops, last_hop};
pub(crate) use request::{Asked, Sender, render_request};

use tollgate_wire::BodyFraming;

use crate::config::HeaderEdits;

/// Writes a header line.
pub(crate) fn push_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes the one header that says where a body ends.
fn push_framing(out: &mut Vec<u8>, framing: BodyFraming) {
    match framing {
        BodyFraming::Length(bytes) => push_length(out, bytes),
        BodyFraming::Chunked => push_header(out, "Transfer-Encoding", b"chunked"),
        BodyFraming::Empty | BodyFraming::UntilClose => {}
    }
}

fn push_length(out: &mut Vec<u8>, bytes: u64) {
    push_header(out, "Content-Length", bytes.to_string().as_bytes());
}

/// Whether the edits do away with what came under this name.
pub(crate) fn is_edited(edits: &HeaderEdits, name: &str) -> bool {
    edits.remove.iter().any(|removed| removed.eq_ignore_ascii_case(name))
        || edits.set.iter().any(|(set, _)| set.eq_ignore_ascii_case(name))
}

fn push_edits(out: &mut Vec<u8>, edits: &HeaderEdits) {
    for (name, value) in &edits.set {
        push_header(out, name, value.as_bytes());
    }
}

#[cfg(test)]
mod tests;

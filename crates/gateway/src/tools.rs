//! What the connections of a thread use in turns, so that an idle one holds no memory.

use tollgate_wire::MAX_HEAD_BYTES;

use crate::date::DateOfNow;
use crate::recall::{AnswerKey, AnswerMeaning, Recall, RequestKey, RequestMeaning};
use crate::relay::TAIL_MAX_BYTES;

/// Room before what is read, so that the head that goes on can be written right before the body that
/// came with the one that came.
pub(crate) const HEADROOM_BYTES: usize = 4 << 10;

/// What one read takes: an incomplete head, and as much again to read behind it.
pub(crate) const INPUT_BYTES: usize = 2 * MAX_HEAD_BYTES;

/// What of an answer is read at a time. A client takes one piece while the backend sends the next: with
/// twice as much fewer bytes a second go through, though each costs less CPU.
pub(crate) const PIECE_BYTES: usize = MAX_HEAD_BYTES;

/// What the connections of a thread use in turns.
#[derive(Debug)]
pub(crate) struct Tools {
    /// What was read, behind the headroom and before room for a body's tail.
    pub(crate) input: Box<[u8]>,
    /// The head that goes on.
    pub(crate) head: Vec<u8>,
    pub(crate) requests: Recall<RequestKey, RequestMeaning>,
    pub(crate) answers: Recall<AnswerKey, AnswerMeaning>,
    /// What answers say that have no date of their own.
    pub(crate) date: DateOfNow,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self {
            input: vec![0; HEADROOM_BYTES + INPUT_BYTES + TAIL_MAX_BYTES].into_boxed_slice(),
            head: Vec::new(),
            requests: Recall::default(),
            answers: Recall::default(),
            date: DateOfNow::default(),
        }
    }
}

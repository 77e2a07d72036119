//! A conversation that is heard and answered without a socket, for tests and fuzzing.

use super::{Circumstances, Conversation, Need};
use crate::output::{Output, Sent, Sink};
use crate::site::Site;
use crate::site::made_up::site;

pub(crate) const CALM: Circumstances = Circumstances { stopping: false };

/// At once a conversation gets at most so many random bytes or zeros.
const FETCHED_MAX_BYTES: u64 = 60_000;

/// One connection to a site of its own, whose clock is the made-up one.
pub(crate) struct Talk<S> {
    pub(crate) site: Site,
    pub(crate) conversation: Conversation,
    pub(crate) unread: Vec<u8>,
    pub(crate) answers: S,
}

impl<S: Default> Default for Talk<S> {
    fn default() -> Self {
        Self {
            site: site(),
            conversation: Conversation::default(),
            unread: Vec::new(),
            answers: S::default(),
        }
    }
}

impl<S: Sink> Talk<S> {
    /// Feeds a piece as a connection does: what is not consumed comes again, before the next.
    pub(crate) fn hear(&mut self, piece: &[u8]) -> Need {
        self.unread.extend_from_slice(piece);
        loop {
            let mut output = Output::default();
            let (consumed, need) =
                self.conversation.advance(&self.unread, &mut output, &mut self.site, CALM);
            self.unread.drain(..consumed);
            let sent = output.send(&mut self.answers, &mut usize::MAX.clone(), false);
            assert_eq!(sent.ok(), Some(Sent::All), "a sink that takes everything");
            match need {
                Need::Room => {}
                Need::Bytes(_, bytes) => self.conversation.fetched(bytes.min(FETCHED_MAX_BYTES)),
                other => return other,
            }
        }
    }
}

//! What is to be done for a request before it is answered.

use std::time::{Duration, Instant};

use crate::answer::Answer;
use crate::endpoints::echo::Echo;
use crate::endpoints::upload::Upload;

/// What is to be done for a request before it is answered.
#[derive(Debug)]
pub(crate) enum Plan<'a> {
    /// Nothing: this is the answer.
    Answer(Answer<'a>),
    /// To let time pass.
    Wait(Wait),
    /// To take random bytes or zeros.
    Fetch(Fetch),
    /// To measure the body.
    Upload(Box<Upload>),
    /// To keep the body.
    Echo(Box<Echo>),
}

/// A wait, and what is answered after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) time: Duration,
    /// From the time that was asked for, and the time that it took.
    pub(crate) answer: fn(Duration, Duration) -> Answer<'static>,
}

/// Bytes that are taken from a source and thrown away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) source: Source,
    pub(crate) bytes: u64,
}

/// Where bytes are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The random number generator of the thread.
    Random,
    /// `/dev/zero`.
    Zero,
}

impl<'a> Plan<'a> {
    /// Looks at the next piece of the request's body.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        match self {
            Self::Upload(upload) => upload.take(piece),
            Self::Echo(echo) => echo.take(piece),
            Self::Answer(_) | Self::Wait(_) | Self::Fetch(_) => {}
        }
    }

    /// The same plan, without what it borrows from the request.
    pub(crate) fn into_owned(self) -> Plan<'static> {
        match self {
            Self::Answer(answer) => Plan::Answer(answer.into_owned()),
            Self::Wait(wait) => Plan::Wait(wait),
            Self::Fetch(fetch) => Plan::Fetch(fetch),
            Self::Upload(upload) => Plan::Upload(upload),
            Self::Echo(echo) => Plan::Echo(echo),
        }
    }
}

/// What is left to be done once the whole request is there.
#[derive(Debug)]
pub(crate) enum Work<'a> {
    Done(Answer<'a>),
    Wait { wait: Wait, started: Instant },
    Fetch { fetch: Fetch, left_bytes: u64, started: Instant },
}

impl<'a> Plan<'a> {
    /// Begins what is to be done once the whole request is there.
    pub(crate) fn begin(self, clock: fn() -> Instant) -> Work<'a> {
        match self {
            Self::Answer(answer) => Work::Done(answer),
            Self::Wait(wait) => Work::Wait { wait, started: clock() },
            Self::Fetch(fetch) => Work::Fetch { fetch, left_bytes: fetch.bytes, started: clock() },
            Self::Upload(upload) => Work::Done(upload.answer(clock())),
            Self::Echo(echo) => Work::Done(echo.answer()),
        }
    }
}

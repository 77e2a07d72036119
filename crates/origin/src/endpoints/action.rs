//! Actions: what a request asks for, before its response is ready.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::multipart::{Multipart, MultipartError};
use crate::request::RequestError;
use crate::response::{Body, NO_SNIFF, Response, Seconds, error_response};

pub(super) type ActionResult<'a> = Result<Action<'a>, RequestError<'a>>;

/// Work for a request before its response is ready.
#[derive(Debug)]
pub(crate) enum Action<'a> {
    Respond(Response<'a>),
    Wait(Wait),
    /// Read bytes from a source and discard them.
    Fetch {
        source: SourceKind,
        bytes: u64,
    },
    /// Measure the request body.
    Upload(Box<Upload>),
    /// Keep the request body and return it.
    Echo(Box<Echo>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) duration: Duration,
    /// Builds the response from the duration and the time that has passed.
    pub(crate) respond: fn(Duration, Duration) -> Response<'static>,
}

impl<'a> Action<'a> {
    /// Takes the next piece of the request body.
    pub(crate) fn receive(&mut self, piece: &[u8]) {
        match self {
            Self::Upload(upload) => upload.receive(piece),
            Self::Echo(echo) => echo.receive(piece),
            Self::Respond(_) | Self::Wait(_) | Self::Fetch { .. } => {}
        }
    }

    /// Copies the data borrowed from the request.
    pub(crate) fn into_owned(self) -> Action<'static> {
        match self {
            Self::Respond(response) => Action::Respond(response.into_owned()),
            Self::Wait(wait) => Action::Wait(wait),
            Self::Fetch { source, bytes } => Action::Fetch { source, bytes },
            Self::Upload(upload) => Action::Upload(upload),
            Self::Echo(echo) => Action::Echo(echo),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    Random,
    Zero,
}

/// A request body that is measured and discarded.
#[derive(Debug)]
pub(crate) struct Upload {
    started: Instant,
    bytes: u64,
    /// The parts of multipart/form-data, until the first error.
    parts: Option<Result<Multipart, MultipartError>>,
}

impl Upload {
    pub(super) fn new(started: Instant, parts: Option<Multipart>) -> Self {
        Self { started, bytes: 0, parts: parts.map(Ok) }
    }

    pub(super) fn receive(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if let Some(Ok(parts)) = &mut self.parts
            && let Err(error) = parts.feed(piece)
        {
            self.parts = Some(Err(error));
        }
    }

    pub(crate) fn into_response(self, now: Instant) -> Response<'static> {
        #[derive(Serialize)]
        struct Shown {
            size: u64,
            time: Seconds,
        }

        let time = Seconds(now.saturating_duration_since(self.started));
        let shown = Shown { size: self.bytes, time };
        match self.parts.map(|parts| parts.and_then(Multipart::finish)) {
            None => Response::json(&shown),
            Some(Ok(parts)) => Response::untrusted_json_list(&shown, "parts", &parts),
            Some(Err(error)) => error_response(&error.into()),
        }
    }
}

pub(super) const MAX_ECHO_BYTES: u64 = 1 << 20;

/// A request body that becomes the response.
#[derive(Debug)]
pub(crate) struct Echo {
    content_type: Cow<'static, [u8]>,
    body: Vec<u8>,
}

impl Echo {
    pub(super) fn new(content_type: Cow<'static, [u8]>) -> Self {
        Self { content_type, body: Vec::new() }
    }

    /// Appends a piece of the body; the caller has checked the limit.
    pub(super) fn receive(&mut self, piece: &[u8]) {
        self.body.extend_from_slice(piece);
    }

    pub(crate) fn into_response(self) -> Response<'static> {
        Response::new(200, self.content_type, NO_SNIFF, Body::Bytes(self.body))
    }
}

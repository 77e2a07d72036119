//! What a request is answered with.

use std::borrow::Cow;
use std::rc::Rc;

use crate::json;
use crate::refusal::Refusal;

/// An answer, apart from what is said about the connection.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) content_type: Cow<'a, [u8]>,
    /// More header lines, each with the CR LF that ends it.
    pub(crate) lines: Cow<'static, str>,
    pub(crate) body: Body<'a>,
    /// It says why the request was not answered as it asked.
    pub(crate) is_refusal: bool,
}

/// The body of an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Body<'a> {
    /// So many bytes of filler.
    Filler(u64),
    /// One line that names the path that was asked for.
    Path(&'a str),
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, which are kept for the next who asks.
    Page(Rc<[u8]>),
    /// None, and no length: the status (204, 304) allows neither.
    Never,
}

/// What stands before the path in an answer that names it.
pub(crate) const PATH_PREFIX: &str = "tollgate origin: ";

/// For answers that repeat what the client sent.
pub(crate) const NO_SNIFF: &str = "X-Content-Type-Options: nosniff\r\n";

const TEXT: Cow<'static, [u8]> = Cow::Borrowed(b"text/plain");
const JSON: Cow<'static, [u8]> = Cow::Borrowed(b"application/json");

impl<'a> Answer<'a> {
    /// So many bytes of filler, as text.
    pub(crate) fn filler(bytes: u64) -> Self {
        Self::ok(TEXT, "", Body::Filler(bytes))
    }

    /// One line that names `path`.
    pub(crate) fn path(path: &'a str) -> Self {
        Self::ok(TEXT, NO_SNIFF, Body::Path(path))
    }

    /// A JSON text.
    pub(crate) fn json(text: String) -> Self {
        Self::ok(JSON, "", Body::Bytes(text.into_bytes()))
    }

    /// A web page.
    pub(crate) fn page(page: Rc<[u8]>) -> Self {
        Self::ok(&b"text/html; charset=utf-8"[..], "", Body::Page(page))
    }

    /// A body of this type, with more header lines.
    pub(crate) fn ok(
        content_type: impl Into<Cow<'a, [u8]>>,
        lines: impl Into<Cow<'static, str>>,
        body: Body<'a>,
    ) -> Self {
        Self {
            status: 200,
            content_type: content_type.into(),
            lines: lines.into(),
            body,
            is_refusal: false,
        }
    }

    /// The same answer, without what it borrows from the request.
    pub(crate) fn into_owned(self) -> Answer<'static> {
        let body = match self.body {
            Body::Path(path) => Body::Bytes(
                PATH_PREFIX
                    .bytes()
                    .chain(path.as_bytes().escape_ascii())
                    .chain(std::iter::once(b'\n'))
                    .collect(),
            ),
            Body::Filler(bytes) => Body::Filler(bytes),
            Body::Bytes(bytes) => Body::Bytes(bytes),
            Body::Page(page) => Body::Page(page),
            Body::Never => Body::Never,
        };
        Answer {
            status: self.status,
            content_type: Cow::Owned(self.content_type.into_owned()),
            lines: self.lines,
            body,
            is_refusal: self.is_refusal,
        }
    }

    /// Only a status, and what else there is to say about it.
    pub(crate) fn bodyless(status: u16, lines: impl Into<Cow<'static, str>>) -> Self {
        Self { status, ..Self::ok(TEXT, lines, Body::Never) }
    }
}

impl Answer<'_> {
    /// Whether the same head is always answered with the same bytes.
    pub(crate) fn follows_from_head(&self) -> bool {
        self.status == 200 && matches!(self.body, Body::Filler(_) | Body::Path(_))
    }
}

impl Body<'_> {
    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Filler(bytes) => *bytes,
            Self::Path(path) => {
                (PATH_PREFIX.len() + path.as_bytes().escape_ascii().count() + "\n".len()) as u64
            }
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Page(bytes) => bytes.len() as u64,
            Self::Never => 0,
        }
    }
}

impl<'a> From<&Refusal<'_>> for Answer<'a> {
    fn from(refusal: &Refusal<'_>) -> Self {
        let text = format!("{{\"error\":{}}}", json::string(refusal.to_string().as_bytes()));
        let lines: Cow<'static, str> = match refusal {
            Refusal::NotAnUpload(_) => format!("{NO_SNIFF}Allow: POST, PUT\r\n").into(),
            Refusal::Precondition { etag_bytes } => {
                format!("{NO_SNIFF}ETag: \"{etag_bytes}\"\r\n").into()
            }
            Refusal::Range { size } => {
                format!("{NO_SNIFF}Content-Range: bytes */{size}\r\n").into()
            }
            _ => NO_SNIFF.into(),
        };
        Self { status: refusal.status(), lines, is_refusal: true, ..Self::json(text) }
    }
}

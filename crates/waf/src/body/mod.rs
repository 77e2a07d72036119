//! Content codings of bodies, and parsers of those of requests.

pub(crate) mod content_coding;
pub(crate) mod json;
pub(crate) mod multipart;
mod parameter;
pub(crate) mod urlencoded;
pub(crate) mod xml;

#[cfg(test)]
mod tests;

/// Limits of the structure of a body. Exceeding one is an error; a body is never truncated silently.
/// The caller limits the number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Nested arrays and objects, or elements.
    pub(crate) depth: usize,
    /// Parts of a multipart body, or attributes of an XML body.
    pub(crate) parts: usize,
    /// Bytes of the names of all values of a JSON body together: names repeat their path, so that
    /// they can be far longer than the body.
    pub(crate) name_bytes: usize,
    /// The body was cut, so that its end is no error.
    pub(crate) is_cut: bool,
}

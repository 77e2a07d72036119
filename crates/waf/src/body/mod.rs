//! Parsers of request bodies.

pub(crate) mod json;
pub(crate) mod multipart;
mod parameter;
pub(crate) mod urlencoded;
pub(crate) mod xml;

#[cfg(test)]
mod tests;

/// Limits of the structure of a body. A body that exceeds one of them is an error, never cut in
/// silence. The number of bytes is limited before a body gets here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Nested arrays and objects, or elements.
    pub(crate) depth: usize,
    /// Parts of a multipart body, or attributes of an XML body.
    pub(crate) parts: usize,
    /// Bytes of the names of all values of a JSON body together: names repeat their path, so that
    /// they can be far longer than the body.
    pub(crate) name_bytes: usize,
}

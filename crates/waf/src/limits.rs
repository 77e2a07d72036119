//! Limits of a transaction: all of them, and the one way to drop something because of them.
//!
//! Limits that operators set are in [`Settings`](crate::Settings). A structure that is too large or too deep is an error of
//! the body, which rules see. Anything else that is not inspected or not kept goes through [`Reached::exceed`].

use std::fmt;

/// Parts of a multipart body, whose fields are arguments, and attributes of an XML document, which are not.
pub(crate) const PARTS_MAX: usize = 100_000;
/// Matches that are kept for the log.
pub(crate) const MATCHES_MAX: usize = 4096;
/// Bytes of a value or a text that is kept for the log.
pub(crate) const LOGGED_VALUE_MAX: usize = 4096;
/// Occurrences that are counted in one value.
pub(crate) const OCCURRENCES_MAX: usize = 1000;
/// Bytes of all values that rules capture and write.
pub(crate) const WRITTEN_BYTES_MAX: usize = 4 << 20;
/// Bytes of the key of a persistent collection. Longer keys with the same beginning name the same collection.
pub(crate) const COLLECTION_KEY_MAX: usize = 1024;
/// Bytes of a persistent collection with one key.
pub(crate) const COLLECTION_RECORD_MAX: usize = 64 << 10;
/// Arguments with neither name nor value that are kept. There is nothing in them to inspect.
pub(crate) const EMPTY_ARGUMENTS_MAX: usize = 1000;

/// Bytes of the names of all values of a JSON body, in addition to so many times its length. Names repeat those of the
/// containers around them, so that they can be far longer than the body.
pub(crate) const NAME_BYTES_FREE: usize = 16 << 10;
pub(crate) const NAME_RATIO_MAX: usize = 8;

/// Longest path that the elements of an array share. Some rules compare the name of each element.
pub(crate) const SHARED_PATH_MAX: usize = 256;
/// Times that a name with special characters counts.
pub(crate) const SPECIAL_WEIGHT: usize = 2;

/// Longest line of a multipart body that is looked at in one piece, and longest part header.
pub(crate) const LINE_MAX: usize = 4096;
/// Headers of one part.
pub(crate) const PART_HEADERS_MAX: usize = 100;
/// Bytes of a `Content-Type` that names a boundary.
pub(crate) const CONTENT_TYPE_MAX: usize = 1024;

/// Nested elements of XML, as in libxml2.
pub(crate) const ELEMENT_DEPTH_MAX: usize = 256;
/// Entities within entities.
pub(crate) const ENTITY_DEPTH_MAX: usize = 16;
/// Bytes that references to entities may add to a document.
pub(crate) const EXPANSION_MAX: usize = 64 << 10;

/// Limit that a transaction reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Bytes that operators may inspect.
    Inspection,
    /// Bytes of the request's body.
    RequestBody,
    /// Bytes of the response's body.
    ResponseBody,
    /// Arguments, or bytes of all values.
    Values,
    /// Bytes that rules may write.
    Variables,
    /// Matches for the log.
    Matches,
    /// Steps of a search, and size of a regex with expanded macros.
    Regexes,
    /// An operator's service, which there is not.
    Operators,
    /// Bytes of a persistent collection, and of its key.
    Collections,
    /// The caller needs no verdict any more.
    Cancelled,
}

/// Dropped items, by limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    counts: [usize; Limit::Cancelled as usize + 1],
}

impl Reached {
    /// Counts something that a limit drops.
    #[cold]
    pub(crate) fn exceed(&mut self, limit: Limit, count: usize) {
        let total = &mut self.counts[limit as usize];
        *total = total.saturating_add(count);
    }

    pub(crate) fn count(&self, limit: Limit) -> usize {
        self.counts[limit as usize]
    }

    pub(crate) fn has(&self, limit: Limit) -> bool {
        self.count(limit) > 0
    }

    pub(crate) fn summary(&self) -> LimitsReached {
        LimitsReached {
            inspection: self.has(Limit::Inspection),
            request_body: self.has(Limit::RequestBody) || self.has(Limit::Values),
            response_body: self.has(Limit::ResponseBody),
            values: self.count(Limit::Values),
            variables: self.count(Limit::Variables),
            matches: self.count(Limit::Matches),
            regexes: self.count(Limit::Regexes),
            operators: self.count(Limit::Operators),
            collections: self.count(Limit::Collections),
            cancelled: self.has(Limit::Cancelled),
        }
    }
}

/// Limits that a transaction reached. Rules see them as `LIMITS_REACHED`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitsReached {
    /// `SecInspectionLimit`: later rules did not run.
    pub inspection: bool,
    /// The limits of the request's body, or of its arguments.
    pub request_body: bool,
    /// `SecResponseBodyLimit`
    pub response_body: bool,
    /// Uninspected arguments and values.
    pub values: usize,
    /// Values that rules could not capture or write.
    pub variables: usize,
    /// Matches that were not kept.
    pub matches: usize,
    /// Searches with lookaround or backreferences that needed too many steps, and regexes with macros that were
    /// invalid once these were expanded. They matched nothing.
    pub regexes: usize,
    /// Uses of operators that need a service, such as `@rbl`. They matched nothing.
    pub operators: usize,
    /// Values that did not fit into their persistent collection, and keys that were cut.
    pub collections: usize,
    /// [`Transaction::cancel_by`](crate::Transaction::cancel_by): later rules did not run.
    pub cancelled: bool,
}

impl LimitsReached {
    /// Name and count of each limit that was reached.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let all = [
            ("inspection", usize::from(self.inspection)),
            ("request_body", usize::from(self.request_body)),
            ("response_body", usize::from(self.response_body)),
            ("values", self.values),
            ("variables", self.variables),
            ("matches", self.matches),
            ("regexes", self.regexes),
            ("operators", self.operators),
            ("collections", self.collections),
            ("cancelled", usize::from(self.cancelled)),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

impl fmt::Display for LimitsReached {
    /// Writes the limits that were reached, separated by commas; nothing if none was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, count)) in self.counts().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            match name {
                "inspection" => f.write_str("inspection limit")?,
                "request_body" => f.write_str("request body limit")?,
                "response_body" => f.write_str("response body limit")?,
                "values" => write!(f, "{count} values not inspected")?,
                "variables" => write!(f, "{count} values not written by rules")?,
                "matches" => write!(f, "{count} matches not kept")?,
                "regexes" => write!(f, "{count} regex searches given up")?,
                "operators" => write!(f, "{count} operators without their service")?,
                "cancelled" => f.write_str("inspection cancelled")?,
                _ => write!(f, "{count} values not kept in collections")?,
            }
        }
        Ok(())
    }
}

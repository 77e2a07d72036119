//! Answers that two clients might read in two ways.

mod bodies;
mod heads;
mod lengths;

/// An answer of a backend that is faulty, or only odd.
pub(crate) struct Answer {
    /// What is odd about it.
    pub(crate) name: &'static str,
    /// What it breaks, or what it tries to make somebody break.
    pub(crate) rule: &'static str,
    /// The method of the request that it answers.
    pub(crate) method: &'static str,
    /// Its bytes.
    pub(crate) sent: &'static [u8],
    /// Whether the backend closes the connection behind it.
    pub(crate) closes: bool,
    /// What must come of it. Whatever it is, the next request gets its own answer.
    pub(crate) fate: Fate,
}

/// What a client gets of an answer.
pub(crate) enum Fate {
    /// A 502 in its place, and not a byte of it.
    BadGateway,
    /// This, byte for byte.
    Passed(&'static str),
    /// The same, and the end of the client's connection, which is where the answer ends.
    PassedToTheClose(&'static str),
    /// A 502, or the beginning of it and then the end of the connection, by which the client knows that
    /// something is missing.
    Broken,
}

/// All of them, a family after the other.
pub(crate) fn all() -> impl Iterator<Item = &'static Answer> {
    [lengths::CASES, heads::CASES, bodies::CASES].into_iter().flatten()
}

/// A row whose answer the gateway does not pass on.
const fn bad(name: &'static str, rule: &'static str, sent: &'static [u8]) -> Answer {
    Answer { name, rule, method: "GET", sent, closes: false, fate: Fate::BadGateway }
}

/// A row whose answer the client gets as `passed`.
const fn passed(
    name: &'static str,
    rule: &'static str,
    sent: &'static [u8],
    passed: &'static str,
) -> Answer {
    Answer { name, rule, method: "GET", sent, closes: false, fate: Fate::Passed(passed) }
}

/// A row whose answer breaks off, or is found to be faulty when its head may be out already.
const fn broken(name: &'static str, rule: &'static str, sent: &'static [u8]) -> Answer {
    Answer { name, rule, method: "GET", sent, closes: false, fate: Fate::Broken }
}

/// A row whose answer ends where both connections do.
const fn to_the_close(
    name: &'static str,
    rule: &'static str,
    sent: &'static [u8],
    passed: &'static str,
) -> Answer {
    Answer { name, rule, method: "GET", sent, closes: true, fate: Fate::PassedToTheClose(passed) }
}

impl Answer {
    /// The same, and the backend closes the connection.
    const fn then_close(self) -> Self {
        Self { closes: true, ..self }
    }

    /// The same as the answer to a HEAD.
    const fn for_head(self) -> Self {
        Self { method: "HEAD", ..self }
    }
}

impl Fate {
    /// In a few words, for the comparison.
    pub(crate) fn brief(&self) -> &'static str {
        match self {
            Self::BadGateway => "502",
            Self::Passed(_) => "passed on",
            Self::PassedToTheClose(_) => "passed on, and closed",
            Self::Broken => "502 or broken off",
        }
    }
}

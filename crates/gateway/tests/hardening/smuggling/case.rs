//! A row of the tables: what is sent, the rule that it tries, and what must come of it.

/// A request that two servers might read in two ways.
pub(crate) struct Request {
    /// What is odd about it.
    pub(crate) name: &'static str,
    /// What it breaks, or what it tries to make somebody break.
    pub(crate) rule: &'static str,
    /// Its bytes. A harmless request follows them on the same connection.
    pub(crate) sent: &'static [u8],
    /// What must come of it.
    pub(crate) fate: Fate,
}

/// What must come of a request.
pub(crate) enum Fate {
    /// An answer of this status, and the end of the connection; no origin sees a whole request, and nobody
    /// sees the one that follows.
    Refused(u16),
    /// The same with 400, where an origin sees the beginning of it and then the end of the connection: a body
    /// is not kept until it is whole.
    Unfinished,
    /// The origin sees these requests and no others, byte for byte, and then the one that follows.
    Forwarded(&'static [&'static str]),
}

impl Fate {
    /// In a few words, for the comparison.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Refused(status) => status.to_string(),
            Self::Unfinished => "400, begun".to_owned(),
            Self::Forwarded(requests) => format!("200, {} seen", requests.len() + 1),
        }
    }
}

/// A row whose request is refused with `status`.
pub(crate) const fn refused(
    name: &'static str,
    rule: &'static str,
    status: u16,
    sent: &'static [u8],
) -> Request {
    Request { name, rule, sent, fate: Fate::Refused(status) }
}

/// A row whose body does not end.
pub(crate) const fn unfinished(
    name: &'static str,
    rule: &'static str,
    sent: &'static [u8],
) -> Request {
    Request { name, rule, sent, fate: Fate::Unfinished }
}

/// A row whose request is passed on as `seen`.
pub(crate) const fn forwarded(
    name: &'static str,
    rule: &'static str,
    sent: &'static [u8],
    seen: &'static [&'static str],
) -> Request {
    Request { name, rule, sent, fate: Fate::Forwarded(seen) }
}

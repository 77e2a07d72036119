//! Entries of logs: requests and matches.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use tollgate_traffic::import::access_log::Logged;

use crate::replay::{Request, header, is_chunked};

/// A transaction of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Address of the client, without its port.
    pub client: Option<String>,
    /// Day in the time zone of the log.
    pub day: Option<Date>,
    pub content: Content,
}

/// Facts of an entry that can be inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Request(Recorded),
    /// Matches alone, of a log without requests. Those of a transaction may be in several entries.
    Matches(LoggedMatches),
}

/// A request of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The request as far as the log has it; missing parts have harmless values.
    pub request: Request,
    /// True if the request had a body that the log does not contain.
    pub lacks_body: bool,
    /// True if the log says that the request was blocked; `None` if the log does not say.
    pub was_blocked: Option<bool>,
}

/// Matches of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedMatches {
    /// Identifier of the transaction; may be empty.
    pub transaction: String,
    /// Method; empty if the log does not have it.
    pub method: String,
    /// Target, or its path, as far as the log has it.
    pub target: String,
    /// True if a match says that it blocked the request.
    pub was_blocked: bool,
    /// True if a message is ambiguous, so that a match is missing.
    pub is_incomplete: bool,
    /// Further identifiers in an ambiguous message: which one is that of the transaction is not known.
    pub others: Vec<String>,
    pub matches: Vec<LoggedMatch>,
}

/// A match of a rule, as the text of a log has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedMatch {
    pub id: u64,
    /// Such as `ARGS:q`; empty if the text does not name it.
    pub variable: String,
    /// Value of the variable; empty if the text does not have it, or may have cut it.
    pub value: Vec<u8>,
}

impl Default for Content {
    fn default() -> Self {
        Self::Request(Recorded::default())
    }
}

impl Recorded {
    /// Takes a request without its body, and the body if the log has it.
    pub(super) fn of(
        mut request: Request,
        body: Option<Vec<u8>>,
        was_blocked: Option<bool>,
    ) -> Self {
        let length: Option<usize> = header(&request.headers, "content-length")
            .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let has_body = length.unwrap_or(0) > 0 || is_chunked(&request.headers);
        let mut lacks_body = has_body && body.is_none();
        request.body = body.unwrap_or_default();
        if let Some(length) = length {
            // ModSecurity 3 cuts bodies at their first zero byte.
            lacks_body |= request.body.len() < length;
            request.body.truncate(length);
        }
        Self { request, lacks_body, was_blocked }
    }
}

impl From<Logged> for Entry {
    fn from(logged: Logged) -> Self {
        let Logged { method, target, protocol, mut headers, has_all_headers, has_body, .. } =
            logged;
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host")) {
            headers.insert(0, (b"Host".to_vec(), b"localhost".to_vec()));
        }
        if has_body && !has_all_headers {
            headers.push((b"Content-Length".to_vec(), b"0".to_vec()));
        }
        let request = Request { method, target, protocol, headers, body: Vec::new() };
        let time =
            logged.time.and_then(|time| jiff::Timestamp::from_microsecond(time.unix_us).ok());
        Self {
            client: logged.client.map(|client| String::from_utf8_lossy(&client).into_owned()),
            day: time.map(|time| time.to_zoned(TimeZone::UTC).date()),
            content: Content::Request(Recorded {
                request,
                lacks_body: has_body,
                was_blocked: logged.was_blocked,
            }),
        }
    }
}

/// Returns the first day in a text such as `[09/Jan/2026:20:05:48 +0100]`, `Fri Jan 09 20:05:48 2026` or `2026/01/09 20:05:48`.
pub(super) fn day(text: &str) -> Option<Date> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words = || text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let year = words().find(|word| word.len() == 4).and_then(|word| word.parse().ok())?;
    let mut numbers = words().filter(|word| word.len() <= 2).filter_map(|word| word.parse().ok());
    let named = words().find_map(|word| MONTHS.iter().position(|month| *month == word));
    let month = match named {
        Some(index) => index as i8 + 1,
        None => numbers.next()?,
    };
    Date::new(year, month, numbers.next()?).ok()
}

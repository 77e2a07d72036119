//! Logs as recorded requests, entry by entry.

use std::io::{self, BufRead, Read as _};

use tollgate_traffic::import::access_log::{self, Fields, LINE_BYTES_MAX, Logged};

use crate::replay::Request;

/// Formats of logs that [`read`] understands, for messages.
pub const FORMATS: &str =
    "an audit log of the gateway, or an access log: combined, common, httplog of HAProxy, or JSON";

/// A request of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The request as far as the log has it; missing parts have harmless values.
    pub request: Request,
    /// True if the request had a body that the log does not contain.
    pub lacks_body: bool,
    /// True if the log says that the request was blocked; `None` if the log does not say.
    pub was_blocked: Option<bool>,
}

/// Calls a function with each entry of a log. Returns the number of lines that are not understood.
///
/// # Errors
///
/// The log cannot be read.
pub fn read(mut log: impl BufRead, mut each: impl FnMut(Entry)) -> io::Result<u64> {
    let fields = Fields::default();
    let mut line = Vec::new();
    let mut not_understood = 0;
    loop {
        line.clear();
        if (&mut log).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(not_understood);
        }
        match (line.trim_ascii_end(), access_log::parse(line.trim_ascii_end(), &fields)) {
            (_, Ok(logged)) => each(logged.into()),
            (text, Err(_problem)) => not_understood += u64::from(!text.is_empty()),
        }
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
        Self { request, lacks_body: has_body, was_blocked: logged.was_blocked }
    }
}

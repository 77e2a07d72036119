//! What came of a request on its way through a proxy.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use tollgate_gateway::config::Address;

use super::case::{Fate, Request};
use super::origin::{Origin, Seen};
use crate::client::Client;

/// The harmless request that follows each row on its connection, and asks for its end.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// The same as an origin sees it.
const NEXT_SEEN: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// A proxy that says nothing for so long waits for more, and is told that there is none.
const QUIET: Duration = Duration::from_millis(300);

/// One that goes on waiting for so long is left.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came of one row.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The status of the first answer, if there was one.
    status: Option<u16>,
    /// Whether the proxy closed the connection, as it was asked to or should.
    is_closed: bool,
    seen: Seen,
}

impl Outcome {
    /// Sends a row to a proxy, with the harmless request behind it.
    pub(crate) fn of(request: &Request, proxy: &Address, origin: &Origin) -> Self {
        let mut client = Client::connect(proxy).unwrap();
        client.send(&[request.sent, NEXT].concat());
        let (answers, is_closed) = read(&mut client);
        let status =
            answers.get(9..12).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        Self { status, is_closed, seen: origin.take() }
    }

    /// What is not as the row says.
    pub(crate) fn faults(&self, request: &Request) -> Option<String> {
        let is_right = self.is_closed
            && match request.fate {
                Fate::Refused(status) => {
                    self.status == Some(status) && self.seen == Seen::default()
                }
                Fate::Unfinished => {
                    self.status == Some(400)
                        && self.seen.requests.is_empty()
                        && self.seen.begun.len() == 1
                }
                Fate::Forwarded(requests) => {
                    let expected = requests.iter().chain([&NEXT_SEEN]).map(|text| text.as_bytes());
                    self.status == Some(200)
                        && self.seen.begun.is_empty()
                        && expected.eq(self.seen.requests.iter().map(Vec::as_slice))
                }
            };
        (!is_right).then(|| {
            let ending = if self.is_closed { "closed" } else { "left open" };
            let show = |all: &[Vec<u8>]| -> String {
                all.iter().map(|bytes| format!("\n    {}", bytes.escape_ascii())).collect()
            };
            format!(
                "{} ({}): status {:?}, {ending}, the origin saw{}\n  and the beginning of{}",
                request.name,
                request.rule,
                self.status,
                show(&self.seen.requests),
                show(&self.seen.begun),
            )
        })
    }

    /// In a few words, for the comparison.
    pub(crate) fn brief(&self, request: &Request) -> String {
        let status = self.status.map_or("no answer".to_owned(), |status| status.to_string());
        let count = self.seen.requests.len();
        let way = match (count, self.seen.requests.first()) {
            (0, _) if self.seen.begun.is_empty() => "",
            (0, _) => ", begun",
            (_, Some(first)) if request.sent.starts_with(first) => ", as it came",
            _ if self.faults(request).is_none() => ", in our form",
            _ => ", in another form",
        };
        let passed = if count == 0 { String::new() } else { format!(", {count} seen") };
        let open = if self.is_closed { "" } else { ", left open" };
        format!("{status}{passed}{way}{open}")
    }
}

/// What comes up to the end of the connection, and whether there was one.
pub(super) fn read(client: &mut Client) -> (Vec<u8>, bool) {
    let mut received = Vec::new();
    for time in [QUIET, PATIENCE] {
        client.wait_at_most(time).unwrap();
        match client.read_to_end(&mut received) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _end => return (received, true),
        }
        // The proxy may have closed it in the meantime, which the next read tells.
        let _closed_already = client.finish();
    }
    (received, false)
}

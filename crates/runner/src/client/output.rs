//! Common parts of foreign clients: their load, and the parts of their output.

use crate::probe::exchange::Site;
use anyhow::{Context, bail};
use std::path::Path;
use tollgate_http1::RequestMessage;
use tollgate_records::trial::LatencyRecord;
use tollgate_stats::Failures;
use tollgate_traffic::load_shape::LoadShape;

/// A load for a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientLoad<'a> {
    pub(crate) shape: &'a LoadShape,
    pub(crate) site: &'a Site,
    /// The only request.
    pub(crate) message: &'a RequestMessage,
    /// File for the output of the client. Others have the same name with another extension.
    pub(crate) log: &'a Path,
}

/// Figures that a client printed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Printed {
    /// Complete responses, expected or not.
    pub(crate) responses: u64,
    /// Responses of an unexpected kind.
    pub(crate) unexpected: u64,
    pub(crate) failures: Failures,
    /// Responses per second of the client's own clock.
    pub(crate) per_s: f64,
    /// Bytes received with heads, perhaps rounded.
    pub(crate) bytes_received: u64,
    pub(crate) latency: LatencyRecord,
}

impl ClientLoad<'_> {
    pub(super) fn url(&self) -> String {
        let scheme = if self.site.protocol.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.site.address, self.message.target())
    }

    /// Returns an option for each header but `Connection`, which each client sends in its own way.
    pub(super) fn headers(&self) -> impl Iterator<Item = String> {
        let headers = self.message.headers();
        let sent = headers.filter(|(name, _)| !name.eq_ignore_ascii_case("connection"));
        sent.flat_map(|(name, value)| ["-H".to_owned(), format!("{name}: {value}")])
    }

    pub(super) fn timeout_s(&self) -> u64 {
        self.shape.clients.response_timeout.as_secs()
    }
}

/// Returns the rest of the first line that starts with a label, after spaces.
pub(super) fn line<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(label)).map(str::trim)
}

pub(super) fn needed<'a>(text: &'a str, label: &str) -> anyhow::Result<&'a str> {
    line(text, label).with_context(|| format!("no line `{label}`"))
}

/// Returns the first word of a line as a number.
pub(super) fn number<T: std::str::FromStr>(text: &str, label: &str) -> anyhow::Result<T> {
    let rest = needed(text, label)?;
    let word = rest.split_whitespace().next().unwrap_or_default();
    word.parse().ok().with_context(|| format!("`{label} {rest}` has no number"))
}

/// Returns the number of a name in a list such as `3 done, 1 failed`, `(Connect: 3, Length: 1)` or `connect 3, read 1`.
pub(super) fn count(list: &str, name: &str) -> anyhow::Result<u64> {
    let words = |part: &str| -> Vec<String> {
        let words = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let part = list.split(',').map(words).find(|part| part.iter().any(|word| word == name));
    let count = part.as_ref().and_then(|part| part.iter().find_map(|word| word.parse().ok()));
    count.with_context(|| format!("no number of `{name}` in `{list}`"))
}

/// Parses a time such as `31us`, `1.02ms` or `2.00s` in milliseconds.
pub(super) fn milliseconds(text: &str) -> anyhow::Result<f64> {
    for (unit, us) in [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7), ("h", 3.6e9)] {
        if let Some(Ok(number)) = text.strip_suffix(unit).map(str::parse::<f64>) {
            return Ok(number * us / 1e3);
        }
    }
    bail!("`{text}` is not a time")
}

/// Failures that a client lists without a kind that tollgate knows.
pub(super) fn other_failures(count: u64, list: String) -> Failures {
    let other_example = (count > 0).then_some(list);
    Failures { other: count, other_example, ..Failures::default() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tollgate_experiment::load_file::LoadFile;
    use tollgate_http1::RequestText;
    use tollgate_traffic::load_shape::CaseProtocol;

    /// The arguments of a client for `GET /a?b=c` to a site on port 8080, as one line.
    pub(crate) fn line_of(
        arguments: fn(&ClientLoad<'_>) -> Vec<String>,
        protocol: CaseProtocol,
        load: &str,
    ) -> String {
        let file: LoadFile = toml::from_str(&format!("busy_poll = false\n{load}")).unwrap();
        let shape = file.shape(protocol, None).unwrap();
        let close = [("Connection", "close")];
        let headers = [("Host", "shop.example"), ("X-A", "b c")];
        let headers = [&headers[..], &close[usize::from(file.keepalive)..]].concat();
        let text = RequestText { method: "GET", target: "/a?b=c", headers: &headers, body: b"" };
        let message = text.render().unwrap();
        let site = Site { protocol, ..Site::plain("127.0.0.1:8080".parse().unwrap()) };
        let log = Path::new("logs/1.log");
        let load = ClientLoad { shape: &shape, site: &site, message: &message, log };
        arguments(&load).join(" ")
    }

    #[test]
    fn counts_are_read_from_lists_of_every_client() {
        assert_eq!(count("17 done, 3 failed, 0 timeout", "failed").unwrap(), 3);
        assert_eq!(count("(Connect: 1, Receive: 20, Length: 3)", "Receive").unwrap(), 20);
        assert_eq!(count("connect 1, read 20, write 3", "write").unwrap(), 3);
        assert_eq!(count("1.80MB (1886200) total, 5B (5) data", "total").unwrap(), 1_886_200);
        let error = count("connect 1", "timeout").unwrap_err();
        assert_eq!(error.to_string(), "no number of `timeout` in `connect 1`");
    }

    #[test]
    fn times_have_units() {
        for (text, ms) in [("31us", 0.031), ("1.02ms", 1.02), ("2.00s", 2_000.0), ("1.50m", 9e4)] {
            assert!((milliseconds(text).unwrap() - ms).abs() < 1e-9, "{text}");
        }
        assert_eq!(milliseconds("-nan%").unwrap_err().to_string(), "`-nan%` is not a time");
    }

    #[test]
    fn missing_line_is_named() {
        let error = number::<f64>("Requests/sec", "Transfer/sec:").unwrap_err();
        assert_eq!(error.to_string(), "no line `Transfer/sec:`");
        let error = number::<u64>("  Complete requests: many", "Complete requests:").unwrap_err();
        assert_eq!(error.to_string(), "`Complete requests: many` has no number");
    }
}

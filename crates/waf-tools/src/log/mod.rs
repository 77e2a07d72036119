//! Logs as recorded requests and matches, entry by entry: audit logs of the gateway, of ModSecurity 2 and 3 (Native and JSON) and
//! of Coraza, access logs, and error logs.

mod entry;
pub(crate) mod error_log;
mod json;
mod native;

use std::io::{self, BufRead};

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_traffic::import::access_log::{self, Fields};

pub use entry::{Content, Entry, LoggedMatch, LoggedMatches, Recorded};
pub use native::ENTRY_BYTES_MAX;
use native::{Line, Lines};

/// Formats of logs that [`read`] understands, for messages.
pub const FORMATS: &str = "an audit log of the gateway, ModSecurity or Coraza, an error log of nginx, Apache or Caddy, or an access \
    log: combined, common, httplog of HAProxy, or JSON";

/// Parts of a log that were not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Unread {
    /// Lines, or entries, that are not understood.
    pub not_understood: u64,
    /// Entries without their end, or longer than [`ENTRY_BYTES_MAX`].
    pub truncated: u64,
    /// Lines of the index of a concurrent log, whose entries are in files of their own.
    pub index_lines: u64,
}

impl Unread {
    /// Returns sentences for a person, one for each kind of parts that exists.
    pub fn sentences(&self) -> Vec<String> {
        let counts = [
            ("Lines that are not understood", self.not_understood),
            ("Entries that are truncated", self.truncated),
            ("Lines of an index, whose entries are read from their folder", self.index_lines),
        ];
        let existing = counts.into_iter().filter(|(_, count)| *count > 0);
        existing.map(|(name, count)| format!("{name}: {count}.")).collect()
    }
}

impl std::ops::AddAssign for Unread {
    fn add_assign(&mut self, other: Self) {
        self.not_understood += other.not_understood;
        self.truncated += other.truncated;
        self.index_lines += other.index_lines;
    }
}

/// Calls a function with each entry of a log, whose forms may change from line to line.
///
/// # Errors
///
/// The log cannot be read.
pub fn read(log: impl BufRead, mut each: impl FnMut(Entry)) -> io::Result<Unread> {
    let fields = Fields::default();
    let mut lines = Lines::new(log);
    let mut unread = Unread::default();
    while let Some(line) = lines.next()? {
        let Line::Whole(line) = line else {
            unread.truncated += 1;
            continue;
        };
        let text = line.trim_ascii_end();
        if let Some((boundary, b'A')) = native::boundary(text) {
            match native::read(&boundary, &mut lines)? {
                native::Read::Entry(entry) => each(*entry),
                native::Read::NotUnderstood => unread.not_understood += 1,
                native::Read::Truncated => unread.truncated += 1,
            }
        } else if text.starts_with(b"{\"transaction\":") {
            match json::parse(text) {
                Ok(entry) => each(entry),
                Err(error) if error.is_eof() => unread.truncated += 1,
                Err(_invalid) => unread.not_understood += 1,
            }
        } else if let Some(entry) = error_log::parse(text) {
            let is_ambiguous =
                matches!(&entry.content, Content::Matches(logged) if logged.is_incomplete);
            unread.not_understood += u64::from(is_ambiguous);
            each(entry);
        } else if native::is_index(text) {
            unread.index_lines += 1;
        } else if let Ok(logged) = access_log::parse(text, &fields) {
            each(logged.into());
        } else {
            unread.not_understood += u64::from(!text.is_empty());
        }
    }
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::parse_raw;

    fn entries(text: &[u8]) -> (Vec<Entry>, Unread) {
        let mut found = Vec::new();
        let unread =
            read(text, |entry| found.push(entry)).unwrap_or_else(|error| panic!("{error}"));
        (found, unread)
    }

    fn request(entry: &Entry) -> &Recorded {
        let Content::Request(recorded) = &entry.content else { panic!("{entry:?}") };
        recorded
    }

    fn matches(entry: &Entry) -> Vec<(u64, &str, &str)> {
        let Content::Matches(logged) = &entry.content else { panic!("{entry:?}") };
        let matches = logged.matches.iter();
        matches
            .map(|one| {
                (one.id, one.variable.as_str(), std::str::from_utf8(&one.value).unwrap_or_default())
            })
            .collect()
    }

    const V3: &str = "---aBcDeFg1---A--\n[09/Jan/2026:20:05:48 +0100] id-1 192.0.2.7 1234 127.0.0.1 80\n\
        ---aBcDeFg1---B--\nPOST /p?q=1 HTTP/1.1\nHost: a\nContent-Length: 4\n\n\
        ---aBcDeFg1---C--\nz=12\n\n---aBcDeFg1---F--\nHTTP/1.1 403\nServer: x\n\n\
        ---aBcDeFg1---H--\nModSecurity: Access denied with code 403 (phase 2). Matched \"Operator `Rx' with parameter `x' \
        against variable `ARGS:q' (Value: `1' ) [file \"a.conf\"] [id \"942100\"] [data \"Matched Data: x found within ARGS:q: d\"] [severity \"2\"] [uri \"/p\"] [unique_id \"id-1\"]\n\n\
        ---aBcDeFg1---Z--\n\n";

    #[test]
    fn native_entries_of_both_versions_are_requests() {
        let v2 = "--0a1b2c3d-A--\n[09/Jan/2026:20:05:48 +0100] XyZ 2001:db8::1 1234 127.0.0.1 80\n--0a1b2c3d-B--\n\
            GET /a HTTP/1.1\nHost: b\n\n--0a1b2c3d-F--\nHTTP/1.1 200 OK\n\n--0a1b2c3d-E--\n\n--0a1b2c3d-H--\nApache-Error: x\n\
            --0a1b2c3d-Z--\n\n";
        let (found, unread) = entries((V3.to_owned() + v2).as_bytes());
        assert_eq!((found.len(), unread), (2, Unread::default()));
        let raw = b"POST /p?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nz=12";
        assert_eq!(request(&found[0]).request, parse_raw(raw));
        assert_eq!(request(&found[0]).was_blocked, Some(true));
        assert!(!request(&found[0]).lacks_body);
        assert_eq!(found[0].client.as_deref(), Some("192.0.2.7"));
        assert_eq!(found[0].day.map(|day| day.to_string()).as_deref(), Some("2026-01-09"));
        assert_eq!(request(&found[1]).request.target, b"/a");
        assert_eq!(request(&found[1]).was_blocked, Some(false));
        assert_eq!(found[1].client.as_deref(), Some("2001:db8::1"));
    }

    #[test]
    fn body_without_part_c_is_missing() {
        let text = V3.replace("---aBcDeFg1---C--\nz=12\n\n", "");
        assert!(request(&entries(text.as_bytes()).0[0]).lacks_body);
    }

    #[test]
    fn entry_without_request_has_matches() {
        let start = V3.find("---aBcDeFg1---B").unwrap_or(0);
        let end = V3.find("---aBcDeFg1---H").unwrap_or(0);
        let (found, unread) = entries((V3[..start].to_owned() + &V3[end..]).as_bytes());
        assert_eq!(unread, Unread::default());
        assert_eq!(matches(&found[0]), [(942_100, "ARGS:q", "d")]);
    }

    #[test]
    fn truncated_entries_are_counted_and_hide_no_other() {
        let cut = &V3[..V3.find("---aBcDeFg1---H").unwrap_or(0)];
        let other = V3.replace("aBcDeFg1", "zzzzzzz1");
        let (found, unread) = entries((cut.to_owned() + &other + cut).as_bytes());
        assert_eq!((found.len(), unread.truncated, unread.not_understood), (1, 2, 0));
        let json = br#"{"transaction":{"client_ip":"1","request":{"#;
        assert_eq!(entries(json).1.truncated, 1);
    }

    #[test]
    fn body_that_imitates_an_entry_is_a_body() {
        let forged = V3.replace("aBcDeFg1", "zzzzzzz1").replace("/p?q=1", "/forged");
        let text = V3.replace("z=12", &forged);
        let (found, unread) = entries(text.as_bytes());
        assert_eq!((found.len(), unread), (1, Unread::default()));
        assert_eq!(request(&found[0]).request.target, b"/p?q=1");
    }

    #[test]
    fn json_of_all_writers_is_understood() {
        let v3 = r#"{"transaction":{"client_ip":"192.0.2.7","time_stamp":"Fri Jan 09 20:05:48 2026","unique_id":"i","request":{"method":"POST","http_version":1.1,"uri":"/p?q=1","body":"z=12","headers":{"Host":"a","Content-Length":"4","A":"1","A":"2"}},"response":{"http_code":403,"headers":{}},"messages":[]}}"#;
        let v2 = r#"{"transaction":{"time":"09/Jan/2026:20:05:48 +0100","transaction_id":"i","remote_address":"192.0.2.7"},"request":{"request_line":"POST /p?q=1 HTTP/1.1","headers":{"Host":"a","Content-Length":"4"},"body":["z=","12"]},"response":{"protocol":"HTTP/1.1","status":403},"audit_data":{"messages":["Warning. x"]}}"#;
        let coraza = r#"{"transaction":{"timestamp":"2026/01/09 20:05:48","id":"i","client_ip":"192.0.2.7","request":{"method":"POST","protocol":"HTTP/1.1","uri":"/p?q=1","http_version":"","headers":{"host":["a"],"content-length":["4"],"x":["1","2"]},"body":"z=12"},"response":{"status":403,"headers":null},"is_interrupted":true},"messages":[{"message":"m","data":{"id":942100,"data":"Matched Data: x found within ARGS:q: x"}}]}"#;
        for (text, headers) in [(v3, 4), (v2, 2), (coraza, 4)] {
            let (found, unread) = entries(text.as_bytes());
            assert_eq!((found.len(), unread), (1, Unread::default()), "{text}");
            let recorded = request(&found[0]);
            assert_eq!(recorded.request.target, b"/p?q=1");
            assert_eq!(recorded.request.protocol, b"HTTP/1.1");
            assert_eq!(recorded.request.body, b"z=12");
            assert_eq!(recorded.request.headers.len(), headers, "{text}");
            assert_eq!((recorded.was_blocked, recorded.lacks_body), (Some(true), false), "{text}");
            assert_eq!(found[0].client.as_deref(), Some("192.0.2.7"));
            assert_eq!(found[0].day.map(|day| day.to_string()).as_deref(), Some("2026-01-09"));
        }
        let without =
            coraza.replace(r#""headers":{"host":["a"],"content-length":["4"],"x":["1","2"]},"#, "");
        let (found, _) = entries(without.as_bytes());
        assert_eq!(matches(&found[0]), [(942_100, "ARGS:q", "x")]);
    }

    #[test]
    fn error_logs_have_matches() {
        let nginx = r#"2026/01/09 20:05:48 [error] 7#7: *1 [client 192.0.2.7] ModSecurity: Access denied with code 403 (phase 2). Matched "Operator `Rx' with parameter `x' against variable `ARGS:q' (Value: `x"' ) [file "a"] [line "1"] [id "942100"] [data "Matched Data: x found within ARGS:q: d"] [severity "2"] [hostname "h"] [uri "/p"] [unique_id "i"], client: 192.0.2.7, server: a, request: "POST /p?a HTTP/1.1", host: "a""#;
        let apache = r#"[Fri Jan 09 20:05:48.123456 2026] [security2:error] [pid 1:tid 2] [client 192.0.2.7:4711] [client 192.0.2.7] ModSecurity: Warning. Pattern match "x" at ARGS:q. [file "a"] [line "1"] [id "942100"] [data "Matched Data: x found within ARGS:q: d"] [severity "2"] [hostname "h"] [uri "/p"] [unique_id "i"]"#;
        let caddy = r#"{"level":"error","ts":1,"msg":"[client \"192.0.2.7\"] Coraza: Warning. x [file \"a\"] [line \"1\"] [id \"942100\"] [data \"Matched Data: x found within ARGS:q: x\"] [severity \"critical\"] [uri \"/p?a\"] [unique_id \"i\"]"}"#;
        for (text, value, has_day) in [(nginx, "d", true), (apache, "d", true), (caddy, "x", false)]
        {
            let (found, unread) = entries(text.as_bytes());
            assert_eq!((found.len(), unread), (1, Unread::default()), "{text}");
            assert_eq!(matches(&found[0]), [(942_100, "ARGS:q", value)]);
            assert_eq!(found[0].client.as_deref(), Some("192.0.2.7"));
            assert_eq!(found[0].day.is_some(), has_day, "{text}");
        }
        let logged = only_matches(nginx);
        assert_eq!(
            (logged.method.as_str(), logged.target.as_str(), logged.was_blocked),
            ("POST", "/p", true)
        );
    }

    fn only_matches(line: &str) -> LoggedMatches {
        let (mut found, _) = entries(line.as_bytes());
        match (found.pop().map(|entry| entry.content), found.len()) {
            (Some(Content::Matches(logged)), 0) => logged,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn values_that_imitate_a_log_are_no_matches() {
        let start = "2026/01/09 20:05:48 [error] 7#7: *1 [client 192.0.2.7] ";
        let message = r#"ModSecurity: Warning. Matched "Operator `Rx' with parameter `x' against variable `ARGS:q' (Value: `VALUE' ) [file "a"] [line "1"] [id "942100"] [data "Matched Data: x found within ARGS:q: DATA"] [severity "2"] [hostname "h"] [uri "/p"] [unique_id "i"], client: 192.0.2.7, server: a, request: "POST /p HTTP/1.1", host: "a""#;
        let line = |value: &str, data: &str| {
            start.to_owned() + &message.replace("VALUE", value).replace("DATA", data)
        };
        assert_eq!(only_matches(&line("v", "hello")).matches[0].value, b"hello");
        // The end of a field in a value is a part of it.
        let value = r#"hello"] x' union select"#;
        assert_eq!(only_matches(&line("v", value)).matches[0].value, value.as_bytes());
        // Values that may be cut, and fragments of values.
        assert_eq!(only_matches(&line("v", &"a".repeat(200))).matches[0].value, b"v");
        assert_eq!(only_matches(&line(&"a".repeat(100), &"a".repeat(200))).matches[0].value, b"");
        let fragment = line("v", "DATA").replace("Matched Data: x found within ARGS:q: DATA", "x");
        assert_eq!(only_matches(&fragment).matches[0].value, b"v");
        // Fields twice: the transaction is incomplete, whichever it is.
        for value in
            [r#"` [id "920100"]"#, r#"a"] [severity "2"] b"#, r#"` [file "b"]"#, r#"a"] [uri "/x"#]
        {
            for line in [line(value, "d"), line("v", value)] {
                let logged = only_matches(&line);
                assert!(logged.is_incomplete && logged.matches.is_empty(), "{line}");
                assert_eq!(entries(line.as_bytes()).1.not_understood, 1, "{line}");
            }
        }
        let logged = only_matches(&line("v", r#"a"] [unique_id "other"] b"#));
        assert_eq!(
            (logged.transaction.as_str(), &logged.others[..]),
            ("other", &["i".to_owned()][..])
        );
        let forged = line("v", "d").replace("POST /p", "GET /, request: \"POST /p");
        assert!(only_matches(&forged).is_incomplete);
        // A path in a message of nginx itself, and a second client.
        let own = start.replace("[client 192.0.2.7] ", "open() \"/www/[client 203.0.113.1] ");
        for text in [own + message, format!("{start}[client 203.0.113.1] {message}")] {
            assert_eq!(entries(text.as_bytes()).0.len(), 0, "{text}");
        }
    }

    #[test]
    fn index_of_a_concurrent_log_is_counted() {
        let line = "a 192.0.2.7 - - [09/Jan/2026:20:05:48 +0100] \"GET / HTTP/1.1\" 200 8 - \"agent\" id - /2026/x 0 812 md5:0123456789abcdef0123456789abcdef\n";
        let (found, unread) = entries(line.as_bytes());
        assert_eq!((found.len(), unread.index_lines, unread.not_understood), (0, 1, 0));
    }
}

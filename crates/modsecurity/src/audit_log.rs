//! Audit log entries in libmodsecurity's formats, Native and JSON, and their files: one for all (Serial), or an index and one
//! file a transaction (Concurrent).

use std::collections::hash_map::RandomState;
use std::fs::DirBuilder;
use std::hash::BuildHasher as _;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Zoned;
use sha2::{Digest as _, Sha256};

use crate::NAME;
use crate::log_file::{LogFile, open_for_appending};

/// A transaction for the audit log.
#[derive(Debug)]
pub(crate) struct AuditEntry<'a> {
    pub(crate) time: Zoned,
    pub(crate) unique_id: &'a [u8],
    /// Address and port.
    pub(crate) client: (&'a [u8], u16),
    pub(crate) server: (&'a [u8], u16),
    pub(crate) method: &'a [u8],
    pub(crate) uri: &'a [u8],
    /// Without `HTTP/`.
    pub(crate) version: &'a [u8],
    pub(crate) request_headers: &'a [(Vec<u8>, Vec<u8>)],
    pub(crate) request_body: &'a [u8],
    pub(crate) status: u16,
    pub(crate) response_headers: &'a [(Vec<u8>, Vec<u8>)],
    pub(crate) response_body: &'a [u8],
    pub(crate) connector: &'a str,
    /// `Enabled`, `DetectionOnly` or `Disabled`.
    pub(crate) engine: &'static str,
    pub(crate) components: &'a [String],
    pub(crate) messages: Vec<AuditMessage<'a>>,
}

/// A match of a rule.
#[derive(Debug)]
pub(crate) struct AuditMessage<'a> {
    /// The line of the error log.
    pub(crate) line: String,
    /// Its part before `[file ...]`, without the effect.
    pub(crate) cause: String,
    pub(crate) message: &'a [u8],
    pub(crate) data: &'a [u8],
    pub(crate) id: u64,
    pub(crate) file: &'a str,
    pub(crate) line_number: u32,
    pub(crate) severity: u8,
    pub(crate) version: &'a str,
    pub(crate) revision: &'a str,
    pub(crate) tags: &'a [String],
    pub(crate) maturity: u8,
    pub(crate) accuracy: u8,
}

impl AuditEntry<'_> {
    /// Returns the entry with the wanted parts as sections. The lines between them have a text that a client cannot guess, so
    /// that no body can imitate them.
    pub(crate) fn native(&self, parts: &str) -> Vec<u8> {
        let boundary = boundary();
        let mut text = Vec::new();
        for part in "ABCDEFGHIJK".chars().filter(|&part| part == 'A' || parts.contains(part)) {
            text.extend_from_slice(format!("---{boundary}---{part}--\n").as_bytes());
            self.native_part(part, &mut text);
            if part != 'A' {
                text.push(b'\n');
            }
        }
        text.extend_from_slice(format!("---{boundary}---Z--\n\n").as_bytes());
        text
    }

    fn native_part(&self, part: char, text: &mut Vec<u8>) {
        match part {
            'A' => {
                let time = self.time.strftime("%d/%b/%Y:%H:%M:%S %z");
                text.extend_from_slice(format!("[{time}] ").as_bytes());
                text.extend_from_slice(self.unique_id);
                for (address, port) in [self.client, self.server] {
                    text.push(b' ');
                    text.extend_from_slice(address);
                    text.extend_from_slice(format!(" {port}").as_bytes());
                }
                text.push(b'\n');
            }
            'B' => {
                text.extend_from_slice(&self.request_line());
                text.push(b'\n');
                push_headers(self.request_headers, text);
            }
            'C' if !self.request_body.is_empty() => {
                text.extend_from_slice(self.request_body);
                text.push(b'\n');
            }
            'E' if !self.response_body.is_empty() => {
                text.extend_from_slice(self.response_body);
                text.push(b'\n');
            }
            'F' => {
                text.extend_from_slice(b"HTTP/");
                text.extend_from_slice(self.version);
                text.extend_from_slice(format!(" {}\n", self.status).as_bytes());
                push_headers(self.response_headers, text);
            }
            'H' => {
                for message in &self.messages {
                    text.extend_from_slice(message.line.as_bytes());
                    text.push(b'\n');
                }
            }
            // Always empty in libmodsecurity 3.
            _ => {}
        }
    }

    fn request_line(&self) -> Vec<u8> {
        [self.method, b" ", self.uri, b" HTTP/", self.version].concat()
    }

    /// Returns the entry with the wanted parts as one line of JSON.
    pub(crate) fn json(&self, parts: &str) -> Vec<u8> {
        let wants = |part| parts.contains(part);
        let version = text(self.version);
        let line = json::Line {
            transaction: json::Transaction {
                client_ip: text(self.client.0),
                time_stamp: self.time.strftime("%a %b %d %H:%M:%S %Y").to_string(),
                server_id: hex(&Sha256::digest(self.server.0)[..20]),
                client_port: self.client.1,
                host_ip: text(self.server.0),
                host_port: self.server.1,
                unique_id: text(self.unique_id),
                request: json::Request {
                    method: text(self.method),
                    // A number in libmodsecurity.
                    http_version: version.parse::<f64>().map_err(|_error| version),
                    uri: text(self.uri),
                    body: wants('C').then(|| text(self.request_body)),
                    headers: wants('B').then_some(json::Headers(self.request_headers)),
                },
                response: json::Response {
                    body: wants('E').then(|| text(self.response_body)),
                    http_code: self.status,
                    headers: wants('F').then_some(json::Headers(self.response_headers)),
                },
                producer: wants('H').then_some(json::Producer {
                    modsecurity: NAME,
                    connector: self.connector,
                    secrules_engine: self.engine,
                    components: self.components,
                }),
                messages: wants('H').then(|| self.messages.iter().map(json::Message::of).collect()),
            },
        };
        let mut bytes = serde_json::to_vec(&line)
            .unwrap_or_else(|error| unreachable!("memory takes every entry: {error}"));
        bytes.push(b'\n');
        bytes
    }

    /// Returns the line of the index that names the file of the entry.
    pub(crate) fn index_line(&self, path: &Path, entry: &[u8]) -> Vec<u8> {
        let header = |name: &str| {
            let mut headers = self.request_headers.iter();
            let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
            found.map_or("-".to_owned(), |(_, value)| text(value))
        };
        format!(
            "{} {} - [{}] \"{}\" {} {} {} \"{}\" {} - {} 0 {} sha256:{}\n",
            header("host"),
            text(self.client.0),
            self.time.strftime("%d/%b/%Y:%H:%M:%S %z"),
            text(&self.request_line()),
            self.status,
            self.response_body.len(),
            header("referer"),
            header("user-agent"),
            text(self.unique_id),
            path.display(),
            entry.len(),
            hex(&Sha256::digest(entry)),
        )
        .into_bytes()
    }
}

/// Eight letters and digits, from the random keys of the standard library's hash maps.
fn boundary() -> String {
    let mut number = RandomState::new().hash_one(());
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut digit = || {
        let index = usize::try_from(number % digits.len() as u64).unwrap_or(0);
        number /= digits.len() as u64;
        char::from(digits[index])
    };
    (0..8).map(|_| digit()).collect()
}

fn push_headers(headers: &[(Vec<u8>, Vec<u8>)], text: &mut Vec<u8>) {
    for (name, value) in headers {
        text.extend_from_slice(name);
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.push(b'\n');
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text with bytes that are not UTF-8 as `\xHH`.
fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The shape of libmodsecurity's JSON.
mod json {
    use serde::Serialize;
    use serde::ser::{SerializeMap as _, Serializer};

    use super::{AuditMessage, text};

    #[derive(Serialize)]
    pub(super) struct Line<'a> {
        pub(super) transaction: Transaction<'a>,
    }

    #[derive(Serialize)]
    pub(super) struct Transaction<'a> {
        pub(super) client_ip: String,
        pub(super) time_stamp: String,
        pub(super) server_id: String,
        pub(super) client_port: u16,
        pub(super) host_ip: String,
        pub(super) host_port: u16,
        pub(super) unique_id: String,
        pub(super) request: Request<'a>,
        pub(super) response: Response<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) producer: Option<Producer<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) messages: Option<Vec<Message<'a>>>,
    }

    #[derive(Serialize)]
    pub(super) struct Request<'a> {
        pub(super) method: String,
        #[serde(serialize_with = "number_or_text")]
        pub(super) http_version: Result<f64, String>,
        pub(super) uri: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) body: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) headers: Option<Headers<'a>>,
    }

    #[derive(Serialize)]
    pub(super) struct Response<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) body: Option<String>,
        pub(super) http_code: u16,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) headers: Option<Headers<'a>>,
    }

    #[derive(Serialize)]
    pub(super) struct Producer<'a> {
        pub(super) modsecurity: &'a str,
        pub(super) connector: &'a str,
        pub(super) secrules_engine: &'a str,
        pub(super) components: &'a [String],
    }

    #[derive(Serialize)]
    pub(super) struct Message<'a> {
        message: String,
        details: Details<'a>,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Details<'a> {
        r#match: &'a str,
        reference: &'a str,
        rule_id: String,
        file: &'a str,
        line_number: String,
        data: String,
        severity: String,
        ver: &'a str,
        rev: &'a str,
        tags: &'a [String],
        maturity: String,
        accuracy: String,
    }

    impl<'a> Message<'a> {
        pub(super) fn of(message: &'a AuditMessage<'_>) -> Self {
            Self {
                message: text(message.message),
                details: Details {
                    r#match: &message.cause,
                    reference: "",
                    rule_id: message.id.to_string(),
                    file: message.file,
                    line_number: message.line_number.to_string(),
                    data: text(message.data),
                    severity: message.severity.to_string(),
                    ver: message.version,
                    rev: message.revision,
                    tags: message.tags,
                    maturity: message.maturity.to_string(),
                    accuracy: message.accuracy.to_string(),
                },
            }
        }
    }

    fn number_or_text<S: Serializer>(
        value: &Result<f64, String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Ok(number) => serializer.serialize_f64(*number),
            Err(text) => serializer.serialize_str(text),
        }
    }

    /// A name that occurs twice is written twice.
    pub(super) struct Headers<'a>(pub(super) &'a [(Vec<u8>, Vec<u8>)]);

    impl Serialize for Headers<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(Some(self.0.len()))?;
            for (name, value) in self.0 {
                map.serialize_entry(&text(name), &text(value))?;
            }
            map.end()
        }
    }
}

/// Place and form of the entries, from the settings of a rule set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AuditTarget {
    /// All entries, or the index of the files in `folder`.
    pub(crate) path: PathBuf,
    /// `Some`: one file an entry, below this folder.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) is_json: bool,
    pub(crate) folder_mode: u32,
    pub(crate) file_mode: u32,
}

/// An open audit log.
#[derive(Debug)]
pub(crate) struct AuditLog {
    target: AuditTarget,
    file: LogFile,
}

impl AuditLog {
    /// Opens the log.
    pub(crate) fn open(target: AuditTarget) -> Result<Self, String> {
        let file = LogFile::open(target.path.clone(), target.file_mode)
            .map_err(|error| format!("cannot open audit log {}: {error}", target.path.display()))?;
        Ok(Self { target, file })
    }

    /// Writes an entry with the wanted parts.
    pub(crate) fn write(&self, entry: &AuditEntry<'_>, parts: &str) -> io::Result<()> {
        let text = if self.target.is_json { entry.json(parts) } else { entry.native(parts) };
        let Some(folder) = &self.target.folder else { return self.file.append(&text) };
        let day = entry.time.strftime("%Y%m%d").to_string();
        let minute = entry.time.strftime("%Y%m%d-%H%M").to_string();
        let folder = folder.join(day).join(minute);
        DirBuilder::new().recursive(true).mode(self.target.folder_mode).create(&folder)?;
        let second = entry.time.strftime("%Y%m%d-%H%M%S");
        let path = folder.join(format!("{second}-{}", file_name(entry.unique_id)));
        let mut file = open_for_appending(&path, self.target.file_mode)?;
        file.write_all(&text)?;
        self.file.append(&entry.index_line(&path, &text))
    }
}

/// The identifier of a transaction without bytes that are special in paths.
fn file_name(id: &[u8]) -> String {
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    id.iter().map(|byte| if is_plain(byte) { char::from(*byte) } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use jiff::tz::{TimeZone, offset};

    fn headers(pairs: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    fn entry<'a>(
        request_headers: &'a [(Vec<u8>, Vec<u8>)],
        response_headers: &'a [(Vec<u8>, Vec<u8>)],
        tags: &'a [String],
    ) -> AuditEntry<'a> {
        let zone = TimeZone::fixed(offset(1));
        let time = date(2026, 1, 9).at(20, 5, 48, 0).to_zoned(zone);
        AuditEntry {
            time: time.unwrap_or_else(|error| panic!("{error}")),
            unique_id: b"id-1",
            client: (b"192.0.2.7", 1234),
            server: (b"127.0.0.1", 80),
            method: b"POST",
            uri: b"/p?q=%0a",
            version: b"1.1",
            request_headers,
            request_body: b"z=1",
            status: 200,
            response_headers,
            response_body: b"<p>\xff</p>",
            connector: "probe v1",
            engine: "Enabled",
            components: &[],
            messages: vec![AuditMessage {
                line: "ModSecurity: Warning. text".to_owned(),
                cause: "Matched".to_owned(),
                message: b"m",
                data: b"d\"",
                id: 2,
                file: "r.conf",
                line_number: 9,
                severity: 2,
                version: "V1",
                revision: "2",
                tags,
                maturity: 3,
                accuracy: 4,
            }],
        }
    }

    #[test]
    fn native_entry_has_the_wanted_parts_in_order() {
        let (request, response) = (
            headers(&[("Host", "example.com"), ("A", "1"), ("A", "2")]),
            headers(&[("Server", "x")]),
        );
        let text = String::from_utf8_lossy(&entry(&request, &response, &[]).native("ABCFHIZ"))
            .into_owned();
        let boundary: String = text.chars().skip(3).take(8).collect();
        assert!(boundary.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{boundary}");
        let expected = "---X---A--\n[09/Jan/2026:20:05:48 +0100] id-1 192.0.2.7 1234 127.0.0.1 80\n\
            ---X---B--\nPOST /p?q=%0a HTTP/1.1\nHost: example.com\nA: 1\nA: 2\n\n\
            ---X---C--\nz=1\n\n---X---F--\nHTTP/1.1 200\nServer: x\n\n\
            ---X---H--\nModSecurity: Warning. text\n\n---X---I--\n\n---X---Z--\n\n";
        assert_eq!(text.replace(&boundary, "X"), expected);
    }

    #[test]
    fn json_entry_has_the_members_of_libmodsecurity_in_their_order() {
        let (request, response) = (headers(&[("A", "1"), ("A", "\u{1}é")]), headers(&[]));
        let tags = ["t".to_owned()];
        let line = String::from_utf8_lossy(&entry(&request, &response, &tags).json("ABCEFHZ"))
            .into_owned();
        let expected = concat!(
            r#"{"transaction":{"client_ip":"192.0.2.7","time_stamp":"Fri Jan 09 20:05:48 2026","#,
            r#""server_id":"12ca17b49af2289436f303e0166030a21e525d26","client_port":1234,"host_ip":"127.0.0.1","host_port":80,"#,
            r#""unique_id":"id-1","request":{"method":"POST","http_version":1.1,"uri":"/p?q=%0a","body":"z=1","#,
            r#""headers":{"A":"1","A":"\u0001é"}},"response":{"body":"<p>\\xff</p>","http_code":200,"headers":{}},"#,
            r#""producer":{"modsecurity":"Tollgate","connector":"probe v1","secrules_engine":"Enabled","components":[]},"#,
            r#""messages":[{"message":"m","details":{"match":"Matched","reference":"","ruleId":"2","file":"r.conf","#,
            r#""lineNumber":"9","data":"d\"","severity":"2","ver":"V1","rev":"2","tags":["t"],"maturity":"3","accuracy":"4"}}]}}"#,
            "\n"
        );
        assert_eq!(line.replace(NAME, "Tollgate"), expected);
    }

    #[test]
    fn json_entry_without_parts_has_request_and_status() {
        let line = String::from_utf8_lossy(&entry(&[], &[], &[]).json("AZ")).into_owned();
        let end = r#""request":{"method":"POST","http_version":1.1,"uri":"/p?q=%0a"},"response":{"http_code":200}}}"#;
        assert!(line.trim_end().ends_with(end), "{line}");
    }

    #[test]
    fn concurrent_log_has_a_file_for_each_entry_below_day_and_minute()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let log = AuditLog::open(AuditTarget {
            path: folder.path().join("index"),
            folder: Some(folder.path().join("entries")),
            is_json: true,
            folder_mode: 0o750,
            file_mode: 0o640,
        })?;
        let request = headers(&[("Host", "example.com"), ("User-Agent", "agent")]);
        let mut entry = entry(&request, &[], &[]);
        entry.unique_id = b"../x";
        log.write(&entry, "AZ")?;
        let path = folder.path().join("entries/20260109/20260109-2005/20260109-200548-.._x");
        let text = std::fs::read(&path)?;
        assert_eq!(text, entry.json("AZ"));
        let expected = format!(
            "example.com 192.0.2.7 - [09/Jan/2026:20:05:48 +0100] \"POST /p?q=%0a HTTP/1.1\" 200 8 - \"agent\" ../x - {} 0 {} sha256:{}\n",
            path.display(),
            text.len(),
            hex(&Sha256::digest(&text)),
        );
        assert_eq!(std::fs::read_to_string(folder.path().join("index"))?, expected);
        Ok(())
    }
}

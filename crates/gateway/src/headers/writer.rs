//! Writing heads in the form of the link that they are sent on.

use std::io::Write as _;

use tollgate_http1::{BodyFraming, FieldList, HeaderField, Version};

use crate::config::{HeaderEdits, Protocol};

/// Form of the messages on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageForm {
    /// Bytes of HTTP/1.1.
    Text,
    /// Messages of HTTP/2: heads and trailers are a [`FieldList`], and a body ends with its stream.
    Fields,
}

impl MessageForm {
    /// The form of messages to and from a backend.
    pub(crate) fn of_backend(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 => Self::Text,
            Protocol::Http2 { .. } => Self::Fields,
        }
    }
}

/// Appends one head to `out`.
#[derive(Debug)]
pub(crate) struct HeadWriter<'a> {
    form: MessageForm,
    out: &'a mut Vec<u8>,
}

impl<'a> HeadWriter<'a> {
    pub(crate) fn new(form: MessageForm, out: &'a mut Vec<u8>) -> Self {
        Self { form, out }
    }

    /// Continues a head that has ended.
    pub(crate) fn reopen(form: MessageForm, out: &'a mut Vec<u8>) -> Self {
        match form {
            MessageForm::Text => {
                let end = out.strip_suffix(b"\r\n").map_or(out.len(), <[u8]>::len);
                out.truncate(end);
            }
            MessageForm::Fields => FieldList::reopen(out),
        }
        Self { form, out }
    }

    pub(crate) fn form(&self) -> MessageForm {
        self.form
    }

    /// `write_target` appends the target of the request.
    pub(crate) fn start_request(
        &mut self,
        method: &str,
        is_target_sensitive: bool,
        write_target: impl FnOnce(&mut Vec<u8>),
    ) {
        match self.form {
            MessageForm::Text => {
                self.out.extend_from_slice(method.as_bytes());
                self.out.push(b' ');
                write_target(self.out);
                self.out.extend_from_slice(b" HTTP/1.1\r\n");
            }
            MessageForm::Fields => {
                FieldList::push(self.out, b":method", method.as_bytes());
                FieldList::push_with(self.out, b":path", is_target_sensitive, write_target);
            }
        }
    }

    pub(crate) fn start_response(&mut self, status: u16, reason: &str) {
        let written = match self.form {
            MessageForm::Text => write!(self.out, "HTTP/1.1 {status:03} {reason}\r\n"),
            MessageForm::Fields => {
                let mut written = Ok(());
                FieldList::push_with(self.out, b":status", false, |out| {
                    written = write!(out, "{status:03}");
                });
                written
            }
        };
        written.expect("writing to a vector cannot fail");
    }

    /// Returns the position of the value. HTTP/2 has no headers of a connection or its framing.
    #[inline]
    pub(crate) fn push(&mut self, name: &str, value: &[u8]) -> usize {
        self.push_field(HeaderField { name, value, is_sensitive: false })
    }

    /// As [`push`](Self::push), with the mark of a received field.
    #[inline]
    pub(crate) fn push_field(&mut self, field: HeaderField<'_>) -> usize {
        let HeaderField { name, value, is_sensitive } = field;
        self.push_with(name, is_sensitive, |out| out.extend_from_slice(value))
    }

    /// As [`push`](Self::push), with a value that `write` appends.
    #[inline]
    pub(crate) fn push_with(
        &mut self,
        name: &str,
        is_sensitive: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        match self.form {
            MessageForm::Text => {
                self.out.extend_from_slice(name.as_bytes());
                self.out.extend_from_slice(b": ");
                let value = self.out.len();
                write(self.out);
                self.out.extend_from_slice(b"\r\n");
                value
            }
            MessageForm::Fields if is_of_connection(name) => self.out.len(),
            MessageForm::Fields => {
                let value = FieldList::push_with(self.out, name.as_bytes(), is_sensitive, write);
                // The position of the value is behind the name.
                self.out[value - name.len()..value].make_ascii_lowercase();
                value
            }
        }
    }

    pub(super) fn push_framing(&mut self, framing: BodyFraming) {
        match framing {
            BodyFraming::Length(bytes) => self.push_length(bytes),
            BodyFraming::Chunked => {
                self.push("Transfer-Encoding", b"chunked");
            }
            BodyFraming::Empty | BodyFraming::UntilClose => {}
        }
    }

    pub(crate) fn push_length(&mut self, bytes: u64) {
        self.push("Content-Length", bytes.to_string().as_bytes());
    }

    pub(super) fn push_edits(&mut self, edits: &HeaderEdits) {
        for (name, value) in &edits.set {
            self.push(name, value.as_bytes());
        }
    }

    /// Writes `Via` with the version in which the message was received (RFC 9110, section 7.6.3).
    pub(super) fn push_via(&mut self, version: Version, name: &str) {
        self.push_with("Via", false, |out| {
            for part in [version.number(), " ", name] {
                out.extend_from_slice(part.as_bytes());
            }
        });
    }

    pub(crate) fn end(self) {
        match self.form {
            MessageForm::Text => self.out.extend_from_slice(b"\r\n"),
            MessageForm::Fields => FieldList::end(self.out),
        }
    }
}

/// True for headers that HTTP/2 does not have (RFC 9113, section 8.2.2).
fn is_of_connection(name: &str) -> bool {
    let known: &[&str] = match name.len() {
        7 => &["upgrade"],
        10 => &["connection", "keep-alive"],
        16 => &["proxy-connection"],
        17 => &["transfer-encoding"],
        _ => &[],
    };
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: MessageForm) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = HeadWriter::new(form, &mut out);
        writer.start_request("POST", false, |out| out.extend_from_slice(b"/a"));
        writer.push("Host", b"x");
        writer.push("Connection", b"close");
        writer.push_framing(BodyFraming::Chunked);
        writer.end();
        let mut writer = HeadWriter::reopen(form, &mut out);
        let at = writer.push("X-Id", b"7");
        writer.end();
        assert_eq!(&out[at..=at], b"7");
        out
    }

    #[test]
    fn head_has_the_form_of_its_link() {
        assert_eq!(
            written(MessageForm::Text).escape_ascii().to_string(),
            "POST /a HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nTransfer-Encoding: chunked\\r\\n\
             X-Id: 7\\r\\n\\r\\n"
        );
        let bytes = written(MessageForm::Fields);
        assert_eq!(FieldList::new(&bytes).len(), Some(bytes.len()));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let fields: Vec<_> = FieldList::new(&bytes)
            .iter()
            .map(|field| format!("{}={}", text(field.name), text(field.value)))
            .collect();
        assert_eq!(fields, [":method=POST", ":path=/a", "host=x", "x-id=7"]);
    }
}

//! Texts with variables: `${client}`, in values of headers and entries of logs.

use std::fmt::Write as _;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use tollgate_tls::ClientCertificate;

/// A value with at least one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part<Variable>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part<V> {
    Text(String),
    Variable(V),
}

/// Splits a text at its variables. The error is the name of an unknown one, or the rest of the text from a `${` without end.
pub(super) fn parts<V>(
    text: &str,
    named: impl Fn(&str) -> Option<V>,
) -> Result<Vec<Part<V>>, &str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, from)) = rest.split_once("${") {
        let (name, behind) = from.split_once('}').ok_or(&rest[before.len()..])?;
        let variable = named(name).ok_or(name)?;
        parts.extend([Part::Text(before.to_owned()), Part::Variable(variable)]);
        rest = behind;
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// A property of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// Address of the client.
    Client,
    ClientCertificate,
    ClientFingerprint,
    ClientSubject,
    Host,
    RequestId,
    Scheme,
    User,
}

impl Variable {
    pub(crate) const OF_CERTIFICATE: [Self; 3] =
        [Self::ClientCertificate, Self::ClientFingerprint, Self::ClientSubject];
}

/// The values of variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables<'a> {
    /// `None` over a Unix domain socket.
    pub(crate) client: Option<IpAddr>,
    /// With its port, if it has one.
    pub(crate) host: &'a str,
    pub(crate) scheme: &'static str,
    /// `None`: no template has it.
    pub(crate) request_id: Option<u128>,
    /// `None`: no password is asked for.
    pub(crate) user: Option<&'a str>,
    /// `None`: the client has presented none, or no template has it.
    pub(crate) certificate: Option<ClientCertificate<'a>>,
}

impl Template {
    /// Parses a value. Returns `None` without a variable, and an error that names an unknown one.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let named = |name: &str| match name {
            "client" => Some(Variable::Client),
            "client_certificate" => Some(Variable::ClientCertificate),
            "client_fingerprint" => Some(Variable::ClientFingerprint),
            "client_subject" => Some(Variable::ClientSubject),
            "host" => Some(Variable::Host),
            "request_id" => Some(Variable::RequestId),
            "scheme" => Some(Variable::Scheme),
            "user" => Some(Variable::User),
            _ => None,
        };
        let Ok(parts) = parts(text, named) else {
            return Err(format!(
                "`{text}` has an unknown variable: expected ${{client}}, ${{client_certificate}}, \
                 ${{client_fingerprint}}, ${{client_subject}}, ${{host}}, ${{request_id}}, ${{scheme}} or ${{user}}"
            ));
        };
        Ok((parts.len() > 1).then_some(Self(parts)))
    }

    pub(super) fn has(&self, variable: Variable) -> bool {
        self.0.contains(&Part::Variable(variable))
    }

    pub(crate) fn render(&self, values: &Variables<'_>) -> String {
        let mut out = String::new();
        for part in &self.0 {
            let written = match part {
                Part::Text(text) => out.write_str(text),
                Part::Variable(Variable::Client) => match values.client {
                    Some(ip) => write!(out, "{ip}"),
                    None => out.write_str("unix:"),
                },
                Part::Variable(Variable::ClientCertificate) => match values.certificate {
                    // RFC 9440: a byte sequence in a structured field.
                    Some(certificate) => write!(out, ":{}:", STANDARD.encode(certificate.0)),
                    None => Ok(()),
                },
                Part::Variable(Variable::ClientFingerprint) => match values.certificate {
                    Some(certificate) => {
                        let digest = Sha256::digest(certificate.0);
                        digest.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
                    }
                    None => Ok(()),
                },
                Part::Variable(Variable::ClientSubject) => match values.certificate {
                    Some(certificate) => out.write_str(&certificate.subject()),
                    None => Ok(()),
                },
                Part::Variable(Variable::Host) => out.write_str(values.host),
                Part::Variable(Variable::RequestId) => {
                    write!(out, "{}", written_request_id(values.request_id.unwrap_or_default()))
                }
                Part::Variable(Variable::Scheme) => out.write_str(values.scheme),
                Part::Variable(Variable::User) => out.write_str(values.user.unwrap_or_default()),
            };
            written.expect("writing to a string cannot fail");
        }
        out
    }
}

/// The form of an identifier of a request in headers and logs.
pub(crate) fn written_request_id(id: u128) -> String {
    format!("{id:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_by_their_values() {
        let values = Variables {
            client: Some([192, 0, 2, 7].into()),
            host: "a:80",
            scheme: "https",
            request_id: Some(0xabc),
            user: Some("ann"),
            certificate: Some(ClientCertificate(b"abc")),
        };
        let rendered = |text: &str| Template::parse(text).unwrap().unwrap().render(&values);
        assert_eq!(rendered("${client}"), "192.0.2.7");
        assert_eq!(rendered("a ${scheme}://${host} b"), "a https://a:80 b");
        assert_eq!(rendered("${user}"), "ann");
        assert_eq!(rendered("${request_id}"), "00000000000000000000000000000abc");
        assert_eq!(rendered("${client_certificate}"), ":YWJj:");
        // As in FIPS 180-2, appendix B.1.
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(rendered("${client_fingerprint}"), digest);
        let unix = Variables { client: None, certificate: None, ..values };
        let rendered = |text: &str| Template::parse(text).unwrap().unwrap().render(&unix);
        assert_eq!(rendered("${client}"), "unix:");
        assert_eq!(rendered("${client_certificate}${client_fingerprint}${client_subject}"), "");
    }

    #[test]
    fn other_texts_are_plain_or_errors() {
        for text in ["", "a", "$client", "{client}", "a$", "$$"] {
            assert_eq!(Template::parse(text), Ok(None), "{text}");
        }
        for text in ["${", "${client", "${ client}", "${Client}", "${}", "${client}${x}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}

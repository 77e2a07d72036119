//! Identity of a client from its certificate.

use std::fmt::Write as _;

use x509_cert::der::Decode as _;

/// The certificate that a client has presented, in DER, which its server has verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCertificate<'a>(pub &'a [u8]);

impl ClientCertificate<'_> {
    /// The name of the subject in ASCII (RFC 4514), the most specific part first, such as `CN=ann,O=Example`. Empty if it has
    /// none, and for a certificate that its verifier has accepted but that is not in the form of RFC 5280.
    pub fn subject(&self) -> String {
        let Ok(parsed) = x509_cert::Certificate::from_der(self.0) else { return String::new() };
        let mut out = String::new();
        for character in parsed.tbs_certificate.subject.to_string().chars() {
            if character.is_ascii() {
                out.push(character);
            } else {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    write!(out, "\\{byte:02X}").expect("writing to a string cannot fail");
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn subject(parts: &[(DnType, &str)]) -> String {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate(certificate.der()).subject()
    }

    #[test]
    fn subject_is_ascii_with_escapes_of_rfc_4514() {
        let organization = (DnType::OrganizationName, "Example");
        assert_eq!(subject(&[organization, (DnType::CommonName, "ann")]), "CN=ann,O=Example");
        assert_eq!(subject(&[(DnType::CommonName, "é")]), r"CN=\C3\A9");
        // No name can add a part or a line.
        assert_eq!(subject(&[(DnType::CommonName, "a,O=b\r\nX: y")]), r"CN=a\,O=b\0d\0aX: y");
        assert_eq!(subject(&[]), "");
    }
}

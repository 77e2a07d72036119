//! Certificates that an authority issues.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use tollgate_acme::{Challenge, ExternalAccount, Settings, Store};
use tollgate_config::gateway::{AcmeFile, ChallengeFile, ExternalAccountFile};
use tollgate_config::{InvalidValue, Located, chain};
use tollgate_net::Address;
use tollgate_tls::{AlpnProofs, ManagedCertificate, authorities};

use super::resources::Resources;
use crate::config::read;
use crate::config::settings::{Acme, Listener};
use crate::resolve::HostName;

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Limit for the names of a certificate; that of Let's Encrypt.
const NAMES_MAX: usize = 100;
/// A name with a suffix is the name of a file.
const NAME_BYTES_MAX: usize = 240;

/// The authority, and the certificates of listeners that it issues.
pub(super) struct Orders<'a> {
    file: &'a Located<AcmeFile>,
    acme: Acme,
    store: Store,
    /// A listener names a certificate, whether it is valid or not.
    is_used: bool,
}

impl<'a> Orders<'a> {
    pub(super) fn read(
        file: &'a Located<AcmeFile>,
        resources: &mut Resources<'_>,
    ) -> Result<Self, InvalidValue> {
        if !*file.agree_to_terms {
            let message = "certificates are issued only to those who agree to the authority's terms of service: write `true`, or remove `acme`";
            return Err(InvalidValue::at(&file.agree_to_terms, message));
        }
        if file.state.is_empty() {
            return Err(InvalidValue::at(&file.state, "`state` is empty; name a folder"));
        }
        let directory = match &file.directory {
            None => LETS_ENCRYPT.to_owned(),
            Some(url) if is_https(url) => url.to_string(),
            Some(url) => {
                let message = format!("`{}` is not a URL with https and a host", **url);
                return Err(InvalidValue::at(url, message));
            }
        };
        let contact = match &file.contact {
            Some(address) if !address.contains('@') || address.contains([':', ' ', ',']) => {
                let message =
                    format!("`{}` is not an address such as admin@example.org", **address);
                return Err(InvalidValue::at(address, message));
            }
            contact => contact.as_ref().map(|address| address.to_string()),
        };
        let ca = file.ca.as_ref().map(|name| resources.folder.join(&**name));
        let authorities = authorities(ca.as_deref()).map_err(|error| {
            let invalid = match &file.ca {
                Some(name) => InvalidValue::at(name, format!("`{}`: {error}", **name)),
                None => InvalidValue::at(file, error.to_string()),
            };
            invalid.with_source(error)
        });
        let external_account = match &file.external_account {
            Some(account) => resources.collect(external_account(account, resources)),
            None => None,
        };
        let settings = Settings {
            directory,
            authorities: resources.collect(authorities).unwrap_or_default().into(),
            contact,
            external_account,
            challenge: match file.challenge.as_deref() {
                None | Some(ChallengeFile::TlsAlpn01) => Challenge::TlsAlpn01,
                Some(ChallengeFile::Http01) => Challenge::Http01,
            },
            state: resources.folder.join(&**file.state),
        };
        if settings.state.exists() && !settings.state.is_dir() {
            let message = format!("`{}` is not a folder", file.state.as_str());
            return Err(InvalidValue::at(&file.state, message));
        }
        let store = Store::new(&settings);
        let acme = Acme { settings, certificates: Vec::new(), proofs: Arc::default() };
        Ok(Self { file, acme, store, is_used: false })
    }

    /// The proofs that a listener shows in its handshakes.
    pub(super) fn proofs(
        &self,
        names: &Located<Vec<Located<String>>>,
        asks_for_certificates: bool,
    ) -> Result<Option<Arc<AlpnProofs>>, InvalidValue> {
        match self.acme.settings.challenge {
            Challenge::Http01 => Ok(None),
            Challenge::TlsAlpn01 if asks_for_certificates => {
                let message = "the authority has no certificate for `client_ca`, so that it cannot check these names; set `challenge: http-01` in `acme`";
                Err(InvalidValue::at(names, message))
            }
            Challenge::TlsAlpn01 => Ok(Some(Arc::clone(self.acme.proofs.alpn()))),
        }
    }

    /// The place of the certificate with these names, with the one that is kept.
    pub(super) fn place(
        &mut self,
        texts: &Located<Vec<Located<String>>>,
        resources: &mut Resources<'_>,
    ) -> Result<Arc<ManagedCertificate>, InvalidValue> {
        self.is_used = true;
        let names: Vec<String> = texts.iter().map(dns_name).collect::<Result<_, _>>()?;
        if names.is_empty() || names.len() > NAMES_MAX {
            let message = format!("expected 1 to {NAMES_MAX} names, not {}", names.len());
            return Err(InvalidValue::at(texts, message));
        }
        if let Some(place) = self.acme.certificates.iter().find(|place| place.names() == names) {
            return Ok(Arc::clone(place));
        }
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                let message = format!("duplicate name `{name}`; remove one");
                return Err(InvalidValue::at(&texts[at], message));
            }
            if self.acme.certificates.iter().any(|place| place.names().contains(name)) {
                let message = format!(
                    "another certificate has the name `{name}`, too; a name is in one certificate, which listeners may share by the same list"
                );
                return Err(InvalidValue::at(&texts[at], message));
            }
        }
        let place = Arc::new(ManagedCertificate::new(names));
        let loaded = self.store.load(&place);
        let loaded = loaded.map_err(|error| InvalidValue::at(&self.file.state, chain(&error)));
        resources.collect(loaded);
        self.acme.certificates.push(Arc::clone(&place));
        Ok(place)
    }

    pub(super) fn finish(self, listeners: &[Listener]) -> Result<Acme, InvalidValue> {
        if !self.is_used {
            let message = "`acme` has no certificates; add `acme: [NAME]` to `certificates` in the `tls` of a listener, or remove it";
            return Err(InvalidValue::at(self.file, message));
        }
        let is_plain = |listener: &Listener| {
            listener.tls.is_none() && matches!(listener.address, Address::Tcp(_))
        };
        match &self.file.challenge {
            Some(challenge)
                if **challenge == ChallengeFile::Http01 && !listeners.iter().any(is_plain) =>
            {
                let message = "the authority asks over plain HTTP, on port 80, and no listener is without `tls`; add one";
                Err(InvalidValue::at(challenge, message))
            }
            _ => Ok(self.acme),
        }
    }
}

fn is_https(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some())
}

/// A name that an authority can check, in lower case.
fn dns_name(text: &Located<String>) -> Result<String, InvalidValue> {
    if text.starts_with("*.") {
        let message = "a wildcard can only be proved in the DNS, which this gateway does not change; list the names, or order the certificate by another program";
        return Err(InvalidValue::at(text, message));
    }
    match HostName::parse(&format!("{}:443", **text)) {
        Some(name) if !name.host.ends_with('.') && name.host.len() <= NAME_BYTES_MAX => {
            Ok(name.host)
        }
        _ => Err(InvalidValue::at(text, format!("`{}` is not a DNS name", **text))),
    }
}

fn external_account(
    file: &ExternalAccountFile,
    resources: &Resources<'_>,
) -> Result<ExternalAccount, InvalidValue> {
    let text = read::text(&resources.folder.join(&**file.key)).map_err(|source| {
        let message = format!("`{}`: cannot read the key", file.key.as_str());
        InvalidValue::at(&file.key, message).with_source(source)
    })?;
    let key = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).map_err(|source| {
        let message = format!("`{}`: expected a key in base64url", file.key.as_str());
        InvalidValue::at(&file.key, message).with_source(source)
    })?;
    if key.is_empty() {
        return Err(InvalidValue::at(&file.key, format!("`{}` is empty", file.key.as_str())));
    }
    if file.id.is_empty() {
        return Err(InvalidValue::at(&file.id, "`id` is empty"));
    }
    Ok(ExternalAccount { id: file.id.to_string(), key })
}

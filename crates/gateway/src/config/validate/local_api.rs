//! CrowdSec's local API: its URL and the account for alerts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tollgate_config::serve::LocalApiFile;
use tollgate_config::{InvalidValue, Located};
use tollgate_net::Address;
use tollgate_tls::{ClientOptions, TlsClient, Trust};

use super::appsec::parse;
use super::scalars::duration;
use super::tls::HTTP1;
use crate::config::serve::{ApiAddress, ApiTls, LocalApi, Machine};
use crate::resolve::HostName;

/// As of CrowdSec.
const TIMEOUT: Duration = Duration::from_millis(200);

/// `local_api_credentials.yaml` of CrowdSec.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Credentials {
    url: Option<String>,
    login: Option<String>,
    password: Option<String>,
    ca_cert_path: Option<String>,
    cert_path: Option<String>,
}

pub(super) fn local_api(
    file: &Located<LocalApiFile>,
    folder: &Path,
) -> Result<LocalApi, InvalidValue> {
    let credentials: Option<Credentials> =
        file.credentials.as_ref().map(|name| parse(&folder.join(&**name), name)).transpose()?;
    let machine = match (&file.credentials, &credentials) {
        (Some(at), Some(Credentials { login, password, cert_path, .. })) => {
            let (Some(login), Some(password)) = (login, password) else {
                let reason = if cert_path.is_some() {
                    "has a certificate, with which a login is not supported"
                } else {
                    "has no `login` and `password`"
                };
                let message = format!(
                    "`{}` {reason}; add a machine with a password (cscli machines add)",
                    **at
                );
                return Err(InvalidValue::at(at, message));
            };
            Some(Machine { login: login.clone(), password: password.clone() })
        }
        _ => None,
    };
    let of_credentials = credentials.unwrap_or_default();
    let url = match (&file.url, of_credentials.url) {
        (Some(url), _) => Url::parse(url).ok_or_else(|| invalid_url(url, url)),
        (None, Some(url)) => Url::parse(&url).ok_or_else(|| invalid_url(file, &url)),
        (None, None) => Err(InvalidValue::at(
            file,
            "missing key `url` of the local API, or `credentials` that have one",
        )),
    }?;
    let ca = match (&file.ca, of_credentials.ca_cert_path) {
        (Some(ca), _) => Some(folder.join(&**ca)),
        (None, ca) => ca.map(PathBuf::from),
    };
    let tls = url.is_https.then(|| tls(file, &url, ca)).transpose()?;
    let Url { address, host, base_path, .. } = url;
    let timeout = duration(&file.timeout, TIMEOUT)?;
    Ok(LocalApi { address, host, base_path, tls, machine, timeout })
}

fn invalid_url<T>(at: &Located<T>, url: &str) -> InvalidValue {
    let message =
        format!("`{url}` is not a URL such as http://127.0.0.1:8080, or the path of a Unix socket");
    InvalidValue::at(at, message)
}

fn tls(
    file: &Located<LocalApiFile>,
    url: &Url,
    ca: Option<PathBuf>,
) -> Result<ApiTls, InvalidValue> {
    let name = match &url.address {
        ApiAddress::Name(name) => name.host.trim_end_matches('.').to_owned(),
        ApiAddress::Known(Address::Tcp(address)) => address.ip().to_string(),
        ApiAddress::Known(Address::Unix(_)) => "localhost".to_owned(),
    };
    let options = ClientOptions {
        trust: &ca.clone().map_or(Trust::System, Trust::File),
        name: &name,
        identity: None,
        version: None,
        resume: true,
        protocols: &[HTTP1],
    };
    let client = TlsClient::new(&options).map_err(|error| {
        InvalidValue::at(file, format!("cannot use TLS with the local API: {error}"))
            .with_source(error)
    })?;
    let ca = ca.map(std::fs::read).transpose().map_err(|error| {
        InvalidValue::at(file, format!("cannot read the authorities of the local API: {error}"))
            .with_source(error)
    })?;
    Ok(ApiTls { client, ca })
}

struct Url {
    is_https: bool,
    address: ApiAddress,
    host: String,
    base_path: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            let address = ApiAddress::Known(Address::Unix(PathBuf::from(text)));
            return Some(Self {
                is_https: false,
                address,
                host: "localhost".to_owned(),
                base_path: String::new(),
            });
        }
        let (scheme, rest) = text.split_once("://")?;
        let (is_https, default_port) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return None,
        };
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_path = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        let with_port = format!("{host}:{default_port}");
        let address = [host, &with_port].into_iter().find_map(|text| {
            let known = text.parse().ok().map(|address| ApiAddress::Known(Address::Tcp(address)));
            known.or_else(|| HostName::parse(text).map(ApiAddress::Name))
        })?;
        let base_path = path.trim_end_matches('/').to_owned();
        is_path.then(|| Self { is_https, address, host: host.to_owned(), base_path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_an_address_a_port_and_a_path() {
        let shown = |text: &str| {
            let Url { is_https, address, host, base_path } = Url::parse(text)?;
            let address = match address {
                ApiAddress::Known(address) => address.to_string(),
                ApiAddress::Name(name) => name.to_string(),
            };
            Some(format!("{} {address} {host} {base_path}", if is_https { "tls" } else { "plain" }))
        };
        for (text, expected) in [
            ("http://127.0.0.1:8080/", Some("plain 127.0.0.1:8080 127.0.0.1:8080 ")),
            ("http://127.0.0.1", Some("plain 127.0.0.1:80 127.0.0.1 ")),
            ("https://Api.example/crowdsec/", Some("tls api.example:443 Api.example /crowdsec")),
            ("https://[::1]", Some("tls [::1]:443 [::1] ")),
            ("/run/crowdsec.sock", Some("plain unix:/run/crowdsec.sock localhost ")),
            ("127.0.0.1:8080", None),
            ("ftp://a", None),
            ("http://", None),
            ("http://a b", None),
            ("http://a/?q", None),
        ] {
            assert_eq!(shown(text).as_deref(), expected, "{text}");
        }
    }
}

//! Rules for requests and their headers.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_config::gateway::{ForwardedFile, HeaderEditsFile, RequestsFile};
use tollgate_config::{InvalidValue, Located};
use tollgate_firewall::config::check_header_name;
use tollgate_http1::is_token;

use super::scalars::networks;
use crate::config::Template;
use crate::config::route::{Forwarded, HeaderEdits, Requests, Trust, TrustedProxies};

/// Headers about one connection or about message framing, which the gateway itself writes.
const OWN_HEADERS: &str = "connection content-length expect keep-alive proxy-connection te trailer \
                           transfer-encoding upgrade via";

pub(super) fn header_edits(file: &HeaderEditsFile) -> Result<HeaderEdits, InvalidValue> {
    let mut names = BTreeSet::new();
    let set = headers(file.set.as_ref(), &mut names)?;
    let remove = removed_headers(file.remove.as_deref().unwrap_or_default(), &mut names)?;
    let mut edits = HeaderEdits { remove, ..HeaderEdits::default() };
    for ((name, text), at) in set.into_iter().zip(file.set.iter().flat_map(BTreeMap::values)) {
        let invalid = |message: String| InvalidValue::at(at, message);
        match Template::parse(&text).map_err(invalid)? {
            Some(template) => edits.templates.push((name, template)),
            None => edits.set.push((name, text)),
        }
    }
    Ok(edits)
}

/// Headers of a message, whose lower names are added to `names`.
pub(super) fn headers(
    file: Option<&BTreeMap<String, Located<String>>>,
    names: &mut BTreeSet<String>,
) -> Result<Vec<(String, String)>, InvalidValue> {
    let header = |(name, value): (&String, &Located<String>)| {
        check_edited_name(name, value, names)?;
        let is_value_byte = |byte: u8| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic();
        if !value.bytes().all(is_value_byte) {
            let message =
                format!("the value of `{name}` must not contain line breaks or control characters");
            return Err(InvalidValue::at(value, message));
        }
        Ok((name.clone(), value.trim().to_owned()))
    };
    file.into_iter().flatten().map(header).collect()
}

/// Names of headers to remove, in lower case.
fn removed_headers(
    files: &[Located<String>],
    names: &mut BTreeSet<String>,
) -> Result<Vec<String>, InvalidValue> {
    let name = |name: &Located<String>| {
        check_edited_name(name, name, names)?;
        if name.eq_ignore_ascii_case("host") {
            return Err(InvalidValue::at(name, "`Host` cannot be removed; set it instead"));
        }
        Ok(name.to_ascii_lowercase())
    };
    files.iter().map(name).collect()
}

fn check_edited_name<T>(
    name: &str,
    at: &Located<T>,
    names: &mut BTreeSet<String>,
) -> Result<(), InvalidValue> {
    check_header_name(name, at)?;
    let lower = name.to_ascii_lowercase();
    if OWN_HEADERS.split(' ').any(|own| own == lower) {
        let message = format!("`{name}` is written by the gateway itself; remove it");
        return Err(InvalidValue::at(at, message));
    }
    if !names.insert(lower) {
        return Err(InvalidValue::at(at, format!("duplicate header `{name}`; remove one of them")));
    }
    Ok(())
}

pub(super) fn requests(file: &RequestsFile) -> Result<Requests, InvalidValue> {
    let default = Requests::default();
    let upgrades = file.upgrades.as_ref().map(|upgrades| upgrades.iter().map(upgrade).collect());
    let remove_headers = file.remove_headers.as_ref();
    let removed =
        remove_headers.map(|names| removed_headers(names, &mut BTreeSet::new())).transpose()?;
    Ok(Requests {
        path: file.path.unwrap_or_default(),
        trace: file.trace.unwrap_or(default.trace),
        upgrades: upgrades.unwrap_or(Ok(default.upgrades))?,
        half_close: file.half_close.unwrap_or(default.half_close),
        underscores: file.underscores.unwrap_or(default.underscores),
        remove_headers: removed.clone().unwrap_or(default.remove_headers),
        remove_headers_of_trusted: removed.unwrap_or(default.remove_headers_of_trusted),
    })
}

fn upgrade(protocol: &Located<String>) -> Result<String, InvalidValue> {
    let lower = protocol.to_ascii_lowercase();
    if lower.starts_with("h2") {
        let message = format!("`{}` would let requests bypass the gateway; remove it", **protocol);
        return Err(InvalidValue::at(protocol, message));
    }
    if !lower.split('/').all(|part| is_token(part.as_bytes())) {
        let message = format!("`{}` is not a protocol such as websocket", **protocol);
        return Err(InvalidValue::at(protocol, message));
    }
    Ok(lower)
}

fn trust(file: &ForwardedFile) -> Result<Trust, InvalidValue> {
    match (&file.trusted, file.trust_client.unwrap_or(false), &file.client_header) {
        (Some(trusted), true, _) => Err(InvalidValue::at(
            trusted,
            "`trust_client` trusts every client; remove it, or `trusted`",
        )),
        (Some(trusted), false, header) => Ok(Trust::Proxies(TrustedProxies {
            networks: networks(trusted)?,
            header: header.as_deref().copied().unwrap_or_default(),
        })),
        (None, _, Some(header)) => {
            Err(InvalidValue::at(header, "`client_header` has no effect without `trusted`"))
        }
        (None, true, None) => Ok(Trust::Everybody),
        (None, false, None) => Ok(Trust::Nobody),
    }
}

pub(super) fn forwarded(file: &ForwardedFile) -> Result<Forwarded, InvalidValue> {
    if let Some(via) = &file.via
        && !is_token(via.as_bytes())
    {
        let message = format!(
            "`{}` is not a name for `Via`: use letters, digits and -._~, or `null` to send no `Via`",
            **via
        );
        return Err(InvalidValue::at(via, message));
    }
    let default = Forwarded::default();
    Ok(Forwarded {
        via: file.via.as_ref().map(|via| (**via).clone()),
        x_forwarded: file.x_forwarded.unwrap_or(default.x_forwarded),
        forwarded: file.forwarded.unwrap_or(default.forwarded),
        trust: trust(file)?,
    })
}

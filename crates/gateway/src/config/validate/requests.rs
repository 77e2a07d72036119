//! Routes, and rules for requests and their headers.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::num::NonZeroU32;

use super::scalars::{check_header_name, duration, path};
use crate::config::error::{InvalidValue, suggestion};
use crate::config::file::{
    ForwardedFile, HeaderEditsFile, PoolFile, RequestTimeoutsFile, RequestsFile, RouteFile,
};
use crate::config::located::Located;
use crate::config::pool::{Pool, PoolId};
use crate::config::route::{
    Forwarded, HeaderEdits, HostPattern, REQUEST_OVERRIDES, Requests, Route,
};
use crate::config::timeouts::Timeouts;
use crate::path::other_reading;
use tollgate_http1::is_token;

/// Headers about one connection or about message framing, which the gateway itself writes.
const OWN_HEADERS: &str = "connection content-length expect keep-alive proxy-connection te trailer \
                           transfer-encoding upgrade via";

/// Without routes, the only pool receives all requests.
pub(super) fn routes(
    files: Option<&Located<Vec<RouteFile>>>,
    pool_files: &Located<Vec<PoolFile>>,
    pools: &[Pool],
    timeouts: &Timeouts,
) -> Result<Vec<Route>, InvalidValue> {
    let of_pool = |pool: PoolId, route: Option<&RequestTimeoutsFile>| {
        let pool = pool_files[pool.0].timeouts.as_ref();
        let mut files = [pool, route].into_iter().flatten();
        let edited = files.try_fold(*timeouts, |timeouts, file| request_timeouts(file, &timeouts));
        edited.map(|timeouts| (pool.is_some() || route.is_some()).then_some(timeouts))
    };
    let Some(files) = files.filter(|files| !files.is_empty()) else {
        return match pools {
            [_] => {
                let timeouts = of_pool(PoolId(0), None)?;
                Ok(vec![Route { timeouts, ..Route::all_to(PoolId(0)) }])
            }
            _ => Err(InvalidValue::at(
                pool_files,
                "several pools but no routes; add routes that name the pools",
            )),
        };
    };
    let mut routes: Vec<Route> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let mut route = route(file, pools)?;
        route.timeouts = of_pool(route.pool, file.timeouts.as_ref())?;
        let is_same =
            |other: &Route| (&other.host, &other.path_prefix) == (&route.host, &route.path_prefix);
        if let Some(first) = routes.iter().position(is_same) {
            return Err(InvalidValue::at(
                &file.pool,
                format!(
                    "duplicate route: the one in line {} has the same host and path; remove one of them",
                    files[first].pool.line()
                ),
            ));
        }
        routes.push(route);
    }
    Ok(routes)
}

fn route(file: &RouteFile, pools: &[Pool]) -> Result<Route, InvalidValue> {
    let Some(pool) = pools.iter().position(|pool| pool.name == *file.pool) else {
        let hint = suggestion(&file.pool, pools.iter().map(|pool| pool.name.as_str()));
        return Err(InvalidValue::at(&file.pool, format!("unknown pool `{}`{hint}", *file.pool)));
    };
    let edits = |file: &Option<_>| file.as_ref().map_or(Ok(HeaderEdits::default()), header_edits);
    Ok(Route {
        host: file.host.as_ref().map_or(Ok(HostPattern::Any), host)?,
        path_prefix: file.path.as_ref().map_or(Ok("/".to_owned()), path_prefix)?,
        pool: PoolId(pool),
        rewrite: file.rewrite.as_ref().map(|text| path(text, "?#")).transpose()?,
        request_headers: edits(&file.request_headers)?,
        response_headers: edits(&file.response_headers)?,
        timeouts: None,
        waf: None,
    })
}

/// The timeouts of requests, each key in place of its default.
fn request_timeouts(
    file: &RequestTimeoutsFile,
    default: &Timeouts,
) -> Result<Timeouts, InvalidValue> {
    Ok(Timeouts {
        connect: duration(&file.connect, default.connect)?,
        body: duration(&file.body, default.body)?,
        body_rate: file.body_rate.map_or(default.body_rate, NonZeroU32::new),
        body_slow: duration(&file.body_slow, default.body_slow)?,
        response: duration(&file.response, default.response)?,
        stream: duration(&file.stream, default.stream)?,
        abandoned: duration(&file.abandoned, default.abandoned)?,
        tunnel: duration(&file.tunnel, default.tunnel)?,
        ..*default
    })
}

fn host(text: &Located<String>) -> Result<HostPattern, InvalidValue> {
    let lower = text.to_ascii_lowercase();
    if lower == "*" {
        return Ok(HostPattern::Any);
    }
    let (name, is_wildcard) = match lower.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (lower.as_str(), false),
    };
    let is_v6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match (is_name, is_v6, is_wildcard) {
        (true, _, true) => Ok(HostPattern::Below(name.to_owned())),
        (true, _, false) | (_, true, false) => Ok(HostPattern::Exact(name.to_owned())),
        _ => Err(InvalidValue::at(
            text,
            format!(
                "`{}` is not a host: write example.org, *.example.org for its subdomains, or * for every host, \
                 without a port",
                **text
            ),
        )),
    }
}

fn path_prefix(text: &Located<String>) -> Result<String, InvalidValue> {
    let prefix = path(text, "?#")?;
    // Requests are matched by normalized path, so a prefix that is not normalized would match none.
    if let Some(other) = other_reading(&prefix) {
        let message = format!(
            "`{prefix}` can be read as `{other}`: write it without needless escapes, empty segments, . and .., and \
             without %2F, %5C, \\ and ;"
        );
        return Err(InvalidValue::at(text, message));
    }
    Ok(prefix)
}

fn header_edits(file: &HeaderEditsFile) -> Result<HeaderEdits, InvalidValue> {
    let mut names = BTreeSet::new();
    let mut edits = HeaderEdits::default();
    for (name, value) in file.set.iter().flatten() {
        check_edited_name(name, value, &mut names)?;
        let is_value_byte = |byte: u8| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic();
        if !value.bytes().all(is_value_byte) {
            let message =
                format!("the value of `{name}` must not contain line breaks or control characters");
            return Err(InvalidValue::at(value, message));
        }
        edits.set.push((name.clone(), value.trim().to_owned()));
    }
    edits.remove = removed_headers(file.remove.as_deref().unwrap_or_default(), &mut names)?;
    Ok(edits)
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

pub(super) fn requests(
    file: &RequestsFile,
    forwarded: &Forwarded,
) -> Result<Requests, InvalidValue> {
    let default = Requests::default();
    let upgrades = file.upgrades.as_ref().map(|upgrades| upgrades.iter().map(upgrade).collect());
    let remove_headers = match &file.remove_headers {
        Some(names) => removed_headers(names, &mut BTreeSet::new())?,
        None if forwarded.trust_client => REQUEST_OVERRIDES.map(str::to_owned).to_vec(),
        None => default.remove_headers,
    };
    Ok(Requests {
        path: file.path.unwrap_or_default(),
        trace: file.trace.unwrap_or(default.trace),
        upgrades: upgrades.unwrap_or(Ok(default.upgrades))?,
        half_close: file.half_close.unwrap_or(default.half_close),
        underscores: file.underscores.unwrap_or(default.underscores),
        remove_headers,
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
        trust_client: file.trust_client.unwrap_or(default.trust_client),
    })
}

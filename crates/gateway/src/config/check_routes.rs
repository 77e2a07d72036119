//! Routes as they are written, checked.

use std::collections::BTreeSet;

use super::check::line;
use super::error::{Fault, suggestion};
use super::file::{HeaderEditsFile, PoolFile, RouteFile};
use super::text::At;
use super::{HeaderEdits, HostPattern, Pool, PoolId, Route};
use crate::path::readings;

/// Headers that are about one connection or about where a message ends: the gateway's own to say.
const OWN_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The routes that are asked for; without any, the one that leads to the only pool.
pub(super) fn routes(
    files: Option<&At<Vec<RouteFile>>>,
    pool_files: &At<Vec<PoolFile>>,
    pools: &[Pool],
) -> Result<Vec<Route>, Fault> {
    let Some(files) = files.filter(|files| !files.is_empty()) else {
        return match pools {
            [_] => Ok(vec![Route::all_to(PoolId(0))]),
            _ => Err(Fault::at(
                &pool_files.0,
                "there are several pools and no routes; say which requests go to which pool",
            )),
        };
    };
    let mut routes: Vec<Route> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let route = route(file, pools)?;
        let is_same =
            |other: &Route| (&other.host, &other.path_prefix) == (&route.host, &route.path_prefix);
        if let Some(first) = routes.iter().position(is_same) {
            return Err(Fault::at(
                &file.pool.0,
                format!(
                    "the route that ends in line {} is for the same host and path; leave one of them",
                    line(&files[first].pool.0)
                ),
            ));
        }
        routes.push(route);
    }
    Ok(routes)
}

fn route(file: &RouteFile, pools: &[Pool]) -> Result<Route, Fault> {
    let Some(pool) = pools.iter().position(|pool| pool.name == *file.pool) else {
        let hint = suggestion(&file.pool, pools.iter().map(|pool| pool.name.as_str()));
        return Err(Fault::at(&file.pool.0, format!("there is no pool `{}`{hint}", *file.pool)));
    };
    Ok(Route {
        host: file.host.as_ref().map_or(Ok(HostPattern::Any), host)?,
        path_prefix: match &file.path {
            Some(path) => prefix(path)?,
            None => "/".to_owned(),
        },
        pool: PoolId(pool),
        rewrite: file.rewrite.as_ref().map(rewrite).transpose()?,
        request_headers: header_edits(&file.request_headers)?,
        answer_headers: header_edits(&file.answer_headers)?,
    })
}

fn host(text: &At<String>) -> Result<HostPattern, Fault> {
    let lower = text.to_ascii_lowercase();
    if lower == "*" {
        return Ok(HostPattern::Any);
    }
    let (name, is_below) = match lower.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (lower.as_str(), false),
    };
    let is_v6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match (is_name, is_v6, is_below) {
        (true, _, true) => Ok(HostPattern::Below(name.to_owned())),
        (true, _, false) | (_, true, false) => Ok(HostPattern::Exact(name.to_owned())),
        _ => Err(Fault::at(
            &text.0,
            format!(
                "`{}` is no host: write example.org, *.example.org for all below it, or * for every \
                 host; without a port",
                **text
            ),
        )),
    }
}

fn prefix(text: &At<String>) -> Result<String, Fault> {
    let prefix = rewrite(text)?;
    // No request has a path that could be taken for another one, so that such a route would get none.
    if let Some(other) = readings(&prefix).find(|read| *read != prefix) {
        let message = format!(
            "`{prefix}` could be read as `{other}`: routes are matched with escapes undone where they need not \
             be, without empty segments, . and .., and have neither %2F, %5C, \\ nor ;"
        );
        return Err(Fault::at(&text.0, message));
    }
    Ok(prefix)
}

fn rewrite(text: &At<String>) -> Result<String, Fault> {
    if !is_path(text) || text.contains(['?', '#']) {
        let message = format!(
            "`{}` is no path; it begins with / and has no ?, #, spaces or control characters",
            **text
        );
        return Err(Fault::at(&text.0, message));
    }
    Ok((**text).clone())
}

/// Whether a text can be sent as a path, as it is.
pub(super) fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn header_edits(file: &HeaderEditsFile) -> Result<HeaderEdits, Fault> {
    let mut names = BTreeSet::new();
    let mut edits = HeaderEdits::default();
    for (name, value) in &file.set {
        edited(name, value, &mut names)?;
        if !is_value(value) {
            let message = format!("the value of `{name}` has a line's end or a control character");
            return Err(Fault::at(&value.0, message));
        }
        edits.set.push((name.clone(), value.trim().to_owned()));
    }
    for name in &file.remove {
        edited(name.as_str(), name, &mut names)?;
        if name.eq_ignore_ascii_case("host") {
            return Err(Fault::at(&name.0, "a request has to have a `Host`; set another one"));
        }
        edits.remove.push(name.to_ascii_lowercase());
    }
    Ok(edits)
}

/// Refuses a header that cannot be edited or is edited already.
fn edited<T>(name: &str, at: &At<T>, names: &mut BTreeSet<String>) -> Result<(), Fault> {
    header_name(name, at)?;
    let lower = name.to_ascii_lowercase();
    if OWN_HEADERS.contains(&lower.as_str()) {
        let message = format!("`{name}` is the gateway's own to say; leave it out");
        return Err(Fault::at(&at.0, message));
    }
    if !names.insert(lower) {
        return Err(Fault::at(&at.0, format!("`{name}` is here for the second time; leave one")));
    }
    Ok(())
}

/// Refuses what is no name of a header.
pub(super) fn header_name<T>(name: &str, at: &At<T>) -> Result<(), Fault> {
    if is_token(name) {
        return Ok(());
    }
    Err(Fault::at(&at.0, format!("`{name}` is no name of a header, such as X-Served-By")))
}

/// Whether it is a token (RFC 9110, 5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Whether it can be the value of a header (RFC 9110, 5.5), without bytes beyond ASCII.
fn is_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic())
}

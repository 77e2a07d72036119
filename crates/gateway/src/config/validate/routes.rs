//! Routes: hosts, paths, and their actions.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv6Addr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate_config::gateway::{
    BasicAuthFile, CompressionFile, ConfigFile, PerClientFile, RedirectFile, RequestTimeoutsFile,
    RespondFile, RouteFile, WhenFile,
};
use tollgate_config::{InvalidValue, Located, suggestion};
use tollgate_firewall::config::number;
use tollgate_http1::is_token;

use super::requests::{header_edits, headers};
use super::scalars::{duration, networks, path};
use crate::config::pool::{Pool, PoolId};
use crate::config::read;
use crate::config::route::{
    Action, ClientLimits, Compression, Conditions, FixedResponse, Guard, HeaderEdits, HostPattern,
    Pattern, Rate, Redirect, Route, ValueCondition,
};
use crate::config::template::Variable;
use crate::config::timeouts::Timeouts;
use crate::config::users::{BasicAuth, Users};
use crate::location::LocationRewrite;
use crate::path::other_reading;

/// Longest body of a fixed response. A client of HTTP/2 may ask for it on all of its streams.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Most requests that a limit per client may allow.
const PER_CLIENT_MAX: u32 = 1_000_000;

/// Without routes, the only pool receives all requests.
pub(super) fn routes(
    file: &ConfigFile,
    pools: &[Pool],
    timeouts: &Timeouts,
    folder: &Path,
) -> Result<Vec<Route>, InvalidValue> {
    let of_action = |action: &Action, route: Option<&RequestTimeoutsFile>| {
        let pool = match (action, &file.pools) {
            (Action::Forward(pool) | Action::Redirect(_, Some(pool)), Some(files)) => {
                files[pool.0].timeouts.as_ref()
            }
            _ => None,
        };
        let mut files = [pool, route].into_iter().flatten();
        let edited = files.try_fold(*timeouts, |timeouts, file| request_timeouts(file, &timeouts));
        edited.map(|timeouts| (pool.is_some() || route.is_some()).then_some(timeouts))
    };
    let Some(files) = file.routes.as_ref().filter(|files| !files.is_empty()) else {
        return match (pools, &file.pools) {
            ([_], _) => {
                let mut route = Route::all_to(PoolId(0));
                route.timeouts = of_action(&route.action, None)?;
                Ok(vec![route])
            }
            (_, Some(pool_files)) => Err(InvalidValue::at(
                pool_files,
                "several pools but no routes; add routes that name the pools",
            )),
            (_, None) => Err(InvalidValue::at(
                &file.listeners,
                "missing key `pools`, or `routes` that respond themselves",
            )),
        };
    };
    let mut tls = file.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let has_identities = tls.any(|tls| tls.client_ca.is_some());
    let mut routes: Vec<Route> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let mut route = route(file, pools, folder)?;
        let edits = [&route.request_headers, &route.response_headers];
        let uses = |variable| edits.iter().any(|edits| edits.uses_variable(variable));
        if !has_identities && Variable::OF_CERTIFICATE.into_iter().any(uses) {
            let message = "the variables of a client's certificate have no value, since no listener asks for one: set `client_ca` in its `tls`, or remove them";
            return Err(InvalidValue::at(file, message));
        }
        route.timeouts = of_action(&route.action, file.timeouts.as_ref())?;
        let is_same = |other: &Route| place(other) == place(&route) && other.when == route.when;
        if let Some(first) = routes.iter().position(is_same) {
            return Err(InvalidValue::at(
                file,
                format!(
                    "duplicate route: the one in line {} has the same host and path; remove one of them, or add `when`",
                    files[first].line()
                ),
            ));
        }
        routes.push(route);
    }
    let is_alone = |route: &Route| {
        !routes.iter().any(|other| place(other) == place(route) && other.when.is_none())
    };
    for (file, route) in files.iter().zip(&routes) {
        if let Some(when) = file.when.as_ref().filter(|_| is_alone(route)) {
            let message =
                "no route has the other requests of this host and path; add one without `when`";
            return Err(InvalidValue::at(when, message));
        }
    }
    Ok(routes)
}

/// The requests of a route but for their conditions.
fn place(route: &Route) -> (&HostPattern, &str) {
    (&route.host, &route.path_prefix)
}

fn conditions(file: &Located<WhenFile>) -> Result<Conditions, InvalidValue> {
    let methods = file.methods.as_ref();
    if let Some(at) =
        methods.filter(|methods| !methods.iter().all(|name| is_token(name.as_bytes())))
    {
        return Err(InvalidValue::at(at, "a method is a word such as GET"));
    }
    let condition = |(name, value): (&String, &Located<String>)| {
        if !is_token(name.as_bytes()) {
            return Err(InvalidValue::at(value, format!("`{name}` is not the name of a header")));
        }
        let condition = match (value.as_str(), value.strip_prefix('~')) {
            ("*", _) => ValueCondition::Any,
            (_, Some(pattern)) => {
                ValueCondition::Matches(Pattern::new(pattern).map_err(|source| {
                    let message = format!("`{pattern}` is not a regular expression");
                    InvalidValue::at(value, message).with_source(source)
                })?)
            }
            (text, None) => ValueCondition::Is(text.to_owned()),
        };
        Ok((name.clone(), condition))
    };
    let headers = file.headers.iter().flatten().map(condition);
    let conditions = Conditions {
        methods: methods.map_or_else(Vec::new, |methods| methods.to_vec()),
        headers: headers.collect::<Result<_, _>>()?,
    };
    if conditions.methods.is_empty() && conditions.headers.is_empty() {
        return Err(InvalidValue::at(file, "missing key `methods` or `headers`"));
    }
    Ok(conditions)
}

fn route(file: &Located<RouteFile>, pools: &[Pool], folder: &Path) -> Result<Route, InvalidValue> {
    let edits = |file: &Option<_>| file.as_ref().map_or(Ok(HeaderEdits::default()), header_edits);
    let host = file.host.as_ref().map_or(Ok(HostPattern::Any), host)?;
    let pool = file.pool.as_ref().map(|name| pool(name, pools)).transpose()?;
    let route = Route {
        action: action(file, &host, pool)?,
        host,
        path_prefix: file.path.as_ref().map_or(Ok("/".to_owned()), path_prefix)?,
        when: file.when.as_ref().map(conditions).transpose()?.map(Box::new),
        rewrite: file.rewrite.as_ref().map(|text| path(text, "?#")).transpose()?,
        request_headers: edits(&file.request_headers)?,
        response_headers: edits(&file.response_headers)?,
        guard: None,
        location: None,
        compression: file.compression.as_ref().map(compression).transpose()?.map(Box::new),
        is_logged: file.access_log.unwrap_or(true),
        timeouts: None,
        waf: None,
        verdicts: None,
    };
    let location = location(file, &route, pool.map(|pool| &pools[pool.0]))?;
    let route = Route { guard: guard(file, &route, folder)?, location, ..route };
    let edits = [&route.request_headers, &route.response_headers];
    let uses_user = edits.iter().any(|edits| edits.uses_variable(Variable::User));
    if uses_user && route.basic_auth().is_none() {
        let message = "`${user}` has no value without `basic_auth`; add it, or remove the variable";
        return Err(InvalidValue::at(file, message));
    }
    if pool.is_none() && file.request_headers.is_some() {
        let message = "`request_headers` has no effect without `pool`; remove it";
        return Err(InvalidValue::at(file, message));
    }
    if let (None, Some(compression)) = (pool, &file.compression) {
        let message = "`compression` has no effect without `pool`; remove it";
        return Err(InvalidValue::at(compression, message));
    }
    Ok(route)
}

fn location(
    file: &RouteFile,
    route: &Route,
    pool: Option<&Pool>,
) -> Result<Option<Box<LocationRewrite>>, InvalidValue> {
    let Some(rewrites) = file.rewrite_location.as_ref().filter(|rewrites| ***rewrites) else {
        return Ok(None);
    };
    let Some(pool) = pool else {
        let message = "`rewrite_location` has no effect without `pool`; remove it";
        return Err(InvalidValue::at(rewrites, message));
    };
    let prefixes = route.rewrite.clone().map(|rewrite| (rewrite, route.path_prefix.clone()));
    Ok(Some(Box::new(LocationRewrite { authorities: pool.authorities(), prefixes })))
}

fn compression(file: &Located<CompressionFile>) -> Result<Compression, InvalidValue> {
    let default = Compression::default();
    if let Some(codings) = file.codings.as_ref().filter(|codings| codings.is_empty()) {
        return Err(InvalidValue::at(codings, "no coding; name some, or remove `compression`"));
    }
    let kind = |text: &Located<String>| {
        let is_type = text.split_once('/').is_some_and(|(kind, subtype)| {
            [kind, subtype].iter().all(|part| is_token(part.as_bytes()) && !part.contains('*'))
        });
        if !is_type {
            let message = format!("`{}` is not a type such as text/html", **text);
            return Err(InvalidValue::at(text, message));
        }
        let type_name = text.to_ascii_lowercase();
        if type_name == "text/event-stream" || type_name.starts_with("application/grpc") {
            let message = format!("streams of `{type_name}` are not compressed; remove it");
            return Err(InvalidValue::at(text, message));
        }
        Ok(type_name)
    };
    let types = file.types.as_ref().map(|types| types.iter().map(kind).collect());
    Ok(Compression {
        codings: file.codings.as_ref().map_or(default.codings, |codings| codings.to_vec()),
        types: types.transpose()?.unwrap_or(default.types),
        bytes_min: file.bytes_min.unwrap_or(default.bytes_min),
    })
}

/// The addresses and limits of the clients of a route.
fn guard(
    file: &RouteFile,
    route: &Route,
    folder: &Path,
) -> Result<Option<Box<Guard>>, InvalidValue> {
    let guard = Guard {
        allow: file.allow.as_deref().map(networks).transpose()?,
        deny: networks(file.deny.as_deref().unwrap_or_default())?,
        per_client: file
            .per_client
            .as_ref()
            .map(|limits| client_limits(limits, route))
            .transpose()?,
        basic_auth: file.basic_auth.as_ref().map(|file| basic_auth(file, folder)).transpose()?,
    };
    Ok((guard != Guard::default()).then(|| Box::new(guard)))
}

fn basic_auth(file: &BasicAuthFile, folder: &Path) -> Result<BasicAuth, InvalidValue> {
    let realm = file.realm.as_ref();
    let is_shown = |byte: u8| byte == b' ' || byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
    if let Some(text) = realm.filter(|realm| !realm.bytes().all(is_shown)) {
        let message = "`realm` must be ASCII without quotes, backslashes and control characters";
        return Err(InvalidValue::at(text, message));
    }
    let path = folder.join(&*file.users);
    let text = read::text(&path).map_err(|source| {
        let message = format!("cannot read the users `{}`", path.display());
        InvalidValue::at(&file.users, message).with_source(source)
    })?;
    let users = Users::parse(&text)
        .map_err(|error| InvalidValue::at(&file.users, format!("`{}`: {error}", path.display())))?;
    let realm = realm.map_or_else(|| "restricted".to_owned(), |realm| realm.to_string());
    Ok(BasicAuth { realm, users: Arc::new(users) })
}

fn client_limits(
    file: &Located<PerClientFile>,
    route: &Route,
) -> Result<ClientLimits, InvalidValue> {
    let count = |count: &Located<u32>| number(count, 1, Some(PER_CLIENT_MAX), 1);
    let requests = file.requests.as_ref().map(count).transpose()?;
    let burst = file.burst.as_ref().map(count).transpose()?;
    let concurrent = file.concurrent.as_ref().map(count).transpose()?;
    let per = duration(&file.per, Duration::from_secs(1))?;
    if requests.is_none() && (burst.is_some() || file.per.is_some()) {
        return Err(InvalidValue::at(file, "`per` and `burst` have no effect without `requests`"));
    }
    if requests.is_none() && concurrent.is_none() {
        return Err(InvalidValue::at(file, "missing key `requests` or `concurrent`"));
    }
    let rate = requests.and_then(|requests| {
        let burst = NonZeroU32::new(burst.unwrap_or(requests))?;
        Some(Rate { interval: per / requests, burst })
    });
    let mut hasher = DefaultHasher::new();
    place(route).hash(&mut hasher);
    route.when.hash(&mut hasher);
    Ok(ClientLimits { id: hasher.finish(), rate, concurrent: concurrent.and_then(NonZeroU32::new) })
}

fn pool(name: &Located<String>, pools: &[Pool]) -> Result<PoolId, InvalidValue> {
    let at = pools.iter().position(|pool| pool.name == **name);
    at.map(PoolId).ok_or_else(|| {
        let hint = suggestion(name, pools.iter().map(|pool| pool.name.as_str()));
        InvalidValue::at(name, format!("unknown pool `{}`{hint}", **name))
    })
}

fn action(
    file: &Located<RouteFile>,
    host: &HostPattern,
    pool: Option<PoolId>,
) -> Result<Action, InvalidValue> {
    match (&file.respond, &file.redirect, pool) {
        (None, None, Some(pool)) => Ok(Action::Forward(pool)),
        (None, Some(redirect), pool) => {
            Ok(Action::Redirect(self::redirect(redirect, file, host)?, pool))
        }
        (Some(respond), None, None) if file.rewrite.is_some() => {
            Err(InvalidValue::at(respond, "`rewrite` has no effect with `respond`; remove it"))
        }
        (Some(respond), None, None) => Ok(Action::Respond(fixed_response(respond)?)),
        (Some(respond), ..) => Err(InvalidValue::at(
            respond,
            "`respond` answers every request of the route; remove it, or `pool` and `redirect`",
        )),
        (None, None, None) => {
            Err(InvalidValue::at(file, "missing key `pool`, or `respond` or `redirect`"))
        }
    }
}

fn fixed_response(file: &Located<RespondFile>) -> Result<FixedResponse, InvalidValue> {
    let status = number(&file.status, 200, Some(599), 200)?;
    let body = file.body.as_ref().map_or(&[][..], |body| body.as_bytes());
    if let Some(text) = file.body.as_ref().filter(|text| text.len() > BODY_BYTES_MAX) {
        let message = "the body is longer than 64 KiB; serve it from a backend";
        return Err(InvalidValue::at(text, message));
    }
    // RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5.
    if status == 304 || (matches!(status, 204 | 205) && !body.is_empty()) {
        let message = format!(
            "a response with status {status} has no body of its own; choose another status"
        );
        return Err(InvalidValue::at(&file.status, message));
    }
    let mut headers = headers(file.headers.as_ref(), &mut BTreeSet::new())?;
    let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if !body.is_empty() && !has_type {
        headers.push(("Content-Type".to_owned(), "text/plain; charset=utf-8".to_owned()));
    }
    Ok(FixedResponse { status, headers, body: body.into() })
}

fn redirect(
    file: &Located<RedirectFile>,
    route: &RouteFile,
    host_of_route: &HostPattern,
) -> Result<Redirect, InvalidValue> {
    let status = number(&file.status, 300, Some(399), Redirect::DEFAULT_STATUS)?;
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        let message = format!("{status} is not a redirect: expected 301, 302, 303, 307 or 308");
        return Err(file.status.as_ref().map_or_else(
            || InvalidValue::at(file, message.as_str()),
            |status| InvalidValue::at(status, message.as_str()),
        ));
    }
    let name = file.host.as_ref().map(|text| match host(text)? {
        HostPattern::Exact(name) => Ok(name),
        HostPattern::Any | HostPattern::Below(_) => {
            Err(InvalidValue::at(text, format!("`{}` is not one host such as example.org", **text)))
        }
    });
    let redirect = Redirect {
        status,
        scheme: file.scheme,
        host: name.transpose()?,
        port: file.port.as_ref().map(|port| number(port, 1, None, 1)).transpose()?,
        path: file.path.as_ref().map(target).transpose()?,
    };
    if redirect.is_absolute() && redirect.host.is_none() && *host_of_route == HostPattern::Any {
        let message = "clients can send any `Host`, and would be redirected there; add `host` to the route, or to \
                       the redirect";
        return Err(InvalidValue::at(file, message));
    }
    match (&file.path, &route.rewrite) {
        (Some(path), Some(_)) => Err(InvalidValue::at(
            path,
            "`path` replaces what `rewrite` changes; remove one of them",
        )),
        (None, None) if !redirect.is_absolute() => Err(InvalidValue::at(
            file,
            "the redirect changes nothing; add `scheme`, `host`, `port` or `path`, or `rewrite` to the route",
        )),
        _ => Ok(redirect),
    }
}

/// A path, with or without a query, that no client takes for a URL with a host.
fn target(text: &Located<String>) -> Result<String, InvalidValue> {
    let path = path(text, "#\\")?;
    if path.starts_with("//") {
        let message =
            format!("clients take `{path}` for a URL with a host; write `host`, or one /");
        return Err(InvalidValue::at(text, message));
    }
    Ok(path)
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

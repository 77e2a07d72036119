//! Validates the configuration of `tollgate waf serve`: a gateway whose listeners give verdicts.

use std::path::Path;
use std::sync::Arc;

use tollgate_http1::{MAX_HEAD_BYTES, MAX_HEADERS};

use super::resources::Resources;
use super::scalars::check_header_name;
use super::tls::listener_tls;
use super::waf::{RuleCache, audit_log};
use super::{
    Validated, access_log, admin, limits, listener_address, threads, timeouts, with_resources,
};
use crate::config::error::InvalidValue;
use crate::config::file::{DescriptionFile, ServeFile, ServeListenerFile, WafFile};
use crate::config::located::Located;
use crate::config::pool::PoolId;
use crate::config::route::{Action, FixedResponse, Forwarded, Requests, Route, RouteId};
use crate::config::serve::{AskingProxy, Description, ForwardAuth, Service, Verdicts};
use crate::config::settings::{Config, Limits, Listener};
use crate::config::timeouts::Timeouts;
use crate::config::waf::{Block, Waf};
use crate::resolve::Resolve;

/// Validates a file. Relative paths are resolved against `folder`.
pub(in crate::config) fn validate(file: &ServeFile, folder: &Path) -> Validated {
    with_resources(Resolve::default(), folder, |resources| validate_values(file, resources))
}

fn validate_values(
    file: &ServeFile,
    resources: &mut Resources<'_>,
) -> Result<Config, InvalidValue> {
    let folder = resources.folder;
    if file.listeners.is_empty() {
        let message = "`listeners` is empty; add at least one address";
        return Err(InvalidValue::at(&file.listeners, message));
    }
    let threads = threads(file.threads.as_ref())?;
    let mut rules = RuleCache::default();
    let (mut listeners, mut routes) = (Vec::new(), Vec::new());
    for listener in file.listeners.iter() {
        let route = RouteId(routes.len());
        listeners.push(self::listener(listener, route, file, &listeners, resources)?);
        let waf = waf(listener, file, &mut rules, folder);
        let waf = resources.collect(waf).flatten();
        routes.push(Route { action: Action::Respond(passed()), waf, ..Route::all_to(PoolId(0)) });
    }
    resources.warnings.append(&mut rules.warnings);
    let defaults =
        Limits { header_bytes: MAX_HEAD_BYTES, headers: MAX_HEADERS, ..Limits::default() };
    Ok(Config {
        admin: file.admin.as_ref().map(|text| admin(text, &listeners)).transpose()?,
        listeners,
        routes,
        pools: Vec::new(),
        resolve: Resolve::default(),
        timeouts: file.timeouts.as_ref().map_or(Ok(Timeouts::default()), timeouts)?,
        limits: limits(file.limits.as_ref(), defaults, threads)?,
        // Nothing is forwarded. A proxy may end its side of a connection with its request.
        requests: Requests { upgrades: Vec::new(), half_close: true, ..Requests::default() },
        forwarded: Forwarded::default(),
        access_log: file.access_log.as_ref().map(|log| access_log(log, folder)).transpose()?,
        audit_log: file.audit_log.as_ref().map(|log| audit_log(log, folder)).transpose()?,
        threads,
        warnings: Vec::new(),
    })
}

/// The response to a request that may pass.
fn passed() -> FixedResponse {
    FixedResponse { status: 200, headers: Vec::new(), body: Arc::default() }
}

fn listener(
    file: &Located<ServeListenerFile>,
    route: RouteId,
    all: &ServeFile,
    others: &[Listener],
    resources: &mut Resources<'_>,
) -> Result<Listener, InvalidValue> {
    let text = address_text(file)?;
    // Each of the others was validated.
    let text_of = |first: usize| all.listeners[first].forward_auth.as_ref().unwrap_or(text);
    let mut listener = Listener::new(listener_address(text, others, resources, text_of)?);
    listener.http2 = true;
    listener.tls = file.tls.as_ref().and_then(|tls| listener_tls(tls, true, resources));
    let description = Arc::new(Description::ForwardAuth(forward_auth(file)?));
    listener.service = Service::Verdicts(Verdicts { route, description });
    if let Some(proxy) = &file.proxy {
        resources.warnings.push(InvalidValue::at(proxy, proxy.gap()));
    }
    Ok(listener)
}

fn address_text(file: &Located<ServeListenerFile>) -> Result<&Located<String>, InvalidValue> {
    let missing = || InvalidValue::at(file, "missing key `forward-auth` with the address");
    file.forward_auth.as_ref().ok_or_else(missing)
}

fn forward_auth(file: &Located<ServeListenerFile>) -> Result<ForwardAuth, InvalidValue> {
    let own = ForwardAuth { method: None, uri: None, host: None, client: None };
    let mut names = match (&file.proxy, &file.headers) {
        (Some(proxy), _) => proxy.headers(),
        (None, Some(_)) => own,
        (None, None) => {
            let message = "missing key `proxy` (nginx, traefik, caddy or envoy), or `headers` that describe the request";
            return Err(InvalidValue::at(file, message));
        }
    };
    if let Some(DescriptionFile { method, uri, host, client }) = &file.headers {
        for (name, given) in [
            (&mut names.method, method),
            (&mut names.uri, uri),
            (&mut names.host, host),
            (&mut names.client, client),
        ] {
            let Some(given) = given else { continue };
            check_header_name(given, given)?;
            *name = Some(given.to_ascii_lowercase());
        }
    }
    Ok(names)
}

/// The firewall of a listener. `None`: the mode is `off`.
fn waf(
    listener: &Located<ServeListenerFile>,
    file: &ServeFile,
    rules: &mut RuleCache,
    folder: &Path,
) -> Result<Option<Arc<Waf>>, InvalidValue> {
    if file.waf.is_none() && listener.waf.is_none() {
        return Err(InvalidValue::at(listener, "missing key `waf` with the rules"));
    }
    let has_response_body = |waf: &&Located<WafFile>| waf.response_body.is_some();
    if let Some(waf) = [&listener.waf, &file.waf].into_iter().flatten().find(has_response_body) {
        let message =
            "`response_body` has no effect, as proxies ask about requests only; remove it";
        return Err(InvalidValue::at(waf, message));
    }
    let waf = rules.waf(listener.waf.as_ref(), file.waf.as_ref(), folder)?;
    let (Some(waf), Some(proxy)) = (&waf, &listener.proxy) else { return Ok(waf) };
    if **proxy != AskingProxy::Nginx {
        return Ok(Some(Arc::clone(waf)));
    }
    let status = waf.block.status.unwrap_or(403);
    if !matches!(status, 401 | 403) {
        let message = format!(
            "nginx takes 401 and 403 from `auth_request`, and fails with 500 otherwise; change `block.status`, which is {status}"
        );
        return Err(InvalidValue::at(proxy, message));
    }
    let block = Block { status: Some(status), keeps_status: true, ..waf.block.clone() };
    Ok(Some(Arc::new(Waf { block, ..Waf::clone(waf) })))
}

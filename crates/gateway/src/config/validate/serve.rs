//! Validates the configuration of `tollgate waf serve`: a gateway whose listeners give verdicts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate_config::serve::{
    AskingProxy, DescriptionFile, LateFile, ResponsesFile, ServeFile, ServeListenerFile,
};
use tollgate_config::waf::WafFile;
use tollgate_config::{InvalidValue, Located};
use tollgate_firewall::config::{RuleCache, check_header_name, number};
use tollgate_firewall::{Block, Waf};
use tollgate_http1::{MAX_HEAD_BYTES, MAX_HEADERS};

use super::appsec::{self, Answers, AppSec};
use super::local_api::local_api;
use super::resources::Resources;
use super::scalars::duration;
use super::tls::listener_tls;
use super::{
    Validated, access_log, admin, audit_log, limits, listener_address, threads, timeouts,
    with_resources,
};
use crate::config::pool::PoolId;
use crate::config::route::{
    Action, FixedResponse, Forwarded, Requests, Route, RouteId, VerdictRules,
};
use crate::config::serve::{Description, ExpectedResponses, ForwardAuth, Service, Spoe, Verdicts};
use crate::config::settings::{Config, Limits, Listener};
use crate::config::timeouts::Timeouts;
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
    let timeouts = file.timeouts.as_ref().map_or(Ok(Timeouts::default()), timeouts)?;
    let has_local_api = file.local_api.is_some();
    let local_api = file.local_api.as_ref().and_then(|file| {
        let found = local_api(file, folder);
        resources.collect(found)
    });
    let mut rules = RuleCache::default();
    let (mut listeners, mut texts, mut routes) = (Vec::new(), Vec::new(), Vec::new());
    for listener in file.listeners.iter() {
        let kind = Kind::of(listener)?;
        let route = RouteId(routes.len());
        let applications = applications(listener, route)?;
        let text_of = |first: usize| texts[first];
        let address = listener_address(kind.address(), &listeners, resources, text_of)?;
        texts.push(kind.address());
        let service = match applications {
            Some((applications, default)) => {
                let responses = listener.responses.as_ref().map(expected_responses).transpose()?;
                Service::Spoe(Spoe { route, applications, default, responses })
            }
            None => kind.service(route, has_local_api, folder)?,
        };
        let http2 = matches!(service, Service::Verdicts(_));
        let tls = match &listener.tls {
            Some(tls) => listener_tls(tls, http2, None, resources)?,
            None => None,
        };
        listeners.push(Listener { tls, http2, service, ..Listener::new(address) });
        resources.warnings.extend(kind.gap());
        let wafs: Vec<_> = match &listener.applications {
            Some(applications) => applications.values().map(Some).collect(),
            None => vec![None],
        };
        for waf in wafs {
            let found = self::route(&kind, waf, file, &timeouts, &mut rules, folder);
            // Without its rules, the configuration is an error.
            routes.push(resources.collect(found).unwrap_or_else(|| Route::all_to(PoolId(0))));
        }
    }
    resources.warnings.append(&mut rules.warnings);
    let defaults =
        Limits { header_bytes: MAX_HEAD_BYTES, headers: MAX_HEADERS, ..Limits::default() };
    Ok(Config {
        acme: None,
        admin: file.admin.as_ref().map(|text| admin(text, &listeners)).transpose()?,
        listeners,
        routes,
        pools: Vec::new(),
        local_api,
        resolve: Resolve::default(),
        timeouts,
        limits: limits(file.limits.as_ref(), defaults, threads)?,
        // Nothing is forwarded. A proxy may end its side of a connection with its request.
        requests: Requests { upgrades: Vec::new(), half_close: true, ..Requests::default() },
        forwarded: Forwarded::default(),
        error_pages: BTreeMap::new(),
        access_log: file.access_log.as_ref().map(|log| access_log(log, folder)).transpose()?,
        audit_log: file.audit_log.as_ref().map(|log| audit_log(log, folder)).transpose()?,
        threads,
        warnings: Vec::new(),
    })
}

/// A listener by its protocol.
struct Kind<'a> {
    file: &'a Located<ServeListenerFile>,
    protocol: Protocol<'a>,
}

#[derive(Clone, Copy)]
enum Protocol<'a> {
    ForwardAuth(&'a Located<String>),
    AppSec(&'a Located<String>),
    Spoe(&'a Located<String>),
}

impl<'a> Kind<'a> {
    /// Keys of another protocol are errors.
    fn of(file: &'a Located<ServeListenerFile>) -> Result<Self, InvalidValue> {
        let protocol = match (&file.forward_auth, &file.appsec, &file.spoe) {
            (Some(address), None, None) => Protocol::ForwardAuth(address),
            (None, Some(address), None) => Protocol::AppSec(address),
            (None, None, Some(address)) => Protocol::Spoe(address),
            _ => {
                let message = "a listener has the address of one protocol: `forward-auth`, `appsec` or `spoe`";
                return Err(InvalidValue::at(file, message));
            }
        };
        let is_forward_auth = matches!(protocol, Protocol::ForwardAuth(_));
        let is_appsec = matches!(protocol, Protocol::AppSec(_));
        let is_spoe = matches!(protocol, Protocol::Spoe(_));
        let has_block = file.waf.as_ref().is_some_and(|waf| waf.block.is_some());
        let foreign = [
            ("proxy", file.proxy.is_some() && !is_forward_auth),
            ("headers", file.headers.is_some() && !is_forward_auth),
            ("keys", file.keys.is_some() && !is_appsec),
            ("key-file", file.key_file.is_some() && !is_appsec),
            ("body-time", file.body_time.is_some() && !is_appsec),
            ("appsec-configs", file.appsec_configs.is_some() && !is_appsec),
            ("appsec-rules", file.appsec_rules.is_some() && !is_appsec),
            ("responses", file.responses.is_some() && !is_spoe),
            ("applications", file.applications.is_some() && !is_spoe),
            ("default-application", file.default_application.is_some() && !is_spoe),
            ("waf.block", has_block && is_appsec),
        ];
        if let Some((name, _)) = foreign.iter().find(|(_, is_given)| *is_given) {
            let message = format!("`{name}` has no effect with this protocol; remove it");
            return Err(InvalidValue::at(file, message));
        }
        Ok(Self { file, protocol })
    }

    fn address(&self) -> &'a Located<String> {
        let (Protocol::ForwardAuth(address) | Protocol::AppSec(address) | Protocol::Spoe(address)) =
            self.protocol;
        address
    }

    fn service(
        &self,
        route: RouteId,
        has_local_api: bool,
        folder: &Path,
    ) -> Result<Service, InvalidValue> {
        let description = match self.protocol {
            Protocol::ForwardAuth(_) => Description::ForwardAuth(forward_auth(self.file)?),
            Protocol::AppSec(_) => {
                Description::AppSec(appsec::keys(self.file, has_local_api, folder)?)
            }
            Protocol::Spoe(_) => {
                let responses = self.file.responses.as_ref().map(expected_responses).transpose()?;
                let (applications, default) = (Arc::default(), Some(route));
                return Ok(Service::Spoe(Spoe { route, applications, default, responses }));
            }
        };
        Ok(Service::Verdicts(Verdicts { route, description: Arc::new(description) }))
    }

    /// A part of requests that is not inspected.
    fn gap(&self) -> Option<InvalidValue> {
        self.file.proxy.as_ref().map(|proxy| InvalidValue::at(proxy, gap(**proxy)))
    }

    /// The response to a request that may pass, and the one to a blocked request, where the keys of `waf` have `block`.
    fn answers(
        &self,
        appsec: &AppSec,
        block: &Block,
    ) -> Result<(FixedResponse, Block), InvalidValue> {
        if let Protocol::AppSec(_) = self.protocol {
            let Answers { passed, blocked } = appsec.answers(self.file)?;
            let (status, page) = (Some(blocked.status), Some(blocked.body));
            let media_type = Some(appsec::MEDIA_TYPE);
            return Ok((passed, Block { status, page, media_type, is_fixed: true }));
        }
        // With SPOE, the one to a request that may pass is the acknowledgement without an action.
        let passed = FixedResponse { status: 200, headers: Vec::new(), body: Arc::default() };
        let Some(proxy) = self.file.proxy.as_ref().filter(|proxy| ***proxy == AskingProxy::Nginx)
        else {
            return Ok((passed, block.clone()));
        };
        let status = block.status.unwrap_or(403);
        if !matches!(status, 401 | 403) {
            let message = format!(
                "nginx takes 401 and 403 from `auth_request`, and fails with 500 otherwise; change `block.status`, which is {status}"
            );
            return Err(InvalidValue::at(proxy, message));
        }
        Ok((passed, Block { status: Some(status), is_fixed: true, ..block.clone() }))
    }
}

/// Bodies that CrowdSec inspects.
const APPSEC_BODY_BYTES: usize = 10 << 20;
const APPSEC_BODY_TIME: Duration = Duration::from_secs(1);
/// Below the 500 ms that CrowdSec's bouncer for nginx waits.
const BUDGET: Duration = Duration::from_millis(400);

fn expected_responses(file: &ResponsesFile) -> Result<ExpectedResponses, InvalidValue> {
    Ok(ExpectedResponses {
        timeout: duration(&file.timeout, Duration::from_secs(60))?,
        max: number(&file.max, 1, None, 1000)?,
    })
}

fn forward_auth(file: &Located<ServeListenerFile>) -> Result<ForwardAuth, InvalidValue> {
    let own = ForwardAuth { method: None, uri: None, host: None, client: None };
    let mut names = match (&file.proxy, &file.headers) {
        (Some(proxy), _) => ForwardAuth::of(**proxy),
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

/// Routes of applications by name.
type Applications = Arc<[(String, RouteId)]>;

/// The applications of a listener, if it has any, whose routes begin with `first`, and the default.
fn applications(
    listener: &Located<ServeListenerFile>,
    first: RouteId,
) -> Result<Option<(Applications, Option<RouteId>)>, InvalidValue> {
    let default = listener.default_application.as_ref();
    let Some(files) = &listener.applications else {
        return default.map_or(Ok(None), |default| {
            let message = "`default-application` has no effect without `applications`; remove it";
            Err(InvalidValue::at(default, message))
        });
    };
    let is_name = |name: &String| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        !name.is_empty() && name.bytes().all(is_allowed)
    };
    if let Some(name) = files.keys().find(|name| !is_name(name)) {
        let message = format!(
            "`{name}` is not the name of an application: letters, digits, underscores, hyphens and dots"
        );
        return Err(InvalidValue::at(files, message));
    }
    if files.is_empty() {
        let message = "`applications` is empty; remove it, or add the name of one";
        return Err(InvalidValue::at(files, message));
    }
    let routes = (first.0..).map(RouteId);
    let applications: Applications = files.keys().cloned().zip(routes).collect();
    let of_default = |default: &Located<String>| {
        let mut all = applications.iter();
        let found = all.find(|(name, _)| *name == **default).map(|(_, route)| *route);
        found.ok_or_else(|| {
            InvalidValue::at(default, format!("`{}` is not one of `applications`", **default))
        })
    };
    let default = default.map(of_default).transpose()?;
    Ok(Some((applications, default)))
}

/// The route of a listener or, with its keys `waf`, of one of its applications, with its firewall.
fn route(
    kind: &Kind<'_>,
    application: Option<&Located<WafFile>>,
    file: &ServeFile,
    timeouts: &Timeouts,
    rules: &mut RuleCache,
    folder: &Path,
) -> Result<Route, InvalidValue> {
    let listener = kind.file;
    let appsec = AppSec::read(listener, folder)?;
    if let Some(waf) =
        listener.waf.as_ref().filter(|waf| waf.rules.is_some() && appsec.waf.is_some())
    {
        let message =
            "`rules` has no effect with `appsec-configs`, which name the rules; remove it";
        return Err(InvalidValue::at(waf, message));
    }
    let layers = [application, listener.waf.as_ref(), appsec.waf.as_ref(), file.waf.as_ref()];
    if layers.iter().all(Option::is_none) {
        return Err(InvalidValue::at(listener, "missing key `waf` with the rules"));
    }
    let has_response_body = |waf: &&Located<WafFile>| waf.response_body.is_some();
    let has_none = listener.responses.is_none();
    let [own, of_application] =
        [listener.waf.as_ref(), application].map(|waf| waf.filter(|_| has_none));
    let is_without = |other: &Located<ServeListenerFile>| other.responses.is_none();
    let of_all = file.waf.as_ref().filter(|_| file.listeners.iter().all(is_without));
    if let Some(waf) = [own, of_application, of_all].into_iter().flatten().find(has_response_body) {
        let message = "`response_body` has no effect: proxies ask about requests only, but for HAProxy's SPOE with \
             `responses`; remove it";
        return Err(InvalidValue::at(waf, message));
    }
    let is_appsec = matches!(kind.protocol, Protocol::AppSec(_));
    let defaults = if is_appsec {
        format!(
            "SecRequestBodyLimit {APPSEC_BODY_BYTES}\nSecRequestBodyNoFilesLimit {APPSEC_BODY_BYTES}\n"
        )
    } else {
        String::new()
    };
    let waf = rules.waf(&layers, &defaults, folder)?;
    let layers = [appsec.out_of_band.as_ref(), listener.waf.as_ref(), file.waf.as_ref()];
    let runs_later = waf.is_some() && appsec.out_of_band.is_some();
    let out_of_band = runs_later.then(|| rules.waf(&layers, &defaults, folder)).transpose()?;
    let of_waf = waf.as_ref().map_or_else(Block::default, |waf| waf.block.clone());
    let (passed, block) = kind.answers(&appsec, &of_waf)?;
    let waf = waf.map(|waf| Arc::new(Waf { block: block.clone(), ..Waf::clone(&waf) }));
    let passes_late = listener.late == Some(LateFile::Pass);
    let late = if passes_late { passed.clone() } else { FixedResponse::to_blocked(&block, 403) };
    let body_time = duration(&listener.body_time, APPSEC_BODY_TIME)?;
    let verdicts = VerdictRules {
        body_time: is_appsec.then_some(body_time),
        late,
        passes_late,
        out_of_band: out_of_band.flatten(),
    };
    // A deadline is noticed up to a quarter late.
    let response = duration(&listener.budget, BUDGET)? * 4 / 5;
    Ok(Route {
        action: Action::Respond(passed),
        timeouts: Some(Timeouts { response, ..*timeouts }),
        waf,
        location: None,
        compression: None,
        verdicts: Some(verdicts),
        ..Route::all_to(PoolId(0))
    })
}

/// Returns the part of a request that a proxy does not send.
fn gap(proxy: AskingProxy) -> &'static str {
    match proxy {
        AskingProxy::Nginx => "nginx sends no bodies with `auth_request`: attacks in bodies pass",
        AskingProxy::Caddy => "Caddy sends no bodies with `forward_auth`: attacks in bodies pass",
        AskingProxy::Traefik => {
            "Traefik sends bodies only with `forwardBody: true`: without it, attacks in bodies pass"
        }
        AskingProxy::Envoy => {
            "Envoy sends bodies only with `with_request_body`: without it, attacks in bodies pass"
        }
    }
}

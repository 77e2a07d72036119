//! The configuration of `tollgate waf serve` as written. [`AskingProxy`] is a validated value, too.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::gateway::{AccessLogFile, AuditLogFile, LimitsFile, TimeoutsFile, TlsFile};
use crate::located::{HumanDuration, Located};
use crate::waf::WafFile;

/// Configuration of `tollgate waf serve`. The keys besides `listeners` are those of `tollgate gateway`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tollgate waf serve")]
pub struct ServeFile {
    /// Threads that serve requests, from 1 to 256. Default: 1.
    pub threads: Option<Located<u16>>,
    /// Addresses on which proxies ask for verdicts.
    pub listeners: Located<Vec<Located<ServeListenerFile>>>,
    /// Timeouts for the proxies.
    pub timeouts: Option<TimeoutsFile>,
    /// Limits on requests and connections. The default of `header_bytes` is 65536, that of `headers` 256.
    pub limits: Option<LimitsFile>,
    /// Access log, of the requests of the proxies. Default: none.
    pub access_log: Option<AccessLogFile>,
    /// Rules for the described requests.
    pub waf: Option<Located<WafFile>>,
    /// Log of the firewall. Default: none.
    pub audit_log: Option<AuditLogFile>,
    /// CrowdSec's local API. Default: none.
    pub local_api: Option<Located<LocalApiFile>>,
    /// Address and port of `/metrics` and `/healthz`. Default: none.
    pub admin: Option<Located<String>>,
}

/// CrowdSec's local API: keys of bouncers that are not among those of a listener are checked with it, and with `credentials` it gets an alert
/// for each request that a rule blocks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "local API")]
pub struct LocalApiFile {
    /// Its URL, such as `http://127.0.0.1:8080`, or the path of its Unix socket. Default: that of `credentials`.
    pub url: Option<Located<String>>,
    /// File with `url`, `login` and `password`, such as `/etc/crowdsec/local_api_credentials.yaml`. Default: no alerts are sent.
    pub credentials: Option<Located<String>>,
    /// File with the certificates of authorities that are trusted. Default: that of `credentials` (`ca_cert_path`), else those of the
    /// system.
    pub ca: Option<Located<String>>,
    /// Time for the check of a key, while the request of a bouncer with an unknown key waits. Default: 200ms.
    pub timeout: Option<Located<HumanDuration>>,
}

/// An address on which proxies ask for verdicts. Anyone who reaches it can have requests inspected: bind it to loopback, a Unix
/// socket or a private network.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "serve listener")]
pub struct ServeListenerFile {
    /// Address for the bouncers of CrowdSec, as of its AppSec component.
    pub appsec: Option<Located<String>>,
    /// Keys of the bouncers. Necessary without `key-file` and `local_api`.
    pub keys: Option<Located<Vec<String>>>,
    /// File with keys of bouncers, one per line.
    pub key_file: Option<Located<String>>,
    /// Configurations of CrowdSec's AppSec component, such as `/etc/crowdsec/appsec-configs/appsec-default.yaml`: rules in-band and
    /// out of band, statuses and remediations. Hooks are errors.
    pub appsec_configs: Option<Located<Vec<Located<String>>>>,
    /// Folder with the rules that these name. Default: `../appsec-rules` beside each.
    pub appsec_rules: Option<Located<String>>,
    /// Time for the body of a request of a bouncer. What has arrived then is the body, as some bouncers announce one and send none.
    /// Default: 1s.
    pub body_time: Option<Located<HumanDuration>>,
    /// Address for forward authentication: a request asks whether another may pass, and gets 200, or the response for its
    /// client.
    pub forward_auth: Option<Located<String>>,
    /// Proxy whose headers describe the request. Necessary, unless `headers` are given.
    pub proxy: Option<Located<AskingProxy>>,
    /// Headers that describe the request; each key replaces that of `proxy`.
    pub headers: Option<DescriptionFile>,
    /// Address for HAProxy's SPOE: the messages of coraza-spoa ask whether a request or a response may pass.
    pub spoe: Option<Located<String>>,
    /// With `spoe`: requests wait for the messages with their responses. Default: responses are not inspected.
    pub responses: Option<ResponsesFile>,
    /// With `spoe`: applications by name. Those with this name in the argument `app` of their messages have these keys of `waf`, and those of the
    /// listener and the file besides. Default: the argument has no meaning.
    pub applications: Option<Located<BTreeMap<String, Located<WafFile>>>>,
    /// Application for messages that name none of `applications`. Default: `late` says how they are answered.
    pub default_application: Option<Located<String>>,
    /// Time for the inspection of a request, from the end of its body. Should be less than the proxy waits. Default: 400ms.
    pub budget: Option<Located<HumanDuration>>,
    /// Treatment of a request whose inspection takes longer, and of a message that cannot be inspected. Default: `block`.
    pub late: Option<LateFile>,
    /// TLS with the proxies. Default: plain HTTP.
    pub tls: Option<TlsFile>,
    /// Web application firewall of this listener; each key replaces that of the file.
    pub waf: Option<Located<WafFile>>,
}

/// Requests that wait for their responses.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "responses")]
pub struct ResponsesFile {
    /// Time for the response. The request is then logged; a response that comes later is treated as `late` says. Default: 1m.
    pub timeout: Option<Located<HumanDuration>>,
    /// Requests that wait; beyond it the oldest is given up. Their memory is limited by `limits.held_body_bytes`. Default: 1000.
    pub max: Option<Located<usize>>,
}

/// Treatment of a request whose inspection takes longer than the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "late")]
pub enum LateFile {
    /// Answers as to a blocked one: fail-closed.
    Block,
    /// Answers as to one that passes: fail-open.
    Pass,
}

/// Headers that describe a request. The proxy must overwrite them in every request, otherwise its clients could describe another one
/// than theirs. A request without one of them, or with two, is answered with 500.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "description")]
pub struct DescriptionFile {
    /// Header with the method. Default: the request has the same.
    pub method: Option<Located<String>>,
    /// Header with path and query, or with the URL. Default: the request has the same.
    pub uri: Option<Located<String>>,
    /// Header with the host. Default: the request has the same.
    pub host: Option<Located<String>>,
    /// Header with the address of the client; the last one if there are several. Default: the address of the connection.
    pub client: Option<Located<String>>,
}

/// A proxy that asks by forward authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(title = "proxy")]
pub enum AskingProxy {
    /// `auth_request`: X-Original-Method, X-Original-URI and X-Real-IP, which the configuration has to set; no bodies. The client
    /// gets 403 or, if `block.status` says so, 401; nginx takes no other status.
    Nginx,
    /// `ForwardAuth`: X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Host and X-Forwarded-For; bodies with `forwardBody`.
    Traefik,
    /// `forward_auth`: as Traefik; no bodies.
    Caddy,
    /// `ext_authz` over HTTP: method, path and Host are those of the request; X-Forwarded-For, which has to be among the
    /// `allowed_headers`; bodies with `with_request_body`.
    Envoy,
}

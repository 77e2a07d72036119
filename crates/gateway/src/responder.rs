//! The server that responds to a request: a pool, or the gateway itself, by a fixed response or a redirect of the route.

use std::sync::Arc;

use tollgate_http1::reason_phrase;

use crate::config::{Action, HeaderEdits, PathForm, PoolId, Redirect, Route, Scheme};
use crate::headers::push_target;
use crate::local_response::{LocalResponse, Reason};
use crate::router::without_port;

/// The server that responds to a request.
#[derive(Debug)]
pub(crate) enum Responder {
    Pool(PoolId),
    /// The gateway, once the firewall lets the request pass.
    Gateway(Box<LocalResponse>),
}

/// The URL of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestUrl<'a> {
    pub(crate) is_tls: bool,
    /// With or without a port; empty without a host.
    pub(crate) host: &'a str,
    pub(crate) path_and_query: &'a str,
}

impl Responder {
    /// `form` is the form of paths that the route does not rewrite; `fields` are those with variables that it sets in responses.
    pub(crate) fn of(
        route: &Route,
        url: &RequestUrl<'_>,
        form: PathForm,
        fields: &[(String, String)],
    ) -> Self {
        let response = match &route.action {
            Action::Forward(pool) => return Self::Pool(*pool),
            Action::Respond(fixed) => {
                let headers = with_edits(fixed.headers.clone(), &route.response_headers, fields);
                let phrase = reason_phrase(fixed.status);
                LocalResponse::new(fixed.status, phrase, headers, Arc::clone(&fixed.body))
            }
            Action::Redirect(redirect, pool) => {
                match (location(redirect, route, url, form), pool) {
                    (Ok(Some(location)), _) => {
                        let headers = vec![("Location".to_owned(), location)];
                        let headers = with_edits(headers, &route.response_headers, fields);
                        let phrase = reason_phrase(redirect.status);
                        LocalResponse::new(redirect.status, phrase, headers, Arc::default())
                    }
                    (Ok(None), Some(pool)) => return Self::Pool(*pool),
                    (Ok(None), None) => LocalResponse::error(Reason::NoRoute),
                    (Err(UnsafeHost), _) => LocalResponse::error(Reason::Host),
                }
            }
        };
        Self::Gateway(Box::new(response))
    }

    pub(crate) fn pool(&self) -> Option<PoolId> {
        match self {
            Self::Pool(pool) => Some(*pool),
            Self::Gateway(_) => None,
        }
    }
}

/// Adds the headers that a route sets, unless the response has them.
fn with_edits(
    mut headers: Vec<(String, String)>,
    edits: &HeaderEdits,
    fields: &[(String, String)],
) -> Vec<(String, String)> {
    for (name, value) in edits.set.iter().chain(fields) {
        if !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            headers.push((name.clone(), value.clone()));
        }
    }
    headers
}

/// A host of the client that its reader might not take for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnsafeHost;

/// The URL or path that a request is redirected to, `None` if it is that of the request.
fn location(
    redirect: &Redirect,
    route: &Route,
    url: &RequestUrl<'_>,
    form: PathForm,
) -> Result<Option<String>, UnsafeHost> {
    let path = match &redirect.path {
        Some(path) => path.clone(),
        None => {
            let mut path = Vec::new();
            push_target(&mut path, url.path_and_query, route, form);
            // Browsers take `\` for a slash.
            String::from_utf8_lossy(&path).replace('\\', "%5C")
        }
    };
    let keeps_path = match (&redirect.path, &route.rewrite) {
        (None, None) => true,
        _ => path == url.path_and_query,
    };
    if !redirect.is_absolute() {
        // Two slashes would begin a host.
        let path = format!("/{}", path.trim_start_matches('/'));
        return Ok((!keeps_path).then_some(path));
    }
    let own_scheme = if url.is_tls { Scheme::Https } else { Scheme::Http };
    let own_host = without_port(url.host);
    let own_port = port(url.host).filter(|port| *port != default_port(own_scheme));
    let scheme = redirect.scheme.unwrap_or(own_scheme);
    let host = redirect.host.as_deref().unwrap_or(own_host);
    let keeps_origin = scheme == own_scheme && redirect.host.is_none();
    let port = redirect.port.or(own_port.filter(|_| keeps_origin));
    let port = port.filter(|port| *port != default_port(scheme));
    let is_same_host = host.eq_ignore_ascii_case(own_host);
    if keeps_path && is_same_host && (scheme, port) == (own_scheme, own_port) {
        return Ok(None);
    }
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    if !host.bytes().all(is_safe) {
        return Err(UnsafeHost);
    }
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Ok(Some(format!("{}://{host}{port}{path}", scheme.name())))
}

fn default_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    }
}

/// The port of a host, unless it is missing or empty.
fn port(host: &str) -> Option<u16> {
    let name_end = host.rfind(']').map_or(0, |at| at + 1);
    host[name_end..].split_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostPattern;

    const HTTPS: Redirect =
        Redirect { status: 308, scheme: Some(Scheme::Https), host: None, port: None, path: None };

    fn located(redirect: &Redirect, route: &Route, url: &str) -> Option<String> {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (host, _) = rest.split_once('/').unwrap();
        let path_and_query = &rest[host.len()..];
        let url = RequestUrl { is_tls: scheme == "https", host, path_and_query };
        location(redirect, route, &url, PathForm::Resolved).unwrap()
    }

    #[test]
    fn https_has_the_right_port_and_no_loop() {
        let route = Route::all_to(PoolId(0));
        let with_port = |port| Redirect { port: Some(port), ..HTTPS };
        for (redirect, url, expected) in [
            (HTTPS, "http://a.example/x?y=1", Some("https://a.example/x?y=1")),
            (HTTPS, "http://a.example:8080/", Some("https://a.example/")),
            (HTTPS, "http://a.example./", Some("https://a.example/")),
            (HTTPS, "http://[::1]:8080/", Some("https://[::1]/")),
            (HTTPS, "http://a.example:443/", Some("https://a.example/")),
            (HTTPS, "https://a.example/x", None),
            (HTTPS, "https://a.example:8443/x", None),
            (with_port(8443), "http://a.example:8080/", Some("https://a.example:8443/")),
            (with_port(443), "http://a.example:8080/", Some("https://a.example/")),
            (with_port(8443), "https://a.example/", Some("https://a.example:8443/")),
            (with_port(8443), "https://A.example:8443/", None),
            // The path cannot become a host, and is that of the request as its route was found.
            (HTTPS, "http://a.example//evil.example/%2e%2e/x", Some("https://a.example/x")),
            (HTTPS, r"http://a.example/\evil.example", Some("https://a.example/%5Cevil.example")),
        ] {
            assert_eq!(located(&redirect, &route, url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn host_and_path_change_alone_or_together() {
        let host = Redirect { scheme: None, host: Some("www.example".to_owned()), ..HTTPS };
        let path = Redirect { scheme: None, path: Some("/new?a=b".to_owned()), ..HTTPS };
        let relative = Redirect { scheme: None, ..HTTPS };
        let all = Route::all_to(PoolId(0));
        let moved =
            Route { path_prefix: "/old".to_owned(), rewrite: Some("/".to_owned()), ..all.clone() };
        for (redirect, route, url, expected) in [
            (&host, &all, "https://a.example:8443/x", Some("https://www.example/x")),
            (&host, &all, "http://WWW.example/x", None),
            (&host, &all, "http://www.example:81/x", Some("http://www.example/x")),
            (&host, &moved, "http://www.example/old/x?y", Some("http://www.example/x?y")),
            (&path, &all, "http://a.example/x?y", Some("/new?a=b")),
            (&path, &all, "http://a.example/new?a=b", None),
            (&path, &all, "http://a.example/new", Some("/new?a=b")),
            (&relative, &moved, "http://a.example/old", Some("/")),
            (&relative, &moved, "http://a.example/old/x?y", Some("/x?y")),
            (&relative, &moved, "http://a.example/old//evil.example/", Some("/evil.example/")),
            (&relative, &moved, r"http://a.example/old/\evil.example", Some("/%5Cevil.example")),
        ] {
            assert_eq!(located(redirect, route, url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn host_of_a_client_must_be_a_plain_name() {
        let route =
            Route { host: HostPattern::Below("example".to_owned()), ..Route::all_to(PoolId(0)) };
        for host in ["evil.com%2f.example", "a'b.example", "user$.example"] {
            let url = RequestUrl { is_tls: false, host, path_and_query: "/" };
            assert_eq!(
                location(&HTTPS, &route, &url, PathForm::Resolved),
                Err(UnsafeHost),
                "{host}"
            );
        }
    }
}

//! The endpoints of the site and the table that routes to them.

mod action;
mod bodies;
mod inspection;
pub(crate) mod multipart;
mod recorded;
mod timing;

use crate::request::{Request, RequestError, decode_path};
use crate::state::{MAX_ENDPOINTS, Shared};
pub(crate) use action::{Action, SourceKind, Wait};
use action::{ActionResult, MAX_ECHO_BYTES};
pub(crate) use bodies::{ByteSource, fetch_response};

/// Limit for request bodies that are not kept.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// A path, or all paths below one, and its handler.
pub(crate) struct Endpoint {
    /// Also the name in `/counters`.
    pub(crate) path: &'static str,
    /// Matches `path/ANYTHING` instead of `path`.
    is_prefix: bool,
    pub(crate) body_bytes_max: u64,
    handler: Handler,
}

type Handler = for<'a> fn(&Request<'a>, &mut Shared) -> ActionResult<'a>;

const fn at(path: &'static str, handler: Handler) -> Endpoint {
    Endpoint { path, is_prefix: false, body_bytes_max: MAX_BODY_BYTES, handler }
}

/// Every endpoint, the most used first. The last one matches every path.
pub(crate) static ENDPOINTS: [Endpoint; 14] = [
    at("/", bodies::payload_or_page),
    at("/index.html", bodies::page),
    at("/urandom", bodies::urandom),
    at("/zero", bodies::zero),
    at("/sleep", timing::sleep),
    at("/download", bodies::download),
    at("/upload", inspection::upload),
    Endpoint { is_prefix: true, ..at("/status", inspection::status) },
    at("/headers", inspection::headers),
    Endpoint { body_bytes_max: MAX_ECHO_BYTES, ..at("/echo", inspection::echo) },
    at("/method", inspection::method),
    at("/delay", timing::delay),
    at(COUNTERS, inspection::counters),
    at("other", inspection::path),
];

const FALLBACK: usize = ENDPOINTS.len() - 1;

/// Names of the endpoints in `/counters`.
pub(crate) fn names() -> Vec<&'static str> {
    ENDPOINTS.iter().map(|endpoint| endpoint.path).collect()
}

const _: () = assert!(ENDPOINTS.len() <= MAX_ENDPOINTS, "every endpoint has a counter");

/// Endpoint of all requests to an origin with recorded responses.
static RECORDED: Endpoint = at("other", recorded::answer);

/// Path of the counters, also that of an origin with recorded responses unless one of these is for it.
const COUNTERS: &str = "/counters";

/// Returns the endpoint of a request and its index in the table.
pub(crate) fn route(request: &Request<'_>, shared: &Shared) -> (usize, &'static Endpoint) {
    match &shared.recorded {
        Some(recorded) if request.path != COUNTERS || recorded.contain(request) => {
            (FALLBACK, &RECORDED)
        }
        Some(_) | None => by_path(request.path),
    }
}

/// A path that matches none is decoded and tried again, because encoded characters may name the same path (RFC 9110,
/// section 4.2.3).
fn by_path(path: &str) -> (usize, &'static Endpoint) {
    let index = find(path).or_else(|| find(&decode_path(path)?)).unwrap_or(FALLBACK);
    (index, &ENDPOINTS[index])
}

fn find(path: &str) -> Option<usize> {
    ENDPOINTS[..FALLBACK].iter().position(|endpoint| {
        if endpoint.is_prefix {
            path.strip_prefix(endpoint.path).is_some_and(|rest| rest.starts_with('/'))
        } else {
            path == endpoint.path
        }
    })
}

impl Endpoint {
    /// Returns the action for a request. An unknown method is an error for every endpoint.
    pub(crate) fn action<'a>(
        &self,
        request: &Request<'a>,
        shared: &mut Shared,
    ) -> ActionResult<'a> {
        match request.method {
            "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => {
                (self.handler)(request, shared)
            }
            _ if shared.recorded.is_some() => (self.handler)(request, shared),
            unknown => Err(RequestError::UnknownMethod(unknown)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_http1::parse_request_head;

    use super::*;
    use crate::fuzzing::test_clock;
    use crate::response::{Body, Response, error_response};

    /// Returns the response to a request that needs no further work. `headers` are lines, each with
    /// its CR LF.
    pub(super) fn respond(
        shared: &mut Shared,
        method_and_target: &str,
        headers: &str,
        body: &[u8],
    ) -> Response<'static> {
        match action(shared, method_and_target, headers, body) {
            Action::Respond(response) => response,
            other => panic!("not a response: {other:?}"),
        }
    }

    /// Returns the remaining work for a received request.
    pub(super) fn action(
        shared: &mut Shared,
        method_and_target: &str,
        headers: &str,
        body: &[u8],
    ) -> Action<'static> {
        let text = format!("{method_and_target} HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n");
        let head = parse_request_head(text.as_bytes()).unwrap().unwrap();
        let request = Request::new(&head);
        let result = route(&request, shared).1.action(&request, shared);
        let mut action = result.unwrap_or_else(|error| Action::Respond(error_response(&error)));
        body.chunks(3).for_each(|piece| action.receive(piece));
        match action.into_owned() {
            Action::Upload(upload) => Action::Respond(upload.into_response(test_clock())),
            Action::Echo(echo) => Action::Respond(echo.into_response()),
            other => other,
        }
    }

    pub(super) fn text(response: &Response<'_>) -> String {
        match &response.body {
            Body::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            Body::Cached(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            body => panic!("not held as bytes: {body:?}"),
        }
    }

    #[test]
    fn routes_paths() {
        for (path, name) in [
            ("/", "/"),
            ("/index.html", "/index.html"),
            ("/urandom", "/urandom"),
            ("/urandom/", "other"),
            ("/status/200", "/status"),
            ("/status/", "/status"),
            ("/status", "other"),
            ("/statusx", "other"),
            ("other", "other"),
            ("*", "other"),
            ("//", "other"),
            ("/%75random", "/urandom"),
            ("/%55random", "other"),
            ("/%2575random", "other"),
            ("/urandom%", "other"),
            ("/urandom%ff", "other"),
            ("/stat%75s%2f200", "/status"),
        ] {
            assert_eq!(by_path(path).1.path, name, "{path}");
        }
        for (index, endpoint) in ENDPOINTS.iter().enumerate() {
            let path = if endpoint.is_prefix { "/status/1" } else { endpoint.path };
            assert_eq!(by_path(path).0, index, "{path}");
        }
    }
}

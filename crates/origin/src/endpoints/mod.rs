//! What the site answers, a file a family of endpoints, and the table that they are found in.

pub(crate) mod bytes;
pub(crate) mod counters;
pub(crate) mod delay;
pub(crate) mod download;
pub(crate) mod echo;
pub(crate) mod mirror;
pub(crate) mod page;
pub(crate) mod path;
pub(crate) mod sleep;
pub(crate) mod status;
pub(crate) mod upload;

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::counters::PATHS_MAX;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

/// The largest body of a request, unless its endpoint keeps it.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// The longest that an endpoint waits, in seconds.
const MAX_WAIT_S: u32 = 60;

/// A path, or all paths below one, and what is done for it.
pub(crate) struct Endpoint {
    /// The path, by which it is counted too.
    pub(crate) path: &'static str,
    /// Only what is below the path, a slash between them, is meant.
    is_below: bool,
    pub(crate) body_bytes_max: u64,
    pub(crate) plan: PlanOf,
}

type PlanOf = for<'a> fn(&Request<'a>, &mut Site) -> Result<Plan<'a>, Refusal<'a>>;

const fn at(path: &'static str, plan: PlanOf) -> Endpoint {
    Endpoint { path, is_below: false, body_bytes_max: MAX_BODY_BYTES, plan }
}

/// Every endpoint, the one that is asked for most first. The last takes every path.
pub(crate) static ENDPOINTS: [Endpoint; 14] = [
    at("/", page::payload_or_page),
    at("/index.html", page::page),
    at("/urandom", bytes::urandom),
    at("/zero", bytes::zero),
    at("/sleep", sleep::sleep),
    at("/download", download::download),
    at("/upload", upload::upload),
    Endpoint { is_below: true, ..at("/status", status::status) },
    at("/headers", mirror::headers),
    Endpoint { body_bytes_max: echo::MAX_ECHO_BYTES, ..at("/echo", echo::echo) },
    at("/method", mirror::method),
    at("/delay", delay::delay),
    at("/counters", counters::counters),
    at("other", path::path),
];

const _: () = assert!(ENDPOINTS.len() <= PATHS_MAX, "every endpoint is counted");

/// The endpoint of a path, and its place in the table. What need not be percent-encoded names the same
/// when it is (RFC 9110, section 4.2.3); what need be is decoded too, as nginx does.
pub(crate) fn route(path: &str) -> (usize, &'static Endpoint) {
    let last = ENDPOINTS.len() - 1;
    let index = find(path).or_else(|| find(&decoded(path)?)).unwrap_or(last);
    (index, &ENDPOINTS[index])
}

/// A path without percent-encoding; nothing where it has none, or would be no text.
pub(crate) fn decoded(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return None;
    }
    percent_decode_str(path).decode_utf8().ok()
}

/// The place of the endpoint that has this path.
fn find(path: &str) -> Option<usize> {
    let last = ENDPOINTS.len() - 1;
    ENDPOINTS[..last].iter().position(|endpoint| {
        if endpoint.is_below {
            path.strip_prefix(endpoint.path).is_some_and(|rest| rest.starts_with('/'))
        } else {
            path == endpoint.path
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use tollgate_wire::parse_request_head;

    use super::*;
    use crate::answer::{Answer, Body};
    use crate::plan::Work;
    use crate::site::made_up::made_up_clock;

    /// What is answered at once to a request with these header lines, each with its CR LF, and this
    /// body.
    pub(crate) fn ask(
        site: &mut Site,
        method_and_target: &str,
        lines: &str,
        body: &[u8],
    ) -> Answer<'static> {
        match work(site, method_and_target, lines, body) {
            Work::Done(answer) => answer,
            work => panic!("it is not answered at once: {work:?}"),
        }
    }

    /// What is left to do when such a request has arrived.
    pub(crate) fn work(
        site: &mut Site,
        method_and_target: &str,
        lines: &str,
        body: &[u8],
    ) -> Work<'static> {
        let text = format!("{method_and_target} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
        let head = parse_request_head(text.as_bytes()).unwrap().unwrap();
        let request = Request::new(&head);
        let planned = (route(request.path).1.plan)(&request, site);
        let mut plan =
            planned.unwrap_or_else(|refusal| Plan::Answer(Answer::from(&refusal))).into_owned();
        body.chunks(3).for_each(|piece| plan.take(piece));
        plan.begin(made_up_clock)
    }

    /// The body of an answer that is kept as it is, as text.
    pub(crate) fn text(answer: &Answer<'_>) -> String {
        match &answer.body {
            Body::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            Body::Page(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            body => panic!("{body:?} is no text"),
        }
    }

    #[test]
    fn every_path_has_its_endpoint() {
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
            assert_eq!(route(path).1.path, name, "{path}");
        }
        for (index, endpoint) in ENDPOINTS.iter().enumerate() {
            let path = if endpoint.is_below { "/status/1" } else { endpoint.path };
            assert_eq!(route(path).0, index, "{path}");
        }
    }
}

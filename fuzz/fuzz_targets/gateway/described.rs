//! Requests that describe others, as those of nginx and of CrowdSec's bouncers: the described request has exactly the parts that
//! the oracle's reading of the headers has, and nothing of the description.
//!
//! Input: the bytes of a request.

#![no_main]

#[expect(dead_code, reason = "only requests are read here")]
mod oracle;

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use oracle::{Parsed, Request};
use tollgate_gateway::fuzzing::{DescribedHead, describe};

fuzz_target!(|input: &[u8]| {
    let Some([by_nginx, by_bouncer]) = describe(input) else { return };
    let Parsed::Complete(request, _) = oracle::request(input) else { return };
    check_nginx(&request, by_nginx.as_ref());
    check_bouncer(&request, by_bouncer.as_ref());
});

fn all<'a>(request: &'a Request, name: &str) -> Vec<&'a [u8]> {
    let found = request.headers.iter().filter(|(other, _)| other == name);
    found.map(|(_, value)| value.trim_ascii()).collect()
}

/// The headers of the request but for these.
fn others(request: &Request, is_own: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let kept = request.headers.iter().filter(|(name, _)| !is_own(name));
    kept.map(|(name, value)| (name.clone(), value.trim_ascii().to_vec())).collect()
}

/// Checks the parts and headers of a described request. Behind the expected headers there may be one for the framing.
fn check(described: &DescribedHead, method: &[u8], target: &[u8], headers: &[(String, Vec<u8>)]) {
    assert_eq!((&described.method[..], &described.target[..]), (method, target));
    let found: Vec<_> = described
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    let rest = found.strip_prefix(headers).unwrap_or_else(|| panic!("{found:?} for {headers:?}"));
    match rest {
        [] => {}
        [(name, value)] => match name.as_str() {
            "content-length" => assert_eq!(value, b"0"),
            "transfer-encoding" => assert_eq!(value, b"chunked"),
            name => panic!("{name} is added"),
        },
        rest => panic!("{rest:?} are added"),
    }
}

fn check_nginx(request: &Request, described: Option<&DescribedHead>) {
    let parts = ["x-original-method", "x-original-uri", "x-real-ip"].map(|name| all(request, name));
    let [[method], [target], [client]] = parts.each_ref().map(Vec::as_slice) else {
        assert!(described.is_none());
        return;
    };
    let is_complete = ![method, target, client].iter().any(|part| part.is_empty());
    let address =
        String::from_utf8_lossy(client.rsplit(|byte| *byte == b',').next().unwrap_or_default());
    let address = address.trim_ascii();
    let has_address = address.parse::<IpAddr>().is_ok() || address.parse::<SocketAddr>().is_ok();
    assert_eq!(described.is_some(), is_complete && has_address);
    let Some(described) = described else { return };
    assert!(described.client.is_some());
    let own = ["host", "connection", "x-original-method", "x-original-uri", "x-real-ip"];
    let host = all(request, "host");
    let mut headers: Vec<_> =
        host.first().map(|host| ("host".to_owned(), host.to_vec())).into_iter().collect();
    headers.extend(others(request, |name| own.contains(&name)));
    check(described, method, target, &headers);
}

fn check_bouncer(request: &Request, described: Option<&DescribedHead>) {
    let part = |name: &str| {
        let values = all(request, &format!("x-crowdsec-appsec-{name}"));
        values.first().copied().filter(|value| !value.is_empty())
    };
    let (Some(b"key"), Some(_), Some(target), Some(method)) =
        (part("api-key"), part("ip"), part("uri"), part("verb"))
    else {
        assert!(described.is_none());
        return;
    };
    let described = described.expect("a complete description");
    let is_own = |name: &str| {
        name.starts_with("x-crowdsec-appsec-")
            || ["host", "user-agent", "transfer-encoding"].contains(&name)
    };
    let given = ["host", "user-agent"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), part(name)?.to_vec())));
    let headers: Vec<_> = given.chain(others(request, is_own)).collect();
    check(described, method, target, &headers);
}

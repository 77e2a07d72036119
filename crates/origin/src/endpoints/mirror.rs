//! `/headers` and `/method`: what the request was, as it arrived here.

use crate::answer::{Answer, NO_SNIFF};
use crate::json;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

/// The headers in the order in which they came, duplicates kept.
pub(crate) fn headers<'a>(
    request: &Request<'a>,
    _site: &mut Site,
) -> Result<Plan<'a>, Refusal<'a>> {
    let pairs: Vec<String> = request
        .headers
        .iter()
        .map(|(name, value)| format!("[{},{}]", json::string(name.as_bytes()), json::string(value)))
        .collect();
    Ok(mirrored(format!("{{\"headers\":[{}]}}", pairs.join(","))))
}

/// The method.
pub(crate) fn method<'a>(request: &Request<'a>, _site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    Ok(mirrored(format!("{{\"method\":{}}}", json::string(request.method.as_bytes()))))
}

fn mirrored(text: String) -> Plan<'static> {
    Plan::Answer(Answer { lines: NO_SNIFF.into(), ..Answer::json(text) })
}

#[cfg(test)]
mod tests {
    use crate::endpoints::tests::{ask, text};
    use crate::site::made_up::site;

    #[test]
    fn the_request_is_told_as_it_came() {
        let mut site = site();
        let answer =
            ask(&mut site, "GET /headers", "X-a: \"q\" \r\nx-A:\r\nCookie: a=b; c\r\n", b"");
        assert_eq!(
            text(&answer),
            r#"{"headers":[["Host","a.test"],["X-a","\"q\""],["x-A",""],["Cookie","a=b; c"]]}"#
        );
        for method in ["GET", "PATCH"] {
            let answer = ask(&mut site, &format!("{method} /method"), "", b"");
            assert_eq!(text(&answer), format!("{{\"method\":\"{method}\"}}"));
        }
    }
}

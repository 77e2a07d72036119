//! `/urandom` and `/zero`: bytes that are taken from a source and thrown away.

use std::time::Duration;

use crate::answer::Answer;
use crate::json::Seconds;
use crate::plan::{Fetch, Plan, Source};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

/// How many bytes are taken, unless the request says.
const DEFAULT_BYTES: u64 = 2048;

/// The most bytes that are taken.
const MAX_BYTES: u64 = 64 << 20;

/// Takes random bytes.
pub(crate) fn urandom<'a>(
    request: &Request<'a>,
    _site: &mut Site,
) -> Result<Plan<'a>, Refusal<'a>> {
    fetch(request, Source::Random)
}

/// Takes zeros.
pub(crate) fn zero<'a>(request: &Request<'a>, _site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    fetch(request, Source::Zero)
}

/// How many bytes were taken, and in what time.
pub(crate) fn answer(bytes: u64, took: Duration) -> Answer<'static> {
    Answer::json(format!("{{\"size\":{bytes},\"time\":{}}}", Seconds(took)))
}

fn fetch<'a>(request: &Request<'a>, source: Source) -> Result<Plan<'a>, Refusal<'a>> {
    let bytes = request.query.bytes("size", DEFAULT_BYTES, 0, MAX_BYTES)?;
    Ok(Plan::Fetch(Fetch { source, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::{ask, text, work};
    use crate::plan::Work;
    use crate::site::made_up::site;

    #[test]
    fn so_many_bytes_are_to_be_taken() {
        let mut site = site();
        for (target, expected) in [
            ("GET /urandom", (Source::Random, 2048)),
            ("HEAD /zero?size=0", (Source::Zero, 0)),
            ("POST /zero?size=67108864", (Source::Zero, 67_108_864)),
        ] {
            match work(&mut site, target, "", b"") {
                Work::Fetch { fetch, left_bytes, .. } => {
                    assert_eq!((fetch.source, fetch.bytes), expected);
                    assert_eq!(left_bytes, fetch.bytes);
                }
                work => panic!("{work:?}"),
            }
        }
        assert_eq!(ask(&mut site, "GET /zero?size=x", "", b"").status, 400);
        assert_eq!(ask(&mut site, "GET /urandom?size=67108865", "", b"").status, 413);
        assert_eq!(
            text(&answer(2048, Duration::from_micros(12))),
            "{\"size\":2048,\"time\":0.000012}"
        );
    }
}

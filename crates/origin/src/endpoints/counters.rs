//! `/counters`: what this origin has answered.

use crate::answer::Answer;
use crate::endpoints::ENDPOINTS;
use crate::plan::Plan;
use crate::refusal::{Allowed, Refusal};
use crate::request::Request;
use crate::site::Site;

/// What all threads have counted, as JSON; with `reset=1`, for the last time before they begin anew.
pub(crate) fn counters<'a>(
    request: &Request<'a>,
    site: &mut Site,
) -> Result<Plan<'a>, Refusal<'a>> {
    let reset = request.query.whole("reset", 0, 0, 1, Allowed::OneToReset)? == 1;
    let names = ENDPOINTS.each_ref().map(|endpoint| endpoint.path);
    let mut answer = Answer::json(site.counters.to_json(&names, site.now(), reset));
    answer.lines = "Cache-Control: no-store\r\n".into();
    Ok(Plan::Answer(answer))
}

#[cfg(test)]
mod tests {
    use crate::endpoints::tests::{ask, text};
    use crate::site::made_up::site;

    #[test]
    fn what_was_counted_is_told_and_reset() {
        let mut site = site();
        site.counters.tally().paths[2].add(3);
        let told = text(&ask(&mut site, "GET /counters?reset=1", "", b""));
        assert!(told.contains("\"requests\":3,"), "{told}");
        assert!(told.contains("\"/urandom\":3,\"/zero\":0,"), "{told}");
        let told = text(&ask(&mut site, "GET /counters?reset=0", "", b""));
        assert!(told.contains("\"requests\":0,"), "{told}");
        for value in ["yes", "2"] {
            let refused = ask(&mut site, &format!("GET /counters?reset={value}"), "", b"");
            assert_eq!(refused.status, 400);
            let why = format!(r#"{{"error":"reset is \"{value}\"; it may be 0 or 1"}}"#);
            assert_eq!(text(&refused), why);
        }
    }
}

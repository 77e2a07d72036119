//! `/sleep`: an answer after a time.

use std::time::Duration;

use crate::answer::Answer;
use crate::endpoints::MAX_WAIT_S;
use crate::json::Seconds;
use crate::plan::{Plan, Wait};
use crate::refusal::{Allowed, Refusal};
use crate::request::Request;
use crate::site::Site;

/// Answers after `time` seconds (1) with the time that it took.
pub(crate) fn sleep<'a>(request: &Request<'a>, _site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    let allowed = Allowed::Seconds { max: MAX_WAIT_S };
    let seconds = request.query.fraction("time", 1.0, f64::from(MAX_WAIT_S), allowed)?;
    Ok(Plan::Wait(Wait { time: Duration::from_secs_f64(seconds), answer }))
}

fn answer(_asked: Duration, took: Duration) -> Answer<'static> {
    Answer::json(format!("{{\"time\":{}}}", Seconds(took)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::{ask, text, work};
    use crate::plan::Work;
    use crate::site::made_up::site;

    #[test]
    fn the_time_is_the_one_that_is_asked_for() {
        let mut site = site();
        for (target, millis) in
            [("GET /sleep", 1_000), ("GET /sleep?time=0.01", 10), ("HEAD /sleep?time=60", 60_000)]
        {
            match work(&mut site, target, "", b"") {
                Work::Wait { wait, .. } => assert_eq!(wait.time, Duration::from_millis(millis)),
                work => panic!("{work:?}"),
            }
        }
        assert_eq!(ask(&mut site, "GET /sleep?time=60.5", "", b"").status, 413);
        let refused = ask(&mut site, "GET /sleep?time=-1", "", b"");
        assert_eq!(refused.status, 400);
        assert_eq!(
            text(&refused),
            r#"{"error":"time is \"-1\"; it may be a number of seconds from 0 to 60"}"#
        );
        let told = answer(Duration::from_secs(1), Duration::from_nanos(1_000_123_999));
        assert_eq!(text(&told), "{\"time\":1.000124}");
    }
}

//! Recorded responses in place of the site: their status, length and type.

use super::action::{Action, ActionResult};
use super::{bodies, inspection};
use crate::output::Filler;
use crate::recordings::RecordedAnswer;
use crate::request::Request;
use crate::response::{Body, Response};
use crate::state::Shared;

/// Responds as recorded. A request that is not of the recording gets the text of its path, or filler if it names its
/// length.
pub(super) fn answer<'a>(request: &Request<'a>, shared: &mut Shared) -> ActionResult<'a> {
    let Some((answer, varies)) = shared.recorded.as_ref().and_then(|one| one.next(request)) else {
        return match request.query.get("payload") {
            Some(_) => bodies::payload_or_page(request, shared),
            None => inspection::path(request, shared),
        };
    };
    let RecordedAnswer { status, content_type, .. } = answer;
    let body = match answer.body_bytes {
        _ if matches!(status, 204 | 304) => Body::None,
        Some(bytes) if is_text(content_type) => Body::Filler(Filler::Page, bytes),
        Some(bytes) => Body::Filler(Filler::Letters, bytes),
        None => Body::Path(request.path),
    };
    let content_type = content_type.as_bytes().to_vec();
    let response = Response::new(*status, content_type, &[][..], body);
    Ok(Action::Respond(Response { varies, ..response }))
}

/// True for types of text, which firewalls inspect.
fn is_text(content_type: &str) -> bool {
    let content_type = content_type.to_ascii_lowercase();
    content_type.starts_with("text/")
        || ["json", "xml", "javascript"].iter().any(|one| content_type.contains(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::{respond, text};
    use crate::fuzzing::test_state;
    use crate::recordings::RecordedAnswers;
    use std::sync::Arc;

    fn shared(answers: &[(&str, u16, &str, Option<u64>, u64)]) -> Shared {
        let answer =
            |&(request, status, content_type, body_bytes, weight): &(&str, u16, &str, _, _)| {
                let (method, target) = request.split_once(' ').unwrap();
                RecordedAnswer {
                    method: method.to_owned(),
                    target: target.to_owned(),
                    status,
                    content_type: content_type.to_owned(),
                    body_bytes,
                    weight,
                }
            };
        let answers = RecordedAnswers::new(answers.iter().map(answer).collect());
        Shared { recorded: Some(Arc::new(answers)), ..test_state() }
    }

    #[test]
    fn special_paths_respond_as_recorded() {
        let mut shared = shared(&[
            ("GET /sleep?time=60", 200, "text/html", Some(5), 1),
            ("GET /delay?ms=9&dist=x", 302, "text/html", Some(0), 1),
            ("GET /download?size=99999", 200, "image/png", Some(7), 1),
            ("POST /status/500", 201, "application/json", Some(3), 1),
            ("GET /headers", 304, "text/html", Some(0), 1),
            ("PROPFIND /", 207, "text/xml", None, 1),
        ]);
        for (request, status, content_type, body) in [
            ("GET /sleep?time=60", 200, "text/html", Body::Filler(Filler::Page, 5)),
            ("GET /delay?ms=9&dist=x", 302, "text/html", Body::Filler(Filler::Page, 0)),
            ("GET /download?size=99999", 200, "image/png", Body::Filler(Filler::Letters, 7)),
            ("POST /status/500", 201, "application/json", Body::Filler(Filler::Page, 3)),
            ("GET /headers", 304, "text/html", Body::None),
            ("GET /%73leep?time=60", 200, "text/html", Body::Filler(Filler::Page, 5)),
        ] {
            let response = respond(&mut shared, request, "", b"");
            assert_eq!((response.status, &response.body), (status, &body), "{request}");
            assert_eq!(&*response.content_type, content_type.as_bytes(), "{request}");
        }
        let listed = respond(&mut shared, "PROPFIND /", "", b"");
        assert_eq!((listed.status, text(&listed)), (207, "tollgate origin: /\n".to_owned()));
    }

    #[test]
    fn other_requests_do_nothing_special() {
        let mut shared = shared(&[("GET /counters", 200, "text/html", Some(1), 1)]);
        for path in ["/", "/sleep?time=60", "/download", "/status/500", "/delay", "/echo"] {
            let response = respond(&mut shared, &format!("GET {path}"), "", b"");
            let shown = path.split('?').next().unwrap();
            assert_eq!(text(&response), format!("tollgate origin: {shown}\n"));
        }
        assert_eq!(respond(&mut shared, "GET /?payload=9", "", b"").body.len(), 9);
        assert_eq!(respond(&mut shared, "GET /counters", "", b"").body.len(), 1);
        let counters = respond(&mut shared, "GET /counters?of=origin", "", b"");
        assert!(text(&counters).contains("requests"));
    }

    #[test]
    fn equal_requests_get_their_responses_in_proportion() {
        let mut shared = shared(&[
            ("GET /", 200, "text/html", Some(100), 6),
            ("GET /", 304, "text/html", Some(0), 3),
            ("GET /", 404, "text/html", Some(9), 0),
        ]);
        let mut statuses = Vec::new();
        for _ in 0..900 {
            let response = respond(&mut shared, "GET /", "", b"");
            assert!(!response.is_cacheable());
            statuses.push(response.status);
        }
        let count = |status| statuses.iter().filter(|one| **one == status).count();
        // Spread evenly: at most a few off.
        assert!(count(200).abs_diff(600) <= 3 && count(304).abs_diff(300) <= 3, "{}", count(200));
        assert!(statuses.windows(8).all(|eight| eight.contains(&304)));
    }
}

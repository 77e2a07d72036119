//! `/status/CODE`: that status.

use crate::answer::{Answer, Body};
use crate::endpoints::decoded;
use crate::plan::Plan;
use crate::refusal::{Allowed, Refusal};
use crate::request::Request;
use crate::site::Site;

/// Answers with the status that the path names.
pub(crate) fn status<'a>(request: &Request<'a>, _site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    let decoded = decoded(request.path);
    let status = code(decoded.as_deref().unwrap_or(request.path));
    let Some(status) = status else {
        let value = request.path.strip_prefix("/status/").unwrap_or(request.path);
        let allowed = Allowed::Status;
        return Err(Refusal::Parameter { name: "status", value, allowed, is_too_large: false });
    };
    Ok(Plan::Answer(match status {
        204 | 304 => Answer::bodyless(status, ""),
        // RFC 9110, section 15.3.6: this has a length, and it is 0.
        205 => Answer { status, body: Body::Bytes(Vec::new()), ..Answer::json(String::new()) },
        _ => Answer { status, ..Answer::json(format!("{{\"status\":{status}}}")) },
    }))
}

/// The status that a path names.
fn code(path: &str) -> Option<u16> {
    let value = path.strip_prefix("/status/")?;
    let is_number = value.len() == 3 && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|status| is_number && (200..=599).contains(status))
}

#[cfg(test)]
mod tests {
    use crate::answer::Body;
    use crate::endpoints::tests::{ask, text};
    use crate::site::made_up::site;

    #[test]
    fn the_path_says_which() {
        let mut site = site();
        for status in [200, 206, 299, 404, 503, 599] {
            let answer = ask(&mut site, &format!("GET /status/{status}"), "", b"");
            assert_eq!(answer.status, status);
            assert_eq!(text(&answer), format!("{{\"status\":{status}}}"));
        }
        assert_eq!(ask(&mut site, "GET /%73tatus/%34%304", "", b"").status, 404);
        for status in [204, 304] {
            let answer = ask(&mut site, &format!("GET /status/{status}"), "", b"");
            assert_eq!((answer.status, answer.body), (status, Body::Never));
        }
        assert_eq!(ask(&mut site, "GET /status/205", "", b"").body.bytes(), 0);
        for value in ["", "abc", "199", "600", "2000", "+20", "20x", "200/"] {
            let answer = ask(&mut site, &format!("GET /status/{value}"), "", b"");
            assert_eq!(answer.status, 400, "{value}");
            let expected = format!(
                r#"{{"error":"status is \"{value}\"; it may be a whole number from 200 to 599"}}"#
            );
            assert_eq!(text(&answer), expected);
        }
    }
}

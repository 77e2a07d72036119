//! `/upload`: how large a body was, how long it took, and what parts it had.

use std::time::Instant;

use crate::answer::{Answer, NO_SNIFF};
use crate::json::{self, Seconds};
use crate::multipart::{Fault, Multipart, Part};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

/// A body that is measured on its way to nowhere.
#[derive(Debug)]
pub(crate) struct Upload {
    started: Instant,
    bytes: u64,
    /// The parts of multipart/form-data, until something is no part.
    parts: Option<Result<Multipart, Fault>>,
}

/// Measures the body of a POST or PUT.
pub(crate) fn upload<'a>(request: &Request<'a>, site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    if !matches!(request.method, "POST" | "PUT") {
        return Err(Refusal::NotAnUpload(request.method));
    }
    let content_type = request.headers.first("Content-Type").unwrap_or(b"");
    let parts = Multipart::of_type(content_type).map_err(Refusal::Multipart)?.map(Ok);
    Ok(Plan::Upload(Box::new(Upload { started: site.now(), bytes: 0, parts })))
}

impl Upload {
    /// Looks at the next piece of the body.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if let Some(Ok(parts)) = &mut self.parts
            && let Err(fault) = parts.feed(piece)
        {
            self.parts = Some(Err(fault));
        }
    }

    pub(crate) fn answer(self, now: Instant) -> Answer<'static> {
        let took = Seconds(now.saturating_duration_since(self.started));
        let start = format!("{{\"size\":{},\"time\":{took}", self.bytes);
        match self.parts.map(|parts| parts.and_then(Multipart::finish)) {
            None => Answer::json(format!("{start}}}")),
            Some(Ok(parts)) => {
                let lines: Vec<String> = parts.iter().map(line).collect();
                let text = format!("{start},\"parts\":[{}\n]}}", lines.join(","));
                Answer { lines: NO_SNIFF.into(), ..Answer::json(text) }
            }
            Some(Err(fault)) => Answer::from(&Refusal::Multipart(fault)),
        }
    }
}

fn line(part: &Part) -> String {
    let filename = part.filename.as_deref().map_or_else(|| "null".to_owned(), json::string);
    format!(
        "\n{{\"name\":{},\"filename\":{filename},\"size\":{}}}",
        json::string(&part.name),
        part.bytes
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::endpoints::tests::{ask, text};
    use crate::site::made_up::{made_up_clock, pass, site};

    #[test]
    fn a_body_is_measured() {
        let mut site = site();
        for method in ["POST", "PUT"] {
            let answer = ask(&mut site, &format!("{method} /upload"), "", b"hello");
            assert_eq!(text(&answer), "{\"size\":5,\"time\":0.000000}");
        }
        let upload = Upload { started: made_up_clock(), bytes: 9, parts: None };
        pass(Duration::from_micros(1_250_000));
        assert_eq!(text(&upload.answer(made_up_clock())), "{\"size\":9,\"time\":1.250000}");
    }

    #[test]
    fn the_parts_of_a_form_are_told_a_line_each() {
        let mut site = site();
        let form = "Content-Type: multipart/form-data; boundary=b\r\n";
        let body = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n\
            --b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\\\"q\\\".txt\"\r\n\r\n\r\n--b--\r\n";
        assert_eq!(
            text(&ask(&mut site, "POST /upload", form, body)),
            "{\"size\":134,\"time\":0.000000,\"parts\":[\n\
             {\"name\":\"a\",\"filename\":null,\"size\":3},\n\
             {\"name\":\"f\",\"filename\":\"\\\"q\\\".txt\",\"size\":0}\n]}"
        );
        assert_eq!(
            text(&ask(&mut site, "POST /upload", form, b"--b--")),
            "{\"size\":5,\"time\":0.000000,\"parts\":[\n]}"
        );
        let refused = ask(&mut site, "POST /upload", form, b"--b\r\n");
        assert_eq!(refused.status, 400);
        assert_eq!(
            text(&refused),
            "{\"error\":\"the body is not multipart/form-data: the last boundary is missing\"}"
        );
        let refused = ask(&mut site, "POST /upload", "Content-Type: multipart/form-data\r\n", b"");
        assert_eq!(refused.status, 400);
    }

    #[test]
    fn other_methods_are_told_which_it_may_be() {
        let mut site = site();
        let refused = ask(&mut site, "GET /upload", "", b"");
        assert_eq!((refused.status, refused.is_refusal), (405, true));
        assert!(refused.lines.contains("Allow: POST, PUT\r\n"));
        assert_eq!(text(&refused), "{\"error\":\"the method is GET; it may be POST or PUT\"}");
    }
}

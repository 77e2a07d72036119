//! `/`: the page that explains the site; with `payload=N`, N bytes of filler.

use std::rc::Rc;

use crate::answer::Answer;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

/// The page, in which this stands where the host of the request belongs.
const HOST_MARK: &str = "{{host}}";
const PAGE: &str = include_str!("../../../../site/page.html");

/// The largest payload that can be asked for.
const MAX_PAYLOAD_BYTES: u64 = 64 << 20;

/// For how many hosts a thread keeps the page.
const MAX_KEPT: usize = 16;

/// The longest name of a host for which the page is kept: that of a domain, and a port.
const MAX_KEPT_HOST_BYTES: usize = 253 + 6;

/// The pages of one thread.
pub(crate) struct Pages {
    /// The host for clients that name none.
    own_host: String,
    /// Few enough to be looked through.
    kept: Vec<(String, Rc<[u8]>)>,
}

/// So many bytes of filler, if the request says how many; else the page.
pub(crate) fn payload_or_page<'a>(
    request: &Request<'a>,
    site: &mut Site,
) -> Result<Plan<'a>, Refusal<'a>> {
    if request.query.get("payload").is_none() {
        return page(request, site);
    }
    let bytes = request.query.bytes("payload", 0, 0, MAX_PAYLOAD_BYTES)?;
    Ok(Plan::Answer(Answer::filler(bytes)))
}

/// The page.
pub(crate) fn page<'a>(request: &Request<'a>, site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    Ok(Plan::Answer(Answer::page(site.pages.of(request.host))))
}

impl Pages {
    pub(crate) fn new(own_host: &str) -> Self {
        Self { own_host: own_host.to_owned(), kept: Vec::new() }
    }

    /// The page for `host`, rendered unless it is kept.
    fn of(&mut self, host: Option<&str>) -> Rc<[u8]> {
        let host = host.unwrap_or(&self.own_host);
        if let Some((_, page)) = self.kept.iter().find(|(kept, _)| kept == host) {
            return Rc::clone(page);
        }
        let page: Rc<[u8]> = PAGE.replace(HOST_MARK, &escaped(host)).into_bytes().into();
        if host.len() <= MAX_KEPT_HOST_BYTES {
            if self.kept.len() == MAX_KEPT {
                self.kept.remove(0);
            }
            self.kept.push((host.to_owned(), Rc::clone(&page)));
        }
        page
    }
}

/// `text` with every character replaced that HTML has a use for.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Body;
    use crate::endpoints::tests::{ask, text};
    use crate::site::made_up::site;

    #[test]
    fn payload_is_found_anywhere_in_the_query_of_the_root() {
        let mut site = site();
        for (target, bytes) in [
            ("/?payload=0", 0),
            ("/?payload=100", 100),
            ("/?payload=67108864", 64 << 20),
            ("/?a=1&payload=7&b=2", 7),
            ("/?payload=7&payload=8", 7),
            ("http://localhost/?payload=9", 9),
            ("http://localhost?payload=9", 9),
        ] {
            let answer = ask(&mut site, &format!("GET {target}"), "", b"");
            assert_eq!(answer.body, Body::Filler(bytes), "{target}");
        }
        for (target, status) in [
            ("/?payload", 400),
            ("/?payload=", 400),
            ("/?payload=-1", 400),
            ("/?payload=67108865", 413),
        ] {
            assert_eq!(
                ask(&mut site, &format!("GET {target}"), "", b"").status,
                status,
                "{target}"
            );
        }
    }

    #[test]
    fn the_page_names_the_host_that_was_asked() {
        let mut site = site();
        for target in ["/", "/index.html", "/?xpayload=5", "http://a.test"] {
            let answer = ask(&mut site, &format!("GET {target}"), "", b"");
            assert_eq!(&answer.content_type[..], b"text/html; charset=utf-8");
            let page = text(&answer);
            assert!(page.contains("http://a.test/urandom"), "{target}: {page}");
            assert!(!page.contains(HOST_MARK));
        }
        assert_eq!(site.pages.kept.len(), 1);
        let own = String::from_utf8(site.pages.of(None).to_vec()).unwrap();
        assert!(own.contains("http://127.0.0.1:8000/urandom"));
    }

    #[test]
    fn few_pages_are_kept() {
        let mut pages = Pages::new("own");
        let first = pages.of(Some("first"));
        assert!(Rc::ptr_eq(&first, &pages.of(Some("first"))));
        for number in 0..MAX_KEPT {
            pages.of(Some(&number.to_string()));
        }
        assert_eq!(pages.kept.len(), MAX_KEPT);
        assert!(!Rc::ptr_eq(&first, &pages.of(Some("first"))));
        pages.of(Some(&"h".repeat(1000)));
        assert!(pages.kept.iter().all(|(host, _)| host.len() < 1000));
    }

    #[test]
    fn a_host_cannot_bring_markup_into_the_page() {
        assert_eq!(escaped("a'b\"<c>&d"), "a&#39;b&quot;&lt;c&gt;&amp;d");
    }
}

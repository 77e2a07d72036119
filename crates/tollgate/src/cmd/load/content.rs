//! What is sent: one request, or a mix.

use super::args::Args;
use super::target::Target;
use anyhow::{Context, Result, bail};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_lab::workload::{self, Delivery};
use tollgate_load::{Expectation, Request, Workload};
use tollgate_traffic::Class;
use tollgate_wire::RequestText;

/// What is sent.
#[derive(Debug)]
pub(crate) struct Content {
    /// Everything as bytes, in the order of sending.
    pub(crate) workload: Arc<Workload>,
    /// The templates of the workload, in its order.
    pub(crate) templates: Vec<TemplateName>,
    /// The mix as it was named; none for a single request.
    pub(crate) mix: Option<String>,
    /// The length of the request in bytes, where it is a single one that has a body.
    pub(crate) posted_bytes: Option<u64>,
    /// Whether it is a single HEAD request, whose answers have no body.
    pub(crate) is_head: bool,
}

/// A template by its name.
#[derive(Debug, Clone)]
pub(crate) struct TemplateName {
    /// Its name in the mix, or method and path of a single request.
    pub(crate) name: String,
    /// What kind of request it is; none for a single request.
    pub(crate) class: Option<Class>,
}

impl Content {
    /// Renders what the arguments ask for.
    ///
    /// # Errors
    ///
    /// The request or the mix cannot be read or sent.
    pub(crate) fn of(args: &Args, target: &Target, catalog: &Catalog) -> Result<Self> {
        match &args.mix {
            Some(mix) => Self::mix(mix, args, target, catalog),
            None => Self::single(args, target),
        }
    }

    fn mix(name: &str, args: &Args, target: &Target, catalog: &Catalog) -> Result<Self> {
        if target.path != "/" {
            bail!("with --mix the paths come from the mix: leave out `{}`", target.path);
        }
        let (mix, _) = catalog.mix(name, Path::new(""))?;
        let delivery = Delivery {
            prefix: "",
            host: args.host.as_deref(),
            keep_alive: !args.no_keepalive,
            blocks: None,
        };
        let workload = workload::workload(&mix, &delivery, args.seed)
            .with_context(|| format!("making the requests of --mix {name}"))?;
        let templates = mix.templates().iter();
        Ok(Self {
            workload: Arc::new(workload),
            templates: templates
                .map(|template| TemplateName {
                    name: template.name.clone(),
                    class: Some(template.class),
                })
                .collect(),
            mix: Some(name.to_owned()),
            posted_bytes: None,
            is_head: false,
        })
    }

    fn single(args: &Args, target: &Target) -> Result<Self> {
        let body = body(args)?;
        let method = match (&args.method, body.is_empty()) {
            (Some(method), _) => method,
            (None, true) => "GET",
            (None, false) => "POST",
        };
        if method == "CONNECT" {
            bail!("--method CONNECT opens a tunnel, which is not measured: choose another method");
        }
        let request = request(args, target, method, &body)?;
        let is_head = request.is_head;
        let posted_bytes = (!body.is_empty()).then_some(request.bytes.len() as u64);
        let name = format!("{method} {}", target.path);
        Ok(Self {
            workload: Arc::new(Workload::new(vec![request], vec![0])?),
            templates: vec![TemplateName { name, class: None }],
            mix: None,
            posted_bytes,
            is_head,
        })
    }
}

const USER_AGENT: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

/// The longest body that is sent: it is held in memory once, and read whole before the run.
const BODY_BYTES_MAX: u64 = 64 << 20;

fn body(args: &Args) -> Result<Cow<'_, [u8]>> {
    let Some(path) = &args.body_file else {
        return Ok(args.body.as_deref().unwrap_or("").as_bytes().into());
    };
    let reading = || format!("reading --body-file {}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(reading)?;
    file.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(reading)?;
    if bytes.len() as u64 > BODY_BYTES_MAX {
        bail!("--body-file {}: a body has at most {BODY_BYTES_MAX} bytes", path.display());
    }
    Ok(bytes.into())
}

fn request(args: &Args, target: &Target, method: &str, body: &[u8]) -> Result<Request> {
    let headers = headers(args, target)?;
    let text = RequestText { method, target: &target.path, headers: &headers, body };
    Ok(Request {
        bytes: text.render().context("making the request")?,
        is_head: method == "HEAD",
        expect: Expectation { status: args.expect, ..Expectation::default() },
        template: 0,
    })
}

/// The headers of a single request: those that were given, and the ones that every request needs.
fn headers(args: &Args, target: &Target) -> Result<Vec<(String, String)>> {
    let given = &args.headers;
    let is_given = |name: &str| given.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if args.host.is_some() && is_given("Host") {
        bail!("--host and --header give two Host headers: leave one out");
    }
    let host = args.host.as_deref().unwrap_or(&target.host);
    let mut headers = Vec::new();
    for (name, value) in [("Host", host), ("User-Agent", USER_AGENT)] {
        if !is_given(name) {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let keep_alive = !args.no_keepalive;
    let kept = given.iter().filter(|(name, _)| keep_alive || !is_connection(name));
    headers.extend(kept.cloned());
    if !keep_alive {
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
    Ok(headers)
}

fn is_connection(name: &str) -> bool {
    name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("keep-alive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::args::tests::args;

    fn given(line: &str) -> (Args, Target) {
        let args = args(line);
        let target = Target::parse(&args.url, None, &[]).unwrap();
        (args, target)
    }

    fn sent(line: &str, method: &str) -> String {
        let (args, target) = given(line);
        let body = body(&args).unwrap();
        String::from_utf8(request(&args, &target, method, &body).unwrap().bytes).unwrap()
    }

    #[test]
    fn the_path_is_sent_byte_for_byte() {
        assert_eq!(
            sent("-n 1 http://127.0.0.1:8000/a/../b?x=%27&y=..", "GET"),
            format!(
                "GET /a/../b?x=%27&y=.. HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: {USER_AGENT}\r\n\r\n"
            )
        );
    }

    #[test]
    fn headers_replace_the_defaults_and_close_replaces_keep_alive() {
        let request = sent(
            "-n 1 http://[::1]/ -H host:shop.example -H User-Agent:x -H Keep-Alive:300 -H Connection:keep-alive --no-keepalive",
            "GET",
        );
        assert_eq!(
            request,
            "GET / HTTP/1.1\r\nhost: shop.example\r\nUser-Agent: x\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_body_makes_a_post_and_host_replaces_that_of_the_url() {
        let line = "-n 1 http://127.0.0.1/cart --body a=1 --host shop.example";
        let (args, target) = given(line);
        let content = Content::of(&args, &target, &Catalog::new(vec![])).unwrap();
        assert_eq!(content.templates[0].name, "POST /cart");
        let request = sent(line, "POST");
        assert_eq!(content.posted_bytes, Some(request.len() as u64));
        assert!(request.starts_with("POST /cart HTTP/1.1\r\nHost: shop.example\r\n"), "{request}");
        assert!(request.ends_with("\r\nContent-Length: 3\r\n\r\na=1"), "{request}");
    }

    #[test]
    fn what_cannot_be_sent_is_told_with_its_option() {
        for (line, why) in [
            ("-n 1 http://127.0.0.1/ -X CONNECT", "--method CONNECT"),
            ("-n 1 http://127.0.0.1/ -H host:a --host b", "two Host headers"),
            ("-n 1 http://127.0.0.1/ --body-file /nowhere", "reading --body-file /nowhere"),
            ("-n 1 http://127.0.0.1/ --body-file /dev/zero", "at most 67108864 bytes"),
            ("-n 1 http://127.0.0.1/a --mix browse", "leave out `/a`"),
            ("-n 1 http://127.0.0.1/ --mix nowhere", "nowhere"),
        ] {
            let (args, target) = given(line);
            let error =
                format!("{:#}", Content::of(&args, &target, &Catalog::new(vec![])).unwrap_err());
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}

//! Target and requests of `tollgate load`: a URL on this machine, and one request or a mix.

use super::args::Args;
use anyhow::{Context, Result, bail};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::workload::{self, Delivery, RecordedLoad};
use tollgate_http1::RequestText;
use tollgate_load::{
    Expectation, Rate, Replay, Request, ServerUrl, Target as Address, TemplateLabel, Workload,
};
use tollgate_traffic::Class;

const USER_AGENT: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

/// Limit of a body in bytes. It is held in memory.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// A server that may be loaded.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) server: ServerUrl,
    pub(super) address: Address,
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) workload: Arc<Workload>,
    pub(super) templates: Vec<TemplateLabel>,
    /// Name of the mix; `None` for a single request.
    pub(super) mix: Option<String>,
    /// `None` without a pace.
    pub(super) replay: Option<Arc<Replay>>,
    /// Recorded times at the pace; `None` if they are not used.
    pub(super) times: Option<Rate>,
}

impl Target {
    /// Parses a URL. Its host must be this machine or one of `allowed`. With a `unix_socket` the host is
    /// only a name.
    pub(super) fn parse(url: &str, unix_socket: Option<&Path>, allowed: &[String]) -> Result<Self> {
        let server = ServerUrl::parse(url)?;
        let address = match unix_socket {
            Some(path) => {
                check_socket(path)?;
                Address::Unix(path.to_owned())
            }
            None => Address::Tcp(server.resolve(allowed)?),
        };
        Ok(Self { server, address })
    }
}

fn check_socket(path: &Path) -> Result<()> {
    let option = || format!("--unix-socket {}", path.display());
    let metadata = path.metadata().with_context(option)?;
    if !metadata.file_type().is_socket() {
        bail!("{}: not a socket", option());
    }
    Ok(())
}

impl Content {
    pub(super) fn new(args: &Args, target: &Target, catalog: &Catalog) -> Result<Self> {
        match &args.mix {
            Some(mix) => Self::mix(mix, args, target, catalog),
            None => Self::single(args, target),
        }
    }

    fn mix(name: &str, args: &Args, target: &Target, catalog: &Catalog) -> Result<Self> {
        if target.server.path != "/" {
            bail!("--mix has its own paths: remove `{}` from the URL", target.server.path);
        }
        let (mix, _) = catalog.mix(name, Path::new(""))?;
        let delivery = Delivery {
            prefix: "",
            host: args.host.as_deref(),
            keep_alive: !args.no_keepalive,
            blocks: None,
            responses: None,
        };
        let cannot = || format!("cannot render the requests of --mix {name}");
        let (workload, replay, times) = match args.pace {
            None => {
                let workload = workload::workload(&mix, &delivery, args.seed);
                (workload.with_context(cannot)?, None, None)
            }
            Some(pace) => {
                let cannot = || format!("cannot send --mix {name} with --pace {pace}");
                let RecordedLoad { workload, replay, times } =
                    workload::replay(&mix, &delivery, pace).with_context(cannot)?;
                (workload, Some(Arc::new(replay)), times)
            }
        };
        let class = |class| match class {
            Class::Benign => "benign".to_owned(),
            Class::Malicious => "malicious".to_owned(),
        };
        let templates = mix
            .templates()
            .iter()
            .map(|template| TemplateLabel {
                name: template.name.clone(),
                class: Some(class(template.class)),
            })
            .collect();
        let mix = Some(name.to_owned());
        Ok(Self { workload: Arc::new(workload), templates, mix, replay, times })
    }

    fn single(args: &Args, target: &Target) -> Result<Self> {
        let body = body(args)?;
        let method = match (&args.method, body.is_empty()) {
            (Some(method), _) => method,
            (None, true) => "GET",
            (None, false) => "POST",
        };
        if method == "CONNECT" {
            bail!("--method CONNECT is not supported: it opens a tunnel");
        }
        let request = render(args, target, method, &body)?;
        let templates =
            vec![TemplateLabel { name: format!("{method} {}", target.server.path), class: None }];
        let workload = Arc::new(Workload::new(vec![request], vec![0])?);
        Ok(Self { workload, templates, mix: None, replay: None, times: None })
    }
}

fn body(args: &Args) -> Result<Cow<'_, [u8]>> {
    let text = args.body.as_deref().unwrap_or("");
    let (option, path) = match (&args.body_file, text.strip_prefix('@')) {
        (Some(path), _) => ("--body-file ", path.as_path()),
        (None, Some(path)) => ("--body @", Path::new(path)),
        (None, None) => return Ok(text.as_bytes().into()),
    };
    let cannot_read = || format!("cannot read {option}{}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(cannot_read)?;
    file.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(cannot_read)?;
    if bytes.len() as u64 > BODY_BYTES_MAX {
        bail!("{}: longer than {BODY_BYTES_MAX} bytes", cannot_read());
    }
    Ok(bytes.into())
}

fn render(args: &Args, target: &Target, method: &str, body: &[u8]) -> Result<Request> {
    let headers = headers(args, target)?;
    let text = RequestText { method, target: &target.server.path, headers: &headers, body };
    Ok(Request {
        message: text.render().context("cannot render the request")?,
        expect: Expectation { status: args.expect, ..Expectation::default() },
        template: 0,
    })
}

/// Headers of a single request: those of the arguments, and the required ones.
fn headers(args: &Args, target: &Target) -> Result<Vec<(String, String)>> {
    let given = &args.headers;
    let is_given = |name: &str| given.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if args.host.is_some() && is_given("Host") {
        bail!("--host and --header set two Host headers: remove one");
    }
    let host = args.host.as_deref().unwrap_or(&target.server.host);
    let mut headers = Vec::new();
    for (name, value) in [("Host", host), ("User-Agent", USER_AGENT)] {
        if !is_given(name) {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let keep_alive = !args.no_keepalive;
    let kept = given.iter().filter(|(name, _)| keep_alive || !is_connection_header(name));
    headers.extend(kept.cloned());
    if !keep_alive {
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
    Ok(headers)
}

fn is_connection_header(name: &str) -> bool {
    name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("keep-alive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::tests::args;
    use std::os::unix::net::UnixListener;

    fn rejected(url: &str) -> String {
        format!("{:#}", Target::parse(url, None, &[]).unwrap_err())
    }

    #[test]
    fn url_keeps_its_path_and_has_a_default_port() {
        let target = Target::parse("http://127.0.0.1:8000/a/../b?x=%27&y=..", None, &[]).unwrap();
        assert_eq!(target.server.path, "/a/../b?x=%27&y=..");
        assert_eq!((target.server.host.as_str(), target.server.port), ("127.0.0.1:8000", 8000));
        assert_eq!(target.address, Address::Tcp("127.0.0.1:8000".parse().unwrap()));
        let target = Target::parse("http://[::1]", None, &[]).unwrap();
        assert_eq!(
            (target.server.host.as_str(), target.server.hostname.as_str()),
            ("[::1]", "::1")
        );
        assert_eq!(
            (target.server.path.as_str(), target.server.port, target.server.is_tls),
            ("/", 80, false)
        );
        let target = Target::parse("https://127.0.0.1", None, &[]).unwrap();
        assert_eq!((target.server.port, target.server.is_tls), (443, true));
    }

    #[test]
    fn url_may_lack_its_scheme_and_name_the_unspecified_address() {
        for (url, full, address) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("127.0.0.1:8000/a?b", "http://127.0.0.1:8000/a?b", "127.0.0.1:8000"),
            ("0.0.0.0:8000/", "http://0.0.0.0:8000/", "0.0.0.0:8000"),
            ("http://[::]:8000/", "http://[::]:8000/", "[::]:8000"),
        ] {
            let target = Target::parse(url, None, &[]).unwrap();
            assert_eq!(target.server.url, full);
            assert_eq!(target.address, Address::Tcp(address.parse().unwrap()));
        }
        assert!(rejected("/a").contains("invalid URL `http:///a`"));
    }

    #[test]
    fn body_may_be_read_from_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"a\r\nb\0").unwrap();
        let path = file.path().display();
        for option in ["--body @", "--data @", "--body-file "] {
            let args = args(&format!("-n 1 http://127.0.0.1/ {option}{path}"));
            assert_eq!(*body(&args).unwrap(), *b"a\r\nb\0", "{option}");
        }
    }

    #[test]
    fn unix_socket_needs_no_known_host() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.sock");
        let parse = || Target::parse("http://shop.invalid/a", Some(&path), &[]);
        let error = format!("{:#}", parse().unwrap_err());
        assert!(error.ends_with("shop.sock: No such file or directory (os error 2)"), "{error}");
        std::fs::write(&path, "").unwrap();
        assert!(format!("{:#}", parse().unwrap_err()).ends_with("not a socket"));
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        let target = parse().unwrap();
        assert_eq!(target.address, Address::Unix(path.clone()));
        assert_eq!(target.server.host, "shop.invalid");
    }

    #[test]
    fn load_stays_on_this_machine_unless_a_host_is_allowed() {
        assert!(rejected("http://192.0.2.1/").contains("add --allow-host 192.0.2.1"));
        assert!(Target::parse("http://192.0.2.1/", None, &["192.0.2.1".to_owned()]).is_ok());
        assert!(rejected("http://127.0.0.1:99999/").contains("at most 65535"));
        assert!(rejected("ftp://127.0.0.1/").contains("scheme ftp is not supported, use http or"));
        assert!(rejected("http://u:p@127.0.0.1/").contains("-H 'Authorization: Basic ...'"));
        assert!(rejected("http://127.0.0.1/a#top").contains("remove `#top`"));
    }

    fn parsed(line: &str) -> (Args, Target) {
        let args = args(line);
        let target = Target::parse(&args.url, None, &[]).unwrap();
        (args, target)
    }

    fn rendered(line: &str, method: &str) -> String {
        let (args, target) = parsed(line);
        let body = body(&args).unwrap();
        let rendered = render(&args, &target, method, &body).unwrap();
        String::from_utf8(rendered.message.bytes().to_vec()).unwrap()
    }

    #[test]
    fn path_is_sent_byte_for_byte() {
        assert_eq!(
            rendered("-n 1 http://127.0.0.1:8000/a/../b?x=%27&y=..", "GET"),
            format!(
                "GET /a/../b?x=%27&y=.. HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: {USER_AGENT}\r\n\r\n"
            )
        );
    }

    #[test]
    fn headers_replace_defaults_and_close_replaces_keep_alive() {
        let request = rendered(
            "-n 1 http://[::1]/ -H host:shop.example -H User-Agent:x -H Keep-Alive:300 -H Connection:keep-alive --no-keepalive",
            "GET",
        );
        assert_eq!(
            request,
            "GET / HTTP/1.1\r\nhost: shop.example\r\nUser-Agent: x\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn body_makes_a_post_and_host_replaces_that_of_the_url() {
        let line = "-n 1 http://127.0.0.1/cart --body a=1 --host shop.example";
        let (args, target) = parsed(line);
        let content = Content::new(&args, &target, &Catalog::new(vec![])).unwrap();
        assert_eq!(content.templates[0].name, "POST /cart");
        let request = rendered(line, "POST");
        assert!(request.starts_with("POST /cart HTTP/1.1\r\nHost: shop.example\r\n"), "{request}");
        assert!(request.ends_with("\r\nContent-Length: 3\r\n\r\na=1"), "{request}");
    }

    #[test]
    fn invalid_requests_name_the_option() {
        for (line, reason) in [
            ("-n 1 http://127.0.0.1/ -X CONNECT", "--method CONNECT"),
            ("-n 1 http://127.0.0.1/ -H host:a --host b", "two Host headers"),
            ("-n 1 http://127.0.0.1/ --body-file /nowhere", "cannot read --body-file /nowhere"),
            ("-n 1 http://127.0.0.1/ --body @/nowhere", "cannot read --body @/nowhere"),
            ("-n 1 http://127.0.0.1/ --body-file /dev/zero", "longer than 67108864 bytes"),
            ("-n 1 http://127.0.0.1/a --mix browse", "remove `/a`"),
            ("-n 1 http://127.0.0.1/ --mix nowhere", "nowhere"),
            (
                "http://127.0.0.1/ --mix browse --pace x2",
                "cannot send --mix browse with --pace x2: the mix has no recorded order: import",
            ),
        ] {
            let (args, target) = parsed(line);
            let error =
                format!("{:#}", Content::new(&args, &target, &Catalog::new(vec![])).unwrap_err());
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}

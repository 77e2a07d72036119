//! The firewall: verdicts, phases, bodies that are held, limits, reloads, the audit log, and metrics.

mod collections;
mod configuration;
mod http2;
mod limits;
mod messages;
mod phases;

use std::path::Path;

use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::Protocol;

use crate::support::{Backend, OK, Peer, TestGateway};

const RULES: &str = r#"
SecRule ARGS "@contains attack" "id:1,phase:2,deny,status:403,t:lowercase,log,msg:'Attack'"
SecRule REQUEST_HEADERS:X-Bad "@streq 1" "id:2,phase:1,deny,status:406,log,msg:'Header'"
SecRule REQUEST_BODY "@contains attack" "id:3,phase:2,deny,status:403,log,msg:'Body'"
SecRule RESPONSE_BODY "@contains secret" "id:4,phase:4,deny,status:403,log,msg:'Leak'"
SecRule RESPONSE_STATUS "@streq 501" "id:10,phase:4,deny,status:403,log,msg:'Error'"
SecRule RESPONSE_HEADERS:X-Leak "@streq 1" "id:5,phase:3,deny,status:403,log,msg:'Header'"
SecRule REQUEST_HEADERS:X-Status "@streq 101" "id:7,phase:1,deny,status:101,log,msg:'Status'"
SecRule REQUEST_HEADERS:X-Status "@streq 200" "id:8,phase:1,deny,status:200,log,msg:'Status'"
SecRule REQUEST_HEADERS:X-Status "@streq 102" "id:9,phase:1,redirect:/login,status:101,log"
SecRule ARGS:redirect "@streq 1" "id:6,phase:2,redirect:/login,log"
"#;

const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n\
                         Content-Length: 10\r\n\r\nForbidden\n";

/// A gateway with [`RULES`] in front of a scripted backend.
struct Scene {
    gateway: TestGateway,
    backend: Backend,
    folder: TempDir,
}

fn read(folder: &Path, backend: &Backend, waf: &str) -> Config {
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]
pools: [{{ name: site, buffer: {{ request: 0 }}, backends: [{{ address: '{}' }}] }}]
forwarded: {{ via: null, x_forwarded: false }}
admin: 127.0.0.1:0
{waf}",
        backend.addr()
    );
    let config = Config::parse(&text, &folder.join("gateway.yaml"));
    config.unwrap_or_else(|error| panic!("{error}"))
}

impl Scene {
    fn start(waf: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules.conf"), RULES).unwrap();
        std::fs::write(folder.path().join("page.html"), "<p>no").unwrap();
        Self::in_folder(folder, waf)
    }

    /// With the files of a folder.
    fn in_folder(folder: TempDir, waf: &str) -> Self {
        let backend = Backend::start();
        let gateway = TestGateway::start(&read(folder.path(), &backend, waf));
        Self { gateway, backend, folder }
    }

    /// With clients and a backend over HTTP/2.
    fn over_http2(waf: &str) -> Self {
        let Self { folder, backend, .. } = Self::start(waf);
        let mut config = read(folder.path(), &backend, waf);
        config.listeners[0].http2 = true;
        config.pools[0].protocol = Protocol::Http2 { streams_max: 100 };
        let gateway = TestGateway::start(&config);
        Self { gateway, backend, folder }
    }

    /// With the default settings and these.
    fn with(more: &str) -> Self {
        Self::start(&format!("waf:\n  rules: [rules.conf]\n{more}"))
    }

    fn client(&self) -> Peer {
        self.gateway.client()
    }

    /// Expects that the backend receives exactly this, and responds.
    #[track_caller]
    fn serve(&self, expected: impl AsRef<[u8]>) -> Peer {
        let mut upstream = self.backend.accept();
        upstream.expect(expected);
        upstream.send(OK);
        upstream
    }

    #[track_caller]
    fn expect_untouched_backend(&self) {
        self.backend.expect_no_connection(&self.gateway);
    }

    fn audit(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.json")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("POST /a HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

impl Peer {
    /// Expects a response of the firewall, and returns its status.
    #[track_caller]
    fn expect_local_response_of(&mut self, status: u16) -> u16 {
        let response = self.response().unwrap();
        assert!(response.head.contains("charset=utf-8"), "not {status}: {}", response.head);
        response.head[9..12].parse().unwrap()
    }
}

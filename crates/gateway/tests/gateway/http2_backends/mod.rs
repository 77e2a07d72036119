//! Backends over HTTP/2, by literal frames. Foreign servers are in `e2e`.

mod connections;
mod failures;
mod messages;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{AccessLog, LogFormat, LogTarget, Protocol};

use crate::support::http2::Http2Peer;
use crate::support::{Backend, Peer, TestGateway, config, poll};

const STREAMS_MAX: u32 = 100;

/// A request that may have side effects.
const POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";

const OK: &[(&str, &str)] = &[(":status", "200"), ("date", "d"), ("content-length", "2")];
/// Response to a client for [`OK`] with the body `hi`.
const OK_TEXT: &str = "HTTP/1.1 200 \r\ndate: d\r\nContent-Length: 2\r\n\r\nhi";

fn http2_config(backends: &[&Backend]) -> Config {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.addr()).collect();
    let mut config = config(&addresses);
    config.pools[0].protocol = Protocol::Http2 { streams_max: STREAMS_MAX };
    config
}

fn scene() -> (TestGateway, Backend) {
    scene_with(|_| {})
}

fn scene_with(change: impl FnOnce(&mut Config)) -> (TestGateway, Backend) {
    let backend = Backend::start();
    let mut config = http2_config(&[&backend]);
    change(&mut config);
    (TestGateway::start(&config), backend)
}

/// Accepts a connection of the gateway and sends settings.
#[track_caller]
fn accept(backend: &Backend, settings: &[(u16, u32)]) -> Http2Peer {
    let mut peer = Http2Peer::serve(backend.accept().into_stream());
    peer.settings(settings);
    peer
}

fn pairs(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// A client that has sent these bytes.
fn client(gateway: &TestGateway, request: &str) -> Peer {
    let mut client = gateway.client();
    client.send(request);
    client
}

fn log_to(config: &mut Config, folder: &TempDir) {
    let to = LogTarget::File(folder.path().join("log"));
    config.access_log = Some(AccessLog { to, format: LogFormat::Json });
}

/// The first entry of the access log, which is written after its response is sent.
fn logged(folder: &Path) -> Value {
    poll(|| {
        let text = fs::read_to_string(folder.join("log")).unwrap();
        let line = text.lines().next().ok_or("no line in the access log")?;
        Ok(serde_json::from_str(line).unwrap())
    })
}

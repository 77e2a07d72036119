//! Clients over HTTP/2, by literal frames. Foreign clients are in `e2e`.

mod connections;
mod floods;
mod messages;
mod smuggling;

use tollgate_gateway::Config;

use crate::support::http2::Http2Peer;
use crate::support::{Backend, TestGateway, config};

/// A configuration of [`config`] whose listener takes HTTP/2.
fn http2_config(backend: &Backend) -> Config {
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    config
}

/// A gateway with a client over HTTP/2 and a backend.
fn scene() -> (TestGateway, Http2Peer, Backend) {
    scene_with(|_| {})
}

fn scene_with(change: impl FnOnce(&mut Config)) -> (TestGateway, Http2Peer, Backend) {
    let backend = Backend::start();
    let mut config = http2_config(&backend);
    change(&mut config);
    let gateway = TestGateway::start(&config);
    let client = Http2Peer::connect(gateway.address());
    (gateway, client, backend)
}

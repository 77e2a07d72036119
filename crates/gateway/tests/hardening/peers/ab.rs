//! ab, which speaks HTTP/1.0, with and without keeping connections.

use tollgate_gateway::config::Address;

use super::{mirror, output};
use crate::served::Served;

#[test]
fn ab_keeps_connections_or_opens_one_a_request() {
    let backend = mirror();
    let gateway = Served::on_tcp(&[backend.address]);
    let Address::Tcp(address) = gateway.address() else { panic!("it listens on a port") };
    let url = format!("http://{address}/path");
    for keeps in [true, false] {
        let mut arguments = vec!["-q", "-n", "400", "-c", "10", "-s", "10"];
        if keeps {
            arguments.push("-k");
        }
        arguments.push(&url);
        let report = output("ab", &arguments);
        let figure = |name: &str| -> u32 {
            let line = report.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |rest| rest.trim().parse().unwrap())
        };
        assert_eq!(figure("Complete requests:"), 400, "{report}");
        assert_eq!(figure("Failed requests:"), 0, "{report}");
        assert_eq!(figure("Non-2xx responses:"), 0, "{report}");
        assert_eq!(figure("Keep-Alive requests:"), if keeps { 400 } else { 0 }, "{report}");
    }
    // The backend's connections are kept, whatever the clients do: at most one for each of them.
    assert!(backend.connections() <= 20, "{} connections to the backend", backend.connections());
}

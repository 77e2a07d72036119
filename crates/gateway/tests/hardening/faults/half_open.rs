//! Ten thousand clients that begin a request and never finish it.

use std::io::Read;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate_gateway::config::Address;

use super::{echo, is_echo};
use crate::caller::Caller;
use crate::client::Client;
use crate::own_process::OwnProcess;
use crate::served::Served;

const CLIENTS: usize = 10_000;

/// Where the clients connect to; they are another process, as one has not descriptors enough for both ends.
const SOCKET: &str = "TOLLGATE_TEST_HALF_OPEN";

#[test]
fn ten_thousand_half_open_clients_hold_up_nobody() {
    allow_descriptors();
    let backend = echo();
    let gateway = Served::with(backend.address, |config| {
        config.timeouts.header = Duration::from_secs(30);
        config.limits.connections = CLIENTS + 100;
    });
    let Address::Unix(socket) = gateway.address() else { panic!("it listens on a Unix socket") };
    let mut crowd =
        OwnProcess::of("faults::half_open::holds_half_open_clients", &[(SOCKET, socket)]);
    crowd.wait_for(&format!("{CLIENTS} are there"));
    let mut client = Caller::connect(gateway.address()).unwrap();
    for number in 0..100 {
        let path = format!("/{number}");
        assert!(is_echo(&client.get(&path).unwrap(), &path));
    }
    crowd.end();
    // Their places are free again.
    let mut client = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&client.get("/after").unwrap(), "/after"));
}

#[test]
#[ignore = "the test above runs it, as a process of its own"]
fn holds_half_open_clients() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    allow_descriptors();
    let address = Address::Unix(socket.into());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(&address).unwrap();
            client.send(b"GET /never HTTP/1.1\r\nHost: ");
            client
        })
        .collect();
    println!("\n{} are there", clients.len());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Lets this process open a descriptor for each client, and some more.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let needed = CLIENTS as u64 + 500;
    let allowed = limit.maximum.is_none_or(|maximum| maximum >= needed);
    assert!(allowed, "{needed} descriptors are needed, and {limit:?} allowed: raise ulimit -Hn");
    if limit.current.is_some_and(|current| current < needed) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit }).unwrap();
    }
}

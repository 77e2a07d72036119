//! Standard error is a pipe that is full and that nobody reads.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tollgate_gateway::config::{Address, Backend as Listed, Ejection, Pool, PoolId, Route};

use super::is_echo;
use crate::caller::Caller;
use crate::own_process::OwnProcess;
use crate::served::Served;

/// Where the backend of the other process listens, and where its gateway is to.
const BACKEND: &str = "TOLLGATE_TEST_UNREAD_BACKEND";
const SOCKET: &str = "TOLLGATE_TEST_UNREAD_SOCKET";

const ROUNDS: usize = 20;

/// More messages, of about 110 bytes each, than wait for a reader.
const MESSAGES: usize = 1_000;

#[test]
fn messages_that_nobody_reads_hold_up_no_request_and_those_left_out_are_told() {
    let backend = super::echo();
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("gateway");
    let (mut unread, full) = full_pipe();
    let environment =
        [(BACKEND, backend.address.to_string()), (SOCKET, socket.display().to_string())];
    let test = "faults::unread::serves_and_tells_that_to_nobody";
    let mut process = OwnProcess::telling(test, &environment, Stdio::from(OwnedFd::from(full)));
    process.wait_for("it serves");
    let address = Address::Unix(socket);
    for round in 0..ROUNDS {
        let mut first = Caller::connect(&address).unwrap();
        assert!(is_echo(&first.get("/first").unwrap(), "/first"), "round {round}");
        // There is no room for it: it is told that connections are made to wait.
        let mut second = Caller::connect(&address).unwrap();
        second.client().send(b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        std::thread::sleep(Duration::from_millis(20));
        assert!(is_echo(&first.get("/again").unwrap(), "/again"), "round {round}");
        drop(first);
        assert!(is_echo(&second.answer().unwrap(), "/second"), "round {round}");
    }
    let mut client = Caller::connect(&address).unwrap();
    for _ in 0..MESSAGES {
        // The backend of this path is left alone once more, which is told.
        assert_eq!(client.get("/gone").unwrap().status, 502);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(is_echo(&client.get("/last").unwrap(), "/last"));
    drop(client);

    let reading = std::thread::spawn(move || {
        let mut told = String::new();
        unread.read_to_string(&mut told).map(|_| told).unwrap()
    });
    process.end();
    let told = reading.join().unwrap();
    let told: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    let count = |part: &str| told.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("connections are made to wait: 1 connections are open"), 1, "{told:?}");
    let kept = count(" of the pool gone is left alone for a time");
    let lost = told.iter().find_map(|line| {
        let line = line.strip_prefix(
            "tollgate gateway: standard error is not read as fast as it is written: ",
        )?;
        line.strip_suffix(" lines were left out so far")?.parse::<usize>().ok()
    });
    assert!(lost.is_some_and(|lost| lost > 0 && kept + lost >= MESSAGES / 2), "{kept} {lost:?}");
}

#[test]
#[ignore = "the test above runs it, as a process of its own"]
fn serves_and_tells_that_to_nobody() {
    let Ok(backend) = std::env::var(BACKEND) else { return };
    let socket = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    // Nobody listens there, nor will: a free port would soon be somebody else's.
    let gone = socket.with_extension("gone");
    let _gateway = Served::with(backend.parse().unwrap(), |config| {
        config.listeners[0].address = Address::Unix(socket);
        config.limits.connections = 1;
        let mut pool = Pool::new("gone", vec![Listed::new(Address::Unix(gone))]);
        pool.eject = Some(Ejection { failures: 1, for_time: Duration::from_millis(1) });
        config.pools.push(pool);
        config.routes.push(Route { path_prefix: "/gone".to_owned(), ..Route::all_to(PoolId(1)) });
    });
    println!("\nit serves");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A pipe that has room for nothing more: its two ends.
fn full_pipe() -> (UnixStream, UnixStream) {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    // There may be room for a few when there is none for many.
    for count in [4096, 1] {
        while let Ok(1..) = writer.write(&vec![b'\n'; count]) {}
    }
    writer.set_nonblocking(false).unwrap();
    (reader, writer)
}

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use tollgate_load::{Plan, Target};

use crate::server::{OK, closed_port, plan, run};

#[test]
fn requests_go_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("tollgate-load-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut answered = 0;
        while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
            stream.write_all(OK).unwrap();
            answered += 1;
        }
        answered
    });
    let to_socket = Plan { target: Target::Unix(path.clone()), ..plan(closed_port(), 25) };
    let outcome = run(to_socket.clone());
    assert_eq!((outcome.answered, outcome.connects), (25, 1), "{outcome:?}");
    assert_eq!(server.join().unwrap(), 25);

    // Nobody listens there any more, and then nothing is there any more.
    let outcome = run(Plan { requests: Some(2), ..to_socket.clone() });
    assert_eq!(outcome.failures.refused, 2, "{:?}", outcome.failures);
    std::fs::remove_file(&path).unwrap();
    let outcome = run(Plan { requests: Some(2), ..to_socket });
    let told = outcome.failures.other_example.unwrap();
    assert!(told.starts_with("connecting: No such file"), "{told}");
}

#[test]
fn a_full_backlog_makes_requests_wait() {
    let path = std::env::temp_dir().join(format!("tollgate-backlog-{}", std::process::id()));
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 2).unwrap();
    let listener = UnixListener::from(socket);
    let server = thread::spawn(move || {
        // Eight connections for a backlog of two, and nobody takes them at first.
        thread::sleep(std::time::Duration::from_millis(50));
        let serve = |mut stream: std::os::unix::net::UnixStream| {
            while matches!(stream.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {
                stream.write_all(OK).unwrap();
            }
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                let (stream, _) = listener.accept().unwrap();
                scope.spawn(move || serve(stream));
            }
        });
    });
    let target = Target::Unix(path.clone());
    let outcome = run(Plan { target, connections: 8, ..plan(closed_port(), 4000) });
    assert_eq!((outcome.answered, outcome.failures.total()), (4000, 0), "{:?}", outcome.failures);
    // Connections that the run did not need are taken here, so that the server ends.
    for _ in outcome.connects..8 {
        drop(std::os::unix::net::UnixStream::connect(&path).unwrap());
    }
    server.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

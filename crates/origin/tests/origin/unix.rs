//! Listening on a socket in the file system.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use tollgate_origin::{Config, Listen, Origin};

use crate::support::PATIENCE;

const GET_LARGE: &[u8] = b"GET /?payload=300000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn on(path: &Path, threads: usize) -> Config {
    Config { threads, ..Config::new(Listen::Unix(path.to_owned())) }
}

fn is_served(path: &Path) {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(GET_LARGE).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(answer.ends_with(&format!("\r\n\r\n{}", "x".repeat(300_000))));
}

#[test]
fn a_socket_is_served_by_all_threads_and_removed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("origin.sock");
    for threads in [1, 3] {
        let origin = Origin::bind(&on(&path, threads)).unwrap();
        assert_eq!(origin.listens_on(), &Listen::Unix(path.clone()));
        let stopper = origin.stopper();
        let serving = std::thread::spawn(move || origin.serve());
        (0..20).for_each(|_| is_served(&path));
        stopper.stop().unwrap();
        serving.join().unwrap().unwrap();
        assert!(!path.exists());
    }
}

#[test]
fn a_socket_that_nobody_listens_on_is_replaced_and_others_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("origin.sock");
    drop(UnixListener::bind(&path).unwrap());
    let origin = Origin::bind(&on(&path, 1)).unwrap();

    let error = Origin::bind(&on(&path, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the origin cannot listen on unix:{}; stop what listens there or choose another path",
            path.display()
        )
    );
    // The one that failed has not taken the other's socket away.
    let stopper = origin.stopper();
    let serving = std::thread::spawn(move || origin.serve());
    is_served(&path);

    // Nor does the first remove what was put in the place of its own.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    stopper.stop().unwrap();
    serving.join().unwrap().unwrap();
    let error = Origin::bind(&on(&path, 1)).unwrap_err();
    assert!(error.to_string().ends_with("; it is not a socket; choose another path"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn of_many_who_replace_one_socket_one_listens() {
    const AT_ONCE: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("origin.sock");
    for round in 0..40 {
        drop(UnixListener::bind(&path).unwrap());
        let start = std::sync::Barrier::new(AT_ONCE);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let bind = || {
                start.wait();
                Origin::bind(&on(&path, 1))
            };
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let errors: Vec<String> = bound
            .iter()
            .filter_map(|bound| bound.as_ref().err())
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors.len(), AT_ONCE - 1, "round {round}: {errors:?}");
        let advice = "; stop what listens there or choose another path";
        assert!(errors.iter().all(|error| error.ends_with(advice)), "{errors:?}");
        UnixStream::connect(&path).unwrap();
        drop(bound);
        assert!(!path.exists());
    }
}

#[test]
fn a_path_that_cannot_be_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("none/origin.sock"), dir.path().join("x".repeat(108))] {
        let error = Origin::bind(&on(&path, 1)).unwrap_err();
        let advice =
            "; choose a path of at most 107 bytes in a folder that may be read and written to";
        assert!(error.to_string().ends_with(advice), "{error}");
    }
}

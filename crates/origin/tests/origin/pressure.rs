//! Clients that are slow, that go away, and that send more than they read.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::support::{Client, PATIENCE, Served};

const GET_ONE: &[u8] = b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\n";
const ONE: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Content-Length: 1\r\n\r\nx";

/// Long enough for the origin to fill every buffer between it and a client.
const FILL_TIME: Duration = Duration::from_millis(200);

fn is_served(origin: &Served) {
    let mut client = origin.client();
    client.send(GET_ONE);
    client.expect(ONE);
}

#[test]
fn a_slow_reader_gets_all_of_a_large_payload_and_holds_up_nobody() {
    let origin = Served::start(1);
    let mut slow = origin.client();
    slow.send(b"GET /?payload=67108864 HTTP/1.1\r\nHost: a\r\n\r\n");
    slow.send(GET_ONE);
    std::thread::sleep(FILL_TIME);
    is_served(&origin);

    assert!(slow.head().contains("\r\nContent-Length: 67108864\r\n"));
    let mut body = vec![0; 64 << 20];
    for piece in body.chunks_mut(4 << 20) {
        slow.stream.read_exact(piece).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(body.iter().all(|&byte| byte == b'x'));
    slow.expect(ONE);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let origin = Served::start(1);
    let mut client = origin.client();
    let request = format!(
        "GET /?payload=60000 HTTP/1.1\r\nHost: a\r\nX-Padding: {}\r\n\r\n",
        "p".repeat(8_000)
    );
    let (requests, unsent) = send_until_full(&mut client, request.as_bytes());
    is_served(&origin);

    // Everything that was sent is answered, once there is room.
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&unsent).unwrap());
    for _ in 0..requests {
        assert!(client.head().contains("\r\nContent-Length: 60000\r\n"));
        client.expect(&"x".repeat(60_000));
    }
    sending.join().unwrap();
    client.send(GET_ONE);
    client.expect(ONE);
}

/// Sends `request` again and again until the origin takes no more. Returns how many were begun, and
/// what is missing of the last.
fn send_until_full(client: &mut Client, request: &[u8]) -> (usize, Vec<u8>) {
    // Far more than the buffers of the kernel hold; an origin that reads on would take all of it.
    const TOO_MANY: usize = 12_000;
    client.stream.set_write_timeout(Some(FILL_TIME)).unwrap();
    for begun in 1..TOO_MANY {
        let mut unsent = request;
        while !unsent.is_empty() {
            match client.stream.write(unsent) {
                Ok(count) => unsent = &unsent[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    client.stream.set_write_timeout(Some(PATIENCE)).unwrap();
                    return (begun, unsent.to_vec());
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    panic!("the origin took {TOO_MANY} requests, none of whose answers was read");
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_an_answer_takes_nobody_along() {
    let origin = Served::start(1);
    for _ in 0..20 {
        let mut client = origin.client();
        client.send(b"GET /?payload=67108864 HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head();
    }
    is_served(&origin);
}

#[test]
fn a_client_that_sends_on_after_the_last_answer_is_cut_off() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"\0");
    assert!(client.read_to_end().starts_with("HTTP/1.1 400 Bad Request\r\n"));
    let flood = vec![b'f'; 1 << 20];
    let refused = (0..64).find_map(|_| client.stream.write_all(&flood).err());
    assert!(
        matches!(
            refused.map(|error| error.kind()),
            Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        ),
        "64 MiB were read after the last answer"
    );
}

#[test]
fn chunks_of_which_most_is_extension_are_refused() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("1;{}\r\nx\r\n", "e".repeat(1_000)).repeat(20).as_bytes());
    // It does not wait for the end, which never comes.
    assert!(client.head().starts_with("HTTP/1.1 400 "));
    is_served(&origin);
}

//! Entry point of the programs of `fuzz/`: a gateway of one thread, a client and a backend, driven in turns. Built only
//! for tests and under `--cfg fuzzing`, which cargo-fuzz sets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tollgate_config::serve::AskingProxy;
use tollgate_http1::parse_request_head;
use tollgate_net::Events;

use crate::checks::Standing;
use crate::command::CommandQueue;
use crate::config::{
    Address, ApiKeys, Config, Description, ForwardAuth, Forwarded, Listener, Protocol, Trust,
};
use crate::counters::Counters;
use crate::described::Described;
use crate::firewall::InspectedHead;
use crate::generation::{ConfigGeneration, Logs};
use crate::listener::ThreadListener;
use crate::worker::Worker;

/// More turns than this are an endless loop.
const TURNS_MAX: usize = 10_000;

/// The backend's reply to a request.
pub struct Reply {
    pub consumed: usize,
    /// The response; the gateway and the client have a turn between two pieces.
    pub pieces: Vec<Vec<u8>>,
    /// Closes the connection after the response; otherwise it is closed at the end.
    pub closes: bool,
}

#[derive(Debug)]
pub struct Talk {
    pub received: Vec<u8>,
    /// Incomplete requests that the backend received, by connection.
    pub incomplete: Vec<Vec<u8>>,
}

/// Sends `pieces` to a new gateway on one connection. `reply` is called with the unanswered bytes of a backend
/// connection, and returns `None` while a request is incomplete.
pub fn talk<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    reply: impl FnMut(&[u8]) -> Option<Reply>,
) -> Talk {
    talk_to(false, Protocol::Http1, pieces, reply)
}

/// As [`talk`], with a client that may begin with the preface of HTTP/2.
pub fn talk_http2<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    reply: impl FnMut(&[u8]) -> Option<Reply>,
) -> Talk {
    talk_to(true, Protocol::Http1, pieces, reply)
}

/// As [`talk`], with a backend over HTTP/2, whose connections begin with the preface of the gateway.
pub fn talk_to_http2<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    reply: impl FnMut(&[u8]) -> Option<Reply>,
) -> Talk {
    talk_to(false, Protocol::Http2 { streams_max: 100 }, pieces, reply)
}

fn talk_to<'a>(
    http2: bool,
    backend: Protocol,
    pieces: impl Iterator<Item = &'a [u8]>,
    reply: impl FnMut(&[u8]) -> Option<Reply>,
) -> Talk {
    let mut scene = Scene::new(http2, backend, reply).expect("sockets and an epoll instance");
    for piece in pieces {
        scene.client_sends(piece);
        scene.settle();
    }
    // The gateway may have closed it.
    scene.client.shutdown(std::net::Shutdown::Write).ok();
    scene.settle();
    scene.is_ending = true;
    scene.settle();
    scene.end()
}

/// The gateway, its client and its backend.
struct Scene<ReplyTo> {
    worker: Worker,
    events: Events,
    client: UnixStream,
    received: Vec<u8>,
    is_client_closed: bool,
    backend: &'static UnixListener,
    connections: Vec<Connection>,
    reply: ReplyTo,
    incomplete: Vec<Vec<u8>>,
    is_ending: bool,
}

/// A connection of the gateway to the backend.
struct Connection {
    stream: UnixStream,
    unanswered: Vec<u8>,
    pieces: std::vec::IntoIter<Vec<u8>>,
    closes: bool,
    is_closed: bool,
}

impl<ReplyTo: FnMut(&[u8]) -> Option<Reply>> Scene<ReplyTo> {
    fn new(http2: bool, protocol: Protocol, reply: ReplyTo) -> io::Result<Self> {
        let sockets = Sockets::get()?;
        let socket = Arc::new(OwnedFd::from(sockets.front.try_clone()?));
        let address = Address::Unix(sockets.front_path.clone());
        let listener = Listener { http2, ..Listener::new(address) };
        let listener = ThreadListener::new(socket, &listener, "localhost".to_owned());
        let mut config = Config::new(
            Address::Unix(sockets.front_path.clone()),
            Address::Unix(sockets.backend_path.clone()),
        );
        config.pools[0].protocol = protocol;
        config.forwarded =
            Forwarded { via: None, x_forwarded: false, forwarded: false, trust: Trust::Nobody };
        let counters = Arc::new(Counters::new(1));
        let (logs, now) = (Logs::default(), Instant::now());
        let generation = Arc::new(ConfigGeneration::new(config, logs, &counters, None, now));
        counters.add_generation(Arc::clone(&generation.counters));
        let commands = Arc::new(CommandQueue::new()?);
        let worker = Worker::new(vec![listener], generation, counters, commands, 0)?;
        let client = UnixStream::connect(&sockets.front_path)?;
        client.set_nonblocking(true)?;
        Ok(Self {
            worker,
            events: Events::with_capacity(64),
            client,
            received: Vec::new(),
            is_client_closed: false,
            backend: &sockets.backend,
            connections: Vec::new(),
            reply,
            incomplete: Vec::new(),
            is_ending: false,
        })
    }

    fn client_sends(&mut self, piece: &[u8]) {
        let mut unsent = piece;
        while !unsent.is_empty() && !self.is_client_closed {
            match self.client.write(unsent) {
                Ok(count) => unsent = &unsent[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.settle(),
                // The gateway has closed the connection; the next read shows it.
                Err(_) => return,
            }
        }
    }

    /// Gives turns until all three are idle.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let is_busy = self.worker.run_once(&mut self.events, Some(Duration::ZERO));
            let is_busy = is_busy.expect("waiting for events");
            let backend_is_busy = self.backend_turn();
            let client_is_busy = self.client_turn();
            if !is_busy && !backend_is_busy && !client_is_busy {
                return;
            }
        }
        panic!("the gateway does not settle");
    }

    fn client_turn(&mut self) -> bool {
        if self.is_client_closed {
            return false;
        }
        let count = read(&mut self.client, &mut self.received);
        self.is_client_closed = count.is_none();
        count != Some(0)
    }

    fn backend_turn(&mut self) -> bool {
        let mut was_busy = false;
        while let Ok((stream, _)) = self.backend.accept() {
            stream.set_nonblocking(true).expect("a nonblocking socket");
            self.connections.push(Connection {
                stream,
                unanswered: Vec::new(),
                pieces: Vec::new().into_iter(),
                closes: false,
                is_closed: false,
            });
            was_busy = true;
        }
        for connection in &mut self.connections {
            was_busy |= connection.turn(&mut self.reply, self.is_ending);
        }
        let closed = self.connections.extract_if(.., |connection| connection.is_closed);
        let unanswered = closed.map(|connection| connection.unanswered);
        self.incomplete.extend(unanswered.filter(|bytes| !bytes.is_empty()));
        was_busy
    }

    fn end(mut self) -> Talk {
        let unanswered = self.connections.into_iter().map(|connection| connection.unanswered);
        self.incomplete.extend(unanswered.filter(|bytes| !bytes.is_empty()));
        Talk { received: self.received, incomplete: self.incomplete }
    }
}

impl Connection {
    /// Reads what is available and sends one piece. Returns true if there was anything to do.
    fn turn(&mut self, reply: &mut impl FnMut(&[u8]) -> Option<Reply>, is_ending: bool) -> bool {
        let mut was_busy = false;
        match read(&mut self.stream, &mut self.unanswered) {
            Some(count) => was_busy |= count > 0,
            None => self.is_closed = true,
        }
        if self.pieces.len() == 0
            && !self.unanswered.is_empty()
            && let Some(reply) = reply(&self.unanswered)
        {
            self.unanswered.drain(..reply.consumed);
            self.pieces = reply.pieces.into_iter();
            self.closes = reply.closes;
            was_busy = true;
        }
        if let Some(piece) = self.pieces.next() {
            // If the gateway has closed the connection, the next read shows it. Pieces are short.
            self.stream.write_all(&piece).ok();
            was_busy = true;
        }
        if self.pieces.len() == 0 && (self.closes || (is_ending && !was_busy)) {
            self.is_closed = true;
        }
        was_busy || self.is_closed
    }
}

/// Appends what is available; `None` at the end of the connection.
fn read(stream: &mut UnixStream, into: &mut Vec<u8>) -> Option<usize> {
    let mut piece = [0; 16 << 10];
    match stream.read(&mut piece) {
        Ok(0) => None,
        Ok(count) => {
            into.extend_from_slice(&piece[..count]);
            Some(count)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// The listening sockets of the gateway and the backend, for all talks of a process, one after the other.
struct Sockets {
    front: UnixListener,
    front_path: PathBuf,
    backend: UnixListener,
    backend_path: PathBuf,
}

impl Sockets {
    /// Opens them in the folder for temporary files, named after the process.
    fn get() -> io::Result<&'static Self> {
        static SOCKETS: OnceLock<Sockets> = OnceLock::new();
        if let Some(sockets) = SOCKETS.get() {
            return Ok(sockets);
        }
        let listen = |name: &str| -> io::Result<_> {
            let file = format!("tollgate-fuzz-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(file);
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            Ok((listener, path))
        };
        let (front, front_path) = listen("front")?;
        let (backend, backend_path) = listen("backend")?;
        Ok(SOCKETS.get_or_init(|| Self { front, front_path, backend, backend_path }))
    }
}

/// The request that another describes.
#[derive(Debug)]
pub struct DescribedHead {
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub client: Option<IpAddr>,
}

/// The requests that the one at the start of `bytes` describes: by nginx's `auth_request`, and by a bouncer of CrowdSec whose key
/// is `key`; `None` for an invalid description. `None` if there is no valid head.
pub fn describe(bytes: &[u8]) -> Option<[Option<DescribedHead>; 2]> {
    let head = parse_request_head(bytes).ok()??;
    let by_nginx = Description::ForwardAuth(ForwardAuth::of(AskingProxy::Nginx));
    let by_bouncer = Description::AppSec(ApiKeys::new(vec!["key".to_owned()]));
    Some([by_nginx, by_bouncer].map(|description| {
        let mut list = Vec::new();
        let described =
            Described::of(&head, None, &description, |_| Standing::Invalid, &mut list).ok()?;
        let InspectedHead { method, target, headers, .. } = described.head(&list);
        let headers = headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec()));
        Some(DescribedHead {
            method: method.to_vec(),
            target: target.to_vec(),
            headers: headers.collect(),
            client: described.client,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn talk_ends_once_nobody_has_more_to_do() {
        let mut requests = Vec::new();
        let talk =
            talk([&b"GET /a HTT"[..], b"P/1.1\r\nHost: a\r\n\r\nGET /b"].into_iter(), |bytes| {
                requests.push(bytes.to_vec());
                Some(Reply {
                    consumed: bytes.len(),
                    pieces: vec![
                        b"HTTP/1.1 200 OK\r\nDate: d\r\nConte".to_vec(),
                        b"nt-Length: 1\r\n\r\nx".to_vec(),
                    ],
                    closes: false,
                })
            });
        assert_eq!(requests, [b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
        assert!(
            talk.received.starts_with(b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 1\r\n\r\nx")
        );
        assert_eq!(talk.incomplete, [b"GET /b"; 0]);
    }
}

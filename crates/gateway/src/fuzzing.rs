//! What the programs of `fuzz/` drive: a gateway of one thread that is given its turns by hand, between a
//! client and a backend that do the same. It is there only in tests and under `--cfg fuzzing`, which
//! cargo-fuzz sets.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tollgate_eventloop::{Events, Waker};

use crate::config::{Address, Config, Forwarded, Listener};
use crate::counters::Counters;
use crate::orders::Orders;
use crate::site::Plan;
use crate::worker::{Listening, Worker};

/// How often everybody has a turn before the three are taken to keep each other busy for ever.
const TURNS_MAX: usize = 10_000;

/// What a backend says to a request.
pub struct Reply {
    /// How many of the bytes that came are the request.
    pub consumed: usize,
    /// The answer; all have had their turns between one piece and the next.
    pub pieces: Vec<Vec<u8>>,
    /// Whether the connection is closed behind it. If not, that is done once nobody has any more to do.
    pub closes: bool,
}

/// What came of a client's bytes.
#[derive(Debug)]
pub struct Talk {
    /// All that the client received.
    pub received: Vec<u8>,
    /// What backends got that was no whole request, a connection after the other.
    pub begun: Vec<Vec<u8>>,
}

/// Sends these pieces to a gateway that is made for them, on one connection. `reply` is what its backend says to
/// the bytes that have come on a connection and were not answered yet: nothing, while more are to come.
pub fn talk<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    reply: impl FnMut(&[u8]) -> Option<Reply>,
) -> Talk {
    let mut stage = Stage::set(reply).expect("sockets and an epoll instance");
    for piece in pieces {
        stage.client_sends(piece);
        stage.settle();
    }
    // The gateway may have closed it.
    stage.client.shutdown(std::net::Shutdown::Write).ok();
    stage.settle();
    stage.is_ending = true;
    stage.settle();
    stage.end()
}

/// The three, and what has come of them so far.
struct Stage<ReplyTo> {
    worker: Worker,
    events: Events,
    client: UnixStream,
    received: Vec<u8>,
    client_is_over: bool,
    backend: &'static UnixListener,
    connections: Vec<Connection>,
    reply: ReplyTo,
    begun: Vec<Vec<u8>>,
    is_ending: bool,
}

/// A connection of the gateway to the backend.
struct Connection {
    stream: UnixStream,
    unanswered: Vec<u8>,
    pieces: std::vec::IntoIter<Vec<u8>>,
    closes: bool,
    is_over: bool,
}

impl<ReplyTo: FnMut(&[u8]) -> Option<Reply>> Stage<ReplyTo> {
    fn set(reply: ReplyTo) -> io::Result<Self> {
        let places = Places::get()?;
        let socket = Arc::new(OwnedFd::from(places.entrance.try_clone()?));
        let listener = Listener::new(Address::Unix(places.entrance_path.clone()));
        let listening = Listening::new(socket, &listener, "localhost".to_owned());
        let mut config = Config::new(
            Address::Unix(places.entrance_path.clone()),
            Address::Unix(places.backend_path.clone()),
        );
        config.forwarded =
            Forwarded { via: None, x_forwarded: false, forwarded: false, trust_client: false };
        let plan = Plan::new(config, None, Instant::now()).map_err(io::Error::other)?;
        let plan = Arc::new(plan);
        let counters = Arc::new(Counters::new(1));
        counters.begin(Arc::clone(&plan.tallies));
        let orders = Arc::new(Orders::default());
        let (listeners, waker) = (vec![listening], Waker::new()?);
        let worker = Worker::new(listeners, plan, counters, orders, waker, 0, None)?;
        let client = UnixStream::connect(&places.entrance_path)?;
        client.set_nonblocking(true)?;
        Ok(Self {
            worker,
            events: Events::with_capacity(64),
            client,
            received: Vec::new(),
            client_is_over: false,
            backend: &places.backend,
            connections: Vec::new(),
            reply,
            begun: Vec::new(),
            is_ending: false,
        })
    }

    fn client_sends(&mut self, piece: &[u8]) {
        let mut unsent = piece;
        while !unsent.is_empty() && !self.client_is_over {
            match self.client.write(unsent) {
                Ok(count) => unsent = &unsent[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.settle(),
                // The gateway has hung up, which a read will tell.
                Err(_) => return,
            }
        }
    }

    /// Gives everybody turns until nobody has anything to do.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let is_busy = self.worker.turn_once(&mut self.events, Some(Duration::ZERO));
            let is_busy = is_busy.expect("a gateway that can wait for its sockets");
            let backend_is_busy = self.backend_turn();
            let client_is_busy = self.client_turn();
            if !is_busy && !backend_is_busy && !client_is_busy {
                return;
            }
        }
        panic!("the gateway comes to no rest");
    }

    fn client_turn(&mut self) -> bool {
        if self.client_is_over {
            return false;
        }
        let count = read(&mut self.client, &mut self.received);
        self.client_is_over = count.is_none();
        count != Some(0)
    }

    fn backend_turn(&mut self) -> bool {
        let mut was_busy = false;
        while let Ok((stream, _)) = self.backend.accept() {
            stream.set_nonblocking(true).expect("a socket that need not block");
            self.connections.push(Connection {
                stream,
                unanswered: Vec::new(),
                pieces: Vec::new().into_iter(),
                closes: false,
                is_over: false,
            });
            was_busy = true;
        }
        for connection in &mut self.connections {
            was_busy |= connection.turn(&mut self.reply, self.is_ending);
        }
        let over = self.connections.extract_if(.., |connection| connection.is_over);
        let unanswered = over.map(|connection| connection.unanswered);
        self.begun.extend(unanswered.filter(|bytes| !bytes.is_empty()));
        was_busy
    }

    fn end(mut self) -> Talk {
        let unanswered = self.connections.into_iter().map(|connection| connection.unanswered);
        self.begun.extend(unanswered.filter(|bytes| !bytes.is_empty()));
        Talk { received: self.received, begun: self.begun }
    }
}

impl Connection {
    /// Reads what there is, and answers by one piece; says whether anything was to be done.
    fn turn(&mut self, reply: &mut impl FnMut(&[u8]) -> Option<Reply>, is_ending: bool) -> bool {
        let mut was_busy = false;
        match read(&mut self.stream, &mut self.unanswered) {
            Some(count) => was_busy |= count > 0,
            None => self.is_over = true,
        }
        if self.pieces.len() == 0
            && !self.unanswered.is_empty()
            && let Some(answer) = reply(&self.unanswered)
        {
            self.unanswered.drain(..answer.consumed);
            self.pieces = answer.pieces.into_iter();
            self.closes = answer.closes;
            was_busy = true;
        }
        if let Some(piece) = self.pieces.next() {
            // The gateway may have hung up, which the next read tells. Pieces are short.
            self.stream.write_all(&piece).ok();
            was_busy = true;
        }
        if self.pieces.len() == 0 && (self.closes || (is_ending && !was_busy)) {
            self.is_over = true;
        }
        was_busy || self.is_over
    }
}

/// Adds what there is; `None`: the other side is over.
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

/// Where the gateway listens and where its backend does; the same for all talks of a process, one after
/// the other.
struct Places {
    entrance: UnixListener,
    entrance_path: PathBuf,
    backend: UnixListener,
    backend_path: PathBuf,
}

impl Places {
    /// Two sockets in the folder for temporary files, named after the process.
    fn get() -> io::Result<&'static Self> {
        static PLACES: OnceLock<Places> = OnceLock::new();
        if let Some(places) = PLACES.get() {
            return Ok(places);
        }
        let listen = |name: &str| -> io::Result<_> {
            let file = format!("tollgate-fuzz-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(file);
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            Ok((listener, path))
        };
        let (entrance, entrance_path) = listen("entrance")?;
        let (backend, backend_path) = listen("backend")?;
        Ok(PLACES.get_or_init(|| Self { entrance, entrance_path, backend, backend_path }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_talk_in_turns_until_they_have_no_more_to_say() {
        let mut asked = Vec::new();
        let talk =
            talk([&b"GET /a HTT"[..], b"P/1.1\r\nHost: a\r\n\r\nGET /b"].into_iter(), |bytes| {
                asked.push(bytes.to_vec());
                Some(Reply {
                    consumed: bytes.len(),
                    pieces: vec![
                        b"HTTP/1.1 200 OK\r\nDate: d\r\nConte".to_vec(),
                        b"nt-Length: 1\r\n\r\nx".to_vec(),
                    ],
                    closes: false,
                })
            });
        assert_eq!(asked, [b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
        assert!(
            talk.received.starts_with(b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 1\r\n\r\nx")
        );
        assert_eq!(talk.begun, [b"GET /b"; 0]);
    }
}

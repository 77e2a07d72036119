//! A backend whose every connection is a function, and that can be killed.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::client::PATIENCE;

/// A backend that serves until killed or dropped, with a thread for each connection.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<Connection>>>,
    accepting: Option<JoinHandle<()>>,
}

struct Connection {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl Backend {
    /// On any free port.
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), serve)
    }

    /// There; another backend may have been killed there before.
    pub(crate) fn at(
        address: SocketAddr,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let serve = Arc::new(serve);
        let accepting = std::thread::spawn({
            let (is_over, connections) = (Arc::clone(&is_over), Arc::clone(&connections));
            move || {
                for stream in listener.incoming() {
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    let stream = stream.unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    stream.set_write_timeout(Some(PATIENCE)).unwrap();
                    stream.set_nodelay(true).unwrap();
                    let (handle, serve) = (stream.try_clone().unwrap(), Arc::clone(&serve));
                    let kept = handle.try_clone().unwrap();
                    let thread = std::thread::spawn(move || {
                        serve(stream);
                        // The other handle would keep it open. The peer may have closed it first.
                        let _gone_already = handle.shutdown(Shutdown::Both);
                    });
                    connections.lock().unwrap().push(Connection { stream: kept, thread });
                }
            }
        });
        Self { address, is_over, connections, accepting: Some(accepting) }
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// Ends it as a process ends that is killed: connections break off, and nobody listens any more.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.is_over.store(true, Ordering::Release);
        // Wakes the one who accepts.
        drop(TcpStream::connect(self.address).unwrap());
        accepting.join().unwrap();
        for connection in self.connections.lock().unwrap().drain(..) {
            // It may be gone already.
            let _gone_already = connection.stream.shutdown(Shutdown::Both);
            // One that fails has failed the test by what its peer did not get.
            let _has_told = connection.thread.join();
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.end();
    }
}

/// The next head that a proxy sends; `None` when it closes the connection, or is not heard for long.
pub(crate) fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// The path that a head asks for.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

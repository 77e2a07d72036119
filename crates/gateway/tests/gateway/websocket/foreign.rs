//! Peers of tungstenite over HTTP/2 of the crate h2, on either side of the gateway.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol as H2Protocol;
use h2::{RecvStream, SendStream, client, server};
use http::{Method, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_gateway::config::Protocol;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::support::{DEADLINE, Peer, TestGateway, ThreadedBackend, config, connect};

/// Wait for bytes before the rest of a connection has its turn.
const TURN: Duration = Duration::from_millis(5);

/// A socket whose reads wait for a turn. It is polled again and again, so that no waker is needed.
struct Socket(TcpStream);

impl Socket {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TURN)).unwrap();
        Self(stream)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0.read(buffer.initialize_unfilled()) {
            Ok(count) => buffer.advance(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shutdown(std::net::Shutdown::Write))
    }
}

/// Polls until there is a result.
#[track_caller]
fn drive<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let started_at = std::time::Instant::now();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = poll(&mut context) {
            return result;
        }
        assert!(started_at.elapsed() < DEADLINE, "the peer waits");
    }
}

/// A stream of h2 as blocking I/O. `turn` drives its connection.
struct H2Stream<Turn: FnMut(&mut Context<'_>)> {
    turn: Turn,
    send: SendStream<Bytes>,
    receive: RecvStream,
    unread: Bytes,
}

fn to_io(error: h2::Error) -> io::Error {
    io::Error::other(error)
}

impl<Turn: FnMut(&mut Context<'_>)> Read for H2Stream<Turn> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() {
            let Self { turn, receive, .. } = self;
            let data = drive(|context| match receive.poll_data(context) {
                Poll::Pending => {
                    turn(context);
                    Poll::Pending
                }
                ready => ready,
            });
            let Some(data) = data else { return Ok(0) };
            self.unread = data.map_err(to_io)?;
            self.receive.flow_control().release_capacity(self.unread.len()).map_err(to_io)?;
        }
        let count = buffer.len().min(self.unread.len());
        buffer[..count].copy_from_slice(&self.unread.split_to(count));
        Ok(count)
    }
}

impl<Turn: FnMut(&mut Context<'_>)> Write for H2Stream<Turn> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { turn, send, .. } = self;
        send.reserve_capacity(bytes.len());
        let count = drive(|context| {
            turn(context);
            // Announces further capacity only.
            match send.capacity() {
                0 => send.poll_capacity(context),
                count => Poll::Ready(Some(Ok(count))),
            }
        });
        let count = count.ok_or(io::ErrorKind::BrokenPipe)?.map_err(to_io)?.min(bytes.len());
        self.send.send_data(Bytes::copy_from_slice(&bytes[..count]), false).map_err(to_io)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.turn)(&mut Context::from_waker(Waker::noop()));
        Ok(())
    }
}

impl<Turn: FnMut(&mut Context<'_>)> Drop for H2Stream<Turn> {
    /// Ends the stream and waits for the peer's end.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // The peer may have ended it.
        self.send.send_data(Bytes::new(), true).ok();
        let Self { turn, receive, .. } = self;
        drive(|context| {
            turn(context);
            match receive.poll_data(context) {
                Poll::Pending | Poll::Ready(Some(Ok(_))) => Poll::Pending,
                Poll::Ready(None | Some(Err(_))) => Poll::Ready(()),
            }
        });
    }
}

/// Opens a WebSocket by h2.
fn open(gateway: &TestGateway) -> WebSocket<impl Read + Write> {
    let socket = Socket::new(connect(gateway.address()).unwrap());
    let mut handshake = pin!(client::handshake(socket));
    let (mut client, mut connection) = drive(|context| handshake.as_mut().poll(context)).unwrap();
    let mut is_over = false;
    let mut turn = move |context: &mut Context<'_>| {
        if !is_over && let Poll::Ready(end) = Pin::new(&mut connection).poll(context) {
            end.unwrap();
            is_over = true;
        }
    };
    drive(|context| {
        turn(context);
        let is_announced = client.is_extended_connect_protocol_enabled();
        if is_announced { Poll::Ready(()) } else { Poll::Pending }
    });
    drive(|context| client.poll_ready(context)).unwrap();
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://a/socket")
        .header("sec-websocket-version", "13")
        .extension(H2Protocol::from_static("websocket"))
        .body(())
        .unwrap();
    let (mut response, send) = client.send_request(request, false).unwrap();
    let response = drive(|context| {
        turn(context);
        Pin::new(&mut response).poll(context)
    });
    let (head, receive) = response.unwrap().into_parts();
    assert_eq!(head.status, 200);
    // The connection ends with its last handle.
    let turn = move |context: &mut Context<'_>| {
        let _handle = &client;
        turn(context);
    };
    let stream = H2Stream { turn, send, receive, unread: Bytes::new() };
    WebSocket::from_raw_socket(stream, Role::Client, None)
}

/// Serves one WebSocket by h2.
fn serve(peer: Peer) {
    let socket = Socket::new(peer.into_stream());
    let mut builder = server::Builder::new();
    let mut handshake = pin!(builder.enable_connect_protocol().handshake::<_, Bytes>(socket));
    let mut connection = drive(|context| handshake.as_mut().poll(context)).unwrap();
    let accepted = drive(|context| connection.poll_accept(context));
    let (request, mut respond) = accepted.unwrap().unwrap();
    assert_eq!(request.method(), Method::CONNECT);
    let protocol = request.extensions().get::<H2Protocol>().unwrap();
    assert_eq!((protocol.as_str(), request.uri().path()), ("websocket", "/socket"));
    assert!(request.headers().get("sec-websocket-key").is_none());
    let send = respond.send_response(Response::new(()), false).unwrap();
    let turn = move |context: &mut Context<'_>| {
        if let Poll::Ready(Some(accepted)) = connection.poll_accept(context) {
            // The gateway may have gone.
            drop(accepted);
        }
    };
    let receive = request.into_body();
    let stream = H2Stream { turn, send, receive, unread: Bytes::new() };
    echo(WebSocket::from_raw_socket(stream, Role::Server, None));
}

fn echo(mut socket: WebSocket<impl Read + Write>) {
    while let Ok(message) = socket.read() {
        if message.is_text() || message.is_binary() {
            socket.send(message).unwrap();
        }
    }
}

/// Exchanges messages, some longer than the windows, and closes.
fn exchange(mut socket: WebSocket<impl Read + Write>) {
    let long = "long ".repeat(50_000);
    for text in ["short", &long, ""] {
        socket.send(Message::text(text)).unwrap();
        assert!(socket.read().unwrap().into_text().unwrap() == text);
    }
    let bytes: Vec<u8> = (0..=255).collect();
    socket.send(Message::binary(bytes.clone())).unwrap();
    assert_eq!(socket.read().unwrap().into_data(), bytes);
    socket.close(None).unwrap();
    assert!(socket.read().unwrap().is_close());
}

fn gateway(backend: &ThreadedBackend, protocol: Protocol) -> TestGateway {
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    config.pools[0].protocol = protocol;
    TestGateway::start(&config)
}

const HTTP2: Protocol = Protocol::Http2 { streams_max: 100 };

#[test]
fn client_over_http2_reaches_a_backend_over_http1() {
    let backend = ThreadedBackend::start(|peer| {
        echo(tungstenite::accept(peer.into_stream()).unwrap());
    });
    exchange(open(&gateway(&backend, Protocol::Http1)));
}

#[test]
fn client_over_http2_reaches_a_backend_over_http2() {
    let backend = ThreadedBackend::start(serve);
    exchange(open(&gateway(&backend, HTTP2)));
}

#[test]
fn client_over_http1_reaches_a_backend_over_http2() {
    let backend = ThreadedBackend::start(serve);
    let gateway = gateway(&backend, HTTP2);
    let stream = connect(gateway.address()).unwrap();
    let (socket, response) = tungstenite::client("ws://a/socket", stream).unwrap();
    assert_eq!(response.status(), 101);
    exchange(socket);
}

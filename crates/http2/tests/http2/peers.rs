use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tollgate_http2::{Connection, Event, Field, Fields, Limits, Role};

/// Bytes that a pipe holds. Small, so that frames arrive in pieces.
const PIPE_BYTES: usize = 1000;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// A message of ours, or as received from the peer. `headers` are in the order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
struct Message {
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
}

impl Message {
    fn new(headers: &[(&str, &str)], body: Vec<u8>, trailers: &[(&str, &str)]) -> Self {
        let owned = |list: &[(&str, &str)]| {
            list.iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                .collect()
        };
        Self { headers: owned(headers), body, trailers: owned(trailers) }
    }
}

fn list<'a>(fields: impl Iterator<Item = Field<'a>>) -> Vec<(String, Vec<u8>)> {
    let mut list: Vec<_> = fields
        .map(|field| (String::from_utf8(field.name.to_vec()).unwrap(), field.value.to_vec()))
        .collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

fn their_list(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut list: Vec<_> =
        map.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

fn their_map(list: &[(String, Vec<u8>)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
    }
    map
}

fn fields(list: &[(String, Vec<u8>)]) -> impl Iterator<Item = Field<'_>> {
    list.iter().map(|(name, value)| Field::new(name.as_bytes(), value))
}

/// Message to send on a stream, and how much of its body is sent.
struct Sending {
    message: Message,
    sent: usize,
}

impl Sending {
    fn advance(&mut self, connection: &mut Connection, stream: u32, out: &mut Vec<u8>) {
        let has_trailers = !self.message.trailers.is_empty();
        let rest = &self.message.body[self.sent..];
        if self.sent > 0 && rest.is_empty() {
            return;
        }
        self.sent += connection.send_data(stream, rest, !has_trailers, out).unwrap();
        if self.sent == self.message.body.len() && has_trailers {
            connection.send_trailers(stream, fields(&self.message.trailers), out).unwrap();
        }
    }
}

/// Our server: returns each request's message as its response, with the path as a header. Ends with the client.
async fn our_server(mut pipe: DuplexStream, limits: Limits) {
    let mut out = Vec::new();
    let mut connection = Connection::new(Role::Server, limits, Instant::now(), &mut out);
    let mut fields_in = Fields::default();
    let mut received: HashMap<u32, Message> = HashMap::new();
    let mut sending: HashMap<u32, Sending> = HashMap::new();
    let mut buffer = [0; 700];
    loop {
        pipe.write_all(&out).await.unwrap();
        out.clear();
        connection.flushed();
        let count = pipe.read(&mut buffer).await.unwrap();
        if count == 0 {
            return assert_eq!(connection.streams(), 0);
        }
        let mut input = &buffer[..count];
        while let Some(event) =
            connection.receive(&mut input, &mut fields_in, &mut out, Instant::now()).unwrap()
        {
            let ended = match event {
                Event::Request { stream, end_stream } => {
                    let mut headers = list(fields_in.headers());
                    headers
                        .push(("x-path".to_owned(), fields_in.path().unwrap().as_bytes().to_vec()));
                    received.insert(stream, Message { headers, ..Message::default() });
                    end_stream.then_some(stream)
                }
                Event::Data { stream, data, end_stream, .. } => {
                    received.get_mut(&stream).unwrap().body.extend_from_slice(data);
                    connection.credit(stream, data.len(), &mut out);
                    end_stream.then_some(stream)
                }
                Event::Trailers { stream, .. } => {
                    received.get_mut(&stream).unwrap().trailers = list(fields_in.iter());
                    Some(stream)
                }
                Event::Writable
                | Event::StreamWritable { .. }
                | Event::Settings
                | Event::GoAway { .. } => None,
                other => panic!("{other:?}"),
            };
            if let Some(stream) = ended {
                let message = received.remove(&stream).unwrap();
                connection
                    .send_response(stream, 200, fields(&message.headers), false, &mut out)
                    .unwrap();
                sending.insert(stream, Sending { message, sent: 0 });
            }
            sending.retain(|stream, sending| {
                sending.advance(&mut connection, *stream, &mut out);
                let is_sent = sending.sent == sending.message.body.len();
                if is_sent {
                    connection.release(*stream, &mut out);
                }
                !is_sent
            });
        }
    }
}

async fn read_body(mut body: RecvStream) -> (Vec<u8>, HeaderMap) {
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        bytes.extend_from_slice(&piece);
    }
    (bytes, body.trailers().await.unwrap().unwrap_or_default())
}

/// h2 buffers what the windows do not allow yet.
fn send_body(mut stream: SendStream<Bytes>, message: &Message) {
    let has_trailers = !message.trailers.is_empty();
    stream.send_data(Bytes::from(message.body.clone()), !has_trailers).unwrap();
    if has_trailers {
        stream.send_trailers(their_map(&message.trailers)).unwrap();
    }
}

/// Sends the requests by h2, all at once, and returns the responses.
async fn their_client(pipe: DuplexStream, messages: Vec<Message>) -> Vec<Message> {
    let (mut client, connection) = h2::client::handshake(pipe).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut responses = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        client = client.ready().await.unwrap();
        let mut request = Request::post(format!("http://a/{number}")).body(()).unwrap();
        *request.headers_mut() = their_map(&message.headers);
        let (response, body) = client.send_request(request, false).unwrap();
        send_body(body, message);
        responses.push(response);
    }
    let mut received = Vec::new();
    for response in responses {
        let (head, body) = response.await.unwrap().into_parts();
        assert_eq!(head.status, 200);
        let (body, trailers) = read_body(body).await;
        received.push(Message {
            headers: their_list(&head.headers),
            body,
            trailers: their_list(&trailers),
        });
    }
    drop(client);
    driver.await.unwrap().unwrap();
    received
}

/// A server of h2 that returns each request's message.
async fn their_server(pipe: DuplexStream) {
    let mut connection = h2::server::handshake(pipe).await.unwrap();
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted.unwrap();
        tokio::spawn(async move {
            let (head, body) = request.into_parts();
            let (body, trailers) = read_body(body).await;
            let mut response = Response::new(());
            *response.headers_mut() = head.headers;
            response.headers_mut().append("x-path", head.uri.path().parse().unwrap());
            let stream = respond.send_response(response, false).unwrap();
            send_body(stream, &Message { headers: vec![], body, trailers: their_list(&trailers) });
        });
    }
}

/// Our client: sends the requests, as many at once as the server allows, and returns the responses.
async fn our_client(mut pipe: DuplexStream, messages: Vec<Message>) -> Vec<Message> {
    let mut out = Vec::new();
    let mut connection = Connection::new(Role::Client, Limits::default(), Instant::now(), &mut out);
    let mut fields_in = Fields::default();
    let mut received = vec![Message::default(); messages.len()];
    let mut sending: HashMap<u32, Sending> = HashMap::new();
    let mut requests = messages.into_iter().enumerate().peekable();
    let mut left = received.len();
    let mut buffer = [0; 700];
    while left > 0 {
        while connection.can_open()
            && let Some((number, message)) = requests.next()
        {
            let path = format!("/{number}");
            let pseudo = [
                Field::new(b":method", b"POST"),
                Field::new(b":scheme", b"http"),
                Field::new(b":authority", b"a"),
                Field::new(b":path", path.as_bytes()),
            ];
            let fields = pseudo.into_iter().chain(fields(&message.headers));
            let stream = connection.send_request(fields, false, number, &mut out).unwrap();
            sending.insert(stream, Sending { message, sent: 0 });
        }
        sending.retain(|stream, sending| {
            sending.advance(&mut connection, *stream, &mut out);
            sending.sent < sending.message.body.len()
        });
        pipe.write_all(&out).await.unwrap();
        out.clear();
        let count = pipe.read(&mut buffer).await.unwrap();
        assert!(count > 0);
        let mut input = &buffer[..count];
        while let Some(event) =
            connection.receive(&mut input, &mut fields_in, &mut out, Instant::now()).unwrap()
        {
            let ended = match event {
                Event::Response { stream, token, status, end_stream } => {
                    assert_eq!(status, 200);
                    received[token].headers = list(fields_in.headers());
                    end_stream.then_some(stream)
                }
                Event::Data { stream, token, data, end_stream } => {
                    received[token].body.extend_from_slice(data);
                    connection.credit(stream, data.len(), &mut out);
                    end_stream.then_some(stream)
                }
                Event::Trailers { stream, token } => {
                    received[token].trailers = list(fields_in.iter());
                    Some(stream)
                }
                Event::Writable
                | Event::StreamWritable { .. }
                | Event::Settings
                | Event::GoAway { .. } => None,
                other => panic!("{other:?}"),
            };
            if let Some(stream) = ended {
                connection.release(stream, &mut out);
                left -= 1;
            }
        }
    }
    received
}

/// Responses that an echo of the messages has.
fn echoes(messages: &[Message]) -> Vec<Message> {
    let echo = |(number, message): (usize, &Message)| {
        let mut echo = message.clone();
        echo.headers.push(("x-path".to_owned(), format!("/{number}").into_bytes()));
        echo.headers.sort_by(|a, b| a.0.cmp(&b.0));
        echo
    };
    messages.iter().enumerate().map(echo).collect()
}

fn exchange_with_their_client(messages: Vec<Message>, limits: Limits) -> Vec<Message> {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    runtime().block_on(async {
        let server = tokio::spawn(our_server(ours, limits));
        let received = their_client(theirs, messages).await;
        server.await.unwrap();
        received
    })
}

fn exchange_with_their_server(messages: Vec<Message>) -> Vec<Message> {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    runtime().block_on(async {
        let server = tokio::spawn(their_server(theirs));
        let received = our_client(ours, messages).await;
        server.await.unwrap();
        received
    })
}

fn large_messages() -> Vec<Message> {
    (0..5_usize)
        .map(|number| {
            // More than the windows of both sides.
            let body = (0..70_000 * number).map(|at| (at / 7 + number) as u8).collect();
            let trailers: &[(&str, &str)] = if number % 2 == 0 { &[("x-sum", "1")] } else { &[] };
            Message::new(&[("x-name", "value")], body, trailers)
        })
        .collect()
}

#[test]
fn large_bodies_from_their_client() {
    let small = Limits { stream_window: 3000, connection_window: 65_535, ..Limits::default() };
    for limits in [Limits::default(), small] {
        let messages = large_messages();
        assert_eq!(exchange_with_their_client(messages.clone(), limits), echoes(&messages));
    }
}

#[test]
fn large_bodies_to_their_server() {
    let messages = large_messages();
    assert_eq!(exchange_with_their_server(messages.clone()), echoes(&messages));
}

#[test]
fn many_streams_in_both_roles() {
    let message = |number: usize| {
        let value = number.to_string();
        Message::new(&[("x-number", &value), ("x-same", "same")], value.clone().into_bytes(), &[])
    };
    let messages: Vec<_> = (0..500).map(message).collect();
    // h2 accepts 200 streams at once, and we 100.
    assert_eq!(exchange_with_their_server(messages.clone()), echoes(&messages));
    assert_eq!(exchange_with_their_client(messages.clone(), Limits::default()), echoes(&messages));
}

fn any_message() -> impl Strategy<Value = Message> {
    let name = prop_oneof![
        Just("cookie".to_owned()),
        Just("etag".to_owned()),
        Just("authorization".to_owned()),
        Just("accept-encoding".to_owned()),
        "x-[a-c]{1,2}",
    ];
    let value = prop_oneof![
        "[a-c]{0,2}".prop_map(String::into_bytes),
        "[!-~]{1,60}".prop_map(String::into_bytes),
        prop::collection::vec(prop_oneof![0x21..0x7f_u8, 0x80..=0xff_u8], 1..40),
        (100..3000_usize).prop_map(|length| vec![b'x'; length]),
    ];
    let headers = prop::collection::vec((name, value), 0..10);
    (headers, prop_oneof![Just(0), 1..3000_usize], any::<bool>()).prop_map(
        |(headers, length, has_trailers)| {
            let trailers: &[(&str, &str)] = if has_trailers { &[("x-t", "u")] } else { &[] };
            let mut message = Message::new(&[], vec![b'b'; length], trailers);
            message.headers = headers;
            message
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_survive_in_both_roles(messages in prop::collection::vec(any_message(), 1..12)) {
        let expected = echoes(&messages);
        prop_assert_eq!(&exchange_with_their_client(messages.clone(), Limits::default()), &expected);
        prop_assert_eq!(&exchange_with_their_server(messages), &expected);
    }
}

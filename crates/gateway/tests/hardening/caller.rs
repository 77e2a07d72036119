//! A client that reads answers, by rules of its own: it shares no code with the gateway.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};

use tollgate_gateway::config::Address;

use crate::client::Client;

/// A connection on which one request follows the other.
pub(crate) struct Caller {
    stream: BufReader<Client>,
}

/// An answer that came whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Its lines, in small letters.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Caller {
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(Client::connect(address)?) })
    }

    /// Sends a request, and waits for its answer, whose body has a length or chunks.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.stream.get_mut().write_all(request)?;
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        self.stream.get_mut()
    }

    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        loop {
            match self.line()? {
                line if line.is_empty() => break,
                line => head.push(line.to_ascii_lowercase()),
            }
        }
        let status = head.first().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| strange(format!("no status in {head:?}")))?;
        let mut answer = Answer { status, head, body: Vec::new() };
        match answer.header("content-length").map(str::parse) {
            Some(Ok(length)) => {
                answer.body.resize(length, 0);
                self.stream.read_exact(&mut answer.body)?;
            }
            Some(Err(error)) => return Err(strange(error.to_string())),
            None if answer.header("transfer-encoding") == Some("chunked") => {
                self.chunks(&mut answer.body)?;
            }
            None => {}
        }
        Ok(answer)
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let size = u64::from_str_radix(&line, 16)
                .map_err(|error| strange(format!("{error}: {line}")))?;
            let read = self.stream.by_ref().take(size).read_to_end(body)?;
            if read as u64 != size {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if !self.line()?.is_empty() {
                return Err(strange(
                    "a chunk, or the body, does not end in an empty line".to_owned(),
                ));
            }
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if line.ends_with(b"\n") => Err(strange(line.escape_ascii().to_string())),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Answer {
    /// The value of the first header of this name, in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.iter().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Whether nothing more comes on its connection.
    pub(crate) fn is_last(&self) -> bool {
        self.header("connection") == Some("close")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Whether an exchange broke off, as it does when a peer dies, rather than hung or went wrong.
pub(crate) fn is_broken_off(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn strange(what: String) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

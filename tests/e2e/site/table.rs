//! What is asked of the site, and what has to be answered: the same on every server that has it, but for
//! the differences.

/// Where the servers differ.
mod differences;
mod downloads;
mod measures;
mod mirrors;
mod protocol;
mod uploads;

pub(super) use differences::differences;
pub(super) use uploads::{FORM, FORM_TYPE, form_answer};

/// One line of the table: requests on one connection, and their answers.
#[derive(Clone)]
pub(super) struct Row {
    /// What is sent, as it is.
    pub(super) request: String,
    /// What has to come, in this order.
    pub(super) answers: Vec<Expected>,
    /// What becomes of the connection.
    pub(super) then: Then,
}

/// An answer that has to come.
#[derive(Clone)]
pub(super) struct Expected {
    pub(super) status: u16,
    /// Headers that have to be there with exactly this value.
    pub(super) headers: Vec<(&'static str, String)>,
    /// Headers that must not be there.
    pub(super) without: Vec<&'static str>,
    pub(super) body: Body,
    /// Whether it answers a HEAD.
    pub(super) to_head: bool,
}

/// The body of an answer.
#[derive(Clone)]
pub(super) enum Body {
    /// This text, in which each `#` stands for a digit.
    Text(String),
    /// So many letters `x`.
    Filler(usize),
    /// A JSON object with the reason in `error`.
    Reason,
    /// A text that has this in it.
    Holds(&'static str),
}

/// What becomes of a connection after the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The next request is answered.
    Stays,
    /// It is closed.
    Closes,
}

/// The whole table.
pub(super) fn rows() -> Vec<Row> {
    [
        measures::measures(),
        downloads::downloads(),
        uploads::uploads(),
        protocol::conditions(),
        mirrors::mirrors(),
        protocol::refusals(),
        protocol::connections(),
    ]
    .concat()
}

const HOST: &str = "Host: site.example\r\n";
const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";

/// A request without a body.
fn ask(method_and_target: &str, lines: &str) -> String {
    format!("{method_and_target} HTTP/1.1\r\n{HOST}{lines}\r\n")
}

/// A request with a body of a told length.
fn send(method_and_target: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    format!("{method_and_target} HTTP/1.1\r\n{HOST}{lines}Content-Length: {length}\r\n\r\n{body}")
}

fn row(request: String, answer: Expected) -> Row {
    Row { request, answers: vec![answer], then: Then::Stays }
}

fn get(target: &str, answer: Expected) -> Row {
    row(ask(&format!("GET {target}"), ""), answer)
}

fn json(text: &str) -> Expected {
    status(200, text)
}

fn status(status: u16, text: &str) -> Expected {
    let length = text.len().to_string();
    Expected {
        status,
        headers: vec![("Content-Type", JSON.to_owned()), ("Content-Length", length)],
        without: vec!["Transfer-Encoding"],
        body: Body::Text(text.to_owned()),
        to_head: false,
    }
}

/// An answer of which only the status and that it says why are the same everywhere.
fn refused(status: u16) -> Expected {
    Expected {
        status,
        headers: vec![("Content-Type", JSON.to_owned())],
        without: vec![],
        body: Body::Reason,
        to_head: false,
    }
}

/// A refusal with its reason.
fn reason(code: u16, text: &str) -> Expected {
    let quoted = text.replace('"', "\\\"");
    status(code, &format!("{{\"error\":\"{quoted}\"}}"))
}

fn file(size: usize) -> Expected {
    Expected {
        status: 200,
        headers: vec![
            ("Content-Type", OCTETS.to_owned()),
            ("Content-Length", size.to_string()),
            ("ETag", format!("\"{size}\"")),
            ("Accept-Ranges", "bytes".to_owned()),
        ],
        without: vec!["Transfer-Encoding", "Content-Range"],
        body: Body::Filler(size),
        to_head: false,
    }
}

fn part(first: usize, last: usize, size: usize) -> Expected {
    let whole = file(last - first + 1);
    Expected {
        status: 206,
        headers: vec![
            ("Content-Type", OCTETS.to_owned()),
            ("Content-Length", (last - first + 1).to_string()),
            ("ETag", format!("\"{size}\"")),
            ("Content-Range", format!("bytes {first}-{last}/{size}")),
        ],
        without: vec!["Transfer-Encoding"],
        ..whole
    }
}

fn plain(body: Body) -> Expected {
    Expected {
        status: 200,
        headers: vec![("Content-Type", "text/plain".to_owned())],
        without: vec!["Transfer-Encoding"],
        body,
        to_head: false,
    }
}

/// The same without its body, to a HEAD.
fn head_of(answer: Expected) -> Expected {
    Expected { body: Body::Text(String::new()), to_head: true, ..answer }
}

/// An answer that never has a body.
fn bare(status: u16) -> Expected {
    Expected {
        status,
        headers: vec![],
        without: vec!["Transfer-Encoding", "Content-Type"],
        body: Body::Text(String::new()),
        to_head: false,
    }
}

const BYTES: &str = "it may be a whole number of bytes from";

fn closes(request: String, answer: Expected) -> Row {
    Row { then: Then::Closes, ..row(request, answer) }
}

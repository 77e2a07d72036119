//! The requests of one connection and their answers, in order, without I/O.

use tollgate_wire::{Version, parse_request_head};

use crate::answer::{Answer, Refusal, answer};
use crate::output::Output;
use crate::request_body::RequestBody;
use crate::response::{CONTINUE, Persistence, render};

/// Where one connection is in its requests.
#[derive(Default)]
pub(crate) struct Conversation {
    state: State,
}

#[derive(Default)]
enum State {
    /// A request begins.
    #[default]
    Head,
    /// A body is read, after which its answer leaves.
    Body(Box<PendingAnswer>),
    /// No more requests are answered.
    Ended(Ending),
}

struct PendingAnswer {
    body: RequestBody,
    answer: Output,
    keep_alive: bool,
}

/// What a conversation needs before it can go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// More bytes from the client, after those that were consumed.
    Input,
    /// The output to be sent.
    Room,
    /// Nothing: once the output is sent, the connection is to be closed.
    Close(Ending),
}

/// How a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything that the client sent was read.
    Clean,
    /// The client may be sending still; closing at once would reset the connection, and the client
    /// might lose the answer (RFC 9112, section 9.6).
    Linger,
}

impl Conversation {
    /// Answers the requests in `input` into `output`; no more than one when `stopping`. Returns how
    /// many bytes of `input` were consumed, and what is needed to go on.
    pub(crate) fn advance(
        &mut self,
        input: &[u8],
        output: &mut Output,
        stopping: bool,
    ) -> (usize, Need) {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let step = match &mut self.state {
                State::Ended(ending) if rest.is_empty() => return (consumed, Need::Close(*ending)),
                State::Ended(_) => return (consumed, Need::Close(Ending::Linger)),
                _ if rest.is_empty() => return (consumed, Need::Input),
                _ if output.is_full() => return (consumed, Need::Room),
                State::Head => self.begin(rest, output, stopping),
                State::Body(pending) => match pending.body.read(rest) {
                    Ok((count, false)) => Ok(Some(count)),
                    Ok((count, true)) => {
                        output.append(&pending.answer);
                        let keep_alive = pending.keep_alive;
                        self.next(keep_alive);
                        Ok(Some(count))
                    }
                    Err(refusal) => Err(refusal),
                },
            };
            match step {
                Ok(Some(count)) => consumed += count,
                Ok(None) => return (consumed, Need::Input),
                Err(refusal) => {
                    let answer = Answer::Refusal(refusal);
                    render(&answer, false, Persistence::Close, output);
                    self.state = State::Ended(Ending::Linger);
                    return (consumed, Need::Close(Ending::Linger));
                }
            }
        }
    }

    /// No request is under way.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Head)
    }

    /// Reads a head and as much of its body as is there. Returns how many bytes that was, or nothing
    /// while the head is incomplete.
    fn begin<'a>(
        &mut self,
        input: &'a [u8],
        output: &mut Output,
        stopping: bool,
    ) -> Result<Option<usize>, Refusal<'a>> {
        let Some(head) = parse_request_head(input).map_err(Refusal::Malformed)? else {
            return Ok(None);
        };
        let keep_alive = head.keep_alive && !stopping;
        let persistence = match (keep_alive, head.version) {
            (false, _) => Persistence::Close,
            (true, Version::Http10) => Persistence::Stated,
            (true, Version::Http11) => Persistence::Implied,
        };
        let answer = answer(head.method, head.target);
        let to_head = head.method == "HEAD";

        let mut body = RequestBody::new(head.body)?;
        let (body_bytes, done) = body.read(&input[head.len..])?;
        if done {
            render(&answer, to_head, persistence, output);
            self.next(keep_alive);
        } else {
            if body_bytes == 0 && head.expects_continue {
                output.push(CONTINUE);
            }
            let mut later = Output::default();
            render(&answer, to_head, persistence, &mut later);
            self.state = State::Body(Box::new(PendingAnswer { body, answer: later, keep_alive }));
        }
        Ok(Some(head.len + body_bytes))
    }

    /// Goes on after an answer.
    fn next(&mut self, keep_alive: bool) {
        self.state = if keep_alive { State::Head } else { State::Ended(Ending::Clean) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each framing, back to back.
    const REQUESTS: &[u8] = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n\
        POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
        PUT /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\n\
        HEAD /?payload=12345 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
        GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    const ANSWERS: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\n\
        Content-Type: text/plain\r\nContent-Length: 3\r\n\r\nxxx\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        X-Content-Type-Options: nosniff\r\nContent-Length: 20\r\n\r\ntollgate origin: /a\n\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        X-Content-Type-Options: nosniff\r\nContent-Length: 20\r\n\r\ntollgate origin: /b\n\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        Connection: keep-alive\r\nContent-Length: 12345\r\n\r\n\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        X-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: 19\r\n\r\n\
        tollgate origin: /\n";

    /// Feeds pieces as a connection does: what is not consumed comes again, before the next piece.
    fn converse(pieces: &[&[u8]]) -> (String, Need) {
        let mut conversation = Conversation::default();
        let mut unread = Vec::new();
        let mut answers = Vec::new();
        let mut last = Need::Input;
        for piece in pieces {
            unread.extend_from_slice(piece);
            loop {
                let mut output = Output::default();
                let (consumed, need) = conversation.advance(&unread, &mut output, false);
                unread.drain(..consumed);
                while !output.send(&mut answers, &mut 1_000_000).unwrap() {}
                last = need;
                if last != Need::Room {
                    break;
                }
            }
        }
        (String::from_utf8(answers).unwrap(), last)
    }

    #[test]
    fn answers_do_not_depend_on_where_requests_are_split() {
        let expected = (ANSWERS.to_owned(), Need::Close(Ending::Clean));
        for at in 0..=REQUESTS.len() {
            let (first, second) = REQUESTS.split_at(at);
            assert_eq!(converse(&[first, second]), expected, "split at {at}");
        }
        let single: Vec<&[u8]> = REQUESTS.chunks(1).collect();
        assert_eq!(converse(&single), expected);
    }

    #[test]
    fn a_large_payload_must_be_sent_before_the_next_answer() {
        let mut conversation = Conversation::default();
        let mut output = Output::default();
        let request = b"GET /?payload=50000 HTTP/1.1\r\nHost: a\r\n\r\n";
        let advanced = conversation.advance(&request.repeat(2), &mut output, false);
        assert_eq!(advanced, (request.len(), Need::Room));
        output.clear();
        let advanced = conversation.advance(request, &mut output, false);
        assert_eq!(advanced, (request.len(), Need::Input));
        assert!(conversation.is_between_requests());
    }

    #[test]
    fn what_follows_the_last_request_makes_the_ending_linger() {
        let (_, need) = converse(&[b"GET / HTTP/1.0\r\n\r\nmore"]);
        assert_eq!(need, Need::Close(Ending::Linger));
        let (_, need) = converse(&[b"\0\r\n\r\n"]);
        assert_eq!(need, Need::Close(Ending::Linger));
    }

    #[test]
    fn only_a_body_of_which_nothing_came_is_invited() {
        const HEAD: &[u8] =
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        const INVITATION: &str = "HTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(converse(&[HEAD]).0, INVITATION);
        assert!(
            converse(&[HEAD, b"ok"]).0.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
        );
        let half = [HEAD, b"o"].concat();
        assert_eq!(converse(&[&half]).0, "");
        assert!(converse(&[&half, b"k"]).0.starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn a_chunked_body_is_counted_against_the_limit() {
        let mut conversation = Conversation::default();
        let mut output = Output::default();
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n80000000\r\n";
        assert_eq!(conversation.advance(head, &mut output, false), (head.len(), Need::Input));
        let piece = vec![0; 1 << 20];
        for _ in 0..1024 {
            let advanced = conversation.advance(&piece, &mut output, false);
            assert_eq!(advanced, (1 << 20, Need::Input));
        }
        let (_, need) = conversation.advance(&[0], &mut output, false);
        assert_eq!(need, Need::Close(Ending::Linger));
        let mut answer = Vec::new();
        assert!(output.send(&mut answer, &mut 10_000).unwrap());
        assert!(answer.starts_with(b"HTTP/1.1 413 Content Too Large\r\n"));
    }

    #[test]
    fn the_answer_of_a_stopping_origin_is_the_last() {
        let mut conversation = Conversation::default();
        let mut output = Output::default();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let (_, need) = conversation.advance(request, &mut output, true);
        assert_eq!(need, Need::Close(Ending::Clean));
        let mut answer = Vec::new();
        assert!(output.send(&mut answer, &mut 10_000).unwrap());
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }
}

//! Recorded responses by request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::{Request, decode_path, split_target};

/// Response to requests with this method and target.
#[derive(Clone, Debug)]
pub struct RecordedAnswer {
    pub method: String,
    pub target: String,
    /// From 200 to 599.
    pub status: u16,
    pub content_type: String,
    /// `None` for one line of text that names the path.
    pub body_bytes: Option<u64>,
    /// Frequency relative to the other responses to these requests.
    pub weight: u64,
}

/// Recorded responses by method and decoded target.
#[derive(Debug)]
pub(crate) struct RecordedAnswers(HashMap<String, Answers>);

/// Responses to equal requests, in turn.
#[derive(Debug, Default)]
struct Answers {
    answers: Vec<RecordedAnswer>,
    turn: AtomicU64,
}

impl RecordedAnswers {
    pub(crate) fn new(answers: Vec<RecordedAnswer>) -> Self {
        let mut by_request: HashMap<String, Answers> = HashMap::new();
        for answer in answers {
            let (path, query) = split_target(&answer.target);
            by_request.entry(key(&answer.method, path, query)).or_default().answers.push(answer);
        }
        Self(by_request)
    }

    pub(crate) fn contain(&self, request: &Request<'_>) -> bool {
        self.0.contains_key(&key(request.method, request.path, request.query.as_str()))
    }

    /// Returns the next response to a request, and if others follow.
    pub(crate) fn next(&self, request: &Request<'_>) -> Option<(&RecordedAnswer, bool)> {
        let known = self.0.get(&key(request.method, request.path, request.query.as_str()))?;
        match &known.answers[..] {
            [only] => Some((only, false)),
            several => Some((&several[known.next_of(several)], true)),
        }
    }
}

impl Answers {
    /// Returns the index of the next response: each as often as its weight, and mixed.
    fn next_of(&self, answers: &[RecordedAnswer]) -> usize {
        let total: u64 = answers.iter().map(|answer| answer.weight).sum();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // The fractions of multiples of the golden ratio are spread evenly (Knuth, The Art of Computer Programming,
        // volume 3, section 6.4).
        let fraction = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut drawn = ((u128::from(fraction) * u128::from(total)) >> 64) as u64;
        answers
            .iter()
            .position(|answer| match drawn.checked_sub(answer.weight) {
                Some(rest) => {
                    drawn = rest;
                    false
                }
                None => true,
            })
            // If all weights are 0.
            .unwrap_or(0)
    }
}

/// A proxy may encode or decode the characters of a path.
fn key(method: &str, path: &str, query: &str) -> String {
    let path = decode_path(path).unwrap_or(Cow::Borrowed(path));
    let mut key = String::with_capacity(method.len() + path.len() + query.len() + 2);
    for part in [method, " ", &path, "?", query] {
        key.push_str(part);
    }
    key
}

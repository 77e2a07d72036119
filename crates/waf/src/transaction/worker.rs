//! Memory that one thread needs to run rules: regex caches and buffers.

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::meta::Cache;
use regex_automata::util::primitives::NonMaxUsize;

use crate::condition::Pattern;
use crate::plan::Gate;
use crate::regex::{BacktrackLimit, Matcher};
use crate::ruleset::RuleSet;

use super::Transaction;

/// Captured groups that rules can read: `TX.0` to `TX.9`.
pub(crate) const CAPTURES: usize = 10;

/// Regexes with macros that a worker keeps compiled, and bytes that one may take.
const EXPANDED_MAX: usize = 64;
const EXPANDED_SIZE_MAX: usize = 1 << 20;
/// Bytes of the text of such a regex.
const EXPANDED_TEXT_MAX: usize = 4096;

/// Browser headers, with typical values.
const SAMPLE_HEADERS: [(&[u8], &[u8]); 14] = [
    (b"Host", b"www.example.com"),
    (b"User-Agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    (b"Accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    (b"Accept-Language", b"en-US,en;q=0.5"),
    (b"Accept-Encoding", b"gzip, deflate, br"),
    (b"Referer", b"https://www.example.com/list/of/things?page=2&sort=price&view=list#top"),
    (b"Cookie", b"session=8f14e45fceea167a5a36dedd4bea2543; theme=dark-blue; name=J%C3%BCrgen%20O'Neil; since=2026-01-14T09:31:22.5Z; _ga=GA1.2.345.678"),
    (b"Connection", b"keep-alive"),
    (b"Cache-Control", b"max-age=0, no-cache"),
    (b"Upgrade-Insecure-Requests", b"1"),
    (b"If-Modified-Since", b"Wed, 14 Jan 2026 09:31:22 GMT"),
    (b"If-None-Match", b"\"5e1f-64b8c2\""),
    (b"Sec-Fetch-Mode", b"navigate"),
    (b"X-Forwarded-For", b"192.0.2.17, 2001:db8::17"),
];

type Sample = ([&'static [u8]; 2], &'static [u8], &'static [u8]);

const SAMPLES: [Sample; 4] = [
    (
        [b"GET", b"/a/b-c/d.html?id=17&q=blue+shoes&r=%2Fhome%3Fx%3Dy&price=10-20.5&from=2026-01-14T09:31:22Z&mail=jane.doe%40example.com&token=8f14e45f-ceea-167a&ids[]=1,2,3&next=%2Flist%3Fsort%3Dname%26date%3Dtoday%26user%3Dx%26session.id%3D5%26log%3Don"],
        b"text/plain",
        b"",
    ),
    ([b"GET", b"/catalogue/list.html"], b"text/plain", b""),
    (
        [b"POST", b"/form"],
        b"application/x-www-form-urlencoded",
        b"name=Jane+Doe&count=17&zero=0&phone=%2B44+20+7946+0958&text=It's+%22fine%22%2C+and+(mostly)+50%25+of+a+%26+b%3B+select+one+or+two.+What+is+it%3F+No%21%0D%0AYes%3A+a+long+sentence%2C+with+numbers+like+3.5+and+17%2C+from+here+to+there+-+as+ever&time=In+time+we+saw+that+all+of+this+could+not+have+been+made+by+one+person+alone.+Some+people+who+work+here+would+rather+be+at+home+with+their+children+than+go+out+again%2C+but+when+the+new+house+was+ready+they+came+back+and+found+two+large+rooms%2C+a+small+kitchen+and+a+garden+under+great+old+trees.+How+long+does+it+take%3F+Just+call+us+before+the+end+of+next+week%2C+give+the+number+of+your+order%2C+and+we+shall+send+what+you+need+on+the+same+day%21+Which+country+do+you+live+in%3F+Most+things+cost+less+if+they+are+brought+by+ship%3B+others+come+through+the+air.+You+may+also+look+for+a+different+size%2C+colour+or+picture+on+our+page%3A+every+part+has+its+own+name.+My+mother+always+said%3A+think+first%2C+then+say+it+well.+Her+answer+was+very+good%2C+so+I+must+still+study+how+such+words+should+be+used&url=https%3A%2F%2Fexample.com%2Fa%3Fb%3Dc%23d&mail=jane.doe%40example.com&empty=",
    ),
    (
        [b"POST", b"/api"],
        b"application/json",
        b"{\"a\":[1,2.5,-3e4,true,null,\"x y\",\"B-00017\"],\"b\":{\"c\":\"<p>text</p>\",\"d\":\"What is it? A sentence, as people write it.\",\"e_f\":\"https://example.com/a.png\"}}",
    ),
];

/// Caches and buffers of one thread. It may serve many transactions, one after the other or in turns.
#[derive(Debug, Default)]
pub struct Worker {
    rules: Option<Arc<RuleSet>>,
    caches: Caches,
    pub(crate) buffers: Buffers,
    pub(crate) gate: Gate,
    plain: bool,
}

/// Caches of regexes, by their number.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    caches: Vec<Option<Box<Cache>>>,
    /// Regexes whose macros were expanded, by their text; `None` if it is invalid. Their numbers follow those of the
    /// rule set.
    expanded: HashMap<Vec<u8>, Option<Arc<Pattern>>>,
    slots: Vec<Option<NonMaxUsize>>,
}

#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) transformed: Vec<u8>,
    pub(crate) spare: Vec<u8>,
    pub(crate) argument: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) name: Vec<u8>,
    /// Captured groups of the last match, as ranges of the value.
    pub(crate) captures: Vec<Option<(usize, usize)>>,
}

impl Worker {
    /// Creates a worker without any cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a worker that evaluates every rule on every value, without gates. It is slow and
    /// serves as the reference.
    pub fn plain() -> Self {
        Self { plain: true, ..Self::default() }
    }

    /// Prepares the worker for a rule set by running sample requests, so that the first real one is
    /// not much slower than others, and returns the transaction in which they ran, empty.
    pub fn warm_up(&mut self, rules: &Arc<RuleSet>) -> Transaction {
        let mut transaction = Transaction::new(Arc::clone(rules));
        // The second time the gates know which rules are skipped.
        for (line, kind, body) in SAMPLES.into_iter().chain(SAMPLES) {
            transaction.reset();
            transaction.request_line(line[0], line[1], b"HTTP/1.1");
            for (name, value) in SAMPLE_HEADERS {
                transaction.request_header(name, value);
            }
            transaction.request_header(b"Content-Type", kind);
            transaction.request_header(b"Content-Length", body.len().to_string().as_bytes());
            transaction.process_request_headers(self);
            transaction.append_request_body(body);
            transaction.process_request_body(self);
        }
        transaction.reset();
        transaction
    }

    /// True if values are tested by gates before rules are evaluated.
    pub(crate) fn is_gated(&self) -> bool {
        !self.plain
    }

    /// Prepares the caches for a rule set.
    pub(crate) fn bind(&mut self, rules: &Arc<RuleSet>) {
        if self.rules.as_ref().is_none_or(|bound| !Arc::ptr_eq(bound, rules)) {
            self.caches.caches = (0..rules.patterns).map(|_| None).collect();
            self.caches.expanded.clear();
            self.gate = Gate::new(rules);
            self.rules = Some(Arc::clone(rules));
        }
    }

    pub(crate) fn split(&mut self) -> (&mut Caches, &mut Buffers, &mut Gate) {
        (&mut self.caches, &mut self.buffers, &mut self.gate)
    }
}

impl Caches {
    #[inline]
    pub(crate) fn is_match(
        &mut self,
        pattern: &Pattern,
        value: &[u8],
        budget: &mut usize,
    ) -> Result<bool, BacktrackLimit> {
        let matcher = pattern.matcher();
        let cache =
            self.caches[pattern.index].get_or_insert_with(|| Box::new(matcher.create_cache()));
        matcher.is_match_with(cache, value, budget)
    }

    /// Searches the first match and writes its groups, up to [`CAPTURES`].
    pub(crate) fn captures(
        &mut self,
        pattern: &Pattern,
        value: &[u8],
        budget: &mut usize,
        found: &mut Vec<Option<(usize, usize)>>,
    ) -> Result<(), BacktrackLimit> {
        let matcher = pattern.matcher();
        let cache =
            self.caches[pattern.index].get_or_insert_with(|| Box::new(matcher.create_cache()));
        matcher.captures_with(cache, value, budget, &mut self.slots, CAPTURES, found)
    }

    /// Returns the regex of an expanded text; `None` if it is invalid or too large.
    pub(crate) fn expanded(&mut self, rules: &RuleSet, text: &[u8]) -> Option<Arc<Pattern>> {
        if text.len() > EXPANDED_TEXT_MAX {
            return None;
        }
        if let Some(known) = self.expanded.get(text) {
            return known.clone();
        }
        if self.expanded.len() == EXPANDED_MAX {
            self.expanded.clear();
            self.caches.truncate(rules.patterns);
        }
        let pattern = compile_expanded(text).map(|matcher| {
            self.caches.push(None);
            Arc::new(Pattern::of(matcher, self.caches.len() - 1))
        });
        self.expanded.insert(text.to_vec(), pattern.clone());
        pattern
    }
}

fn compile_expanded(text: &[u8]) -> Option<Matcher> {
    let mut escaped = String::new();
    for &byte in text {
        match byte {
            0x80.. => escaped += &format!("\\x{byte:02x}"),
            _ => escaped.push(char::from(byte)),
        }
    }
    Matcher::with_size_limit(&escaped, EXPANDED_SIZE_MAX).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_expanded_texts_are_not_kept() {
        let rules = RuleSet::builder().text("t.conf", "").build().unwrap_or_else(|e| panic!("{e}"));
        let mut caches = Caches::default();
        assert!(caches.expanded(&rules, &[b'x'; EXPANDED_TEXT_MAX]).is_some());
        assert!(caches.expanded(&rules, &[b'x'; EXPANDED_TEXT_MAX + 1]).is_none());
        assert!(caches.expanded(&rules, b"(").is_none());
        let mut kept: Vec<usize> = caches.expanded.keys().map(Vec::len).collect();
        kept.sort_unstable();
        assert_eq!(kept, [1, EXPANDED_TEXT_MAX]);
    }
}

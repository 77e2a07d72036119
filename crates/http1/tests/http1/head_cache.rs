use proptest::prelude::*;
use tollgate_http1::{
    CachedHead, HeadCache, HeadFaults, MAX_CACHED_HEAD_BYTES, ParseError, Response,
    ResponseHeadCache, ResponseScanner, Scan,
};

// Both heads are 17 + 16 + 19 + 2 = 54 bytes.
const FIRST: &[u8] = b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\n\r\n";
const SECOND: &[u8] = b"HTTP/1.1 200 OK\r\nDate: 12:00:01\r\nContent-Length: 2\r\n\r\n";

fn response(status: u16, body_bytes: u64) -> Response {
    Response { status, body_bytes, keep_alive: true, faults: HeadFaults::default() }
}

fn last(heads: &ResponseHeadCache) -> &[u8] {
    heads.last().map_or(b"", CachedHead::head)
}

/// Scans the only response in `bytes` with a new scanner. Returns it with its end.
fn scan(bytes: &[u8], to_head: bool, heads: &mut ResponseHeadCache) -> (Response, usize) {
    match ResponseScanner::default().feed(bytes, to_head, heads, |_| {}).unwrap() {
        Scan::Complete { response, consumed } => (response, consumed),
        Scan::Partial => panic!("no end in {}", bytes.escape_ascii()),
    }
}

#[test]
fn finds_whole_heads_under_the_same_key_and_replaces_the_oldest() {
    let mut cache: HeadCache<u8, usize, 4> = HeadCache::default();
    assert!(cache.find(b"a\n\n", &1).is_none() && cache.last().is_none());
    for (value, head) in [b"a\n\n", b"b\n\n", b"c\n\n", b"d\n\n", b"e\n\n"].iter().enumerate() {
        cache.insert(*head, 1, value, &head[..1]);
        assert_eq!(cache.last().map(CachedHead::head), Some(&head[..]));
    }
    assert!(cache.find(b"a\n\n", &1).is_none());
    let found = cache.find(b"b\n\nmore", &1).unwrap();
    assert_eq!((found.head(), found.value, &found.rendered[..]), (&b"b\n\n"[..], 1, &b"b"[..]));
    for (bytes, key) in [(&b"b\n"[..], 1), (b"", 1), (b"f\n\n", 1), (b"b\n\n", 2)] {
        assert!(cache.find(bytes, &key).is_none(), "{}", bytes.escape_ascii());
    }
    assert_eq!(cache.find(b"e\n\n", &1).unwrap().value, 4);
    cache.clear();
    assert!(cache.find(b"e\n\n", &1).is_none());
}

#[test]
fn ignores_long_heads_and_long_rendered_bytes() {
    let mut cache: HeadCache<(), u8, 1> = HeadCache::default();
    let longest = [b'x'; MAX_CACHED_HEAD_BYTES];
    let too_long = [b'x'; MAX_CACHED_HEAD_BYTES + 1];
    cache.insert(&longest, (), 1, &longest);
    cache.insert(&too_long, (), 2, b"");
    cache.insert(b"head", (), 3, &too_long);
    assert_eq!(cache.last().unwrap().value, 1);
}

#[test]
fn scanners_share_a_cache_that_tells_similar_heads_apart() {
    let mut heads = ResponseHeadCache::default();
    assert_eq!(last(&heads), b"");
    for head in [FIRST, FIRST, SECOND, FIRST] {
        // The last body is the start of a head's end.
        for body in [b"ab", b"\r\n"] {
            let bytes = [head, body].concat();
            assert_eq!(scan(&bytes, false, &mut heads), (response(200, 2), 56));
            assert_eq!(last(&heads), head);
        }
    }
    // Starts with all lines of the cached head.
    let closing =
        b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
    let closed = Response { keep_alive: false, ..response(200, 2) };
    assert_eq!(scan(closing, false, &mut heads), (closed, 56 + 19));
}

#[test]
fn response_to_head_is_cached_separately() {
    let mut heads = ResponseHeadCache::default();
    let bytes = [FIRST, b"ab"].concat();
    for _ in 0..2 {
        assert_eq!(scan(&bytes, false, &mut heads), (response(200, 2), 56));
        assert_eq!(scan(&bytes, true, &mut heads), (response(200, 0), 54));
    }
}

#[test]
fn split_head_is_neither_found_nor_cached() {
    let mut heads = ResponseHeadCache::default();
    scan(&[FIRST, b"ab"].concat(), false, &mut heads);
    let bytes = [SECOND, b"ab"].concat();
    for at in 1..SECOND.len() {
        let mut scanner = ResponseScanner::default();
        let mut feed = |bytes| scanner.feed(bytes, false, &mut heads, |_| {});
        assert_eq!(feed(&bytes[..at]), Ok(Scan::Partial), "{at}");
        let end = Scan::Complete { response: response(200, 2), consumed: 56 - at };
        assert_eq!(feed(&bytes[at..]), Ok(end), "{at}");
    }
    assert_eq!(last(&heads), FIRST);
}

#[test]
fn body_that_looks_like_the_cached_head_is_a_body() {
    let mut heads = ResponseHeadCache::default();
    scan(&[FIRST, b"ab"].concat(), false, &mut heads);
    let mut scanner = ResponseScanner::default();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n";
    assert_eq!(scanner.feed(head, false, &mut heads, |_| {}), Ok(Scan::Partial));
    let body = [FIRST, b"1234567"].concat();
    let end = Scan::Complete { response: response(200, 60), consumed: 60 };
    assert_eq!(scanner.feed(&body, false, &mut heads, |_| {}), Ok(end));
}

#[test]
fn interim_responses_are_not_cached() {
    let mut heads = ResponseHeadCache::default();
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n";
    let mut scanner = ResponseScanner::default();
    assert_eq!(scanner.feed(interim, false, &mut heads, |_| {}), Ok(Scan::Partial));
    assert_eq!(last(&heads), b"");
    let bytes = [interim, FIRST, b"ab"].concat();
    for _ in 0..2 {
        assert_eq!(scan(&bytes, false, &mut heads), (response(200, 2), 28 + 56));
        assert_eq!(last(&heads), FIRST);
    }
}

/// Everything that a connection gave: responses with their payload, and the result of the close.
#[derive(Debug, PartialEq)]
struct Transcript {
    responses: Vec<(Response, Vec<u8>)>,
    end: Result<Option<Response>, ParseError>,
}

/// Feeds pieces of `steps` bytes in turn. `to_heads` says in turn which responses are to a HEAD.
fn transcript(
    bytes: &[u8],
    steps: &[usize],
    to_heads: &[bool],
    mut before_feed: impl FnMut(&mut ResponseHeadCache),
) -> Transcript {
    let mut scanner = ResponseScanner::default();
    let mut heads = ResponseHeadCache::default();
    let (mut responses, mut payload) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    let mut steps = steps.iter().cycle();
    while !rest.is_empty() {
        before_feed(&mut heads);
        let piece = &rest[..rest.len().min(*steps.next().unwrap())];
        let to_head = to_heads[responses.len() % to_heads.len()];
        let keep = |bytes: &[u8]| payload.extend_from_slice(bytes);
        match scanner.feed(piece, to_head, &mut heads, keep) {
            Ok(Scan::Partial) => rest = &rest[piece.len()..],
            Ok(Scan::Complete { response, consumed }) => {
                rest = &rest[consumed..];
                responses.push((response, std::mem::take(&mut payload)));
            }
            Err(error) => return Transcript { responses, end: Err(error) },
        }
    }
    Transcript { responses, end: scanner.close() }
}

fn any_response() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\n\r\nab"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:01\r\nContent-Length: 2\r\n\r\ncd"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 20\r\n\r\nHTTP/1.1 200 OK\r\nabc"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nDate: 12:00:00\r\nContent-Length: 2\r\nA: b\r\n\r\nab"[..]),
        Just(&b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"[..]),
        Just(&b"HTTP/1.1 204 No Content\r\n\r\n"[..]),
        Just(&b"HTTP/1.1 100 Continue\r\n\r\n"[..]),
        Just(&b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..]),
        Just(&b"\r\n"[..]),
    ]
}

proptest! {
    #[test]
    fn cache_changes_no_result(
        sent in proptest::collection::vec(any_response(), 1..8),
        steps in proptest::collection::vec(1_usize..200, 1..6),
        to_heads in proptest::collection::vec(any::<bool>(), 1..4),
    ) {
        let bytes = sent.concat();
        let cached = transcript(&bytes, &steps, &to_heads, |_| {});
        let uncached = transcript(&bytes, &steps, &to_heads, ResponseHeadCache::clear);
        prop_assert_eq!(&cached, &uncached);
        let byte_by_byte = transcript(&bytes, &[1], &to_heads, |_| {});
        prop_assert_eq!(&cached, &byte_by_byte);
    }
}

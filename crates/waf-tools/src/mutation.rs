//! Mutations of requests, for comparisons of engines and of results with and without gates.

use crate::replay::Request;

/// Changes parts of a request: bytes, cases, encodings, lengths. `random` returns a number below its argument.
pub fn mutate(request: &Request, random: &mut impl FnMut(usize) -> usize) -> Request {
    const PIECES: [&[u8]; 18] = [
        b"",
        b"'",
        b"\"",
        b" ",
        b"%",
        b"%27",
        b"+",
        b"<",
        b"&",
        b"&lt;",
        b"\\",
        b"\\u0027",
        b"\0",
        b"\xc3\xa9",
        b"/**/",
        b"(",
        b";",
        b"=",
    ];
    let mut request = request.clone();
    for _ in 0..=random(3) {
        let part = match random(6) {
            0 => &mut request.body,
            1 if !request.headers.is_empty() => {
                let header = random(request.headers.len());
                &mut request.headers[header].1
            }
            _ => &mut request.target,
        };
        let at = random(part.len() + 1);
        let end = (at + random(4)).min(part.len());
        match random(5) {
            0 => part[at..end].make_ascii_uppercase(),
            1 => part.truncate(at.max(1)),
            2 => {
                let encoded: Vec<u8> = part[at..end]
                    .iter()
                    .flat_map(|byte| format!("%{byte:02x}").into_bytes())
                    .collect();
                part.splice(at..end, encoded);
            }
            _ => {
                part.splice(at..end, PIECES[random(PIECES.len())].iter().copied());
            }
        }
    }
    // No web server passes on a zero byte in the target.
    request.target.retain(|&byte| byte != 0);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_change_requests_and_keep_targets_without_zero_bytes() {
        let request = Request { target: b"/?q=<a>&r=1".to_vec(), ..Request::default() };
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let mutated: Vec<Request> = (0..200).map(|_| mutate(&request, &mut random)).collect();
        assert!(mutated.iter().filter(|mutated| **mutated != request).count() > 150);
        assert!(mutated.iter().all(|mutated| !mutated.target.contains(&0)));
    }
}

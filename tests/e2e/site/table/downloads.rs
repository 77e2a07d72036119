//! `/download`: sizes, ranges and conditions.

use super::*;

pub(super) fn downloads() -> Vec<Row> {
    let with = |lines: &str, answer| row(ask("GET /download?size=1000", lines), answer);
    let no_part = || Expected {
        headers: vec![
            ("Content-Range", "bytes */1000".to_owned()),
            ("Content-Type", JSON.to_owned()),
        ],
        ..refused(416)
    };
    let same = || Expected { headers: vec![("ETag", "\"1000\"".to_owned())], ..bare(304) };
    let mut rows = vec![
        get("/download", file(20_480)),
        get("/download?chunk_size=1", file(10)),
        get("/download?size=0", file(0)),
        get("/download?size=10000&chunk_size=4096", file(10_000)),
        get("/download?size=3000000&chunk_size=1048576", file(3_000_000)),
        row(ask("HEAD /download", ""), head_of(file(20_480))),
        row(ask("HEAD /download?size=1073741824", ""), head_of(file(1 << 30))),
        row(ask("HEAD /download?size=1000", "Range: bytes=0-0\r\n"), head_of(file(1000))),
        get(
            "/download?size=abc",
            reason(400, &format!("size is \"abc\"; {BYTES} 0 to 1073741824")),
        ),
        get(
            "/download?size=1073741825",
            reason(413, &format!("size is \"1073741825\"; {BYTES} 0 to 1073741824")),
        ),
        get(
            "/download?chunk_size=0",
            reason(400, &format!("chunk_size is \"0\"; {BYTES} 1 to 1048576")),
        ),
        get(
            "/download?chunk_size=1048577",
            reason(413, &format!("chunk_size is \"1048577\"; {BYTES} 1 to 1048576")),
        ),
    ];
    for (range, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=0-", 0, 999),
        ("bytes=10-19", 10, 19),
        ("BYTES=10-19", 10, 19),
        ("bytes=990-5000", 990, 999),
        ("bytes=-1", 999, 999),
        ("bytes=-5000", 0, 999),
    ] {
        rows.push(with(&format!("Range: {range}\r\n"), part(first, last, 1000)));
    }
    for range in ["bytes=1000-", "bytes=5000-6000", "bytes=-0"] {
        rows.push(with(&format!("Range: {range}\r\n"), no_part()));
    }
    for range in ["bytes=0-1,3-4", "bytes=5-4", "bytes=", "bytes=a-b", "bytes=-", "items=0-1"] {
        rows.push(with(&format!("Range: {range}\r\n"), file(1000)));
    }
    for lines in [
        "If-None-Match: \"1000\"\r\n",
        "If-None-Match: W/\"1000\"\r\n",
        "If-None-Match: \"1\", \"1000\"\r\n",
        "If-None-Match: *\r\n",
        "If-None-Match: *\r\nRange: bytes=0-0\r\n",
        "If-Match: \"1000\"\r\nIf-None-Match: \"1000\"\r\n",
    ] {
        rows.push(with(lines, same()));
        rows.push(row(ask("HEAD /download?size=1000", lines), same()));
    }
    for lines in [
        "If-Match: \"1\"\r\n",
        "If-Match: W/\"1000\"\r\n",
        "If-Match: \"1\"\r\nIf-None-Match: \"1000\"\r\n",
    ] {
        rows.push(with(lines, reason(412, "the ETag is \"1000\", which the condition excludes")));
    }
    for lines in [
        "If-None-Match: \"1\"\r\n",
        "If-Match: \"1000\"\r\n",
        "If-Match: *\r\n",
        // The file has no date, so conditions on one are ignored (RFC 9110, sections 13.1.3 and 13.1.4).
        "If-Modified-Since: Sat, 21 Nov 2026 20:54:20 GMT\r\n",
        "If-Unmodified-Since: Sat, 21 Nov 2020 20:54:20 GMT\r\n",
        "Range: bytes=0-0\r\nIf-Range: \"1\"\r\n",
        "Range: bytes=0-0\r\nIf-Range: W/\"1000\"\r\n",
    ] {
        rows.push(with(lines, file(1000)));
    }
    rows.push(with("Range: bytes=0-0\r\nIf-Range: \"1000\"\r\n", part(0, 0, 1000)));
    rows
}

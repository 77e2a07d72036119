use proptest::prelude::*;
use tollgate_http2::{Decoder, Encoder, FieldLimits, Fields, HpackError};

type List = Vec<(String, String)>;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<List, HpackError> {
    let mut fields = Fields::default();
    decoder.decode(block, FieldLimits::default(), &mut fields)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ok(fields.iter().map(|field| (text(field.name), text(field.value))).collect())
}

fn list(fields: &[(&str, &str)]) -> List {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// RFC 7541, appendix C.2.
#[test]
fn representations_of_the_rfc() {
    for (block, name, value, is_sensitive) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key",
            "custom-header",
            false,
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path", "/sample/path", false),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password", "secret", true),
        ("82", ":method", "GET", false),
    ] {
        let mut fields = Fields::default();
        Decoder::default().decode(&hex(block), FieldLimits::default(), &mut fields).unwrap();
        let field = fields.iter().next().unwrap();
        assert_eq!((field.name, field.value), (name.as_bytes(), value.as_bytes()));
        assert_eq!(field.is_sensitive, is_sensitive);
    }
}

fn requests() -> [List; 3] {
    let get = |scheme, path| {
        vec![
            (":method", "GET"),
            (":scheme", scheme),
            (":path", path),
            (":authority", "www.example.com"),
        ]
    };
    let mut third = get("https", "/index.html");
    third.push(("custom-key", "custom-value"));
    let mut second = get("http", "/");
    second.push(("cache-control", "no-cache"));
    [list(&get("http", "/")), list(&second), list(&third)]
}

const HUFFMAN_REQUESTS: [&str; 3] = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
];

/// RFC 7541, appendices C.3 and C.4.
#[test]
fn requests_of_the_rfc() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    for blocks in [plain, HUFFMAN_REQUESTS] {
        let mut decoder = Decoder::default();
        for (block, expected) in blocks.iter().zip(requests()) {
            assert_eq!(decode(&mut decoder, &hex(block)), Ok(expected));
        }
    }
}

#[test]
fn encoder_writes_the_requests_of_the_rfc() {
    let mut encoder = Encoder::new(4096);
    for (block, fields) in HUFFMAN_REQUESTS.iter().zip(requests()) {
        assert_eq!(encode(&mut encoder, &fields), hex(block));
    }
}

fn encode(encoder: &mut Encoder, fields: &List) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.start(&mut block);
    for (name, value) in fields {
        encoder.encode(name.as_bytes(), value.as_bytes(), false, &mut block);
    }
    block
}

/// RFC 7541, appendices C.5 and C.6: a table of 256 bytes, from which entries are dropped.
#[test]
fn responses_of_the_rfc() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b
         2076 6572 7369 6f6e 3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let (private, location) =
        (("cache-control", "private"), ("location", "https://www.example.com"));
    let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let expected = [
        list(&[(":status", "302"), private, date, location]),
        list(&[(":status", "307"), private, date, location]),
        list(&[
            (":status", "200"),
            private,
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            location,
            ("content-encoding", "gzip"),
            ("set-cookie", cookie),
        ]),
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::default();
        // A table size of 256.
        assert_eq!(decode(&mut decoder, &[0x3f, 0xe1, 0x01]), Ok(vec![]));
        for (block, expected) in blocks.iter().zip(&expected) {
            assert_eq!(decode(&mut decoder, &hex(block)).as_ref(), Ok(expected));
        }
    }
}

#[test]
fn repeated_fields_become_indices() {
    let fields = list(&[("x-name", "value"), ("user-agent", "test/1"), (":path", "/a/long/path")]);
    let mut encoder = Encoder::new(4096);
    let lengths: Vec<usize> = (0..4).map(|_| encode(&mut encoder, &fields).len()).collect();
    // A path is inserted when it repeats.
    assert!(lengths[0] > lengths[1] && lengths[1] > 3);
    assert_eq!(lengths[2..], [3, 3]);
    assert_eq!(encoder.insertions(), 3);
}

#[test]
fn secrets_are_never_indexed() {
    let long_cookie = "a=0123456789abcdefghij";
    for (name, value, is_marked, expected) in [
        ("authorization", "Basic AAAA", false, true),
        ("proxy-authorization", "Basic AAAA", false, true),
        ("cookie", "a=b", false, true),
        ("cookie", long_cookie, false, false),
        ("x-token", "secret", true, true),
        (":method", "GET", true, true),
        ("accept", "*/*", false, false),
    ] {
        let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::default());
        for _ in 0..3 {
            let mut block = Vec::new();
            encoder.encode(name.as_bytes(), value.as_bytes(), is_marked, &mut block);
            let mut fields = Fields::default();
            decoder.decode(&block, FieldLimits::default(), &mut fields).unwrap();
            let field = fields.iter().next().unwrap();
            assert_eq!((field.name, field.value), (name.as_bytes(), value.as_bytes()));
            assert_eq!(field.is_sensitive, expected, "{name}");
        }
    }
}

#[test]
fn invalid_blocks_are_errors() {
    let decoded = |block: &[u8]| decode(&mut Decoder::default(), block);
    assert_eq!(decoded(b"\x80"), Err(HpackError::Index(0)));
    assert_eq!(decoded(b"\xbe"), Err(HpackError::Index(62)));
    assert_eq!(decoded(b"\x7f\x01"), Err(HpackError::Index(64)));
    assert_eq!(decoded(b"\x40\x01a"), Err(HpackError::Truncated));
    assert_eq!(decoded(b"\x40\x01a\x05bcd"), Err(HpackError::Truncated));
    assert_eq!(decoded(b"\x40\x81\x00\x00"), Err(HpackError::Huffman));
    assert_eq!(decoded(b"\xff\x80\x80\x80\x80\x80\x00"), Err(HpackError::Integer));
    // Sizes of 4096 and 4097.
    assert_eq!(decoded(b"\x3f\xe1\x1f"), Ok(vec![]));
    assert_eq!(decoded(b"\x3f\xe2\x1f"), Err(HpackError::TableSize { size: 4097, limit: 4096 }));
    assert_eq!(decoded(b"\x82\x20"), Err(HpackError::LateSizeUpdate));
}

#[test]
fn lowered_limit_needs_a_size_update() {
    let mut decoder = Decoder::default();
    decoder.set_size_limit(100);
    assert_eq!(decode(&mut decoder, b"\x82"), Err(HpackError::MissingSizeUpdate(100)));
    // 31 + 69.
    assert_eq!(decode(&mut decoder, b"\x3f\x45\x82"), Ok(list(&[(":method", "GET")])));
    assert_eq!(decode(&mut decoder, b"\x82"), Ok(list(&[(":method", "GET")])));
}

#[test]
fn encoder_announces_the_smallest_size_and_the_last() {
    let mut encoder = Encoder::new(4096);
    let mut update = |limits: &[u32]| {
        limits.iter().for_each(|limit| encoder.set_peer_limit(*limit));
        let mut block = Vec::new();
        encoder.start(&mut block);
        block
    };
    assert_eq!(update(&[]), b"");
    assert_eq!(update(&[4096, 65_536]), b"");
    assert_eq!(update(&[0, 100]), b"\x20\x3f\x45");
    assert_eq!(update(&[65_536]), b"\x3f\xe1\x1f");
    let mut own = Vec::new();
    Encoder::new(100).start(&mut own);
    assert_eq!(own, b"\x3f\x45");
}

#[test]
fn fields_above_the_limits_are_dropped_and_the_table_stays_in_step() {
    let limits = FieldLimits { bytes: 100, fields: 2 };
    let (mut decoder, mut fields) = (Decoder::default(), Fields::default());
    // 42 bytes each, with 32 for the entry.
    let block = b"\x40\x04name\x06value1\x40\x04name\x06value2\x40\x04name\x06value3";
    decoder.decode(block, limits, &mut fields).unwrap();
    assert_eq!((fields.iter().count(), fields.is_truncated()), (2, true));
    assert_eq!(fields.all(b"name").last(), Some(&b"value2"[..]));
    decoder.decode(b"\xbe", limits, &mut fields).unwrap();
    assert_eq!(fields.all(b"name").last(), Some(&b"value3"[..]));
    assert!(!fields.is_truncated());
    decoder.decode(b"\x82\x86\x84", limits, &mut fields).unwrap();
    assert_eq!((fields.iter().count(), fields.is_truncated()), (2, true));
}

#[test]
fn bomb_of_indices_is_an_error() {
    let (mut decoder, mut fields) = (Decoder::default(), Fields::default());
    let limits = FieldLimits { bytes: 10_000, fields: 100 };
    // An entry of 4037 bytes: name `a`, and a value of 4004 = 127 + 0x25 + 0x1e * 128 bytes.
    let mut block = b"\x40\x01a\x7f\xa5\x1e".to_vec();
    block.extend([b'x'; 4004]);
    block.extend([0xbe; 8]);
    decoder.decode(&block, limits, &mut fields).unwrap();
    assert!(fields.is_truncated());
    block.push(0xbe);
    let error = HpackError::SectionTooLarge(40_000);
    assert_eq!(decoder.decode(&block, limits, &mut fields), Err(error));
}

fn any_field() -> impl Strategy<Value = (String, String, bool)> {
    let name = prop_oneof![
        Just(":path".to_owned()),
        Just("cookie".to_owned()),
        Just("etag".to_owned()),
        Just("date".to_owned()),
        "x-[a-c]{1,2}",
        "[a-z]{0,40}",
    ];
    (
        name,
        prop_oneof![
            "[a-c]{1,2}",
            "\\PC{0,60}",
            (100..3000_usize).prop_map(|length| "x".repeat(length))
        ],
        prop::bool::weighted(0.1),
    )
}

proptest! {
    #[test]
    fn blocks_survive_any_history(
        blocks in prop::collection::vec(
            (prop::collection::vec(any_field(), 0..12), prop::option::of(0..6000_u32)), 1..12),
    ) {
        let (mut encoder, mut decoder, mut fields) = (Encoder::new(4096), Decoder::default(), Fields::default());
        let mut block = Vec::new();
        for (list, limit) in blocks {
            if let Some(limit) = limit {
                encoder.set_peer_limit(limit);
                decoder.set_size_limit(limit);
            }
            block.clear();
            encoder.start(&mut block);
            for (name, value, is_sensitive) in &list {
                encoder.encode(name.as_bytes(), value.as_bytes(), *is_sensitive, &mut block);
            }
            decoder.decode(&block, FieldLimits::default(), &mut fields).unwrap();
            prop_assert_eq!(fields.iter().count(), list.len());
            for (field, (name, value, is_sensitive)) in fields.iter().zip(&list) {
                prop_assert_eq!((field.name, field.value), (name.as_bytes(), value.as_bytes()));
                prop_assert!(field.is_sensitive || !is_sensitive);
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(blocks in prop::collection::vec(any::<Vec<u8>>(), 1..8)) {
        let mut decoder = Decoder::default();
        let mut fields = Fields::default();
        for block in blocks {
            if decoder.decode(&block, FieldLimits::default(), &mut fields).is_err() {
                break;
            }
        }
    }
}

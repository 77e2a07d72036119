//! Private entry points for the fuzz targets. Compiled for cargo-fuzz and for tests only.

use crate::body::{Limits, json, multipart, urlencoded, xml};
use crate::head::{Target, cookies, quoted_cookies};
use crate::libinjection::{detect_sqli, detect_xss};
use crate::settings::BareArgument;
use crate::transformation::{Transformation, UnicodeMap};

/// Applies every transformation, and checks what the gates assume about it.
pub fn transformations(value: &[u8]) {
    let map = UnicodeMap::default();
    for transformation in Transformation::ALL {
        transformation.check(value, &map);
    }
}

/// Runs every parser of bodies and heads, and the detectors of injections.
pub fn parsers(content_type: &[u8], bytes: &[u8]) {
    let limits = Limits { depth: 64, parts: 100, name_bytes: 1 << 16, is_cut: false };
    let form = multipart::parse(bytes, content_type, &limits);
    for field in &form.fields {
        assert!(field.value.end <= bytes.len(), "field outside of the body");
    }
    for file in &form.files {
        assert!(file.content.end <= bytes.len(), "file outside of the body");
    }
    let mut name_bytes = 0;
    let result = json::parse(bytes, &limits, |name, _| {
        name_bytes +=
            name.path.len() * usize::from(name.element.is_none_or(|element| element.is_first));
        true
    });
    assert!(result.is_err() || name_bytes <= 1 << 16, "names of {name_bytes} bytes");
    let document = xml::parse(bytes, &limits);
    assert!(document.attributes.len() <= 100, "{} attributes", document.attributes.len());
    let mut size = 0;
    urlencoded::parse(
        bytes,
        b'&',
        BareArgument::Name,
        &mut Default::default(),
        &mut |name: &[u8], value: &[u8]| {
            size += name.len() + value.len();
            true
        },
    );
    assert!(size <= bytes.len(), "arguments of {size} bytes");
    cookies(bytes, |name, value| assert!(name.len() + value.len() <= bytes.len()));
    quoted_cookies(bytes, |name, value| assert!(name.len() + value.len() <= bytes.len()));
    let target = Target::parse(bytes);
    assert!(target.filename().ends_with(target.basename()));
    detect_sqli(bytes);
    detect_xss(bytes);
}

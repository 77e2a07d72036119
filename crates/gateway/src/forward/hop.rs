//! Headers that are for the next hop only (RFC 9110, section 7.6.1).

use tollgate_wire::Headers;

/// The options of the `Connection` headers of one head.
#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    headers: Headers<'a>,
    /// Most heads have none but these two, which name no header.
    are_plain: bool,
}

impl<'a> Options<'a> {
    pub(super) fn of(headers: Headers<'a>) -> Self {
        let are_plain = options(headers).all(|option| {
            option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive")
        });
        Self { headers, are_plain }
    }

    /// Whether this one is among them.
    pub(super) fn name(self, header: &str) -> bool {
        !self.are_plain
            && options(self.headers).any(|option| option.eq_ignore_ascii_case(header.as_bytes()))
    }
}

/// Whether a header of this name ends here, whatever `Connection` says, or is written anew.
pub(super) fn ends_here(name: &str) -> bool {
    // The length is compared first, so that most headers cost one comparison.
    let known: &[&str] = match name.len() {
        2 => &["te"],
        7 => &["upgrade"],
        10 => &["connection", "keep-alive"],
        14 => &["content-length"],
        16 => &["proxy-connection"],
        17 => &["transfer-encoding"],
        _ => &[],
    };
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn options(headers: Headers<'_>) -> impl Iterator<Item = &[u8]> {
    headers
        .all("connection")
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
}

//! Transformations (`t:lowercase`, `t:urlDecodeUni`, ...).
//!
//! Every transformation gives the same bytes as libmodsecurity 3.0.9. Its quirks, such as `sqlHexDecode` dropping the
//! last byte, are kept and documented with each transformation.

mod coding;
mod edit;
#[cfg(test)]
mod tests;

pub(crate) use coding::hex_pair;
pub(crate) use edit::is_space;

use memchr::{memchr, memchr2};

use crate::transformation::Transformation as T;

/// Transformation of a value before it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Transformation {
    /// Decodes Base64 as RFC 4648 has it: `YWJj` to `abc`. The value ends at its first zero byte.
    /// Line breaks and trailing spaces are skipped, any other foreign byte gives the empty value,
    /// and up to three letters that do not complete a group of four are dropped.
    Base64Decode,
    /// Decodes Base64 and skips foreign bytes: `Y!W-Jj` to `abc`. A group may be incomplete.
    Base64DecodeExt,
    /// Encodes in Base64 with padding: `ab` to `YWI=`.
    Base64Encode,
    /// Undoes the evasions of command shells: drops `"`, `'`, `\` and `^`, turns runs of spaces,
    /// commas, semicolons, tabs and line breaks into one space, drops a space before `/` and `(`,
    /// and lowers letters: `C^md  /C "dir"` to `cmd/c dir`.
    CmdLine,
    /// Turns every run of whitespace into one space: `a \t b` to `a b`.
    CompressWhitespace,
    /// Decodes the escapes of CSS 2: `ja\vas\63 ript` to `javascript`. The result ends at its
    /// first zero byte.
    CssDecode,
    /// Decodes the escapes of ANSI C: `\x41\n` to `A` and a line feed. The backslash of an unknown
    /// escape is dropped.
    EscapeSeqDecode,
    /// Decodes pairs of hexadecimal digits: `4142` to `AB`. Other bytes are read as digits too.
    HexDecode,
    /// Encodes each byte as two hexadecimal digits: `AB` to `4142`.
    HexEncode,
    /// Decodes `&#65;`, `&#x41;`, `&quot;`, `&amp;`, `&lt;`, `&gt;` and `&nbsp;`, with or without
    /// the semicolon: `&lt;b&#62` to `<b>`. A number gives its lowest byte.
    HtmlEntityDecode,
    /// Decodes the escapes of JavaScript: `\u0061\x62\143` to `abc`. `\u` gives the lower byte,
    /// and full-width letters (`\uff41`) give ASCII.
    JsDecode,
    /// Replaces the value by its length in bytes: `abc` to `3`.
    Length,
    /// Lowers ASCII letters: `SELECT` to `select`.
    Lowercase,
    /// MD5 digest, 16 raw bytes.
    Md5,
    /// Removes multiple slashes, self references and back references from a path:
    /// `/a/./b//../c` to `/a/c`.
    NormalizePath,
    /// The same after turning backslashes into slashes: `\a\..\b` to `/b`.
    NormalizePathWin,
    /// Sets the top bit of each byte so that its parity is even.
    ParityEven7bit,
    /// Sets the top bit of each byte so that its parity is odd.
    ParityOdd7bit,
    /// Clears the top bit of each byte.
    ParityZero7bit,
    /// Removes the comments `/* */` and `<!-- -->`, and all from `--` or `#` on: `a/* */b#c` to
    /// `ab`. The byte after the end of a comment is copied without a look at it; at the end of the value
    /// it is a zero byte.
    RemoveComments,
    /// Removes comment delimiters but keeps the text: `a/*b*/c--d` to `abcd`.
    RemoveCommentsChar,
    /// Removes zero bytes.
    RemoveNulls,
    /// Removes whitespace, and the bytes 0xA0 and 0xC2 of a no-break space: `a b` to `ab`.
    RemoveWhitespace,
    /// Replaces each comment `/* */` by a space: `a/*x*/b` to `a b`.
    ReplaceComments,
    /// Replaces zero bytes by spaces.
    ReplaceNulls,
    /// SHA-1 digest, 20 raw bytes.
    Sha1,
    /// Decodes hexadecimal literals of SQL: `0x4142` to `AB`. The last byte of the value is
    /// dropped unless a literal ends the value, and the result ends at its first zero byte.
    SqlHexDecode,
    /// Removes whitespace at both ends.
    Trim,
    /// Removes whitespace at the start.
    TrimLeft,
    /// Removes whitespace at the end.
    TrimRight,
    /// Raises ASCII letters: `select` to `SELECT`.
    Uppercase,
    /// Decodes `%41` and `+`: `a%20b+c` to `a b c`. Invalid escapes are kept.
    UrlDecode,
    /// The same with `%u0041`, which gives its lower byte; full-width letters (`%uff41`) give ASCII.
    UrlDecodeUni,
    /// Encodes all bytes but letters, digits and `*`: `a b=c` to `a+b%3dc`.
    UrlEncode,
    /// Turns UTF-8 sequences of two and more bytes into `%uXXXX`: `é` to `%u00e9`. Zero bytes and
    /// first bytes of broken sequences are dropped.
    Utf8ToUnicode,
}

/// Set of bytes: bit `b % 64` of word `b / 64`.
pub(crate) type ByteSet = [u64; 4];

const fn set_of(bytes: &[u8]) -> ByteSet {
    let mut set = [0; 4];
    let mut i = 0;
    while i < bytes.len() {
        set[(bytes[i] >> 6) as usize] |= 1 << (bytes[i] & 63);
        i += 1;
    }
    set
}

impl Transformation {
    /// All transformations, by name.
    pub(crate) const ALL: &'static [Self] = &[
        T::Base64Decode,
        T::Base64DecodeExt,
        T::Base64Encode,
        T::CmdLine,
        T::CompressWhitespace,
        T::CssDecode,
        T::EscapeSeqDecode,
        T::HexDecode,
        T::HexEncode,
        T::HtmlEntityDecode,
        T::JsDecode,
        T::Length,
        T::Lowercase,
        T::Md5,
        T::NormalizePath,
        T::NormalizePathWin,
        T::ParityEven7bit,
        T::ParityOdd7bit,
        T::ParityZero7bit,
        T::RemoveComments,
        T::RemoveCommentsChar,
        T::RemoveNulls,
        T::RemoveWhitespace,
        T::ReplaceComments,
        T::ReplaceNulls,
        T::Sha1,
        T::SqlHexDecode,
        T::Trim,
        T::TrimLeft,
        T::TrimRight,
        T::Uppercase,
        T::UrlDecode,
        T::UrlDecodeUni,
        T::UrlEncode,
        T::Utf8ToUnicode,
    ];

    /// Returns the transformation with that name, ignoring case. `normalise` is accepted for `normalize`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(name));
        found.or_else(|| {
            let alias =
                [("normalisePath", T::NormalizePath), ("normalisePathWin", T::NormalizePathWin)];
            alias.into_iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, t)| t)
        })
    }

    /// Name in rules, without `t:`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            T::Base64Decode => "base64Decode",
            T::Base64DecodeExt => "base64DecodeExt",
            T::Base64Encode => "base64Encode",
            T::CmdLine => "cmdLine",
            T::CompressWhitespace => "compressWhitespace",
            T::CssDecode => "cssDecode",
            T::EscapeSeqDecode => "escapeSeqDecode",
            T::HexDecode => "hexDecode",
            T::HexEncode => "hexEncode",
            T::HtmlEntityDecode => "htmlEntityDecode",
            T::JsDecode => "jsDecode",
            T::Length => "length",
            T::Lowercase => "lowercase",
            T::Md5 => "md5",
            T::NormalizePath => "normalizePath",
            T::NormalizePathWin => "normalizePathWin",
            T::ParityEven7bit => "parityEven7bit",
            T::ParityOdd7bit => "parityOdd7bit",
            T::ParityZero7bit => "parityZero7bit",
            T::RemoveComments => "removeComments",
            T::RemoveCommentsChar => "removeCommentsChar",
            T::RemoveNulls => "removeNulls",
            T::RemoveWhitespace => "removeWhitespace",
            T::ReplaceComments => "replaceComments",
            T::ReplaceNulls => "replaceNulls",
            T::Sha1 => "sha1",
            T::SqlHexDecode => "sqlHexDecode",
            T::Trim => "trim",
            T::TrimLeft => "trimLeft",
            T::TrimRight => "trimRight",
            T::Uppercase => "uppercase",
            T::UrlDecode => "urlDecode",
            T::UrlDecodeUni => "urlDecodeUni",
            T::UrlEncode => "urlEncode",
            T::Utf8ToUnicode => "utf8toUnicode",
        }
    }

    /// Writes the transformed value to `output`, which is cleared first, and returns true if it
    /// differs from the input. Where it returns false the content of `output` is unspecified.
    pub(crate) fn apply(self, input: &[u8], output: &mut Vec<u8>) -> bool {
        !self.leaves(input) && self.transform(input, output)
    }

    fn transform(self, input: &[u8], output: &mut Vec<u8>) -> bool {
        output.clear();
        match self {
            T::Base64Decode => coding::base64(input, output),
            T::Base64DecodeExt => coding::base64_ext(input, output),
            T::Base64Encode => coding::encode_base64(input, output),
            T::CmdLine => edit::cmd_line(input, output),
            T::CompressWhitespace => edit::compress_whitespace(input, output),
            T::CssDecode => coding::css(input, output),
            T::EscapeSeqDecode => coding::ansi_c(input, output),
            T::HexDecode => coding::hex(input, output),
            T::HexEncode => coding::encode_hex(input, output),
            T::HtmlEntityDecode => coding::html(input, output),
            T::JsDecode => coding::js(input, output),
            T::Length => output.extend_from_slice(input.len().to_string().as_bytes()),
            T::Lowercase => output.extend(input.iter().map(u8::to_ascii_lowercase)),
            T::Md5 => coding::md5(input, output),
            T::NormalizePath => edit::normalize_path::<false>(input, output),
            T::NormalizePathWin => edit::normalize_path::<true>(input, output),
            T::ParityEven7bit => {
                output.extend(input.iter().map(|b| (b & 0x7f) | ((b.count_ones() as u8 & 1) << 7)));
            }
            T::ParityOdd7bit => {
                output
                    .extend(input.iter().map(|b| (b & 0x7f) | ((!b.count_ones() as u8 & 1) << 7)));
            }
            T::ParityZero7bit => output.extend(input.iter().map(|b| b & 0x7f)),
            T::RemoveComments => edit::remove_comments(input, output),
            T::RemoveCommentsChar => edit::remove_comments_char(input, output),
            T::RemoveNulls => edit::remove(input, output, |b| b == 0),
            T::RemoveWhitespace => {
                edit::remove(input, output, |b| is_space(b) || b == 0xa0 || b == 0xc2);
            }
            T::ReplaceComments => edit::replace_comments(input, output),
            T::ReplaceNulls => output.extend(input.iter().map(|&b| if b == 0 { b' ' } else { b })),
            T::Sha1 => coding::sha1(input, output),
            T::SqlHexDecode => coding::sql_hex(input, output),
            T::Trim => output.extend_from_slice(edit::trim(input, true, true)),
            T::TrimLeft => output.extend_from_slice(edit::trim(input, true, false)),
            T::TrimRight => output.extend_from_slice(edit::trim(input, false, true)),
            T::Uppercase => output.extend(input.iter().map(u8::to_ascii_uppercase)),
            T::UrlDecode => coding::url::<false>(input, output),
            T::UrlDecodeUni => coding::url::<true>(input, output),
            T::UrlEncode => coding::encode_url(input, output),
            T::Utf8ToUnicode => coding::utf8_to_unicode(input, output),
        }
        output != input
    }

    /// True if a quick check shows that the transformation does not change the value.
    #[inline]
    fn leaves(self, input: &[u8]) -> bool {
        match self {
            T::CssDecode => memchr2(b'\\', 0, input).is_none(),
            T::EscapeSeqDecode | T::JsDecode => memchr(b'\\', input).is_none(),
            T::HtmlEntityDecode => memchr(b'&', input).is_none(),
            T::NormalizePath => memchr(b'/', input).is_none() && !ends_in_dots(input),
            T::NormalizePathWin => memchr2(b'/', b'\\', input).is_none() && !ends_in_dots(input),
            T::RemoveNulls | T::ReplaceNulls => memchr(0, input).is_none(),
            T::ReplaceComments => memchr(b'/', input).is_none(),
            T::UrlDecode | T::UrlDecodeUni => memchr2(b'%', b'+', input).is_none(),
            T::Utf8ToUnicode => input.is_ascii() && memchr(0, input).is_none(),
            _ => false,
        }
    }

    /// Without any of these bytes the transformation does not change a value. `None` if no such set exists.
    pub(crate) fn trigger_bytes(self) -> Option<ByteSet> {
        const SPACE: ByteSet = set_of(b" \t\n\x0b\x0c\r");
        const UPPER: ByteSet = [0, 0x07ff_fffe, 0, 0];
        const LOWER: ByteSet = [0, 0x07ff_fffe << 32, 0, 0];
        const HIGH: ByteSet = [0, 0, !0, !0];
        const fn union(a: ByteSet, b: ByteSet) -> ByteSet {
            [a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]]
        }
        Some(match self {
            T::CmdLine => union(UPPER, set_of(b"\"'\\^,;\t\r\n ")),
            T::CompressWhitespace | T::Trim | T::TrimLeft | T::TrimRight => SPACE,
            T::CssDecode => set_of(b"\\\0"),
            T::EscapeSeqDecode | T::JsDecode => set_of(b"\\"),
            T::HtmlEntityDecode => set_of(b"&"),
            T::Lowercase => UPPER,
            T::NormalizePath => set_of(b"/."),
            T::NormalizePathWin => set_of(b"/.\\"),
            T::ParityZero7bit => HIGH,
            T::RemoveComments => set_of(b"/<-#"),
            T::RemoveCommentsChar => set_of(b"/*<-#"),
            T::RemoveNulls | T::ReplaceNulls => set_of(b"\0"),
            T::RemoveWhitespace => union(SPACE, set_of(b"\xa0\xc2")),
            T::ReplaceComments => set_of(b"/"),
            T::Uppercase => LOWER,
            T::UrlDecode | T::UrlDecodeUni => set_of(b"%+"),
            T::UrlEncode => {
                let plain = union(union(UPPER, LOWER), set_of(b"0123456789*"));
                plain.map(|word| !word)
            }
            T::Utf8ToUnicode => union(HIGH, set_of(b"\0")),
            T::Base64Decode
            | T::Base64DecodeExt
            | T::Base64Encode
            | T::HexDecode
            | T::HexEncode
            | T::Length
            | T::Md5
            | T::ParityEven7bit
            | T::ParityOdd7bit
            | T::Sha1
            | T::SqlHexDecode => return None,
        })
    }
}

/// True if the last segment of a path is `.` or `..`, or ends in two dots.
fn ends_in_dots(path: &[u8]) -> bool {
    path == b"." || path.ends_with(b"..")
}

//! Transformations (`t:lowercase`, `t:urlDecodeUni`, ...): one table, and their functions.
//!
//! A transformation gives the same bytes as libmodsecurity 3.0.9, unless that hides bytes from rules: no transformation
//! ends a value at a zero byte, swallows a byte behind an escape or a comment, or drops what it does not know. Each
//! difference is documented with its transformation.

mod coding;
mod edit;
#[cfg(test)]
mod tests;
mod unicode;

pub(crate) use coding::{base64, hex_pair, url};
pub(crate) use edit::is_space;
pub(crate) use unicode::UnicodeMap;

use memchr::memchr3;

/// Set of bytes: bit `b % 64` of word `b / 64`.
pub(crate) type ByteSet = [u64; 4];

const NONE: ByteSet = [0; 4];
const UPPER: ByteSet = [0, 0x07ff_fffe, 0, 0];
const LOWER: ByteSet = [0, 0x07ff_fffe << 32, 0, 0];
const HIGH: ByteSet = [0, 0, !0, !0];
const SPACE: ByteSet = set_of(b" \t\n\x0b\x0c\r");

const fn set_of(bytes: &[u8]) -> ByteSet {
    let mut set = [0; 4];
    let mut i = 0;
    while i < bytes.len() {
        set[(bytes[i] >> 6) as usize] |= 1 << (bytes[i] & 63);
        i += 1;
    }
    set
}

const fn contains(set: &ByteSet, byte: u8) -> bool {
    set[(byte >> 6) as usize] >> (byte & 63) & 1 == 1
}

/// The bytes of a set of one to three bytes, so that they can be searched together.
const fn few(set: &ByteSet) -> Option<[u8; 3]> {
    let (mut found, mut count, mut byte) = ([0; 3], 0, 0);
    while byte < 256 {
        if contains(set, byte as u8) {
            if count == 3 {
                return None;
            }
            let mut rest = count;
            while rest < 3 {
                found[rest] = byte as u8;
                rest += 1;
            }
            count += 1;
        }
        byte += 1;
    }
    if count == 0 { None } else { Some(found) }
}

const fn union(a: ByteSet, b: ByteSet) -> ByteSet {
    [a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]]
}

/// Appends the result to an empty buffer.
type Function = fn(&[u8], &mut Vec<u8>);
/// The same with the best fit of Unicode characters.
type MappedFunction = fn(&[u8], &mut Vec<u8>, &UnicodeMap);

/// Row of the table: what a transformation does, and what gates may conclude before it runs.
pub(crate) struct Facts {
    /// Name in rules, without `t:`.
    pub(crate) name: &'static str,
    function: Function,
    /// Runs in place of `function`.
    mapped: Option<MappedFunction>,
    /// Without any of these bytes the value does not change. `None` if no such set exists.
    pub(crate) triggers: Option<ByteSet>,
    needles: Option<[u8; 3]>,
    /// Without any of these bytes nothing is decoded: the result then has no bytes but those of the value, in any case, and
    /// those of `adds`, and is no longer. `None`: it can have any byte.
    pub(crate) decodes: Option<ByteSet>,
    /// Bytes that the result can have although the value does not, if nothing is decoded.
    pub(crate) adds: ByteSet,
    /// Bytes of which all are removed, if nothing else changes.
    pub(crate) removes: Option<ByteSet>,
    /// True if the result can be longer than the value.
    pub(crate) grows: bool,
    /// True if both cases of a letter are treated alike, so that a comparison that ignores case may lower the value before or
    /// after.
    pub(crate) caseless: bool,
}

impl Facts {
    const fn new(
        name: &'static str,
        triggers: Option<ByteSet>,
        decodes: Option<ByteSet>,
        function: Function,
    ) -> Self {
        let needles = match &triggers {
            Some(set) => few(set),
            None => None,
        };
        Self {
            name,
            function,
            mapped: None,
            triggers,
            needles,
            decodes,
            adds: NONE,
            removes: None,
            grows: false,
            caseless: false,
        }
    }

    /// Drops, replaces or reorders bytes.
    const fn edits(name: &'static str, triggers: ByteSet, function: Function) -> Self {
        let mut facts = Self::new(name, Some(triggers), Some(NONE), function);
        facts.caseless = true;
        facts
    }

    /// Removes all of these bytes.
    const fn removes(name: &'static str, bytes: ByteSet, function: Function) -> Self {
        let mut facts = Self::edits(name, bytes, function);
        facts.removes = Some(bytes);
        facts
    }

    /// Decodes escapes that begin with one of these bytes.
    const fn decodes(name: &'static str, bytes: &[u8], function: Function) -> Self {
        Self::new(name, Some(set_of(bytes)), Some(set_of(bytes)), function)
    }

    /// Changes any value to any other.
    const fn changes(name: &'static str, function: Function) -> Self {
        Self::new(name, None, None, function)
    }

    const fn with_map(mut self, function: MappedFunction) -> Self {
        self.mapped = Some(function);
        self
    }

    const fn grows(mut self) -> Self {
        self.grows = true;
        self
    }

    const fn adds(mut self, bytes: &[u8]) -> Self {
        self.adds = set_of(bytes);
        self
    }

    /// Names the bytes that change a value, if they are not those that start a decoding.
    const fn triggered_by(mut self, triggers: ByteSet) -> Self {
        self.triggers = Some(triggers);
        self.needles = few(&triggers);
        self
    }

    /// Names the bytes that start a decoding.
    const fn decoding(mut self, bytes: ByteSet) -> Self {
        self.decodes = Some(bytes);
        self
    }

    /// True if the value has a byte that may change it.
    #[inline]
    fn is_triggered(&self, value: &[u8]) -> bool {
        let Some(triggers) = &self.triggers else { return true };
        match self.needles {
            Some([a, b, c]) => memchr3(a, b, c, value).is_some(),
            None if *triggers == HIGH => !value.is_ascii(),
            None => value.iter().any(|&byte| contains(triggers, byte)),
        }
    }
}

macro_rules! transformations {
    ($($(#[$doc:meta])* $variant:ident = $facts:expr;)*) => {
        /// Transformation of a value before it is compared.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Transformation {
            $($(#[$doc])* $variant,)*
        }

        impl Transformation {
            /// All transformations, by name.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        static TABLE: [Facts; Transformation::ALL.len()] = [$($facts,)*];
    };
}

transformations! {
    /// Decodes Base64 as RFC 4648 has it: `YWJj` to `abc`. Line breaks are skipped; padding, a space or any other byte ends the
    /// value. (libmodsecurity 3.0.9 hides the value if it has a foreign byte, and an incomplete last group.)
    Base64Decode = Facts::changes("base64Decode", base64);
    /// Decodes both alphabets of Base64 and skips foreign bytes: `Y!WJj` to `abc`. A group may be incomplete.
    /// (libmodsecurity 3.0.9 skips `-` and `_`, and hides the value for padding in odd places.)
    Base64DecodeExt = Facts::changes("base64DecodeExt", coding::base64_ext);
    /// Encodes in Base64 with padding: `ab` to `YWI=`.
    Base64Encode = Facts::changes("base64Encode", coding::encode_base64).grows();
    /// Undoes the evasions of command shells: drops `"`, `'`, `\` and `^`, turns runs of spaces,
    /// commas, semicolons, tabs and line breaks into one space, drops a space before `/` and `(`,
    /// and lowers letters: `C^md  /C "dir"` to `cmd/c dir`.
    CmdLine = Facts::edits("cmdLine", union(UPPER, set_of(b"\"'\\^,;\t\r\n ")), edit::cmd_line).adds(b" ");
    /// Turns every run of whitespace into one space: `a \t b` to `a b`.
    CompressWhitespace = Facts::edits("compressWhitespace", SPACE, edit::compress_whitespace).adds(b" ");
    /// Decodes the escapes of CSS: `ja\vas\63 ript` to `javascript`. A character beyond ASCII gives UTF-8, `\0` a zero byte, a
    /// full-width form ASCII; an escaped line break is dropped. (libmodsecurity 3.0.9 gives the lower byte of characters,
    /// knows line feeds only, and hides what follows a zero byte.)
    CssDecode = Facts::decodes("cssDecode", b"\\", coding::css);
    /// Decodes the escapes of ANSI C: `\x41\n` to `A` and a line feed. The backslash of an unknown
    /// escape is dropped.
    EscapeSeqDecode = Facts::decodes("escapeSeqDecode", b"\\", coding::ansi_c);
    /// Decodes pairs of hexadecimal digits: `4142` to `AB`. Other bytes are read as digits too.
    HexDecode = Facts::changes("hexDecode", coding::hex);
    /// Encodes each byte as two hexadecimal digits: `AB` to `4142`.
    HexEncode = Facts::changes("hexEncode", coding::encode_hex).grows();
    /// Decodes `&#65;`, `&#x41;`, and the names of ASCII characters and of the no-break space: `&lt;b&#62&colon;` to `<b>:`.
    /// The semicolon may be missing behind a number, `quot`, `amp`, `lt`, `gt` and `nbsp`. A number gives its lowest
    /// byte. `&Tab;` and `&NewLine;` stay, as rules name them. (libmodsecurity 3.0.9 knows these five names only, HTML all.)
    HtmlEntityDecode = Facts::decodes("htmlEntityDecode", b"&", coding::html);
    /// Decodes the escapes of JavaScript: `\u0061\x62\143\u{64}` to `abcd`. `\u` gives the lower byte,
    /// and full-width letters (`\uff41`) give ASCII. (libmodsecurity 3.0.9 does not know `\u{64}`.)
    JsDecode = Facts::decodes("jsDecode", b"\\", coding::js);
    /// Replaces the value by its length in bytes: `abc` to `3`.
    Length = Facts::changes("length", edit::length).grows();
    /// Lowers ASCII letters: `SELECT` to `select`.
    Lowercase = Facts::edits("lowercase", UPPER, edit::lowercase);
    /// MD5 digest, 16 raw bytes.
    Md5 = Facts::changes("md5", coding::md5).grows();
    /// Removes multiple slashes, self references and back references from a path: `/a/./b//../c` to `/a/c`. A relative path
    /// keeps back references above its start. (libmodsecurity 3.0.9 takes any segment that ends in `..` for one, and makes
    /// nothing of `/.`.)
    NormalizePath = Facts::edits("normalizePath", set_of(b"/."), edit::normalize_path);
    /// The same after turning backslashes into slashes: `\a\..\b` to `/b`.
    NormalizePathWin = Facts::edits("normalizePathWin", set_of(b"/.\\"), edit::normalize_path_win).adds(b"/");
    /// Sets the top bit of each byte so that its parity is even.
    ParityEven7bit = Facts::changes("parityEven7bit", edit::parity_even);
    /// Sets the top bit of each byte so that its parity is odd.
    ParityOdd7bit = Facts::changes("parityOdd7bit", edit::parity_odd);
    /// Clears the top bit of each byte.
    ParityZero7bit = Facts::changes("parityZero7bit", edit::parity_zero).triggered_by(HIGH);
    /// Removes the comments `/* */` and `<!-- -->`, and all from `--` or `#` on: `a/* */b#c` to `ab`. An open comment at the
    /// end leaves a space. (libmodsecurity 3.0.9 copies the byte behind a comment even if it begins another one.)
    RemoveComments = Facts::edits("removeComments", set_of(b"/<-#"), edit::remove_comments).adds(b" ");
    /// Removes comment delimiters but keeps the text: `a/*b*/c--d` to `abcd`.
    RemoveCommentsChar = Facts::edits("removeCommentsChar", set_of(b"/*<-#"), edit::remove_comments_char);
    /// Removes zero bytes.
    RemoveNulls = Facts::removes("removeNulls", set_of(b"\0"), edit::remove_nulls);
    /// Removes whitespace, and the bytes 0xA0 and 0xC2 of a no-break space: `a b` to `ab`.
    RemoveWhitespace = Facts::removes("removeWhitespace", union(SPACE, set_of(b"\xa0\xc2")), edit::remove_whitespace);
    /// Replaces each comment `/* */` by a space: `a/*x*/b` to `a b`.
    ReplaceComments = Facts::edits("replaceComments", set_of(b"/"), edit::replace_comments).adds(b" ");
    /// Replaces zero bytes by spaces.
    ReplaceNulls = Facts::edits("replaceNulls", set_of(b"\0"), edit::replace_nulls).adds(b" ");
    /// SHA-1 digest, 20 raw bytes.
    Sha1 = Facts::changes("sha1", coding::sha1).grows();
    /// Decodes hexadecimal literals of SQL: `x=0x4142` to `x=AB`. (libmodsecurity 3.0.9 hides what follows a zero byte, and
    /// the last byte.)
    SqlHexDecode = Facts::decodes("sqlHexDecode", b"xX", coding::sql_hex);
    /// Removes whitespace at both ends.
    Trim = Facts::edits("trim", SPACE, edit::trim);
    /// Removes whitespace at the start.
    TrimLeft = Facts::edits("trimLeft", SPACE, edit::trim_left);
    /// Removes whitespace at the end.
    TrimRight = Facts::edits("trimRight", SPACE, edit::trim_right);
    /// Raises ASCII letters: `select` to `SELECT`.
    Uppercase = Facts::edits("uppercase", LOWER, edit::uppercase);
    /// Decodes `%41` and `+`: `a%20b+c` to `a b c`. Invalid escapes are kept.
    UrlDecode = Facts::decodes("urlDecode", b"%", url).triggered_by(set_of(b"%+")).adds(b" ");
    /// The same with `%u0041`, which gives the best fit of the character (`SecUnicodeMapFile`): `%u2039` to `<`. A character
    /// without one gives its lower byte.
    UrlDecodeUni =
        Facts::decodes("urlDecodeUni", b"%", url).with_map(coding::url_uni).triggered_by(set_of(b"%+")).adds(b" ");
    /// Encodes all bytes but letters, digits and `*`: `a b=c` to `a+b%3dc`.
    UrlEncode = Facts::changes("urlEncode", coding::encode_url).triggered_by(ENCODED).grows();
    /// Turns UTF-8 sequences of two and more bytes into `%uXXXX`: `é` to `%u00e9`. (libmodsecurity 3.0.9 drops zero bytes and
    /// the first bytes of broken sequences.)
    Utf8ToUnicode =
        Facts::changes("utf8toUnicode", coding::utf8_to_unicode).triggered_by(HIGH).decoding(HIGH).grows();
}

/// Bytes that `urlEncode` encodes.
const ENCODED: ByteSet = {
    let plain = union(union(UPPER, LOWER), set_of(b"0123456789*"));
    [!plain[0], !plain[1], !plain[2], !plain[3]]
};

impl Transformation {
    /// Returns the transformation with that name, ignoring case. `normalise` is accepted for `normalize`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let american = name.get(..9).filter(|start| start.eq_ignore_ascii_case("normalise"));
        let name = american.map_or(name.to_owned(), |_| format!("normalize{}", &name[9..]));
        Self::ALL.iter().copied().find(|known| known.facts().name.eq_ignore_ascii_case(&name))
    }

    pub(crate) fn facts(self) -> &'static Facts {
        &TABLE[self as usize]
    }

    /// Name in rules, without `t:`.
    pub(crate) fn name(self) -> &'static str {
        self.facts().name
    }

    /// Writes the transformed value to `output`, which is cleared first, and returns true if it
    /// differs from the input. Where it returns false the content of `output` is unspecified.
    pub(crate) fn apply(self, input: &[u8], output: &mut Vec<u8>, map: &UnicodeMap) -> bool {
        let facts = self.facts();
        if !facts.is_triggered(input) {
            return false;
        }
        output.clear();
        match facts.mapped {
            Some(function) => function(input, output, map),
            None => (facts.function)(input, output),
        }
        output != input
    }
}

/// Checks all that the table says of a transformation on one value.
#[cfg(any(test, fuzzing))]
impl Transformation {
    pub(crate) fn check(self, value: &[u8], map: &UnicodeMap) {
        let facts = self.facts();
        let transform = |value: &[u8]| {
            let mut output = Vec::new();
            match facts.mapped {
                Some(function) => function(value, &mut output, map),
                None => (facts.function)(value, &mut output),
            }
            output
        };
        let output = transform(value);
        let context = || {
            format!(
                "{} of \"{}\" is \"{}\"",
                facts.name,
                value.escape_ascii(),
                output.escape_ascii()
            )
        };
        let has = |set: &ByteSet| value.iter().any(|&byte| contains(set, byte));
        if facts.decodes.is_some_and(|set| !has(&set)) {
            let allowed = |byte: &u8| {
                value.iter().any(|known| known.eq_ignore_ascii_case(byte))
                    || contains(&facts.adds, *byte)
            };
            assert!(output.iter().all(allowed), "adds bytes: {}", context());
            assert!(output.len() <= value.len(), "grows: {}", context());
        }
        assert!(facts.grows || output.len() <= value.len(), "grows: {}", context());
        assert!(facts.is_triggered(value) || output == value, "changes: {}", context());
        let is_triggered = facts.triggers.is_none_or(|set| has(&set));
        assert_eq!(facts.is_triggered(value), is_triggered, "triggers: {}", context());
        let mut applied = b"stale".to_vec();
        let changed = self.apply(value, &mut applied, map);
        assert!(if changed { applied == output } else { output == value }, "{}", context());
        if facts.caseless {
            let lowered = transform(&value.to_ascii_lowercase());
            assert!(output.eq_ignore_ascii_case(&lowered), "regards case: {}", context());
        }
    }
}

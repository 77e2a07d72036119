//! Effects of transformations on the set of bytes of a value: the conclusions that a gate may draw
//! before it transforms the value.

use crate::transformation::Transformation as T;

use super::bytes::Bytes;

/// Effect on the set of bytes of a value, without regard to case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    /// Bytes without which nothing is decoded. `None`: the result can hold any byte.
    pub(crate) triggers: Option<Bytes>,
    /// Bytes that the result can hold although the value does not, if nothing is decoded. The
    /// result is then no longer than the value.
    pub(crate) adds: Bytes,
}

impl Effect {
    /// The effect of a transformation.
    pub(crate) fn of(transformation: T) -> Self {
        let none = Bytes::default();
        let space = Bytes::of(b" ");
        let edits = |adds| Self { triggers: Some(none), adds };
        let decodes = |triggers, adds| Self { triggers: Some(triggers), adds };
        match transformation {
            T::Lowercase
            | T::Uppercase
            | T::RemoveNulls
            | T::RemoveWhitespace
            | T::RemoveCommentsChar
            | T::Trim
            | T::TrimLeft
            | T::TrimRight
            | T::NormalizePath => edits(none),
            // A comment without an end is replaced by a space, one at the end by a zero byte.
            T::RemoveComments => edits(Bytes::of(b" \0")),
            T::CompressWhitespace | T::ReplaceNulls | T::ReplaceComments | T::CmdLine => {
                edits(space)
            }
            T::NormalizePathWin => edits(Bytes::of(b"/")),
            T::UrlDecode | T::UrlDecodeUni => decodes(Bytes::of(b"%"), space),
            T::HtmlEntityDecode => decodes(Bytes::of(b"&"), none),
            T::JsDecode | T::CssDecode | T::EscapeSeqDecode => decodes(Bytes::of(b"\\"), none),
            T::SqlHexDecode => decodes(Bytes::of(b"xX"), none),
            T::Utf8ToUnicode => decodes(Bytes::range(128, 255), none),
            T::Base64Decode
            | T::Base64DecodeExt
            | T::Base64Encode
            | T::HexDecode
            | T::HexEncode
            | T::Length
            | T::Md5
            | T::ParityEven7bit
            | T::ParityOdd7bit
            | T::ParityZero7bit
            | T::Sha1
            | T::UrlEncode => Self { triggers: None, adds: none },
        }
    }
}

/// True if the result can be longer than the value.
pub(crate) fn can_grow(transformation: T) -> bool {
    matches!(
        transformation,
        T::Base64Encode
            | T::HexEncode
            | T::Length
            | T::Md5
            | T::Sha1
            | T::UrlEncode
            | T::Utf8ToUnicode
    )
}

/// True if the transformation treats both cases of a letter alike, so that a comparison that ignores
/// case may lower the value before or after it.
pub(crate) fn ignores_case(transformation: T) -> bool {
    matches!(
        transformation,
        T::Lowercase
            | T::RemoveNulls
            | T::RemoveWhitespace
            | T::RemoveComments
            | T::RemoveCommentsChar
            | T::Trim
            | T::TrimLeft
            | T::TrimRight
            | T::NormalizePath
            | T::NormalizePathWin
            | T::CompressWhitespace
            | T::ReplaceNulls
            | T::ReplaceComments
            | T::CmdLine
    )
}

/// Checks all of the above on one value and its result.
#[cfg(any(test, fuzzing))]
pub(crate) fn check(transformation: T, value: &[u8], output: &[u8]) {
    let context = || {
        format!(
            "{} of \"{}\" is \"{}\"",
            transformation.name(),
            value.escape_ascii(),
            output.escape_ascii()
        )
    };
    let bytes = Bytes::of(value);
    let Effect { triggers, adds } = Effect::of(transformation);
    if triggers.is_some_and(|triggers| !bytes.intersects(&triggers)) {
        let allowed = bytes.fold_case().union(adds);
        assert!(output.iter().all(|&byte| allowed.contains(byte)), "adds bytes: {}", context());
        assert!(output.len() <= value.len(), "grows: {}", context());
    }
    assert!(can_grow(transformation) || output.len() <= value.len(), "grows: {}", context());
    let changes = transformation.trigger_bytes().is_none_or(|set| bytes.intersects(&Bytes(set)));
    assert!(changes || output == value, "changes: {}", context());
    if ignores_case(transformation) {
        let mut lowered = Vec::new();
        let lower = value.to_ascii_lowercase();
        if !transformation.apply(&lower, &mut lowered) {
            lowered = lower;
        }
        assert!(output.eq_ignore_ascii_case(&lowered), "regards case: {}", context());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60_000))]

        #[test]
        fn transformations_have_the_stated_effects(
            mut value in text(),
            transformation in proptest::sample::select(T::ALL),
            without_triggers in any::<bool>(),
        ) {
            if let (true, Some(triggers)) = (without_triggers, Effect::of(transformation).triggers) {
                value.retain(|&byte| !triggers.contains(byte));
            }
            let mut output = Vec::new();
            let changed = transformation.apply(&value, &mut output);
            check(transformation, &value, if changed { &output } else { &value });
        }
    }

    #[test]
    fn a_comment_at_the_end_adds_a_zero_byte() {
        check(T::RemoveComments, b"x/*y*/", b"x\0");
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let telling =
            b"\\%&#xu0123456789abcdefABCDEFg;+/*-.<!> \t\n\r\0,^\"'()\xc2\xa0\xe4\xff".to_vec();
        proptest::collection::vec(
            prop_oneof![4 => proptest::sample::select(telling), 1 => any::<u8>()],
            0..24,
        )
    }
}

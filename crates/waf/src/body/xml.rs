//! XML bodies: the text of the document and the values of its attributes.
//!
//! Tokens come from `quick-xml`; the rules of well-formedness that it leaves to its user are
//! checked here. Documents in UTF-8, UTF-16, ISO-8859-1 and the encodings of browsers are read. No
//! DTD, entity or other file is ever loaded. A reference to an internal entity is replaced by its text, within a
//! limit on the sum of all replacements; markup within the text of an entity stays text.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use memchr::memmem;
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::body::Limits;
use crate::limits::{ELEMENT_DEPTH_MAX, ENTITY_DEPTH_MAX, EXPANSION_MAX};

/// Error of an XML body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid XML at byte {offset}: {reason}")]
pub(crate) struct XmlError {
    /// Position in the document after its conversion to UTF-8.
    pub(crate) offset: u64,
    pub(crate) reason: Cow<'static, str>,
}

/// Text and attributes that rules see; on an error, those before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Xml {
    /// All text of the root element (`XML:/*`), once its start tag was read.
    pub(crate) text: Option<Vec<u8>>,
    /// Parts of the text between two tags, without those of whitespace.
    pub(crate) runs: Vec<Range<usize>>,
    /// An element has both a run of text and an element.
    pub(crate) is_mixed: bool,
    /// Contents of processing instructions. (libxml2 hides them.)
    pub(crate) instructions: Vec<Vec<u8>>,
    /// Attribute values in their order (`XML://@*`): those of the elements, namespace declarations among them, and defaults that
    /// the DOCTYPE declares. (libxml2 hides the latter two from `XML://@*`.)
    pub(crate) attributes: Vec<Vec<u8>>,
    pub(crate) error: Option<XmlError>,
}

/// Parses a document.
///
/// An error if elements are nested deeper than `limits.depth` or 256, or if there are more
/// attributes than `limits.parts`.
pub(crate) fn parse(input: &[u8], limits: &Limits) -> Xml {
    let (document, flaw) = decode(input);
    let flaw = flaw.filter(|flaw| !(limits.is_cut && flaw.is_of_end));
    let mut parser = Parser {
        limits,
        out: Xml::default(),
        entities: HashMap::new(),
        expanded: 0,
        open: Vec::new(),
        run_start: 0,
        root_seen: false,
    };
    let mut reader = Reader::from_str(&document);
    reader.config_mut().check_comments = true;
    let mut start = 0;
    let result = loop {
        let handled = match reader.read_event() {
            Ok(Event::Eof) if limits.is_cut && parser.root_seen => break Ok(()),
            Ok(Event::Eof) => break parser.end(),
            Ok(event) => parser.event(&event, start),
            // The last token of a body that is cut.
            Err(_) if limits.is_cut && reader.buffer_position() >= document.len() as u64 => {
                break Ok(());
            }
            Err(error) => Err(error.to_string().into()),
        };
        if handled.is_err() {
            break handled;
        }
        start = reader.buffer_position();
    };
    parser.end_run();
    let error = result.err().map(|reason| (reader.error_position().max(start), reason));
    let flaw = flaw.map(|flaw| (flaw.offset as u64, flaw.reason.into()));
    let first = [flaw, error].into_iter().flatten().min_by_key(|(offset, _)| *offset);
    parser.out.error = first.map(|(offset, reason)| XmlError { offset, reason });
    parser.out
}

/// Text of each entity; `None` for one outside the document.
type Entities = HashMap<String, Option<String>>;
type Reason = Cow<'static, str>;

struct Parser<'a> {
    limits: &'a Limits,
    out: Xml,
    entities: Entities,
    /// Bytes that entities have added.
    expanded: usize,
    open: Vec<Content>,
    /// Start of the text behind the last tag.
    run_start: usize,
    root_seen: bool,
}

/// Content of an element so far.
#[derive(Default)]
struct Content {
    has_text: bool,
    has_element: bool,
}

impl Parser<'_> {
    fn event(&mut self, event: &Event<'_>, start: u64) -> Result<(), Reason> {
        match event {
            Event::Start(tag) => {
                self.open(tag)?;
                self.open.push(Content::default());
                if self.open.len() > ELEMENT_DEPTH_MAX.min(self.limits.depth) {
                    return Err("elements nested too deep".into());
                }
            }
            Event::Empty(tag) => self.open(tag)?,
            Event::End(_) => {
                self.end_run();
                self.open.pop();
            }
            Event::Text(text) => {
                if self.open.is_empty() {
                    let blank = text.bytes().all(|byte| byte.is_ascii_whitespace());
                    return if blank {
                        Ok(())
                    } else {
                        Err("text outside the root element".into())
                    };
                }
                if memmem::find(text.as_bytes(), b"]]>").is_some() {
                    return Err("`]]>` within text".into());
                }
                self.append(text);
            }
            Event::CData(text) if !self.open.is_empty() => self.append(text),
            Event::GeneralRef(name) if !self.open.is_empty() => {
                let mut text = self.out.text.take().unwrap_or_default();
                let result = self.reference(name, &mut text, 0);
                self.out.text = Some(text);
                result?;
            }
            Event::CData(_) | Event::GeneralRef(_) => {
                return Err("text outside the root element".into());
            }
            Event::Decl(_) if start > 0 => return Err("XML declaration within the document".into()),
            Event::Decl(text) if !text.strip_prefix("xml").is_some_and(proper_declaration) => {
                return Err("invalid XML declaration".into());
            }
            Event::PI(instruction) => {
                let (target, content) = split_name(instruction)?;
                if target.eq_ignore_ascii_case("xml") {
                    return Err("XML declaration within the document".into());
                }
                if !(content.is_empty()
                    || content.starts_with(|first: char| first.is_ascii_whitespace()))
                {
                    return Err("invalid processing instruction".into());
                }
                self.out.instructions.push(content.trim_ascii_start().into());
            }
            Event::DocType(declaration) => {
                if self.root_seen {
                    return Err("DOCTYPE after the start of the root element".into());
                }
                split_name(declaration.trim_ascii_start())?;
                for value in declare_entities(declaration, &mut self.entities) {
                    let mut text = Vec::new();
                    self.attribute_text(&value, &mut text, 0)?;
                    self.out.attributes.push(text);
                }
            }
            Event::Decl(_) | Event::Comment(_) | Event::Eof => {}
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Reason> {
        match (self.root_seen, self.open.len()) {
            (true, 0) => Ok(()),
            (true, _) => Err("element without its end tag".into()),
            (false, _) => Err("no root element".into()),
        }
    }

    /// Handles a start tag, given without its angle brackets.
    fn open(&mut self, tag: &str) -> Result<(), Reason> {
        if self.open.is_empty() && self.root_seen {
            return Err("more than one root element".into());
        }
        self.end_run();
        if let Some(parent) = self.open.last_mut() {
            parent.has_element = true;
            self.out.is_mixed |= parent.has_text;
        }
        let (name, mut rest) = split_name(tag)?;
        let first = self.out.attributes.len();
        let mut names = HashSet::new();
        let mut values = Vec::new();
        loop {
            let trimmed = rest.trim_ascii_start();
            if trimmed.is_empty() {
                break;
            }
            if trimmed.len() == rest.len() {
                return Err(format!("space missing within the tag `{name}`").into());
            }
            let (attribute, after) = split_name(trimmed)?;
            let value = after.trim_ascii_start().strip_prefix('=').map(str::trim_ascii_start);
            let value = value.ok_or_else(|| format!("attribute `{attribute}` without a value"))?;
            let quoted = value.chars().next().filter(|quote| matches!(quote, '"' | '\''));
            let parts = quoted.and_then(|quote| value[1..].split_once(quote));
            let (value, after) =
                parts.ok_or_else(|| format!("attribute `{attribute}` without quotes"))?;
            rest = after;
            if value.contains('<') {
                return Err(format!("`<` within the attribute `{attribute}`").into());
            }
            if !names.insert(attribute) {
                return Err(format!("duplicate attribute `{attribute}`").into());
            }
            let mut text = Vec::new();
            self.attribute_text(value, &mut text, 0)?;
            values.push(text);
        }
        self.out.attributes.append(&mut values);
        if self.out.attributes.len() > self.limits.parts {
            self.out.attributes.truncate(first);
            return Err(format!("more than {} attributes", self.limits.parts).into());
        }
        self.root_seen = true;
        self.out.text.get_or_insert_default();
        Ok(())
    }

    /// Ends the text behind the last tag.
    fn end_run(&mut self) {
        let text = self.out.text.as_deref().unwrap_or_default();
        let run = self.run_start..text.len();
        self.run_start = text.len();
        if !text[run.clone()].trim_ascii().is_empty() {
            self.out.runs.push(run);
            if let Some(element) = self.open.last_mut() {
                element.has_text = true;
                self.out.is_mixed |= element.has_element;
            }
        }
    }

    /// Appends an attribute value: references are replaced, whitespace becomes spaces.
    fn attribute_text(
        &mut self,
        value: &str,
        text: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Reason> {
        let value = normalize_line_breaks(value);
        let mut rest = &*value;
        while let Some(at) = rest.find('&') {
            text.extend(rest[..at].bytes().map(space_for_whitespace));
            let (name, after) = rest[at + 1..].split_once(';').ok_or("`&` without a reference")?;
            match character(name)? {
                Some(character) => {
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                None => {
                    let entity = self.entity(name, depth)?;
                    self.attribute_text(&entity, text, depth + 1)?;
                }
            }
            rest = after;
        }
        text.extend(rest.bytes().map(space_for_whitespace));
        Ok(())
    }

    /// Appends the text of the root element.
    fn append(&mut self, text: &str) {
        let text = normalize_line_breaks(text);
        self.out.text.get_or_insert_default().extend_from_slice(text.as_bytes());
    }

    /// Appends the text that a reference stands for.
    fn reference(&mut self, name: &str, text: &mut Vec<u8>, depth: usize) -> Result<(), Reason> {
        if let Some(character) = character(name)? {
            text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(());
        }
        let entity = self.entity(name, depth)?;
        let mut rest = &*entity;
        while let Some(at) = rest.find('&') {
            text.extend_from_slice(&rest.as_bytes()[..at]);
            let (name, after) = rest[at + 1..].split_once(';').ok_or("`&` without a reference")?;
            self.reference(name, text, depth + 1)?;
            rest = after;
        }
        text.extend_from_slice(rest.as_bytes());
        Ok(())
    }

    /// Text of a declared entity, counted against the limit.
    fn entity(&mut self, name: &str, depth: usize) -> Result<String, Reason> {
        let text = self.entities.get(name).ok_or_else(|| format!("undeclared entity `{name}`"))?;
        let text = text.clone().unwrap_or_default();
        // Empty entities count too: each reference costs a look-up.
        self.expanded += text.len() + 1;
        if depth >= ENTITY_DEPTH_MAX || self.expanded > EXPANSION_MAX {
            return Err("entities expand too far".into());
        }
        Ok(text)
    }
}

fn space_for_whitespace(byte: u8) -> u8 {
    if matches!(byte, b'\t' | b'\n' | b'\r') { b' ' } else { byte }
}

fn normalize_line_breaks(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        text.into()
    }
}

/// Splits a name off the start of a tag.
fn split_name(text: &str) -> Result<(&str, &str), Reason> {
    let end = text.find(|character| !in_name(character)).unwrap_or(text.len());
    if !text.starts_with(starts_name) {
        return Err("invalid name of an element or attribute".into());
    }
    Ok(text.split_at(end))
}

/// `NameStartChar` of XML 1.0.
fn starts_name(character: char) -> bool {
    match character {
        '\0'..='\u{bf}' => character.is_ascii_alphabetic() || matches!(character, ':' | '_'),
        '\u{d7}' | '\u{f7}' | '\u{300}'..='\u{36f}' | '\u{37e}' => false,
        '\u{c0}'..='\u{1fff}' | '\u{200c}' | '\u{200d}' | '\u{2070}'..='\u{218f}' => true,
        _ => matches!(
            character,
            '\u{2c00}'..='\u{2fef}'
                | '\u{3001}'..='\u{d7ff}'
                | '\u{f900}'..='\u{fdcf}'
                | '\u{fdf0}'..='\u{fffd}'
                | '\u{10000}'..='\u{effff}'
        ),
    }
}

/// `NameChar` of XML 1.0.
fn in_name(character: char) -> bool {
    matches!(character, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}' | '\u{2040}')
        || starts_name(character)
}

/// Checks the text of an XML declaration after `<?xml`: version, encoding and standalone in this
/// order, the first one required.
fn proper_declaration(mut rest: &str) -> bool {
    let mut found = 0;
    for name in ["version", "encoding", "standalone"] {
        let trimmed = rest.trim_ascii_start();
        let Some(after) = trimmed.strip_prefix(name).filter(|_| trimmed.len() < rest.len()) else {
            continue;
        };
        let value = after
            .trim_ascii_start()
            .strip_prefix('=')
            .map(str::trim_ascii_start)
            .unwrap_or_default();
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''));
        let Some((value, after)) = quote.and_then(|quote| value[1..].split_once(quote)) else {
            return false;
        };
        let proper = match name {
            "version" => value
                .strip_prefix("1.")
                .is_some_and(|minor| minor.bytes().all(|byte| byte.is_ascii_digit())),
            "encoding" => value.starts_with(|first: char| first.is_ascii_alphabetic()),
            _ => matches!(value, "yes" | "no"),
        };
        if !proper || (found == 0 && name != "version") {
            return false;
        }
        found += 1;
        rest = after;
    }
    found > 0 && rest.trim_ascii().is_empty()
}

/// The character of a numeric reference or of one of the five entities that need no declaration.
fn character(name: &str) -> Result<Option<char>, Reason> {
    let code = match name {
        "lt" => return Ok(Some('<')),
        "gt" => return Ok(Some('>')),
        "amp" => return Ok(Some('&')),
        "quot" => return Ok(Some('"')),
        "apos" => return Ok(Some('\'')),
        _ => match name.strip_prefix('#') {
            None => return Ok(None),
            Some(digits) => match digits.strip_prefix('x') {
                Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                    u32::from_str_radix(digits, 16)
                }
                Some(_) => u32::from_str_radix("", 16),
                None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse(),
                None => "".parse(),
            },
        },
    };
    let character = code.ok().and_then(char::from_u32).filter(|character| allowed(*character));
    character.map(Some).ok_or_else(|| format!("invalid character reference `&{name};`").into())
}

/// Characters of XML 1.0.
fn allowed(character: char) -> bool {
    !matches!(character, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}')
}

/// Collects the general entities that the internal subset of a DOCTYPE declares, and returns the default values of attributes in
/// it. The first declaration of a name counts.
fn declare_entities(declaration: &str, entities: &mut Entities) -> Vec<String> {
    let mut defaults = Vec::new();
    let Some((_, mut rest)) = declaration.split_once('[') else { return defaults };
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let end = match rest.as_bytes() {
            [b'<', b'!', b'-', b'-', ..] => rest.find("-->").map(|end| end + 3),
            [b'<', b'?', ..] => rest.find("?>").map(|end| end + 2),
            _ => markup_end(rest),
        };
        let Some(end) = end else { return defaults };
        if let Some(entity) = rest[..end].strip_prefix("<!ENTITY") {
            declare_entity(entity, entities);
        } else if let Some(mut list) = rest[..end].strip_prefix("<!ATTLIST") {
            while let Some(at) = list.find(['"', '\'']) {
                let (quote, text) = list[at..].split_at(1);
                let Some((value, after)) = text.split_once(quote) else { break };
                defaults.push(value.to_owned());
                list = after;
            }
        }
        rest = &rest[end..];
    }
    defaults
}

/// Position after the `>` that ends a declaration; a `>` within quotes does not.
fn markup_end(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

fn declare_entity(text: &str, entities: &mut Entities) {
    let Ok((name, rest)) = split_name(text.trim_ascii_start()) else { return };
    let rest = rest.trim_ascii_start();
    let quoted = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''));
    let literal = quoted.and_then(|quote| Some(rest[1..].split_once(quote)?.0));
    // Character references are replaced here, others where the entity is used: `&#38;lt;` is one of these.
    let value = literal.map(|literal| {
        let mut value = String::new();
        let mut rest = literal;
        while let Some((before, after)) = rest.split_once('&') {
            value.push_str(before);
            match after.split_once(';').filter(|(name, _)| name.starts_with('#')) {
                Some((name, tail)) => {
                    match character(name) {
                        Ok(Some(character)) => value.push(character),
                        _ => value.push_str(&format!("&amp;{name};")),
                    }
                    rest = tail;
                }
                None => {
                    value.push('&');
                    rest = after;
                }
            }
        }
        value.push_str(rest);
        value
    });
    entities.entry(name.to_owned()).or_insert(value);
}

/// Bytes or a character that a document cannot have.
struct Flaw {
    /// Position in the converted document.
    offset: usize,
    reason: &'static str,
    /// The document ends within a character.
    is_of_end: bool,
}

/// Converts a document to UTF-8 and returns its first flaw. No byte is dropped: one that the encoding does not have becomes the
/// character of ISO-8859-1, as do all bytes of a document whose encoding is unknown.
fn decode(input: &[u8]) -> (Cow<'_, str>, Option<Flaw>) {
    let (encoding, input) = match (Encoding::for_bom(input), input) {
        (Some((encoding, length)), _) if encoding != UTF_8 => (Some(encoding), &input[length..]),
        (_, [b'<', 0, b'?', 0, ..]) => (Some(UTF_16LE), input),
        (_, [0, b'<', 0, b'?', ..]) => (Some(UTF_16BE), input),
        (bom, _) => {
            let input = &input[bom.map_or(0, |(_, length)| length)..];
            match declared_encoding(input).to_ascii_lowercase().as_slice() {
                b"" | b"us-ascii" | b"ascii" => (Some(UTF_8), input),
                // Browsers take it for windows-1252.
                b"iso-8859-1" | b"iso8859-1" | b"latin1" | b"latin-1" => {
                    return with_allowed_characters(encoding_rs::mem::decode_latin1(input), None);
                }
                label => {
                    let known = Encoding::for_label_no_replacement(label);
                    (known.filter(|known| ![UTF_16LE, UTF_16BE].contains(known)), input)
                }
            }
        }
    };
    match encoding {
        None => {
            let reason = "unsupported encoding";
            let flaw = Flaw { offset: 0, reason, is_of_end: false };
            (encoding_rs::mem::decode_latin1(input), Some(flaw))
        }
        Some(encoding)
            if encoding == UTF_8
                && let Ok(text) = std::str::from_utf8(input) =>
        {
            with_allowed_characters(text.into(), None)
        }
        Some(encoding) => {
            let (text, flaw) = decode_from(encoding, input);
            with_allowed_characters(text.into(), flaw)
        }
    }
}

/// Decodes a document. Bytes that are invalid become characters of ISO-8859-1.
fn decode_from(encoding: &'static Encoding, input: &[u8]) -> (String, Option<Flaw>) {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let (mut text, mut flaw, mut at) = (String::with_capacity(input.len()), None, 0);
    loop {
        let rest = &input[at..];
        let (result, read) = decoder.decode_to_string_without_replacement(rest, &mut text, true);
        at += read;
        match result {
            DecoderResult::InputEmpty => return (text, flaw),
            DecoderResult::OutputFull => text.reserve(64 + 3 * (input.len() - at)),
            DecoderResult::Malformed(length, after) => {
                let end = at - usize::from(after);
                flaw.get_or_insert(Flaw {
                    offset: text.len(),
                    reason: "bytes that are invalid in the encoding",
                    is_of_end: end == input.len(),
                });
                let invalid = &input[end - usize::from(length)..end];
                text.extend(invalid.iter().map(|&byte| char::from(byte)));
            }
        }
    }
}

/// Adds the first character that XML does not allow to the flaws.
fn with_allowed_characters<'a>(
    text: Cow<'a, str>,
    flaw: Option<Flaw>,
) -> (Cow<'a, str>, Option<Flaw>) {
    let found = text.find(|character| !allowed(character));
    let found = found.filter(|found| flaw.as_ref().is_none_or(|flaw| *found < flaw.offset));
    let reason = "character that XML does not allow";
    let found = found.map(|offset| Flaw { offset, reason, is_of_end: false });
    (text, found.or(flaw))
}

/// The encoding that an XML declaration names, or nothing.
fn declared_encoding(input: &[u8]) -> &[u8] {
    let declaration =
        input.strip_prefix(b"<?xml").and_then(|rest| rest.get(..memmem::find(rest, b"?>")?));
    let value = declaration.and_then(|text| {
        let value =
            text.get(memmem::find(text, b"encoding")? + b"encoding".len()..)?.trim_ascii_start();
        let value = value.strip_prefix(b"=")?.trim_ascii_start();
        let (quote, value) = value.split_first()?;
        value.split(|byte| byte == quote).next()
    });
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { depth: 1_000, parts: 100, name_bytes: 0, is_cut: false };

    fn shown(input: &[u8]) -> String {
        let parsed = parse(input, &LIMITS);
        let text = parsed.text.map_or("-".to_owned(), |text| text.escape_ascii().to_string());
        let attributes: Vec<_> =
            parsed.attributes.iter().map(|value| value.escape_ascii().to_string()).collect();
        let error = parsed.error.map_or(String::new(), |error| format!(" ! {}", error.reason));
        format!("{text} {attributes:?}{error}")
    }

    /// Values of libmodsecurity 3.0.9 with libxml2 2.9.14 for the same documents, and those of namespaces and defaults.
    #[test]
    fn equals_libxml2_on_proper_documents() {
        let utf16: Vec<u8> =
            "\u{feff}<a>x\u{e9}</a>".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (input, expected) in [
            (&b"<a>x</a>"[..], "x []"),
            (b"<a b=\"1\" c='2'>x<d e=\"3\">y</d>z</a>", "xyz [\"1\", \"2\", \"3\"]"),
            (b"<?xml version=\"1.0\"?><a>&lt;&amp;&#65;&#x42;</a>", "<&AB []"),
            (b"<a><![CDATA[<x>]]>t</a>", "<x>t []"),
            (b"<a><!-- c -->t<?pi x?>u</a>", "tu []"),
            (b" <a/> \n", " []"),
            (b"<a b=\"&lt;&#10; x\ny\"/>", " [\"<\\\\n x y\"]"),
            (b"<!DOCTYPE a [<!ENTITY e \"ent\">]><a b=\"&e;\">&e;</a>", "ent [\"ent\"]"),
            (b"<!DOCTYPE a [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><a>&e;</a>", " []"),
            (b"<a xmlns=\"u\" xmlns:p=\"v\" p:b=\"1\"><p:c/></a>", " [\"u\", \"v\", \"1\"]"),
            (b"<a>\r\n x \r y</a>", "\\n x \\n y []"),
            (b"<a>x&#xD;y</a>", "x\\ry []"),
            (b"<p:a/>", " []"),
            (b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe9</a>", "\\xc3\\xa9 []"),
            (b"\xef\xbb\xbf<a>x</a>", "x []"),
            (&utf16, "x\\xc3\\xa9 []"),
            (
                b"<!DOCTYPE a [<!ATTLIST a d CDATA \"dflt\" e (x|y) '&#60;'>]><a/>",
                " [\"dflt\", \"<\"]",
            ),
        ] {
            assert_eq!(shown(input), expected, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn runs_are_the_texts_between_tags() {
        for (document, expected, is_mixed) in [
            ("<a>x</a>", vec!["x"], false),
            ("<a> <b>x</b>\n<c>y<![CDATA[z]]>&lt;</c> </a>", vec!["x", "yz<"], false),
            ("<a>x<b/>y</a>", vec!["x", "y"], true),
            ("<a><b/>x</a>", vec!["x"], true),
            ("<a><b>x</b></a>", vec!["x"], false),
            ("<a>x<!-- c -->y<?p?>z</a>", vec!["xyz"], false),
            ("<a><b>x</b><c>y", vec!["x", "y"], false),
        ] {
            let parsed = parse(document.as_bytes(), &LIMITS);
            let text = String::from_utf8(parsed.text.unwrap()).unwrap();
            let runs: Vec<_> = parsed.runs.iter().map(|run| &text[run.clone()]).collect();
            assert_eq!((runs, parsed.is_mixed), (expected, is_mixed), "{document}");
        }
    }

    #[test]
    fn contents_of_processing_instructions_are_kept() {
        let parsed = parse(b"<?xml version='1.0'?><?p?><a>t<?pi\n<x>?></a><?q  y ?>", &LIMITS);
        assert_eq!(
            (parsed.error, parsed.instructions),
            (None, vec![vec![], b"<x>".to_vec(), b"y ".to_vec()])
        );
    }

    #[test]
    fn rejects_what_libxml2_rejects() {
        for input in [
            &b""[..],
            b"x",
            b"<a>",
            b"<a></b>",
            b"</a>",
            b"<a>&nope;</a>",
            b"<a>1</a><b/>",
            b"<a b=\"1\" b=\"2\"/>",
            b"<a>\xff</a>",
            b"<?xml version=\"1.0\" encoding=\"UTF-16\"?><a>x</a>",
            b"<a>]]></a>",
            b"<a b=\"<\"/>",
            b"<a b=1/>",
            b"<a/>x",
            b"<a>\x01</a>",
            b"<a>&#1;</a>",
            b"<a b>",
            b"<a b=\"1\"c=\"2\"/>",
            b"<A></a>",
            b"<a><?xml version=\"1.0\"?></a>",
            b"<a><!-- a -- b --></a>",
            b"<1/>",
            b"<a 1=\"2\"/>",
            b"<a>&</a>",
            b"<a>&#;</a>",
            b"<a>&#x;</a>",
            b"&lt;<a/>",
            b"<a/><!DOCTYPE a>",
            b"<a b=\"&#xD800;\"/>",
            b"<a>&#99999999999;</a>",
        ] {
            assert!(parse(input, &LIMITS).error.is_some(), "{}", input.escape_ascii());
        }
        assert_eq!(shown(b"<a c=\"2\">1</a><b/>"), "1 [\"2\"] ! more than one root element");
    }

    #[test]
    fn text_around_invalid_bytes_is_kept() {
        for (input, expected) in [
            (&b"<a b='1'>x\0y</a>"[..], "x\\x00y [\"1\"] ! character that XML does not allow"),
            (b"<a>x\xffy</a>", "x\\xc3\\xbfy [] ! bytes that are invalid in the encoding"),
            (
                b"\xff\xfe<\0a\0>\0\x3d\xd8x\0<\0/\0a\0>\0",
                "=\\xc3\\x98x [] ! bytes that are invalid in the encoding",
            ),
            (
                b"<?xml version='1.0' encoding='Shift_JIS'?><a>\x82<![CDATA[<b>]]>\xfd</a>",
                "\\xc2\\x82<b>\\xc3\\xbd [] ! bytes that are invalid in the encoding",
            ),
            (
                b"<?xml version='1.0' encoding='x-unknown'?><a>\xe9&lt;</a>",
                "\\xc3\\xa9< [] ! unsupported encoding",
            ),
            (
                b"<?xml version='1.0' encoding='hz-gb-2312'?><a>&lt;b</a>",
                "<b [] ! unsupported encoding",
            ),
        ] {
            assert_eq!(shown(input), expected, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn documents_are_read_in_the_encoding_that_they_declare() {
        for (encoding, text, expected) in [
            ("windows-1252", &b"\x8b \x80 \xe9"[..], "\u{2039} \u{20ac} \u{e9}"),
            ("ISO-8859-15", b"\xa4 \xe9", "\u{20ac} \u{e9}"),
            ("ISO-8859-1", b"\x8b \xe9", "\u{8b} \u{e9}"),
            ("Shift_JIS", b"\x83\x5c <b>", "\u{30bd} <b>"),
            ("EUC-JP", b"\xa5\xbd", "\u{30bd}"),
            ("GB18030", b"\xd6\xd0", "\u{4e2d}"),
            ("koi8-r", b"\xc1", "\u{430}"),
        ] {
            let declaration = format!("<?xml version=\"1.0\" encoding=\"{encoding}\"?>");
            let start = [declaration.as_bytes(), b"<a><![CDATA["].concat();
            let parsed = parse(&[&start, text, b"]]></a>"].concat(), &LIMITS);
            let found = parsed.text.map(|text| String::from_utf8_lossy(&text).into_owned());
            assert_eq!((found.as_deref(), parsed.error), (Some(expected), None), "{encoding}");
        }
    }

    #[test]
    fn limits_depth_attributes_and_entities() {
        let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert_eq!(parse(nested(256).as_bytes(), &LIMITS).error, None);
        assert_eq!(
            parse(nested(257).as_bytes(), &LIMITS).error.unwrap().reason,
            "elements nested too deep"
        );
        let attributes: String = (0..101).map(|i| format!(" a{i}=\"\"")).collect();
        assert_eq!(
            shown(format!("<a{attributes}/>").as_bytes()),
            "- [] ! more than 100 attributes"
        );
        let laughs: String = (1..10)
            .map(|i| format!("<!ENTITY e{i} \"{}\">", format!("&e{};", i - 1).repeat(10)))
            .collect();
        let bomb = format!("<!DOCTYPE a [<!ENTITY e0 'ha'>{laughs}]><a>&e9;</a>");
        assert!(shown(bomb.as_bytes()).ends_with("! entities expand too far"));
        assert!(
            shown(b"<!DOCTYPE a [<!ENTITY e '&e;'>]><a b='&e;'/>")
                .ends_with("! entities expand too far")
        );
    }

    #[test]
    fn document_that_is_cut_ends_without_an_error() {
        let limits = Limits { is_cut: true, ..LIMITS };
        for end in
            [&b"</c><d"[..], b"</c><d e='", b"", b"\xe2\x82", b"&am", b"</c><!-- x", b"<![CDATA[ "]
        {
            let document = [b"<a b='1'><c>text", end].concat();
            let parsed = parse(&document, &limits);
            let name = end.escape_ascii();
            assert!(parsed.text.is_some_and(|text| text.starts_with(b"text")), "{name}");
            assert_eq!(parsed.error, None, "{name}");
        }
        // An error before its end counts.
        for document in [&b"<a>&nope; <b"[..], b"<a></b><c", b"<a>\xff <b", b"x<a"] {
            assert!(parse(document, &limits).error.is_some(), "{}", document.escape_ascii());
        }
    }

    #[test]
    fn entities_keep_markup_as_text() {
        let subset =
            b"<!DOCTYPE a [<!-- <!ENTITY e 'no'> --><?p <!ENTITY e 'no'>?><!ENTITY % e 'no'>\
            <!ENTITY e '<b>&#60;&#38;lt;&f;'><!ENTITY f \"'>\"><!ENTITY e 'no'>]><a>&e;</a>";
        assert_eq!(shown(subset), "<b><<\\'> []");
        let twice = b"<!DOCTYPE a [<!ENTITY e '&#38;#60;b&#0;'>]><a>&e;</a>";
        assert_eq!(shown(twice), "<b&#0; []");
    }
}

//! Strict reader of TOML files: an error names the file, the line and, for an unknown key, the nearest known key.
//!
//! Unknown keys are found by comparing the document with the JSON Schema of its type, which lists the keys of every
//! level.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value as Schema;
use std::ops::Range;
use tollgate_records::error::{BadInput, suggestion};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedText {
    /// A path, or `built-in:` and a path inside the binary.
    pub name: String,
    pub text: String,
}

impl NamedText {
    /// Name of a text made of arguments.
    pub const COMMAND_LINE: &str = "systems on the command line";

    /// Returns file, line and column of a byte offset, or only the name if there is no file.
    fn position(&self, start: usize) -> String {
        if self.name == Self::COMMAND_LINE {
            return self.name.clone();
        }
        let (line, column) = line_and_column(&self.text, start);
        format!("{}:{line}:{column}", self.name)
    }
}

/// One step of a path into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    Key(String),
    /// An item of a list.
    Index(usize),
}

/// Parses a file. An error names the place.
pub fn parse<T: DeserializeOwned + JsonSchema>(source: &NamedText) -> Result<T, BadInput> {
    let document = DeTable::parse(&source.text).map_err(|error| {
        let hint = error.span().map_or("", |span| quotes_hint(source, span));
        locate(source, error.span(), &format!("{}{hint}", error.message()))
    })?;
    let schema = schemars::schema_for!(T).to_value();
    check_table(source, document.get_ref(), &schema, &schema, "")?;
    toml::from_str(&source.text).map_err(|error| locate(source, error.span(), error.message()))
}

/// Returns file, line and column of the value at a path, or of the last step of the path that exists, or the option for a
/// value of the command line.
pub fn place(source: &NamedText, path: &[PathStep]) -> String {
    if let (NamedText::COMMAND_LINE, [PathStep::Key(root), .., PathStep::Key(key)]) =
        (&*source.name, path)
        && root == "case"
        && ["mix", "connections", "duration"].contains(&key.as_str())
    {
        return format!("--{key}");
    }
    let mut start = 0;
    // Callers have parsed the text before.
    if let Ok(document) = DeTable::parse(&source.text) {
        let mut table = Some(document.get_ref());
        let mut array = None;
        for step in path {
            let next = match step {
                PathStep::Key(key) => table.and_then(|table| table.get(key.as_str())),
                PathStep::Index(index) => array.and_then(|array: &DeArray<'_>| array.get(*index)),
            };
            let Some(next) = next else {
                break;
            };
            start = next.span().start;
            table = next.get_ref().as_table();
            array = next.get_ref().as_array();
        }
    }
    source.position(start)
}

fn check_table(
    source: &NamedText,
    table: &DeTable<'_>,
    schema: &Schema,
    root: &Schema,
    path: &str,
) -> Result<(), BadInput> {
    let schema = resolve(schema, root);
    let known = schema["properties"].as_object();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let inner = match known.and_then(|properties| properties.get(name)) {
            Some(inner) => inner,
            None if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
            None if schema["additionalProperties"] == Schema::Bool(false) => {
                let keys = known.into_iter().flat_map(|keys| keys.keys());
                let hint = suggestion(name, keys.map(String::as_str));
                let place = if path.is_empty() { String::new() } else { format!(" in [{path}]") };
                let message = format!("unknown key `{name}`{place}{hint}");
                return Err(locate(source, Some(key.span()), &message));
            }
            None => continue,
        };
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        check_value(source, value, inner, root, &path)?;
    }
    Ok(())
}

fn check_value(
    source: &NamedText,
    value: &Spanned<DeValue<'_>>,
    schema: &Schema,
    root: &Schema,
    path: &str,
) -> Result<(), BadInput> {
    let schema = resolve(schema, root);
    if schema["type"] == "array" && value.get_ref().is_table() {
        let message = format!("`{path}` is a list: write [[{path}]]");
        return Err(locate(source, Some(value.span()), &message));
    }
    if let Some(message) = wrong_kind(value.get_ref(), schema) {
        return Err(locate(source, Some(value.span()), &message));
    }
    match value.get_ref() {
        DeValue::Table(table) => check_table(source, table, schema, root, path),
        DeValue::Array(array) => array
            .iter()
            .try_for_each(|item| check_value(source, item, &schema["items"], root, path)),
        _ => Ok(()),
    }
}

/// Describes the expected kind of a value, for kinds that serde would describe in terms of Rust.
fn wrong_kind(value: &DeValue<'_>, schema: &Schema) -> Option<String> {
    let expects = |kind: &str| match &schema["type"] {
        Schema::Array(kinds) => kinds.iter().any(|one| one == kind),
        one => one == kind,
    };
    match value {
        DeValue::Table(_) | DeValue::Array(_) => None,
        DeValue::Integer(_) if expects("integer") && is_in_range(value, schema) => None,
        _ if expects("integer") => Some(match (&schema["minimum"], maximum(schema)) {
            (Schema::Number(low), Some(high)) => {
                format!("expected a whole number from {low} to {high}")
            }
            (Schema::Number(low), None) => format!("expected a whole number of at least {low}"),
            _ => "expected a whole number".to_owned(),
        }),
        _ if expects("object") => Some("expected a table: { KEY = VALUE }".to_owned()),
        _ if expects("array") => Some("expected a list: [VALUE, ...]".to_owned()),
        _ => None,
    }
}

fn is_in_range(value: &DeValue<'_>, schema: &Schema) -> bool {
    let number = value.as_integer();
    let number =
        number.and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok());
    let low = schema["minimum"].as_i64().unwrap_or(i64::MIN);
    number.is_some_and(|number| (low..=maximum(schema).unwrap_or(i64::MAX)).contains(&number))
}

/// Returns the maximum of an integer type, if TOML has larger numbers.
fn maximum(schema: &Schema) -> Option<i64> {
    (schema["format"] == "uint32").then_some(u32::MAX.into())
}

/// Follows a `$ref`, and takes the non-null branch of an optional value.
fn resolve<'a>(schema: &'a Schema, root: &'a Schema) -> &'a Schema {
    if let Some(pointer) = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
        return root.pointer(pointer).unwrap_or(schema);
    }
    let branches = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or(&[]);
    let mut present = branches.iter().filter(|branch| branch["type"] != "null");
    match (present.next(), present.next()) {
        (Some(only), None) => resolve(only, root),
        _ => schema,
    }
}

fn locate(source: &NamedText, span: Option<Range<usize>>, message: &str) -> BadInput {
    let message = message.trim_end().replace('\n', " ");
    BadInput(format!("{}: {message}", source.position(span.map_or(0, |span| span.start))))
}

/// Returns line and column of a byte offset, both from 1, the column in bytes.
fn line_and_column(text: &str, start: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..start.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    (line, before.len() - begin + 1)
}

/// Suggests quotes for a value that looks like text without them.
fn quotes_hint(source: &NamedText, span: Range<usize>) -> &'static str {
    let rest = source.text.get(span.start..).unwrap_or_default();
    let word = rest.split([',', '\n', ' ', '}', ']']).next().unwrap_or_default();
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !word.is_empty() && word.chars().all(bare) { "; put text in quotes" } else { "" }
}

impl From<&str> for PathStep {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for PathStep {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters here")]
    struct Outer {
        title: String,
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        named: BTreeMap<String, Inner>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters here")]
    struct Inner {
        connections: u32,
    }

    fn error(text: &str) -> String {
        let source = NamedText { name: "x.toml".to_owned(), text: text.to_owned() };
        parse::<Outer>(&source).unwrap_err().to_string()
    }

    #[test]
    fn unknown_key_is_reported_with_line_and_nearest_key() {
        assert_eq!(
            error("title = 'a'\ntitel = 'b'\n"),
            "x.toml:2:1: unknown key `titel`; did you mean `title`?"
        );
        assert_eq!(
            error("title = 'a'\n[inner]\nconections = 1\n"),
            "x.toml:3:1: unknown key `conections` in [inner]; did you mean `connections`?"
        );
        assert_eq!(
            error("title = 'a'\nlist = [{ connections = 1 }, { conns = 1 }]\n"),
            "x.toml:2:32: unknown key `conns` in [list]; known: `connections`"
        );
        assert_eq!(
            error("title = 'a'\n[named.one]\nconnection = 1\n"),
            "x.toml:3:1: unknown key `connection` in [named.one]; did you mean `connections`?"
        );
    }

    #[test]
    fn common_mistakes_get_a_hint() {
        assert_eq!(
            error("title = 'a'\n[list]\nconnections = 1\n"),
            "x.toml:2:1: `list` is a list: write [[list]]"
        );
        assert!(error("title = nginx\n").ends_with("; put text in quotes"));
        assert!(error("title = 3.3.4\n").ends_with("; put text in quotes"));
    }

    #[test]
    fn place_follows_a_path() {
        let source = NamedText {
            name: "x.toml".to_owned(),
            text: "a = 1\n[[b]]\nc = 2\n[[b]]\nd = { e = 3 }\n".to_owned(),
        };
        let at = |path: &[PathStep]| place(&source, path);
        assert_eq!(at(&["a".into()]), "x.toml:1:5");
        assert_eq!(at(&["b".into(), 1.into(), "d".into(), "e".into()]), "x.toml:5:11");
        assert_eq!(at(&["b".into(), 0.into(), "gone".into()]), "x.toml:2:1");
        assert_eq!(at(&["gone".into()]), "x.toml:1:1");
    }

    #[test]
    fn errors_name_the_line() {
        assert!(error("title = 'a'\nlist = [\n").starts_with("x.toml:2:"));
        assert_eq!(error("[inner]\nconnections = 1"), "x.toml:1:1: missing field `title`");
        assert!(error("title = 5").starts_with("x.toml:1:9: invalid type"));
    }

    #[test]
    fn kinds_are_described_in_terms_of_toml() {
        let whole = "x.toml:3:15: expected a whole number from 0 to 4294967295";
        for odd in ["'b'", "-1", "1.5", "4294967296", "99999999999999999999", "true"] {
            assert_eq!(
                error(&format!("title = 'a'\n[inner]\nconnections = {odd}")),
                whole,
                "{odd}"
            );
        }
        assert_eq!(
            error("title = 'a'\ninner = 5"),
            "x.toml:2:9: expected a table: { KEY = VALUE }"
        );
        assert_eq!(error("title = 'a'\nlist = 5"), "x.toml:2:8: expected a list: [VALUE, ...]");
        for fine in ["0", "4_294_967_295", "0xff"] {
            let text = format!("title = 'a'\n[inner]\nconnections = {fine}");
            let source = NamedText { name: "x.toml".to_owned(), text };
            assert!(parse::<Outer>(&source).is_ok(), "{fine}");
        }
    }
}

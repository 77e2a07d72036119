//! The reference in docs/experiments.md and docs/systems.md: every key of a schema, with an example from the files of this
//! repository or, for keys that none of them has, from the type.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const UPDATE: &str = "UPDATE_SCHEMAS=1 cargo test -p tollgate-experiment";

/// The longest example that is preferred to a shorter one further on.
const EXAMPLE_LENGTH_MAX: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A schema, and files that it describes.
struct Reference {
    schema: Value,
    files: Vec<toml::Value>,
}

/// Place of a table in a file.
#[derive(Clone)]
struct Place {
    /// The keys from the top; "NAME" stands for a key that the user chooses.
    keys: Vec<String>,
    is_list: bool,
}

impl Reference {
    fn read(schema: &str, pattern: &str) -> Self {
        let schema = fs::read_to_string(root().join("schemas").join(schema)).unwrap();
        let pattern = root().join(pattern);
        let paths = glob::glob(pattern.to_str().unwrap()).unwrap();
        let files =
            paths.map(|path| toml::from_str(&fs::read_to_string(path.unwrap()).unwrap()).unwrap());
        Self { schema: serde_json::from_str(&schema).unwrap(), files: files.collect() }
    }

    /// Follows a reference, alone or beside `null`.
    fn resolve<'a>(&'a self, mut node: &'a Value) -> &'a Value {
        if let Some(options) = node["anyOf"].as_array() {
            node = options.iter().find(|option| option["type"] != "null").unwrap();
        }
        match node["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
            Some(path) => self.schema.pointer(path).unwrap(),
            None => node,
        }
    }

    /// Returns the table that a key has, and its place.
    fn table<'a>(
        &'a self,
        place: &Place,
        key: &str,
        node: &'a Value,
    ) -> Option<(Place, &'a Value)> {
        let mut place = Place { keys: place.keys.clone(), is_list: false };
        place.keys.push(key.to_owned());
        let node = self.resolve(node);
        let of_map = &node["additionalProperties"];
        let inner = if of_map.is_object() {
            place.keys.push("NAME".to_owned());
            self.resolve(of_map)
        } else if node["type"] == "array" {
            place.is_list = true;
            self.resolve(&node["items"])
        } else {
            node
        };
        inner["properties"].is_object().then_some((place, inner))
    }

    /// Writes the table of a node's keys, and those of the tables in it.
    fn write(&self, text: &mut String, place: &Place, node: &Value) {
        let name = place.name();
        if !place.keys.is_empty() {
            writeln!(text, "\n### `{name}`\n\n{}", plain(&node["description"])).unwrap();
        }
        text.push_str("\n| key | type | default | example | |\n|---|---|---|---|---|\n");
        let required: Vec<_> = node["required"].as_array().into_iter().flatten().collect();
        let (first, rest): (Vec<_>, Vec<_>) =
            node["properties"].as_object().unwrap().iter().partition(|(key, _)| {
                required.iter().any(|name| name.as_str() == Some(key.as_str()))
            });
        let mut tables = Vec::new();
        let first_count = first.len();
        for (index, (key, value)) in first.into_iter().chain(rest).enumerate() {
            let table = self.table(place, key, value);
            let (kind, default, example) = match &table {
                Some((inner, _)) => (inner.link(), String::new(), String::new()),
                None => {
                    let default = code_unless_empty(&value["default"]);
                    (self.kind(value), default, self.example(place, key, value))
                }
            };
            let default = if index < first_count { "required".to_owned() } else { default };
            let about = plain(&value["description"]);
            assert!(!about.is_empty(), "{name}: `{key}` has no description");
            writeln!(text, "| `{key}` | {kind} | {default} | {example} | {about} |").unwrap();
            tables.extend(table);
        }
        for (place, node) in tables {
            self.write(text, &place, node);
        }
    }

    fn kind(&self, node: &Value) -> String {
        let name = |node: &Value| {
            node["$ref"].as_str().and_then(|path| path.rsplit('/').next().map(str::to_owned))
        };
        let of_options = node["anyOf"].as_array().and_then(|options| options.iter().find_map(name));
        match name(node).or(of_options).as_deref() {
            Some("Span") => return "duration".to_owned(),
            Some("Percent") => return "percent".to_owned(),
            _ => {}
        }
        let node = self.resolve(node);
        let words = |options: &Value| -> Vec<String> {
            options.as_array().unwrap().iter().map(|option| self.kind(option)).collect()
        };
        if let Some(word) = node["const"].as_str() {
            return format!("`\"{word}\"`");
        }
        for union in ["oneOf", "anyOf"] {
            if node[union].is_array() {
                return words(&node[union]).join(" or ");
            }
        }
        let kind = node["type"].as_str().or_else(|| node["type"][0].as_str()).unwrap();
        match kind {
            "array" => match self.kind(&node["items"]) {
                // A choice of values.
                values if values.starts_with('`') => {
                    format!("list of {}", values.replace(" or ", ", "))
                }
                kind => format!("list of {}", plural(&kind)),
            },
            "object" => format!("table of {}", plural(&self.kind(&node["additionalProperties"]))),
            kind => kind.to_owned(),
        }
    }

    /// The first short value of the key in the files, or else the shortest one.
    fn example(&self, place: &Place, key: &str, node: &Value) -> String {
        let mut values = Vec::new();
        for file in &self.files {
            collect(file, &place.keys, key, &mut values);
        }
        let short = values.iter().find(|value| value.len() <= EXAMPLE_LENGTH_MAX);
        let found = short.or(values.iter().min_by_key(|value| value.len())).cloned();
        let of_type =
            || Some(code_unless_empty(&node["examples"][0])).filter(|text| !text.is_empty());
        let of_default =
            || Some(code_unless_empty(&node["default"])).filter(|text| !text.is_empty());
        let example = found.map(|value| code(&value)).or_else(of_type).or_else(of_default);
        example
            .unwrap_or_else(|| panic!("add an example to the type of `{key}` in {}", place.name()))
    }
}

impl Place {
    fn name(&self) -> String {
        let keys = self.keys.join(".");
        if self.is_list { format!("[[{keys}]]") } else { format!("[{keys}]") }
    }

    /// A link to the section of this table.
    fn link(&self) -> String {
        let keep = |c: &char| c.is_alphanumeric() || "_-".contains(*c);
        let anchor: String = self.name().to_lowercase().chars().filter(keep).collect();
        let kind = if self.is_list { "list of tables" } else { "table" };
        format!("[{kind}](#{anchor})")
    }
}

/// Adds the values of a key in the tables at a place.
fn collect(value: &toml::Value, place: &[String], key: &str, values: &mut Vec<String>) {
    match (value, place) {
        (toml::Value::Array(items), _) => {
            items.iter().for_each(|item| collect(item, place, key, values));
        }
        (toml::Value::Table(table), []) => {
            values.extend(table.get(key).map(toml::Value::to_string));
        }
        (toml::Value::Table(table), [first, rest @ ..]) => {
            let inner = table.iter().filter(|(name, _)| *name == first || first == "NAME");
            inner.for_each(|(_, inner)| collect(inner, rest, key, values));
        }
        _ => {}
    }
}

/// `lists of strings` for `list of strings`, and `integers or strings` for `integer or string`.
fn plural(kind: &str) -> String {
    match kind.strip_prefix("list ") {
        Some(rest) => format!("lists {rest}"),
        None => format!("{}s", kind.replace(" or ", "s or ")),
    }
}

fn plain(description: &Value) -> String {
    description.as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('\n', " ").replace('|', "\\|"))
}

fn code_unless_empty(value: &Value) -> String {
    let is_empty = value.is_null() || ["\"\"", "[]", "{}"].contains(&value.to_string().as_str());
    if is_empty { String::new() } else { code(&value.to_string()) }
}

#[test]
fn reference_has_the_keys_of_the_schemas() {
    for (page, schema, files) in [
        ("experiments.md", "experiment.json", "experiments/*.toml"),
        ("systems.md", "system.json", "systems/*/system.toml"),
    ] {
        let path = root().join("docs").join(page);
        let committed = fs::read_to_string(&path).unwrap();
        let marker = format!("<!-- generated from schemas/{schema}: {UPDATE} -->\n");
        let (written, _) = committed.split_once(&marker).expect("the marker");
        let reference = Reference::read(schema, files);
        let mut text = format!("{written}{marker}");
        reference.write(&mut text, &Place { keys: Vec::new(), is_list: false }, &reference.schema);
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap();
        assert!(committed == text, "{page} is not up to date; run {UPDATE}");
    }
}

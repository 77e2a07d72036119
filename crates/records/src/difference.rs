//! Differences between two manifests, as of a run and its continuation.

use crate::manifest::Manifest;
use serde_json::Value;
use std::fmt;

impl Manifest {
    /// Returns the differences from another manifest, except start time, command and working directory.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let as_value = |manifest: &Self| serde_json::to_value(manifest).unwrap_or(Value::Null);
        let mut differences = differences(&as_value(self), &as_value(other));
        differences.retain(|difference| match &difference.path[..] {
            [part] => !["started_at", "command", "directory"].contains(&part.as_str()),
            _ => true,
        });
        differences
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Keys from the outside in.
    pub path: Vec<String>,
    /// On one line; `None` if it is absent.
    pub before: Option<String>,
    pub after: Option<String>,
}

pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    compare(&[], before, after, &mut differences);
    differences
}

impl Difference {
    pub fn is_of_the_machine(&self) -> bool {
        let parts: Vec<&str> = self.path.iter().map(String::as_str).collect();
        // A role that is missing, or new, is another layout.
        matches!(parts[..], ["environment", ..] | ["hosts", _, "host" | "environment", ..])
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long texts are cut to the surroundings of the first difference.
        let [before, after] =
            [&self.before, &self.after].map(|value| value.as_deref().unwrap_or_default());
        let alike = before.chars().zip(after.chars()).take_while(|(a, b)| a == b).count();
        let longest = before.chars().count().max(after.chars().count());
        let start = if longest > SHOWN_CHARS { alike.saturating_sub(LEAD_CHARS) } else { 0 };
        let shown = |text: &str| {
            if text.is_empty() {
                return "nothing".to_owned();
            }
            let excerpt: String = text.chars().skip(start).take(SHOWN_CHARS).collect();
            let before = if start > 0 { "..." } else { "" };
            let after = if text.chars().count() > start + SHOWN_CHARS { "..." } else { "" };
            format!("{before}{excerpt}{after}")
        };
        write!(formatter, "{}: {}, now {}", self.path.join("."), shown(before), shown(after))
    }
}

const SHOWN_CHARS: usize = 60;
const LEAD_CHARS: usize = 20;

fn compare(path: &[String], before: &Value, after: &Value, differences: &mut Vec<Difference>) {
    let below = |name: &str| [path, &[name.to_owned()]].concat();
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let part =
                    |object: &serde_json::Map<_, _>| object.get(name).cloned().unwrap_or_default();
                compare(&below(name), &part(a), &part(b), differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.iter().chain(b).any(Value::is_object) => {
            for index in 0..a.len().max(b.len()) {
                let part = |object: &[Value]| object.get(index).cloned().unwrap_or_default();
                let (a, b) = (part(a), part(b));
                let name = a.get("name").or(b.get("name")).and_then(Value::as_str);
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                compare(&below(&name), &a, &b, differences);
            }
        }
        (before, after) => differences.push(Difference {
            path: path.to_vec(),
            before: on_one_line(before),
            after: on_one_line(after),
        }),
    }
}

fn on_one_line(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    Some(text.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(before: &Value, after: &Value) -> Vec<String> {
        differences(before, after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn differences_have_path_and_both_values() {
        let before = json!({"a": 1, "list": [{"name": "x", "v": "1"}, 2], "gone": true});
        let after = json!({"a": 1, "list": [{"name": "x", "v": "2\n3"}, 2, 4], "new": null});
        assert_eq!(
            texts(&before, &after),
            ["gone: true, now nothing", "list.x.v: 1, now 2 3", "list.2: nothing, now 4"]
        );
        assert_eq!(
            texts(&json!({"cpus": [1]}), &json!({"cpus": [1, 2]})),
            ["cpus: [1], now [1,2]"]
        );
        assert!(texts(&before, &before).is_empty());
    }

    #[test]
    fn long_values_are_cut_to_the_difference() {
        let line = &texts(&json!({"a": "x".repeat(99)}), &json!({}))[0];
        assert_eq!(line, &format!("a: {}..., now nothing", "x".repeat(60)));
        let before = format!("{}12{}", "x".repeat(30), "y".repeat(60));
        let after = before.replace("12", "13");
        let lead = format!("...{}1", "x".repeat(19));
        let rest = "y".repeat(39);
        assert_eq!(
            texts(&json!({"a": before}), &json!({"a": after}))[0],
            format!("a: {lead}2{rest}..., now {lead}3{rest}...")
        );
    }
}

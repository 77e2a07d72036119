//! What differs between two manifests, or parts of them: a run goes on only with what it was begun with,
//! and two runs are compared with a warning where they were not of the same.

use super::Manifest;
use serde_json::Value;
use std::fmt;

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where it stands: the names of the parts, from the outside in.
    pub path: Vec<String>,
    /// What it was, on one line; none where it was not there.
    pub before: Option<String>,
    /// What it is; none where it is not there.
    pub after: Option<String>,
}

/// Parts that are of a run, and not of what it runs.
const OF_THE_RUN: [&str; 3] = ["started_at", "command", "directory"];

/// The part that tells the machine's fingerprint.
const MACHINE: &str = "environment";

impl Manifest {
    /// What differs from another manifest, besides when and with which words the runs were begun.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let as_value = |manifest: &Self| serde_json::to_value(manifest).unwrap_or(Value::Null);
        let mut differences = differences(&as_value(self), &as_value(other));
        differences.retain(|difference| match &difference.path[..] {
            [part] => !OF_THE_RUN.contains(&part.as_str()),
            _ => true,
        });
        differences
    }
}

/// What differs between two values.
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    compare(&[], before, after, &mut differences);
    differences
}

impl Difference {
    /// Whether it is the machine that differs.
    pub fn is_of_the_machine(&self) -> bool {
        self.path.first().is_some_and(|part| part == MACHINE)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of long texts, from a little before the first character that differs.
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
                let part = |of: &serde_json::Map<_, _>| of.get(name).cloned().unwrap_or_default();
                compare(&below(name), &part(a), &part(b), differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.iter().chain(b).any(Value::is_object) => {
            for index in 0..a.len().max(b.len()) {
                let part = |of: &[Value]| of.get(index).cloned().unwrap_or_default();
                // What has a name is told by it.
                let name = part(a)
                    .get("name")
                    .or(part(b).get("name"))
                    .and_then(Value::as_str)
                    .map(str::to_owned);
                let name = name.unwrap_or_else(|| index.to_string());
                compare(&below(&name), &part(a), &part(b), differences);
            }
        }
        (before, after) => differences.push(Difference {
            path: path.to_vec(),
            before: in_words(before),
            after: in_words(after),
        }),
    }
}

/// A value on one line.
fn in_words(value: &Value) -> Option<String> {
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

    fn told(before: &Value, after: &Value) -> Vec<String> {
        differences(before, after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_that_differ_are_told_with_their_place() {
        let before = json!({"a": 1, "list": [{"name": "x", "v": "1"}, 2], "gone": true});
        let after = json!({"a": 1, "list": [{"name": "x", "v": "2\n3"}, 2, 4], "new": null});
        assert_eq!(
            told(&before, &after),
            ["gone: true, now nothing", "list.x.v: 1, now 2 3", "list.2: nothing, now 4"]
        );
        assert_eq!(told(&json!({"cpus": [1]}), &json!({"cpus": [1, 2]})), ["cpus: [1], now [1,2]"]);
        assert!(told(&before, &before).is_empty());
    }

    #[test]
    fn long_values_are_cut() {
        let line = &told(&json!({"a": "x".repeat(99)}), &json!({}))[0];
        assert_eq!(line, &format!("a: {}..., now nothing", "x".repeat(60)));
        let before = format!("{}12{}", "x".repeat(30), "y".repeat(60));
        let after = before.replace("12", "13");
        let lead = format!("...{}1", "x".repeat(19));
        let rest = "y".repeat(39);
        assert_eq!(
            told(&json!({"a": before}), &json!({"a": after}))[0],
            format!("a: {lead}2{rest}..., now {lead}3{rest}...")
        );
    }
}

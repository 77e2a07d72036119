//! What differs between two manifests: a run goes on only with what it was begun with.

use super::Manifest;
use serde_json::Value;
use std::fmt;

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where it stands: the names of the parts, with dots between them.
    pub path: String,
    /// What it was; empty where it was not there.
    pub before: String,
    /// What it is; empty where it is not there.
    pub after: String,
}

/// Parts that are of a run, and not of what it runs.
const OF_THE_RUN: [&str; 3] = ["started_at", "command", "directory"];

/// The part that tells the machine's fingerprint.
const MACHINE: &str = "environment";

impl Manifest {
    /// What differs from another manifest, besides when and with which words the runs were begun.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let as_value = |manifest: &Self| serde_json::to_value(manifest).unwrap_or(Value::Null);
        let mut differences = Vec::new();
        compare("", &as_value(self), &as_value(other), &mut differences);
        differences.retain(|difference| !OF_THE_RUN.contains(&difference.path.as_str()));
        differences
    }
}

impl Difference {
    /// Whether it is the machine that differs.
    pub fn is_of_the_machine(&self) -> bool {
        self.path.split('.').next() == Some(MACHINE)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of long texts, from a little before the first character that differs.
        let alike = self.before.chars().zip(self.after.chars()).take_while(|(a, b)| a == b).count();
        let longest = self.before.chars().count().max(self.after.chars().count());
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
        write!(formatter, "{}: {}, now {}", self.path, shown(&self.before), shown(&self.after))
    }
}

const SHOWN_CHARS: usize = 60;
const LEAD_CHARS: usize = 20;

fn compare(path: &str, before: &Value, after: &Value, differences: &mut Vec<Difference>) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let part = |of: &serde_json::Map<_, _>| of.get(name).cloned().unwrap_or_default();
                compare(&below(name), &part(a), &part(b), differences);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
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
        (before, after) if before == after => {}
        (before, after) => differences.push(Difference {
            path: path.to_owned(),
            before: in_words(before),
            after: in_words(after),
        }),
    }
}

/// A value on one line.
fn in_words(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(before: &Value, after: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        compare("", before, after, &mut differences);
        differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_that_differ_are_told_with_their_place() {
        let before = json!({"a": 1, "list": [{"name": "x", "v": "1"}, 2], "gone": true});
        let after = json!({"a": 1, "list": [{"name": "x", "v": "2\n3"}, 2, 4], "new": null});
        assert_eq!(
            told(&before, &after),
            ["gone: true, now nothing", "list.x.v: 1, now 2 3", "list.2: nothing, now 4"]
        );
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

use crate::request::{Request, decode};
use crate::rule::{Condition, Operator, Patch, Rule, Transform};
use regex::RegexBuilder;
use tollgate_traffic::Message;

/// True if a rule of the patch matches the request.
pub(crate) fn matches(patch: &Patch, message: &Message) -> bool {
    let request = Request::of(message);
    patch.rules.iter().any(|rule| match rule {
        Rule::One(condition) => holds(condition, &request),
        Rule::All(all) => all.and.iter().all(|condition| holds(condition, &request)),
    })
}

fn holds(condition: &Condition, request: &Request) -> bool {
    let values = condition.zones.iter().flat_map(|zone| request.values(*zone));
    let counts = |name: &str| {
        let names = &condition.variables;
        names.is_empty() || names.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    let values = values.filter(|(name, _)| counts(name)).map(|(_, value)| value);
    let transformed = values.map(|value| {
        condition.transform.iter().fold(value, |value, one| transformed(&value, *one))
    });
    let transformed: Vec<String> = transformed.collect();
    if transformed.is_empty() {
        return false;
    }
    let Operator::Regex = condition.r#match.r#type else {
        let operand = condition.r#match.value.as_str();
        let fits = |value: &str| match condition.r#match.r#type {
            Operator::Contains => value.contains(operand),
            Operator::Equals => value == operand,
            Operator::StartsWith => value.starts_with(operand),
            Operator::EndsWith => value.ends_with(operand),
            Operator::Regex => unreachable!("it is looked at below"),
        };
        return transformed.iter().any(|value| fits(value));
    };
    // In the engine, `.` matches line ends, and `^` and `$` match at each line.
    let mut builder = RegexBuilder::new(&condition.r#match.value);
    let regex = builder.dot_matches_new_line(true).multi_line(true).build().unwrap();
    transformed.iter().any(|value| regex.is_match(value))
}

fn transformed(value: &str, transform: Transform) -> String {
    match transform {
        Transform::Lowercase => value.to_lowercase(),
        Transform::Urldecode => decode(value, true),
        Transform::Trim => value.trim().to_owned(),
    }
}

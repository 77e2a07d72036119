//! Lists of targets: `ARGS|!ARGS:foo|&REQUEST_HEADERS:/^x-/`.

use std::sync::Arc;

use crate::error::Fault;
use crate::regex::SelectorRegex;
use crate::rule::{Selector, Target};
use crate::variable::Variable;

/// Targets and exclusions in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub(crate) targets: Vec<Target>,
    pub(crate) exclusions: Vec<Target>,
}

/// Parses a list separated by `|`, or by `,` as in updates.
pub(crate) fn parse(text: &str) -> Result<Targets, Fault> {
    let mut parsed = Targets::default();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let end = end_of_target(text, at);
        let item = text[at..end].trim_end();
        let (excluded, rest) = match item.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, item),
        };
        let target = target(rest).map_err(|fault| fault.shifted(at + usize::from(excluded)))?;
        if excluded {
            parsed.exclusions.push(target);
        } else {
            parsed.targets.push(target);
        }
        if end == text.len() {
            return Ok(parsed);
        }
        at = end + 1;
    }
}

/// Offset of the separator after the target at `at`; separators in a pattern do not count.
fn end_of_target(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut pattern = false;
    let mut i = at;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' if pattern => i += 1,
            b'/' if pattern => pattern = false,
            b'/' if i > at
                && (bytes[i - 1] == b':'
                    || bytes[i - 1] == b'\'' && i > at + 1 && bytes[i - 2] == b':')
                && !is_xpath(&text[at..i]) =>
            {
                pattern = true;
            }
            b'|' | b',' if !pattern => return i,
            _ => {}
        }
        i += 1;
    }
    bytes.len()
}

fn is_xpath(before: &str) -> bool {
    before.trim_start_matches(['!', '&']).to_ascii_uppercase().starts_with("XML:")
}

/// Parses one target without `!`.
pub(crate) fn target(text: &str) -> Result<Target, Fault> {
    let (count, rest) = match text.strip_prefix('&') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let base = usize::from(count);
    let (name, selector) = match rest.find([':', '.']) {
        Some(colon) => (&rest[..colon], Some(&rest[colon + 1..])),
        None => (rest, None),
    };
    if name.is_empty() {
        return Err(Fault::invalid(base, "empty target"));
    }
    let Some(variable) = Variable::parse(name) else {
        return Err(Fault::unsupported(
            base,
            format!("unknown variable \"{name}\"{}", Variable::hint(name)),
        ));
    };
    let selector = match selector {
        None => Selector::All,
        Some(_) if !variable.is_collection() => {
            return Err(Fault::invalid(
                base + name.len() + 1,
                format!("variable {} takes no selector", variable.name()),
            ));
        }
        Some(selector) => parse_selector(variable, selector)
            .map_err(|fault| fault.shifted(base + name.len() + 1))?,
    };
    if variable == Variable::Xml && matches!(selector, Selector::All) && !count {
        return Ok(Target { variable, selector: Selector::Name(b"/*".to_vec(), None), count });
    }
    Ok(Target { variable, selector, count })
}

fn parse_selector(variable: Variable, text: &str) -> Result<Selector, Fault> {
    let text = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).unwrap_or(text);
    if variable == Variable::Xml {
        return match text {
            "/*" | "//@*" => Ok(Selector::Name(text.as_bytes().to_vec(), None)),
            other => Err(Fault::unsupported(
                0,
                format!(
                    "XPath expression \"{other}\" is not supported; use XML:/* (all text) or XML://@* (all attributes)"
                ),
            )),
        };
    }
    let pattern = text.strip_prefix('/').and_then(|t| t.strip_suffix('/'));
    if let Some(pattern) = pattern {
        let pattern = pattern.replace("\\/", "/");
        let regex = SelectorRegex::new(pattern).map_err(|message| Fault::invalid(1, message))?;
        return Ok(Selector::Pattern(Arc::new(regex)));
    }
    if text.is_empty() {
        return Err(Fault::invalid(0, "empty selector"));
    }
    Ok(Selector::Name(text.to_ascii_lowercase().into_bytes(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> (Vec<String>, Vec<String>) {
        let parsed = parse(text).unwrap_or_else(|fault| panic!("{fault:?}"));
        let all = |targets: &[Target]| targets.iter().map(ToString::to_string).collect();
        (all(&parsed.targets), all(&parsed.exclusions))
    }

    #[test]
    fn separates_targets_and_exclusions() {
        let (targets, exclusions) = shown(
            "ARGS|!ARGS:Foo|&request_headers:Host|XML:/*|XML://@*|!ARGS_NAMES:/^a|b\\/c$/|TX:1",
        );
        assert_eq!(targets, ["ARGS", "&REQUEST_HEADERS:host", "XML:/*", "XML://@*", "TX:1"]);
        assert_eq!(exclusions, ["ARGS:foo", "ARGS_NAMES:/^a|b/c$/"]);
    }

    #[test]
    fn faults_name_the_offset() {
        let fault = parse("ARGS|REQUEST_HEADER:Host").unwrap_err();
        assert_eq!(
            (fault.offset, fault.message.as_str()),
            (5, "unknown variable \"REQUEST_HEADER\"; did you mean \"REQUEST_HEADERS\"?")
        );
        assert_eq!(parse("REQUEST_URI:x").unwrap_err().offset, 12);
    }

    #[test]
    fn selector_ignores_case() {
        let parsed = parse("REQUEST_COOKIES:/^_GA/").unwrap_or_else(|fault| panic!("{fault:?}"));
        assert!(parsed.targets[0].selector.accepts(b"_ga_x"));
    }
}

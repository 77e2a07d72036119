//! Actions of rules: `id:1,phase:2,deny,setvar:'tx.score=+5'`.

use std::borrow::Cow;

use crate::error::{Fault, nearest};
use crate::load::written::{Actions, RuleFilter, WrittenDisruptive, WrittenFlow};
use crate::rule::{
    AllowScope, Assignment, AuditEngine, BodyProcessor, Change, Control, EngineMode, Phase,
    Severity,
};
use crate::template::Template;
use crate::transformation::Transformation;
use crate::variable::{ValueSource, Variable};

use super::target;

const NAMES: [&str; 40] = [
    "accuracy",
    "allow",
    "auditlog",
    "block",
    "capture",
    "chain",
    "ctl",
    "deny",
    "deprecatevar",
    "drop",
    "expirevar",
    "id",
    "initcol",
    "log",
    "logdata",
    "maturity",
    "msg",
    "multiMatch",
    "noauditlog",
    "nolog",
    "pass",
    "phase",
    "redirect",
    "rev",
    "sanitiseArg",
    "sanitiseMatched",
    "sanitiseMatchedBytes",
    "sanitiseRequestHeader",
    "sanitiseResponseHeader",
    "setenv",
    "setrsc",
    "setsid",
    "setuid",
    "setvar",
    "severity",
    "skip",
    "skipAfter",
    "status",
    "t",
    "tag",
];

/// Parses a list of actions separated by commas.
pub(crate) fn parse(text: &[u8]) -> Result<Actions, Fault> {
    let text = std::str::from_utf8(text)
        .map_err(|error| Fault::invalid(error.valid_up_to(), "actions are not UTF-8"))?;
    let mut actions = Actions::default();
    for (at, item) in items(text)? {
        add(&mut actions, at, item).map_err(|fault| fault.shifted(at))?;
    }
    Ok(actions)
}

/// Name in lower case and value of each action in a list; known and unknown alike.
pub(crate) fn written(text: &str) -> Result<Vec<(String, String)>, Fault> {
    let split = |(_, item): (usize, &str)| {
        let (name, value) = item.split_once(':').unwrap_or((item, ""));
        (name.trim().to_ascii_lowercase(), unquote(value).0.into_owned())
    };
    Ok(items(text)?.into_iter().map(split).collect())
}

/// Splits a list of actions; returns each with its offset.
fn items(text: &str) -> Result<Vec<(usize, &str)>, Fault> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = end_of_action(text, at)?;
        let item = &text[at..end];
        let trimmed = item.trim_start();
        if !trimmed.is_empty() {
            found.push((at + item.len() - trimmed.len(), trimmed.trim_end()));
        }
        at = end + 1;
    }
    Ok(found)
}

/// Offset of the comma after the action at `at`; commas in quotes do not count.
fn end_of_action(text: &str, at: usize) -> Result<usize, Fault> {
    let bytes = text.as_bytes();
    let mut quoted = None;
    let mut i = at;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' if quoted.is_some() => i += 1,
            b'\'' if quoted.is_some() => quoted = None,
            // A quote opens a value only where a value begins.
            b'\'' if i > 0 && matches!(bytes[i - 1], b':' | b'=') => quoted = Some(i),
            b',' if quoted.is_none() => return Ok(i),
            _ => {}
        }
        i += 1;
    }
    match quoted {
        Some(start) => Err(Fault::invalid(start, "no closing ' for this value")),
        None => Ok(bytes.len()),
    }
}

/// Adds the action at an offset; offsets in a fault are relative to it.
fn add(actions: &mut Actions, at: usize, item: &str) -> Result<(), Fault> {
    let (name, value, offset) = match item.find(':') {
        Some(colon) => {
            let (value, lead) = unquote(&item[colon + 1..]);
            (item[..colon].trim(), Some(value), colon + 1 + lead)
        }
        None => (item, None, item.len()),
    };
    let required = || {
        value
            .as_deref()
            .filter(|v| !v.is_empty())
            .ok_or_else(|| Fault::invalid(0, format!("action \"{name}\" needs a value")))
    };
    let template =
        || Template::parse(required()?.as_bytes()).map_err(|fault| fault.shifted(offset));
    let number = || {
        required()?
            .trim()
            .parse::<u64>()
            .map_err(|error| Fault::invalid(offset, format!("{name}: {error}")))
    };
    let refused =
        |what: &str| Fault::unsupported(0, format!("action \"{name}\" is not supported: {what}"));
    match &*lowercase(name) {
        "id" => actions.id = Some(number()?),
        "phase" => {
            let text = required()?;
            actions.phase = Some(Phase::parse(text).ok_or_else(|| {
                Fault::invalid(
                    offset,
                    format!("unknown phase \"{text}\": use 1 to 5, request, response or logging"),
                )
            })?);
        }
        "msg" => actions.message = Some(template()?),
        "logdata" => actions.log_data = Some(template()?),
        "tag" => actions.tags.push(required()?.to_owned()),
        "severity" => {
            let text = required()?;
            actions.severity = Some(Severity::parse(text).ok_or_else(|| {
                Fault::invalid(
                    offset,
                    format!("unknown severity \"{text}\": use 0 to 7 or a name such as CRITICAL"),
                )
            })?);
        }
        "ver" => actions.version = Some(required()?.to_owned()),
        "rev" => actions.revision = Some(required()?.to_owned()),
        "maturity" | "accuracy" => {
            let value = u8::try_from(number()?)
                .map_err(|error| Fault::invalid(offset, format!("{name}: {error}")))?;
            if name.eq_ignore_ascii_case("maturity") {
                actions.maturity = Some(value);
            } else {
                actions.accuracy = Some(value);
            }
        }
        "log" => actions.log = Some(true),
        "nolog" => {
            actions.log = Some(false);
            actions.audit_log = Some(false);
        }
        "auditlog" => actions.audit_log = Some(true),
        "noauditlog" => actions.audit_log = Some(false),
        "pass" => actions.disruptive = Some(WrittenDisruptive::Pass),
        "block" => actions.disruptive = Some(WrittenDisruptive::Block),
        "deny" => actions.disruptive = Some(WrittenDisruptive::Deny),
        "drop" => actions.disruptive = Some(WrittenDisruptive::Drop),
        "redirect" => actions.disruptive = Some(WrittenDisruptive::Redirect(template()?)),
        "allow" => {
            let scope = match value.as_deref().map(str::to_ascii_lowercase).as_deref() {
                None | Some("") => AllowScope::Transaction,
                Some("phase") => AllowScope::Phase,
                Some("request") => AllowScope::Request,
                Some(other) => {
                    return Err(Fault::invalid(
                        offset,
                        format!(
                            "unknown scope \"{other}\": use allow, allow:phase or allow:request"
                        ),
                    ));
                }
            };
            actions.disruptive = Some(WrittenDisruptive::Allow(scope));
        }
        "status" => {
            let status = u16::try_from(number()?).ok().filter(|status| (100..600).contains(status));
            actions.status = Some(
                status
                    .ok_or_else(|| Fault::invalid(offset, "status is not between 100 and 599"))?,
            );
        }
        "skip" => {
            let count = u32::try_from(number()?)
                .map_err(|error| Fault::invalid(offset, error.to_string()))?;
            actions.flow = Some(WrittenFlow::Skip(count));
        }
        "skipafter" => actions.flow = Some(WrittenFlow::SkipAfter(required()?.to_owned())),
        "chain" => actions.chain = true,
        "capture" => actions.capture = true,
        "multimatch" => actions.multi_match = true,
        "t" => {
            let text = required()?;
            if text.eq_ignore_ascii_case("none") {
                actions.resets_transformations = true;
                actions.transformations.clear();
            } else {
                let known = Transformation::ALL.iter().map(|t| t.name());
                let parsed = Transformation::parse(text);
                actions.transformations.push(parsed.ok_or_else(|| {
                    Fault::unsupported(
                        offset,
                        format!("unknown transformation \"{text}\"{}", nearest(text, known)),
                    )
                })?);
            }
        }
        "setvar" => actions
            .assignments
            .push(assignment(required()?).map_err(|fault| fault.shifted(offset))?),
        "ctl" => {
            actions.controls.push(control(required()?).map_err(|fault| fault.shifted(offset))?);
        }
        "initcol" => {
            let text = required()?;
            let (collection, key) = text
                .split_once('=')
                .ok_or_else(|| Fault::invalid(offset, "expected initcol:COLLECTION=KEY"))?;
            let variable = persistent(collection).ok_or_else(|| {
                Fault::invalid(offset, format!("unknown collection \"{collection}\""))
            })?;
            let key = Template::parse(key.as_bytes())
                .map_err(|fault| fault.shifted(offset + collection.len() + 1))?;
            actions.assignments.push(opening(variable, key));
        }
        "setsid" => actions.assignments.push(opening(Variable::Session, template()?)),
        "setuid" => actions.assignments.push(opening(Variable::User, template()?)),
        "setrsc" => actions.assignments.push(opening(Variable::Resource, template()?)),
        "setenv" => {
            let text = required()?;
            let (name, value) = text.split_once('=').unwrap_or((text, "1"));
            let part = |text: &str| {
                Template::parse(text.as_bytes()).map_err(|fault| fault.shifted(offset))
            };
            actions.controls.push(Control::SetEnv(part(name)?, part(value)?));
        }
        "expirevar" | "deprecatevar" => {
            let ageing = ageing(&lowercase(name), required()?);
            match ageing.map_err(|fault| fault.shifted(offset))? {
                Some(assignment) => actions.assignments.push(assignment),
                None => {
                    let reason = "TX lasts for one transaction";
                    actions.inert.push((at, format!("action \"{name}\" has no effect: {reason}")));
                }
            }
        }
        "exec" => return Err(refused("it runs a program")),
        "proxy" => return Err(refused("the proxy decides about its backends")),
        "pause" => return Err(refused("it holds the thread")),
        "append" | "prepend" => return Err(refused("it changes the response")),
        "xmlns" => return Err(refused("XPath is not evaluated")),
        "sanitisearg"
        | "sanitisematched"
        | "sanitisematchedbytes"
        | "sanitiserequestheader"
        | "sanitiseresponseheader" => {
            return Err(refused("masking belongs to the audit log's settings"));
        }
        _ => {
            return Err(Fault::unsupported(
                0,
                format!("unknown action \"{name}\"{}", nearest(name, NAMES)),
            ));
        }
    }
    Ok(())
}

/// Returns the value without quotes, and the number of bytes before it.
fn unquote(value: &str) -> (Cow<'_, str>, usize) {
    let trimmed = value.trim_start();
    let lead = value.len() - trimmed.len();
    match trimmed.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\'')) {
        Some(inner) if inner.contains('\\') => (inner.replace("\\'", "'").into(), lead + 1),
        Some(inner) => (inner.into(), lead + 1),
        None => (trimmed.into(), lead),
    }
}

fn lowercase(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

/// Collection that rules write.
fn store(name: &str) -> Option<Variable> {
    Variable::parse(name.trim()).filter(|variable| variable.source() == ValueSource::Store)
}

fn persistent(name: &str) -> Option<Variable> {
    store(name).filter(|variable| *variable != Variable::Tx)
}

fn opening(variable: Variable, key: Template) -> Assignment {
    Assignment { variable, name: key, slot: None, change: Change::Open }
}

/// Parses `IP.NAME=SECONDS` of `expirevar`, or `IP.NAME=AMOUNT/SECONDS` of `deprecatevar`. `None` for a variable of TX.
fn ageing(action: &str, text: &str) -> Result<Option<Assignment>, Fault> {
    let is_expiry = action == "expirevar";
    let form = if is_expiry { "SECONDS" } else { "AMOUNT/SECONDS" };
    let expected = || Fault::invalid(0, format!("expected {action}:COLLECTION.NAME={form}"));
    let (variable, value) = text.split_once('=').ok_or_else(expected)?;
    let (collection, name) = variable.split_once('.').ok_or_else(expected)?;
    let collection = store(collection).ok_or_else(|| {
        Fault::invalid(0, format!("\"{collection}\" is not a collection that rules can write"))
    })?;
    let parse = |text: &str| {
        let template = Template::parse(text.trim().as_bytes());
        template.map_err(|fault| fault.shifted(variable.len() + 1))
    };
    let number = |text: &str| match parse(text)? {
        template if template.as_text().is_some_and(|text| !is_number(text)) => Err(expected()),
        template => Ok(template),
    };
    let change = if is_expiry {
        Change::Expire(number(value)?)
    } else {
        let (amount, period) = value.split_once('/').ok_or_else(expected)?;
        let period = number(period)?;
        if period.as_text().is_some() && period.as_number() == Some(0) {
            return Err(Fault::invalid(0, "a period of 0 seconds never passes"));
        }
        Change::Deprecate { amount: number(amount)?, period }
    };
    let name = parse(&name.to_ascii_lowercase())?;
    let assignment = Assignment { variable: collection, name, slot: None, change };
    Ok(Some(assignment).filter(|_| collection != Variable::Tx))
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn assignment(text: &str) -> Result<Assignment, Fault> {
    let (unset, rest) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let base = usize::from(unset);
    let dot = rest
        .find('.')
        .ok_or_else(|| Fault::invalid(base, "expected setvar:COLLECTION.NAME=VALUE"))?;
    let variable = store(&rest[..dot]).ok_or_else(|| {
        Fault::invalid(
            base,
            format!("\"{}\" is not a collection that rules can write: use TX", &rest[..dot]),
        )
    })?;
    let equals = if unset { None } else { rest.find('=') };
    let name = &rest[dot + 1..equals.unwrap_or(rest.len())];
    if name.is_empty() {
        return Err(Fault::invalid(base + dot + 1, "missing variable name"));
    }
    let name_template = Template::parse(name.trim().to_ascii_lowercase().as_bytes())
        .map_err(|fault| fault.shifted(base + dot + 1))?;
    let change = match equals {
        None if unset => Change::Unset,
        None => Change::Set(Template::parse(b"1")?),
        Some(equals) => {
            let value = &rest[equals + 1..];
            let parse = |text: &str, skipped: usize| {
                Template::parse(text.as_bytes())
                    .map_err(|fault| fault.shifted(base + equals + 1 + skipped))
            };
            match value.as_bytes().first() {
                Some(b'+') => Change::Add(parse(&value[1..], 1)?),
                Some(b'-') => Change::Subtract(parse(&value[1..], 1)?),
                _ => Change::Set(parse(value, 0)?),
            }
        }
    };
    Ok(Assignment { variable, name: name_template, slot: None, change })
}

const CONTROLS: [&str; 15] = [
    "auditEngine",
    "auditLogParts",
    "debugLogLevel",
    "forceRequestBodyVariable",
    "requestBodyAccess",
    "requestBodyLimit",
    "requestBodyProcessor",
    "responseBodyAccess",
    "responseBodyLimit",
    "ruleEngine",
    "ruleRemoveById",
    "ruleRemoveByTag",
    "ruleRemoveTargetById",
    "ruleRemoveTargetByTag",
    "ruleRemoveTargetByMsg",
];

fn control(text: &str) -> Result<Control<RuleFilter>, Fault> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| Fault::invalid(0, "expected ctl:NAME=VALUE"))?;
    let (name, value, offset) = (name.trim(), value.trim(), name.len() + 1);
    let switch = || match value.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Fault::invalid(offset, format!("\"{value}\" is neither On nor Off"))),
    };
    let size = || value.parse().map_err(|error| Fault::invalid(offset, format!("{name}: {error}")));
    let removed_target = |filter: fn(&str) -> Result<RuleFilter, Fault>| {
        let (rules, removed) = value
            .split_once(';')
            .ok_or_else(|| Fault::invalid(offset, format!("expected ctl:{name}=RULES;TARGET")))?;
        let target = target::target(removed.trim())
            .map_err(|fault| fault.shifted(offset + rules.len() + 1))?;
        Ok(Control::RemoveTargets(filter(rules).map_err(|fault| fault.shifted(offset))?, target))
    };
    Ok(match name.to_ascii_lowercase().as_str() {
        "auditengine" => {
            Control::AuditEngine(audit_engine(value).map_err(|fault| fault.shifted(offset))?)
        }
        "auditlogparts" => Control::AuditLogParts(value.to_owned()),
        "debugloglevel" => {
            return Err(Fault::unsupported(
                0,
                "ctl:debugLogLevel is not supported: there is no debug log",
            ));
        }
        "forcerequestbodyvariable" => {
            switch()?;
            Control::ForceRequestBodyVariable
        }
        "requestbodyaccess" => Control::RequestBodyAccess(switch()?),
        "responsebodyaccess" => Control::ResponseBodyAccess(switch()?),
        "requestbodylimit" => Control::RequestBodyLimit(size()?),
        "responsebodylimit" => Control::ResponseBodyLimit(size()?),
        "requestbodyprocessor" => {
            let known = BodyProcessor::ALL.map(BodyProcessor::name);
            let found =
                BodyProcessor::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(value));
            Control::RequestBodyProcessor(found.ok_or_else(|| {
                Fault::unsupported(
                    offset,
                    format!("unknown body processor \"{value}\"{}", nearest(value, known)),
                )
            })?)
        }
        "ruleengine" => Control::Engine(engine(value).map_err(|fault| fault.shifted(offset))?),
        "ruleremovebyid" => {
            Control::RemoveRules(ids(value).map_err(|fault| fault.shifted(offset))?)
        }
        "ruleremovebytag" => Control::RemoveRules(RuleFilter::Tag(value.to_owned())),
        "ruleremovebymsg" => Control::RemoveRules(RuleFilter::Message(value.to_owned())),
        "ruleremovetargetbyid" => removed_target(ids)?,
        "ruleremovetargetbytag" => removed_target(|text| Ok(RuleFilter::Tag(text.to_owned())))?,
        "ruleremovetargetbymsg" => removed_target(|text| Ok(RuleFilter::Message(text.to_owned())))?,
        _ => {
            return Err(Fault::unsupported(
                0,
                format!("unknown control \"ctl:{name}\"{}", nearest(name, CONTROLS)),
            ));
        }
    })
}

/// Parses ids and ranges of ids: `942100`, `942100-942999 943110`.
pub(crate) fn ids(text: &str) -> Result<RuleFilter, Fault> {
    let mut ranges = Vec::new();
    for item in text.split([' ', ',']).filter(|item| !item.is_empty()) {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        let parse = |text: &str| {
            text.trim()
                .parse::<u64>()
                .map_err(|error| Fault::invalid(0, format!("rule id \"{text}\": {error}")))
        };
        ranges.push((parse(low)?, parse(high)?));
    }
    Ok(RuleFilter::Ids(ranges))
}

pub(crate) fn engine(text: &str) -> Result<EngineMode, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "on" => Ok(EngineMode::On),
        "off" => Ok(EngineMode::Off),
        "detectiononly" => Ok(EngineMode::DetectionOnly),
        _ => Err(Fault::invalid(0, format!("\"{text}\" is not On, Off or DetectionOnly"))),
    }
}

pub(crate) fn audit_engine(text: &str) -> Result<AuditEngine, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "on" => Ok(AuditEngine::On),
        "off" => Ok(AuditEngine::Off),
        "relevantonly" => Ok(AuditEngine::RelevantOnly),
        _ => Err(Fault::invalid(0, format!("\"{text}\" is not On, Off or RelevantOnly"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Actions {
        parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"))
    }

    #[test]
    fn commas_in_quotes_do_not_separate() {
        let actions = parsed(
            "id:'12', phase:request,msg:'a, \\'b\\'',deny,status:418,tag:x,tag:'y z',t:none,t:lowercase,chain",
        );
        assert_eq!(
            (actions.id, actions.phase, actions.status),
            (Some(12), Some(Phase::RequestBody), Some(418))
        );
        assert_eq!(
            actions.message.and_then(|m| m.as_text().map(<[u8]>::to_vec)),
            Some(b"a, 'b'".to_vec())
        );
        assert_eq!(actions.tags, ["x", "y z"]);
        assert!(
            actions.chain
                && actions.resets_transformations
                && actions.transformations == [Transformation::Lowercase]
        );
    }

    #[test]
    fn assignments() {
        let actions = parsed(
            "setvar:tx.a=1,setvar:'TX.B_%{tx.n}=+%{tx.x}',setvar:tx.c,setvar:!tx.d,setvar:'tx.e=-2'",
        );
        let changes: Vec<_> =
            actions.assignments.iter().map(|a| std::mem::discriminant(&a.change)).collect();
        let one = || Template::parse(b"1").unwrap_or_else(|f| panic!("{f:?}"));
        assert_eq!(
            changes,
            [
                Change::Set(one()),
                Change::Add(one()),
                Change::Set(one()),
                Change::Unset,
                Change::Subtract(one())
            ]
            .map(|change| std::mem::discriminant(&change))
        );
        assert_eq!(actions.assignments[2].name.as_text(), Some(b"c".as_slice()));
    }

    #[test]
    fn controls() {
        let actions = parsed(
            "ctl:ruleRemoveById=1-3,ctl:ruleRemoveTargetByTag=sqli;ARGS:pass,ctl:requestBodyProcessor=JSON",
        );
        assert!(
            matches!(&actions.controls[0], Control::RemoveRules(RuleFilter::Ids(ids)) if ids == &[(1, 3)])
        );
        assert!(
            matches!(&actions.controls[1], Control::RemoveTargets(RuleFilter::Tag(tag), target) if tag == "sqli" && target.to_string() == "ARGS:pass")
        );
        assert!(matches!(actions.controls[2], Control::RequestBodyProcessor(BodyProcessor::Json)));
    }

    #[test]
    fn faults_name_offset_and_nearest_name() {
        let fault = parse(b"id:1,t:lowercas").unwrap_err();
        assert_eq!(
            (fault.offset, fault.message.as_str()),
            (7, "unknown transformation \"lowercas\"; did you mean \"lowercase\"?")
        );
        let fault = parse(b"id:1, dennny").unwrap_err();
        assert_eq!(
            (fault.offset, fault.message.as_str()),
            (6, "unknown action \"dennny\"; did you mean \"deny\"?")
        );
        assert_eq!(parse(b"msg:'a").unwrap_err().offset, 4);
        assert!(parse(b"exec:/bin/sh").unwrap_err().unsupported);
    }
}

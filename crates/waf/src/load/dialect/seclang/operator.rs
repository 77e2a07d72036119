//! Operators of rules: `@rx`, `!@eq 0`, `@pmFromFile names.data`.

use std::path::Path;
use std::sync::Arc;

use crate::condition::{Checksum, Condition, NumberOperator, Pattern, TextOperator};
use crate::error::{Fault, nearest};
use crate::load::draft::Shared;
use crate::operator::encoding::ByteRange;
use crate::operator::ip::IpSet;
use crate::operator::phrase::PhraseSet;
use crate::rule::WrittenOperator;
use crate::template::Template;

/// Operator as written.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) negated: bool,
    pub(crate) condition: Condition,
    pub(crate) written: WrittenOperator,
    /// The reason why it never matches, if it needs a service, and where its name begins.
    pub(crate) unavailable: Option<(usize, String)>,
}

const NAMES: [&str; 31] = [
    "rx",
    "pm",
    "pmFromFile",
    "pmf",
    "beginsWith",
    "contains",
    "containsWord",
    "endsWith",
    "streq",
    "strmatch",
    "within",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
    "ipMatch",
    "ipMatchFromFile",
    "ipMatchF",
    "validateByteRange",
    "validateUrlEncoding",
    "validateUtf8Encoding",
    "verifyCC",
    "verifySSN",
    "verifyCPF",
    "verifySVNR",
    "detectSQLi",
    "detectXSS",
    "unconditionalMatch",
    "noMatch",
    "rxGlobal",
];

/// Operators of ModSecurity that look a value up in a service, with the name of the service. Like those of ModSecurity
/// without it, they never match: rule sets contain them for installations that have the service.
const LOOKUPS: [(&str, &str); 3] = [
    ("geoLookup", "a geographic database"),
    ("gsbLookup", "a Safe Browsing database"),
    ("rbl", "DNS lookups"),
];

/// Operators of ModSecurity that need a program or files outside of the engine, with the reason.
const EXTERNAL: [(&str, &str); 8] = [
    ("inspectFile", "it runs a program"),
    ("fuzzyHash", "it needs a database of ssdeep hashes"),
    ("rsub", "it changes the stream, which this engine only inspects"),
    ("validateDTD", "it needs a DTD validator"),
    ("validateSchema", "it needs an XML Schema validator"),
    ("validateHash", "it needs signed links"),
    ("ipMatchFromUrl", "it fetches a URL"),
    ("pmFromUrl", "it fetches a URL"),
];

/// Parses an operator with its argument. Files are searched beside the rule file.
pub(crate) fn parse(text: &[u8], folder: &Path, shared: &mut Shared) -> Result<Operator, Fault> {
    let trimmed = text.trim_ascii_start();
    let mut at = text.len() - trimmed.len();
    let negated = trimmed.first() == Some(&b'!');
    at += usize::from(negated);
    at += text[at..].len() - text[at..].trim_ascii_start().len();
    let (name, name_at) = if text.get(at) == Some(&b'@') {
        let start = at + 1;
        let length =
            text[start..].iter().position(u8::is_ascii_whitespace).unwrap_or(text.len() - start);
        at = start + length;
        at += text[at..].len() - text[at..].trim_ascii_start().len();
        (String::from_utf8_lossy(&text[start..start + length]).into_owned(), start)
    } else {
        ("rx".to_owned(), at)
    };
    let argument = &text[at..];
    let written = WrittenOperator { name: logged_name(&name), argument: argument.into() };
    if let Some((lookup, service)) =
        LOOKUPS.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name))
    {
        let reason = format!("operator @{lookup} needs {service}");
        return if negated {
            let message = format!("{reason}; negated, it would always match");
            Err(Fault::unsupported(name_at, message))
        } else {
            let unavailable = Some((name_at, reason));
            Ok(Operator { negated, condition: Condition::Unavailable, written, unavailable })
        };
    }
    let condition = condition(&name, argument, folder, shared).map_err(|fault| match fault {
        Error::Name(message) => Fault::unsupported(name_at, message),
        Error::Argument(fault) => fault.shifted(at),
    })?;
    Ok(Operator { negated, condition, written, unavailable: None })
}

/// The name of an operator as libmodsecurity logs it: its known spelling with a capital, `Rx` or `StrEq`.
fn logged_name(name: &str) -> Box<str> {
    let known = NAMES.iter().find(|known| known.eq_ignore_ascii_case(name)).copied();
    match known.unwrap_or(name) {
        "streq" => "StrEq".into(),
        "strmatch" => "StrMatch".into(),
        "pmf" => "PmFromFile".into(),
        "ipMatchF" => "IpMatchFromFile".into(),
        known => {
            let mut letters = known.chars();
            letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
        }
    }
}

enum Error {
    Name(String),
    Argument(Fault),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Argument(fault)
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::Argument(Fault::invalid(0, message))
    }
}

fn condition(
    name: &str,
    argument: &[u8],
    folder: &Path,
    shared: &mut Shared,
) -> Result<Condition, Error> {
    let text = |operator| Ok::<_, Error>(Condition::Text(operator, Template::parse(argument)?));
    let number = |operator| {
        Ok::<_, Error>(Condition::Number(operator, Template::parse(argument.trim_ascii())?))
    };
    Ok(match name.to_ascii_lowercase().as_str() {
        "rx" | "rxglobal" if memchr::memmem::find(argument, b"%{").is_some() => {
            let template = Template::parse(argument)?;
            match template.as_text() {
                Some(_) => Condition::Regex(pattern(argument, shared)?),
                None => Condition::RegexTemplate(template),
            }
        }
        "rx" | "rxglobal" => Condition::Regex(pattern(argument, shared)?),
        "pm" => Condition::Phrases(Arc::new(PhraseSet::from_argument(argument)?)),
        "pmfromfile" | "pmf" => Condition::Phrases(shared.phrase_file(argument, folder)?),
        "beginswith" => text(TextOperator::BeginsWith)?,
        "contains" | "strmatch" => text(TextOperator::Contains)?,
        "containsword" => text(TextOperator::ContainsWord)?,
        "endswith" => text(TextOperator::EndsWith)?,
        "streq" => text(TextOperator::Equals)?,
        "within" => text(TextOperator::Within)?,
        "eq" => number(NumberOperator::Equal)?,
        "ge" => number(NumberOperator::GreaterOrEqual)?,
        "gt" => number(NumberOperator::Greater)?,
        "le" => number(NumberOperator::LessOrEqual)?,
        "lt" => number(NumberOperator::Less)?,
        "ipmatch" => Condition::Ip(IpSet::parse(&String::from_utf8_lossy(argument))?),
        "ipmatchfromfile" | "ipmatchf" => {
            let list = shared.data_file(argument, folder)?;
            Condition::Ip(IpSet::from_file(&String::from_utf8_lossy(&list))?)
        }
        "validatebyterange" => {
            Condition::ByteRange(ByteRange::parse(&String::from_utf8_lossy(argument))?)
        }
        "validateurlencoding" => Condition::UrlEncoding,
        "validateutf8encoding" => Condition::Utf8Encoding,
        "verifycc" => Condition::CheckDigits(Checksum::CreditCard, pattern(argument, shared)?),
        "verifyssn" => Condition::CheckDigits(Checksum::SocialSecurity, pattern(argument, shared)?),
        "verifycpf" => Condition::CheckDigits(Checksum::Cpf, pattern(argument, shared)?),
        "verifysvnr" => Condition::CheckDigits(Checksum::Svnr, pattern(argument, shared)?),
        "detectsqli" => Condition::SqlInjection,
        "detectxss" => Condition::CrossSiteScripting,
        "unconditionalmatch" => Condition::Always,
        "nomatch" => Condition::Never,
        _ => return Err(Error::Name(unknown(name))),
    })
}

fn unknown(name: &str) -> String {
    match EXTERNAL.iter().find(|(external, _)| external.eq_ignore_ascii_case(name)) {
        Some((external, reason)) => format!("operator @{external} is not supported: {reason}"),
        None => format!("unknown operator \"@{name}\"{}", nearest(name, NAMES)),
    }
}

fn pattern(argument: &[u8], shared: &mut Shared) -> Result<Pattern, Error> {
    let text = std::str::from_utf8(argument).map_err(|error| {
        Fault::invalid(error.valid_up_to(), "regex is not UTF-8; write other bytes as \\xHH")
    })?;
    Ok(shared.regex(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Operator, Fault> {
        parse(text.as_bytes(), Path::new("."), &mut Shared::default())
    }

    #[test]
    fn negation_and_default_operator() {
        let operator = parsed("!@eq %{tx.limit}").unwrap_or_else(|f| panic!("{f:?}"));
        assert!(
            operator.negated
                && matches!(operator.condition, Condition::Number(NumberOperator::Equal, _))
        );
        let operator = parsed("^a b").unwrap_or_else(|f| panic!("{f:?}"));
        assert!(
            matches!(operator.condition, Condition::Regex(Pattern { ref text, .. }) if text == "^a b")
        );
    }

    #[test]
    fn unknown_and_external_operators_are_named() {
        let fault = parsed("@beginWith x").unwrap_err();
        assert_eq!(
            (fault.offset, fault.message.as_str()),
            (1, "unknown operator \"@beginWith\"; did you mean \"beginsWith\"?")
        );
        assert_eq!(
            parsed("@pmFromUrl x").unwrap_err().message,
            "operator @pmFromUrl is not supported: it fetches a URL"
        );
        assert!(parsed("!@rbl x").unwrap_err().message.contains("would always match"));
        assert!(parsed("!@rx a(").unwrap_err().message.contains("unclosed group"));
    }
}

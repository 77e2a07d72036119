//! Validated templates, and the requests they render to.

use std::borrow::Cow;
use std::collections::BTreeSet;

use tollgate_http1::RequestText;

use crate::MAX_BODY_BYTES;
use crate::file::{BodyRepeat, Class, Expect, MixFile, TemplateFile};
use crate::variable::{Names, Text};
use crate::{MixError, fail};

/// Name and placeholder of the number in a [`BodyRepeat`].
const INDEX: &str = "index";
const INDEX_PLACEHOLDER: &str = "{{index}}";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Name under which figures are reported.
    pub name: String,
    pub class: Class,
    pub family: Option<String>,
    /// True if both blocking the request and letting it through are expected.
    pub open: bool,
    /// Expected status code if nothing blocks the request. `None`: any.
    pub status: Option<u16>,
    /// Frequency relative to the other templates; 0 for the probe only.
    pub weight: u32,
    /// Indices of the variables used.
    pub(crate) variables: BTreeSet<usize>,
    pub(crate) source: TemplateSource,
}

/// Where the requests of a template come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplateSource {
    Texts(Texts),
    Listed {
        /// Index of the list in the mix.
        list: usize,
        /// Index of the template in the list.
        template: u32,
        /// Factor for the weights of the list.
        factor: u32,
    },
}

/// Parts of a request, with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) body_contains: Option<Text>,
    method: String,
    path: Text,
    headers: Vec<(String, Text)>,
    body: Text,
    status: u16,
    body_bytes: Option<u64>,
}

/// A request with values for all variables, and the expected response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub method: String,
    /// Request target, which starts with `/`.
    pub path: String,
    /// All headers, those of the mix first.
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub expect: Expect,
}

impl Message {
    /// Returns the request for rendering to bytes.
    pub fn text(&self) -> RequestText<'_, String, String> {
        RequestText {
            method: &self.method,
            target: &self.path,
            headers: &self.headers,
            body: self.body.as_bytes(),
        }
    }
}

impl Template {
    /// Checks everything that does not depend on the values of variables.
    pub(crate) fn new(
        file: TemplateFile,
        mix: &MixFile,
        names: &Names<'_>,
    ) -> Result<Self, MixError> {
        if file.name.trim().is_empty() || file.name.contains(char::is_control) {
            return fail!(
                "invalid template name `{}`: expected one line of plain text, under which figures are reported",
                file.name.escape_debug()
            );
        }
        let template = &file.name;
        if !file.path.starts_with('/') {
            return fail!("template `{template}`: path `{}` does not start with `/`", file.path);
        }
        let Expect { status, body_bytes, body_contains } = file.expect.clone();
        let expects_body = body_bytes.is_some_and(|bytes| bytes > 0) || body_contains.is_some();
        if file.method == "HEAD" && expects_body {
            return fail!(
                "template `{template}`: cannot expect a body, because the response to HEAD has none"
            );
        }
        if file.family.as_deref().is_some_and(str::is_empty) {
            return fail!(
                "template `{template}`: `family` is empty; give it a name, or remove the key"
            );
        }
        let parse = |text: &str| {
            Text::parse(text, names)
                .map_err(|variable| unknown_variable(template, &variable, names.own))
        };
        let mut headers = Vec::new();
        for (name, value) in inherited_headers(&file, mix)? {
            headers.push((name.to_owned(), parse(value.trim())?));
        }
        for line in &file.headers {
            let (name, value) = split_header(line)?;
            headers.push((name.to_owned(), parse(value.trim())?));
        }
        let path = parse(&file.path)?;
        let body = parse(&body(&file, names.own)?)?;
        let body_contains = body_contains.as_deref().map(parse).transpose()?;
        let texts = headers.iter().map(|(_, value)| value).chain([&path, &body]);
        let variables = texts.chain(&body_contains).flat_map(Text::variables).collect();
        Ok(Self {
            name: file.name,
            class: file.class,
            family: file.family,
            open: file.open.unwrap_or(mix.open),
            status: Some(status),
            weight: file.weight,
            variables,
            source: TemplateSource::Texts(Texts {
                body_contains,
                method: file.method,
                path,
                headers,
                body,
                status,
                body_bytes,
            }),
        })
    }

    /// Returns the texts of a template that is not of a list.
    pub(crate) fn texts(&self) -> Option<&Texts> {
        match &self.source {
            TemplateSource::Texts(texts) => Some(texts),
            TemplateSource::Listed { .. } => None,
        }
    }
}

impl Texts {
    /// Returns the request with `values[i]` for variable `i`.
    pub(crate) fn message(&self, values: &[String]) -> Message {
        let header = |(name, value): &(String, Text)| (name.clone(), value.render(values));
        Message {
            method: self.method.clone(),
            path: self.path.render(values),
            headers: self.headers.iter().map(header).collect(),
            body: self.body.render(values),
            expect: Expect {
                status: self.status,
                body_bytes: self.body_bytes,
                body_contains: self.body_contains.as_ref().map(|text| text.render(values)),
            },
        }
    }
}

/// Returns names and values of the mix's headers that a template sends.
fn inherited_headers<'a>(
    file: &TemplateFile,
    mix: &'a MixFile,
) -> Result<Vec<(&'a str, &'a str)>, MixError> {
    let mut headers: Vec<(&str, &str)> =
        mix.headers.iter().map(|line| split_header(line)).collect::<Result<_, _>>()?;
    for removed in &file.without {
        let count = headers.len();
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case(removed));
        if headers.len() == count {
            return fail!(
                "template `{}`: `without` names `{removed}`, which is not a header of the mix",
                file.name
            );
        }
    }
    Ok(headers)
}

fn split_header(line: &str) -> Result<(&str, &str), MixError> {
    match line.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => fail!("invalid header `{line}`: expected `Name: value`"),
    }
}

fn unknown_variable(template: &str, variable: &str, names: &[String]) -> MixError {
    let distance = |name: &&String| strsim::damerau_levenshtein(variable, name);
    let hint = match names.iter().min_by_key(distance) {
        Some(name) => format!("the nearest one is `{name}`"),
        None => "the mix declares none".to_owned(),
    };
    MixError(format!("template `{template}`: unknown variable `{variable}`; {hint}"))
}

/// Returns the text of the body. `names` are the variables of the file.
fn body<'a>(file: &'a TemplateFile, names: &[String]) -> Result<Cow<'a, str>, MixError> {
    let template = &file.name;
    let check_limit = |key, bytes| {
        if bytes > MAX_BODY_BYTES {
            fail!(
                "template `{template}`: `{key}` makes {bytes} bytes, but the limit is {MAX_BODY_BYTES}"
            )
        } else {
            Ok(())
        }
    };
    let has_text = !file.body.is_empty();
    match (has_text, file.body_bytes, &file.body_repeat) {
        (_, None, None) => Ok(Cow::Borrowed(&file.body)),
        (false, Some(bytes), None) => {
            check_limit("body_bytes", bytes)?;
            Ok(Cow::Owned("x".repeat(bytes as usize)))
        }
        (false, None, Some(_)) if names.iter().any(|name| name == INDEX) => {
            fail!(
                "template `{template}`: variable `index` conflicts with {{{{index}}}} in `body_repeat`; rename it"
            )
        }
        (false, None, Some(repeat)) => {
            check_limit("body_repeat", repeat.bytes_max())?;
            Ok(Cow::Owned(repeat.text()))
        }
        (has_text, bytes, _) => {
            let first = if has_text { "body" } else { "body_bytes" };
            let second = if has_text && bytes.is_some() { "body_bytes" } else { "body_repeat" };
            fail!("template `{template}`: both `{first}` and `{second}`; remove one")
        }
    }
}

impl BodyRepeat {
    /// Returns an upper bound of the length: an index may exceed its placeholder of nine characters by one.
    fn bytes_max(&self) -> u64 {
        let one = self.each.len() + self.between.len();
        let longer = self.each.matches(INDEX_PLACEHOLDER).count();
        u64::from(self.times) * (one + longer) as u64 + (self.begin.len() + self.end.len()) as u64
    }

    fn text(&self) -> String {
        let each = |index: u32| self.each.replace(INDEX_PLACEHOLDER, &index.to_string());
        let all: Vec<String> = (1..=self.times).map(each).collect();
        format!("{}{}{}", self.begin, all.join(&self.between), self.end)
    }
}

use serde::Deserialize;

/// A file of rules. A request that matches one of them is blocked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patch {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) rules: Vec<Rule>,
}

/// One condition, or several that must all match.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Rule {
    All(All),
    One(Condition),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct All {
    pub(crate) and: Vec<Condition>,
}

/// Matches if a value in one of the zones matches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    pub(crate) zones: Vec<Zone>,
    /// Names of the values; by default all.
    #[serde(default)]
    pub(crate) variables: Vec<String>,
    #[serde(default)]
    pub(crate) transform: Vec<Transform>,
    pub(crate) r#match: Match,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Zone {
    Uri,
    UriFull,
    Method,
    Args,
    ArgsNames,
    BodyArgs,
    BodyArgsNames,
    Headers,
    HeadersNames,
    Cookies,
    Filenames,
    RawBody,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transform {
    Lowercase,
    Urldecode,
    Trim,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Match {
    pub(crate) r#type: Operator,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Operator {
    Contains,
    Equals,
    StartsWith,
    EndsWith,
    Regex,
}

//! The protocol of CrowdSec's AppSec component: keys of bouncers, answers to them, and its configuration files
//! (`appsec-configs`).

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

use tollgate_config::serve::ServeListenerFile;
use tollgate_config::waf::{ModeFile, RequestBodyFile, WafFile};
use tollgate_config::{InvalidValue, Located};

use crate::config::read;
use crate::config::route::FixedResponse;
use crate::config::serve::ApiKeys;

pub(super) const MEDIA_TYPE: &str = "application/json";

/// Answers to bouncers.
pub(super) struct Answers {
    pub(super) passed: FixedResponse,
    pub(super) blocked: FixedResponse,
}

/// A configuration of CrowdSec's AppSec component.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AppSecConfig {
    #[serde(rename = "name")]
    _name: IgnoredAny,
    inband_rules: Vec<String>,
    outofband_rules: Vec<String>,
    default_remediation: Option<String>,
    default_pass_action: Option<String>,
    blocked_http_code: Option<u16>,
    passed_http_code: Option<u16>,
    user_blocked_http_code: Option<u16>,
    user_passed_http_code: Option<u16>,
    on_load: Vec<Hook>,
    pre_eval: Vec<Hook>,
    post_eval: Vec<Hook>,
    on_match: Vec<Hook>,
    inband_options: BandOptions,
    outofband_options: BandOptions,
    // For CrowdSec's alerts and its log.
    #[serde(rename = "variables_tracking")]
    _variables_tracking: IgnoredAny,
    #[serde(rename = "log_level")]
    _log_level: IgnoredAny,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hook {
    filter: Option<String>,
    apply: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BandOptions {
    disable_body_inspection: bool,
    // Memory is limited by `limits.held_body_bytes`.
    #[serde(rename = "request_body_in_memory_limit")]
    _request_body_in_memory_limit: IgnoredAny,
}

impl BandOptions {
    /// Adds those of an earlier file.
    fn add(&mut self, before: &Self) {
        self.disable_body_inspection |= before.disable_body_inspection;
    }
}

/// A rule file, but for its rules.
#[derive(Deserialize)]
struct NamedRules {
    name: Option<String>,
}

/// The configuration files of a listener, as one.
pub(super) struct AppSec {
    config: AppSecConfig,
    /// Rules and settings for the firewall; `None` without files.
    pub(super) waf: Option<Located<WafFile>>,
    /// Rules out of band, if there are any.
    pub(super) out_of_band: Option<Located<WafFile>>,
}

impl AppSec {
    /// Reads the files. As in CrowdSec, their rules add up, and of other keys the last file counts.
    pub(super) fn read(file: &ServeListenerFile, folder: &Path) -> Result<Self, InvalidValue> {
        let Some(names) = &file.appsec_configs else {
            return Ok(Self { config: AppSecConfig::default(), waf: None, out_of_band: None });
        };
        let (mut config, mut in_band, mut out_of_band) =
            (AppSecConfig::default(), Vec::new(), Vec::new());
        for name in names.iter() {
            let next: AppSecConfig = parse(&folder.join(&**name), name)?;
            check_hooks(&next, name)?;
            let rules = match &file.appsec_rules {
                Some(rules) => PathBuf::from(&**rules),
                // As in /etc/crowdsec.
                None => {
                    let parent = Path::new(&**name).parent().unwrap_or(Path::new(""));
                    parent.join("../appsec-rules")
                }
            };
            for (found, patterns) in
                [(&mut in_band, &next.inband_rules), (&mut out_of_band, &next.outofband_rules)]
            {
                for pattern in patterns {
                    found.extend(rule_files(pattern, &rules, folder, name)?);
                }
            }
            let before = config;
            config = next;
            config.inband_options.add(&before.inband_options);
            config.outofband_options.add(&before.outofband_options);
        }
        let at = names.0.referenced;
        let waf = |paths: Vec<String>, options: &BandOptions, mode| {
            let located = |path: String| Located(Spanned::new(path, at, at));
            let rules = paths.into_iter().map(located).collect();
            let skips_bodies = options.disable_body_inspection;
            let skipped = RequestBodyFile { inspect: Some(false), ..RequestBodyFile::default() };
            let file = WafFile {
                rules: Some(Located(Spanned::new(rules, at, at))),
                request_body: skips_bodies.then_some(skipped),
                mode,
                ..WafFile::default()
            };
            Located(Spanned::new(file, at, at))
        };
        // Without rules, those for the parsing of bodies do not block either.
        let mode = in_band.is_empty().then_some(ModeFile::DetectionOnly);
        let runs_later = !out_of_band.is_empty();
        Ok(Self {
            waf: Some(waf(in_band, &config.inband_options, mode)),
            out_of_band: runs_later.then(|| {
                waf(out_of_band, &config.outofband_options, Some(ModeFile::DetectionOnly))
            }),
            config,
        })
    }

    pub(super) fn answers(&self, at: &Located<ServeListenerFile>) -> Result<Answers, InvalidValue> {
        let AppSecConfig {
            default_remediation,
            default_pass_action,
            blocked_http_code,
            passed_http_code,
            user_blocked_http_code,
            user_passed_http_code,
            ..
        } = &self.config;
        let answer =
            |action: &Option<String>, default, status: Option<u16>, client: Option<u16>, or| {
                let action = action.as_deref().unwrap_or(default);
                // 0 is as none.
                let status = status.filter(|status| *status != 0).unwrap_or(or);
                let client = client.filter(|status| *status != 0).unwrap_or(or);
                if ![status, client].iter().all(|status| (200..600).contains(status)) {
                    let message =
                        format!("`{status}` or `{client}` is not a status from 200 to 599");
                    return Err(InvalidValue::at(at, message));
                }
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
                if action.is_empty() || !action.bytes().all(is_word) {
                    return Err(InvalidValue::at(at, format!("`{action}` is not a remediation")));
                }
                let body = format!(r#"{{"action":"{action}","http_status":{client}}}"#);
                let headers = vec![("Content-Type".to_owned(), MEDIA_TYPE.to_owned())];
                Ok(FixedResponse { status, headers, body: body.into_bytes().into() })
            };
        if default_remediation.as_deref() == Some("allow") {
            let message = "`default_remediation: allow` blocks nothing; write `waf: { mode: detection-only }` in its place";
            return Err(InvalidValue::at(at, message));
        }
        let passed =
            answer(default_pass_action, "allow", *passed_http_code, *user_passed_http_code, 200)?;
        let blocked =
            answer(default_remediation, "ban", *blocked_http_code, *user_blocked_http_code, 403)?;
        Ok(Answers { passed, blocked })
    }
}

/// Hooks are programs in CrowdSec's expression language.
fn check_hooks(config: &AppSecConfig, at: &Located<String>) -> Result<(), InvalidValue> {
    let AppSecConfig { on_load, pre_eval, post_eval, on_match, .. } = config;
    for (name, hooks) in [
        ("on_load", on_load),
        ("pre_eval", pre_eval),
        ("post_eval", post_eval),
        ("on_match", on_match),
    ] {
        if let Some(Hook { filter, apply }) = hooks.first() {
            let expressions = filter.iter().chain(apply).map(String::as_str);
            let message = format!(
                "`{name}` of `{}` is in CrowdSec's expression language, which is not supported: `{}`; remove the hook",
                **at,
                expressions.collect::<Vec<_>>().join("; ")
            );
            return Err(InvalidValue::at(at, message));
        }
    }
    Ok(())
}

/// The files in a folder, relative to `base`, whose rules have a name that matches.
fn rule_files(
    pattern: &str,
    rules: &Path,
    base: &Path,
    at: &Located<String>,
) -> Result<Vec<String>, InvalidValue> {
    let wanted = glob::Pattern::new(pattern).map_err(|error| {
        let message = format!("`{pattern}` of `{}` is not a pattern of names", **at);
        InvalidValue::at(at, message).with_source(error)
    })?;
    let folder = base.join(rules);
    let entries = fs::read_dir(&folder).map_err(|source| {
        let message = format!("cannot read the folder of rules `{}`", folder.display());
        InvalidValue::at(at, message).with_source(source)
    })?;
    let names: Result<Vec<_>, _> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let mut names = names.map_err(|source: std::io::Error| {
        let message = format!("cannot read the folder of rules `{}`", folder.display());
        InvalidValue::at(at, message).with_source(source)
    })?;
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let path = rules.join(&name);
        if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            let NamedRules { name } = parse(&base.join(&path), at)?;
            if name.is_some_and(|name| wanted.matches(&name)) {
                found.push(path.display().to_string());
            }
        }
    }
    if found.is_empty() {
        let message =
            format!("no rule named `{pattern}` of `{}` is in `{}`", **at, folder.display());
        return Err(InvalidValue::at(at, message));
    }
    Ok(found)
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(
    path: &Path,
    at: &Located<String>,
) -> Result<T, InvalidValue> {
    let text = read::text(path).map_err(|source| {
        InvalidValue::at(at, format!("cannot read `{}`", path.display())).with_source(source)
    })?;
    serde_saphyr::from_str(&text).map_err(|error| {
        let message = format!("`{}`: {}", path.display(), error.without_snippet());
        InvalidValue::at(at, message)
    })
}

/// Keys of the bouncers. There may be none if a local API knows some.
pub(super) fn keys(
    file: &Located<ServeListenerFile>,
    has_local_api: bool,
    folder: &Path,
) -> Result<ApiKeys, InvalidValue> {
    let mut keys = file.keys.as_ref().map_or_else(Vec::new, |keys| (**keys).clone());
    if let Some(name) = &file.key_file {
        let path = folder.join(&**name);
        let text = read::text(&path).map_err(|source| {
            let message = format!("cannot read the keys `{}`", path.display());
            InvalidValue::at(name, message).with_source(source)
        })?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        keys.extend(lines.map(str::to_owned));
    }
    let is_key = |key: &String| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if (keys.is_empty() && !has_local_api) || !keys.iter().all(is_key) {
        let message = "`keys` or `key-file` must have the keys of the bouncers, in printable ASCII without spaces, unless there is a \
             `local_api` that knows them";
        return Err(InvalidValue::at(file, message));
    }
    Ok(ApiKeys::new(keys))
}

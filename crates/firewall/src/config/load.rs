//! The `waf` keys: loads the rules of the firewall while the configuration is read.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_config::waf::{BlockFile, CompressedFile, CrsFile, ModeFile, OverLimitFile, WafFile};
use tollgate_config::{InvalidValue, Located};
use tollgate_waf::{
    Builder, Compression, EngineMode, LimitAction, LoadError, RulePlace, RuleSet, Skipped,
};

use super::rule_files::{CRS, InstalledCrs, body_rules};
use super::scalars::{check_header_name, number};
use super::{Block, Page, Waf};
use crate::rules::Rules;

/// Identifier of the rule that sets the options of `crs`: outside all ranges that are assigned.
const OPTIONS_RULE: u64 = 4_000_000_000;
const PAGE_BYTES_MAX: u64 = 64 << 10;
const RATIO_MAX: u32 = 100;
/// Settings that rule files may change.
const DEFAULTS: &str = "SecRuleEngine On\n\
                        SecRequestBodyAccess On\n\
                        SecArgumentsLimit 1000\n\
                        SecAuditEngine RelevantOnly\n";

/// Rule sets that were loaded for one configuration.
#[derive(Default)]
pub struct RuleCache {
    known: HashMap<Source, Arc<Rules>>,
    /// Sets without settings and exclusions.
    shared: HashMap<SharedRules, RuleSet>,
    pub warnings: Vec<InvalidValue>,
    /// Files and folders on which the configuration depends.
    pub files: Vec<PathBuf>,
}

/// The `waf` keys that apply to a route: its own first, those of the gateway last.
struct Layers<'a>(&'a [Option<&'a Located<WafFile>>]);

impl<'a> Layers<'a> {
    fn get<T>(&self, key: impl Fn(&'a WafFile) -> &'a Option<T>) -> Option<&'a T> {
        self.0.iter().copied().flatten().find_map(|file| key(file).as_ref())
    }
}

impl RuleCache {
    /// Validates the keys of a route, of which the first layer that has one counts, and loads its rules. `defaults` are settings
    /// that rule files may change. Returns `None` if nothing is to be inspected.
    pub fn waf(
        &mut self,
        layers: &[Option<&Located<WafFile>>],
        defaults: &str,
        folder: &Path,
    ) -> Result<Option<Arc<Waf>>, InvalidValue> {
        let keys = Layers(layers);
        let mode = match keys.get(|file| &file.mode) {
            Some(ModeFile::Off) => return Ok(None),
            Some(ModeFile::DetectionOnly) => EngineMode::DetectionOnly,
            Some(ModeFile::On) | None => EngineMode::On,
        };
        let Some(files) = keys.get(|file| &file.rules) else {
            let message = "`waf` names no rules; add `rules`, or set `mode: off`";
            let file = layers.iter().copied().flatten().next();
            return file.map_or(Ok(None), |file| Err(InvalidValue::at(file, message)));
        };
        let request = keys.get(|file| &file.request_body);
        let response = keys.get(|file| &file.response_body);
        let waf = Waf {
            rules: self.rules(&keys, files, mode, defaults, folder)?,
            mode,
            sample: number(keys.get(|file| &file.sample), 0, Some(100), 100)?,
            request_compression: compression(
                // Few backends decode requests; others would read the encoded bytes.
                request.and_then(|body| body.compressed).unwrap_or(CompressedFile::Reject),
                request.and_then(|body| body.inflate_ratio_max.as_ref()),
            )?,
            response_compression: compression(
                response.and_then(|body| body.compressed).unwrap_or(CompressedFile::Inflate),
                response.and_then(|body| body.inflate_ratio_max.as_ref()),
            )?,
            block: keys
                .get(|file| &file.block)
                .map_or(Ok(Block::default()), |file| self.block(file, folder))?,
            transaction_header: keys
                .get(|file| &file.transaction_header)
                .map(|name| check_header_name(name, name).map(|()| (**name).clone()))
                .transpose()?,
        };
        Ok(Some(Arc::new(waf)))
    }

    fn rules(
        &mut self,
        keys: &Layers<'_>,
        files: &Located<Vec<Located<String>>>,
        mode: EngineMode,
        defaults: &str,
        folder: &Path,
    ) -> Result<Arc<Rules>, InvalidValue> {
        let mut before = [DEFAULTS, defaults].concat();
        if let Some(crs) = keys.get(|file| &file.crs) {
            before += &crs_options(crs)?;
        }
        let mut includes = String::new();
        let mut paths = Vec::new();
        for file in files.iter() {
            let path = folder.join(&**file);
            if **file == CRS && !path.exists() {
                let crs = self.installed_crs(file)?;
                paths.extend(crs.includes.into_iter().map(|path| (file, path)));
            } else {
                paths.push((file, path));
            }
        }
        for (file, path) in paths {
            let path = path.display().to_string();
            if path.contains(['"', '\\', '\n', '\r']) {
                let message = format!("`{}` contains a quote, a backslash or a line break", **file);
                return Err(InvalidValue::at(file, message));
            }
            push(&mut includes, format_args!("Include \"{path}\""));
        }
        let exclusions = keys.get(|file| &file.exclusions);
        let exclusions = exclusions.map_or(String::new(), |lines| lines.join("\n"));
        let recommended = keys.get(|file| &file.request_body).and_then(|body| body.recommended);
        let recommended = recommended.unwrap_or(true);
        let body_rules = if recommended { BodyRules::Missing } else { BodyRules::None };
        let shared = SharedRules { options: before, includes, body_rules };
        let source = Source { shared, settings: settings(keys)?, exclusions };
        let known = self.known.get(&source).cloned();
        let is_new = known.is_none();
        let rules = match known {
            Some(rules) => rules,
            None => {
                let set = self.load(&source).map_err(|error| {
                    InvalidValue::at(files, format!("cannot load the rules of `waf`: {error}"))
                })?;
                self.files.extend_from_slice(set.files());
                let rules = Arc::new(Rules::new(set));
                self.known.insert(source, Arc::clone(&rules));
                rules
            }
        };
        let set = &rules.set;
        let advice = if recommended {
            "an exclusion removes such rules"
        } else {
            "remove `recommended: false`, or add such rules"
        };
        let uninspected = set.uninspected_bodies().into_iter();
        let uninspected =
            uninspected.map(|bodies| format!("`waf` does not inspect {bodies}; {advice}"));
        let is_overridden = mode == EngineMode::On && set.settings().engine != EngineMode::On;
        let overridden = is_overridden.then(|| {
            let message = "the rules set `SecRuleEngine` to block nothing, but `mode` takes \
                           precedence and is `on`: attacks are blocked; `mode: detection-only` \
                           only logs them";
            message.to_owned()
        });
        let idle = set.idle_exclusions().iter().filter(|idle| is_new && !is_of_crs(&idle.place));
        let idle = idle.map(|Skipped { place, message }| {
            format!("an exclusion has no effect: {place}: {message}")
        });
        // Routes have the same with other exclusions.
        for message in uninspected.chain(overridden).chain(idle) {
            let warning = InvalidValue::at(files, message);
            if !self.warnings.iter().any(|known| known.is_same(&warning)) {
                self.warnings.push(warning);
            }
        }
        Ok(rules)
    }

    /// Finds the installed Core Rule Set, and says which one it is.
    fn installed_crs(&mut self, at: &Located<String>) -> Result<InstalledCrs, InvalidValue> {
        self.files.extend(InstalledCrs::candidates());
        let Some(crs) = InstalledCrs::find(Path::new("/")) else {
            let message = format!(
                "no Core Rule Set is installed in {}; install it (apt-get install modsecurity-crs), or name its files",
                InstalledCrs::folders()
            );
            return Err(InvalidValue::at(at, message));
        };
        let message = format!("`{CRS}` is version {} in {}", crs.version, crs.folder.display());
        let found = InvalidValue::at(at, message);
        if !self.warnings.iter().any(|known| known.is_same(&found)) {
            self.warnings.push(found);
        }
        Ok(crs)
    }

    fn block(&mut self, file: &BlockFile, folder: &Path) -> Result<Block, InvalidValue> {
        let status =
            file.status.as_ref().map(|status| number(status, 400, Some(599), 403)).transpose()?;
        let Some(name) = &file.page else { return Ok(Block { status, ..Block::default() }) };
        let Page { body, media_type } = Page::read(name, folder)?;
        self.files.push(folder.join(&**name));
        Ok(Block { status, page: Some(body), media_type, ..Block::default() })
    }

    fn load(&mut self, source: &Source) -> Result<RuleSet, LoadError> {
        let set = self.load_with(&source.shared, source)?;
        let is_complete = set.uninspected_bodies().is_empty();
        if source.shared.body_rules != BodyRules::Missing || is_complete {
            return Ok(set);
        }
        // Settings have turned the inspection of bodies on, or exclusions have changed what the rules lack.
        let with = |body_rules| SharedRules { body_rules, ..source.shared.clone() };
        let without = self.load_with(&with(BodyRules::None), source)?;
        let missing = body_rules(&without.uninspected_bodies());
        self.load_with(&with(BodyRules::These(missing)), source)
    }

    /// Loads rules, and then settings and exclusions. Sets that differ only in the latter share their compiled rules.
    fn load_with(&mut self, shared: &SharedRules, source: &Source) -> Result<RuleSet, LoadError> {
        let behind = |builder: Builder| {
            let builder = builder.text("waf", &*source.settings);
            builder.text("waf.exclusions", &*source.exclusions)
        };
        if !self.shared.contains_key(shared) {
            self.shared.insert(shared.clone(), shared.add_to(RuleSet::builder()).build()?);
        }
        let on_shared = behind(RuleSet::builder()).build_on(&self.shared[shared])?;
        on_shared.map_or_else(|| behind(shared.add_to(RuleSet::builder())).build(), Ok)
    }
}

/// Sources of a rule set.
#[derive(PartialEq, Eq, Hash)]
struct Source {
    shared: SharedRules,
    settings: String,
    exclusions: String,
}

/// Sources that several routes may share.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SharedRules {
    options: String,
    includes: String,
    body_rules: BodyRules,
}

/// Rules for bodies that are added.
#[derive(Clone, PartialEq, Eq, Hash)]
enum BodyRules {
    None,
    /// Rules for the kinds of bodies that the other rules leave uninspected.
    Missing,
    These(String),
}

impl SharedRules {
    fn add_to(&self, builder: Builder) -> Builder {
        const NAME: &str = "waf.request_body.recommended";
        let builder = builder.text("waf.crs", &*self.options);
        let builder = match &self.body_rules {
            BodyRules::None => builder,
            BodyRules::Missing => builder.supplement(NAME, body_rules),
            BodyRules::These(rules) => builder.text(NAME, &**rules),
        };
        builder.text("waf: rules", &*self.includes)
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

/// The options of the Core Rule Set as one action of phase 1.
fn crs_options(crs: &CrsFile) -> Result<String, InvalidValue> {
    let mut actions = String::new();
    let mut set = |name: &str, value: &dyn std::fmt::Display| {
        write!(actions, ",setvar:'tx.{name}={value}'").expect("writing to a string cannot fail");
    };
    let level = number(&crs.paranoia_level, 1, Some(4), 1)?;
    let detection = number(&crs.detection_paranoia_level, level, Some(4), level)?;
    if crs.paranoia_level.is_some() || crs.detection_paranoia_level.is_some() {
        // CRS 3 has other names.
        for name in ["blocking_paranoia_level", "paranoia_level"] {
            set(name, &level);
        }
        for name in ["detection_paranoia_level", "executing_paranoia_level"] {
            set(name, &detection);
        }
    }
    for (name, value) in [
        ("inbound_anomaly_score_threshold", &crs.inbound_anomaly_score_threshold),
        ("outbound_anomaly_score_threshold", &crs.outbound_anomaly_score_threshold),
        ("max_num_args", &crs.max_num_args),
        ("arg_name_length", &crs.arg_name_length),
        ("arg_length", &crs.arg_length),
        ("total_arg_length", &crs.total_arg_length),
        ("max_file_size", &crs.max_file_size),
        ("combined_file_sizes", &crs.combined_file_sizes),
    ] {
        if value.is_some() {
            set(name, &number(value, 1, None, 1)?);
        }
    }
    if let Some(early) = crs.early_blocking {
        set("early_blocking", &u8::from(early));
    }
    // Format of each list in crs-setup.conf.
    type List<'a> = (&'a str, &'a Option<Located<Vec<String>>>, fn(&str) -> String);
    let lists: [List<'_>; 5] = [
        ("allowed_methods", &crs.allowed_methods, str::to_owned),
        ("allowed_request_content_type", &crs.allowed_request_content_types, |item| {
            format!("|{item}|")
        }),
        ("allowed_http_versions", &crs.allowed_http_versions, str::to_owned),
        ("restricted_extensions", &crs.restricted_extensions, |item| format!("{item}/")),
        ("restricted_headers_basic", &crs.restricted_headers, |item| {
            format!("/{}/", item.to_ascii_lowercase())
        }),
    ];
    for (name, list, join) in lists {
        if let Some(list) = list {
            list.iter().try_for_each(|item| check_value(list, item))?;
            set(name, &list.iter().map(|item| join(item)).collect::<Vec<_>>().join(" "));
        }
    }
    for (name, value) in crs.variables.iter().flatten() {
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(InvalidValue::at(value, format!("`{name}` is not the name of a variable")));
        }
        check_value(value, value)?;
        set(name, &**value);
    }
    if actions.is_empty() {
        return Ok(String::new());
    }
    Ok(format!("SecAction \"id:{OPTIONS_RULE},phase:1,pass,nolog,t:none{actions}\"\n"))
}

fn check_value<T>(at: &Located<T>, value: &str) -> Result<(), InvalidValue> {
    if value.is_empty() || value.chars().any(|c| "'\"\\%".contains(c) || c.is_control()) {
        let message = format!("`{value}` is empty or contains a quote, a backslash or a %");
        return Err(InvalidValue::at(at, message));
    }
    Ok(())
}

/// Renders directives that follow the rule files and override theirs.
fn settings(keys: &Layers<'_>) -> Result<String, InvalidValue> {
    let mut text = String::new();
    if let Some(body) = keys.get(|file| &file.request_body) {
        if let Some(inspect) = body.inspect {
            let access = if inspect { "On" } else { "Off" };
            push(&mut text, format_args!("SecRequestBodyAccess {access}"));
        }
        for (name, limit) in [
            ("SecRequestBodyLimit", &body.limit),
            ("SecRequestBodyNoFilesLimit", &body.limit_without_files),
            ("SecArgumentsLimit", &body.arguments_max),
        ] {
            if limit.is_some() {
                push(&mut text, format_args!("{name} {}", number(limit, 1, None, 1)?));
            }
        }
        if let Some(over) = body.over_limit {
            push(&mut text, format_args!("SecRequestBodyLimitAction {:?}", limit_action(over)));
        }
    }
    if let Some(body) = keys.get(|file| &file.response_body) {
        if let Some(types) = &body.mime_types {
            let is_type_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"/+-._*".contains(&byte);
            if let Some(invalid) =
                types.iter().find(|name| name.is_empty() || !name.bytes().all(is_type_byte))
            {
                let message = format!("`{invalid}` is not a media type such as text/html");
                return Err(InvalidValue::at(types, message));
            }
            let access = if types.is_empty() { "Off" } else { "On" };
            push(&mut text, format_args!("SecResponseBodyAccess {access}"));
            push(&mut text, format_args!("SecResponseBodyMimeType {}", types.join(" ")));
        }
        if body.limit.is_some() {
            let limit = number(&body.limit, 1, None, 1)?;
            push(&mut text, format_args!("SecResponseBodyLimit {limit}"));
        }
        if let Some(over) = body.over_limit {
            push(&mut text, format_args!("SecResponseBodyLimitAction {:?}", limit_action(over)));
        }
    }
    if let Some(inspection) = keys.get(|file| &file.inspection) {
        if inspection.bytes.is_some() {
            let bytes = number(&inspection.bytes, 1, None, 1)?;
            push(&mut text, format_args!("SecInspectionLimit {bytes}"));
        }
        if let Some(over) = inspection.over_limit {
            push(&mut text, format_args!("SecInspectionLimitAction {:?}", limit_action(over)));
        }
    }
    Ok(text)
}

fn limit_action(over: OverLimitFile) -> LimitAction {
    match over {
        OverLimitFile::Reject => LimitAction::Reject,
        OverLimitFile::Partial => LimitAction::ProcessPartial,
    }
}

fn compression(
    file: CompressedFile,
    ratio: Option<&Located<u32>>,
) -> Result<Compression, InvalidValue> {
    // The highest ratio that deflate reaches.
    let ratio_max = number(ratio, 1, Some(1032), RATIO_MAX)?;
    Ok(match file {
        CompressedFile::Reject => Compression::Reject,
        CompressedFile::Pass => Compression::Pass,
        CompressedFile::Inflate => Compression::Inflate { ratio_max },
    })
}

/// True in the exclusions for applications that the Core Rule Set 3 has: they name rules that few load.
fn is_of_crs(place: &RulePlace) -> bool {
    let name = Path::new(&*place.file).file_name();
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"REQUEST-903."))
}

impl Page {
    /// Reads a page of at most 64 KiB, whose type is that of its extension.
    pub fn read(name: &Located<String>, folder: &Path) -> Result<Self, InvalidValue> {
        let path = folder.join(&**name);
        let mut page = Vec::new();
        let read = std::fs::File::open(&path)
            .and_then(|file| file.take(PAGE_BYTES_MAX + 1).read_to_end(&mut page));
        if let Err(source) = read {
            let message = format!("cannot read the page `{}`", path.display());
            return Err(InvalidValue::at(name, message).with_source(source));
        }
        if page.len() as u64 > PAGE_BYTES_MAX {
            let message = format!("the page `{}` is larger than 64 KiB", path.display());
            return Err(InvalidValue::at(name, message));
        }
        let media_type = name.ends_with(".html").then_some("text/html");
        Ok(Self { body: page.into(), media_type })
    }
}

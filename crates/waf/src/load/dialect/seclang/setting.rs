//! Settings, and directives that are accepted or rejected by name alone.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Fault, LoadError, Skipped, nearest};
use crate::load::draft::Draft;
use crate::settings::LimitAction;
use crate::transformation::UnicodeMap;

use super::lexer::Directive;
use super::{action, at_argument, at_name, one};

/// Directives without an effect on this engine, with the reason.
const INERT: [(&str, &str); 20] = [
    ("SecRequestBodyInMemoryLimit", "bodies are always kept in memory, within SecRequestBodyLimit"),
    (
        "SecPcreMatchLimit",
        "searches with lookaround or backreferences take at most 1,000,000 steps back each, 3,000,000 in one transaction",
    ),
    ("SecPcreMatchLimitRecursion", "searches do not recurse"),
    ("SecDataDir", "persistent collections are in memory"),
    ("SecTmpDir", "no temporary file is written"),
    ("SecTmpSaveUploadedFiles", "no temporary file is written"),
    ("SecUploadDir", "no uploaded file is written"),
    ("SecUploadFileMode", "no uploaded file is written"),
    ("SecUploadKeepFiles", "no uploaded file is written"),
    ("SecUnicodeCodePage", "SecUnicodeMapFile names the code page after the file"),
    ("SecStatusEngine", "nothing is sent home"),
    ("SecCookieFormat", "cookies are of version 0"),
    ("SecAuditLog2", "audit entries are written by the program that runs the engine"),
    ("SecResponseBodyMimeTypesClear", "use SecResponseBodyMimeType, which replaces the list"),
    ("SecXmlExternalEntity", "external entities are never loaded"),
    ("SecSensorId", "it only labels the audit log"),
    ("SecServerSignature", "the web server writes its name into responses"),
    ("SecRulePerfTime", "times of rules are not measured"),
    ("SecConnEngine", "connections are limited by the proxy"),
    ("SecGuardianLog", "there is no guardian log"),
];

/// Directives that need a feature that this engine lacks, with the reason.
const EXTERNAL: [(&str, &str); 12] = [
    ("SecRuleScript", "it runs Lua"),
    ("SecRemoteRules", "it fetches a URL"),
    ("SecRemoteRulesFailAction", "it fetches a URL"),
    ("SecGeoLookupDb", "geographic lookups are not supported"),
    ("SecGsbLookupDb", "Safe Browsing lookups are not supported"),
    ("SecHttpBlKey", "DNS lookups are not supported"),
    ("SecChrootDir", "it changes the process"),
    ("SecHashEngine", "signed links are not supported"),
    ("SecHashKey", "signed links are not supported"),
    ("SecContentInjection", "responses are not changed"),
    ("SecStreamInBodyInspection", "streams are not changed"),
    ("SecStreamOutBodyInspection", "streams are not changed"),
];

/// Directives of the other modules and of this one, for hints.
const NAMES: [&str; 43] = [
    "Include",
    "IncludeOptional",
    "SecAction",
    "SecArgumentSeparator",
    "SecArgumentsLimit",
    "SecAuditEngine",
    "SecAuditLog",
    "SecAuditLogDirMode",
    "SecAuditLogFileMode",
    "SecAuditLogFormat",
    "SecAuditLogParts",
    "SecAuditLogRelevantStatus",
    "SecAuditLogStorageDir",
    "SecAuditLogType",
    "SecCollectionTimeout",
    "SecComponentSignature",
    "SecDebugLog",
    "SecDebugLogLevel",
    "SecDefaultAction",
    "SecInspectionLimit",
    "SecInspectionLimitAction",
    "SecMarker",
    "SecRequestBodyAccess",
    "SecRequestBodyJsonDepthLimit",
    "SecRequestBodyLimit",
    "SecRequestBodyLimitAction",
    "SecRequestBodyNoFilesLimit",
    "SecResponseBodyAccess",
    "SecResponseBodyLimit",
    "SecResponseBodyLimitAction",
    "SecResponseBodyMimeType",
    "SecRule",
    "SecRuleEngine",
    "SecRuleRemoveById",
    "SecRuleRemoveByMsg",
    "SecRuleRemoveByTag",
    "SecRuleUpdateActionById",
    "SecRuleUpdateTargetById",
    "SecRuleUpdateTargetByMsg",
    "SecRuleUpdateTargetByTag",
    "SecUnicodeMapFile",
    "SecUploadFileLimit",
    "SecWebAppId",
];

impl Draft {
    /// Reads `SecUnicodeMapFile FILE PAGE`.
    pub(super) fn unicode_map(
        &mut self,
        directive: &Directive,
        folder: &Path,
    ) -> Result<(), LoadError> {
        let [file, page] = directive.arguments.as_slice() else {
            let message = "SecUnicodeMapFile needs a file and the number of a code page";
            return Err(at_name(directive, message.into(), false));
        };
        let page = at_argument(directive, page, number(&page.as_str()))?;
        let path = folder.join(&*file.as_str());
        // The comments of such a file can be in any encoding.
        let text = std::fs::read(&path)
            .map_err(|source| LoadError::Read { path: path.clone(), source })?;
        let map = UnicodeMap::parse(&String::from_utf8_lossy(&text), page)
            .map_err(|reason| Fault::invalid(0, format!("{}: {reason}", path.display())));
        self.settings.unicode = Arc::new(at_argument(directive, file, map)?);
        self.shared.files_read.push(path);
        Ok(())
    }

    pub(super) fn setting(&mut self, directive: &Directive, name: &str) -> Result<(), LoadError> {
        let written = directive.name.as_str();
        if let Some((_, reason)) = INERT.iter().find(|(inert, _)| inert.eq_ignore_ascii_case(name))
        {
            self.inert.push(Skipped {
                place: directive.place(),
                message: format!("{written} has no effect: {reason}"),
            });
            return Ok(());
        }
        if let Some((_, reason)) =
            EXTERNAL.iter().find(|(external, _)| external.eq_ignore_ascii_case(name))
        {
            return Err(at_name(directive, format!("{written} is not supported: {reason}"), true));
        }
        let settings = &mut self.settings;
        match name {
            "secruleengine" => {
                settings.engine = value(directive, action::engine)?;
                self.engine_is_set = true;
            }
            "secrequestbodyaccess" => {
                settings.request_body_access = value(directive, switch)?;
                self.body_access_is_set = true;
            }
            "secrequestbodylimit" => settings.request_body_limit = value(directive, number)?,
            "secrequestbodynofileslimit" => {
                settings.request_body_no_files_limit = value(directive, number)?;
            }
            "secrequestbodylimitaction" => {
                settings.request_body_limit_action = value(directive, limit_action)?;
            }
            "secrequestbodyjsondepthlimit" => settings.json_depth_limit = value(directive, number)?,
            "secargumentslimit" => settings.arguments_limit = value(directive, number)?,
            "secinspectionlimit" => {
                settings.inspection_limit = value(directive, number)? as u64;
            }
            "secinspectionlimitaction" => {
                settings.inspection_limit_action = value(directive, limit_action)?;
            }
            "secargumentseparator" => settings.argument_separator = value(directive, separator)?,
            "secuploadfilelimit" => settings.upload_file_limit = value(directive, number)?,
            "secresponsebodyaccess" => settings.response_body_access = value(directive, switch)?,
            "secresponsebodylimit" => settings.response_body_limit = value(directive, number)?,
            "secresponsebodylimitaction" => {
                settings.response_body_limit_action = value(directive, limit_action)?;
            }
            "secresponsebodymimetype" => {
                settings.response_body_mime_types =
                    directive.arguments.iter().map(|a| a.as_str().to_ascii_lowercase()).collect();
            }
            "seccollectiontimeout" => {
                settings.collection_timeout = value(directive, number)? as u64;
            }
            "secwebappid" => settings.web_app_id = value(directive, text)?,
            "secauditengine" => settings.audit_engine = value(directive, action::audit_engine)?,
            "secauditlogrelevantstatus" => {
                settings.audit_log_relevant_status = Some(value(directive, pattern)?);
            }
            "secauditlogparts" => settings.audit_log_parts = value(directive, text)?,
            "secauditlog" => settings.audit_log = Some(value(directive, text)?),
            "secauditlogtype" => {
                settings.audit_log_concurrent =
                    value(directive, |text| Ok(text.eq_ignore_ascii_case("concurrent")))?;
            }
            "secauditlogstoragedir" => {
                settings.audit_log_folder = Some(value(directive, text)?);
            }
            "secauditlogdirmode" => {
                settings.audit_log_folder_mode = value(directive, |text| mode(text, 0o750))?;
            }
            "secauditlogfilemode" => {
                settings.audit_log_file_mode = value(directive, |text| mode(text, 0o640))?;
            }
            "secauditlogformat" => {
                settings.audit_log_json = value(directive, |t| Ok(t.eq_ignore_ascii_case("json")))?;
            }
            "secdebuglog" => settings.debug_log = Some(value(directive, text)?),
            "secdebugloglevel" => settings.debug_log_level = value(directive, level)?,
            "seccomponentsignature" => settings.component_signatures.push(value(directive, text)?),
            _ => {
                let inert = INERT.iter().map(|(inert, _)| *inert);
                let hint = nearest(name, NAMES.into_iter().chain(inert));
                return Err(at_name(
                    directive,
                    format!("unknown directive \"{written}\"{hint}"),
                    true,
                ));
            }
        }
        Ok(())
    }
}

fn value<T>(
    directive: &Directive,
    parse: impl FnOnce(&str) -> Result<T, Fault>,
) -> Result<T, LoadError> {
    let argument = one(directive)?;
    at_argument(directive, argument, parse(&argument.as_str()))
}

fn switch(text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Fault::invalid(0, format!("\"{text}\" is neither On nor Off"))),
    }
}

fn number(text: &str) -> Result<usize, Fault> {
    text.parse().map_err(|error| Fault::invalid(0, format!("\"{text}\": {error}")))
}

/// A level of the debug log.
fn level(text: &str) -> Result<u8, Fault> {
    let level = text.parse().ok().filter(|level| *level <= 9);
    level.ok_or_else(|| Fault::invalid(0, format!("\"{text}\" is not a level from 0 to 9")))
}

fn separator(text: &str) -> Result<u8, Fault> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Fault::invalid(0, format!("separator \"{text}\" is not one byte"))),
    }
}

/// Permissions as an octal number, or the default.
fn mode(text: &str, default: u32) -> Result<u32, Fault> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(default);
    }
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| {
        Fault::invalid(0, format!("\"{text}\" is neither an octal mode nor default"))
    })
}

fn limit_action(text: &str) -> Result<LimitAction, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "reject" => Ok(LimitAction::Reject),
        "processpartial" => Ok(LimitAction::ProcessPartial),
        _ => Err(Fault::invalid(0, format!("\"{text}\" is neither Reject nor ProcessPartial"))),
    }
}

fn pattern(text: &str) -> Result<String, Fault> {
    crate::regex::Matcher::new(text).map_err(|message| Fault::invalid(0, message))?;
    Ok(text.to_owned())
}

fn text(text: &str) -> Result<String, Fault> {
    Ok(text.to_owned())
}

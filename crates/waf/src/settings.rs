//! Settings of the engine that are not rules.

use std::sync::Arc;

use crate::rule::{AuditEngine, EngineMode};
use crate::transformation::UnicodeMap;

/// Reaction to a body that is larger than its limit, or to an inspection that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitAction {
    /// Block the transaction, if the engine is on.
    Reject,
    /// Continue with the part inspected up to the limit.
    ProcessPartial,
}

/// An argument without `=`, as in `/?debug`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareArgument {
    /// A name with the empty value, as in ModSecurity.
    Name,
    /// A value with the empty name, as in naxsi.
    Value,
}

/// Settings that directives such as `SecRequestBodyLimit` make.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `SecRuleEngine` (default: Off, as ModSecurity's)
    pub engine: EngineMode,
    /// `SecRequestBodyAccess`
    pub request_body_access: bool,
    /// `SecRequestBodyLimit` in bytes
    pub request_body_limit: usize,
    /// `SecRequestBodyNoFilesLimit` in bytes: parts of a multipart body that are not files
    pub request_body_no_files_limit: usize,
    /// `SecRequestBodyLimitAction`
    pub request_body_limit_action: LimitAction,
    /// `SecRequestBodyJsonDepthLimit`: nesting of arrays and objects
    pub json_depth_limit: usize,
    /// `SecArgumentsLimit`: arguments of a request; those beyond it are not inspected
    pub arguments_limit: usize,
    /// `SecInspectionLimit`: bytes that operators may inspect in one transaction, the same bytes
    /// again for each rule (default: no limit)
    pub inspection_limit: u64,
    /// `SecInspectionLimitAction`
    pub inspection_limit_action: LimitAction,
    /// `SecArgumentSeparator`
    pub argument_separator: u8,
    /// Meaning of an argument without `=`.
    pub(crate) bare_argument: BareArgument,
    /// `SecUploadFileLimit`: files of a multipart body
    pub upload_file_limit: usize,
    /// `SecResponseBodyAccess`
    pub response_body_access: bool,
    /// `SecResponseBodyLimit` in bytes
    pub response_body_limit: usize,
    /// `SecResponseBodyLimitAction`
    pub response_body_limit_action: LimitAction,
    /// `SecResponseBodyMimeType`, in lower case
    pub response_body_mime_types: Vec<String>,
    /// `SecCollectionTimeout`: seconds after its last update at which a persistent collection ends
    pub collection_timeout: u64,
    /// `SecWebAppId`: name of the application, whose persistent collections are its own
    pub web_app_id: String,
    /// `SecAuditEngine`
    pub audit_engine: AuditEngine,
    /// `SecAuditLogRelevantStatus`
    pub audit_log_relevant_status: Option<String>,
    /// `SecAuditLogParts`
    pub audit_log_parts: String,
    /// `SecAuditLog`
    pub audit_log: Option<String>,
    /// `SecAuditLogFormat JSON`
    pub audit_log_json: bool,
    /// `SecAuditLogType Concurrent`: one file for each entry
    pub audit_log_concurrent: bool,
    /// `SecAuditLogStorageDir`: folder of these files
    pub audit_log_folder: Option<String>,
    /// `SecAuditLogDirMode`: permissions of folders
    pub audit_log_folder_mode: u32,
    /// `SecAuditLogFileMode`: permissions of files
    pub audit_log_file_mode: u32,
    /// `SecDebugLog`
    pub debug_log: Option<String>,
    /// `SecDebugLogLevel`: 0 for no debug log
    pub debug_log_level: u8,
    /// `SecComponentSignature`
    pub component_signatures: Vec<String>,
    /// `SecUnicodeMapFile`
    pub(crate) unicode: Arc<UnicodeMap>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            engine: EngineMode::Off,
            request_body_access: false,
            request_body_limit: 13_107_200,
            request_body_no_files_limit: 131_072,
            request_body_limit_action: LimitAction::Reject,
            json_depth_limit: 512,
            arguments_limit: 100_000,
            inspection_limit: u64::MAX,
            inspection_limit_action: LimitAction::Reject,
            argument_separator: b'&',
            bare_argument: BareArgument::Name,
            upload_file_limit: 100,
            response_body_access: false,
            response_body_limit: 524_288,
            response_body_limit_action: LimitAction::ProcessPartial,
            response_body_mime_types: vec!["text/plain".into(), "text/html".into()],
            collection_timeout: 3600,
            web_app_id: "default".into(),
            audit_engine: AuditEngine::Off,
            audit_log_relevant_status: None,
            audit_log_parts: "ABCFHZ".into(),
            audit_log: None,
            audit_log_json: false,
            audit_log_concurrent: false,
            audit_log_folder: None,
            audit_log_folder_mode: 0o750,
            audit_log_file_mode: 0o640,
            debug_log: None,
            debug_log_level: 0,
            component_signatures: Vec::new(),
            unicode: Arc::default(),
        }
    }
}

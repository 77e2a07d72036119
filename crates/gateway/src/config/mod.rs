//! The configuration of a gateway: the validation of its file (`validate`) and the validated values.

mod networks;
mod pool;
mod read;
mod route;
mod serve;
mod settings;
mod template;
#[cfg(test)]
mod tests;
mod timeouts;
mod users;
mod validate;

use std::path::Path;

pub use tollgate_accesslog::{LogFormat, LogTarget};
pub use tollgate_config::ConfigError;
use tollgate_config::InvalidValue;
use tollgate_config::gateway::ConfigFile;
pub use tollgate_config::gateway::{
    AddressFamily, ContentCoding, ForwardedHeader, PathForm, ProxyVersion, Scheme,
};
use tollgate_config::serve::ServeFile;
pub use tollgate_firewall::Waf;
pub use tollgate_net::Address;

pub use crate::resolve::Resolve;
use crate::resolve::Resolver;
pub use networks::Networks;
pub use pool::{
    Backend, Balance, Ejection, HashBy, HealthCheck, HealthRequest, Pool, PoolId, Protocol,
};
pub use route::{
    Action, ClientLimits, Compression, Conditions, FixedResponse, Forwarded, Guard, HeaderEdits,
    HostPattern, Rate, Redirect, Requests, Route, Trust, TrustedProxies, ValueCondition,
};
pub(crate) use route::{CLIENT_DESCRIPTIONS, REQUEST_OVERRIDES, RouteId};
pub(crate) use serve::{ApiAddress, ApiKeys, Description, ExpectedResponses, ForwardAuth, Machine};
pub use serve::{LocalApi, Service, Spoe, Verdicts};
pub use settings::{AccessLog, Acme, AuditLog, Config, Limits, Listener, SpoeListener};
pub use template::Template;
pub(crate) use template::{Variable, Variables, written_request_id};
pub use timeouts::Timeouts;
pub(crate) use timeouts::Transfer;
pub use users::{BasicAuth, Users};
use validate::Validated;

impl Config {
    /// Reads a file, with its certificates and rules, and resolves its names. Blocks on the system's resolver if
    /// backends have names.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_with(path, Resolver::default())
    }

    /// Reads a file; `resolver` resolves its names.
    pub fn read_with(path: &Path, resolver: Resolver) -> Result<Self, ConfigError> {
        Self::parse_with(&read_text(path)?, path, resolver)
    }

    /// Reads the configuration of a gateway whose listeners give verdicts, with its rules.
    pub fn read_serve(path: &Path) -> Result<Self, ConfigError> {
        Self::parse_serve(&read_text(path)?, path)
    }

    /// Parses and validates the text of the file `path` as [`read_serve`](Self::read_serve) does.
    pub fn parse_serve(text: &str, path: &Path) -> Result<Self, ConfigError> {
        parse_file(text, path, ServeFile::parse, validate::serve::validate)
    }

    /// Parses and validates the text of the file `path`. Relative paths in it are resolved against the
    /// folder of `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_with(text, path, Resolver::default())
    }

    fn parse_with(text: &str, path: &Path, resolver: Resolver) -> Result<Self, ConfigError> {
        parse_file(text, path, ConfigFile::parse, |values, folder| {
            validate::validate(values, folder, resolver)
        })
    }
}

/// Parses the text of a file and validates its values.
fn parse_file<F>(
    text: &str,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<F, InvalidValue>,
    validate: impl FnOnce(&F, &Path) -> Validated,
) -> Result<Config, ConfigError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let file = path.display().to_string();
    let invalid = |invalid: InvalidValue| invalid.in_file(&file);
    let values = parse(text).map_err(invalid)?;
    let (mut config, warnings) = validate(&values, folder).map_err(|mut errors| {
        if errors.len() == 1 {
            return invalid(errors.remove(0));
        }
        ConfigError::Several(errors.into_iter().map(invalid).collect())
    })?;
    config.warnings = warnings.into_iter().map(|warning| invalid(warning).to_string()).collect();
    Ok(config)
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    read::text(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

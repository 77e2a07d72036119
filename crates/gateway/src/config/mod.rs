//! The configuration of a gateway: the file as written ([`file`]), its validation (`validate`) and the validated values.

mod error;
mod file;
mod located;
mod pool;
mod route;
mod settings;
#[cfg(test)]
mod tests;
mod timeouts;
mod validate;
mod waf;

use std::io::{self, Read as _};
use std::path::Path;

pub use tollgate_accesslog::{LogFormat, LogTarget};
pub use tollgate_net::Address;

use crate::resolve::Resolver;
pub use crate::resolve::{AddressFamily, Resolve};
pub use error::ConfigError;
use error::InvalidValue;
pub use pool::{
    Backend, Balance, Ejection, HashBy, HealthCheck, HealthRequest, Pool, PoolId, Protocol,
};
pub use route::{
    Action, FixedResponse, Forwarded, HeaderEdits, HostPattern, PathForm, Redirect, Requests,
    Route, Scheme,
};
pub(crate) use route::{CLIENT_DESCRIPTIONS, REQUEST_OVERRIDES, RouteId};
pub use settings::{AccessLog, Config, Limits, Listener};
pub use timeouts::Timeouts;
pub(crate) use timeouts::Transfer;
pub use waf::{AuditLog, Waf};

/// Larger configuration files are refused.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl Config {
    /// Reads a file, with its certificates and rules, and resolves its names. Blocks on the system's resolver if
    /// backends have names.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_with(path, Resolver::default())
    }

    /// Reads a file; `resolver` resolves its names.
    pub fn read_with(path: &Path, resolver: Resolver) -> Result<Self, ConfigError> {
        let text = read_text(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse_with(&text, path, resolver)
    }

    /// Parses and validates the text of the file `path`. Relative paths in it are resolved against the
    /// folder of `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_with(text, path, Resolver::default())
    }

    fn parse_with(text: &str, path: &Path, resolver: Resolver) -> Result<Self, ConfigError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let file = path.display().to_string();
        let invalid = |invalid: InvalidValue| invalid.in_file(&file);
        let values = serde_saphyr::from_str(text)
            .map_err(|error| invalid(InvalidValue::of_yaml(&error, text)))?;
        let validated = validate::validate(&values, folder, resolver);
        let (mut config, warnings) = validated.map_err(|mut errors| {
            if errors.len() == 1 {
                return invalid(errors.remove(0));
            }
            ConfigError::Several(errors.into_iter().map(invalid).collect())
        })?;
        config.warnings =
            warnings.into_iter().map(|warning| invalid(warning).to_string()).collect();
        Ok(config)
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 MiB"));
    }
    Ok(text)
}

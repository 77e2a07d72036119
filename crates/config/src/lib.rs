//! Configuration files as written: of `tollgate gateway`, of `tollgate waf serve`, and the `waf` block. Types with the place of each
//! value; gateway and firewall validate them.
//!
//! The derived code is large and runs at a start or a reload only, so the release profile does not optimise this crate. Functions for
//! requests are `#[inline]`.

mod error;
pub mod gateway;
mod located;
pub mod serve;
pub mod waf;

pub use error::{ConfigError, InvalidValue, chain, suggestion};
pub use located::{HumanDuration, Located};

use gateway::ConfigFile;
use serde::de::DeserializeOwned;
use serve::ServeFile;
use waf::WafFile;

impl ConfigFile {
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        from_yaml(text)
    }
}

impl ServeFile {
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        from_yaml(text)
    }
}

impl WafFile {
    pub fn parse(text: &str) -> Result<Located<Self>, InvalidValue> {
        from_yaml(text)
    }
}

/// Parses YAML, which JSON is, too.
fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<T, InvalidValue> {
    serde_saphyr::from_str(text).map_err(|error| InvalidValue::of_yaml(&error, text))
}

#[cfg(test)]
#[path = "../../../tests/schemas.rs"]
mod schemas;

#[cfg(test)]
mod tests {
    use schemars::generate::Contract;

    use super::{ConfigFile, ServeFile, schemas};

    #[test]
    fn committed_schema_matches_types() {
        schemas::check::<ConfigFile>("gateway", Contract::Deserialize);
        schemas::check::<ServeFile>("waf-serve", Contract::Deserialize);
    }
}

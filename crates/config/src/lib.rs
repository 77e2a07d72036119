//! The files that operators write: the configurations of `tollgate gateway` and `tollgate waf serve`, and the `waf` block. Their keys
//! as types, with the place of each value, from text. What they mean is checked where they are used.
//!
//! The code that is made for these types is large and runs once: this crate is not optimised.

mod error;
pub mod gateway;
mod located;
pub mod serve;
pub mod waf;

pub use error::{ConfigError, InvalidValue, suggestion};
pub use located::{HumanDuration, Located};

use gateway::ConfigFile;
use serve::ServeFile;
use waf::WafFile;

impl ConfigFile {
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        serde_saphyr::from_str(text).map_err(|error| InvalidValue::of_yaml(&error, text))
    }
}

impl ServeFile {
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        serde_saphyr::from_str(text).map_err(|error| InvalidValue::of_yaml(&error, text))
    }
}

impl WafFile {
    /// Parses YAML or JSON.
    pub fn parse(text: &str) -> Result<Located<Self>, InvalidValue> {
        serde_saphyr::from_str(text).map_err(|error| InvalidValue::of_yaml(&error, text))
    }
}

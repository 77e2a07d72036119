//! Data of experiments, from input to result: catalog, recipes, experiments, plan, records and run directory.

pub mod catalog;
pub mod experiment;
pub mod files;
pub mod machine;
pub mod manifest;
pub mod metric;
pub mod options;
pub mod plan;
pub mod recipe;
pub mod record;
pub mod run_dir;
pub mod stop;
pub mod toml_file;
pub mod units;
pub mod validity;
pub mod workload;

use std::error::Error;

/// Joins an error and all its sources into one line.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Nested(u32, Option<Box<Self>>);

    impl fmt::Display for Nested {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "step {}", self.0)
        }
    }

    impl Error for Nested {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self.1.as_deref()?)
        }
    }

    #[test]
    fn error_chain_lists_sources_from_the_outside_in() {
        let alone = Nested(3, None);
        assert_eq!(error_chain(&alone), "step 3");
        let nested = Nested(1, Some(Nested(2, Some(alone.into())).into()));
        assert_eq!(error_chain(&nested), "step 1: step 2: step 3");
    }
}

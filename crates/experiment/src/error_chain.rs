//! Errors as they are told where there is one line for each: in records, in reports and in lists.

use std::error::Error;

/// An error with all its causes, on one line.
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

    /// An error with as many causes as it says.
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
    fn an_error_is_told_with_every_cause_the_nearest_first() {
        let alone = Nested(3, None);
        assert_eq!(error_chain(&alone), "step 3");
        let nested = Nested(1, Some(Nested(2, Some(alone.into())).into()));
        assert_eq!(error_chain(&nested), "step 1: step 2: step 3");
    }
}

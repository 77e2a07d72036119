//! SecLang: the language of ModSecurity rules.

pub(crate) mod action;
pub(crate) mod directive;
pub(crate) mod lexer;
mod operator;
mod rule;
mod setting;
pub(crate) mod target;

use crate::error::{Fault, LoadError};

use lexer::{Argument, Directive};

fn at_name(directive: &Directive, message: String, unsupported: bool) -> LoadError {
    let place = directive.place();
    if unsupported {
        LoadError::Unsupported { place, message }
    } else {
        LoadError::Invalid { place, message }
    }
}

/// Adds the place of the argument to a fault.
pub(crate) fn at_argument<T>(
    directive: &Directive,
    argument: &Argument,
    result: Result<T, Fault>,
) -> Result<T, LoadError> {
    result.map_err(|fault| {
        let place = directive.place_in(argument, fault.offset);
        if fault.unsupported {
            LoadError::Unsupported { place, message: fault.message }
        } else {
            LoadError::Invalid { place, message: fault.message }
        }
    })
}

fn exactly<const N: usize>(directive: &Directive) -> Result<&[Argument; N], LoadError> {
    let arguments: &[Argument] = &directive.arguments;
    <&[Argument; N]>::try_from(arguments).map_err(|_error| {
        at_name(
            directive,
            format!(
                "{} needs {N} argument{}",
                directive.name.as_str(),
                if N == 1 { "" } else { "s" }
            ),
            false,
        )
    })
}

fn one(directive: &Directive) -> Result<&Argument, LoadError> {
    exactly::<1>(directive).map(|[argument]| argument)
}

//! Numbers and names of headers.

use std::fmt::Display;

use tollgate_config::{InvalidValue, Located};
use tollgate_http1::is_token;

pub fn number<'a, N: Copy + Ord + Display + 'a>(
    value: impl Into<Option<&'a Located<N>>>,
    low: N,
    high: Option<N>,
    default: N,
) -> Result<N, InvalidValue> {
    let Some(value) = value.into() else { return Ok(default) };
    if **value >= low && high.is_none_or(|high| **value <= high) {
        return Ok(**value);
    }
    let expected = match high {
        Some(high) => format!("{low} to {high}"),
        None => format!("{low} or more"),
    };
    Err(InvalidValue::at(value, format!("{} is out of range: expected {expected}", **value)))
}

pub fn check_header_name<T>(name: &str, at: &Located<T>) -> Result<(), InvalidValue> {
    if is_token(name.as_bytes()) {
        return Ok(());
    }
    Err(InvalidValue::at(at, format!("`{name}` is not a header name such as X-Served-By")))
}

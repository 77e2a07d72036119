//! Durations, addresses, paths and names.

use std::path::Path;
use std::time::Duration;

use tollgate_accesslog::{LogTarget, SyslogAddress};
use tollgate_config::{HumanDuration, InvalidValue, Located};
use tollgate_net::Address;

use crate::config::networks::{Networks, network};

const DURATION_MIN: Duration = Duration::from_millis(1);
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest path of a Unix domain socket, without the final NUL (`unix(7)`).
const SOCKET_PATH_BYTES_MAX: usize = 107;

pub(super) fn address(text: &Located<String>, folder: &Path) -> Result<Address, InvalidValue> {
    let address = text.parse().map_err(|error| {
        InvalidValue::at(text, format!("`{}` is not an address: {error}", **text))
    })?;
    let Address::Unix(path) = address else {
        return Ok(address);
    };
    let path = folder.join(path);
    let path_bytes = path.as_os_str().len();
    if path_bytes > SOCKET_PATH_BYTES_MAX {
        let message = format!(
            "the socket path `{}` has {path_bytes} bytes, more than {SOCKET_PATH_BYTES_MAX}; choose a shorter one",
            path.display(),
        );
        return Err(InvalidValue::at(text, message));
    }
    Ok(Address::Unix(path))
}

pub(super) fn networks(texts: &[Located<String>]) -> Result<Networks, InvalidValue> {
    let network = |text: &Located<String>| {
        network(text).ok_or_else(|| {
            let message = format!(
                "`{}` is not an IP address or a network such as 10.0.0.0/8 or 2001:db8::/32",
                **text
            );
            InvalidValue::at(text, message)
        })
    };
    texts.iter().map(network).collect()
}

pub(super) fn log_target(to: &Located<String>, folder: &Path) -> Result<LogTarget, InvalidValue> {
    match to.as_str() {
        "" => Err(InvalidValue::at(to, "`to` is empty; name a file or `stdout`")),
        "stdout" => Ok(LogTarget::Stdout),
        text => match text.strip_prefix("syslog:") {
            Some(address) => {
                SyslogAddress::parse(address).map(LogTarget::Syslog).ok_or_else(|| {
                    let message = format!(
                        "`{text}` is not a syslog such as syslog:/dev/log or syslog:192.0.2.1:514"
                    );
                    InvalidValue::at(to, message)
                })
            }
            None => Ok(LogTarget::File(folder.join(text))),
        },
    }
}

pub(super) fn duplicate(
    kind: &str,
    value: &Located<String>,
    first: &Located<String>,
    advice: &str,
) -> InvalidValue {
    let (name, line) = (&**value, first.line());
    InvalidValue::at(value, format!("duplicate {kind} `{name}`, first in line {line}; {advice}"))
}

pub(super) fn duration(
    value: &Option<Located<HumanDuration>>,
    default: Duration,
) -> Result<Duration, InvalidValue> {
    match value {
        Some(value) if !(DURATION_MIN..=DURATION_MAX).contains(&value.0.value.0) => {
            let message = format!("`{}` is out of range: expected 1ms to 24h", **value);
            Err(InvalidValue::at(value, message))
        }
        value => Ok(value.as_ref().map_or(default, |value| value.0.value.0)),
    }
}

/// A path that can be sent as a request target, without these characters.
pub(super) fn path(text: &Located<String>, forbidden: &str) -> Result<String, InvalidValue> {
    let is_allowed = |c: char| c.is_ascii_graphic() && !forbidden.contains(c);
    if text.starts_with('/') && text.chars().all(is_allowed) {
        return Ok((**text).clone());
    }
    let forbidden: String = forbidden.chars().map(|c| format!("{c}, ")).collect();
    let message = format!(
        "`{}` is not a path: it must begin with / and contain no {forbidden}spaces or control characters",
        **text
    );
    Err(InvalidValue::at(text, message))
}

//! Basic authentication (RFC 7617): the credentials of a request, and their checks.

use std::fmt;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tollgate_http1::Headers;

use crate::checks::{Answer, Bounds, CheckCounters, Checks};
use crate::config::{BasicAuth, Users};

/// Time for which a wrong password is not checked again.
const INVALID_TIME: Duration = Duration::from_secs(1);
/// Most passwords that are checked, or remembered as wrong: few, as a check can take a second of CPU.
const OTHERS_MAX: usize = 16;
/// Most of them that are checked for one client at a time.
const PER_CLIENT_MAX: usize = 4;
/// Most threads for checks, and the CPUs for which there is one.
const THREADS_MAX: usize = 4;
const CPUS_PER_THREAD: usize = 4;
/// Longest value of `Authorization`.
const VALUE_BYTES_MAX: usize = 1024;
/// Longest password: SHA-crypt takes time in proportion to it.
const PASSWORD_BYTES_MAX: usize = 128;

/// User and password of a request.
#[derive(PartialEq, Eq)]
pub(crate) struct Credentials {
    /// With a colon between them.
    text: String,
    user_bytes: usize,
}

/// Without the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user()).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Parses the only `Authorization` header. `None`: there are several, or it is not valid.
    pub(crate) fn of(headers: Headers<'_>) -> Option<Self> {
        let is_authorization =
            |(name, _): &(&str, &[u8])| name.eq_ignore_ascii_case("authorization");
        let mut values = headers.iter().filter(is_authorization).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value),
            _ => None,
        }
    }

    fn parse(value: &[u8]) -> Option<Self> {
        if value.len() > VALUE_BYTES_MAX {
            return None;
        }
        let (scheme, encoded) = value.split_at_checked("Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let decoded = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let user_bytes = text.find(':')?;
        let is_long = text.len() - user_bytes > PASSWORD_BYTES_MAX + 1;
        (!is_long && !text.chars().any(char::is_control)).then_some(Self { text, user_bytes })
    }

    /// User and password.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn user(&self) -> &str {
        &self.text[..self.user_bytes]
    }
}

/// Checks of the passwords of users.
#[derive(Debug)]
pub(crate) struct PasswordChecks {
    pub(crate) users: Arc<Users>,
    pub(crate) checks: Arc<Checks>,
}

impl PasswordChecks {
    pub(crate) fn new(users: &Arc<Users>, counters: &Arc<CheckCounters>) -> Self {
        let cpus = available_parallelism().map_or(1, usize::from);
        let threads = (cpus / CPUS_PER_THREAD).clamp(1, THREADS_MAX);
        let (users, counted) = (Arc::clone(users), Arc::clone(counters));
        let known = Arc::clone(&users);
        let check = move |credentials: &str| {
            let is_known = credentials
                .split_once(':')
                .is_some_and(|(user, password)| known.verify(user, password));
            if is_known { Answer::Valid } else { Answer::Invalid }
        };
        let bounds = Bounds {
            // A reload with other users forgets it.
            valid_time: None,
            // A user has one password.
            valid_max: users.count(),
            invalid_time: INVALID_TIME,
            others_max: OTHERS_MAX,
            per_client_max: PER_CLIENT_MAX,
            threads,
        };
        let checks = Checks::new("passwords", bounds, counted, check);
        Self { users, checks: Arc::new(checks) }
    }
}

/// Value of `WWW-Authenticate`.
pub(crate) fn challenge(auth: &BasicAuth) -> String {
    format!("Basic realm=\"{}\", charset=\"UTF-8\"", auth.realm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_user_and_password() {
        let parts = |value: &str| {
            let credentials = Credentials::parse(value.as_bytes())?;
            Some((credentials.user().to_owned(), credentials.text().to_owned()))
        };
        let some = |user: &str, text: &str| Some((user.to_owned(), text.to_owned()));
        // RFC 7617, sections 2 and 2.1.
        let expected = some("Aladdin", "Aladdin:open sesame");
        assert_eq!(parts("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), expected);
        assert_eq!(parts("Basic dGVzdDoxMjPCow=="), some("test", "test:123\u{a3}"));
        assert_eq!(parts("bAsIc  QWxhZGRpbjpvcGVuIHNlc2FtZQ== "), expected);
        assert_eq!(parts("Basic Og=="), some("", ":"));
        assert_eq!(parts("Basic YTpiOmM="), some("a", "a:b:c"));
        let password = |bytes| {
            format!("Basic {}", BASE64_STANDARD.encode("a:".to_owned() + &"b".repeat(bytes)))
        };
        assert!(parts(&password(128)).is_some());
        let (long, longer) = (password(129), password(1024));
        for other in [
            "",
            "Basic",
            "Basic ",
            "BasicQWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ",
            "Basic QWxhZGRpbg==",
            "Basic *",
            // A byte that is not UTF-8, and a line feed.
            "Basic Ojr/",
            "Basic YTpiCg==",
            &long,
            &longer,
        ] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}

//! Users and hashes of their passwords, as `htpasswd` writes them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use bcrypt::HashParts;
use sha_crypt::{PasswordVerifier as _, ShaCrypt};

/// Costs of hashes. With the highest, a check takes about a second; lower ones are not valid.
const BCRYPT_COSTS: RangeInclusive<u32> = 4..=14;
const SHA_CRYPT_ROUNDS: RangeInclusive<u32> = 1_000..=1_000_000;
/// Of a password with bcrypt, which ignores further ones: a longer password is refused.
const BCRYPT_BYTES_MAX: usize = 72;
const SHA_CRYPT_SALT_MAX: usize = 16;

/// Authentication by user and password (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// A quoted string for it needs no escapes.
    pub realm: String,
    pub users: Arc<Users>,
}

/// The users of a file.
#[derive(PartialEq, Eq)]
pub struct Users(BTreeMap<String, PasswordHash>);

/// Without the hashes.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(PartialEq, Eq)]
enum PasswordHash {
    Bcrypt(String),
    /// With SHA-256 or SHA-512, as `crypt` has them.
    ShaCrypt(String),
}

/// Error in a line of a file of users.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(super) struct InvalidUser {
    line: usize,
    reason: &'static str,
}

impl Users {
    /// Parses a file with `user:hash` in each line. Empty lines and those that begin with `#` are skipped.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidUser> {
        let mut users = BTreeMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let invalid = |reason| InvalidUser { line, reason };
            let (user, rest) =
                text.split_once(':').ok_or_else(|| invalid("expected `user:hash`"))?;
            // Some files have a comment behind a second colon.
            let hash = rest.split(':').next().unwrap_or_default();
            let is_invisible = |char: char| char.is_control() || char == '\u{feff}';
            if user.is_empty() || user.chars().any(is_invisible) {
                return Err(invalid("the name of the user is empty or has invisible characters"));
            }
            let hash = PasswordHash::parse(hash).map_err(invalid)?;
            if users.insert(user.to_owned(), hash).is_some() {
                return Err(invalid("this user is in an earlier line, too"));
            }
        }
        if users.is_empty() {
            return Err(InvalidUser { line: 1, reason: "there is no user" });
        }
        Ok(Self(users))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// True if the user has this password. Takes as long for an unknown user as for the first one.
    pub(crate) fn verify(&self, user: &str, password: &str) -> bool {
        let known = self.0.get(user);
        let Some(hash) = known.or_else(|| self.0.values().next()) else { return false };
        hash.verify(password) && known.is_some()
    }
}

impl PasswordHash {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if ["$2a$", "$2b$", "$2y$"].iter().any(|kind| text.starts_with(kind)) {
            let Ok(hash) = HashParts::from_str(text) else {
                return Err("the hash of bcrypt is not valid");
            };
            if !BCRYPT_COSTS.contains(&hash.get_cost()) {
                return Err("the cost of bcrypt is not from 4 to 14");
            }
            return Ok(Self::Bcrypt(text.to_owned()));
        }
        let (rest, hash_chars) = match (text.strip_prefix("$5$"), text.strip_prefix("$6$")) {
            (Some(rest), _) => (rest, 43),
            (_, Some(rest)) => (rest, 86),
            (None, None) => {
                return Err(
                    "the hash is neither of bcrypt nor of SHA-crypt, and other kinds are too weak; set the password again with \
                     `htpasswd -B -C 12`, or `openssl passwd -6`",
                );
            }
        };
        let mut parts: Vec<&str> = rest.split('$').collect();
        if let Some(rounds) = parts[0].strip_prefix("rounds=") {
            if !rounds.parse().is_ok_and(|rounds: u32| SHA_CRYPT_ROUNDS.contains(&rounds)) {
                return Err("the rounds of SHA-crypt are not a number from 1000 to 1000000");
            }
            parts.remove(0);
        }
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"./".contains(&byte);
        match parts[..] {
            [salt, hash]
                if (1..=SHA_CRYPT_SALT_MAX).contains(&salt.len())
                    && hash.len() == hash_chars
                    && [salt, hash].iter().all(|part| part.bytes().all(is_digit)) =>
            {
                Ok(Self::ShaCrypt(text.to_owned()))
            }
            _ => Err("the hash of SHA-crypt is not valid"),
        }
    }

    /// Takes milliseconds to a second, by the cost of the hash.
    fn verify(&self, password: &str) -> bool {
        match self {
            // The hash was checked, so there is no other error than a NUL in the password.
            Self::Bcrypt(hash) => {
                password.len() <= BCRYPT_BYTES_MAX
                    && bcrypt::verify(password, hash).unwrap_or(false)
            }
            Self::ShaCrypt(hash) => {
                ShaCrypt::default().verify_password(password.as_bytes(), &**hash).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `open sesame`, of `crypt` with bcrypt, and of `openssl passwd -5` and `-6`.
    const FILE: &str = "# staff\n\
        ann:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy\n\
        \n\
        bob:$5$saltsalt$yrhPKxCqiWcCE9h0g86j6Ugz7SDFdFm.BjU.d8RaQnC:Bob of the office\n\
        cy:$6$saltsalt$e/5XKibXPLqVcfjpD.ouauaJrAOL5V0uo80Lt7n7EbRdRiCx3HbQ90yjOHr.G0T.mx79PEMRy8nmtr0qSYhQp1\n";

    #[test]
    fn passwords_of_each_kind_are_verified() {
        let users = Users::parse(FILE).unwrap();
        for user in ["ann", "bob", "cy"] {
            assert!(users.verify(user, "open sesame"), "{user}");
            let long = "open sesame".to_owned() + &"a".repeat(100);
            for other in ["", "open", "open sesame ", "Open sesame", &long] {
                assert!(!users.verify(user, other), "{user}: {other}");
            }
        }
        // The hash of the first user is not that of others.
        for other in ["", "dan", "Ann", "ann:", "ann "] {
            assert!(!users.verify(other, "open sesame"), "{other}");
        }
    }

    #[test]
    fn lines_that_are_no_users_are_errors() {
        let valid = FILE.lines().nth(1).unwrap();
        for (text, line, part) in [
            ("ann", 1, "expected `user:hash`"),
            (":$2y$", 1, "is empty"),
            ("a\tb:$2y$", 1, "invisible characters"),
            ("# none\n", 1, "no user"),
            ("\nann:$2y$04$abc", 2, "bcrypt is not valid"),
            ("\u{feff}ann:$2y$", 1, "invisible characters"),
            ("ann:$2y$03$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy", 1, "from 4 to 14"),
            ("ann:$2y$15$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy", 1, "from 4 to 14"),
            ("ann:$6$rounds=999$salt$x", 1, "from 1000 to"),
            ("ann:$6$rounds=1000001$salt$x", 1, "from 1000 to"),
            ("ann:$6$rounds=many$salt$x", 1, "not a number"),
            ("ann:$6$salt", 1, "SHA-crypt is not valid"),
            (&format!("ann:$6$${}", "a".repeat(86)), 1, "SHA-crypt is not valid"),
            (&format!("ann:$6$salt${}", "a".repeat(43)), 1, "SHA-crypt is not valid"),
            (&format!("ann:$5$salt${}!", "a".repeat(42)), 1, "SHA-crypt is not valid"),
            ("ann:$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00", 1, "set the password again"),
            ("ann:secret", 1, "set the password again"),
            (&format!("{valid}\n{valid}"), 2, "earlier line"),
        ] {
            let error = Users::parse(text).unwrap_err();
            assert!(error.line == line && error.reason.contains(part), "{text}: {error}");
        }
    }
}

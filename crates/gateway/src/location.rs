//! `Location` of a backend that does not know the URLs of its clients.

use std::collections::BTreeSet;

use crate::path::has_prefix;

/// URLs of the backends of a route, and what takes their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationRewrite {
    /// Hosts and ports of the backends, in lower case.
    pub(crate) authorities: BTreeSet<String>,
    /// Prefix of a path that becomes the other one.
    pub(crate) prefixes: Option<(String, String)>,
}

impl LocationRewrite {
    /// Returns the path for the client in place of a URL of a backend, or of a path with the prefix that backends get. `None`: the
    /// value is another one.
    pub(crate) fn apply(&self, value: &[u8]) -> Option<String> {
        // Browsers drop tabs, which could bring two slashes together.
        let value = str::from_utf8(value).ok().filter(|value| !value.contains(is_dropped))?;
        let path = match split_origin(value) {
            Some((authority, path)) => {
                if !self.authorities.contains(&authority) {
                    return None;
                }
                path
            }
            None => {
                let rest = value.strip_prefix('/')?;
                return self.with_prefix(value).filter(|_| !rest.starts_with(['/', '\\']));
            }
        };
        // Two slashes, which browsers see in `\` too, would begin a host.
        let path = format!("/{}", path.trim_start_matches(['/', '\\']));
        Some(self.with_prefix(&path).unwrap_or(path))
    }

    /// The path with the prefix for clients, if it has that for backends.
    fn with_prefix(&self, path: &str) -> Option<String> {
        let (of_backend, of_client) = self.prefixes.as_ref()?;
        let end = path.find(['?', '#']).unwrap_or(path.len());
        if !has_prefix(&path[..end], of_backend) {
            return None;
        }
        let rest = path[of_backend.trim_end_matches('/').len()..].trim_start_matches(['/', '\\']);
        let separator = if rest.is_empty() || rest.starts_with(['?', '#']) { "" } else { "/" };
        let prefix = of_client.trim_end_matches('/');
        let separator = if prefix.is_empty() { "/" } else { separator };
        Some(format!("{prefix}{separator}{rest}"))
    }
}

fn is_dropped(character: char) -> bool {
    character.is_ascii_control() || character == ' '
}

/// Splits a URL into its host with a port, in lower case, and the rest.
fn split_origin(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let default_port = match scheme {
        _ if scheme.eq_ignore_ascii_case("http") => 80,
        _ if scheme.eq_ignore_ascii_case("https") => 443,
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
    let mut authority = authority.to_ascii_lowercase();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if !has_port {
        authority = format!("{authority}:{default_port}");
    }
    Some((authority, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_backends_become_paths_of_clients() {
        let rewrite = |prefixes: Option<(&str, &str)>| LocationRewrite {
            authorities: ["10.0.0.1:8000", "b.example:80", "[::1]:443"].map(str::to_owned).into(),
            prefixes: prefixes.map(|(from, to)| (from.to_owned(), to.to_owned())),
        };
        let plain = rewrite(None);
        let api = rewrite(Some(("/v1", "/api")));
        let root = rewrite(Some(("/", "/app")));
        let to_root = rewrite(Some(("/v1/", "/")));
        for (rewrite, received, expected) in [
            (&plain, "http://10.0.0.1:8000/x?y=1#z", Some("/x?y=1#z")),
            (&plain, "HTTPS://10.0.0.1:8000", Some("/")),
            (&plain, "http://B.example/x", Some("/x")),
            (&plain, "http://b.example?q", Some("/?q")),
            (&plain, "https://b.example/x", None),
            (&plain, "https://[::1]/x", Some("/x")),
            (&plain, "http://10.0.0.1/x", None),
            (&plain, "http://user@b.example/x", None),
            (&plain, "http://b.example.org/x", None),
            (&plain, "ftp://b.example:80/x", None),
            (&plain, "/x", None),
            (&plain, "x", None),
            (&plain, "//b.example/x", None),
            // None leads to another host.
            (&plain, "http://b.example//evil.example", Some("/evil.example")),
            (&plain, r"http://b.example/\evil.example", Some("/evil.example")),
            (&plain, r"http://b.example\/evil.example", Some("/evil.example")),
            (&plain, "http://b.example/\t/evil.example", None),
            (&to_root, "/v1//evil.example", Some("/evil.example")),
            (&to_root, r"/v1/\evil.example", Some("/evil.example")),
            (&api, "/v1/cart?a=/v1", Some("/api/cart?a=/v1")),
            (&api, "/v1", Some("/api")),
            (&api, "/v1?a", Some("/api?a")),
            (&api, "/v10", None),
            (&api, "/other", None),
            (&api, "http://b.example/v1/cart", Some("/api/cart")),
            (&api, "http://b.example/other", Some("/other")),
            (&root, "/login", Some("/app/login")),
            (&root, "/", Some("/app")),
            (&to_root, "/v1/x", Some("/x")),
            (&to_root, "//v1/x", None),
        ] {
            assert_eq!(rewrite.apply(received.as_bytes()).as_deref(), expected, "{received}");
        }
    }
}

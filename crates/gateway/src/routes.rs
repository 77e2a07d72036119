//! Which route a request takes: the most exact host first, then the longest path.

use std::collections::HashMap;

use crate::config::{HostPattern, Route};
use crate::path::{is_plain, readings};

/// A route, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) usize);

/// All routes, sorted once, so that each request finds its own soon.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    exact: HashMap<String, Paths>,
    /// The longest host first.
    below: Vec<(String, Paths)>,
    any: Paths,
}

/// A path can be read in two ways that have different routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousPath;

/// The longest name of a host (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 255;

/// The routes of one host, the longest path first.
#[derive(Clone, Debug, Default)]
struct Paths(Vec<(String, RouteId)>);

impl Routes {
    /// The routes of a configuration.
    #[must_use]
    pub(crate) fn new(routes: &[Route]) -> Self {
        let mut all = Self { exact: HashMap::new(), below: Vec::new(), any: Paths::default() };
        for (at, route) in routes.iter().enumerate() {
            let paths = match &route.host {
                HostPattern::Any => &mut all.any,
                HostPattern::Exact(host) => all.exact.entry(host.clone()).or_default(),
                HostPattern::Below(host) => all.below(host),
            };
            paths.0.push((route.path_prefix.clone(), RouteId(at)));
        }
        all.below.sort_by_key(|(host, _)| std::cmp::Reverse(host.len()));
        let of_hosts = all.below.iter_mut().map(|(_, paths)| paths);
        for paths in of_hosts.chain(all.exact.values_mut()).chain([&mut all.any]) {
            paths.0.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        }
        all
    }

    /// The route of a request to this host, which may have a port, for this path, which may have a
    /// query, in whatever way it is spelt. A host that has no route for the path leaves it to the less
    /// exact ones.
    ///
    /// # Errors
    ///
    /// Of two backends that read the path in different ways, each would see one that has another route.
    pub(crate) fn route(
        &self,
        host: Option<&str>,
        path: &str,
    ) -> Result<Option<RouteId>, AmbiguousPath> {
        let path = path.split('?').next().unwrap_or_default();
        if is_plain(path) {
            return Ok(self.find(host, path));
        }
        let mut routes = readings(path).map(|path| self.find(host, &path));
        let route = routes.next().flatten();
        if routes.all(|other| other == route) { Ok(route) } else { Err(AmbiguousPath) }
    }

    /// The route of a path that is read in one way, without its query.
    fn find(&self, host: Option<&str>, path: &str) -> Option<RouteId> {
        if !self.exact.is_empty() || !self.below.is_empty() {
            let found = host.and_then(|host| self.find_by_host(host, path));
            if found.is_some() {
                return found;
            }
        }
        self.any.find(path)
    }

    fn find_by_host(&self, host: &str, path: &str) -> Option<RouteId> {
        let host = without_port(host);
        let mut lower = [0; HOST_BYTES_MAX];
        let lower = lower.get_mut(..host.len())?;
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        // ASCII letters were changed into others, so that it is still a text.
        let host = std::str::from_utf8(lower).ok()?;
        let exact = self.exact.get(host).and_then(|paths| paths.find(path));
        exact.or_else(|| {
            let mut below = self.below.iter().filter(|(above, _)| is_below(host, above));
            below.find_map(|(_, paths)| paths.find(path))
        })
    }

    fn below(&mut self, host: &str) -> &mut Paths {
        let at = self.below.iter().position(|(other, _)| other == host).unwrap_or_else(|| {
            self.below.push((host.to_owned(), Paths::default()));
            self.below.len() - 1
        });
        &mut self.below[at].1
    }
}

impl Paths {
    fn find(&self, path: &str) -> Option<RouteId> {
        self.0.iter().find(|(prefix, _)| begins_with(path, prefix)).map(|(_, route)| *route)
    }
}

/// Whether a path begins with these segments. What is no path, as the `*` of OPTIONS, begins with `/`
/// alone.
fn begins_with(path: &str, prefix: &str) -> bool {
    if prefix == "/" {
        return true;
    }
    let Some(rest) = path.strip_prefix(prefix) else {
        return false;
    };
    prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')
}

/// Whether the host is one below another: has labels before it.
fn is_below(host: &str, above: &str) -> bool {
    let labels = host.strip_suffix(above).and_then(|labels| labels.strip_suffix('.'));
    labels.is_some_and(|labels| !labels.is_empty())
}

/// A host without the port behind it, and without the dot that a full name may end with.
fn without_port(host: &str) -> &str {
    // The colons of an IPv6 address stand in brackets.
    let name_end = host.rfind(']').map_or(0, |at| at + 1);
    let host = host[name_end..].find(':').map_or(host, |at| &host[..name_end + at]);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolId;

    fn routes(of: &[(HostPattern, &str)]) -> Routes {
        let routes: Vec<Route> = of
            .iter()
            .map(|(host, path)| Route {
                host: host.clone(),
                path_prefix: (*path).to_owned(),
                ..Route::all_to(PoolId(0))
            })
            .collect();
        Routes::new(&routes)
    }

    fn exact(host: &str) -> HostPattern {
        HostPattern::Exact(host.to_owned())
    }

    fn below(host: &str) -> HostPattern {
        HostPattern::Below(host.to_owned())
    }

    #[test]
    fn the_longest_path_wins_in_whole_segments() {
        let routes = routes(&[
            (HostPattern::Any, "/"),
            (HostPattern::Any, "/shop"),
            (HostPattern::Any, "/shop/cart/"),
        ]);
        for (path, route) in [
            ("/", 0),
            ("/shopping", 0),
            ("/Shop", 0),
            ("*", 0),
            ("", 0),
            ("/?a=/shop", 0),
            ("/shop", 1),
            ("/shop/", 1),
            ("/shop?page=2", 1),
            ("/shop/cart", 1),
            ("/shop/cart/", 2),
            ("/shop/cart/1", 2),
        ] {
            assert_eq!(routes.route(None, path), Ok(Some(RouteId(route))), "{path}");
        }
    }

    #[test]
    fn the_most_exact_host_wins_that_has_the_path() {
        let routes = routes(&[
            (below("example.org"), "/"),
            (below("a.example.org"), "/"),
            (exact("www.example.org"), "/only"),
            (HostPattern::Any, "/any"),
            (exact("[::1]"), "/"),
        ]);
        for (host, path, route) in [
            ("www.example.org", "/only", Some(2)),
            ("WWW.Example.ORG:8080", "/only/this", Some(2)),
            ("www.example.org.", "/only", Some(2)),
            ("www.example.org", "/other", Some(0)),
            ("b.a.example.org", "/", Some(1)),
            ("a.example.org", "/", Some(0)),
            ("[::1]:80", "/", Some(4)),
            ("[::1]", "/", Some(4)),
            // Not below itself, nor is what only ends alike.
            ("example.org", "/", None),
            (".example.org", "/", None),
            ("notexample.org", "/", None),
            ("example.org", "/any", Some(3)),
        ] {
            assert_eq!(routes.route(Some(host), path), Ok(route.map(RouteId)), "{host}{path}");
        }
        assert_eq!(routes.route(None, "/only"), Ok(None));
        assert_eq!(routes.route(None, "/any"), Ok(Some(RouteId(3))));
        let long = format!("{}.example.org", "a".repeat(HOST_BYTES_MAX));
        assert_eq!(routes.route(Some(&long), "/"), Ok(None));
    }

    #[test]
    fn no_spelling_leads_past_a_route() {
        let routes = routes(&[
            (HostPattern::Any, "/"),
            (HostPattern::Any, "/admin"),
            (HostPattern::Any, "/admin/open/"),
        ]);
        for (path, route) in [
            ("/%61dmin", 1),
            ("/%41dmin", 0),
            ("//admin/x", 1),
            ("/./admin", 1),
            ("/x/../admin?y=/../", 1),
            ("/x/%2e%2E/%61%64%6d%69%6e/", 1),
            ("/admin/open/../x", 1),
            ("/admin/%6fpen/x", 2),
            ("/admin/../x", 0),
            ("/x?/admin", 0),
            ("/x?a=%2F..%2Fadmin", 0),
            ("/admin%3Fx", 0),
            // Whoever takes the escape for a slash has the same route.
            ("/x%2Fy", 0),
            ("/admin/x%2Fy;z", 1),
            ("/%2561dmin", 0),
        ] {
            assert_eq!(routes.route(None, path), Ok(Some(RouteId(route))), "{path}");
        }
        for path in [
            "/x/..%2fadmin",
            "/x%2F..%2Fadmin",
            "/%2fadmin",
            "/admin%2fx",
            r"/x\..\admin",
            "/x/..;/admin",
            "/admin;/x",
            "/x/%2e%2e;a=b/admin",
            "/admin/open/..%2fx",
            "/admin/open/..;/x",
            "/x//../admin/../admin//../../admin",
        ] {
            assert_eq!(routes.route(None, path), Err(AmbiguousPath), "{path}");
        }
        // Where there is one route, there is nothing to be led past.
        let one = self::routes(&[(HostPattern::Any, "/")]);
        assert_eq!(one.route(None, "/x/..%2f..;/%2e%2e//etc"), Ok(Some(RouteId(0))));
    }
}

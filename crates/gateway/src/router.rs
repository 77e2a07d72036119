//! Selects the route of a request: the most specific host first, then the longest path.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use crate::config::{HostPattern, PathForm, Route, RouteId};
use crate::path::{has_prefix, is_plain, resolved};
use crate::readings::{AmbiguousPath, PrefixTree, decodings};

/// Routes, sorted for lookup.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    exact: HashMap<String, PathRoutes>,
    /// Longest host first.
    below: Vec<(String, PathRoutes)>,
    any: PathRoutes,
    path_form: PathForm,
    /// For each route, those of the same host and path with conditions, in their order.
    conditional: Vec<Vec<RouteId>>,
}

/// Longest host name (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 255;

/// Routes of one host by path prefix.
#[derive(Clone, Debug, Default)]
struct PathRoutes {
    /// Longest prefix first.
    sorted: Vec<(String, RouteId)>,
    tree: PrefixTree,
}

impl Router {
    /// `path_form` is the form of the path that backends get.
    pub(crate) fn new(routes: &[Route], path_form: PathForm) -> Self {
        let mut router = Self {
            exact: HashMap::new(),
            below: Vec::new(),
            any: PathRoutes::default(),
            path_form,
            conditional: routes.iter().map(|route| conditional(route, routes)).collect(),
        };
        for (at, route) in routes.iter().enumerate().filter(|(_, route)| route.when.is_none()) {
            let paths = match &route.host {
                HostPattern::Any => &mut router.any,
                HostPattern::Exact(host) => router.exact.entry(host.clone()).or_default(),
                HostPattern::Below(host) => router.below(host),
            };
            paths.sorted.push((route.path_prefix.clone(), RouteId(at)));
        }
        router.below.sort_by_key(|(host, _)| Reverse(host.len()));
        let below = router.below.iter_mut().map(|(_, paths)| paths);
        for paths in below.chain(router.exact.values_mut()).chain([&mut router.any]) {
            paths.sorted.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
            paths.tree = PrefixTree::new(&paths.sorted);
        }
        router
    }

    /// The routes with conditions that precede this one for its requests.
    pub(crate) fn conditional(&self, route: RouteId) -> &[RouteId] {
        &self.conditional[route.0]
    }

    /// Finds the route of a request without conditions by its host, with or without a port, and its path, with or without a query.
    /// If the most specific host has no route for the path, the next one is tried.
    pub(crate) fn route(
        &self,
        host: Option<&str>,
        path: &str,
    ) -> Result<Option<RouteId>, AmbiguousPath> {
        let path = path.split('?').next().unwrap_or_default();
        // The backend gets this path.
        let path = match self.path_form {
            PathForm::Resolved => resolved(path),
            PathForm::Raw => Cow::Borrowed(path),
        };
        let literal = |paths: &PathRoutes| paths.find(&path);
        if is_plain(&path) {
            return Ok(self.first(host, literal));
        }
        let decodings = decodings(&path);
        let read = |paths: &PathRoutes| paths.tree.find(&decodings).transpose();
        let route = self.first(host, read).transpose()?;
        // A backend may compare a raw path as it is.
        if self.path_form == PathForm::Raw && self.first(host, literal) != route {
            return Err(AmbiguousPath);
        }
        Ok(route)
    }

    /// Returns what `find` finds among the routes of the most specific host, or else of the next one.
    fn first<T>(
        &self,
        host: Option<&str>,
        mut find: impl FnMut(&PathRoutes) -> Option<T>,
    ) -> Option<T> {
        if !self.exact.is_empty() || !self.below.is_empty() {
            let found = host.and_then(|host| self.first_of_host(host, &mut find));
            if found.is_some() {
                return found;
            }
        }
        find(&self.any)
    }

    fn first_of_host<T>(
        &self,
        host: &str,
        mut find: impl FnMut(&PathRoutes) -> Option<T>,
    ) -> Option<T> {
        let host = without_port(host);
        let mut lower = [0; HOST_BYTES_MAX];
        let lower = lower.get_mut(..host.len())?;
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let host = std::str::from_utf8(lower).ok()?;
        let found = self.exact.get(host).and_then(&mut find);
        found.or_else(|| {
            let mut below = self.below.iter().filter(|(parent, _)| is_subdomain(host, parent));
            below.find_map(|(_, paths)| find(paths))
        })
    }

    fn below(&mut self, host: &str) -> &mut PathRoutes {
        let at = self.below.iter().position(|(other, _)| other == host).unwrap_or_else(|| {
            self.below.push((host.to_owned(), PathRoutes::default()));
            self.below.len() - 1
        });
        &mut self.below[at].1
    }
}

fn conditional(of: &Route, routes: &[Route]) -> Vec<RouteId> {
    let is_conditional = |(_, route): &(usize, &Route)| {
        route.when.is_some() && (&route.host, &route.path_prefix) == (&of.host, &of.path_prefix)
    };
    routes.iter().enumerate().filter(is_conditional).map(|(at, _)| RouteId(at)).collect()
}

impl PathRoutes {
    fn find(&self, path: &str) -> Option<RouteId> {
        self.sorted.iter().find(|(prefix, _)| has_prefix(path, prefix)).map(|(_, route)| *route)
    }
}

fn is_subdomain(host: &str, parent: &str) -> bool {
    let labels = host.strip_suffix(parent).and_then(|labels| labels.strip_suffix('.'));
    labels.is_some_and(|labels| !labels.is_empty())
}

/// Removes the port and the final dot of an absolute name.
pub(crate) fn without_port(host: &str) -> &str {
    // The colons of an IPv6 address are in brackets.
    let name_end = host.rfind(']').map_or(0, |at| at + 1);
    let host = host[name_end..].find(':').map_or(host, |at| &host[..name_end + at]);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolId;

    fn router(routes: &[(HostPattern, &str)]) -> Router {
        router_of(routes, PathForm::Resolved)
    }

    fn router_of(routes: &[(HostPattern, &str)], path_form: PathForm) -> Router {
        let routes: Vec<Route> = routes
            .iter()
            .map(|(host, path)| Route {
                host: host.clone(),
                path_prefix: (*path).to_owned(),
                ..Route::all_to(PoolId(0))
            })
            .collect();
        Router::new(&routes, path_form)
    }

    fn exact(host: &str) -> HostPattern {
        HostPattern::Exact(host.to_owned())
    }

    fn below(host: &str) -> HostPattern {
        HostPattern::Below(host.to_owned())
    }

    #[test]
    fn longest_path_prefix_wins_by_segments() {
        let router = router(&[
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
            assert_eq!(router.route(None, path), Ok(Some(RouteId(route))), "{path}");
        }
    }

    #[test]
    fn most_specific_host_with_the_path_wins() {
        let router = router(&[
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
            // A host is not its own subdomain, nor is one with the same ending.
            ("example.org", "/", None),
            (".example.org", "/", None),
            ("notexample.org", "/", None),
            ("example.org", "/any", Some(3)),
        ] {
            assert_eq!(router.route(Some(host), path), Ok(route.map(RouteId)), "{host}{path}");
        }
        assert_eq!(router.route(None, "/only"), Ok(None));
        assert_eq!(router.route(None, "/any"), Ok(Some(RouteId(3))));
        let long = format!("{}.example.org", "a".repeat(HOST_BYTES_MAX));
        assert_eq!(router.route(Some(&long), "/"), Ok(None));
    }

    #[test]
    fn no_spelling_bypasses_a_route() {
        let router = router(&[
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
            ("/x//../admin/../admin//../../admin", 1),
            // The backend gets /x%5cy/admin/secret.
            ("/x%5cy/z%2f../../admin/secret", 0),
            ("/x?/admin", 0),
            ("/x?a=%2F..%2Fadmin", 0),
            // The same route whether or not the escape counts as a slash.
            ("/x%2Fy", 0),
            ("/admin/x%2Fy;z", 1),
            ("/admin/a%2f..%2f..;/admin", 1),
            ("/x%", 0),
        ] {
            assert_eq!(router.route(None, path), Ok(Some(RouteId(route))), "{path}");
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
            // One kind of slash hides the parent, another one leads to it.
            "/x%5cy/..%2fadmin/secret",
            r"/x\y/..%2fadmin/secret",
            r"/x%2fy/..\admin/secret",
            "/%2F;%5Cx/admin/secret",
            // The parent is resolved by no backend, or by one only.
            "/admin%2f..%2fx",
            "/admin%2f../x",
            r"/admin\..\x",
            "/admin%5c..%5cx",
            "/admin;/..;/x",
            // Removed first, then read with other slashes.
            "/z/..;/admin%2f..%2fx",
            // Decoded twice, or generously.
            "/%2561dmin",
            "/%25%36%31dmin",
            "/x/%252e%252e/admin",
            "/admin%252f%252e%252e%252fx",
            "/x/%c0%ae%c0%ae/admin",
            "/x/%u002e%u002e/admin",
            "/admin%c0%afx",
            // The path may end here.
            "/admin%3Fx",
            "/admin%23/x",
            "/admin%00x",
        ] {
            assert_eq!(router.route(None, path), Err(AmbiguousPath), "{path}");
        }
        // A backend that gets the raw path may compare it literally, without resolving or decoding it.
        let raw =
            router_of(&[(HostPattern::Any, "/"), (HostPattern::Any, "/admin")], PathForm::Raw);
        for (path, route) in [
            ("/admin/../x", Err(AmbiguousPath)),
            ("/x/../admin", Err(AmbiguousPath)),
            ("/%61dmin", Err(AmbiguousPath)),
            ("//admin", Err(AmbiguousPath)),
            ("/x/../y", Ok(0)),
            ("/admin/../admin/%2e/x", Ok(1)),
            ("/x/..%2fadmin", Err(AmbiguousPath)),
            ("/z/../admin%2f..%2fx", Err(AmbiguousPath)),
        ] {
            assert_eq!(raw.route(None, path), route.map(|route| Some(RouteId(route))), "{path}");
        }
        // With one route no spelling is ambiguous.
        let one = self::router(&[(HostPattern::Any, "/")]);
        assert_eq!(one.route(None, "/x/..%2f..;/%2e%2e//etc"), Ok(Some(RouteId(0))));
    }
}

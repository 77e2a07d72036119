//! Which requests go to which pool, and what is changed on the way.

use super::PoolId;

/// The requests of a host below a path, and the pool that they go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The hosts that are meant.
    pub host: HostPattern,
    /// What the path begins with: whole segments of it, so that `/shop` is also `/shop/cart` but not
    /// `/shopping`. `/` is every path.
    pub path_prefix: String,
    /// Where they go.
    pub pool: PoolId,
    /// What stands in the prefix's place for the backend. None: the path stays as it is.
    pub rewrite: Option<String>,
    /// What is changed in the heads of requests.
    pub request_headers: HeaderEdits,
    /// What is changed in the heads of answers.
    pub answer_headers: HeaderEdits,
}

impl Route {
    /// Every request to this pool, unchanged.
    #[must_use]
    pub fn all_to(pool: PoolId) -> Self {
        Self {
            host: HostPattern::Any,
            path_prefix: "/".to_owned(),
            pool,
            rewrite: None,
            request_headers: HeaderEdits::default(),
            answer_headers: HeaderEdits::default(),
        }
    }
}

/// The hosts that a route is for, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Every host, and requests that name none.
    Any,
    /// This one.
    Exact(String),
    /// Every host below this one: `example.org` stands for `*.example.org`.
    Below(String),
}

/// What is changed in a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Headers that are set: each in the place of all of that name. The names are as they are written
    /// on the wire; names and values were checked.
    pub set: Vec<(String, String)>,
    /// The names of headers that are removed, in lower case.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

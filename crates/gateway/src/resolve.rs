//! Names of backends: their addresses when a configuration is read, and again at an interval.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tollgate_config::gateway::AddressFamily;

use crate::log;

/// More addresses of one name are an error: each choice of a backend looks at all of a pool.
const ADDRESSES_MAX: usize = 1024;

/// Resolution of the names of backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// Between two resolutions.
    pub interval: Duration,
    pub family: AddressFamily,
    pub resolver: Resolver,
}

impl Default for Resolve {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            family: AddressFamily::default(),
            resolver: Resolver::default(),
        }
    }
}

/// Host name and port of backends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostName {
    pub host: String,
    pub port: u16,
}

impl HostName {
    /// Returns `None` unless `text` is `HOST:PORT`. Hosts with a number at the end are addresses (RFC 3696, section 2).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let is_label = |label: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=63).contains(&label.len()) && label.bytes().all(is_allowed)
        };
        let labels = host.strip_suffix('.').unwrap_or(host);
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        if host.len() > 253
            || !labels.split('.').all(is_label)
            || labels.rsplit('.').next().is_none_or(is_number)
        {
            return None;
        }
        Some(Self { host: host.to_ascii_lowercase(), port: port.parse().ok()? })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

type Lookup = dyn Fn(&HostName) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks up the addresses of a name.
#[derive(Clone, Default)]
pub struct Resolver(Option<Arc<Lookup>>);

impl Resolver {
    /// Replaces the default resolver (getaddrinfo(3)).
    pub fn new(
        lookup: impl Fn(&HostName) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(lookup)))
    }

    /// Returns at least one address, sorted and each once.
    pub(crate) fn resolve(
        &self,
        name: &HostName,
        family: AddressFamily,
    ) -> io::Result<Vec<SocketAddr>> {
        let found: BTreeSet<SocketAddr> = match &self.0 {
            Some(lookup) => lookup(name)?.into_iter().collect(),
            None => (name.host.as_str(), name.port).to_socket_addrs()?.collect(),
        };
        let is_wanted = |address: &SocketAddr| match family {
            AddressFamily::All => true,
            AddressFamily::PreferIpv4 => address.is_ipv4(),
            AddressFamily::PreferIpv6 => address.is_ipv6(),
        };
        let has_wanted = found.iter().any(is_wanted);
        let addresses: Vec<SocketAddr> =
            found.into_iter().filter(|address| !has_wanted || is_wanted(address)).collect();
        match addresses.len() {
            0 => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
            count if count > ADDRESSES_MAX => {
                Err(io::Error::other(format!("{count} addresses, more than {ADDRESSES_MAX}")))
            }
            _ => Ok(addresses),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Resolver(custom)" } else { "Resolver(system)" })
    }
}

impl PartialEq for Resolver {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Resolver {}

pub(crate) type Addresses = BTreeMap<HostName, Vec<SocketAddr>>;

/// Resolves names again at an interval or when asked to, on its own thread, until it is dropped. A lookup cannot be cancelled, so the
/// thread may end later.
#[derive(Debug)]
pub(crate) struct NameWatch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread is to stop or to resolve the names at once.
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopping: bool,
    is_requested: bool,
    /// The addresses of all names, if any have changed since they were last taken.
    changed: Option<Addresses>,
}

impl NameWatch {
    /// `known` are the addresses so far.
    pub(crate) fn start(known: Addresses, resolve: &Resolve) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (watched, resolve) = (Arc::clone(&shared), resolve.clone());
        thread::Builder::new()
            .name("names".to_owned())
            .spawn(move || watched.run(known, &resolve))?;
        Ok(Self(shared))
    }

    /// Returns the addresses of all names, if any have changed since the last call.
    pub(crate) fn take_changed(&self) -> Option<Addresses> {
        self.0.lock().changed.take()
    }

    /// Resolves all names without waiting for the interval.
    pub(crate) fn resolve_now(&self) {
        self.0.lock().is_requested = true;
        self.0.woken.notify_one();
    }

    /// Puts back addresses that could not be applied.
    pub(crate) fn restore_changed(&self, names: Addresses) {
        self.0.lock().changed.get_or_insert(names);
    }
}

impl Drop for NameWatch {
    fn drop(&mut self) {
        self.0.lock().is_stopping = true;
        self.0.woken.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut known: Addresses, resolve: &Resolve) {
        let mut failing = BTreeSet::new();
        loop {
            let is_waiting = |state: &mut State| !state.is_stopping && !state.is_requested;
            let waited = self.woken.wait_timeout_while(self.lock(), resolve.interval, is_waiting);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_stopping {
                return;
            }
            state.is_requested = false;
            drop(state);
            let mut has_changed = false;
            for (name, addresses) in &mut known {
                match resolve.resolver.resolve(name, resolve.family) {
                    Ok(found) => {
                        if failing.remove(name) {
                            log(format_args!("{name} resolves again"));
                        }
                        if found != *addresses {
                            let (new, old) = (list(&found), list(addresses));
                            log(format_args!("{name} now has the addresses {new}; before: {old}"));
                            *addresses = found;
                            has_changed = true;
                        }
                    }
                    Err(error) if failing.insert(name.clone()) => {
                        let old = list(addresses);
                        log(format_args!(
                            "cannot resolve {name} again: {error}; its addresses stay {old}"
                        ));
                    }
                    Err(_) => {}
                }
            }
            if has_changed {
                self.lock().changed = Some(known.clone());
            }
        }
    }
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_told_from_addresses() {
        let parse = |text| HostName::parse(text).map(|name| name.to_string());
        assert_eq!(parse("Backend_1.example:80").as_deref(), Some("backend_1.example:80"));
        assert_eq!(parse("localhost:65535").as_deref(), Some("localhost:65535"));
        assert_eq!(parse("a.example.:1").as_deref(), Some("a.example.:1"));
        for text in [
            "localhost",
            "localhost:",
            "localhost:65536",
            ":80",
            "1.2.3:80",
            "0x7f.1:80",
            "a..b:80",
            "a b:80",
            "[::1]:80",
            "http://a:80",
            "a/b:80",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_of_one_family_are_sorted_and_unique() {
        let resolver = Resolver::new(|name| {
            let addresses = match &*name.host {
                "both" => &["[::1]:1", "10.0.0.2:1", "10.0.0.1:1", "10.0.0.2:1"][..],
                "six" => &["[::2]:1", "[::1]:1"],
                _ => &[],
            };
            Ok(addresses.iter().map(|text| text.parse().unwrap()).collect())
        });
        let resolve = |host: &str, family| {
            let name = HostName { host: host.to_owned(), port: 1 };
            resolver
                .resolve(&name, family)
                .map(|found| list(&found))
                .map_err(|error| error.to_string())
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(resolve("both", AddressFamily::PreferIpv4), ok("10.0.0.1:1, 10.0.0.2:1"));
        assert_eq!(resolve("both", AddressFamily::PreferIpv6), ok("[::1]:1"));
        assert_eq!(resolve("both", AddressFamily::All), ok("10.0.0.1:1, 10.0.0.2:1, [::1]:1"));
        assert_eq!(resolve("six", AddressFamily::PreferIpv4), ok("[::1]:1, [::2]:1"));
        assert_eq!(resolve("none", AddressFamily::All), Err("the name has no address".to_owned()));
    }
}

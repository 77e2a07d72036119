//! Files and names that a configuration needs.

use std::net::SocketAddr;
use std::path::Path;

use tollgate_config::{InvalidValue, Located};

use crate::resolve::{Addresses, HostName, Resolve};

/// Files and names that a configuration needs. Those that cannot be read or resolved are collected, so that all are
/// reported at once.
pub(super) struct Resources<'a> {
    pub(super) folder: &'a Path,
    pub(super) resolve: Resolve,
    pub(super) addresses: Addresses,
    pub(super) failures: Vec<InvalidValue>,
    /// Problems that do not prevent the use of the configuration.
    pub(super) warnings: Vec<InvalidValue>,
}

impl Resources<'_> {
    pub(super) fn collect<T>(&mut self, result: Result<T, InvalidValue>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(failure) => {
                // Routes can share a faulty rule file.
                if !self.failures.iter().any(|other| other.is_same(&failure)) {
                    self.failures.push(failure);
                }
                None
            }
        }
    }

    /// Returns no address if the name cannot be resolved.
    pub(super) fn addresses(&mut self, name: &HostName, at: &Located<String>) -> Vec<SocketAddr> {
        if let Some(known) = self.addresses.get(name) {
            return known.clone();
        }
        let resolved = self.resolve.resolver.resolve(name, self.resolve.family).map_err(|source| {
            let message = format!(
                "cannot resolve `{name}`, the `address` of a backend; check the name, or write an IP address"
            );
            InvalidValue::at(at, message).with_source(source)
        });
        let addresses = self.collect(resolved).unwrap_or_default();
        self.addresses.insert(name.clone(), addresses.clone());
        addresses
    }
}

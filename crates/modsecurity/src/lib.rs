//! libmodsecurity's C interface on Tollgate's engine: a shared library that takes the place of `libmodsecurity.so.3` below nginx,
//! Apache and other servers, whose connectors and configurations stay as they are.
//!
//! `interface` is the C side and the only place with `unsafe`; `rules` merges and shares rule sets, `workers` has what a
//! thread keeps for them, `inspection` is one transaction, and `error_log` the text that servers write into their logs. `check` says
//! what the library would do with an nginx configuration, which `tollgate_nginx_conf` reads.

mod audit_log;
pub mod check;
mod debug_log;
mod error_log;
mod inspection;
mod interface;
mod log_file;
mod rules;
mod workers;

/// Name and version of the library, for C.
const NAME_WITH_NUL: &str =
    concat!("Tollgate v", env!("CARGO_PKG_VERSION"), " (compatible with ModSecurity v3.0.13)\0");

/// Name and version of the library.
const NAME: &str = NAME_WITH_NUL.split_at(NAME_WITH_NUL.len() - 1).0;

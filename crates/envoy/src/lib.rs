//! The engine inside Envoy: a dynamic module with an HTTP filter, `libtollgate_envoy.so`, for Envoy 1.38 to 1.40.
//!
//! `abi` declares what Envoy and the module have in common, `host` makes its functions safe, and `hooks` has the functions that Envoy
//! calls: the places with `unsafe`. `config` is a filter's configuration, `filter` one stream, `message` its heads, `inspection` what
//! rules see of it, and `helper` the thread for long messages.

mod abi;
mod config;
mod filter;
mod helper;
mod hooks;
mod host;
mod inspection;
mod message;

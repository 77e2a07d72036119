//! The languages in which rules are written.

pub(crate) mod appsec;
pub(crate) mod naxsi;
pub(crate) mod seclang;

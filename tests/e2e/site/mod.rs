//! The benchmark site on `tollgate origin` and on nginx with Lua.

mod ab; // `tollgate load --format ab` on the site.
pub(crate) mod browser; // Headless Chromium.
mod conformance; // Both servers give the same responses, byte by byte.
mod experiment; // The experiment `site`.
mod page; // The page in a browser.
mod protocol; // Table of requests and responses: the protocol, and differences between the servers.
mod server; // The servers, and a client of literal bytes.
mod table; // Table of requests and responses: the endpoints.

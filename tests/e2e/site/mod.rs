//! The benchmark site, the same on both servers that have it: the built-in one and nginx with Lua. The
//! table says what is sent and what has to come, byte by byte; the browser sends every form.

/// The report that ApacheBench is known for.
mod ab;
/// Chromium, driven over its debugging pipe.
mod browser;
/// Requests and answers over real sockets.
mod conformance;
/// The experiment, from its file to its report.
mod experiment;
/// The page, as people use it.
mod page;
/// The two servers.
mod server;
/// What is asked and answered.
mod table;
/// A connection that speaks HTTP/1.1 in literal bytes.
mod wire;

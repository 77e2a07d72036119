//! The generator against tiny servers that answer with literal bytes over real sockets.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

// The servers, and plans against them.
mod server;

// Exact counts, and books that balance.
mod books;
// What connections go through: closed, refused, reset, replaced.
mod connections;
// Where answers end, split everywhere.
mod framing;
// Timeouts, latency and the window.
mod timing;
// Expected and unexpected answers, by template.
mod answers;
// Schedules: what is sent when, and what is said of the rest.
mod schedules;
// Schedules with slack: naps, and when answers arrived meanwhile.
mod slack;
// Several requests under way on one connection.
mod pipelines;
mod polling;
// Unix-domain sockets.
mod unix;
// Plans that are refused.
mod plans;

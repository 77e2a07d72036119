//! Fidelity tests: the figures of the load generator against known truths.
//!
//! A delay server in C, which shares no code with the generator, logs when it read each request and
//! when it wrote the response. The generator is the release build of the real binary, driven by its
//! command line and read by its JSON.
//!
//! Lower bounds are strict: a response cannot arrive before the server writes it. Upper bounds are the
//! truth plus the overhead of this machine, which an independent blocking client measures in the same
//! run. `make fidelity` runs all tests, one at a time, and prints every figure with its bounds.

// Exclusive use of the machine, its CPUs, and checks of figures with their bounds.
mod machine;
// Sorted figures, and the overhead that generator and machine may add to a delay.
mod sample;
// The delay server and its log.
mod server;
// The generator and its result.
mod load;
// Independent measurements of the machine: a blocking client, and processes that sleep.
mod reference;

// t01, t02, t11, t12, t14: known delays, and wrk on the same server.
mod delays;
// t03 to t05: stalls.
mod stalls;
// t06: due times, seen from the server.
mod schedule;
// t17: a replay, seen from the server.
mod replay;
// t07 to t09, t13: counts, failures, and servers that never end a response.
mod accounting;
// t10: framings.
mod framing;
// t15, t16: delays, stalls, a schedule and errors over TLS and HTTP/2, through nginx; series.
mod fronts;

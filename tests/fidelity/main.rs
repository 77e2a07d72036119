//! Fidelity tests of the load generator: are the figures that it gives true?
//!
//! The truth comes from a delay server in C that shares no code with the generator and logs, for
//! each request, when it read it and when it wrote the answer. The generator is the real binary,
//! release build, told what to do by its command line and read by its JSON.
//!
//! Lower bounds are strict: an answer cannot come back sooner than the server wrote it. Upper
//! bounds are the truth plus what this machine adds, which an independent blocking client measures
//! in the same run. `make fidelity` runs all, one at a time, and says what was seen.

/// t07 to t09: what is counted, and what becomes of failures.
mod books;
/// t01, t02, t11, t14: known delays come back as they are.
mod delays;
/// What a test found: each figure with the bounds that it has to keep.
mod findings;
/// What generator and machine add to a delay at most.
mod floor;
/// t10: every framing of an answer, and what is none.
mod framing;
/// t13: servers that mean harm cost neither memory nor time.
mod hostile;
/// The generator under test, and what it printed.
mod load;
/// What the server logged: the truth.
mod log;
/// The machine: its CPUs, who else is busy on it, and one test at a time.
mod machine;
/// How late a process wakes: what the machine does to everybody.
mod nap;
/// t12: the same figures as an independent tool.
mod peer;
/// Programs in C: the delay server, and what measures the machine.
mod program;
/// Sorted figures, and what is asked of them.
mod sample;
/// t06: requests leave when they should, seen from the server.
mod schedule;
/// The delay server.
mod server;
/// t03 to t05: what stands still shows.
mod stalls;
/// An independent client that measures what this machine adds to a delay.
mod witness;

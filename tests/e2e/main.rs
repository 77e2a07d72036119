//! End-to-end tests: the real binary, on real nginx with real ModSecurity and the Core Rule Set.
//!
//! They need what `scripts/setup` installs, and fail without it, with the line to type. Figures are
//! checked against wide bounds only: these tests say whether the road holds, `benches/` says how
//! fast it is.
//!
//! Tests that say the same however busy the machine is run beside each other (`Workspace::beside_others`), as
//! far as there are threads for them: `make test` gives each test one.

/// Every revision of a component, and the commit that changed its price.
mod batch;
/// Cases that are measured over a number of requests, and cases that are for some of the subjects.
mod cases;
/// The command line itself: help, bad input, exit codes.
mod command_line;
/// Two runs side by side.
mod compare;
mod design;
/// The texts of short experiments.
mod experiment;
/// What a subject may do wrong: missing, refused, rejected, dead.
mod faults;
/// Files that cannot be written.
mod full_disk;
/// `--threshold`: runs that a build passes or fails by.
mod gates;
/// `tollgate gateway`: its file, its signals and its exit codes.
mod gateway;
/// Ctrl-C and kill -9: nothing is left running, nothing that was finished is lost.
mod interruption;
/// A price that is known beforehand.
mod known_cost;
/// `tollgate load` against servers that are not ours.
mod load;
/// What `tollgate load` prints: the formats of others beside the real ones, and its books.
mod load_formats;
/// The machine that the tests share.
mod machine;
/// The mixes in the binary, against the origin and a WAF.
mod mixes;
/// `tollgate doctor --noise`: this machine against itself.
mod noise;
/// Experiments in an open loop.
mod open_loop;
/// `tollgate origin`: asked by curl, and held open by many.
mod origin;
/// Cases with several origins, and a baseline that is not there.
mod origins;
/// `tollgate run` and `tollgate report` from end to end.
mod prices;
/// What is kept in `records/`.
mod records;
/// `report.html` in a real browser, and the formats of other tools.
mod report;
/// Options side by side, and a rule set without each of its files.
mod rule_files;
/// `tollgate search` on real nginx.
mod search;
/// The benchmark site on both servers that have it.
mod site;
/// What the tests share: a folder to run in, the binary, and a look at what is left running.
mod support;
/// The systems under test, one by one: they answer, they block, and the traps are told.
mod systems;
/// Warm-ups that last until a server is steady.
mod warm_up;

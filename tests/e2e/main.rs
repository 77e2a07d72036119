//! End-to-end tests of the `tollgate` binary, on real servers.
//!
//! Most suites need installed packages and are compiled with the feature `e2e` only; `make test` installs what
//! is missing and runs all. Without a package that it needs, a test fails with the command that installs it.
//! Figures are compared with wide bounds: `benches/` measures performance.
//!
//! Tests whose results do not depend on the load of the machine run concurrently
//! (`Workspace::concurrent`), others with few others (`quiet`) or alone (`exclusive`). The longest take precedence
//! (`long`, `long_quiet`). `make test` gives each its own thread.

#![cfg_attr(
    not(feature = "e2e"),
    expect(dead_code, reason = "helpers of suites behind the feature")
)]

// The binary alone.
mod agents; // `--on local`, and stand-ins for ssh and kubectl.
mod command_line; // Help texts, invalid input, exit codes.
mod documents; // Links between the documents.
mod gateway; // `tollgate gateway`: configuration, signals, exit codes.
mod origin; // `tollgate origin`: curl, access log, many connections.
mod records; // The runs kept in `records/` give the same reports.
mod results_site; // They become static pages.
mod waf; // `tollgate waf`: rules checked, matches explained, tests run.

// `tollgate load` beside wrk, ab and others.
#[cfg(feature = "e2e")]
mod load;
#[cfg(feature = "e2e")]
mod load_formats;

// `tollgate mix import`.
#[cfg(feature = "e2e")]
mod import; // Logs of real servers, HAR of Chromium, the Core Rule Set's tests.

// `tollgate run`: experiments on nginx, ModSecurity and HAProxy.
#[cfg(feature = "e2e")]
mod ablation; // Ablation of rule sets, and matrices of options.
#[cfg(feature = "e2e")]
mod catch; // Verdicts of WAFs on the mixes and on the Core Rule Set's tests.
#[cfg(feature = "e2e")]
mod clients; // Foreign clients: wrk, ab, h2load.
#[cfg(feature = "e2e")]
mod external; // Servers that run already.
#[cfg(feature = "e2e")]
mod faults; // Subjects that are missing, refused, rejected or dead.
#[cfg(feature = "e2e")]
mod interruption; // Signals, kill -9, and processes that do not stop.
#[cfg(feature = "e2e")]
mod measurement; // Fixed rates, warm-up, a known price.
#[cfg(feature = "e2e")]
mod mixes; // The built-in mixes, against the origin and a WAF.
#[cfg(feature = "e2e")]
mod resume; // Budgets, interval widths, `--resume`, a full disk.
#[cfg(feature = "e2e")]
mod run; // Prices, records, cases, several origins.

// Batches, comparisons and reports.
#[cfg(feature = "e2e")]
mod batch; // `tollgate batch`: revisions of a component, and the commit that changed its price.
#[cfg(feature = "e2e")]
mod compare; // `tollgate compare`, `--threshold` and `tollgate search`.
#[cfg(feature = "e2e")]
mod doctor; // `tollgate doctor --noise`.
#[cfg(feature = "e2e")]
mod report; // `report.html` in Chromium, and exported formats.

// `--on slurm`: hosts of a Slurm cluster inside this machine.
#[cfg(feature = "e2e")]
mod cluster;

// `tollgate gateway` as a web application firewall.
#[cfg(feature = "e2e")]
mod go_ftw; // The Core Rule Set's tests, sent by go-ftw.

// `tollgate waf tune`.
#[cfg(feature = "e2e")]
mod tuning; // On logs of ModSecurity in Debian's nginx, as docs/tuning.md tells.

// The manual.
#[cfg(feature = "e2e")]
mod tutorials; // Each command of docs/tutorials/.

// The library for ModSecurity's connectors.
#[cfg(feature = "e2e")]
mod drop_in; // In Debian's nginx, beside libmodsecurity.
#[cfg(feature = "e2e")]
mod drop_in_check; // `tollgate waf check --for modsecurity`, and nginx with the library on the same configuration.
#[cfg(feature = "e2e")]
mod drop_in_nginx; // Workers, HTTP/2, subrequests, bodies in files, error pages, gzip, reloads.
#[cfg(feature = "e2e")]
mod drop_in_rules; // The Core Rule Set's tests, sent by go-ftw.

// The module for Envoy.
#[cfg(feature = "e2e")]
mod envoy; // Parts of messages, limits, trailers, resets, routes, updates of listeners.

// `tollgate waf serve`.
#[cfg(feature = "e2e")]
mod crowdsec; // Beside CrowdSec, for the same bouncers.
#[cfg(feature = "e2e")]
mod waf_serve; // Behind nginx, Traefik, Caddy and Envoy.
#[cfg(feature = "e2e")]
mod waf_serve_haproxy; // Behind HAProxy.

// `tollgate gateway` and an authority that issues certificates.
#[cfg(feature = "e2e")]
mod acme;

// `tollgate gateway` between clients and servers of others: Java, Go, gRPC, gunicorn, Chromium.
#[cfg(feature = "e2e")]
mod gateway_clients;

// `tollgate gateway` as a server of HTTP/2.
#[cfg(feature = "e2e")]
mod h2spec;

// `action.yml` and `ci/gitlab.yml`: their scripts, with a stand-in of gh.
#[cfg(feature = "e2e")]
mod ci;

// Files that `make deb` packages: completions, manual pages, configuration.
#[cfg(feature = "e2e")]
mod package;

// The benchmark site, on `tollgate origin` and on nginx with Lua.
#[cfg(feature = "e2e")]
mod site;

// Every system: installation, builds, responses, blocking.
#[cfg(feature = "e2e")]
mod systems;

// A folder to run the binary in, shares of the machine, texts of experiments.
mod foreign_server;
mod support;

/// Makes the missing suites visible in the output of `cargo test`.
#[cfg(not(feature = "e2e"))]
#[test]
#[ignore = "most end-to-end tests need nginx, Go builds and Chromium; run `make test`, or add `--features e2e`"]
fn suites_behind_feature_e2e() {}

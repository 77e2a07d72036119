use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::load::Load;
use crate::machine::alone;
use crate::server::DelayServer;

/// What the generator may take of memory: its own code, the buffers of a few connections, and a
/// histogram a thread. An answer must not add to it, however long it is.
const PEAK_MAX_KIB: f64 = 32.0 * 1024.0;
/// How long after its end a run may last.
const OVERTIME: Duration = Duration::from_secs(1);

/// Answers without an end, as fast as the socket takes them or a byte a second: memory stays
/// bounded, and the run ends on time.
#[test]
fn t13_hostile_servers() {
    const LENGTH: Duration = Duration::from_millis(700);
    const PATHS: [&str; 9] = [
        "/endless/headers",
        "/endless/header",
        "/endless/interim",
        "/endless/body",
        "/endless/chunks",
        "/endless/chunk-size",
        "/endless/trailers",
        "/endless/garbage",
        "/drip",
    ];
    alone("t13 hostile servers", |findings| {
        for path in PATHS {
            let server = DelayServer::start();
            let options = format!("-c 4 -d {}ms --timeout 300ms", LENGTH.as_millis());
            let mut load = Load::start(&options, &server.url(path));
            let mut peak_kib = 0;
            while !load.has_ended() {
                peak_kib = peak_kib.max(peak_kib_of(load.pid()));
                sleep(Duration::from_millis(10));
            }
            let report = load.wait();
            server.stop();
            findings.note(path);
            findings.within("peak memory in KiB", peak_kib as f64, 1.0..=PEAK_MAX_KIB);
            let bounds = LENGTH.as_secs_f64() * 1e3..=(LENGTH + OVERTIME).as_secs_f64() * 1e3;
            findings.within("took, in ms", report.elapsed.as_secs_f64() * 1e3, bounds);
            findings.equal("answered", report.count("/answered"), 0);
            let errors = report.value("/errors").to_string();
            findings.holds(&format!("it failed: {errors}"), report.failed() > 0);
            findings.equal("exit code", report.exit, 4);
        }
    });
}

/// The peak of a process' memory; 0 for one that has just ended.
fn peak_kib_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or(0, |kib| kib.trim().trim_end_matches(" kB").parse().expect("VmHWM in kB"))
}

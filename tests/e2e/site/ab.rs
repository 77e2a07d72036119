//! `tollgate load --format ab` on the site prints a report like that of `ab`.

use super::server::Site;
use crate::support::{Workspace, show, stdout};

/// The report of `ab` 2.3 on nginx with Lua; `#` stands for numbers that depend on the machine.
const REPORT: &str = "\
Server Software:        nginx/#
Server Hostname:        127.0.0.1
Server Port:            #

Document Path:          /urandom?size=2048
Document Length:        29 bytes

Concurrency Level:      128
Time taken for tests:   # seconds
Complete requests:      10000
Failed requests:        0
Total transferred:      1780000 bytes
HTML transferred:       290000 bytes
Requests per second:    # [#/sec] (mean)
Time per request:       # [ms] (mean)
Time per request:       # [ms] (mean, across all concurrent requests)
Transfer rate:          # [Kbytes/sec] received

Connection Times (ms)
              min  mean[+/-sd] median   max
Connect:        # # # # #
Processing:     # # # # #
Waiting:        # # # # #
Total:          # # # # #

Percentage of the requests served within a certain time (ms)
  50%     #
  66%     #
  75%     #
  80%     #
  90%     #
  95%     #
  98%     #
  99%     #
 100%     # (longest request)
";

#[test]
fn format_ab_prints_report_of_ab() {
    let workspace = Workspace::quiet();
    let site = Site::nginx_lua(&workspace);
    let url = format!("http://{}/urandom?size=2048", site.address);
    let arguments = ["load", "--format", "ab", "--no-keepalive", "-c", "128", "-n", "10000", &url];
    let output = workspace.run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let report = stdout(&output);
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), REPORT.lines().count(), "{report}");
    for (line, pattern) in lines.iter().zip(REPORT.lines()) {
        assert!(matches(line, pattern), "{line:?} is not {pattern:?} in\n{report}");
    }
}

/// Returns true if a line has the words of the pattern, and a number for every `#`.
fn matches(line: &str, pattern: &str) -> bool {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let same = |(found, wanted): (&str, &str)| match wanted.strip_suffix('#') {
        Some("") => is_number(found),
        // Versions have several points.
        Some(before) => found
            .strip_prefix(before)
            .is_some_and(|rest| !rest.is_empty() && rest.split('.').all(is_number)),
        None => found == wanted,
    };
    let (line, pattern) = (line.split_whitespace(), pattern.split_whitespace());
    line.clone().count() == pattern.clone().count() && line.zip(pattern).all(same)
}

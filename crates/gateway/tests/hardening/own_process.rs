//! A part of a test that needs a process of its own: this program, started once more for one test that is
//! ignored otherwise.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process that runs one test. It has to end when its input does.
pub(crate) struct OwnProcess {
    process: Child,
    told: BufReader<ChildStdout>,
}

impl OwnProcess {
    /// The test of this name, which is told these things by its environment.
    pub(crate) fn of<Value: AsRef<OsStr>>(test: &str, environment: &[(&str, Value)]) -> Self {
        Self::telling(test, environment, Stdio::inherit())
    }

    /// The same, whose standard error is `told_to`.
    pub(crate) fn telling<Value: AsRef<OsStr>>(
        test: &str,
        environment: &[(&str, Value)],
        told_to: Stdio,
    ) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(told_to)
            .spawn()
            .unwrap();
        let told = BufReader::new(process.stdout.take().unwrap());
        Self { process, told }
    }

    /// Waits until it has printed this line.
    pub(crate) fn wait_for(&mut self, line: &str) {
        let mut lines = self.told.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|told| told == line), "it ended without having said: {line}");
    }

    /// Ends its input, and waits for it to end well.
    pub(crate) fn end(&mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success(), "the other process failed");
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

//! Parts of tests that need a process of their own, because they change or measure the process as a whole: the test
//! program starts itself again for the same test, which finds arguments then.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

const ARGUMENTS: &str = "TOLLGATE_TEST_CHILD_ARGUMENTS";

/// The path of a test of the calling module, as the test program knows it.
macro_rules! test_path {
    ($name:literal) => {
        concat!(module_path!(), "::", $name).split_once("::").unwrap().1
    };
}
pub(crate) use test_path;

/// The arguments for a test that runs in a child process; `None` in the parent.
pub(crate) fn child_arguments() -> Option<Vec<String>> {
    let arguments = std::env::var(ARGUMENTS).ok()?;
    Some(arguments.split('\n').map(str::to_owned).collect())
}

/// A process that runs one test. A test that waits for the end of its standard input runs until
/// [`finish`](Self::finish).
pub(crate) struct ChildProcess {
    process: Child,
    stdout: BufReader<ChildStdout>,
}

impl ChildProcess {
    pub(crate) fn start(test: &str, arguments: &[String], stderr: Stdio) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--include-ignored", "--nocapture"])
            .env(ARGUMENTS, arguments.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdout }
    }

    /// Runs a test in a child process to its end.
    pub(crate) fn run(test: &str, arguments: &[String]) {
        Self::start(test, arguments, Stdio::inherit()).finish();
    }

    /// Waits until the child has printed this line.
    pub(crate) fn wait_for(&mut self, line: &str) {
        let mut lines = self.stdout.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|printed| printed == line), "the child ended before it printed {line:?}");
    }

    /// Closes its standard input and waits for the test to pass.
    pub(crate) fn finish(mut self) {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "the child failed: {rest}");
        assert!(rest.contains("1 passed"), "the child ran no test: {rest}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

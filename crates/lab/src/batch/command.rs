//! A program that is run for what it prints, in a bounded time.

use super::BatchError;
use crate::interrupt::Interrupt;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a program printed.
#[derive(Debug)]
pub(super) struct Printed {
    /// Whether it succeeded.
    pub(super) success: bool,
    /// With what it exited; none where a signal ended it.
    pub(super) code: Option<i32>,
    /// On standard output.
    pub(super) stdout: String,
    /// On standard error.
    pub(super) stderr: String,
}

/// Runs a program to its end, however that is. Nothing that it started outlives it.
///
/// # Errors
///
/// It is not there, does not end in time, or the batch is to stop.
pub(super) fn run(
    command: &mut Command,
    within: Duration,
    interrupt: &Interrupt,
) -> Result<Printed, BatchError> {
    let words = words(command);
    let failed = |what: String| BatchError::Command { command: words.clone(), what };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // What it starts can be told to end together with it.
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| failed(format!("cannot be run: {error}")))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        // Both are read while it runs, or a full pipe would hold it.
        let stdout = scope.spawn(move || read(stdout, BYTES_MAX));
        let stderr = scope.spawn(move || read(stderr, BYTES_MAX));
        let deadline = Instant::now() + within;
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if Instant::now() >= deadline => {
                    break Err(failed(format!("did not end within {} s", within.as_secs())));
                }
                Ok(None) => {}
                Err(error) => break Err(failed(format!("was lost: {error}"))),
            }
            if let Err(interrupted) = interrupt.sleep(POLL) {
                break Err(interrupted.into());
            }
        };
        end(&mut child, ended.is_err());
        let text = |read: std::thread::ScopedJoinHandle<'_, io::Result<Vec<u8>>>| {
            let bytes =
                read.join().unwrap_or_else(|_| Err(io::Error::other("its reader panicked")));
            let bytes = bytes.map_err(|error| failed(format!("was not understood: {error}")))?;
            Ok::<_, BatchError>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (stdout, stderr) = (text(stdout)?, text(stderr)?);
        let status = ended?;
        Ok(Printed { success: status.success(), code: status.code(), stdout, stderr })
    })
}

/// The same, where it has to succeed; what it printed on standard output.
///
/// # Errors
///
/// The same, or it failed.
pub(super) fn output(
    command: &mut Command,
    within: Duration,
    interrupt: &Interrupt,
) -> Result<String, BatchError> {
    let printed = run(command, within, interrupt)?;
    match printed.success {
        true => Ok(printed.stdout),
        false => Err(failure(command, &printed)),
    }
}

/// A program that failed, with what it said last.
pub(super) fn failure(command: &Command, printed: &Printed) -> BatchError {
    let lines: Vec<&str> = printed.stderr.lines().rev().take(TOLD_LINES).collect();
    let told: Vec<&str> = lines.into_iter().rev().collect();
    let what = format!("failed: {}", told.join("; "));
    BatchError::Command { command: words(command), what }
}

const POLL: Duration = Duration::from_millis(5);
/// How long a program has to tidy up when it is told to end: git removes its locks then.
const GRACE: Duration = Duration::from_secs(5);
const TOLD_LINES: usize = 3;

/// Ends a program that still runs, and whatever it left behind in its group: that would hold the pipes
/// open for as long as it likes.
fn end(child: &mut Child, still_runs: bool) {
    let group = i32::try_from(child.id()).map(Pid::from_raw);
    // There may be nobody left, which is what is wanted.
    let tell = |signal: Signal| group.map(|group| killpg(group, signal).ok()).ok();
    if still_runs {
        tell(Signal::SIGTERM);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(POLL);
        }
    }
    tell(Signal::SIGKILL);
    child.wait().ok();
}

/// All that comes, which may be so much at the most: a part of a list would pass for the whole.
fn read(stream: Option<impl Read>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(most + 1).read_to_end(&mut bytes)?;
    }
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it printed more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// More than the history of any repository prints, and less than a machine has.
const BYTES_MAX: u64 = 64 << 20;

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_that_has_to_stop_is_asked_to_and_may_tidy_up() {
        let dir = tempfile::tempdir().unwrap();
        let (ready, tidied) = (dir.path().join("ready"), dir.path().join("tidied"));
        let script = format!(
            "trap 'touch {}; exit' TERM; touch {}; sleep 600 & wait",
            tidied.display(),
            ready.display()
        );
        let interrupt = Interrupt::default();
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                let deadline = Instant::now() + LONG;
                while !ready.exists() && Instant::now() < deadline {
                    std::thread::sleep(POLL);
                }
                interrupt.flag().store(true, Ordering::Relaxed);
            });
            run(Command::new("sh").args(["-c", &script]), 2 * LONG, &interrupt)
        });
        assert!(matches!(ended, Err(BatchError::Interrupted(_))), "{ended:?}");
        assert!(tidied.exists());
    }

    #[test]
    fn what_a_program_leaves_behind_does_not_hold_its_pipes() {
        let begun = Instant::now();
        let mut leaving = Command::new("sh");
        leaving.args(["-c", "sleep 600 & echo done"]);
        let printed = run(&mut leaving, LONG, &Interrupt::default()).unwrap();
        assert_eq!((printed.success, printed.stdout.as_str()), (true, "done\n"));
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn what_is_too_much_is_an_error_and_no_shorter_answer() {
        assert_eq!(read(Some(&b"12345678"[..]), 8).unwrap(), b"12345678");
        let error = read(Some(&b"123456789"[..]), 8).unwrap_err();
        assert_eq!(error.to_string(), "it printed more than 8 bytes");
    }

    #[test]
    fn a_program_that_does_not_end_in_time_is_ended_with_all_that_it_started() {
        let begun = Instant::now();
        let mut late = Command::new("sh");
        late.args(["-c", "sleep 600; sleep 600"]);
        let error = run(&mut late, Duration::ZERO, &Interrupt::default()).unwrap_err();
        assert!(error.to_string().contains("did not end within 0 s"), "{error}");
        assert!(begun.elapsed() < LONG);
    }
}

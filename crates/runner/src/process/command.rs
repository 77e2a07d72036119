//! Commands that are run for their output: bounded in time and output, interruptible, and stopped with everything
//! that they started.

use crate::process::Interrupt;
use anyhow::{Context, anyhow};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a command to its end, successful or not, and returns its output. Standard input is empty. At the time limit
/// and on interruption the command gets TERM, and KILL five seconds later. Background processes of its process
/// group are killed in any case.
pub fn run(
    command: &mut Command,
    limit: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<Output> {
    let deadline = Instant::now() + limit;
    let text = command_line(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot_run = || format!("cannot run `{text}`");
    let mut child = command.process_group(0).spawn().with_context(cannot_run)?;
    let (stdout, stderr) = (child.stdout.take().map(read), child.stderr.take().map(read));
    let status = interrupt.wait(limit, || child.try_wait());
    stop(&mut child, !matches!(status, Ok(Some(_))));
    let timed_out = || anyhow!("`{text}` did not finish within {} s", limit.as_secs_f64());
    let status = status.with_context(cannot_run)?.ok_or_else(timed_out)?;
    // A descendant that left the process group may hold the pipes open.
    let pipe_deadline = deadline.max(Instant::now() + GRACE);
    let collect = |stream: Option<Stream>| match stream {
        None => Ok(Vec::new()),
        Some(stream) => {
            match stream.recv_timeout(pipe_deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => bytes.with_context(|| format!("cannot read the output of `{text}`")),
                Err(RecvTimeoutError::Timeout) => Err(timed_out()),
                Err(RecvTimeoutError::Disconnected) => {
                    Err(anyhow!("cannot read the output of `{text}`: the reader thread panicked"))
                }
            }
        }
    };
    Ok(Output { status, stdout: collect(stdout)?, stderr: collect(stderr)? })
}

/// As [`run`], for a command that must succeed. Returns its standard output.
pub fn output(
    command: &mut Command,
    limit: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<String> {
    let output = run(command, limit, interrupt)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failure(command, &output))
    }
}

/// Runs a command in the foreground, with its output on standard error and without a time limit: the user sees it and
/// can interrupt it. On interruption the command gets SIGINT and may finish.
pub fn foreground(command: &mut Command, interrupt: &Interrupt) -> anyhow::Result<()> {
    let text = command_line(command);
    let cannot_run = || format!("cannot run `{text}`");
    let mut child = command.stdout(io::stderr()).spawn().with_context(cannot_run)?;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(cannot_run)? {
            break status;
        }
        if let Err(interrupted) = interrupt.sleep(POLL) {
            let pid = Pid::from_raw(child.id().cast_signed());
            kill(pid, Signal::SIGINT).with_context(cannot_run)?;
            child.wait().with_context(cannot_run)?;
            return Err(interrupted.into());
        }
    };
    if status.success() { Ok(()) } else { Err(anyhow!("`{text}` failed: {status}")) }
}

pub fn failure(command: &Command, output: &Output) -> anyhow::Error {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tail = lines[lines.len().saturating_sub(REPORTED_LINES)..].join("; ");
    let (command, status) = (command_line(command), output.status);
    if tail.is_empty() {
        anyhow!("`{command}` failed: {status}")
    } else {
        anyhow!("`{command}` failed: {status}: {tail}")
    }
}

/// The program and its arguments, separated by spaces.
pub fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

const POLL: Duration = Duration::from_millis(2);
/// Time between TERM and KILL, in which git, for example, removes its lock files.
const GRACE: Duration = Duration::from_secs(5);
const REPORTED_LINES: usize = 3;
/// More than the history of any repository, less than the memory of a machine.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// Stops the command if it is still running, and the rest of its process group.
fn stop(child: &mut Child, is_running: bool) {
    let group = Pid::from_raw(child.id().cast_signed());
    if is_running {
        // Fails if the group is already empty.
        killpg(group, Signal::SIGTERM).ok();
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
    }
    killpg(group, Signal::SIGKILL).ok();
    child.wait().ok();
}

type Stream = Receiver<io::Result<Vec<u8>>>;

/// Reads a stream to its end on a thread, so that a full pipe does not block the command.
fn read(stream: impl Read + Send + 'static) -> Stream {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Fails if the receiver gave up at its deadline.
        sender.send(read_bounded(stream, MAX_OUTPUT_BYTES)).ok();
    });
    receiver
}

/// Fails above `max` bytes: a truncated list could be mistaken for a complete one.
fn read_bounded(stream: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        Err(io::Error::other(format!("more than {max} bytes")))
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Interrupted;
    use std::fs;
    use std::sync::atomic::Ordering;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, limit: Duration) -> anyhow::Result<Output> {
        run(Command::new("sh").args(["-c", script]), limit, &Interrupt::default())
    }

    #[test]
    fn interrupted_command_may_clean_up() {
        let dir = tempfile::tempdir().unwrap();
        let (ready, cleaned) = (dir.path().join("ready"), dir.path().join("cleaned"));
        let script = format!(
            "trap 'touch {}; exit' TERM; touch {}; sleep 600 & wait",
            cleaned.display(),
            ready.display()
        );
        let interrupt = Interrupt::default();
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                let deadline = Instant::now() + LONG;
                while !ready.exists() && Instant::now() < deadline {
                    thread::sleep(POLL);
                }
                interrupt.flag().store(true, Ordering::Relaxed);
            });
            run(Command::new("sh").args(["-c", &script]), 2 * LONG, &interrupt)
        });
        assert!(result.unwrap_err().is::<Interrupted>());
        assert!(cleaned.exists());
    }

    #[test]
    fn background_process_does_not_hold_the_pipes() {
        let start = Instant::now();
        let output = shell("sleep 600 & echo done", LONG).unwrap();
        assert_eq!((output.status.success(), &output.stdout[..]), (true, &b"done\n"[..]));
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn output_larger_than_a_pipe_is_collected() {
        let output = shell("head -c 1000000 /dev/zero; head -c 300000 /dev/zero >&2; false", LONG);
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!((output.stdout.len(), output.stderr.len()), (1_000_000, 300_000));
    }

    #[test]
    fn too_much_output_is_an_error() {
        assert_eq!(read_bounded(&b"12345678"[..], 8).unwrap(), b"12345678");
        let error = read_bounded(&b"123456789"[..], 8).unwrap_err();
        assert_eq!(error.to_string(), "more than 8 bytes");
    }

    #[test]
    fn timed_out_command_is_stopped_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 61 & echo $! >{}; sleep 60", pid.display());
        let start = Instant::now();
        let error = shell(&script, Duration::from_millis(500)).unwrap_err();
        assert_eq!(error.to_string(), format!("`sh -c {script}` did not finish within 0.5 s"));
        let sleeper = fs::read_to_string(&pid).unwrap();
        let status = format!("/proc/{}/status", sleeper.trim());
        // The new parent of the orphan may not have reaped it yet.
        while fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
            assert!(start.elapsed() < LONG, "still running");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn failure_reports_status_and_last_lines() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf '1\\n2\\n\\n3\\n4\\n' >&2; exit 3"]);
        let error = output(&mut command, LONG, &Interrupt::default()).unwrap_err().to_string();
        assert!(error.ends_with("failed: exit status: 3: 2; 3; 4"), "{error}");
    }
}

//! A command that is asked something: bounded in time, and in how much of its answer is kept.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// What a command prints that ends within a limit. Of each stream the first [`KEPT_BYTES`] are kept; the
/// rest is read and dropped, as a command with a full pipe would wait for ever.
///
/// # Errors
///
/// It cannot be run, or it or what it started does not end in time; all of its group is killed then.
pub(super) fn output_of(command: &mut Command, within: Duration) -> io::Result<Output> {
    let deadline = Instant::now() + within;
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn()?;
    let group = Pid::from_raw(child.id().cast_signed());
    let output = drained(&mut child, deadline).transpose();
    output.unwrap_or_else(|| {
        // Not all of the group need be left, and its leader may have ended already.
        killpg(group, Signal::SIGKILL).ok();
        child.wait()?;
        Err(io::Error::other(format!("no end within {} s", within.as_secs_f64())))
    })
}

/// How much of each stream is kept: what is wanted of any command is far less.
const KEPT_BYTES: u64 = 64 * 1024;
const POLL: Duration = Duration::from_millis(2);

/// None when the deadline comes first.
fn drained(child: &mut Child, deadline: Instant) -> io::Result<Option<Output>> {
    let (stdout, stderr) = (child.stdout.take().map(drain), child.stderr.take().map(drain));
    let Some(status) = ended(child, deadline)? else { return Ok(None) };
    let (Some(stdout), Some(stderr)) = (kept(stdout, deadline)?, kept(stderr, deadline)?) else {
        return Ok(None);
    };
    Ok(Some(Output { status, stdout, stderr }))
}

fn ended(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

type Drained = Receiver<io::Result<Vec<u8>>>;

/// Reads a stream to its end on a thread of its own, which ends with the last process that holds it.
fn drain(mut stream: impl Read + Send + 'static) -> Drained {
    let (told, drained) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        let all = stream.by_ref().take(KEPT_BYTES).read_to_end(&mut kept);
        let all = all.and_then(|_| io::copy(&mut stream, &mut io::sink()));
        // Nobody listens any more when the deadline came first.
        told.send(all.map(|_| kept)).ok();
    });
    drained
}

/// None when something that the command started keeps the stream open beyond the deadline.
fn kept(drained: Option<Drained>, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let Some(drained) = drained else { return Ok(Some(Vec::new())) };
    let left = deadline.saturating_duration_since(Instant::now());
    drained.recv_timeout(left).ok().transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn output(script: &str, within: Duration) -> io::Result<Output> {
        output_of(Command::new("sh").args(["-c", script]), within)
    }

    #[test]
    fn what_overflows_a_pipe_is_read_and_dropped() {
        let script = "echo first; head -c 1000000 /dev/zero; head -c 300000 /dev/zero >&2; false";
        let output = output(script, Duration::from_secs(30)).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.starts_with(b"first\n\0"));
        assert_eq!((output.stdout.len(), output.stderr.len()), (65_536, 65_536));
    }

    #[test]
    fn what_does_not_end_is_killed_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        // The shell itself, and then only what it left behind with the pipe in its hands.
        for end in ["sleep 60", "true"] {
            let script = format!("sleep 61 & echo $! >{}; {end}", pid.display());
            let begun = Instant::now();
            let error = output(&script, Duration::from_millis(300)).unwrap_err();
            assert_eq!(error.to_string(), "no end within 0.3 s");
            let sleeper = fs::read_to_string(&pid).unwrap();
            let status = format!("/proc/{}/status", sleeper.trim());
            // Whoever takes orphans in may not have buried it yet.
            while fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{end}: it lives on");
                thread::sleep(POLL);
            }
        }
    }
}

//! `tollgate origin`: the benchmark origin as a server of its own.

use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals;
use anyhow::Context;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;
use tollgate_lab::process::files;
use tollgate_origin::{Config, END_TIMEOUT, Listen, LogTarget, Origin};

/// What `tollgate origin` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Answers:
  /                   a page that explains the others; /index.html too
  /?payload=N         N bytes of text, N up to 67108864; other arguments are ignored
  /urandom            takes `size` random bytes (2048), up to 67108864, and says how long
                      that took; they come from a cryptographic generator in the process
                      (ChaCha12), which the kernel seeds anew after every 64 KiB
  /zero               the same from /dev/zero
  /sleep              after `time` seconds (1), up to 60
  /download           `size` bytes (10 chunks), up to 1073741824; `chunk_size` up to 1048576
                      (2048) only decides that size: chunks are gathered and leave together;
                      conditions (ETag) and one range are heeded
  /upload             the size of a POST's or PUT's body, up to 67108864 bytes, how long it
                      took, and its parts if it is multipart/form-data
  /status/CODE        that status, 200 to 599
  /headers, /method   what arrived of the request
  /echo               the body of the request, up to 1048576 bytes
  /delay              after a time: dist=fixed&ms=5, dist=bimodal&ms=1&ms2=20&p=0.1 or
                      dist=exponential&ms=5; ms up to 60000; the sequence follows from
                      `seed` (0)
  /counters           what was answered since the start; reset=1 begins anew
  any other           one line of text that names the path

A client is cut off that takes more than 10 seconds for a head, sends nothing of a body for
10 seconds or less than 1 KiB a second of it, takes nothing of its answer for 10 seconds, or
asks nothing for 60.

TERM or Ctrl-C ends it: requests that have arrived are answered first, and answers that are due
within a second; whoever reads its access log from a pipe has two more. If something holds it up
for longer, it ends with the exit code 1.

Examples:
  tollgate origin --listen 127.0.0.1:8000 &
  curl 'http://127.0.0.1:8000/?payload=100'
  curl -F file=@photo.jpg http://127.0.0.1:8000/upload
  tollgate origin --listen unix:/tmp/origin.sock --threads 2 --access-log requests.log")]
pub(crate) struct Args {
    /// Where to listen: an address, where port 0 takes a free one, or unix:PATH
    ///
    /// A socket at that path that nobody listens on is replaced; it is removed at the end.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    listen: Listen,
    /// Threads; on a port each has a listener of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Write a line a request, in the combined format, to FILE or standard output
    ///
    /// A line is written when the answer is over or cut off, with the bytes of its body that were
    /// sent; 499 is the status of a request that ended without an answer. Where
    /// a pipe is read too slowly, lines are left out, and it is said how many.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    access_log: Option<Option<PathBuf>>,
}

/// How long the origin may take to end: what it waits for at most, and a second more.
const END_PATIENCE: Duration = END_TIMEOUT.saturating_add(Duration::from_secs(1));

/// How long the last words are waited for, which may go to the same pipe.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(200);

/// Says why, if that can be said, and ends the process.
fn give_up(why: &str) -> ! {
    let why = why.to_owned();
    let (told, is_told) = mpsc::channel();
    std::thread::spawn(move || {
        output::tell(&why);
        told.send(()).ok();
    });
    is_told.recv_timeout(LAST_WORDS_PATIENCE).ok();
    std::process::exit(Exit::Failed as i32)
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    files::raise_limit().context("raising the limit of open files")?;
    let origin = Origin::bind(&Config {
        threads: usize::from(args.threads),
        access_log: args.access_log.as_ref().map(|file| match file {
            Some(path) => LogTarget::File(path.clone()),
            None => LogTarget::Stdout,
        }),
        ..Config::new(args.listen.clone())
    })?;
    let stopper = origin.stopper();
    signals::listen(move |_| {
        if let Err(error) = stopper.stop() {
            give_up(&format!("tollgate: stopping the origin: {error}"));
        }
        // The process ends before this is over, unless something holds it up.
        std::thread::sleep(END_PATIENCE);
        give_up(
            "tollgate: the origin did not stop in time; most likely the disk of its access log does \
             not answer",
        );
    })
    .context("asking for signals")?;
    output::print(&match origin.listens_on() {
        Listen::Tcp(addr) => format!("listening on http://{addr}\n"),
        Listen::Unix(path) => format!("listening on unix:{}\n", path.display()),
    })?;
    origin.serve()?;
    Ok(Exit::Done)
}

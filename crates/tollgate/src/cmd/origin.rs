//! `tollgate origin`: the benchmark origin as a standalone server.

use crate::console::{self, Exit, Failure};
use crate::signals;
use anyhow::Context;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};
use tollgate_origin::{Address, Config, LogTarget, Origin, RecordedAnswer, STOP_TIMEOUT_MAX};
use tollgate_runner::process;
use tollgate_tls::{Certificate, CertificateFiles, SelfSigned};
use tollgate_traffic::{RecordedResponse, RecordedResponses};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Endpoints:
  /                   HTML page that documents the endpoints; also /index.html
  /?payload=N         N bytes of text, 0 to 67108864; other parameters are
                      ignored
  /urandom            generate `size` random bytes, 0 to 67108864 (default:
                      2048), and report the time; from ChaCha12 in the process,
                      reseeded by the kernel after every 64 KiB
  /zero               the same with bytes of /dev/zero
  /sleep              respond after `time` seconds, 0 to 60 (default: 1)
  /download           `size` bytes, 0 to 1073741824 (default: 10 chunks), with
                      ETag, conditions and one range; `chunk_size`, 1 to 1048576
                      (default: 2048), only sets the default size: chunks are
                      sent together
  /upload             POST or PUT up to 67108864 bytes: size, time, and parts of
                      multipart/form-data
  /status/CODE        respond with this status, 200 to 599
  /headers, /method   headers and method as received
  /echo               request body, up to 1048576 bytes
  /delay              respond after a random time: dist=fixed&ms=5,
                      dist=bimodal&ms=1&ms2=20&p=0.1 or dist=exponential&ms=5,
                      `ms` up to 60000; `seed` (default: 0) fixes the sequence
  /counters           requests, responses and bytes since the start; reset=1
                      restarts the counters
  any other path      one line of text that names the path

Protocols: HTTP/1.1 and HTTP/2. Over TLS (1.2 or 1.3), ALPN selects one of
`h2` and `http/1.1`; in the clear, a client that starts with the preface of
HTTP/2 (prior knowledge) gets HTTP/2. Responses are the same, except that
/headers shows names in lower case and `:authority` as `host`.

Timeouts: 10 s for a request head or a TLS handshake; 10 s between two reads
of a request body, which must arrive at 1 KiB/s or more; 10 s between two
writes of a response; 60 s between two requests.

TERM or Ctrl-C stops the origin: requests that have arrived get a response if it
is due within one second, and a reader of the access log has two more seconds.
After that, it exits with code 1.

Examples:
  tollgate origin --listen 127.0.0.1:8000 &
  curl 'http://127.0.0.1:8000/?payload=100'
  curl -F file=@photo.jpg http://127.0.0.1:8000/upload
  tollgate origin --listen 127.0.0.1:8443 --tls &
  curl --insecure --http2 https://127.0.0.1:8443/headers
  tollgate origin --listen unix:/tmp/origin.sock --access-log requests.log")]
pub(crate) struct Args {
    /// Address to listen on: ADDRESS:PORT, where port 0 selects a free port, or unix:PATH
    ///
    /// A stale socket at PATH is replaced; the socket is removed at the end.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    listen: Address,
    /// Expect TLS on every connection, with the certificate of --cert or a self-signed one
    ///
    /// A self-signed certificate is made at each start, for `localhost`, 127.0.0.1, `::1` and the address to listen on.
    #[arg(long)]
    tls: bool,
    /// Certificate with its chain, in a PEM file; implies --tls
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, in a PEM file without passphrase
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Threads; on a TCP port, each has its own listener
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Poll for events instead of sleeping, so that a server under test pays nothing for waking it
    ///
    /// Uses the whole of a CPU until 100 ms after the last request, but yields it to a load generator that polls on the
    /// same CPU.
    #[arg(long)]
    busy_poll: bool,
    /// Write an access log in the combined format to FILE, or to standard output
    ///
    /// An entry is written once its response is sent or cut off, with the number of body bytes sent.
    /// Status 499 is a request that ended without a response. If a pipe is read too slowly, entries
    /// are dropped and their number is reported.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    access_log: Option<Option<PathBuf>>,
    /// Respond as FILE says, in place of the endpoints: a JSON object a line, with `method`, `target`, `status`, `type`,
    /// `bytes` and `weight`
    ///
    /// Runs write such a file for the recorded requests of their mix. Other requests get a line of text.
    #[arg(long, value_name = "FILE")]
    responses: Option<PathBuf>,
}

/// Time to stop before the process is ended.
const STOP_PATIENCE: Duration = STOP_TIMEOUT_MAX.saturating_add(Duration::from_secs(1));

/// Time to write the last message, because its reader may cause the delay.
const MESSAGE_PATIENCE: Duration = Duration::from_millis(200);

/// Ends the process with a message, if it can be written in time.
fn exit_with(message: &str) -> ! {
    let message = message.to_owned();
    let (written, is_written) = mpsc::channel();
    std::thread::spawn(move || {
        console::eprint_line(&message);
        written.send(()).ok();
    });
    is_written.recv_timeout(MESSAGE_PATIENCE).ok();
    std::process::exit(Exit::Failed as i32)
}

/// Reads or makes the certificate, if TLS is asked for.
fn certificate(args: &Args) -> Result<Option<Certificate>, Failure> {
    if let Some((certificate, key)) = args.cert.as_deref().zip(args.key.as_deref()) {
        let files = CertificateFiles { certificate, key };
        let read = Certificate::read(&files, SystemTime::now())
            .with_context(|| format!("--cert {} --key {}", certificate.display(), key.display()));
        let read = read.map_err(Failure::bad_input)?;
        for warning in read.warnings() {
            console::eprint_line(&format!("tollgate origin: {warning}"));
        }
        return Ok(Some(read));
    }
    if !args.tls {
        return Ok(None);
    }
    let listen = match &args.listen {
        Address::Tcp(address) => address.ip().to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    let mut names = vec!["localhost", "127.0.0.1", "::1"];
    if !names.contains(&listen.as_str()) {
        names.push(&listen);
    }
    let certificate = SelfSigned::new(&names).and_then(|certificate| certificate.for_server());
    Ok(Some(certificate.context("--tls")?))
}

/// Reads the recorded responses.
fn recorded(path: &Path) -> Result<Vec<RecordedAnswer>, Failure> {
    let read = File::open(path).and_then(|file| RecordedResponses::read(BufReader::new(file)));
    let read = read.with_context(|| format!("--responses {}", path.display()));
    let answer = |response| {
        let RecordedResponse { method, target, status, content_type, bytes, weight } = response;
        RecordedAnswer { method, target, status, content_type, body_bytes: bytes, weight }
    };
    Ok(read.map_err(Failure::bad_input)?.into_iter().map(answer).collect())
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    process::raise_file_limit().context("cannot raise the limit of open files")?;
    let certificate = certificate(args)?;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let origin = Origin::bind(&Config {
        tls: certificate,
        threads: usize::from(args.threads),
        busy_poll: args.busy_poll,
        access_log: args.access_log.as_ref().map(|file| match file {
            Some(path) => LogTarget::File(path.clone()),
            None => LogTarget::Stdout,
        }),
        recorded: args.responses.as_deref().map(recorded).transpose()?,
        ..Config::new(args.listen.clone())
    })?;
    let stopper = origin.stopper();
    signals::listen(move |_| {
        if let Err(error) = stopper.stop() {
            exit_with(&format!("tollgate: {error}"));
        }
        // A normal stop ends the process before this.
        std::thread::sleep(STOP_PATIENCE);
        exit_with("tollgate: the origin did not stop in time; check the disk of its access log");
    })
    .context("cannot handle signals")?;
    console::print(&match origin.listens_on() {
        Address::Tcp(addr) => format!("listening on {scheme}://{addr}\n"),
        Address::Unix(path) => format!("listening on unix:{}\n", path.display()),
    })?;
    origin.serve()?;
    Ok(Exit::Success)
}

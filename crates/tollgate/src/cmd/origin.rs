//! `tollgate origin`: the benchmark origin as a server of its own.

use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals;
use anyhow::Context;
use std::net::SocketAddr;
use tollgate_lab::process::files;
use tollgate_origin::{Config, Origin};

/// What `tollgate origin` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Answers:
  /?payload=N   N bytes, N up to 67108864; other arguments are ignored
  any other     a short text that names the path

Example:
  tollgate origin --listen 127.0.0.1:8000 &
  curl 'http://127.0.0.1:8000/?payload=100'")]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Threads, each with a listener of its own on the same port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    files::raise_limit().context("raising the limit of open files")?;
    let origin = Origin::bind(&Config {
        listen: args.listen,
        threads: usize::from(args.threads),
        cpus: Vec::new(),
    })?;
    let stopper = origin.stopper();
    signals::listen(move |_| {
        if let Err(error) = stopper.stop() {
            output::tell(&format!("tollgate: stopping the origin: {error}"));
            std::process::exit(Exit::Failed as i32);
        }
    })
    .context("asking for signals")?;
    output::print(&format!("listening on http://{}\n", origin.local_addr()))?;
    origin.serve()?;
    Ok(Exit::Done)
}

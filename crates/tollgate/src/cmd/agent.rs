//! `tollgate agent`: executes the commands of a coordinator on this host.

use crate::console::{self, Exit, Failure};
use crate::signals;
use anyhow::Context;
use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use tollgate_cluster::agent::{self, Folder};
use tollgate_runner::process::group;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Staging folder, in which the agent has a folder of its own while it runs
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the agent under a supervisor, which stops what it leaves behind and removes its folder, however it ended.
pub(crate) fn run(args: &Args) -> ExitCode {
    let folder = match Folder::create(&args.dir) {
        Ok(folder) => folder,
        Err(error) => return console::exit_code(Err(error.into())),
    };
    let code = signals::supervise_with_input(|| console::exit_code(serve(&folder)));
    match folder.remove() {
        Ok(()) => code,
        Err(error) => console::exit_code(Err(error.into())),
    }
}

fn serve(folder: &Folder) -> Result<Exit, Failure> {
    let interrupt = signals::interrupt(group::kill_now).context("cannot handle signals")?;
    // The supervisor stops what is left.
    let kill = || std::process::exit(Exit::Failed as i32);
    agent::run(folder.path(), stdin(), stdout(), &interrupt, kill)?;
    Ok(Exit::Success)
}

//! `tollgate batch find`.

use super::events::Events;
use super::{DIR, cut_off};
use crate::cmd::beginning::Outside;
use crate::exit::{Exit, Failure};
use crate::output;
use anyhow::Context;
use clap::ValueEnum;
use std::path::PathBuf;
use tollgate_lab::batch::find::find;
use tollgate_lab::batch::manifest::BatchManifest;
use tollgate_lab::batch::run::Request;
use tollgate_lab::inputs::catalog::Catalog;

/// What `tollgate batch find` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate batch find                         of the batch in batch/
  tollgate batch run revisions.toml --steps 10 && tollgate batch find
                                              a long history, coarse first and then fine

Where the level of the series changes, the commits between are bisected: each is measured beside
the anchor until its interval is on one side of the middle, at most in three rounds; one that does
not build or run is passed over. Where there are several changes between two revisions, all are
looked for. Then each culprit and the commit before it run beside each other, and only what the
95 % interval of that run carries is called a regression or an improvement; where the batch has
seen equal products differ by more than the margin, it has to lie beyond that.
Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    /// The directory of the batch
    #[arg(value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
    /// Measure so many of its revisions first, as far apart as can be; by default as many as `tollgate batch run`
    /// measured last
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    steps: Option<u32>,
    /// Try again what failed to build or to run
    #[arg(long)]
    retry: bool,
    /// How to write what was found
    #[arg(long, value_enum, default_value_t = Written::Text)]
    format: Written,
}

/// How findings are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Written {
    /// For a person
    Text,
    /// For a program
    Json,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let manifest = match BatchManifest::read(&args.dir) {
        Ok(manifest) => manifest,
        Err(error) => return cut_off(error),
    };
    let outside = Outside::take(&Catalog::new(manifest.catalog))?;
    let mut events = Events::default();
    let request = Request {
        out: &args.dir,
        tollgate: &outside.tollgate,
        interrupt: &outside.interrupt,
        steps: args.steps.map(|steps| steps as usize),
        retries: args.retry,
    };
    let findings = match find(&request, &mut |event| events.show(&event)) {
        Ok(findings) => findings,
        Err(error) => return cut_off(error),
    };
    let screen = output::screen();
    output::print(&match args.format {
        Written::Text => {
            findings.paragraphs().iter().map(|paragraph| screen.wrapped(paragraph)).collect()
        }
        Written::Json => {
            let text = serde_json::to_string_pretty(&findings);
            text.context("writing the findings as JSON")? + "\n"
        }
    })?;
    Ok(Exit::Done)
}

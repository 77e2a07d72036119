//! `tollgate batch stats`.

use super::{DIR, cut_off, nothing};
use crate::exit::{Exit, Failure};
use crate::output;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tollgate_lab::batch::dir::BatchRecords;
use tollgate_lab::batch::report::{self, Format};

/// What `tollgate batch stats` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate batch stats > stats.csv
  tollgate batch stats --format table
  tollgate batch stats --format html > batch/page.html

The CSV has the columns of modsecurity-performance's `batchbench.sh stats`: means over the trials that
count, of requests a second, of the latency in milliseconds, and of the system's user time in ticks of
10 ms. A revision without figures has these cells empty. The links of the page hold in the batch's
directory, where `stats.html` is the same page.")]
pub(crate) struct Args {
    /// The directory of the batch
    #[arg(value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Written::Csv)]
    format: Written,
}

/// How a batch is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Written {
    /// For a spreadsheet: the columns of batchbench.sh
    Csv,
    /// For a terminal: prices, intervals and states
    Table,
    /// For a program: everything
    Json,
    /// For a browser: with a plot, and links to every round's report
    Html,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let format = match args.format {
        Written::Csv => Format::Csv,
        Written::Table => Format::Table,
        Written::Json => Format::Json,
        Written::Html => Format::Html,
    };
    print(&args.dir, format)
}

/// Prints what is known of a batch, and tells whether anything has a price.
pub(super) fn print(dir: &Path, format: Format) -> Result<Exit, Failure> {
    let text = BatchRecords::read(dir).and_then(|records| {
        let stats = report::stats(&records, dir)?;
        let has_price = stats.revisions.iter().any(|point| point.price.is_some());
        Ok((report::render(&stats, format, output::screen())?, has_price))
    });
    match text {
        Ok((text, has_price)) => {
            output::print(&text)?;
            if has_price { Ok(Exit::Done) } else { Err(nothing(dir)) }
        }
        Err(error) => cut_off(error),
    }
}

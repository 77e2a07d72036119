//! `tollgate schema`: the JSON Schemas of files, for editors.

use crate::console::{self, Exit, Failure};
use clap::ValueEnum;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate schema experiment > experiment.schema.json
  tollgate schema gateway")]
pub(crate) struct Args {
    /// Kind of file
    #[arg(value_enum)]
    kind: Kind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// experiments/NAME.toml
    Experiment,
    /// systems/NAME/system.toml
    System,
    /// mixes/NAME.toml
    Mix,
    /// The configuration of `tollgate gateway`, in YAML
    Gateway,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    console::print(match args.kind {
        Kind::Experiment => include_str!("../../../../schemas/experiment.json"),
        Kind::System => include_str!("../../../../schemas/system.json"),
        Kind::Mix => include_str!("../../../../schemas/mix.json"),
        Kind::Gateway => include_str!("../../../../schemas/gateway.json"),
    })?;
    Ok(Exit::Success)
}

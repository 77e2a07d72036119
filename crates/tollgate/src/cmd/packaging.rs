//! `tollgate completions` and `tollgate man`: files that packages install beside the binary, generated from the
//! argument definitions. And `tollgate schema`: the JSON Schemas of files, for editors.

use crate::Cli;
use crate::console::{self, Exit, Failure};
use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tollgate_experiment::catalog::{self, Catalog};
use tollgate_records::manifest::VERSION;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(tollgate completions bash)                  in ~/.bashrc
  tollgate completions zsh > ~/.zfunc/_tollgate        with fpath+=~/.zfunc
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Existing folder, such as ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let mut command = with_names(Cli::command(), args.shell, &Catalog::new(Vec::new()));
    clap_complete::generate(args.shell, &mut command, "tollgate", &mut script);
    console::print(&String::from_utf8(script)?)?;
    Ok(Exit::Success)
}

/// Adds the names of experiments, systems and mixes to the arguments that take them. Bash completes files where no name fits;
/// for the other shells only arguments that take no file get names.
fn with_names(command: Command, shell: Shell, catalog: &Catalog) -> Command {
    let named = |arg: Arg| {
        let kinds: &[catalog::Kind] = match arg.get_id().as_str() {
            "system" | "systems" if arg.is_positional() => &[catalog::Kind::System],
            _ if shell != Shell::Bash => &[],
            "names" => &[catalog::Kind::Experiment, catalog::Kind::System],
            "experiment" => &[catalog::Kind::Experiment],
            "mix" | "benign" => &[catalog::Kind::Mix],
            _ => &[],
        };
        if kinds.is_empty() {
            return arg;
        }
        // The definitions of arguments keep static texts; this program ends soon.
        let names = kinds.iter().flat_map(|&kind| catalog.names(kind)).map(|name| &*name.leak());
        arg.value_parser(PossibleValuesParser::new(names))
    };
    let command = command.mut_args(named);
    command.mut_subcommands(|subcommand| with_names(subcommand, shell, catalog))
}

pub(crate) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &args.dir)?;
    Ok(Exit::Success)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &Command, dir: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or("tollgate");
    let path = dir.join(format!("{name}.1"));
    let page = page(command).with_context(|| format!("cannot make the page of {name}"))?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    shown.into_iter().try_for_each(|subcommand| write_pages(subcommand, dir))
}

/// Unlike [`Man::render`], prints the usage of `--help`, and keeps the line breaks of indented texts after the options.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let man = Man::new(command.clone().override_usage(usage));
    // The date of the build is not known, and roff skips an empty one.
    let man = man.date(VERSION).source("Tollgate").manual("Tollgate Manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    if command.get_long_about().is_some() {
        man.render_description_section(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        sections(&text.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

/// Longest line, in words, that is a heading if it ends with a colon.
const HEADING_WORDS_MAX: usize = 4;

/// True for the lines of tables and examples, which may be as long as the page is wide.
fn is_indented(line: &&str) -> bool {
    line.starts_with(' ')
}

fn sections(text: &str) -> Roff {
    let mut page = Roff::new();
    for (index, paragraph) in text.split("\n\n").enumerate() {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let heading = first
            .strip_suffix(':')
            .filter(|first| first.split_whitespace().count() <= HEADING_WORDS_MAX);
        match heading {
            Some(heading) => page.control("SH", [heading.to_uppercase().as_str()]),
            None if index == 0 => page.control("SH", ["NOTES"]),
            None => page.control("PP", []),
        };
        let lines: Vec<&str> = if heading.is_some() { rest } else { paragraph }.lines().collect();
        for lines in lines.chunk_by(|one, next| is_indented(one) == is_indented(next)) {
            let is_kept = is_indented(&lines[0]);
            if is_kept {
                page.control("nf", []);
                page.control("in", ["0"]);
            }
            for line in lines {
                page.text([roman(*line)]);
            }
            if is_kept {
                page.control("in", []);
                page.control("fi", []);
            }
        }
    }
    page
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate schema experiment > experiment.schema.json
  tollgate schema gateway")]
pub(crate) struct SchemaArgs {
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
    /// The configuration of `tollgate waf serve`, in YAML
    WafServe,
}

pub(crate) fn schema(args: &SchemaArgs) -> Result<Exit, Failure> {
    console::print(match args.kind {
        Kind::Experiment => include_str!("../../../../schemas/experiment.json"),
        Kind::System => include_str!("../../../../schemas/system.json"),
        Kind::Mix => include_str!("../../../../schemas/mix.json"),
        Kind::Gateway => include_str!("../../../../schemas/gateway.json"),
        Kind::WafServe => include_str!("../../../../schemas/waf-serve.json"),
    })?;
    Ok(Exit::Success)
}

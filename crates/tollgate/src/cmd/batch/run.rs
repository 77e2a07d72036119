//! `tollgate batch run`.

use super::events::{Events, announce};
use super::{DIR, cut_off, stats};
use crate::cmd::beginning::Outside;
use crate::cmd::catalog::CatalogArgs;
use crate::exit::{Exit, Failure};
use std::path::{Path, PathBuf};
use tollgate_lab::batch::beginning::Beginning;
use tollgate_lab::batch::file::{BatchFile, ProductFile, Revs};
use tollgate_lab::batch::report::Format;
use tollgate_lab::batch::run::{Request, run as run_batch};
use tollgate_lab::batch::settings::{Settings, Wanted};
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_lab::inputs::duration::Span;
use tollgate_lab::inputs::toml_file::{self, Source};

/// What `tollgate batch run` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file of revisions:
  experiment = \"mine.toml\"          # a name, or a file
  subject    = \"full\"               # whose option gets each product
  product    = { option = \"crs\", path = \"rules\" }     # $OUT/rules
  repo       = \"../coreruleset\"     # or: versions = [\"v1.0\", \"v1.1\"]
  revs       = \"v4.0.0..HEAD\"       # or a file, or a list; or: tags = \"v4.*\"
  build      = \"./make.sh && cp -r rules $OUT/\"       # knows REV, SRC and OUT

Examples:
  tollgate batch run revisions.toml
  tollgate batch run revisions.toml --revs v4.7.0..v4.8.0 --out other
  tollgate batch run revisions.toml --steps 10     ten of them, as far apart as can be
  tollgate batch run --repo ../server --tags 'v3.*' --experiment mine.toml --subject server \\
      --build 'make && cp server $OUT' --product binary=server

The repository is cloned into the batch's directory, and what is yours is not touched. A revision
that does not build or run is a result, and the batch goes on. Whatever ends it, the same command
takes it up where it was; later, it measures what is new. It goes on only with what it was begun
with: another tollgate, mix, recipe, system or compiler would mix up figures. Exits with 4 when
nothing has a price.
Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The file of revisions; options come before what it says
    #[arg(value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// A git repository: a folder, or a URL
    #[arg(long, value_name = "DIR")]
    repo: Option<String>,
    /// Which commits: A and what is new in B, or a file with one a line
    #[arg(long, value_name = "FILE | A..B", conflicts_with = "tags")]
    revs: Option<String>,
    /// Which commits: those with a tag of this pattern
    #[arg(long, value_name = "PATTERN")]
    tags: Option<String>,
    /// The revision that every block runs too; by default the first one that can be built
    #[arg(long, value_name = "REV")]
    anchor: Option<String>,
    /// An experiment's name, or a file that ends in .toml
    #[arg(long, value_name = "NAME | FILE.toml")]
    experiment: Option<String>,
    /// Which case of it, where it has several
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// Which subject of it the revisions take the place of
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// What builds a revision, for sh
    #[arg(long, value_name = "COMMAND")]
    build: Option<String>,
    /// How long a build may take
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// The option that gets a product, and what of $OUT it gets
    #[arg(long, value_name = "OPTION[=PATH]")]
    product: Option<String>,
    /// Blocks of each round; below 6 there is no interval
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// Cut the durations of trials to a fifth
    #[arg(long)]
    quick: bool,
    /// Measure so many revisions, as far apart as can be, and others in the place of those that cannot be built or
    /// run; `tollgate batch find` goes on from there
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    steps: Option<u32>,
    /// Try again what failed to build or to run
    #[arg(long)]
    retry: bool,
    /// The seed of every random choice; by default a new one for each batch, which keeps it
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The directory of the batch
    #[arg(long, value_name = "DIR", default_value = DIR)]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let folders = args.catalog.folders()?;
    let catalog = Catalog::new(folders.clone());
    let outside = Outside::take(&catalog)?;
    let beginning = match args.beginning(&catalog, &outside.directory, folders) {
        Ok(beginning) => beginning,
        Err(error) => return cut_off(error),
    };
    announce(&beginning.settings);
    let mut events = Events::default();
    let request = Request {
        out: &args.out,
        tollgate: &outside.tollgate,
        interrupt: &outside.interrupt,
        steps: args.steps.map(|steps| steps as usize),
        retries: args.retry,
    };
    if let Err(error) = run_batch(&request, &beginning, &mut |event| events.show(&event)) {
        return cut_off(error);
    }
    stats::print(&args.out, Format::Table)
}

impl Args {
    fn beginning(
        &self,
        catalog: &Catalog,
        directory: &Path,
        folders: Vec<PathBuf>,
    ) -> Result<Beginning, tollgate_lab::batch::BatchError> {
        let (in_file, folder) = match &self.file {
            Some(path) => {
                let source = Source {
                    name: path.display().to_string(),
                    text: std::fs::read_to_string(path).map_err(|source| {
                        let path = path.clone();
                        tollgate_lab::inputs::catalog::CatalogError::Unreadable { path, source }
                    })?,
                };
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                (toml_file::parse::<BatchFile>(&source)?, directory.join(folder))
            }
            None => (BatchFile::default(), directory.to_owned()),
        };
        let file = rooted(in_file, &folder).overridden_by(rooted(self.words(), directory));
        Ok(Beginning {
            settings: Settings::of(&file, directory, catalog)?,
            wanted: Wanted::of(&file, directory)?,
            anchor: file.anchor,
            catalog: folders,
            command: shell_words::join(std::env::args()),
            directory: directory.to_owned(),
            seed: self.seed,
        })
    }

    /// What the command line says in the place of the file.
    fn words(&self) -> BatchFile {
        let product = self.product.as_ref().map(|product| {
            let (option, path) = product.split_once('=').unwrap_or((product, ""));
            ProductFile { option: option.to_owned(), path: path.to_owned() }
        });
        BatchFile {
            repo: self.repo.clone(),
            revs: self.revs.clone().map(Revs::One),
            tags: self.tags.clone(),
            anchor: self.anchor.clone(),
            experiment: self.experiment.clone(),
            case: self.case.clone(),
            subject: self.subject.clone(),
            build: self.build.clone(),
            timeout: self.timeout,
            product,
            blocks: self.blocks,
            quick: self.quick.then_some(true),
            ..BatchFile::default()
        }
    }
}

/// The same with paths that hold wherever they are read: those of a file count from its folder.
fn rooted(file: BatchFile, folder: &Path) -> BatchFile {
    let root = |path: String| folder.join(path).display().to_string();
    let is_url = |repo: &str| repo.split('/').next().is_some_and(|first| first.contains(':'));
    BatchFile {
        experiment: file
            .experiment
            .map(|name| if name.ends_with(".toml") { root(name) } else { name }),
        repo: file.repo.map(|repo| if is_url(&repo) { repo } else { root(repo) }),
        revs: file.revs.map(|revs| match revs {
            Revs::One(list) if !list.contains("..") => Revs::One(root(list)),
            other => other,
        }),
        files: file.files.map(root),
        ..file
    }
}
